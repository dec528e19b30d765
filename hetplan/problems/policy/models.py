"""The models that a worker may run: accuracies, and latencies for every batch, repaired where the profile has holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.problems.faults import Faults
from hetplan.problems.wishes import variants_of
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.problems.policy.options import PolicyOptions
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.profile import Run, Variant
    from hetplan.profiles.slo import App
    from hetplan.profiles.tables import Table

__all__ = ["Models", "capacity_qps", "pareto", "read_models", "repair"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Models:
    """What one kind of worker runs, fastest first: `latency_s[m, b - 1]` for b = 1..N + 1."""

    hardware: str
    names: tuple[str, ...]
    tables: tuple[str, ...]
    latency_s: Floats
    accuracy: Floats
    spread: Floats
    """Standard deviation of the logarithm of the latency, where the tables have one (else 0)."""
    notices: tuple[Notice, ...] = ()

    def only(self, kept: Sequence[int]) -> Models:
        """Some of the models."""
        places = list(kept)
        return replace(
            self,
            names=tuple(self.names[i] for i in places),
            tables=tuple(self.tables[i] for i in places),
            latency_s=self.latency_s[places],
            accuracy=self.accuracy[places],
            spread=self.spread[places],
        )

    @property
    def fastest_s(self) -> float:
        """The least latency of a single query: no SLO below it can be kept."""
        return float(self.latency_s[0, 0])


def capacity_qps(models: Models, model: int, limit_s: float) -> float:
    """The most queries per second that one worker serves with a model in batches that take no longer than this."""
    latency = models.latency_s[model, :-1]
    fits = latency <= limit_s
    return float((np.arange(1, latency.size + 1)[fits] / latency[fits]).max(initial=0.0))


def pareto(latency_1: Floats, accuracy: Floats) -> list[int]:
    """Models that none beats: drop m where another is as accurate and as fast, and better in one of them.

    >>> pareto(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.9, 0.8]))
    [0, 1]
    """
    kept = []
    for m in range(accuracy.size):
        as_good = (accuracy >= accuracy[m]) & (latency_1 <= latency_1[m])
        better = as_good & ((accuracy > accuracy[m]) | (latency_1 < latency_1[m]))
        if not better.any():
            kept.append(m)
    return kept


def repair(batches: Floats, measured: Floats, *, queue_max: int, monotone: str) -> tuple[Floats, list[str]]:
    """Latencies for b = 1..N + 1 from those measured at some batches, and what was done to them.

    Missing batches lie on the regression line of the measured ones; latencies are made to grow with the batch; what
    lies beyond N continues the regression of 1..N and is never below N's.

    >>> repair(np.array([1.0, 2.0, 4.0]), np.array([10.0, 12.0, 16.0]), queue_max=4, monotone="safe")
    (array([10., 12., 14., 16., 18.]), ['batch 3 filled by regression'])
    """
    sizes = np.arange(1, queue_max + 1, dtype=float)
    told: list[str] = []
    known = {int(b): float(t) for b, t in zip(batches, measured, strict=True) if b <= queue_max}
    values = np.array([known.get(int(b), np.nan) for b in sizes])
    missing = np.isnan(values)
    if missing.any():
        slope, level = np.polyfit(batches, measured, 1)
        line = np.maximum(slope * sizes + level, float(np.min(measured)) * 0.5)
        values = np.where(missing, line, values)
        inner = sizes[missing & (sizes < batches.max())]
        if inner.size:
            told.append(f"batch {_ranges(inner)} filled by regression")
    falls = np.diff(values) < 0
    if falls.any():
        first = int(np.argmax(falls)) + 2
        if monotone == "error":
            raise ValueError(f"[{first - 1}]: batch {first} takes less time than batch {first - 1}")
        if monotone == "safe":
            values = np.maximum.accumulate(values)
        else:
            values = np.minimum.accumulate(values[::-1])[::-1]
        told.append(f"latencies falling with the batch ({int(falls.sum())} places) made to grow, {monotone}")
    beyond = float(values[-1])
    if queue_max > 1:
        slope, level = np.polyfit(sizes, values, 1)
        beyond = max(beyond, float(slope * (queue_max + 1) + level))
    elif int(queue_max + 1) in {int(b) for b in batches}:
        beyond = max(beyond, float(measured[[int(b) for b in batches].index(queue_max + 1)]))
    else:
        beyond = 2 * beyond
    return np.append(values, beyond), told


def read_models(
    inputs: Inputs, app_id: str, app: App, hardware: str, options: PolicyOptions, faults: Faults
) -> Models | None:
    """The models that an application may run on some hardware; None where a fault was found."""
    before = len(faults.found)
    rows: list[tuple[str, str, float, Floats, Floats]] = []
    notices: list[Notice] = []
    for name in variants_of(inputs.profile, app.runs):
        variant = inputs.profile.variants.get(name)
        runs = [run for run in variant.runs if run.hardware == hardware] if variant is not None else []
        if variant is None or not runs:
            continue
        try:
            rows.append(_read_one(inputs, name, variant, runs[0], options, faults, notices))
        except InputError as error:
            faults.also(error)
    if len(faults.found) > before:
        return None
    if not rows:
        faults.in_slo(
            f"$.apps.{app_id}.runs",
            f"no variant that it may run has a run on {hardware}",
            "Profile one, or name others.",
        )
        return None
    rows.sort(key=lambda row: (row[3][0], -row[2], row[0]))
    latency = np.stack([row[3] for row in rows])
    models = Models(
        hardware,
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        latency,
        np.array([row[2] for row in rows]),
        np.stack([row[4] for row in rows]),
        tuple(notices),
    )
    return models.only(pareto(latency[:, 0], models.accuracy)) if options.pareto else models


def _read_one(
    inputs: Inputs, name: str, variant: Variant, run: Run, options: PolicyOptions, faults: Faults, notices: list[Notice]
) -> tuple[str, str, float, Floats, Floats]:
    profile = inputs.profile
    place = f"$.variants.{name}"
    accuracy = variant.quality.value if variant.quality is not None else None
    if accuracy is None or not 0 <= accuracy <= 1:
        hint = "is this a percentage? Write a fraction." if accuracy is not None and 1 < accuracy <= 100 else ""
        faults.in_profile(
            f"{place}.quality", "a policy weighs models by accuracy, a fraction", hint or "Add it.", value=accuracy
        )
    table = profile.tables.get(run.latency or "")
    if run.latency is None or table is None:
        faults.in_profile(f"{place}.runs", "a policy needs a latency table", "Give the run a table of latency_ms.")
        return name, "", 0.0, np.ones(1), np.zeros(1)
    batches, cells, std = _cells(table, run, options, f"$.tables.{run.latency}", faults)
    if batches.size == 0:
        return name, run.latency, 0.0, np.ones(1), np.zeros(1)
    if batches.size < 2 and options.queue_max > 1:
        faults.in_profile(
            f"$.tables.{run.latency}",
            "one batch size says nothing of the others",
            "Measure at least two, or set queue_max=1.",
        )
        return name, run.latency, 0.0, np.ones(1), np.zeros(1)
    try:
        latency_ms, told = repair(batches, cells, queue_max=options.queue_max, monotone=options.monotone)
    except ValueError as error:
        faults.in_profile(
            f"$.tables.{run.latency}.{options.percentile}{error}",
            "latencies grow with the batch",
            "Measure again, or set monotone=safe.",
        )
        return name, run.latency, 0.0, np.ones(1), np.zeros(1)
    at = f"tables.{run.latency}"
    notices.extend(Notice(code="W-table-repaired", at=at, text=text) for text in told)
    if options.queue_max > batches.max():
        text = f"batches above {batches.max():g}, the largest measured, are extrapolated"
        notices.append(Notice(code="W-extrapolated", at=at, text=text))
    sizes = np.arange(1, options.queue_max + 2, dtype=float)
    spread = np.interp(sizes, batches, std / cells) if std is not None else np.zeros(sizes.size)
    return name, run.latency, float(accuracy or 0.0), latency_ms / 1000.0, np.sqrt(np.log1p(spread**2))


def _cells(
    table: Table, run: Run, options: PolicyOptions, place: str, faults: Faults
) -> tuple[Floats, Floats, Floats | None]:
    """Batches and latencies (ms) that were measured at the run's settings; and their spread where it was."""
    grid: Any = getattr(table, options.percentile)
    if grid is None:
        planned = [name for name in table.statistics if name not in ("std", "min")]
        faults.in_profile(
            f"{place}.{options.percentile}",
            f"policies are made from {options.percentile}, which the table lacks",
            f"Measure it, or set percentile to one that is there: {', '.join(planned)}.",
        )
        return np.zeros(0), np.zeros(0), None
    std: Any = table.std
    for axis, points in table.axes.items():
        if axis == "batch":
            continue
        if run.at.get(axis) not in points:
            faults.in_profile(
                f"{place}.axes.{axis}", "a policy's tables are by batch alone", f'Fix {axis} in the run\'s "at".'
            )
            return np.zeros(0), np.zeros(0), None
    for axis in reversed(list(table.axes)):
        if axis != "batch":
            depth, index = list(table.axes).index(axis), table.axes[axis].index(run.at[axis])
            grid, std = _take(grid, depth, index), None if std is None else _take(std, depth, index)
    batches = np.array(table.axes.get("batch", (1.0,)), dtype=float)
    cells = np.array(
        [np.nan if cell is None else cell for cell in (grid if isinstance(grid, tuple) else (grid,))], float
    )
    spread = None
    if std is not None:
        spread = np.array(
            [0.0 if cell is None else cell for cell in (std if isinstance(std, tuple) else (std,))], float
        )
    held = np.isfinite(cells)
    if not held.any():
        faults.in_profile(place, "nothing was measured", "Measure at least two batch sizes.")
    return batches[held], cells[held], None if spread is None else spread[held]


def _take(grid: Any, depth: int, index: int) -> Any:
    if grid is None:
        return None
    return grid[index] if depth == 0 else tuple(_take(row, depth - 1, index) for row in grid)


def _ranges(sizes: Floats) -> str:
    """Batches in words: "3, 5-8"."""
    parts: list[list[int]] = []
    for size in sizes.astype(int):
        if parts and size == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], int(size)]
        else:
            parts.append([int(size)])
    return ", ".join("-".join(str(end) for end in part) for part in parts)
