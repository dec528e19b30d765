"""The order of steps from what runs to what shall run: no machine is overfull, and no load is left unserved.

New instances come up first, as far as there is room. Where there is none, something that is to go leaves its machine
early (`move`; `unload`, `stop` or `keep` says so for good later): best what nobody waits for, else a warning says that
a load may not be served meanwhile. When all is up, the rest goes down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hetplan.problems.variants.places import Placed
from hetplan.problems.variants.wish import Snapshot
from hetplan.profiles.plan import Action, Notice
from hetplan.profiles.workers import Load, Worker

__all__ = ["Steps", "steps"]

Do = Literal["load", "replicate", "upgrade", "downgrade"]
SLIP = 1e-6


@dataclass
class _Change:
    """Instances of one load that come or go, on one worker (group)."""

    worker: Worker
    load: Load
    count: int
    whole: bool
    """The load appears, or goes for good."""
    apps: frozenset[int] = frozenset()
    needs: Mapping[str, float] = field(default_factory=dict)
    left: int = 0
    """Of a load that shrinks: instances that stay."""
    do: Do = "load"


@dataclass
class Steps:
    """The actions, and what is to be said of them."""

    actions: list[Action] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def add(self, do: Any, *, worker: str | None = None, load: str | None = None, count: int | None = None) -> None:
        """One more action, after the one before."""
        number = len(self.actions) + 1
        after = (number - 1,) if number > 1 else ()
        self.actions.append(Action(id=number, do=do, worker=worker, load=load, count=count, after=after))


class _Scene:
    """What is where, while actions are put in order."""

    def __init__(self, v: Snapshot, placed: Placed) -> None:
        self.v = v
        self.gone: set[str] = set()
        """Loads that are unloaded."""
        self.totals: dict[str, float] = defaultdict(float)
        self.places: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.up: Counter[str | None] = Counter()
        """Machines of each offer."""
        running = {w.id: w for w in v.wanted.running}
        planned = {worker.id: worker for worker in placed.workers}
        self.machines = {
            name: max(running[name].count if name in running else 0, planned[name].count if name in planned else 0)
            for name in running.keys() | planned.keys()
        }
        self.starting = {w.id: w.count - (running[w.id].count if w.id in running else 0) for w in placed.workers}
        """Machines of each worker that are still to be started (what is below 0, to be stopped)."""
        self.running, self.planned = running, planned
        for worker in running.values():
            self.up[self.offer(worker)] += worker.count

    def offer(self, worker: Worker) -> str | None:
        """Under which offer a worker is had: the plan may know what the state does not say."""
        return self.planned[worker.id].offer if worker.id in self.planned else worker.offer

    def planned_count(self, worker: Worker) -> int:
        """Machines of a worker in the plan."""
        return self.planned[worker.id].count if worker.id in self.planned else 0

    def add(self, change: _Change, sign: int) -> None:
        for resource, amount in change.needs.items():
            self.totals[resource] += sign * amount * change.count
            self.places[change.worker.id][resource] += sign * amount * change.count

    def no_machine(self, worker: Worker) -> bool:
        """Whether machines that the worker still lacks are not to be had now."""
        offer = self.v.inputs.profile.offers.get(self.offer(worker) or "")
        lacking = max(0, self.starting.get(worker.id, 0))
        if not lacking or offer is None or offer.stock is None:
            return False
        return self.up[self.offer(worker)] + lacking > offer.stock

    def fits(self, change: _Change, *, without: _Change | None = None) -> bool:
        limits = self.v.wanted.capacity
        provides = self.v.inputs.profile.hardware[change.worker.hardware].provides
        here, machines = self.places[change.worker.id], self.machines[change.worker.id]
        if self.no_machine(change.worker):
            return False
        for resource, amount in change.needs.items():
            more = amount * change.count
            gone = without.needs.get(resource, 0.0) * without.count if without is not None else 0.0
            if resource in limits and self.totals[resource] - gone + more > limits[resource] * (1 + SLIP) + SLIP:
                return False
            room = provides.get(resource)
            if room is not None:
                left = here[resource] - (gone if without is not None and without.worker.id == change.worker.id else 0.0)
                if left + more > machines * room * (1 + SLIP) + SLIP:
                    return False
        return True


def steps(v: Snapshot, placed: Placed) -> Steps:
    """The actions from the state to these workers."""
    found = Steps()
    ups, downs, scene = _changes(v, placed, found)
    stay = list(downs)
    while ups:
        waiting = []
        for change in ups:
            if scene.fits(change):
                _bring_up(found, scene, change)
            else:
                waiting.append(change)
        moved, ups = len(waiting) < len(ups), waiting
        if ups and not moved and not _make_room(found, scene, ups, stay, downs):
            _bring_up(found, scene, ups.pop(0))
    for change in downs:
        _take_down(found, scene, change)
    for worker in placed.workers:
        if not worker.loads:
            _start(found, scene, worker)
        _stop_surplus(found, scene, worker)
    return found


def _changes(v: Snapshot, placed: Placed, found: Steps) -> tuple[list[_Change], list[_Change], _Scene]:
    scene = _Scene(v, placed)
    kinds = {slot.load.id: slot.kind for slot in v.slots}
    after = {worker.id: worker for worker in placed.workers}
    ups: list[_Change] = []
    downs: list[_Change] = []
    for worker in scene.running.values():
        then = after.get(worker.id)
        left = {load.id: load for load in then.loads} if then is not None else {}
        for load in worker.loads:
            change = _of_kind(v, worker, load, kinds.get(load.id))
            change.count = worker.count * load.instances
            scene.add(change, +1)
            kept = then.count * left[load.id].instances if then is not None and load.id in left else 0
            if kept > change.count:
                up = _of_kind(v, then or worker, left[load.id], kinds.get(load.id))
                up.count, up.do = kept - change.count, "replicate"
                ups.append(up)
            elif kept < change.count:
                change.count, change.whole, change.left = change.count - kept, kept == 0, kept
                downs.append(change)
            elif kept:
                found.add("keep", load=load.id)
        if not worker.loads and then is None:
            found.add("stop", worker=worker.id)
            scene.up[scene.offer(worker)] -= worker.count
    for worker in placed.workers:
        before = scene.running.get(worker.id)
        old = {load.id for load in before.loads} if before is not None else set()
        for load in worker.loads:
            if load.id not in old:
                change = _of_kind(v, worker, load, v.items[placed.item_of[load.id]].kind)
                change.count, change.whole = worker.count * load.instances, True
                ups.append(change)
    _name_them(v, ups)
    return ups, downs, scene


def _of_kind(v: Snapshot, worker: Worker, load: Load, kind: int | None) -> _Change:
    apps = frozenset(s.app for s in v.serving_of.get(kind if kind is not None else -1, ()))
    # What serves nobody here takes what its run needs, until it is gone.
    unknown = next((one.needs for one in v.wanted.meant_by(load, worker.hardware)), {})
    needs = v.kinds[kind].needs if kind is not None else unknown
    return _Change(worker, load, 0, whole=False, apps=apps, needs=needs)


def _name_them(v: Snapshot, ups: list[_Change]) -> None:
    """replicate, upgrade, downgrade or load, by what runs of the same architecture and what it costs."""
    running: Counter[str] = Counter()
    dearest: dict[str, int] = {}
    family_of = v.wanted.known.family
    for slot in v.slots:
        if slot.kind is not None:
            kind = v.kinds[slot.kind]
            running[kind.variant] += slot.instances
            family = family_of(kind.variant)
            dearest[family] = max(dearest.get(family, 0), kind.price)
    price = {(kind.variant, kind.hardware, kind.batch): kind.price for kind in v.kinds}
    for change in ups:
        name = change.load.variant or ""
        family = family_of(name)
        if running[name]:
            change.do = "replicate"
        elif family in dearest:
            own = price[name, change.worker.hardware, change.load.serve.max_batch]
            change.do = "upgrade" if own >= dearest[family] else "downgrade"


def _start(found: Steps, scene: _Scene, worker: Worker) -> None:
    """Bring up the machines that a worker still lacks."""
    lacking = scene.starting.get(worker.id, 0)
    if lacking > 0:
        found.add("start", worker=worker.id, count=lacking)
        scene.up[scene.offer(worker)] += lacking
        scene.starting[worker.id] = 0


def _bring_up(found: Steps, scene: _Scene, change: _Change) -> None:
    _start(found, scene, change.worker)
    found.add(change.do, load=change.load.id, count=change.count)
    scene.add(change, +1)


def _take_down(found: Steps, scene: _Scene, change: _Change) -> None:
    worker = change.worker
    if change.whole:
        found.add("unload", load=change.load.id, count=change.count)
        scene.gone.add(change.load.id)
        if all(load.id in scene.gone for load in worker.loads):
            if worker.id not in scene.planned:
                found.add("stop", worker=worker.id)
                scene.up[scene.offer(worker)] -= worker.count
            _stop_surplus(found, scene, worker)
        return
    _stop_surplus(found, scene, worker)
    if change.left < change.load.instances * scene.planned_count(worker):
        found.add("keep", load=change.load.id, count=change.left)


def _stop_surplus(found: Steps, scene: _Scene, worker: Worker) -> None:
    """Take down the machines that a worker has beyond those planned."""
    surplus = -scene.starting.get(worker.id, 0)
    if surplus > 0:
        found.add("stop", worker=worker.id, count=surplus)
        scene.up[scene.offer(worker)] -= surplus
        scene.starting[worker.id] = 0


def _make_room(found: Steps, scene: _Scene, ups: list[_Change], stay: list[_Change], downs: list[_Change]) -> bool:
    """Nothing can come up beside what must go: something goes first, best what nobody waits for."""
    up, waiting = ups[0], frozenset().union(*(change.apps for change in ups))
    if scene.no_machine(up.worker):
        return _release(found, scene, up, waiting, stay, downs)
    there = [down for down in stay if down.worker.id == up.worker.id] or stay
    if not there:
        return False
    down = min(there, key=lambda one: (bool(one.apps & waiting), not scene.fits(up, without=one)))
    if down.apps & waiting:
        _warn(found, down)
    found.add("move", load=down.load.id, count=down.count)
    scene.add(down, -1)
    stay.remove(down)
    return True


def _release(
    found: Steps, scene: _Scene, up: _Change, waiting: frozenset[int], stay: list[_Change], downs: list[_Change]
) -> bool:
    """All machines of an offer are up: a worker that is to go, or to shrink, does so before another starts."""
    going = [
        down for down in downs
        if scene.offer(down.worker) == scene.offer(up.worker)
        and (down.worker.id not in scene.planned or scene.starting.get(down.worker.id, 0) < 0)
    ]  # fmt: skip
    if not going:
        return False
    first = min(going, key=lambda one: bool(one.apps & waiting)).worker.id
    for down in [one for one in downs if one.worker.id == first]:
        if down.apps & waiting:
            _warn(found, down)
        _take_down(found, scene, down)
        downs.remove(down)
        if down in stay:
            scene.add(down, -1)
            stay.remove(down)
    return True


def _warn(found: Steps, down: _Change) -> None:
    text = f"{down.load.variant} leaves its machine before its replacement is up: there is no room for both"
    found.notices.append(Notice(code="W-swap", at=f"actions.{len(found.actions) + 1}", text=text))
