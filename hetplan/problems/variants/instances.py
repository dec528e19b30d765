"""Plans of given instances: what rules of other packages choose."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.problems.variants.draft import aim, draft
from hetplan.problems.variants.form import spread
from hetplan.problems.variants.places import Placed, pack, placed_by_counts, placed_on_machines
from hetplan.problems.variants.why import over_limits
from hetplan.problems.variants.wish import Snapshot

__all__ = ["plan_instances"]

Integers = NDArray[np.int64]


def plan_instances(
    v: Snapshot, ask: Ask, x: Integers, counters: Mapping[str, Mapping[str, int]] | None = None
) -> Draft | Infeasibility:
    """The plan of so many instances per item: it serves what these can, and claims no bound.

    Instances that find no machine are left out; what is not served is said. `counters` go into the next state.
    """
    if v.has_machines:
        left = pack(v, x, ask).left
        for i, count in left.items():
            x[i] -= count
    loads, unserved = _served_rates(v, x), dict[int, tuple[float, str]]()
    for b, one in enumerate(v.asked):
        if loads[b] < one.load_qps * (1 - 1e-9):
            unserved[b] = (one.load_qps - loads[b], "nothing more fits: ask for a worker")
    flows = spread(v, x, ask, loads)
    if flows is None:
        return Infeasibility(
            why=("the rule's instances are shared in a way that serves less than it counted",), proved=False
        )
    claim = Reported(aim(v), "min", "none", note="a rule, without a bound")
    placed = _placed(v, x, ask)
    return over_limits(v, placed) or draft(v, x, flows, placed, (claim,), unserved=unserved, counters=counters)


def _served_rates(v: Snapshot, x: Integers) -> list[float]:
    """What of each load these counts can serve; common instances go to their applications in order."""
    left = x.astype(float)
    serving: dict[int, list[tuple[int, float]]] = {}
    for i, item in enumerate(v.items):
        for s in item.serves:
            serving.setdefault(s.app, []).append((i, s.qps))
    found = []
    for b, one in enumerate(v.asked):
        rest = one.load_qps
        for i, qps in serving.get(b, ()):
            if left[i] > 0 and rest > 0:
                used = min(left[i], rest / qps)
                left[i] -= used
                rest -= used * qps
        found.append(one.load_qps - max(rest, 0.0))
    return found


def _placed(v: Snapshot, x: Integers, ask: Ask) -> Placed:
    if not v.has_machines:
        return placed_by_counts(v, x)
    return placed_on_machines(v, pack(v, x, ask).machines)
