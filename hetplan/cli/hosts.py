"""The commands that touch hosts or look at what runs there: `hetplan apply`, `status` and `down`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetplan.cli.arguments import AsJson, option, read_settings
from hetplan.cli.cluster import (
    SiteFile,
    apply_to_cluster,
    check_options,
    cluster_down,
    cluster_status,
    show_step,
    write_state,
)
from hetplan.cli.long_work import interruptible
from hetplan.cli.output import Exit, Output, number
from hetplan.cli.read_files import Wait, keep_plan, plan_from
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.deployment import Applied, Deployment, Progress
    from hetplan.executor.site import Site
    from hetplan.executor.steps import Difference
    from hetplan.executor.units import Seen
    from hetplan.profiles.plan import Plan

__all__ = ["apply", "down", "show_difference", "status"]


def apply(
    site: SiteFile,
    plan: Annotated[
        Path | None, typer.Argument(metavar="PLAN", readable=False, help="Plan file written by `hetplan solve`.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the changes; without it they are only printed.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo an interrupted apply.")] = False,
    period: Annotated[
        str | None, typer.Option(metavar="ID", help="The period of the plan; default: the first.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("--set", "NAME=VALUE", "Of a cluster: set rule, nodes or quota of `hetplan render`.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Of a cluster: take over fields that other managers set.")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="After a reboot: start again all that was applied on this machine.")
    ] = False,
    systemd: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With --restore: only write systemd units that do it at boot."),
    ] = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Start, change and stop replicas until the hosts match the plan.

    Without `--yes` it only prints the changes. If the plan cannot be reached, the old replicas run again (exit 7). The
    next apply finishes one that was killed; `--undo --yes` undoes it.

    `--restore` acts at once: it starts the missing keepers of this machine, which start all that was applied.

    A site without targets is a cluster: the plan is rendered for Kubernetes and applied with kubectl.
    """
    with Output("apply", as_json=as_json) as out:
        from hetplan.executor.deployment import Deployment
        from hetplan.executor.site import read_site
        from hetplan.registry import target

        beside = {"--yes": yes, "--undo": undo, "--period": period, "--wait": wait}
        _check_flags(plan, restore=restore, systemd=systemd, beside=beside)
        if (plan is None) != (undo or restore):
            why = "--undo takes no plan: it restores the previous replicas" if undo else "expected a plan"
            raise InputError.one(path="PLAN", why=why, remedy="Write hetplan apply PLAN, or hetplan apply --undo.")
        place = read_site(site)
        of_clusters = {"--set": settings, "--take-over": take_over}
        check_options(place, of_clusters=of_clusters, of_hosts={"--restore": restore, "--systemd": systemd})
        if restore:
            _restore(out, place, systemd)
            return
        if not place.targets:
            given = {**read_settings(settings or []), **({"period": period} if period is not None else {})}
            files = [plan] if plan is not None else []
            apply_to_cluster(out, files, place, given, yes=yes, take_over=take_over, wait=wait)
            return
        wanted = plan_from(plan) if plan is not None else None
        with Deployment(place, targets=target) as deployment:
            if not yes:
                _preview(out, deployment, wanted, period)
                return
            applied = interruptible(lambda cancel: _act(out, deployment, wanted, period, wait, cancel), say=out.note)
            for note in applied.notes:
                out.warn(note, kind="note")
            if wanted is not None:
                keep_plan(deployment.folder, wanted)
            done = len(applied.steps)
            reason = (
                f"{done} step{'' if done == 1 else 's'} done" if done else "nothing to do: what runs matches the plan"
            )
            out.people.line(f"{reason}; queries go to {applied.endpoint}{_path(deployment)}")
            out.end(Exit.OK, reason, endpoint=applied.endpoint)


def _check_flags(plan: Path | None, *, restore: bool, systemd: Path | None, beside: Mapping[str, object]) -> None:
    """`--restore` is an action of its own, and `--systemd` a way to do it."""
    extra = [str(plan)] if plan is not None else [name for name, value in beside.items() if value]
    if restore and extra:
        why = "it starts at once what was applied before, and takes neither a plan nor what says how to apply one"
        remedy = f"Leave {extra[0]} out: hetplan apply --restore --site site.toml."
        raise InputError.one(file="--restore", value=extra[0], why=why, remedy=remedy)
    if systemd is not None and not restore:
        raise InputError.one(file="--systemd", why="units restore what was applied", remedy="Add --restore.")


def _restore(out: Output, site: Site, systemd: Path | None) -> None:
    """Start the keepers of this machine where they are missing, or write units for systemd that do so."""
    from hetplan.executor.deployment import Deployment
    from hetplan.executor.local import Local
    from hetplan.executor.systemd import unit_name, unit_text
    from hetplan.profiles.plan_file import write_atomically
    from hetplan.registry import target

    with Deployment(site, targets=target) as deployment:
        local = {name: one for name, one in deployment.targets.items() if isinstance(one, Local)}
        for name, one in local.items():
            if systemd is None:
                one.keep()
                continue
            systemd.mkdir(parents=True, exist_ok=True)
            path = systemd / unit_name(site, name)
            write_atomically(path, unit_text(site, one).encode())
            out.send({"unit": str(path)})
            out.people.line(f"written: {path}")
        done = "units for systemd" if systemd is not None else "keepers run"
        reason = f"{len(local)} {done}" if local else "no target of kind local: nothing to restore here"
        out.people.line(reason)
        out.end(Exit.OK, reason)


def _path(deployment: Deployment) -> str:
    """Where applications are asked: text by OpenAI's paths, all else by their names."""
    return "/v1/chat/completions" if deployment.makes_text else "/v1/APP"


def show_difference(out: Output, found: Difference) -> int:
    """The rows of a difference, for people or as events; how many there are that would change something."""
    rows = list(found.lines())
    signs = {"+": "start", "-": "stop", "~": "change", ">": "route", "=": "keep"}
    for sign, what, text in rows:
        out.send({"difference": {"do": signs[sign], "what": what, "text": text}})
    if rows:
        out.people.table(("", "what", ""), rows)
    return sum(sign != "=" for sign, _, _ in rows)


def _preview(out: Output, deployment: Deployment, plan: Plan | None, period: str | None) -> None:
    unfinished = deployment.unfinished()
    if unfinished is not None and plan is not None:
        out.warn(f"{unfinished}; apply with --yes finishes it, apply --undo --yes goes back")
    found = deployment.difference(plan, period=period) if plan is not None else deployment.difference_back()
    changes = show_difference(out, found)
    many = f"{changes} change{'' if changes == 1 else 's'}"
    as_it_is = "all runs as wanted" if plan is not None else "all runs as before"
    reason = f"{many}; nothing was touched (add --yes)" if changes else as_it_is
    out.people.line(reason)
    out.end(Exit.OK, reason, changes=changes)


def _act(
    out: Output, deployment: Deployment, plan: Plan | None, period: str | None, wait: float, cancel: threading.Event
) -> Applied:
    def show(event: Progress) -> None:
        show_step(out, event)

    if plan is None:
        return deployment.undo(on_event=show, wait_s=wait)
    return deployment.apply(plan, period=period, on_event=show, wait_s=wait, cancel=cancel)


def status(
    site: SiteFile,
    over: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Measure rates over these seconds; 0: since the start.")
    ] = 1.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the state file here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the state file to standard output.")] = False,
) -> None:
    """Print what runs.

    `--json` and `-o` write a state file, which `hetplan solve` reads. Exit 7 if a replica of the last apply does not
    run; each one is named.
    """
    with Output("status", quiet=as_json) as out:
        from hetplan.executor.deployment import Deployment
        from hetplan.executor.site import read_site
        from hetplan.registry import target

        place = read_site(site)
        if not place.targets:
            cluster_status(out, place, output, as_json=as_json)
            return
        with Deployment(place, targets=target) as deployment:
            unfinished = deployment.unfinished()
            if unfinished is not None:
                out.warn(f"{unfinished}; apply again finishes it, apply --undo --yes goes back")
            state = deployment.state(over_s=over)
            write_state(out, state, output, as_json=as_json)
            seen = deployment.observe()
            rows = [
                (
                    load.id, f"{worker.count} x {worker.hardware}", load.variant or load.node or "-", figures.status,
                    number(figures.rate_qps), number(figures.utilisation), number(figures.latency_ms),
                )
                for worker in state.workers
                for load in worker.loads
                if (figures := state.observed[load.id])
            ]  # fmt: skip
            if rows:
                out.people.table(("load", "workers", "model", "status", "qps", "used", "ms"), rows)
                where = f"queries go to {deployment.endpoint()}{_path(deployment)}"
                out.people.line(where if deployment.routed else "no router runs: queries go nowhere")
            missing = deployment.missing(seen)
            for line in missing:
                out.warn(line)
            reason = f"{len(seen)} units run" if seen else "nothing runs"
            if missing:
                reason += f"; {len(missing)} things are not as they should be: apply the plan again"
            if not rows or missing:
                out.people.line(reason)
            out.end(Exit.APPLY_FAILED if missing else Exit.OK, reason)


def down(
    site: SiteFile,
    yes: Annotated[bool, typer.Option("--yes", help="Stop the replicas; without it they are only printed.")] = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Stop all that runs: the router, all replicas and their keepers."""
    with Output("down", as_json=as_json) as out:
        from hetplan.executor.deployment import Deployment
        from hetplan.executor.site import read_site
        from hetplan.registry import target

        place = read_site(site)
        if not place.targets:
            cluster_down(out, place, yes=yes, wait=wait)
            return
        with Deployment(place, targets=target) as deployment:
            seen = _seen(out, deployment, acts=yes)
            for one in seen:
                out.send({"unit": one.name, "status": one.status})
            if not yes:
                reason = f"{len(seen)} units would be stopped (add --yes)" if seen else "nothing runs"
            else:
                deployment.down(wait_s=wait)
                reason = f"{len(seen)} units stopped; nothing is left" if seen else "nothing ran; nothing is left"
            out.people.line(reason)
            out.end(Exit.OK, reason)


def _seen(out: Output, deployment: Deployment, *, acts: bool) -> tuple[Seen, ...]:
    """What runs; who is to end it is not kept from it by a target that does not answer."""
    from hetplan.executor.target import TargetFailed

    try:
        return deployment.observe()
    except TargetFailed as error:
        if not acts:
            raise
        out.warn(str(error))
        return ()
