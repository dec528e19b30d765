"""What a day that was played shows: hours, the worst hour of each failure, and what breaks a promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetplan.planner.promise_figures import Estimate, Verdict, judge

__all__ = ["DayReport", "FailureReport", "HourReport"]


@dataclass(frozen=True)
class HourReport:
    """One period: its rates, the shares in time, what is promised, and which period was played for it."""

    period: str
    start_s: float
    rates_qps: Mapping[str, float]
    in_time: Mapping[str, Estimate]
    promised: Mapping[str, float]
    as_played: str

    def verdict(self, app: str) -> Verdict:
        """Whether the promise holds."""
        return judge(self.in_time[app], ">=", self.promised[app])


@dataclass(frozen=True)
class FailureReport:
    """One failure in one period: shares in time in the minute of the failure, and after it."""

    situation: str
    period: str
    at_first: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    promised: Mapping[str, float]

    def verdict(self, app: str) -> Verdict:
        """Whether what was promised after the failure holds once the minute of the failure is over."""
        return judge(self.after[app], ">=", self.promised[app])


@dataclass(frozen=True)
class DayReport:
    """The whole: hours, the worst hour of each failure, and how much was played."""

    plan: str | None
    hours: tuple[HourReport, ...]
    failures: tuple[FailureReport, ...]
    in_time: Mapping[str, Estimate]
    cost_per_hour: float | None
    currency: str
    windows: int
    segments: int
    played: int
    stands_for: float
    taken: int
    """How often spot machines were taken back."""

    @property
    def broken(self) -> tuple[str, ...]:
        """What breaks a promise, in words."""
        hours = [f"{hour.period}: {app}" for hour in self.hours for app in hour.in_time
                 if hour.verdict(app) is Verdict.BROKEN]  # fmt: skip
        return (*hours, *(f"{one.period}, {one.situation}: {app}" for one in self.failures for app in one.after
                          if one.verdict(app) is Verdict.BROKEN))  # fmt: skip

    @property
    def ok(self) -> bool:
        """Whether no promise is broken."""
        return not self.broken

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""

        def shown(found: Mapping[str, Estimate]) -> dict[str, Any]:
            return {app: one.as_dict() for app, one in found.items()}

        return {
            "format": "hetplan/day/1.0",
            "plan": self.plan,
            "in_time": shown(self.in_time),
            "cost_per_hour": self.cost_per_hour,
            "currency": self.currency,
            "segments": self.segments,
            "windows": self.windows,
            "queries_played": self.played,
            "queries_stood_for": self.stands_for,
            "spot_taken": self.taken,
            "broken": list(self.broken),
            "hours": [
                {"period": hour.period, "start_s": hour.start_s, "rates_qps": dict(hour.rates_qps),
                 "in_time": shown(hour.in_time), "promised": dict(hour.promised), "as_played": hour.as_played,
                 "verdicts": {app: str(hour.verdict(app)) for app in hour.in_time}}
                for hour in self.hours
            ],
            "failures": [
                {"situation": one.situation, "period": one.period, "at_first": shown(one.at_first),
                 "after": shown(one.after), "promised": dict(one.promised),
                 "verdicts": {app: str(one.verdict(app)) for app in one.after}}
                for one in self.failures
            ],
        }  # fmt: skip
