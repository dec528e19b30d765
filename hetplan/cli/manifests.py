"""`hetplan manifests`: a plan as files for Kubernetes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hetplan.cli.arguments import AsJson
from hetplan.cli.given_files import HostsFileOption, plan_from
from hetplan.cli.output import Exit, Output

__all__ = ["ScalingForm", "manifests"]


class ScalingForm(StrEnum):
    """Who says how many pods a group has."""

    NONE = "none"
    HPA = "hpa"
    KEDA = "keda"


def manifests(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", readable=False, help="Plan file written by `hetplan solve`.")],
    hosts: HostsFileOption,
    kubernetes: Annotated[str, typer.Option("--kubernetes", metavar="VERSION", help="The cluster's, as 1.32.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the files go.")],
    scaling: Annotated[
        ScalingForm, typer.Option(help="The plan alone; HorizontalPodAutoscalers; KEDA's ScaledObjects.")
    ] = ScalingForm.NONE,
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Which of several Kubernetes targets.")] = None,
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Of a schedule: where its first period is 0:00.")] = (
        "Etc/UTC"
    ),
    as_json: AsJson = False,
) -> None:
    """Write a plan as a folder for `kubectl apply -k`, checked against the schemas of the cluster's version.

    A plan with periods of a day or a week brings its schedule: CronJobs, cron triggers of KEDA, or bounds by the hour.
    """
    with Output("manifests", as_json=as_json) as out:
        from hetplan.executor.hosts_file import read_hosts
        from hetplan.executor.kubernetes.exports import export_folder
        from hetplan.profiles.plan_file import write_atomically

        made = export_folder(
            plan_from(plan), read_hosts(hosts), version=kubernetes, scaling=scaling.value, target=target,
            timezone=timezone,
        )  # fmt: skip
        output.mkdir(parents=True, exist_ok=True)
        for name, text in made.files.items():
            write_atomically(output / name, text.encode())
        for note in made.notes:
            out.warn(note, kind="note")
        reason = f"{made.objects} objects written to {output}; kubectl apply -k {output}"
        out.people.line(reason)
        out.end(Exit.OK, reason, objects=made.objects)
