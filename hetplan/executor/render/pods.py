"""What Kubernetes targets share: labels, a group's pod, its Service, periods as cron."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.names import Json, dns_name, label_value, slice_of
from hetplan.executor.render.nodes import Nodes, gpu_resource, nodes_of, same_nodes, stop_limit_s
from hetplan.executor.site import FILE, ServerModel, Site
from hetplan.executor.words import command, split_otherwise

__all__ = [
    "EDGE", "GROUP", "OFFER", "PROBE_S", "REPLICAS", "WAVES", "WHOLE", "WORKER", "amounts", "config", "container",
    "crons", "front", "http_route", "labels", "nodes_by_group", "of_images", "ours", "plan_notes", "pod", "pod_ends",
    "read_labels", "serves", "sleep_first", "spread", "thing", "volume", "wave_of", "weights", "words",
]  # fmt: skip

MANAGED = {"app.kubernetes.io/managed-by": "hetplan"}
DEPLOYMENT, GROUP, OFFER, EDGE = (f"hetplan.dev/{what}" for what in ("deployment", "group", "offer", "edge"))
REPLICAS, WORKER = "hetplan.dev/replicas", "hetplan.dev/worker"
WAVES = 4
"""A roll replaces a quarter of the pods at a time."""
AMOUNTS = ("cpu", "memory")
LOST = "unknown"
"""What somebody took off an object by hand."""
PROBE_S = 5
AWAY_S = 20
"""How long a lost node may be away before a pod of ours in front has another; Kubernetes' own default is 300 s."""
WHOLE = 1000
"""What the weights of a route sum to."""
MOST_BACKENDS = 16
"""Of one rule of an HTTPRoute."""
DAY_S, WEEK_S = 86_400.0, 604_800.0


def whose(name: str) -> dict[str, str]:
    """The labels of all that is of one deployment."""
    return {**MANAGED, DEPLOYMENT: label_value(name)}


def ours(name: str, namespace: str) -> dict[str, str]:
    """Those of what is applied, and pruned by them: not of files of another target, nor of another namespace."""
    return {**whose(name), "hetplan.dev/target": "kubernetes", "hetplan.dev/namespace": namespace}


def wave_of(count: int) -> int:
    """How many of so many pods are replaced at a time."""
    return max(math.ceil(count / WAVES), 1)


def labels(fleet: Fleet, group: Group | None = None, app: str | None = None) -> dict[str, str]:
    """Whose an object is, and which group's."""
    found = whose(fleet.name)
    if group is not None:
        found |= {GROUP: group.name, "hetplan.dev/hardware": label_value(group.hardware)}
        found |= {OFFER: label_value(group.offer)} if group.offer is not None else {}
        found |= {serves(one): "yes" for one in group.apps}
    named = app if app is not None else group.app if group is not None else None
    return found | ({"hetplan.dev/app": label_value(named)} if named is not None else {})


def serves(app: str) -> str:
    """The label of pods that answer an application's queries: a pod may answer those of several."""
    return f"serves.hetplan.dev/{label_value(app)}"


def plan_notes(fleet: Fleet, group: Group | None = None) -> dict[str, str]:
    """The plan's digest, and of a group what it costs and what its ids are in the plan."""
    found = {"hetplan.dev/plan-sha256": fleet.digest.removeprefix("sha256:")}
    if group is None:
        return found
    if group.price_per_hour is not None:
        found["hetplan.dev/price-per-hour"] = f"{group.price_per_hour * group.count / group.per_machine:.6g}"
    found |= {"hetplan.dev/model": group.model, "hetplan.dev/concurrency": str(group.concurrency)}
    told = {"hardware": group.hardware, "offer": group.offer, "loads": [dict(one.load) for one in group.members]}
    return found | {WORKER: json.dumps(told, sort_keys=True)}


def thing(
    version: str, kind: str, name: str, site: Site, marks: Mapping[str, str], notes: Mapping[str, str],
    spec: Json | None = None, **more: Any,
) -> Json:  # fmt: skip
    """An object of the API server."""
    metadata: Json = {"name": name, "namespace": site.namespace, "labels": dict(marks), "annotations": dict(notes)}
    made: Json = {"apiVersion": version, "kind": kind, "metadata": metadata}
    return {**made, **({"spec": spec} if spec is not None else {}), **more}


def nodes_by_group(fleet: Fleet, site: Site, faults: list[Fault]) -> dict[str, Nodes]:
    """The nodes of each group; what is not known, and machine types that are not told apart, are faults."""
    several = len({group.hardware for group in fleet.groups}) > 1
    found: dict[str, Nodes] = {}
    bare: dict[str, Nodes] = {}
    for group in fleet.groups:
        gpus = group.machine_gpus
        found[group.name] = nodes_of(
            group.hardware,
            site,
            faults,
            gpus=gpus,
            several=several,
            offer=group.offer,
            zone=group.zone,
            spot=group.spot,
        )
        bare[group.hardware] = nodes_of(group.hardware, site, [], gpus=gpus, several=several)
    faults.extend(same_nodes(bare))
    return found


def of_images(
    fleet: Fleet, site: Site, *, needs_uri: Container[str] = (), needs_command: bool = False
) -> Iterator[Fault]:
    """Models of which site.toml does not say how they are served."""
    members = [one for group in fleet.groups for one in group.members]
    seen = set[tuple[str, bool]]()
    for group in members:
        known, model = group.server(site), group.section(site)
        if (asked := (model, group.model in needs_uri)) in seen:
            continue
        seen.add(asked)
        if needs_command and not known.command:
            yield _missing(model, "command", "what starts its server", 'command = ["/opt/serve", "--port", "{port}"]')
        elif not needs_command and known.image is None:
            yield _missing(model, "image", "which image serves it", 'image = "registry.example/models:1.0"')
        if group.model in needs_uri and known.model_uri is None:
            yield _missing(model, "model_uri", "where it is loaded from", 'model_uri = "hf://ORG/NAME"')
    for group in members:
        given = (*group.server(site).command, *group.server(site).args)
        yield from split_otherwise(given, group.split, group.name, at=f"$.models.{group.section(site)}.args", file=FILE)


def _missing(model: str, key: str, what: str, line: str) -> Fault:
    return Fault(FILE, f"$.models.{model}.{key}", "nothing", f"nothing says {what}", f"Add [models.{model}] {line}.")


def words(group: Group, site: Site, given: Sequence[str], key: str, *, port: int | None = None) -> list[str]:
    """Words of site.toml with what the plan says of a group in place of their braces; `{port}` stays without one."""
    return command(given, group.words, at=f"$.models.{group.section(site)}.{key}", file=FILE, port=port)


def amounts(group: Group, site: Site, faults: list[Fault]) -> Json:
    """What a replica asks of its node: as much memory and as many GPUs as it may have, and cores at least."""
    machine, asked = site.machine(group.hardware), dict[str, str]()
    if group.mem_gib is not None:
        asked["memory"] = f"{math.floor(1024 * group.mem_gib)}Mi"
    if group.gpus:
        asked[gpu_resource(group.hardware, machine)] = str(group.gpus)
    elif group.gpu_fraction is not None:
        if machine.device is None:
            faults.append(
                Fault(
                    FILE,
                    f"$.machines.{group.hardware}.device",
                    f"{group.gpu_fraction:g} of a GPU",
                    f"{group.name} has a part of a GPU, and nothing says what the cluster calls it",
                    f'Add [machines.{group.hardware}] device = "nvidia.com/mig-1g.10gb" (or "nvidia.com/gpu.shared").',
                )
            )
        else:
            asked[machine.device] = "1"
    cpu = {"cpu": f"{math.floor(1000 * group.cpu_cores)}m"} if group.cpu_cores is not None else {}
    return {"requests": {**cpu, **asked}, "limits": asked} if asked or cpu else {}


def container(name: str, group: Group, site: Site, faults: list[Fault], *, watched: bool = False) -> Json:
    """The user's own image, with what the plan says of the group; one that is watched is started again when silent."""
    model = group.server(site)
    made: Json = {"name": name, "image": model.image or ""}
    for key, given in (("command", model.command), ("args", model.args)):
        if given:
            try:
                made[key] = words(group, site, given, key, port=model.port)
            except InputError as error:
                faults.extend(error.faults)
    env = environment(model)
    asked = amounts(group, site, faults)
    ready = {"httpGet": {"path": model.health, "port": "http"}, "periodSeconds": PROBE_S}
    return {
        **made,
        **({"env": env} if env else {}),
        "ports": [{"name": "http", "containerPort": model.port}],
        **({"resources": asked} if asked else {}),
        "readinessProbe": ready,
        **(_ends_when_silent(ready, group, site) if watched else {}),
        "lifecycle": sleep_first(PROBE_S),
    }


def _ends_when_silent(ready: Json, group: Group, site: Site) -> Json:
    """A server that has started, and does not answer for longer than any query takes, is started again."""
    wanted_s = group.server(site).alive_s
    if not wanted_s:
        return {}
    silent_s = max(wanted_s, 3.0 * max(group.p99_ms or 0.0, group.answer_ms or 0.0) / 1000.0)
    return {
        "startupProbe": {**ready, "failureThreshold": math.ceil(site.cluster.start_s / PROBE_S)},
        "livenessProbe": {**ready, "failureThreshold": math.ceil(silent_s / PROBE_S), "timeoutSeconds": PROBE_S},
    }


def pod(group: Group, site: Site, nodes: Nodes, faults: list[Fault], name: str | None = None) -> Json:
    """The pod of a replica, on the nodes of its machine type. Where a platform names its container, that watches it."""
    servers = _servers(group, site, faults) if name is None else [container(name, group, site, faults)]
    return {**nodes.pod(), **pod_ends([group], site), **_pulls(site), "containers": servers}


def _servers(group: Group, site: Site, faults: list[Fault]) -> list[Json]:
    """A container for each server of a pod: one, or where models take turns, as many as site.toml tells apart."""
    name = "model"
    by_server: dict[str, list[Group]] = {}
    for one in group.members:
        bare = container("", replace(one, cpu_cores=None, mem_gib=None, gpus=0, gpu_fraction=None), site, faults)
        by_server.setdefault(json.dumps(bare, sort_keys=True), []).append(one)
    servers = list(by_server.values())
    if len(servers) == 1:
        whole = replace(
            group.members[0], cpu_cores=group.cpu_cores, mem_gib=group.mem_gib, gpus=group.gpus,
            gpu_fraction=group.gpu_fraction,
        )  # fmt: skip
        return [container(name, whole, site, faults, watched=True)]
    if group.gpus:
        why = f"the models of {group.name} take turns on the GPUs of a machine, which one container has"
        remedy = "Say the same image, port, command and health of all of them, of a server that holds them all."
        faults.append(Fault(FILE, "$.models", ", ".join(one.model for one in group.members), why, remedy))
    ports = [one.server(site).port for one, *_ in servers]
    if len(set(ports)) < len(ports):
        why = f"servers of one pod of {group.name} would listen on the same port"
        remedy = "Write a port for each, or say the same of all models that one server holds."
        faults.append(Fault(FILE, "$.models", ", ".join(one.model for one, *_ in servers), why, remedy))
    made = []
    for number, (first, *others) in enumerate(servers):
        cores = [one.cpu_cores for one in (first, *others) if one.cpu_cores is not None]
        gib = [one.mem_gib for one in (first, *others) if one.mem_gib is not None]
        part = replace(
            first, cpu_cores=sum(cores) if cores else None, mem_gib=sum(gib) if gib else None, gpus=0, gpu_fraction=None
        )
        held = container(dns_name(name, first.model), part, site, faults, watched=True)
        # Names of ports are the pod's.
        made.append(_with_port(held, "http" if not number else f"http-{number}"))
    return made


def _with_port(made: Json, port: str) -> Json:
    """A container whose port, and the probes at it, have this name."""
    probes = {
        key: {**probe, "httpGet": {**probe["httpGet"], "port": port}}
        for key, probe in made.items() if key.endswith("Probe")
    }  # fmt: skip
    return {**made, **probes, "ports": [{**made["ports"][0], "name": port}]}


def _pulls(site: Site) -> Json:
    """By which secrets the images of a pod are pulled."""
    secrets = [{"name": one} for one in site.image_pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}


def sleep_first(seconds: int) -> Json:
    """A container goes on for so long after its pod was told to end: until nobody sends queries to it any more."""
    return {"preStop": {"sleep": {"seconds": seconds}}}


def spread(chosen: Json) -> Json:
    """Pods of one Deployment on several nodes, where there are."""
    how = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**how, "labelSelector": chosen}]}


def config(name: str, file: str, text: str, site: Site, marks: Mapping[str, str], notes: Mapping[str, str]) -> Json:
    """A file for pods. Its name says what is in it, so that other content is another pod, and a pod that comes back of
    an earlier one finds what it was made for.
    """
    named = f"{name}-{sha256(text.encode()).hexdigest()[:10]}"
    return thing("v1", "ConfigMap", named, site, marks, notes, immutable=True, data={file: text})


def volume(held: Json) -> Json:
    """Where containers of a pod find such a file."""
    return {"volumes": [{"name": "config", "configMap": {"name": held["metadata"]["name"]}}]}


def front(
    fleet: Fleet, groups: Sequence[Group], site: Site, names: tuple[str, str], marks: Mapping[str, str],
    passes_on: Json, file: tuple[str, str], *, replicas: int = 1,
) -> Iterator[Json]:  # fmt: skip
    """A container that passes queries on to groups: its file, its Deployment, its Service (`names` of the last two).

    Its pod ends as late as what it waits for, and has a place elsewhere soon after its node is lost.
    """
    notes, (name, service) = plan_notes(fleet), names
    mine = {EDGE: name}
    held = config(name, *file, site, marks, notes)
    yield held
    lost = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY_S}
        for what in ("not-ready", "unreachable")
    ]
    asked = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    made: Json = {
        **pod_ends(groups, site), **_pulls(site), **volume(held), "automountServiceAccountToken": False,
        "tolerations": lost, "containers": [{**passes_on, "resources": asked}],
    }  # fmt: skip
    chosen = {"matchLabels": mine}
    if replicas > 1:
        made |= spread(chosen)
        budget = {"maxUnavailable": 1, "selector": chosen}
        yield thing("policy/v1", "PodDisruptionBudget", name, site, marks, notes, budget)
    template = {"metadata": {"labels": {**marks, **mine}}, "spec": made}
    spec = {"replicas": replicas, "selector": chosen, "template": template}
    yield thing("apps/v1", "Deployment", name, site, {**marks, **mine}, notes, spec)
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    yield thing("v1", "Service", service, site, marks, notes, {"selector": mine, "ports": ports})


def http_route(fleet: Fleet, site: Site, app: Application, backends: Sequence[Json], faults: list[Fault]) -> Json:
    """The queries of an application, split by the weights of its backends; of several, each has a path of its own."""
    if site.gateway is None:
        why = f"nothing says at which Gateway the queries of {app.name} arrive, to be split between its groups"
        faults.append(Fault(FILE, "$.gateway", "nothing", why, 'Add gateway = "NAME" of your Gateway.'))
    if len(backends) > MOST_BACKENDS:
        why = f"{app.name} has {len(backends)} groups, and a rule of an HTTPRoute has {MOST_BACKENDS} at most"
        faults.append(Fault("plan", "$.workers", app.name, why, "Plan with fewer machine types or offers."))
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": site.gateway}
    path = "/" if len(fleet.apps) == 1 else f"/{app.dns}"
    rule: Json = {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": list(backends)}
    if path != "/":
        whole = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
        rule["filters"] = [{"type": "URLRewrite", "urlRewrite": whole}]
    spec = {"parentRefs": [parent], "rules": [rule]}
    marks, notes = labels(fleet, app=app.name), plan_notes(fleet)
    return thing("gateway.networking.k8s.io/v1", "HTTPRoute", app.dns, site, marks, notes, spec)


def weights(app: Application, groups: Sequence[Group]) -> dict[str, int]:
    """The weights of a split between groups; by how many replicas they have where the plan states no shares."""
    shares = {group.name: group.share.get(app.name, 0.0) for group in groups}
    if not sum(shares.values()):
        shares = {group.name: float(group.count) for group in groups}
    return slice_of(shares, WHOLE)


def environment(model: ServerModel) -> list[Json]:
    """Variables, and secrets by the name under which the platform keeps them."""
    plain: list[Json] = [{"name": name, "value": value} for name, value in sorted(model.env.items())]
    return plain + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}
        for name, ref in sorted(model.secret.items())
    ]


def pod_ends(groups: Sequence[Group], site: Site, slept_s: int = PROBE_S) -> Json:
    """How long a pod may take to end that serves these groups: what it began, after the longest sleep of its
    containers (the API server refuses a pod that would sleep for longer than that).
    """

    def stop_s(group: Group) -> float:
        wanted = max(one.server(site).stop_s for one in group.members) + slept_s
        limit = stop_limit_s(site, spot=group.spot)
        return wanted if limit is None else min(wanted, limit)

    return {"terminationGracePeriodSeconds": math.ceil(max(map(stop_s, groups)))}


def crons(fleet: Fleet, group: Group, timezone: str) -> list[dict[str, str]]:
    """When a group has more replicas than its fewest: from ahead of a period to its end, as KEDA's cron has it."""
    end = fleet.periods[-1][1]
    if end not in (DAY_S, WEEK_S):
        raise InputError.one(
            file="plan", path="$.periods", value=end if end is not None else "no end",
            why="cron repeats by the day or by the week, and these periods last otherwise",
            remedy="Plan for a horizon of a day or of a week; or render one period: --set period=ID.",
        )  # fmt: skip
    ends = [start for start, _ in group.schedule[1:]] + [end]
    ahead = group.startup_s + group.load_s
    return [
        {
            "timezone": timezone, "start": cron(start - ahead, end), "end": cron(until, end),
            "desiredReplicas": str(count * group.per_machine),
        }
        for (start, count), until in zip(group.schedule, ends, strict=True)
        if count * group.per_machine > group.least
    ]  # fmt: skip


def cron(moment_s: float, end_s: float) -> str:
    """A moment from the start of the first period, by the day, or by the week from Monday on.

    >>> cron(7.5 * 3600, DAY_S), cron(-600, DAY_S), cron(30 * 3600, WEEK_S)
    ('30 7 * * *', '50 23 * * *', '0 6 * * 2')
    """
    minutes = int(moment_s % end_s // 60)
    day = "*" if end_s == DAY_S else str((1 + minutes // 1440) % 7)
    return f"{minutes % 60} {minutes // 60 % 24} * * {day}"


def read_labels(one: Mapping[str, Any], replicas: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A group as an object of the API server says it."""
    marks, notes = one["metadata"]["labels"], one["metadata"].get("annotations", {})
    limits = pod["containers"][0].get("resources", {}).get("limits", {})
    gpus = sum(int(count) for name, count in limits.items() if name not in AMOUNTS)
    return {
        "name": marks[GROUP], "app": marks.get("hetplan.dev/app", LOST), "model": notes.get("hetplan.dev/model", LOST),
        "hardware": marks.get("hetplan.dev/hardware", LOST), "replicas": replicas, "gpus": gpus,
        "concurrency": int(notes.get("hetplan.dev/concurrency", 1)),
    }  # fmt: skip
