"""Which figure of a run, simulated or measured, stands beside a promised quantity."""

from __future__ import annotations

__all__ = ["FIGURES", "RATES"]

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
