"""A plan as files of a platform: pure functions, one module per target, over one reader of groups.

`groups` reads a plan with its files and site.toml, `choose` says who picks a replica there, `render` writes the files
and `read` gives the groups of written files back. No clock, no network, no process: same input, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hetplan.errors import Fault
from hetplan.executor.render.groups import Fleet, groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.router import routed
from hetplan.executor.render.rules import choose
from hetplan.executor.site import Site
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan

__all__ = ["COMMANDS", "EXPERIMENTAL", "SETTINGS", "TARGETS", "read", "refusals", "render"]

TARGETS: Mapping[str, str] = {
    "kubernetes": "hetplan.executor.render.kubernetes",
    "haproxy": "hetplan.executor.render.haproxy",
    "systemd": "hetplan.executor.render.systemd",
    "compose": "hetplan.executor.render.compose",
    "kserve": "hetplan.executor.render.kserve",
    "llm-d": "hetplan.executor.render.llm_d",
    "dynamo": "hetplan.executor.render.dynamo",
    "ray-serve": "hetplan.executor.render.ray_serve",
    "skyserve": "hetplan.executor.render.skyserve",
}
"""Target -> the module that renders for it."""
EXPERIMENTAL = frozenset(TARGETS) - {"kubernetes", "haproxy", "systemd"}
"""Targets of which no run on their platform is recorded yet."""
COMMANDS: Mapping[str, str] = {
    "kubernetes": "kubectl apply --server-side -f {folder}",
    "haproxy": "haproxy -c -f {folder}/haproxy.cfg && haproxy -W -f {folder}/haproxy.cfg",
    "systemd": "cp {folder}/* ~/.config/systemd/user/ && systemctl --user daemon-reload && "
    "systemctl --user enable --now hetplan.target",
    "compose": "docker compose -f {folder}/compose.yaml up -d --remove-orphans --wait",
    "kserve": "kubectl apply --server-side -f {folder}",
    "llm-d": "kubectl apply --server-side -f {folder}/llm-d.yaml",
    "dynamo": "kubectl apply --server-side -f {folder}",
    "ray-serve": "kubectl apply --server-side -f {folder}",
    "skyserve": "for file in {folder}/*.yaml; do sky serve up -y $file; done",
}
"""Target -> the platform's own command that brings a folder about, where it is one machine's or the cluster's."""
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {"nodes": "karpenter", "quota": "kueue", "router": "hetplan"}
}
"""What each target may be told beside the rule and the period, and the value of each; `router` stands for a rule."""


def render(target: str, fleet: Fleet, site: Site, **settings: Any) -> dict[str, str]:
    """The files of a target by name; `CannotRender` with every reason why there are none."""
    files: dict[str, str] = import_module(TARGETS[target]).render(fleet, site, **settings)
    return files


def refusals(target: str, plan: Plan, inputs: Inputs, site: Site, rule: str | None, **settings: Any) -> list[Fault]:
    """Every reason why a plan cannot be rendered, whether the files, site.toml or the rule are to blame."""
    faults = list[Fault]()
    fleet = groups(plan, inputs, site, faults)
    try:
        fleet = choose(target, plan, fleet, rule).fleet
        fleet = routed(fleet, plan, inputs, site)
    except CannotRender as error:
        faults += error.faults
    try:
        render(target, fleet, site, **settings)
    except CannotRender as error:
        faults += error.faults
    return list(dict.fromkeys(faults))


def read(target: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups that rendered files run: name, app, model, hardware, replicas, GPUs, queries at a time."""
    found: list[dict[str, Any]] = import_module(TARGETS[target]).read(files)
    return found
