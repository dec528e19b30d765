"""What samples are samples of: the operators, knobs, metrics and strata of the pipelines that are measured.

A journal carries the digest of it. Targets, links and prices may change, and its samples stay good; samples of other
pipelines are refused wherever measurements are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.canonical import digest
from hetplan.profiles.inputs import Inputs

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline

__all__ = ["features_of", "refuse_foreign_measurements", "sampled_of", "searched_pipelines"]

NOT_SAMPLED = ("share_grid", "evaluator", "quality", "space")
"""What of a pipeline may change without any sample coming out otherwise."""


def searched_pipelines(inputs: Inputs) -> dict[str, Pipeline]:
    """The pipelines whose plans are searched for."""
    named = {app.pipeline for app in inputs.slo.apps.values()}
    return {name: inputs.profile.pipelines[name] for name in sorted(filter(None, named))}


def features_of(inputs: Inputs, strata: int | str | None) -> str | None:
    """The path of a feature file, which is relative to the profile that names it."""
    if not isinstance(strata, str):
        return None
    profile = Path(inputs.files.get("profile", ""))
    return str(profile.parent / strata if profile.is_file() else Path(strata))


def sampled_of(inputs: Inputs) -> dict[str, Any]:
    """All that a sample depends on, per pipeline; a feature file counts by its content."""
    pipelines = {}
    for name, pipeline in searched_pipelines(inputs).items():
        held = pipeline.model_dump(mode="json", by_alias=True, exclude=set(NOT_SAMPLED))
        features = features_of(inputs, pipeline.strata)
        if features is not None and Path(features).is_file():
            held["strata"] = Path(features).read_text(encoding="utf-8-sig", errors="replace")
        pipelines[name] = held
    return pipelines


def refuse_foreign_measurements(inputs: Inputs) -> None:
    """Raise `InputError` where the measurements say that they are of other pipelines than these files have."""
    said = inputs.measured.get("of") if isinstance(inputs.measured, dict) else None
    if said is None or said == digest(sampled_of(inputs)):
        return
    listed = ", ".join(searched_pipelines(inputs)) or "none"
    raise InputError.one(
        file=inputs.files.get("measured", "measured"), path="$.of", value=said,
        why=f"measured for other operators, knobs, metrics or strata than these pipelines have ({listed})",
        remedy="Give the profile (with its feature file) and SLO it was measured for, or measure anew with --evaluate.",
    )  # fmt: skip
