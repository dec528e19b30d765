"""The programs of `variants`: (1) to (4) as a mixed-integer program and as columns; loads spread over the choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask
from hetplan.planner.forms.columns import Columns
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.variants.kinds import COST, Room, machine_nanos
from hetplan.problems.variants.shared import add_machines
from hetplan.problems.variants.wish import Snapshot
from hetplan.profiles.fields import NANO

__all__ = [
    "CEILING",
    "columns",
    "cost_part",
    "counts_in_order",
    "counts_of",
    "evenly",
    "least_use",
    "program",
    "spread",
    "upper",
    "why_no_columns",
]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

SMALL = 1e-3
"""Loads that take less of an instance than this are also asked whether there is one: tolerances would hide them."""
CEILING = 1e-9
"""Taken off before rounding up: a quotient that is whole but for rounding."""


def upper(v: Snapshot) -> Vector:
    """No more instances of an item than serve all that it may serve; of violators no more than run."""
    found = []
    for item in v.items:
        most = sum(v.need[s.app] / s.qps for s in item.serves)
        bound = max(1.0, float(np.ceil(most - CEILING))) if most > 0 else 0.0
        if all(s.late for s in item.serves):
            bound = min(bound, float(v.running[item.kind]))
        found.append(bound)
    return np.array(found)


def program(
    v: Snapshot,
    *,
    grow: Sequence[int] | None = None,
    may_fall_short: bool = False,
    shrunk: Mapping[str, float] | None = None,
) -> Milp:
    """Least gross cost; or, with `grow`, least growth of these; or, with `may_fall_short`, least load left unserved.

    `shrunk` is taken off the rooms of these names.
    """
    costs = grow is None and not may_fall_short
    m, x = _counts(v, costs=costs)
    _cover(v, m, x, may_fall_short=may_fall_short)
    _price_and_room(v, m, x, costs=costs, grow=grow or (), shrunk=shrunk or {})
    return m.build()


def cost_part(v: Snapshot) -> tuple[Builder, Integers]:
    """The program of least gross cost, still open to more rows, and its x."""
    m, x = _counts(v, costs=True)
    _cover(v, m, x, may_fall_short=False)
    _price_and_room(v, m, x, costs=True, grow=(), shrunk={})
    return m, x


def _counts(v: Snapshot, *, costs: bool) -> tuple[Builder, Integers]:
    """x, each at C and, where none of its group runs, with its loading."""
    m = Builder("min", name="variants")
    cost = v.paid + np.where(_in_use(v), 0.0, v.loading) if costs else 0.0
    x = m.columns("x", v.item_name, size=len(v.items), upper=upper(v), cost=cost, whole=True, unit="instances")
    return m, x


def _in_use(v: Snapshot) -> NDArray[np.bool_]:
    """Items of whose group some instance runs."""
    return v.N[v.group] > 0 if len(v.items) else np.zeros(0, dtype=bool)


def _cover(v: Snapshot, m: Builder, x: Integers, *, may_fall_short: bool) -> None:
    """(1) and (2), every load as 1: what is needed may be many orders below what an instance serves.

    One instance that serves a whole need alone counts as just that: the same whole counts, a tighter relaxation.
    """
    need = np.where(v.need > 0, v.need, 1.0)
    row = m.rows("load", [one.id for one in v.asked], lower=np.sign(v.need), unit="loads", equation="(1)")
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
    if may_fall_short:
        short = m.columns("short", [one.id for one in v.asked], cost=1.0, upper=v.need, unit="qps")
        m.add(row, short, 1.0 / need)


def _price_and_room(
    v: Snapshot, m: Builder, x: Integers, *, costs: bool, grow: Sequence[int], shrunk: Mapping[str, float]
) -> None:
    """(4), (3) and the limit on moves; `grow` are the growths that may be bought."""
    if costs:
        _loading(v, m, x)
    wanted = list(v.growths.values())
    extra = {
        g: m.columns(f"extra {wanted[g].field}", ["extra"], cost=wanted[g].cost, whole=wanted[g].whole) for g in grow
    }
    names = list(v.growths)
    more = {int(names[g][1]): column for g, column in extra.items() if names[g][0] == "type"}
    machines = add_machines(v, m, x, upper(v), costs=costs, extra=more)
    idle = _idle(v, m, x, machines) if costs else []
    for room in v.rooms:
        at = np.flatnonzero(room.use)
        size = room.size - shrunk.get(room.label, 0.0)
        row = m.rows(room.resource, [room.where or "total"], upper=size, equation="(3)")
        m.add(row, x[at], room.use[at])
        if room.resource == COST:
            for t, columns_of_type in machines.items():
                m.add(row, columns_of_type, machine_nanos(v.inputs, v.types[t]) / NANO)
            if idle:
                m.add(row, [column for column, *_ in idle], [price for _, price, _ in idle])
        if room.provided:
            for t, columns_of_type in machines.items():
                m.add(row, columns_of_type, v.types[t].provides.get(room.provided, 0.0))
            for column, _, t in idle:
                m.add(row, column, v.types[t].provides.get(room.provided, 0.0))
        if room.growth in extra:
            m.add(row, extra[room.growth], -room.brings)
    if v.inputs.slo.limits.moves is not None:
        _moves(v, m, x, more=next((column for g, column in extra.items() if names[g][0] == "moves"), None))


def _loading(v: Snapshot, m: Builder, x: Integers) -> None:
    """(4), for groups of which instances run; of the others every instance is loaded."""
    in_use = _in_use(v)
    groups = np.unique(v.group[in_use]) if in_use.any() else np.zeros(0, np.int64)
    if not groups.size:
        return
    p = m.columns("p", lambda k: f"group {groups[k]}", size=groups.size, cost=v.group_loading[groups], unit="instances")
    row = m.rows("loaded", lambda k: f"group {groups[k]}", size=groups.size, upper=v.N[groups], equation="(4)")
    m.add(row, p, -1.0)
    m.add(row[np.searchsorted(groups, v.group[in_use])], x[in_use], 1.0)


def _moves(v: Snapshot, m: Builder, x: Integers, *, more: Integers | None) -> None:
    """At most so many instances that are new where they are, and `more` of them where that is a column."""
    most = float(v.inputs.slo.limits.moves or 0)
    new = m.columns("new", v.item_name, size=len(v.items), unit="instances")
    row = m.rows("moves", ["all"], upper=most)
    m.add(row, new, 1.0)
    if more is not None:
        m.add(row, more, -1.0)
    kinds, place = np.unique(v.kind_of, return_inverse=True)
    row = m.rows("new", lambda k: v.kinds[int(kinds[k])].id, size=kinds.size, upper=v.running[kinds])
    m.add(row[place], x, 1.0)
    m.add(row[place], new, -1.0)


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
    answer = evenly(v, x, ask, sorted(shared), loads)
    if answer.point is None or answer.point[0] > 1 + 1e-6:
        return None
    pairs = _pairs(v, x, sorted(shared))
    for (b, i, _), value in zip(pairs, answer.point[1:], strict=True):
        if value > 1e-9 and loads[b] > 0:
            flows[b, i] = float(value) * loads[b]
    return flows


def evenly(v: Snapshot, x: Integers, ask: Ask, apps: list[int], loads: Sequence[float]) -> Answer[Vector]:
    """Loads of applications that share instances, spread so that the highest use is least: the point's first value."""
    return ask(_even(v, x, apps, loads), about="loads spread over the chosen instances")


def _pairs(v: Snapshot, x: Integers, apps: list[int]) -> list[tuple[int, int, float]]:
    return [(s.app, i, s.qps) for i, item in enumerate(v.items) if x[i] > 0 for s in item.serves if s.app in apps]


def _even(v: Snapshot, x: Integers, apps: list[int], wanted: Sequence[float]) -> Milp:
    """The least highest use of an instance by which these loads are served."""
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
    return m.build()


def _idle(v: Snapshot, m: Builder, x: Integers, machines: Mapping[int, Integers]) -> list[tuple[int, float, int]]:
    """Idle machines in the program: those in use and these make up the least count, within what may be had.

    Returns their columns, prices and types.
    """
    found: list[tuple[int, float, int]] = []
    kinds = [v.kinds[item.kind] for item in v.items]
    here = np.array([kind.type if kind.part is None else -1 for kind in kinds], dtype=np.int64)
    for hardware, least in v.least_of_whole.items():
        mine = [t for t, kind in enumerate(v.types) if kind.hardware == hardware]
        prices = [machine_nanos(v.inputs, v.types[t]) / NANO for t in mine]
        names = [v.types[t].name for t in mine]
        idle = m.columns(f"idle {hardware}", names, whole=True, upper=float(least), cost=prices, unit="machines")
        found += zip(idle.tolist(), prices, mine, strict=True)
        row = m.rows(f"least {hardware}", ["machines"], lower=float(least), unit="machines")
        m.add(row, idle, 1.0)
        m.add(row, x[np.isin(here, mine)], 1.0)
        for t in mine:
            m.add(row, machines.get(t, []), 1.0)
        for t, column in zip(mine, idle, strict=True):
            if (count := v.types[t].count) is not None:
                full = m.rows(f"machines {hardware}", [v.types[t].name], upper=float(count))
                m.add(full, column, 1.0)
                m.add(full, x[here == t], 1.0)
                m.add(full, machines.get(t, []), 1.0)
    return found


def why_no_columns(v: Snapshot) -> str:
    """Why the program is no set of columns ("" when it is)."""
    if any(len(item.serves) != 1 for item in v.items):
        return "applications share instances"
    if v.inputs.slo.limits.moves is not None:
        return "moves are limited"
    if v.sharing_types:
        return "instances share machines"
    if v.least_of_whole:
        return "some machines must be there, used or not"
    first: dict[int, tuple[int, float]] = {}
    for item, g in zip(v.items, v.group.tolist(), strict=True):
        mine = (item.serves[0].app, item.serves[0].qps)
        if first.setdefault(g, mine) != mine:
            return "instances of one variant count together that serve at different rates, or different applications"
    if any(all(s.late for s in item.serves) for item in v.items):
        return "running instances that break a limit are counted"
    return ""


def _order(v: Snapshot) -> NDArray[np.int64]:
    return np.argsort([item.serves[0].app for item in v.items], kind="stable").astype(np.int64)


def columns(v: Snapshot, shrunk: Mapping[str, float] | None = None) -> Columns:
    """The program as configuration columns, its items by application."""
    order, rooms = _order(v), v.rooms
    use = np.array([room.use[order] for room in rooms]).reshape(len(rooms), order.size)
    size = np.array([room.size - (shrunk or {}).get(room.label, 0.0) for room in rooms])
    return Columns(
        block=np.array([v.items[i].serves[0].app for i in order], dtype=np.int64),
        need=v.need,
        gain=np.array([v.items[i].serves[0].qps for i in order]),
        cost=v.C[order],
        group=v.group[order],
        free=v.N.astype(float),
        surcharge=v.group_loading,
        upper=upper(v)[order],
        use=use,
        capacity=size,
        rows=tuple(room.row for room in rooms),
        item_name=lambda j: v.item_name(int(order[j])),
        name="variants",
    )


def least_use(v: Snapshot, room: Room) -> Columns:
    """The least that all loads can take of one room, the others kept."""
    form = columns(v)
    others = [k for k, label in enumerate(form.rows) if label != room.row]
    return replace(
        form, cost=room.use[_order(v)], surcharge=np.zeros_like(form.surcharge), use=form.use[others],
        capacity=form.capacity[others], rows=tuple(form.rows[k] for k in others), name="variants least use",
        item_name=None,
    )  # fmt: skip


def counts_in_order(v: Snapshot, point: NDArray[np.float64]) -> NDArray[np.int64]:
    """The form's counts, by item of the problem."""
    x = np.zeros(len(v.items), dtype=np.int64)
    x[_order(v)] = np.rint(point).astype(np.int64)
    return x
