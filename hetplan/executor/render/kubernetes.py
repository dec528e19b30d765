"""Kubernetes: a Deployment per group, a Service per application, and routes with weights where a Gateway is named.

Periods become KEDA's cron triggers. With rule weighted-least or fewest-requests the queries go through a Deployment of
the stock HAProxy image. `nodes=karpenter` adds a NodePool per machine type and way to buy it, `quota=kueue` the plan's
counts as quotas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render import haproxy
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.names import CannotRender, Json, dns_name, documents, marked_name, objects_of, slice_of
from hetplan.executor.render.nodes import Nodes, gpu_resource
from hetplan.executor.render.pods import (
    GROUP,
    PROBE_S,
    REPLICAS,
    WAVES,
    WHOLE,
    crons,
    front,
    http_route,
    labels,
    nodes_by_group,
    of_images,
    ours,
    plan_notes,
    pod,
    read_labels,
    serves,
    sleep_first,
    spread,
    thing,
    wave_of,
    weights,
)
from hetplan.executor.render.router import beside, objects, room_for_worker
from hetplan.executor.render.rules import HETPLAN, OWN, elsewhere
from hetplan.executor.site import Site

__all__ = ["FILES", "deployments", "read", "render"]

FILES = ("kubernetes.yaml", "nodes.yaml", "quota.yaml")


def render(fleet: Fleet, site: Site, *, nodes: str | None = None, quota: str | None = None) -> dict[str, str]:
    """The files of a folder for `kubectl apply -f`."""
    faults = list(of_images(fleet, site))
    places = nodes_by_group(fleet, site, faults)
    found = list(deployments(fleet, site, fleet.groups, places, faults))
    found += _budgets(fleet, site)
    if fleet.router is not None:
        found += [*_named(fleet, site, fleet.groups), *objects(fleet, site)]
    for app in fleet.apps.values():
        found += _front(fleet, site, app, faults)
    if len(fleet.periods) > 1:
        found += [_scaled(fleet, site, group) for group in fleet.groups if group.most > group.least]
    if faults:
        raise CannotRender.of(faults)
    files = {"kubernetes.yaml": found}
    if nodes == "karpenter":
        files["nodes.yaml"] = list(_pools(fleet, site, places))
    if quota == "kueue":
        files["quota.yaml"] = list(_quota(fleet, site))
    marks = ours(fleet.name, site.namespace)
    return {file: documents([_marked(one, marks) for one in made], fleet.head) for file, made in files.items()}


def _marked(one: Json, marks: Mapping[str, str]) -> Json:
    """The object, and pods that are made by it, with these labels too."""
    made = {**one, "metadata": {**one["metadata"], "labels": {**one["metadata"]["labels"], **marks}}}
    if one["kind"] == "Deployment":
        made["spec"] = {**one["spec"], "template": _marked({"kind": "Pod", **one["spec"]["template"]}, marks)}
        del made["spec"]["template"]["kind"]
    return made


def deployments(
    fleet: Fleet, site: Site, groups: Sequence[Group], places: Mapping[str, Nodes], faults: list[Fault]
) -> Iterator[Json]:
    """A Deployment per group."""
    for group in groups:
        if group.machines_per_worker > 1:
            why = f"a replica of {group.name} takes {group.machines_per_worker} machines"
            faults.append(Fault("plan", "$.workers", group.model, why, elsewhere(fleet)))
        marks = labels(fleet, group)
        chosen = {"matchLabels": {GROUP: group.name, "hetplan.dev/deployment": marks["hetplan.dev/deployment"]}}
        if fleet.router is None:
            made = pod(group, site, places[group.name], faults)
        else:
            made = beside(pod(room_for_worker(group), site, places[group.name], faults), fleet, group, site)
        made |= spread(chosen)
        spec: Json = {
            "replicas": group.count,
            "selector": chosen,
            "progressDeadlineSeconds": math.ceil(site.cluster.start_s),
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _room(group, surge=site.cluster.surge)},
            "template": {"metadata": {"labels": marks}, "spec": made},
        }
        if group.most > group.least:
            del spec["replicas"]  # KEDA says how many there are; applying again must not undo it
        notes = {**plan_notes(fleet, group), REPLICAS: str(group.count)}
        yield thing("apps/v1", "Deployment", group.name, site, marks, notes, spec)


def _room(group: Group, *, surge: bool) -> Json:
    """Machines are as many as the plan counts: a new pod has room once an old one went, unless site.toml says more."""
    part = wave_of(group.count) if group.most == group.least else f"{100 // WAVES}%"
    return {"maxSurge": part, "maxUnavailable": 0} if surge else {"maxSurge": 0, "maxUnavailable": part}


def _budgets(fleet: Fleet, site: Site) -> Iterator[Json]:
    """One pod at a time is evicted of those that serve the same; no pod is under two budgets."""
    for group in {group.app: group for group in fleet.groups}.values():
        own = labels(fleet, group)
        mine = {name: own[name] for name in ("hetplan.dev/app", "hetplan.dev/deployment")}
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": mine}}
        marks = labels(fleet, app=group.app)
        yield thing("policy/v1", "PodDisruptionBudget", dns_name(group.app), site, marks, plan_notes(fleet), spec)


def _front(fleet: Fleet, site: Site, app: Application, faults: list[Fault]) -> Iterator[Json]:
    """How queries of an application reach its groups."""
    groups = fleet.of_app(app.name)
    marks, notes = labels(fleet, app=app.name), plan_notes(fleet)
    name, mine = app.dns, {serves(app.name): "yes", "hetplan.dev/deployment": marks["hetplan.dev/deployment"]}
    if fleet.rules.get(app.name) in ("weighted-least", "fewest-requests"):
        yield from _edge(fleet, site, app, groups, name)
        return
    if fleet.rules.get(app.name) == HETPLAN:
        return
    if fleet.rules.get(app.name) == OWN:
        yield from _named(fleet, site, groups)
        return
    port = {"name": "http", "port": 80, "targetPort": "http"}
    yield thing("v1", "Service", name, site, marks, notes, {"selector": mine, "ports": [port]})
    parts = weights(app, groups)
    fair = slice_of({group.name: float(group.count) or 1e-9 for group in groups}, WHOLE)
    if len(groups) < 2 or all(abs(parts[one] - fair[one]) <= 1 for one in parts):
        return  # a Service takes any pod, so groups get what their counts say
    for group in groups:
        chosen = {GROUP: group.name}
        yield thing(
            "v1", "Service", group.name, site, labels(fleet, group), notes, {"selector": chosen, "ports": [port]}
        )
    backends = [{"name": one, "port": 80, "weight": weight} for one, weight in parts.items()]
    yield http_route(fleet, site, app, backends, faults)


def _named(fleet: Fleet, site: Site, groups: Sequence[Group]) -> Iterator[Json]:
    """A name for each group, behind which all its pods are."""
    for group in groups:
        ports = [{"name": "http", "port": group.server(site).port, "targetPort": "http"}]
        if fleet.router is not None:
            ports.append({"name": "link", "port": site.router.worker_port, "targetPort": "link"})
        spec: Json = {"clusterIP": "None", "selector": {GROUP: group.name}, "ports": ports}
        yield thing("v1", "Service", group.name, site, labels(fleet, group), plan_notes(fleet), spec)


def _edge(fleet: Fleet, site: Site, app: Application, groups: Sequence[Group], name: str) -> Iterator[Json]:
    """The stock HAProxy in front of all pods of an application, found by headless Services."""
    port = site.edge.port
    own = replace(fleet, apps={app.name: app})

    def servers(group: Group) -> list[tuple[str, str]]:
        return [(group.name, f"{group.name}.{site.namespace}.svc:{group.server(site).port}")]

    text = haproxy.configuration(own, site, servers, found="service")
    yield from _named(fleet, site, groups)
    container = {
        "name": "haproxy", "image": site.edge.image, "ports": [{"name": "http", "containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": PROBE_S, "timeoutSeconds": PROBE_S},
        "lifecycle": sleep_first(PROBE_S),
        "volumeMounts": [{"name": "config", "mountPath": "/usr/local/etc/haproxy", "readOnly": True}],
    }  # fmt: skip
    # One: two would each know half of what is under way, and give it to the fastest.
    file = ("haproxy.cfg", text)
    yield from front(fleet, groups, site, (f"{name}-edge", name), labels(fleet, app=app.name), container, file)


def _scaled(fleet: Fleet, site: Site, group: Group) -> Json:
    """KEDA's cron triggers for a group whose replicas change from period to period."""
    triggers = [{"type": "cron", "metadata": one} for one in crons(fleet, group, site.timezone)]
    spec: Json = {
        "scaleTargetRef": {"name": group.name}, "minReplicaCount": group.least, "maxReplicaCount": group.most,
        "triggers": triggers,
    }  # fmt: skip
    return thing("keda.sh/v1alpha1", "ScaledObject", group.name, site, labels(fleet, group), plan_notes(fleet), spec)


def _machines(fleet: Fleet) -> dict[str, list[Group]]:
    """Groups by machine type and way to buy it."""
    found: dict[str, list[Group]] = {}
    for group in fleet.groups:
        found.setdefault(group.offer or group.hardware, []).append(group)
    return found


def _pools(fleet: Fleet, site: Site, places: Mapping[str, Nodes]) -> Iterator[Json]:
    """Karpenter's NodePools, with the machines of the plan and of a roll as limits, so that nobody buys more."""
    for name, groups in _machines(fleet).items():
        one = groups[0]
        # A roll that starts new pods first needs machines for one wave of them beside the old ones.
        extra = [wave_of(group.most) if site.cluster.surge else 0 for group in groups]
        machines = sum(-(-(group.most + more) // group.per_machine) for group, more in zip(groups, extra, strict=True))
        wanted = places[one.name]
        needs = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.selector.items()]
        limits = {gpu_resource(one.hardware, site.machine(one.hardware)): str(one.machine_gpus * machines)}
        taints = [{"key": key, "effect": "NoSchedule"} for key in limits] if one.machine_gpus else []
        cluster = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": site.node_class}
        template: Json = {"nodeClassRef": cluster, "requirements": needs, **({"taints": taints} if taints else {})}
        spec: Json = {
            "limits": limits if one.machine_gpus else {"nodes": str(machines)},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "300s", "budgets": [{"nodes": "1"}]},
            "template": {"metadata": {"labels": {"hetplan.dev/offer": name}}, "spec": template},
        }
        named = marked_name(site.namespace, fleet.name, name)
        made = thing("karpenter.sh/v1", "NodePool", named, site, labels(fleet), plan_notes(fleet))
        del made["metadata"]["namespace"]
        yield made | {"spec": spec}


def _quota(fleet: Fleet, site: Site) -> Iterator[Json]:
    """Kueue: a flavour per machine type and way to buy it, the cheapest first, with the plan's GPUs as its quota."""
    marks, notes = labels(fleet), plan_notes(fleet)
    by_price = sorted(_machines(fleet).items(), key=lambda one: (one[1][0].price_per_hour or 0.0, one[0]))
    # Kueue's flavours and queues are of the whole cluster: another namespace may have a deployment of this name.
    whole = marked_name(site.namespace, fleet.name)
    flavors = []
    for name, groups in by_price:
        gpus = sum(group.most * group.gpus for group in groups)
        if gpus:
            named = marked_name(site.namespace, fleet.name, name)
            flavor = thing("kueue.x-k8s.io/v1beta2", "ResourceFlavor", named, site, marks, notes)
            del flavor["metadata"]["namespace"]
            yield flavor | {"spec": {"nodeLabels": {"hetplan.dev/offer": name}}}
            resource = gpu_resource(groups[0].hardware, site.machine(groups[0].hardware))
            flavors.append((resource, {"name": named, "resources": [{"name": resource, "nominalQuota": gpus}]}))
    covered = list(dict.fromkeys(resource for resource, _ in flavors))
    queue = thing("kueue.x-k8s.io/v1beta2", "ClusterQueue", whole, site, marks, notes)
    del queue["metadata"]["namespace"]
    parts = [
        {"coveredResources": [one], "flavors": [f for resource, f in flavors if resource == one]} for one in covered
    ]
    yield queue | {"spec": {"namespaceSelector": {}, "resourceGroups": parts}}
    spec = {"clusterQueue": whole}
    yield thing("kueue.x-k8s.io/v1beta2", "LocalQueue", dns_name(fleet.name), site, marks, notes, spec)


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of rendered files: ids, replicas, GPUs."""
    found = []
    for one in objects_of(files["kubernetes.yaml"], "kubernetes.yaml"):
        if one["kind"] == "Deployment" and GROUP in one["metadata"]["labels"]:
            replicas = one["spec"].get("replicas", int(one["metadata"]["annotations"][REPLICAS]))
            found.append(read_labels(one, replicas, one["spec"]["template"]["spec"]))
    return found
