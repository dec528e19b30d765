"""`hetplan profile`: measure models on this machine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, file_option, option
from hetplan.cli.output import Exit, Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hetplan.measure.measure_file import Wish
    from hetplan.measure.profile_cell import Cell
    from hetplan.measure.profile_engine import MeasuredEngines
    from hetplan.measure.profile_router import Served
    from hetplan.measure.profile_run import Measurements

__all__ = ["profile"]

Wanted = Annotated[
    Path,
    typer.Argument(
        metavar="MEASURE", readable=False, help="TOML file with the models to measure and their machine types."
    ),
]
ProfileTo = Annotated[Path, option("-o --output", "FILE", "Write the profile here.")]
JournalAt = Annotated[
    Path | None, file_option("--journal", "FILE", "Keep every measurement here; default: FILE.journal.")
]
On = Annotated[str | None, option("--on", "ray[:ADDRESS]", "Measure each machine type on its node of a Ray cluster.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Ignore measurements of an earlier run.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that another command wrote.")]


def profile(
    wish: Wanted,
    output: ProfileTo = Path("profile.json"),
    journal: JournalAt = None,
    on: On = None,
    fresh: Fresh = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure models on this machine.

    Measures each batch size until its interval is narrow enough, and keeps the result in a journal. After a crash the
    same command goes on from there. Ctrl-C writes the profile so far (exit 130). Prices go into another file.
    """
    with Output("profile", as_json=as_json) as out:
        from hetplan.measure.measure_file import read_wish

        asked, folder = read_wish(wish)
        _check_nodes(asked, on)
        journal = journal or output.with_name(f"{output.name}.journal")
        _check_target(output, journal, force=force)
        if fresh:
            journal.unlink(missing_ok=True)
        found, engines = _measure(out, asked, folder, journal, on)
        _finish(out, asked, found, engines, output)


def _check_target(output: Path, journal: Path, *, force: bool) -> None:
    from hetplan.errors import InputError

    if not output.parent.is_dir():
        raise InputError.one(file=str(output), why=f"there is no folder {output.parent}", remedy="Make it first.")
    if output.is_dir() or (output.exists() and not journal.exists() and not force):
        raise InputError.one(
            file=str(output),
            why="it exists, and it has no journal of this command",
            remedy="Name another with -o, or use --force.",
        )


def _check_nodes(wish: Wish, on: str | None) -> None:
    """Nodes are those of a cluster: without one nothing is measured by this machine in their place."""
    from hetplan.errors import InputError

    named = [(name, hardware.node) for name, hardware in wish.machines.items() if hardware.node is not None]
    if named and on is None:
        raise InputError.one(
            file="measure.toml", path=f"$.machines.{named[0][0]}.node", value=named[0][1],
            why="it is a node of a cluster, and none is named", remedy="Add --on ray:ADDRESS, or leave node out.",
        )  # fmt: skip


def _measure(
    out: Output, wish: Wish, folder: Path, journal: Path, on: str | None
) -> tuple[Measurements, MeasuredEngines]:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.errors import InputError
    from hetplan.measure.journal import CellJournal
    from hetplan.measure.profile_engine import measure_engines
    from hetplan.measure.profile_run import measure

    kept, cluster = CellJournal(journal), None
    try:
        if on is not None:
            from hetplan.planner.spread import RayCluster

            cluster = RayCluster(on)
    except InputError:
        kept.close()
        raise

    def work(cancel: threading.Event) -> tuple[Measurements, MeasuredEngines]:
        if cluster is None:
            found = measure(wish, folder, journal=kept, on_event=show, cancel=cancel, serve=_serve)
        else:
            from hetplan.measure.profile_cluster import measure_on_cluster

            at = folder.resolve()
            found = measure_on_cluster(wish, at, cluster, journal=kept, on_event=show, cancel=cancel, serve=_serve)
        return found, measure_engines(wish, journal=kept, on_event=show, cancel=cancel)

    try:
        with progress(out) as show:
            return interruptible(work, say=out.note)
    finally:
        if cluster is not None:
            cluster.close()
        kept.close()


def _serve(model: Mapping[str, Any], *, cores: Sequence[int]) -> Served:
    """A router and a worker for a model."""
    from hetplan.executor.one_model import ServedModel

    return ServedModel(model, cores=cores)


def _finish(out: Output, wish: Wish, found: Measurements, engines: MeasuredEngines, output: Path) -> None:
    import json

    from hetplan.errors import InputError
    from hetplan.measure.profile_document import profile_document
    from hetplan.measure.profile_engine import engine_document
    from hetplan.profiles.load_one import load_profile
    from hetplan.profiles.merge import merge
    from hetplan.profiles.plan_file import write_atomically

    found.failed += [(f"engines.{name}", one.why) for name, one in engines.engines.items() if one.why]
    for name, at, text in found.warnings():
        out.warn(f"{name} {at}: {text}")
    measured = [cell for cell in found.cells if not cell.failed]
    laws = any(one.law is not None for one in engines.engines.values())
    complete, count = found.complete and engines.complete, len(measured) + engines.cells
    resumed = found.resumed + engines.resumed
    body: dict[str, Any] = {
        "cells": count,
        "resumed": resumed,
        "failed": [{"at": at, "why": why} for at, why in found.failed],
    }
    if not measured and not laws:
        out.end(Exit.FAULT if complete else Exit.INTERRUPTED, "nothing was measured", written=None, **body)
        return
    parts = [("models", profile_document(wish, found))] if measured else []
    document, _, faults = merge([*parts, *([("engines", engine_document(wish, engines))] if laws else [])])
    if faults:
        raise InputError(faults)
    load_profile(document)
    write_atomically(output, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    if measured:
        _show(out, wish, found)
    if laws:
        _show_laws(out, engines)
    _show_ways(out, measured)
    out.people.line(f"written to {output}")
    summary = f"{count} cells measured" + (f", {resumed} of them earlier" if resumed else "")
    summary += f", {len(found.failed)} not" if found.failed else ""
    out.end(Exit.OK if complete else Exit.INTERRUPTED, summary, written=str(output), **body)


def _show_ways(out: Output, measured: Sequence[Cell]) -> None:
    """What the tables leave out of a query's time: the SLO file has a place for it."""
    from statistics import median

    ways = [cell.beside_ms for cell in measured if cell.through and cell.beside_ms is not None]
    if ways:
        out.people.line(
            f"measured through a router; what a query spends before it and after it is in no table: "
            f'"network_ms_per_hop": {median(ways):.2g} in the SLO file (of a pipeline "network_ms_once"; clients on '
            "this machine)"
        )


def _show_laws(out: Output, engines: MeasuredEngines) -> None:
    from hetplan.cli.output import number

    names = ("base", "token", "kv_token", "sequence", "pair", "experts", "chunk")
    alone = ("base", "experts", "chunk")
    rows = [
        (
            name, *(number(float(f"{one.law.numbers[f'{part}_ms']:.4g}")) for part in names),
            f"{100 * one.law.error:.1f}%", len(one.iterations),
        )
        for name, one in engines.engines.items() if one.law is not None
    ]  # fmt: skip
    parts = (f"{one} ms" if one in alone else f"ms per {one.replace('_', ' ')}" for one in names)
    titles = ("engine", *parts, "error", "iterations")
    out.people.table(titles, rows, right=titles[1:])


def _show(out: Output, wish: Wish, found: Measurements) -> None:
    from hetplan.cli.output import number
    from hetplan.measure.profile_cell import figures_of

    rows = []
    for cell in found.cells:
        if cell.failed:
            continue
        figures = figures_of(cell.samples_ms, cell.preempted, wish.repeats)
        low, high = figures.intervals["p99"]
        rows.append(
            (
                cell.variant,
                cell.hardware,
                ", ".join(f"{axis} {value:g}" for axis, value in cell.point.items()),
                number(figures.percentiles["p50"]),
                number(figures.percentiles["p99"]),
                f"{number(low)} .. {number(high)}",
                figures.runs,
                f"{figures.outliers} ({figures.outliers_preempted} preempted)" if figures.outliers else "0",
                "" if figures.converged else "wide",
            )
        )
    titles = ("model", "machine type", "at", "p50 ms", "p99 ms", "p99 interval", "runs", "outliers", "")
    out.people.table(titles, rows, right=("p50 ms", "p99 ms", "runs"))
    out.people.table(
        ("quality of", "value", "interval", "samples"),
        [
            (name, number(one.value), f"{number(one.interval[0])} .. {number(one.interval[1])}", one.samples)
            for name, one in found.qualities.items()
        ],
        right=("value", "samples"),
    )
