"""Which nodes of a platform a machine type is, and what such a node offers a pod.

Labels of GKE, EKS, AKS, Karpenter and GPU feature discovery come from `accelerators.json`. What stands neither there
nor in site.toml is asked for, never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.names import Json
from hetplan.executor.site import FILE, MachineType, Site

__all__ = ["Nodes", "accelerator", "allocatable", "gpu_resource", "nodes_of", "same_nodes", "stop_limit_s"]

_GPU = "nvidia.com/gpu"
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_SPOT: Mapping[str, tuple[str, str, str]] = {
    "gke": ("cloud.google.com/gke-spot", "true", ""),
    "eks": ("eks.amazonaws.com/capacityType", "SPOT", "ON_DEMAND"),
    "aks": ("kubernetes.azure.com/scalesetpriority", "spot", ""),
    "karpenter": ("karpenter.sh/capacity-type", "spot", "on-demand"),
}
"""Cloud -> the label of spot nodes, its value there, and its value on other nodes ("": they do not have it)."""
_TAINTED = frozenset({"gke", "aks"})
"""Clouds that keep other pods from spot nodes by a taint of the same name and value."""
_NOTICE_S = {"gke": 30.0, "eks": 120.0, "aks": 30.0, "karpenter": 120.0}
"""How long before a spot machine goes its pods are told."""
_CPU_LEFT, _MEM_TAKEN_GIB, _MEM_LEFT = 0.94, 1.8, 0.95
"""What a node of an unknown type offers: kubelet and system take the rest (between what the clouds state)."""


@cache
def _known() -> Json:
    found: Json = json.loads(files(__package__ or "").joinpath("accelerators.json").read_text())
    return found


@dataclass(frozen=True)
class Nodes:
    """The nodes of a group: labels that they have, labels that they must not have, taints that its pods bear."""

    selector: dict[str, str] = field(default_factory=dict)
    any_of: dict[str, Sequence[str]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    tolerations: tuple[dict[str, Any], ...] = ()

    def pod(self) -> Json:
        """As a pod has it."""
        said: list[Json] = [{"key": key, "operator": "In", "values": list(of)} for key, of in self.any_of.items()]
        said += [{"key": key, "operator": "DoesNotExist"} for key in self.without]
        terms = {"nodeSelectorTerms": [{"matchExpressions": said}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {
            **({"nodeSelector": self.selector} if self.selector else {}),
            **({"affinity": affinity} if said else {}),
            **({"tolerations": [dict(one) for one in self.tolerations]} if self.tolerations else {}),
        }


def accelerator(hardware: str, machine: MachineType) -> tuple[str, Json] | None:
    """The GPU of a machine type: what site.toml names, else the head of its id; None where neither is known.

    >>> [accelerator(name, MachineType()) and accelerator(name, MachineType())[0]
    ...  for name in ("h100x8", "a100-80", "l4", "a100", "box")]
    ['h100', 'a100-80', 'l4', None, None]
    """
    gpus: Json = _known()["gpus"]
    name = machine.gpu_product or hardware.lower()
    if machine.gpu_product is None:
        name = next((gpu for gpu in sorted(gpus, key=len, reverse=True) if _begins(name, gpu)), "")
    return (name, gpus[name]) if name in gpus else None


def _begins(hardware: str, gpu: str) -> bool:
    return re.fullmatch(rf"{re.escape(gpu)}([x_-].*)?", hardware) is not None


def gpu_resource(hardware: str, machine: MachineType) -> str:
    """What the cluster calls the GPUs of a machine type."""
    found = accelerator(hardware, machine)
    return machine.device or (found[1].get("resource", _GPU) if found is not None else _GPU)


def allocatable(machine: MachineType, provides: Mapping[str, float], site: Site) -> tuple[float | None, float | None]:
    """CPU cores and GiB that one node offers pods, less what is kept for DaemonSets; None where nobody says.

    >>> allocatable(MachineType(instance_type="g6.xlarge"), {}, Site())
    (3.42, 13.3)
    """
    known = _known()["instances"].get(machine.instance_type or "")
    if known is not None:
        cores, gib = known[2] / 1000.0, known[3] / 1024.0
    else:
        stated, memory = provides.get("cpu_cores"), provides.get("mem_gib")
        cores = stated * _CPU_LEFT if stated else None
        gib = (memory - _MEM_TAKEN_GIB) * _MEM_LEFT if memory else None
    cores = round(cores - site.reserve_cpu_cores, 2) if cores is not None else None
    gib = int((gib - site.reserve_mem_gib) * 10) / 10 if gib is not None else None
    return cores if cores is None or cores > 0 else None, gib if gib is None or gib > 0 else None


def stop_limit_s(site: Site, *, spot: bool) -> float | None:
    """How long a pod may take to end: less than the notice of spot machines."""
    return _NOTICE_S.get(site.cloud, 30.0) - 5.0 if spot else None


def nodes_of(
    hardware: str, site: Site, faults: list[Fault], *, gpus: int | None, several: bool, offer: str | None = None,
    zone: str | None = None, spot: bool = False,
) -> Nodes:  # fmt: skip
    """The nodes of machines of one type, bought in one way; what is not known is added to `faults`.

    `gpus` is how many a machine has (0: none), `several` whether the plan has other machine types.
    """
    machine = site.machine(hardware)
    selector, any_of = dict(machine.selector), dict[str, Sequence[str]]()
    if not selector:
        selector, any_of = _labels(hardware, machine, site, gpus or 0)
        if not selector and not any_of and (several or gpus):
            faults.append(_asked(hardware, site))
    tolerations = list(machine.tolerations)
    if gpus and not tolerations:
        tolerations.append({"key": gpu_resource(hardware, machine), "operator": "Exists", "effect": "NoSchedule"})
    without: list[str] = []
    label = _SPOT.get(site.cloud)
    own = site.offers.get(offer or "", {})
    if label is not None and label[0] not in own:
        key, there, elsewhere = label
        if spot or elsewhere:
            selector[key] = there if spot else elsewhere
        else:
            without.append(key)
        if spot and site.cloud in _TAINTED:
            tolerations.append({"key": key, "operator": "Equal", "value": there, "effect": "NoSchedule"})
    elif spot and not own:
        faults.append(
            Fault(
                FILE,
                f"$.offers.{offer}",
                "nothing",
                "nothing says which nodes are spot machines",
                f'Add [offers.{offer}] with their labels, as "pool" = "spot"; or name the cloud.',
            )
        )
    if zone is not None and _ZONE not in own:
        selector[_ZONE] = zone
    return Nodes({**selector, **own}, any_of, tuple(without), tuple(tolerations))


def _labels(
    hardware: str, machine: MachineType, site: Site, gpus: int
) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """What tells nodes of this type from others on this cloud."""
    by_type = {_TYPE: machine.instance_type} if machine.instance_type else {}
    found = accelerator(hardware, machine) if gpus else None
    if found is None or site.cloud in ("eks", "aks"):
        return by_type, {}
    name, gpu = found
    if site.cloud == "gke":
        return ({"cloud.google.com/gke-accelerator": gpu["gke"], **by_type} if "gke" in gpu else by_type), {}
    if site.cloud == "karpenter":
        # AWS calls both sizes of an A100 the same.
        if "karpenter_aws" not in gpu or (name.startswith("a100") and not by_type):
            return by_type, {}
        label = "karpenter.k8s.aws/instance-gpu"
        return {f"{label}-name": gpu["karpenter_aws"], f"{label}-count": str(gpus), **by_type}, {}
    product, count = "nvidia.com/gpu.product", {"nvidia.com/gpu.count": str(gpus)}
    boards = gpu.get("gfd", [])
    if len(boards) == 1:
        return {product: boards[0], **count, **by_type}, {}
    return ({**count, **by_type}, {product: boards}) if boards else (by_type, {})


def _asked(hardware: str, site: Site) -> Fault:
    line = {
        "gke": f'gpu_product = "l4" (one of {", ".join(_known()["gpus"])}), or instance_type = "g2-standard-4"',
        "eks": 'instance_type = "g6.xlarge"',
        "aks": 'instance_type = "Standard_NC4as_T4_v3"',
        "karpenter": 'gpu_product = "l4" (of an A100 also instance_type = "p4d.24xlarge")',
    }.get(site.cloud, 'selector = {"node.kubernetes.io/instance-type" = "g6.xlarge"}')
    return Fault(
        FILE, f"$.machines.{hardware}.selector", "nothing", f"nothing says which nodes are {hardware}",
        f"Add [machines.{hardware}] {line}.",
    )  # fmt: skip


def same_nodes(found: Mapping[str, Nodes]) -> Iterator[Fault]:
    """Machine types of which one's labels lead to nodes of another."""
    for name, one in found.items():
        for other, its in found.items():
            mine, theirs = {**one.selector, **one.any_of}, {**its.selector, **its.any_of}
            if other != name and mine and mine.items() <= theirs.items():
                yield Fault(
                    FILE, f"$.machines.{name}.selector", json.dumps(mine), f"nodes of {other} have these labels, too",
                    f'Add [machines.{name}] selector = {{"node.kubernetes.io/instance-type" = "..."}} of its own.',
                )  # fmt: skip
