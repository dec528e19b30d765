"""`hetplan status`: what runs, as a page or as the state file that planning reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hetplan.cli.exits import Exit
from hetplan.cli.hosts_arguments import HostsFileOption
from hetplan.cli.output import Output
from hetplan.cli.page import number

__all__ = ["status"]


def status(
    hosts: HostsFileOption,
    over: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Observe rates for so long; 0: since the start.")
    ] = 1.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the state file here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the state file to standard output.")] = False,
) -> None:
    """Show what runs. The state file that `--json` or `-o` writes is what `hetplan solve --state` reads."""
    with Output("status", quiet=as_json) as out:
        from hetplan.executor.deployment import Deployment
        from hetplan.executor.durable import write_durably
        from hetplan.executor.hosts_file import read_hosts
        from hetplan.registry import target

        with Deployment(read_hosts(hosts), targets=target) as deployment:
            unfinished = deployment.unfinished()
            if unfinished is not None:
                out.warn(f"{unfinished}; apply again finishes it, apply --undo --yes goes back")
            state = deployment.state(over_s=over)
            content = json.dumps(state.model_dump(mode="json", exclude_none=True), indent=1) + "\n"
            if output is not None:
                write_durably(output, content.encode())
                out.note(f"written to {output}")
            if as_json:
                typer.echo(content, nl=False)
            seen = deployment.observe()
            rows = [
                (
                    load.id, f"{worker.count} x {worker.hardware}", load.variant or load.node or "-", told.status,
                    number(told.rate_qps), number(told.utilisation), number(told.latency_ms),
                )
                for worker in state.workers
                for load in worker.loads
                if (told := state.observed[load.id])
            ]  # fmt: skip
            if rows:
                out.people.table(("load", "workers", "model", "status", "qps", "used", "ms"), rows)
                where = f"queries go to {deployment.endpoint()}/v1/APP"
                out.people.line(where if deployment.routed else "no router runs: queries go nowhere")
            for one in seen:
                if one.status != "ready":
                    why = f": {one.why}" if one.why else ""
                    out.warn(f"{one.name}: {one.status}, started again {one.restarts} times{why}")
            reason = f"{len(seen)} units run" if seen else "nothing runs"
            if not rows:
                out.people.line(reason)
            out.end(Exit.OK, reason)
