"""The program (1) to (4) of `variants` as a mixed-integer program; the rooms of (3); loads spread over the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.variants.idle import add_idle
from hetplan.problems.variants.snapshot import WHOLE
from hetplan.profiles.fields import NANO

if TYPE_CHECKING:
    from hetplan.problems.variants.question import Variants

__all__ = ["Growth", "Room", "cost_part", "counts_of", "growths", "item_name", "program", "rooms", "spread", "upper"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

SMALL = 1e-3
"""Loads that take less of an instance than this are also asked whether there is one: tolerances would hide them."""
COST = "cost_per_hour"
"""The room of the whole plan's price."""
CEILING = 1e-9
"""Taken off before rounding up: a quotient that is whole but for rounding."""


@dataclass(frozen=True)
class Growth:
    """Something of which there could be more: where the files say how much, and in what units."""

    field: str
    unit: str
    stated: float
    whole: bool
    cost: float = 1.0


@dataclass(frozen=True)
class Room:
    """A row of (3): a resource, how much of it there is, what each item takes, and what one unit of growth brings."""

    resource: str
    where: str
    size: float
    use: Vector
    brings: float = 1.0
    growth: int = 0

    @property
    def label(self) -> str:
        """In words."""
        return f"{self.resource} of {self.where}" if self.where else self.resource


def rooms(v: Variants, *, typed: bool) -> list[Room]:
    """Every capacity that binds all instances together; with `typed`, those of each type of machine apart."""
    if typed not in v.known_rooms:
        v.known_rooms[typed] = _rooms(v, typed)
    return v.known_rooms[typed]


def _rooms(v: Variants, typed: bool) -> list[Room]:
    found: list[Room] = []
    names = list(growths(v, typed=typed))
    limits = v.inputs.slo.limits
    for resource, total in sorted(limits.resources.items()):
        found.append(Room(resource, "", total, v.needs(resource), 1.0, names.index(("resource", resource))))
    if limits.cost_per_hour is not None:
        key = names.index(("cost", ""))
        found.append(Room(COST, "", limits.cost_per_hour / NANO, v.C, 1.0, key))
    here = np.array([v.kinds[item.kind].type for item in v.items], dtype=np.int64)
    resources = sorted({resource for kind in v.kinds for resource in kind.needs})
    for resource in resources:
        if all(kind.count is None or kind.room(resource) is None for kind in v.types):
            continue
        use = v.needs(resource)
        size = 0.0
        bounded = True
        for t, kind in enumerate(v.types):
            mine = np.where(here == t, use, 0.0)
            room = kind.room(resource)
            if room is None or not mine.any():
                size += (room or 0.0) * (kind.count or 0)
                continue
            if kind.count is None:
                bounded = False
                continue
            size += room * kind.count
            if typed or resource == WHOLE:
                found.append(
                    Room(resource, _type_name(v, t), room * kind.count, mine, room, names.index(("type", str(t))))
                )
        if not typed and resource != WHOLE and bounded and size > 0 and any(kind.provides for kind in v.types):
            found.append(Room(resource, "", size, use, 1.0, names.index(("resource", resource))))
    return found


def _type_name(v: Variants, t: int) -> str:
    return v.types[t].offer or v.types[t].hardware


def growths(v: Variants, *, typed: bool) -> dict[tuple[str, str], Growth]:
    """What could be more, by kind and name."""
    limits = v.inputs.slo.limits
    resources = sorted({resource for kind in v.kinds for resource in kind.needs} | limits.resources.keys())
    found: dict[tuple[str, str], Growth] = {}
    for resource in resources:
        whole = all(float(kind.needs.get(resource, 0.0)).is_integer() for kind in v.kinds)
        stated = limits.resources.get(resource, 0.0)
        found["resource", resource] = Growth(f"slo.limits.resources.{resource}", "", stated, whole)
    if limits.cost_per_hour is not None:
        stated = limits.cost_per_hour / NANO
        found["cost", ""] = Growth("slo.limits.cost_per_hour", limits.currency, stated, whole=False)
    for t, kind in enumerate(v.types):
        most = limits.instances.get(kind.hardware, (0, None))[1]
        stock = v.inputs.profile.offers[kind.offer].stock if kind.offer is not None else None
        where = f"profile.offers.{kind.offer}.stock"
        if kind.hosts:
            where = f"profile.hosts (under {kind.offer})"
        elif most is not None and (stock is None or most <= stock):
            where = f"slo.limits.instances.{kind.hardware}[1]"
        price = v.inputs.profile.offers[kind.offer].price_per_hour / NANO if kind.offer is not None else 0.0
        found["type", str(t)] = Growth(where, "machines", float(kind.count or 0), whole=True, cost=max(price, 1e-3))
    del typed
    return found


def upper(v: Variants) -> Vector:
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
    v: Variants,
    *,
    typed: bool,
    grow: Sequence[int] | None = None,
    may_fall_short: bool = False,
    shrunk: dict[str, float] | None = None,
) -> Milp:
    """Least gross cost; or, with `grow`, least growth of these; or, with `may_fall_short`, least load left unserved."""
    m, _ = cost_part(v, typed=typed, costs=grow is None, may_fall_short=may_fall_short, grow=grow, shrunk=shrunk)
    return m.build()


def cost_part(
    v: Variants,
    *,
    typed: bool = True,
    costs: bool = True,
    may_fall_short: bool = False,
    grow: Sequence[int] | None = None,
    shrunk: dict[str, float] | None = None,
) -> tuple[Builder, Integers]:
    """The program still open to more rows, and its x."""
    costs = costs and not may_fall_short
    m = Builder("min", name="variants")
    in_use = v.N[v.group] > 0 if len(v.items) else np.zeros(0, dtype=bool)
    cost = v.C + np.where(in_use, 0.0, v.loading) if costs else 0.0
    x = m.columns(
        "x", lambda i: item_name(v, i), size=len(v.items), upper=upper(v), cost=cost, whole=True, unit="instances"
    )
    _cover(v, m, x, may_fall_short)
    if costs:
        _loading(v, m, x, in_use)
    idle = add_idle(v, m, x) if costs else []
    _fit(v, m, x, typed, grow, shrunk or {}, idle)
    if v.inputs.slo.limits.moves is not None:
        _moves(v, m, x)
    return m, x


def item_name(v: Variants, i: int) -> str:
    """An item in words."""
    item = v.items[i]
    return v.kinds[item.kind].id + (f" for {v.asked[item.app].id}" if item.app is not None else "")


def _cover(v: Variants, m: Builder, x: Integers, may_fall_short: bool) -> None:
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
        y = m.columns("y", lambda k: f"{v.asked[b[k]].id} by {item_name(v, int(i[k]))}", size=len(common), unit="loads")
        m.add(row[b], y, 1.0)
        which, place = np.unique(i, return_inverse=True)
        full = m.rows("saturation", lambda k: item_name(v, int(which[k])), size=which.size, upper=0.0, equation="(2)")
        m.add(full[place], y, need[b] / q)
        m.add(full, x[which], -1.0)
        small = np.flatnonzero(need[b] < SMALL * q)
        there = m.rows("there at all", lambda k: item_name(v, int(i[small[k]])), size=small.size, upper=0.0)
        m.add(there, y[small], 1.0)
        m.add(there, x[i[small]], -1.0)
    if may_fall_short:
        short = m.columns("short", [one.id for one in v.asked], cost=1.0, upper=v.need, unit="qps")
        m.add(row, short, 1.0 / need)


def _loading(v: Variants, m: Builder, x: Integers, in_use: NDArray[np.bool_]) -> None:
    """(4), for groups of which instances run; of the others every instance is loaded."""
    groups = np.unique(v.group[in_use]) if in_use.any() else np.zeros(0, np.int64)
    if not groups.size:
        return
    price = np.zeros(v.N.size)
    price[v.group] = v.loading
    p = m.columns("p", lambda k: f"group {groups[k]}", size=groups.size, cost=price[groups], unit="instances")
    row = m.rows("loaded", lambda k: f"group {groups[k]}", size=groups.size, upper=v.N[groups], equation="(4)")
    m.add(row, p, -1.0)
    m.add(row[np.searchsorted(groups, v.group[in_use])], x[in_use], 1.0)


def _fit(
    v: Variants,
    m: Builder,
    x: Integers,
    typed: bool,
    grow: Sequence[int] | None,
    shrunk: dict[str, float],
    idle: Sequence[tuple[int, float]],
) -> None:
    """(3)."""
    all_rooms = rooms(v, typed=typed)
    wanted = list(growths(v, typed=typed).values())
    extra = {}
    for g in grow or ():
        extra[g] = m.columns(f"extra {wanted[g].field}", ["extra"], cost=wanted[g].cost, whole=wanted[g].whole)
    for room in all_rooms:
        at = np.flatnonzero(room.use)
        row = m.rows(
            room.resource, [room.where or "total"], upper=room.size - shrunk.get(room.label, 0.0), equation="(3)"
        )
        m.add(row, x[at], room.use[at])
        if room.resource == COST and idle:
            m.add(row, [column for column, _ in idle], [price for _, price in idle])
        if room.growth in extra:
            m.add(row, extra[room.growth], -room.brings)


def _moves(v: Variants, m: Builder, x: Integers) -> None:
    """At most so many instances that are new where they are."""
    most = float(v.inputs.slo.limits.moves or 0)
    new = m.columns("new", lambda i: item_name(v, i), size=len(v.items), unit="instances")
    m.add(m.rows("moves", ["all"], upper=most), new, 1.0)
    kinds, place = np.unique(v.kind_of, return_inverse=True)
    row = m.rows("new", lambda k: v.kinds[int(kinds[k])].id, size=kinds.size, upper=v.running[kinds])
    m.add(row[place], x, 1.0)
    m.add(row[place], new, -1.0)


def counts_of(v: Variants, point: Vector) -> Integers:
    """Whole instances of each item."""
    return np.rint(point[: len(v.items)]).astype(np.int64)


def spread(
    v: Variants, x: Integers, ask: Ask, loads: Sequence[float] | None = None
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
    answer = ask(_even(v, x, sorted(shared), loads), about="loads spread over the chosen instances")
    if answer.point is None or answer.point[0] > 1 + 1e-6:
        return None
    pairs = _pairs(v, x, sorted(shared))
    for (b, i, _), value in zip(pairs, answer.point[1:], strict=True):
        if value > 1e-9 and loads[b] > 0:
            flows[b, i] = float(value) * loads[b]
    return flows


def _pairs(v: Variants, x: Integers, apps: list[int]) -> list[tuple[int, int, float]]:
    return [(s.app, i, s.qps) for i, item in enumerate(v.items) if x[i] > 0 for s in item.serves if s.app in apps]


def _even(v: Variants, x: Integers, apps: list[int], wanted: Sequence[float]) -> Milp:
    """The least highest use of an instance by which these loads are served."""
    m = Builder("min", name="variants spread")
    use = m.columns("use", ["most"], cost=1.0)
    pairs = _pairs(v, x, apps)
    y = m.columns("y", lambda k: f"{v.asked[pairs[k][0]].id} by {pairs[k][1]}", size=len(pairs), unit="loads")
    loads = np.array([wanted[b] for b in apps])
    row = m.rows("load", [v.asked[b].id for b in apps], lower=np.sign(loads), upper=np.sign(loads))
    place = [apps.index(b) for b, _, _ in pairs]
    items = sorted({i for _, i, _ in pairs})
    full = m.rows("saturation", [item_name(v, i) for i in items], upper=0.0)
    m.add(full, np.repeat(use, len(items)), -x[items].astype(float))
    m.add(row[place], y, 1.0)
    m.add(full[[items.index(i) for _, i, _ in pairs]], y, loads[place] / [q for _, _, q in pairs])
    return m.build()
