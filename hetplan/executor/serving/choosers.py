"""Who serves a query next: every rule that a plan may name, carried out by calling `hetplan.dispatch`.

Rules of two kinds. Under some a query is sent at once to a queue at a worker: shares along the path,
turns, shortest queue, earliest completion. Under the others it waits in the router until a worker is free (see
`central_choosers`). A chooser is made anew whenever workers come or go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from time import monotonic
from typing import Any

from hetplan.dispatch.decision_kernels import done_ms, has_less_to_do
from hetplan.dispatch.pipelines import PathShares
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import Task
from hetplan.profiles.plan import Route
from hetplan.serving.route_choice import best_route

__all__ = ["Chooser", "EarliestChooser", "NoWorker", "ShareChooser", "TurnChooser", "by_class", "route_for"]


class NoWorker(LookupError):
    """No worker that is up may serve this query."""


class Chooser:
    """A rule at one step of an application; its length is how many queries wait with it.

    `queues` are all that wait, in the order of each queue: none where the rule sends every query at once.
    """

    queues: Sequence[deque[Task]] = ()

    def __len__(self) -> int:
        return sum(map(len, self.queues))

    def left(self) -> list[Task]:
        """All that wait, oldest first; they wait here no longer."""
        tasks = sorted((task for queue in self.queues for task in queue), key=lambda task: task.entered_s)
        for queue in self.queues:
            queue.clear()
        return tasks

    def place(self, task: Task) -> Lane | None:
        """The lane that a query is sent to now; None where it waits with the chooser."""
        raise NotImplementedError

    def finished(self, lane: Lane, task: Task) -> None:
        """A query that was sent to a lane has been answered."""


def by_class(routes: Iterable[Route], at: Mapping[str, float]) -> list[Route]:
    """The routes for a class of query, one per (prefix, step).

    Those that name it, else those for any class; where the plan has neither, those of the next larger class, else of
    the largest.

    >>> routes = [Route(when={"batch": 8}, to={"a": 1.0}), Route(when={"batch": 64}, to={"b": 1.0})]
    >>> [list(by_class(routes, {"batch": batch})[0].to) for batch in (8, 9, 999)]
    [['a'], ['b'], ['b']]
    """
    chosen: dict[tuple[Any, ...], tuple[tuple[Any, ...], Route]] = {}
    for route in routes:
        named = {axis: value for axis, value in route.when.items() if axis in at}
        if len(named) < len(route.when):
            continue
        exact = all(at[axis] == value for axis, value in named.items())
        holds = all(at[axis] <= value for axis, value in named.items())
        size = sum(named.values())
        place = (route.prefix, route.node)
        rank = (exact, holds, len(named) if exact else 0, -size if holds else size)
        if place not in chosen or rank > chosen[place][0]:
            chosen[place] = (rank, route)
    if not chosen:
        return [route for route in routes if not route.when] or list(routes)
    return [route for _, route in chosen.values()]


def by_outcome(routes: Iterable[Route], outcomes: Mapping[str, str]) -> list[Route]:
    """The routes for queries whose steps came to these outcomes: per (prefix, step), those that name most of them.

    >>> routes = [Route(after={"small": "unsure"}, to={"a": 1.0}), Route(to={"b": 1.0})]
    >>> [list(by_outcome(routes, {"small": outcome})[0].to) for outcome in ("unsure", "sure")]
    [['a'], ['b']]
    """
    fitting = [
        route for route in routes if all(outcomes.get(step) == name for step, name in (route.after or {}).items())
    ]
    most: dict[tuple[Any, ...], int] = {}
    for route in fitting:
        place = (route.prefix, route.node)
        most[place] = max(most.get(place, 0), len(route.after or {}))
    return [route for route in fitting if len(route.after or {}) == most[route.prefix, route.node]]


def route_for(
    routes: Sequence[Route], path: tuple[str, ...], outcomes: Mapping[str, str], at: Mapping[str, float]
) -> Route | None:
    """The route of a step (rule: `serving.route_choice`); of a class that no route names, that of the next class.

    >>> routes = [Route(when={"batch": 8}, to={"a": 1.0}), Route(prefix=("x",), when={"batch": 64}, to={"b": 1.0})]
    >>> [list(route_for(routes, ("x",), {}, {"batch": batch}).to) for batch in (8, 9, 64)]
    [['a'], ['b'], ['b']]
    """
    found = best_route(routes, path=path, outcomes=outcomes, at=at)
    return found or best_route(by_class(by_outcome(routes, outcomes), at), path=path, outcomes=outcomes)


class ShareChooser(Chooser):
    """Shares of the path so far; inside a group a worker at random, in turn, or the one with least to do.

    Rules shares/1, path-shares/1, most-accurate-first/1 and chosen-plan/1. A load with no worker up passes its share on
    to the others of its route. `sheds` gives up what the shares of an entrance leave over.
    """

    def __init__(
        self, routes: Sequence[Route], node: str, lanes: Sequence[Lane], random: Random, *,
        balancing: str | None = None, sheds: bool = False,
    ) -> None:  # fmt: skip
        self._random, self._balancing, self._node = random, balancing, node
        self._groups: dict[str, list[Lane]] = {}
        for lane in lanes:
            if lane.open:
                self._groups.setdefault(lane.name, []).append(lane)
        self._turn = dict.fromkeys(self._groups, 0)
        named = any(route.node is not None for route in routes)
        own = [route for route in routes if route.node == node or not named]
        self._routes = [alive for route in own if (alive := self._alive(route, sheds))]
        self._sheds = sheds
        self._rules: dict[tuple[Any, ...], PathShares] = {}
        self._key = node if named else None
        self._keyed = any(route.prefix for route in self._routes)
        alone = len(self._groups) == 1 and not sheds and not self._keyed
        self._only = next(iter(self._groups)) if alone else None

    def place(self, task: Task) -> Lane | None:
        """By the shares."""
        if not self._groups:
            raise NoWorker(f"no worker for step {self._node} is up")
        return self.within(self._only or self.group(task))

    def group(self, task: Task) -> str:
        """The load whose turn it is."""
        if not self._routes:
            return self._random.choice(list(self._groups))
        path = task.path if self._keyed else ()
        key = (task.query.kind, task.outcomes, path)
        rule = self._rules.get(key)
        if rule is None:
            route = route_for(self._routes, path, dict(task.outcomes), task.query.at)
            rule = self._rules[key] = PathShares([route] if route is not None else [])
        draw = self._random.random()
        chosen = rule.choose(path, self._key, draw)
        if chosen == _SHED:
            raise NoWorker("the plan leaves this part of the demand unserved")
        return chosen

    def within(self, load: str) -> Lane:
        """The worker of a group."""
        lanes = self._groups[load]
        if len(lanes) == 1:
            return lanes[0]
        if self._balancing in ("shortest_queue", "round_robin"):
            self._turn[load] = turn = (self._turn[load] + 1) % len(lanes)
            return _in_turn(lanes, turn, self._balancing)
        return lanes[int(self._random.random() * len(lanes))]

    def _alive(self, route: Route, sheds: bool) -> Route | None:
        to = {load: share for load, share in route.to.items() if load in self._groups and share > 0.0}
        left = 1.0 - sum(route.to.values())
        if sheds and left > 1e-9:
            to[_SHED] = left
        return route.model_copy(update={"to": to}) if to else None


_SHED = "~"
"""No load has this name: the part of a route's shares that goes nowhere."""


def _in_turn(lanes: Sequence[Lane], turn: int, balancing: str) -> Lane:
    """The one whose turn it is, or that has the shortest queue.

    Of equal queues the one in turn, as in simulation: it has served longest. The first of the list made ten times as
    many queries late as plans promise (p99 near the service time).
    """
    best = lanes[turn]
    for step in range(1, len(lanes) if balancing == "shortest_queue" else 1):
        if best.bound == 0:
            break
        lane = lanes[(turn + step) % len(lanes)]
        if has_less_to_do(lane.bound, lane.servers, best.bound, best.servers):
            best = lane
    return best


class TurnChooser(Chooser):
    """Every worker in turn, the one with fewest queries, or any (rule queue-slack/1: its workers look up their policy).

    Groups that the plan gives unlike shares are chosen by these first.
    """

    def __init__(self, shares: ShareChooser | None, lanes: Sequence[Lane], balancing: str, random: Random) -> None:
        self._shares, self._balancing, self._random = shares, balancing, random
        # Under a policy the loads of a worker share one queue: one lane is for all of them.
        self._lanes = list({lane.unit: lane for lane in reversed(lanes) if lane.open}.values())[::-1]
        self._next = -1

    def place(self, task: Task) -> Lane | None:
        """The next one."""
        if self._shares is not None:
            return self._shares.place(task)
        lanes = self._lanes
        if not lanes:
            raise NoWorker("no worker is up")
        if self._balancing == "random":
            return lanes[self._random.randrange(len(lanes))]
        self._next = (self._next + 1) % len(lanes)
        return _in_turn(lanes, self._next, self._balancing)


class EarliestChooser(Chooser):
    """On arrival to the queue where the query is predicted to be done first (rule earliest/1)."""

    def __init__(self, lanes: Sequence[Lane], times: Any) -> None:
        self._lanes = [lane for lane in lanes if lane.open]
        self._times = times
        self._kind = [times.types.index(times.type_of(lane)) for lane in self._lanes]

    def place(self, task: Task) -> Lane | None:
        """Where it would be answered first."""
        if not self._lanes:
            raise NoWorker("no worker is up")
        row, now = self._times.row(task), monotonic()
        takes_ms, now_ms = self._times.service_ms[row].tolist(), 1e3 * now
        ends = [
            done_ms(
                1e3 * lane.free_s if lane.bound else now_ms, 1e3 * lane.due_s, lane.bound > 0, now_ms, takes_ms[own]
            )
            for lane, own in zip(self._lanes, self._kind, strict=True)
        ]
        best = ends.index(min(ends))
        lane = self._lanes[best]
        task.expected_s = takes_ms[self._kind[best]] / 1e3
        if lane.bound == 0:
            lane.due_s = now + task.expected_s
            lane.free_s, lane.owed_s = now, 0.0
        lane.free_s = max(lane.free_s, now) + task.expected_s
        lane.owed_s += task.expected_s
        return lane

    def finished(self, lane: Lane, task: Task) -> None:
        """What is expected of a worker is put right whenever it has answered."""
        now = monotonic()
        lane.owed_s = max(lane.owed_s - task.expected_s, 0.0)
        lane.free_s = now + lane.owed_s
        following = next(iter(lane.link.pending.values()), None)
        lane.due_s = now + (following.expected_s if following is not None else 0.0)
