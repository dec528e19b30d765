"""What a load of a plan uses: the run that it names, that run's table and law, and what its worker costs.

A variant may have runs on one hardware that differ by `at.batch` alone, each with a table of that one batch. They are
measurements of one thing, and are read together as one table along ``batch`` (`table_of`). So a load planned at
batch 8 also knows what smaller batches take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import Table
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.law import Law, same_value
from hetplan.serving.runs import machine_price, runs_on
from hetplan.serving.table_points import settings_of
from hetplan.serving.times import law_of_table

__all__ = [
    "fitting_runs",
    "law_of_load",
    "law_of_run",
    "offer_of",
    "point_text",
    "run_of",
    "same_point",
    "slowdown_of",
    "table_of",
    "worker_price",
]


def same_point(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two points are the same, as far as the 12 significant digits of a plan can tell.

    >>> same_point({"size": 1 / 3}, {"size": 0.333333333333}), same_point({"size": 1}, {})
    (True, False)
    """
    return one.keys() == other.keys() and all(same_value(one[axis], other[axis]) for axis in one)


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
            why=f"the load fits {len(fitting)} runs and names none of them: {_list_points(fitting)}",
            remedy='Say which one with "at", or make the plan again with this version.',
        )  # fmt: skip
    known = runs_on(profile, load.variant, hardware)
    why = f"no run of {load.variant} on {hardware}" + (f" at {point_text(load.at)}" if load.at and known else "")
    remedy = f"There are runs {_list_points(known)}." if known else "Use the profile that the plan was made from."
    raise InputError.one(file=file, path=path, value=hardware, why=why, remedy=remedy)


def _list_points(runs: Sequence[Run]) -> str:
    return " and ".join(f"at {point_text(run.at)}" for run in runs)


def point_text(at: Mapping[str, float]) -> str:
    """A point in words of the file.

    >>> point_text({"batch": 8.0, "size": 640.0}), point_text({})
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
    name = run.latency or run.rate
    if name is None:
        raise InputError.one(
            file="profile", path="$.variants", value=f"a run on {run.hardware}", why="a table of latencies or rates",
            remedy="Measure the run, or plan it by question llm where it has an engine.",
        )  # fmt: skip
    return profile.tables[name]


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
    grids = {name: _stack_grids(grids, depth) for name, grids in held.items() if None not in grids}
    axes = {**tables[0].axes, "batch": tuple(batches)}
    made = Table.model_validate({"quantity": tables[0].quantity, "outside": tables[0].outside, "axes": axes, **grids})
    names = [table.name for table in tables]
    return made.named("+".join(names), file=tables[0].file) if all(names) else made


def _stack_grids(grids: Sequence[Any], depth: int) -> tuple[Any, ...]:
    """Grids of one batch each, one after the other along the axis at this depth."""
    if depth == 0:
        return tuple(grid[0] for grid in grids)
    return tuple(_stack_grids(rows, depth - 1) for rows in zip(*grids, strict=True))


def offer_of(profile: Profile, worker: Worker) -> str | None:
    """The offer that a worker is under: its own, else that of its host."""
    host = profile.hosts.get(worker.host) if worker.host is not None else None
    return worker.offer if worker.offer is not None else host.offer if host is not None else None


def worker_price(inputs: Inputs, worker: Worker) -> int | None:
    """What one machine of a group costs per hour; None where neither its runs nor an offer says."""
    profile = inputs.profile
    own = [
        load.instances * run.price_per_hour
        for load in worker.loads
        for run in _one(profile, load, worker.hardware)
        if run.price_per_hour is not None
    ]
    if own:
        return sum(own)
    name = offer_of(profile, worker)
    if name is None:
        return None if profile.offers else NANO
    offer = profile.offers[name]
    hardware = profile.hardware[worker.hardware]
    taken = _slices(inputs, worker, offer.per) if offer.per is not None else None
    if taken is None:
        known = offer.per is None or offer.per in hardware.provides
        return machine_price(offer, hardware) if known else None
    return int((offer.price_per_hour * taken).to_integral_value(ROUND_HALF_EVEN))


def _one(profile: Profile, load: Load, hardware: str) -> tuple[Run, ...]:
    runs = fitting_runs(profile, load, hardware)
    return runs if len(runs) == 1 else ()


def _slices(inputs: Inputs, worker: Worker, resource: str) -> Decimal | None:
    """How much of a resource the loads take where each has a slice of it, else None: the machine is paid whole."""
    taken = Decimal(0)
    for load in worker.loads:
        part = getattr(load.share, resource, None)
        if part is None and not (resource == "gpu" and _on_processor(inputs, load)):
            return None
        taken += load.instances * Decimal(repr(float(part or 0.0)))
    return taken if worker.loads else None


def _on_processor(inputs: Inputs, load: Load) -> bool:
    """Whether a load is an operator that takes nothing of a GPU."""
    pipeline = pipeline_of(inputs.profile, inputs.slo.apps.get(load.app or ""))
    node = pipeline.nodes.get(load.node or "") if pipeline is not None and load.variant is None else None
    return node is not None and load.share is None and node.device == "cpu" and not node.needs.get("gpu", 0.0)


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


def slowdown_of(
    profile: Profile, variant: str, run: Run, batch: int, *, knobs: Mapping[str, Any] | None = None
) -> tuple[float, ...]:
    """By how much an instance is slower beside 0, 1, 2, ... other busy ones; () where nothing is known.

    The other axes of the table are read where the load is (`reading`, order of precedence).
    """
    table = profile.tables.get(run.slowdown or "")
    axis = table.axes.get("co_load") if table is not None else None
    if table is None or axis is None:
        return ()
    settings = settings_of(knobs=knobs or {}, at=run.at, variant_knobs=profile.variants[variant].knobs)
    settings.setdefault("batch", float(batch))
    points = [{**settings, "co_load": float(beside)} for beside in range(int(max(axis)) + 1)]
    return tuple(float(value) for value in table.read(points).values)
