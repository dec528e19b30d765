"""A simulation of fleets that make text, written apart from the product's: it judges fleets that others propose.

It keeps a plain list of the sequences that run on each machine and looks at every one of them in every iteration, so
it is slow and easy to follow. Nothing of `hetplan` is used here; what is simulated is the specification's: continuous
batching with chunked prefill, first come first served, KV taken as tokens are made, the newest sequence put back (and
computed again) where KV is full, and requests sent to the machine with the least expected work, this request included,
among the types whose empty machine would answer within `theta` times the TTFT target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Card", "Court", "Setting", "Verdict"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Card:
    """A type of GPU: what it costs, the pieces of its law (base, token, KV token, sequence, pair), its room for KV."""

    name: str
    price: float
    pieces: tuple[tuple[float, float, float, float, float], ...]
    kv: int
    sequences: int = 256


@dataclass(frozen=True)
class Setting:
    """How a fleet is run: machines and batch tokens of each type, and the router's limit."""

    counts: tuple[int, ...]
    chunks: tuple[int, ...]
    theta: float


@dataclass(frozen=True)
class Verdict:
    """What the seeds showed together: p95 of both times, and whether the limits are kept."""

    ttft_ms: float
    tpot_ms: float
    kept: bool


@njit  # type: ignore[misc]
def _ways(arrive, inp, out, kind, law, kv, chunk, most, allowed, fill, make, first, done):  # type: ignore[no-untyped-def]
    """Serve all requests; writes the times of the first and of the last token."""
    machines, requests = len(kind), len(arrive)
    queue = np.empty((machines, 2 * requests + 2), np.int64)
    head, tail = np.full(machines, requests), np.full(machines, requests)
    runs = np.empty((machines, requests), np.int64)
    running, ends, owed = np.zeros(machines, np.int64), np.full(machines, np.inf), np.zeros(machines)
    used = np.zeros(machines, np.int64)
    ready, made = np.zeros(requests, np.int64), np.zeros(requests, np.int64)
    takes = np.zeros(requests, np.int64)
    came = 0
    while True:
        now, who = np.inf, -1
        for j in range(machines):
            if ends[j] < now:
                now, who = ends[j], j
        if came < requests and arrive[came] <= now:
            now, r = arrive[came], came
            came += 1
            best, least = -1, np.inf
            for anyone in range(2):
                for j in range(machines):
                    after = owed[j] + fill[r, kind[j]] + make[r, kind[j]]
                    if (anyone or allowed[r, kind[j]]) and after < least:
                        best, least = j, after
                if best >= 0:
                    break
            owed[best] = least
            queue[best, tail[best]] = r
            tail[best] += 1
            if ends[best] < np.inf:
                continue
            who = best
        elif who < 0:
            break
        else:
            # The iteration ends: prompts that are whole give their first token, the others one more.
            kept = 0
            for place in range(running[who]):
                r = runs[who, place]
                over = False
                if ready[r] >= inp[r] + made[r]:
                    made[r] += 1
                    used[who] += 1
                    ready[r] += 1
                    over = made[r] >= out[r]
                elif takes[r] > 0:
                    ready[r] += takes[r]
                    if ready[r] >= inp[r] + made[r]:
                        made[r] += 1
                        used[who] += 1
                        ready[r] += 1
                        if made[r] == 1:
                            first[r] = now
                            owed[who] -= fill[r, kind[who]]
                        over = made[r] >= out[r]
                if over:
                    done[r] = now
                    owed[who] -= make[r, kind[who]]
                    used[who] -= inp[r] + made[r]
                else:
                    runs[who, kept] = r
                    kept += 1
            running[who] = kept
        # The next iteration. A sequence that decodes holds inp + made tokens; `ready` is one less than that then.
        t = kind[who]
        decoding = 0
        while True:
            decoding = 0
            for place in range(running[who]):
                r = runs[who, place]
                decoding += made[r] > 0 and ready[r] >= inp[r] + made[r]
            if used[who] + decoding <= kv[t] or running[who] <= 1:
                break
            running[who] -= 1
            r = runs[who, running[who]]
            used[who] -= inp[r] + made[r]
            ready[r] = 0
            head[who] -= 1
            queue[who, head[who]] = r
        tokens, reads, pairs = decoding, 0.0, 0.0
        for place in range(running[who]):
            r = runs[who, place]
            takes[r] = 0
            if made[r] > 0 and ready[r] >= inp[r] + made[r]:
                reads += inp[r] + made[r]
        for place in range(running[who]):
            r = runs[who, place]
            left = inp[r] + made[r] - ready[r]
            if left > 0 and tokens < chunk[t]:
                takes[r] = min(left, chunk[t] - tokens)
                tokens += takes[r]
                pairs += ((ready[r] + takes[r]) ** 2 - ready[r] ** 2) / 2.0
        while head[who] < tail[who] and tokens < chunk[t] and running[who] < most[t]:
            r = queue[who, head[who]]
            whole = inp[r] + made[r]
            if used[who] + whole + decoding > kv[t] and running[who] > 0:
                break
            head[who] += 1
            used[who] += whole
            runs[who, running[who]] = r
            running[who] += 1
            ready[r] = 0
            takes[r] = min(whole, chunk[t] - tokens)
            tokens += takes[r]
            pairs += takes[r] ** 2 / 2.0
        if running[who] == 0:
            ends[who] = np.inf
            continue
        length = 0.0
        for k in range(law.shape[1]):
            piece = law[t, k]
            length = max(
                length, piece[0] + piece[1] * tokens + piece[2] * reads + piece[3] * decoding + piece[4] * pairs
            )
        ends[who] = now + length


@dataclass
class Court:
    """Judges fleets of these cards for requests of these lengths, at a rate, under limits at p95."""

    cards: Sequence[Card]
    lengths: Sequence[Sequence[int]]
    rate: float
    ttft_ms: float = 500.0
    tpot_ms: float = 50.0
    played: int = 0
    _draws: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        widest = max(len(card.pieces) for card in self.cards)
        rows = [[*card.pieces, *[card.pieces[-1]] * (widest - len(card.pieces))] for card in self.cards]
        self.law = np.array(rows, dtype=np.float64)
        self.kv = np.array([card.kv for card in self.cards])
        self.most = np.array([card.sequences for card in self.cards])
        self.sizes = np.asarray(self.lengths, dtype=np.int64)

    def _draw(self, seed: int, count: int) -> Any:
        """Requests of a seed: Poisson arrivals, lengths drawn with replacement; what a router counts of each."""
        if (seed, count) not in self._draws:
            random = np.random.default_rng([20_231_116, seed])
            arrive = np.cumsum(random.exponential(1000.0 / self.rate, count))
            inp, out = self.sizes[random.integers(0, len(self.sizes), count)].T
            usual = float(self.sizes[:, 1].mean())
            fill, make = np.zeros((count, len(self.cards))), np.zeros((count, len(self.cards)))
            for t in range(len(self.cards)):
                slopes = self.law[t, :, 1:]
                ones = np.ones(count)
                fill[:, t] = (slopes @ np.array([inp, 0 * ones, 0 * ones, inp**2 / 2.0])).max(axis=0)
                make[:, t] = (slopes @ np.array([ones, inp + usual / 2.0, ones, 0 * ones])).max(axis=0) * (usual - 1)
            self._draws[seed, count] = (arrive, np.ascontiguousarray(inp), np.ascontiguousarray(out), fill, make)
        return self._draws[seed, count]

    def alone_ms(self, t: int, inp: Any, chunk: int) -> Floats:
        """The time to the first token on an empty machine of a type."""
        total, begun = np.zeros(len(inp)), np.zeros(len(inp))
        while (begun < inp).any():
            upto = np.minimum(begun + chunk, inp)
            loads = np.array([np.ones(len(inp)), upto - begun, 0 * begun, 0 * begun, (upto**2 - begun**2) / 2.0])
            total += np.where(begun < inp, (self.law[t] @ loads).max(axis=0), 0.0)
            begun = upto
        return total

    def times(self, how: Setting, seed: int, count: int) -> tuple[Floats, Floats]:
        """TTFT and TPOT of the requests of one seed that came neither first nor last."""
        self.played += 1
        arrive, inp, out, fill, make = self._draw(seed, count)
        alone = np.stack([self.alone_ms(t, inp, chunk) for t, chunk in enumerate(how.chunks)], axis=1)
        first, done = np.full(count, np.inf), np.full(count, np.inf)
        kind = np.repeat(np.arange(len(self.cards)), how.counts)
        allowed = alone <= how.theta * self.ttft_ms
        _ways(
            arrive, inp, out, kind, self.law, self.kv, np.array(how.chunks), self.most, allowed, fill, make, first, done
        )  # fmt: skip
        judged = slice(count // 10, count - count // 20)
        steps = out[judged] - 1
        per_token = (done - first)[judged][steps > 0] / steps[steps > 0]
        return (first - arrive)[judged], per_token

    def late(self, how: Setting, seed: int, count: int) -> float:
        """The larger share of requests that miss a limit."""
        ttft, tpot = self.times(how, seed, count)
        return max(float((ttft > self.ttft_ms).mean()), float((tpot > self.tpot_ms).mean()))

    def verdict(self, how: Setting, seeds: int = 12, count: int = 4000) -> Verdict:
        """The percentiles over all requests of fresh seeds; hopeless fleets are dropped after two."""
        parts = list[tuple[Floats, Floats]]()
        for seed in range(100, 100 + seeds):
            parts.append(self.times(how, seed, count))
            ttft, tpot = (float(np.percentile(np.concatenate(each), 95)) for each in zip(*parts, strict=True))
            if len(parts) >= 2 and (ttft > 1.3 * self.ttft_ms or tpot > 1.3 * self.tpot_ms):
                break
        return Verdict(ttft, tpot, ttft <= self.ttft_ms and tpot <= self.tpot_ms)

    def settings(self, counts: tuple[int, ...]) -> Iterator[Setting]:
        """One chunk for all types, with each limit of the router."""
        several = sum(1 for n in counts if n) > 1
        for theta in (1.0, 0.5, 0.25, math.inf) if several else (1.0,):
            for chunk in (512, 1024, 2048, 4096, 8192):
                yield Setting(counts, (chunk,) * len(counts), theta)

    def best(self, counts: tuple[int, ...], *, count: int = 2500) -> tuple[float, Setting] | None:
        """The way of running a fleet with the fewest late requests on one seed; None where all are hopeless."""
        rough = [(self.late(how, 1, 500), how) for how in self.settings(counts) if how.chunks[0] in (1024, 2048)]
        if min(late for late, _ in rough) > 0.3:
            return None
        late, how = min(((self.late(how, 2, count), how) for how in self.settings(counts)), key=lambda one: one[0])
        better = 0.01 < late < 0.15
        while better:
            better = False
            for t, n in enumerate(counts):
                for chunk in (512, 1024, 2048, 4096, 8192) if n else ():
                    other = Setting(counts, (*how.chunks[:t], chunk, *how.chunks[t + 1 :]), how.theta)
                    if other != how and (now := self.late(other, 2, count)) < late:
                        late, how, better = now, other, True
        return late, how

    def cheapest(self, candidates: Sequence[tuple[int, ...]]) -> tuple[float, Setting, Verdict] | None:
        """The first in price that keeps the limits over 12 seeds."""
        for counts in sorted(candidates, key=self.cost):
            found = self.best(counts) if any(counts) else None
            if found is not None and found[0] <= 0.08:
                verdict = self.verdict(found[1])
                if verdict.kept:
                    return self.cost(counts), found[1], verdict
        return None

    def cost(self, counts: Sequence[int]) -> float:
        """Dollars per hour."""
        return sum(n * card.price for n, card in zip(counts, self.cards, strict=True))
