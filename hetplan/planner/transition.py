"""From the workers that run to the workers that are wanted: names kept where a group stays, steps in a safe order.

What is wanted comes up first, as far as there is stock; what is spare goes down after; and so on in turns, so that no
step of an application is ever left with fewer instances than the least of now and planned. Only where stock and limits
allow neither does something go down before its replacement is up: half of a group, so that the rest goes on serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import ascii_lowercase

from hetplan.profiles.plan import Action
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Load, Worker

__all__ = ["Names", "transition"]

WITHOUT_END = 10**9


class Names:
    """Ids for groups and their loads: what runs already keeps its own, what is new gets the next free ``w1``, ``w2``.

    A running group is the same where `alike` is: by default in everything but ids and count.

    >>> names = Names(())
    >>> two = (Load(id="any"), Load(id="any"))
    >>> [load.id for load in names.named(Worker(id="any", hardware="gpu", loads=two)).loads]
    ['w1.a', 'w1.b']
    >>> names.named(Worker(id="any", hardware="cpu")).id
    'w2'
    """

    def __init__(
        self, running: Iterable[Worker], *, alike: Callable[[Worker], tuple[object, ...]] | None = None
    ) -> None:
        self._alike = alike or _content
        self._running: dict[tuple[object, ...], list[Worker]] = {}
        for worker in running:
            self._running.setdefault(self._alike(worker), []).append(worker)
        self._taken = {worker.id for groups in self._running.values() for worker in groups}
        self._next = 1

    def named(self, wanted: Worker) -> Worker:
        """The group with its ids; those that it came with do not matter, nor does its count."""
        running = self._running.get(self._alike(wanted))
        if running:
            kept = running.pop(0)
            pairs = zip(wanted.loads, kept.loads, strict=True)
            same = tuple(load.model_copy(update={"id": old.id}) for load, old in pairs)
            return wanted.model_copy(update={"id": kept.id, "loads": same})
        while f"w{self._next}" in self._taken:
            self._next += 1
        name = f"w{self._next}"
        self._taken.add(name)
        loads = (
            load.model_copy(update={"id": f"{name}.{ascii_lowercase[i] if i < len(ascii_lowercase) else i}"})
            for i, load in enumerate(wanted.loads)
        )
        return wanted.model_copy(update={"id": name, "loads": tuple(loads)})


def transition(
    running: Sequence[Worker],
    wanted: Sequence[Worker],
    *,
    offers: Mapping[str, Offer] | None = None,
    limits: Mapping[str, tuple[int, int | None]] | None = None,
) -> tuple[Action, ...]:
    """The ordered actions, within the stock of offers and the limits on hardware; groups are the same by their ids.

    >>> one = Worker(id="w1", hardware="gpu", count=1, loads=(Load(id="w1.a", variant="m"),))
    >>> two = one.model_copy(update={"count": 3})
    >>> [(a.do, a.worker or a.load, a.count) for a in transition((), (one,))]
    [('start', 'w1', 1), ('load', 'w1.a', None)]
    >>> [(a.do, a.worker or a.load, a.count) for a in transition((one,), (two,))]
    [('start', 'w1', 2)]
    """
    return tuple(_Way(running, wanted, offers or {}, limits or {}).actions())


def _content(worker: Worker) -> tuple[object, ...]:
    loads = tuple(load.model_dump_json(exclude={"id"}) for load in worker.loads)
    return worker.period, worker.hardware, worker.offer, worker.host, worker.queue, loads


class _Way:
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
