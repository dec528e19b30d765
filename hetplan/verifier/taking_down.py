"""What goes down on the way from what runs to what shall run, or moves: nothing may be missed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from hetplan.profiles.plan import Action
from hetplan.profiles.state import State
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation
from hetplan.verifier.scene import Scene

__all__ = ["check_moves", "has_room", "take_down"]


def take_down(scene: Scene, action: Action) -> Iterator[str]:
    """Follow a `stop` or an `unload`."""
    if action.do == "stop" and action.worker is not None:
        name = action.worker
        count = action.count or scene.up[name]
        if count > scene.up[name]:
            yield f"stops {count} machines of {name}, {scene.up[name]} are up"
            return
        loads = {load for load in scene.of_worker.get(name, ()) if load in scene.active}
        ended = loads if count == scene.up[name] else set[str]()
        yield from _take_down(scene, loads, ended, {name: scene.up[name] - count})
    elif action.load is not None:
        if action.load not in scene.active:
            yield f"unloads {action.load}, which is not active"
        yield from _take_down(scene, {action.load}, {action.load}, {})


def _take_down(scene: Scene, touched: set[str], ended: set[str], up: Mapping[str, int]) -> Iterator[str]:
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


def check_moves(facts: Facts, state: State, most: int) -> Iterator[Violation]:
    """Instances that are there in the plan and not in the state, against what may be moved."""
    moves = (_placed_instances(facts.plan.workers) - _placed_instances(state.workers)).total()
    if moves > most:
        yield Violation("changes", "workers", f"{moves} instances are new where they are, {most} may be")


def _placed_instances(workers: tuple[Worker, ...]) -> Counter[tuple[str | None, ...]]:
    """Instances of each variant, per application, step and hardware."""
    placed: Counter[tuple[str | None, ...]] = Counter()
    for worker in workers:
        for load in worker.loads:
            placed[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return placed
