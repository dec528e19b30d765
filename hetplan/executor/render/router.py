"""hetplan's router in a cluster, for rules that look at each query: its table, its pods, a worker beside each model.

The pod of a replica holds the user's server and a worker of hetplan's, which the router is linked to and which asks the
server on localhost. The router finds the pods of a group by the name of its headless Service.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.background import Background
from hetplan.executor.hosts_file import HostsFile, RouterSettings, read_hosts
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.names import CannotRender, Json, dns_name
from hetplan.executor.render.pods import PROBE_S, config, front, labels, plan_notes, pod_ends, sleep_first, volume
from hetplan.executor.render.rules import HETPLAN
from hetplan.executor.render.site import FILE, Site
from hetplan.executor.routing_table import routing_table
from hetplan.executor.secrets import TOKEN
from hetplan.executor.units import Endpoint, Unit
from hetplan.executor.wanted import wanted
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.workers import Load, Worker

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
    faults = list(_faults(fleet, plan, inputs, site))
    if faults:
        raise CannotRender.of(faults)
    single = plan.model_copy(update={"workers": tuple(_replicas(plan))})
    measured = inputs if inputs.measured is not None else None
    known = Background(inputs.profile, inputs.slo, inputs.digests.get("profile"), measured)
    try:
        made = wanted(single, _hosts(single, fleet, site), background=known)
    except InputError as error:
        raise CannotRender.of(_of_site(fault, single) for fault in error.faults) from None
    group_of = {load: group for group in fleet.groups for load in group.loads}
    pairs, held = [], dict[str, dict[str, Any]]()
    for unit in made.units.values():
        (load,) = unit.loads
        group = group_of[load.id]
        if (called := site.model(group.model).name) is not None:
            load = replace(load, model={**load.model, "model": called})
        pairs.append((unit, Endpoint(_behind(group, site), site.router.worker_port)))
        held.setdefault(group.name, {}).setdefault(load.id, load)
    table = routing_table(made.apps, pairs, RouterSettings(bind="0.0.0.0", port=site.router.port))
    workers = {}
    for group in fleet.groups:
        unit = Unit(
            group.name, group.name, 0, group.hardware, _TARGET, _TARGET, queue="per-load",
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
    if router.token is None and not router.open:
        why = "router and workers are reached by all pods of the cluster, and no token guards them"
        line = 'Add [router] token = {name = "SECRET", key = "KEY"}, or open = true'
        yield Fault(FILE, "$.router.token", "nothing", why, f"{line} if everyone there may use them.")
    for model in dict.fromkeys(group.model for group in fleet.groups):
        if site.model(model).port == router.worker_port:
            why = "its server and the worker beside it would listen on the same port"
            yield Fault(FILE, f"$.models.{model}.port", str(router.worker_port), why, "Set [router] worker_port.")
    if len(plan.periods) > 1:
        why = "the router follows one table, and the plan's changes by the hour"
        yield Fault("plan", "$.periods", str(len(plan.periods)), why, "Add --set period=ID.")
    for worker in plan.workers:
        if worker.queue == "shared" and len(worker.loads) > 1:
            why = "its models take turns on one machine, and pods share none"
            way = "hetplan apply --hosts keeps them together."
            yield Fault("plan", f"$.workers[{worker.id}].queue", worker.queue, why, way)
    for app, rule in plan.dispatch.items():
        called = set(getattr(rule, "placement", {}).values()) & set(inputs.profile.apis)
        if called:
            why = "a step of it calls an API of others, whose key no pod has"
            yield Fault("plan", f"$.dispatch.{app}", ", ".join(sorted(called)), why, "Use hetplan apply --hosts.")
    for group in fleet.groups:
        for what, has, takes in (("cpu_cores", group.cpu_cores, WORKER_CORES), ("mem_gib", group.mem_gib, WORKER_GIB)):
            if has is not None and has <= takes:
                why = f"the worker beside it takes {takes:g} of it"
                yield Fault("plan", f"$.workers.{what}", f"{group.name}: {has:g}", why, "Plan with larger shares.")


def _replicas(plan: Plan) -> Iterator[Worker]:
    """The plan's workers with one replica each, as pods are."""
    for worker in plan.workers:
        for number, load in enumerate(worker.loads):
            name = worker.id if len(worker.loads) == 1 else f"{worker.id[:60]}.{number}"
            yield worker.model_copy(
                update={
                    "id": name, "count": worker.count * load.instances, "standby": worker.standby * load.instances,
                    "loads": (load.model_copy(update={"instances": 1}),),
                }
            )  # fmt: skip


def _hosts(plan: Plan, fleet: Fleet, site: Site) -> HostsFile:
    """The cluster as hosts that take all of the plan's workers; each model's server runs beside its worker."""
    names = list(dict.fromkeys(worker.hardware for worker in plan.workers))
    plays = sorted({worker.host for worker in plan.workers if worker.host is not None})
    text = {load for group in fleet.groups if group.makes_text for load in group.loads}
    models = {}
    for worker in plan.workers:
        (load,) = worker.loads
        name = _model(load)
        model = site.model(name)
        fits = {"variant": load.variant} if load.variant is not None else {"node": load.node} if load.node else {}
        url = f"http://127.0.0.1:{model.port}"
        asked = {"url": url, "ready": model.health, **fits}
        http = {
            "kind": "http", **asked, "protocol": model.protocol,
            **({"route": model.route} if model.route is not None else {}),
            **({"outcome": model.outcome} if model.outcome is not None else {}),
        }  # fmt: skip
        models[name] = {"kind": "openai", **asked} if load.id in text else http
    return read_hosts(
        {
            "targets": {_TARGET: {"kind": _TARGET}},
            "hosts": {
                name: {"target": _TARGET, "hardware": [name], "plays": plays, "machines": _MOST_UNITS} for name in names
            },
            "limits": {"most_units": _MOST_UNITS},
            "models": list(models.values()),
        }
    )


def _of_site(fault: Fault, plan: Plan) -> Fault:
    """A fault of hosts as one of site.toml, which stands for them here."""
    names = list(dict.fromkeys(_model(load) for worker in plan.workers for load in worker.loads))
    path = re.sub(r"^\$\.models\[(\d+)\]", lambda found: f"$.models.{names[int(found[1])]}", fault.path)
    return replace(fault, file=FILE, path=path) if fault.file == "hosts.toml" else fault


def _model(load: Load) -> str:
    """What site.toml calls what serves a load."""
    return load.variant or load.node or load.id


def room_for_worker(group: Group) -> Group:
    """What is left to the user's server of a replica's machine beside the worker."""
    cores = None if group.cpu_cores is None else group.cpu_cores - WORKER_CORES
    gib = None if group.mem_gib is None else group.mem_gib - WORKER_GIB
    return replace(group, cpu_cores=cores, mem_gib=gib)


def beside(pod: Json, fleet: Fleet, group: Group, site: Site) -> Json:
    """The pod of a replica with the worker beside the user's server, which ends after it."""
    server = {**pod["containers"][0], "lifecycle": sleep_first(2 * PROBE_S)}
    asked = {"cpu": f"{round(1000 * WORKER_CORES)}m", "memory": f"{round(1024 * WORKER_GIB)}Mi"}
    worker = _container("worker", site, site.router.worker_port, "link")
    worker["resources"] = {"requests": asked, "limits": {"memory": "512Mi"}}
    ends = pod_ends([group], site, 2 * PROBE_S)
    return {**pod, **ends, "containers": [server, worker], **volume(_held(fleet, group, site))}


def _held(fleet: Fleet, group: Group, site: Site) -> Json:
    """What the workers of a group hold."""
    text = (fleet.router or {})[group.name]
    return config(f"{group.name}-worker", CONFIG, text, site, labels(fleet, group), plan_notes(fleet))


def _container(part: str, site: Site, port: int, name: str) -> Json:
    """A container of hetplan's image; the token comes from where the platform keeps it."""
    token, made = site.router.token, dict[str, Any]()
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
    alive = _probe("/livez", "http")
    container["livenessProbe"] = alive
    container["startupProbe"] = {**alive, "failureThreshold": math.ceil(site.cluster.start_s / PROBE_S)}
    by_shares = all(app.rule in _BY_SHARES for app in fleet.apps.values())
    table = (CONFIG, (fleet.router or {})[""])
    yield from front(
        fleet, fleet.groups, site, (name, name), labels(fleet), container, table, replicas=2 if by_shares else 1
    )
