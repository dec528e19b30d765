r"""What a policy earns in the long run, recomputed with two-sided bounds.

With P the transitions between decisions under the policy and r what a decision earns, the smallest and the largest
entry of P^k r enclose the long-run average for every k, and close in on it. So the averages of queries, queries in
time, accuracy and so on are found together by applying P again and again, backwards, from nothing but the table: no
distribution, no gain and no values are taken from whoever made the policy.

One application works bucket by bucket of the slack from the end of a service back to its beginning. Poisson counts come
from scipy's distribution functions, as whole matrices: `stay` [x, y] that nobody comes in a bucket and the phase goes
from x to y, `land` [x, n'] that somebody does and n' wait at the end.
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

_CLOSE = 1e-10
_MOST = 6000


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
        self.buckets = {rate: self._buckets(rate) for rate in self.rates}
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
        stay, land = self.buckets[rate]
        joined = land @ seats[:-1]
        lines = np.empty((self.chain.slacks, self.chain.stages, seats.shape[-1]))
        lines[-1] = after_idling
        for j in range(self.chain.slacks - 2, -1, -1):
            lines[j] = stay[j] @ lines[j + 1] + joined[j]
        return lines

    def _buckets(self, rate: float) -> tuple[Floats, Floats]:
        grid = self.chain.grid_s
        pairs = [
            self._stretch(rate * (grid[j + 1] - grid[j]), rate * (grid[-1] - grid[j + 1])) for j in range(grid.size - 1)
        ]
        return np.stack([stay for stay, _ in pairs]), np.stack([land for _, land in pairs])

    def _stretch(self, during: float, after: float) -> tuple[Floats, Floats]:
        """`stay` and `land` of a stretch with so many expected stages in it and after it."""
        stages, queue = self.chain.stages, self.chain.queue
        phases = np.arange(stages)
        stay = _pmf(phases[None, :] - phases[:, None], during)
        reach = stages + int(during + 11 * np.sqrt(during) + 50)
        settled = np.arange(stages, stages + reach)
        edges = np.arange(1, queue + 2)[None, :] * stages - settled[:, None]
        least = np.where(edges > 0, pdtrc(np.maximum(edges - 1, 0), after), 1.0)
        most = np.where(edges > 0, pdtr(np.maximum(edges - 1, 0), after), 0.0)
        upper = most[:, :-1] > 0.5
        numbers = np.where(upper, least[:, :-1] - least[:, 1:], most[:, 1:] - most[:, :-1])
        joined = np.concatenate([np.zeros((reach, 1)), numbers, least[:, -1:]], axis=1)
        return stay, _pmf(settled[None, :] - phases[:, None], during) @ joined

    def _service(self, model: int, batch: int, waiting: int) -> _Service:
        chain = self.chain
        rate = float(chain.rate_of[waiting])
        latency, slo = float(chain.latency_s[model, batch - 1]), float(chain.grid_s[-1])
        bucket = int(np.argmax(chain.grid_s[1:] > slo - latency))
        low = slo - float(chain.grid_s[bucket + 1])
        stay, land = self._stretch(rate * max(latency - low, 0.0), rate * low)
        return _Service(rate, bucket, stay, land)

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
        found = [self._left_behind(int(n), int(j)) for n, j in zip(*self.rest, strict=True)]
        if not found:
            return None
        first = np.concatenate([[0], np.cumsum([places.size for places, _ in found])])
        shape = (len(found), self.chain.slacks * (self.chain.queue + 2))
        places, shares = (np.concatenate([row[k] for row in found]) for k in (0, 1))
        return csr_array((shares, places, first), shape=shape)

    def _left_behind(self, n_index: int, j: int) -> tuple[Integers, Floats]:
        """Where an action leads that takes fewer than wait: places in [j', n'], flattened, and probabilities."""
        chain = self.chain
        n, taken = n_index + 1, max(int(chain.batch[n_index, j]), 1)
        batch, model = int(chain.batch[n_index, j]), int(chain.model[n_index, j])
        latency = float(chain.latency_s[model, batch - 1]) if batch else 0.0
        stages = chain.stages
        waited = float(chain.grid_s[-1] - chain.grid_s[j])
        share = self.weights[n - 1][j]
        kept = np.flatnonzero(share > 1e-15)
        before = self._passed(n, taken, waited, chain.grid_s[1:-1] - float(chain.grid_s[j]) + latency, kept)
        slack = np.diff(before, axis=1, prepend=0.0, append=1.0)
        mean = float(chain.rate_of[n]) * latency
        edges = np.arange(1, chain.queue - (n - taken) + 2)[None, :] * stages - kept[:, None]
        reached = pdtr(np.maximum(edges - 1, 0), mean)
        joins = np.diff(np.concatenate([np.zeros((kept.size, 1)), reached, np.ones((kept.size, 1))], axis=1), axis=1)
        both = (slack * share[kept, None]).T @ joins
        slacks, joined = np.nonzero(both > 1e-16)
        return slacks * (chain.queue + 2) + n - taken + joined, both[slacks, joined]

    def _passed(self, n: int, taken: int, waited: float, edges: Floats, kept: Integers) -> Floats:
        """P(the new head came no later than an edge after the old one | phase): [phase, edge]."""
        if waited <= 0:
            return np.tile((edges > 0).astype(float), (kept.size, 1))
        head = taken * self.chain.stages
        counts = (n - 1) * self.chain.stages + kept[:, None]
        share = np.clip(edges / waited, 0.0, 1.0)
        result = np.tile((share >= 1.0).astype(float), (kept.size, 1))
        middle = head / (counts.mean() + 1.0)
        width = 12.0 * np.sqrt(middle * (1 - middle) / (counts.min() + 2.0)) + _slip(self.chain.stages, counts)
        near = (share > 0) & (share < 1) & (np.abs(share - middle) < width)
        result[:, (share < 1) & (share >= middle + width)] = 1.0
        result[:, near] = betainc(head, counts - head + 1, share[near][None, :])
        return result


def _slip(stages: int, counts: Integers) -> float:
    """How far the middle moves between the smallest and the largest phase."""
    return stages / (float(counts.min()) + 1.0)


@dataclass(frozen=True)
class _Service:
    """A model and batch in use: the bucket that it begins in, and its part of that bucket."""

    rate: float
    bucket: int
    stay: Floats
    land: Floats

    def worth(self, lines: Floats, seats: Floats) -> Floats:
        return np.asarray(self.stay @ lines[self.bucket + 1] + self.land @ seats[self.bucket])


def _pmf(counts: Integers, mean: float) -> Floats:
    kept = np.maximum(counts, 0)
    return np.where(counts >= 0, np.exp(xlogy(kept, mean) - mean - gammaln(kept + 1.0)), 0.0)
