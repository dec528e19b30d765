"""Where the chosen instances run: every instance on its machine, and the machines as the workers of a plan.

The program per type of machine only bounds what machines one by one can hold (vector bin packing). A plan is made once
every instance has its place: running instances stay on their machines (known by name, or as the worker of the state
that runs there), the others go, large ones first, where they leave least room over. What runs keeps its name, what is
new gets one.

Machines of a type are filled by `pack`: those that are shared as the program says (`planner.machine_packing`), others
by best fit over several orders, and exactly where that leaves something over and the machines are few. `exact_program`
is the whole program with a count per item and machine, for when the totals allow what no machines can hold. `Placed`
are the workers of the plan: `workers_on_machines`, or where no machine is known `workers_by_counts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.machine_packing import Filling
from hetplan.planner.request import PLENTY, MachineType
from hetplan.planner.tolerances import SLIP
from hetplan.problems.variants.program import write_program
from hetplan.problems.variants.request import WHOLE, Integers, Slot, Snapshot, Vector, count_of
from hetplan.profiles.workers import Load, Serve, Worker

__all__ = ["Packed", "Placed", "exact_program", "machines_of_exact", "pack", "workers_by_counts", "workers_on_machines"]

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

    def fits(self, i: int, sizes: _Sizes) -> bool:
        """Whether one more instance has room, and those here bear its company."""
        company = self.holds.total() + 1
        has_room = bool((sizes.needs[i] <= self.room + SLIP * (1 + np.abs(self.room))).all())
        return has_room and company <= min(self.most, sizes.most[i])

    def put(self, i: int, sizes: _Sizes) -> None:
        """One more instance."""
        self.holds[i] += 1
        self.room = self.room - sizes.needs[i]
        self.most = min(self.most, sizes.most[i])

    def machine(self) -> Machine:
        """The machine as it is filled."""
        return Machine(self.type, self.place.host, dict(self.holds), was=self.place.was)


@dataclass(frozen=True)
class Packed:
    """The machines, and what found no place: instances left over per item."""

    machines: list[Machine]
    left: Counter[int]


class _Sizes:
    """What instances need, and what machines have.

    `needs` has a row per item, `rooms` per type (infinite where it says nothing), a column per resource; `most` says
    how many instances a machine may hold with each item on it, itself included.
    """

    def __init__(self, v: Snapshot) -> None:
        self.resources = resources = sorted({resource for kind in v.kinds for resource in kind.needs})
        self.rooms = np.full((len(v.types), len(resources)), np.inf)
        for t, type_ in enumerate(v.types):
            for r, name in enumerate(resources):
                room = 1.0 if name == WHOLE else type_.provides.get(name, 0.0) if type_.provides else np.inf
                if name in type_.provides or name not in v.wanted.capacity:
                    self.rooms[t, r] = room
        kinds = [v.kinds[item.kind] for item in v.items]
        needs = [[kind.needs.get(name, 0.0) for name in resources] for kind in kinds]
        self.needs = np.array(needs, dtype=float).reshape(len(kinds), len(resources))
        if WHOLE in resources:  # beside what takes a whole machine there is nothing else
            beside = [kind.part is not None or (kind.type in v.used_up and WHOLE not in kind.needs) for kind in kinds]
            self.needs[beside, resources.index(WHOLE)] = COMPANY
        company = np.array(v.company, dtype=float)
        self.most = np.where(company < PLENTY, company, np.inf)

    @property
    def counts_company(self) -> bool:
        """Whether some instances bear only so many beside them."""
        return bool(np.isfinite(self.most).any())

    def scarce_resources(self, items: Sequence[int], t: int) -> Iterator[int]:
        """The resources of which machines of a type have only so much, and these items need some."""
        for r in range(len(self.resources)):
            if np.isfinite(self.rooms[t, r]) and self.needs[items, r].any():
                yield r


def _machines_of(v: Snapshot, t: int, instances: int) -> list[Place]:
    """The machines of a type: by name where they have names, then those that run, then those that may be had.

    No more new ones than instances: each takes one at most.
    """
    count = count_of(v.types[t])
    known = [Place(host=host) for host in v.types[t].offers[0].hosts][:count] or _running_places(v, t)[:count]
    return known + [Place()] * min((count or 0) - len(known), instances)


def _running_places(v: Snapshot, t: int) -> list[Place]:
    return [Place(was=worker.id) for worker, type_ in v.unnamed_workers if type_ == t for _ in range(worker.count)]


def _kinds_running_at(v: Snapshot, place: Place) -> Iterator[tuple[int, int]]:
    """What runs on one machine now: kinds, and how many instances of each."""
    for slot in v.slots_at.get((place.host, place.was), ()):
        if slot.kind is not None:
            yield slot.kind, slot.load.instances


def pack(v: Snapshot, x: Integers, ask: Ask, fillings: Sequence[Filling] | None = None) -> Packed:
    """Places for these counts, type by type; `fillings` say what is on the machines that are shared."""
    sizes, machines, left = _Sizes(v), list[Machine](), Counter[int]()
    of_type: dict[int, Counter[int]] = {}
    for i, count in enumerate(x):
        if count > 0:
            of_type.setdefault(v.kind(i).type, Counter())[i] = int(count)
    for t, wanted in sorted(of_type.items()):
        if t in v.sharing and fillings is not None:
            machines += _machines_as_filled(v, t, wanted, fillings)
            continue
        if t not in v.sharing and count_of(v.types[t]) is None:
            machines += _machine_each(v, t, wanted)
            continue
        if t in v.sharing:
            bins, rest = _fewest_machines(v, t, wanted, sizes)
        else:
            bins, rest = _fullest_machines(v, t, wanted, sizes, _machines_of(v, t, wanted.total()))
            if rest and len(wanted) * len(bins) <= MOST_ASSIGNED and not sizes.counts_company:
                assigned = _assign_exactly(v, t, wanted, sizes, ask)
                if assigned is not None:
                    machines += assigned
                    continue
        left += rest
        machines += [b.machine() for b in bins if b.holds]
    return Packed(_group_alike(machines), left)


def _machines_as_filled(v: Snapshot, t: int, wanted: Counter[int], fillings: Sequence[Filling]) -> list[Machine]:
    """Machines that are shared, filled as the program says; what runs keeps its machine where most of it goes on."""
    places = _machines_of(v, t, 0) if count_of(v.types[t]) is not None else _running_places(v, t)
    name, shared = v.types[t].id, v.sharing[t].things
    mine = [one for one in fillings if one.machine == name]
    mine += [Filling(name, {i: 1}, n) for i, n in sorted(wanted.items()) if i not in shared]
    known = [place for place in places if place.host is not None or place.was is not None]
    left, found = [one.count for one in mine], list[Machine]()
    for place in sorted(known, key=lambda place: -max((_overlap(v, place, one.holds) for one in mine), default=0)):
        open_ = [k for k, one in enumerate(mine) if left[k] > 0]
        if not open_:
            break
        k = max(open_, key=lambda k: (_overlap(v, place, mine[k].holds), -k))
        if place.host is not None or _overlap(v, place, mine[k].holds):
            left[k] -= 1
            found.append(Machine(t, place.host, mine[k].holds, was=place.was))
    return found + [Machine(t, None, mine[k].holds, n) for k, n in enumerate(left) if n > 0]


def _overlap(v: Snapshot, place: Place, holds: Mapping[int, int]) -> int:
    """How many of these instances run there now."""
    now: Counter[int] = Counter()
    for kind, instances in _kinds_running_at(v, place):
        now[kind] += instances
    return (now & _kinds_held(v, holds)).total()


def _kinds_held(v: Snapshot, holds: Mapping[int, int]) -> Counter[int]:
    """Instances of each kind."""
    found: Counter[int] = Counter()
    for i, count in holds.items():
        found[v.items[i].kind] += count
    return found


def _fewest_machines(v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes) -> tuple[list[_Bin], Counter[int]]:
    """As few machines as best fit needs; what is left over where there are no more."""
    count = count_of(v.types[t])
    least = max(1, v.sharing[t].min_machines([wanted[i] for i in v.sharing[t].things]))
    while True:
        size = least if count is None else min(least, count)
        places = (_machines_of(v, t, 0) if count is not None else _running_places(v, t))[:size]
        places += [Place()] * (size - len(places))
        bins, rest = _fullest_machines(v, t, wanted, sizes, places)
        if not rest or size == count or size >= wanted.total():
            return bins, rest
        least = size + max(1, size // 50)


def _machine_each(v: Snapshot, t: int, wanted: Counter[int]) -> list[Machine]:
    """Where as many machines as wanted may be had, each instance that does not run yet gets its own."""
    left, found = Counter(wanted), list[Machine]()
    items = _items_of_kind(v, wanted)
    for place in _running_places(v, t):
        holds: Counter[int] = Counter()
        for kind, instances in _kinds_running_at(v, place):
            for i in items.get(kind, ()):
                kept = min(instances - sum(holds[j] for j in items[kind]), left[i])
                if kept > 0:
                    holds[i] += kept
                    left[i] -= kept
        if holds:
            found.append(Machine(t, None, dict(holds), was=place.was))
    found = _group_alike(found)
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


def _fullest_machines(
    v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, places: Sequence[Place]
) -> tuple[list[_Bin], Counter[int]]:
    """The machines of a type as full as best fit gets them, over several orders; what is left over."""
    best = None
    for order in range(2 + len(sizes.resources)):
        bins = [_Bin(t, place, sizes.rooms[t].copy()) for place in places]
        rest = _fill(v, bins, wanted, sizes, order)
        if best is None or rest.total() < best[1].total():
            best = (bins, rest)
        if not rest:
            break
    assert best is not None
    return best


def _fill(v: Snapshot, bins: list[_Bin], wanted: Counter[int], sizes: _Sizes, order: int) -> Counter[int]:
    """Fill the bins, the largest first (by the largest share of a machine, their sum, or one resource).

    What runs on a machine stays there, as far as it is wanted and fits.
    """
    left = Counter(wanted)
    items = _items_of_kind(v, wanted)
    for b in bins:
        for kind, instances in _kinds_running_at(v, b.place):
            for i in items.get(kind, ()):
                while instances and left[i] and b.fits(i, sizes):
                    b.put(i, sizes)
                    left[i] -= 1
                    instances -= 1
    scale = np.max([np.where(np.isfinite(b.room), b.room, 1.0) for b in bins], axis=0) if bins else np.ones(1)
    scale = np.maximum(scale, 1e-12)
    share = sizes.needs / scale
    measure = [share.max(axis=1, initial=0.0), share.sum(axis=1), *share.T][order]
    for i in sorted(left, key=lambda i: (-float(measure[i]), i)):
        while left[i] > 0:
            fitting = [b for b in bins if b.fits(i, sizes)]
            if not fitting:
                break
            over = np.array([b.room - sizes.needs[i] for b in fitting])
            rest = np.linalg.norm(np.where(np.isfinite(over), over, 0.0) / scale, axis=1)
            fitting[int(np.argmin(rest))].put(i, sizes)
            left[i] -= 1
    return +left


def _assign_exactly(v: Snapshot, t: int, wanted: Counter[int], sizes: _Sizes, ask: Ask) -> list[Machine] | None:
    """The same instances placed exactly, those that run staying where they are as far as may be."""
    items, places = sorted(wanted), _machines_of(v, t, wanted.total())
    m = Builder("max", name="variants placed")
    now = [Counter[int]() for _ in places]
    for n, place in enumerate(places):
        for kind, instances in _kinds_running_at(v, place):
            now[n][kind] += instances
    stays = np.array([[here[v.items[i].kind] for here in now] for i in items], dtype=float)
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
    for r in sizes.scarce_resources(items, t):
        name, upper = sizes.resources[r], sizes.rooms[t, r]
        row = m.rows(name, [p.host or str(n) for n, p in enumerate(places)], upper=upper)
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


def _group_alike(machines: list[Machine]) -> list[Machine]:
    """Machines without a name that hold the same are one group, new ones and those that were one worker."""
    groups: dict[object, Machine] = {}
    for place, machine in enumerate(machines):
        key: object = place
        if machine.host is None:
            key = (machine.type, machine.was, tuple(sorted(machine.holds.items())))
        before = groups.get(key)
        groups[key] = machine if before is None else replace(before, count=before.count + machine.count)
    return list(groups.values())


def exact_program(v: Snapshot) -> Milp | None:
    """The whole program with a count per item and machine; None if none is counted, or too many, or company matters."""
    places, sizes = _counts_of_exact(v), _Sizes(v)
    if not 0 < len(places) <= MOST_EXACT or sizes.counts_company:
        return None
    m, x = write_program(v)
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


def machines_of_exact(v: Snapshot, form: Milp, point: Vector) -> list[Machine]:
    """The machines of a point of `exact_program`."""
    block = next(block for block in form.columns if block.name == "z")
    values = np.rint(point[block.start : block.stop]).astype(int)
    holds: dict[tuple[int, int], dict[int, int]] = {}
    for (i, t, n), count in zip(_counts_of_exact(v), values, strict=True):
        if count > 0:
            holds.setdefault((t, n), {})[i] = int(count)
    where = {t: _machines_of(v, t, count_of(v.types[t]) or 0) for t, _ in holds}
    return _group_alike(
        [Machine(t, where[t][n].host, held, was=where[t][n].was) for (t, n), held in sorted(holds.items())]
    )


def _counts_of_exact(v: Snapshot) -> list[tuple[int, int, int]]:
    """(item, type, machine of the type) of every count of `exact_program`."""
    types = [v.kinds[item.kind].type for item in v.items]
    return [(i, t, n) for i, t in enumerate(types) for n in range(count_of(v.types[t]) or 0)]


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
        """The next free id of a machine group: w1, w2, ..."""
        while True:
            self.next += 1
            name = f"w{self.next}"
            if name not in self.taken and f"{name}.1" not in self.taken:
                return name


def _new_load(v: Snapshot, i: int, name: str, instances: int) -> Load:
    kind, app = v.kind(i), v.items[i].app
    given = {"knobs": kind.choice.knobs, "instances": instances, "serve": _serve(v, i), "share": kind.share}
    return kind.choice.load(id=name, app=v.asked[app].id if app is not None else None, **given)


def _kept_load(v: Snapshot, i: int, load: Load, instances: int) -> Load:
    """A running load that goes on as an item's."""
    kind, app = v.kind(i), v.items[i].app
    own = v.asked[app].id if app is not None else None
    if v.wanted.changes is not None:
        # A load that changes its application would count as moved.
        own = load.app
    changes = {"instances": instances, "app": own, "at": kind.choice.at, "share": kind.share or load.share}
    changes |= {"artifact": kind.choice.weights, "node": None, "outcomes": None}
    return load.model_copy(update={**changes, "serve": _serve(v, i)})


def _serve(v: Snapshot, i: int) -> Serve:
    """Batches as measured, and as many at once as saturation means: Q T = batch x concurrency."""
    first, batch = v.items[i].serves[0], v.kind(i).batch
    at_once = first.saturation_qps * first.latency_ms / 1000.0 / batch
    return Serve(max_batch=batch, concurrency=max(1, round(at_once)))


def _same_app(v: Snapshot, i: int, load: Load) -> bool:
    """Whether a running load may go on as this item's: not where it is another application's."""
    app = v.items[i].app
    if v.options.sharing == "dedicated":
        return load.app is None or load.app == v.asked[app or 0].id
    return load.app is None or any(v.asked[s.app].id == load.app for s in v.items[i].serves)


def workers_by_counts(v: Snapshot, x: Integers) -> Placed:
    """Without machines: a worker is an instance, a group of workers the instances of an item."""
    placed, names, left = Placed(), _Names(v), Counter({i: int(n) for i, n in enumerate(x) if n > 0})
    kinds = _items_of_kind(v, range(len(v.items)))
    of_worker: dict[str, list[int]] = {}
    for place, slot in enumerate(v.slots):
        of_worker.setdefault(slot.worker.id, []).append(place)
    for places in of_worker.values():
        worker = _kept_worker(v, places, kinds, left, placed)
        if worker is not None:
            placed.workers.append(worker)
    for i, count in sorted(left.items()):
        if count > 0:
            name = names.worker()
            placed.item_of[f"{name}.1"] = i
            loads = (_new_load(v, i, f"{name}.1", 1),)
            placed.workers.append(_worker(v.type_of(i), name, None, count, queue="per-load", loads=loads))
    return _complete(v, placed, names)


def _name_as_running(v: Snapshot, placed: Placed) -> None:
    """Where moves are limited, new loads are called after the application of what no longer runs: then none is new."""
    running = v.wanted.running
    if v.wanted.changes is None or not running:
        return
    left, known = _instances_named(running), {load.id for worker in running for load in worker.loads}
    left.subtract(_instances_named(placed.workers))
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


def _instances_named(workers: Iterable[Worker]) -> Counter[tuple[str | None, str | None, str]]:
    found: Counter[tuple[str | None, str | None, str]] = Counter()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.variant, worker.hardware] += worker.count * load.instances
    return found


def _kept_worker(
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
        loads.append(_kept_load(v, i, slot.load, instances))
        offer = offer or v.type_of(i).offers[0].id
    if not loads:
        return None
    return worker.model_copy(update={"count": count, "loads": tuple(loads), "offer": offer, "queue": "per-load"})


def workers_on_machines(v: Snapshot, machines: list[Machine]) -> Placed:
    """A worker per machine; machines without a limit that are alike, or that ran as one group, are one group."""
    placed, names = Placed(), _Names(v)
    going_on = _names_going_on(v, machines)
    of_host = {w.host: w.id for w in v.wanted.running if w.host}
    for place, machine in enumerate(machines):
        if not machine.holds:
            continue
        before: Sequence[Slot] = ()
        name = of_host.get(machine.host or "") or going_on.get(place)
        if name is not None:
            before = v.slots_at.get((machine.host, None if machine.host is not None else name), ())
        name = name or names.worker()
        type_ = v.types[machine.type]
        if any(v.kind(i).part is not None for i in machine.holds):
            placed.shared_nanos += machine.count * type_.offers[0].nanos
        loads = tuple(_machine_loads(v, machine, name, before, placed))
        placed.workers.append(_worker(type_, name, machine.host, machine.count, queue="per-load", loads=loads))
    return _complete(v, placed, names)


def _worker(type_: MachineType, name: str, host: str | None, count: int, **held: Any) -> Worker:
    return Worker(id=name, hardware=type_.hardware, offer=type_.offers[0].id, host=host, count=count, **held)


def _complete(v: Snapshot, placed: Placed, names: _Names) -> Placed:
    """With the machines that must be there beside, and loads named after what runs."""
    _add_idle(v, placed, names)
    _name_as_running(v, placed)
    return placed


def _add_idle(v: Snapshot, placed: Placed, names: _Names) -> None:
    """Machines that must be there and hold nothing: those that run go on, then others of the cheapest types."""
    used: Counter[int] = Counter()
    for worker in placed.workers:
        used[v.kind(placed.item_of[worker.loads[0].id]).type] += worker.count
    there = {worker.id for worker in placed.workers}
    on_host = {worker.host: worker.id for worker in v.wanted.running if worker.host is not None}
    for t, missing in v.idle_counts(used).items():
        kind = v.types[t]
        placed.idle_nanos += missing * kind.offers[0].nanos
        taken = {worker.host for worker in placed.workers}
        free = sorted(
            (host for host in kind.offers[0].hosts if host not in taken), key=lambda host: (host not in on_host, host)
        )
        going_on = [
            (None, worker.id, worker.count) for worker, at in v.unnamed_workers if at == t and worker.id not in there
        ]
        for host, name, count in [*((host, on_host.get(host), 1) for host in free), *going_on]:
            if count <= missing:
                placed.workers.append(_worker(kind, name or names.worker(), host, count))
                missing -= count
        if missing > 0:
            placed.workers.append(_worker(kind, names.worker(), None, missing))


def _names_going_on(v: Snapshot, machines: list[Machine]) -> dict[int, str]:
    """Which of the unnamed machines go on under the name of the worker that they were: of several, the most alike."""
    best: dict[str, tuple[bool, int, int]] = {}
    counts = {worker.id: worker.count for worker, _ in v.unnamed_workers}
    for place, machine in enumerate(machines):
        if machine.host is not None or machine.was is None:
            continue
        now: Counter[int | None] = Counter({s.kind: s.load.instances for s in v.slots_at.get((None, machine.was), ())})
        same = now == _kinds_held(v, machine.holds)
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
        yield _kept_load(v, i, slot.load, instances)
    number = 0
    for i, count in sorted(left.items()):
        if count > 0:
            number += 1
            while f"{name}.{number}" in taken:
                number += 1
            placed.item_of[f"{name}.{number}"] = i
            yield _new_load(v, i, f"{name}.{number}", count)
