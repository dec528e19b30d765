"""The way from workers that run to those that are wanted, in a safe order.

What is wanted comes up first, as far as there is stock; what is spare goes down after; and so on in turns, so that no
step of an application is ever left with fewer instances than the least of now and planned. Only where stock and limits
allow neither does something go down before its replacement is up: half of a group, so that the rest goes on serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hetplan.profiles.plan import Action
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Load, Worker

__all__ = ["Changeover"]

WITHOUT_END = 10**9


class Changeover:
    """What is up and active at each moment of the way."""

    def __init__(
        self,
        running: Sequence[Worker],
        wanted: Sequence[Worker],
        offers: Mapping[str, Offer],
        limits: Mapping[str, tuple[int, int | None]],
    ) -> None:
        self.offers, self.limits = offers, limits
        self.kept = {worker.id: worker for worker in (*running, *wanted)}
        self.planned = {worker.id: worker for worker in wanted}
        self.active = {load.id: worker.id for worker in running for load in worker.loads}
        self.up = Counter({worker.id: worker.count + worker.standby for worker in running})
        self.goal = Counter({worker.id: worker.count + worker.standby for worker in wanted})
        self.found: list[Action] = []
        self.stops: tuple[int, ...] = ()
        """The last stop, which every later start waits for: it may have made its room."""
        self.since: list[int] = []
        """What came up since then, which every later stop waits for."""

    def actions(self) -> list[Action]:
        """Turn by turn, until what is up is what is wanted."""
        while True:
            to_start = [name for name in self.goal if self.up[name] < self.goal[name]]
            to_stop = [name for name in self.up if self.up[name] > self.goal[name]]
            if not to_start and not to_stop:
                return self.found
            moved = self._start(to_start)
            moved |= self._stop(to_stop, safely=True)
            if not moved and not self._stop(to_stop, safely=False):
                self._start(to_start, anyway=True)

    def _add(self, action: Action, *, after: Sequence[int]) -> int:
        number = len(self.found) + 1
        self.found.append(action.model_copy(update={"id": number, "after": tuple(after)}))
        return number

    def _room(self, worker: Worker) -> int:
        """How many more machines of its offer, and of its hardware, may be up."""
        offer = self.offers.get(worker.offer) if worker.offer is not None else None
        stock = offer.stock if offer is not None else None
        most = self.limits.get(worker.hardware, (0, None))[1]
        offered = sum(count for name, count in self.up.items() if self.kept[name].offer == worker.offer)
        alike = sum(count for name, count in self.up.items() if self.kept[name].hardware == worker.hardware)
        rooms = [limit - used for limit, used in ((stock, offered), (most, alike)) if limit is not None]
        return min(rooms, default=WITHOUT_END)

    def _start(self, names: Iterable[str], *, anyway: bool = False) -> bool:
        done = False
        for name in names:
            missing = self.goal[name] - self.up[name]
            count = missing if anyway else min(missing, self._room(self.planned[name]))
            if count <= 0:
                continue
            started = self._add(Action(id=1, do="start", worker=name, count=count), after=self.stops)
            self.since.append(started)
            self.up[name] += count
            for load in self.planned[name].loads:
                if load.id not in self.active:
                    self.active[load.id] = name
                    self.since.append(self._add(Action(id=1, do="load", load=load.id), after=(started,)))
            done = True
        return done

    def _stop(self, names: Iterable[str], *, safely: bool) -> bool:
        for name in names:
            count = self.up[name] - self.goal[name]
            if safely:
                count = min(count, *(self._spare(load) for load in self.kept[name].loads), count)
            else:
                count = min(count, max(1, self.up[name] // 2))
            if count <= 0:
                continue
            self.stops = (self._add(Action(id=1, do="stop", worker=name, count=count), after=self.since or self.stops),)
            self.since = []
            self.up[name] -= count
            if self.up[name] == 0:
                self.active = {load: home for load, home in self.active.items() if home != name}
            return True
        return False

    def _spare(self, load: Load) -> int:
        """How many machines with this load may go, its step keeping the least of what it has and what is planned."""
        alike = [
            (worker.id, other)
            for worker in self.kept.values()
            for other in worker.loads
            if (other.app, other.node) == (load.app, load.node)
        ]
        now = sum(self.up[home] * other.instances for home, other in alike if other.id in self.active)
        planned = sum(self.goal[home] * other.instances for home, other in alike if home in self.planned)
        return (now - min(now, planned)) // load.instances
