"""Machines that are rented and not filled: what a plan says of them rather than paying in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hetplan.planner.request import read_request
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.workers import Worker
from hetplan.serving.needs import needs_of

__all__ = ["idle_machines"]

_Needs = tuple[tuple[tuple[str, float], ...], ...]


def idle_machines(inputs: Inputs, workers: Sequence[Worker]) -> Iterator[Notice]:
    """Groups of machines with room for one more of a load that they hold, or for one of each that another holds."""
    request = read_request(inputs)
    whole = [worker for worker in workers if request.pays_whole(worker.hardware, worker.offer)]
    held = {_held_loads(inputs, worker) for worker in whole}
    for worker in whole:
        provides = inputs.profile.hardware[worker.hardware].provides
        taken = sum((Counter(needs_of(inputs, load, worker.hardware)) for load in worker.loads), Counter[str]())
        computed = {name: None for name in provides if taken[name] > 0 and not name.endswith("_gib")}
        room = {name: provides[name] - taken[name] for name in provides}
        own = [dict(one) for one in _held_loads(inputs, worker)[-1] if computed.keys() & dict(one).keys()]
        there = [loads for *at, loads in held if at == [worker.hardware, worker.period]]
        joined = [loads for loads in there if loads and all(computed.keys() & dict(one).keys() for one in loads)]
        if any(_fit([one], room) for one in own):
            more = "one more of what it holds"
        elif any(_fit(map(dict, loads), room) for loads in joined):
            more = "one of each that another machine holds"
        else:
            continue
        idle = ", ".join(f"{room[name]:g} of {provides[name]:g} {name}" for name in computed)
        machines = f"each of {worker.count} machines has" if worker.count > 1 else "the machine has"
        text = f"{machines} free resources for {more}: {idle} idle"
        yield Notice(code="W-idle-machine", at=f"workers.{worker.id}", text=text)


def _held_loads(inputs: Inputs, worker: Worker) -> tuple[str, str | None, _Needs]:
    """Its hardware, its period, and what one instance of each of its loads needs, as far as it needs anything."""
    loads = (load.model_copy(update={"instances": 1}) for load in worker.loads)
    needs = (needs_of(inputs, load, worker.hardware) for load in loads)
    each = (tuple(sorted((name, amount) for name, amount in one.items() if amount > 0)) for one in needs)
    return worker.hardware, worker.period, tuple(sorted(each))


def _fit(needs: Iterable[Mapping[str, float]], room: Mapping[str, float]) -> bool:
    """Whether all of these fit in what is free."""
    total = sum(map(Counter, needs), Counter[str]())
    return all(amount <= room.get(name, 0.0) + 1e-9 for name, amount in total.items())
