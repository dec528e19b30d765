"""What a promise rests on, in words that are written in one place and read in another; and the figure beside it.

A figure of a run, simulated or measured, is compared with each promised quantity, and judged by its interval.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from hetplan.planner.tolerances import SLIP

__all__ = ["FIGURES", "RATES", "Estimate", "Verdict", "judge", "on_service_times", "service_times_of"]

RATES = ("rate_qps", "planned_qps")
"""Rates that a plan promises to carry: judged by what was wished of their queries."""

FIGURES = {
    "violations": "violations",
    "violation": "violations",
    "in_time": "in_time",
    "attainment": "in_time",
    "accuracy": "accuracy",
    "quality": "served_accuracy",
    "goodput": "goodput",
    "goodput_qps": "goodput_qps",
    "rate_qps": "goodput_qps",
    "planned_qps": "goodput_qps",
    "served_qps": "rate_qps",
    "dropped": "dropped",
}
"""Promised quantity -> figure; a rate is judged by the answers in time."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; `low` and `high` equal `value` where there is no spread to see."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, object]:
        """For JSON: what is infinite (a percentile that some queries never reach) is null."""
        finite = [self.value, self.low, self.high]
        value, low, high = (round(item, 9) if math.isfinite(item) else None for item in finite)
        return {"value": value, "interval": [low, high]}

    @property
    def with_unknown_end(self) -> Estimate:
        """The estimate whose open end is its value, where nothing is known of that end."""
        low, high = (self.value if math.isnan(end) else end for end in (self.low, self.high))
        return Estimate(self.value, low, high)


class Verdict(StrEnum):
    """What runs say of a limit, or of a promise.

    Only `BROKEN` fails a plan: the interval of what was simulated or measured lies wholly on the wrong side. (A search
    gives a plan up where the mean does: `planner.sizing`.) `MET` is an interval wholly on the right one. `UNDECIDED` is
    an interval that holds the value, or a run too short for its percentile: more seeds, or a longer run, would tell.
    `REPORTED` is for a promise by a model that knows no queueing, or of something nobody wished to be judged.
    `NOT_SIMULATED` was not played, `NOT_MEASURED` not measured: a promised rate above the one that was, for instance.
    """

    MET = "met"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    REPORTED = "reported"
    NOT_SIMULATED = "not-simulated"
    NOT_MEASURED = "not-measured"


def judge(found: Estimate, relation: str, promised: float, *, unknown: Verdict = Verdict.NOT_SIMULATED) -> Verdict:
    """Met where the whole interval is, broken where all of it is not, else undecided; `unknown` without a figure.

    >>> judge(Estimate(90.0, 88.0, 92.0), "<=", 100.0), judge(Estimate(103.0, 101.0, 105.0), "<=", 100.0)
    (<Verdict.MET: 'met'>, <Verdict.BROKEN: 'broken'>)
    >>> judge(Estimate(99.0, 97.0, 101.0), "<=", 100.0), judge(Estimate(99.0, math.nan, math.nan), "<=", 100.0)
    (<Verdict.UNDECIDED: 'undecided'>, <Verdict.UNDECIDED: 'undecided'>)
    """
    slack = SLIP * max(abs(promised), 1.0)
    if math.isnan(found.value):
        return unknown
    if relation == "=":
        if math.isnan(found.low):
            return Verdict.MET if abs(found.value - promised) <= slack else Verdict.UNDECIDED
        inside = found.low - slack <= promised <= found.high + slack
        return Verdict.MET if inside else Verdict.BROKEN
    least, most = (found.low - promised, found.high - promised)
    if relation == ">=":
        least, most = -most, -least
    return Verdict.MET if most <= slack else Verdict.BROKEN if least > slack else Verdict.UNDECIDED


_SAID = re.compile(r"service times of the (\w+) of their tables")


def on_service_times(statistic: str) -> str:
    """The part of a basis that says how long services were taken to last.

    >>> on_service_times("p95")
    'service times of the p95 of their tables'
    """
    return f"service times of the {statistic} of their tables"


def service_times_of(basis: str | None) -> str | None:
    """The statistic of the tables that a promise rests on, where its basis says one.

    >>> service_times_of("at 300 qps; " + on_service_times("p95"))
    'p95'
    >>> service_times_of("at 300 qps") is None
    True
    """
    found = _SAID.search(basis or "")
    return found[1] if found is not None else None
