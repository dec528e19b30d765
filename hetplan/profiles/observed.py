"""Sizes of queries that were observed, counted into the bins of their mix."""

from __future__ import annotations

from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.inputs import FileOf
from hetplan.profiles.mix import AboveLargestBin, count_into_bins
from hetplan.profiles.slo import Slo

__all__ = ["count_sizes"]


def count_sizes(slo: Slo, file_of: FileOf) -> tuple[Slo, list[Fault]]:
    """The SLO with every mix of observed sizes counted into its bins."""
    faults: list[Fault] = []
    changed: dict[str, Any] = {}
    for name, app in slo.apps.items():
        mix = app.demand.mix
        if mix is None or mix.observed is None:
            continue
        try:
            counted = count_into_bins(mix)
        except AboveLargestBin as error:
            faults.append(
                Fault(
                    file=file_of(("apps", name)),
                    path=f"$.apps.{name}.demand.mix.observed[{error.number}]",
                    value=str(list(error.size)),
                    why="a size that some bin can hold: at most the largest, in every axis",
                    remedy="Add a larger bin (and measure it), or drop the size.",
                )
            )
            continue
        if "output_tokens" in mix.axes:
            continue  # what was seen is drawn from, and classes take the means of it
        changed[name] = app.model_copy(update={"demand": app.demand.model_copy(update={"mix": counted})})
    return (slo.model_copy(update={"apps": {**slo.apps, **changed}}) if changed else slo), faults
