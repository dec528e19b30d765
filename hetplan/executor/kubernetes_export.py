"""A plan as Kubernetes manifests, for those who apply them their own way (GitOps, a review, an air-gapped cluster)."""

from __future__ import annotations

from typing import Any

from hetplan.errors import InputError
from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes_groups import grouped
from hetplan.executor.kubernetes_manifests import Manifests
from hetplan.executor.kubernetes_settings import KubernetesSettings
from hetplan.executor.routing_table import routing_table
from hetplan.executor.units import Endpoint
from hetplan.executor.wanted import wanted
from hetplan.profiles.plan import Plan
from hetplan.profiles.validate import validate

__all__ = ["manifests"]


def manifests(plan: Plan, hosts: HostsFile, *, target: str | None = None, period: str | None = None) -> dict[str, Any]:
    """Everything that `hetplan apply` would have in the cluster in the end, as one `List` (JSON, which is YAML).

    `target` names one of several Kubernetes targets. A plan that these hosts cannot hold is an `InputError`.
    """
    name = _one(hosts, target)
    settings = validate(KubernetesSettings, dict(hosts.targets[name].settings), file="hosts.toml")
    made, asked = Manifests(hosts, settings), wanted(plan, hosts, period=period)
    groups = grouped(unit for unit in asked.units.values() if unit.target == name).values()
    objects = [manifest for group in groups for manifest in made.group(group)]
    if hosts.router_target == name:
        at = {unit: made.address(made.group_object(group)) for group in groups for unit in group.units}
        pairs = [(unit, Endpoint(at[key], settings.port)) for key, unit in asked.units.items() if key in at]
        objects += made.router(routing_table(asked.apps, pairs, hosts.router))
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _one(hosts: HostsFile, target: str | None) -> str:
    fitting = [name for name, entry in hosts.targets.items() if entry.kind == "kubernetes"]
    if target is None and len(fitting) == 1:
        return fitting[0]
    if target is not None and target in fitting:
        return target
    raise InputError.one(
        file="hosts.toml",
        path="$.targets",
        value=target or "",
        why=f"which Kubernetes target? There are: {', '.join(fitting) or 'none'}",
        remedy="Name one of them.",
    )
