"""Servers dealt to steps anew, to be played: those that carry most, and one or two moved from step to step.

A program counts what servers carry, not how long queries wait. So where no room that it keeps is enough, simulation has
the say: which step queries wait at, and whether a server more there helps. Every deal is within the rows of the exact
program (stock, money, resources, moves, one batch size per variant and hardware), and its shares are solved by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft
from hetplan.problems.pipeline.climb import Solved, evenly_filled
from hetplan.problems.pipeline.draft import draft
from hetplan.problems.pipeline.few import carrying_most
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.tree import Places, Task, Tree
from hetplan.profiles.workers import Load, Worker

__all__ = ["Deal", "deal_of", "key_of", "key_of_load", "may_deal", "of_most"]


@dataclass(frozen=True)
class _Step:
    """A step of an application, and where its configurations are in the counts of its tree."""

    i: int
    task: Task
    own: slice


@dataclass(frozen=True)
class Deal:
    """Servers of each configuration of these trees."""

    problem: Pipelines
    trees: tuple[Tree, ...]
    counts: tuple[Places, ...]

    def planned(self, ask: Ask) -> Draft | None:
        """The plan of these servers, all equally full; None where they break a limit, or do not carry the demand."""
        p, fleet = self.problem, self.problem.wish.fleet
        shares = evenly_filled(ask, self.trees, self.counts, fleet, p.asked("rate"))
        return None if shares is None else draft(self.problem, Solved(*shares, mode="accuracy", reported=()))

    def moves(self, waiting: Mapping[tuple[str, str], float]) -> Iterator[Deal]:
        """A server more, first where queries wait longest; one there from where they wait least; exchanges; batches.

        `waiting` is how long, by application and step.
        """
        steps = sorted(self._steps(), key=lambda step: waiting.get((self.trees[step.i].app, step.task.id), 0.0))
        to, givers = steps[-1], steps[:-1]
        free = self._free()
        yield from (self._with((step, c, 1)) for step in reversed(steps) for g in free for c in self._seats(step, g))
        for giver in givers:
            for c in self._used(giver):
                for seat in self._seats(to, int(giver.task.hardware[c])):
                    yield self._with((giver, c, -1), (to, seat, 1))
        for giver in givers:
            for c in self._used(giver):
                for mine in self._used(to):
                    g, h = int(giver.task.hardware[c]), int(to.task.hardware[mine])
                    if g != h:
                        for there, here in zip(self._seats(giver, h), self._seats(to, g), strict=False):
                            yield self._with((giver, c, -1), (giver, there, 1), (to, mine, -1), (to, here, 1))
        for step in reversed(steps):
            yield from self._other_batches(step)

    def fewer(self, waiting: Mapping[tuple[str, str], float]) -> Iterator[Deal]:
        """A server fewer in one group, first where queries wait least."""
        for step in sorted(self._steps(), key=lambda step: waiting.get((self.trees[step.i].app, step.task.id), 0.0)):
            yield from (self._with((step, c, -1)) for c in self._used(step))

    def _steps(self) -> list[_Step]:
        found = []
        for i, tree in enumerate(self.trees):
            start = 0
            for task in tree.tasks:
                found.append(_Step(i, task, slice(start, start + task.size)))
                start += task.size
        return found

    def _used(self, step: _Step) -> list[int]:
        return [int(c) for c in np.flatnonzero(self.counts[step.i][step.own])]

    def _free(self) -> list[int]:
        """Hardware of which a server is not in use."""
        used = np.zeros(len(self.problem.wish.fleet.hardware))
        for tree, counts in zip(self.trees, self.counts, strict=True):
            np.add.at(used, np.concatenate([task.hardware for task in tree.tasks]), counts)
        return [int(g) for g in np.flatnonzero(self.problem.wish.fleet.most - used >= 1)]

    def _seats(self, step: _Step, g: int) -> list[int]:
        """The configuration that a server of this hardware takes at a step: one in use there; else one of a variant
        that is, with the largest batch that takes no longer than what is in use."""
        task, used = step.task, self._used(step)
        same = [c for c in used if task.hardware[c] == g]
        if same or not used:
            return same[:1]
        most = max(used, key=lambda c: int(self.counts[step.i][step.own][c]))
        alike = np.flatnonzero((task.hardware == g) & (task.variant == task.variant[most]))
        in_time = [int(c) for c in alike if task.ms[c] <= task.ms[used].max()]
        fastest = sorted((int(c) for c in alike), key=lambda c: float(task.ms[c]))
        return [max(in_time, key=lambda c: float(task.qps[c]))] if in_time else fastest[:1]

    def _other_batches(self, step: _Step) -> Iterator[Deal]:
        """The next smaller and the next larger batch of one group of a step."""
        task = step.task
        for c in self._used(step):
            alike = (task.variant == task.variant[c]) & (task.hardware == task.hardware[c]) & (task.run == task.run[c])
            sizes = sorted((int(y) for y in np.flatnonzero(alike)), key=lambda y: int(task.batch[y]))
            at = sizes.index(c)
            count = int(self.counts[step.i][step.own][c])
            for other in (*sizes[max(0, at - 1) : at], *sizes[at + 1 : at + 2]):
                yield self._with((step, c, -count), (step, other, count))

    def _with(self, *changes: tuple[_Step, int, int]) -> Deal:
        counts = [own.copy() for own in self.counts]
        for step, c, more in changes:
            counts[step.i][step.own.start + c] += more
        return replace(self, counts=tuple(counts))


def may_deal(problem: Pipelines) -> bool:
    """Whether servers can be dealt one by one: each is one step's, and paths do not join."""
    free = problem.formulation in ("config", "paper") and problem.levels[0] == "quality"
    return free and not problem.wish.fleet.is_shared and not problem.wish.joins


def of_most(problem: Pipelines, ask: Ask) -> Iterator[Deal]:
    """The deals that carry most, over all configurations that are in time."""
    for trees, counts in carrying_most(problem, ask):
        yield Deal(problem, trees, tuple(counts))


def deal_of(problem: Pipelines, workers: Sequence[Worker]) -> Deal | None:
    """What workers of a plan are, among all configurations; None where one of them is none of these."""
    trees = problem.considered
    counts = [np.zeros(sum(task.size for task in tree.tasks), np.int64) for tree in trees]
    deal = Deal(problem, trees, tuple(counts))
    at = {
        key_of(problem, trees[step.i], step.task, c): (step.i, step.own.start + c)
        for step in deal._steps()
        for c in range(step.task.size)
    }
    for worker in workers:
        for load in worker.loads:
            place = at.get(key_of_load(worker, load))
            if place is None or len(worker.loads) > 1:
                return None
            counts[place[0]][place[1]] += worker.count
    return deal


def key_of(problem: Pipelines, tree: Tree, task: Task, c: int) -> tuple[object, ...]:
    """Application, step, variant, hardware, batch and instances: what a worker says of its configuration."""
    variant, hardware = task.variants[task.variant[c]], problem.wish.fleet.hardware[task.hardware[c]]
    return tree.app, task.id, variant, hardware, int(task.batch[c]), int(task.k[c])


def key_of_load(worker: Worker, load: Load) -> tuple[object, ...]:
    """The same of a load; where steps share servers, it may have more instances than its configuration."""
    batch = load.serve.max_batch if load.serve is not None else None
    return load.app, load.node, load.variant, worker.hardware, batch, load.instances
