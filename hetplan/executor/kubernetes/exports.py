"""A plan as files for Kubernetes: a folder for `kubectl apply -k`, with autoscalers and a schedule where asked for.

A plan with one period becomes its manifests. Autoscalers get the planned number of pods as their lower bound, the room
of the hosts as their upper bound, and the rate per pod for which the plan holds as their target.

A plan with periods becomes one Deployment per group of workers of any period, and for each period what changes with it:
the routes (a ConfigMap that a CronJob puts in the router's place), and how many pods each group has (the CronJobs, or
KEDA's cron triggers, or the bounds of HorizontalPodAutoscalers). Machines that start ahead do so in a CronJob of their
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from hetplan.errors import InputError
from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes.groups import Group, dns_name, labels
from hetplan.executor.kubernetes.manifests import Manifests, groups_at, kubernetes_target, router_manifests
from hetplan.executor.wanted import Wanted, wanted
from hetplan.profiles.plan import Period, Plan

__all__ = ["Export", "Scaling", "export_folder"]

Json = dict[str, Any]
Scaling = Literal["none", "hpa", "keda"]

_OLDEST = (1, 25)
"""policy/v1 and batch/v1 CronJob are of 1.21, autoscaling/v2 of 1.23; PodSecurityPolicies are gone since 1.25."""

_DAY_S, _WEEK_S = 86_400.0, 604_800.0
_QUERIES = "hetplan_queries_arrived_total"
_METRIC = "hetplan_queries_per_second"


@dataclass(frozen=True)
class Export:
    """Files by name, how many objects they hold, and what is to be known of them."""

    files: Mapping[str, str]
    objects: int
    notes: tuple[str, ...]


def export_folder(
    plan: Plan, hosts: HostsFile, *, version: str, scaling: Scaling = "none", target: str | None = None,
    timezone: str = "Etc/UTC",
) -> Export:  # fmt: skip
    """A plan's files for a cluster of this version (as "1.32"); `InputError` where they cannot be made."""
    number = _version(version)
    name, settings = kubernetes_target(hosts, target)
    made = Manifests(hosts, settings)
    whole = _Whole(plan, hosts, name, made, timezone)
    objects = whole.objects(scaling)
    notes = list(_checked(objects, version, number))
    if scaling == "hpa":
        notes.append(
            f"the external metric {_METRIC} (label app) has to come from a metrics adapter: "
            f"sum by (app) (rate({_QUERIES}[1m]))"
        )
        if len(plan.periods) > 1:
            notes.append("a HorizontalPodAutoscaler keeps one pod of a group also in hours in which the plan has none")
    spot = {group.unit.offer or "" for group in whole.groups.values() if group.unit.spot}
    if unsaid := sorted(spot - settings.offers.keys()) if not settings.spot.node_selector else []:
        notes.append(f"hosts.toml does not say which nodes are spot machines ({', '.join(unsaid)}): settings.spot")
    if made.keys is not None:
        held = ", ".join(made.keys["data"])
        notes.append(f"make the Secret {made.keys['metadata']['name']} with {held}; secrets are not written to files")
    lines = [json.dumps(one, indent=1, allow_nan=False) for one in objects]
    index = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": settings.namespace,
        "resources": ["objects.yaml"],
    }  # fmt: skip
    files = {
        "kustomization.yaml": json.dumps(index, indent=1) + "\n",
        "objects.yaml": "".join(f"---\n{text}\n" for text in lines),
    }
    return Export(files, len(objects), tuple(notes))


def _version(written: str) -> tuple[int, int]:
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+)?", written)
    major, minor = (int(found[1]), int(found[2])) if found else (0, 0)
    if (major, minor) < _OLDEST:
        raise InputError.one(
            file="--set", path="version", value=written, why="the objects are of Kubernetes 1.25 and newer",
            remedy="Name the version of the cluster, as 1.32. hetplan apply serves clusters from 1.20 on.",
        )  # fmt: skip
    return major, minor


def _checked(objects: Sequence[Json], version: str, number: tuple[int, int]) -> Iterator[str]:
    """Hold the objects against the schemas of that version; yields what could not be checked."""
    if find_spec("kubernetes_validate") is None:
        yield "the objects were not held against Kubernetes' schemas: pip install kubernetes-validate"
        return
    tool: Any = import_module("kubernetes_validate")
    others: dict[str, None] = {}
    for one in objects:
        if one["apiVersion"].split("/")[0] in ("keda.sh", "monitoring.coreos.com"):
            others[one["kind"]] = None
            continue
        try:
            tool.validate(one, f"{number[0]}.{number[1]}", strict=True)
        except tool.utils.VersionNotSupportedError:
            raise InputError.one(
                file="--set", path="version", value=version, why="there are no schemas of this version here",
                remedy="Name one that kubernetes-validate knows, or upgrade it.",
            ) from None  # fmt: skip
        except tool.utils.ValidationError as error:
            raise InputError.one(
                file="--set version", value=version, path=f"{one['kind']} {one['metadata']['name']}",
                why=f"Kubernetes {version} does not take it: {error.message}", remedy="Name a version that does.",
            ) from None  # fmt: skip
    if others:
        yield f"no schema is known here for {', '.join(others)}"


@dataclass
class _Whole:
    """All periods of a plan in one cluster."""

    plan: Plan
    hosts: HostsFile
    target: str
    made: Manifests
    timezone: str

    def __post_init__(self) -> None:
        self.wanted: dict[str, Wanted] = {}
        self.groups: dict[str, Group] = {}
        self.counts: dict[str, dict[str, int]] = {}
        for period in self.plan.periods:
            asked = self.wanted[period.id] = wanted(self.plan, self.hosts, period=period.id)
            found = {self._name(group): group for group in groups_at(asked, self.target)}
            self.groups |= {name: group for name, group in found.items() if name not in self.groups}
            self.counts[period.id] = {name: group.replicas for name, group in found.items()}
        self.made.check_machines(self.groups.values())
        self.first = self.plan.periods[0]

    def objects(self, scaling: Scaling) -> list[Json]:
        """Everything, in the order in which it is needed."""
        scheduled = len(self.plan.periods) > 1
        objects: list[Json] = []
        for name, group in self.groups.items():
            made = self._named(name, self.made.group(group))
            made[-1]["spec"]["replicas"] = self.counts[self.first.id].get(name, 0)
            if scaling != "none":
                # How many there are is the autoscaler's business; applying again must not undo it.
                del made[-1]["spec"]["replicas"]
            objects += made
        objects += self._router(self.first)
        if scaling == "hpa":
            objects += [self._autoscaler(name, group) for name, group in self.groups.items()]
        elif scaling == "keda":
            objects += [self._scaled(name, group) for name, group in self.groups.items()]
        if scheduled:
            objects += self._schedule(scaling)
        return objects

    def _name(self, group: Group) -> str:
        """As `hetplan apply` names it where the plan has one period; else groups of other contents have other names."""
        name = self.made.group_object(group)
        return name if len(self.plan.periods) == 1 else dns_name(name, distinct_by=group.unit.content)

    def _named(self, name: str, made: list[Json]) -> list[Json]:
        old = made[-1]["metadata"]["name"]
        return made if name == old else json.loads(json.dumps(made).replace(f'"{old}', f'"{name}'))

    def _router(self, period: Period) -> list[Json]:
        if self.hosts.router_target != self.target:
            return []
        asked = self.wanted[period.id]
        names = {unit: self._name(group) for group in groups_at(asked, self.target) for unit in group.units}
        return router_manifests(asked, self.hosts, self.made, names)

    # Bounds and rates

    def _most(self, group: Group) -> int:
        """What the hosts have room for."""
        host = self.hosts.hosts[group.unit.host]
        return max(
            host.room_for(group.unit.hardware), max(count.get(self._name(group), 0) for count in self.counts.values())
        )

    def _rates(self, name: str, group: Group) -> dict[str, float]:
        """Queries per second of each application for which one pod is there, where the plan has most of them."""
        from hetplan.profiles.plan_periods import of_period

        busiest = max(self.counts, key=lambda period: self.counts[period].get(name, 0))
        plan = of_period(self.plan, busiest)
        spans = plan.valid.rate_qps
        rates = {}
        for app in dict.fromkeys(load.app for load in group.unit.loads if load.app is not None):
            most = spans[app][1] if app in spans else None
            if not most:
                raise InputError.one(
                    file="plan", path=f"$.valid.rate_qps.{app}", why="the plan does not say up to which rate it holds",
                    remedy="Export it without autoscalers (--set scaling=none), or plan with hetplan solve.",
                )  # fmt: skip
            rates[app] = most / self.counts[busiest][name]
        return rates

    def _autoscaler(self, name: str, group: Group) -> Json:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        metrics = [
            {
                "type": "External",
                "external": {
                    "metric": {"name": _METRIC, "selector": {"matchLabels": {"app": app}}},
                    "target": {"type": "AverageValue", "averageValue": f"{max(1, round(1000 * rate))}m"},
                },
            }
            for app, rate in self._rates(name, group).items()
        ]
        least = max(1, self.counts[self.first.id].get(name, 0))
        spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": self._most(group), "metrics": metrics}
        return self._object("autoscaling/v2", "HorizontalPodAutoscaler", name, spec=spec)

    def _scaled(self, name: str, group: Group) -> Json:
        server = self.hosts.watch.prometheus
        if server is None:
            raise InputError.one(
                file="hosts.toml", path="$.watch.prometheus", why="KEDA has to know which Prometheus says what arrives",
                remedy='Write prometheus = "http://HOST:PORT" under [watch].',
            )  # fmt: skip
        triggers: list[Json] = [
            {
                "type": "prometheus",
                "metadata": {
                    "serverAddress": server, "query": f'sum(rate({_QUERIES}{{app="{app}"}}[1m]))',
                    "threshold": f"{rate:.6g}",
                },
            }
            for app, rate in self._rates(name, group).items()
        ]  # fmt: skip
        least = self.counts[self.first.id].get(name, 0)
        if len(self.plan.periods) > 1:
            least = min(count.get(name, 0) for count in self.counts.values())
            triggers += [
                self._cron_trigger(period, name) for period in self.plan.periods if self.counts[period.id].get(name)
            ]
        spec = {
            "scaleTargetRef": {"name": name}, "minReplicaCount": least, "maxReplicaCount": self._most(group),
            "triggers": triggers,
        }  # fmt: skip
        return self._object("keda.sh/v1alpha1", "ScaledObject", name, spec=spec)

    # The schedule

    def _cron(self, moment_s: float) -> str:
        """A moment from the start of the schedule as cron has it: by the day, or by the week from Monday on."""
        end = self.plan.periods[-1].end_s
        if end not in (_DAY_S, _WEEK_S):
            raise InputError.one(
                file="plan", path="$.periods", value=end if end is not None else "no end",
                why="cron repeats by the day or by the week, and these periods last otherwise",
                remedy="Plan for a horizon of a day or of a week; or keep the schedule with hetplan autoscale.",
            )  # fmt: skip
        minutes = int(moment_s % end // 60)
        day = "*" if end == _DAY_S else str((1 + minutes // 1440) % 7)
        return f"{minutes % 60} {minutes // 60 % 24} * * {day}"

    def _ahead_s(self, period: Period) -> float:
        return max((action.ahead_s or 0.0 for action in period.actions or ()), default=0.0)

    def _cron_trigger(self, period: Period, name: str) -> Json:
        start = self._cron(period.start_s - self._ahead_s(period))
        metadata = {
            "timezone": self.timezone, "start": start, "end": self._cron(period.end_s or 0.0),
            "desiredReplicas": str(self.counts[period.id][name]),
        }  # fmt: skip
        return {"type": "cron", "metadata": metadata}

    def _schedule(self, scaling: Scaling) -> list[Json]:
        """Who may change what, what each period changes, and when."""
        objects = list(self._permissions())
        before = self.plan.periods[-1]
        for period in self.plan.periods:
            held = dns_name(self.hosts.name, "period", period.id)
            routes = self._router(period)
            routes = routes[:1] if routes[:1] != self._router(before)[:1] else []
            if routes:
                data = {"data": {"routes.json": json.dumps(routes[0], sort_keys=True)}}
                objects.append(self._object("v1", "ConfigMap", held) | data)
            now, then = self.counts[period.id], self.counts[before.id]
            grow = {name: count for name, count in now.items() if count > then.get(name, 0)}
            shrink = {name: now.get(name, 0) for name, count in then.items() if count > now.get(name, 0)}
            if scaling == "none" and grow:
                moment = period.start_s - max(self._ahead_s(period), 60.0)
                objects.append(self._job(period, "ahead", moment, _scaled_to(grow)))
            words = self._turn(held) if routes else []
            if scaling == "none":
                words += _scaled_to(shrink)
            elif scaling == "hpa":
                words += [_bound(name, max(1, now.get(name, 0))) for name in {**grow, **shrink}]
            if words:
                objects.append(self._job(period, "turn", period.start_s, words, held if routes else None))
            before = period
        return objects

    def _turn(self, held: str) -> list[list[str]]:
        marks = f"app.kubernetes.io/instance={self.made.instance},app.kubernetes.io/component=router"
        force = ["--server-side", "--force-conflicts", "--field-manager=hetplan"]
        return [
            ["kubectl", "apply", *force, "--filename=/etc/hetplan/routes.json"],
            ["kubectl", "annotate", "pods", "--overwrite", f"--selector={marks}", f"hetplan/routes={held}"],
        ]

    def _permissions(self) -> Iterator[Json]:
        name = self._scheduler
        rules = [
            {
                "apiGroups": ["apps"],
                "resources": ["deployments", "deployments/scale"],
                "verbs": ["get", "patch", "update"],
            },
            {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["get", "patch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
        ]
        yield self._object("v1", "ServiceAccount", name)
        yield self._object("rbac.authorization.k8s.io/v1", "Role", name) | {"rules": rules}
        yield self._object("rbac.authorization.k8s.io/v1", "RoleBinding", name) | {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.made.settings.namespace}],
        }

    @property
    def _scheduler(self) -> str:
        return dns_name(self.hosts.name, "schedule")

    def _job(
        self, period: Period, what: str, moment_s: float, commands: Sequence[Sequence[str]], held: str | None = None
    ) -> Json:
        """A command after the other, each a container: images of kubectl have no shell."""
        settings = self.made.settings
        mounts = [{"name": "routes", "mountPath": "/etc/hetplan", "readOnly": True}] if held is not None else []
        containers: list[Json] = [
            {
                "name": f"kubectl-{number}",
                "image": settings.kubectl_image,
                "command": list(words),
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True
                },
                **({"volumeMounts": mounts} if mounts else {}),
            }
            for number, words in enumerate(commands)
        ]  # fmt: skip
        pod: Json = {
            "serviceAccountName": self._scheduler,
            "restartPolicy": "OnFailure",
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            **({"initContainers": containers[:-1]} if containers[1:] else {}),
            "containers": containers[-1:],
        }
        if held is not None:
            pod["volumes"] = [{"name": "routes", "configMap": {"name": held}}]
        spec: Json = {
            "schedule": self._cron(moment_s), "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 600,
            "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 2,
            "jobTemplate": {"spec": {"backoffLimit": 4, "template": {"spec": pod}}},
        }  # fmt: skip
        name = dns_name(self.hosts.name, period.id, what)
        return self._object("batch/v1", "CronJob", name, spec={**spec, "timeZone": self.timezone})

    def _object(self, version: str, kind: str, name: str, *, spec: Json | None = None) -> Json:
        marks = labels(self.made.instance, "schedule")
        made: Json = {"apiVersion": version, "kind": kind}
        made["metadata"] = {"name": name, "namespace": self.made.settings.namespace, "labels": marks}
        return made if spec is None else {**made, "spec": spec}


def _scaled_to(counts: Mapping[str, int]) -> list[list[str]]:
    """One command for all Deployments that are to have the same number of pods.

    >>> [words[2:] for words in _scaled_to({"a": 2, "b": 0, "c": 2})]
    [['--replicas=2', 'deployment/a', 'deployment/c'], ['--replicas=0', 'deployment/b']]
    """
    return [
        [
            "kubectl", "scale", f"--replicas={count}",
            *(f"deployment/{name}" for name, wanted in counts.items() if wanted == count),
        ]
        for count in dict.fromkeys(counts.values())
    ]  # fmt: skip


def _bound(name: str, least: int) -> list[str]:
    return ["kubectl", "patch", "hpa", name, "--type=merge", "-p", json.dumps({"spec": {"minReplicas": least}})]
