"""How long the loads of a plan take: read from the profile's tables, for every class of query and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Run
from hetplan.profiles.slo import Mix
from hetplan.profiles.tables import Statistic, Table
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.simulator.system import Noise, Service

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["NOISES", "NoiseName", "kinds_of", "noise_of", "run_of", "service_of", "slowdown_of"]

NoiseName = Literal["table", "mean", "lognormal", "exponential", "p50", "p90", "p95", "p99", "max"]
NOISES: tuple[NoiseName, ...] = ("table", "mean", "lognormal", "exponential", "p50", "p90", "p95", "p99", "max")
"""What service times are drawn as. `table`: lognormal where the table has a standard deviation, else its mean, else
the lowest percentile that it has; a percentile: always exactly that."""

_PERCENTILES: tuple[Statistic, ...] = ("mean", "p50", "p90", "p95", "p99", "max")


def noise_of(name: NoiseName) -> Noise:
    """The engine's law for a name."""
    return {"table": Noise.LOGNORMAL, "lognormal": Noise.LOGNORMAL, "exponential": Noise.EXPONENTIAL}.get(
        name, Noise.MEAN
    )


def kinds_of(mix: Mix | None) -> list[dict[str, float]]:
    """The classes of query: a table point per bin of the mix; one empty point without a mix."""
    if mix is None:
        return [{}]
    return [dict(zip(mix.axes, (float(value) for value in bin_), strict=True)) for bin_ in mix.bins]


def run_of(inputs: Inputs, load: PlannedLoad, hardware: str, *, at: str) -> Run:
    """The run by which the profile says how a planned load behaves."""
    file = inputs.files.get("profile", "profile.json")
    variant = inputs.profile.variants.get(load.variant or "")
    if variant is None:
        raise InputError.one(
            file="plan",
            path=at,
            value=load.variant or "no variant",
            why="the profile has no such variant to time",
            remedy="Simulate with the profile that the plan was made from.",
        )
    for run in variant.runs:
        if run.hardware == hardware:
            return run
    raise InputError.one(
        file=file,
        path=f"$.variants.{load.variant}.runs",
        value=hardware,
        why="no run on the hardware of the plan",
        remedy="Simulate with the profile that the plan was made from.",
    )


def service_of(
    inputs: Inputs, load: PlannedLoad, run: Run, mix: Mix | None, *, noise: NoiseName, believed: Table | None = None,
    extended: bool = False,
) -> Service:  # fmt: skip
    """The load's service law. A `rate` table is read as the time for which one request occupies the server.

    `extended` reads a table beyond its last batch along a straight line, as the plan that serves such batches does.
    """
    import numpy as np

    name = run.latency or run.rate or ""
    table = inputs.profile.tables[name]
    kinds, most = kinds_of(mix), load.serve.max_batch
    points = [_point(table, inputs, load, run, kind, size) for kind in kinds for size in range(1, most + 1)]
    statistic: Statistic = "mean" if noise in ("table", "mean", "lognormal", "exponential") else cast(Statistic, noise)
    if noise == "table" and getattr(table, "mean", None) is None:
        statistic = next(known for known in _PERCENTILES if getattr(table, known) is not None)

    def values(source: Table, asked: Statistic) -> NDArray[np.float64]:
        found = _beyond(source, points, asked) if extended else source.read(points, asked).values
        read = np.asarray(found, dtype=np.float64).reshape(len(kinds), most)
        return 1000.0 / read if source.quantity == "requests_per_s" else read

    if noise == "lognormal" and table.std is None:
        raise InputError.one(
            file=inputs.files.get("profile", "profile.json"),
            path=f"$.tables.{name}.std",
            why="lognormal noise needs std",
            remedy="Add it, or simulate with noise mean.",
        )
    spread = noise in ("table", "lognormal") and table.std is not None and table.quantity == "latency_ms"
    mean = values(table, statistic)
    believes: Statistic = statistic
    if believed is not None and getattr(believed, statistic) is None:
        known: list[Statistic] = [name for name in _PERCENTILES if getattr(believed, name) is not None]
        believes = known[0] if known else "mean"
    return Service(
        mean_ms=mean,
        std_ms=values(table, "std") if spread else None,
        most_ms=values(table, "max") if spread and table.max is not None else None,
        predicted_ms=values(believed, believes) if believed is not None else None,
    )


def _beyond(table: Table, points: Sequence[Mapping[str, float]], asked: Statistic) -> NDArray[np.float64]:
    """Along a straight line beyond the table; the last value stays where a falling line would reach 0."""
    if table.outside != "refuse":
        return table.read(points, asked).values
    try:
        return table.model_copy(update={"outside": "linear"}).read(points, asked).values
    except InputError:
        return table.model_copy(update={"outside": "clamp"}).read(points, asked).values


def slowdown_of(inputs: Inputs, run: Run) -> tuple[float, ...]:
    """By how much a load is slower beside 0, 1, 2, ... other busy servers of its worker; () where nothing is known."""
    if run.slowdown is None:
        return ()
    table = inputs.profile.tables[run.slowdown]
    axis = table.axes.get("co_load")
    if axis is None:
        return ()
    points = [{**run.at, "co_load": float(beside)} for beside in range(int(max(axis)) + 1)]
    points = [{name: point[name] for name in table.axes} for point in points]
    return tuple(float(value) for value in table.read(points).values)


def _point(
    table: Table, inputs: Inputs, load: PlannedLoad, run: Run, kind: Mapping[str, float], size: int
) -> dict[str, float]:
    """The table point of a batch: the query's own sizes, the batch, and what the run or the load fixes."""
    variant = inputs.profile.variants.get(load.variant or "")
    fixed = {**(variant.knobs if variant else {}), **load.knobs, **run.at}
    point: dict[str, float] = {}
    for axis in table.axes:
        if axis == "batch":
            # A query that carries a batch of its own makes the batch larger still.
            # One below the smallest that was measured takes as long as that.
            point[axis] = max(float(kind.get("batch", 1.0) * size), float(table.axes[axis][0]))
        elif axis in kind:
            point[axis] = float(kind[axis])
        elif isinstance(fixed.get(axis), int | float):
            point[axis] = float(fixed[axis])
        else:
            raise InputError.one(
                file=inputs.files.get("slo", "slo.json"),
                path="$.apps",
                value=axis,
                why="a latency table has this axis, and nothing says where on it queries are",
                remedy='Add it to the application\'s "mix", or to the run\'s "at".',
            )
    return point
