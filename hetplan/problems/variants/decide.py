"""How each formulation of variants answers: program, columns, rules; then machines, flows and the draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported, Scope
from hetplan.planner.gap import relative_gap
from hetplan.problems.variants.columns import columns, counts_in_order, why_no_columns
from hetplan.problems.variants.draft import GROSS, draft
from hetplan.problems.variants.infeasible import explained, fits_nowhere, over_budget
from hetplan.problems.variants.machines import Packed, exact, pack, read_exact
from hetplan.problems.variants.milp import counts_of, program, rooms, spread
from hetplan.problems.variants.rules import by_brute_force, by_greedy, by_replication, static
from hetplan.problems.variants.workers import Placed, placed_by_counts, placed_on_machines

if TYPE_CHECKING:
    from hetplan.problems.variants.question import Variants

__all__ = ["WAYS", "by_milp", "finished"]

GAP = 1e-6
COLUMNS_GAP = 1e-3
NOTE = "bounded by the machines of a type taken together"
SHRINKINGS = 8
SMALL = 150
"""Up to so many applications the whole program is solved where columns leave more than their gap."""


def told(v: Variants, x: NDArray[np.int64]) -> float:
    """The gross cost, a hair up (below what a plan file keeps): no gap of it is too small a number for the file."""
    return v.gross(x) * (1.0 + 1e-13)


def claimed(v: Variants, x: NDArray[np.int64], answer: Answer[Any], *, machines: bool = False) -> Reported:
    """What is claimed of these counts; nothing costs less than nothing."""
    value = told(v, x)
    bound: float | None = 0.0 if value == 0 else None
    vouched: Literal["claimed"] | None = "claimed" if value == 0 else None
    scope: Scope = "relaxation" if machines else "problem"
    note = NOTE if machines else None
    return Reported(GROSS, "min", scope, answer, value=value, bound=bound, vouched=vouched, note=note)


def by_milp(v: Variants, ask: Ask) -> Draft | Infeasible:
    """The program (1) to (4), exactly."""
    answer = ask(program(v, typed=v.level != "aggregate"), gap=GAP, about="least gross cost")
    if answer.status is Status.INFEASIBLE:
        return explained(v, ask, answer)
    if answer.point is None:
        return Infeasible(why=(f"no plan was found: {answer.stop}",), proved=False)
    return finished(v, ask, counts_of(v, answer.point), answer)


def by_columns(v: Variants, ask: Ask) -> Draft | Infeasible:
    """Configuration columns with exact pricing; the whole program where they do not split, or leave too much open."""
    typed = v.level != "aggregate"
    reason = why_no_columns(v)
    if reason or not v.items:
        return by_milp(v, ask)
    answer = ask(columns(v, typed=typed), gap=COLUMNS_GAP, about="configurations, exactly priced")
    if answer.status is Status.INFEASIBLE:
        return explained(v, ask, answer)
    if answer.point is None:
        return by_milp(v, ask)
    x = counts_in_order(v, answer.point)
    wanted = ask.limits.gap if ask.limits.gap is not None else COLUMNS_GAP
    if len(v.asked) <= SMALL or ask.limits.gap is not None:
        open_ = relative_gap(v.gross(x), answer.bound if answer.bound is not None else 0.0)
        if open_ > wanted:
            whole = ask(program(v, typed=typed), gap=min(wanted, GAP), about="least gross cost, whole")
            if whole.point is not None and v.gross(counts_of(v, whole.point)) <= v.gross(x) * (1 + 1e-9):
                return finished(v, ask, counts_of(v, whole.point), whole, certified=answer.bound)
    return finished(v, ask, x, answer)


def finished(
    v: Variants, ask: Ask, x: NDArray[np.int64], answer: Answer[Any], *, certified: float | None = None
) -> Draft | Infeasible:
    """Counts with their flows and places, as a draft. `certified` is the bound that configurations prove."""
    if v.level == "aggregate" and not _has_machines(v):
        claim = claimed(v, x, answer)
        if certified is not None:
            open_ = relative_gap(v.gross(x), certified)
            claim = replace(claim, note=f"an engine's word; the prices of configurations prove it within {open_:.2%}")
        return drafted(v, ask, x, placed_by_counts(v, x), claim)
    packed = pack(v, x, ask)
    claim = claimed(v, x, answer, machines=True)
    if not packed.left:
        return drafted(v, ask, x, placed_on_machines(v, packed.machines), claim)
    if v.level != "machine":
        count = packed.left.total()
        why = f"{count} of {int(x.sum())} instances find no machine: the totals allow what no machine can hold"
        return Infeasible(why=(why,), proved=False)
    return _repacked(v, ask, packed, claim)


def _repacked(v: Variants, ask: Ask, packed: Packed, claim: Reported) -> Draft | Infeasible:
    """Other counts, that the machines can hold: the exact program where it is small, else with less room per type."""
    form = exact(v)
    if form is not None:
        whole = ask(form, gap=1e-4, about="least gross cost, machine by machine")
        if whole.point is not None:
            x = counts_of(v, whole.point)
            placed = placed_on_machines(v, read_exact(v, form, whole.point))
            return drafted(v, ask, x, placed, claimed(v, x, whole))
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
            return drafted(v, ask, again, placed, replace(claim, value=told(v, again)))
    return fits_nowhere(v, packed.left, proved=False)


def _again(v: Variants, ask: Ask, shrunk: dict[str, float]) -> NDArray[np.int64] | None:
    """The counts that the rooms so shrunk allow."""
    answer: Answer[Any]
    if why_no_columns(v):
        answer = ask(program(v, typed=True, shrunk=shrunk), gap=COLUMNS_GAP, about="with less room per type")
        return None if answer.point is None else counts_of(v, answer.point)
    answer = ask(columns(v, typed=True, shrunk=shrunk), gap=COLUMNS_GAP, about="with less room per type")
    return None if answer.point is None else counts_in_order(v, answer.point)


def _shrink(v: Variants, packed: Packed, shrunk: dict[str, float]) -> None:
    """Take what was left over out of the room of its type."""
    for room in rooms(v, typed=True):
        over = sum(float(room.use[i]) * count for i, count in packed.left.items())
        if over > 0 and room.where:
            shrunk[room.label] = shrunk.get(room.label, 0.0) + over


def drafted(v: Variants, ask: Ask, x: NDArray[np.int64], placed: Placed, claim: Reported) -> Draft | Infeasible:
    """The draft of counts that have their places."""
    flows = spread(v, x, ask)
    if flows is None:
        return Infeasible(why=("whole counts do not carry the loads: a tolerance was too loose",), proved=False)
    return over_budget(v, placed) or draft(v, x, flows, placed, (claim,))


def _has_machines(v: Variants) -> bool:
    return any(kind.count is not None for kind in v.types)


WAYS: dict[str, Callable[[Variants, Ask], Draft | Infeasible]] = {
    "columns": by_columns,
    "milp": by_milp,
    "infaas-paper": by_milp,
    "greedy": by_greedy,
    "replicate-only": by_replication,
    "static": static,
    "brute-force": by_brute_force,
}
