"""The `kubernetes` target: a Deployment per group of workers, applied server-side by `kubectl`.

A group grows and changes by rolling updates that start new pods before old ones stop; what a failed change did is taken
back. The cluster is the truth: what runs is read from the labels and annotations of the objects that are there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from hetplan.errors import InputError
from hetplan.executor.kubernetes.groups import LABEL_GROUP, LABEL_PART, Group, group_name, grouped, selector
from hetplan.executor.kubernetes.kubectl import Kubectl, KubernetesSettings
from hetplan.executor.kubernetes.manifests import CONFIG_FILE, MADE_OF, WAVES, Manifests
from hetplan.executor.target import Setting, TargetFailed, UnitHealth
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.profiles.validate import validate

__all__ = ["Kubernetes"]

Json = dict[str, Any]

_KINDS = ("deployments.apps", "services", "configmaps")
_LOOK_S = 0.5
_SIDE_BY_SIDE = 16


class Kubernetes:
    """One namespace of one cluster."""

    kind: ClassVar[str] = "kubernetes"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        self.settings = validate(KubernetesSettings, dict(setting.settings), file="hosts.toml")
        self.hosts = setting.hosts
        self.manifests = Manifests(setting.hosts, self.settings)
        self.kubectl = Kubectl(
            setting.name, self.settings, files=setting.hosts.folder, call_s=setting.hosts.limits.call_s
        )

    def check(self, units: Sequence[Unit]) -> list[str]:
        """No kubectl, shares that the cluster does not enforce, and what the API server says to the manifests."""
        if missing := self.kubectl.missing():
            return [missing]
        try:
            groups = grouped(units)
            said = [why for group in groups.values() for why in self.manifests.unenforced(group)]
            made = [manifest for group in groups.values() for manifest in self.manifests.group(group)]
            if made and not said:
                self.kubectl.apply(made, about="check", dry_run=True)
        except InputError as error:
            return [str(fault) for fault in error.faults]
        except TargetFailed as error:
            return [error.cause]
        return said

    def diff(self, units: Sequence[Unit]) -> str:
        """What starting these units would change in the cluster, object by object, as `kubectl diff` shows it."""
        made = [manifest for group in grouped(units).values() for manifest in self.manifests.group(group)]
        return self.kubectl.diff(made, about="diff") if made else ""

    def observe(self) -> tuple[Seen, ...]:
        """Units by the Deployments' annotations, ready as far as their pods are."""
        there = _There(self.kubectl.get([*_KINDS, "pods"], selector=selector(self.manifests.instance, "worker")))
        return tuple(seen for name, group in there.groups.items() for seen in self._seen(there, name, group))

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Apply the groups that these units belong to, and wait for their pods."""
        return self._change(units, limit_s=limit_s)

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """The same by a rolling update: a pod does not change, it is replaced."""
        return self._change(units, limit_s=limit_s)

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Shrink the groups, or delete those of which nothing is left; their pods drain by their own grace period."""
        there = self._there()
        limit_s = drain_s + self.hosts.limits.call_s
        for name, group in there.groups.items():
            left = group.without(names)
            if left.replicas == group.replicas:
                continue
            if left.replicas:
                self.kubectl.apply(self.manifests.group(left), about=name)
            else:
                self.kubectl.delete(there.objects_of(name), limit_s=limit_s, about=name)
            self._until_gone(name, left.replicas, limit_s=limit_s)

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        """Readiness by the pods; counters by their own `/metrics`, read through the API server."""
        asked, there = set(names), self._there()
        found: dict[str, UnitHealth] = {}
        ready: dict[str, str] = {}
        for name, group in there.groups.items():
            pods = sorted(there.pods(name), key=lambda pod: (not _ready(pod), pod["metadata"]["name"]))
            for place, unit in enumerate(group.units):
                if unit not in asked:
                    continue
                if place < len(pods) and _ready(pods[place]):
                    ready[unit] = pods[place]["metadata"]["name"]
                else:
                    why = _troubles([*pods, there.deployments[name]])
                    found[unit] = UnitHealth(False, why=why or "its pod is not there yet")
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            counters = pool.map(self._counters, ready.values())
            found |= {unit: UnitHealth(True, loads=loads) for unit, loads in zip(ready, counters, strict=True)}
        return found

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """A new ConfigMap and a rolling update of the router; the old one serves until the new one is ready."""
        marks = selector(self.manifests.instance, "router")
        if routes is None:
            self.kubectl.delete_all(_KINDS, selector=marks, limit_s=limit_s)
            return
        made = self.manifests.router(routes)
        self.kubectl.apply(made, about="router")
        self._roll(self.manifests.router_object, limit_s=limit_s, marks=marks)
        there = _There(self.kubectl.get(["configmaps"], selector=marks))
        self._prune(there, keep={made[0]["metadata"]["name"]}, about="router")

    def routed(self) -> Mapping[str, Any] | None:
        """The routes in the ConfigMap that the router's Deployment mounts."""
        there = _There(self.kubectl.get(_KINDS, selector=selector(self.manifests.instance, "router")))
        name = self.manifests.router_object
        deployment = there.deployments.get(name)
        content = there.config(deployment) if deployment is not None else None
        routes = content.get("routes") if content is not None else None
        if routes is None or deployment is None:
            return None
        wanted = next(one for one in self.manifests.router(routes) if one["kind"] == "Deployment")
        found = {**routes, "router_address": self.manifests.address(name), "router_port": self.settings.port}
        # One that other settings were made for follows nothing that is wanted now.
        return found if _made_of(deployment) == _made_of(wanted) else {**found, "revision": "of another manifest"}

    def down(self, *, drain_s: float) -> None:
        """Delete all that carries the deployment's label, and wait until its pods are gone."""
        limit_s = drain_s + self.hosts.limits.call_s
        self.kubectl.delete_all(_KINDS, selector=selector(self.manifests.instance), limit_s=limit_s)
        self._wait(
            lambda: not self.kubectl.get(["pods"], selector=selector(self.manifests.instance)),
            limit_s=limit_s,
            about="everything",
            why="pods are still there",
        )

    def close(self) -> None:
        """Nothing is held between two calls."""

    def _change(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        there = self._there()
        changed: dict[str, Group] = {}
        for key, added in grouped(units).items():
            name = self.manifests.group_object(added)
            had = there.groups.get(name)
            changed[name] = added if had is None else had.with_units(u for u in units if group_name(u) == key)
        made = [manifest for group in changed.values() for manifest in self.manifests.group(group)]
        try:
            self.kubectl.apply(made, about=", ".join(changed))
            self._roll_all(changed, limit_s=limit_s)
        except TargetFailed:
            self._take_back(changed, there)
            raise
        keep = {manifest["metadata"]["name"] for manifest in made}
        self._prune(there, keep=keep, about="old ConfigMaps", groups=changed)
        port = self.settings.port
        asked = {unit.name for unit in units}
        return {
            unit: Endpoint(self.manifests.address(name), port)
            for name, group in changed.items()
            for unit in group.units
            if unit in asked
        }

    def _take_back(self, changed: Mapping[str, Group], before: _There) -> None:
        """After a failed change: the objects that were there are applied again as they were, with their image and all
        that an older hosts.toml said; what is new goes. Others report the failure.
        """
        there = self._there()
        for name in changed:
            if name in before.groups:
                self.kubectl.apply(before.former(name), about=name)
            else:
                self.kubectl.delete(there.objects_of(name), limit_s=self.hosts.limits.drain_s, about=name)

    def _roll_all(self, changed: Mapping[str, Group], *, limit_s: float) -> None:
        """Wait for all groups side by side; each of the waves of a roll may take as long as one pod may."""

        def wait(name: str) -> None:
            marks = selector(self.manifests.instance, "worker", name)
            self._roll(name, limit_s=limit_s * min(WAVES, max(changed[name].replicas, 1)), marks=marks)

        with ThreadPoolExecutor(min(max(len(changed), 1), _SIDE_BY_SIDE)) as pool:
            rolling = [pool.submit(wait, name) for name in changed]
        for one in rolling:
            one.result()

    def _roll(self, deployment: str, *, limit_s: float, marks: str) -> None:
        try:
            self.kubectl.rollout(deployment, limit_s=max(1.0, limit_s))
        except TargetFailed as error:
            troubles = _troubles(self.kubectl.get(["pods", "deployments.apps"], selector=marks))
            if not troubles:
                raise
            raise TargetFailed(self.name, deployment, f"{error.cause} ({troubles})") from None

    def _prune(self, there: _There, *, keep: Iterable[str], about: str, groups: Iterable[str] | None = None) -> None:
        """Delete ConfigMaps that nothing mounts any more."""
        kept, within = set(keep), None if groups is None else set(groups)
        old = [
            ("configmaps", name)
            for name, one in there.configs.items()
            if name not in kept and (within is None or one["metadata"]["labels"].get(LABEL_GROUP) in within)
        ]
        self.kubectl.delete(old, limit_s=self.hosts.limits.call_s, about=about)

    def _there(self) -> _There:
        return _There(self.kubectl.get([*_KINDS, "pods"], selector=selector(self.manifests.instance, "worker")))

    def _seen(self, there: _There, name: str, group: Group) -> Iterable[Seen]:
        pods = [pod for pod in there.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(_ready(pod) for pod in pods)
        why = _troubles([*pods, there.deployments[name]])
        restarts = max((_restarts(pod) for pod in pods), default=0)
        at = Endpoint(self.manifests.address(name), self.settings.port)
        as_wanted = self._as_wanted(there.deployments[name], group)
        for place, unit in enumerate(group.units.values()):
            status = "ready" if place < ready else "failing" if why else "starting"
            said = "" if status == "ready" else why
            content = unit.content if as_wanted else f"{unit.content}, of another manifest"
            yield Seen(unit.name, content, status, endpoint=at, unit=unit, restarts=restarts, why=said)

    def _as_wanted(self, deployment: Json, group: Group) -> bool:
        """Whether it is what hosts.toml makes of the group now, and nobody has changed how many it has."""
        if group.unit.host not in self.hosts.hosts or deployment["spec"].get("replicas") != group.replicas:
            return False
        return _made_of(deployment) == self.manifests.made_of(group)

    def _counters(self, pod: str) -> Mapping[str, Mapping[str, float]]:
        path = f"/api/v1/namespaces/{self.settings.namespace}/pods/{pod}:{self.settings.port}/proxy/metrics"
        try:
            answer = self.kubectl.raw(path, about=pod)
        except TargetFailed:
            return {}
        loads = answer.get("loads", {}) if isinstance(answer, dict) else {}
        return {load: dict(counters) for load, counters in loads.items() if isinstance(counters, dict)}

    def _until_gone(self, name: str, most: int, *, limit_s: float) -> None:
        marks = selector(self.manifests.instance, "worker", name)
        self._wait(
            lambda: len(self.kubectl.get(["pods"], selector=marks)) <= most,
            limit_s=limit_s,
            about=name,
            why=f"more than {most} pods are still there",
        )

    def _wait(self, done: Callable[[], bool], *, limit_s: float, about: str, why: str) -> None:
        until = time.monotonic() + limit_s
        while not done():
            if time.monotonic() >= until:
                raise TargetFailed(self.name, about, f"{why} after {limit_s:g} s")
            time.sleep(_LOOK_S)


class _There:
    """Objects that the cluster holds, sorted by what they are."""

    def __init__(self, objects: Sequence[Json]) -> None:
        self.objects = objects
        self.deployments = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Deployment"}
        self.configs = {one["metadata"]["name"]: one for one in objects if one["kind"] == "ConfigMap"}

    @property
    def groups(self) -> dict[str, Group]:
        """Groups by the name of their Deployment; objects that are not of our making are passed over."""
        found: dict[str, Group] = {}
        for name, deployment in self.deployments.items():
            content = self.config(deployment)
            notes = deployment["metadata"].get("annotations", {})
            if content is not None and "unit" in content and "hetplan/indices" in notes:
                indices, standby = (tuple(json.loads(notes[f"hetplan/{key}"])) for key in ("indices", "standby"))
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

    def former(self, group: str) -> list[Json]:
        """The objects of a group as they were, to be applied again: without what the server adds."""
        named = {(kind.split(".")[0][:-1], name) for kind, name in self.objects_of(group)}
        found = [one for one in self.objects if (one["kind"].lower(), one["metadata"]["name"]) in named]
        kept = ("name", "namespace", "labels", "annotations")
        return [
            {
                **{key: value for key, value in one.items() if key != "status"},
                "metadata": {
                    key: {k: v for k, v in value.items() if "kubernetes.io/" not in k or key == "labels"}
                    if isinstance(value, dict) else value
                    for key, value in one["metadata"].items() if key in kept
                },
            }
            for one in found
        ]  # fmt: skip

    def objects_of(self, group: str) -> list[tuple[str, str]]:
        """All that belongs to a group, the Deployment first."""
        kinds = {"Deployment": "deployments.apps", "Service": "services", "ConfigMap": "configmaps"}
        mine = [one for one in self.objects if one["kind"] in kinds and _group_of(one) == group]
        mine.sort(key=lambda one: list(kinds).index(one["kind"]))
        return [(kinds[one["kind"]], one["metadata"]["name"]) for one in mine]


def _made_of(deployment: Json) -> str | None:
    notes: Mapping[str, str] = deployment["spec"]["template"]["metadata"].get("annotations", {})
    return notes.get(MADE_OF)


def _of_template(pod: Json, deployment: Json) -> bool:
    """Whether a pod was made of the Deployment's present template: the same digest, and the same ConfigMap."""
    notes = pod["metadata"].get("annotations", {})
    if notes.get(MADE_OF) != _made_of(deployment):
        return False
    template = deployment["spec"]["template"].get("spec", {}).get("volumes", ())
    mounted = [_mounted(volumes) for volumes in (pod.get("spec", {}).get("volumes", ()), template)]
    return not mounted[0] or mounted[0] == mounted[1]


def _mounted(volumes: Iterable[Json]) -> list[str]:
    return [one["configMap"]["name"] for one in volumes if "configMap" in one]


def _group_of(one: Json) -> str | None:
    marks: Mapping[str, str] = one["metadata"].get("labels", {})
    return marks.get(LABEL_GROUP) if marks.get(LABEL_PART) == "worker" else None


def _ready(pod: Json) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )


def _restarts(pod: Json) -> int:
    return sum(int(one.get("restartCount", 0)) for one in pod.get("status", {}).get("containerStatuses", ()))


def _troubles(pods: Iterable[Json]) -> str:
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
                said[f"{pod['metadata']['name']} is in {waiting['reason']}{message}"] = None
    return "; ".join(said)
