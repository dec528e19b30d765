"""Quality: that at the end of a path through a pipeline, and the wished one held against what answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hetplan.planner.tolerances import VALUE
from hetplan.verifier.plan_index import Facts, quality_of
from hetplan.verifier.report import Violation

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline

__all__ = ["check_quality", "path_quality"]


def path_quality(facts: Facts, pipeline: Pipeline, path: tuple[str, ...], outcomes: Mapping[str | None, str]) -> float:
    """The quality at the end of a path of loads with these outcomes: measured, else by the pipeline's rule, or NaN."""
    loads = [facts.seats[name].load for name in path]
    values = [quality_of(facts, load) for load in loads]
    rule = pipeline.quality
    said = [f":{outcomes[load.node]}" if outcomes.get(load.node) else "" for load in loads]
    key = "/".join(f"{load.node}={load.variant}{mark}" for load, mark in zip(loads, said, strict=True))
    if key in rule.paths:
        return rule.paths[key]
    if rule.rule == "table":
        return math.nan
    if rule.rule == "additive":
        weights = [rule.weights.get(load.node or "", 1.0) for load in loads]
        return sum(weight * value for weight, value in zip(weights, values, strict=True))
    return math.prod(values)


def check_quality(facts: Facts, name: str, loads: Iterable[str], mean: float) -> list[Violation]:
    """The wished floor (or ceiling): of the mean over a pipeline's paths, else of every load that answers."""
    app = facts.inputs.slo.apps[name]
    assert app.quality is not None
    values = {f"routing.{name}": mean}
    if app.pipeline is None:
        values = {facts.seats[load].at: quality_of(facts, facts.seats[load].load) for load in loads}
    least = -math.inf if app.quality.min is None else app.quality.min
    most = math.inf if app.quality.max is None else app.quality.max
    found: list[Violation] = []
    for at, value in values.items():
        # Written so that an unknown quality (NaN) is not within any limit.
        if not least - VALUE <= value <= most + VALUE:
            found.append(Violation("quality", at, f"quality {value:.6g} is not within {least:g} .. {most:g}"))
    return found
