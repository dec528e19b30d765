"""How `variants` is answered: the program or its columns gives counts, which get their machines and become a plan.

`FORMULATIONS` has the formulations of the question itself. `cheapest_plan` needs no program, `plan_instances` plans
what a rule of another package chose, and `bounding_programs` are those by which a bound is proved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer, Status, relative_gap
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Reported, Scope, without_bound
from hetplan.planner.forms.milp import Milp
from hetplan.planner.machine_packing import IN_TOTAL, Filling, read_fillings
from hetplan.planner.next_state import USED
from hetplan.problems.variants.infeasible import explain_infeasible, fits_nowhere, over_limits
from hetplan.problems.variants.placement import (
    Packed,
    Placed,
    exact_program,
    machines_of_exact,
    pack,
    workers_by_counts,
    workers_on_machines,
)
from hetplan.problems.variants.plan import cost_sought, draft_plan, name_of_pair
from hetplan.problems.variants.program import (
    capacity_rooms,
    columns,
    counts_of,
    counts_of_columns,
    program,
    spread,
    why_no_columns,
)
from hetplan.problems.variants.queueing import answer_fewest, ask_for_bursts, leave_room_to_wait
from hetplan.problems.variants.request import CEILING, Integers, Snapshot, Vector

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["FORMULATIONS", "Solve", "bounding_programs", "cheapest_plan", "plan_fillings", "plan_instances"]

Solve = Callable[[Snapshot, Ask], Draft | Infeasibility]

GAP = 1e-6
COLUMNS_GAP = 1e-3
NOTE = "bounded by the machines of a type taken together"
HAIR = 1e-9
"""By this part a share may be below the formula's: what a plan file says is rounded."""
SHRINKINGS = 8
SMALL = 150
"""Up to so many applications the whole program is solved where columns leave more than their gap."""


def _claim(v: Snapshot, answer: Answer[Any], *, machines: bool = False) -> Reported:
    """What an answer bounds, `machines` of a type taken together; the plan says what it costs."""
    scope: Scope = "relaxation" if machines else "problem"
    return Reported(cost_sought(v), "min", scope, answer, note=NOTE if machines else None)


def _by_milp(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """The plan of the program (1) to (4), exactly."""
    form = program(v)
    answer = ask(form, gap=GAP, about="least gross cost")
    if answer.status is Status.INFEASIBLE:
        return explain_infeasible(v, ask, answer)
    if answer.point is None:
        return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
    x = counts_of(v, answer.point)
    return _plan_counts(v, ask, x, answer, fillings=_fillings(v, form, answer.point, x))


def _fillings(v: Snapshot, form: Milp, point: Vector, x: Integers) -> list[Filling] | None:
    """What is on the machines that are shared (None: those of some type were counted in total)."""
    found, most = list[Filling](), v.most
    for sharing in v.sharing.values():
        counts = {i: int(x[i]) for i in sharing.things}
        here = read_fillings(form, point, sharing, most[list(sharing.things)], counts)
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
        return explain_infeasible(v, ask, answer)
    if answer.point is None:
        return _by_milp(v, ask)
    x = counts_of_columns(v, answer.point)
    wanted = ask.limits.gap if ask.limits.gap is not None else COLUMNS_GAP
    if len(v.asked) <= SMALL or ask.limits.gap is not None:
        cost = answer.value if answer.value is not None else math.inf
        open_ = relative_gap(cost, answer.bound if answer.bound is not None else 0.0)
        if open_ > wanted:
            whole = ask(program(v), gap=min(wanted, GAP), about="least gross cost, whole")
            if whole.point is not None and (whole.value or 0.0) <= cost * (1 + 1e-9):
                return _plan_counts(v, ask, counts_of(v, whole.point), whole, certified=answer.bound)
    return _plan_counts(v, ask, x, answer)


def _plan_counts(
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
        claim = _claim(v, answer)
        if certified is not None:
            open_ = relative_gap(answer.value or 0.0, certified)
            claim = replace(claim, note=f"an engine's word; the prices of configurations prove it within {open_:.2%}")
        return _plan_placed(v, ask, x, workers_by_counts(v, x), claim)
    packed = pack(v, x, ask, fillings)
    claim = _claim(v, answer, machines=bool(v.own) or (bool(v.sharing) and fillings is None))
    if not packed.left:
        return _plan_placed(v, ask, x, workers_on_machines(v, packed.machines), claim)
    if v.level != "machine":
        count = packed.left.total()
        why = f"{count} of {int(x.sum())} instances find no machine: the totals allow what no machine can hold"
        return Infeasibility(why=(why,), proved=False)
    return _plan_repacked(v, ask, packed, claim)


def plan_fillings(v: Snapshot, ask: Ask, x: Integers, fillings: list[Filling], bounded: Draft) -> Draft | None:
    """The plan of these counts on these machines, where all have their places; bounded as another plan is."""
    packed = pack(v, x, ask, fillings)
    if packed.left:
        return None
    made = _plan_placed(v, ask, x, workers_on_machines(v, packed.machines), bounded.reported[0])
    return made if isinstance(made, Draft) else None


def cheapest_plan(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """A plan that needs no program: each application by whatever serves it at least cost, packed by best fit.

    It has no bound, whatever it takes to find places for it.
    """
    x, cost = np.zeros(len(v.items), dtype=np.int64), v.C.tolist()  # of what shares a machine, its part of it
    ways = [(s.app, cost[i] / s.qps, i, s.qps) for i, item in enumerate(v.items) for s in item.serves if not s.late]
    for b, need in enumerate(v.need.tolist()):
        mine = [way for way in ways if way[0] == b]
        if need > 0 and mine:
            *_, i, qps = min(mine)
            x[i] += int(np.ceil(need / qps - CEILING))
    made = _plan_counts(v, ask, x, Answer(Status.NO_ANSWER))
    return made if isinstance(made, Infeasibility) else without_bound(made)


def _plan_repacked(v: Snapshot, ask: Ask, packed: Packed, claim: Reported) -> Draft | Infeasibility:
    """Other counts, that the machines can hold: the exact program where it is small, else with less room per type."""
    form = exact_program(v)
    if form is not None:
        whole = ask(form, gap=1e-4, about="least gross cost, machine by machine")
        if whole.point is not None:
            x = counts_of(v, whole.point)
            machines, rest = machines_of_exact(v, form, whole.point), x.copy()
            for machine in machines:
                for i, n in machine.holds.items():
                    rest[i] -= n * machine.count
            machines += pack(v, rest, ask, _fillings(v, form, whole.point, rest)).machines  # of types without end
            placed = workers_on_machines(v, machines)
            return _plan_placed(v, ask, x, placed, _claim(v, whole))
        if whole.status is Status.INFEASIBLE:
            return fits_nowhere(v, packed.left, proved=True)
    shrunk: dict[str, float] = {}
    for _ in range(SHRINKINGS):
        for room in capacity_rooms(v):  # what was left over is taken out of the room of its type
            over = sum(float(room.use[i]) * count for i, count in packed.left.items())
            if over > 0 and room.block == IN_TOTAL:
                shrunk[room.label] = shrunk.get(room.label, 0.0) + over
        again = _counts_with_less(v, ask, shrunk)
        if again is None:
            break
        packed = pack(v, again, ask)
        if not packed.left:
            placed = workers_on_machines(v, packed.machines)
            return _plan_placed(v, ask, again, placed, claim)
    return fits_nowhere(v, packed.left, proved=False)


def _counts_with_less(v: Snapshot, ask: Ask, shrunk: Mapping[str, float]) -> Integers | None:
    """The counts that the rooms so shrunk allow."""
    by_columns, about = not why_no_columns(v), "with less room per type"
    form = columns(v, shrunk) if by_columns else program(v, shrunk=shrunk)
    answer: Answer[Any] = ask(form, gap=COLUMNS_GAP, about=about)
    if answer.point is None:
        return None
    return counts_of_columns(v, answer.point) if by_columns else counts_of(v, answer.point)


def _plan_placed(v: Snapshot, ask: Ask, x: Integers, placed: Placed, claim: Reported) -> Draft | Infeasibility:
    """The draft of counts that have their places."""
    flows = spread(v, x, ask)
    if flows is None:
        return Infeasibility(why=("whole counts do not carry the loads: a tolerance was too loose",), proved=False)
    return over_limits(v, placed) or draft_plan(v, x, flows, placed, (claim,))


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
    claim = Reported(cost_sought(v), "min", "none", note="a rule, without a bound")
    placed = workers_on_machines(v, pack(v, x, ask).machines) if v.has_machines else workers_by_counts(v, x)
    return over_limits(v, placed) or draft_plan(v, x, flows, placed, (claim,), unserved=unserved, counters=counters)


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


def bounding_programs(v: Snapshot, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The least cost, by configurations or by the whole program, at the shares of instances that the plan says."""
    from hetplan.planner.certify import Bounding

    if (claim.about, claim.sense) != (cost_sought(v), "min") or claim.scope not in ("problem", "relaxation"):
        return []
    v = _ask_as_plan_says(v, plan.extensions.get(USED, {}))
    asked = [v]
    # Of other sizes it is machines that are looser, and not who is in time.
    if claim.scope == "relaxation" and v.options.sizing == "simulation" and all(pair.busy == 1.0 for pair in v.serves):
        least, bursty = answer_fewest(v), ask_for_bursts(v)
        asked = [least] if bursty.asked == least.asked else [least, bursty]
    solve = next((one for one in plan.solves if one.id == claim.solve), None)
    if solve is not None and solve.form == "columns":
        return [] if why_no_columns(v) else [Bounding(columns(one), of_plans=claim.scope == "problem") for one in asked]
    # Of all plans, the loosest first: points of the whole program are no plans where it leaves open who is beside whom.
    exact = exact_program(v) if claim.scope == "problem" else None
    found = [Bounding(program(one), of_plans=claim.scope == "problem" and exact is None) for one in asked]
    return [*found, Bounding(exact, of_plans=True)] if exact is not None else found


def _ask_as_plan_says(v: Snapshot, said: object) -> Snapshot:
    """The same, each instance asked for the share of its saturation that the plan says; all of it where it does not.

    A share is no lower than the formula leaves: less would cost more, and bound nothing.
    """
    shares = {name: float(share) for name, share in said.items()} if isinstance(said, dict) else {}
    serves = []
    for pair in v.serves:
        name = name_of_pair(v, pair)
        share = shares.get(name, 1.0)
        if share < 1.0:
            (least,) = leave_room_to_wait(replace(v, serves=(pair,))).serves
            if not share >= least.busy * (1.0 - HAIR):
                raise ValueError(f"{name} is asked for less than its queue allows")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"{name} is asked for {share} of its saturation")
        serves.append(pair.at_use(share))
    return replace(v, serves=tuple(serves))


FORMULATIONS: Mapping[str, Solve] = {"variants-columns": _by_columns, "variants-milp": _by_milp, "infaas": _by_milp}
"""Formulations of the question itself, by name."""
