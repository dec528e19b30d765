"""What caps and other people's balancers do to fleets that make text: goodput at the rate, in bursts, in a flash crowd.

    python benchmarks/llm_caps.py DATA

The question is that of `benchmarks/llm.py`, for given machines: TTFT 500 and TPOT 50 ms at p95. Refused requests count
as missed. `flash` is a minute of the rate, one of twice the rate, one of the rate; `minute` is the second of these.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import numpy as np

from hetplan.api.solve import plan_for
from hetplan.profiles.load import load_inputs
from hetplan.profiles.operating_points import limits_of
from hetplan.serving.tokens import demand_of, fleet_of_plan
from hetplan.simulator.tokens import drawn_at, play

FLEETS: tuple[tuple[dict[str, int], float], ...] = (
    ({"a100": 1, "h100": 1}, 20.0), ({"a100": 1, "h100": 2}, 36.0), ({"a10g": 2, "h100": 1}, 20.0),
)  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "hetplan's router": {}, "the same without caps": {"late": "serve"},
    "weighted-least": {"dispatch": "weighted-least"},
    "weighted-least without caps": {"dispatch": "weighted-least", "late": "serve"},
    "split-then-fewest": {"dispatch": "split-then-fewest"}, "fewest-requests": {"dispatch": "fewest-requests"},
    "round-robin": {"dispatch": "round-robin"},
}  # fmt: skip
SEEDS = 3


def arrivals(kind: str, rate: float, random: np.random.Generator) -> np.ndarray:
    """When requests come, in seconds."""
    steady = np.cumsum(random.exponential(1.0 / rate, int(rate * 400)))
    if kind == "poisson":
        return steady[steady < 240.0]
    if kind == "gamma cv 2":
        found = np.cumsum(random.gamma(0.25, 4.0 / rate, int(rate * 400)))
        return found[found < 240.0]
    if kind == "bursts":  # 1.6 times the rate in 12 s of each minute
        stretches = [(60.0 * n + at, length, factor) for n in range(6) for at, length, factor in _CYCLE]
        drawn = [at + np.sort(random.random(random.poisson(rate * f * s))) * s for at, s, f in stretches]
        return np.concatenate(drawn)
    doubled = np.where(steady < 60.0, steady, np.where(steady < 180.0, 30.0 + steady / 2.0, steady - 60.0))
    return doubled[doubled < 180.0]


_CYCLE = ((0.0, 12.0, 1.6), (12.0, 48.0, 0.85))


def goodput(plan: Any, inputs: Any, rate: float) -> dict[str, float]:
    """The share of requests within both limits, under each kind of arrivals."""
    app, fleet = inputs.slo.apps["chat"], fleet_of_plan(plan, inputs, "chat")
    demand, limits, found = demand_of(app.mix, app.arrivals, rate), limits_of(app), dict[str, list[float]]()
    for kind in ("poisson", "gamma cv 2", "bursts", "flash"):
        for seed in range(SEEDS):
            comes = arrivals(kind, rate, np.random.default_rng(1000 + seed))
            good = play(fleet, drawn_at(demand, comes, seed=2000 + seed)).within(limits)
            found.setdefault(kind, []).append(float(good[comes > (0.0 if kind == "flash" else 30.0)].mean()))
            if kind == "flash":
                found.setdefault("minute", []).append(float(good[(comes >= 60.0) & (comes < 120.0)].mean()))
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def table(rows: list[list[int]]) -> Iterator[str]:
    """A row per fleet and way."""
    yield "| fleet, rate | in front | poisson | gamma cv 2 | bursts | flash | minute | caps |"
    yield "|---" * 8 + "|"
    for machines, rate in FLEETS:
        named = " + ".join(f"{n} {gpu}" for gpu, n in machines.items())
        for way, stated in WAYS.items():
            wish = llm.slo(rows, rate)
            wish["apps"]["chat"].update(stated)
            wish["limits"] = {"instances": {gpu: [n, n] for gpu, n in machines.items()}}
            inputs = load_inputs(llm.profile(tuple(machines)), {**wish, "robust": {"law": False}})
            outcome = plan_for(inputs, try_repairs=False)
            if outcome.plan is None:
                yield f"| {named}, {rate:g}/s | {way} | no plan | | | | | |"
                continue
            caps = [f"{one.hardware} {one.loads[0].serve.concurrency}" for one in outcome.plan.workers]
            shown = " | ".join(f"{value:.3f}" for value in goodput(outcome.plan, inputs, rate).values())
            said = "none" if stated.get("late") else ", ".join(caps)
            yield f"| {named}, {rate:g}/s | {way} | {shown} | {said} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    for line in table(llm.lengths(parser.parse_args().data, 7)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
