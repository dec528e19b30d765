"""`compare`: ways to serve one demand side by side, each at the cheapest setting that keeps as many queries in time."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.api.solve import Source
from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.planner.terms import OnEvent, with_logging
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.plan import Plan
from hetplan.profiles.rates import RatesOverTime, read_rates
from hetplan.profiles.read_plan import read_plan
from hetplan.studies.strategies import WAYS, Compared, Comparison, compare_ways

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs

__all__ = ["compare", "compared_demand"]

WHOLE = (0.0, 1e9)
"""All hours of a demand."""
STEADY_S, STEADY_QUERIES = 900.0, 100_000
"""Three times the window over which Kubernetes' autoscaler stabilises; enough queries for a percentile of 99.9."""


@check_arguments
def compare(
    plan: Source | Plan,
    *files: GivenFile | Inputs | None,
    demand: Mapping[str, str | os.PathLike[str] | Sequence[float]] | None = None,
    hours: tuple[float, float] = WHOLE,
    attainment: float | None = None,
    policies: Sequence[str] | None = None,
    seeds: int = 1,
    seed: int = 0,
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Comparison:
    """A plan beside other ways to serve its demand, in money at the same attainment of the SLO.

    `demand` gives rates over time by application, as a CSV file or a list (one rate per period of the SLO); those that
    it leaves out are the SLO's. `policies` names the ways: the plan, static peaks, Kubernetes' autoscaler, concurrency
    scaling, replanning and perfect foresight.

    >>> import hetplan as hp
    >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
    >>> plan = hp.solve(*files, options={"sizing": "fluid"}).require()
    >>> found = hp.compare(plan, *files, demand={"ranking": [100.0]}, policies=["plan"], attainment=0.5)
    >>> [row.way for row in found.rows]
    ['plan']
    """
    named = sort_files((plan, *files), "compare", plans=(1, 1), in_python=True)
    what = compared_demand(
        named.inputs, demand or {}, hours=hours, attain=attainment, ways=policies, seeds=seeds, seed=seed
    )
    spread = None if jobs == 1 else Spread(jobs, on_event=on_event, cancel=cancel)
    tried = read_plan(named.plan, trust_digest=True)
    return compare_ways(tried, named.inputs, what, on_event=with_logging(on_event), cancel=cancel, spread=spread)


def compared_demand(
    inputs: Inputs,
    demand: Mapping[str, str | os.PathLike[str] | Sequence[float]],
    *,
    mean_qps: float | None = None,
    hours: tuple[float, float] = WHOLE,
    ways: Sequence[str] | None = None,
    **how: Any,
) -> Compared:
    """The demand that ways are compared under, and what came before it; `how` are the other fields of `Compared`."""
    given = _rates_of(inputs, demand)
    first, last = hours
    periods = {one.period_s for one in given.values()}
    if len(periods) > 1:
        raise InputError.one(
            file="--demand", value=", ".join(f"{one:g} s" for one in sorted(periods)),
            why="the applications' rates are in steps of different lengths", remedy="Bring them to one step.",
        )  # fmt: skip
    played = {app: one.cut(first, last) for app, one in given.items()}
    before = {app: one.cut(0.0, first) for app, one in given.items()}
    if not all(one.rates_qps for one in played.values()):
        raise InputError.one(
            file="--hours",
            value=f"{first:g}:{last:g}",
            why="the demand has no step in these hours",
            remedy="Write --hours 0:24.",
        )
    factor = 1.0
    if mean_qps is not None:
        factor = mean_qps / max(sum(one.mean_qps for one in played.values()), 1e-12)
    return Compared(
        series={app: one.times(factor).rates_qps for app, one in played.items()},
        history={app: one.times(factor).rates_qps for app, one in before.items()},
        period_s=periods.pop(), ways=ways or WAYS, begin_s=3600.0 * first, **how,
    )  # fmt: skip


def _rates_of(
    inputs: Inputs, demand: Mapping[str, str | os.PathLike[str] | Sequence[float]]
) -> dict[str, RatesOverTime]:
    """The rates of every application: of a file, of a list of one rate per period, or of the SLO."""
    apps, found = list(inputs.slo.apps), dict[str, RatesOverTime]()
    for app, given in demand.items():
        if app not in apps:
            raise InputError.one(
                file="--demand", value=app, why="there is no such application in the SLO file",
                remedy=f"Choose among {', '.join(apps)}.",
            )  # fmt: skip
        if isinstance(given, str | os.PathLike):
            found[app] = read_rates(Path(given))
        else:
            found[app] = RatesOverTime(inputs.slo.horizon.period_s, tuple(given))
    horizon = inputs.slo.horizon
    steps = max((len(one.rates_qps) for one in found.values()), default=horizon.periods)
    period_s = next((one.period_s for one in found.values()), horizon.period_s)
    for app in apps:
        if app not in found:
            wanted = inputs.slo.apps[app]
            rate = wanted.stated_qps
            rates = wanted.series or ((rate,) * steps if rate is not None else None)
            if rates is None:
                raise InputError.one(
                    file="slo", path=f"$.apps.{app}.rate_qps", why="neither a rate nor rates over time",
                    remedy=f"Give --demand {app}=FILE.csv, or write rate_qps.series and horizon.",
                )  # fmt: skip
            found[app] = RatesOverTime(period_s, tuple(rates))
    if not demand and horizon.periods == 1:
        return {app: RatesOverTime(_steady_s(found, period_s), one.rates_qps) for app, one in found.items()}
    return found


def _steady_s(found: Mapping[str, RatesOverTime], period_s: float) -> float:
    """How long rates that never change are played: as long as it takes to tell the ways apart, a period at most."""
    rate = sum(one.mean_qps for one in found.values())
    return min(period_s, max(STEADY_S, STEADY_QUERIES / max(rate, 1e-9)))
