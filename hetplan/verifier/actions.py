"""The way from what runs to what shall run: in order, within stock and hosts, bringing up before taking down.

Where there is no room left for any machine that is still missing, something has to go first.

Actions are followed in the order of the file. `start` and `stop` change how many machines of a worker are up (all that
are missing, or all there are, where no count is given); `load`, `unload` and the kinds of replacing change which loads
are active; `keep`, `move` and `route` change neither. What goes down is followed in `taking_down.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hetplan.profiles.plan import Action
from hetplan.verifier.facts import Facts, machines
from hetplan.verifier.report import Violation
from hetplan.verifier.scene import Scene

__all__ = ["check_actions"]

_ACTIVATES = ("load", "replicate", "upgrade", "downgrade")
_OF_WORKERS = ("start", "stop")
_OF_LOADS = (*_ACTIVATES, "unload")


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
        from hetplan.verifier.taking_down import take_down

        yield from take_down(scene, action)


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
        from hetplan.verifier.taking_down import check_moves

        found += check_moves(facts, facts.inputs.state, facts.inputs.slo.limits.changes)
    return found
