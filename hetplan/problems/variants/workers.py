"""From chosen counts to the workers of a plan: what runs keeps its place and its name, what is new gets one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetplan.problems.variants.idle import idle_counts
from hetplan.problems.variants.snapshot import SLICES, Slot, machine_price
from hetplan.profiles.workers import Load, Serve, Share, Worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.problems.variants.question import Variants

__all__ = ["Machine", "Placed", "placed_by_counts", "placed_on_machines"]


@dataclass(frozen=True)
class Machine:
    """One machine (or `count` alike ones) with instances of items; `was` is the worker that runs there, unnamed."""

    type: int
    host: str | None
    holds: Mapping[int, int]
    count: int = 1
    was: str | None = None


@dataclass
class Placed:
    """The plan's workers, and which loads hold which item."""

    workers: list[Worker] = field(default_factory=list)
    item_of: dict[str, int] = field(default_factory=dict)
    idle_nanos: int = 0
    """What machines cost that hold nothing and must be there, in 1e-9 per hour."""

    def loads_of(self) -> dict[int, list[tuple[str, int]]]:
        """Per item its loads and their instances in all."""
        found: dict[int, list[tuple[str, int]]] = {}
        for worker in self.workers:
            for load in worker.loads:
                found.setdefault(self.item_of[load.id], []).append((load.id, worker.count * load.instances))
        return found


class _Names:
    """Ids that nothing that runs has."""

    def __init__(self, v: Variants) -> None:
        state = v.inputs.state
        running = state.workers if state is not None else ()
        self.taken = {worker.id for worker in running} | {load.id for worker in running for load in worker.loads}
        self.next = 0

    def worker(self) -> str:
        while True:
            self.next += 1
            name = f"w{self.next}"
            if name not in self.taken and f"{name}.1" not in self.taken:
                return name


def _load(v: Variants, i: int, name: str, instances: int) -> Load:
    item = v.items[i]
    kind = v.kinds[item.kind]
    app = v.asked[item.app].id if item.app is not None else None
    return Load(
        id=name, app=app, variant=kind.variant, knobs=dict(kind.knobs), instances=instances,
        serve=_serve(v, i), share=_slice(v, i),
    )  # fmt: skip


def _serve(v: Variants, i: int) -> Serve:
    """Batches as measured, and as many at once as saturation means: Q T = batch x concurrency."""
    item = v.items[i]
    kind = v.kinds[item.kind]
    at_once = item.serves[0].saturation_qps * item.serves[0].latency_ms / 1000.0 / kind.batch
    return Serve(max_batch=kind.batch, concurrency=max(1, round(at_once)))


def _slice(v: Variants, i: int) -> Share | None:
    """The slice of a machine that is paid by the unit, where prices are such."""
    kind = v.kinds[v.items[i].kind]
    offer = v.inputs.profile.offers.get(v.types[kind.type].offer or "")
    run = v.inputs.profile.variants[kind.variant].runs[kind.run]
    if offer is None or run.price_per_hour is not None or offer.per not in SLICES or offer.per not in kind.needs:
        return None
    amount = kind.needs[offer.per]
    return Share(gpu=amount) if offer.per == "gpu" else Share(cpu_cores=amount)


def _items_of_kind(v: Variants) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for i, item in enumerate(v.items):
        found.setdefault(item.kind, []).append(i)
    return found


def _same_app(v: Variants, i: int, load: Load) -> bool:
    """Whether a running load may go on as this item's: not where it is another application's."""
    app = v.items[i].app
    if v.options.sharing == "dedicated":
        return load.app is None or load.app == v.asked[app or 0].id
    return load.app is None or any(v.asked[s.app].id == load.app for s in v.items[i].serves)


def _going_on(v: Variants, i: int, load: Load, instances: int) -> Load:
    item = v.items[i]
    own = v.asked[item.app].id if item.app is not None else None
    if v.inputs.slo.limits.moves is not None and v.options.sharing != "dedicated":
        # A load that changes its application would count as moved.
        own = load.app
    return load.model_copy(
        update={"instances": instances, "app": own, "share": _slice(v, i) or load.share, "serve": _serve(v, i)}
    )


def placed_by_counts(v: Variants, x: NDArray[np.int64]) -> Placed:
    """Without machines: a worker is an instance, a group of workers the instances of an item."""
    placed, names, left = Placed(), _Names(v), Counter({i: int(n) for i, n in enumerate(x) if n > 0})
    kinds = _items_of_kind(v)
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
                    id=name, hardware=kind.hardware, offer=v.types[kind.type].offer, count=count, queue="per-load",
                    loads=(_load(v, i, f"{name}.1", 1),),
                )
            )  # fmt: skip
    _add_idle(v, placed, names)
    return placed


def _kept(
    v: Variants, places: list[int], kinds: dict[int, list[int]], left: Counter[int], placed: Placed
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
        offer = offer or v.types[v.kinds[v.items[i].kind].type].offer
    if not loads:
        return None
    return worker.model_copy(update={"count": count, "loads": tuple(loads), "offer": offer, "queue": "per-load"})


def placed_on_machines(v: Variants, machines: list[Machine]) -> Placed:
    """Each machine a worker of its own; alike ones that are had without end, or that went as one group, are a group."""
    placed, names = Placed(), _Names(v)
    going_on = _going_on_as(v, machines)
    of_host = {w.host: w.id for w in (v.inputs.state.workers if v.inputs.state is not None else ()) if w.host}
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
        placed.workers.append(
            Worker(
                id=name, hardware=kind.hardware, offer=kind.offer, host=machine.host, count=machine.count,
                queue="per-load", loads=tuple(loads),
            )
        )  # fmt: skip
    _add_idle(v, placed, names)
    return placed


def _add_idle(v: Variants, placed: Placed, names: _Names) -> None:
    """Machines that must be there and hold nothing: those that run go on, then others of the cheapest types."""
    used: Counter[int] = Counter()
    for worker in placed.workers:
        of_type = (v.kinds[v.items[placed.item_of[load.id]].kind].type for load in worker.loads)
        used[next(of_type)] += worker.count
    there = {worker.id for worker in placed.workers}
    state = v.inputs.state.workers if v.inputs.state is not None else ()
    on_host = {worker.host: worker.id for worker in state if worker.host is not None}
    for t, missing in idle_counts(v, used).items():
        kind = v.types[t]
        placed.idle_nanos += missing * machine_price(v.inputs, kind)
        taken = {worker.host for worker in placed.workers}
        free = sorted((host for host in kind.hosts if host not in taken), key=lambda host: (host not in on_host, host))
        going_on = [(None, worker.id, worker.count) for worker, at in v.unnamed if at == t and worker.id not in there]
        for host, name, count in [*((host, on_host.get(host), 1) for host in free), *going_on]:
            if count <= missing:
                placed.workers.append(_idle(v, t, name or names.worker(), host, count))
                missing -= count
        if missing > 0:
            placed.workers.append(_idle(v, t, names.worker(), None, missing))


def _idle(v: Variants, t: int, name: str, host: str | None, count: int) -> Worker:
    return Worker(id=name, hardware=v.types[t].hardware, offer=v.types[t].offer, host=host, count=count)


def _going_on_as(v: Variants, machines: list[Machine]) -> dict[int, str]:
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


def _machine_loads(v: Variants, machine: Machine, name: str, before: Sequence[Slot], placed: Placed) -> Iterator[Load]:
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
