"""Ways to serve one demand, each tuned to the cheapest setting that reaches the same share of queries in time.

A way has settings in order, dearest first: with each it makes a system and what changes it under way. A `Course` is
the demand over hours or days, drawn once: every setting of every way meets the same queries. `tuned` looks for the
cheapest setting that reaches what is asked, and keeps every play on the way: lateness against money.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.serving.service import NoiseName, noise_of
from hetplan.serving.system import System
from hetplan.simulator.control import follow_load
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.runs import check_size, seed_of
from hetplan.simulator.simulation import RunResult, Simulation, Stream
from hetplan.simulator.system_run import SideBySide
from hetplan.simulator.token_run import TokenRun
from hetplan.simulator.tokens import Coming, coming_of
from hetplan.simulator.tokens import Played as PlayedText

__all__ = ["Course", "Played", "Setting", "Tuned", "cheapest_of", "play", "tuned"]

Control = Callable[[Any], None]
_Counted = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Per stretch, how many queries came and how many of them were answered in time."""


@dataclass(frozen=True)
class Setting:
    """One way at one setting: what runs first, and what changes it."""

    name: str
    value: float
    system: System
    control: Control | None = None
    bill: float | None = None
    """What it costs per hour, where that is not what its machines cost while they run."""


@dataclass(frozen=True)
class Course:
    """A demand over `length_s`, and the share of each application's queries that is to be in time."""

    demands: Sequence[AppDemand]
    length_s: float
    attain: Mapping[str, float]
    seeds: tuple[int, ...] = (0,)
    noise: NoiseName = "table"
    stretch_s: float = 3600.0
    cancel: threading.Event | None = None
    fresh: tuple[int, ...] = ()
    """Seeds under which the chosen setting is played once more: queries that it was not tuned on."""
    _drawn: dict[int, tuple[list[Stream], dict[str, Coming]]] = field(default_factory=dict, repr=False, compare=False)

    def drawn(self, seed: int) -> tuple[list[Stream], dict[str, Coming]]:
        """The queries of a seed, and the requests for text by application, drawn once."""
        if seed not in self._drawn:
            check_size(self.demands, self.length_s, seeds=len(self.seeds), asked=True)
            number, length_s = seed_of(seed, 0), self.length_s
            streams = [demand.stream(number, length_s) for demand in self.demands if demand.text is None]
            texts = {one.app: coming_of(one, number, length_s) for one in self.demands if one.text is not None}
            self._drawn[seed] = streams, texts
        return self._drawn[seed]


@dataclass(frozen=True)
class Played:
    """What came of one setting, over all seeds: money, and the share of queries in time.

    `worst` is the lowest share of a stretch (an hour), `machines` the most that were paid at once on average over one.
    """

    setting: str
    value: float
    cost_per_hour: float
    in_time: Mapping[str, float]
    worst: Mapping[str, float]
    queries: int
    timely: int
    costs: tuple[float, ...] = ()
    stretches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def late(self) -> float:
        """Of all queries, the share that is late or never answered."""
        return 1.0 - self.timely / max(self.queries, 1)

    def reaches(self, attain: Mapping[str, float]) -> bool:
        """Whether every application has as many in time as is asked."""
        return all(self.in_time.get(app, 0.0) >= share for app, share in attain.items())

    def per_million(self, hours: float) -> float:
        """Money for a million queries in time."""
        return 1e6 * self.cost_per_hour * hours / self.timely if self.timely else float("inf")


@dataclass(frozen=True)
class Tuned:
    """A way at its cheapest setting that reaches what is asked (`best`), or none does; and all that was played."""

    way: str
    best: Played | None
    tried: tuple[Played, ...]
    note: str = ""
    fresh: Played | None = None
    """The best setting under queries that it was not tuned on."""

    @property
    def shown(self) -> Played | None:
        """What to report: under fresh queries where these were played."""
        return self.fresh or self.nearest

    @property
    def nearest(self) -> Played | None:
        """The best setting, or the one that came nearest."""
        if self.best is not None or not self.tried:
            return self.best
        return max(self.tried, key=lambda one: (min(one.in_time.values(), default=0.0), -one.cost_per_hour))


def play(setting: Setting, course: Course) -> Played:
    """A setting under the course, once per seed."""
    costs: list[float] = []
    asked: list[dict[str, _Counted]] = []
    for seed in course.seeds:
        number, (streams, texts) = seed_of(seed, 0), course.drawn(seed)
        queries, horizon_ms, stop = None, 1000.0 * course.length_s, course.cancel or threading.Event()
        if setting.system.groups:
            queries = Simulation(
                setting.system, streams, seed=number, noise=noise_of(course.noise), horizon_ms=horizon_ms
            )  # fmt: skip
            follow_load(queries, setting.system)
        runs = {
            app: TokenRun(app, system, texts[app], number, horizon_ms) for app, system in setting.system.texts.items()
        }
        if setting.control is not None:
            setting.control(SideBySide(setting.system, queries, runs) if runs else queries)
        paid, counted = 0.0, dict[str, _Counted]()
        if queries is not None:
            result = queries.run(cancel=course.cancel)
            paid += sum(ms * result.prices[name] for name, ms in result.paid_ms.items()) / 1e9 / horizon_ms
            counted |= _in_time(result, course)
        for app, run in runs.items():
            run.play(stop)
            counted[app] = _in_limits(run.finish(), course, app)
            paid += run.cost_per_hour()
        costs.append(paid if setting.bill is None else setting.bill)
        asked.append(counted)
    came = {app: np.sum([one[app][0] for one in asked], axis=0) for app in asked[0]}
    good = {app: np.sum([one[app][1] for one in asked], axis=0) for app in asked[0]}
    shares = {app: np.divide(good[app], came[app], out=np.ones(len(came[app])), where=came[app] > 0) for app in came}
    return Played(
        setting=setting.name,
        value=setting.value,
        cost_per_hour=sum(costs) / len(costs),
        in_time={app: float(good[app].sum() / max(came[app].sum(), 1)) for app in came},
        worst={app: float(share.min(initial=1.0)) for app, share in shares.items()},
        queries=int(sum(count.sum() for count in came.values())),
        timely=int(sum(count.sum() for count in good.values())),
        costs=tuple(costs),
        stretches={app: tuple(share.round(6).tolist()) for app, share in shares.items()},
    )


def _in_time(result: RunResult, course: Course) -> dict[str, _Counted]:
    """Per application, how many came in each stretch, and how many of them were answered in time."""
    every, found = result.columns, {}
    place, stretches = _places(every.arrival, course)
    for row, app in enumerate(result.apps):
        mine = every.app == row
        came = np.bincount(place[mine], minlength=stretches)
        found[app] = (came, np.bincount(place[mine & every.in_time], minlength=stretches))
    return found


def _in_limits(played: PlayedText, course: Course, app: str) -> _Counted:
    """The same of an application that makes text: in time is a request that keeps all its limits at once."""
    text = next(demand.text for demand in course.demands if demand.app == app)
    assert text is not None  # it was played as text
    place, stretches = _places(played.arrival_ms, course)
    good = played.within(text.limits)
    return np.bincount(place, minlength=stretches), np.bincount(place[good], minlength=stretches)


def _places(arrival_ms: NDArray[np.float64], course: Course) -> tuple[NDArray[np.int64], int]:
    """The stretch of the course that each came in, and how many stretches there are."""
    stretches = max(1, round(np.ceil(course.length_s / course.stretch_s)))
    return np.minimum((arrival_ms / (1000.0 * course.stretch_s)).astype(np.int64), stretches - 1), stretches


def tuned(
    way: str, settings: Sequence[Callable[[], Setting]], course: Course, *, note: str = "", both: bool = False
) -> Tuned:
    """The way at the cheapest of its settings that reaches what the course asks; each is made when it is played."""
    plays = [partial(_made_and_played, make) for make in settings]
    return cheapest_of(way, plays, course, note=note, both=both)


def _made_and_played(make: Callable[[], Setting], course: Course) -> Played:
    return play(make(), course)


def cheapest_of(
    way: str, plays: Sequence[Callable[[Course], Played]], course: Course, *, note: str = "", both: bool = False
) -> Tuned:
    """The cheapest of some settings that reaches what the course asks; a setting is what plays it.

    Settings are in order, dearest first; with less money fewer are in time, as a rule. A few all over are played, then
    those between the cheapest that reaches it and the next, by halves; with `both`, also those before it (a scaler that
    runs behind its demand may cost more with less room).
    """
    tried: dict[int, Played] = {}
    last = len(plays) - 1

    def look(number: int) -> None:
        if number not in tried:
            tried[number] = plays[number](course)

    for quarter in range(5):
        look(round(last * quarter / 4))
    sides = (1, -1) if both else (1,)
    while (best := _cheapest(tried, course)) is not None:
        known = sorted(tried)
        beside = [(known.index(best) + side, side) for side in sides]
        gaps = [(best + known[place]) // 2 for place, _ in beside if 0 <= place < len(known)]
        new = [number for number in gaps if number not in tried]
        if not new:
            break
        for number in new:
            look(number)
    played = tuple(tried[number] for number in sorted(tried))
    if best is None:
        return Tuned(way, None, played, note)
    again = plays[best](replace(course, seeds=course.fresh, _drawn={})) if course.fresh else None
    return Tuned(way, tried[best], played, note, again)


def _cheapest(tried: Mapping[int, Played], course: Course) -> int | None:
    reached = [number for number, one in tried.items() if one.reaches(course.attain)]
    return min(reached, key=lambda number: (tried[number].cost_per_hour, number), default=None)
