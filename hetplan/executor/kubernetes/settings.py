"""`[targets.NAME.settings]` of a kubernetes target in hosts.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints

from hetplan.profiles.fields import Count, Id, Model, Named, NonNegative, Positive, PositiveCount

if TYPE_CHECKING:
    from hetplan.executor.units import Unit

__all__ = ["KubernetesSettings", "Nodes", "WorkerPod"]

Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Word = Annotated[str, StringConstraints(min_length=1)]


class Nodes(Model):
    """On which nodes workers run."""

    node_selector: dict[str, str] = Field(default_factory=dict, description="beside the labels of the host")
    tolerations: tuple[dict[str, Any], ...] = ()


class WorkerPod(Nodes):
    """What a worker of one hardware gets; what is left out here holds as for all."""

    image: Word | None = None
    cpu_cores: Positive | None = Field(default=None, description="requested where the plan names no share of cores")
    mem_gib: Positive | None = None
    gpu: NonNegative | None = Field(
        default=None,
        description="GPUs of a worker whose loads name no share, 0: none; by default what the profile says",
    )
    gpu_resource: Word | None = Field(default=None, description="what its accelerators are called, if not as for all")


class KubernetesSettings(Model):
    """The cluster, reached by `kubectl`; commands and images are named here, never in a plan."""

    kubectl: Word = Field(default="kubectl", description="the program: a name, or a path relative to hosts.toml")
    kubeconfig: str | None = Field(default=None, description="relative to hosts.toml; by default kubectl's own choice")
    context: Word | None = None
    namespace: Namespace = "default"
    image: Word = Field(description="an image with hetplan installed")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[Namespace, ...] = ()
    worker_command: tuple[Word, ...] = ("python", "-m", "hetplan.executor.kubernetes.pod", "worker")
    router_command: tuple[Word, ...] = ("python", "-m", "hetplan.executor.kubernetes.pod", "router")
    port: int = Field(default=8080, ge=1024, le=65535, description="where workers and router listen in their pods")
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    service_account: Namespace | None = None
    hardware: Named[WorkerPod] = Field(default_factory=dict)
    zone_label: str = Field(
        default="topology.kubernetes.io/zone", description='the label of nodes by which zones are chosen; "": by none'
    )
    zones: dict[Id, Word] = Field(
        default_factory=dict, description="what a zone of the profile is called in the cluster"
    )
    spot: Nodes = Field(default_factory=Nodes, description="the nodes of spot machines")
    offers: Named[Nodes] = Field(default_factory=dict, description="the nodes of an offer")
    gpu_resource: Word = "nvidia.com/gpu"
    gpu_slices: PositiveCount = Field(
        default=1, description="units of gpu_resource per GPU, where the device plugin shares GPUs out"
    )
    router_pod: WorkerPod | None = Field(default=None, description="cpu_cores and mem_gib of each router")
    routers: PositiveCount | None = Field(
        default=None, description="pods of the router; by default 2, and 1 where a plan keeps its queue in the router"
    )
    leave_s: Positive = Field(default=8.0, description="a pod that ends serves on for so long, until nobody asks it")
    spread: tuple[Word, ...] = Field(
        default=("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
        description="labels of nodes over which the pods of a group are spread where that can be",
    )
    network_policy: bool = Field(default=True, description="only the router reaches workers; false: everybody does")
    network_allow: tuple[dict[str, Any], ...] = Field(
        default=(), description="who else reaches workers, as `from` of a NetworkPolicy has it"
    )
    service_monitor: bool = Field(default=False, description="a ServiceMonitor for the Prometheus operator")
    away_s: Positive = Field(default=30.0, description="an API server that does not answer is asked again for so long")
    take_over: bool = Field(default=False, description="fields that somebody else owns are taken from them")
    surge: bool = Field(default=True, description="changed workers start before old ones stop; false needs no room")
    run_as_user: Count = Field(default=1000, description="0: root")
    environment: dict[str, str] = Field(default_factory=dict)

    def pod(self, hardware: Id) -> WorkerPod:
        """What workers of this hardware get."""
        return self.hardware.get(hardware, WorkerPod())

    def machine_labels(self, unit: Unit, labels: Mapping[str, str]) -> dict[str, str]:
        """What tells the nodes of a unit's machine type from others: labels of its host, its hardware, its offer."""
        offer = self.offers.get(unit.offer or "", Nodes())
        return {**labels, **self.pod(unit.hardware).node_selector, **offer.node_selector}

    def nodes(self, unit: Unit, labels: Mapping[str, str]) -> Nodes:
        """The nodes of a unit: those of its zone, its host's labels, its hardware, spot machines, its offer."""
        found: dict[str, str] = {}
        if unit.zone is not None and self.zone_label:
            found[self.zone_label] = self.zones.get(unit.zone, unit.zone)
        found |= labels
        said = [
            self.pod(unit.hardware),
            *([self.spot] if unit.spot else []),
            self.offers.get(unit.offer or "", Nodes()),
        ]
        for one in said:
            found |= one.node_selector
        return Nodes(node_selector=found, tolerations=tuple(each for one in said for each in one.tolerations))
