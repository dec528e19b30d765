"""KServe: an LLMInferenceService per group that makes text (prefill and decode in one), else an InferenceService.

Groups of text share a routing group with the plan's shares as weights; between InferenceServices an HTTPRoute splits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.names import CannotRender, Json, documents, objects_of
from hetplan.executor.render.nodes import Nodes
from hetplan.executor.render.pods import (
    WHOLE,
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
from hetplan.executor.render.rules import OWN, refused
from hetplan.executor.site import Site

__all__ = ["FILES", "read", "render"]

FILES = ("kserve.yaml",)


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """One file for `kubectl apply -f`."""
    texts = {group.model for group in fleet.groups if group.makes_text}
    faults = [*of_images(fleet, site, needs_uri=texts), *refused("kserve", fleet)]
    places = nodes_by_group(fleet, site, faults)
    objects = [one for app in fleet.apps.values() for one in _application(fleet, site, app, places, faults)]
    if faults:
        raise CannotRender.of(faults)
    return {"kserve.yaml": documents(objects, fleet.head)}


def _application(
    fleet: Fleet, site: Site, app: Application, places: Mapping[str, Nodes], faults: list[Fault]
) -> Iterator[Json]:
    groups, own = fleet.of_app(app.name), fleet.rules.get(app.name) == OWN
    parts = weights(app, [group for group in groups if group.role != "prefill"])
    fillers = [group for group in groups if group.role == "prefill"]
    for group in groups:
        marks, notes = labels(fleet, group), plan_notes(fleet, group)
        if group.makes_text and group.role != "prefill":
            spec = _text(group, site, places, faults)
            if not own:
                route = {"group": app.dns, "weight": parts[group.name]}
                spec["router"] = {"gateway": {}, "route": route, "scheduler": {}}
            if group.role == "decode" and fillers:
                one = _text(fillers[0], site, places, faults)
                spec["prefill"] = {key: one[key] for key in one if key != "model"}
                notes["hetplan.dev/prefill"] = plan_notes(fleet, fillers[0])["hetplan.dev/concurrency"]
                marks["hetplan.dev/prefill-group"] = fillers[0].name
                marks["hetplan.dev/prefill-hardware"] = labels(fleet, fillers[0])["hetplan.dev/hardware"]
            yield thing("serving.kserve.io/v1alpha2", "LLMInferenceService", group.name, site, marks, notes, spec)
        elif not group.makes_text:
            yield _service(fleet, site, app, group, places[group.name], faults)
    if len(parts) > 1 and not own and not any(group.makes_text for group in groups):
        backends = [{"name": f"{name}-predictor", "port": 80, "weight": weight} for name, weight in parts.items()]
        yield http_route(fleet, site, app, backends, faults)


def _text(group: Group, site: Site, places: Mapping[str, Nodes], faults: list[Fault]) -> Json:
    """Model, how many, how it is spread over GPUs, and its pod."""
    model = group.server(site)
    price = f"{(group.price_per_hour or 0.0) / group.per_machine:.6g}"
    scaling: Json = {"minReplicas": group.least, "maxReplicas": group.most, "wva": {"variantCost": price, "hpa": {}}}
    spread = {
        "tensor": group.split.tensor,
        **({"pipeline": group.split.pipeline} if group.split.pipeline > 1 else {}),
        **({"data": group.split.data, "dataLocal": group.split.data} if group.split.data > 1 else {}),
        **({"expert": True} if group.split.expert > 1 else {}),
    }
    return {
        "model": {"uri": model.model_uri, "name": model.name or group.model},
        **({"replicas": group.count} if group.most == group.least else {"scaling": scaling}),
        "parallelism": spread,
        "template": pod(group, site, places[group.name], faults, "main"),
    }


def _service(fleet: Fleet, site: Site, app: Application, group: Group, nodes: Nodes, faults: list[Fault]) -> Json:
    one = pod(group, site, nodes, faults, "kserve-container")
    for port in one["containers"][0]["ports"]:
        port.pop("name")
        port["protocol"] = "TCP"
    one["containers"][0]["readinessProbe"]["httpGet"]["port"] = group.server(site).port
    timeout = {"timeout": math.ceil(app.deadline_ms / 1000.0)} if app.deadline_ms is not None else {}
    spec = {
        "minReplicas": group.least, "maxReplicas": group.most, **timeout, "containerConcurrency": group.concurrency,
        **one,
    }  # fmt: skip
    scaler = "none" if group.most == group.least else "hpa"
    notes = {**plan_notes(fleet, group), "serving.kserve.io/deploymentMode": "Standard",
             "serving.kserve.io/autoscalerClass": scaler, "hetplan.dev/replicas": str(group.count)}  # fmt: skip
    marks = labels(fleet, group)
    return thing("serving.kserve.io/v1beta1", "InferenceService", group.name, site, marks, notes, {"predictor": spec})


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a rendered file: ids, replicas, GPUs, weights."""
    found = []
    for one in objects_of(files["kserve.yaml"], "kserve.yaml"):
        spec, metadata = one["spec"], one["metadata"]
        if one["kind"] == "InferenceService":
            count = int(metadata["annotations"]["hetplan.dev/replicas"])
            found.append(read_labels(one, count, spec["predictor"]))
        elif one["kind"] == "LLMInferenceService":
            found.append(_read_text(one, spec))
            if "prefill" in spec:
                marks = {**metadata["labels"], "hetplan.dev/group": metadata["labels"]["hetplan.dev/prefill-group"],
                         "hetplan.dev/hardware": metadata["labels"]["hetplan.dev/prefill-hardware"]}  # fmt: skip
                notes = metadata["annotations"]
                notes = {**notes, "hetplan.dev/concurrency": notes["hetplan.dev/prefill"]}
                found.append(_read_text({"metadata": {"labels": marks, "annotations": notes}}, spec["prefill"]))
    return found


def _read_text(one: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    count = spec["replicas"] if "replicas" in spec else spec["scaling"]["minReplicas"]
    weight = spec.get("router", {}).get("route", {}).get("weight")
    return {**read_labels(one, count, spec["template"]), **({"share": weight / WHOLE} if weight is not None else {})}
