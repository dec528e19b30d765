"""What a promise rests on, in words that are written in one place and read in another; and the figure beside it.

A figure of a run, simulated or measured, is compared with each promised quantity.
"""

from __future__ import annotations

import re

__all__ = ["FIGURES", "RATES", "on_service_times", "service_times_of"]

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
