"""The options that a plan was made with, where verification rests on them: none may excuse what the wish forbids."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan.profiles.plan import Plan
from hetplan.profiles.tables import STATISTICS
from hetplan.verifier.report import Violation

__all__ = ["check_options", "option", "says_another_statistic", "slo_divisor", "statistics_of"]

# name -> (least, most) of what a plan may say; outside, its own options would make it look better than it is.
_RANGES = {
    "derate": (0.0, 1.0),
    "headroom": (0.0, 1.0),
    "slo_divisor": (1.0, 1e9),
    "violation_tolerance": (0.0, 0.5),
    "xi": (0.0, 1.0),
}


def option(plan: Plan, name: str, default: float) -> float:
    """A number among the options that the plan was made with."""
    value = plan.method.options.get(name)
    return float(value) if isinstance(value, int | float) else default


def slo_divisor(plan: Plan) -> float:
    """What limits are divided by, to leave time for queueing: at least 1, even where `check_options` complains."""
    return max(option(plan, "slo_divisor", 1.0), 1.0)


def statistics_of(plan: Plan) -> tuple[str, str]:
    """Which statistics of a latency table are used for capacity and for the target."""
    quantile = plan.method.options.get("quantile", "mean")
    return str(quantile), str(plan.method.options.get("latency_stat", quantile))


def says_another_statistic(plan: Plan) -> bool:
    """Whether the plan says that some statistic was not measured, and another taken in its place."""
    return any(notice.code == "W-statistic" for notice in plan.warnings)


def check_options(plan: Plan) -> Iterator[Violation]:
    """Options within their ranges; latencies judged by a statistic of latencies."""
    for name, (least, most) in _RANGES.items():
        value = option(plan, name, most)
        if not least <= value <= most:
            text = f"{name} {value:g} is not within {least:g} .. {most:g}"
            yield Violation("option", f"method.options.{name}", text)
    for name, statistic in zip(("quantile", "latency_stat"), statistics_of(plan), strict=True):
        if statistic not in STATISTICS or statistic == "std":
            yield Violation("option", f"method.options.{name}", f"{statistic} is no latency of a table")
