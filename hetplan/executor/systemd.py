"""The keepers of a machine as systemd units: started with the machine, and started again when they die.

The unit's keeper waits until no other one runs for the folder, so it may be enabled while an apply's own keeper is
there. Stopping the unit ends the processes and remembers them; starting it brings them up again.
"""

from __future__ import annotations

import sys
from math import ceil

from hetplan.executor.kept_process import MARK, python_path
from hetplan.executor.local import Local
from hetplan.executor.render.names import systemd_value, systemd_word
from hetplan.executor.secrets import TOKEN_FILE, environment_of
from hetplan.executor.site import Site

__all__ = ["unit_name", "unit_text"]


def unit_name(site: Site, target: str) -> str:
    """The unit's file name.

    >>> from hetplan.executor.site import read_site
    >>> unit_name(read_site({"name": "shop", "targets": {"here": {"kind": "local"}},
    ...     "hosts": {"box": {"target": "here", "machines": "cpu", "count": 1}}}), "here")
    'hetplan-shop-here.service'
    """
    return f"hetplan-{site.name}-{target}.service"


def unit_text(site: Site, target: Local) -> str:
    """The unit that keeps what runs on this target."""
    # A token of an apply's own environment is not known to systemd: the unit then needs a drop-in that sets it.
    secret = {name: value for name, value in environment_of(site).items() if name == TOKEN_FILE}
    said = {MARK: target.folder, "PYTHONPATH": python_path(), **secret}
    environment = "\n".join(f"Environment={systemd_value(f'{name}={value}')}" for name, value in said.items())
    stop_s = ceil(2 * site.limits.drain_s) + 10
    return f"""[Unit]
Description=hetplan {site.name}: workers and router of target {target.name}
After=network.target

[Service]
ExecStart={" ".join(map(systemd_word, target.keeper_command("wait")))}
{environment}
WorkingDirectory=/
Restart=always
RestartSec=5
# Only the keeper: what it keeps goes on without it, and the next one finds it.
KillMode=process
# Ends what it keeps and remembers it for the next start.
KillSignal=SIGINT
TimeoutStopSec={stop_s}
LimitNOFILE=65536

[Install]
WantedBy={"multi-user.target" if sys.prefix.startswith(("/usr", "/opt")) else "default.target"}
"""
