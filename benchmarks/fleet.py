"""How long a fleet takes to plan, and how near to its bound it is, by size.

    python benchmarks/fleet.py --apps 5 --periods 24
    python benchmarks/fleet.py --apps 1 --periods 24 --types 3
    python benchmarks/fleet.py --cards 8

Made-up pools (five sizes of queries, four types of machine) over zones with on demand, spot at .35 and machines paid
ahead at .6; a zone, or all spot, may be lost with 90% kept. With `--cards` a machine is so many of these, at their
price together, each for one instance: applications share it, unless there is `--apart`. One line of JSON: CPU seconds
of one core, value, bound, gap, rounds. The same arguments give the same files.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from typing import Any

import hetplan as hp
from hetplan.planner.contract import Event

SIZES = (16, 64, 128, 256, 512)
TYPES = {
    "t4": (0.60, (4.2, 6.8, 10.5, 18.0, 33.0)),
    "cpu16": (0.55, (3.9, 10.9, 20.3, 39.2, 77.0)),
    "cpu4": (0.14, (7.1, 22.6, 43.2, 84.9, 168.0)),
    "l4": (0.80, (3.0, 4.6, 6.9, 11.8, 21.5)),
}
PERIOD_HOURS = 1.0


def files(
    apps: int, types: int, zones: int, periods: int, seed: int, cards: int = 1, times: float = 1.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO of a made-up fleet."""
    chance, used = random.Random(seed), list(TYPES)[:types]
    offers: dict[str, Any] = {}
    for name in used:
        price = round(cards * TYPES[name][0], 2)
        for zone in range(zones):
            sold = {"hardware": name, "zone": f"z{zone}"}
            ahead = {"term_s": 30 * 86400, "discount": 0.4}
            offers[f"{name}-z{zone}"] = {**sold, "price_per_hour": str(price), "commit": ahead}
            spot = str(round(0.35 * price, 4))
            offers[f"{name}-z{zone}-spot"] = {**sold, "price_per_hour": spot, "interruptions_per_hour": 0.05}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "machine", "provides": {"cards": cards}} for name in used},
        "offers": offers,
        "tasks": {"rank": {}},
        "variants": {
            "m": {"task": "rank", "runs": [{"hardware": name, "latency": name, "needs": {"cards": 1}} for name in used]}
        },
        "tables": {
            name: {"quantity": "latency_ms", "axes": {"batch": list(SIZES)}, "mean": list(TYPES[name][1])}
            for name in used
        },
    }
    wanted = {}
    for number in range(apps):
        weights = [chance.uniform(0.05, 1.0) for _ in SIZES]
        peak, phase = chance.uniform(100, 400), chance.uniform(0, 2 * math.pi)
        mix = {"axes": ["batch"], "bins": [[size] for size in SIZES], "share": [w / sum(weights) for w in weights]}
        series = [round(times * peak * (0.6 + 0.4 * math.sin(phase + 2 * math.pi * p / 24)), 1) for p in range(periods)]
        wanted[f"app{number}"] = {
            "question": "pool", "model": "m",
            "latency": {"p99_ms": 60 + 20 * number}, "rate_qps": {"series": series}, "mix": mix,
        }  # fmt: skip
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"survive": {"zones": 1, "spot": "all", "serve": 0.9}},
        "horizon": {"period_s": 3600 * PERIOD_HOURS, "periods": periods, "repeats": 30 * 24},
        "apps": wanted,
    }
    return profile, slo


def main() -> None:
    """Plan one fleet, and say how it went."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("apps", 5), ("types", 4), ("zones", 3), ("periods", 24), ("seed", 0), ("cards", 1)):
        words.add_argument(f"--{name}", type=int, default=default)
    words.add_argument("--gap", type=float, default=0.003)
    words.add_argument("--programs", type=int, default=500)
    words.add_argument("--times", type=float, default=1.0, help="so many times the queries")
    words.add_argument("--apart", action="store_true", help="applications share no machines")
    words.add_argument("--sizing", default="simulation", help="fluid: without room to wait")
    given = words.parse_args()
    profile, slo = files(given.apps, given.types, given.zones, given.periods, given.seed, given.cards, given.times)
    rounds: list[tuple[float, float | None, float | None]] = []
    began = time.process_time()

    def seen(event: Event) -> None:
        if event.what == "fleet":
            rounds.append((round(time.process_time() - began, 1), event.value, event.bound))

    options = {
        "savings": False, "gap": given.gap, "sizing": given.sizing, "share_machines": not given.apart,
    }  # fmt: skip
    outcome = hp.solve(hp.Profile.model_validate(profile), slo, options=options, on_event=seen)
    said: dict[str, Any] = {**vars(given), "cpu_s": round(time.process_time() - began, 1), "status": outcome.status}
    if outcome.plan is not None:
        claim = outcome.plan.claims[0]
        said |= {"cost_per_hour": claim.value, "bound": claim.bound, "gap_reached": claim.gap}
    if rounds:
        last = [one for one in rounds if one[2]][-1]
        said |= {"rounds": len(rounds), "prices_done_cpu_s": last[0], "relaxed": last[1], "bound_of_prices": last[2]}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
