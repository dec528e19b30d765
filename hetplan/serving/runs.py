"""Which run a load uses: a run is named by (variant, hardware, `at`), and a load of a plan says which one it is.

Runs of a variant on one hardware that differ by `at.batch` alone, each with a table of that one batch, are measurements
of one thing, and are read together as one table along ``batch`` (`table_of`). So a load planned at batch 8 also knows
what smaller batches take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.slo import Runs
from hetplan.profiles.tables import STATISTICS, Table
from hetplan.profiles.workers import Load

__all__ = [
    "at_of",
    "fitting_runs",
    "run_of",
    "runs_on",
    "same_point",
    "same_value",
    "table_of",
    "variants_of",
    "written",
]


def variants_of(profile: Profile, runs: Runs | None) -> list[str]:
    """The variants that an application may run."""
    if runs is None:
        return sorted(profile.variants)
    if runs.variants is not None:
        return list(runs.variants)
    if runs.families is not None:
        return sorted(name for name, variant in profile.variants.items() if variant.family in runs.families)
    if runs.task is not None:
        return sorted(name for name, variant in profile.variants.items() if variant.task == runs.task)
    return []


def runs_on(profile: Profile, variant: str | None, hardware: str) -> tuple[Run, ...]:
    """The runs of a variant on one hardware, in the profile's order; none where the profile knows no such variant."""
    known = profile.variants.get(variant or "")
    return tuple(run for run in known.runs if run.hardware == hardware) if known is not None else ()


def at_of(run: Run) -> dict[str, float]:
    """The `at` by which a load names this run.

    >>> at_of(Run(hardware="gpu", latency="t", at={"batch": 8}))
    {'batch': 8.0}
    """
    return dict(run.at)


def same_point(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two points are the same, as far as the 12 significant digits of a plan can tell.

    >>> same_point({"size": 1 / 3}, {"size": 0.333333333333}), same_point({"size": 1}, {})
    (True, False)
    """
    return one.keys() == other.keys() and all(same_value(one[axis], other[axis]) for axis in one)


def same_value(one: float, other: float) -> bool:
    """Whether two values are the same, as far as the 12 significant digits of a plan can tell."""
    return one == other or _digits(one) == _digits(other)


def _digits(value: float) -> str:
    return format(float(value), ".12g")


def fitting_runs(profile: Profile, load: Load, hardware: str) -> tuple[Run, ...]:
    """The runs that a load can mean: one where it names its run, all of its hardware where it does not."""
    runs = runs_on(profile, load.variant, hardware)
    return runs if load.at is None else tuple(run for run in runs if same_point(run.at, load.at))


def run_of(profile: Profile, load: Load, hardware: str, *, file: str = "plan", path: str = "") -> Run:
    """The run that a load names; InputError where there is none, or where it fits two and names neither."""
    path = path or f"$.workers.loads.{load.id}"
    fitting = fitting_runs(profile, load, hardware)
    if len(fitting) == 1:
        return fitting[0]
    if load.variant not in profile.variants:
        raise InputError.one(
            file=file, path=path, value=load.variant or "no variant",
            why="the profile has no such variant to time", remedy="Use the profile that the plan was made from.",
        )  # fmt: skip
    if fitting:
        raise InputError.one(
            file=file, path=f"{path}.at", value=f"{load.variant} on {hardware}",
            why=f"the load fits {len(fitting)} runs and names none of them: {_listed(fitting)}",
            remedy='Say which one with "at", or make the plan anew with this version.',
        )  # fmt: skip
    known = runs_on(profile, load.variant, hardware)
    why = f"no run of {load.variant} on {hardware}" + (f" at {written(load.at)}" if load.at and known else "")
    remedy = f"There are runs {_listed(known)}." if known else "Use the profile that the plan was made from."
    raise InputError.one(file=file, path=path, value=hardware, why=why, remedy=remedy)


def _listed(runs: Sequence[Run]) -> str:
    return " and ".join(f"at {written(run.at)}" for run in runs)


def written(at: Mapping[str, float]) -> str:
    """A point in words of the file.

    >>> written({"batch": 8.0, "size": 640.0}), written({})
    ('{"batch": 8, "size": 640}', '{}')
    """
    return "{" + ", ".join(f'"{axis}": {value:g}' for axis, value in at.items()) + "}"


def table_of(profile: Profile, variant: str, run: Run) -> Table:
    """The table by which a run is timed (latencies, else rates): its own, or that of the runs it is one of.

    >>> tables = {f"t{b}": {"quantity": "latency_ms", "axes": {"batch": [b]}, "mean": [10 * b]} for b in (1, 4)}
    >>> runs = [{"hardware": "gpu", "latency": f"t{b}", "at": {"batch": b}} for b in (4, 1)]
    >>> profile = Profile.model_validate({"tables": tables, "variants": {"m": {"task": "x", "runs": runs}}})
    >>> table_of(profile, "m", profile.variants["m"].runs[0]).read([{"batch": 2}]).values.tolist()
    [20.0]
    """
    own = _named_table(profile, run)
    if run.at.get("batch") is None or not _is_of_batch(own, run):
        return own
    alike = {run.at["batch"]: own}
    for other in runs_on(profile, variant, run.hardware):
        table = _named_table(profile, other)
        if _differ_by_batch(run, other) and _is_of_batch(table, other) and _one_grid(own, table):
            alike[other.at["batch"]] = table
    return own if len(alike) == 1 else _joined([alike[batch] for batch in sorted(alike)], sorted(alike))


def _named_table(profile: Profile, run: Run) -> Table:
    return profile.tables[run.latency or run.rate or ""]


def _is_of_batch(table: Table, run: Run) -> bool:
    """Whether a table holds the one batch of its run, and no other."""
    return table.axes.get("batch") == (run.at.get("batch"),)


def _differ_by_batch(one: Run, other: Run) -> bool:
    batches = one.at.get("batch"), other.at.get("batch")
    same = {**one.at, "batch": 0.0} == {**other.at, "batch": 0.0} and (one.latency is None) == (other.latency is None)
    return same and None not in batches and batches[0] != batches[1]


def _one_grid(one: Table, other: Table) -> bool:
    return one.outside == other.outside and {**one.axes, "batch": ()} == {**other.axes, "batch": ()}


def _joined(tables: Sequence[Table], batches: Sequence[float]) -> Table:
    """One table along ``batch``, with the statistics that all of them hold."""
    depth = list(tables[0].axes).index("batch")
    held = {name: [getattr(table, name) for table in tables] for name in STATISTICS}
    grids = {name: _stacked(grids, depth) for name, grids in held.items() if None not in grids}
    axes = {**tables[0].axes, "batch": tuple(batches)}
    made = Table.model_validate({"quantity": tables[0].quantity, "outside": tables[0].outside, "axes": axes, **grids})
    names = [table.name for table in tables]
    return made.named("+".join(names), file=tables[0].file) if all(names) else made


def _stacked(grids: Sequence[Any], depth: int) -> tuple[Any, ...]:
    """Grids of one batch each, one after the other along the axis at this depth."""
    if depth == 0:
        return tuple(grid[0] for grid in grids)
    return tuple(_stacked(rows, depth - 1) for rows in zip(*grids, strict=True))
