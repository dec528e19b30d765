"""What machines hold, so that a failure is survived without loading for long.

**Machines for failures only** have loaded ahead what they serve after the failure. Of the question `variants` such
machines have no loads. They get copies of those that a failure gives machines of their offer, and no queries: what is
promised of the others stays as it is.

**Pipelines whose models load slowly** go on with what their machines hold, whatever fails. After a failure a question
plans what is left of its machines anew, and may give them other models. Where these take longer than `SOON_S` to load,
what is promised is not carried until then. So it is looked for what machines hold such that nothing has to be loaded:
the letters are

=====  ========================================================================================
h, o   hardware, and its offers; N_o machines of each are there
c      what a machine holds: a step's model, and how many instances of it
f      what may happen: nothing, or one of the failures
need   machines of c that the fewest servers for f need, as the question says of what is left
n_co   machines of offer o that hold c: what is looked for
=====  ========================================================================================

::

    sum_c n_co = N_o                                      every offer
    sum_{o left in f} n_co - k_f >= need_cf               every content, every f (k_f machines lost, whichever they are)

Machines are dealt out in proportion to what is needed most, and evenly over offers; then single machines are given
another content, as long as fewer are missing. The cases may need other models each; so it is also tried that all do
with the models of one of them, as many as are kept. What is found is asked of the question itself, which may move
nothing: now, and after each failure. None is found where that is no plan: then machines load, and a warning says how
long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hetplan.planner.fleet_part import Part
from hetplan.planner.request import Request, read_request
from hetplan.problems.fleet.candidate_columns import left_of
from hetplan.problems.fleet.formulations import Found
from hetplan.problems.fleet.request import FleetRequest, Situation
from hetplan.problems.fleet.zones import Counts
from hetplan.problems.pipeline.draft import divide_by_room
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.workers import Load, Worker

if TYPE_CHECKING:
    from hetplan.problems.fleet.formulations import Found

__all__ = [
    "SOON_S",
    "InPlaceFailover",
    "fill_idle_machines",
    "is_slow",
    "max_reload_s",
    "plan_in_place_failover",
    "with_slow_pipelines",
    "with_standby_loads",
]

SOON_S = 10.0
"""After a failure a machine loads something else only where that takes no longer."""

Content = tuple[str, tuple[tuple[str | None, str | None, int], ...]]
"""An offer, and what a machine of it holds: application, variant and instances of each load."""


def with_standby_loads(found: Found, parts: Mapping[str, Part]) -> Found:
    """The fleet whose idle machines hold the models that they serve only after a failure."""
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
            own[app.name, p] = fill_idle_machines(part, [one for one in after if one is not None])
    return replace(found, parts=own)


def fill_idle_machines(part: PlanPart, after: Sequence[PlanPart]) -> PlanPart:
    """A part whose machines without models hold what failures give them, the most wanted first."""
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


def max_reload_s(request: Request, part: PlanPart, after: PlanPart) -> float:
    """The longest time that a machine loads after a failure, because it held another model."""
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


Held = tuple[str, str, int]
"""Hardware, model and instances of it: what a machine holds."""
Needs = Mapping[Situation, Counter[Held]]
PATIENCE = 200
"""So often at most a machine is given another content."""


@dataclass(frozen=True)
class InPlaceFailover:
    """What runs now, and after each failure, on machines that load nothing for it."""

    now: PlanPart
    after: Mapping[str, PlanPart]


def is_slow(part: Part) -> bool:
    """Whether a part is a pipeline whose models take long to load."""
    if part.question != "pipeline":
        return False
    return any(one.load_s > SOON_S for one in read_request(part.inputs).choices(part.app))


def with_slow_pipelines(found: Found, parts: Mapping[str, Part]) -> Found:
    """The fleet, its slow pipelines on machines that go on with what they hold, where there is such a plan."""
    wish, own, after = found.wish, dict(found.parts), dict(found.after)
    for name, p in found.parts if len(wish.situations) > 1 else ():
        part = parts[name]
        if not is_slow(part):
            continue
        # Room is for what a formula leaves out; on machines that are played the rate itself is what counts.
        rate = next(app for app in wish.apps if app.name == name).rates[p] * (1.0 + wish.options.headroom)
        one = plan_in_place_failover(wish, part, found.fleet.choices[name, p].machines, rate)
        if one is not None:
            own[name, p] = one.now
            after |= {(name, p, situation): plan for situation, plan in one.after.items()}
    return replace(found, parts=own, after=after)


def plan_in_place_failover(wish: FleetRequest, part: Part, machines: Counts, rate: float) -> InPlaceFailover | None:
    """Plans of a part on these machines, now and after each failure, that load nothing; None where there are none."""
    key = (machines, rate, part.options.get("sizing"))
    if key not in part.going_on:
        part.going_on[key] = _as_planned(wish, part, machines, rate) or _dealt_out(wish, part, machines, rate)
    found: InPlaceFailover | None = part.going_on[key]
    return found


def _as_planned(wish: FleetRequest, part: Part, machines: Counts, rate: float) -> InPlaceFailover | None:
    """What the question says of itself, if it happens to load nothing."""
    now = part.settle(left_of(wish, part, machines, wish.situations[0]), rate).part
    return _with_failures(wish, part, machines, rate, now) if now is not None else None


def _dealt_out(wish: FleetRequest, part: Part, machines: Counts, rate: float) -> InPlaceFailover | None:
    """Machines that hold what the fewest servers need in each case, asked of the question."""
    fewest, samples = dict[Situation, Counter[Held]](), dict[Held, Load]()
    for situation in (one for one in wish.situations if one.keep > 0):
        plan = part.fewest(left_of(wish, part, machines, situation), rate * situation.keep)
        if plan is None or any(len(worker.loads) != 1 for worker in plan.workers):
            return None  # what steps share is not dealt out
        fewest[situation] = Counter[Held]()
        for worker in plan.workers:
            fewest[situation][_held(worker)] += worker.count
            samples[_held(worker)] = worker.loads[0]
    tried = list[Counter[tuple[Held, str]]]()
    for needs in (fewest, *(_like(fewest, one) for one in fewest)):
        held = _deal(wish, part, machines, needs)
        if held is None or held in tried:
            continue
        tried.append(held)
        workers = []
        for number, ((content, offer), count) in enumerate(sorted(held.items()), start=1):
            load = samples[content].model_copy(update={"id": f"w{number}.1"})
            workers.append(Worker(id=f"w{number}", hardware=content[0], offer=offer, count=count, loads=(load,)))
        now = part.settle_holding(workers, rate).part
        found = _with_failures(wish, part, machines, rate, now) if now is not None else None
        if found is not None:
            return found
    return None


def _like(fewest: Needs, model: Situation) -> Needs:
    """What each case needs where all hold the same models as in one of them: so much of that as is kept."""
    return {
        one: Counter({c: math.ceil(n * one.keep / model.keep - 1e-9) for c, n in fewest[model].items()})
        for one in fewest
    }


def _with_failures(
    wish: FleetRequest, part: Part, machines: Counts, rate: float, now: PlanPart
) -> InPlaceFailover | None:
    """The same with a plan after each failure; None where one loads."""
    after, request = dict[str, PlanPart](), read_request(part.inputs)
    for situation in wish.situations[1:]:
        left, wanted = left_of(wish, part, machines, situation), rate * situation.keep
        if not left or wanted <= 0:
            continue
        found = part.settle(left, wanted).part
        if found is None or max_reload_s(request, now, found) > SOON_S:
            found = part.settle_holding(_surviving(now, left), wanted).part
        if found is None or max_reload_s(request, now, found) > SOON_S:
            return None
        after[situation.name] = found
    return InPlaceFailover(now, after)


def _surviving(now: PlanPart, left: Mapping[str, int]) -> list[Worker]:
    """The machines that are left of each offer, with what they hold."""
    more, found = Counter(left), list[Worker]()
    for worker in now.workers:
        count = min(worker.count, more[worker.offer or ""])
        more[worker.offer or ""] -= count
        if count:
            found.append(worker.model_copy(update={"count": count}))
    return found


def _held(worker: Worker) -> Held:
    load = worker.loads[0]
    return worker.hardware, load.variant or "", load.instances


def _deal(wish: FleetRequest, part: Part, machines: Counts, needs: Needs) -> Counter[tuple[Held, str]] | None:
    """What the machines of each offer hold, so that nobody misses anything; None where that is not found."""
    offers = {one.name: (one.machine, count) for one, count in zip(wish.offers, machines, strict=True) if count}
    offers = {name: one for name, one in offers.items() if one[0] in part.hardware}
    held = Counter[tuple[Held, str]]()
    for hardware in dict.fromkeys(one for one, _ in offers.values()):
        contents = sorted({c for needed in needs.values() for c in needed if c[0] == hardware})
        own = {name: count for name, (h, count) in offers.items() if h == hardware}
        if not contents:
            return None
        most = [max(needed[content] for needed in needs.values()) for content in contents]
        counts = divide_by_room(sum(own.values()), [one * sum(own.values()) for one in most])
        left = dict(own)
        for count, content in sorted(zip(counts, contents, strict=True), reverse=True):
            for name, some in zip(left, divide_by_room(count, list(left.values())), strict=True):
                held[content, name] += some
                left[name] -= some
    for _ in range(PATIENCE):
        missing = _missing(held, needs)
        if not missing:
            return +held
        better = min(_others(held, offers, needs), key=lambda one: _missing(one, needs), default=held)
        if _missing(better, needs) >= missing:
            return None
        held = better
    return None


def _others(
    held: Counter[tuple[Held, str]],
    offers: Mapping[str, tuple[str, int]],
    needs: Needs,
) -> list[Counter[tuple[Held, str]]]:
    """The same with one machine that holds something else."""
    contents = sorted({content for needed in needs.values() for content in needed})
    found = []
    for (content, offer), count in held.items():
        for other in contents:
            if count and other != content and other[0] == offers[offer][0]:
                one = held.copy()
                one[content, offer] -= 1
                one[other, offer] += 1
                found.append(one)
    return found


def _missing(held: Counter[tuple[Held, str]], needs: Needs) -> int:
    """How many machines are missing, over all that may happen."""
    total = 0
    for situation, needed in needs.items():
        for content, count in needed.items():
            there = sum(n for (one, offer), n in held.items() if one == content and offer not in situation.gone)
            lost = situation.count if situation.hardware == content[0] else 0
            total += max(count - max(there - lost, 0), 0)
    return total
