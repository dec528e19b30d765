"""Machines that are rented and not filled: what a plan says of them rather than paying in silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.workers import Worker
from hetplan.serving.needs import needs_of
from hetplan.serving.price import SLICES

__all__ = ["idle_machines"]


def idle_machines(inputs: Inputs, workers: Sequence[Worker]) -> Iterator[Notice]:
    """Groups of machines with room for one more of a load that they hold, by all that it needs."""
    for worker in workers:
        if not _paid_whole(inputs, worker):
            continue
        provides = inputs.profile.hardware[worker.hardware].provides
        loads = [(load.instances, needs_of(inputs, load, worker.hardware)) for load in worker.loads]
        taken = {name: sum(needs.get(name, 0.0) for _, needs in loads) for name in provides}
        computed = [name for name, amount in taken.items() if amount > 0 and not name.endswith("_gib")]
        room = {name: provides[name] - amount for name, amount in taken.items()}
        one_more = any(
            all(amount / instances <= room.get(name, 0.0) + 1e-9 for name, amount in needs.items())
            for instances, needs in loads
            if any(needs.get(name, 0.0) > 0 for name in computed)
        )
        if one_more:
            idle = ", ".join(f"{room[name]:g} of {provides[name]:g} {name}" for name in computed)
            machines = f"each of {worker.count} machines has" if worker.count > 1 else "the machine has"
            text = f"{machines} room for one more of what it holds: {idle} idle, and paid for"
            yield Notice(code="W-idle-machine", at=f"workers.{worker.id}", text=text)


def _paid_whole(inputs: Inputs, worker: Worker) -> bool:
    """Whether its machines are paid whatever is on them: not by prices of runs, nor by the slice."""
    profile = inputs.profile
    runs = (run for one in profile.variants.values() for run in one.runs if run.hardware == worker.hardware)
    by_slice = worker.offer is not None and profile.offers[worker.offer].per in SLICES
    return not by_slice and all(run.price_per_hour is None for run in runs)
