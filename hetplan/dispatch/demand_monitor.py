"""What demand will be, what variants send on, and when to plan anew: three monitors, state in and number out.

None of them reads a clock; times are handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["DemandMonitor", "FactorMonitor", "ReplanTrigger", "forecast"]


def forecast(history_qps: Iterable[float], com: float = 1.6) -> float:
    """The exponentially weighted moving average of a history, with this centre of mass.

    s_0 = d_0, s = alpha d + (1 - alpha) s with alpha = 1 / (1 + com).

    >>> round(forecast([100, 200]), 4), round(forecast([100, 200, 400]), 4)
    (138.4615, 239.0533)
    """
    monitor = DemandMonitor(com)
    for rate in history_qps:
        monitor.observe(rate)
    return monitor.rate_qps


@dataclass
class DemandMonitor:
    """The moving average itself, fed a rate per period.

    >>> monitor = DemandMonitor(com=1.0)
    >>> monitor.observe(10), monitor.observe(20)
    (10.0, 15.0)
    """

    com: float = 1.6
    rate_qps: float = 0.0
    _seen: bool = False

    def __post_init__(self) -> None:
        if not self.com > 0:
            raise ValueError(f"the centre of mass is above 0, not {self.com}")

    def observe(self, rate_qps: float) -> float:
        """Take in the rate of one period; the forecast of the next."""
        if not 0 <= rate_qps < float("inf"):
            raise ValueError(f"a rate is 0 or more, not {rate_qps}")
        alpha = 1.0 / (1.0 + self.com)
        self.rate_qps = alpha * rate_qps + (1.0 - alpha) * self.rate_qps if self._seen else float(rate_qps)
        self._seen = True
        return self.rate_qps


@dataclass
class FactorMonitor:
    """How many queries a variant sends on per query, from counts over the last `window` reports.

    r = (w0 r_profile + sum of outgoing) / (w0 + sum of incoming): the profile's figure counts as w0 queries.

    >>> monitor = FactorMonitor({("a1", "b"): 2.0}, trust=100)
    >>> monitor.observe("a1", "b", incoming=300, outgoing=750)
    >>> monitor.factor("a1", "b")
    2.375
    """

    profile: dict[tuple[str, str], float]
    trust: float = 100.0
    window: int = 60
    _reports: dict[tuple[str, str], deque[tuple[int, int]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.trust <= 0 or self.window < 1:
            raise ValueError("the profile counts as more than 0 queries, and a window holds at least one report")

    def observe(self, variant: str, child: str, *, incoming: int, outgoing: int) -> None:
        """Take in one report of a variant about what it sent to one child step."""
        if incoming < 0 or outgoing < 0:
            raise ValueError("counts of queries are 0 or more")
        kept = self._reports.setdefault((variant, child), deque(maxlen=self.window))
        kept.append((incoming, outgoing))

    def factor(self, variant: str, child: str) -> float:
        """The estimate now."""
        reports = self._reports.get((variant, child), ())
        came, went = sum(one for one, _ in reports), sum(other for _, other in reports)
        stated = self.profile.get((variant, child), 1.0)
        return (self.trust * stated + went) / (self.trust + came)


@dataclass
class ReplanTrigger:
    """When to plan anew: every `period_s`, and at once when the forecast has left the planned rate by a share.

    >>> trigger = ReplanTrigger(period_s=10, change=0.2)
    >>> trigger.due(0, rate_qps=100), trigger.due(5, rate_qps=110), trigger.due(6, rate_qps=130), trigger.due(16, 130)
    (True, False, True, True)
    """

    period_s: float = 10.0
    change: float = 0.2
    _planned_s: float | None = None
    _planned_qps: float = 0.0

    def due(self, now_s: float, rate_qps: float) -> bool:
        """Whether a new plan is due now; if so, it is taken to be made for this rate."""
        is_due = (
            self._planned_s is None
            or now_s - self._planned_s >= self.period_s
            or abs(rate_qps - self._planned_qps) > self.change * max(self._planned_qps, 1e-9)
        )
        if is_due:
            self._planned_s, self._planned_qps = now_s, rate_qps
        return is_due
