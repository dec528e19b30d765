"""SkyServe: a service per group. SkyServe buys whichever line is cheapest, so a mix of lines would not be the plan's.

Queries reach the services of an application by a proxy of the user's, with the shares at the head of the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.names import CannotRender, Json, comment
from hetplan.executor.render.nodes import accelerator
from hetplan.executor.render.pods import WHOLE, of_images, plan_notes, weights, words
from hetplan.executor.render.rules import refused
from hetplan.executor.site import FILE, Site
from hetplan.profiles.yaml_text import read_yaml, write_yaml

__all__ = ["FILES", "read", "render"]

FILES = ("skyserve-GROUP.yaml",)
_WORD = re.compile(r"[A-Za-z0-9_./:=@,+-]+\Z")


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """A file for each group, for `sky serve up`."""
    cannot = refused("skyserve", fleet)
    faults = [*of_images(fleet, site), *cannot]
    files: dict[str, str] = {}
    for group in () if cannot else fleet.groups:
        (app,) = (fleet.apps[name] for name in group.apps)
        share = weights(app, fleet.of_app(app.name))[group.name] / WHOLE
        try:
            made = _service(site, group, faults)
        except InputError as error:
            faults += error.faults
            continue
        made["envs"] |= {f"HETPLAN_{name.upper()}": text for name, text in _told(fleet, group).items()}
        head = [*fleet.head, f"share of {app.name}: {share:g}"]
        files[f"skyserve-{group.name}.yaml"] = comment(head) + write_yaml(made)
    if faults:
        raise CannotRender.of(faults)
    return files


def _told(fleet: Fleet, group: Group) -> dict[str, str]:
    """Ids of a group as the plan has them, for who reads the file back."""
    return {"app": group.app, "model": group.model, "hardware": group.hardware,
            "concurrency": plan_notes(fleet, group)["hetplan.dev/concurrency"]}  # fmt: skip


def _service(site: Site, group: Group, faults: list[Fault]) -> Json:
    model, machine = group.server(site), site.machine(group.hardware)
    resources: Json = {"ports": model.port, "image_id": f"docker:{model.image}", "use_spot": group.spot}
    if group.gpus or group.gpu_fraction is not None:
        found = accelerator(group.hardware, machine)
        if found is None or "skypilot" not in found[1] or group.gpu_fraction is not None:
            faults.append(
                Fault(FILE, f"$.machines.{group.hardware}.gpu_product", machine.gpu_product or "nothing",
                      f"SkyPilot has no word for {group.gpu_fraction or group.gpus} of this GPU",
                      f'Add [machines.{group.hardware}] gpu_product = "l4"; parts of a GPU it does not share out.')
            )  # fmt: skip
        else:
            resources["accelerators"] = f"{found[1]['skypilot']}:{group.gpus}"
    elif machine.instance_type is not None:
        resources["instance_type"] = machine.instance_type
    elif group.cpu_cores is not None:
        resources["cpus"] = f"{group.cpu_cores:g}+"
    policy: Json = {"min_replicas": group.least, "max_replicas": group.most}
    if group.most > group.least and group.qps is not None:
        policy["target_qps_per_replica"] = round(group.qps, 3)
    health = {"path": model.health, "initial_delay_seconds": max(round(group.startup_s + group.load_s), 60)}
    start = words(group, site, [*model.command, *model.args], "command", port=model.port)
    return {
        "name": group.name,
        "service": {"readiness_probe": health, "load_balancing_policy": "least_load", "replica_policy": policy},
        "resources": resources,
        "envs": dict(sorted(model.env.items())),
        **({"secrets": dict.fromkeys(sorted(model.secret))} if model.secret else {}),
        "run": " ".join(one if _WORD.match(one) else "'" + one.replace("'", "'\\''") + "'" for one in start) or "true",
    }


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of rendered files: ids, replicas, GPUs, queries at a time."""
    found = []
    for file, text in files.items():
        one = read_yaml(text, file=file)
        told = {name.removeprefix("HETPLAN_").lower(): value for name, value in one["envs"].items()}
        gpus = one["resources"].get("accelerators", ":0").rpartition(":")[2]
        found.append(
            {"name": one["name"], "app": told["app"], "model": told["model"], "hardware": told["hardware"],
             "replicas": one["service"]["replica_policy"]["min_replicas"], "gpus": int(gpus),
             "concurrency": int(told["concurrency"])}
        )  # fmt: skip
    return found
