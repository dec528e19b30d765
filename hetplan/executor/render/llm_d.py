"""llm-d: a Deployment (of several machines a LeaderWorkerSet) and an InferencePool per group, weights between pools.

A pool holds replicas on one machine type, as its endpoint picker takes them as equals. The picker's values carry the
plan's three numbers: how many requests a replica has, how long one may wait, how many may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.haproxy import bounds
from hetplan.executor.render.kubernetes import deployments
from hetplan.executor.render.names import CannotRender, Json, comment, documents, objects_of
from hetplan.executor.render.nodes import Nodes, accelerator
from hetplan.executor.render.pods import (
    http_route,
    labels,
    nodes_by_group,
    of_images,
    plan_notes,
    pod,
    read_labels,
    thing,
    weights,
)
from hetplan.executor.render.rules import refused
from hetplan.executor.site import Site
from hetplan.profiles.yaml_text import write_yaml

__all__ = ["FILES", "read", "render"]

FILES = ("llm-d.yaml", "picker-GROUP.txt")
_INFERENCE = "inference.networking.k8s.io"


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """One file for `kubectl apply -f`, and the configuration of each pool's picker."""
    faults = [*of_images(fleet, site), *refused("llm-d", fleet)]
    if faults:
        raise CannotRender.of(faults)
    places = nodes_by_group(fleet, site, faults)
    objects: list[Json] = []
    for group in fleet.groups:
        objects += _pool(fleet, site, group, places, faults)
    for app in fleet.apps.values():
        backends = [
            {"group": _INFERENCE, "kind": "InferencePool", "name": name, "weight": weight}
            for name, weight in weights(app, fleet.of_app(app.name)).items()
        ]
        objects.append(http_route(fleet, site, app, backends, faults))
    if faults:
        raise CannotRender.of(faults)
    pickers = {f"picker-{group.name}.txt": _picker(fleet, site, group) for group in fleet.groups}
    return {"llm-d.yaml": documents(objects, fleet.head), **pickers}


def _pool(fleet: Fleet, site: Site, group: Group, places: Mapping[str, Nodes], faults: list[Fault]) -> Iterator[Json]:
    marks, notes = labels(fleet, group), plan_notes(fleet, group)
    found = accelerator(group.hardware, site.machine(group.hardware))
    marks["inference.optimization/acceleratorName"] = found[0].upper() if found is not None else group.hardware
    if group.machines_per_worker > 1:
        template = {"metadata": {"labels": marks}, "spec": pod(group, site, places[group.name], faults, "model")}
        spec: Json = {
            "replicas": group.count,
            "leaderWorkerTemplate": {
                "size": group.machines_per_worker, "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template,
            },
        }  # fmt: skip
        yield thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", group.name, site, marks, notes, spec)
    else:
        (made,) = deployments(fleet, site, (group,), places, faults)
        made["metadata"]["labels"] = marks
        yield made
    chosen = {"matchLabels": {"hetplan.dev/group": group.name}}
    picker = {"name": f"{group.name}-epp", "port": {"number": 9002}, "failureMode": "FailOpen"}
    pool = {"selector": chosen, "targetPorts": [{"number": group.server(site).port}], "endpointPickerRef": picker}
    yield thing(f"{_INFERENCE}/v1", "InferencePool", group.name, site, marks, notes, pool)
    if group.most > group.least and group.machines_per_worker == 1:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": group.name}
        price = f"{(group.price_per_hour or 0.0) / group.per_machine:.6g}"
        named = group.server(site).name or group.model
        spec = {"modelID": named, "variantCost": price, "scaleTargetRef": target}
        yield thing("llmd.ai/v1alpha1", "VariantAutoscaling", group.name, site, marks, notes, spec)


def _picker(fleet: Fleet, site: Site, group: Group) -> str:
    """The values of a picker: the cap of each replica, the time in the queue and its length."""
    (app,) = (fleet.apps[name] for name in group.apps)
    wait, most = bounds(app, (group,), site.hop_ms)
    cap = {"concurrencyMode": "requests", "maxConcurrency": group.concurrency, "headroom": 0.0}
    flow: Json = {"saturationDetector": {"pluginRef": "concurrency-detector"}}
    flow |= {"defaultRequestTTL": f"{wait}ms", "maxRequests": most} if wait is not None else {}
    plugins = [
        {"type": "concurrency-detector", "parameters": cap}, {"type": "active-request-scorer"},
        {"type": "max-score-picker"}, {"type": "single-profile-handler"},
    ]  # fmt: skip
    profile = [
        {"pluginRef": "concurrency-detector"}, {"pluginRef": "active-request-scorer", "weight": 1},
        {"pluginRef": "max-score-picker"},
    ]  # fmt: skip
    made = {
        "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "featureGates": ["flowControl"],
        "plugins": plugins, "schedulingProfiles": [{"name": "default", "plugins": profile}], "flowControl": flow,
    }  # fmt: skip
    return comment(fleet.head) + write_yaml(made)


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a rendered file: ids, replicas, GPUs."""
    found = []
    for one in objects_of(files["llm-d.yaml"], "llm-d.yaml"):
        if one["kind"] == "Deployment":
            replicas = one["spec"].get("replicas", int(one["metadata"]["annotations"]["hetplan.dev/replicas"]))
            found.append(read_labels(one, replicas, one["spec"]["template"]["spec"]))
        elif one["kind"] == "LeaderWorkerSet":
            worker = one["spec"]["leaderWorkerTemplate"]["workerTemplate"]
            found.append(read_labels(one, one["spec"]["replicas"], worker["spec"]))
    return found
