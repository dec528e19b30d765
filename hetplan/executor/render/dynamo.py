"""Dynamo: a DynamoGraphDeployment per application, with a frontend and a component per group.

A frontend takes its workers as equals, so workers of one role run on one machine type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.groups import Application, Fleet
from hetplan.executor.render.names import CannotRender, Json, documents, objects_of
from hetplan.executor.render.nodes import Nodes
from hetplan.executor.render.pods import labels, nodes_by_group, of_images, plan_notes, pod, read_labels, thing
from hetplan.executor.render.rules import refused
from hetplan.executor.site import Site

__all__ = ["FILES", "read", "render"]

FILES = ("dynamo.yaml",)
MOST_COMPONENTS = 25


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """One file for `kubectl apply -f`."""
    faults = [*of_images(fleet, site), *refused("dynamo", fleet)]
    for app in fleet.apps.values():
        groups = fleet.of_app(app.name)
        if len(groups) >= MOST_COMPONENTS:
            why = f"{app.name} has {len(groups)} groups; a graph has {MOST_COMPONENTS} components at most"
            faults.append(Fault("plan", "$.workers", app.name, why, "Plan with fewer machine types."))
    places = nodes_by_group(fleet, site, faults)
    objects = [_graph(fleet, site, app, places, faults) for app in fleet.apps.values() if fleet.of_app(app.name)]
    if faults:
        raise CannotRender.of(faults)
    return {"dynamo.yaml": documents(objects, fleet.head)}


def _graph(fleet: Fleet, site: Site, app: Application, places: Mapping[str, Nodes], faults: list[Fault]) -> Json:
    groups = fleet.of_app(app.name)
    model = groups[0].server(site)
    version = {"runtimeVersionOverride": model.runtime_version} if model.runtime_version is not None else {}
    mode = {"name": "DYN_ROUTER_MODE", "value": "round-robin"}
    front = {"containers": [{"name": "main", "image": model.image or "", "env": [mode]}]}
    components: list[Json] = [
        {"name": "Frontend", "type": "frontend", "replicas": 1, **version, "podTemplate": {"spec": front}}
    ]
    for group in groups:
        spec = pod(group, site, places[group.name], faults, "main")
        metadata = {"labels": labels(fleet, group), "annotations": plan_notes(fleet, group)}
        nodes = {"multinode": {"nodeCount": group.machines_per_worker}} if group.machines_per_worker > 1 else {}
        kind = "worker" if group.role == "whole" else group.role
        components.append(
            {"name": group.name, "type": kind, "replicas": group.count, **version, **nodes,
             **({"scalingAdapter": {}} if group.most > group.least else {}),
             "podTemplate": {"metadata": metadata, "spec": spec}}
        )  # fmt: skip
    marks, notes = labels(fleet, app=app.name), plan_notes(fleet)
    return thing("nvidia.com/v1beta1", "DynamoGraphDeployment", app.dns, site, marks, notes, {"components": components})


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a rendered file: ids, replicas, GPUs."""
    return [
        read_labels(component["podTemplate"], component["replicas"], component["podTemplate"]["spec"])
        for one in objects_of(files["dynamo.yaml"], "dynamo.yaml")
        for component in one["spec"]["components"]
        if component["type"] != "frontend"
    ]
