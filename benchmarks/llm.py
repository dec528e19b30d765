"""Fleets that make text, for the lengths of Azure's conversations of 2023: dollars over rates and limits; speeds.

    python benchmarks/llm.py DATA

DATA is a folder with `azure_2023_conv.csv` (Azure/AzurePublicDataset): arrival, tokens in, tokens out. Lengths are cut
to 4,096 in and 512 out. The model is Llama-3.1-8B in bf16 on four GPUs, each law a roofline of its data sheet: 60% of
peak bf16, 80% of peak bandwidth, 3 ms per iteration; prices on demand. Laws are taken as exact.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetplan.api.solve import plan_for
from hetplan.profiles.load import load_inputs
from hetplan.profiles.profile import Profile
from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw
from hetplan.simulator.tokens import Coming, play

PARAMETERS, WEIGHTS, KV_BYTES, PAIR_FLOPS = 8.03e9, 16.06e9, 131_072.0, 4.0 * 4096 * 32
GPUS = {
    "l4": (121e12, 300e9, 24e9, "0.805"),
    "a10g": (70e12, 600e9, 24e9, "1.006"),
    "a100": (312e12, 2039e9, 80e9, "3.67"),
    "h100": (989e12, 3350e9, 80e9, "6.88"),
}
"""Peak bf16 per second, bytes per second, bytes of memory, dollars per hour."""

FOUND = {25: (7.89, 7.68, 13.76, 10.55), 30: (10.55, 9.50, 13.76, 13.76), 50: (14.77, 14.56, 20.64, 19.44),
         60: (20.45, 18.19, 20.64, 20.64), 100: (29.53, 28.32, 34.40, 34.40)}  # fmt: skip
"""Of a prototype, per rate: the program with row (5) and without, the cheapest single type, the cheapest found."""


def engine(peak: float, bandwidth: float, memory: float) -> dict[str, Any]:
    """The roofline of a data sheet."""
    flops, speed = 0.6 * peak, 0.8 * bandwidth
    return {
        "pieces": [
            {"base_ms": 3.0, "token_ms": 2e3 * PARAMETERS / flops, "pair_ms": 1e3 * PAIR_FLOPS / flops},
            {"base_ms": 3.0 + 1e3 * WEIGHTS / speed, "kv_token_ms": 1e3 * KV_BYTES / speed},
        ],
        "kv_tokens": int((0.9 * memory - WEIGHTS) / KV_BYTES),
        "most_tokens": 8192,
        "most_seqs": 256,
    }


def profile(only: Sequence[str] = tuple(GPUS)) -> dict[str, Any]:
    """The model on these GPUs."""
    return {
        "format": "hetplan/profile/1.0",
        "hardware": {gpu: {"kind": "gpu", "provides": {"gpu": 1}} for gpu in only},
        "offers": {f"{gpu}": {"hardware": gpu, "price_per_hour": GPUS[gpu][3]} for gpu in only},
        "tasks": {"chat": {}},
        "variants": {"llama-8b": {"task": "chat", "runs": [{"hardware": gpu, "engine": gpu} for gpu in only]}},
        "engines": {gpu: engine(*GPUS[gpu][:3]) for gpu in only},
    }


def lengths(data: Path, every: int) -> list[list[int]]:
    """Tokens in and out of every so-manieth conversation."""
    with (data / "azure_2023_conv.csv").open() as file:
        rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    return [[min(i, 4096), min(o, 512)] for i, o in rows if i > 0 and o > 0][::every]


def slo(
    rows: list[list[int]], rate: float, *, ttft: float = 500.0, tpot: float = 50.0, at: float = 95.0
) -> dict[str, Any]:
    """The wish: limits at a percentile, requests drawn from these lengths."""
    bins = [[i, o] for i in (256, 512, 1024, 2048, 4096) for o in (64, 128, 256, 512)]
    mix = {"axes": ["input_tokens", "output_tokens"], "bins": bins, "observed": rows}
    targets = {f"ttft_p{at:g}_ms": ttft, f"tpot_p{at:g}_ms": tpot}
    app = {"model": "llama-8b", "latency": targets, "rate_qps": rate, "mix": mix}
    return {"format": "hetplan/slo/1.0", "apps": {"chat": app}}


def planned(known: dict[str, Any], wish: dict[str, Any]) -> tuple[Any, float]:
    """The outcome, and the processor time that it took."""
    inputs, began = load_inputs(Profile.model_validate(known), {**wish, "robust": {"law": False}}), time.process_time()
    outcome = plan_for(inputs)
    return outcome, time.process_time() - began


def cost(outcome: Any) -> float:
    """Dollars per hour; NaN without a plan."""
    if outcome.plan is None:
        return float("nan")
    return float(next(one.value for one in outcome.plan.promises if one.quantity == "cost_per_hour"))


def fleet(outcome: Any) -> str:
    """The machines in words."""
    return " + ".join(f"{worker.count} {worker.hardware}" for worker in outcome.plan.workers) if outcome.plan else "-"


def by_rate(rows: list[list[int]], rates: Sequence[float]) -> Iterator[str]:
    """The fleet, the bounds and the cheapest single type at each rate, beside the prototype's."""
    yield "| requests/s | (1)-(6) with (5) | without (5) | one type only | found | fleet | fleets excluded, simulated | CPU s | prototype: with, without, one type, found |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|"
    for rate in rates:
        outcome, seconds = planned(profile(), slo(rows, rate))
        said = outcome.plan.extensions["llm"]
        bounds = said["bounds_per_hour"]
        alone = min((cost(planned(profile([gpu]), slo(rows, rate))[0]) for gpu in ("a100", "h100")), default=np.nan)
        search, before = said["search"], FOUND.get(int(rate))
        beside = ", ".join(f"{value:.2f}" for value in before) if before else "-"
        yield (
            f"| {rate:g} | {bounds['mean iteration within tpot']:.2f} | {bounds['any schedule']:.2f} | {alone:.2f} | "
            f"{cost(outcome):.2f} | {fleet(outcome)} | {search['excluded']}, {search['simulated']} | {seconds:.1f} | "
            f"{beside} |"
        )


def by_limit(rows: list[list[int]], rate: float) -> Iterator[str]:
    """Dollars over TPOT, and over TTFT."""
    yield "| limit | " + " | ".join(f"TPOT {value:g}" for value in (30, 40, 50, 60, 70, 85, 100)) + " |"
    yield "|---" * 8 + "|"
    found = [cost(planned(profile(), slo(rows, rate, tpot=value))[0]) for value in (30, 40, 50, 60, 70, 85, 100)]
    yield f"| $/h at {rate:g}/s | " + " | ".join(f"{value:.2f}" for value in found) + " |"
    yield ""
    yield "| limit | " + " | ".join(f"TTFT {value:g}" for value in (200, 300, 500, 800, 1200, 2000)) + " |"
    yield "|---" * 7 + "|"
    found = [cost(planned(profile(), slo(rows, rate, ttft=value))[0]) for value in (200, 300, 500, 800, 1200, 2000)]
    yield f"| $/h at {rate:g}/s | " + " | ".join(f"{value:.2f}" for value in found) + " |"


def speed() -> Iterator[str]:
    """Iterations per second of one core, at 128 sequences: without gaps, with them, and where KV does not suffice."""
    yield "| | iterations/s | tokens per iteration | preempted per request |"
    yield "|---|---|---|---|"
    random, count = np.random.default_rng(0), 20_000
    requests = Requests.of(np.stack([random.integers(100, 900, count), random.integers(100, 500, count)], axis=1))
    arrival = np.sort(random.random(count) * count)
    for name, gaps, kv in (
        ("plain", False, 500_000),
        ("with the longest gaps", True, 500_000),
        ("with gaps and preemption", True, 60_000),
    ):
        law = TokenLaw(np.array([[3.0, 0.03, 0, 0, 1e-6], [6.0, 0, 4e-5, 0, 0]]), kv, most_seqs=128)
        coming, machines = Coming(arrival, requests, 300.0), TokenFleet((Group(law, 1),), 300.0)
        play(machines, coming, gaps=gaps)
        began = time.process_time()
        run = play(machines, coming, gaps=gaps)
        taken, rounds = time.process_time() - began, int(run.rounds.sum())
        tokens = run.tokens.sum() / rounds
        yield f"| {name} | {rounds / taken / 1e6:.1f} million | {tokens:.0f} | {run.lost.mean():.2f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--every", type=int, default=7, help="take every so-manieth conversation")
    parser.add_argument("--rates", type=float, nargs="*", default=[20, 25, 30, 50, 60, 100])
    given = parser.parse_args()
    rows = lengths(given.data, given.every)
    for title, table in (
        ("Dollars per hour over the rate", by_rate(rows, given.rates)),
        ("Dollars per hour over the limits", by_limit(rows, 50.0)),
        ("The simulator", speed()),
    ):
        print(f"\n## {title}\n", flush=True)
        for line in table:
            print(line, flush=True)


if __name__ == "__main__":
    main()
