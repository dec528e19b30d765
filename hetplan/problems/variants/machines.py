"""Every instance on its machine: best fit first, then exact packing of what does not fit, then other counts.

The program per type of machine only bounds what machines one by one can hold (vector bin packing). A plan is made once
every instance has its place: running instances stay on their machines (known by name, or as the worker of the state
that runs there), the others go, large ones first, where they leave least room over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.variants.milp import cost_part, item_name
from hetplan.problems.variants.workers import Machine

if TYPE_CHECKING:
    from hetplan.problems.variants.question import Variants

__all__ = ["Packed", "Place", "exact", "machines_of", "most_beside", "pack", "read_exact"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

SLIP = 1e-9
MOST_ASSIGNED = 1000
"""Counts (item on machine) that an exact packing of given instances may have."""
MOST_EXACT = 1500
"""Counts (item on machine) that the whole program may have."""


@dataclass(frozen=True)
class Place:
    """A machine: its host, else the worker of the state that runs on one without a name (both None: a new one)."""

    host: str | None = None
    was: str | None = None


@dataclass
class _Bin:
    """A machine being filled."""

    type: int
    place: Place
    room: Vector
    holds: Counter[int] = field(default_factory=Counter)
    most: float = np.inf

    def fits(self, needs: Vector, most: float) -> bool:
        """Whether one more instance has room, and those here bear its company."""
        company = self.holds.total() + 1
        return bool((needs <= self.room + SLIP * (1 + np.abs(self.room))).all()) and company <= min(self.most, most)

    def put(self, i: int, needs: Vector, most: float) -> None:
        self.holds[i] += 1
        self.room = self.room - needs
        self.most = min(self.most, most)


@dataclass(frozen=True)
class Packed:
    """The machines, and what found no place: instances left over per item."""

    machines: list[Machine]
    left: Counter[int]


@dataclass(frozen=True)
class _Sizes:
    resources: list[str]
    needs: Vector
    """Per item and resource; 0 where the type says nothing of the resource."""
    rooms: Vector
    """Per type and resource; infinite where the type says nothing."""


def _sizes(v: Variants) -> _Sizes:
    resources = sorted({resource for kind in v.kinds for resource in kind.needs})
    totals = v.inputs.slo.limits.resources
    rooms = np.full((len(v.types), len(resources)), np.inf)
    for t, kind in enumerate(v.types):
        for r, resource in enumerate(resources):
            room = kind.room(resource)
            if room is not None and not (resource in totals and resource not in kind.provides):
                rooms[t, r] = room
    needs = np.array([[v.kinds[item.kind].needs.get(name, 0.0) for name in resources] for item in v.items])
    return _Sizes(resources, needs.reshape(len(v.items), len(resources)), rooms)


def most_beside(v: Variants) -> Vector:
    """How many instances a machine may hold with each item on it, itself included."""
    return np.array(
        [min((s.beside + 1 for s in item.serves if s.beside is not None), default=np.inf) for item in v.items]
    )


def machines_of(v: Variants, t: int) -> list[Place]:
    """The machines of a type: by name where they have names, then those that run, then those that may be had."""
    kind = v.types[t]
    if kind.hosts:
        named = [Place(host=host) for host in kind.hosts]
        return named + [Place()] * ((kind.count or 0) - len(named))
    running = _running_places(v, t)
    return running[: kind.count] + [Place()] * ((kind.count or 0) - len(running))


def _running_places(v: Variants, t: int) -> list[Place]:
    return [Place(was=worker.id) for worker, type_ in v.unnamed if type_ == t for _ in range(worker.count)]


def _running_at(v: Variants, place: Place) -> Iterator[tuple[int, int]]:
    """What runs on one machine now: kinds, and how many instances of each."""
    for slot in v.slots_at.get((place.host, place.was), ()):
        if slot.kind is not None:
            yield slot.kind, slot.load.instances


def pack(v: Variants, x: Integers, ask: Ask) -> Packed:
    """Places for these counts, type by type."""
    sizes, machines, left = _sizes(v), list[Machine](), Counter[int]()
    most = most_beside(v)
    of_type: dict[int, Counter[int]] = {}
    for i, count in enumerate(x):
        if count > 0:
            of_type.setdefault(v.kinds[v.items[i].kind].type, Counter())[i] = int(count)
    for t, wanted in sorted(of_type.items()):
        if v.types[t].count is None:
            machines += _without_end(v, t, wanted)
            continue
        bins, rest = _fullest(v, t, wanted, sizes, most)
        if rest and len(wanted) * len(bins) <= MOST_ASSIGNED and not np.isfinite(most).any():
            assigned = _assigned(v, t, wanted, sizes, ask)
            if assigned is not None:
                machines += assigned
                continue
        left += rest
        machines += [Machine(t, b.place.host, dict(b.holds), was=b.place.was) for b in bins if b.holds]
    return Packed(_alike(machines), left)


def _without_end(v: Variants, t: int, wanted: Counter[int]) -> list[Machine]:
    """Where as many machines as wanted may be had, what does not run yet gets one of its own."""
    left, found = Counter(wanted), list[Machine]()
    items = _items_of_kind(v, wanted)
    for place in _running_places(v, t):
        holds: Counter[int] = Counter()
        for kind, instances in _running_at(v, place):
            for i in items.get(kind, ()):
                kept = min(instances - sum(holds[j] for j in items[kind]), left[i])
                if kept > 0:
                    holds[i] += kept
                    left[i] -= kept
        if holds:
            found.append(Machine(t, None, dict(holds), was=place.was))
    found = _alike(found)
    for i, count in sorted(left.items()):
        if count > 0:
            group = next((n for n, machine in enumerate(found) if machine.holds == {i: 1}), len(found))
            found[group:] = [
                replace(found[group], count=found[group].count + count) if group < len(found)
                else Machine(t, None, {i: 1}, count),
                *found[group + 1 :],
            ]  # fmt: skip
    return found


def _items_of_kind(v: Variants, wanted: Counter[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for i in wanted:
        found.setdefault(v.items[i].kind, []).append(i)
    return found


def _fullest(v: Variants, t: int, wanted: Counter[int], sizes: _Sizes, most: Vector) -> tuple[list[_Bin], Counter[int]]:
    """The machines of a type as full as best fit gets them, over several orders; what is left over."""
    places, best = machines_of(v, t), None
    for order in range(2 + len(sizes.resources)):
        bins = [_Bin(t, place, sizes.rooms[t].copy()) for place in places]
        rest = _best_fit(v, bins, wanted, sizes.needs, most, order)
        if best is None or rest.total() < best[1].total():
            best = (bins, rest)
        if not rest:
            break
    assert best is not None
    return best


def _best_fit(
    v: Variants, bins: list[_Bin], wanted: Counter[int], needs: Vector, most: Vector, order: int
) -> Counter[int]:
    """Fill the bins, the largest first (by the largest share of a machine, their sum, or one resource)."""
    left = Counter(wanted)
    items = _items_of_kind(v, wanted)
    for b in bins:
        for kind, instances in _running_at(v, b.place):
            _kept_here(b, items.get(kind, ()), instances, left, needs, most)
    scale = np.max([np.where(np.isfinite(b.room), b.room, 1.0) for b in bins], axis=0) if bins else np.ones(1)
    scale = np.maximum(scale, 1e-12)
    share = needs / scale
    measure = [share.max(axis=1, initial=0.0), share.sum(axis=1), *share.T][order]
    largest = {i: float(measure[i]) for i in left}
    for i in sorted(left, key=lambda i: (-largest[i], i)):
        while left[i] > 0:
            fitting = [b for b in bins if b.fits(needs[i], most[i])]
            if not fitting:
                break
            over = np.array([b.room - needs[i] for b in fitting])
            rest = np.linalg.norm(np.where(np.isfinite(over), over, 0.0) / scale, axis=1)
            fitting[int(np.argmin(rest))].put(i, needs[i], most[i])
            left[i] -= 1
    return +left


def _kept_here(b: _Bin, items: Iterable[int], instances: int, left: Counter[int], needs: Vector, most: Vector) -> None:
    """What runs on a machine stays there, as far as it is wanted and fits."""
    for i in items:
        for _ in range(min(instances, left[i])):
            if not b.fits(needs[i], most[i]):
                return
            b.put(i, needs[i], most[i])
            left[i] -= 1
            instances -= 1


def _assigned(v: Variants, t: int, wanted: Counter[int], sizes: _Sizes, ask: Ask) -> list[Machine] | None:
    """The same instances placed exactly, those that run staying where they are as far as may be."""
    items, places = sorted(wanted), machines_of(v, t)
    m = Builder("max", name="variants placed")
    stays = np.array([[_running_on(v, i, place) for place in places] for i in items], dtype=float)
    counts = np.array([float(wanted[i]) for i in items])
    z = m.columns(
        "z", lambda k: str(k), size=stays.size, whole=True, upper=np.repeat(counts, len(places)), unit="instances"
    )
    kept = m.columns("kept", lambda k: str(k), size=z.size, upper=stays.ravel(), cost=1.0)
    placed = m.rows("placed", [item_name(v, i) for i in items], lower=counts, upper=counts)
    m.add(np.repeat(placed, len(places)), z, 1.0)
    stay = m.rows("stays", lambda k: str(k), size=z.size, upper=0.0)
    m.add(stay, kept, 1.0)
    m.add(stay, z, -1.0)
    for r, resource in enumerate(sizes.resources):
        if np.isfinite(sizes.rooms[t, r]) and sizes.needs[items, r].any():
            row = m.rows(resource, [p.host or str(n) for n, p in enumerate(places)], upper=sizes.rooms[t, r])
            m.add(np.tile(row, len(items)), z, np.repeat(sizes.needs[items, r], len(places)))
    answer = ask(m.build(), gap=1.0, about=f"places on the machines of {v.types[t].hardware}")
    if answer.point is None:
        return None
    found = np.rint(answer.point[: z.size]).astype(int).reshape(len(items), len(places))
    return [
        Machine(t, p.host, {i: int(found[k, n]) for k, i in enumerate(items) if found[k, n] > 0}, was=p.was)
        for n, p in enumerate(places)
        if found[:, n].any()
    ]


def _running_on(v: Variants, i: int, place: Place) -> int:
    return sum(instances for kind, instances in _running_at(v, place) if kind == v.items[i].kind)


def _alike(machines: list[Machine]) -> list[Machine]:
    """Machines of one worker of the state that go on alike are one group again."""
    groups: dict[object, Machine] = {}
    for place, machine in enumerate(machines):
        key: object = place
        if machine.was is not None:
            key = (machine.was, tuple(sorted(machine.holds.items())))
        before = groups.get(key)
        groups[key] = machine if before is None else replace(before, count=before.count + machine.count)
    return list(groups.values())


def exact(v: Variants) -> Milp | None:
    """The whole program with a count per item and machine; None where that is too large, or company matters."""
    places, sizes = on_machines(v), _sizes(v)
    if len(places) > MOST_EXACT or np.isfinite(most_beside(v)).any():
        return None
    m, x = cost_part(v)
    i, t, n = (np.array(column, dtype=np.int64) for column in zip(*places, strict=True))
    z = m.columns("z", lambda k: f"{item_name(v, int(i[k]))} on {t[k]}.{n[k]}", size=i.size, whole=True)
    placed = np.unique(i)
    row = m.rows("placed", lambda k: item_name(v, int(placed[k])), size=placed.size, lower=0.0, upper=0.0)
    m.add(row[np.searchsorted(placed, i)], z, 1.0)
    m.add(row, x[placed], -1.0)
    machines, where = np.unique(np.stack([t, n]), axis=1, return_inverse=True)
    for r, resource in enumerate(sizes.resources):
        room = sizes.rooms[machines[0], r]
        if np.isfinite(room).any() and sizes.needs[:, r].any():
            full = m.rows(resource, lambda k: f"{machines[0, k]}.{machines[1, k]}", size=room.size, upper=room)
            m.add(full[where.ravel()], z, sizes.needs[i, r])
    return m.build()


def read_exact(v: Variants, form: Milp, point: Vector) -> list[Machine]:
    """The machines of a point of `exact`."""
    block = next(block for block in form.columns if block.name == "z")
    values = np.rint(point[block.start : block.stop]).astype(int)
    places = [(i, t, n) for i, t, n in on_machines(v)]
    holds: dict[tuple[int, int], dict[int, int]] = {}
    for (i, t, n), count in zip(places, values, strict=True):
        if count > 0:
            holds.setdefault((t, n), {})[i] = int(count)
    where = {t: machines_of(v, t) for t, _ in holds}
    return _alike([Machine(t, where[t][n].host, held, was=where[t][n].was) for (t, n), held in sorted(holds.items())])


def on_machines(v: Variants) -> list[tuple[int, int, int]]:
    """(item, type, machine of the type) of every count of `exact`."""
    types = [v.kinds[item.kind].type for item in v.items]
    return [
        (i, t, n) for i, t in enumerate(types) if v.types[t].count is not None for n in range(v.types[t].count or 0)
    ]
