"""From a plan and site.toml to what shall run: units on hosts, and the routes that lead queries to them.

The plan is untrusted. It was read by `read_plan` (digest, names, closed vocabulary); here its counts are held against
what the hosts have room for, and every load must be served by a rule of site.toml. Nothing of it becomes a path or a
word of a command but ids, which cannot hold a slash at their start, a space or a shell's character.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.background import Background
from hetplan.executor.model_rules import served_by
from hetplan.executor.secrets import GUARDED
from hetplan.executor.site import Site
from hetplan.executor.units import LoadSpec, Seen, Unit, named
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.tokens import cap_of, law_of_engine

__all__ = ["Wanted", "wanted"]


@dataclass(frozen=True)
class Wanted:
    """What shall run: the plan's workers of one period, their units by name, and what the router shall know."""

    plan: str
    workers: tuple[Worker, ...]
    units: Mapping[str, Unit]
    apps: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())


def wanted(
    plan: Plan, site: Site, *, running: Iterable[Seen] = (), period: str | None = None,
    background: Background | None = None,
) -> Wanted:  # fmt: skip
    """What a plan wants of these hosts; raises `InputError` with every reason why they cannot give it.

    `running` are units that run now: a worker stays on the host where it is.
    """
    known = background if background is not None else Background.of(site)
    chosen = _period(plan, period)
    if plan.parts is not None:
        from hetplan.profiles.plan_periods import of_period

        plan = of_period(plan, chosen).model_copy(update={"digest": plan.digest})
    workers = tuple(worker for worker in plan.workers if worker.period == chosen)
    callers = _callers(plan, known, workers, chosen)
    workers = (*workers, *callers)
    at = {(s.unit.worker, s.unit.index): s.unit.host for s in running if s.unit is not None}
    placing = _Placing(site, known, at)
    _check_counts(workers, site)
    _check_offers(workers, site, known)
    _check_names(plan.model_copy(update={"workers": (*plan.workers, *callers)}), workers)
    units: dict[str, Unit] = {}
    # Workers that the plan ties to a host come first, so that no other takes their room.
    for worker in sorted(workers, key=lambda one: one.host is None):
        loads = tuple(_load(plan, known, site, worker, load, placing.faults) for load in worker.loads)
        placing.faults += _at_one_address(loads)
        policies = _policies(plan, worker)
        for index in range(worker.count + worker.standby):
            host = placing.host_of(worker, index)
            if host is None:
                break
            unit = named(
                Unit(
                    name="", worker=worker.id, index=index, hardware=worker.hardware, target=site.hosts[host].target,
                    host=host, queue=worker.queue, standby=index >= worker.count, offer=worker.offer,
                    plan_host=worker.host, gpus=known.gpus(worker.hardware, site.hosts[host].gpus_per_worker),
                    loads=loads, policies=policies,
                )
            )  # fmt: skip
            units[unit.name] = unit
    if placing.faults:
        raise InputError(dict.fromkeys(placing.faults))
    apps = {app: _app(plan, known, app) for app in _served(plan, workers)}
    _check_outcomes(workers, apps)
    return Wanted(str(plan.digest), workers, units, apps, tuple(_notes(plan, known, chosen)))


def _period(plan: Plan, period: str | None) -> str:
    listed = [one.id for one in plan.periods]
    if period is None:
        return listed[0] if listed else "t0"
    if period not in listed:
        raise InputError.one(
            file="plan", path="$.periods", value=period, why="the plan has no such period",
            remedy=f"It has {', '.join(listed)}.",
        )  # fmt: skip
    return period


def _check_counts(workers: Sequence[Worker], site: Site) -> None:
    """Before anything is made per instance: a hostile count must cost nothing."""
    total = sum(worker.count + worker.standby for worker in workers)
    loads = max((load.instances * load.serve.concurrency for worker in workers for load in worker.loads), default=0)
    most = site.limits.most_units
    for what, count in (("workers", total), ("instances of one load", loads)):
        if count > most:
            raise InputError.one(
                file="plan", path="$.workers", value=count, why=f"{what}: more than these hosts allow ({most})",
                remedy="Plan for fewer, or raise limits.most_units in site.toml.",
            )  # fmt: skip


def _check_offers(workers: Sequence[Worker], site: Site, known: Background) -> None:
    """Where hosts say a zone or how they are bought, the profile has to say that of offers."""
    name = next((name for name, one in site.hosts.items() if one.zone is not None or one.spot is not None), None)
    offers = known.profile.offers if known.profile is not None else {}
    lost = {worker.offer: None for worker in workers if worker.offer is not None and worker.offer not in offers}
    if name is not None and lost:
        raise InputError.one(
            file="site.toml", path=f"$.hosts.{name}", value=", ".join(map(str, lost)),
            why="this host is in a zone, or for spot machines or others, and no profile says which of these offers are",
            remedy='Name the profile that the plan was made from: files = ["profile.json"].',
        )  # fmt: skip


def _callers(plan: Plan, known: Background, workers: Sequence[Worker], period: str) -> tuple[Worker, ...]:
    """A worker for each API that is called: steps that are placed, and are on no worker, are calls."""
    called: dict[str, list[Load]] = {}
    apis = known.profile.apis.keys() if known.profile is not None else frozenset()
    for app, rule in plan.dispatch.items():
        held = {load.node for worker in workers for load in worker.loads if load.app == app}
        held |= {route.node for route in plan.routing.get(app, ())}
        placed: Mapping[str, str] = getattr(rule, "placement", {})
        for node in sorted(placed.keys() - held if held or apis & set(placed.values()) else ()):
            api, knobs = placed[node], getattr(rule, "knobs", {})
            if known.call(app, node, knobs, api) is None:
                raise InputError.one(
                    file="plan", path=f"$.dispatch.{app}.placement.{node}", value=api,
                    why="no worker has this step, and no profile says that it is a call of this API",
                    remedy="Name in site.toml the profile and the SLO that the plan was made from (files).",
                )  # fmt: skip
            called.setdefault(api, []).append(Load(id=f"{api}.{app}.{node}"[:63], app=app, node=node, knobs=knobs))
    return tuple(
        Worker(id=f"calls.{api}"[:63], period=period, hardware=api, queue="per-load", loads=tuple(loads))
        for api, loads in called.items()
    )


def _called(known: Background, site: Site, worker: Worker, load: Load) -> dict[str, Any]:
    """How often an API's call that fails is made again; InputError where the load calls none, or its host cannot."""
    call = known.call(load.app or "", load.node or "", load.knobs, worker.hardware)
    if call is None:
        raise InputError.one(
            file="site.toml", path="$.models", value=load.id, why="the plan has this load on a machine, not at an API",
            remedy='Name the API in the rule of kind "api", as in machine = "acme".',
        )  # fmt: skip
    for name, host in site.hosts.items():
        kind = site.targets[host.target].kind
        if worker.hardware in host.machines and kind not in GUARDED:
            raise InputError.one(
                file="site.toml", path=f"$.hosts.{name}.machines", value=worker.hardware,
                why=f"a target of kind {kind} makes no calls, as the key is not there",
                remedy="Have a host of a local or ssh target make them.",
            )  # fmt: skip
    return call


def _check_names(plan: Plan, workers: Sequence[Worker]) -> None:
    """What is named twice, or led to and not there, would be left out without a word."""
    names = Counter([("worker", one.id) for one in workers] + [("load", one.id) for w in workers for one in w.loads])
    wrong = [("$.workers", name, f"{count} {what}s of this id") for (what, name), count in names.items() if count > 1]
    there = {load.id for worker in plan.workers for load in worker.loads}
    for app, routes in plan.routing.items():
        led_to = {load for route in routes for load in route.to}
        wrong += [(f"$.routing.{app}", load, "no worker has this load") for load in sorted(led_to - there)]
    for worker in workers:
        held = {load.variant for load in worker.loads}
        chosen: set[str | None] = {model for table in _tables(plan, worker) for model in table.models}
        wrong += [("$.policies", name, f"{worker.id} holds no such model") for name in sorted(map(str, chosen - held))]
    if wrong:
        raise InputError(Fault("plan", path, value, why, "Make the plan again.") for path, value, why in wrong)


def _check_outcomes(workers: Sequence[Worker], apps: Mapping[str, Any]) -> None:
    """What answers may come to is the same in the plan and in the profile that says what follows each."""
    faults = []
    for worker in workers:
        for load in worker.loads:
            nodes = apps[load.app]["nodes"] if load.app is not None and load.app in apps else {}
            known, stated = set(nodes.get(load.node or "", {}).get("outcomes", ())), set(load.outcomes or {})
            if known != stated:
                why = (
                    f"its answers come to {_listed(stated)}; by the profile those of step {load.node}: {_listed(known)}"
                )
                remedy = "Make the plan from the profile that site.toml names."
                faults.append(Fault("plan", f"$.workers[{worker.id}].loads.{load.id}.outcomes", "", why, remedy))
    if faults:
        raise InputError(faults)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


class _Placing:
    """Which host takes which worker instance: where it runs already, else the first with room."""

    def __init__(self, site: Site, known: Background, at: Mapping[tuple[str, int], str]) -> None:
        self.site, self.known, self.at = site, known, at
        self.taken: Counter[tuple[str, str]] = Counter()
        self.faults: list[Fault] = []

    def host_of(self, worker: Worker, index: int) -> str | None:
        fitting = [name for name in self._playing(worker) if self._sold_so(worker, name)]
        # Hosts that are for few workers come first: the others take any.
        fitting.sort(key=lambda name: not self._says(name))
        here = self.at.get((worker.id, index))
        order = [here, *(name for name in fitting if name != here)] if here in fitting else fitting
        for name in order:
            if name is not None and self._room(name, worker.hardware) > 0:
                self.taken[name, worker.hardware] += 1
                return name
        self._refuse(worker, index, fitting)
        return None

    def _playing(self, worker: Worker) -> list[str]:
        """The hosts of its hardware, and of the host that the plan names."""
        return [
            name
            for name, host in self.site.hosts.items()
            if worker.hardware in host.machines and (not worker.host or worker.host in (name, *host.plays))
        ]

    def _says(self, name: str) -> bool:
        host = self.site.hosts[name]
        return bool(host.offers) or host.zone is not None or host.spot is not None

    def _sold_so(self, worker: Worker, name: str) -> bool:
        """Whether a host is what the worker's offer sells: its zone, spot machines or others.

        Where hosts of its hardware say zones, one that says none takes no worker of a zone.
        """
        host, (zone, spot) = self.site.hosts[name], self.known.sold(worker.offer)
        if (host.offers and worker.offer not in host.offers) or (host.spot is not None and host.spot != spot):
            return False
        if zone is None or host.zone is not None:
            return zone is None or host.zone == zone
        return not any(self.site.hosts[other].zone for other in self._playing(worker))

    def _room(self, name: str, hardware: str) -> int:
        host = self.site.hosts[name]
        if isinstance(host.count, dict):
            return host.room_for(hardware) - self.taken[name, hardware]
        return host.count - sum(count for (other, _), count in self.taken.items() if other == name)

    def _refuse(self, worker: Worker, index: int, fitting: Sequence[str]) -> None:
        wish = f"{worker.count + worker.standby} of {worker.hardware}" + (f" at {worker.host}" if worker.host else "")
        playing, sold = self._playing(worker), self._offered(worker)
        wish += f" ({sold})" if sold and any(map(self._says, playing)) else ""
        if fitting:
            why = f"the hosts have room for {index} of them ({', '.join(fitting)}; other workers taken off)"
            remedy = "Raise `count` in site.toml, or plan with fewer (limits.instances of the SLO)."
        elif playing:
            why = f"no host is for {sold}: {'; '.join(map(self._said, playing))}"
            remedy = "Write `zone`, `spot` or `offers` of a host in site.toml so that one is."
        else:
            why = "no host plays that" + (f" (hosts with `plays` {worker.host})" if worker.host else "")
            remedy = f'Add "{worker.hardware}" to the machines of a host in site.toml' + (
                f', and "{worker.host}" to its `plays`.' if worker.host else "."
            )
        self.faults.append(Fault("plan", f"$.workers[{worker.id}]", wish, why, remedy))

    def _offered(self, worker: Worker) -> str:
        """A worker's offer in words."""
        zone, spot = self.known.sold(worker.offer)
        said = [f"zone {zone}" if zone else "", "spot" if spot else ""]
        return ", ".join([f"offer {worker.offer}" if worker.offer else "no offer", *filter(None, said)])

    def _said(self, name: str) -> str:
        """What a host says of offers, in words."""
        host = self.site.hosts[name]
        said = [f"offers {', '.join(host.offers)}"] if host.offers else []
        said += [f"zone {host.zone}"] if host.zone is not None else []
        said += ["spot" if host.spot else "not spot"] if host.spot is not None else []
        return f"{name} is {', '.join(said) or 'in no zone'}"


def _load(plan: Plan, known: Background, site: Site, worker: Worker, load: Load, faults: list[Fault]) -> LoadSpec:
    law, model, memory, tokens, split = None, {}, None, None, None
    cap: int | None = None
    try:
        engine = known.engine(plan, load, worker.hardware)
        if engine is not None:
            most, serve = law_of_engine(engine), load.serve
            chosen = (serve.most_tokens or most.most_tokens, serve.most_seqs or most.most_seqs)
            limited = most.limited(*chosen)
            tokens, cap = limited.as_dict(), cap_of(serve, limited)
            split = known.split(engine, load, worker.hardware)
        law = known.law(plan, load, worker.hardware)
        memory = known.gpu_mem_gib(load, worker.hardware)
        model = served_by(
            site, load, worker.hardware, law=law, table=known.table, tokens=tokens, engine=engine, split=split
        )
        if model["kind"] == "api":
            model = {**model, **_called(known, site, worker, load)}
        if engine is not None and engine.role == "prefill":
            model = {**model, "link_ms_per_token": known.link_ms_per_token(plan, load.app)}
    except InputError as error:
        faults.extend(error.faults)
    share = load.share
    return LoadSpec(
        id=load.id, app=load.app, node=load.node, variant=load.variant, at=load.at, artifact=load.artifact,
        knobs=dict(load.knobs), instances=load.instances,
        concurrency=model.get("at_once", load.serve.concurrency),
        max_batch=load.serve.max_batch, max_wait_ms=load.serve.max_wait_ms, share_gpu=share.gpu if share else None,
        share_cpu_cores=share.cpu_cores if share else None,
        gpu_mem_gib=memory, enforce=share.enforce if share else "none",
        model=model, expected=law, quality=known.quality(load), outcomes=dict(load.outcomes or {}),
        tokens=tokens, cap=cap,
    )  # fmt: skip


def _at_one_address(loads: Sequence[LoadSpec]) -> Iterator[Fault]:
    """Engines of one machine that site.toml would have at one port, or at one address."""
    seen = set[object]()
    for load in loads:
        where = load.model.get("port") or load.model.get("url") if load.tokens is not None else None
        if where is not None and where in seen:
            why, remedy = "engines of one machine have a server each", "Give each load a rule with a port of its own."
            yield Fault("site.toml", "$.models", where, f"{why}, and {load.id} would have that of another", remedy)
        seen.add(where)


def _policies(plan: Plan, worker: Worker) -> tuple[Mapping[str, Any], ...]:
    return tuple(table.model_dump(mode="json", exclude_none=True) for table in _tables(plan, worker))


def _tables(plan: Plan, worker: Worker) -> Iterator[PolicyTable]:
    return (table for listed in plan.policies.values() for table in listed if table.workers == worker.id)


def _served(plan: Plan, workers: Sequence[Worker]) -> list[str]:
    """The applications that these workers serve."""
    loads = {load.id for worker in workers for load in worker.loads}
    named_by = {load.app for worker in workers for load in worker.loads if load.app is not None}
    routed = {app for app, routes in plan.routing.items() if any(loads & set(route.to) for route in routes)}
    return sorted(named_by | routed)


def _app(plan: Plan, known: Background, app: str) -> dict[str, Any]:
    dispatch = plan.dispatch.get(app)
    rule = dispatch.model_dump(mode="json", exclude_none=True) if dispatch is not None else {"rule": "shares/1"}
    predict = {key: known.predicted(plan, key, name) for key, name in getattr(dispatch, "predict", {}).items()}
    routes = [route.model_dump(mode="json", exclude_none=True) for route in plan.routing.get(app, ())]
    return {"dispatch": rule, "predict": predict, "routes": routes, **known.app(plan, app)}


def _notes(plan: Plan, known: Background, period: str) -> Iterable[str]:
    if len(plan.periods) > 1:
        yield f"the plan has {len(plan.periods)} periods; this is {period}"
    if known.digest is not None and known.digest != plan.inputs.profile:
        yield "the plan was made from another profile than site.toml names: times and qualities may differ"
    for unserved in plan.unserved:
        yield f"{unserved.app}: {unserved.rate_qps:g} qps are left unserved ({unserved.why})"
    if known.profile is None and any(len(_nodes_of(plan, app)) > 1 for app in plan.routing):
        yield "site.toml names no profile: every step is taken to send on one query"


def _nodes_of(plan: Plan, app: str) -> set[str | None]:
    return {route.node for route in plan.routing[app]}
