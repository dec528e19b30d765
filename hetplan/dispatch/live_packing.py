"""Queries that come and go, packed as they come: which plan a new one gets, where its parts run, and who makes room.

A query is of a kind (an application); its kind has options, as in the `Packing` form of one query per kind. What there
is, is limited by totals and by machines. A decision looks at one query:

* of the options that fit the one that takes least is chosen, where what is scarce counts more: each resource has a
  price, which a re-pack finds. Each part goes to the machine that it fills best.
* where none fits, one query that is not pinned is moved to another machine or option, if what is won is worth more than
  the price of a move; else one of less weight is sent away, if that is worth it.
* else it waits, and is tried again when another leaves.

>>> import numpy as np
>>> from hetplan.planner.forms.packing import Items, Packing
>>> items = Items(np.array([0, 1]), np.array([0]), np.array([[0.5]]), np.array([1.0]), np.array([[1.0]]), np.zeros(1))
>>> kinds = Packing("max", np.array([0, 1]), np.ones(1), np.zeros((1, 0)), np.zeros(0), items, groups=("camera",))
>>> live = LivePacking(kinds)
>>> [live.arrive(name, "camera").admitted for name in ("a", "b", "c")]
[True, True, False]
>>> [(one.query, one.admitted) for one in live.depart("a")]
[('c', True)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.forms.packing import Packing

__all__ = ["Decision", "LivePacking", "Moved", "Placed"]

Vector = NDArray[np.float64]

SLACK = 1e-9
MOST_TRIED = 12
"""Queries that are tried to be moved, or to be sent away, for one that comes."""
MOST_OPTIONS = 3
MOST_MACHINES = 8
MOST_WAITING = 8
"""Waiting queries that are tried again when one leaves."""
GROWS = 64


@dataclass(frozen=True)
class Placed:
    """Where a query runs: its option (counted over all kinds), and the machine of each of its parts."""

    option: int
    machines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Moved:
    """A query that runs elsewhere from now on; `after` is None where it was sent away."""

    query: str
    before: Placed
    after: Placed | None


@dataclass(frozen=True)
class Decision:
    """What became of a query: where it runs, or that it waits, and who was moved for it."""

    query: str
    kind: str
    placed: Placed | None
    moved: tuple[Moved, ...] = ()

    @property
    def admitted(self) -> bool:
        """Whether it runs."""
        return self.placed is not None


@dataclass
class _Query:
    kind: int
    weight: float
    number: int
    placed: Placed | None = None
    pinned: bool = False


@dataclass
class LivePacking:
    """What runs where; see the module. `move_price` is in the unit of weights.

    `kinds` is a form with one group per application: its worths are the weights of a query of that kind.
    """

    kinds: Packing
    move_price: float = 0.05
    queries: dict[str, _Query] = field(default_factory=dict, init=False)
    waiting: dict[str, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        items = self.kinds.items
        self.left = self.kinds.capacity.astype(float).copy()
        tiers = 0 if items is None else items.machines.size
        self._opened = [0] * tiers
        self._free: list[Vector] = []
        self._on: list[list[set[str]]] = []
        for _ in range(tiers):
            assert items is not None
            self._free.append(np.zeros((0, items.room.shape[1])))
            self._on.append([])
        finite = np.isfinite(self.kinds.limit) & (self.kinds.limit > 0)
        self.prices: Vector = np.where(finite, 1.0 / np.where(finite, self.kinds.limit, 1.0), 0.0)
        self._come = 0
        self._weights: list[Vector] = [np.zeros(0) for _ in range(tiers)]
        self._slot: dict[str, int] = {}
        self._in_slot: list[str] = []
        self._option = np.full(GROWS, -1, dtype=np.int64)

    def arrive(self, query: str, kind: str, *, weight: float | None = None, pinned: bool = False) -> Decision:
        """Decide about a query that comes: it is admitted, or it waits. A weight counts in place of its kind's own."""
        self.enter(query, kind, weight=weight, pinned=pinned)
        return self._decide(query)

    def enter(self, query: str, kind: str, *, weight: float | None = None, pinned: bool = False) -> None:
        """A query is here from now on, and waits."""
        if query in self.queries:
            raise InputError.one(
                path="arrive", value=query, why="this query is here already", remedy="Let it go first."
            )
        if kind not in self.kinds.groups:
            remedy = f"Choose among {', '.join(self.kinds.groups[:10])}."
            raise InputError.one(path=f"arrive.{query}", value=kind, why="there is no such application", remedy=remedy)
        group = self.kinds.groups.index(kind)
        worth = self.kinds.worth[self.kinds.first[group] : self.kinds.first[group + 1]]
        own = float(worth.max(initial=0.0)) if weight is None else weight
        self.queries[query] = _Query(group, own, self._come, pinned=pinned)
        self._come += 1
        self.waiting[query] = None

    def depart(self, query: str) -> list[Decision]:
        """A query leaves; decisions about those that waited and find room now."""
        ran = self._known(query).placed is not None
        self.leave(query)
        if not ran:
            return []
        heaviest = sorted(self.waiting, key=lambda name: (-self.queries[name].weight, self.queries[name].number))
        found = []
        for name in heaviest[:MOST_WAITING]:
            if (placed := self._fitting(name)) is not None:
                self._put(name, placed)
                found.append(Decision(name, self.kind_of(name), placed))
        return found

    def leave(self, query: str) -> None:
        """A query is gone, and nobody takes its place."""
        self._known(query)
        self._take_off(query)
        self.waiting.pop(query, None)
        del self.queries[query]

    def set_prices(self, prices: Sequence[float]) -> None:
        """What resources cost in a decision; `InputError` where these are of other resources."""
        if len(prices) != self.prices.size:
            raise InputError.one(
                path="prices", value=len(prices), why=f"there are {self.prices.size}", remedy="Re-pack."
            )
        self.prices = np.asarray(prices, dtype=float)

    def pin(self, query: str, *, pinned: bool = True) -> None:
        """A pinned query is never moved and never sent away."""
        self._known(query).pinned = pinned

    def replace(self, query: str, placed: Placed | None) -> None:
        """Put a query where a journal or a re-pack says; None lets it wait."""
        self._known(query)
        self._take_off(query)
        if placed is not None:
            self._put(query, placed)
        else:
            self.waiting[query] = None

    def retry(self, queries: Iterable[str]) -> list[Decision]:
        """Decide again about queries that wait."""
        return [found for name in queries if name in self.waiting and (found := self._decide(name)).admitted]

    def kind_of(self, query: str) -> str:
        """The application that a query is of."""
        return self.kinds.groups[self.queries[query].kind]

    @property
    def weight(self) -> float:
        """The weight of all that runs."""
        return sum(one.weight for one in self.queries.values() if one.placed is not None)

    @property
    def machines(self) -> tuple[int, ...]:
        """How many machines of each tier are in use."""
        return tuple(sum(bool(here) for here in on) for on in self._on)

    def state(self) -> tuple[Any, ...]:
        """Which of the queries run where, for `restore`."""
        return {name: one.placed for name, one in self.queries.items()}, dict(self.waiting)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Back to what it was; no query has come or left since."""
        placed, waiting = state
        changed = [name for name, one in self.queries.items() if one.placed != placed[name]]
        for name in changed:
            self._take_off(name)
        for name in changed:
            if placed[name] is not None:
                self._put(name, placed[name])
        self.waiting = waiting

    def switch(self, query: str) -> Moved | None:
        """Move a query to the option that takes least at the present prices; None where it stays."""
        before = self.queries[query].placed
        if before is None or self.queries[query].pinned:
            return None
        self._take_off(query)
        after = self._fitting(query)
        assert after is not None
        if after.option == before.option:
            after = before
        self._put(query, after)
        return None if after is before else Moved(query, before, after)

    def faults(self) -> list[str]:
        """What does not fit, counted anew from what runs where."""
        placed = [one.placed for one in self.queries.values() if one.placed is not None]
        used = self.kinds.demand[[one.option for one in placed]].sum(axis=0)
        found = [f"total {r}" for r in np.flatnonzero(used > self.kinds.capacity + 1e-6)]
        items = self.kinds.items
        if items is None:
            return found
        load: dict[tuple[int, int], Vector] = {}
        for one in placed:
            begin = int(items.first[one.option])
            for k, machine in enumerate(one.machines):
                at = (int(items.tier[begin + k]), machine)
                load[at] = load.get(at, np.zeros(items.size.shape[1])) + items.size[begin + k]
        found += [f"machine {m} of tier {t}" for (t, m), sum_ in load.items() if (sum_ > items.room[t] + 1e-6).any()]
        return found + [f"machines of tier {t}" for t, m in load if m >= items.machines[t]]

    def _known(self, query: str) -> _Query:
        if query not in self.queries:
            raise InputError.one(path="query", value=query, why="no such query is here", remedy="Name one that came.")
        return self.queries[query]

    def _decide(self, query: str) -> Decision:
        kind = self.kind_of(query)
        placed = self._fitting(query)
        moved: tuple[Moved, ...] = ()
        if placed is None:
            placed, moved = self._made_room(query)
        if placed is None:
            self.waiting[query] = None
            return Decision(query, kind, None)
        self._put(query, placed)
        return Decision(query, kind, placed, moved)

    def options(self, kind: int) -> list[int]:
        """The options of a kind that ever fit, the one that takes least of what is scarce first."""
        begin, end = int(self.kinds.first[kind]), int(self.kinds.first[kind + 1])
        paid = self.kinds.taken[begin:end] @ self.prices
        return [begin + int(k) for k in np.argsort(paid, kind="stable") if self.kinds.fits[begin + int(k)]]

    def _fitting(self, query: str, without: tuple[int, int] | None = None) -> Placed | None:
        """The first option that fits, with its machines; `without` is a machine that is not to be used."""
        for option in self.options(self.queries[query].kind):
            if (placed := self._place(option, without)) is not None:
                return placed
        return None

    def _place(self, option: int, without: tuple[int, int] | None = None) -> Placed | None:
        if (self.kinds.demand[option] > self.left + SLACK).any():
            return None
        items = self.kinds.items
        if items is None:
            return Placed(option)
        begin, end = int(items.first[option]), int(items.first[option + 1])
        order = sorted(range(begin, end), key=lambda k: -float(items.size[k].sum()))
        taken: dict[tuple[int, int], Vector] = {}
        machines = [0] * (end - begin)
        opened = list(self._opened)
        for item in order:
            tier, size = int(items.tier[item]), items.size[item]
            machine = self._machine(tier, size, taken, opened, without)
            if machine is None:
                return None
            taken[tier, machine] = taken.get((tier, machine), np.zeros(size.size)) + size
            machines[item - begin] = machine
        return Placed(option, tuple(machines))

    def _machine(
        self, tier: int, size: Vector, taken: dict[tuple[int, int], Vector], opened: list[int],
        without: tuple[int, int] | None,
    ) -> int | None:  # fmt: skip
        """The machine that a part fills best, or a fresh one."""
        items = self.kinds.items
        assert items is not None
        free = self._free[tier][: self._opened[tier]]
        if any(t == tier and m < len(free) for t, m in taken):
            free = free.copy()
            for (t, m), used in taken.items():
                if t == tier and m < len(free):
                    free[m] -= used
        fits = np.asarray((free + SLACK >= size).all(axis=1))
        if without is not None and without[0] == tier and without[1] < fits.size:
            fits[without[1]] = False
        where = np.flatnonzero(fits)
        if where.size:
            return int(where[(free[where] - size).sum(axis=1).argmin()])
        for m in range(len(free), opened[tier]):
            if (items.room[tier] - taken.get((tier, m), 0.0) + SLACK >= size).all():
                return m
        if opened[tier] < items.machines[tier] and (items.room[tier] + SLACK >= size).all():
            opened[tier] += 1
            return opened[tier] - 1
        return None

    def _put(self, query: str, placed: Placed) -> None:
        items = self.kinds.items
        self.left = self.left - self.kinds.demand[placed.option]
        begin = 0 if items is None else int(items.first[placed.option])
        for k, machine in enumerate(placed.machines):
            assert items is not None
            tier = int(items.tier[begin + k])
            while self._opened[tier] <= machine:
                self._open(tier)
            self._free[tier][machine] -= items.size[begin + k]
            if query not in self._on[tier][machine]:
                self._on[tier][machine].add(query)
                self._weights[tier][machine] += self.queries[query].weight
        self.queries[query].placed = placed
        self._seat(query, placed.option)
        self.waiting.pop(query, None)

    def _open(self, tier: int) -> None:
        items = self.kinds.items
        assert items is not None
        if self._opened[tier] == len(self._free[tier]):
            self._free[tier] = np.concatenate([self._free[tier], np.tile(items.room[tier], (GROWS, 1))])
            self._weights[tier] = np.concatenate([self._weights[tier], np.zeros(GROWS)])
        self._on[tier].append(set())
        self._opened[tier] += 1

    def _take_off(self, query: str) -> None:
        here = self.queries[query]
        if here.placed is None:
            return
        items = self.kinds.items
        self.left = self.left + self.kinds.demand[here.placed.option]
        begin = 0 if items is None else int(items.first[here.placed.option])
        for k, machine in enumerate(here.placed.machines):
            assert items is not None
            tier = int(items.tier[begin + k])
            self._free[tier][machine] += items.size[begin + k]
            if query in self._on[tier][machine]:
                self._on[tier][machine].discard(query)
                self._weights[tier][machine] -= here.weight
        here.placed = None
        self._seat(query, -1)

    def _seat(self, query: str, option: int) -> None:
        """Keep the option of each query that runs in one array, to look at all of them at once."""
        if option >= 0 and query not in self._slot:
            self._slot[query] = len(self._in_slot)
            self._in_slot.append(query)
            if self._slot[query] == self._option.size:
                self._option = np.concatenate([self._option, np.full(self._option.size, -1, dtype=np.int64)])
            self._option[self._slot[query]] = option
        elif option >= 0:
            self._option[self._slot[query]] = option
        elif query in self._slot:
            slot, last = self._slot.pop(query), self._in_slot.pop()
            if last != query:
                self._in_slot[slot], self._slot[last] = last, slot
                self._option[slot] = self._option[len(self._in_slot)]
            self._option[len(self._in_slot)] = -1

    def _made_room(self, query: str) -> tuple[Placed | None, tuple[Moved, ...]]:
        """Room made by moving one query, or by sending one of less weight away."""
        won = self.queries[query].weight
        if won <= self.move_price:
            return None, ()
        tried = 0
        lighter: dict[str, float] = {}
        for option in self.options(self.queries[query].kind)[:MOST_OPTIONS]:
            for other in self._in_the_way(option):
                here = self.queries[other]
                if here.pinned:
                    continue
                if here.weight + self.move_price < won:
                    lighter[other] = here.weight
                if tried < MOST_TRIED:
                    tried += 1
                    if (found := self._moved(other, option)) is not None:
                        return found
        for other in sorted(lighter, key=lambda name: lighter[name])[:MOST_TRIED]:
            if (found := self._sent_away([other], query)) is not None:
                return found
        for option in self.options(self.queries[query].kind)[:MOST_OPTIONS]:
            for others in self._light_together(option, won):
                if (found := self._sent_away(others, query)) is not None:
                    return found
        return None, ()

    def _sent_away(self, others: Sequence[str], query: str) -> tuple[Placed, tuple[Moved, ...]] | None:
        """Where a query goes once others are sent away; None, and all as before, where that is not enough."""
        before = [(other, placed) for other in others if (placed := self.queries[other].placed) is not None]
        for other, _ in before:
            self._take_off(other)
        if (placed := self._fitting(query)) is not None:
            self.waiting.update(dict.fromkeys(others))
            return placed, tuple(Moved(other, at, None) for other, at in before)
        for other, at in reversed(before):
            self._put(other, at)
        return None

    def _light_together(self, option: int, won: float) -> Iterator[list[str]]:
        """Queries of one machine that weigh less together, and leave room for the largest part of an option."""
        items = self.kinds.items
        if items is None or items.first[option] == items.first[option + 1]:
            return
        begin, end = int(items.first[option]), int(items.first[option + 1])
        item = max(range(begin, end), key=lambda k: float(items.size[k].sum()))
        tier, size = int(items.tier[item]), items.size[item]
        on, free = self._on[tier], self._free[tier]
        for machine in np.argsort(self._weights[tier][: len(on)], kind="stable")[:MOST_MACHINES]:
            sent: list[str] = []
            left, lost = free[machine].copy(), 0.0
            movable = [name for name in on[int(machine)] if not self.queries[name].pinned]
            for name in sorted(movable, key=lambda name: (self.queries[name].weight, self.queries[name].number)):
                if (left + SLACK >= size).all():
                    break
                sent.append(name)
                lost += self.queries[name].weight + self.move_price
                left = left + self._taken_there(name, tier, int(machine))
            if sent and lost < won and (left + SLACK >= size).all():
                yield sent

    def _taken_there(self, query: str, tier: int, machine: int) -> Vector:
        """What a query takes of one machine."""
        items, placed = self.kinds.items, self.queries[query].placed
        assert items is not None
        assert placed is not None
        begin = int(items.first[placed.option])
        parts = [begin + k for k, m in enumerate(placed.machines) if m == machine and items.tier[begin + k] == tier]
        return np.asarray(items.size[parts].sum(axis=0))

    def _in_the_way(self, option: int) -> list[str]:
        """Queries on machines where the largest part of an option nearly fits; else those that take most."""
        items = self.kinds.items
        over = self.kinds.demand[option] > self.left + SLACK
        if items is None or over.any():
            takes = self.kinds.demand[self._option[: len(self._in_slot)]][:, over].sum(axis=1)
            most = min(MOST_TRIED, takes.size)
            largest = np.argpartition(-takes, most - 1)[:most] if most else np.zeros(0, dtype=np.int64)
            return [self._in_slot[int(k)] for k in largest[np.argsort(-takes[largest], kind="stable")]]
        begin, end = int(items.first[option]), int(items.first[option + 1])
        for item in sorted(range(begin, end), key=lambda k: -float(items.size[k].sum())):
            tier, size = int(items.tier[item]), items.size[item]
            missing = np.maximum(size - self._free[tier][: self._opened[tier]], 0.0).sum(axis=1)
            if missing.size and not (missing <= SLACK).any():
                nearest = np.argsort(missing, kind="stable")[:MOST_MACHINES]
                on = [sorted(self._on[tier][int(m)], key=lambda name: self.queries[name].number) for m in nearest]
                return [name for here in on for name in here][:MOST_TRIED]
        return []

    def _moved(self, other: str, option: int) -> tuple[Placed, tuple[Moved, ...]] | None:
        """Where an option goes once another query runs elsewhere; None where that does not help."""
        before = self.queries[other].placed
        assert before is not None
        self._take_off(other)
        placed = self._place(option)
        if placed is not None:
            # Room for the one that comes is taken while the other one is placed anew.
            guest = "\0guest"
            self.queries[guest] = _Query(0, 0.0, -1)
            self._put(guest, placed)
            after = self._fitting(other)
            self._take_off(guest)
            del self.queries[guest]
            if after is not None:
                self._put(other, after)
                return placed, (Moved(other, before, after),)
        self._put(other, before)
        return None
