r"""What a policy earns in the long run, recomputed with two-sided bounds.

P are the transitions between decisions under the policy, r is what a decision earns. The smallest and the largest
entry of P^k r enclose the long-run average for every k, and close in on it. So the averages of queries, queries in
time, accuracy and so on are found together by applying P again and again, backwards, from nothing but the table: no
distribution, no gain and no values are taken from the code that made the policy.

One application works bucket by bucket of the slack from the end of a service back to its beginning. In bucket j, slack
T_j to T_{j+1}, let B(x) be the worth of a service's end if the next query, in phase x, found slack T_j
booked (`seats` [j, n'], nothing where nobody comes at all), and L_j(x) the true worth. B is right for those who come
within the bucket. If nobody does, the phase y < K at its end says what of B is left, B'(y), and what is true:

    L_j(x) = B(x) + E[L_{j+1}(y) - B'(y); nobody came in bucket j],   y = x + Poisson(nu (T_{j+1} - T_j)) < K

Poisson counts come from scipy's distribution functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.special import betainc, gammaln, pdtr

__all__ = ["Chain", "NewHeads", "Step", "enclosed"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_CLOSE = 1e-9
"""An average is known when the worth of all states lies this close together, as a part of it."""
_MOST = 6000
"""Steps, at most; what is not known by then is enclosed less closely."""
_AT_ONCE = 1_000_000
"""Numbers of one array, of actions that are looked at together."""
_NOTHING = 1e-16
"""Chances below rounding are left out."""
_KEPT = 16_000_000
"""Numbers that are kept of actions that other tables take too: 128 MB."""


@dataclass(frozen=True)
class Chain:
    """A worker under a policy: `model` and `batch` [n - 1, j], a batch of 0 dropping the head.

    `rate_of` [n] gives the stage rate that holds during a service which began with n waiting. `over_batch` is how many
    the fastest model takes when more than N wait.
    """

    latency_s: Floats
    grid_s: Floats
    stages: int
    rate_of: Floats
    model: Integers
    batch: Integers
    over_batch: int
    idle_decides: bool

    @property
    def queue(self) -> int:
        """N."""
        return int(self.model.shape[0])

    @property
    def slacks(self) -> int:
        """G."""
        return self.grid_s.size


@dataclass
class NewHeads:
    """The slack of the query that is first after an action, for the actions that several tables have in common.

    It depends on the phase and not on the load. Tables with other latencies, slacks or stages are kept apart.
    """

    _known: dict[tuple[bytes, bytes, int], dict[int, Floats]] = field(default_factory=dict)
    _size: int = 0

    def of(self, chain: Chain) -> dict[int, Floats]:
        """What is known for tables like this one, by the action's number."""
        return self._known.setdefault((chain.latency_s.tobytes(), chain.grid_s.tobytes(), chain.stages), {})

    def keep(self, known: dict[int, Floats], action: int, shares: Floats) -> None:
        """Add an action, as long as there is room."""
        if self._size + shares.size <= _KEPT:
            self._size += shares.size
            known[action] = shares


def enclosed(
    chain: Chain, earned: Floats, over: Floats, idle: Floats, heads: NewHeads | None = None
) -> tuple[Floats, Floats]:
    """Bounds on the long-run average of each column of `earned` [n - 1, j, column] (and of "over" and idling).

    `heads` is what tables have in common: hand in the same one for all tables of a plan.
    """
    step = Step(chain, heads)
    worth = np.vstack([*earned, over, idle])
    for _ in range(_MOST):
        # All columns go on until the last is close: of two that nearly vanish, the ratio needs the steps.
        if np.ptp(worth, axis=0).max() <= _CLOSE * np.abs(worth).max():
            break
        worth = step.apply(worth)
    return worth.min(axis=0), worth.max(axis=0)


class Step:
    """One application of P, and what a service of any model on any batch leads to."""

    def __init__(self, chain: Chain, heads: NewHeads | None = None) -> None:
        self.chain, self.heads = chain, heads or NewHeads()
        self.known_heads = self.heads.of(chain)
        self.rates = set(chain.rate_of.tolist())
        self.seats = np.arange(1, chain.queue + 2)[None, :] * chain.stages - np.arange(chain.stages)[:, None]
        """How many stages must pass from phase x until 1, 2, ..., N + 1 queries have come: [x, n' - 1]."""
        left = chain.grid_s[-1] - chain.grid_s
        self.booked = {rate: np.stack([self._booked(rate * x) for x in left]) for rate in self.rates}
        steps = np.diff(chain.grid_s)
        self.still = {rate: [_Still.of(rate * step, chain.stages) for step in steps] for rate in self.rates}
        full = chain.batch == np.arange(1, chain.queue + 1)[:, None]
        self.services: dict[tuple[int, int], Service] = {}
        self._besides: dict[tuple[int, int], Service] = {}
        for n in range(1, chain.queue + 1):
            for model in np.unique(chain.model[n - 1][full[n - 1]]):
                self.services[int(model), n] = self.service(int(model), n, n)
        self.weights = [self._phases(n, left) for n in range(1, chain.queue + 1)]
        self.over = self.service(0, chain.over_batch, chain.over_batch)
        self.over_weights = self._phases(chain.over_batch, np.array([chain.grid_s[-1]]))
        self.full = full
        self.emptied = ~full & (np.arange(chain.queue) == 0)[:, None]
        self.rest = np.nonzero(~full & ~self.emptied)
        self.moves = self._rows()

    def apply(self, worth: Floats) -> Floats:
        """The expected worth of the next state, of every (n, j) flattened, of "over" and of idling."""
        chain, columns = self.chain, worth.shape[1]
        home, after_idling, seats, lines = self.ahead(worth)
        result = np.empty((chain.queue, chain.slacks, columns))
        for (model, n), service in self.services.items():
            where = self.full[n - 1] & (chain.model[n - 1] == model)
            result[n - 1, where] = self.weights[n - 1][where] @ service.worth(lines[service.rate], seats)
        result[self.emptied] = after_idling
        if self.moves is not None:
            result[self.rest] = self.moves @ seats.reshape(self.moves.shape[1], columns)
        return np.vstack([*result, self.beyond(lines, seats), home])

    def ahead(self, worth: Floats) -> tuple[Floats, Floats, Floats, dict[float, Floats]]:
        """The worth of (1, SLO), of an empty queue, of every [slack, n'], and of a service's rest by stage rate."""
        chain = self.chain
        home, over, idle = worth[chain.slacks - 1], worth[-2], worth[-1]
        after_idling = idle if chain.idle_decides else home
        seats = np.zeros((chain.slacks, chain.queue + 2, worth.shape[1]))
        seats[:, 1:-1] = worth[:-2].reshape(chain.queue, chain.slacks, -1).transpose(1, 0, 2)
        seats[:, -1] = over
        return home, after_idling, seats, {rate: self._lines(rate, seats, after_idling) for rate in self.rates}

    def beyond(self, lines: dict[float, Floats], seats: Floats) -> Floats:
        """The worth of the decision where more than N wait."""
        return self.over_weights @ self.over.worth(lines[self.over.rate], seats)

    def _lines(self, rate: float, seats: Floats, after_idling: Floats) -> Floats:
        """The worth of the rest of a service at the beginning of bucket j in phase x: [j, x, column]."""
        still, booked = self.still[rate], self.booked[rate]
        now, later = booked[:-1] @ seats[:-1], booked[1:] @ seats[:-1]
        lines = np.empty((self.chain.slacks, self.chain.stages, seats.shape[-1]))
        lines[-1] = after_idling
        for j in range(self.chain.slacks - 2, -1, -1):
            lines[j] = now[j] + still[j].ahead(lines[j + 1] - later[j])
        return lines

    def _booked(self, mean: float) -> Floats:
        """P(n' wait | phase x) when so many stages are expected: [x, n'], 0 for none; the last is more than N."""
        numbers = np.diff(pdtr(self.seats - 1, mean), axis=1, append=1.0)
        return np.asarray(np.pad(numbers, ((0, 0), (1, 0))), np.float64)

    def service(self, model: int, batch: int, waiting: int) -> Service:
        """A model that takes so many when so many wait."""
        chain = self.chain
        rate = float(chain.rate_of[waiting])
        latency, slo = float(chain.latency_s[model, batch - 1]), float(chain.grid_s[-1])
        bucket = int(np.argmax(chain.grid_s[1:] > slo - latency))
        first = float(chain.grid_s[bucket + 1]) - (slo - latency)
        still = _Still.of(rate * first, chain.stages)
        return Service(rate, bucket, still, self._booked(rate * latency), self.booked[rate][bucket + 1])

    def _phases(self, waiting: int, waited_s: Floats) -> Floats:
        stages = self.chain.stages
        mean = float(self.chain.rate_of[waiting]) * np.maximum(waited_s, _NOTHING)[:, None]
        counts = (waiting - 1) * stages + np.arange(stages)[None, :]
        logs = counts * np.log(mean) - gammaln(counts + 1.0)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _rows(self) -> csr_array | None:
        """Actions that take fewer than wait, a sparse row over (slack, seat) each."""
        chain = self.chain
        at_once = max(1, _AT_ONCE // (chain.stages * chain.slacks))
        found = []
        for n_index in np.unique(self.rest[0]):
            slacks = self.rest[1][self.rest[0] == n_index]
            for begin in range(0, slacks.size, at_once):
                found.append(self._left_behind(int(n_index), slacks[begin : begin + at_once]))
        if not found:
            return None
        sizes, places, shares = (np.concatenate([part[k] for part in found]) for k in range(3))
        first = np.concatenate([[0], np.cumsum(sizes)])
        return csr_array((shares, places, first), shape=(sizes.size, chain.slacks * (chain.queue + 2)))

    def _left_behind(self, n_index: int, slacks: Integers) -> tuple[Integers, Integers, Floats]:
        """Where actions lead that leave some of n behind: how many places each, in [j', n'] flattened, and shares.

        Given the phase, the new head's slack and how many join are independent.
        """
        chain = self.chain
        n = n_index + 1
        batch, model = chain.batch[n_index, slacks], chain.model[n_index, slacks]
        taken = np.maximum(batch, 1)
        latency = np.where(batch > 0, chain.latency_s[model, taken - 1], 0.0)
        slack = self._new_heads(n, slacks, latency) * self.weights[n - 1][slacks][:, :, None]
        # Actions of one model and batch take alike long, and as many join during them.
        means, which = np.unique(float(chain.rate_of[n]) * latency, return_inverse=True)
        both = slack.transpose(0, 2, 1) @ self.joining(means[:, None, None])[which]
        # A flat search and a division: numpy's search in three dimensions takes five times as long.
        kept = np.flatnonzero(both > _NOTHING)
        row, place, joined = np.unravel_index(kept, both.shape)
        number = np.minimum((n - taken)[row] + joined, chain.queue + 1)
        sizes = np.bincount(row, minlength=slacks.size)
        return sizes, place * (chain.queue + 2) + number, both.ravel()[kept]

    def service_of(self, model: int, waiting: int) -> Service:
        """A model that takes all who wait, whether the table has that or not."""
        if (model, waiting) in self.services:
            return self.services[model, waiting]
        if (model, waiting) not in self._besides:
            self._besides[model, waiting] = self.service(model, waiting, waiting)
        return self._besides[model, waiting]

    def joining(self, mean: Floats) -> Floats:
        """P(k come while so many stages are expected | phase), k = 0 .. N, and more: [phase, k] of each mean."""
        return np.asarray(np.diff(pdtr(self.seats - 1, mean), axis=-1, prepend=0.0, append=1.0), dtype=np.float64)

    def _new_heads(self, n: int, slacks: Integers, latency: Floats) -> Floats:
        """P(the new head has slack j' | phase) after each action: [action, phase, j']."""
        chain, known = self.chain, self.known_heads
        batch, model = chain.batch[n - 1, slacks], chain.model[n - 1, slacks]
        state = (n - 1) * chain.slacks + slacks
        action: list[int] = ((state * chain.latency_s.shape[0] + model) * (chain.queue + 1) + batch).tolist()
        result = np.empty((slacks.size, chain.stages, chain.slacks - 1))
        missing = np.array([i for i, number in enumerate(action) if number not in known], dtype=np.int64)
        for i, number in enumerate(action):
            if number in known:
                result[i] = known[number]
        if missing.size:
            at = chain.grid_s[slacks[missing]]
            edges = chain.grid_s[1:-1] + (latency[missing] - at)[:, None]
            before = self.passed(n, np.maximum(batch[missing], 1), chain.grid_s[-1] - at, edges)
            result[missing] = np.diff(before, axis=2, prepend=0.0, append=1.0)
            for i in missing.tolist():
                self.heads.keep(known, action[i], result[i].copy())
        return result

    def passed(self, n: int, taken: Integers, waited: Floats, edges: Floats) -> Floats:
        """P(the new head came no later than an edge after the old one | phase): [action, phase, edge].

        One more stage in the wait raises P(at least h of k before a share v of it) by v P(h - 1 of k).
        """
        stages, head = self.chain.stages, taken * self.chain.stages
        counts = (n - 1) * stages + np.arange(stages)
        share = np.clip(edges / np.maximum(waited, _NOTHING)[:, None], 0.0, 1.0)
        # The more stages there were, the earlier so many of them had passed.
        least, most = (betainc(head[:, None], count - head[:, None] + 1, share) for count in counts[[0, -1]])
        result = np.asarray(np.repeat(least[:, None, :], stages, axis=1), np.float64)
        action, edge = np.nonzero(most - least > _NOTHING)
        h, v = head[action], share[action, edge]
        ways = gammaln(counts + 1.0) - gammaln(head)[:, None] - gammaln(counts - head[:, None] + 2.0)
        gone, left = (h - 1) * np.log(v), counts[None, :] - h[:, None] + 1
        one_short = np.exp(ways[action] + gone[:, None] + left * np.log1p(-v)[:, None])
        first = least[action, edge]
        raised = np.cumsum(v[:, None] * one_short[:, :-1], axis=1)
        result[action, :, edge] = np.concatenate([first[:, None], first[:, None] + raised], axis=1)
        return result


@dataclass(frozen=True)
class _Still:
    """That nobody comes in a stretch of time: P(k stages pass), k = low, low + 1, ... < K."""

    low: int
    shares: Floats

    @classmethod
    def of(cls, mean: float, stages: int) -> _Still:
        counts = np.arange(stages)
        shares = np.exp(counts * np.log(mean) - mean - gammaln(counts + 1.0))
        kept = np.flatnonzero(shares >= min(_NOTHING, shares.max()))
        return cls(int(kept.min()), shares[kept.min() : kept.max() + 1])

    def ahead(self, worth: Floats) -> Floats:
        """E[worth(x + k); x + k < K] for every phase x: [x, column]."""
        stages = worth.shape[0]
        beyond = np.zeros((self.low + self.shares.size - 1, worth.shape[1]))
        padded = np.concatenate([worth, beyond])[self.low :]
        # The rows x, x + 1, ... of each column, without a copy; numpy's sliding windows take longer than the sums.
        row, column = padded.strides
        windows: Floats = np.ndarray(
            (stages, padded.shape[1], self.shares.size), np.float64, padded, strides=(row, column, row)
        )
        return np.asarray(windows @ self.shares)


@dataclass(frozen=True)
class Service:
    """A model and batch in use: the bucket that it begins in, its part of that bucket, and who comes."""

    rate: float
    bucket: int
    still: _Still
    booked: Floats
    """From its beginning on."""
    later: Floats
    """From the end of its first bucket on."""

    def worth(self, lines: Floats, seats: Floats) -> Floats:
        here = seats[self.bucket]
        return np.asarray(self.booked @ here + self.still.ahead(lines[self.bucket + 1] - self.later @ here))
