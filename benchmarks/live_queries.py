"""How long a decision and a re-pack take with thousands of live queries (`hetplan.dispatch.live_packing`).

python benchmarks/live_queries.py 10000
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hetplan.dispatch.live_packing import LivePacking
from hetplan.measure.evaluator_synthetic import draw_machines, draw_packing
from hetplan.planner.forms.packing import Packing
from hetplan.repacking import form_of, prices_of, steps

KINDS = 200
CHURN = 500


def kinds_on_machines(count: int) -> Packing:
    """Two thirds of so many queries find room on these GPUs."""
    form = draw_machines(KINDS, 0, 1).on_machines()
    assert form.items is not None
    each = round(0.05 * count)
    items = replace(form.items, machines=np.array([0.0, each, each]))
    return replace(form, items=items, groups=tuple(f"k{n}" for n in range(KINDS)))


def kinds_in_totals(count: int) -> Packing:
    """Four fifths of so many queries find room in these totals."""
    form = draw_packing(KINDS, 0, weighted=True).in_totals()
    return replace(form, capacity=form.capacity * count / KINDS * 2.2, groups=tuple(f"k{n}" for n in range(KINDS)))


def took_ms(seconds: list[float]) -> str:
    return "median {:.2f}, p99 {:.2f}, most {:.2f} ms".format(*1000 * np.percentile(seconds, [50, 99, 100]))


def measured(kinds: Packing, count: int) -> None:
    rng, live, here = np.random.default_rng(0), LivePacking(kinds, 0.02), []

    def arrive(n: int) -> float:
        kind, weight = f"k{rng.integers(KINDS)}", float(rng.lognormal(0, 0.6))
        began = time.process_time()
        live.arrive(f"q{n}", kind, weight=weight)
        here.append(f"q{n}")
        return time.process_time() - began

    print("  arrivals:", took_ms([arrive(n) for n in range(count)]))
    leaving, coming = [], []
    for n in range(count, count + CHURN):
        name = here.pop(int(rng.integers(len(here))))
        began = time.process_time()
        live.depart(name)
        leaving.append(time.process_time() - began)
        coming.append(arrive(n))
    print("  when full, departures:", took_ms(leaving), "arrivals:", took_ms(coming))
    began, weight = time.process_time(), live.weight
    bounded = prices_of(*form_of(live))
    priced = time.process_time() - began
    marks, moves = [time.process_time()], 0
    for found in steps(live, bounded):
        marks.append(time.process_time())
        moves += 0 if found is None else len(found.moved)
    longest = 1000 * max(b - a for a, b in pairwise(marks))
    print(f"  re-pack: prices {priced:.2f} s, steps {marks[-1] - marks[0]:.2f} s, the longest {longest:.0f} ms")
    print(f"  weight {weight:.0f} to {live.weight:.0f} by {moves} moves; a gain of {bounded.most_gain:.0f} at most")
    assert not live.faults()


def main(count: int) -> None:
    for name, kinds in (("machines", kinds_on_machines(count)), ("totals", kinds_in_totals(count))):
        print(f"{count} queries, {name}")
        measured(kinds, count)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10_000)
