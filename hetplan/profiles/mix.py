"""Counting observed query sizes into the bins of a mix, and an SLO with what was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.places import FileOf
from hetplan.profiles.slo import Mix, Slo

__all__ = ["AboveLargestBin", "count_into_bins", "count_sizes"]


Size = tuple[float, ...]


class AboveLargestBin(ValueError):
    """A size that no bin can hold; `number` is its place among those observed."""

    def __init__(self, number: int, size: Size) -> None:
        self.number, self.size = number, size
        super().__init__(f"size {list(size)} is above the largest bin")


def count_into_bins(mix: Mix) -> Mix:
    """The mix with `share` in place of `observed`: each size goes to the next bin that is no smaller in any axis.

    Of several such bins (which need not form a full grid) the one fewest steps up counts, each axis' own bin values
    being its steps; of equal ones the one listed first.

    >>> mix = Mix(axes=("batch",), bins=((1,), (8,)), observed=((1,), (2,), (8,), (3,)))
    >>> count_into_bins(mix).share
    (0.25, 0.75)
    """
    if mix.observed is None:
        return mix
    ranks = [
        {value: rank for rank, value in enumerate(sorted({size[axis] for size in mix.bins}))}
        for axis in range(len(mix.axes))
    ]
    steps = [sum(ranks[axis][value] for axis, value in enumerate(size)) for size in mix.bins]
    by_steps = sorted(range(len(mix.bins)), key=lambda number: (steps[number], number))
    counted = [0] * len(mix.bins)
    for size, times in Counter(mix.observed).items():
        place = _bin_of(size, mix.bins, by_steps)
        if place is None:
            raise AboveLargestBin(mix.observed.index(size), size)
        counted[place] += times
    total = len(mix.observed)
    return mix.model_copy(update={"share": tuple(count / total for count in counted), "observed": None})


def _bin_of(size: Size, bins: Sequence[Size], by_steps: Sequence[int]) -> int | None:
    for number in by_steps:
        if all(have <= room for have, room in zip(size, bins[number], strict=True)):
            return number
    return None


def count_sizes(slo: Slo, file_of: FileOf) -> tuple[Slo, list[Fault]]:
    """The SLO with every mix of observed sizes counted into its bins."""
    faults: list[Fault] = []
    changed: dict[str, Any] = {}
    for name, app in slo.apps.items():
        mix = app.mix
        if mix is None or mix.observed is None:
            continue
        try:
            counted = count_into_bins(mix)
        except AboveLargestBin as error:
            faults.append(
                Fault(
                    file=file_of(("apps", name)),
                    path=f"$.apps.{name}.mix.observed[{error.number}]",
                    value=str(list(error.size)),
                    why="a size that some bin can hold: at most the largest, in every axis",
                    remedy="Add a larger bin (and measure it), or drop the size.",
                )
            )
            continue
        if "output_tokens" in mix.axes:
            continue  # what was seen is drawn from, and classes take the means of it
        changed[name] = app.model_copy(update={"mix": counted})
    return (slo.model_copy(update={"apps": {**slo.apps, **changed}}) if changed else slo), faults
