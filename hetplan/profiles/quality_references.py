"""Qualities against their metrics: what is measured, and what is wished; families that applications name; points."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.json_path import closest
from hetplan.profiles.places import Steps
from hetplan.profiles.profile import Metric, Run
from hetplan.profiles.slo import App

__all__ = ["check_families", "check_point", "check_wished", "in_range"]


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
    variants = found.profile.variants
    tasks = {variants[name].task for name in app.named_models or () if name in variants}
    tasks |= {variant.task for variant in variants.values() if variant.family in (app.families or ())}
    tasks |= {app.task} if app.task is not None else set()
    pipeline = found.profile.pipelines.get(app.pipeline or "")
    if pipeline is not None:
        if pipeline.metric is None:
            from hetplan.profiles.pipeline_references import combined

            return combined(found.profile, pipeline)
        return [found.profile.metrics[pipeline.metric]] if pipeline.metric in found.profile.metrics else []
    # Models of several tasks have one range of quality together only if each task's metric has it.
    known = [metric for metric in map(found.profile.metric_of, sorted(tasks)) if metric is not None]
    return known[:1] if all(metric == known[0] for metric in known) else []


def check_families(found: Dangling, named: Sequence[str], at: Steps) -> None:
    """Each is the family of some variant."""
    known, variants = found.known["variants"], found.profile.variants
    families = frozenset(variant.family for variant in variants.values() if variant.family is not None)
    for number, family in enumerate(named):
        if not known:
            found.must_know("variants", family, *at, number)
        elif family not in families and known <= variants.keys():
            near = closest(family, families)
            remedy = f"{near}Or give models that family." if near else "Give models that family."
            found.fault((*at, number), family, f"no model is of family {family!r}", remedy)


def check_point(found: Dangling, run: Run, at: Steps) -> None:
    """The table point of a run lies on axes that its table has, and allows what the run is said to serve."""
    table = found.profile.tables.get(run.latency or run.rate or "")
    if table is None:
        return
    for axis, value in run.at.items():
        if axis not in table.axes:
            listed = ", ".join(table.axes) or "none"
            remedy = f"{closest(axis, table.axes)}Its axes are: {listed}."
            found.fault((*at, "at", axis), value, f"no axis {axis!r} was measured", remedy)
        elif table.outside == "refuse" and not table.axes[axis][0] <= value <= table.axes[axis][-1]:
            why = f"a point of what was measured: {table.axes[axis][0]:g} to {table.axes[axis][-1]:g}"
            found.fault((*at, "at", axis), value, why, 'Measure it, or write "outside": "linear".')
    if run.saturation_qps is not None:
        from hetplan.profiles.saturation import check_saturation

        check_saturation(found, run, at)
