"""What a plan with periods wants to run at a moment: the plan of its period, with the machines of the next ahead of it.

A schedule begins anew when its periods are over. Machines that only the next period has are started so long ahead as
the plan's actions say; what the next period has no more goes at the hour. Both together are the step between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetplan.errors import InputError
from hetplan.profiles.plan import Period, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.workers import Worker

__all__ = ["Schedule", "Step"]


@dataclass(frozen=True)
class Step:
    """What is to run from some moment on: an ordinary plan, why, and until when (by the schedule's clock)."""

    label: str
    plan: Plan
    until_s: float

    def left_by(self, rates: Mapping[str, float]) -> str:
        """Which application's rate is beyond what the plan holds for, in words; nothing where none is.

        Less than it was planned for is no reason to leave a schedule.
        """
        for app, rate in rates.items():
            highest = self.plan.valid.rate_qps.get(app, (0.0, None))[1]
            if highest is not None and rate > highest * (1.0 + 1e-9):
                return f"{app} comes at {rate:.4g} queries/s, and its period is planned for {highest:.4g}"
        return ""


@dataclass
class Schedule:
    """A plan with periods, and the moment at which its first period begins (seconds of any clock)."""

    plan: Plan
    begins_s: float = 0.0
    _made: dict[tuple[str, str], Plan] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        ends = [one.end_s for one in self.plan.periods]
        if self.plan.parts is None or any(end is None for end in ends):
            raise InputError.one(
                file="plan", path="$.periods", value=self.plan.question,
                why="a schedule is a plan with periods, each with an end",
                remedy="Plan with a horizon of several periods (question fleet).",
            )  # fmt: skip

    @property
    def length_s(self) -> float:
        """How long it is until the first period comes again."""
        return self.plan.periods[-1].end_s or 0.0

    def at(self, now_s: float) -> Step:
        """What is to run at a moment."""
        turn = math.floor((now_s - self.begins_s) / self.length_s)
        base = self.begins_s + turn * self.length_s
        moment, periods = now_s - base, self.plan.periods
        place = max(n for n, one in enumerate(periods) if one.start_s <= moment + 1e-9)
        period, following = periods[place], periods[(place + 1) % len(periods)]
        end_s = period.end_s or self.length_s
        ahead_s = max((one.ahead_s or 0.0 for one in following.actions or () if one.do == "start"), default=0.0)
        if moment >= end_s - ahead_s > period.start_s:
            return Step(f"{period.id}, and what {following.id} starts", self._both(period, following), base + end_s)
        return Step(period.id, self._of(period), base + end_s - min(ahead_s, end_s - period.start_s))

    def _of(self, period: Period) -> Plan:
        key = (period.id, "")
        if key not in self._made:
            self._made[key] = with_digest(of_period(self.plan, period))
        return self._made[key]

    def _both(self, period: Period, following: Period) -> Plan:
        """The period's plan with the machines that the next one adds: as many of each group as either has."""
        key = (period.id, following.id)
        if key not in self._made:
            now, then = self._of(period), self._of(following)
            workers = {worker.id: worker for worker in now.workers}
            loads = {load.id for worker in now.workers for load in worker.loads}
            for worker in then.workers:
                known = workers.get(worker.id)
                if known is not None and _is_alike(known, worker):
                    workers[worker.id] = known.model_copy(update={"count": max(known.count, worker.count)})
                elif known is None and not loads & {load.id for load in worker.loads}:
                    workers[worker.id] = worker.model_copy(update={"period": now.periods[0].id})
                # Else the name is taken by other loads: these machines go over at the hour.
            self._made[key] = with_digest(
                now.model_copy(update={"workers": tuple(workers.values()), "summary": None, "digest": None})
            )
        return self._made[key]


def _is_alike(one: Worker, other: Worker) -> bool:
    same = {"count": 1, "period": "t0"}
    return one.model_copy(update=same) == other.model_copy(update=same)
