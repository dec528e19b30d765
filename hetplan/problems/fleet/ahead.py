"""Machines for failures only: they have loaded ahead what they serve after the failure.

Of the question `variants` such machines have no loads. They get copies of those that a failure gives machines of their
offer, and no queries: what is promised of the others stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hetplan.planner.bridge import Part
from hetplan.planner.request import Request
from hetplan.problems.fleet.menus import left_of
from hetplan.problems.fleet.ways import Found
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.workers import Load, Worker

__all__ = ["SOON_S", "filled", "held_ahead", "loaded_anew_s"]

SOON_S = 10.0
"""After a failure a machine loads something else only where that takes no longer."""

Content = tuple[str, tuple[tuple[str | None, str | None, int], ...]]
"""An offer, and what a machine of it holds: application, variant and instances of each load."""


def held_ahead(found: Found, parts: Mapping[str, Part]) -> Found:
    """The same fleet, its idle machines with loads that they only serve after a failure; those shared have them."""
    wish, own = found.wish, dict(found.parts)
    for app, p in ((app, p) for app in wish.apps for p in range(wish.periods)):
        part = own.get((app.name, p))
        if part is not None and len(part.rate_qps) == 1 and not all(worker.loads for worker in part.workers):
            machines = found.fleet.choices[app.name, p].machines
            after = (
                parts[app.name].settle(left, wish.rate(app, p) * situation.keep).part
                for situation in wish.situations[1:]
                if (left := left_of(wish, parts[app.name], machines, situation))
            )
            own[app.name, p] = filled(part, [one for one in after if one is not None])
    return replace(found, parts=own)


def filled(part: PlanPart, after: Sequence[PlanPart]) -> PlanPart:
    """A part whose machines without loads hold what failures give them, the most wanted first."""
    if part.question != "variants":
        return part
    had, wanted, samples = _holding(part.workers), Counter[Content](), dict[Content, Worker]()
    for one in after:
        for key, count in (_holding(one.workers) - had).items():
            wanted[key] = max(wanted[key], count)
        samples |= {_content(worker): worker for worker in one.workers}
    names, workers = {worker.id for worker in part.workers}, list[Worker]()
    for worker in part.workers:
        workers += [worker] if worker.loads else _copies(worker, wanted, samples, names)
    return part.model_copy(update={"workers": tuple(workers)})


def loaded_anew_s(request: Request, part: PlanPart, after: PlanPart) -> float:
    """The longest that a machine loads after a failure, because it held something else."""
    new = _holding(after.workers) - _holding(part.workers)
    others = [worker for worker in after.workers if _content(worker) in new]
    hardware = {worker.hardware for worker in others}
    runs = request.choices(variants={load.variant or "" for worker in others for load in worker.loads})
    return max((one.load_s for one in runs if one.hardware in hardware), default=0.0)


def _copies(
    worker: Worker, wanted: Counter[Content], samples: Mapping[Content, Worker], names: set[str]
) -> Iterator[Worker]:
    """Idle machines with the loads wanted of their offer, as far as these go; the rest stays idle."""
    left, name, number = worker.count, worker.id, 1
    for key in [key for key, _ in wanted.most_common() if samples[key].offer == worker.offer]:
        count = min(left, wanted[key])
        if count:
            wanted[key] -= count
            left -= count
            alike = enumerate(samples[key].loads, start=1)
            loads = tuple(load.model_copy(update={"id": f"{name}.{place}"}) for place, load in alike)
            yield worker.model_copy(update={"id": name, "count": count, "queue": samples[key].queue, "loads": loads})
            while name in names:
                number += 1
                name = f"{worker.id}-{number}"
            names.add(name)
    if left:
        yield worker.model_copy(update={"id": name, "count": left})


def _holding(workers: Iterable[Worker]) -> Counter[Content]:
    found = Counter[Content]()
    for worker in workers:
        if worker.loads:
            found[_content(worker)] += worker.count
    return found


def _content(worker: Worker) -> Content:
    def said(load: Load) -> tuple[str | None, str | None, int]:
        return load.app, load.variant, load.instances

    return worker.offer or "", tuple(sorted((said(load) for load in worker.loads), key=repr))
