"""From what runs now to what shall run: names kept where they can be, moves counted, steps in a safe order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Action
from hetplan.profiles.workers import Worker

__all__ = ["actions_to", "moved"]


def moved(running: Iterable[Worker], planned: Iterable[Worker]) -> int:
    """Servers that are new where they are: the sum over (app, step, variant, hardware) of max(0, new - old)."""
    return (_placed(planned) - _placed(running)).total()


def _placed(workers: Iterable[Worker]) -> Counter[tuple[str | None, ...]]:
    found: Counter[tuple[str | None, ...]] = Counter()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return found


def actions_to(workers: Sequence[Worker], inputs: Inputs) -> tuple[Action, ...]:
    """The actions that lead from the running state to these worker groups."""
    return tuple(_Way(workers, inputs).actions())


class _Way:
    """Brings up what fits, takes down what is spare, turn by turn."""

    def __init__(self, workers: Sequence[Worker], inputs: Inputs) -> None:
        self.inputs = inputs
        running = inputs.state.workers if inputs.state is not None else ()
        self.kept = {worker.id: worker for worker in (*running, *workers)}
        self.active = {worker.id for worker in running}
        self.planned = {worker.id: worker for worker in workers}
        self.up = Counter({worker.id: worker.count + worker.standby for worker in running})
        self.goal = Counter({worker.id: worker.count for worker in workers})
        self.found: list[Action] = []

    def actions(self) -> list[Action]:
        """One action after the other, each after the one before it."""
        while True:
            to_start = [name for name in self.goal if self.up[name] < self.goal[name]]
            to_stop = [name for name in self.up if self.up[name] > self.goal[name]]
            started = self._start(to_start)
            stopped = self._stop(to_stop, safely=True)
            if not to_start and not to_stop:
                return self.found
            if not started and not stopped and not self._stop(to_stop, safely=False):
                self._start(to_start, anyway=True)

    def _add(
        self,
        do: Literal["start", "stop", "load"],
        *,
        worker: str | None = None,
        load: str | None = None,
        count: int | None = None,
    ) -> None:
        number = len(self.found) + 1
        after = (number - 1,) if number > 1 else ()
        self.found.append(Action(id=number, do=do, worker=worker, load=load, count=count, after=after))

    def _room(self, worker: Worker) -> int:
        """How many more machines of its offer, and of its hardware, may be up."""
        most = self.inputs.slo.limits.instances.get(worker.hardware, (0, None))[1]
        stock = None if worker.offer is None else self.inputs.profile.offers[worker.offer].stock
        alike = [name for name in self.up if self.kept[name].hardware == worker.hardware]
        offered = [name for name in alike if self.kept[name].offer == worker.offer]
        rooms = [
            limit - sum(self.up[name] for name in names)
            for limit, names in ((most, alike), (stock, offered))
            if limit is not None
        ]
        return min(rooms, default=10**9)

    def _start(self, names: Iterable[str], *, anyway: bool = False) -> bool:
        done = False
        for name in names:
            worker = self.planned[name]
            missing = self.goal[name] - self.up[name]
            count = missing if anyway else min(missing, self._room(worker))
            if count <= 0:
                continue
            self._add("start", worker=name, count=count)
            self.up[name] += count
            if name not in self.active:
                self.active.add(name)
                self._add("load", load=worker.loads[0].id)
            done = True
        return done

    def _stop(self, names: Iterable[str], *, safely: bool) -> bool:
        done = False
        for name in names:
            count = self.up[name] - self.goal[name]
            # Where nothing is spare and nothing more fits, servers are swapped by halves: the rest goes on serving.
            count = min(count, self._spare(self.kept[name]) if safely else max(1, self.up[name] // 2))
            if count <= 0:
                continue
            self._add("stop", worker=name, count=count)
            self.up[name] -= count
            done = True
            if not safely:
                break
        return done

    def _spare(self, worker: Worker) -> int:
        """How many machines may go with no step left with less than the least of now and planned."""
        spare = [10**9]
        for load in worker.loads:
            alike = [
                (other, one)
                for other in self.kept.values()
                for one in other.loads
                if (one.app, one.node) == (load.app, load.node)
            ]
            now = sum(self.up[other.id] * one.instances for other, one in alike if other.id in self.active)
            planned = sum(self.goal[other.id] * one.instances for other, one in alike if other.id in self.planned)
            spare.append((now - min(now, planned)) // load.instances)
        return min(spare)
