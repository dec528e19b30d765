"""How good the answers are: of a variant, of a path through a pipeline, of an application on the mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.profile import Pipeline
from hetplan.profiles.workers import Load
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation

__all__ = ["check_quality", "path_quality"]


def _quality(facts: Facts, load: Load) -> float:
    quality = facts.inputs.profile.variants[load.variant].quality if load.variant is not None else None
    return quality.value if quality is not None else math.nan


def path_quality(
    facts: Facts, pipeline: Pipeline | None, path: tuple[str, ...], outcomes: Mapping[str | None, str]
) -> float:
    """The quality at the end of a path of loads with these outcomes: measured, else by the pipeline's rule, or NaN."""
    loads = [facts.seats[name].load for name in path]
    values = [_quality(facts, load) for load in loads]
    if pipeline is None:
        return values[0]
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
    if app.quality is None:
        return []
    values = {f"routing.{name}": mean}
    if app.runs is None or app.runs.pipeline is None:
        values = {facts.seats[load].at: path_quality(facts, None, (load,), {}) for load in loads}
    least = -math.inf if app.quality.min is None else app.quality.min
    most = math.inf if app.quality.max is None else app.quality.max
    found: list[Violation] = []
    for at, value in values.items():
        # Written so that an unknown quality (NaN) is not within any limit.
        if not least - VALUE <= value <= most + VALUE:
            found.append(Violation("quality", at, f"quality {value:.6g} is not within {least:g} .. {most:g}"))
    return found
