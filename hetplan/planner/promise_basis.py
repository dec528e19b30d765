"""What a promise rests on, in words that are written in one place and read in another."""

from __future__ import annotations

import re

__all__ = ["on_service_times", "service_times_of"]

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
