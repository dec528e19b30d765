"""The lines that a target needs in site.toml for a plan: what nobody knows is "?"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from hetplan.errors import Fault
from hetplan.executor.render.nodes import nodes_of
from hetplan.executor.site import UNKNOWN, Site, as_server
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile

__all__ = ["template"]

_BESIDE = {"kserve": ("model_uri",), "ray-serve": ("deployment",)}
"""What a target needs of a model beside its image."""
_ON_MACHINES = ("haproxy", "systemd", "compose")


def template(plan: Plan, profile: Profile, site: Site, target: str) -> str:
    """What has to be added to a site file, as TOML; all of it where there is none yet."""
    return "\n".join(_lines(plan, profile, site, target)).strip() + "\n"


def _lines(plan: Plan, profile: Profile, site: Site, target: str) -> Iterator[str]:
    workers = [*plan.workers, *(worker for part in (plan.parts or {}).values() for worker in part.workers)]
    if not site.models and not site.machines:
        yield f'name = "{site.name}"'
        if target not in _ON_MACHINES:
            yield from ('cloud = "none"  # gke, eks, aks, karpenter', f'namespace = "{site.namespace}"')
    if target == "llm-d" and site.gateway is None:
        yield f'gateway = "{UNKNOWN}"  # stands before the first [...] of the file'
    own, asked = target == "systemd", set[str]()
    for worker, load in ((one, load) for one in workers for load in one.loads):
        section, rule = site.rule_of_load(load, worker.hardware) or ("*", None)
        name, model = (load.called if section == "*" else section), as_server(rule)
        if name in asked:
            continue
        asked.add(name)
        wanted = [key for key in ("command" if own else "image", *_BESIDE.get(target, ())) if not getattr(model, key)]
        if wanted and target != "haproxy":
            yield from ("", f"[models.{_bare(name)}]")
            yield from (f'{key} = ["{UNKNOWN}"]' if key == "command" else f'{key} = "{UNKNOWN}"' for key in wanted)
            yield from (f"port = {model.port}", f'health = "{model.health}"')
    kinds = list(dict.fromkeys(worker.hardware for worker in workers))
    for name in kinds:
        lines = list(_of_machine(profile, site, target, name, several=len(kinds) > 1))
        if lines:
            yield from ("", f"[machines.{_bare(name)}]", *lines)


def _of_machine(profile: Profile, site: Site, target: str, name: str, *, several: bool) -> Iterator[str]:
    hardware, machine = profile.hardware.get(name), site.machine(name)
    if hardware is None:
        return
    gpus = machine.gpus if machine.gpus is not None else hardware.provides.get("gpu")
    if gpus is None and hardware.kind != "cpu":
        yield f'gpus = "{UNKNOWN}"'
    faults = list[Fault]()
    nodes_of(name, site, faults, gpus=round(gpus or 0), several=several)
    if target == "haproxy" and not machine.addresses:
        yield f'addresses = ["{UNKNOWN}"]'
    elif target not in _ON_MACHINES and faults:
        yield f'instance_type = "{UNKNOWN}"  # or gpu_product, or selector'


def _bare(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
