"""All that `hetplan apply` would have in a cluster in the end."""

from __future__ import annotations

from typing import Any

from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes.groups import grouped
from hetplan.executor.kubernetes.manifests import Manifests
from hetplan.executor.kubernetes.settings import KubernetesSettings
from hetplan.executor.routing_table import routing_table
from hetplan.executor.units import Endpoint
from hetplan.executor.wanted import wanted
from hetplan.profiles.plan import Plan


def manifests(plan: Plan, hosts: HostsFile, *, target: str | None = None) -> list[dict[str, Any]]:
    """The objects of the one Kubernetes target, or of this one."""
    name = target or next(name for name, entry in hosts.targets.items() if entry.kind == "kubernetes")
    made = Manifests(hosts, KubernetesSettings.model_validate(dict(hosts.targets[name].settings)))
    asked = wanted(plan, hosts)
    groups = list(grouped(unit for unit in asked.units.values() if unit.target == name).values())
    made.check_machines(groups)
    objects = [one for group in groups for one in made.group(group)]
    if hosts.router_target == name:
        pairs = [
            (asked.units[unit], Endpoint(made.address(made.group_object(group)), made.settings.port))
            for group in groups
            for unit in group.units
        ]
        objects += made.router(routing_table(asked.apps, pairs, hosts.router))
    return objects
