"""The promise of a variants plan, recomputed: what one must write into a plan so that it passes here.

What a plan of question ``variants`` holds beyond the generic checks
--------------------------------------------------------------------
``workers``
    Without machines a group is the instances of one load. With machines a worker is one machine; where the profile
    names hosts under its offer, the worker names one of them. A worker without loads is a machine that stays idle.
    Of ``serve``: no wait, and at most as many batches at once as saturation means (or as the load has in the state).
``promises``
    ``gross_cost_per_hour`` (no app, "="): sum C x + lambda sum C Tl max(x - N, 0), with C the price of a run (or of its
    machine), and what idle machines cost. A machine that instances share costs once, and C of each in the second sum is
    its part of it: the largest of its needs as a part of what the machine provides. N is what the state says to run,
    per variant of one C and Tl (and per hardware, where the state names hosts). lambda is ``change.load_weight_per_s``
    by ``infaas`` or where the SLO states it; else one part of ``horizon.period_s`` seconds
    (nothing where nothing runs), and Tl has the start of the machine in it where an instance pays for it or a part.
    ``net_cost_per_hour`` (no app, "="): gross less sum C N.
``actions``
    ``keep`` with a count: so many instances of the load stay. ``move`` without a host: instances go off their machine
    before what replaces them is up; ``unload``, ``stop`` or ``keep`` says so for good later.

What is checked
---------------
The need of each application (slack x load, or load + slack_qps, less what is said to stay unserved) fits the saturation
rates of the loads that may serve it in time and well enough; where loads serve several applications, all needs at once.
Instances slowed down by others on their machine still serve in time. At every action no machine and no total takes
more than it has (or had), and no application is served less than before and after.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Action, Plan
from hetplan.profiles.profile import Profile, Run, Variant
from hetplan.profiles.slo import App, Slo
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.actions import Scene, has_room
from hetplan.verifier.demand import classes_of, strictest_limit_ms
from hetplan.verifier.plan_index import Seat, gather, run_of
from hetplan.verifier.report import Violation
from hetplan.verifier.service import read_table, service_of

__all__ = ["Held", "check", "worst_ms"]


@dataclass(frozen=True)
class Held:
    """Instances of a load: where, by which run, at what rate and time for each application that it may serve."""

    worker: Worker
    load: Load
    run: Run | None
    instances: int
    qps: Mapping[str, float]

    @property
    def needs(self) -> Mapping[str, float]:
        """What an instance takes of each resource."""
        return self.run.needs if self.run is not None else {}


class Reading:
    """The plan and the state, each load with what it can serve."""

    def __init__(self, plan: Plan, inputs: Inputs) -> None:
        self.facts = gather(plan, inputs)
        self.plan, self.inputs = plan, inputs
        self.allowed = _allowed_apps(inputs)
        self.cache: dict[tuple[str | None, str, int, str], dict[str, float]] = {}
        running = inputs.state.workers if inputs.state is not None else ()
        self.now = [held for worker in running for held in self.held(worker)]
        self.then = [held for worker in plan.workers for held in self.held(worker)]

    @cached_property
    def priced(self) -> frozenset[str]:
        """Hardware on which some run has its own price."""
        runs = (run for variant in self.inputs.profile.variants.values() for run in variant.runs)
        return frozenset(run.hardware for run in runs if run.price_per_hour is not None)

    def held(self, worker: Worker) -> Iterator[Held]:
        """Each load of a worker."""
        for load in worker.loads:
            run = None
            if load.variant in self.inputs.profile.variants:
                run = run_of(self.inputs.profile, worker, load)
            knobs = str((sorted(load.knobs.items()), run.at if run is not None else None))
            key = (load.variant, worker.hardware, load.serve.max_batch, knobs)
            if key not in self.cache:
                self.cache[key] = self._rates(worker, load, run)
            qps = {app: rate for app, rate in self.cache[key].items() if load.app in (None, app)}
            yield Held(worker, load, run, worker.count * load.instances, qps)

    def _rates(self, worker: Worker, load: Load, run: Run | None) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in self.allowed.get(load.variant or "", ()):
            app = self.inputs.slo.apps[name]
            classes = classes_of(app)
            service = service_of(self.facts, Seat(worker, load, run), classes)
            limit = strictest_limit_ms(app) - app.network_ms_per_hop
            comes = [k for k, share in enumerate(classes.share) if share > 0]
            # Written so that a time that was not measured (NaN) is none in time.
            in_time = all(service.latency_ms[k] <= limit * (1 + FEASIBILITY) for k in comes)
            seconds = sum(classes.share[k] * service.seconds[k] for k in comes)
            if in_time and seconds > 0 and self._good(app, load):
                found[name] = 1.0 / seconds
        return found

    def _good(self, app: App, load: Load) -> bool:
        if app.quality is None:
            return True
        quality = self.inputs.profile.variants[load.variant or ""].quality
        if quality is None:
            return False
        low, high = app.quality.min, app.quality.max
        slip = VALUE * abs(quality.value)  # a metric may have any scale
        return (low is None or quality.value >= low - slip) and (high is None or quality.value <= high + slip)


def _allowed_apps(inputs: Inputs) -> dict[str, list[str]]:
    """The applications that each variant may serve."""
    families, tasks = defaultdict(list), defaultdict(list)
    for name, variant in inputs.profile.variants.items():
        families[variant.family].append(name)
        tasks[variant.task].append(name)
    found: dict[str, list[str]] = defaultdict(list)
    for name, app in inputs.slo.apps.items():
        names = list(app.named_models or ())
        names += [variant for family in app.families or () for variant in families[family]]
        names += tasks[app.task] if app.task is not None else []
        for one in names:
            found[one].append(name)
    return found


def _needs(reading: Reading) -> dict[str, float]:
    """What each application needs, with the slack, of what is not said to stay unserved."""
    change = reading.inputs.slo.change
    unserved: dict[str, float] = defaultdict(float)
    for entry in reading.plan.unserved:
        unserved[entry.app] += entry.rate_qps
    found: dict[str, float] = {}
    for name, app in reading.inputs.slo.apps.items():
        wanted = app.stated_qps or 0.0
        load = wanted - unserved[name]
        if load <= VALUE * max(wanted, 1.0):
            continue
        # A load that is partly declined has no room to keep a slack of, and rules that only aim at it promise none.
        if unserved[name] > 0 or reading.plan.method.options.get("slack") == "aimed":
            found[name] = load
        else:
            found[name] = load * change.slack if change.slack_qps is None else load + change.slack_qps
    return found


def _check_covered(reading: Reading) -> Iterator[Violation]:
    needs = _needs(reading)
    alone: dict[str, float] = defaultdict(float)
    common: list[Held] = []
    for held in reading.then:
        serving = [app for app in held.qps if app in needs]
        if len(serving) == 1:
            alone[serving[0]] += held.instances * held.qps[serving[0]]
        elif serving:
            common.append(held)
    mixed = {app for held in common for app in held.qps if app in needs}
    for app, need in needs.items():
        if app not in mixed and alone[app] < need * (1 - FEASIBILITY):
            text = f"{app} needs {need:.6g} queries/s with its slack, instances for it saturate at {alone[app]:.6g}"
            yield Violation("variants-need", f"routing.{app}", text)
    if mixed:
        missing = _least_shortage(sorted(mixed), needs, alone, common)
        if missing > FEASIBILITY * max(1.0, sum(needs[app] for app in mixed)):
            text = f"{', '.join(sorted(mixed)[:5])} share instances, {missing:.6g} queries/s of their needs do not fit"
            yield Violation("variants-need", "routing", text)


def _least_shortage(
    apps: list[str], needs: Mapping[str, float], alone: Mapping[str, float], common: list[Held]
) -> float:
    """The least of these needs that cannot be served by what they share: a linear program."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    pairs = [(k, app) for k, held in enumerate(common) for app in apps if app in held.qps]
    size = len(pairs) + len(apps)
    cost = np.concatenate([np.zeros(len(pairs)), np.ones(len(apps))])
    rows = [apps.index(app) for _, app in pairs] + list(range(len(apps)))
    cover = coo_array((np.full(size, -1.0), (rows, range(size))), shape=(len(apps), size))
    full = coo_array(
        ([1.0 / common[k].qps[app] for k, app in pairs], ([k for k, _ in pairs], range(len(pairs)))),
        shape=(len(common), size),
    )
    wanted = [-(needs[app] - alone[app]) for app in apps]
    limits = np.array([*wanted, *(float(held.instances) for held in common)])
    matrix: Any = vstack([cover, full]).tocsr()
    answer: Any = linprog(cost, matrix, limits, method="highs")
    return float(answer.fun or 0.0)


def price_of(reading: Reading, held: Held) -> float:
    """C of an instance, per hour."""
    if held.run is not None and held.run.price_per_hour is not None:
        return held.run.price_per_hour / NANO
    named = _offer(reading, held.worker)
    if named is None:
        return 1.0
    offer = reading.inputs.profile.offers[named]
    amount = 1.0
    if offer.per is not None:
        provided = reading.inputs.profile.hardware[held.worker.hardware].provides.get(offer.per, 1.0)
        amount = held.needs.get(offer.per, provided) if offer.per in ("gpu", "cpu_cores") else provided
    return offer.price_per_hour * amount / NANO


def part_of(reading: Reading, held: Held) -> float:
    """How much of its machine an instance takes where machines are paid whole and shared; 0 where it pays by itself.

    On a hardware without prices of runs and of slices, of a run that says what it computes with: the largest of its
    needs as a part of what the machine provides.
    """
    method, profile = reading.plan.method, reading.inputs.profile
    shared = method.options.get("share_machines", method.formulation != "infaas")
    if not shared or method.options.get("level") == "aggregate":
        return 0.0
    hardware, offer = held.worker.hardware, _offer(reading, held.worker)
    if held.run is None or hardware in reading.priced:
        return 0.0
    if offer is not None and profile.offers[offer].per in ("gpu", "cpu_cores"):
        return 0.0
    provided = profile.hardware[hardware].provides
    parts = {name: amount / provided[name] for name, amount in held.needs.items() if provided.get(name, 0.0) > 0}
    by = [name for name, part in parts.items() if part > 0 and not name.endswith("_gib")]
    if any(name.startswith("gpu") for name in held.needs):
        by = [name for name in by if name != "cpu_cores"]
    return max(parts.values()) if by else 0.0


def _offer(reading: Reading, worker: Worker) -> str | None:
    """Under which offer a machine is: its own, its host's, else the first of its hardware."""
    if worker.offer is not None or worker.host is not None:
        return worker.offer or reading.inputs.profile.hosts[worker.host or ""].offer
    offers = reading.inputs.profile.offers
    return min((name for name, offer in offers.items() if offer.hardware == worker.hardware), default=None)


def _bill(reading: Reading, side: list[Held]) -> float:
    """What machines with loads cost per hour: those that are shared once for all on them, others by their instances."""
    shared = {held.worker.id: price_of(reading, held) * held.worker.count for held in side if part_of(reading, held)}
    alone = [price_of(reading, held) * held.instances for held in side if held.run is not None
             and held.worker.id not in shared]  # fmt: skip
    return sum(shared.values()) + sum(alone)


def _idle_price(reading: Reading, worker: Worker) -> float:
    """What a machine costs per hour that holds nothing."""
    offers = reading.inputs.profile.offers
    if worker.offer is None:
        return 0.0 if offers else 1.0
    offer = offers[worker.offer]
    provides = reading.inputs.profile.hardware[worker.hardware].provides
    return offer.price_per_hour * (provides.get(offer.per, 1.0) if offer.per is not None else 1.0) / NANO


def is_whole(reading: Reading, held: Held) -> bool:
    """Whether an instance is priced as all of a machine."""
    if held.run is None or held.run.price_per_hour is not None:
        return False
    named = _offer(reading, held.worker)
    per = reading.inputs.profile.offers[named].per if named is not None else None
    return per not in ("gpu", "cpu_cores") or per not in held.run.needs


def _by_weight(reading: Reading) -> bool:
    """Whether loading counts by the paper's weight: by the paper's formulation, or where the SLO states one."""
    stated = reading.inputs.slo.change.model_fields_set
    return reading.plan.method.formulation == "infaas" or "load_weight_per_s" in stated


def weight_of_loading(reading: Reading) -> float:
    """What a second of loading counts for, of what an hour costs."""
    if _by_weight(reading):
        return reading.inputs.slo.change.load_weight_per_s
    # Where nothing runs all is loaded, whatever is chosen.
    return 1.0 / reading.inputs.slo.horizon.period_s if reading.now else 0.0


def change_s(reading: Reading, held: Held) -> float:
    """Seconds that an instance more costs: to load it, and to start the machine that it pays for or a part of."""
    seconds = held.run.load_s if held.run is not None else 0.0
    if not _by_weight(reading) and (part_of(reading, held) or is_whole(reading, held)):
        seconds += reading.inputs.profile.hardware[held.worker.hardware].startup_s
    return seconds


def _money(reading: Reading) -> Iterator[Violation]:
    weight = weight_of_loading(reading)
    known = {held.load.variant for held in reading.now if held.worker.host is not None}
    groups: dict[object, list[float]] = {}
    paid = {-1: _bill(reading, reading.now), 1: _bill(reading, reading.then)}
    for sign, side in ((-1, reading.now), (1, reading.then)):
        for held in side:
            if held.run is None:
                continue
            part = part_of(reading, held)
            price = price_of(reading, held) * (part or 1.0)
            where = (held.worker.hardware, held.worker.offer) if held.load.variant in known else None
            if where is not None and where[1] is None and held.worker.host is not None:
                where = (where[0], reading.inputs.profile.hosts[held.worker.host].offer)
            knobs = str(sorted(held.load.knobs.items()))
            seconds = change_s(reading, held)
            key = (held.load.variant, held.load.serve.max_batch, knobs, round(price, 9), seconds, where)
            group = groups.setdefault(key, [0.0, weight * price * seconds])
            group[0] += sign * held.instances
    idle = sum(worker.count * _idle_price(reading, worker) for worker in reading.plan.workers if not worker.loads)
    gross = paid[1] + idle + sum(price * max(count, 0.0) for count, price in groups.values())
    for name, value in (("gross_cost_per_hour", gross), ("net_cost_per_hour", gross - paid[-1])):
        said = next((promise for promise in reading.plan.promises if promise.quantity == name), None)
        if said is None:
            yield Violation("variants-cost", "promises", f"no {name} is promised")
        elif said.relation != "=" or abs(said.value - value) > VALUE * max(gross, paid[-1], VALUE):
            yield Violation(
                "variants-cost", "promises", f"{name} {said.relation} {said.value:.9g}, recomputed it is {value:.9g}"
            )


def _hosts(reading: Reading) -> Iterator[Violation]:
    named = {host.offer for host in reading.inputs.profile.hosts.values()}
    for worker in reading.plan.workers:
        if worker.host is None and worker.offer in named and worker.loads:
            text = f"machines under {worker.offer} are known by name, and none is named"
            yield Violation("variants-host", f"workers.{worker.id}", text)


def worst_ms(reading: Reading, held: Held, app: str) -> float:
    """The longest that it takes for a query of an application."""
    classes = classes_of(reading.inputs.slo.apps[app])
    service = service_of(reading.facts, Seat(held.worker, held.load, held.run), classes)
    return max(ms for ms, share in zip(service.latency_ms, classes.share, strict=True) if share > 0)


def _at_once(reading: Reading) -> Iterator[Violation]:
    """Nothing waits for a batch to fill, and as many batches run at once as saturation means, if not as they ran."""
    running = {held.load.id: held.load.serve for held in reading.now}
    for held in reading.then:
        serve, at = held.load.serve, f"workers.{held.worker.id}.loads.{held.load.id}"
        if serve == running.get(held.load.id):
            continue
        variant = reading.inputs.profile.variants[held.load.variant or ""]
        known = batches_of(reading.inputs.profile, reading.inputs.slo, variant, held.run) if held.run else None
        if known is not None and serve.max_batch not in known:
            text = f"takes {serve.max_batch} at a time, its run was measured with {', '.join(map(str, known))}"
            yield Violation("variants-serve", at, text)
        if serve.max_wait_ms > 0:
            yield Violation("variants-serve", at, f"waits {serve.max_wait_ms:g} ms for others to come")
        if serve.concurrency > 1 and held.qps:
            busy = max(rate * worst_ms(reading, held, app) / 1000 for app, rate in held.qps.items())
            if serve.concurrency > busy / serve.max_batch + 0.5 + FEASIBILITY:
                text = f"{serve.concurrency} batches at once, where saturation means {busy / serve.max_batch:.6g}"
                yield Violation("variants-serve", at, text)


def _check_slowdown(reading: Reading) -> Iterator[Violation]:
    """Beside so many others on its machine, a load must still be in time."""
    for held in reading.then:
        if held.run is None or held.run.slowdown is None:
            continue
        table = reading.inputs.profile.tables[held.run.slowdown]
        if "co_load" not in table.axes:
            continue
        beside = float(sum(load.instances for load in held.worker.loads) - 1)
        most = max(table.axes["co_load"])
        at = f"workers.{held.worker.id}.loads.{held.load.id}"
        if beside > most:
            yield Violation("variants-slowdown", at, f"runs beside {beside:g} others, measured up to {most:g}")
            continue
        point = {name: beside if name == "co_load" else held.run.at.get(name, 0.0) for name in table.axes}
        factor = float(read_table(table, "mean", point, 1)[0][0])
        for app in held.qps:
            routes = reading.plan.routing.get(app, ())
            if not any(held.load.id in route.to for route in routes):
                continue
            wanted = reading.inputs.slo.apps[app]
            limit = strictest_limit_ms(wanted) - wanted.network_ms_per_hop
            if factor * worst_ms(reading, held, app) > limit * (1 + FEASIBILITY):
                yield Violation(
                    "variants-slowdown", at, f"{factor:g} times slower beside {beside:g} others: over {limit:g} ms"
                )


def _check_routing(reading: Reading) -> Iterator[Violation]:
    """Queries are sent by the shares that the instances were counted for."""
    for app in reading.plan.routing:
        rule = reading.plan.dispatch.get(app)
        if rule is None or rule.rule != "shares/1":
            said = rule.rule if rule is not None else "no rule"
            yield Violation("dispatch", f"dispatch.{app}", f"{said} sends its queries, and variants send by shares/1")
        elif getattr(rule, "balancing", None) != "shortest_queue":  # by chance, more of them are late
            yield Violation(
                "dispatch", f"dispatch.{app}", "servers of a group do not get queries by the shortest queue"
            )


class _Walk:
    """What is where while the actions are followed; sums are kept up to date load by load."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        several = {w.id for held in (*reading.now, *reading.then) if (w := held.worker).count > 1}
        self.place = {
            held.worker.id: held.worker.host or (None if held.worker.id in several else held.worker.id)
            for held in (*reading.now, *reading.then)
        }
        """The one machine that a worker is, by its host or its own name; None where it is several."""
        running = reading.inputs.state.workers if reading.inputs.state is not None else ()
        self.machines = {worker.id: worker.count for worker in running}
        self.workers = {worker.id: worker for worker in (*running, *reading.plan.workers)}
        self.most = {name: max(self.machines.get(name, 0), one.count) for name, one in self.workers.items()}
        """Machines of each worker, on the way."""
        self.held = {held.load.id: held for held in reading.now}
        self.count = {held.load.id: held.instances for held in reading.now}
        self.new = {held.load.id: held for held in reading.then}
        self.of_worker: dict[str, list[str]] = defaultdict(list)
        self.use: dict[tuple[str | None, str], float] = defaultdict(float)
        self.served: dict[str, float] = defaultdict(float)
        self.end_served: dict[str, float] = defaultdict(float)
        self.aside: dict[str, int] = {}
        self.touched: set[tuple[str | None, str]] = set()
        self.less: set[str] = set()
        for held in (*reading.now, *reading.then):
            if held.load.id not in self.of_worker[held.worker.id]:
                self.of_worker[held.worker.id].append(held.load.id)
        for held in reading.now:
            planned = self.new.get(held.load.id)
            if planned is not None and planned.load.variant == held.load.variant:
                # What goes on may serve other applications from now on; that is no matter of the way.
                self.held[held.load.id] = held = replace(held, qps=planned.qps)
            self._add(held, held.instances)
        for held in reading.then:
            for app, rate in held.qps.items():
                self.end_served[app] += rate * held.instances
        self.start_use, self.start_served = self.use.copy(), self.served.copy()

    def _add(self, held: Held, instances: int) -> None:
        place = self.place[held.worker.id]
        for resource, amount in held.needs.items():
            for where in (None, place) if place is not None else (None,):
                self.use[where, resource] += amount * instances
                self.touched.add((where, resource))
        for app, rate in held.qps.items():
            self.served[app] += rate * instances
            self.less.add(app)

    def _set_up(self, name: str, count: int) -> None:
        if name in self.held:
            self._add(self.held[name], count - self.count[name])
        self.count[name] = count

    def home(self, action: Action) -> str:
        """The worker that an action is about."""
        held = self.held.get(action.load or "")
        return held.worker.id if held is not None else action.worker or ""

    def waits(self) -> bool:
        """Whether something is still to come, and none of it has room beside what is there."""
        lacking = [(held, self._missing_machines(name, held)) for name, held in self.new.items()]
        missing = [(held, count) for held, count in lacking if count > 0]
        return bool(missing) and not any(self._has_room(held, count) for held, count in missing)

    def _missing_machines(self, name: str, planned: Held) -> int:
        there = self.held.get(name)
        same = there is not None and there.load.variant == planned.load.variant
        return planned.instances - (self.count[name] if same else 0)

    def _has_room(self, held: Held, count: int) -> bool:
        """Whether all of a load that lacks fits: its machines, what it takes of them, and of all."""
        worker, inputs = held.worker, self.reading.inputs
        machines = max(worker.count - self.machines.get(worker.id, 0), 0)
        if machines:
            up = Scene(self.reading.facts, self.workers, {}, Counter(self.machines), {}, {}, set())
            if not has_room(up, worker, machines):
                return False
        place, limits = self.place[worker.id], inputs.slo.limits.capacity
        provides = inputs.profile.hardware[worker.hardware].provides
        for resource, amount in held.needs.items():
            more = amount * count
            if more + self.use[None, resource] > limits.get(resource, math.inf):
                return False
            here = self.use[place, resource] if place is not None else self._taken_share(worker.id, resource)
            if more + here > self.most[worker.id] * provides.get(resource, math.inf):
                return False
        return True

    def _taken_share(self, worker: str, resource: str) -> float:
        there = (name for name in self.of_worker[worker] if name in self.held)
        return math.fsum(self.held[name].needs.get(resource, 0.0) * self.count[name] for name in there)

    def follow(self, action: Action) -> None:
        """One action; `touched` and `less` say what it changed."""
        self.touched, self.less = set(), set()
        name = action.load or ""
        if action.do in ("load", "replicate", "upgrade", "downgrade") and name in self.new:
            planned, before = self.new[name], self.held.get(name)
            same = before is not None and before.load.variant == planned.load.variant
            already = self.count.get(name, 0) if same else 0
            if before is not None:
                self._set_up(name, 0)
            self.held[name], self.count[name] = planned, 0
            self._set_up(name, already + (action.count or planned.instances))
        elif action.do == "keep" and action.count is not None and name in self.count:
            self._set_up(name, min(self.count[name], action.count))
        elif action.do == "move" and action.host is None and name in self.count:
            gone = min(self.count[name], action.count or self.count[name])
            self._set_up(name, self.count[name] - gone)
            self.aside[name] = gone
        elif action.do == "unload" and name in self.count:
            there = self.count[name] + self.aside.pop(name, 0)
            self._set_up(name, there - (action.count or there))
        elif action.do == "start":
            worker = action.worker or ""
            self.machines[worker] = self.machines.get(worker, 0) + (action.count or 1)
        elif action.do == "stop":
            worker = action.worker or ""
            # Those stop that hold least: what was loaded for the plan is on those that stay.
            left = 0 if action.count is None else max(self.machines.get(worker, 0) - action.count, 0)
            self.machines[worker] = left
            for load in self.of_worker.get(worker, ()):
                if load in self.held:
                    self.aside.pop(load, None)
                    self._set_up(load, min(self.count[load], left * self.held[load].load.instances))


_DOWN = ("keep", "move", "stop", "unload")
"""Actions that take something down."""


def _way(reading: Reading) -> Iterator[Violation]:
    if reading.inputs.state is None:
        return
    walk = _Walk(reading)
    limits = reading.inputs.slo.limits.capacity
    provides = {
        walk.place[held.worker.id]: reading.inputs.profile.hardware[held.worker.hardware].provides
        for held in (*reading.now, *reading.then)
    }
    cleared, wait = "", set[str]()
    for action in reading.plan.actions:
        at, there = f"actions.{action.id}", walk.count.get(action.load or "", 0)
        if action.do in ("keep", "move") and (action.count or 0) > there:
            yield Violation("variants-end", at, f"{action.do} {action.count} of {action.load}, {there} are there")
        down, home, before = action.do in _DOWN, walk.home(action), walk.served.copy()
        # A machine that makes room goes with all that is on it.
        makes_room = down and ((home == cleared and action.do != "move") or walk.waits())
        cleared = home if makes_room else ""
        walk.follow(action)
        for host, resource in sorted(walk.touched, key=str):
            taken = walk.use[host, resource]
            room = (limits if host is None else provides[host]).get(resource, math.inf)
            allowed = max(room, walk.start_use[host, resource])
            if taken > allowed + FEASIBILITY * max(allowed, 1.0):
                where = host or "all machines"
                yield Violation("variants-room", at, f"{taken:g} {resource} are taken on {where}, there are {room:g}")
        for app in sorted(walk.less):
            least = min(walk.end_served[app], walk.start_served[app])
            if walk.served[app] >= least * (1 - FEASIBILITY) - FEASIBILITY:
                wait.discard(app)
            elif makes_room:
                wait.add(app)
            elif app not in wait or walk.served[app] < before[app] - FEASIBILITY:
                text = f"{app} is left with {walk.served[app]:.6g} queries/s, before and after it has {least:.6g}"
                yield Violation("variants-served", at, text)
    ends = {**walk.held, **walk.new}
    for name, held in ends.items():
        planned, there = held.instances if name in walk.new else 0, walk.count.get(name, 0)
        if there != planned:
            text = f"{there} instances in the end, the plan has {planned}"
            yield Violation("variants-end", f"workers.{held.worker.id}.loads.{name}", text)


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What variants promise beyond the generic check; to be called on a plan whose references are sound."""
    reading = Reading(plan, inputs)
    found = [
        *_check_covered(reading),
        *_money(reading),
        *_hosts(reading),
        *_check_slowdown(reading),
        *_at_once(reading),
    ]
    return [*found, *_check_routing(reading), *_way(reading)]


def batches_of(profile: Profile, slo: Slo, variant: Variant, run: Run) -> list[int]:
    """The batches that instances of a run may take (question variants): its own, or each that was measured.

    Its own where it says one, or a saturation; where queries come in sizes; and where other runs on the same hardware
    with the same settings may say theirs.
    """
    if "batch" in run.at or run.saturation_qps is not None:
        return [int(run.at.get("batch", 1))]
    sized = any(app.mix is not None and "batch" in app.mix.axes for app in slo.apps.values())
    knobs = {axis: value for axis, value in run.at.items() if axis != "batch"}
    alike = [
        other
        for other in variant.runs
        if other.hardware == run.hardware and {a: v for a, v in other.at.items() if a != "batch"} == knobs
    ]
    if sized or len(alike) > 1:
        return [1]
    axis = profile.tables[run.latency].axes.get("batch", ()) if run.latency is not None else ()
    return [int(batch) for batch in axis if batch >= 1 and batch == int(batch)] or [1]
