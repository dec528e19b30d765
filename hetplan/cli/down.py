"""`hetplan down`: stop everything of a deployment."""

from __future__ import annotations

from typing import Annotated

import typer

from hetplan.cli.arguments import AsJson
from hetplan.cli.exits import Exit
from hetplan.cli.hosts_arguments import HostsFileOption, Wait
from hetplan.cli.output import Output

__all__ = ["down"]


def down(
    hosts: HostsFileOption,
    yes: Annotated[bool, typer.Option("--yes", help="Act. Without it what would be stopped is shown.")] = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Stop the router, all workers and their keepers; no process of the deployment is left."""
    with Output("down", as_json=as_json) as out:
        from hetplan.executor.deployment import Deployment
        from hetplan.executor.hosts_file import read_hosts
        from hetplan.registry import target

        with Deployment(read_hosts(hosts), targets=target) as deployment:
            seen = deployment.observe()
            for one in seen:
                out.send({"unit": one.name, "status": one.status})
            if not yes:
                reason = f"{len(seen)} units would be stopped (add --yes)" if seen else "nothing runs"
            else:
                deployment.down(wait_s=wait)
                reason = f"{len(seen)} units stopped; nothing is left" if seen else "nothing ran; nothing is left"
            out.people.line(reason)
            out.end(Exit.OK, reason)
