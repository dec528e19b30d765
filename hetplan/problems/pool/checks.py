"""What the files, each sound by itself, may not ask for together with the options of a pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetplan.errors import Fault
from hetplan.problems.faults import Faults
from hetplan.problems.pool.columns import MOST_INSTANCES, Times, Type
from hetplan.problems.pool.options import PoolOptions
from hetplan.problems.pool.wish import Wish
from hetplan.profiles.inputs import Inputs

__all__ = ["check_all"]


def check_all(
    inputs: Inputs, wish: Wish, types: Sequence[Type], times: Times, options: PoolOptions, faults: Faults
) -> None:
    """Every such fault; the rate is looked at only where all else is sound."""
    _check_tolerance(wish, options, faults)
    _check_measured(inputs, faults)
    _check_dispatch(wish, types, options, faults)
    if not faults.found:
        _check_rate(wish, times, options, faults)


def _check_tolerance(wish: Wish, options: PoolOptions, faults: Faults) -> None:
    """A target at a percentile leaves its own share of late queries, and a plan may not be made to exceed it."""
    if wish.targets and options.violation_tolerance > wish.targets[-1].left + 1e-9:
        percentile = wish.app.latency[wish.targets[-1].place].percentile
        faults.in_options(
            "violation_tolerance",
            f"the latency target is at percentile {percentile:g}, which leaves {wish.targets[-1].left:.4g}",
            "Lower the option, or the percentile.",
            value=options.violation_tolerance,
        )


def _check_dispatch(wish: Wish, types: Sequence[Type], options: PoolOptions, faults: Faults) -> None:
    """A rule other than matching is for single queries, a threshold for queries of one size."""
    if options.dispatch == "matching":
        return
    why = remedy = ""
    if any(kind.is_rate for kind in types):
        why, remedy = "runs that state rates serve several queries at once", "Leave it out: their shares decide."
    elif options.dispatch == "threshold" and len(wish.points[0]) != 1:
        why, remedy = "a threshold parts queries of one size, so of one axis", 'Take "earliest", or leave it out.'
    if why:
        faults.in_options("dispatch", why, remedy, value=options.dispatch)


def _check_measured(inputs: Inputs, faults: Faults) -> None:
    """Measurements that nobody reads would be hashed into the plan as if they had mattered."""
    if inputs.measured is not None:
        name = inputs.files.get("measured", "measured")
        why = "the question pool reads no measurements beside the profile"
        remedy = "Leave it out (--measured); what was measured goes into the profile's tables."
        faults.found.append(Fault(name, "$", "", why, remedy))


def _check_rate(wish: Wish, times: Times, options: PoolOptions, faults: Faults) -> None:
    """A rate for which more instances would be needed than whole numbers are told apart for."""
    if wish.rate_qps is None:
        return
    with np.errstate(over="ignore"):
        fastest = times.mean_ms.min(axis=1)
        needed = float(wish.p[np.isfinite(fastest)] @ fastest[np.isfinite(fastest)]) / 1000.0
        instances = np.float64(needed) * wish.rate_qps / options.derate
    if instances > MOST_INSTANCES:
        faults.in_slo(
            f"$.apps.{wish.app_id}.demand.rate_qps",
            f"more than {MOST_INSTANCES:,} instances would be needed, at derate {options.derate:g}",
            "Check the number (rates are per second), the unit of the tables and option derate.",
            value=wish.rate_qps,
        )
