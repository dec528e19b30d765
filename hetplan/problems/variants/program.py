r"""The program of `variants`: whole instances of each variant that carry all loads, at least gross cost.

==========  =====================  ====================================================================================
letter      `Snapshot` field       meaning
==========  =====================  ====================================================================================
b           `asked`                application: load L_b, need_b = slack L_b (or L_b + slack), SLO S_b, floor a_b
v           `items`                a way to run a variant on a type of machine; with sharing `dedicated`, of one
                                   application
C_v         `C`                    cost of an instance, currency units per hour
T_bv, Q_bv  `serves`               latency (ms) and saturation rate (queries/s) for the queries of b
Tl_v        `Choice.load_s`        seconds to load it
N_g         `N`                    instances of group g that run now (a variant wherever it runs)
R_v         `Kind.needs`           what an instance takes of each resource
lambda      `weight`               1/s, what a second of loading weighs against a second of serving: 1 / horizon, or
                                   where it is stated the paper's `load_weight_per_s`; 0 where nothing runs
x_v         --                     instances that shall run
p_g         --                     instances to load: max(x - N, 0)
y_bv        --                     queries/s of b served by v, where v may serve several applications
==========  =====================  ====================================================================================

::

    min  rent + lambda sum_g C_g Tl_g p_g                                           gross; net = gross - sum C N
    (1)  sum_{v of b alone} Q_bv x_v + sum_{v common} y_bv >= need_b                every load, by eligible variants
    (2)  sum_b y_bv / Q_bv <= x_v                                                   an instance at saturation is full
    (3)  sum_v R_v^type x_v <= R_total^type                                         limits.capacity: what is taken
    (4)  p_g >= sum_{v of g} x_v - N_g,  p_g >= 0,  x_v whole, 0 <= x_v
    eligible: T_bv <= S_b, quality >= a_b: bounds, not rows

Machines are rented by `planner.program`, whose rows say what they cost and how many there may be. Of a type all have a
price for the whole machine, whatever is on it (`planner.machine_packing` says what one may hold; an instance that says
nothing of what it computes with takes one alone), and cost nothing where what is on them is paid by itself: C x is a
fee beside them then, and they are used up by what all that they hold takes together.

(1) to (4) are Section 4.2.1 of INFaaS, with one cover row per application (the paper sums over all models at once) and
with gross cost, whose argmin is that of the paper's net cost but of which a relative gap means something. With machines
the plan is called feasible only once every instance has its machine (`placement`).

Where every item serves one application, the same is also written as configuration columns (`columns`): an application's
way to carry its load is a column, priced exactly. Loads are spread over chosen instances by `spread`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask
from hetplan.planner.forms.columns import Columns
from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.planner.machine_limits import PRICE_OF_SLACK
from hetplan.planner.machine_packing import Sharing, in_total, place
from hetplan.planner.program import Expression, Uses, limit_moves, rent
from hetplan.planner.request import PLENTY
from hetplan.planner.tolerances import SLIP
from hetplan.problems.variants.request import OWN, Integers, Snapshot, Vector, count_of

__all__ = [
    "LOAD",
    "TAKEN",
    "Room",
    "capacity_rooms",
    "columns",
    "counts_of",
    "counts_of_columns",
    "least_use",
    "program",
    "spread",
    "spread_evenly",
    "why_no_columns",
    "write_program",
]

SMALL = 1e-3
"""Loads that take less of an instance than this are also asked whether there is one: tolerances would hide them."""
LOAD, TAKEN = "load", "taken"
PRICE_OF_LOAD = 1000.0 * PRICE_OF_SLACK
"""Where all may give way a load does last."""


def program(v: Snapshot, *, shrunk: Mapping[str, float] | None = None) -> Milp:
    """Least gross cost; `shrunk` is taken off what machines provide in total, by the names of these rows."""
    return write_program(v, shrunk=shrunk)[0].build()


def write_program(v: Snapshot, *, shrunk: Mapping[str, float] | None = None) -> tuple[Builder, Integers]:
    """The program, still open to more rows, and its x."""
    m = Builder("min", name="variants")
    in_use = v.N[v.group] > 0 if len(v.items) else np.zeros(0, dtype=bool)  # items of whose group some instance runs
    cost = np.where(in_use, 0.0, v.loading)
    x = m.columns("x", v.item_name, size=len(v.items), upper=v.most, cost=cost, whole=True, unit="instances")
    _add_loads(v, m, x)
    _add_loading(v, m, x, in_use)
    _add_limits(v, m, x, shrunk or {})
    if v.wanted.changes is not None:
        kinds, group = np.unique(v.kind_of, return_inverse=True)
        limit_moves(m, Expression(x), group, v.running[kinds], float(v.wanted.changes))
    return m, x


def _add_loads(v: Snapshot, m: Builder, x: Integers) -> None:
    """(1) and (2), every load as 1: what is needed may be many orders below what an instance serves.

    One instance that serves a whole need alone counts as just that: the same whole counts, a tighter relaxation.
    """
    need = np.where(v.need > 0, v.need, 1.0)
    each = tuple(one.load_qps for one in v.asked)
    less = Elastic(PRICE_OF_LOAD, "slo.apps.{label}.rate_qps", verb="lower", per_unit=each, unit="qps")
    row = m.rows(LOAD, [one.id for one in v.asked], lower=np.sign(v.need), unit="loads", equation="(1)", elastic=less)
    alone = [(item.serves[0].app, i, item.serves[0].qps) for i, item in enumerate(v.items) if len(item.serves) == 1]
    if alone:
        b, i, q = (np.array(column) for column in zip(*alone, strict=True))
        m.add(row[b], x[i], np.minimum(q / need[b], 1.0))
    common = [(s.app, i, s.qps) for i, item in enumerate(v.items) if len(item.serves) > 1 for s in item.serves]
    if common:
        b, i, q = (np.array(column) for column in zip(*common, strict=True))
        y = m.columns("y", lambda k: f"{v.asked[b[k]].id} by {v.item_name(int(i[k]))}", size=len(common), unit="loads")
        m.add(row[b], y, 1.0)
        which, place = np.unique(i, return_inverse=True)
        full = m.rows("saturation", lambda k: v.item_name(int(which[k])), size=which.size, upper=0.0, equation="(2)")
        m.add(full[place], y, need[b] / q)
        m.add(full, x[which], -1.0)
        small = np.flatnonzero(need[b] < SMALL * q)
        there = m.rows("there at all", lambda k: v.item_name(int(i[small[k]])), size=small.size, upper=0.0)
        m.add(there, y[small], 1.0)
        m.add(there, x[i[small]], -1.0)


def _add_loading(v: Snapshot, m: Builder, x: Integers, in_use: NDArray[np.bool_]) -> None:
    """(4), for groups of which instances run; of the others every instance is loaded."""
    groups = np.unique(v.group[in_use]) if in_use.any() else np.zeros(0, np.int64)
    if not groups.size:
        return
    p = m.columns("p", lambda k: f"group {groups[k]}", size=groups.size, cost=v.group_loading[groups], unit="instances")
    row = m.rows("loaded", lambda k: f"group {groups[k]}", size=groups.size, upper=v.N[groups], equation="(4)")
    m.add(row, p, -1.0)
    m.add(row[np.searchsorted(groups, v.group[in_use])], x[in_use], 1.0)


def _add_limits(v: Snapshot, m: Builder, x: Integers, shrunk: Mapping[str, float]) -> None:
    """(3), the totals of what instances take, where they are stated; the machines that they are on, and their cost."""
    totals = v.wanted.capacity
    if totals:
        needs = np.array([[v.kind(i).needs.get(name, 0.0) for name in totals] for i in range(len(v.items))])
        needs = needs.reshape(len(v.items), len(totals))
        whole = bool((needs == np.floor(needs)).all())
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.capacity.{label}", whole=whole)
        rows = m.rows(TAKEN, list(totals), upper=list(totals.values()), equation="(3)", elastic=elastic)
        i, r = np.nonzero(needs)
        m.add(rows[r], x[i], needs[i, r])
    rent(m, v.request, _uses(v, m, x, shrunk), priced=True)


def _uses(v: Snapshot, m: Builder, x: Integers, shrunk: Mapping[str, float]) -> Uses:
    """The machines in use of each type, and what instances cost that are paid by themselves."""
    used = _used_up(v, m, x, shrunk)
    for t, kind in enumerate(v.types):
        parts = []
        if (sharing := v.sharing.get(t)) is not None:
            things = list(sharing.things)
            parts.append(place(m, sharing, x[things], v.most[things], v.item_name, less=shrunk).columns)
        parts.append(x[list(v.whole.get(t, ()))])
        used[kind.id] = Expression(np.concatenate(parts))
    bought = {kind.id: float(v.most.sum()) + kind.least for kind in v.request.machines}
    alone = [i for items in v.own.values() for i in items]
    fees = Expression(x[alone], v.C[alone])
    there = {kind.id for kind in v.request.machines}
    return Uses(
        {name: one for name, one in used.items() if name in there}, most=bought, counted=frozenset(there), fees=fees
    )


def _used_up(v: Snapshot, m: Builder, x: Integers, shrunk: Mapping[str, float]) -> dict[str, Expression]:
    """Machines that hold what is paid by itself: by what all on them takes together, of each type or of all types."""
    found = dict[str, Expression]()
    for t in v.used_up:
        items, name = list(v.own.get(t, ())), v.types[t].id + OWN
        if count_of(v.types[t]) is None:
            found[name] = Expression(x[items])
            continue
        machines = m.columns(f"machines {name}", ["all"], whole=True, unit="machines")
        found[name] = Expression(machines)
        light = [i for i in items if not any(v.kind(i).needs.get(one) for one in v.types[t].provides)]
        if light:  # what takes nothing of a machine is on one all the same
            row = m.rows(f"on some {name}", list(map(v.item_name, light)), upper=0.0, equation="(2)")
            m.add(row, x[light], 1.0)
            m.add(row, np.repeat(machines, len(light)), -v.most[light])
        if v.types[t].least:
            row = m.rows("in use", [name], upper=0.0)
            m.add(row, machines, 1.0)
            m.add(row, x[items], -1.0)

    def limit(where: str, items: Sequence[int], types: Sequence[int], provides: Mapping[str, float]) -> None:
        needs = [v.kind(i).needs for i in items]
        sharing = Sharing(where, provides, items, needs, [PLENTY] * len(items))
        machines = [(found[v.types[t].id + OWN], v.types[t].provides) for t in types]
        in_total(m, sharing, x[list(items)], machines, less=shrunk)

    few = [t for t in v.used_up if count_of(v.types[t]) is not None]
    if v.is_typed or not few:
        for t in few:
            limit(v.types[t].id, v.own[t], [t], v.types[t].provides)
        return found
    plenty = {name for t in v.own if t not in few for i in v.own[t] for name, n in v.kind(i).needs.items() if n}
    every = {name: n for t in few for name, n in v.types[t].provides.items() if name not in plenty}
    limit("", [i for items in v.own.values() for i in items], few, every)
    return found


@dataclass(frozen=True)
class Room:
    """A row of the program over the counts of items alone: how much there is, and what each item takes of it."""

    block: str
    label: str
    size: float
    use: Vector
    alone: bool
    """Whether nothing else takes of it."""


def capacity_rooms(v: Snapshot) -> tuple[Room, ...]:
    """What limits the counts of items, where as many machines are used up as may be had."""
    if "rooms" not in v.known:
        v.known["rooms"] = _rooms(v, {})
    return cast(tuple[Room, ...], v.known["rooms"])


def _rooms(v: Snapshot, shrunk: Mapping[str, float]) -> tuple[Room, ...]:
    m, found = Builder("min"), list[Room]()
    _add_limits(v, m, m.columns("x", v.item_name, size=len(v.items)), shrunk)
    form = m.build()
    most = np.zeros(form.lower.size)
    available = {f"machines {v.types[t].id}{OWN}": v.types[t].available for t in v.used_up}
    for block in form.columns:
        most[block.start : block.stop] = available.get(block.name, 0)
        if block.name == "n":
            labels = map(block.label, range(block.size))
            most[block.start : block.stop] = [v.request.of(label).available for label in labels]
    matrix, n = form.matrix.tocsr(), len(v.items)
    for block in form.rows:
        for number in range(block.start, block.stop):
            row, upper = matrix[[number]].toarray().ravel(), form.row_upper[number]
            use, others = row[:n], row[n:]
            if not np.isfinite(upper):
                continue
            taken = float(np.maximum(others, 0.0) @ most[n:])
            fits = not use.any() and taken <= upper * (1 + SLIP)
            if not fits:
                size = float(upper - np.minimum(others, 0.0) @ most[n:])
                found.append(Room(block.name, block.label(number - block.start), size, use, not (others > 0).any()))
    return tuple(found)


def counts_of(v: Snapshot, point: Vector) -> Integers:
    """Whole instances of each item."""
    return np.rint(point[: len(v.items)]).astype(np.int64)


def spread(
    v: Snapshot, x: Integers, ask: Ask, loads: Sequence[float] | None = None
) -> dict[tuple[int, int], float] | None:
    """Queries/s of (application, item) with the chosen instances fixed, evenly used; None where they do not suffice.

    Late items serve last: what runs in time carries all that it can. `loads` are by default what is asked for.
    """
    loads = [one.load_qps for one in v.asked] if loads is None else loads
    common = [i for i, item in enumerate(v.items) if len(item.serves) > 1 and x[i] > 0]
    shared = {s.app for i in common for s in v.items[i].serves}
    flows: dict[tuple[int, int], float] = {}
    room: dict[int, list[tuple[int, float, bool]]] = {}
    for i, item in enumerate(v.items):
        if x[i] > 0 and len(item.serves) == 1:
            s = item.serves[0]
            room.setdefault(s.app, []).append((i, s.qps * int(x[i]), s.late))
    for b, load in enumerate(loads):
        if b in shared or load <= 0:
            continue
        timely = sum(q for _, q, late in room.get(b, ()) if not late)
        behind = sum(q for _, q, late in room.get(b, ()) if late)
        if timely + behind < load * (1 - 1e-9):
            return None
        in_time = min(load, timely)
        for i, q, late in room[b]:
            share = (load - in_time) * q / behind if late else in_time * q / timely
            if share > 0:
                flows[b, i] = share
    if not common:
        return flows
    answer = spread_evenly(v, x, ask, sorted(shared), loads)
    if answer.point is None or answer.point[0] > 1 + 1e-6:
        return None
    pairs = _pairs(v, x, sorted(shared))
    for (b, i, _), value in zip(pairs, answer.point[1:], strict=True):
        if value > 1e-9 and loads[b] > 0:
            flows[b, i] = float(value) * loads[b]
    return flows


def spread_evenly(v: Snapshot, x: Integers, ask: Ask, apps: list[int], wanted: Sequence[float]) -> Answer[Vector]:
    """Loads of applications that share instances, spread so that the highest use is least: the point's first value."""
    m = Builder("min", name="variants spread")
    use = m.columns("use", ["most"], cost=1.0)
    pairs = _pairs(v, x, apps)
    y = m.columns("y", lambda k: f"{v.asked[pairs[k][0]].id} by {pairs[k][1]}", size=len(pairs), unit="loads")
    loads = np.array([wanted[b] for b in apps])
    row = m.rows("load", [v.asked[b].id for b in apps], lower=np.sign(loads), upper=np.sign(loads))
    place = [apps.index(b) for b, _, _ in pairs]
    items = sorted({i for _, i, _ in pairs})
    full = m.rows("saturation", [v.item_name(i) for i in items], upper=0.0)
    m.add(full, np.repeat(use, len(items)), -x[items].astype(float))
    m.add(row[place], y, 1.0)
    m.add(full[[items.index(i) for _, i, _ in pairs]], y, loads[place] / [q for _, _, q in pairs])
    return ask(m.build(), about="loads spread over the chosen instances")


def _pairs(v: Snapshot, x: Integers, apps: list[int]) -> list[tuple[int, int, float]]:
    return [(s.app, i, s.qps) for i, item in enumerate(v.items) if x[i] > 0 for s in item.serves if s.app in apps]


def why_no_columns(v: Snapshot) -> str:
    """Why the program is no set of columns ("" when it is)."""
    if any(len(item.serves) != 1 for item in v.items):
        return "applications share instances"
    if v.wanted.changes is not None:
        return "moves are limited"
    if v.sharing:
        return "instances share machines"
    if any(kind.least for kind in v.types):
        return "some machines must be there, used or not"
    if not all(room.alone for room in capacity_rooms(v)):
        return "machines are limited together that are paid in several ways"
    first: dict[int, tuple[int, float]] = {}
    for item, g in zip(v.items, v.group.tolist(), strict=True):
        mine = (item.serves[0].app, item.serves[0].qps)
        if first.setdefault(g, mine) != mine:
            return "instances of one variant count together that serve at different rates, or different applications"
    if any(all(s.late for s in item.serves) for item in v.items):
        return "running instances that break a limit are counted"
    return ""


def _order(v: Snapshot) -> Integers:
    """The items, application by application."""
    return np.argsort([item.serves[0].app for item in v.items], kind="stable").astype(np.int64)


def columns(v: Snapshot, shrunk: Mapping[str, float] | None = None) -> Columns:
    """The program as configuration columns, its items by application."""
    order = _order(v)
    rooms = _rooms(v, shrunk) if shrunk else capacity_rooms(v)
    use = np.array([room.use[order] for room in rooms]).reshape(len(rooms), order.size)
    return Columns(
        block=np.array([v.items[i].serves[0].app for i in order], dtype=np.int64),
        need=v.need,
        gain=np.array([v.items[i].serves[0].qps for i in order]),
        cost=v.C[order],
        group=v.group[order],
        free=v.N.astype(float),
        surcharge=v.group_loading,
        upper=v.most[order],
        use=use,
        capacity=np.array([room.size for room in rooms]),
        rows=tuple(f"{room.block} {room.label}" for room in rooms),
        item_name=lambda j: v.item_name(int(order[j])),
        name="variants",
    )


def least_use(v: Snapshot, room: Room) -> Columns:
    """The least that all loads can take of one room, the others kept."""
    form = columns(v)
    others = [k for k, one in enumerate(capacity_rooms(v)) if one is not room]
    return replace(
        form, cost=room.use[_order(v)], surcharge=np.zeros_like(form.surcharge), use=form.use[others],
        capacity=form.capacity[others], rows=tuple(form.rows[k] for k in others), name="variants least use",
        item_name=None,
    )  # fmt: skip


def counts_of_columns(v: Snapshot, point: Vector) -> Integers:
    """The form's counts, by item of the problem."""
    x = np.zeros(len(v.items), dtype=np.int64)
    x[_order(v)] = np.rint(point).astype(np.int64)
    return x
