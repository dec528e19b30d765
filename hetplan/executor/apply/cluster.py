"""What a cluster has of one deployment, by its labels, and how rendered objects come into it and leave it.

The cluster is the truth: what runs is read from the objects that are there, and what was last brought about is kept in
one of them, so that any machine can go back to it.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.apply.kubectl import NAME, Away, Kubectl
from hetplan.executor.apply.lease import Lease
from hetplan.executor.render.names import Json, dns_name, documents, objects_of
from hetplan.executor.render.pods import EDGE, GROUP, OFFER, REPLICAS, WORKER, ours, read_labels
from hetplan.executor.site import Site, as_server
from hetplan.executor.target import TargetFailed, TargetRefused

__all__ = ["KINDS", "NOTHING", "Changes", "Cluster", "Rendered", "RunningGroup", "phases_of", "troubles_of"]

KINDS: Mapping[str, str] = {
    "ConfigMap": "configmaps", "Service": "services", "PodDisruptionBudget": "poddisruptionbudgets.policy",
    "Deployment": "deployments.apps", "HTTPRoute": "httproutes.gateway.networking.k8s.io",
    "ScaledObject": "scaledobjects.keda.sh", "NodePool": "nodepools.karpenter.sh",
    "ResourceFlavor": "resourceflavors.kueue.x-k8s.io", "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
}  # fmt: skip
"""All kinds that are rendered for Kubernetes, as kubectl names them."""
_EVERYWHERE = ("ConfigMap", "Service", "PodDisruptionBudget", "Deployment")
LARGEST_CONFIG_BYTES = 1024 * 1024
"""The most that Kubernetes takes in one ConfigMap."""
_AUTOSCALERS, _KEDA = "horizontalpodautoscalers.autoscaling", "scaledobject.keda.sh/name"
_FILES = "files.json.gz"
_NOT_LISTED = re.compile(r"Forbidden|doesn't have a resource type|could not find the requested resource")
_LOOK_S = 0.5
_SIDE_BY_SIDE = 16

Name = tuple[str, str]
"""Kind and name of an object."""


@dataclass(frozen=True)
class Rendered:
    """The files of a plan by name, as `render` wrote them."""

    plan: str
    files: Mapping[str, str]

    @property
    def packed(self) -> str:
        """The files as an object of the cluster holds them."""
        return b64encode(gzip.compress(json.dumps(dict(self.files), sort_keys=True).encode(), mtime=0)).decode()

    @property
    def objects(self) -> list[Json]:
        """What the files hold."""
        return [one for name, text in self.files.items() for one in objects_of(text, name)]


NOTHING = Rendered("nothing", {})


@dataclass(frozen=True)
class Changes:
    """What applying files would change: objects that are made, changed, deleted; and `kubectl`'s own account of it."""

    made: tuple[Name, ...] = ()
    changed: tuple[Name, ...] = ()
    gone: tuple[Name, ...] = ()
    text: str = ""
    objects: tuple[Json, ...] = ()
    """What is applied: the files' objects, with counts that are left to others."""

    def __bool__(self) -> bool:
        return bool(self.made or self.changed or self.gone)


@dataclass(frozen=True)
class RunningGroup:
    """A group as its Deployment says it; `ready` are pods of its present template that take queries."""

    told: Mapping[str, Any]
    wanted: int
    ready: int
    why: str = ""
    offer: str | None = None
    worker: Mapping[str, Any] = field(default_factory=dict)
    """What the plan says of it: hardware, offer, load; empty where that is not noted."""

    @property
    def name(self) -> str:
        """As rendered."""
        return str(self.told["name"])


class Cluster:
    """One deployment (site.toml's `name`) in one namespace; `kubectl` is the way to it."""

    def __init__(self, site: Site, *, take_over: bool = False) -> None:
        self.site, self.take_over, self.kubectl = site, take_over, Kubectl(site)
        self.marks = ours(site.name, site.namespace)
        self.selector = ",".join(f"{name}={value}" for name, value in self.marks.items())
        self.record = dns_name(site.name, "applied")
        self._lease: Lease | None = None
        self._unlisted: dict[str, TargetFailed] | None = None

    @contextmanager
    def hold(self, what: str, *, home: Path, wait_s: float) -> Iterator[None]:
        """Nobody else changes this deployment meanwhile, from whichever machine and state folder."""
        self.kubectl.check_program()
        name = dns_name(self.site.name, "apply")
        with Lease(self.kubectl, name, self.marks, what=what, home=home, wait_s=wait_s) as self._lease:
            try:
                yield
            finally:
                self._lease = None

    # Looking

    def changes(self, wanted: Rendered) -> Changes:
        """What applying these files would change; `TargetRefused` where an object of a name is somebody else's."""
        if (size := len(wanted.packed)) > LARGEST_CONFIG_BYTES:
            why = f"its files are kept in a ConfigMap, which holds {LARGEST_CONFIG_BYTES} bytes"
            raise InputError.one(file="plan", value=f"{size} bytes", why=why, remedy="Plan with fewer groups.")
        self.kubectl.check_program()
        objects, there = wanted.objects, self.there(wanted)
        live = {_name(one): one for one in self.kubectl.live([*objects, self._record(NOTHING)])}
        for kind, name in sorted(live.keys() - there):
            why = "is there already, and not of this deployment. Write another name or namespace in site.toml"
            raise TargetRefused(NAME, f"{kind} {name}", why)
        applied = self._as_scaled(objects, live.values(), {name for kind, name in there if kind == "ScaledObject"})
        text = self.kubectl.diff(applied) if applied else ""
        said = {(kind, name) for kind, name in _CHANGED.findall(text)}
        names = [_name(one) for one in objects]
        return Changes(
            made=tuple(one for one in names if one not in live),
            changed=tuple(one for one in names if one in live and one in said),
            gone=tuple(sorted(there - set(names) - {("ConfigMap", self.record)})),
            text=text,
            objects=tuple(applied),
        )

    def check(self, found: Changes) -> None:
        """Have the server look at everything; `TargetRefused` with what it, or who owns a field, says against it."""
        try:
            if found.objects:
                self.kubectl.apply(found.objects, force=self.take_over, only_look=True)
        except Away:
            raise
        except TargetFailed as error:
            raise TargetRefused(NAME, error.about, error.cause) from None

    def kept(self) -> Rendered | None:
        """What was last brought about; None where nothing is on record, or what is there is no record."""
        held = self.kubectl.one("configmaps", self.record)
        with suppress(OSError, EOFError, ValueError, KeyError, TypeError):
            if held is not None:
                files = json.loads(gzip.decompress(b64decode(held["binaryData"][_FILES])))
                return Rendered(held["data"]["plan"], files)
        return None

    def there(self, wanted: Rendered | None = None) -> set[Name]:
        """All that the cluster has of this deployment."""
        return {_name(one) for one in self._all(wanted)}

    def observed(self) -> Rendered:
        """What there is of this deployment, as files: the way back where none is on record."""
        found = [_plain(one) for one in self._all() if _name(one) != ("ConfigMap", self.record)]
        return Rendered("observed", {"kubernetes.yaml": documents(found, [])}) if found else NOTHING

    def groups(self) -> list[RunningGroup]:
        """The groups that run, with the cluster's own reasons where pods are not ready."""
        self.kubectl.check_program()
        found = self.kubectl.get(["deployments.apps", "pods"], selector=self.selector)
        pods = [one for one in found if one["kind"] == "Pod"]
        return [
            _group(one, pods) for one in found if one["kind"] == "Deployment" and GROUP in one["metadata"]["labels"]
        ]

    # Acting

    def apply(self, objects: Sequence[Json]) -> None:
        """Hand these objects to the server."""
        self._may_change()
        self.kubectl.apply(objects, force=self.take_over)

    def leave_counts(self, found: Changes) -> None:
        """Delete KEDA's objects that are not wanted any more, and wait until none is left that sets a count."""
        gone = [one for one in found.gone if one[0] == "ScaledObject"]
        self._may_change()
        self.kubectl.delete((KINDS[kind], name) for kind, name in gone)
        until = time.monotonic() + self.site.cluster.call_s
        while left := self.there() & set(gone):
            if time.monotonic() >= until:
                raise TargetFailed(NAME, ", ".join(name for _, name in sorted(left)), "KEDA does not let go of it")
            time.sleep(_LOOK_S)

    def wait(self, objects: Sequence[Json]) -> None:
        """Wait for all Deployments side by side; each wave of a roll may take as long as one pod may."""

        def wait(one: Json) -> None:
            name = one["metadata"]["name"]
            try:
                self.kubectl.rollout(name, limit_s=self.site.cluster.start_s * _waves(one["spec"]))
            except Away:
                raise
            except TargetFailed as error:
                troubles = self._troubles(name)
                raise TargetFailed(NAME, name, f"{error.cause} ({troubles})" if troubles else error.cause) from None

        deployments = [one for one in objects if one["kind"] == "Deployment"]
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            waiting = [pool.submit(wait, one) for one in deployments]
        for each in waiting:
            each.result()

    def prune(self, wanted: Rendered | None, but: str = "") -> None:
        """Delete what is of this deployment and not wanted, but none of a kind; wait until its pods have ended."""
        keep = {_name(one) for one in wanted.objects} | {("ConfigMap", self.record)} if wanted is not None else set()
        self._may_change()
        left = {one for one in self.there(wanted) - keep if one[0] != but}
        gone = sorted(left, key=lambda one: [*KINDS].index(one[0]), reverse=True)
        self.kubectl.delete((KINDS[kind], name) for kind, name in gone)
        self._until_gone({name for kind, name in gone if kind == "Deployment"})

    def keep(self, wanted: Rendered) -> None:
        """Put on record that this was brought about."""
        self._may_change()
        self.kubectl.apply([self._record(wanted)], force=True)

    # How

    def _record(self, wanted: Rendered) -> Json:
        metadata = {"name": self.record, "namespace": self.site.namespace, "labels": self.marks}
        data = {"data": {"plan": wanted.plan}, "binaryData": {_FILES: wanted.packed}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}

    def _all(self, wanted: Rendered | None = None) -> list[Json]:
        """All objects with our labels. Kinds that the server does not know, or that we may not list, are left out
        where neither what is wanted nor what is on record has any.
        """
        if self._unlisted is None:
            self._unlisted = dict(self._probed())
        needed = wanted.objects if wanted is not None else []
        if any("Forbidden" in error.cause for error in self._unlisted.values()) and (before := self.kept()) is not None:
            needed += before.objects
        for one in needed:
            if one["kind"] in self._unlisted:
                raise self._unlisted[one["kind"]]
        return self.kubectl.get([KINDS[kind] for kind in KINDS if kind not in self._unlisted], selector=self.selector)

    def _probed(self) -> Iterator[tuple[str, TargetFailed]]:
        """Kinds that cannot be listed, and why. (What the server lists of its kinds fails with any part of it.)"""
        for kind in [kind for kind in KINDS if kind not in _EVERYWHERE]:
            try:
                self.kubectl.get([KINDS[kind]], selector=self.selector)
            except TargetFailed as error:
                if not _NOT_LISTED.search(error.cause):
                    raise
                yield kind, error

    def _may_change(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _as_scaled(self, objects: Sequence[Json], live: Iterable[Json], scalers: set[str]) -> list[Json]:
        """The objects, with as many replicas as there are where an autoscaler says how many: one of somebody's, or KEDA
        by what was rendered. (Left out, a count that was ours before would be 1 for a moment, as of a new group.)
        """
        there = [one for one in live if one["kind"] == "Deployment"]
        counts = {one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in there}
        others: set[str] | None = None
        made = []
        for one in objects:
            name, count = one["metadata"]["name"], one.get("spec", {}).get("replicas")
            if one["kind"] == "Deployment":
                if count is None:
                    count = counts.get(name, int(one["metadata"]["annotations"].get(REPLICAS, 1)))
                elif counts.get(name, count) != count:
                    others = self._scaled_by_others(scalers) if others is None else others
                    count = counts[name] if name in others else count
                made.append({**one, "spec": {**one["spec"], "replicas": count}})
            else:
                made.append(one)
        return made

    def _scaled_by_others(self, scalers: set[str]) -> set[str]:
        """Deployments of which an autoscaler says how many pods they have; not those of our own ScaledObjects."""
        found = [one for one in self.kubectl.get([_AUTOSCALERS]) if not _scalers_of(one) & scalers]
        refs = [one["spec"].get("scaleTargetRef", {}) for one in found]
        return {str(ref["name"]) for ref in refs if ref.get("kind") == "Deployment"}

    def _troubles(self, deployment: str) -> str:
        found = self.kubectl.get(["deployments.apps", "pods"], selector=self.selector)
        return troubles_of(one for one in found if _owner(one) == deployment)

    def _until_gone(self, deployments: set[str]) -> None:
        """Wait until no pod of these is left. `stop_s` and more may pass until there is one less: many end one after
        the other, as fast as the cluster lets them.
        """
        least, until = inf, inf
        while deployments:
            found = self.kubectl.get(["deployments.apps", "pods"], selector=self.selector)
            left = sum(_is_alive(one) and _owner(one) in deployments for one in found)
            now, longest = time.monotonic(), self._longest_end_s()
            if not left:
                return
            if left < least:
                least, until = left, now + longest
            elif now >= until:
                why = f"{left} are still there, none are to be left, and none went away for {longest:g} s"
                raise TargetFailed(NAME, ", ".join(sorted(deployments)), why)
            time.sleep(_LOOK_S)

    def _longest_end_s(self) -> float:
        return max(as_server(rule).stop_s for rule in (None, *self.site.models.values())) + self.site.cluster.call_s


_CHANGED = re.compile(r"^diff .*/MERGED-\d+/(?:[^/\s]*\.)?([A-Z][A-Za-z]*)\.[a-z0-9-]*\.([a-z0-9.-]+)$", re.MULTILINE)
"""Of kubectl's account of a difference: the kind and name of each object."""


def _name(one: Json) -> Name:
    return one["kind"], one["metadata"]["name"]


def _plain(one: Json) -> Json:
    """An object as somebody would apply it: without what the server added."""
    metadata = {key: one["metadata"][key] for key in ("name", "namespace", "labels") if key in one["metadata"]}
    notes = {key: text for key, text in one["metadata"].get("annotations", {}).items() if "kubernetes.io/" not in key}
    made = {key: said for key, said in one.items() if key != "status"} | {
        "metadata": {**metadata, "annotations": notes}
    }
    if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None":
        made["spec"] = {key: said for key, said in one["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    return made


def _waves(spec: Json) -> int:
    """How many waves a roll of a Deployment takes, by how many pods it has and what it says of its roll."""
    room: Mapping[str, int | str] = spec.get("strategy", {}).get("rollingUpdate", {"maxSurge": "25%"})
    count: int = spec.get("replicas", 1)
    parts = [int(part[:-1]) * count // 100 if isinstance(part, str) else part for part in room.values()]
    return max(ceil(count / max(*parts, 1)), 1)


def _scalers_of(one: Json) -> set[str]:
    """The ScaledObject of KEDA's that a HorizontalPodAutoscaler is of, by all that KEDA says of it."""
    metadata = one["metadata"]
    owners = {owner["name"] for owner in metadata.get("ownerReferences", ()) if owner["kind"] == "ScaledObject"}
    return owners | {metadata.get("labels", {}).get(_KEDA, ""), metadata["name"].removeprefix("keda-hpa-")}


def phases_of(objects: Iterable[Json]) -> list[list[Json]]:
    """What is brought about in turn, so that queries move only to pods that are ready: groups; what stands before them
    as pods; then the ways to either.
    """
    every = list(objects)
    edges = {_name(one)[1] for one in every if one["kind"] == "Deployment" and EDGE in one["metadata"]["labels"]}

    def phase(one: Json) -> int:
        kind, name = _name(one)
        if kind == "HTTPRoute" or (kind == "Service" and EDGE in (one["spec"].get("selector") or {})):
            return 2
        return 1 if kind == "Deployment" and name in edges else 0

    return [part for number in range(3) if (part := [one for one in every if phase(one) == number])]


def without_new(found: Changes) -> list[Json]:
    """The routes by those of their backends that are there and stay; none where a route would have none left."""
    made, routes = {name for kind, name in found.made if kind == "Service"}, []
    for one in found.objects:
        if one["kind"] == "HTTPRoute" and _name(one) not in found.made:
            rules = [
                {**rule, "backendRefs": [ref for ref in rule["backendRefs"] if ref["name"] not in made]}
                for rule in one["spec"]["rules"]
            ]
            if all(any(ref.get("weight", 1) for ref in rule["backendRefs"]) for rule in rules):
                routes.append({**one, "spec": {**one["spec"], "rules": rules}})
    return routes


def _owner(one: Json) -> str | None:
    """The Deployment that a pod is of, or that it is itself."""
    marks: Mapping[str, str] = one["metadata"].get("labels", {})
    return one["metadata"]["name"] if one["kind"] == "Deployment" else marks.get(GROUP, marks.get(EDGE))


def _is_alive(one: Json) -> bool:
    """Whether it is there at all: a pod that its node evicted stays listed, and holds nothing any more."""
    return one.get("status", {}).get("phase") not in ("Failed", "Succeeded")


def _group(deployment: Json, pods: Iterable[Json]) -> RunningGroup:
    """A group of a Deployment: ready pods of an older template do not count, as many as there may be of them."""
    metadata, status = deployment["metadata"], deployment.get("status", {})
    wanted = deployment["spec"].get("replicas", 1)
    older = status.get("replicas", 0) - status.get("updatedReplicas", 0)
    seen = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    ready = max(status.get("readyReplicas", 0) - older, 0) if seen else 0
    mine = [deployment, *(pod for pod in pods if _owner(pod) == metadata["name"])]
    return RunningGroup(
        told=read_labels(deployment, wanted, deployment["spec"]["template"]["spec"]), wanted=wanted, ready=ready,
        why=troubles_of(mine) if ready < wanted else "", offer=metadata["labels"].get(OFFER), worker=_noted(metadata),
    )  # fmt: skip


def _noted(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    with suppress(ValueError):
        found = json.loads(metadata.get("annotations", {}).get(WORKER, "{}"))
        if isinstance(found, dict):
            return found
    return {}


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
