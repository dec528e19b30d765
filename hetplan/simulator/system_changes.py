"""Systems that follow demand: the simulated world of `hetplan.dispatch.replanning`, and going over in time.

When to plan and for which rates is decided as `hetplan autoscale` decides it: `look_every` hands its decider the
counters of a run. What would run is handed in (`Plans`: a planner's systems, a table's). `follow` goes over as plans
replace plans: what is added serves first, then routes change, then what is left over goes. `scheduled` does the same
by the clock, ahead of each hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from hetplan.dispatch.replanning import Look, Replanning
from hetplan.serving.system import Group, System
from hetplan.serving.tokens import usual_s
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.simulation import Simulation, content_of

__all__ = ["Followed", "Names", "Plans", "follow", "lead_and_limits", "look_every", "scheduled"]

Held = TypeVar("Held")


class Followed(Protocol[Held]):
    """A run that is looked at, and goes over from one system to another."""

    system: Held
    horizon_ms: float

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

    def at(self, when_ms: float, change: Callable[[], None], /) -> None:
        """Make a change at a time."""
        ...

    def change(self, system: Held, /) -> None:
        """Go over to another system."""
        ...


class Plans(Protocol[Held]):
    """What makes the system for other rates."""

    @property
    def short(self) -> bool:
        """Whether the last one that was made is for less than the rates that it was asked for."""
        ...

    def system_for(self, rates: Mapping[str, float], before: Held | None = None, /) -> Held | None:
        """The system for these rates, after another; None: what runs goes on."""
        ...


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


def lead_and_limits(system: System, demands: Sequence[AppDemand]) -> dict[str, Any]:
    """How long the slowest machine takes to start, and how long queries are under way where limits are just kept."""
    limits_s = {one.app: one.slo_ms / 1000.0 for one in demands if one.text is None and math.isfinite(one.slo_ms)}
    for one in demands:
        if one.text is not None:
            laws = [group.law for group in system.texts[one.app].fleet.groups]
            limits_s[one.app] = usual_s(one.text.lengths, one.text.limits, laws)
    return {"lead_s": system.ready_ms / 1000.0, "limits_s": limits_s}


def look_every(
    run: Followed[Any], how: Replanning, apps: Sequence[str], act: Callable[[Look], Mapping[str, float] | None]
) -> None:
    """Let a decider with these settings look at a run from its begin on, and `act` where a plan is due.

    That says which rates it planned for: none where it has to go on at the next look, None where it came to nothing.
    """
    decider, counts = replace(how), Counter[str](dict.fromkeys(apps, 0))

    def look() -> None:
        now_s, arrived = run.now_ms / 1000.0, run.arrived()
        counts.update({app: arrived.get(app, 0) for app in apps})
        said = decider.look(now_s, counts, run.under_way)
        if said.due and said.demand_qps:
            planned = act(said)
            if planned is None:
                decider.failed(now_s)
            elif planned:
                decider.planned(now_s, planned)
        following_ms = run.now_ms + 1000.0 * how.every_s
        if following_ms < run.horizon_ms:
            run.at(following_ms, look)

    run.at(0.0, look)


def follow(plans: Plans[Held], how: Replanning, apps: Sequence[str]) -> Callable[[Followed[Held]], None]:
    """What lets a run go over to the system for the rates that are decided.

    A plan that falls short of them (few moves are allowed, stock ends) is tried again at the next look.
    """

    def control(run: Followed[Held]) -> None:
        last = run.system

        def act(look: Look) -> Mapping[str, float] | None:
            nonlocal last
            following = plans.system_for(look.demand_qps, last)
            if following is None:
                return None
            if following is not last:
                run.change(following)
                last = following
            return {} if plans.short else look.demand_qps

        look_every(run, how, apps, act)

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
