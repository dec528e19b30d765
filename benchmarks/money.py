"""The money table of `docs/measured/fleet.md`: ways to serve public demand, each tuned to one share in time.

    python benchmarks/money.py --data ../shared/data                     # the pool example under three services' days
    python benchmarks/money.py --data ../shared/data --services mid --mean 200 --csv money.csv
    python benchmarks/money.py --data ../shared/data --services mid --question variants --hours 8 --flash 2.5

Demand is ServeGen's (three production services, 14 days in steps of 600 s), one day of it scaled to a mean rate; the
day before is what forecasts know. With `--flash` the step in the middle has so many times its queries, which the plan
for the peak knows and no forecast does. Some minutes of one core per service, a gigabyte at 200 queries a second.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import hetplan as hp
from hetplan.profiles.load import load_inputs
from hetplan.profiles.rates import RatesOverTime, read_rates
from hetplan.studies.strategies import WAYS, Compared, Comparison, compare_ways

POOL = Path(__file__).resolve().parents[1] / "examples" / "pool"
SERVICES = ("mid", "small", "large")


def classifier(rate_qps: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Files of a made-up classifier of two variants, one for a card and one for four cores, 99% within 250 ms."""
    kinds = {"t4": ("0.60", 45, 8, [12, 60]), "cpu4": ("0.14", 25, 1, [65, 480])}
    runs = {
        name: {"hardware": name, "at": {"batch": batch}, "latency": f"net-{name}", "load_s": 5}
        for name, (_, _, batch, _) in kinds.items()
    }
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "machine", "startup_s": kinds[name][1]} for name in kinds},
        "offers": {name: {"hardware": name, "price_per_hour": kinds[name][0]} for name in kinds},
        "tasks": {"see": {}},
        "variants": {f"net-{name}": {"task": "see", "runs": [run]} for name, run in runs.items()},
        "tables": {
            f"net-{name}": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": one[3]}
            for name, one in kinds.items()
        },
    }
    app = {"task": "see", "latency": {"p99_ms": 250}, "rate_qps": rate_qps}
    return profile, {"format": "hetplan/slo/1.0", "limits": {"currency": "USD"}, "apps": {"ranking": app}}


def case(rate_qps: float, question: str) -> tuple[Any, Any]:
    """The shipped pool, or the classifier, asked for the least cost at a rate, and its files."""
    if question == "variants":
        profile, slo = classifier(rate_qps)
        files = hp.Profile.model_validate(profile), slo
        return hp.solve(*files, formulation="variants").require(), load_inputs(*files)
    slo = json.loads((POOL / "slo.json").read_text())
    slo |= {"objective": ["min cost"], "limits": {"currency": "USD"}}
    slo["apps"]["ranking"]["rate_qps"] = rate_qps
    return hp.solve(str(POOL / "profile.json"), slo).require(), load_inputs(str(POOL / "profile.json"), slo)


def compared(
    rates: RatesOverTime, mean_qps: float, span: tuple[int, int], ways: tuple[str, ...], draws: tuple[int, int],
    question: str = "pool", flash: float = 1.0,
) -> Comparison:  # fmt: skip
    """All ways under so many hours of one day of a service; the plan is made for their peak."""
    day, hours = span
    whole = rates.cut(24.0 * day, 24.0 * day + hours)
    factor = mean_qps / whole.mean_qps
    played, before = whole.times(factor), rates.cut(24.0 * day - 24.0, 24.0 * day).times(factor)
    middle = len(played.rates_qps) // 2
    rates_qps = tuple(rate * (flash if step == middle else 1.0) for step, rate in enumerate(played.rates_qps))
    plan, inputs = case(max(rates_qps), question)
    what = Compared(
        {"ranking": rates_qps}, rates.period_s, {"ranking": before.rates_qps}, ways=ways, seeds=draws[0],
        fresh=draws[1],
    )  # fmt: skip
    return compare_ways(plan, inputs, what)


def main() -> None:
    """Print a table per service."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--services", default=",".join(SERVICES))
    parser.add_argument("--mean", type=float, default=100.0)
    parser.add_argument("--day", type=int, default=1)
    parser.add_argument("--hours", type=int, default=24, help="of the day, from its beginning")
    parser.add_argument("--question", choices=("pool", "variants"), default="pool")
    parser.add_argument("--flash", type=float, default=1.0, help="so many times its queries in the step in the middle")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fresh", type=int, default=1, help="draws that no setting was tuned on, for the figures")
    parser.add_argument("--ways", default=";".join(WAYS))
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    for service in arguments.services.split(","):
        file = arguments.data / "demand" / f"servegen_{service}_qps.csv"
        if not file.exists():
            print(f"{file} is absent: nothing is played")
            continue
        began = time.process_time()
        found = compared(
            read_rates(file),
            arguments.mean,
            (arguments.day, arguments.hours),
            tuple(arguments.ways.split(";")),
            (arguments.seeds, arguments.fresh),
            arguments.question,
            arguments.flash,
        )
        print(f"\n{service}, day {arguments.day}, mean {arguments.mean:g} queries a second, "
              f"{time.process_time() - began:.0f} s of CPU")  # fmt: skip
        for row in found.rows:
            one = row.shown
            if one is not None:
                print(
                    f"| {row.way} | {one.setting if row.best else 'not reached: ' + one.setting} | "
                    f"{one.cost_per_hour:.3f} | {730 * one.cost_per_hour:.0f} | {found.per_million(one):.3f} | "
                    f"{one.late:.3%} | {min(one.worst.values()):.2%} |"
                )  # fmt: skip
        print(f"| least | {found.least_is} | {found.least} |")
        if arguments.csv is not None:
            arguments.csv.with_stem(f"{arguments.csv.stem}-{service}").write_text(found.as_csv())


if __name__ == "__main__":
    main()
