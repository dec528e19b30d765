"""What the planner of fleets that make text reaches, judged by a simulation written apart from the product's.

    python benchmarks/llm_reach.py DATA --rates 20 25 30 50 60 100
    python benchmarks/llm_reach.py --program

The question is that of `benchmarks/llm.py`. At each rate, all under one judge (`token_judge.py`): the default plan;
the cheapest of all mixes of up to ten machines of each type that the judge finds by its own search over chunks and
limits of the router, on 12 seeds; the cheapest of one type alone; the program of Mélange, written from the paper's
description; and hetplan's import of the same tables. `--program` times the program for 12 types and 60 classes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import numpy as np
from token_judge import Card, Court, Setting, Verdict

EDGES = ((64, 128, 256, 512, 1024, 2048, 4096), (32, 64, 128, 256, 512))
"""The size buckets of Mélange's tables: most tokens in and out."""
SLICES = 8
"""Mélange cuts the requests of a bucket into so many equal slices, each of which goes to one type."""


def cards() -> list[Card]:
    """The four types as the judge reads them."""
    found = []
    for name, (peak, bandwidth, memory, price) in llm.GPUS.items():
        engine, fields = (
            llm.engine(peak, bandwidth, memory),
            ("base_ms", "token_ms", "kv_token_ms", "sequence_ms", "pair_ms"),
        )
        pieces = tuple(tuple(piece.get(field, 0.0) for field in fields) for piece in engine["pieces"])
        found.append(Card(name, float(price), pieces, engine["kv_tokens"]))
    return found


# Mélange


def tables(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The share of requests of each bucket, and the most requests/s of its mean size that a machine of each type holds.

    As Mélange profiles: requests of one size alone, the highest rate at which the limits are kept, with the best chunk.
    Taking means of what was observed in each bucket, not its ends, is in Mélange's favour.
    """
    sizes, shape = np.array(rows), (len(EDGES[0]), len(EDGES[1]))
    place = [np.searchsorted(edges, sizes[:, axis]) for axis, edges in enumerate(EDGES)]
    share = np.bincount(place[0] * shape[1] + place[1], minlength=shape[0] * shape[1]).reshape(shape) / len(rows)
    types = cards()
    rate = np.zeros((len(types), *shape))
    for i, o in zip(*np.nonzero(share), strict=True):
        mine = sizes[(place[0] == i) & (place[1] == o)].mean(axis=0).round().astype(int)
        for t, card in enumerate(types):
            rate[t, i, o] = most_rate(card, int(mine[0]), int(mine[1]))
    return share, rate


def most_rate(card: Card, inp: int, out: int) -> float:
    """The highest rate of requests of one size that one machine holds within the limits."""
    best = 0.0
    for chunk in (1024, 2048, 4096):
        low, high = 0.0, 400.0
        for _ in range(14):
            middle = math.sqrt(max(low, 0.02) * high)
            how = Setting((1,), (chunk,), math.inf)
            low, high = (
                (middle, high) if Court([card], [[inp, out]], middle).late(how, 3, 600) <= 0.05 else (low, middle)
            )
            if high < 0.025 or high < max(best, low * 1.01):
                break
        best = max(best, low)
    return best


def melange(share: np.ndarray, rate: np.ndarray, asked: float) -> tuple[int, ...]:
    """Mélange's program: every slice of every bucket goes to one type, loads add up, machines are whole.

    minimise sum_t price_t B_t where sum over slices on t of rate/MaxTput <= B_t; slices of a bucket are alike, so it is
    enough to count how many go to each type.
    """
    from scipy.optimize import LinearConstraint, milp

    types, cells = cards(), list(zip(*np.nonzero(share), strict=True))
    pairs = [(t, c) for t in range(len(types)) for c in range(len(cells)) if rate[(t, *cells[c])] > 0.03]
    columns = len(types) + len(pairs)
    loads, served = np.zeros((len(types), columns)), np.zeros((len(cells), columns))
    loads[:, : len(types)] = np.eye(len(types))
    for k, (t, c) in enumerate(pairs, start=len(types)):
        loads[t, k] = -asked * share[cells[c]] / SLICES / rate[(t, *cells[c])]
        served[c, k] = 1.0
    price = np.array([card.price for card in types] + [0.0] * len(pairs))
    rules = [LinearConstraint(loads, lb=0), LinearConstraint(served, lb=SLICES, ub=SLICES)]
    answer: Any = milp(
        price, constraints=rules, integrality=np.ones(columns), options={"time_limit": 20, "mip_rel_gap": 1e-4}
    )
    return tuple(round(n) for n in answer.x[: len(types)])


def imported(share: np.ndarray, rate: np.ndarray, asked: float) -> float:
    """What hetplan plans with these tables as Mélange's file: dollars per hour, with its defaults."""
    from hetplan.api.solve import plan_for
    from hetplan.profiles.imports.melange import convert_document
    from hetplan.profiles.load import load_inputs

    document = {
        "gpu_info": {card.name: {"cost": card.price, "tputs": rate[t].tolist()} for t, card in enumerate(cards())},
        "workload_distribution": share.tolist(), "total_request_rate": asked,
        "input_buckets": list(EDGES[0]), "output_buckets": list(EDGES[1]),
    }  # fmt: skip
    profile, slo = convert_document(document)
    return llm.cost(plan_for(load_inputs(profile, slo)))


# One rate


def named(counts: tuple[int, ...]) -> str:
    """A fleet in words."""
    return " + ".join(f"{n} {card.name}" for n, card in zip(counts, cards(), strict=True) if n)


def said(verdict: Verdict | None) -> str:
    """Both percentiles."""
    return f"{verdict.ttft_ms:.0f}, {verdict.tpot_ms:.1f}" if verdict else "-"


def setting_of(outcome: Any) -> Setting:
    """How a plan runs its machines, as the judge has it."""
    names = [card.name for card in cards()]
    counts, chunks, theta = [0] * len(names), [2048] * len(names), 1.0
    limits = outcome.plan.dispatch["chat"].limit
    for worker in outcome.plan.workers:
        t, load = names.index(worker.hardware), worker.loads[0]
        counts[t], chunks[t] = counts[t] + worker.count, load.serve.most_tokens
        theta = limits.get(load.id, 1.0)
    return Setting(tuple(counts), tuple(chunks), theta)


def by_rate(rows: list[list[int]], rates: list[float]) -> Iterator[str]:
    """One row per rate."""
    yield (
        "| requests/s | default plan | its p95 TTFT, TPOT: 12 seeds | 60 seeds | judge's cheapest | its p95 | "
        "one type | Mélange's program | its p95 at best | import of the tables | CPU s: plan, judge's search |"
    )
    yield "|---" * 11 + "|"
    share, most = tables(rows)
    for rate in rates:
        outcome, seconds = llm.planned(llm.profile(), llm.slo(rows, rate))
        court, ours = Court(cards(), rows, rate), setting_of(outcome)
        began = time.process_time()
        top = 1.05 * court.cost(ours.counts)
        mixes = [n for n in itertools.product(range(11), repeat=4) if court.cost(n) <= top]
        found = court.cheapest(mixes)
        alone = court.cheapest([n for n in itertools.product((0, *range(1, 31)), repeat=4) if sum(map(bool, n)) == 1
                                and court.cost(n) <= 2.5 * top])  # fmt: skip
        judged = time.process_time() - began
        theirs = melange(share, most, rate)
        way = court.best(theirs)
        cells = [
            f"{rate:g}", f"{court.cost(ours.counts):.2f}: {named(ours.counts)}", said(court.verdict(ours)),
            said(court.verdict(ours, seeds=60)),
            f"{found[0]:.2f}: {named(found[1].counts)}" if found else "-", said(found[2] if found else None),
            f"{alone[0]:.2f}" if alone else "-", f"{court.cost(theirs):.2f}: {named(theirs)}",
            said(court.verdict(way[1]) if way else None), f"{imported(share, most, rate):.2f}",
            f"{seconds:.1f}, {judged:.0f}",
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


# The program's time


def program() -> Iterator[str]:
    """Twelve types (four GPUs at three degrees) and 60 classes: the sized bound and the program with headroom."""
    from hetplan.api.solve import plan_for
    from hetplan.profiles.load import load_inputs
    from hetplan.profiles.profile import Profile

    known = llm.profile()
    for gpu, (peak, bandwidth, memory, price) in llm.GPUS.items():
        for degree in (2, 4):
            name = f"{gpu}-x{degree}"
            known["hardware"][name] = {"kind": "gpu", "provides": {"gpu": degree}}
            known["offers"][f"{name}"] = {"hardware": name, "price_per_hour": f"{degree * float(price):g}"}
            engine = llm.engine(0.9 * degree * peak, 0.9 * degree * bandwidth, degree * memory)
            known["engines"][name] = {**engine, "tensor": degree}
            known["variants"]["llama-8b"]["runs"].append({"hardware": name, "engine": name})
    bins = [[i, o] for i in (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096) for o in (16, 32, 64, 128, 256, 512)]
    wish = llm.slo([[1, 1]], 60.0)
    wish["apps"]["chat"]["mix"] = {
        "axes": ["input_tokens", "output_tokens"], "bins": bins, "share": [1 / len(bins)] * len(bins)
    }  # fmt: skip
    inputs = load_inputs(Profile.model_validate(known), {**wish, "robust": {"law": False}})
    yield "| types | classes | CPU s, the whole answer with size=planned | status |"
    yield "|---|---|---|---|"
    for _ in range(2):
        began = time.process_time()
        outcome = plan_for(inputs, options={"sizing": "fluid"})
        yield f"| {len(known['engines'])} | {len(bins)} | {time.process_time() - began:.2f} | {outcome.reason} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--every", type=int, default=7, help="take every so-manieth conversation")
    parser.add_argument("--rates", type=float, nargs="*", default=[20, 25, 30, 50, 60, 100])
    parser.add_argument("--program", action="store_true", help="time the program for 12 types and 60 classes")
    given = parser.parse_args()
    lines = program() if given.program else by_rate(llm.lengths(given.data, given.every), given.rates)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
