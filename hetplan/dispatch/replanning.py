"""When a plan that runs is to be made anew, and for which demand: looks at counters in, decisions out, no clock.

One decider for two worlds: `hetplan autoscale` asks it about real hosts, `hetplan.simulator.system_changes` about
simulated ones. At each look it says for which rate of each application machines are to be ready:

    margin x forecast x what the forecast's errors ask for  +  what has piled up / CATCH_UP_S

The forecast is about the time until what is asked for now would serve (`hetplan.dispatch.forecasting`). Its errors ask
for `1 + headroom` at least, and once enough of them are known for the quantile of them. Queries under way beyond those
that a limit's time brings have piled up. What keeps the decision from flapping:

* a plan is made for the highest that was wanted in the last `hold_s`: a rise counts at once, a fall when it has lasted;
* demand within `change` of what was planned for is no reason: a plan that is due by its age alone is made for
  the same demand as before. So noise never moves a worker;
* after a plan, nothing is due for `settle_s`; after a failure, for a time that doubles up to `period_s`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from hetplan.dispatch.forecasting import Forecast, ForecastName

__all__ = ["Look", "Replanning"]

CATCH_UP_S = 60.0
"""What has piled up is to be served within so long."""


@dataclass(frozen=True)
class Look:
    """What one look said: rates since the look before, their forecast, and whether to plan, for what and why.

    `demand_qps` is what a plan made now is made for; empty while nothing was measured (then the SLO's own holds).
    `drifted` says that the reason is not demand: what was measured does not hold any more.
    """

    rate_qps: Mapping[str, float] = field(default_factory=dict)
    forecast_qps: Mapping[str, float] = field(default_factory=dict)
    demand_qps: Mapping[str, float] = field(default_factory=dict)
    due: bool = False
    why: str = ""
    drifted: bool = False


@dataclass
class Replanning:
    """The decision, one look at a time; tell it with `planned` and `failed` what became of it.

    Looks are `every_s` apart; one that comes later counts as so many. What is asked for serves after `lead_s`. A query
    may be under way for what `limits_s` says of its application, or for the longest that it says of any; where it says
    nothing, nothing piles up. `history` has the rates seen before, one per `every_s`, and `runs_for` those that what
    runs at the time 0 was planned for. `dataclasses.replace` makes another, which has seen nothing yet.

    >>> watch = Replanning(every_s=10, period_s=60, change=0.2, hold_s=30, com=0.25, headroom=0)
    >>> watch.look(0, {"traffic": 0}).why
    'nothing was planned yet'
    >>> watch.planned(0, {"traffic": 100.0})
    >>> watch.look(10, {"traffic": 1000}).due
    False
    >>> watch.look(20, {"traffic": 2500}).why
    'demand of traffic rose from 100 to 140 queries/s'

    A fall waits until it has lasted `hold_s`:

    >>> watch.planned(20, {"traffic": 140.0})
    >>> [watch.look(now, {"traffic": 2500}).due for now in (30, 40, 50, 60)]
    [False, False, False, True]
    """

    every_s: float = 5.0
    period_s: float = 60.0
    change: float = 0.1
    hold_s: float = 60.0
    settle_s: float = 0.0
    headroom: float = 0.1
    floor_qps: float = 1.0
    com: float = 1.6
    kind: ForecastName = "ewma"
    quantile: float = 0.95
    margin: float = 1.0
    lead_s: float = 0.0
    season_s: float = 86_400.0
    limits_s: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False)
    runs_for: Mapping[str, float] = field(default_factory=dict)
    _forecasts: dict[str, Forecast] = field(default_factory=dict, init=False, repr=False)
    _wanted: dict[str, deque[tuple[float, float]]] = field(default_factory=dict, init=False, repr=False)
    _counts: Mapping[str, int] | None = field(default=None, init=False, repr=False)
    _looked_s: float = field(default=0.0, init=False, repr=False)
    _planned_s: float | None = field(default=None, init=False, repr=False)
    _planned_qps: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _not_before_s: float = field(default=float("-inf"), init=False, repr=False)
    _failures: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.period_s > 0 and self.change >= 0 and self.hold_s >= 0 and self.settle_s >= 0):
            raise ValueError("a period is longer than 0 s; change, hold and settling time are 0 or more")
        if not (self.headroom >= 0 and self.floor_qps > 0 and self.margin > 0):
            raise ValueError("headroom is 0 or more; the least rate and the margin are above 0")
        if not all(0.0 <= rate < inf for rates in self.history.values() for rate in rates):
            raise ValueError("a rate that was seen before is 0 or more")
        self._forecast()
        if self.runs_for:
            self.planned(-self.settle_s, self.runs_for)

    def look(self, now_s: float, arrived: Mapping[str, int], under_way: int | None = None) -> Look:
        """Take in the queries counted so far per application; a counter that went back was started anew.

        `under_way` is how many queries of all of them wait or are served, where that is known.
        """
        rates = self._rates(now_s, arrived)
        catch_up = self._catch_up(rates, under_way)
        for app, rate in rates.items():
            wanted = self._wanted.setdefault(app, deque())
            wanted.append((now_s, self.margin * self._forecasts[app].ahead() + rate * catch_up))
        for wanted in self._wanted.values():
            while len(wanted) > 1 and wanted[0][0] < now_s - self.hold_s:
                wanted.popleft()
        forecasts = {app: self._forecasts[app].point() for app in sorted(self._forecasts)}
        demand = {app: max(self.floor_qps, *(rate for _, rate in self._wanted[app])) for app in forecasts}
        why = self._why(now_s, demand)
        if why.startswith("the plan is"):
            # Its age alone is no reason to move anything: what was planned for within the band stays.
            demand = {app: self._planned_qps.get(app, rate) for app, rate in demand.items()}
        return Look(rates, forecasts, demand, bool(why), why)

    def runs(self, lead_s: float, limits_s: Mapping[str, float]) -> None:
        """From now on machines take so long to start, and queries may be under way for so long."""
        self.lead_s, self.limits_s = lead_s, limits_s
        for forecast in self._forecasts.values():
            forecast.lead_s = lead_s + self.every_s

    def ready(self, now_s: float) -> bool:
        """Whether a plan may be made now, if there is another reason than demand."""
        return now_s >= self._not_before_s

    def planned(self, now_s: float, demand_qps: Mapping[str, float]) -> None:
        """A plan for this demand runs from now on; a new demand counts as seen, so that less of it has to last too."""
        for app, rate in demand_qps.items():
            if self._planned_qps.get(app) != rate:
                self._wanted.setdefault(app, deque()).append((now_s, rate))
        self._planned_s, self._planned_qps = now_s, dict(demand_qps)
        self._not_before_s, self._failures = now_s + self.settle_s, 0

    def failed(self, now_s: float) -> float:
        """The plan that was due came to nothing; the seconds until the next try."""
        wait_s = min(self.period_s, max(self.settle_s, self.period_s / 16) * 2.0 ** min(self._failures, 60))
        self._failures += 1
        self._not_before_s = now_s + wait_s
        return wait_s

    def _forecast(self) -> Forecast:
        return Forecast(
            self.kind, self.quantile, self.every_s, self.lead_s + self.every_s, self.com, self.season_s,
            least=1.0 + self.headroom,
        )  # fmt: skip

    def _rates(self, now_s: float, arrived: Mapping[str, int]) -> dict[str, float]:
        before, passed_s = self._counts, now_s - self._looked_s
        if before is not None and passed_s <= 0:
            return {}
        self._counts, self._looked_s = dict(arrived), now_s
        if before is None:
            return {}
        rates: dict[str, float] = {}
        for app, count in arrived.items():
            since = count - before.get(app, 0)
            rates[app] = (since if since >= 0 else count) / passed_s
            if app not in self._forecasts:
                self._forecasts[app] = self._forecast()
                self._forecasts[app].before(self.history.get(app, ()))
            # A forecast is fed a value per step, however long planning and applying kept from looking.
            self._forecasts[app].before([rates[app]] * max(1, round(passed_s / self.every_s)))
        return rates

    def _catch_up(self, rates: Mapping[str, float], under_way: int | None) -> float:
        """What has piled up, as a share of what comes while it is caught up."""
        total = sum(rates.values())
        if under_way is None or total <= 0 or not self.limits_s:
            return 0.0
        longest_s = max(self.limits_s.values())
        usual = sum(rate * self.limits_s.get(app, longest_s) for app, rate in rates.items())
        return max(0.0, under_way - usual) / CATCH_UP_S / total

    def _why(self, now_s: float, demand: Mapping[str, float]) -> str:
        if now_s < self._not_before_s:
            return ""
        if self._planned_s is None:
            return "nothing was planned yet"
        for app, rate in demand.items():
            planned = self._planned_qps.get(app)
            if planned is None:
                return f"demand of {app} is measured for the first time: {rate:.4g} queries/s"
            if abs(rate - planned) > self.change * max(planned, self.floor_qps) * (1 + 1e-9):
                verb = "rose" if rate > planned else "fell"
                return f"demand of {app} {verb} from {planned:.4g} to {rate:.4g} queries/s"
        if self._failures or now_s - self._planned_s >= self.period_s:
            return f"the plan is {now_s - self._planned_s:.4g} s old"
        return ""
