"""Autoscalers as people run them today, step by step as their own documentation and code say: looks in, counts out.

==================  ==========================================================================================
`Hpa`               Kubernetes' horizontal pod autoscaler on the use of what is ready (v2, its default behaviour)
`Concurrency`       Knative's autoscaler on queries under way, with its panic mode; KEDA's where nothing panics
==================  ==========================================================================================

A scaler never asks for more than `most` (the stock). Machines that were asked for and do not serve yet are counted as
idle where more are wanted, so that a slow start is not answered with ever more machines.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hetplan.planner.request import cheapest_first
from hetplan.simulator.run_records import Glance

__all__ = ["Concurrency", "Hpa", "Scaled", "Scaler", "scaling"]


class Scaler(Protocol):
    """What decides how many machines a stage has; each run has scalers to itself."""

    @property
    def period_s(self) -> float:
        """How often it looks."""
        ...

    def wanted(self, seen: Glance) -> int:
        """How many machines to have now."""
        ...

    def anew(self) -> Scaler:
        """The same, with nothing seen yet."""
        ...


class Run(Protocol):
    """A run whose machines can be counted and changed."""

    horizon_ms: float

    @property
    def now_ms(self) -> float:
        """The time of the run."""
        ...

    def at(self, when_ms: float, change: Callable[[], None], /) -> None:
        """Make a change at a time."""
        ...

    def glance(self, groups: Sequence[str], /) -> Glance:
        """What is seen of groups that serve together."""
        ...

    def workers(self, group: str, /) -> int:
        """How many machines of a group are wanted now."""
        ...

    def scale(self, group: str, count: int, /) -> None:
        """Have so many machines of a group."""
        ...


@dataclass
class Hpa:
    """Kubernetes' horizontal pod autoscaler, by the mean use of ready machines.

    Every `period_s`: with ``ratio`` = mean use of the ready / `target`, it wants ``ceil(ratio x ready)`` and changes
    nothing within `tolerance` of 1. Where more are wanted and some are not ready, these count as idle; what then points
    down, or within the tolerance, changes nothing. Up by at most 4 machines or a doubling per 15 s; up and down only to
    the least and the largest wish of their windows (none and 300 s).

    >>> scaler = Hpa(target=0.5)
    >>> scaler.wanted(Glance(15e3, wanted=4, ready=4, use=0.9, jobs=0.0))
    8
    >>> scaler.wanted(Glance(30e3, wanted=8, ready=4, use=0.9, jobs=0.0))
    8
    """

    target: float = 0.7
    period_s: float = 15.0
    tolerance: float = 0.1
    up_window_s: float = 0.0
    down_window_s: float = 300.0
    least: int = 1
    most: int = 1_000_000
    _wishes: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def wanted(self, seen: Glance) -> int:
        """How many machines to have now."""
        now_s = seen.now_ms / 1000.0
        wish = min(max(self._wish(seen), self.least), self.most)
        self._wishes.append((now_s, wish))
        while self._wishes[0][0] <= now_s - max(self.down_window_s, self.up_window_s, self.period_s):
            self._wishes.popleft()
        if wish < seen.wanted:
            return min(seen.wanted, max(self._since(now_s - self.down_window_s)))
        if wish > seen.wanted:
            steady = min(self._since(now_s - self.up_window_s)) if self.up_window_s > 0 else wish
            upto = max(seen.wanted + 4, 2 * seen.wanted)
            return max(seen.wanted, min(steady, upto))
        return wish

    def _since(self, start_s: float) -> list[int]:
        return [wish for at_s, wish in self._wishes if at_s > start_s] or [self._wishes[-1][1]]

    def _wish(self, seen: Glance) -> int:
        if seen.ready == 0:
            # No machine reports anything.
            return seen.wanted
        ratio = seen.use / self.target
        unready = seen.wanted - seen.ready
        if ratio <= 1.0 or unready <= 0:
            if abs(ratio - 1.0) <= self.tolerance:
                return seen.wanted
            return math.ceil(ratio * seen.ready - 1e-9)
        with_idle = ratio * seen.ready / seen.wanted
        if with_idle < 1.0 or abs(with_idle - 1.0) <= self.tolerance:
            return seen.wanted
        return max(seen.wanted, math.ceil(with_idle * seen.wanted - 1e-9))

    def anew(self) -> Hpa:
        """The same, with nothing seen yet."""
        return replace(self, _wishes=deque())


@dataclass
class Concurrency:
    """Knative's autoscaler: as many machines as keep the queries under way at `target` for each of them.

    Every `period_s` it divides the mean number under way of the last `window_s` by the target. Where the mean of the
    last `panic_s` wants `panic_at` times what is ready, it panics for a window: only up, by the short mean. Down it
    goes to half of what is ready at a time. With `panic_s` = 0 it never panics, as KEDA does on a queue's length.

    >>> scaler = Concurrency(target=2.0)
    >>> [scaler.wanted(Glance(now, wanted=2, ready=2, use=1.0, jobs=jobs)) for now, jobs in ((2e3, 4.0), (4e3, 12.0))]
    [2, 4]
    """

    target: float = 1.0
    period_s: float = 2.0
    window_s: float = 60.0
    panic_s: float = 6.0
    panic_at: float = 2.0
    least: int = 1
    most: int = 1_000_000
    _seen: deque[tuple[float, float]] = field(default_factory=deque, repr=False)
    _calm_at_s: float = -math.inf
    _highest: int = 0

    def wanted(self, seen: Glance) -> int:
        """How many machines to have now."""
        now_s = seen.now_ms / 1000.0
        self._seen.append((now_s, seen.jobs))
        while self._seen[0][0] <= now_s - self.window_s:
            self._seen.popleft()
        ready = max(seen.ready, 1)
        wish = max(math.ceil(self._mean(now_s - self.window_s) / self.target - 1e-9), ready // 2)
        if self.panic_s > 0:
            at_once = math.ceil(self._mean(now_s - self.panic_s) / self.target - 1e-9)
            if at_once / ready >= self.panic_at:
                self._calm_at_s = now_s + self.window_s
            if now_s < self._calm_at_s:
                self._highest = max(self._highest, at_once, wish, seen.wanted)
                wish = self._highest
            else:
                self._highest = 0
        return min(max(wish, self.least), self.most)

    def _mean(self, start_s: float) -> float:
        jobs = [jobs for at_s, jobs in self._seen if at_s > start_s]
        return sum(jobs) / len(jobs)

    def anew(self) -> Concurrency:
        """The same, with nothing seen yet."""
        return replace(self, _seen=deque(), _calm_at_s=-math.inf, _highest=0)


@dataclass(frozen=True)
class Scaled:
    """The groups that serve one stage, cheapest first, how many machines of each there are, and what decides."""

    groups: tuple[str, ...]
    stock: tuple[int, ...]
    scaler: Scaler

    @property
    def most(self) -> int:
        """All the machines that there are."""
        return sum(self.stock)


def scaling(stages: Sequence[Scaled]) -> Callable[[Run], None]:
    """What lets a run be scaled, each stage by itself."""

    def control(run: Run) -> None:
        for stage in stages:
            _follow(run, stage, stage.scaler.anew())

    return control


def _follow(run: Run, stage: Scaled, scaler: Scaler) -> None:
    every_ms = 1000.0 * scaler.period_s
    run.glance(stage.groups)

    def look() -> None:
        wanted = min(scaler.wanted(run.glance(stage.groups)), stage.most)
        counts: Mapping[str, int] = dict(zip(stage.groups, cheapest_first(wanted, stage.stock), strict=True))
        for group, count in counts.items():
            if count != run.workers(group):
                run.scale(group, count)
        if run.now_ms + every_ms <= run.horizon_ms:
            run.at(run.now_ms + every_ms, look)

    run.at(run.now_ms + every_ms, look)
