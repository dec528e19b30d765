"""The way from what runs to what shall run: in order, within stock and hosts, bringing up before taking down.

Where there is no room left for any machine that is still missing, something has to go first.

Actions are followed in the order of the file. `start` and `stop` change how many machines of a worker are up (all that
are missing, or all there are, where no count is given); `load`, `unload` and the kinds of replacing change which loads
are active; `keep`, `move` and `route` change neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hetplan.profiles.plan import Action
from hetplan.profiles.state import State
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.plan_index import Facts, machines
from hetplan.verifier.report import Violation

__all__ = ["Scene", "check_actions", "has_room", "moved_instances"]

_ACTIVATES = ("load", "replicate", "upgrade", "downgrade")
_OF_WORKERS = ("start", "stop")
_OF_LOADS = (*_ACTIVATES, "unload")


@dataclass
class Scene:
    """What is up and active after the actions so far."""

    facts: Facts
    workers: dict[str, Worker]
    wanted: dict[str, int]
    up: Counter[str]
    home: dict[str, Worker]
    loads: dict[str, Load]
    active: set[str]
    done: set[int] = field(default_factory=set)

    @cached_property
    def alike(self) -> Mapping[tuple[str | None, str | None], list[str]]:
        """All loads, by application and step."""
        found: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
        for name, load in self.loads.items():
            found[load.app, load.node].append(name)
        return found

    @cached_property
    def of_worker(self) -> Mapping[str, list[str]]:
        """All loads, by the worker that they are at home on."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, worker in self.home.items():
            found[worker.id].append(name)
        return found

    def crowded(self, started: Worker) -> Iterator[str]:
        """Where this worker's offer or host is over-used at this moment."""
        stock = self.facts.inputs.profile.offers[started.offer].stock if started.offer is not None else None
        if stock is not None:
            offered = sum(count for name, count in self.up.items() if self.workers[name].offer == started.offer)
            if offered > stock:
                yield f"{offered} machines of offer {started.offer} are up, {stock} are in stock"
        if started.host is not None:
            placed = sum(count for name, count in self.up.items() if self.workers[name].host == started.host)
            if placed > 1:
                yield f"{placed} machines are on host {started.host}"


def _scene(facts: Facts) -> Scene:
    running = facts.inputs.state.workers if facts.inputs.state is not None else ()
    both = (*running, *facts.plan.workers)
    return Scene(
        facts,
        workers={worker.id: worker for worker in both},
        wanted={worker.id: machines(worker) for worker in facts.plan.workers},
        up=Counter({worker.id: machines(worker) for worker in running}),
        home={load.id: worker for worker in both for load in worker.loads},
        loads={load.id: load for worker in both for load in worker.loads},
        active={load.id for worker in running for load in worker.loads},
    )


def _check_names(scene: Scene, action: Action) -> Iterator[str]:
    """What an action must name, and what it names must exist."""
    if action.do in _OF_WORKERS and action.worker is None:
        yield f"{action.do} names no worker"
    if action.do in _OF_LOADS and action.load is None:
        yield f"{action.do} names no load"
    if action.worker is not None and action.worker not in scene.workers:
        yield f"there is no worker {action.worker}"
    if action.load is not None and action.load not in scene.loads:
        yield f"there is no load {action.load}"
    if action.host is not None and action.host not in scene.facts.inputs.profile.hosts:
        yield f"there is no host {action.host}"
    for earlier in action.after:
        if earlier not in scene.done:
            yield f"is to come after action {earlier}, which is not before it"


def _follow_action(scene: Scene, action: Action) -> Iterator[str]:
    """Follow an action that names what it must."""
    if action.do == "start" and action.worker is not None:
        name = action.worker
        scene.up[name] += action.count or max(scene.wanted.get(name, 0) - scene.up[name], 0)
        yield from scene.crowded(scene.workers[name])
    elif action.do in _ACTIVATES and action.load is not None:
        home = scene.home[action.load].id
        if scene.up[home] <= 0:
            yield f"loads {action.load} before any machine of {home} is up"
        scene.active.add(action.load)
        seat, first = scene.facts.seats.get(action.load), scene.facts.inputs.state is None
        planned = seat.worker.count * seat.load.instances if seat is not None else 0
        if action.count is not None and (action.count > planned or (first and action.count != planned)):
            yield f"loads {action.count} instances of {action.load}, {planned} are planned"
    elif action.do in ("stop", "unload"):
        yield from _take_down(scene, action)


def _check_end(scene: Scene) -> Iterator[Violation]:
    """Where the actions lead is the plan."""
    for name in sorted(scene.up.keys() | scene.wanted.keys()):
        if scene.up[name] != scene.wanted.get(name, 0):
            text = f"{scene.up[name]} machines of {name} are up in the end, the plan has {scene.wanted.get(name, 0)}"
            yield Violation("actions-end", f"workers.{name}", text)
    yield from _check_unmoved_workers(scene.facts)
    planned = set(scene.facts.seats)
    for name in sorted(scene.active ^ planned):
        text = "is active in the end, but not in the plan" if name in scene.active else "is never loaded"
        yield Violation("actions-end", f"workers.{scene.home[name].id}.loads.{name}", text)


def _check_unmoved_workers(facts: Facts) -> Iterator[Violation]:
    """A worker that runs on is the same machines: of this hardware, under this offer, on this host."""
    running = {worker.id: worker for worker in (facts.inputs.state.workers if facts.inputs.state is not None else ())}
    begun = {action.worker for action in facts.plan.actions if action.do == "start"}
    for worker in facts.plan.workers:
        before = running.get(worker.id)
        if before is None or worker.id in begun:
            continue
        for kind in ("hardware", "offer", "host"):
            was, now = getattr(before, kind), getattr(worker, kind)
            if None not in (was, now) and was != now:  # a plan that names no host leaves its machines where they are
                yield Violation("actions-end", f"workers.{worker.id}", f"runs on {kind} {was} and goes on, on {now}")


def _take_down(scene: Scene, action: Action) -> Iterator[str]:
    """Follow a `stop` or an `unload`."""
    if action.do == "stop" and action.worker is not None:
        name = action.worker
        count = action.count or scene.up[name]
        if count > scene.up[name]:
            yield f"stops {count} machines of {name}, {scene.up[name]} are up"
            return
        loads = {load for load in scene.of_worker.get(name, ()) if load in scene.active}
        ended = loads if count == scene.up[name] else set[str]()
        yield from _end_loads(scene, loads, ended, {name: scene.up[name] - count})
    elif action.load is not None:
        if action.load not in scene.active:
            yield f"unloads {action.load}, which is not active"
        yield from _end_loads(scene, {action.load}, {action.load}, {})


def _end_loads(scene: Scene, touched: set[str], ended: set[str], up: Mapping[str, int]) -> Iterator[str]:
    """End some loads and leave fewer machines up; what is left must serve no less than the least of now and planned."""
    active, counts = scene.active - ended, {**scene.up, **up}
    for name in sorted(touched):
        load = scene.loads[name]
        planned = _replicas(scene, load, scene.facts.seats, scene.wanted)
        left = _replicas(scene, load, active, counts)
        if left < min(_replicas(scene, load, scene.active, scene.up), planned) and not _must_make_room(scene):
            yield f"takes {name} down before its replacement is up: {left} instances are left, {planned} are planned"
    scene.active, scene.up = active, Counter(counts)


def _replicas(scene: Scene, like: Load, active: Collection[str], counts: Mapping[str, int]) -> int:
    """Instances, on so many machines per worker, of the active loads that do what this one does."""
    return sum(
        scene.loads[name].instances * counts.get(scene.home[name].id, 0)
        for app in {like.app, None}
        for name in scene.alike.get((app, like.node), ())
        if name in active
    )


def _must_make_room(scene: Scene) -> bool:
    """Whether machines are still missing, and there is no room for any of them."""
    missing = [scene.workers[name] for name, count in scene.wanted.items() if scene.up[name] < count]
    return bool(missing) and not any(has_room(scene, worker) for worker in missing)


def has_room(scene: Scene, worker: Worker, more: int = 1) -> bool:
    """Whether so many more machines of a worker may be up, beside those that are."""
    inputs = scene.facts.inputs
    most = inputs.slo.limits.instances.get(worker.hardware, (0, None))[1]
    stock = inputs.profile.offers[worker.offer].stock if worker.offer is not None else None
    alike = [name for name in scene.up if scene.workers[name].hardware == worker.hardware]
    offered = [name for name in alike if scene.workers[name].offer == worker.offer]
    on_host = [name for name, count in scene.up.items() if count and scene.workers[name].host == worker.host]
    full = (
        limit is not None and sum(scene.up[name] for name in names) + more > limit
        for limit, names in ((most, alike), (stock, offered))
    )
    return not any(full) and (worker.host is None or not on_host)


def _check_moves(facts: Facts, state: State, most: int) -> Iterator[Violation]:
    """Instances that are there in the plan and not in the state, against what may be moved."""
    moves = moved_instances(facts.plan.workers, state.workers)
    if moves > most:
        yield Violation("changes", "workers", f"{moves} instances are new where they are, {most} may be")


def moved_instances(planned: Iterable[Worker], running: Iterable[Worker]) -> int:
    """How many instances of a variant, per application, step and hardware, the plan has beyond what runs."""
    return (_placed_instances(planned) - _placed_instances(running)).total()


def _placed_instances(workers: Iterable[Worker]) -> Counter[tuple[str | None, ...]]:
    placed: Counter[tuple[str | None, ...]] = Counter()
    for worker in workers:
        for load in worker.loads:
            placed[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return placed


def check_actions(facts: Facts) -> list[Violation]:
    """Follow the actions. A plan without any says nothing about the way, unless a state says that something runs."""
    if not facts.plan.actions and facts.inputs.state is None:
        return []
    scene = _scene(facts)
    found: list[Violation] = []
    for action in facts.plan.actions:
        faults = list(_check_names(scene, action))
        if not faults:
            faults += _follow_action(scene, action)
        found += [Violation("action", f"actions.{action.id}", text) for text in faults]
        scene.done.add(action.id)
    found += _check_end(scene)
    if facts.inputs.state is not None and facts.inputs.slo.limits.changes is not None:
        found += _check_moves(facts, facts.inputs.state, facts.inputs.slo.limits.changes)
    return found
