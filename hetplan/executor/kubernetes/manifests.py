"""From groups of units to Kubernetes manifests: pure, as plain data (JSON is YAML).

A group becomes a ConfigMap (what its workers hold), a headless Service (a name that leads to each of its pods), a
PodDisruptionBudget and a Deployment. Its ConfigMap never changes: a new content has a new name, so a pod that starts
again reads what its Deployment was made for. The router becomes the same and a NetworkPolicy for the workers; its
ConfigMap holds the routes and changes with them, as its pods follow them without being replaced. A Deployment and the
pods of its template carry a digest of all that hosts.toml and the plan make of them: by it pods of an older template
differ from new ones, and a changed image, amount or selector is seen.

Only names, numbers and what hosts.toml says go in; a command, an image or a selector never comes from a plan.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import ceil
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes.groups import (
    LABEL_GROUP,
    LABEL_INSTANCE,
    LABEL_PART,
    LEAVING,
    Group,
    labels,
)
from hetplan.executor.kubernetes.settings import KubernetesSettings, WorkerPod
from hetplan.executor.render.names import label_value, marked_name
from hetplan.executor.secrets import TOKEN_FILE, token_of
from hetplan.executor.units import Unit
from hetplan.profiles.canonical import digest

__all__ = [
    "CONFIG_FILE",
    "LARGEST_CONFIG_BYTES",
    "MADE_OF",
    "WAVES",
    "Manifests",
]

Json = dict[str, Any]

LARGEST_CONFIG_BYTES = 1024 * 1024
"""The most that Kubernetes takes in one ConfigMap."""

CONFIG_FILE = "config.json"
MOUNTED_AT, KEYS_AT = "/etc/hetplan", "/etc/hetplan-keys"
PROBE_S = 2
MADE_OF = "hetplan/made-of"
WAVES = 4
"""A roll replaces a quarter of the pods at a time."""
_ROUTED_BY_SHARES = frozenset({"shares/1", "queue-slack/1", "most-accurate-first/1"})
"""Rules by which routers need not know of each other; every other keeps its queue in the router."""


class Manifests:
    """The objects of one deployment (hosts.toml's `name`) in one cluster."""

    def __init__(self, hosts: HostsFile, settings: KubernetesSettings) -> None:
        self.hosts, self.settings = hosts, settings
        self.instance = label_value(hosts.name)
        self.budgets = "policy/v1"

    @cached_property
    def secret(self) -> Json | None:
        """The Secret with the token that hosts.toml names; None where it names none.

        It is applied, never written to a file. Its name goes with its content, so that pods are rolled with it.
        """
        token = token_of(self.hosts)
        if token is None:
            return None
        data = {"token": b64encode(token.encode()).decode()}
        name = marked_name(self.hosts.name, "keys", distinct_by=digest(data))
        return self._object("v1", "Secret", name, labels(self.instance, "keys")) | {"type": "Opaque", "data": data}

    def group(self, group: Group) -> list[Json]:
        """What a group becomes, in the order in which it is needed; its ConfigMap is first and its Deployment last."""
        name = self.group_object(group)
        marks = labels(self.instance, "worker", name)
        config = self._config(name, marks, {"unit": group.unit.as_dict()})
        return [
            config,
            self._service(name, marks, headless=True),
            self._budget(name, marks, group.replicas),
            self._object(
                "apps/v1", "Deployment", name, marks,
                notes={
                    "hetplan/worker": group.unit.worker,
                    "hetplan/config": config["metadata"]["name"],
                    "hetplan/indices": json.dumps(group.indices),
                    "hetplan/standby": json.dumps(group.standby),
                },
                spec=self._deployment(marks, group.replicas, self._worker_pod(group, config["metadata"]["name"])),
            ),
        ]  # fmt: skip

    def router(self, routes: Mapping[str, Any]) -> list[Json]:
        """What the router that follows these routes becomes; its ConfigMap is first and its Deployment last."""
        name, settings = self.router_object, self.settings
        marks = labels(self.instance, "router")
        container = self._container("router", settings.image, settings.router_command)
        container["resources"] = _amounts(settings.router_pod) if settings.router_pod is not None else _ROUTER_NEEDS
        replicas = settings.routers or _routers(routes)
        more = [self._shield()] if settings.network_policy else []
        more += [self._monitor(name)] if settings.service_monitor else []
        data = {CONFIG_FILE: _written(name, {"routes": dict(routes)})}
        return [
            self._object("v1", "ConfigMap", name, marks) | {"data": data},
            self._service(name, marks, headless=False),
            self._budget(name, marks, replicas),
            *more,
            self._object(
                "apps/v1", "Deployment", name, marks, notes={"hetplan/config": name},
                spec=self._deployment(marks, replicas, self._pod(container, name, marks)),
            ),
        ]  # fmt: skip

    def _budget(self, name: str, marks: Mapping[str, str], replicas: int) -> Json:
        """So many pods at most may be evicted at once (a node that is drained)."""
        spec = {"maxUnavailable": ceil(replicas / WAVES), "selector": {"matchLabels": _selected(marks)}}
        return self._object(self.budgets, "PodDisruptionBudget", name, marks, spec=spec)

    def _shield(self) -> Json:
        """Workers are reached by the router, and by whom hosts.toml names."""
        marks, router = labels(self.instance, "worker"), _selected(labels(self.instance, "router"))
        name = marked_name(self.hosts.name, "workers", distinct_by="network")
        peers = [{"podSelector": {"matchLabels": router}}, *(dict(one) for one in self.settings.network_allow)]
        peers += [_PROMETHEUS] if self.settings.service_monitor else []
        spec = {
            "podSelector": {"matchLabels": _selected(marks)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers, "ports": [{"port": "http", "protocol": "TCP"}]}],
        }
        return self._object("networking.k8s.io/v1", "NetworkPolicy", name, labels(self.instance, "router"), spec=spec)

    def _monitor(self, name: str) -> Json:
        """What the Prometheus operator is to read: all Services of this deployment."""
        ours = {"app.kubernetes.io/managed-by": "hetplan", LABEL_INSTANCE: self.instance}
        endpoint: Json = {"port": "http", "path": "/metrics"}
        if self.secret is not None:
            endpoint["authorization"] = {"credentials": {"name": self.secret["metadata"]["name"], "key": "token"}}
        spec = {"selector": {"matchLabels": ours}, "endpoints": [endpoint]}
        marks = labels(self.instance, "router")
        return self._object("monitoring.coreos.com/v1", "ServiceMonitor", name, marks, spec=spec)

    def group_object(self, group: Group) -> str:
        """The name that a group's objects share."""
        return marked_name(self.hosts.name, group.unit.worker, distinct_by=group.name)

    @property
    def router_object(self) -> str:
        """The name that the router's objects share."""
        return marked_name(self.hosts.name, "router", distinct_by="router")

    def address(self, name: str) -> str:
        """Where a Service is reached within the cluster."""
        return f"{name}.{self.settings.namespace}.svc"

    def _config(self, name: str, marks: Mapping[str, str], content: Json) -> Json:
        text = _written(name, content)
        full = f"{name}-{digest(content).removeprefix('sha256:')[:10]}"
        made = self._object("v1", "ConfigMap", full, marks)
        return {**made, "immutable": True, "data": {CONFIG_FILE: text}}

    def _service(self, name: str, marks: Mapping[str, str], *, headless: bool) -> Json:
        port = self.settings.port
        spec: Json = {
            "selector": _selected(marks),
            "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}],
        }
        if headless:
            spec |= {"clusterIP": "None", "publishNotReadyAddresses": False}
        else:
            spec |= {"type": self.settings.service_type}
        return self._object("v1", "Service", name, marks, spec=spec)

    def _deployment(self, marks: Mapping[str, str], replicas: int, pod: Json) -> Json:
        part = ceil(replicas / WAVES)
        room = (
            {"maxSurge": part, "maxUnavailable": 0} if self.settings.surge else {"maxSurge": 0, "maxUnavailable": part}
        )
        notes = {MADE_OF: self._template(pod)}
        return {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": max(30, round(2 * self.hosts.limits.start_s)),
            "selector": {"matchLabels": _selected(marks)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": room},
            "template": {"metadata": {"labels": dict(marks), "annotations": notes}, "spec": pod},
        }

    @staticmethod
    def _template(pod: Json) -> str:
        """A digest of a pod but for the name of its ConfigMap, which says what its worker holds."""
        others = [one for one in pod["volumes"] if "secret" in one]
        return digest({**pod, "volumes": others}).removeprefix("sha256:")[:16]

    def _worker_pod(self, group: Group, config: str) -> Json:
        unit, machines = group.unit, self.hosts.hosts[group.unit.host]
        chosen = self.settings.pod(unit.hardware)
        container = self._container("worker", chosen.image or self.settings.image, self.settings.worker_command)
        said = {**self._devices(group), **self.settings.environment, **machines.environment}
        container["env"] = _env({**said, **self._token_at})
        resources = self.resources(group)
        # Equal requests and limits: a worker gets what was planned, and its neighbour cannot take it.
        container["resources"] = {"requests": resources, "limits": resources} if resources else _WORKER_NEEDS
        pod = self._pod(container, config, labels(self.instance, "worker", self.group_object(group)))
        nodes = self.settings.nodes(unit, machines.labels)
        if nodes.node_selector:
            pod["nodeSelector"] = nodes.node_selector
        if nodes.tolerations:
            pod["tolerations"] = [dict(one) for one in nodes.tolerations]
        return pod

    def resources(self, group: Group) -> dict[str, str]:
        """What one worker asks of its node: the shares of its loads where they have some, else the hardware's."""
        unit, chosen, settings = group.unit, self.settings.pod(group.unit.hardware), self.settings
        cores = [load.share_cpu_cores * load.instances for load in unit.loads if load.share_cpu_cores is not None]
        slices = [load.share_gpu * load.instances for load in unit.loads if load.share_gpu is not None]
        asked: dict[str, str] = {}
        cpu_cores = sum(cores) if cores else chosen.cpu_cores
        if cpu_cores:
            asked["cpu"] = f"{round(1000 * cpu_cores)}m"
        if chosen.mem_gib:
            asked["memory"] = f"{round(1024 * chosen.mem_gib)}Mi"
        gpu_units = (sum(slices) if slices else self._gpus(unit)) * settings.gpu_slices
        if gpu_units:
            # A pod without any sees no GPU at all.
            asked[chosen.gpu_resource or settings.gpu_resource] = str(ceil(gpu_units - 1e-9))
        return asked

    def _gpus(self, unit: Unit) -> float:
        """The GPUs of a worker whose loads name no share: what hosts.toml states, else the profile."""
        stated = self.settings.pod(unit.hardware).gpu
        return stated if stated is not None else _needed(unit)

    def check_machines(self, groups: Iterable[Group]) -> None:
        """Refuse machine types of which nobody says how many GPUs they have, or which nodes are theirs."""
        units, faults = [group.unit for group in groups], list[Fault]()
        several = len({unit.hardware for unit in units}) > 1
        selectors = [(unit, self.settings.machine_labels(unit, self.hosts.hosts[unit.host].labels)) for unit in units]
        for unit, mine in selectors:
            others = (one.hardware for one, theirs in selectors if mine.items() <= theirs.items())
            other = next((name for name in others if name != unit.hardware), None)
            if self._has_unknown_gpus(unit):
                faults.append(_no_amount(unit))
            if not mine and (several or self._has_gpus(unit)):
                faults.append(_no_labels(unit, f"nothing says which nodes of the cluster are {unit.hardware}"))
            elif mine and other is not None:
                faults.append(_no_labels(unit, f"nodes of {other} have these labels, too", mine))
        if faults:
            raise InputError(dict.fromkeys(faults))

    def _has_gpus(self, unit: Unit) -> bool:
        return self._gpus(unit) > 0 or any(load.share_gpu for load in unit.loads)

    def _has_unknown_gpus(self, unit: Unit) -> bool:
        stated = unit.gpus is not None or self.settings.pod(unit.hardware).gpu is not None
        return not stated and not all(load.share_gpu is not None or load.model.get("gpus") for load in unit.loads)

    def _devices(self, group: Group) -> dict[str, str]:
        """The GPUs of a pod by number, where it has several engines, or others beside one: each gets its own."""
        takes = _takes(group.unit)
        if len(takes) < 1 + _is_alone(group.unit) or self.settings.gpu_slices > 1:
            return {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(ceil(self._gpus(group.unit))))}

    def unenforced(self, group: Group) -> list[str]:
        """Shares of the group that this cluster does not enforce, each with its reason."""
        settings, unit = self.settings, group.unit
        if self.hosts.hosts[unit.host].enforcement == "none":
            return []
        said = []
        for load in unit.loads:
            share = load.instances * (load.share_gpu or 0.0)
            units = share * settings.gpu_slices
            if abs(units - round(units)) > 1e-9:
                said.append(
                    f"{load.id} wants {share:g} of a GPU and {settings.gpu_resource} comes in "
                    f"1/{settings.gpu_slices}: set gpu_slices to what the device plugin shares out"
                )
        return said

    def _pod(self, container: Json, config: str, marks: Mapping[str, str]) -> Json:
        settings, user = self.settings, self.settings.run_as_user
        secure: Json = {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": user, "fsGroup": user}
        secure |= {"runAsNonRoot": True} if user else {}
        pod: Json = {
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": config}}, {"name": "tmp", "emptyDir": {}}],
            "securityContext": secure,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": ceil(self.hosts.limits.drain_s + settings.leave_s) + 5,
        }
        if settings.spread:
            chosen = {"labelSelector": {"matchLabels": _selected(marks)}, "whenUnsatisfiable": "ScheduleAnyway"}
            pod["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": label, **chosen} for label in settings.spread
            ]
        if self.secret is not None:
            secret = {"secretName": self.secret["metadata"]["name"], "defaultMode": 0o440}
            pod["volumes"].append({"name": "keys", "secret": secret})
        if settings.service_account is not None:
            pod["serviceAccountName"] = settings.service_account
        if settings.image_pull_secrets:
            pod["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
        return pod

    def _container(self, name: str, image: str, command: tuple[str, ...]) -> Json:
        port = self.settings.port
        look = {"path": "/healthz", "port": "http"}
        healthy = {"httpGet": look, "periodSeconds": PROBE_S, "timeoutSeconds": 2}
        tries = max(1, round(self.hosts.limits.start_s / PROBE_S))
        leave = f"import time; open({LEAVING!r}, 'w').close(); time.sleep({self.settings.leave_s:g})"
        arguments = ["--config", f"{MOUNTED_AT}/{CONFIG_FILE}", "--port", str(port)]
        return {
            "name": name,
            "image": image,
            "imagePullPolicy": self.settings.image_pull_policy,
            "command": [*command, *arguments],
            "env": _env({**self.settings.environment, **self._token_at}),
            "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
            "startupProbe": {**healthy, "failureThreshold": tries},
            "readinessProbe": {**healthy, "failureThreshold": 2},
            "livenessProbe": {**healthy, "failureThreshold": 5},
            "lifecycle": {"preStop": {"exec": {"command": [command[0], "-c", leave]}}},
            "volumeMounts": [
                {"name": "config", "mountPath": MOUNTED_AT, "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"},
                *([{"name": "keys", "mountPath": KEYS_AT, "readOnly": True}] if self.secret is not None else []),
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True
            },
        }  # fmt: skip

    @property
    def _token_at(self) -> dict[str, str]:
        return {TOKEN_FILE: f"{KEYS_AT}/token"} if self.secret is not None else {}

    def _object(
        self,
        version: str,
        kind: str,
        name: str,
        marks: Mapping[str, str],
        *,
        notes: Mapping[str, str] | None = None,
        spec: Json | None = None,
    ) -> Json:
        metadata: Json = {"name": name, "namespace": self.settings.namespace, "labels": dict(marks)}
        if notes:
            metadata["annotations"] = dict(notes)
        made: Json = {"apiVersion": version, "kind": kind, "metadata": metadata}
        return made if spec is None else {**made, "spec": spec}


def _selected(marks: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in marks.items() if name in (LABEL_INSTANCE, LABEL_PART, LABEL_GROUP)}


def _written(name: str, content: Json) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    size = len(text.encode())
    if size > LARGEST_CONFIG_BYTES:
        raise InputError.one(
            file="plan",
            value=f"{size} bytes",
            why=f"what {name} has to know is more than a ConfigMap holds ({LARGEST_CONFIG_BYTES} bytes)",
            remedy="Plan with fewer policy tables (a coarser grid of slacks or loads), or fewer applications.",
        )
    return text


_ROUTER_NEEDS: Json = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_WORKER_NEEDS: Json = {"requests": {"cpu": "250m", "memory": "256Mi"}}
"""Where hosts.toml and the plan say nothing: enough not to be the first that a full node ends."""
_PROMETHEUS: Json = {
    "namespaceSelector": {},
    "podSelector": {
        "matchLabels": {
            "app.kubernetes.io/name": "prometheus",
            "app.kubernetes.io/managed-by": "prometheus-operator",
        }
    },
}
"""The pods that the Prometheus operator starts, of whatever namespace."""


def _routers(routes: Mapping[str, Any]) -> int:
    rules = {app.get("dispatch", {}).get("rule") for app in routes.get("apps", {}).values() if isinstance(app, Mapping)}
    return 2 if rules <= _ROUTED_BY_SHARES else 1


def _amounts(pod: WorkerPod) -> Json:
    asked = {"cpu": f"{round(1000 * pod.cpu_cores)}m"} if pod.cpu_cores else {}
    asked |= {"memory": f"{round(1024 * pod.mem_gib)}Mi"} if pod.mem_gib else {}
    return {"requests": asked, "limits": asked}


def _takes(unit: Unit) -> list[int]:
    """The GPUs of each engine of a unit that makes text."""
    return [load.model["gpus"] for load in unit.loads for _ in range(load.instances) if load.model.get("gpus")]


def _is_alone(unit: Unit) -> bool:
    """Whether a unit has engines that make text, or others, and not both."""
    return len({bool(load.model.get("gpus")) for load in unit.loads}) < 2


def _needed(unit: Unit) -> int:
    """The GPUs that a unit needs where hosts.toml does not say: what the degrees of its engines take.

    What others take no rule says: then it has all of its hardware's.
    """
    takes = _takes(unit)
    return sum(takes) if takes and _is_alone(unit) else max(unit.gpus or 0, sum(takes))


def _at(unit: Unit) -> str:
    return f"targets.{unit.target}.settings.hardware.{unit.hardware}"


def _no_amount(unit: Unit) -> Fault:
    return Fault(
        "hosts.toml", f"$.{_at(unit)}.gpu", "nothing",
        f"neither a profile nor hosts.toml says how many GPUs (or other accelerators) a {unit.hardware} has",
        f'Write "provides": {{"gpu": 1}} under hardware.{unit.hardware} of the profile and name it in `profiles`, '
        f"or gpu = 1 (0: it has none) under [{_at(unit)}].",
    )  # fmt: skip


def _no_labels(unit: Unit, why: str, found: Mapping[str, str] | None = None) -> Fault:
    return Fault(
        "hosts.toml", f"$.{_at(unit)}.node_selector", json.dumps(found) if found else "nothing", why,
        f"Write labels that only its nodes have under [{_at(unit)}], as "
        'node_selector = {"node.kubernetes.io/instance-type" = "g6.xlarge"}.',
    )  # fmt: skip


def _env(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
