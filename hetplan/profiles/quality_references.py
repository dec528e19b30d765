"""Qualities against their metrics: what is measured of variants, and what is wished of applications."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.inputs import Steps
from hetplan.profiles.profile import Metric
from hetplan.profiles.slo import App

__all__ = ["check_wished", "in_range"]


def in_range(found: Dangling, value: float | None, metric: Metric | None, *steps: str | int) -> None:
    """A quality is within the range of its metric."""
    if value is None or metric is None or metric.range[0] <= value <= metric.range[1]:
        return
    low, high = metric.range
    remedy = f"Write a quality between {low:g} and {high:g}, or mend the metric's range."
    if low <= value / 100 <= high:
        remedy = f"Percent? Write {value / 100:.12g}, or widen the metric's range."
    found.fault(steps, value, f"a quality in its metric's range, {low:g} to {high:g}", remedy)


def check_wished(found: Dangling, app: App, at: Steps) -> None:
    """The wished quality of an application is within the range of the metric of its answers."""
    assert app.quality is not None
    for metric in _metrics_of(found, app):
        in_range(found, app.quality.min, metric, *at, "quality", "min")
        in_range(found, app.quality.max, metric, *at, "quality", "max")


def _metrics_of(found: Dangling, app: App) -> Sequence[Metric]:
    """The metric of an app's answers, where it has one (a pipeline may combine several)."""
    assert app.runs is not None
    names: set[str | None] = set()
    variants = found.profile.variants
    tasks = {variants[name].task for name in app.runs.variants or () if name in variants}
    tasks |= {variant.task for variant in variants.values() if variant.family in (app.runs.families or ())}
    tasks |= {app.runs.task} if app.runs.task is not None else set()
    names |= {found.profile.tasks[task].metric for task in tasks if task in found.profile.tasks}
    pipeline = found.profile.pipelines.get(app.runs.pipeline or "")
    if pipeline is not None:
        if pipeline.metric is None:
            from hetplan.profiles.pipeline_references import combined

            return combined(found.profile, pipeline)
        names.add(pipeline.metric)
    known = [found.profile.metrics[name] for name in names if name is not None and name in found.profile.metrics]
    return known if len(known) == 1 else []
