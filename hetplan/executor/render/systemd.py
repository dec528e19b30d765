"""systemd: a template unit per group for the user's manager, one target that wants all of them, HAProxy in front.

Each worker has a file with its port and its GPUs. With several machines each has a folder of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.render import haproxy
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.render.machines import Placed, place
from hetplan.executor.render.names import CannotRender, comment, dns_name, systemd_value, systemd_word
from hetplan.executor.render.pods import of_images, words
from hetplan.executor.site import Site

__all__ = ["FILES", "read", "render"]

FILES = ("hetplan.target", "hetplan-edge.service", "haproxy.cfg", "hetplan-GROUP@.service", "hetplan-GROUP@N.env")

_HERE = "%E/systemd/user"
"""Where the files of a user's units are."""
SECRETS = "%E/hetplan/secrets"
"""Where secrets are: a folder by the name of each, and a file by its key, as Kubernetes mounts them."""
_EDGE = f"""[Unit]
Description=hetplan: HAProxy before all workers
PartOf=hetplan.target

[Service]
Type=exec
ExecStartPre=haproxy -c -q -f {_HERE}/haproxy.cfg
ExecStart=haproxy -W -db -f {_HERE}/haproxy.cfg
ExecReload=haproxy -c -q -f {_HERE}/haproxy.cfg
ExecReload=/bin/kill -USR2 $MAINPID
Restart=always
RestartSec=0.5
NoNewPrivileges=yes
UMask=0077
"""


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """The files of `~/.config/systemd/user`, by machine where there are several."""
    faults = list(of_images(fleet, site, needs_command=True))
    placed = place(fleet, site, faults)
    units: dict[str, str] = {}
    for group in fleet.groups:
        try:
            units[group.name] = _unit(fleet, site, group)
        except InputError as error:
            faults += error.faults
    if faults:
        raise CannotRender.of(faults)
    machines = list(dict.fromkeys(one.address for one in placed))
    files: dict[str, str] = {}
    for address in machines:
        mine = [one for one in placed if one.address == address]
        folder = "" if len(machines) == 1 else f"{dns_name(address)}/"
        wants = [f"hetplan-{one.group.name}@{one.number}.service" for one in mine]
        edge = address == machines[0] and bool(haproxy.fronted(fleet))
        files[f"{folder}hetplan.target"] = _target(fleet, [*wants, *(["hetplan-edge.service"] if edge else [])])
        for one in mine:
            files[f"{folder}hetplan-{one.group.name}@.service"] = units[one.group.name]
            files[f"{folder}hetplan-{one.group.name}@{one.number}.env"] = _variables(one)
        if edge:
            files[f"{folder}hetplan-edge.service"] = comment(fleet.head) + _EDGE
            files[f"{folder}haproxy.cfg"] = haproxy.configuration(
                fleet, site, lambda group: [(f"{one.name}", one.at) for one in placed if one.group.name == group.name]
            )
    return files


def _target(fleet: Fleet, wants: list[str]) -> str:
    lines = ["[Unit]", "Description=all that one hetplan plan runs here", *(f"Wants={one}" for one in wants)]
    return comment(fleet.head) + "\n".join([*lines, "", "[Install]", "WantedBy=default.target"]) + "\n"


def _variables(one: Placed) -> str:
    gpus = ",".join(str(gpu) for gpu in one.gpus)
    return f"PORT={one.port}\n" + (f"CUDA_VISIBLE_DEVICES={gpus}\n" if one.group.machine_gpus else "")


def _unit(fleet: Fleet, site: Site, group: Group) -> str:
    model = group.server(site)
    start = [systemd_word(one, port="PORT") for one in words(group, site, [*model.command, *model.args], "command")]
    told = {"app": group.app, "model": group.model, "hardware": group.hardware, "gpus": group.gpus,
            "concurrency": group.concurrency}  # fmt: skip
    lines = [
        "[Unit]",
        f"Description=hetplan {group.name}, worker %i",
        "PartOf=hetplan.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=10",
        f"X-Hetplan={json.dumps(told, sort_keys=True)}",
        "",
        "[Service]",
        "Type=exec",
        f"EnvironmentFile={_HERE}/hetplan-{group.name}@%i.env",
        *(f"Environment={systemd_value(f'{name}={value}')}" for name, value in sorted(model.env.items())),
        *(f"LoadCredential={name}:{SECRETS}/{ref.name}/{ref.key}" for name, ref in sorted(model.secret.items())),
        f"ExecStart={' '.join([*_with_secrets(sorted(model.secret)), *start])}",
        "Restart=always",
        "RestartSec=0.5",
        f"TimeoutStopSec={math.ceil(model.stop_s)}",
        "KillMode=mixed",
        *([f"CPUQuota={math.ceil(100 * group.cpu_cores)}%"] if group.cpu_cores is not None else []),
        *([f"MemoryMax={math.floor(1024 * group.mem_gib)}M"] if group.mem_gib is not None else []),
        "NoNewPrivileges=yes",
        "UMask=0077",
    ]
    return comment(fleet.head) + "\n".join(lines) + "\n"


def _with_secrets(variables: list[str]) -> list[str]:
    """The words before a command that put the secrets that systemd loaded into its variables."""
    if not variables:
        return []
    said = [f'{name}=$(cat "$CREDENTIALS_DIRECTORY/{name}") && export {name}' for name in variables]
    return [systemd_word(one) for one in ("/bin/sh", "-c", " && ".join([*said, 'exec "$@"']), "sh")]


_UNIT = re.compile(r"(?:.*/)?hetplan-(.+)@\.service")


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of rendered units: ids, workers, GPUs."""
    found: dict[str, dict[str, Any]] = {}
    wants = [line for name, text in files.items() if name.endswith("hetplan.target") for line in text.splitlines()]
    for file, text in files.items():
        named = _UNIT.fullmatch(file)
        if named is not None:
            told: dict[str, Any] = json.loads(next(re.finditer(r"^X-Hetplan=(.*)$", text, re.MULTILINE))[1])
            count = sum(line.startswith(f"Wants=hetplan-{named[1]}@") for line in wants)
            found[named[1]] = {"name": named[1], **told, "replicas": count}
    return list(found.values())
