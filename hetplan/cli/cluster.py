"""`hetplan apply`, `status` and `down` of a cluster: a plan rendered for it, and brought about there."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import file_option
from hetplan.cli.long_work import interruptible
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.apply.cluster import Changes
    from hetplan.executor.apply.one_by_one import Progress
    from hetplan.executor.apply.platform import Platform
    from hetplan.executor.site import Site
    from hetplan.profiles.state import State

__all__ = [
    "SiteFile",
    "apply_to_cluster",
    "check_options",
    "cluster_down",
    "cluster_status",
    "difference_to_cluster",
    "show_step",
    "write_state",
]

KUBERNETES = "kubernetes"
SiteFile = Annotated[
    Path, file_option("--site", "FILE", "Trusted file: hosts or a cluster, and how models are served.")
]


def apply_to_cluster(
    out: Output, files: list[Path], site: Site, given: dict[str, Any], *, yes: bool, take_over: bool, wait: float
) -> None:
    """Bring a plan about (without one: go back), or show what that would change."""
    from hetplan.cli.platform_files import made_for
    from hetplan.cli.read_files import keep_plan
    from hetplan.executor.apply.cluster import Rendered

    made = made_for(out, files, KUBERNETES, site, given) if files else None
    wanted = Rendered(str(made.plan.digest), made.files) if made is not None else None
    platform = _platform(site, take_over=take_over)
    if not yes:
        unfinished = platform.unfinished()
        if unfinished is not None and wanted is not None:
            out.warn(f"{unfinished}; apply with --yes finishes it, apply --undo --yes goes back")
        _show(out, platform.changes(wanted) if wanted is not None else platform.changes_back())
        return

    def act(cancel: threading.Event) -> tuple[str, ...]:
        def show(event: Progress) -> None:
            show_step(out, event)

        if wanted is None:
            return platform.undo(on_event=show, wait_s=wait)
        return platform.apply(wanted, on_event=show, wait_s=wait, cancel=cancel)

    done = len(interruptible(act, say=out.note))
    if made is not None:
        keep_plan(platform.folder, made.plan)
    reason = f"{done} step{'' if done == 1 else 's'} done" if done else "nothing to do: what runs matches the plan"
    out.people.line(reason)
    out.end(Exit.OK, reason)


def cluster_status(out: Output, site: Site, output: Path | None, *, as_json: bool) -> None:
    """What runs, by the objects that the cluster has."""
    platform = _platform(site)
    unfinished = platform.unfinished()
    if unfinished is not None:
        out.warn(f"{unfinished}; apply again finishes it, apply --undo --yes goes back")
    groups = platform.groups()
    write_state(out, platform.state(groups), output, as_json=as_json)
    rows = [
        (one.name, str(one.told["model"]), str(one.told["hardware"]), f"{one.ready} of {one.wanted} ready")
        for one in groups
    ]
    if rows:
        out.people.table(("group", "model", "machine type", "pods"), rows)
    missing = platform.missing(groups)
    for line in missing:
        out.warn(line)
    reason = f"{sum(one.ready for one in groups)} pods ready" if groups else "nothing runs"
    if missing:
        reason += f"; {len(missing)} groups are not as they should be"
    out.people.line(reason)
    out.end(Exit.APPLY_FAILED if missing else Exit.OK, reason)


def cluster_down(out: Output, site: Site, *, yes: bool, wait: float) -> None:
    """Delete all objects of the deployment."""
    platform = _platform(site)
    names = platform.there()
    for kind, name in names:
        out.send({"object": {"kind": kind, "name": name}})
    if not yes:
        reason = f"{len(names)} objects would be deleted (add --yes)" if names else "nothing runs"
    else:
        platform.down(wait_s=wait)
        reason = f"{len(names)} objects deleted; nothing is left" if names else "nothing ran; nothing is left"
    out.people.line(reason)
    out.end(Exit.OK, reason)


def _platform(site: Site, **how: Any) -> Platform:
    from hetplan.executor.apply.platform import Platform

    return Platform(site, **how)


def difference_to_cluster(out: Output, plan: Path, site: Site) -> int:
    """What applying a plan would change in a cluster; how many objects that are."""
    from hetplan.cli.platform_files import made_for
    from hetplan.executor.apply.cluster import Rendered

    made = made_for(out, [plan], KUBERNETES, site, {})
    return _rows(out, _platform(site).changes(Rendered(str(made.plan.digest), made.files)))


def _show(out: Output, found: Changes) -> None:
    """A difference of which nothing is done."""
    count = _rows(out, found)
    many = f"{count} change{'' if count == 1 else 's'}"
    reason = f"{many}; nothing was touched (add --yes)" if count else "all is there as wanted"
    out.people.line(reason)
    out.end(Exit.OK, reason, changes=count)


def _rows(out: Output, found: Changes) -> int:
    """The rows of a difference, and kubectl's own account of it."""
    rows = [
        (sign, f"{kind} {name}", text)
        for sign, names, text in (
            ("+", found.made, "made"),
            ("~", found.changed, "changed"),
            ("-", found.gone, "deleted"),
        )
        for kind, name in names
    ]
    for _, what, text in rows:
        out.send({"difference": {"do": text, "what": what}})
    if rows:
        out.people.table(("", "object", ""), rows)
    if found.changed:
        out.people.line(found.text.rstrip())
    return len(rows)


def show_step(out: Output, event: Progress) -> None:
    """A step of an apply, for people and as an event."""
    out.send({"event": dict(vars(event))})
    if event.kind != "done":
        at = f"{event.number}/{event.of} " if event.number else ""
        out.note(f"{event.kind}: {at}{event.text}")


def write_state(out: Output, state: State, output: Path | None, *, as_json: bool) -> None:
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


def check_options(site: Site, *, of_clusters: Mapping[str, object], of_hosts: Mapping[str, object]) -> None:
    """Refuse options that say something of the other kind of place alone."""
    what, other = ("hosts", of_clusters) if site.targets else ("a cluster", of_hosts)
    for name, value in other.items():
        if value:
            raise InputError.one(
                file=name, why=f"it says nothing of {what}, which this site is", remedy="Leave it out."
            )
