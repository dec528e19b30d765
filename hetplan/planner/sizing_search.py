r"""The sizing search: the cheapest plan that simulation confirms, for every question that sizes by simulation.

A program knows rates and no queues; a simulator knows both, and is slow. So the search goes up by the program, down by
what was seen, and ends with a test. A *station* is what waits together, and apart from all else: a candidate has one or
several, and each is so many machines of each kind. To *look* at one is to simulate few queries: `late` is the violation
rate over what may be, of the limit where that is largest. A station is looked at once, whatever is beside it; a
candidate is as late as its worst one.

**Up.** The question's own program makes candidates (`Sizing.candidates`), each with more room than the one before. It
is told how late that one was, and takes as much more room as `more_room` says. Up ends where one is not late.

**Down.** From there over cheaper neighbours, one station after the other, cheapest first: machines fewer, or others in
their place. One that is `GOOD` is where it goes on. One that is surely no less late than one that was late is never
looked at (`Sizing.is_later`). A machine less always is; others are where the belief leaves a chance (`Belief`).

**Test.** What looks chose has been lucky. So it is confirmed by runs of its own (`planner.sizing`): the cheapest first,
of those that are only just not late two at most. A station that is refused is late from then on, and it goes down once
more from the cheapest that is left. Where none is confirmed, it goes up again.

Limits and cancels are the question's: it is asked before each look (`Sizing.may_go_on`), and keeps the best so far for
itself while it looks. Losers stay in `Search.looks`, with their figures.

**The belief.** A formula, or the program, says what machines carry; `room` is that over the rate asked for. Then::

    log late = - SLOPE log room + b + g + noise,    b, g(n) ~ N(0, 1),    corr(g(n), g(m)) = exp(- sum_k d_k^2 / 2)

with d_k = |n_k - m_k| / max(1, ALIKE max(n_k, m_k)): b is what the formula gets wrong for all, g what it gets wrong for
plans that are alike, up to one machine or a quarter of a kind. This Gaussian process learns from all looks at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import exp, inf, log, nextafter
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "GOOD",
    "LATE",
    "LEAST_MORE",
    "MOST_MORE",
    "Belief",
    "Counts",
    "Refused",
    "Search",
    "Sizing",
    "Together",
    "counts_of",
    "is_less",
    "more_room",
    "neighbours",
]

Counts = tuple[int, ...]
"""How many machines there are of each kind; of kinds beyond the last there are none."""
C = TypeVar("C", bound=Hashable)
P = TypeVar("P")
Plan = TypeVar("Plan", covariant=True)

GOOD, LATE = 0.7, 1.0
"""Of what may be late. A choice is biased towards luck, so that a search goes down to what has some left. What a look
finds to be late is not put to the test."""
MOST_NEAR, MOST_TESTED = 3, 8
"""Of candidates between the two so many are tested before one that is good; and of all together so many: each takes
half of the error budget that is left."""
SLOPE = 10.0
"""How much the logarithm of lateness falls by that of room, of queues of some ten machines near their limit."""
ALIKE, NOISE = 0.25, 0.1
"""Plans that differ by so much of a kind are alike no more. The spread of a look: 10% of hundred late queries."""
UNLIKELY = 0.05
"""A candidate with a lower chance than this not to be late is not looked at: a look would rather be of another one."""
SEEN = (0.1, 3.0)
"""Beyond these a look tells no more: of none late how few they are, nor of a queue without end how fast it grows."""
LEAST_MORE, MOST_MORE = 1.02, 1.5
"""By how much room grows at least, since less changes no machine, and at most: going down mends what is too much."""


def more_room(late: float, in_turn: int = 0) -> float:
    """By how much more room the next candidate is asked for; twice as much for each that was late before, in turn.

    >>> [round(more_room(late), 2) for late in (1.0, 3.0, 100.0)], round(more_room(1.0, in_turn=2), 2)
    ([1.04, 1.16, 1.5], 1.15)
    """
    step = log(late / GOOD) / SLOPE * 2.0**in_turn if late < inf else inf
    return exp(min(max(step, log(LEAST_MORE)), log(MOST_MORE)))


def counts_of(counts: Iterable[Any]) -> Counts:
    """Counts of an array as the search has them.

    >>> counts_of([2.0, 1])
    (2, 1)
    """
    return tuple(int(count) for count in counts)


@dataclass(frozen=True)
class Refused:
    """That runs did not confirm a candidate: by these of its stations."""

    stations: Collection[Hashable]


class Sizing(Protocol[C, Plan]):
    """What a question hands in. Where all machines wait together (`Together`), a candidate is their counts."""

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and simulations, for another look."""
        ...

    def candidates(self) -> Generator[C, float, None]:
        """Candidates of the question's program, each with more room; what is sent is how late the last one was."""
        ...

    def stations(self, one: C, /) -> Mapping[Hashable, Counts]:
        """What waits apart from all else, by name, and how many machines of each kind each has."""
        ...

    def neighbours(self, one: C, station: Hashable, /) -> Iterator[C]:
        """Cheaper candidates like this one, with other machines at this station, the cheapest first."""
        ...

    def is_one_less(self, one: C, than: C, /) -> bool:
        """Whether it is the other one but for a machine."""
        ...

    def is_later(self, counts: Counts, than: Counts, /) -> bool:
        """Whether a station with these machines is surely no less late than with those."""
        ...

    def price(self, one: C, /) -> float:
        """What it costs."""
        ...

    def room(self, station: Hashable, counts: Counts, /) -> float:
        """What they carry by a formula, over what is asked for; 0: surely not enough, infinite: no formula says."""
        ...

    def look(self, one: C, stations: Collection[Hashable], /) -> Mapping[Hashable, float]:
        """How late a few queries are at these stations, over what may be."""
        ...

    def confirm(self, one: C, /) -> Plan | Refused:
        """The plan, if runs of its own confirm it."""
        ...


class Together:
    """A question all of whose machines wait together: one station."""

    def stations(self, one: Counts) -> Mapping[Hashable, Counts]:
        """All there is."""
        return {"": one}

    def is_one_less(self, one: Counts, than: Counts) -> bool:
        """One machine fewer, and no other in its place."""
        return sum(than) - sum(one) == 1 and is_less(one, than)

    def is_later(self, counts: Counts, than: Counts) -> bool:
        """Where there are no more of anything."""
        return is_less(counts, than)


def is_less(counts: Counts, than: Counts) -> bool:
    """Whether there are no more of anything; what is not counted is not there.

    >>> is_less((1, 2), (1, 3)), is_less((1, 2), (1, 2, 1)), is_less((1, 2), (3,))
    (True, True, False)
    """
    return all(n <= m for n, m in zip_longest(counts, than, fillvalue=0))


@dataclass
class Search(Generic[C, P]):
    """One search: what was looked at, and what was put to the test in vain."""

    sizing: Sizing[C, P]
    looks: dict[C, float] = field(default_factory=dict)
    """Of each candidate all of whose stations were looked at."""
    refused: set[C] = field(default_factory=set)
    last: C | None = None
    """The last candidate on the way up."""
    known: dict[Hashable, dict[Counts, float]] = field(default_factory=dict)
    """Of each station all that was looked at; late, too, where runs refused it."""
    beliefs: dict[Hashable, Belief] = field(default_factory=dict)

    def cheapest(self, *, any_will_do: bool = False) -> P | None:
        """The cheapest plan found; the first one where `any_will_do`; None where nothing was confirmed."""
        rising = self.sizing.candidates()
        top = next(rising, None)
        while top is not None and self.sizing.may_go_on and len(self.refused) < MOST_TESTED:
            self.last, late = top, self._late(top)
            if late <= LATE:
                found = self._confirm(top, any_will_do=any_will_do)
                if not isinstance(found, Refused):
                    return found
            try:
                top = rising.send(max(late, LATE) if top in self.refused else late)
            except StopIteration:
                break
        return None

    def _confirm(self, top: C, *, any_will_do: bool) -> P | Refused:
        """The cheapest plan from here on down that runs confirm."""
        last, near = Refused(()), Counter[Hashable]()
        while True:
            if not any_will_do:
                self._descend(top)
            left = [one for one in self._in_turn(top) if one == top or not any_will_do]
            one = next((one for one in left if all(near[name] < MOST_NEAR for name in self._near_stations(one))), None)
            if one is None:
                return last
            found = self.sizing.confirm(one)
            if not isinstance(found, Refused):
                return found
            near.update(name for name in self._near_stations(one) if name in found.stations)
            last = found
            self._refuse(one, found)

    def _near_stations(self, one: C) -> list[Hashable]:
        """The stations that are only just not late."""
        return [name for name, counts in self.sizing.stations(one).items() if self.known[name][counts] > GOOD]

    def _refuse(self, one: C, found: Refused) -> None:
        """Take these stations for late."""
        self.refused.add(one)
        for name, counts in self.sizing.stations(one).items():
            if name in found.stations:
                self.known[name][counts] = max(self.known[name][counts], nextafter(LATE, inf))
                self.beliefs.pop(name, None)
        for other in self.looks:
            self.looks[other] = self._worst(other)

    def _late(self, one: C) -> float:
        """How late a candidate is, each station looked at once."""
        self._look(one, [part for part in self.sizing.stations(one).items() if self._shown_lateness(*part) is None])
        self.looks[one] = self._worst(one)
        return self.looks[one]

    def _worst(self, one: C) -> float:
        return max((self.known[name][counts] for name, counts in self.sizing.stations(one).items()), default=0.0)

    def _shown_lateness(self, name: Hashable, counts: Counts) -> float | None:
        """How late a station is, where that is known."""
        return self.known.get(name, {}).get(counts)

    def _look(self, one: C, parts: Sequence[tuple[Hashable, Counts]]) -> None:
        lates = self.sizing.look(one, [name for name, _ in parts]) if parts else {}
        for name, counts in parts:
            self.known.setdefault(name, {})[counts] = lates[name]
            if name in self.beliefs:
                self.beliefs[name].learn(counts, self.sizing.room(name, counts), lates[name])

    def _descend(self, top: C) -> None:
        """Look at cheaper and cheaper neighbours of the cheapest one that is good, for as long as one is."""
        good = [one for one in self._in_turn(top) if self.looks[one] <= GOOD]
        found: C | None = min(good, key=self.sizing.price, default=top)
        turn = quiet = 0
        while found is not None:
            best, names = found, list(self.sizing.stations(found))
            found = None
            while found is None and quiet < len(names):
                around = self.sizing.neighbours(best, names[turn % len(names)])
                found = next((one for one in around if self._is_good(one, best)), None)
                turn, quiet = (turn + 1, quiet + 1) if found is None else (turn, 0)

    def _is_good(self, one: C, best: C) -> bool:
        if not self.sizing.may_go_on or one in self.looks:
            return False
        before = self.sizing.stations(best)
        changed = [part for part in self.sizing.stations(one).items() if before.get(part[0]) != part[1]]
        new = [part for part in changed if self._shown_lateness(*part) is None]
        if any((self._shown_lateness(*part) or 0.0) > LATE or self._is_later_than_late(*part) for part in changed):
            return False
        if new and not self._is_hopeful(one, best, new):
            return False
        for part in new:
            if not self.sizing.may_go_on:
                return False
            self._look(one, [part])
            if self.known[part[0]][part[1]] > LATE:
                return False
        self._late(one)
        # no less good than the one it replaces
        return all(
            self.known[name][counts] <= max(GOOD, self._shown_lateness(name, before.get(name, ())) or 0.0)
            for name, counts in changed
        )

    def _is_hopeful(self, one: C, best: C, new: Sequence[tuple[Hashable, Counts]]) -> bool:
        """Whether the belief leaves a chance to what is new in a candidate."""
        rooms = [self.sizing.room(*part) for part in new]
        if min(rooms) <= 0.0:
            return False
        return self.sizing.is_one_less(one, best) or all(
            self._belief(name).chance(counts, room) >= UNLIKELY for (name, counts), room in zip(new, rooms, strict=True)
        )

    def _belief(self, name: Hashable) -> Belief:
        if name not in self.beliefs:
            mine = self.known.get(name, {})
            self.beliefs[name] = Belief([(one, self.sizing.room(name, one), late) for one, late in mine.items()])
        return self.beliefs[name]

    def _is_later_than_late(self, name: Hashable, counts: Counts) -> bool:
        return any(late > LATE and self.sizing.is_later(counts, one) for one, late in self.known.get(name, {}).items())

    def _in_turn(self, top: C) -> list[C]:
        """Those that may be tested, the cheapest first."""
        most = self.sizing.price(top)
        left = (one for one, late in self.looks.items() if late <= LATE and one not in self.refused)
        return sorted((one for one in left if self.sizing.price(one) <= most), key=self.sizing.price)


class Belief:
    """How late a candidate is, as far as looks tell."""

    def __init__(self, looks: Sequence[tuple[Counts, float, float]]) -> None:
        self.seen = list[Counts]()
        self.off = list[float]()
        self._inverse: NDArray[np.float64] | None = None
        for look in looks:
            self.learn(*look)

    def learn(self, counts: Counts, room: float, late: float) -> None:
        """What a look showed: how far it is from what room alone says."""
        import numpy as np

        if not 0.0 < room < inf:
            return
        own = 2.0 + NOISE**2
        if self._inverse is None:
            self._inverse = np.array([[1.0 / own]])
        else:  # of all covariances, one more row and column
            with_this = _covariance(self.seen, [counts])[:, 0]
            weights = np.append(self._inverse @ with_this, -1.0)
            left = own + float(weights[:-1] @ -with_this)
            self._inverse = np.pad(self._inverse, (0, 1)) + np.outer(weights, weights) / left
        self.seen.append(counts)
        self.off.append(log(min(max(late, SEEN[0]), SEEN[1])) + SLOPE * log(room))

    def chance(self, counts: Counts, room: float) -> float:
        """The chance that it is not late."""
        import numpy as np

        mean, variance = 0.0, 2.0
        if self._inverse is not None:
            of_this = _covariance(self.seen, [counts])[:, 0]
            weights = self._inverse @ of_this
            mean, variance = float(weights @ np.array(self.off)), float(variance - weights @ of_this)
        spread = (max(variance, 0.0) + NOISE**2) ** 0.5
        return NormalDist().cdf((log(LATE) + SLOPE * log(room) - mean) / spread)


def _covariance(some: Sequence[Counts], others: Sequence[Counts]) -> NDArray[np.float64]:
    """The covariance of b + g between candidates."""
    import numpy as np

    table = np.array([*zip_longest(*some, *others, fillvalue=0)], dtype=np.float64).T
    n, m = table[: len(some), None, :], table[None, len(some) :, :]
    apart = np.abs(n - m) / np.maximum(ALIKE * np.maximum(n, m), 1.0)
    return np.asarray(1.0 + np.exp(-0.5 * (apart**2).sum(axis=2)))


def neighbours(counts: Counts, prices: Sequence[int]) -> Iterator[Counts]:
    """Cheaper counts, the cheapest first: up to two machines fewer, and up to two others in their place.

    `prices`: of one machine more of each kind. Of many kinds there are millions: each is made when its turn comes.

    >>> list(neighbours((1, 1), [3, 1]))
    [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    """
    import numpy as np

    size, none = len(counts), -1
    price = np.append(np.asarray(prices, dtype=np.int64), 0)  # the last one is that of no machine
    owned = [kind for kind, count in enumerate(counts) if count]
    less = [(a, b) for a in owned for b in (none, *owned) if b == none or (b >= a and (b > a or counts[a] > 1))]
    first, second = np.triu_indices(size)
    none_of = np.full(size, none)
    more = np.vstack([[none, none], np.column_stack([none_of, np.arange(size)]), np.column_stack([first, second])])
    saved = np.array([int(price[a] + price[b]) for a, b in less], dtype=np.int64)
    change = price[more].sum(axis=1)[None, :] - saved[:, None]
    made = {counts}
    for place in np.argsort(change, axis=None, kind="stable"):
        fewer, other = divmod(int(place), len(more))
        if change[fewer, other] >= 0:
            return
        row = list(counts)
        for kind, step in ((less[fewer][0], -1), (less[fewer][1], -1), (more[other][0], 1), (more[other][1], 1)):
            if kind != none:
                row[kind] += step
        if (found := tuple(row)) not in made:
            made.add(found)
            yield found
