"""The commands that touch hosts or look at what runs there: `hetplan apply`, `status` and `down`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetplan.cli.arguments import AsJson, option, read_settings
from hetplan.cli.long_work import interruptible
from hetplan.cli.output import Exit, Output
from hetplan.cli.places import InCluster, OnHosts, SiteFile, check_options, difference_rows, place_of, show_step
from hetplan.cli.read_files import Wait
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.site import Site
    from hetplan.profiles.state import State

__all__ = ["apply", "down", "status"]


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
        from hetplan.executor.site import read_site

        beside = {"--yes": yes, "--undo": undo, "--period": period, "--wait": wait}
        _check_flags(plan, restore=restore, systemd=systemd, beside=beside)
        if (plan is None) != (undo or restore):
            why = "--undo takes no plan: it restores the previous replicas" if undo else "expected a plan"
            raise InputError.one(path="PLAN", why=why, remedy="Write hetplan apply PLAN, or hetplan apply --undo.")
        read = read_site(site)
        of_clusters = {"--set": settings, "--take-over": take_over}
        check_options(read, of_clusters=of_clusters, of_hosts={"--restore": restore, "--systemd": systemd})
        if restore:
            _restore(out, read, systemd)
            return
        given = {**read_settings(settings or []), **({"period": period} if period is not None else {})}
        with place_of(out, read, given, take_over=take_over) as place:
            if not yes:
                _preview(out, place, plan)
                return
            done = interruptible(
                lambda cancel: place.apply(plan, lambda event: show_step(out, event), wait, cancel), say=out.note
            )
            for note in done.notes:
                out.warn(note, kind="note")
            many = f"{done.steps} step{'' if done.steps == 1 else 's'} done"
            reason = many if done.steps else "nothing to do: what runs matches the plan"
            where = f"; queries go to {done.endpoint}{done.path}" if done.endpoint is not None else ""
            out.people.line(f"{reason}{where}")
            out.end(Exit.OK, reason, **({"endpoint": done.endpoint} if done.endpoint is not None else {}))


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


def _preview(out: Output, place: OnHosts | InCluster, plan: Path | None) -> None:
    _warn_of_unfinished(out, place if plan is not None else None, "apply with --yes")
    changes = difference_rows(out, place.difference(plan))
    many = f"{changes} change{'' if changes == 1 else 's'}"
    as_it_is = "all runs as wanted" if plan is not None else "all runs as before"
    reason = f"{many}; nothing was touched (add --yes)" if changes else as_it_is
    out.people.line(reason)
    out.end(Exit.OK, reason, changes=changes)


def _warn_of_unfinished(out: Output, place: OnHosts | InCluster | None, finishes: str) -> None:
    unfinished = place.of.unfinished() if place is not None else None
    if unfinished is not None:
        out.warn(f"{unfinished}; {finishes} finishes it, apply --undo --yes goes back")


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
        from hetplan.executor.site import read_site

        with place_of(out, read_site(site), {}) as place:
            _warn_of_unfinished(out, place, "apply again")
            state = place.state(over)
            _write_state(out, state, output, as_json=as_json)
            found = place.status(state)
            if found.rows:
                out.people.table(found.titles, found.rows)
                if found.where:
                    out.people.line(found.where)
            for line in found.missing:
                out.warn(line)
            reason = found.reason or "nothing runs"
            if found.missing:
                reason += f"; {len(found.missing)} things are not as they should be: apply the plan again"
            out.people.line(reason)
            out.end(Exit.APPLY_FAILED if found.missing else Exit.OK, reason)


def _write_state(out: Output, state: State, output: Path | None, *, as_json: bool) -> None:
    """The state file, to where it is asked for."""
    from hetplan.executor.durable import write_durably
    from hetplan.profiles.yaml_text import is_yaml, write_yaml

    document = state.model_dump(mode="json", exclude_none=True)
    content = json.dumps(document, indent=1) + "\n"
    if output is not None:
        write_durably(output, (write_yaml(document) if is_yaml(output) else content).encode())
        out.note(f"written to {output}")
    if as_json:
        typer.echo(content, nl=False)


def down(
    site: SiteFile,
    yes: Annotated[bool, typer.Option("--yes", help="Stop the replicas; without it they are only printed.")] = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Stop all that runs: the router, all replicas and their keepers."""
    with Output("down", as_json=as_json) as out:
        from hetplan.executor.site import read_site

        with place_of(out, read_site(site), {}) as place:
            there = _there(out, place, acts=yes)
            for one in there:
                out.send({place.what: one})
            many = f"{len(there)} {place.what}{'' if len(there) == 1 else 's'}"
            if not yes:
                reason = f"{many} would be {place.ends} (add --yes)" if there else "nothing runs"
            else:
                place.of.down(wait_s=wait)
                reason = f"{many} {place.ends}; nothing is left" if there else "nothing ran; nothing is left"
            out.people.line(reason)
            out.end(Exit.OK, reason)


def _there(out: Output, place: OnHosts | InCluster, *, acts: bool) -> list[dict[str, str]]:
    """What runs; who is to end it is not kept from it by a target that does not answer."""
    from hetplan.executor.target import TargetFailed

    try:
        return place.runs()
    except TargetFailed as error:
        if not acts:
            raise
        out.warn(str(error))
        return []
