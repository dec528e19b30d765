r"""What a policy earns in the long run, recomputed with two-sided bounds.

With P the transitions between decisions under the policy and r what a decision earns, the smallest and the largest
entry of P^k r enclose the long-run average for every k, and close in on it. So the averages of queries, queries in
time, accuracy and so on are found together by applying P again and again, backwards, from nothing but the table: no
distribution, no gain and no values are taken from whoever made the policy.

One application works bucket by bucket of the slack from the end of a service back to its beginning. In bucket j, slack
T_j to T_{j+1}, let B(x) be the worth of a service's end if whoever comes from now on, in phase x, found slack T_j
booked (`seats` [j, n'], nothing where nobody comes at all), and L_j(x) the true worth. B is right for those who come
within the bucket. If nobody does, the phase y < K at its end tells what of B is left, B'(y), and what is true:

    L_j(x) = B(x) + E[L_{j+1}(y) - B'(y); nobody came in bucket j],   y = x + Poisson(nu (T_{j+1} - T_j)) < K

Poisson counts come from scipy's distribution functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import betainc, gammaln, pdtr, pdtrc, xlogy

__all__ = ["Chain", "enclosed"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CLOSE = 1e-9
_MOST = 6000
_AT_ONCE = 1_000_000
"""Numbers of one array, of actions that are looked at together."""
_NOTHING = 1e-16


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
    idle_decides: bool = False

    @property
    def queue(self) -> int:
        """N."""
        return int(self.model.shape[0])

    @property
    def slacks(self) -> int:
        """G."""
        return self.grid_s.size


def enclosed(chain: Chain, earned: Floats, over: Floats, idle: Floats) -> tuple[Floats, Floats]:
    """Bounds on the long-run average of each column of `earned` [n - 1, j, column] (and of "over" and idling)."""
    step = _Step(chain)
    values, at_over, at_idle = earned.astype(float), over.astype(float), idle.astype(float)
    low, high = np.full(over.size, -np.inf), np.full(over.size, np.inf)
    for _ in range(_MOST):
        values, at_over, at_idle = step.apply(values, at_over, at_idle)
        flat = np.vstack([values.reshape(-1, values.shape[-1]), at_over[None, :]])
        if chain.idle_decides:
            flat = np.vstack([flat, at_idle[None, :]])
        low, high = flat.min(axis=0), flat.max(axis=0)
        if float((high - low).max()) < _CLOSE * max(1.0, float(np.abs(high).max())):
            break
    return low, high


class _Step:
    """One application of P."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.rates = sorted({float(rate) for rate in chain.rate_of[1:]})
        left = chain.grid_s[-1] - chain.grid_s
        self.booked = {rate: np.stack([self._booked(rate * x) for x in left]) for rate in self.rates}
        steps = np.diff(chain.grid_s)
        self.still = {rate: [_Still.of(rate * step, chain.stages) for step in steps] for rate in self.rates}
        full = (chain.batch == np.arange(1, chain.queue + 1)[:, None]) & (chain.batch > 0)
        self.services: dict[tuple[int, int], _Service] = {}
        for n in range(1, chain.queue + 1):
            for model in np.unique(chain.model[n - 1][full[n - 1]]):
                self.services[int(model), n] = self._service(int(model), n, n)
        self.weights = [self._phases(n, chain.grid_s[-1] - chain.grid_s) for n in range(1, chain.queue + 1)]
        self.over = self._service(0, chain.over_batch, chain.over_batch)
        self.over_weights = self._phases(chain.over_batch, np.array([chain.grid_s[-1]]))
        self.full = full
        self.emptied = ~full & (np.arange(chain.queue) == 0)[:, None]
        self.rest = np.nonzero(~full & ~self.emptied)
        self.moves = self._rows()

    def apply(self, values: Floats, over: Floats, idle: Floats) -> tuple[Floats, Floats, Floats]:
        chain = self.chain
        columns = values.shape[-1]
        home = values[0, -1]
        after_idling = idle if chain.idle_decides else home
        seats = np.zeros((chain.slacks, chain.queue + 2, columns))
        seats[:, 1:-1] = values.transpose(1, 0, 2)
        seats[:, -1] = over
        lines = {rate: self._lines(rate, seats, after_idling) for rate in self.rates}
        result = np.empty_like(values)
        for (model, n), service in self.services.items():
            where = self.full[n - 1] & (chain.model[n - 1] == model)
            result[n - 1, where] = self.weights[n - 1][where] @ service.worth(lines[service.rate], seats)
        result[self.emptied] = after_idling
        if self.moves is not None:
            result[self.rest] = self.moves @ seats.reshape(-1, columns)
        at_over = (self.over_weights @ self.over.worth(lines[self.over.rate], seats))[0]
        return result, at_over, home

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
        stages, queue = self.chain.stages, self.chain.queue
        edges = np.arange(1, queue + 2)[None, :] * stages - np.arange(stages)[:, None]
        least, most = pdtrc(edges - 1, mean), pdtr(edges - 1, mean)
        numbers = np.where(most[:, :-1] > 0.5, least[:, :-1] - least[:, 1:], most[:, 1:] - most[:, :-1])
        return np.asarray(np.concatenate([np.zeros((stages, 1)), numbers, least[:, -1:]], axis=1), dtype=np.float64)

    def _service(self, model: int, batch: int, waiting: int) -> _Service:
        chain = self.chain
        rate = float(chain.rate_of[waiting])
        latency, slo = float(chain.latency_s[model, batch - 1]), float(chain.grid_s[-1])
        bucket = int(np.argmax(chain.grid_s[1:] > slo - latency))
        first = max(latency - slo + float(chain.grid_s[bucket + 1]), 0.0)
        still = _Still.of(rate * first, chain.stages)
        return _Service(rate, bucket, still, self._booked(rate * latency), self.booked[rate][bucket + 1])

    def _phases(self, waiting: int, waited_s: Floats) -> Floats:
        stages = self.chain.stages
        mean = float(self.chain.rate_of[waiting]) * waited_s[:, None]
        counts = (waiting - 1) * stages + np.arange(stages)[None, :]
        logs = xlogy(counts, mean) - gammaln(counts + 1.0)
        if waiting > 1:
            logs[mean[:, 0] <= 0] = 0.0
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
        n, stages = n_index + 1, chain.stages
        batch, model = chain.batch[n_index, slacks], chain.model[n_index, slacks]
        taken = np.maximum(batch, 1)
        latency = np.where(batch > 0, chain.latency_s[model, taken - 1], 0.0)
        waited = chain.grid_s[-1] - chain.grid_s[slacks]
        before = self._passed(n, taken, waited, chain.grid_s[1:-1] + (latency - chain.grid_s[slacks])[:, None])
        slack = np.diff(before, axis=2, prepend=0.0, append=1.0) * self.weights[n - 1][slacks][:, :, None]
        mean = float(chain.rate_of[n]) * latency
        # So many join at most, whether for want of time or of room in the table.
        joining = min(_most(float(mean.max())) // stages, chain.queue - n + int(taken.max())) + 1
        seats = np.arange(1, joining + 1)[None, :] * stages - np.arange(stages)[:, None]
        reached = pdtr((seats - 1)[None, :, :], mean[:, None, None])
        joins = np.diff(reached, axis=2, prepend=0.0, append=1.0)
        both = slack.transpose(0, 2, 1) @ joins
        row, place, joined = np.nonzero(both > _NOTHING)
        number = np.minimum((n - taken)[row] + joined, chain.queue + 1)
        sizes = np.bincount(row, minlength=slacks.size)
        return sizes, place * (chain.queue + 2) + number, both[row, place, joined]

    def _passed(self, n: int, taken: Integers, waited: Floats, edges: Floats) -> Floats:
        """P(the new head came no later than an edge after the old one | phase): [action, phase, edge].

        One more stage in the wait raises P(at least h of k before a share v of it) by v P(h - 1 of k).
        """
        stages, head = self.chain.stages, taken * self.chain.stages
        counts = (n - 1) * stages + np.arange(stages)
        share = np.where(edges > 0, 1.0, 0.0)
        np.divide(edges, waited[:, None], out=share, where=waited[:, None] > 0)
        middle = head / (counts.mean() + 1.0)
        width = 12.0 * np.sqrt(middle * (1 - middle) / (counts.min() + 2.0)) + _slip(stages, counts)
        near = (share > 0) & (share < 1) & (np.abs(share - middle[:, None]) < width[:, None])
        beyond = (share >= 1) | (share >= (middle + width)[:, None])
        result = np.repeat(beyond[:, None, :].astype(float), stages, axis=1)
        action, edge = np.nonzero(near)
        h, v = head[action], share[action, edge]
        ways = gammaln(counts + 1.0) - gammaln(head)[:, None] - gammaln(counts - head[:, None] + 2.0)
        gone, left = (h - 1) * np.log(v), counts[None, :] - h[:, None] + 1
        one_short = np.exp(ways[action] + gone[:, None] + left * np.log1p(-v)[:, None])
        first = betainc(h, counts[0] - h + 1, v)
        raised = np.cumsum(v[:, None] * one_short[:, :-1], axis=1)
        result[action, :, edge] = np.concatenate([first[:, None], first[:, None] + raised], axis=1)
        return result


def _most(mean: float) -> int:
    """A count that is never exceeded, to rounding."""
    return int(mean + 10.0 * np.sqrt(mean) + 40.0)


def _slip(stages: int, counts: Integers) -> float:
    """How far the middle moves between the smallest and the largest phase."""
    return stages / (float(counts.min()) + 1.0)


@dataclass(frozen=True)
class _Still:
    """That nobody comes in a stretch of time: P(k stages pass), k = low, low + 1, ... < K."""

    low: int
    shares: Floats

    @classmethod
    def of(cls, mean: float, stages: int) -> _Still:
        counts = np.arange(stages)
        shares = _pmf(counts, mean)
        kept = np.flatnonzero(shares > 1e-25)
        if kept.size == 0:
            return cls(0, np.zeros(0))
        return cls(int(kept[0]), shares[kept[0] : kept[-1] + 1])

    def ahead(self, worth: Floats) -> Floats:
        """E[worth(x + k); x + k < K] for every phase x: [x, column]."""
        stages = worth.shape[0]
        if self.shares.size == 0:
            return np.zeros_like(worth)
        beyond = np.zeros((self.low + self.shares.size - 1, worth.shape[1]))
        padded = np.concatenate([worth, beyond])[self.low :]
        # The rows x, x + 1, ... of each column, without a copy; numpy's sliding windows take longer than the sums.
        row, column = padded.strides
        windows: Floats = np.ndarray(
            (stages, padded.shape[1], self.shares.size), np.float64, padded, strides=(row, column, row)
        )
        return np.asarray(windows @ self.shares)


@dataclass(frozen=True)
class _Service:
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


def _pmf(counts: Integers, mean: float) -> Floats:
    kept = np.maximum(counts, 0)
    return np.where(counts >= 0, np.exp(xlogy(kept, mean) - mean - gammaln(kept + 1.0)), 0.0)
