"""The service law of a load, made from the profile: its run, that run's table, and the settings it is read at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import STATISTICS, Statistic, Table
from hetplan.profiles.workers import Load
from hetplan.serving.law import Law, answering, settings_of
from hetplan.serving.runs import run_of, table_of

__all__ = ["law_data", "law_of_load", "law_of_run", "law_of_table", "statistic_of"]


def law_of_table(table: Table, *, at: Mapping[str, float] | None = None, extend: bool = False) -> Law:
    """A table as a law, read at these settings; with `extend`, beyond its grid too (`Cells`, outside "extend")."""
    return Law(law_data(table, at=at, extend=extend))


def law_data(table: Table, *, at: Mapping[str, float] | None = None, extend: bool = False) -> dict[str, Any]:
    """A law as JSON data: what a worker's process is handed.

    >>> law_data(Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=(6.1, 30.2)))
    {'quantity': 'latency_ms', 'outside': 'refuse', 'axes': {'batch': [1.0, 8.0]}, 'mean': [6.1, 30.2]}
    """
    held: dict[str, Any] = {
        name: _plain(getattr(table, name)) for name in STATISTICS if getattr(table, name) is not None
    }
    axes = {name: list(points) for name, points in table.axes.items()}
    outside = "extend" if extend and table.outside != "clamp" else table.outside
    return {"quantity": table.quantity, "outside": outside, "axes": axes, **({"at": dict(at)} if at else {}), **held}


def _plain(grid: Any) -> Any:
    return [_plain(cell) for cell in grid] if isinstance(grid, tuple | list) else grid


def law_of_run(
    profile: Profile, variant: str, run: Run, *, knobs: Mapping[str, Any] | None = None, extend: bool = False
) -> Law:
    """The law of a variant on a run, for a load with these knobs.

    `extend` reads beyond the largest batch along a straight line, as plans of policies do, whose batches may be larger.
    """
    return law_of_table(
        table_of(profile, variant, run),
        at=settings_of(knobs=knobs or {}, at=run.at, variant_knobs=profile.variants[variant].knobs),
        extend=extend,
    )


def law_of_load(profile: Profile, load: Load, hardware: str, *, path: str = "", extend: bool = False) -> Law:
    """The law of a load of a plan."""
    run = run_of(profile, load, hardware, path=path)
    return law_of_run(profile, load.variant or "", run, knobs=load.knobs, extend=extend)


def statistic_of(
    table: Table, wanted: Statistic, *, named: str = "", at: str = ""
) -> tuple[Statistic, tuple[Notice, ...]]:
    """The statistic of a table that answers for `wanted`, and the warning where it is another.

    `named` is the option by which the user asked for `wanted`, "" where it is only the default: what the user named is
    refused where it was not measured.

    >>> statistic_of(Table(quantity="latency_ms", p50=4.0, p99=9.0), "p95", at="tables.t")[0]
    'p99'
    """
    found: Statistic = answering(table.statistics, wanted)  # type: ignore[assignment]
    if found == wanted:
        return found, ()
    if named:
        listed = ", ".join(name for name in table.statistics if name != "std")
        raise InputError.one(
            file=table.file or "profile", path=f"$.{at}.{wanted}" if at else wanted, value=wanted,
            why=f"option {named} asks for {wanted}, which the table lacks",
            remedy=f"Measure it, or set {named} to one that is there: {listed}.",
        )  # fmt: skip
    return found, (Notice(code="W-statistic", at=at, text=f"{wanted} was not measured: {found} is taken in its place"),)
