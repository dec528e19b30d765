"""How `variants` is answered: the program or its columns, then machines, flows and the draft."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status, relative_gap
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Reported, Scope, without_bound
from hetplan.planner.forms.milp import Milp
from hetplan.planner.placing import IN_TOTAL, Filling, read_places
from hetplan.problems.variants.draft import aim, draft
from hetplan.problems.variants.form import (
    capacity_rooms,
    columns,
    counts_in_order,
    counts_of,
    program,
    spread,
    why_no_columns,
)
from hetplan.problems.variants.places import (
    Packed,
    Placed,
    exact,
    pack,
    placed_by_counts,
    placed_on_machines,
    read_exact,
)
from hetplan.problems.variants.why import explained, fits_nowhere, over_limits
from hetplan.problems.variants.wish import CEILING, Snapshot

__all__ = ["WAYS", "Way", "by_cheapest", "filled"]

Integers = NDArray[np.int64]
Vector = NDArray[np.float64]
Way = Callable[[Snapshot, Ask], Draft | Infeasibility]

GAP = 1e-6
COLUMNS_GAP = 1e-3
NOTE = "bounded by the machines of a type taken together"
SHRINKINGS = 8
SMALL = 150
"""Up to so many applications the whole program is solved where columns leave more than their gap."""


def _claimed(v: Snapshot, answer: Answer[Any], *, machines: bool = False) -> Reported:
    """What an answer bounds, `machines` of a type taken together; the plan says what it costs."""
    scope: Scope = "relaxation" if machines else "problem"
    return Reported(aim(v), "min", scope, answer, note=NOTE if machines else None)


def _by_milp(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """The program (1) to (4), exactly."""
    form = program(v)
    answer = ask(form, gap=GAP, about="least gross cost")
    if answer.status is Status.INFEASIBLE:
        return explained(v, ask, answer)
    if answer.point is None:
        return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
    x = counts_of(v, answer.point)
    return _finished(v, ask, x, answer, fillings=_on_machines(v, form, answer.point, x))


def _on_machines(v: Snapshot, form: Milp, point: Vector, x: Integers) -> list[Filling] | None:
    """What is on the machines that are shared (None: those of some type were counted in total)."""
    found, most = list[Filling](), v.most
    for sharing in v.sharing.values():
        counts = {i: int(x[i]) for i in sharing.things}
        here = read_places(form, point, sharing, most[list(sharing.things)], counts)
        if here is None:
            return None
        found += here
    return found


def _by_columns(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """Configuration columns with exact pricing; the whole program where they do not split, or leave too much open."""
    if why_no_columns(v) or not v.items:
        return _by_milp(v, ask)
    answer = ask(columns(v), gap=COLUMNS_GAP, about="configurations, exactly priced")
    if answer.status is Status.INFEASIBLE:
        return explained(v, ask, answer)
    if answer.point is None:
        return _by_milp(v, ask)
    x = counts_in_order(v, answer.point)
    wanted = ask.limits.gap if ask.limits.gap is not None else COLUMNS_GAP
    if len(v.asked) <= SMALL or ask.limits.gap is not None:
        cost = answer.value if answer.value is not None else math.inf
        open_ = relative_gap(cost, answer.bound if answer.bound is not None else 0.0)
        if open_ > wanted:
            whole = ask(program(v), gap=min(wanted, GAP), about="least gross cost, whole")
            if whole.point is not None and (whole.value or 0.0) <= cost * (1 + 1e-9):
                return _finished(v, ask, counts_of(v, whole.point), whole, certified=answer.bound)
    return _finished(v, ask, x, answer)


def _finished(
    v: Snapshot,
    ask: Ask,
    x: Integers,
    answer: Answer[Any],
    *,
    certified: float | None = None,
    fillings: list[Filling] | None = None,
) -> Draft | Infeasibility:
    """Counts with their flows and places, as a draft. `certified` is the bound that configurations prove."""
    if v.level == "aggregate" and not v.has_machines and not v.sharing:
        claim = _claimed(v, answer)
        if certified is not None:
            open_ = relative_gap(answer.value or 0.0, certified)
            claim = replace(claim, note=f"an engine's word; the prices of configurations prove it within {open_:.2%}")
        return _drafted(v, ask, x, placed_by_counts(v, x), claim)
    packed = pack(v, x, ask, fillings)
    claim = _claimed(v, answer, machines=bool(v.own) or (bool(v.sharing) and fillings is None))
    if not packed.left:
        return _drafted(v, ask, x, placed_on_machines(v, packed.machines), claim)
    if v.level != "machine":
        count = packed.left.total()
        why = f"{count} of {int(x.sum())} instances find no machine: the totals allow what no machine can hold"
        return Infeasibility(why=(why,), proved=False)
    return _repacked(v, ask, packed, claim)


def filled(v: Snapshot, ask: Ask, x: Integers, fillings: list[Filling], bounded: Draft) -> Draft | None:
    """The plan of these counts on these machines, where all have their places; bounded as another plan is."""
    packed = pack(v, x, ask, fillings)
    if packed.left:
        return None
    made = _drafted(v, ask, x, placed_on_machines(v, packed.machines), bounded.reported[0])
    return made if isinstance(made, Draft) else None


def by_cheapest(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """A plan that needs no program: each application by whatever serves it at least cost, packed by best fit.

    It has no bound, whatever it takes to find places for it.
    """
    x, cost = np.zeros(len(v.items), dtype=np.int64), v.C.tolist()
    for i, item in enumerate(v.items):
        cost[i] = cost[i] if v.kinds[item.kind].part is None else _share_of_machine(v, i)
    ways = [(s.app, cost[i] / s.qps, i, s.qps) for i, item in enumerate(v.items) for s in item.serves if not s.late]
    for b, need in enumerate(v.need.tolist()):
        mine = [way for way in ways if way[0] == b]
        if need > 0 and mine:
            *_, i, qps = min(mine)
            x[i] += int(np.ceil(need / qps - CEILING))
    made = _finished(v, ask, x, Answer(Status.NO_ANSWER))
    return made if isinstance(made, Infeasibility) else without_bound(made)


def _share_of_machine(v: Snapshot, i: int) -> float:
    """What an instance takes of a machine that it shares, of its scarcest resource, at the machine's price."""
    kind = v.kinds[v.items[i].kind]
    provides = v.types[kind.type].provides
    part = max((need / provides[name] for name, need in kind.needs.items() if provides.get(name)), default=1.0)
    return part * v.types[kind.type].offers[0].price


def _repacked(v: Snapshot, ask: Ask, packed: Packed, claim: Reported) -> Draft | Infeasibility:
    """Other counts, that the machines can hold: the exact program where it is small, else with less room per type."""
    form = exact(v)
    if form is not None:
        whole = ask(form, gap=1e-4, about="least gross cost, machine by machine")
        if whole.point is not None:
            x = counts_of(v, whole.point)
            machines, rest = read_exact(v, form, whole.point), x.copy()
            for machine in machines:
                for i, n in machine.holds.items():
                    rest[i] -= n * machine.count
            machines += pack(v, rest, ask, _on_machines(v, form, whole.point, rest)).machines  # of types without end
            placed = placed_on_machines(v, machines)
            return _drafted(v, ask, x, placed, _claimed(v, whole))
        if whole.status is Status.INFEASIBLE:
            return fits_nowhere(v, packed.left, proved=True)
    shrunk: dict[str, float] = {}
    for _ in range(SHRINKINGS):
        _shrink(v, packed, shrunk)
        again = _again(v, ask, shrunk)
        if again is None:
            break
        packed = pack(v, again, ask)
        if not packed.left:
            placed = placed_on_machines(v, packed.machines)
            return _drafted(v, ask, again, placed, claim)
    return fits_nowhere(v, packed.left, proved=False)


def _again(v: Snapshot, ask: Ask, shrunk: dict[str, float]) -> Integers | None:
    """The counts that the rooms so shrunk allow."""
    answer: Answer[Any]
    if why_no_columns(v):
        answer = ask(program(v, shrunk=shrunk), gap=COLUMNS_GAP, about="with less room per type")
        return None if answer.point is None else counts_of(v, answer.point)
    answer = ask(columns(v, shrunk), gap=COLUMNS_GAP, about="with less room per type")
    return None if answer.point is None else counts_in_order(v, answer.point)


def _shrink(v: Snapshot, packed: Packed, shrunk: dict[str, float]) -> None:
    """Take what was left over out of the room of its type."""
    for room in capacity_rooms(v):
        over = sum(float(room.use[i]) * count for i, count in packed.left.items())
        if over > 0 and room.block == IN_TOTAL:
            shrunk[room.label] = shrunk.get(room.label, 0.0) + over


def _drafted(v: Snapshot, ask: Ask, x: Integers, placed: Placed, claim: Reported) -> Draft | Infeasibility:
    """The draft of counts that have their places."""
    flows = spread(v, x, ask)
    if flows is None:
        return Infeasibility(why=("whole counts do not carry the loads: a tolerance was too loose",), proved=False)
    return over_limits(v, placed) or draft(v, x, flows, placed, (claim,))


WAYS: Mapping[str, Way] = {"columns": _by_columns, "milp": _by_milp, "infaas-paper": _by_milp}
"""Formulations of the question itself; those of others are in `baselines/`."""
