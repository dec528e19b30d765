"""From the workers that run to the workers that are wanted: names kept where a group stays, and the steps.

Where nothing runs, all that is wanted is started. The way from what runs is that of `changeover.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase

from hetplan.profiles.one_order import in_one_order
from hetplan.profiles.plan import Action
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Worker

__all__ = ["Names", "transition"]


class Names:
    """Ids for groups and their loads: what runs already keeps its own, what is new gets the next free ``w1``, ``w2``.

    A running group is the same where `alike` is: by default in everything but ids and count.

    >>> from hetplan.profiles.workers import Load
    >>> names = Names(())
    >>> two = (Load(id="any"), Load(id="any"))
    >>> [load.id for load in names.with_ids(Worker(id="any", hardware="gpu", loads=two)).loads]
    ['w1.a', 'w1.b']
    >>> names.with_ids(Worker(id="any", hardware="cpu")).id
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

    def with_ids(self, wanted: Worker) -> Worker:
        """The machine group with its ids: kept where it runs already, else the next free ones."""
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

    >>> from hetplan.profiles.workers import Load
    >>> one = Worker(id="w1", hardware="gpu", count=1, loads=(Load(id="w1.a", variant="m"),))
    >>> two = one.model_copy(update={"count": 3})
    >>> [(a.do, a.worker or a.load, a.count) for a in transition((), (one,))]
    [('start', 'w1', 1), ('load', 'w1.a', None)]
    >>> [(a.do, a.worker or a.load, a.count) for a in transition((one,), (two,))]
    [('start', 'w1', 2)]
    """
    if not running:
        return tuple(_from_nothing(wanted))
    from hetplan.planner.changeover import Changeover

    return tuple(Changeover(running, wanted, offers or {}, limits or {}).actions())


def _from_nothing(wanted: Sequence[Worker]) -> Iterator[Action]:
    """Each group is started, and then its loads; there is nothing that one would have to wait for."""
    number = 0
    for worker in wanted:
        number += 1
        started = number
        yield Action(id=started, do="start", worker=worker.id, count=worker.count + worker.standby)
        for load in worker.loads:
            number += 1
            yield Action(id=number, do="load", load=load.id, after=(started,))


def _content(worker: Worker) -> tuple[object, ...]:
    loads = tuple(in_one_order(load).model_dump_json(exclude={"id"}) for load in worker.loads)
    return worker.period, worker.hardware, worker.offer, worker.host, worker.queue, loads
