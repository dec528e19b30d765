"""Machines that parts of several questions share: workers of one id, which are one group of machines.

Such workers say the same of their machines, each with the loads of its own part. What all loads need fits on one
machine together, by the parts of it that bounds count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hetplan.planner.tolerances import FEASIBILITY, SLIP
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Worker
from hetplan.verifier.fleet_parts import BESIDE, IN_SLICES, Fleet, loaded_variants
from hetplan.verifier.plan_index import Facts, run_of
from hetplan.verifier.references import allows
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import instances_on
from hetplan.verifier.slices import parts_of_one

__all__ = ["named_twice", "shared_machines"]

Held = Sequence[tuple[str, Worker]]
"""Workers of one id, and the part of each."""


def named_twice(fleet: Fleet, names: Sequence[str], at: str) -> Iterator[Violation]:
    """Workers of one id in parts that run together, which cannot be one group of machines."""
    for one, held in _in_several(fleet, names):
        questions = Counter(fleet.parts[name].question for name, _ in held)
        if not questions.keys() <= {*IN_SLICES, *BESIDE} or any(questions[name] > 1 for name in IN_SLICES):
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
    """Parts of several questions share machines where their slices say exactly what fits (bounds are of such plans)."""
    for name, part in fleet.parts.items():
        for worker in part.workers if part.question in IN_SLICES else ():
            if (text := _unlike(fleet, [(name, worker)])) is not None:
                yield Violation(f"{part.question}-worker", f"parts.{name}.workers.{worker.id}", text)
    seen = set[tuple[str, ...]]()
    for period in fleet.plan.periods:
        for names in (period.parts or (), *(period.failures or {}).values()):
            for one, held in _in_several(fleet, names):
                key, at = (one, *(name for name, _ in held)), f"periods.{period.id}"
                text = _unlike(fleet, held)
                if text is not None and key not in seen:
                    yield Violation("shared-worker", at, f"{one}: {text}")
                elif key not in seen:
                    yield from _overfull(fleet, one, held, at)
                seen.add(key)


def _unlike(fleet: Fleet, held: Held) -> str | None:
    """Why these applications may not be on these machines together; None where they may.

    They may where all instances of each take the same, and places say what fits of all of them.
    """
    hardware = held[0][1].hardware
    apps = {load.app or "": name for name, worker in held for load in worker.loads}
    if len(apps) < 2:
        return None
    each = [one for app, name in apps.items() if (one := _instances(fleet, name, app).get(hardware)) is not None]
    provides = fleet.inputs.profile.hardware[hardware].provides
    if len(each) == len(apps) and parts_of_one(provides, [needs for needs, _ in each], [room for _, room in each]) > 1:
        return None
    return f"{', '.join(sorted(apps))} share it, and of {hardware} parts do not say what fits"


def _in_several(fleet: Fleet, names: Sequence[str]) -> Iterator[tuple[str, Held]]:
    found: dict[str, dict[str, Worker]] = {}
    for name in names:
        for worker in fleet.parts[name].workers if name in fleet.parts else ():
            found.setdefault(worker.id, {})[name] = worker
    yield from ((one, list(held.items())) for one, held in found.items() if len(held) > 1)


def _overfull(fleet: Fleet, one: str, held: Held, at: str) -> Iterator[Violation]:
    """What the loads of all parts need of a machine, against what it provides."""
    hardware, taken = held[0][1].hardware, defaultdict[str, float](float)
    for name, load in ((name, load) for name, worker in held for load in worker.loads):
        needs, _ = _instances(fleet, name, load.app or "")[hardware]
        for resource, amount in needs.items():
            taken[resource] += load.instances * amount
    provides = fleet.inputs.profile.hardware[hardware].provides
    for resource, amount in sorted(taken.items()):
        if amount > (room := provides.get(resource, 0.0)) + FEASIBILITY * max(room, 1.0):
            text = f"loads of {', '.join(name for name, _ in held)} take {amount:g} {resource} on {one}"
            yield Violation("resource", at, f"{text}, and it provides {room:g}")


def _instances(fleet: Fleet, name: str, app: str) -> dict[str, tuple[Mapping[str, float], int]]:
    """What an instance takes of a machine of each hardware, and how many it holds: where all of them take the same."""
    part, profile = fleet.parts[name], fleet.inputs.profile
    sold = {one.hardware for one in profile.offers.values()}
    runs = {"pool": _runs_of_pool, "llm": _runs_of_text}.get(part.question, _runs_of_loads)(fleet, part, app)
    kinds = list[tuple[str, tuple[Mapping[str, float], int]]]()
    for run in (run for run in runs if run.hardware in sold):
        provides, engine = profile.hardware[run.hardware].provides, profile.engines.get(run.engine or "")
        if part.question == "llm" and engine is not None:
            needs = {**run.needs, "gpu": float(engine.tensor * engine.pipeline)}
            there = {"gpu": 1.0, **(provides or run.needs)}
            taken = [there.get(resource, 0.0) / amount for resource, amount in needs.items() if amount > 0.0]
            kinds.append((run.hardware, (needs, int(min(taken) + SLIP))))
        elif all(need <= provides.get(resource, 0.0) for resource, need in run.needs.items()) or not provides:
            kinds.append((run.hardware, (run.needs, instances_on(Facts(fleet.plan, fleet.inputs), run))))
    times = Counter(hardware for hardware, (_, room) in kinds if room)
    return {hardware: one for hardware, one in kinds if one[1] and times[hardware] == 1}


def _runs_of_pool(fleet: Fleet, part: Part, app: str) -> Iterator[Run]:
    """Of the one variant of a pool on each hardware the run of single queries at its own settings."""
    for variant in (fleet.inputs.profile.variants[name] for name in loaded_variants(part, app)):
        settings, runs = {**variant.knobs, "batch": 1}, dict[str, list[Run]]()
        for run in variant.runs:
            runs.setdefault(run.hardware, []).append(run)
        for mine in runs.values():
            fitting = [run for run in mine if all(settings.get(axis) == value for axis, value in run.at.items())]
            run = max(fitting or mine, key=lambda run: len(run.at))
            if run.price_per_hour is None:
                yield run


def _runs_of_loads(fleet: Fleet, part: Part, app: str) -> Iterator[Run]:
    """What runs of an application, a run of each that takes something else of a machine; no neighbour slows it down."""
    found = dict[str, Run]()
    for worker in part.workers:
        for load in (load for load in worker.loads if load.app == app):
            run = run_of(fleet.inputs.profile, worker, load)
            if run is not None and run.slowdown is None and run.price_per_hour is None:
                found[repr((run.hardware, sorted(run.needs.items())))] = run
    yield from found.values()


def _runs_of_text(fleet: Fleet, part: Part, app: str) -> Iterator[Run]:
    """Engines of all variants that an application may run, good enough."""
    del part
    wish = fleet.inputs.slo.apps[app]
    floor = wish.quality.min if wish.quality is not None else None
    for name, variant in fleet.inputs.profile.variants.items():
        good = floor is None or (variant.quality is not None and variant.quality.value >= floor)
        if good and allows(wish, fleet.inputs.profile, None, name, variant):
            yield from (run for run in variant.runs if run.engine in fleet.inputs.profile.engines)
