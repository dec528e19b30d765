"""A second opinion on plans: a discrete-event simulator that the tests own. Nothing of hetplan is imported.

It is written from docs/ alone and kept plain: one heap of events, lists for queues, no cleverness. What it plays:

* a bank is so many alike servers that hold one model; each server takes up to `most` queries of its queue at once, as
  soon as it is free, and such a batch takes the time of its size and of its slowest query;
* rule `shares`: a query is sent to a bank by chance, by the shares of the first route that fits it, and there to the
  server with fewest queries, to the next in turn, or to any; with steps, the children of an answer follow at once;
* rule `earliest`: a query joins the queue of the server that would answer it first;
* rule `matching`: queries wait together, and at each event the oldest of them are matched with the servers
  (Kairos, Eqs. 1 to 8): least weighted time, pairs that would be late cost ten times the limit.

Late queries are served like others. Whatever a case says beyond that is refused by who makes the case.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

Law = Callable[[random.Random, float], float]


def constant(_: random.Random, mean: float) -> float:
    return mean


def exponential(rng: random.Random, mean: float) -> float:
    return rng.expovariate(1.0 / mean)


def lognormal(ratio: float) -> Law:
    """Times whose standard deviation is `ratio` times their mean."""
    sigma = math.sqrt(math.log1p(ratio * ratio))
    return lambda rng, mean: mean * math.exp(rng.gauss(-0.5 * sigma * sigma, sigma))


@dataclass(frozen=True)
class Bank:
    """Alike servers; `ms[class][n - 1]` is the mean time of n queries of a class taken together."""

    servers: int
    ms: Mapping[Any, Sequence[float]]
    most: int = 1
    weight: float = 1.0
    law: Law = constant
    fanout: Mapping[str, float] = field(default_factory=dict)
    """Queries of a later step, per query answered here."""


@dataclass(frozen=True)
class Way:
    """Where queries of a step go: of these classes (None: of all), behind this path of banks (None: behind any)."""

    to: Mapping[str, float]
    step: str = ""
    classes: frozenset[Any] | None = None
    path: tuple[str, ...] | None = None


@dataclass(frozen=True)
class App:
    """One application; `mix` is the share of each class of query, `then` the steps that follow a step."""

    rate_qps: float
    limit_ms: float
    ways: Sequence[Way]
    mix: Mapping[Any, float] = field(default_factory=lambda: {None: 1.0})
    first: str = ""
    then: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rule: str = "shares"
    within: str = "shortest"
    xi: float = 1.0
    shape: float = 1.0
    """Of the gamma law of the gaps between arrivals: 1 is a Poisson process, less comes in bursts."""
    times_ms: Sequence[float] | None = None
    """Recorded arrivals, in place of drawn ones."""


@dataclass(frozen=True)
class Played:
    """What became of an application's queries, those of the first tenth left out."""

    response_ms: np.ndarray[Any, Any]
    late: float


class _Server:
    def __init__(self, bank: str) -> None:
        self.bank, self.queue, self.batch = bank, list[Any](), list[Any]()
        self.free_at = 0.0  # while it serves: when its batch will end, as far as means tell
        self.due_at = 0.0  # rule `earliest`: when all that was sent here will have ended

    def load(self) -> int:
        return len(self.queue) + len(self.batch)


class _Query:
    __slots__ = ("app", "arrived", "kind", "last", "open")

    def __init__(self, app: str, arrived: float, kind: Any) -> None:
        self.app, self.arrived, self.kind, self.last, self.open = app, arrived, kind, arrived, 1


def play(apps: Mapping[str, App], banks: Mapping[str, Bank], *, queries: int, seed: int) -> dict[str, Played]:
    """Play so many queries of each application, each until its end; those that come last find others beside them."""
    rng = random.Random(f"plain {seed}")
    crews = {name: [_Server(name) for _ in range(bank.servers)] for name, bank in banks.items()}
    turns: dict[Any, int] = {}
    waiting: dict[str, list[_Query]] = {name: [] for name in apps}
    ended: dict[str, list[_Query]] = {name: [] for name in apps}
    events: list[tuple[float, int, int, Any]] = []
    count = 0

    def push(at: float, what: int, item: Any) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (at, what, count, item))

    def start(server: _Server, now: float) -> None:
        bank = banks[server.bank]
        taken, server.queue = server.queue[: bank.most], server.queue[bank.most :]
        server.batch = taken
        mean = max(bank.ms[job[0].kind][len(taken) - 1] for job in taken)
        server.free_at = now + mean
        push(now + bank.law(rng, mean), 0, server)

    def enter(server: _Server, job: Any, now: float) -> None:
        server.queue.append(job)
        if not server.batch:
            start(server, now)

    def send(query: _Query, step: str, path: tuple[str, ...], now: float) -> None:
        app = apps[query.app]
        if app.rule == "matching":
            waiting[query.app].append(query)
            match(query.app, now)
            return
        way = next(
            w
            for w in app.ways
            if w.step == step and (w.path is None or w.path == path) and (w.classes is None or query.kind in w.classes)
        )
        if app.rule == "earliest":
            every = [server for name in way.to for server in crews[name]]
            best = min(every, key=lambda s: max(s.due_at, now) + banks[s.bank].ms[query.kind][0])
            best.due_at = max(best.due_at, now) + banks[best.bank].ms[query.kind][0]
            enter(best, (query, step, path), now)
            return
        draw = rng.random() * sum(way.to.values())
        for name, share in way.to.items():  # noqa: B007 (the last one where rounding leaves a little over)
            draw -= share
            if draw < 0.0:
                break
        crew = crews[name]
        if app.within == "shortest":
            turns[name] = turn = turns.get(name, -1) + 1  # of equal queues, the one whose turn it is
            server = min(crew[turn % len(crew) :] + crew[: turn % len(crew)], key=_Server.load)
        elif app.within == "turns":
            turns[id(way), name] = turn = turns.get((id(way), name), -1) + 1
            server = crew[turn % len(crew)]
        else:
            server = crew[rng.randrange(len(crew))]
        enter(server, (query, step, path), now)

    def match(name: str, now: float) -> None:
        app = apps[name]
        servers = [server for way in app.ways for bank in way.to for server in crews[bank]]
        servers = list(dict.fromkeys(servers))
        queue = waiting[name][: 2 * len(servers)]
        if not queue or all(server.batch for server in servers):
            return
        weights = np.array([banks[s.bank].weight for s in servers])
        busy = np.array([max(s.free_at - now, 0.0) if s.batch else 0.0 for s in servers])
        takes = np.array([[banks[s.bank].ms[q.kind][0] for s in servers] for q in queue]) + busy
        waited = np.array([now - q.arrived for q in queue])
        late = 10.0 * app.limit_ms * weights
        if 10.0 * weights.min() < app.xi * weights.max():  # a late pair must never beat a timely one
            late = late / weights.min()
        cost = np.where(takes + waited[:, None] > app.xi * app.limit_ms, late, weights * takes)
        sent = [
            (queue[i], servers[j]) for i, j in zip(*linear_sum_assignment(cost), strict=True) if not servers[j].batch
        ]
        for query, server in sent:
            waiting[name].remove(query)
            enter(server, (query, "", ()), now)

    for name, app in apps.items():
        kinds, shares = list(app.mix), list(app.mix.values())
        at = 0.0
        for number in range(queries if app.times_ms is None else len(app.times_ms)):
            gap = rng.gammavariate(app.shape, 1e3 / app.rate_qps / app.shape) if app.times_ms is None else 0.0
            at = at + gap if app.times_ms is None else app.times_ms[number]
            push(at, 1, _Query(name, at, rng.choices(kinds, shares)[0]))
    while events:
        now, what, _, item = heapq.heappop(events)
        if what == 1:
            send(item, apps[item.app].first, (), now)
            continue
        jobs, item.batch = item.batch, []
        if item.queue:
            start(item, now)
        for query, step, path in jobs:
            query.open -= 1
            bank = banks[item.bank]
            for child in apps[query.app].then.get(step, ()):
                mean = bank.fanout.get(child, 1.0)
                for _child in range(int(mean) + (rng.random() < mean % 1.0)):
                    query.open += 1
                    send(query, child, (*path, item.bank), now)
            query.last = now
            if not query.open:
                ended[query.app].append(query)
        for name in {query.app for query, _, _ in jobs if apps[query.app].rule == "matching"}:
            match(name, now)
    played = {}
    for name, done in ended.items():
        done.sort(key=lambda query: query.arrived)
        response = np.array([query.last - query.arrived for query in done[len(done) // 10 :]])
        played[name] = Played(response, float(np.mean(response > apps[name].limit_ms * (1.0 + 1e-9))))
    return played
