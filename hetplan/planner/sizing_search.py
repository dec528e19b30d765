r"""The sizing search: the cheapest plan that simulation confirms, for every question that sizes by simulation.

A program knows rates and no queues; a simulator knows both, and is slow. So the search goes up by the program, down by
what was seen, and ends with a test. A candidate is how many machines of each kind there are. To *look* at one is to
simulate few queries: `late` is the violation rate over what may be, of the limit where that is largest.

**Up.** The question's own program makes candidates (`Sizing.candidates`), each with more room than the one before. It
is told how late that one was, and takes as much more room as `more_room` says. Up ends where one is not late.

**Down.** From there over cheaper neighbours, cheapest first: machines fewer, or others in their place. One that is
`GOOD` is where it goes on. One that has no more of anything than one that was late is taken to be late. A machine less
is always looked at; others are where the belief leaves a chance (`Belief`).

**Test.** What looks chose has been lucky. So it is confirmed by runs of its own (`planner.sizing`): the cheapest first,
of those that are only just not late two at most. Where none is confirmed, it goes up again.

Limits and cancels are the question's: it is asked before each look (`Sizing.may_go_on`), and keeps the best so far for
itself while it looks. Losers stay in `Search.looks`, with their figures.

**The belief.** A formula, or the program, says what machines carry; `room` is that over the rate asked for. Then::

    log late = - SLOPE log room + b + g + noise,    b, g(n) ~ N(0, 1),    corr(g(n), g(m)) = exp(- sum_k d_k^2 / 2)

with d_k = |n_k - m_k| / max(1, ALIKE max(n_k, m_k)): b is what the formula gets wrong for all, g what it gets wrong for
plans that are alike, up to one machine or a quarter of a kind. This Gaussian process learns from all looks at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
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
    "Search",
    "Sizing",
    "counts_of",
    "more_room",
    "neighbours",
]

Counts = tuple[int, ...]
"""How many machines there are of each kind."""
P = TypeVar("P")
Plan = TypeVar("Plan", covariant=True)

GOOD, LATE = 0.7, 1.0
"""Of what may be late. A choice is biased towards luck, so that a search goes down to what has some left. What a look
finds to be late is not put to the test."""
MOST_NEAR, MOST_TESTED = 2, 8
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


class Sizing(Protocol[Plan]):
    """What a question hands in."""

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and simulations, for another look."""
        ...

    def candidates(self) -> Generator[Counts, float, None]:
        """Candidates of the question's program, each with more room; what is sent is how late the last one was."""
        ...

    def neighbours(self, counts: Counts) -> Iterator[Counts]:
        """Cheaper candidates like this one, the cheapest first."""
        ...

    def price(self, counts: Counts) -> int:
        """What it costs."""
        ...

    def room(self, counts: Counts) -> float:
        """What it carries by a formula, over what is asked for; 0: surely not enough, infinite: no formula says."""
        ...

    def look(self, counts: Counts) -> float:
        """How late a few queries are, over what may be."""
        ...

    def confirm(self, counts: Counts) -> Plan | None:
        """The plan, if runs of its own confirm it."""
        ...


@dataclass
class Search(Generic[P]):
    """One search: what was looked at, and what was put to the test in vain."""

    sizing: Sizing[P]
    looks: dict[Counts, float] = field(default_factory=dict)
    refused: set[Counts] = field(default_factory=set)
    last: Counts | None = None
    """The last candidate on the way up."""

    def cheapest(self, *, any_will_do: bool = False) -> P | None:
        """The cheapest plan found; the first one where `any_will_do`; None where nothing was confirmed."""
        rising = self.sizing.candidates()
        counts = next(rising, None)
        while counts is not None and self.sizing.may_go_on and len(self.refused) < MOST_TESTED:
            self.last, late = counts, self._late(counts)
            if late <= LATE:
                if not any_will_do:
                    self._descend(counts)
                for chosen in [counts] if any_will_do else self._in_turn(counts):
                    if (found := self.sizing.confirm(chosen)) is not None:
                        return found
                    self.refused.add(chosen)
            try:
                counts = rising.send(max(late, LATE) if counts in self.refused else late)
            except StopIteration:
                break
        return None

    def _late(self, counts: Counts) -> float:
        """How late a candidate is, each looked at once."""
        if counts not in self.looks:
            self.looks[counts] = self.sizing.look(counts)
        return self.looks[counts]

    def _descend(self, best: Counts) -> None:
        """Look at cheaper and cheaper neighbours, for as long as one is good."""
        found: Counts | None = best
        while found is not None:
            best = found
            belief = Belief([(one, self.sizing.room(one), late) for one, late in self.looks.items()])
            found = next((one for one in self.sizing.neighbours(best) if self._is_good(one, best, belief)), None)

    def _is_good(self, counts: Counts, best: Counts, belief: Belief) -> bool:
        if not self.sizing.may_go_on or counts in self.looks or self._is_less_than_late(counts):
            return False
        room = self.sizing.room(counts)
        is_one_less = sum(best) - sum(counts) == 1 and all(n <= m for n, m in zip(counts, best, strict=True))
        if room <= 0.0 or not (is_one_less or belief.chance(counts, room) >= UNLIKELY):
            return False
        late = self._late(counts)
        belief.learn(counts, room, late)
        return late <= max(GOOD, self.looks[best])  # no less good than the one it replaces

    def _is_less_than_late(self, counts: Counts) -> bool:
        late = (one for one, shown in self.looks.items() if shown > LATE)
        return any(all(n <= m for n, m in zip(counts, one, strict=True)) for one in late)

    def _in_turn(self, top: Counts) -> list[Counts]:
        """Those to test, the cheapest first."""
        most = self.sizing.price(top)
        left = [one for one in self.looks if one not in self.refused and self.sizing.price(one) <= most]
        near = sorted((one for one in left if GOOD < self.looks[one] <= LATE), key=self.sizing.price)
        good = [one for one in left if self.looks[one] <= GOOD]
        return sorted([*near[:MOST_NEAR], *good], key=self.sizing.price)


class Belief:
    """How late a candidate is, as far as looks tell."""

    def __init__(self, looks: Sequence[tuple[Counts, float, float]]) -> None:
        self.seen = list[Counts]()
        self.off = list[float]()
        for look in looks:
            self.learn(*look)

    def learn(self, counts: Counts, room: float, late: float) -> None:
        """What a look showed: how far it is from what room alone says."""
        if 0.0 < room < inf:
            self.seen.append(counts)
            self.off.append(log(min(max(late, SEEN[0]), SEEN[1])) + SLOPE * log(room))

    def chance(self, counts: Counts, room: float) -> float:
        """The chance that it is not late."""
        import numpy as np

        mean, variance = 0.0, 2.0
        if self.seen:
            of_all = _alike(self.seen, self.seen) + NOISE**2 * np.eye(len(self.seen))
            of_this = _alike(self.seen, [counts])[:, 0]
            weights = np.linalg.solve(of_all, of_this)
            mean, variance = float(weights @ np.array(self.off)), float(variance - weights @ of_this)
        spread = (max(variance, 0.0) + NOISE**2) ** 0.5
        return NormalDist().cdf((log(LATE) + SLOPE * log(room) - mean) / spread)


def _alike(some: Sequence[Counts], others: Sequence[Counts]) -> NDArray[np.float64]:
    """The covariance of b + g between candidates."""
    import numpy as np

    n, m = np.array(some, dtype=np.float64)[:, None, :], np.array(others, dtype=np.float64)[None, :, :]
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
