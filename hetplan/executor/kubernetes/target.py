"""The `kubernetes` target: a Deployment per group of workers, applied server-side by `kubectl`.

A group grows and changes by rolling updates that start new pods before old ones stop; what a failed change did is taken
back. The cluster is the truth: what runs is read from the labels and annotations of the objects that are there. One
command at a time changes it: that command holds its Lease.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from hetplan.errors import InputError
from hetplan.executor.durable import write_durably
from hetplan.executor.kubernetes.cluster_state import (
    ClusterState,
    is_alive,
    is_ready,
    restarts_of,
    same_template,
    troubles_of,
)
from hetplan.executor.kubernetes.groups import LABEL_GROUP, Group, group_name, grouped, labels, selector
from hetplan.executor.kubernetes.kubectl import Away, Kubectl, Modified
from hetplan.executor.kubernetes.lease import Lease
from hetplan.executor.kubernetes.manifests import WAVES, Manifests
from hetplan.executor.kubernetes.settings import KubernetesSettings
from hetplan.executor.render.names import marked_name
from hetplan.executor.target import Setting, TargetFailed, TargetRefused, UnitHealth
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.profiles.validate import validate

__all__ = ["Kubernetes"]

Json = dict[str, Any]

_KINDS = ("deployments.apps", "services", "configmaps", "poddisruptionbudgets.policy")
_ROUTERS_OWN = "networkpolicies.networking.k8s.io"
_ROLLED, _FOLLOW_S = "hetplan/routes", 10.0
_LOOK_S = 0.5
_SIDE_BY_SIDE = 16
_TRIES = 5


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
        self._folder = setting.folder
        self._lease: Lease | None = None
        self._former: dict[str, list[Json]] = {}
        self._asked = False

    @contextmanager
    def hold(self, what: str, *, wait_s: float) -> Iterator[None]:
        """Nobody else changes this deployment meanwhile, from whichever machine and state folder."""
        name = marked_name(self.hosts.name, "apply", distinct_by="lease")
        marks = labels(self.manifests.instance, "lease")
        with Lease(self.kubectl, name, marks, what=what, home=self._folder, wait_s=wait_s) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def remember(self) -> None:
        """Keep the objects as they are now: to them a later change that fails goes back."""
        there = self._there()
        router = self._router()
        kept = {name: there.former(name) for name in there.groups}
        kept |= {name: router.former(name) for name in router.deployments}
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self._kept, json.dumps({"format": _KEPT, "objects": kept}, indent=1).encode() + b"\n")

    @contextmanager
    def going_back(self) -> Iterator[None]:
        """What is wanted meanwhile is what was kept, with the image and all that hosts.toml said then."""
        with suppress(OSError, ValueError, KeyError):
            self._former = dict(json.loads(self._kept.read_text())["objects"])
        try:
            yield
        finally:
            self._former = {}

    def check(self, units: Sequence[Unit]) -> list[str]:
        """No kubectl, machines without GPUs or nodes, shares that are not enforced, what the API server says."""
        if missing := self.kubectl.missing():
            return [missing]
        try:
            groups = grouped(units)
            self.manifests.check_machines(groups.values())
            said = [why for group in groups.values() for why in self.manifests.unenforced(group)]
            if not said:
                self._know_the_server()
            made = [manifest for group in groups.values() for manifest in self.manifests.group(group)]
            if made and not said:
                self.kubectl.look_at(made, about="check", owners=False)
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
        there = self._there()
        return tuple(seen for name, group in there.groups.items() for seen in self._seen(there, name, group))

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Apply the groups that these units belong to, and wait for their pods."""
        return self._change(units, limit_s=limit_s)

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """The same by a rolling update: a pod does not change, it is replaced."""
        return self._change(units, limit_s=limit_s)

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Shrink the groups, or delete those of which nothing is left; their pods drain by their own grace period."""
        there = self._there(acting=True)
        limit_s = self._leaving_s(drain_s)
        for name, group in there.groups.items():
            left = group.without(names)
            if left.replicas == group.replicas:
                continue
            if left.replicas:
                self._apply(self._made(left, there), about=name)
            else:
                self._delete(there.objects_of(name), about=name)
            if name not in there.scaled or not left.replicas:
                self._until_gone(self._marks_of(name), left.replicas, limit_s=limit_s, about=name)

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        """Readiness by the pods; counters by their own `/metrics`, read through the API server."""
        asked, there = set(names), self._there()
        found: dict[str, UnitHealth] = {}
        ready: dict[str, str] = {}
        for name, group in there.groups.items():
            pods = sorted(there.pods(name), key=lambda pod: (not is_ready(pod), pod["metadata"]["name"]))
            for place, unit in enumerate(group.units):
                if unit not in asked:
                    continue
                if place < len(pods) and is_ready(pods[place]):
                    ready[unit] = pods[place]["metadata"]["name"]
                elif _not_asked_for(there, name, pods):
                    found[unit] = UnitHealth(True)
                else:
                    why = troubles_of([*pods, there.deployments[name]])
                    found[unit] = UnitHealth(False, why=why or "its pod is not there yet")
        answers = self.kubectl.raws([self._at(pod, "metrics") for pod in ready.values()])
        return found | {
            unit: UnitHealth(True, loads=_counters(answer)) for unit, answer in zip(ready, answers, strict=True)
        }

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """The routes in their ConfigMap, which the router's pods follow; a rolling update where they are to be others,
        or cannot be asked what they follow.
        """
        if routes is None:
            self._may_change()
            self.kubectl.delete_all(self._all_kinds, selector=self._router_marks)
            self._until_gone(self._router_marks, limit_s=limit_s, about="router")
            return
        before = self._router()
        self._know_the_server()
        made, name = self._made_router(routes), self.manifests.router_object
        revision, there = routes.get("revision"), before.deployments.get(name)
        deaf = there is not None and _ROLLED in there["spec"]["template"]["metadata"].get("annotations", {})
        try:
            self._refuse_early(made, before, self._router)
            if not deaf:
                self._apply(made, about="router")
                self._roll(name, limit_s=limit_s, marks=self._router_marks)
                deaf = there is not None and not self._follow(revision, limit_s=limit_s)
            if deaf:
                made[-1]["spec"]["template"]["metadata"]["annotations"][_ROLLED] = str(revision)
                self._apply(made, about="router")
                self._roll(name, limit_s=limit_s, marks=self._router_marks)
        except (Away, TargetRefused):
            raise
        except TargetFailed:
            if name in before.deployments:
                self._apply(before.former(name), about=name)
            raise

    def _follow(self, revision: str | None, *, limit_s: float) -> bool:
        """Wait until every pod of the router follows these routes; False where they do not say what they follow.

        A pod that is marked anew is looked at by its node at once, which then brings its files up to date.
        """
        until, silent_until = time.monotonic() + limit_s, time.monotonic() + _FOLLOW_S
        self._may_change()
        self.kubectl.annotate_pods(self._router_marks, _ROLLED, str(revision))
        while True:
            pods = [pod for pod in self.kubectl.get(["pods"], selector=self._router_marks) if is_ready(pod)]
            with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
                said = list(pool.map(self._follows, (pod["metadata"]["name"] for pod in pods)))
            if pods and all(one == (revision,) for one in said):
                return True
            if time.monotonic() >= (until if any(said) else silent_until):
                return False
            time.sleep(_LOOK_S)

    def _follows(self, pod: str) -> tuple[object, ...]:
        """What a pod of the router says that it follows; () where it cannot be asked."""
        try:
            answer = self.kubectl.raw(self._at(pod, "healthz"), about=pod)
        except Away:
            raise
        except TargetFailed:
            return ()
        return (answer["follows"],) if isinstance(answer, dict) and "follows" in answer else ()

    def routed(self) -> Mapping[str, Any] | None:
        """The routes in the ConfigMap that the router's Deployment mounts."""
        there, name = self._router(), self.manifests.router_object
        deployment = there.deployments.get(name)
        content = there.config(deployment) if deployment is not None else None
        routes = content.get("routes") if content is not None else None
        if routes is None or deployment is None:
            return None
        wanted = next(one for one in self._made_router(routes) if one["kind"] == "Deployment")
        found = {**routes, "router_address": self.manifests.address(name), "router_port": self.settings.port}
        # One that other settings were made for follows nothing that is wanted now.
        return found if same_template(deployment, wanted) else {**found, "revision": "of another manifest"}

    def down(self, *, drain_s: float) -> None:
        """Delete all that carries the deployment's label, and wait until its pods are gone."""
        self._may_change()
        marks = selector(self.manifests.instance)
        self.kubectl.delete_all(self._all_kinds, selector=marks)
        if self.manifests.secret is None:
            # An earlier hosts.toml may have named a token; who may not touch secrets has none here.
            with suppress(TargetFailed):
                self.kubectl.delete_all(["secrets"], selector=marks)
        self._until_gone(marks, limit_s=self._leaving_s(drain_s), about="everything")
        self._kept.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is held between two calls."""

    # How

    @property
    def _kept(self) -> Path:
        return self._folder / "former.json"

    def _may_change(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _apply(self, made: Sequence[Json], *, about: str) -> None:
        self._may_change()
        secret = [self.manifests.secret] if self.manifests.secret is not None else []
        self.kubectl.apply([*secret, *made], about=about)

    def _delete(self, objects: Iterable[tuple[str, str]], *, about: str) -> None:
        self._may_change()
        self.kubectl.delete(objects, about=about)

    def _made(self, group: Group, there: ClusterState) -> list[Json]:
        """The manifests of a group: as hosts.toml has it, or as they were where this goes back. How many pods it has is
        left to the autoscaler that owns that.
        """
        name, made = self.manifests.group_object(group), self.manifests.group(group)
        former = self._former.get(name)
        if former is not None and former[0].get("data") == made[0]["data"]:
            *others, deployment = former
            now = made[-1]
            notes = {**deployment["metadata"].get("annotations", {}), **now["metadata"]["annotations"]}
            spec = {**deployment["spec"], "replicas": now["spec"]["replicas"]}
            metadata = {**deployment["metadata"], "annotations": notes}
            made = [*others, {**deployment, "metadata": metadata, "spec": spec}]
        if name in there.scaled:
            made[-1]["spec"]["replicas"] = there.replicas(name)
        return made

    def _made_router(self, routes: Mapping[str, Any]) -> list[Json]:
        """The manifests of the router: as hosts.toml has it, or as they were where this goes back."""
        *others, now = self.manifests.router(routes)
        former = self._former.get(self.manifests.router_object)
        return [*others, now if former is None else former[-1]]

    def _change(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        there = self._there(acting=True)
        self._know_the_server()
        changed: dict[str, Group] = {}
        for key, added in grouped(units).items():
            name = self.manifests.group_object(added)
            had = there.groups.get(name)
            changed[name] = added if had is None else had.with_units(u for u in units if group_name(u) == key)
        made = [manifest for group in changed.values() for manifest in self._made(group, there)]
        self._refuse_early(made, there, self._there)
        try:
            self._apply(made, about=", ".join(changed))
            self._roll_all(changed, limit_s=limit_s)
        except Away:
            # Nothing can be taken back without an API server; the next apply finishes it, or undo does.
            raise
        except TargetFailed as error:
            self._take_back(changed, there, error)
            raise
        keep = {manifest["metadata"]["name"] for manifest in made}
        self._prune(there, keep, changed, selector(self.manifests.instance, "worker"))
        port = self.settings.port
        asked = {unit.name for unit in units}
        return {
            unit: Endpoint(self.manifests.address(name), port)
            for name, group in changed.items()
            for unit in group.units
            if unit in asked
        }

    def _refuse_early(self, made: Sequence[Json], there: ClusterState, read: Callable[[], ClusterState]) -> None:
        """Before anything is touched: `TargetFailed` where somebody else owns a field, or changed what was read."""
        for _ in range(_TRIES):
            known = {
                name: one["metadata"].get("resourceVersion")
                for name, one in there.deployments.items()
                if one["metadata"].get("resourceVersion") is not None
            }
            old = [one for one in made if one["kind"] == "Deployment" and one["metadata"]["name"] in known]
            marked = [
                {**one, "metadata": {**one["metadata"], "resourceVersion": known[one["metadata"]["name"]]}}
                for one in old
            ]
            if not marked:
                return
            try:
                self._look_at(marked)
            except Modified:
                now = read()
                for name, one in there.deployments.items():
                    self._same(name, one, now)
                there = now
            else:
                return
        raise TargetRefused(self.name, "check", "the cluster does not come to rest: look at it, and apply again")

    def _look_at(self, marked: Sequence[Json]) -> None:
        try:
            self.kubectl.look_at(marked, about=", ".join(one["metadata"]["name"] for one in marked), owners=True)
        except (Away, Modified):
            raise
        except TargetFailed:
            # Which of them it is about, kubectl does not say.
            for one in marked:
                name = one["metadata"]["name"]
                try:
                    self.kubectl.look_at([one], about=name, owners=True)
                except TargetFailed as error:
                    raise TargetRefused(self.name, name, error.cause) from None
            raise

    def _same(self, name: str, before: Json, now: ClusterState) -> None:
        """`TargetFailed` where a Deployment is no longer what it was; its status alone may change at any time."""
        after = now.deployments.get(name)
        if after is None or (name not in now.scaled and after["spec"] != before["spec"]):
            why = "somebody else changed it after it was looked at. See the difference again (hetplan diff), then apply"
            raise TargetRefused(self.name, name, why)

    def _take_back(self, changed: Mapping[str, Group], before: ClusterState, failure: TargetFailed) -> None:
        """After a failed change: the objects that were there are applied again as they were, with their image and all
        all that an older hosts.toml said; what is new goes. Others report the failure; where it cannot be taken back,
        `TargetFailed` says both.
        """
        try:
            there = self._there()
            for name in changed:
                if name in before.groups:
                    self._apply(before.former(name), about=name)
                else:
                    self._delete(there.objects_of(name), about=name)
                    left_s = self._leaving_s(self.hosts.limits.drain_s)
                    self._until_gone(self._marks_of(name), limit_s=left_s, about=name)
        except TargetFailed as error:
            why = f"{failure.cause}; what was begun is still there: {error.cause}"
            raise TargetFailed(self.name, failure.about, why) from None

    def _leaving_s(self, drain_s: float) -> float:
        """The longest that a pod may take to end."""
        return drain_s + self.settings.leave_s + self.hosts.limits.call_s

    def _roll_all(self, changed: Mapping[str, Group], *, limit_s: float) -> None:
        """Wait for all groups side by side; each of the waves of a roll may take as long as one pod may."""

        def wait(name: str) -> None:
            waves = min(WAVES, max(changed[name].replicas, 1))
            self._roll(name, limit_s=limit_s * waves, marks=self._marks_of(name))

        with ThreadPoolExecutor(min(max(len(changed), 1), _SIDE_BY_SIDE)) as pool:
            rolling = [pool.submit(wait, name) for name in changed]
        for one in rolling:
            one.result()

    def _roll(self, deployment: str, *, limit_s: float, marks: str) -> None:
        try:
            self.kubectl.rollout(deployment, limit_s=max(1.0, limit_s))
        except TargetFailed as error:
            troubles = troubles_of(self.kubectl.get(["pods", "deployments.apps"], selector=marks))
            if not troubles:
                raise
            raise TargetFailed(self.name, deployment, f"{error.cause} ({troubles})") from None

    def _prune(self, before: ClusterState, keep: Iterable[str], groups: Iterable[str], marks: str) -> None:
        """Delete ConfigMaps of these groups that were there before and that no ReplicaSet mounts any more."""
        kept, within = set(keep), set(groups)
        old = [
            name
            for name, one in before.configs.items()
            if name not in kept and one["metadata"]["labels"].get(LABEL_GROUP, "") in within
        ]
        if old:
            mounted = ClusterState(self.kubectl.get(["replicasets.apps", "deployments.apps"], selector=marks)).mounted()
            gone = [("configmaps", name) for name in old if name not in mounted]
            self._delete(gone, about="old ConfigMaps")

    def _there(self, *, acting: bool = False) -> ClusterState:
        kinds = [*_KINDS, "replicasets.apps", "pods"]
        there = ClusterState(self.kubectl.get(kinds, selector=selector(self.manifests.instance, "worker")))
        odd = any(group.replicas != there.replicas(name) for name, group in there.groups.items())
        return ClusterState(there.objects, self._scaled()) if there.groups and (acting or odd) else there

    def _router(self) -> ClusterState:
        return ClusterState(self.kubectl.get(_KINDS, selector=self._router_marks))

    @property
    def _router_marks(self) -> str:
        return selector(self.manifests.instance, "router")

    @property
    def _all_kinds(self) -> list[str]:
        monitor = ["servicemonitors.monitoring.coreos.com"] if self.settings.service_monitor else []
        secret = ["secrets"] if self.manifests.secret is not None else []
        return [*_KINDS, _ROUTERS_OWN, *monitor, *secret]

    def _know_the_server(self) -> None:
        """Which version of its kinds the cluster has; the newest where it does not say."""
        if self._asked:
            return
        self._asked = True
        with suppress(TargetFailed):
            found = self.kubectl.raw("/apis/policy", about="versions")
            versions = [one.get("groupVersion") for one in found.get("versions", ())]
            if versions and "policy/v1" not in versions:
                self.manifests.budgets = "policy/v1beta1"

    def _at(self, pod: str, path: str) -> str:
        """The path of the API server that leads to a pod's own."""
        return f"/api/v1/namespaces/{self.settings.namespace}/pods/{pod}:{self.settings.port}/proxy/{path}"

    def _scaled(self) -> frozenset[str]:
        """Deployments of which an autoscaler says how many pods they have; none where that cannot be asked."""
        try:
            found = self.kubectl.get(["horizontalpodautoscalers.autoscaling"])
        except Away:
            raise
        except TargetFailed:
            return frozenset()
        refs = [one["spec"].get("scaleTargetRef", {}) for one in found]
        return frozenset(ref["name"] for ref in refs if ref.get("kind") == "Deployment")

    def _seen(self, there: ClusterState, name: str, group: Group) -> Iterable[Seen]:
        pods = [pod for pod in there.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(is_ready(pod) for pod in pods)
        why = troubles_of([*pods, there.deployments[name]])
        restarts = max((restarts_of(pod) for pod in pods), default=0)
        at = Endpoint(self.manifests.address(name), self.settings.port)
        as_wanted = self._as_wanted(there, name, group)
        for place, unit in enumerate(group.units.values()):
            up = place < ready or _not_asked_for(there, name, pods)
            status = "ready" if up else "failing" if why else "starting"
            said = "" if status == "ready" else why
            content = unit.content if as_wanted else f"{unit.content}, of another manifest"
            yield Seen(unit.name, content, status, endpoint=at, unit=unit, restarts=restarts, why=said)

    def _as_wanted(self, there: ClusterState, name: str, group: Group) -> bool:
        """Whether it is what is wanted of the group, and nobody but an autoscaler changed how many pods it has."""
        if group.unit.host not in self.hosts.hosts:
            return False
        if there.replicas(name) != group.replicas and name not in there.scaled:
            return False
        return same_template(there.deployments[name], self._made(group, there)[-1])

    def _marks_of(self, name: str) -> str:
        return selector(self.manifests.instance, "worker", name)

    def _until_gone(self, marks: str, most: int = 0, *, limit_s: float, about: str) -> None:
        """Wait until at most so many pods are left, and none of their Deployments where no pod is to be left.

        `limit_s` is how long it may take until there is one less: many pods end one after the other, as fast as the
        cluster lets them.
        """
        kinds = ["pods"] if most else ["deployments.apps", "pods"]
        least, until = inf, inf
        while (left := sum(map(is_alive, self.kubectl.get(kinds, selector=marks)))) > most:
            now = time.monotonic()
            if left < least:
                least, until = left, now + limit_s
            elif now >= until:
                why = f"{left} are still there, {most} are to be left, and none went away for {limit_s:g} s"
                raise TargetFailed(self.name, about, why)
            time.sleep(_LOOK_S)


_KEPT = "hetplan/kept-objects/1.0"


def _counters(answer: Any) -> Mapping[str, Mapping[str, float]]:
    """What a pod counts, per load; nothing where it did not answer."""
    loads = answer.get("loads", {}) if isinstance(answer, dict) else {}
    return {load: dict(counters) for load, counters in loads.items() if isinstance(counters, dict)}


def _not_asked_for(there: ClusterState, name: str, pods: Sequence[Json]) -> bool:
    """Whether a worker has no pod because an autoscaler wants fewer, and all that it wants are ready."""
    return name in there.scaled and sum(map(is_ready, pods)) >= there.replicas(name)
