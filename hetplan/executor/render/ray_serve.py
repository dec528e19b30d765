"""Ray Serve: a RayService with a deployment per group, and a worker group per machine type.

A custom resource for each machine type ties replicas to it. An application with several groups needs an ingress of the
user's own; the shares are in its `args`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.haproxy import bounds
from hetplan.executor.render.names import CannotRender, Json, documents, objects_of
from hetplan.executor.render.nodes import Nodes
from hetplan.executor.render.pods import WHOLE, labels, nodes_by_group, plan_notes, pod, thing, weights
from hetplan.executor.render.rules import refused
from hetplan.executor.site import FILE, Site
from hetplan.profiles.yaml_text import read_yaml, write_yaml

__all__ = ["FILES", "read", "render"]

FILES = ("ray-serve.yaml",)


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """One file for `kubectl apply -f`."""
    faults = list[Fault]()
    for model, known in {group.section(site): group.server(site) for group in fleet.groups}.items():
        if known.image is None or known.deployment is None:
            line = 'image = "registry.example/ray-models:1.4" and deployment = "models.net:app"'
            faults.append(Fault(FILE, f"$.models.{model}.deployment", "nothing", "nothing says which application it is",
                                f"Add [models.{model}] {line}."))  # fmt: skip
    faults += refused("ray-serve", fleet)
    places = nodes_by_group(fleet, site, faults)
    serve = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8000, "request_timeout_s": _timeout_s(fleet)},
        "applications": [_application(fleet, site, app) for app in fleet.apps.values() if fleet.of_app(app.name)],
    }
    workers = [_workers(fleet, site, group, places[group.name], faults) for group in fleet.groups]
    if faults:
        raise CannotRender.of(faults)
    head = {"name": "ray-head", "image": fleet.groups[0].server(site).image or "",
            "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}}  # fmt: skip
    cluster = {
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": {"containers": [head]}}},
        "workerGroupSpecs": workers,
    }
    spec = {"serveConfigV2": write_yaml(serve), "rayClusterConfig": cluster}
    name = next(iter(fleet.apps.values())).dns if len(fleet.apps) == 1 else "hetplan"
    made = thing("ray.io/v1", "RayService", name, site, labels(fleet), plan_notes(fleet), spec)
    return {"ray-serve.yaml": documents([made], fleet.head)}


def _timeout_s(fleet: Fleet) -> int:
    """Ten times the longest deadline, or text: what is later is of no use to anybody."""
    longest = [app.deadline_ms or 10_000.0 for app in fleet.apps.values()]
    return math.ceil(max([*longest, *(group.answer_ms or 0.0 for group in fleet.groups)], default=10_000.0) / 100.0)


def _resource(group: Group) -> str:
    return f"group_{group.name.replace('-', '_')}"


def _application(fleet: Fleet, site: Site, app: Application) -> Json:
    groups = fleet.of_app(app.name)
    deployments = []
    for group in groups:
        _, most = bounds(app, (group,), site.hop_ms)
        scaling = {
            "min_replicas": group.least,
            "max_replicas": group.most,
            "target_ongoing_requests": group.concurrency,
        }
        options: Json = {"num_cpus": round(group.cpu_cores or 1.0, 3), "resources": {_resource(group): 1}}
        options |= {"num_gpus": group.gpu_fraction or group.gpus} if group.machine_gpus else {}
        deployments.append(
            {"name": group.name,
             **({"num_replicas": group.count} if group.most == group.least else {"autoscaling_config": scaling}),
             "max_ongoing_requests": group.concurrency, **({"max_queued_requests": most} if most is not None else {}),
             "ray_actor_options": options}
        )  # fmt: skip
    shares = {name: weight / WHOLE for name, weight in weights(app, groups).items()}
    return {
        "name": app.dns, "route_prefix": f"/{app.dns}", "import_path": groups[0].server(site).deployment,
        "args": {"shares": shares}, "deployments": deployments,
    }  # fmt: skip


def _workers(fleet: Fleet, site: Site, group: Group, nodes: Nodes, faults: list[Fault]) -> Json:
    """The nodes of a group: one for each replica, with the resource that ties it there."""
    spec = pod(group, site, nodes, faults, "ray-worker")
    for key in ("command", "args", "readinessProbe", "ports"):
        spec["containers"][0].pop(key, None)  # Ray starts its own process
    metadata = {"labels": labels(fleet, group), "annotations": plan_notes(fleet, group)}
    return {
        "groupName": group.name, "replicas": group.count, "minReplicas": group.least, "maxReplicas": group.most,
        "rayStartParams": {"resources": json.dumps(json.dumps({_resource(group): 1}))},
        "template": {"metadata": metadata, "spec": spec},
    }  # fmt: skip


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a rendered file: ids, replicas, GPUs, queries at a time, shares."""
    (one,) = objects_of(files["ray-serve.yaml"], "ray-serve.yaml")
    serve = read_yaml(one["spec"]["serveConfigV2"], file="serveConfigV2")
    made = {part["name"]: (app, part) for app in serve["applications"] for part in app["deployments"]}
    found = []
    for worker in one["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        marks, notes = worker["template"]["metadata"]["labels"], worker["template"]["metadata"]["annotations"]
        app, part = made[worker["groupName"]]
        gpus = part["ray_actor_options"].get("num_gpus", 0)
        found.append(
            {"name": worker["groupName"], "app": marks["hetplan.dev/app"], "model": notes["hetplan.dev/model"],
             "hardware": marks["hetplan.dev/hardware"], "replicas": worker["replicas"],
             "gpus": gpus if gpus == int(gpus) else 0, "concurrency": part["max_ongoing_requests"],
             "share": app["args"]["shares"][worker["groupName"]]}
        )  # fmt: skip
    return found
