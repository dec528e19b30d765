"""Arguments of the commands that touch hosts, with their help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["HostsFileOption", "Wait"]

HostsFileOption = Annotated[
    Path, typer.Option("--hosts", metavar="FILE", readable=False, help="Trusted file: hosts, models, time-outs.")
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0.0, help="Wait so long while another command is at work.")
]
