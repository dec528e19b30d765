"""Where the chosen instances run: every instance on its machine, and the machines as the workers of a plan.

The program per type of machine only bounds what machines one by one can hold (vector bin packing). A plan is made once
every instance has its place: running instances stay on their machines (known by name, or as the worker of the state
that runs there), the others go, large ones first, where they leave least room over. What runs keeps its name, what is
new gets one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.placing import Filling
from hetplan.planner.request import PLENTY
from hetplan.planner.tolerances import SLIP
from hetplan.problems.variants.form import written
from hetplan.problems.variants.kinds import WHOLE, Slot, count_of, room_of
from hetplan.problems.variants.wish import Snapshot
from hetplan.profiles.workers import Load, Serve, Worker

__all__ = ["Packed", "Placed", "exact", "pack", "placed_by_counts", "placed_on_machines", "read_exact"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

COMPANY = 1e-4
"""Of a whole machine, what an instance takes that shares one: so little that it only keeps out who takes it whole, and
more than an engine's tolerance."""
MOST_ASSIGNED = 1000
"""Counts (item on machine) that an exact packing of given instances may have."""
MOST_EXACT = 1500
"""Counts (item on machine) that the whole program may have."""


@dataclass(frozen=True)
class Machine:
    """One machine (or `count` alike ones) with instances of items; `was` is the worker that runs there, unnamed."""

    type: int
    host: str | None
    holds: Mapping[int, int]
    count: int = 1
    was: str | None = None


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


def _sizes(v: Snapshot) -> _Sizes:
    resources = sorted({resource for kind in v.kinds for resource in kind.needs})
    totals = v.wanted.capacity
    rooms = np.full((len(v.types), len(resources)), np.inf)
    for t, kind in enumerate(v.types):
        for r, resource in enumerate(resources):
            room = room_of(kind, resource)
            if room is not None and not (resource in totals and resource not in kind.provides):
                rooms[t, r] = room
    needs = np.array([[v.kinds[item.kind].needs.get(name, 0.0) for name in resources] for item in v.items])
    if WHOLE in resources:
        # Beside what takes a whole machine there is nothing else.
        kinds = [v.kinds[item.kind] for item in v.items]
        beside = [kind.part is not None or (kind.type in v.used_up and WHOLE not in kind.needs) for kind in kinds]
        needs[beside, resources.index(WHOLE)] = COMPANY
    return _Sizes(resources, needs.reshape(len(v.items), len(resources)), rooms)


def _most_beside(v: Snapshot) -> Vector:
    """How many instances a machine may hold with each item on it, itself included."""
    company = np.array(v.company, dtype=float)
    return np.where(company < PLENTY, company, np.inf)


def _machines_of(v: Snapshot, t: int, instances: int) -> list[Place]:
    """The machines of a type: by name where they have names, then those that run, then those that may be had.

    No more new ones than instances: each takes one at most.
    """
    count = count_of(v.types[t])
    known = [Place(host=host) for host in v.types[t].offers[0].hosts][:count] or _running_places(v, t)[:count]
    return known + [Place()] * min((count or 0) - len(known), instances)


def _running_places(v: Snapshot, t: int) -> list[Place]:
    return [Place(was=worker.id) for worker, type_ in v.unnamed if type_ == t for _ in range(worker.count)]


def _running_at(v: Snapshot, place: Place) -> Iterator[tuple[int, int]]:
    """What runs on one machine now: kinds, and how many instances of each."""
    for slot in v.slots_at.get((place.host, place.was), ()):
        if slot.kind is not None:
            yield slot.kind, slot.load.instances


def pack(v: Snapshot, x: Integers, ask: Ask, fillings: Sequence[Filling] | None = None) -> Packed:
    """Places for these counts, type by type; `fillings` say what is on the machines that are shared."""
    sizes, machines, left = _sizes(v), list[Machine](), Counter[int]()
    most = _most_beside(v)
    of_type: dict[int, Counter[int]] = {}
    for i, count in enumerate(x):
        if count > 0:
            of_type.setdefault(v.kinds[v.items[i].kind].type, Counter())[i] = int(count)
    for t, wanted in sorted(of_type.items()):
        if t in v.sharing:
            found, rest = _shared(v, t, wanted, sizes, most, fillings)
            machines += found
            left += rest
            continue
        if count_of(v.types[t]) is None:
            machines += _without_end(v, t, wanted)
            continue
        bins, rest = _fullest(v, t, wanted, sizes, most, _machines_of(v, t, wanted.total()))
        if rest and len(wanted) * len(bins) <= MOST_ASSIGNED and not np.isfinite(most).any():
            assigned = _assigned(v, t, wanted, sizes, ask)
            if assigned is not None:
                machines += assigned
                continue
        left += rest
        machines += [Machine(t, b.place.host, dict(b.holds), was=b.place.was) for b in bins if b.holds]
    return Packed(_alike(machines), left)


def _shared(
    v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, most: Vector, fillings: Sequence[Filling] | None
) -> tuple[list[Machine], Counter[int]]:
    """Machines that are shared: filled as the program says, else by best fit on as few as that takes."""
    places = _machines_of(v, t, 0) if count_of(v.types[t]) is not None else _running_places(v, t)
    if fillings is None:
        bins, rest = _fewest(v, t, wanted, sizes, most)
        return _alike([Machine(t, b.place.host, dict(b.holds), was=b.place.was) for b in bins if b.holds]), rest
    name, shared = v.types[t].id, v.sharing[t].things
    mine = [one for one in fillings if one.machine == name]
    mine += [Filling(name, {i: 1}, n) for i, n in sorted(wanted.items()) if i not in shared]
    known = [place for place in places if place.host is not None or place.was is not None]
    taken, found = list[tuple[int, Place]](), list[Machine]()
    left = [one.count for one in mine]
    # What runs keeps its machine where most of it goes on.
    for place in sorted(known, key=lambda place: -max((_overlap(v, place, one.holds) for one in mine), default=0)):
        open_ = [k for k, one in enumerate(mine) if left[k] > 0]
        if not open_:
            break
        k = max(open_, key=lambda k: (_overlap(v, place, mine[k].holds), -k))
        if place.host is not None or _overlap(v, place, mine[k].holds):
            left[k] -= 1
            taken.append((k, place))
    found = [Machine(t, place.host, mine[k].holds, was=place.was) for k, place in taken]
    return _alike(found) + [Machine(t, None, mine[k].holds, n) for k, n in enumerate(left) if n > 0], Counter()


def _overlap(v: Snapshot, place: Place, holds: Mapping[int, int]) -> int:
    """How many of these instances run there now."""
    now: Counter[int] = Counter()
    for kind, instances in _running_at(v, place):
        now[kind] += instances
    then: Counter[int] = Counter()
    for i, count in holds.items():
        then[v.items[i].kind] += count
    return (now & then).total()


def _fewest(v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, most: Vector) -> tuple[list[_Bin], Counter[int]]:
    """As few machines as best fit needs; what is left over where there are no more."""
    count = count_of(v.types[t])
    least = max(1, v.sharing[t].least([wanted[i] for i in v.sharing[t].things]))
    while True:
        size = least if count is None else min(least, count)
        places = (_machines_of(v, t, 0) if count is not None else _running_places(v, t))[:size]
        places += [Place()] * (size - len(places))
        bins, rest = _fullest(v, t, wanted, sizes, most, places)
        if not rest or size == count or size >= wanted.total():
            return bins, rest
        least = size + max(1, size // 50)


def _without_end(v: Snapshot, t: int, wanted: Counter[int]) -> list[Machine]:
    """Where as many machines as wanted may be had, each instance that does not run yet gets its own."""
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


def _items_of_kind(v: Snapshot, wanted: Iterable[int]) -> dict[int, list[int]]:
    """Which of these items are of each kind."""
    found: dict[int, list[int]] = {}
    for i in wanted:
        found.setdefault(v.items[i].kind, []).append(i)
    return found


def _fullest(
    v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, most: Vector, places: Sequence[Place]
) -> tuple[list[_Bin], Counter[int]]:
    """The machines of a type as full as best fit gets them, over several orders; what is left over."""
    best = None
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
    v: Snapshot, bins: list[_Bin], wanted: Counter[int], needs: Vector, most: Vector, order: int
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


def _assigned(v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, ask: Ask) -> list[Machine] | None:
    """The same instances placed exactly, those that run staying where they are as far as may be."""
    items, places = sorted(wanted), _machines_of(v, t, wanted.total())
    m = Builder("max", name="variants placed")
    stays = np.array([[_running_on(v, i, place) for place in places] for i in items], dtype=float)
    counts = np.array([float(wanted[i]) for i in items])
    z = m.columns(
        "z", lambda k: str(k), size=stays.size, whole=True, upper=np.repeat(counts, len(places)), unit="instances"
    )
    kept = m.columns("kept", lambda k: str(k), size=z.size, upper=stays.ravel(), cost=1.0)
    placed = m.rows("placed", [v.item_name(i) for i in items], lower=counts, upper=counts)
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


def _running_on(v: Snapshot, i: int, place: Place) -> int:
    return sum(instances for kind, instances in _running_at(v, place) if kind == v.items[i].kind)


def _alike(machines: list[Machine]) -> list[Machine]:
    """Machines without a name that hold the same are one group, new ones and those that were one worker."""
    groups: dict[object, Machine] = {}
    for place, machine in enumerate(machines):
        key: object = place
        if machine.host is None:
            key = (machine.type, machine.was, tuple(sorted(machine.holds.items())))
        before = groups.get(key)
        groups[key] = machine if before is None else replace(before, count=before.count + machine.count)
    return list(groups.values())


def exact(v: Snapshot) -> Milp | None:
    """The whole program with a count per item and machine; None where that is too large, or company matters."""
    places, sizes = _on_machines(v), _sizes(v)
    if len(places) > MOST_EXACT or np.isfinite(_most_beside(v)).any():
        return None
    m, x = written(v)
    i, t, n = (np.array(column, dtype=np.int64) for column in zip(*places, strict=True))
    z = m.columns("z", lambda k: f"{v.item_name(int(i[k]))} on {t[k]}.{n[k]}", size=i.size, whole=True)
    placed = np.unique(i)
    row = m.rows("placed", lambda k: v.item_name(int(placed[k])), size=placed.size, lower=0.0, upper=0.0)
    m.add(row[np.searchsorted(placed, i)], z, 1.0)
    m.add(row, x[placed], -1.0)
    machines, where = np.unique(np.stack([t, n]), axis=1, return_inverse=True)
    for r, resource in enumerate(sizes.resources):
        room = sizes.rooms[machines[0], r]
        if np.isfinite(room).any() and sizes.needs[:, r].any():
            full = m.rows(resource, lambda k: f"{machines[0, k]}.{machines[1, k]}", size=room.size, upper=room)
            m.add(full[where.ravel()], z, sizes.needs[i, r])
    return m.build()


def read_exact(v: Snapshot, form: Milp, point: Vector) -> list[Machine]:
    """The machines of a point of `exact`."""
    block = next(block for block in form.columns if block.name == "z")
    values = np.rint(point[block.start : block.stop]).astype(int)
    places = [(i, t, n) for i, t, n in _on_machines(v)]
    holds: dict[tuple[int, int], dict[int, int]] = {}
    for (i, t, n), count in zip(places, values, strict=True):
        if count > 0:
            holds.setdefault((t, n), {})[i] = int(count)
    where = {t: _machines_of(v, t, count_of(v.types[t]) or 0) for t, _ in holds}
    return _alike([Machine(t, where[t][n].host, held, was=where[t][n].was) for (t, n), held in sorted(holds.items())])


def _on_machines(v: Snapshot) -> list[tuple[int, int, int]]:
    """(item, type, machine of the type) of every count of `exact`."""
    types = [v.kinds[item.kind].type for item in v.items]
    return [
        (i, t, n)
        for i, t in enumerate(types)
        if count_of(v.types[t]) is not None
        for n in range(count_of(v.types[t]) or 0)
    ]


@dataclass
class Placed:
    """The plan's workers, and which loads hold which item."""

    workers: list[Worker] = field(default_factory=list)
    item_of: dict[str, int] = field(default_factory=dict)
    idle_nanos: int = 0
    """What machines cost that hold nothing and must be there, in 1e-9 per hour."""
    shared_nanos: int = 0
    """What machines cost that are paid whole, for all that shares them."""

    def loads_of(self) -> dict[int, list[tuple[str, int]]]:
        """Per item its loads and their instances in all."""
        found: dict[int, list[tuple[str, int]]] = {}
        for worker in self.workers:
            for load in worker.loads:
                found.setdefault(self.item_of[load.id], []).append((load.id, worker.count * load.instances))
        return found


class _Names:
    """Ids that nothing that runs has."""

    def __init__(self, v: Snapshot) -> None:
        running = v.wanted.running
        self.taken = {worker.id for worker in running} | {load.id for worker in running for load in worker.loads}
        self.next = 0

    def worker(self) -> str:
        while True:
            self.next += 1
            name = f"w{self.next}"
            if name not in self.taken and f"{name}.1" not in self.taken:
                return name


def _load(v: Snapshot, i: int, name: str, instances: int) -> Load:
    item = v.items[i]
    kind = v.kinds[item.kind]
    app = v.asked[item.app].id if item.app is not None else None
    given = {"knobs": kind.choice.knobs, "instances": instances, "serve": _serve(v, i), "share": kind.share}
    return kind.choice.load(id=name, app=app, **given)


def _serve(v: Snapshot, i: int) -> Serve:
    """Batches as measured, and as many at once as saturation means: Q T = batch x concurrency."""
    item = v.items[i]
    kind = v.kinds[item.kind]
    at_once = item.serves[0].saturation_qps * item.serves[0].latency_ms / 1000.0 / kind.batch
    return Serve(max_batch=kind.batch, concurrency=max(1, round(at_once)))


def _same_app(v: Snapshot, i: int, load: Load) -> bool:
    """Whether a running load may go on as this item's: not where it is another application's."""
    app = v.items[i].app
    if v.options.sharing == "dedicated":
        return load.app is None or load.app == v.asked[app or 0].id
    return load.app is None or any(v.asked[s.app].id == load.app for s in v.items[i].serves)


def _going_on(v: Snapshot, i: int, load: Load, instances: int) -> Load:
    item = v.items[i]
    own = v.asked[item.app].id if item.app is not None else None
    if v.wanted.changes is not None:
        # A load that changes its application would count as moved.
        own = load.app
    kind = v.kinds[item.kind]
    changes = {"instances": instances, "app": own, "at": kind.choice.at, "share": kind.share or load.share}
    changes |= {"artifact": kind.choice.weights, "node": None, "outcomes": None}
    return load.model_copy(update={**changes, "serve": _serve(v, i)})


def placed_by_counts(v: Snapshot, x: Integers) -> Placed:
    """Without machines: a worker is an instance, a group of workers the instances of an item."""
    placed, names, left = Placed(), _Names(v), Counter({i: int(n) for i, n in enumerate(x) if n > 0})
    kinds = _items_of_kind(v, range(len(v.items)))
    of_worker: dict[str, list[int]] = {}
    for place, slot in enumerate(v.slots):
        of_worker.setdefault(slot.worker.id, []).append(place)
    for places in of_worker.values():
        worker = _kept(v, places, kinds, left, placed)
        if worker is not None:
            placed.workers.append(worker)
    for i, count in sorted(left.items()):
        if count > 0:
            kind = v.kinds[v.items[i].kind]
            name = names.worker()
            placed.item_of[f"{name}.1"] = i
            placed.workers.append(
                Worker(
                    id=name, hardware=kind.hardware, offer=v.offer_of(i), count=count, queue="per-load",
                    loads=(_load(v, i, f"{name}.1", 1),),
                )
            )  # fmt: skip
    _add_idle(v, placed, names)
    _name_as_running(v, placed)
    return placed


def _name_as_running(v: Snapshot, placed: Placed) -> None:
    """Where moves are limited, new loads are called after the application of what no longer runs: then none is new."""
    running = v.wanted.running
    if v.wanted.changes is None or not running:
        return
    left, known = _placed(running), {load.id for worker in running for load in worker.loads}
    left.subtract(_placed(placed.workers))
    for n, worker in enumerate(placed.workers):
        loads = []
        for load in worker.loads:
            own, count = (load.app, load.variant, worker.hardware), worker.count * load.instances
            others = (key for key, more in left.items() if more > 0 and key[1:] == own[1:])
            may = (None, *(v.asked[s.app].id for s in v.items[placed.item_of[load.id]].serves))
            other = next((key for key in others if key[0] in may), None)
            if load.id not in known and left[own] < 0 and other is not None:
                left[own] += count
                left[other] -= count
                load = load.model_copy(update={"app": other[0]})
            loads.append(load)
        placed.workers[n] = worker.model_copy(update={"loads": tuple(loads)})


def _placed(workers: Iterable[Worker]) -> Counter[tuple[str | None, str | None, str]]:
    found: Counter[tuple[str | None, str | None, str]] = Counter()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.variant, worker.hardware] += worker.count * load.instances
    return found


def _kept(
    v: Snapshot, places: list[int], kinds: dict[int, list[int]], left: Counter[int], placed: Placed
) -> Worker | None:
    """What of a running group goes on (None: nothing)."""
    worker = v.slots[places[0]].worker
    count, loads, offer = worker.count, list[Load](), worker.offer
    for place in places:
        slot = v.slots[place]
        chosen = [i for i in kinds.get(slot.kind if slot.kind is not None else -1, ()) if left[i] > 0]
        i = next((i for i in chosen if _same_app(v, i, slot.load)), None)
        if i is None:
            continue
        if len(places) == 1:
            count = min(worker.count, left[i] // slot.load.instances)
            instances = slot.load.instances
        else:
            instances = min(slot.load.instances, left[i] // worker.count)
        if count <= 0 or instances <= 0:
            continue
        left[i] -= count * instances
        placed.item_of[slot.load.id] = i
        loads.append(_going_on(v, i, slot.load, instances))
        offer = offer or v.offer_of(i)
    if not loads:
        return None
    return worker.model_copy(update={"count": count, "loads": tuple(loads), "offer": offer, "queue": "per-load"})


def placed_on_machines(v: Snapshot, machines: list[Machine]) -> Placed:
    """A worker per machine; machines without a limit that are alike, or that ran as one group, are one group."""
    placed, names = Placed(), _Names(v)
    going_on = _going_on_as(v, machines)
    of_host = {w.host: w.id for w in v.wanted.running if w.host}
    for place, machine in enumerate(machines):
        if not machine.holds:
            continue
        before: Sequence[Slot] = ()
        name = of_host.get(machine.host or "") or going_on.get(place)
        if name is not None:
            before = v.slots_at.get((machine.host, None if machine.host is not None else name), ())
        name = name or names.worker()
        loads = list(_machine_loads(v, machine, name, before, placed))
        kind = v.types[machine.type]
        if any(v.kinds[v.items[i].kind].part is not None for i in machine.holds):
            placed.shared_nanos += machine.count * kind.offers[0].nanos
        placed.workers.append(
            Worker(
                id=name, hardware=kind.hardware, offer=kind.offers[0].id, host=machine.host, count=machine.count,
                queue="per-load", loads=tuple(loads),
            )
        )  # fmt: skip
    _add_idle(v, placed, names)
    _name_as_running(v, placed)
    return placed


def _add_idle(v: Snapshot, placed: Placed, names: _Names) -> None:
    """Machines that must be there and hold nothing: those that run go on, then others of the cheapest types."""
    used: Counter[int] = Counter()
    for worker in placed.workers:
        of_type = (v.kinds[v.items[placed.item_of[load.id]].kind].type for load in worker.loads)
        used[next(of_type)] += worker.count
    there = {worker.id for worker in placed.workers}
    on_host = {worker.host: worker.id for worker in v.wanted.running if worker.host is not None}
    for t, missing in v.idle_counts(used).items():
        kind = v.types[t]
        placed.idle_nanos += missing * kind.offers[0].nanos
        taken = {worker.host for worker in placed.workers}
        free = sorted(
            (host for host in kind.offers[0].hosts if host not in taken), key=lambda host: (host not in on_host, host)
        )
        going_on = [(None, worker.id, worker.count) for worker, at in v.unnamed if at == t and worker.id not in there]
        for host, name, count in [*((host, on_host.get(host), 1) for host in free), *going_on]:
            if count <= missing:
                placed.workers.append(_idle(v, t, name or names.worker(), host, count))
                missing -= count
        if missing > 0:
            placed.workers.append(_idle(v, t, names.worker(), None, missing))


def _idle(v: Snapshot, t: int, name: str, host: str | None, count: int) -> Worker:
    return Worker(id=name, hardware=v.types[t].hardware, offer=v.types[t].offers[0].id, host=host, count=count)


def _going_on_as(v: Snapshot, machines: list[Machine]) -> dict[int, str]:
    """Which of the unnamed machines go on under the name of the worker that they were: of several, the most alike."""
    best: dict[str, tuple[bool, int, int]] = {}
    counts = {worker.id: worker.count for worker, _ in v.unnamed}
    for place, machine in enumerate(machines):
        if machine.host is not None or machine.was is None:
            continue
        now = Counter({s.kind: s.load.instances for s in v.slots_at.get((None, machine.was), ())})
        then: Counter[int | None] = Counter()
        for i, count in machine.holds.items():
            then[v.items[i].kind] += count
        same = now == then
        # A group that shrinks and changes at once would be two steps in one: it goes, and another comes.
        if same or machine.count == counts[machine.was]:
            claim = (same, machine.count, -place)
            best[machine.was] = max(best.get(machine.was, claim), claim)
    return {-place: was for was, (_, _, place) in best.items()}


def _machine_loads(v: Snapshot, machine: Machine, name: str, before: Sequence[Slot], placed: Placed) -> Iterator[Load]:
    left = Counter(machine.holds)
    taken = {slot.load.id for slot in before}
    for slot in before:
        i = next((i for i in left if left[i] > 0 and v.items[i].kind == slot.kind and _same_app(v, i, slot.load)), None)
        if i is None:
            continue
        instances = left.pop(i)
        placed.item_of[slot.load.id] = i
        yield _going_on(v, i, slot.load, instances)
    number = 0
    for i, count in sorted(left.items()):
        if count > 0:
            number += 1
            while f"{name}.{number}" in taken:
                number += 1
            placed.item_of[f"{name}.{number}"] = i
            yield _load(v, i, f"{name}.{number}", count)
