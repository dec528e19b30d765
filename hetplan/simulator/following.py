"""Systems that follow demand: what is foreseen of each application, and going over to the system for it in time.

What would run is handed in as a callable from rates and what runs to a system (a planner's, a table's). A `Foresight`
says for which rates: the forecast over the time until what is asked for now would serve, plus what has piled up; less
only once less has been foreseen for `hold_s`. `follow` goes over as plans replace plans: what is added serves first,
then routes change, then what is left over goes. `scheduled` does the same by the clock, ahead of each hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from hetplan.dispatch.forecasting import Forecast, ForecastName
from hetplan.serving.system import Group, System
from hetplan.serving.tokens import usual_s
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.simulation import Simulation, content_of

__all__ = ["Followed", "Foresight", "Names", "Seer", "follow", "limits_s", "scheduled", "start_s"]

Held = TypeVar("Held")


class Watched(Protocol):
    """What can be looked at while it is played."""

    @property
    def now_ms(self) -> float:
        """The time of the run."""
        ...

    @property
    def under_way(self) -> int:
        """How many queries wait or are served."""
        ...

    def arrived(self) -> dict[str, int]:
        """How many queries of each application came since this was last asked."""
        ...


class Followed(Watched, Protocol[Held]):
    """A run that goes over from one system to another."""

    system: Held
    horizon_ms: float

    def at(self, when_ms: float, change: Callable[[], None], /) -> None:
        """Make a change at a time."""
        ...

    def change(self, system: Held, /) -> None:
        """Go over to another system."""
        ...


CATCH_UP_S = 60.0
"""What has piled up is to be served within so long."""


@dataclass(frozen=True)
class Foresight:
    """How demand is foreseen: by which forecast, at which quantile of its errors, times which margin.

    `limit_s` is how long a query may be under way before it has piled up, `limits_s` that of single applications.
    `history` has the rates seen before the run, per application, one per `every_s`.
    """

    kind: ForecastName = "ewma"
    quantile: float = 0.95
    every_s: float = 15.0
    lead_s: float = 60.0
    hold_s: float = 300.0
    season_s: float = 86_400.0
    limit_s: float = 0.1
    limits_s: Mapping[str, float] = field(default_factory=dict)
    margin: float = 1.0
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Seer:
    """What one run foresees, look by look."""

    def __init__(self, how: Foresight, apps: Sequence[str]) -> None:
        self.how = how
        self.forecasts = {
            app: Forecast(how.kind, how.quantile, how.every_s, how.lead_s + how.every_s, season_s=how.season_s)
            for app in apps
        }
        for app, forecast in self.forecasts.items():
            forecast.before(how.history.get(app, ()))
        self._wanted: deque[tuple[float, dict[str, float]]] = deque()

    def look(self, run: Watched) -> dict[str, float]:
        """The rates to be ready for, after one more step of `every_s`."""
        now_s, rates = run.now_ms / 1000.0, dict[str, float]()
        for app, count in run.arrived().items():
            if app in self.forecasts:
                rates[app] = count / self.how.every_s
                self.forecasts[app].observe(rates[app])
        total = sum(rates.values())
        # Queries under way beyond those that a limit's time brings have piled up.
        usual = sum(rate * self.how.limits_s.get(app, self.how.limit_s) for app, rate in rates.items())
        piled = max(0.0, run.under_way - usual)
        extra = piled / CATCH_UP_S / total if total > 0 else 0.0
        seen = {
            app: self.how.margin * forecast.ahead() + rates.get(app, 0.0) * extra
            for app, forecast in self.forecasts.items()
        }
        self._wanted.append((now_s, seen))
        while self._wanted[0][0] < now_s - self.how.hold_s:
            self._wanted.popleft()
        return {app: max(one[app] for _, one in self._wanted) for app in seen}


class Names:
    """One name for each content of a group, so that systems made apart share the machines that are alike."""

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}

    def named(self, system: System, *, labels: Mapping[str, str] | None = None) -> System:
        """The same system, its groups and loads called by what they hold, and by the label that a group has."""
        groups, ways = list[Group](), dict[tuple[str, str], tuple[str, str]]()
        used = dict[str, int]()
        for group in system.groups:
            loads = tuple(replace(load, id=f"l{number}") for number, load in enumerate(group.loads))
            alike = replace(group, id="", loads=loads, count=1, standby=0, ready_ms=0.0)
            key = (content_of(alike), (labels or {}).get(group.id, ""))
            name = self._known.setdefault(key, f"{group.hardware}.g{len(self._known)}")
            used[name] = used.get(name, 0) + 1
            if used[name] > 1:
                name = f"{name}.{used[name]}"
            groups.append(replace(group, id=name, loads=loads))
            ways |= {(group.id, old.id): (name, new.id) for old, new in zip(group.loads, loads, strict=True)}
        routes = []
        for route in system.routes:
            renamed = [replace(way, **_at(ways[way.group, way.load])) for way in route.ways]
            backups = tuple(replace(one, **_at(ways[one.group, one.load])) for one in route.backups)
            routes.append(replace(route, ways=tuple(renamed), backups=backups))
        texts = {app: text.by_kind(f"{app}: ") for app, text in system.texts.items()}
        return replace(system, groups=tuple(groups), routes=tuple(routes), texts=texts)


def _at(place: tuple[str, str]) -> dict[str, Any]:
    return {"group": place[0], "load": place[1]}


def start_s(systems: Sequence[System]) -> float:
    """How long the slowest of their machines takes to start."""
    return max((system.ready_ms for system in systems), default=0.0) / 1000.0


def limits_s(system: System, demands: Sequence[AppDemand]) -> dict[str, float]:
    """How long requests for text are under way on the mean where their limits are just kept."""
    return {
        one.app: usual_s(one.text.lengths, one.text.limits, [group.law for group in system.texts[one.app].fleet.groups])
        for one in demands
        if one.text is not None
    }


def follow(
    system_for: Callable[[Mapping[str, float], Held], Held | None], how: Foresight, apps: Sequence[str]
) -> Callable[[Followed[Held]], None]:
    """What lets a run go over to the system for the rates that are foreseen, every `every_s`.

    `system_for` makes it of these and of what runs; None: what runs goes on.
    """

    def control(run: Followed[Held]) -> None:
        seer, every_ms = Seer(how, apps), 1000.0 * how.every_s
        last = run.system

        def look() -> None:
            nonlocal last
            following = system_for(seer.look(run), last)
            if following is not None and following is not last:
                run.change(following)
                last = following
            if run.now_ms + every_ms < run.horizon_ms:
                run.at(run.now_ms + every_ms, look)

        run.at(every_ms, look)

    return control


def scheduled(steps: Sequence[tuple[float, System]]) -> Callable[[Simulation], None]:
    """What lets a run go over to each system at its time (in s): what is added is asked for ahead, to serve then."""

    def control(run: Simulation) -> None:
        before = run.system
        for at_s, system in steps:
            if system is before:
                continue
            ready_ms = _ahead_ms(before, system)
            run.at(max(0.0, 1000.0 * at_s - ready_ms), lambda system=system: run.change(system))  # type: ignore[misc]
            before = system

    return control


def _ahead_ms(before: System, after: System) -> float:
    """How long before a change what it adds has to be asked for."""
    had = {group.id: group.count for group in before.groups}
    return max((group.ready_ms for group in after.groups if group.count > had.get(group.id, 0)), default=0.0)
