"""How long the loads of a plan take: the service law, for every class of query and every batch size, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hetplan.profiles.operating_points import Limit
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.serving.law import Law, OffTable
from hetplan.serving.loads import table_of
from hetplan.serving.system import Noise, Service
from hetplan.serving.table_points import answering_statistic, settings_of
from hetplan.serving.times import law_of_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["NOISES", "NoiseName", "noise_of", "service_of"]

NoiseName = Literal["table", "mean", "lognormal", "exponential", "p50", "p90", "p95", "p99", "max"]
NOISES: tuple[NoiseName, ...] = ("table", "mean", "lognormal", "exponential", "p50", "p90", "p95", "p99", "max")
"""What service times are drawn as. `table`: of the distribution that the table states (`serving.distribution`), which
is the lognormal where it has a mean and a standard deviation alone; where it says nothing of how times vary, always
the mean (or what answers for it, `reading.answering`). A percentile: always exactly that."""


def noise_of(name: NoiseName) -> Noise:
    """The engine's law for a name."""
    return {"table": Noise.LOGNORMAL, "lognormal": Noise.LOGNORMAL, "exponential": Noise.EXPONENTIAL}.get(
        name, Noise.MEAN
    )


def service_of(
    profile: Profile,
    load: PlannedLoad,
    run: Run,
    points: Sequence[dict[str, float]],
    *,
    noise: NoiseName = "table",
    believed: Table | None = None,
    extended: bool = False,
    limits: Sequence[Limit] = (),
) -> Service:
    """The load's service law at these classes of query, for batches of 1 up to its batch limit.

    `believed` is the table that the plan's dispatcher predicts by. `extended` reads a table beyond its last batch along
    a straight line, as the plan that serves such batches does. By `limits` a table of runs is read.
    """
    variant = profile.variants[load.variant or ""]
    settings = settings_of(knobs=load.knobs, at=run.at, variant_knobs=variant.knobs)
    table = table_of(profile, load.variant or "", run).under(limits)
    law = law_of_table(table, at=settings, extend=extended)
    wanted = "mean" if noise in ("table", "mean", "lognormal", "exponential") else noise
    statistic = answering_statistic(law.statistics, wanted) if noise == "table" else wanted
    if noise == "lognormal" and "std" not in law.data:
        raise table.fault("lognormal noise needs std", "Add it, or simulate with noise mean.")
    stated = noise == "table" and law.has_percentiles
    spread = noise == "lognormal" or (noise == "table" and law.has_spread and not stated)

    def values(source: Table, law: Law, asked: str) -> NDArray[np.float64]:
        import numpy as np

        try:
            rows = [[law.ms(point, size, asked) for size in range(1, load.serve.max_batch + 1)] for point in points]
        except OffTable as error:
            raise source.fault(error.why, error.remedy) from None
        return np.array(rows, dtype=np.float64)

    predicted = None
    if believed is not None:
        law_believed = law_of_table(believed, at=settings, extend=extended)
        predicted = values(believed, law_believed, answering_statistic(law_believed.statistics, statistic))
    return Service(
        mean_ms=values(table, law, statistic),
        std_ms=values(table, law, "std")
        if noise == "lognormal"
        else _deviations(law, points, load.serve.max_batch)
        if spread
        else None,
        most_ms=values(table, law, "max") if spread and table.max is not None else None,
        pieces=_pieces(law, points, load.serve.max_batch) if stated else None,
        predicted_ms=predicted,
    )


def _deviations(law: Law, points: Sequence[dict[str, float]], most: int) -> NDArray[np.float64]:
    """The deviation of each cell: as of a percentile, one that was not measured is none."""
    import numpy as np

    return np.array([[law.stated(at, size).get("std", 0.0) for size in range(1, most + 1)] for at in points])


def _pieces(law: Law, points: Sequence[dict[str, float]], most: int) -> NDArray[np.float64]:
    """The pieces of each cell's distribution; nan where its time does not vary."""
    import numpy as np

    cells = [[law.distribution(point, size) for size in range(1, most + 1)] for point in points]
    width = max((len(one.pieces) for row in cells for one in row if one is not None), default=1)
    pieces = np.full((len(points), most, width, 3), np.nan)
    for i, row in enumerate(cells):
        for j, one in enumerate(row):
            if one is not None:
                pieces[i, j, : len(one.pieces)] = one.pieces
                pieces[i, j, len(one.pieces) :] = one.pieces[-1]
    return pieces
