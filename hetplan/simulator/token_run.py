"""Machines that make text, played while they come and go: one run that may be looked at, changed and gone on with.

A machine that is asked for serves after its start and the loading of its model, and is paid from when it is asked for.
One that is sent away takes nothing new. What it has begun ends there, what waits goes to the others, and it is paid
until its last token. A change of plan is played as with other queries (`Simulation.change`): what comes serves first,
then what is left over goes. Machines are the same where their name is: an offer, an engine, its chunk and sequences.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError, Interrupted
from hetplan.serving.tokens import Group, TextCrew, TextSystem
from hetplan.simulator.figures import cost_of
from hetplan.simulator.run_records import Glance
from hetplan.simulator.tokens import Coming, Played, kinds_of, played_of, rows_of, rules_of, world_of

__all__ = ["CrewFigures", "TokenRun"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LOOKS = 50
"""So often a run says how far it is, and whether it was cancelled is looked at."""
_SHUT = 0
"""The kind, as the router sees it, of a machine that takes nothing new."""


@dataclass
class _Machine:
    """One machine: the rows of its instances, when it was asked for, when it serves, and when it was sent away."""

    crew: TextCrew
    rows: list[int]
    asked_ms: float
    ready_ms: float
    shut_ms: float | None = None

    def paid_until(self, clock: Floats, horizon_ms: float) -> float:
        """Until its last token, where it was sent away."""
        from hetplan.simulator import token_kernels as k

        if self.shut_ms is None:
            return horizon_ms
        last = max((max(clock[row, k.IDLE], clock[row, k.LINK]) for row in self.rows), default=0.0)
        return float(min(max(self.shut_ms, last), horizon_ms))


@dataclass(frozen=True)
class CrewFigures:
    """Of one run: the most machines at a time, the busy share of the time that they served, requests that waited on
    the mean, and tokens of an iteration."""

    most: int
    utilisation: float
    waiting: float
    batch: float


@dataclass
class TokenRun:
    """One run of an application over so long a time, under requests that are drawn already."""

    app: str
    system: TextSystem
    coming: Coming
    seed: int
    horizon_ms: float
    buckets: int = 120
    whole: bool = True
    """Whether all requests count, from the first to the last."""
    now_ms: float = 0.0
    _todo: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list, repr=False)
    _machines: list[_Machine] = field(default_factory=list, repr=False)
    _kinds: dict[tuple[object, ...], int] = field(default_factory=dict, repr=False)
    _groups: list[Group] = field(default_factory=list, repr=False)
    """By kind; the first is the shut one's, which takes nothing."""
    _asked: int = 0
    _changes: int = 0
    _counted: int = 0
    _glanced: dict[tuple[str, ...], tuple[float, Floats]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """The machines of the first system serve at once."""
        self._groups = [self.system.crews[0].groups[0]]
        course = np.zeros((self.buckets + 1, 4))
        course[0, 0] = max(self.horizon_ms, 1e-6) / self.buckets
        none = np.zeros(0, dtype=np.int64)
        link = self.system.fleet.link_ms_per_token
        self._world = world_of(self._groups, none, self.coming, link, gaps=True, course=course)
        self._rules = rules_of(self.system.fleet, self._groups, none, self.coming, seed=self.seed)
        for crew in self.system.crews:
            self._ask(crew, crew.count, ready_ms=0.0)

    # What is seen

    @property
    def under_way(self) -> int:
        """How many requests wait or are served."""
        from hetplan.simulator import token_kernels as k

        progress = self._world.progress
        refused = np.count_nonzero(self._world.asked[: progress[k.COMING], k.MACHINE] < 0)
        return int(progress[k.COMING] - progress[k.SERVED] - refused)

    @property
    def come(self) -> int:
        """How many requests came so far."""
        from hetplan.simulator import token_kernels as k

        return int(self._world.progress[k.COMING])

    def held(self) -> int:
        """How many requests wait, are computed or are on a link, counted one by one where they are."""
        from hetplan.simulator import token_kernels as k

        state, asked, found = self._world.state, self._world.asked, int(self._world.progress[k.ON_LINKS])
        for first, link in ((k.HEAD, k.NEXT), (k.NEWEST, k.BEFORE)):
            for request in state[:, first]:
                while request >= 0:
                    found, request = found + 1, asked[request, link]
        return found

    def arrived(self) -> dict[str, int]:
        """How many requests came since this was last asked."""
        before, self._counted = self._counted, self.come
        return {self.app: self._counted - before}

    def workers(self, crew: str) -> int:
        """How many machines of a crew are wanted now (serving or on their way)."""
        return len(self._wanted(crew))

    def serving(self, crew: str) -> int:
        """How many machines of a crew take requests now."""
        return sum(one.ready_ms <= self.now_ms for one in self._wanted(crew))

    def glance(self, crews: Sequence[str]) -> Glance:
        """What an autoscaler sees of crews that serve together, over the time since it last glanced at them."""
        from hetplan.simulator import token_kernels as k

        mine = [one for crew in crews for one in self._wanted(crew)]
        ready = [one for one in mine if one.ready_ms <= self.now_ms]
        rows = [row for one in ready for row in one.rows]
        before_ms, before = self._glanced.get(tuple(crews), (0.0, np.zeros(0)))
        busy = self._world.clock[:, k.BUSY].copy()
        self._glanced[tuple(crews)] = (self.now_ms, busy)
        spent = busy.copy()
        spent[: len(before)] -= before
        span = max(self.now_ms - before_ms, 1e-9)
        use = float(np.minimum(spent[rows] / span, 1.0).mean()) if rows else 0.0
        return Glance(self.now_ms, len(mine), len(ready), use, float(self.under_way))

    # What changes

    def at(self, when_ms: float, change: Callable[[], None]) -> None:
        """Make a change at a time; it takes effect before the events of its instant."""
        heapq.heappush(self._todo, (when_ms, self._asked, change))
        self._asked += 1

    def change(self, system: TextSystem) -> None:
        """Go over to another system: what comes serves first, what goes serves until then."""
        delay = 0.0
        for crew in system.crews:
            there = self._wanted(crew.id)
            still = [one.ready_ms - self.now_ms for one in there[: crew.count]]
            delay = max(delay, *still, 0.0) if still else delay
            if crew.count > len(there):
                delay = max(delay, crew.ready_ms)
                self._ask(crew, crew.count - len(there))
        self._changes += 1
        number, counts = self._changes, {crew.id: crew.count for crew in system.crews}

        def switch() -> None:
            if self._changes != number:
                # Something else was asked for since.
                return
            self._follow(system)
            names = dict.fromkeys(one.crew.id for one in self._machines if one.shut_ms is None)
            self._shut([one for name in names for one in self._wanted(name)[counts.get(name, 0) :]])

        if delay > 0:
            self.at(self.now_ms + delay, switch)
        else:
            switch()

    def scale(self, name: str, count: int) -> None:
        """Have so many machines of a crew of the system: new ones serve once they are ready, others go now."""
        crew = next(crew for crew in self.system.crews if crew.id == name)
        there = self._wanted(name)
        self._ask(crew, count - len(there))
        self._shut(there[count:])

    def fail(self, name: str, count: int) -> None:
        """So many machines of a crew break, the last ones: what they served starts over elsewhere."""
        from hetplan.simulator import token_kernels as k

        there = self._wanted(name)
        gone = there[max(len(there) - count, 0) :]
        for machine in gone:
            machine.shut_ms = self.now_ms
            self._rules.kind[machine.rows] = _SHUT
        for row in (row for machine in gone for row in machine.rows if machine.ready_ms <= self.now_ms):
            k.lose(self._world, self._rules, row, self.now_ms)

    # The run

    def until(self, when_ms: float) -> None:
        """Play what comes before a moment, and make the changes up to it."""
        while self._todo and self._todo[0][0] <= when_ms:
            at_ms, _, change = heapq.heappop(self._todo)
            self._play(at_ms)
            change()
        self._play(when_ms)

    def play(self, stop: threading.Event, progressed: Callable[[float], None] | None = None) -> None:
        """Play what comes until the horizon; says now and then how far it is."""
        for look in range(1, _LOOKS + 1):
            if stop.is_set():
                raise Interrupted("the simulation was cancelled")
            self.until(self.horizon_ms * look / _LOOKS)
            if progressed is not None:
                progressed(look / _LOOKS)

    def finish(self) -> Played:
        """Play on until all that came is served; what became of each request."""
        self.until(self.horizon_ms)
        self._play(np.inf)
        return played_of(self._world, self.coming, self._rules.alone, whole=self.whole)

    def cost_per_hour(self) -> float:
        """What was paid, on the mean over the time that was asked for."""
        clock, end_ms = self._world.clock, self.horizon_ms
        each = ((one.paid_until(clock, end_ms) - min(one.asked_ms, end_ms), one.crew) for one in self._machines)
        return cost_of(sum(paid_ms * crew.price_nanos for paid_ms, crew in each), end_ms)

    def open_ms(self) -> Floats:
        """How many machine-milliseconds there were in each stretch of the run, of machines that took requests."""
        edges = np.linspace(0.0, self.horizon_ms, self.buckets + 1)
        found = np.zeros(self.buckets)
        for one in self._machines:
            until = self.horizon_ms if one.shut_ms is None else one.shut_ms
            found += np.maximum(np.minimum(edges[1:], until) - np.maximum(edges[:-1], one.ready_ms), 0.0)
        return found

    def crews(self, played: Played) -> dict[str, CrewFigures]:
        """What each crew that ever was did."""
        found = dict[str, CrewFigures]()
        for name in dict.fromkeys(one.crew.id for one in self._machines):
            mine = [one for one in self._machines if one.crew.id == name]
            rows = [row for one in mine for row in one.rows]
            ends = [self.horizon_ms if one.shut_ms is None else one.shut_ms for one in mine]
            lasted = sum(
                len(one.rows) * max(one.paid_until(self._world.clock, played.end_ms) - one.ready_ms, 0.0)
                for one in mine
            )
            steps = sorted([(one.ready_ms, 1) for one in mine] + [(end, -1) for end in ends])
            most = int(np.cumsum([step for _, step in steps]).max(initial=0))
            busy = float(played.busy[rows].sum()) / lasted if lasted > 0 else 0.0
            batch = float(played.tokens[rows].sum() / max(int(played.rounds[rows].sum()), 1))
            found[name] = CrewFigures(most, min(busy, 1.0), float(played.waiting[rows].sum()), batch)
        return found

    # Inner workings

    def _play(self, until_ms: float) -> None:
        from hetplan.simulator import token_kernels as k

        if len(self._world.state):
            k.play(self._world, self._rules, 2**62, until_ms)
        if np.isfinite(until_ms):
            self.now_ms = max(self.now_ms, until_ms)

    def _wanted(self, crew: str) -> list[_Machine]:
        """The machines of a crew that were not sent away; the oldest first."""
        return [one for one in self._machines if one.crew.id == crew and one.shut_ms is None]

    def _ask(self, crew: TextCrew, count: int, ready_ms: float | None = None) -> None:
        delay = crew.ready_ms if ready_ms is None else ready_ms
        for _ in range(count):
            kinds = [self._kind(crew, place) for place, group in enumerate(crew.groups) for _ in range(group.count)]
            machine = _Machine(crew, self._more_rows(kinds), self.now_ms, self.now_ms + delay)
            self._machines.append(machine)
            if delay > 0:
                self.at(machine.ready_ms, lambda machine=machine: self._open(machine))  # type: ignore[misc]
            else:
                self._open(machine)

    def _open(self, machine: _Machine) -> None:
        if machine.shut_ms is None:
            self._route(machine, machine.crew)

    def _shut(self, machines: Sequence[_Machine]) -> None:
        """Nothing new goes there; what waits there goes to those that stay."""
        from hetplan.simulator import token_kernels as k

        rows = [row for machine in machines for row in machine.rows]
        for machine in machines:
            machine.shut_ms = self.now_ms
        self._rules.kind[rows] = _SHUT
        for row in rows:
            k.hand_on(self._world, self._rules, row, self.now_ms)

    def _follow(self, system: TextSystem) -> None:
        """Requests reach their machines as a system says from now on."""
        if system.fleet.rule != self.system.fleet.rule:
            raise InputError.one(
                file="plan", path="$.dispatch", value=system.fleet.rule,
                why=f"the plan before it has the rule {self.system.fleet.rule}: one run keeps one rule",
                remedy="Name the rule with --set rule=least-work/1 when the first plan is made.",
            )  # fmt: skip
        self.system = system
        for crew in system.crews:
            for machine in self._wanted(crew.id):
                machine.crew = crew
                if machine.ready_ms <= self.now_ms:
                    self._route(machine, crew)

    def _route(self, machine: _Machine, crew: TextCrew) -> None:
        kinds = [self._kind(crew, place) for place, group in enumerate(crew.groups) for _ in range(group.count)]
        self._rules.kind[machine.rows] = kinds

    def _kind(self, crew: TextCrew, place: int) -> int:
        """The number of a kind: a law, and how requests reach it."""
        group = crew.groups[place]
        key = (crew.id, place, group.limit, group.share, group.weight, group.cap)
        if key not in self._kinds:
            self._groups.append(group)
            self._kinds[key] = len(self._groups) - 1
            fleet = self.system.fleet
            self._world = self._world._replace(**kinds_of(self._groups, self.coming, fleet.link_ms_per_token))
            rules = rules_of(fleet, self._groups, self._rules.kind, self.coming, seed=self.seed)
            rules.takes[:, _SHUT] = 0
            self._rules = rules._replace(drawn=self._rules.drawn)
        return self._kinds[key]

    def _more_rows(self, kinds: Sequence[int]) -> list[int]:
        """Rows for instances that do not take anything yet."""
        world, first = self._world, len(self._world.state)
        kind = np.array(kinds, dtype=np.int64)
        fresh = rows_of(kind, self.coming, gaps=True)
        joined: dict[str, Any] = {name: np.concatenate([getattr(world, name), rows]) for name, rows in fresh.items()}
        self._world = world._replace(**joined)
        shut = np.full(len(kind), _SHUT, dtype=np.int64)
        self._rules = self._rules._replace(kind=np.concatenate([self._rules.kind, shut]))
        return list(range(first, first + len(kind)))
