"""In which order to go from what runs to what shall run: no machine and no total over-full, no load left unserved.

New instances come up first, as far as there is room. Where there is none, something that is to go leaves its machine
early (`move`; `unload`, `stop` or `keep` says so for good later): best what nobody waits for, else a warning says that
a load may not be served meanwhile. When all is up, the rest goes down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hetplan.planner.plan import Action, Notice
from hetplan.profiles.workers import Load, Worker

if TYPE_CHECKING:
    from hetplan.problems.variants import Variants
    from hetplan.problems.variants_workers import Placed

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
    machines: int = 0
    """Machines of the group that come or go with it."""
    apps: frozenset[int] = frozenset()
    needs: Mapping[str, float] = field(default_factory=dict)
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
    """What stands where, while actions are put in order."""

    def __init__(self, v: Variants, placed: Placed) -> None:
        self.v, self.staying = v, frozenset(worker.id for worker in placed.workers)
        self.totals: dict[str, float] = defaultdict(float)
        self.hosts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, change: _Change, sign: int) -> None:
        for resource, amount in change.needs.items():
            self.totals[resource] += sign * amount * change.count
            if change.worker.host is not None:
                self.hosts[change.worker.host][resource] += sign * amount * change.count

    def fits(self, change: _Change, *, without: _Change | None = None) -> bool:
        limits = self.v.inputs.slo.limits.resources
        provides = self.v.inputs.profile.hardware[change.worker.hardware].provides
        for resource, amount in change.needs.items():
            more = amount * change.count
            gone = without.needs.get(resource, 0.0) * without.count if without is not None else 0.0
            if resource in limits and self.totals[resource] - gone + more > limits[resource] * (1 + SLIP) + SLIP:
                return False
            room = provides.get(resource)
            if change.worker.host is not None and room is not None:
                held = self.hosts[change.worker.host][resource] - gone
                if held + more > room * (1 + SLIP) + SLIP:
                    return False
        return True


def steps(v: Variants, placed: Placed) -> Steps:
    """The actions from the state to these workers."""
    found = Steps()
    ups, downs, scene = _changes(v, placed, found)
    stay = list(downs)
    while ups:
        fitting = [one for one in ups if scene.fits(one)]
        for change in fitting:
            if scene.fits(change):
                _bring_up(found, scene, change)
                ups.remove(change)
        if not fitting and not _set_aside(found, scene, ups, stay):
            _bring_up(found, scene, ups.pop(0))
    for change in downs:
        _take_down(found, scene, change)
    return found


def _changes(v: Variants, placed: Placed, found: Steps) -> tuple[list[_Change], list[_Change], _Scene]:
    scene = _Scene(v, placed)
    workers = {slot.worker.id: slot.worker for slot in v.slots}
    workers |= {w.id: w for w in (v.inputs.state.workers if v.inputs.state else ())}
    kinds = {slot.load.id: slot.kind for slot in v.slots}
    after = {worker.id: worker for worker in placed.workers}
    ups: list[_Change] = []
    downs: list[_Change] = []
    for worker in workers.values():
        then = after.get(worker.id)
        left = {load.id: load for load in then.loads} if then is not None else {}
        for load in worker.loads:
            change = _of_kind(v, worker, load, kinds.get(load.id))
            change.count = worker.count * load.instances
            scene.add(change, +1)
            kept = then.count * left[load.id].instances if then is not None and load.id in left else 0
            machines = then.count - worker.count if then is not None else 0
            if kept > change.count:
                up = _of_kind(v, then or worker, left[load.id], kinds.get(load.id))
                up.count, up.machines, up.do = kept - change.count, max(machines, 0), "replicate"
                ups.append(up)
            elif kept < change.count:
                change.count, change.whole, change.machines = change.count - kept, kept == 0, max(-machines, 0)
                downs.append(change)
            elif kept:
                found.add("keep", load=load.id)
        if not worker.loads and then is None:
            found.add("stop", worker=worker.id)
    for worker in placed.workers:
        old = {load.id for load in workers[worker.id].loads} if worker.id in workers else set()
        for load in worker.loads:
            if load.id not in old:
                change = _of_kind(v, worker, load, v.items[placed.item_of[load.id]].kind)
                change.count, change.whole = worker.count * load.instances, True
                ups.append(change)
    _name_them(v, ups)
    found_started = {worker.id for worker in workers.values()}
    for worker in placed.workers:
        if worker.id not in found_started and worker.host is not None:
            found.add("start", worker=worker.id, count=worker.count)
    return ups, downs, scene


def _of_kind(v: Variants, worker: Worker, load: Load, kind: int | None) -> _Change:
    apps = frozenset(s.app for s in v.serving_of.get(kind if kind is not None else -1, ()))
    needs = v.kinds[kind].needs if kind is not None else {}
    return _Change(worker, load, 0, whole=False, apps=apps, needs=needs)


def _name_them(v: Variants, ups: list[_Change]) -> None:
    """replicate, upgrade, downgrade or load, by what runs of the same architecture and what it costs."""
    running: Counter[str] = Counter()
    dearest: dict[str, int] = {}
    variants = v.inputs.profile.variants
    for slot in v.slots:
        if slot.kind is not None:
            kind = v.kinds[slot.kind]
            running[kind.variant] += slot.instances
            family = variants[kind.variant].family or kind.variant
            dearest[family] = max(dearest.get(family, 0), kind.price)
    price = {(kind.variant, kind.hardware, kind.batch): kind.price for kind in v.kinds}
    for change in ups:
        name = change.load.variant or ""
        family = variants[name].family or name
        if running[name]:
            change.do = "replicate"
        elif family in dearest:
            own = price[name, change.worker.hardware, change.load.serve.max_batch]
            change.do = "upgrade" if own >= dearest[family] else "downgrade"


def _bring_up(found: Steps, scene: _Scene, change: _Change) -> None:
    worker = change.worker
    started = any(a.do == "start" and a.worker == worker.id for a in found.actions)
    if worker.host is None and (change.machines or (change.whole and not started)):
        found.add("start", worker=worker.id, count=change.machines or worker.count)
    found.add(change.do, load=change.load.id, count=change.count)
    scene.add(change, +1)


def _take_down(found: Steps, scene: _Scene, change: _Change) -> None:
    if change.whole:
        found.add("unload", load=change.load.id, count=change.count)
        gone = [a.load for a in found.actions if a.do == "unload"]
        if change.worker.id not in scene.staying and all(load.id in gone for load in change.worker.loads):
            found.add("stop", worker=change.worker.id)
    elif change.machines:
        found.add("stop", worker=change.worker.id, count=change.machines)
    else:
        found.add("keep", load=change.load.id, count=change.load.instances * change.worker.count - change.count)


def _set_aside(found: Steps, scene: _Scene, ups: list[_Change], stay: list[_Change]) -> bool:
    """Nothing can come up beside what must go: something goes off its machine now, best what nobody waits for."""
    up, waiting = ups[0], frozenset().union(*(change.apps for change in ups))
    there = [down for down in stay if up.worker.host is not None and down.worker.host == up.worker.host] or stay
    if not there:
        return False
    down = min(there, key=lambda one: (bool(one.apps & waiting), not scene.fits(up, without=one)))
    if down.apps & waiting:
        text = f"{down.load.variant} goes off its machine before what replaces it is up: there is no room for both"
        found.notices.append(Notice(code="W-swap", at=f"actions.{len(found.actions) + 1}", text=text))
    found.add("move", load=down.load.id, count=down.count)
    scene.add(down, -1)
    stay.remove(down)
    return True
