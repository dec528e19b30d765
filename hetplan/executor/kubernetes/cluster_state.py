"""What a cluster holds of one deployment: its objects, which pods are of which group, and why pods are not ready."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hetplan.executor.kubernetes.groups import LABEL_GROUP, LABEL_PART, Group
from hetplan.executor.kubernetes.manifests import CONFIG_FILE, MADE_OF
from hetplan.executor.units import Unit

__all__ = ["ClusterState", "is_alive", "is_ready", "made_of", "restarts_of", "same_template", "troubles_of"]

Json = dict[str, Any]


class ClusterState:
    """Objects that the cluster holds, sorted by what they are; `scaled` are Deployments of which an autoscaler says
    how many pods they have.
    """

    def __init__(self, objects: Sequence[Json], scaled: Collection[str] = ()) -> None:
        self.objects, self.scaled = objects, frozenset(scaled)
        self.deployments = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Deployment"}
        self.configs = {one["metadata"]["name"]: one for one in objects if one["kind"] == "ConfigMap"}

    @property
    def groups(self) -> dict[str, Group]:
        """Groups by the name of their Deployment; objects that are not of our making are passed over."""
        found: dict[str, Group] = {}
        for name, deployment in self.deployments.items():
            notes = deployment["metadata"].get("annotations", {})
            # What somebody wrote over by hand is as if it were not there: the next apply writes it anew.
            with suppress(ValueError, KeyError, TypeError):
                content = self.config(deployment)
                indices, standby = (tuple(json.loads(notes[f"hetplan/{key}"])) for key in ("indices", "standby"))
                if content is not None:
                    found[name] = Group(Unit.from_dict(content["unit"]), indices, standby)
        return found

    def config(self, deployment: Json) -> Json | None:
        """What the ConfigMap of a Deployment holds."""
        name = deployment["metadata"].get("annotations", {}).get("hetplan/config")
        held = self.configs.get(name or "")
        content: Json | None = json.loads(held["data"][CONFIG_FILE]) if held is not None else None
        return content

    def pods(self, group: str) -> list[Json]:
        """Pods of a group's own template: those of an older one are on their way out, and say nothing of the new."""
        mine = [one for one in self.objects if one["kind"] == "Pod" and _group_of(one) == group]
        deployment = self.deployments.get(group)
        return [one for one in mine if deployment is None or _of_template(one, deployment)]

    def replicas(self, name: str) -> int:
        """How many pods a Deployment is to have now."""
        return int(self.deployments[name]["spec"].get("replicas", 1))

    def mounted(self) -> frozenset[str]:
        """ConfigMaps that some ReplicaSet mounts, also one without pods: what a Deployment may go back to."""
        sets = [one for one in self.objects if one["kind"] in ("ReplicaSet", "Deployment")]
        return frozenset(
            name for one in sets for name in _mounted(one["spec"]["template"].get("spec", {}).get("volumes", ()))
        )

    def former(self, name: str) -> list[Json]:
        """The objects of one Deployment as they were, to be applied again: without what the server adds."""
        deployment = self.deployments[name]
        config = deployment["metadata"].get("annotations", {}).get("hetplan/config")
        wanted = {("ConfigMap", config), *((kind, name) for kind in _ORDER if kind != "ConfigMap")}
        found = [one for one in self.objects if (one["kind"], one["metadata"]["name"]) in wanted]
        found.sort(key=lambda one: [*_ORDER].index(one["kind"]))
        return [_as_applied(one) for one in found]

    def objects_of(self, group: str) -> list[tuple[str, str]]:
        """All that belongs to a group, the Deployment first."""
        mine = [one for one in self.objects if one["kind"] in _ORDER and _group_of(one) == group]
        mine.sort(key=lambda one: -[*_ORDER].index(one["kind"]))
        return [(_ORDER[one["kind"]], one["metadata"]["name"]) for one in mine]


_ORDER = {
    "ConfigMap": "configmaps",
    "Service": "services",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
    "Deployment": "deployments.apps",
}
"""In which order they are needed."""

_OURS = ("name", "namespace", "labels", "annotations")
_ASSIGNED = ("clusterIPs", "ipFamilies", "ipFamily", "ipFamilyPolicy", "healthCheckNodePort")
"""What the server gives a Service. Applied by us it would be ours, and could not be left out ever after."""


def _as_applied(one: Json) -> Json:
    """An object without what the server says of it, or has given it."""
    metadata = {key: value for key, value in one["metadata"].items() if key in _OURS}
    notes = {key: value for key, value in metadata.pop("annotations", {}).items() if "kubernetes.io/" not in key}
    metadata |= {"annotations": notes} if notes else {}
    made = {**{key: value for key, value in one.items() if key != "status"}, "metadata": metadata}
    if one["kind"] == "Service":
        spec = {key: value for key, value in one["spec"].items() if key not in _ASSIGNED}
        if spec.get("clusterIP") != "None":
            spec.pop("clusterIP", None)
        ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec.get("ports", ())]
        made["spec"] = {**spec, "ports": ports}
    return made


def made_of(deployment: Json) -> str | None:
    """The digest of the template that a Deployment was made with."""
    notes: Mapping[str, str] = deployment["spec"]["template"]["metadata"].get("annotations", {})
    return notes.get(MADE_OF)


def same_template(live: Json, wanted: Json) -> bool:
    """Whether a Deployment's pods are as wanted: made of the same template, which nobody has changed by hand since.

    What the server adds by itself is no difference.
    """
    if made_of(live) != made_of(wanted):
        return False
    there = live["spec"]["template"].get("spec", {})
    return all(_within(value, there.get(key)) for key, value in wanted["spec"]["template"]["spec"].items())


def _within(wanted: object, live: object) -> bool:
    """Whether all that is wanted is there, beside what the server added.

    >>> _within({"cpu": "2000m", "memory": "1024Mi"}, {"cpu": "2", "memory": "1Gi", "other": 1})
    True
    >>> _within([{"image": "a:1"}], [{"image": "a:2"}])
    False
    """
    if isinstance(wanted, dict):
        # A value that says nothing is not kept by the server.
        return isinstance(live, dict) and all(
            _within(value, live.get(key)) for key, value in wanted.items() if value not in ({}, [], None, "")
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_within(*pair) for pair in zip(wanted, live, strict=True))
        )
    return wanted == live or (isinstance(wanted, str) and isinstance(live, str) and _amount(wanted) == _amount(live))


_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _amount(text: str) -> float | str:
    """A quantity, however it is written; any other text as it is."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?", text)
    return float(found[1]) * _UNITS.get(found[2], 1.0) if found else text


def _of_template(pod: Json, deployment: Json) -> bool:
    """Whether a pod was made of the Deployment's present template: the same digest, and the same ConfigMap."""
    notes = pod["metadata"].get("annotations", {})
    if notes.get(MADE_OF) != made_of(deployment):
        return False
    template = deployment["spec"]["template"].get("spec", {}).get("volumes", ())
    mounted = [_mounted(volumes) for volumes in (pod.get("spec", {}).get("volumes", ()), template)]
    return not mounted[0] or mounted[0] == mounted[1]


def _mounted(volumes: Iterable[Json]) -> list[str]:
    return [one["configMap"]["name"] for one in volumes if "configMap" in one]


def _group_of(one: Json) -> str | None:
    marks: Mapping[str, str] = one["metadata"].get("labels", {})
    return marks.get(LABEL_GROUP) if marks.get(LABEL_PART) == "worker" else None


def is_ready(pod: Json) -> bool:
    """Whether a pod takes queries."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )


def is_alive(pod: Json) -> bool:
    """Whether a pod is there at all: one that its node evicted stays listed, and holds nothing any more."""
    return pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")


def restarts_of(pod: Json) -> int:
    """How often the containers of a pod were started again."""
    return sum(int(one.get("restartCount", 0)) for one in pod.get("status", {}).get("containerStatuses", ()))


def troubles_of(pods: Iterable[Json]) -> str:
    """Why pods are not ready, in the cluster's own words: no node for them, no image, a container that keeps ending.

    A Deployment among them says why its pods cannot be made at all (a quota).
    """
    said: dict[str, None] = {}
    for pod in pods:
        status = pod.get("status", {})
        for one in status.get("conditions", ()):
            if one["type"] == "ReplicaFailure" and one["status"] == "True":
                said[f"{pod['metadata']['name']}: {one.get('message', one.get('reason', ''))}"] = None
        for one in status.get("conditions", ()):
            if one["type"] == "PodScheduled" and one["status"] == "False":
                said[f"{pod['metadata']['name']} cannot be placed: {one.get('message', one.get('reason', ''))}"] = None
        for one in status.get("containerStatuses", ()):
            waiting = one.get("state", {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                message = f": {waiting['message']}" if waiting.get("message") else ""
                ended = one.get("lastState", {}).get("terminated") or {}
                if ended:
                    message += f" (it ended with {ended.get('reason', 'no reason')}, exit {ended.get('exitCode', '?')})"
                said[f"{pod['metadata']['name']} is in {waiting['reason']}{message}"] = None
    return "; ".join(said)
