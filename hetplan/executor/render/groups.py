"""What every target starts from: the groups of a plan, as plain data.

A group are the replicas of one model on one machine type, bought in one way, that serve the same application in the
same role. It says how many of them run in each period, what one of them needs, and what the plan counts on. Nothing of
a platform is known here but the amounts that its nodes offer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.render.names import CannotRender, dns_name
from hetplan.executor.render.nodes import allocatable
from hetplan.executor.site import FILE, ModelRule, ServerModel, Site, as_server
from hetplan.executor.words import Split, words_of
from hetplan.profiles.engines import Engine
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.demand import classes_of, response_targets
from hetplan.serving.loads import fitting_runs, offer_of, worker_price
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.service import NoiseName
from hetplan.serving.system import System
from hetplan.serving.tokens import demand_of

__all__ = ["Application", "Fleet", "Group", "groups"]

_HOURS_A_MONTH = 730


@dataclass(frozen=True)
class Group:
    """Replicas that are alike. `schedule` has from when (seconds) how many machines of it run.

    `per_machine` replicas share a machine; `gpus` are whole GPUs of a replica, `gpu_fraction` is a part of one.
    `concurrency` is how many queries at a time the plan counts on, `share` what part of its application's queries (at
    its step) the group gets, `weight` by what requests at its replicas are counted, where the fewest are looked for.
    `load` is the plan's own account of the first of its loads, `answer_ms` what the longest text takes on a full
    machine. `turns` are the models that take turns on its machines, where there are several.
    """

    name: str
    app: str
    model: str
    hardware: str
    schedule: tuple[tuple[float, int], ...]
    apps: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    node: str | None = None
    offer: str | None = None
    zone: str | None = None
    spot: bool = False
    role: str = "whole"
    at: Mapping[str, float] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    per_machine: int = 1
    machines_per_worker: int = 1
    machine_gpus: int = 0
    gpus: int = 0
    gpu_fraction: float | None = None
    cpu_cores: float | None = None
    mem_gib: float | None = None
    concurrency: int = 1
    max_batch: int = 1
    max_wait_ms: float = 0.0
    max_tokens: int | None = None
    max_seqs: int | None = None
    split: Split = field(default_factory=Split)
    words: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)
    mean_ms: float | None = None
    p99_ms: float | None = None
    answer_ms: float | None = None
    rate_qps: float | None = None
    share: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0
    price_per_hour: float | None = None
    startup_s: float = 0.0
    load_s: float = 0.0
    turns: tuple[Group, ...] = ()

    def section(self, site: Site) -> str:
        """The section of site.toml that says how it is served, or is to: of one for all models, its own."""
        found, _ = self._rule(site) or ("*", None)
        return self.model if found == "*" else found

    def server(self, site: Site) -> ServerModel:
        """Its server, as site.toml has it."""
        return as_server((self._rule(site) or ("", None))[1])

    def _rule(self, site: Site) -> tuple[str, ModelRule] | None:
        one = self.members[0]
        return site.rule_of(model=one.model, stage=one.node, app=one.load.get("app"), machine=one.hardware)

    @property
    def members(self) -> tuple[Group, ...]:
        """A group for each model that its replicas hold."""
        return self.turns or (self,)

    @property
    def count(self) -> int:
        """Replicas in the first period."""
        return self.schedule[0][1] * self.per_machine

    @property
    def least(self) -> int:
        """The fewest replicas of any period."""
        return min(count for _, count in self.schedule) * self.per_machine

    @property
    def most(self) -> int:
        """The most replicas of any period."""
        return max(count for _, count in self.schedule) * self.per_machine

    @property
    def makes_text(self) -> bool:
        """Whether its answers are made token by token."""
        return self.max_seqs is not None

    @property
    def capped(self) -> bool:
        """Whether it is sent fewer requests at a time than its engine runs: more of them are refused."""
        return self.makes_text and self.role == "whole" and 1 < self.concurrency < (self.max_seqs or 0)

    @property
    def qps(self) -> float | None:
        """What one replica answers at most: of text by its law, else by its table."""
        if self.rate_qps is not None:
            return self.rate_qps
        return 1000.0 * self.concurrency / self.mean_ms if self.mean_ms else None


@dataclass(frozen=True)
class Application:
    """One stream of queries: its rule, its deadline, and what the plan says of it.

    `classes` is how many routes there are by what a query is, `moves` whether shares change from period to period.
    """

    name: str
    dns: str = ""
    rule: str = "shares/1"
    inside: str | None = None
    steps: int = 1
    classes: int = 1
    moves: bool = False
    deadline_ms: float | None = None
    limits: tuple[str, ...] = ()
    late: str | None = None
    rate_qps: float | None = None


@dataclass(frozen=True)
class Fleet:
    """All that is rendered. `verdicts` say, per application, the rule that the target keeps and what comes of it.

    `router` has the files of hetplan's own router, if that runs: its table (""), and what each group's workers hold.
    """

    groups: tuple[Group, ...]
    apps: Mapping[str, Application]
    periods: tuple[tuple[float, float | None], ...]
    name: str
    digest: str
    cost_per_hour: float | None = None
    currency: str = "USD"
    without_spot: float | None = None
    note: str | None = None
    warnings: tuple[str, ...] = ()
    verdicts: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    router: Mapping[str, str] | None = None
    router_image: str | None = None

    def of_app(self, app: str) -> tuple[Group, ...]:
        """The groups that serve an application."""
        return tuple(group for group in self.groups if app in group.apps)

    @property
    def head(self) -> list[str]:
        """The comment block that each file begins with."""
        money = "no prices are known"
        if self.cost_per_hour is not None:
            month = self.cost_per_hour * _HOURS_A_MONTH
            money = f"{self.cost_per_hour:.2f} {self.currency} per hour, {month:,.0f} per month"
        own = f"; hetplan's router and workers run in it ({self.router_image})" if self.router is not None else ""
        lines = [f"hetplan: {self.name}, plan {self.digest}{own}", f"cost: {money}"]
        for app in self.apps.values():
            asked = ", ".join(app.limits) or "no limit"
            rule = app.rule if self.router is not None else self.rules.get(app.name, app.rule)
            lines.append(f"{app.name}: {asked}; rule {rule}")
            lines += [f"  {self.verdicts[app.name]}"] if app.name in self.verdicts else []
        lines += [
            f"{one.name}: {split.parallel} over {split.gpus} GPUs (tensor {split.tensor}, data {split.data}, "
            f"expert {split.expert}, pipeline {split.pipeline})"
            for one in self.groups
            if (split := one.split).gpus > 1
        ]
        if self.without_spot is not None:
            lines.append(f"losing all spot machines keeps {self.without_spot:.0%} of the machines")
        lines += [f"note: {self.note}"] if self.note is not None else []
        return [*lines, *(f"warning: {one}" for one in self.warnings)]


def groups(plan: Plan, inputs: Inputs, site: Site, faults: list[Fault] | None = None) -> Fleet:
    """A plan as groups; `CannotRender` (or in `faults`) all that neither the files nor site.toml say."""
    reading = _Reading(plan, inputs, site)
    for place, period in enumerate(plan.periods):
        reading.read(place, period)
    found = reading.finished()
    if faults is not None:
        faults += reading.faults
    elif reading.faults:
        raise CannotRender.of(reading.faults)
    summary = plan.summary
    priced = [one.price_per_hour for one in found]
    cost = summary.cost_per_hour if summary is not None and summary.cost_per_hour is not None else None
    if cost is None and found and None not in priced:
        cost = sum(one.schedule[0][1] * (one.price_per_hour or 0.0) for one in found)
    most, firm = sum(one.most for one in found), sum(one.most for one in found if not one.spot)
    return Fleet(
        groups=found, apps=reading.apps, periods=tuple((one.start_s, one.end_s) for one in plan.periods),
        name=site.name, digest=str(plan.digest or ""), cost_per_hour=cost,
        currency=inputs.slo.limits.currency, without_spot=firm / most if firm < most else None,
        note=site.note, warnings=tuple(reading.warnings()),
    )  # fmt: skip


class _Reading:
    """The groups of all periods, each known by what makes it one."""

    def __init__(self, plan: Plan, inputs: Inputs, site: Site) -> None:
        self.plan, self.inputs, self.site = plan, inputs, site
        self.faults: list[Fault] = []
        self.apps: dict[str, Application] = {}
        self._of: dict[str, Group] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._hosts: set[str] = set()
        self._shares: dict[str, str] = {}

    def read(self, place: int, period: Period) -> None:
        """The workers of one period."""
        plan = of_period(self.plan, period)
        workers = [one for one in plan.workers if self.plan.parts is not None or one.period == period.id]
        mine = plan.model_copy(update={"workers": tuple(workers)})
        times = _times(mine, self.inputs, period)
        for app in sorted({*mine.dispatch, *mine.routing}):
            self._app(mine, app)
        for worker in workers:
            self._hosts |= {worker.host} if worker.host is not None else set()
            seats = sum(load.instances for load in worker.loads)
            for load in worker.loads:
                made = self._group(mine, worker, load, seats)
                made = replace(made, **times.get(load.id, {}))
                key = _identity(made)
                held = self._of.setdefault(key, made)
                counts = self._counts.setdefault(key, {})
                share = _sum(held.share, made.share) if place in counts and held is not made else held.share
                self._of[key] = replace(held, loads=tuple(dict.fromkeys((*held.loads, load.id))), share=share)
                counts[place] = counts.get(place, 0) + worker.count + worker.standby

    def _app(self, plan: Plan, app: str) -> None:
        rule, wanted = plan.dispatch.get(app), self.inputs.slo.apps.get(app)
        routes = plan.routing.get(app, ())
        targets = response_targets(wanted) if wanted is not None else ()
        token = [one for one in wanted.targets if one.of == "ttft"] if wanted is not None else []
        limits = [f"{one.of} p{one.percentile:g} <= {one.max_ms:g} ms" for one in (wanted.targets if wanted else ())]
        deadline = min((one.limit_ms() for one in targets), default=None)
        if deadline is None and token:
            deadline = min(one.max_ms for one in token)
        span, before = plan.valid.rate_qps.get(app), self.apps.get(app)
        shares = json.dumps([route.to for route in routes], sort_keys=True)
        self._shares.setdefault(app, shares)
        named = [one.dns for name, one in self.apps.items() if name != app]
        self.apps[app] = Application(
            name=app, dns=dns_name(app, taken=named), rule=rule.rule if rule is not None else "shares/1",
            inside=getattr(rule, "balancing", None), steps=len({route.node for route in routes}) or 1,
            classes=len({json.dumps(route.to, sort_keys=True) for route in routes if route.when}) or 1,
            deadline_ms=deadline, limits=tuple(limits), late=getattr(rule, "late", None),
            moves=(before is not None and before.moves) or self._shares[app] != shares,
            rate_qps=span[1] if span else None,
        )  # fmt: skip

    def _group(self, plan: Plan, worker: Worker, load: Load, seats: int) -> Group:
        profile = self.inputs.profile
        hardware = profile.hardware.get(worker.hardware)
        if hardware is None:
            why, remedy = "the profile has no such machine type", "Use the profile that the plan was made from."
            self._fault("plan", f"$.workers[{worker.id}].hardware", worker.hardware, why, remedy)
            return Group("", "", load.variant or "", worker.hardware, ((0.0, 0),))
        runs = fitting_runs(profile, load, worker.hardware) if load.variant is not None else ()
        run = runs[0] if len(runs) == 1 else None
        engine = profile.engines.get(run.engine or "") if run is not None else None
        needs = dict(run.needs) if run is not None else {}
        split = self._split(load, run, engine)
        self._runs_here(load, worker.hardware)
        led = {app: part for app, routes in plan.routing.items() if (part := _share(self.inputs, app, routes, load.id))}
        apps = tuple(sorted(led)) or ((load.app,) if load.app is not None else ())
        offer_name = offer_of(profile, worker)
        offer = profile.offers.get(offer_name or "")
        price = worker_price(self.inputs, worker)
        app, model = load.app or (apps[0] if len(apps) == 1 else "shared"), load.called
        words = {**words_of(load, worker.hardware, engine, split), "variant": model, "model": model, "app": app}
        group = Group(
            name="", app=app, apps=apps, model=model, node=load.node, hardware=worker.hardware, offer=worker.offer,
            loads=(load.id,), schedule=((0.0, 0),), zone=offer.zone if offer is not None else None,
            spot=offer is not None and offer.interruptions_per_hour is not None,
            role=words.get("role", "whole"), concurrency=words["concurrency"], split=split, words=words,
            at=dict(load.at or {}), knobs=dict(load.knobs), per_machine=load.instances,
            max_batch=load.serve.max_batch, max_wait_ms=load.serve.max_wait_ms,
            max_tokens=words.get("max_tokens"), max_seqs=words.get("max_seqs"),
            load=load.model_dump(mode="json", exclude_defaults=True, exclude={"id"}), share=led,
            weight=min((told.get(load.id, 1.0) for told in _weights(plan, apps)), default=1.0),
            startup_s=hardware.startup_s, load_s=run.load_s if run is not None else 0.0,
            price_per_hour=_money(price, load.instances, seats) if price is not None else None,
        )  # fmt: skip
        return self._amounts(group, load, hardware.kind, dict(hardware.provides), needs, seats, engine is not None)

    def _runs_here(self, load: Load, hardware: str) -> None:
        """Platforms run servers, in containers or units of their own."""
        section, rule = self.site.rule_of_load(load, hardware) or ("", None)
        if rule is not None and not isinstance(rule, ServerModel):
            why, remedy = f"models of kind {rule.kind} run on hosts only", "Leave kind out, and write image or command."
            self._fault(FILE, f"$.models.{section}.kind", rule.kind, why, remedy)
        elif rule is not None and rule.url is not None:
            why, remedy = "a server that runs at a url is for hosts only", "Write image or command in its place."
            self._fault(FILE, f"$.models.{section}.url", rule.url, why, remedy)

    def _split(self, load: Load, run: Run | None, engine: Engine | None) -> Split:
        """How the GPUs of a replica share its model."""
        try:
            return Split.of(engine, run.at, f"$.workers.loads.{load.id}.at") if engine is not None and run else Split()
        except InputError as error:
            self.faults += error.faults
            return Split()

    def _amounts(
        self, group: Group, load: Load, kind: str, provides: dict[str, float], needs: dict[str, float], seats: int,
        text: bool,
    ) -> Group:  # fmt: skip
        machine = self.site.machine(group.hardware)
        stated = machine.gpus if machine.gpus is not None else provides.get("gpu")
        has = round(stated) if stated is not None else 0 if kind == "cpu" else None
        part = load.share.gpu if load.share is not None else None
        one = needs.get("gpu") or (float(group.split.gpus) if text else None)
        if has is None and part is None and one is None:
            self._fault(FILE, f"$.machines.{group.hardware}.gpus", "nothing",
                        f"nothing says how many GPUs (or other accelerators) a {group.hardware} has",
                        f'Write "provides": {{"gpu": 1}} under machines.{group.hardware} of the profile, '
                        f"or add [machines.{group.hardware}] gpus = 1 (0: it has none).")  # fmt: skip
        amount = part if part is not None else one if one is not None else (has or 0) / seats
        whole = has if has is not None else max(math.ceil(amount * seats), 1)
        spread = math.ceil(amount / whole) if whole and amount > whole else 1
        amount = amount / spread
        gpus = round(amount) if abs(amount - round(amount)) < 1e-9 else 0
        cores, gib = allocatable(machine, provides, self.site)
        asked: dict[str, float | None] = {}
        for resource, offered in (("cpu_cores", cores), ("mem_gib", gib)):
            own = load.share.cpu_cores if resource == "cpu_cores" and load.share is not None else None
            need = own if own is not None else needs.get(resource)
            each = offered / seats if offered is not None else None
            if need is not None and offered is not None and need > offered + 1e-9:
                why = f"{group.model} needs more {resource} than a node offers pods ({offered:g})"
                remedy = f"Add [machines.{group.hardware}] instance_type of a larger machine, or plan again."
                self._fault(FILE, f"$.machines.{group.hardware}", f"{need:g}", why, remedy)
            asked[resource] = need if need is not None else each
        return replace(
            group, gpus=gpus, gpu_fraction=amount if amount and not gpus else None, machine_gpus=whole,
            machines_per_worker=spread, cpu_cores=asked["cpu_cores"], mem_gib=asked["mem_gib"],
        )  # fmt: skip

    def finished(self) -> tuple[Group, ...]:
        """The groups with their names and schedules, in the plan's order."""
        named, taken = dict[str, Group](), {one.dns for one in self.apps.values()}
        offers: dict[tuple[str, ...], set[str | None]] = {}
        for one in self._of.values():
            offers.setdefault((one.app, one.model, one.hardware), set()).add(one.offer)
        for key, one in self._of.items():
            parts = [one.app, one.model, one.hardware]
            if len(offers[one.app, one.model, one.hardware]) > 1 and one.offer is not None:
                head = f"{one.hardware}-"
                parts.append(one.offer.removeprefix(head) if one.offer.startswith(head) else one.offer)
            parts += [one.role] if one.role != "whole" else []
            name = dns_name(*parts)
            name = dns_name(*parts, key, taken=[dns_name(*parts, key)]) if name in named or name in taken else name
            counts = self._counts[key]
            schedule = [(period.start_s, counts.get(place, 0)) for place, period in enumerate(self.plan.periods)]
            kept = [one for place, one in enumerate(schedule) if not place or one[1] != schedule[place - 1][1]]
            named[name] = replace(one, name=name, schedule=tuple(kept))
        return tuple(named.values())

    def warnings(self) -> Iterable[str]:
        """What the files cannot say."""
        if self._hosts:
            yield f"the plan names machines ({', '.join(sorted(self._hosts))}): the platform chooses its own"
        for commitment in self.plan.commitments or ():
            yield f"{commitment.count} of {commitment.offer} are paid for ahead: buy them, no file does"
        for one in self.plan.warnings[:5]:
            yield f"{one.code}: {one.text}"
        if any(one.standby for one in self.plan.workers):
            yield "standby machines are replicas like others here"

    def _fault(self, file: str, path: str, value: str, why: str, remedy: str) -> None:
        fault = Fault(file, path, value, why, remedy)
        self.faults += [fault] if fault not in self.faults else []


def _money(nanos: int, instances: int, seats: int) -> float:
    """The part of a machine's price that the instances of one load pay."""
    return float(Decimal(nanos) * instances / seats / NANO)


def _weights(plan: Plan, apps: Iterable[str]) -> list[Mapping[str, float]]:
    """By load, by what requests at its replicas are counted, as far as the rules of these applications say it."""
    return [getattr(plan.dispatch.get(app), "weight", {}) for app in apps]


def _identity(group: Group) -> str:
    """What two groups of different periods, or of one, have in common if they are one."""
    told = {
        "app": group.app, "apps": group.apps, "model": group.model, "node": group.node, "at": dict(group.at),
        "knobs": dict(group.knobs), "hardware": group.hardware, "offer": group.offer, "role": group.role,
        "per_machine": group.per_machine, "batch": group.max_batch, "wait": group.max_wait_ms,
        "seqs": group.max_seqs, "tokens": group.max_tokens, "fraction": group.gpu_fraction, "gpus": group.gpus,
        "concurrency": group.concurrency,
    }  # fmt: skip
    return json.dumps(told, sort_keys=True)


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {app: one.get(app, 0.0) + other.get(app, 0.0) for app in sorted({*one, *other})}


def _share(inputs: Inputs, app: str, routes: Iterable[Any], load: str) -> float:
    """What part of an application's queries, over all classes, goes to a load."""
    listed, wanted = list(routes), inputs.slo.apps.get(app)
    known = classes_of(wanted.mix) if wanted is not None else None
    by_class = [route for route in listed if route.when]
    if not by_class or known is None:
        found = [route.to.get(load, 0.0) for route in listed if load in route.to]
        return max(found, default=0.0)
    total = 0.0
    for point, weight in zip(known.points, known.shares, strict=True):
        fitting = [route for route in by_class if all(point.get(axis) == at for axis, at in route.when.items())]
        total += weight * (fitting[0].to.get(load, 0.0) if fitting else 0.0)
    return total


def _times(plan: Plan, inputs: Inputs, period: Period) -> dict[str, dict[str, Any]]:
    """What a load takes on the mean and at most, over its classes of query; nothing of loads that no table times."""
    mean, slow = _system(plan, inputs, period, "table"), _system(plan, inputs, period, "p99")
    if mean is None:
        return {}
    found = {load: {"mean_ms": ms[0], "p99_ms": ms[0]} for load, ms in _services(mean, inputs).items()}
    for load, ms in _services(slow, inputs).items() if slow is not None else ():
        found[load]["p99_ms"] = max(ms[1], found[load]["mean_ms"])
    for app, text in mean.texts.items():
        wanted = inputs.slo.apps[app]
        demand = demand_of(wanted.mix, wanted.arrivals, 1.0)
        for one in text.fleet.groups:
            fits = one.law.holds(demand.requests)
            prefill = one.law.prefill_ms(demand.requests)[fits]
            busy = float(one.law.busy_ms(one.law.work(demand.requests).means(demand.weight))[0])
            if fits.any() and busy > 0.0:
                first = float((prefill * demand.weight[fits]).sum() / demand.weight[fits].sum())
                last = float(prefill.max())
                full = one.law.iteration_ms(one.law.most_seqs, one.law.kv_tokens, one.law.most_seqs)
                whole = last + float(demand.requests.output.max()) * full
                found[one.id] = {"mean_ms": first, "p99_ms": last, "answer_ms": whole, "rate_qps": 1000.0 / busy}
    return found


def _system(plan: Plan, inputs: Inputs, period: Period, noise: NoiseName) -> System | None:
    try:
        (first, *_) = planned_systems(plan.model_copy(update={"periods": (period,)}), inputs, noise=noise)
    except InputError:
        return None
    return first.system


def _services(system: System, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """Of each load: the mean over classes, and the most, at its largest batch."""
    found: dict[str, tuple[float, float]] = {}
    for load in (load for group in system.groups for load in group.loads):
        for app, service in load.services.items():
            wanted = inputs.slo.apps.get(app)
            shares = classes_of(wanted.mix if wanted is not None else None).shares
            rows = service.mean_ms[:, -1].tolist()
            weights = shares if len(shares) == len(rows) else [1.0 / len(rows)] * len(rows)
            mean = sum(weight * ms for weight, ms in zip(weights, rows, strict=True))
            before = found.get(load.id, (0.0, 0.0))
            found[load.id] = (max(before[0], mean), max(before[1], *rows))
    return found
