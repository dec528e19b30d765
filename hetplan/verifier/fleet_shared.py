"""Machines that parts of two questions share: workers of one id, which are one group of machines.

Such workers say the same of their machines, each with the loads of its own part. What all loads need fits on one
machine together, by the parts of it that bounds count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.workers import Worker
from hetplan.verifier.fleet_parts import IN_SLICES, Fleet
from hetplan.verifier.report import Violation
from hetplan.verifier.rows import NoProof

__all__ = ["named_twice", "shared_machines"]

Held = Sequence[tuple[str, Worker]]
"""Workers of one id, and the part of each."""


def named_twice(fleet: Fleet, names: Sequence[str], at: str) -> Iterator[Violation]:
    """Workers of one id in parts that run together, which cannot be one group of machines."""
    for one, held in _in_several(fleet, names):
        questions = Counter(fleet.parts[name].question for name, _ in held)
        if not questions.keys() <= set(IN_SLICES) or max(questions.values()) > 1:
            yield Violation("duplicate-id", at, f"two parts have a worker {one}: what starts, and what stops?")
            continue
        said = {(worker.hardware, worker.offer, worker.host, worker.count, worker.standby) for _, worker in held}
        if len(said) > 1:
            parts = ", ".join(name for name, _ in held)
            yield Violation("shared-worker", at, f"{one} is one group of machines, and {parts} say unlike things of it")
        loads = Counter(load.id for _, worker in held for load in worker.loads)
        for load in (load for load, times in loads.items() if times > 1):
            yield Violation("shared-worker", at, f"two parts have the load {load} on {one}")


def shared_machines(fleet: Fleet) -> Iterator[Violation]:
    """Pools and text share hardware where parts of it say exactly what fits (bounds are of such plans), and it fits."""
    from hetplan.verifier.fleet_bounds import slices_of

    try:
        slices = slices_of(fleet) if fleet.sharers else {}
    except NoProof:  # an application of which nothing is known shares with nobody
        slices = {}
    for name, part in fleet.parts.items():
        for worker in part.workers if part.question in IN_SLICES else ():
            if (text := _unlike(slices, [(name, worker)])) is not None:
                yield Violation(f"{part.question}-worker", f"parts.{name}.workers.{worker.id}", text)
    seen = set[tuple[str, ...]]()
    for period in fleet.plan.periods:
        for names in (period.parts or (), *(period.failures or {}).values()):
            for one, held in _in_several(fleet, names):
                key, at = (one, *(name for name, _ in held)), f"periods.{period.id}"
                text = _unlike(slices, held)
                if text is not None and key not in seen:
                    yield Violation("shared-worker", at, f"{one}: {text}")
                elif key not in seen:
                    yield from _overfull(fleet, one, held, at)
                seen.add(key)


def _unlike(slices: Mapping[str, Mapping[str, int]], held: Held) -> str | None:
    """Why these applications may not be on these machines together; None where they may."""
    hardware = held[0][1].hardware
    apps = sorted({load.app or "" for _, worker in held for load in worker.loads})
    if len(apps) < 2 or all(hardware in slices.get(app, {}) for app in apps):
        return None
    return f"{', '.join(apps)} share it, and of {hardware} parts do not say what fits"


def _in_several(fleet: Fleet, names: Sequence[str]) -> Iterator[tuple[str, Held]]:
    found: dict[str, dict[str, Worker]] = {}
    for name in names:
        for worker in fleet.parts[name].workers if name in fleet.parts else ():
            found.setdefault(worker.id, {})[name] = worker
    yield from ((one, list(held.items())) for one, held in found.items() if len(held) > 1)


def _overfull(fleet: Fleet, one: str, held: Held, at: str) -> Iterator[Violation]:
    """What the loads of all parts need of a machine, against what it provides."""
    from hetplan.verifier.fleet_bounds import instances_of

    hardware, taken = held[0][1].hardware, defaultdict[str, float](float)
    for name, load in ((name, load) for name, worker in held for load in worker.loads):
        needs, _ = instances_of(fleet, name, load.app or "")[hardware]
        for resource, amount in needs.items():
            taken[resource] += load.instances * amount
    provides = fleet.inputs.profile.hardware[hardware].provides
    for resource, amount in sorted(taken.items()):
        if amount > (room := provides.get(resource, 0.0)) + FEASIBILITY * max(room, 1.0):
            text = f"loads of {', '.join(name for name, _ in held)} take {amount:g} {resource} on {one}"
            yield Violation("resource", at, f"{text}, and it provides {room:g}")
