"""Machines that are paid whole and not full, as far as a plan must warn of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import Facts, needs_of

__all__ = ["rooms_left"]

_SLICES = ("gpu", "cpu_cores")


def rooms_left(facts: Facts, *, hair: float) -> Iterator[tuple[str, str, float]]:
    """Machines that are paid whole and have room for one more of what they hold, or for one of each that another holds.

    Each place, what is said of it, and by how much more than there is all that would be needed: up to a `hair`.
    """
    whole = [worker for worker in facts.plan.workers if _paid_whole(facts, worker)]
    contents = {(worker.hardware, worker.period, _content(facts, worker)) for worker in whole}
    for worker in whole:
        provides = facts.inputs.profile.hardware[worker.hardware].provides
        loads = [needs_of(facts, facts.seats[load.id]) for load in worker.loads]
        taken = {name: sum(needs.get(name, 0.0) for needs in loads) for name in provides}
        computed = [name for name, amount in taken.items() if amount > 0 and not name.endswith("_gib")]
        room = {name: provides[name] - amount for name, amount in taken.items()}
        more = [_short([one], room) for one in _content(facts, worker) if any(name in computed for name, _ in one)]
        there = (content for *at, content in contents if at == [worker.hardware, worker.period])
        others = [
            _short(content, room)
            for content in there
            if all(any(name in computed for name, _ in one) for one in content)
        ]
        for short, what in ((more, "one more of what it holds"), (others, "one of each that another machine holds")):
            if short and min(short) <= hair:
                idle = ", ".join(f"{room[name]:g} of {provides[name]:g} {name}" for name in computed)
                machines = f"each of {worker.count} machines has" if worker.count > 1 else "the machine has"
                text = f"{machines} room for {what}: {idle} idle, and paid for"
                yield f"workers.{worker.id}", text, min(short)
                break


def _content(facts: Facts, worker: Worker) -> tuple[tuple[tuple[str, float], ...], ...]:
    """What one instance of each load of a worker takes."""
    each = [(load.instances, needs_of(facts, facts.seats[load.id])) for load in worker.loads]
    return tuple(sorted(tuple(sorted((name, need / n) for name, need in all_.items() if need > 0)) for n, all_ in each))


def _short(content: Sequence[tuple[tuple[str, float], ...]], room: Mapping[str, float]) -> float:
    """By how much the scarcest of what is free is too little for all of these; 0 or less where they fit."""
    needed = sum((Counter(dict(one)) for one in content), Counter[str]())
    return max((amount - room.get(name, 0.0) for name, amount in needed.items()), default=math.inf)


def _paid_whole(facts: Facts, worker: Worker) -> bool:
    profile = facts.inputs.profile
    runs = (run for one in profile.variants.values() for run in one.runs if run.hardware == worker.hardware)
    by_slice = worker.offer is not None and profile.offers[worker.offer].per in _SLICES
    return not by_slice and all(run.price_per_hour is None for run in runs)
