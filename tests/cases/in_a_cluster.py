"""Groups by hand as they are rendered for a cluster."""

from __future__ import annotations

from typing import Any

from hetplan.executor.apply.cluster import Rendered
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.kubernetes import render
from hetplan.executor.site import read_site
from hetplan.profiles.canonical import digest


def rendered(image: str = "registry.example/net:1", *, surge: bool = False, **counts: int) -> Rendered:
    """So many replicas of each application's one model on a machine without GPUs."""
    apps = {name: Application(name, dns=name) for name in counts}
    groups = tuple(
        Group(f"{name}-net-cpu", name, "net", "cpu", ((0.0, count),), apps=(name,)) for name, count in counts.items()
    )
    said: dict[str, Any] = {"models": {"net": {"image": image}}, "cluster": {"surge": surge, "start_s": 60.0}}
    plan = digest(counts)
    return Rendered(plan, render(Fleet(groups, apps, ((0.0, None),), "prod", plan), read_site(said)))
