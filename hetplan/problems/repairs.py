"""Repairs in words: one number of the user's files, what it is, and what it would have to be."""

from __future__ import annotations

from hetplan.planner.draft import Repair

__all__ = ["change"]


def change(at: str, stated: float, to: float, unit: str = "", *, more: str = "") -> Repair:
    """The repair of one number; `more` ends its text.

    >>> change("slo.limits.changes", 2, 5, "changes").text
    'raise slo.limits.changes from 2 to 5 changes'
    >>> change("slo.apps.a.rate_qps", 101, 100.0, "qps").amount
    1.0
    """
    verb = "raise" if to > stated else "lower"
    text = f"{verb} {at} from {stated:.6g} to {to:.6g}{f' {unit}' if unit else ''}{more}"
    return Repair(at, verb, abs(to - stated), to, unit, text)
