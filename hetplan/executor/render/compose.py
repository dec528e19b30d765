"""Docker Compose on one machine: a service per replica with its own GPUs, and the stock HAProxy in front."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.render import haproxy
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.machines import Placed, place
from hetplan.executor.render.names import CannotRender, Json, comment, dns_name
from hetplan.executor.render.pods import labels, of_images, plan_notes, words
from hetplan.executor.site import Site
from hetplan.profiles.yaml_text import read_yaml, write_yaml

__all__ = ["FILES", "read", "render"]

FILES = ("compose.yaml", "haproxy.cfg")


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """The two files of a folder for `docker compose up`."""
    faults = list(of_images(fleet, site))
    placed = place(fleet, site, faults, where="here")
    services: Json = {}
    for one in placed:
        try:
            services[one.name] = _service(fleet, site, one)
        except InputError as error:
            faults += error.faults
    if faults:
        raise CannotRender.of(faults)
    edge = site.edge
    made: Json = {"name": dns_name(fleet.name), "services": services}
    if not (fronts := haproxy.fronted(fleet)):
        return {"compose.yaml": comment(fleet.head) + write_yaml(made)}
    ports = [f"{edge.bind}:{edge.port + place}:{edge.port + place}" for place in range(len(fronts))]
    services["edge"] = {
        "image": edge.image, "restart": "unless-stopped", "ports": ports,
        "volumes": ["./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"]
        + ([f"{edge.certificates}:{edge.certificates}:ro"] if edge.certificates is not None else []),
        "depends_on": list(services),
    }  # fmt: skip

    def servers(group: Group) -> list[tuple[str, str]]:
        port = group.server(site).port
        return [(one.name, f"{one.name}:{port}") for one in placed if one.group.name == group.name]

    return {
        "compose.yaml": comment(fleet.head) + write_yaml(made),
        "haproxy.cfg": haproxy.configuration(fleet, site, servers, found="name"),
    }


def _service(fleet: Fleet, site: Site, one: Placed) -> Json:
    group, model = one.group, one.group.server(site)
    devices = {"driver": "nvidia", "device_ids": [str(gpu) for gpu in one.gpus], "capabilities": ["gpu"]}
    # Compose reads "$" as the beginning of a variable.
    command = [word.replace("$", "$$") for word in words(group, site, model.args, "args", port=model.port)]
    entry = [word.replace("$", "$$") for word in words(group, site, model.command, "command", port=model.port)]
    env = {name: value.replace("$", "$$") for name, value in sorted(model.env.items())}
    env |= {name: f"${{{name}:?}}" for name in sorted(model.secret)}
    return {
        "image": (model.image or "").replace("$", "$$"),
        **({"entrypoint": entry} if entry else {}),
        **({"command": command} if command else {}),
        **({"environment": env} if env else {}),
        "restart": "unless-stopped",
        "stop_grace_period": f"{math.ceil(model.stop_s)}s",
        "expose": [str(model.port)],
        "labels": {**labels(fleet, group), **plan_notes(fleet, group)},
        **({"cpus": group.cpu_cores} if group.cpu_cores is not None else {}),
        **({"mem_limit": f"{math.floor(1024 * group.mem_gib)}m"} if group.mem_gib is not None else {}),
        **({"deploy": {"resources": {"reservations": {"devices": [devices]}}}} if one.gpus else {}),
    }


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a rendered file: ids, replicas, GPUs."""
    found: dict[str, dict[str, Any]] = {}
    for service in read_yaml(files["compose.yaml"], file="compose.yaml")["services"].values():
        marks = service.get("labels", {})
        if "hetplan.dev/group" not in marks:
            continue
        name = marks["hetplan.dev/group"]
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        one = found.setdefault(
            name,
            {"name": name, "app": marks["hetplan.dev/app"], "model": marks["hetplan.dev/model"],
             "hardware": marks["hetplan.dev/hardware"], "replicas": 0,
             "gpus": len(devices[0]["device_ids"]) if devices else 0,
             "concurrency": int(marks["hetplan.dev/concurrency"])},
        )  # fmt: skip
        one["replicas"] += 1
    return list(found.values())
