"""hetplan's router in a cluster, for rules that look at each query: its table, its pods, a worker beside each model.

The pod of a replica holds the user's server and a worker of hetplan's, which the router is linked to and which asks the
server on localhost. The router finds the pods of a group by the name of its headless Service.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.background import Background
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.names import CannotRender, Json, dns_name, marked_name
from hetplan.executor.render.nodes import allocatable
from hetplan.executor.render.pods import PROBE_S, config, front, labels, plan_notes, pod_ends, sleep_first, volume
from hetplan.executor.render.rules import HETPLAN
from hetplan.executor.routing_table import routing_table
from hetplan.executor.secrets import TOKEN
from hetplan.executor.site import FILE, Host, ServerModel, Site, TargetEntry, TimeLimits, as_server
from hetplan.executor.units import Endpoint, Unit
from hetplan.executor.wanted import wanted
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.workers import Worker

__all__ = ["beside", "objects", "room_for_worker", "routed"]

MOUNTED_AT = "/etc/hetplan"
CONFIG = "config.json"
LARGEST_BYTES = 1024 * 1024
"""The most that Kubernetes takes in one ConfigMap."""
WORKER_CORES, WORKER_GIB = 0.1, 0.125
"""What a worker asks of its node; its share of the work is to pass queries on."""
_MOST_UNITS = 100_000
_BY_SHARES = frozenset({"shares/1", "most-accurate-first/1"})
"""Rules by which routers need not know of each other; every other keeps its queue in the router."""


def routed(fleet: Fleet, plan: Plan, inputs: Inputs, site: Site) -> Fleet:
    """The fleet with the table of hetplan's router and what each group's worker holds, where that router is asked for;
    `CannotRender` with every reason why it cannot be.
    """
    if HETPLAN not in fleet.rules.values() or not all(group.loads for group in fleet.groups):
        return fleet  # a group without loads was refused before
    faults = list[Fault]()
    fleet = replace(fleet, groups=tuple(_with_turns(fleet.groups, plan, inputs, site, faults)))
    faults += _faults(fleet, plan, inputs, site)
    if faults:
        raise CannotRender.of(faults)
    single = plan.model_copy(update={"workers": tuple(_replicas(plan))})
    measured = inputs if inputs.measured is not None else None
    known = Background(inputs.profile, inputs.slo, inputs.digests.get("profile"), measured)
    try:
        made = wanted(single, _as_hosts(single, site), background=known)
    except InputError as error:
        raise CannotRender.of(error.faults) from None
    group_of = {load: group for group in fleet.groups for load in group.loads}
    pairs, held, turns = [], dict[str, dict[str, Any]](), dict[str, Unit]()
    for unit in made.units.values():
        group = group_of[unit.loads[0].id]
        pairs.append((unit, Endpoint(_behind(group, site), site.router.worker_port)))
        if group.turns:
            turns[group.name] = unit
        for load in unit.loads:
            held.setdefault(group.name, {}).setdefault(load.id, load)
    table = routing_table(made.apps, pairs, site.router.model_copy(update={"bind": "0.0.0.0"}))
    workers = {}
    for group in fleet.groups:
        one = turns.get(group.name)
        unit = Unit(
            group.name, group.name, 0, group.hardware, _TARGET, _TARGET,
            queue="per-load" if one is None else "shared", policies=() if one is None else one.policies,
            loads=tuple(held[group.name].values()),
        )  # fmt: skip
        workers[group.name] = _written(
            {"content": unit.content, "group": _behind(group, site), "bind": "0.0.0.0",
             "port": site.router.worker_port, "cores": [], "unit": unit.as_dict()}
        )  # fmt: skip
    texts = {"": _written(table), **workers}
    large = [f"{len(text)} bytes" for text in texts.values() if len(text) > LARGEST_BYTES]
    if large:
        why = f"a ConfigMap holds {LARGEST_BYTES} bytes"
        raise CannotRender.one(file="plan", value=large[0], why=why, remedy="Plan with fewer applications.")
    return replace(fleet, router=texts, router_image=site.router.image)


_TARGET = "cluster"


def _behind(group: Group, site: Site) -> str:
    """The name behind which all pods of a group are."""
    return f"{group.name}.{site.namespace}.svc"


def _written(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _faults(fleet: Fleet, plan: Plan, inputs: Inputs, site: Site) -> Iterator[Fault]:
    """What a router in a cluster does not know or cannot do."""
    router = site.router
    if router.image is None:
        why, line = "nothing says which image holds hetplan", 'image = "registry.example/hetplan:1.0"'
        yield Fault(FILE, "$.router.image", "nothing", why, f"Add [router] {line}.")
    if site.security.token_secret is None and not site.security.open:
        why = "router and workers are reached by all pods of the cluster, and no token guards them"
        line = 'Add [security] token_secret = {name = "SECRET", key = "KEY"}, or open = true'
        yield Fault(FILE, "$.security", "nothing", why, f"{line} if everyone there may use them.")
    members = [one for group in fleet.groups for one in group.members]
    for model, server in {one.section(site): one.server(site) for one in members}.items():
        if server.port == router.worker_port:
            why = "its server and the worker beside it would listen on the same port"
            yield Fault(FILE, f"$.models.{model}.port", str(router.worker_port), why, "Set [router] worker_port.")
    for key, port in (("port", router.port), ("worker_port", router.worker_port)):
        if not port:
            yield Fault(FILE, f"$.router.{key}", "0", "a Service names the ports of pods", "Write a port above 0.")
    if len(plan.periods) > 1:
        why = "the router follows one table, and the plan's changes by the hour"
        yield Fault("plan", "$.periods", str(len(plan.periods)), why, "Add --set period=ID.")
    for app, rule in plan.dispatch.items():
        called = set(getattr(rule, "placement", {}).values()) & set(inputs.profile.apis)
        if called:
            why = "a step of it calls an API of others, whose key no pod has"
            yield Fault("plan", f"$.dispatch.{app}", ", ".join(sorted(called)), why, "Use hetplan apply on hosts.")
    for group in fleet.groups:
        for what, has, takes in (("cpu_cores", group.cpu_cores, WORKER_CORES), ("mem_gib", group.mem_gib, WORKER_GIB)):
            if has is not None and has <= takes:
                why = f"the worker beside it takes {takes:g} of it"
                yield Fault("plan", f"$.workers.{what}", f"{group.name}: {has:g}", why, "Plan with larger shares.")


def _take_turns(worker: Worker) -> bool:
    """Whether the models of a worker share its queue, and its machine in turns."""
    return worker.queue == "shared" and len(worker.loads) > 1


def _with_turns(
    groups: Sequence[Group], plan: Plan, inputs: Inputs, site: Site, faults: list[Fault]
) -> Iterator[Group]:
    """The groups, with one in the place of those whose models take turns on the machines of a worker.

    Its name holds its loads: a router that knows others never takes its pods for the ones that it knows.
    """
    left = {load: group for group in groups for load in group.loads}
    taken, made = {group.name: 0 for group in groups}, []
    for worker in filter(_take_turns, plan.workers):
        count = worker.count + worker.standby
        members = [replace(left[load.id], loads=(load.id,)) for load in worker.loads]
        for one in {left[load.id].name for load in worker.loads}:
            taken[one] += count
        first, which = members[0], f"$.workers[{worker.id}]"
        if any(load.instances > 1 or load.share is not None for load in worker.loads) or any(
            one.makes_text or one.machines_per_worker > 1 for one in members
        ):
            why = "its models take turns on the machine, and have parts of it, or make text, too"
            faults.append(Fault("plan", which, worker.id, why, "Use hetplan apply on hosts."))
        apps = tuple(dict.fromkeys(app for one in members for app in one.apps))
        app = first.app if all(one.app == first.app for one in members) else "shared"
        name = marked_name(app, "turns", first.hardware, distinct_by=" ".join(load.id for load in worker.loads))
        provides = inputs.profile.hardware[worker.hardware].provides
        cores, gib = allocatable(site.machine(worker.hardware), provides, site)
        parts = _parts(members, cores)
        members = [replace(one, per_machine=1, cpu_cores=part) for one, part in zip(members, parts, strict=True)]
        memory = [one.mem_gib for one in members if one.mem_gib is not None]
        if gib is not None and sum(memory) > gib + 1e-9:
            why = f"its models together need more mem_gib than a node offers pods ({gib:g})"
            faults.append(Fault("plan", which, f"{sum(memory):g}", why, "Plan with larger machines."))
        asked = [one.cpu_cores for one in members if one.cpu_cores is not None]
        made.append(
            replace(
                first, name=name, app=app, apps=apps, model="+".join(one.model for one in members),
                loads=tuple(load.id for load in worker.loads), schedule=((first.schedule[0][0], count),),
                per_machine=1, gpus=first.machine_gpus, gpu_fraction=None, cpu_cores=sum(asked) if asked else None,
                mem_gib=sum(memory) if memory else None, turns=tuple(members),
                price_per_hour=_sum_of([one.price_per_hour for one in members]),
            )
        )  # fmt: skip
    turning = {load.id for worker in filter(_take_turns, plan.workers) for load in worker.loads}
    for group in groups:
        start, count = group.schedule[0]
        loads = tuple(load for load in group.loads if load not in turning)
        if loads:
            yield replace(group, loads=loads, schedule=((start, count - taken[group.name]), *group.schedule[1:]))
    yield from made


def _parts(members: Sequence[Group], cores: float | None) -> list[float | None]:
    """Cores of each model's server: what they ask for, less where all of them together exceed the machine."""
    asked = [one.cpu_cores for one in members]
    total = sum(one for one in asked if one is not None)
    fit = min(cores / total, 1.0) if cores is not None and total else 1.0
    return [None if one is None else one * fit for one in asked]


def _sum_of(prices: Sequence[float | None]) -> float | None:
    known = [one for one in prices if one is not None]
    return sum(known) if len(known) == len(prices) else None


def _replicas(plan: Plan) -> Iterator[Worker]:
    """The plan's workers with one replica each, as pods are; models that take turns stay together."""
    for worker in plan.workers:
        if _take_turns(worker):
            yield worker
            continue
        for number, load in enumerate(worker.loads):
            name = worker.id if len(worker.loads) == 1 else f"{worker.id[:60]}.{number}"
            yield worker.model_copy(
                update={
                    "id": name, "count": worker.count * load.instances, "standby": worker.standby * load.instances,
                    "loads": (load.model_copy(update={"instances": 1}),),
                }
            )  # fmt: skip


def _as_hosts(plan: Plan, site: Site) -> Site:
    """The cluster as hosts that take all of the plan's workers; each model's server runs beside its worker."""
    names = dict.fromkeys(worker.hardware for worker in plan.workers)
    plays = tuple(sorted({worker.host for worker in plan.workers if worker.host is not None}))
    host = Host(target=_TARGET, machines=tuple(names), plays=plays, count=_MOST_UNITS)
    return site.model_copy(
        update={
            "targets": {_TARGET: TargetEntry(kind=_TARGET)}, "hosts": {_TARGET: host},
            "limits": TimeLimits(most_units=_MOST_UNITS),
            "models": {name: _beside_worker(as_server(rule)) for name, rule in {"*": None, **site.models}.items()},
        }
    )  # fmt: skip


def _beside_worker(model: ServerModel) -> ServerModel:
    """The server as its worker finds it: it runs already, in a container of its own."""
    asked = {"url": f"http://127.0.0.1:{model.port}", "port": 0}
    return model.model_copy(update={**asked, "command": (), "args": (), "env": {}, "secret": {}})


def room_for_worker(group: Group) -> Group:
    """What is left to the user's servers of a replica's machine beside the worker."""

    def less(one: Group) -> Group:
        parts = [
            None if has is None or whole is None else has - takes * has / whole
            for has, whole, takes in (
                (one.cpu_cores, group.cpu_cores, WORKER_CORES), (one.mem_gib, group.mem_gib, WORKER_GIB)
            )
        ]  # fmt: skip
        return replace(one, cpu_cores=parts[0], mem_gib=parts[1])

    return replace(less(group), turns=tuple(map(less, group.turns)))


def beside(pod: Json, fleet: Fleet, group: Group, site: Site) -> Json:
    """The pod of a replica with the worker beside the user's servers, which end after it."""
    servers = [{**one, "lifecycle": sleep_first(2 * PROBE_S)} for one in pod["containers"]]
    asked = {"cpu": f"{round(1000 * WORKER_CORES)}m", "memory": f"{round(1024 * WORKER_GIB)}Mi"}
    worker = _container("worker", site, site.router.worker_port, "link")
    worker["resources"] = {"requests": asked, "limits": {"memory": "512Mi"}}
    ends = pod_ends([group], site, 2 * PROBE_S)
    return {**pod, **ends, "containers": [*servers, worker], **volume(_held(fleet, group, site))}


def _held(fleet: Fleet, group: Group, site: Site) -> Json:
    """What the workers of a group hold."""
    text = (fleet.router or {})[group.name]
    return config(f"{group.name}-worker", CONFIG, text, site, labels(fleet, group), plan_notes(fleet))


def _container(part: str, site: Site, port: int, name: str) -> Json:
    """A container of hetplan's image; the token comes from where the platform keeps it."""
    token, made, alive = site.security.token_secret, dict[str, Any](), _probe("/livez", name)
    if token is not None:
        ref = {"name": token.name, "key": token.key}
        made["env"] = [{"name": TOKEN, "valueFrom": {"secretKeyRef": ref}}]
    return {
        "name": f"hetplan-{part}",
        "image": site.router.image or "",
        "command": ["python", "-m", "hetplan.executor.serving.pod", part, f"{MOUNTED_AT}/{CONFIG}"],
        **made,
        "ports": [{"name": name, "containerPort": port}],
        "readinessProbe": _probe("/healthz", name),
        "livenessProbe": alive,
        "startupProbe": {**alive, "failureThreshold": math.ceil(site.cluster.start_s / PROBE_S)},
        "lifecycle": sleep_first(PROBE_S),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "config", "mountPath": MOUNTED_AT, "readOnly": True}],
    }


def _probe(path: str, port: str) -> Json:
    """One that waits as long as its period: whoever is busy answers later, and is not gone."""
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": PROBE_S, "timeoutSeconds": PROBE_S}


def objects(fleet: Fleet, site: Site) -> Iterator[Json]:
    """What the workers of each group hold, and the router with its table and its Service."""
    for group in fleet.groups:
        yield _held(fleet, group, site)
    name = dns_name(fleet.name, "router", taken=[app.dns for app in fleet.apps.values()])
    container = _container("router", site, site.router.port, "http")
    by_shares = all(app.rule in _BY_SHARES for app in fleet.apps.values())
    table = (CONFIG, (fleet.router or {})[""])
    yield from front(
        fleet, fleet.groups, site, (name, name), labels(fleet), container, table, replicas=2 if by_shares else 1
    )
