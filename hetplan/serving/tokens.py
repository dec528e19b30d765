"""Text that is made token by token: the law of an engine, the requests, and what a request takes from a machine.

One reading for every room: the program's rows, the simulator's iterations and the router's outstanding work all come
from here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.profiles.engines import Engine
from hetplan.profiles.operating_points import Limit
from hetplan.profiles.slo import Arrivals, LatencyTarget, Mix
from hetplan.profiles.workers import Serve
from hetplan.serving.loads import run_of, worker_price
from hetplan.serving.needs import load_s_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.pipelines import Link
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.profile import Profile

__all__ = [
    "CACHED",
    "INPUT",
    "OUTPUT",
    "Group",
    "Requests",
    "TextCrew",
    "TextSystem",
    "TokenDemand",
    "TokenFleet",
    "TokenLaw",
    "Work",
    "cap_of",
    "demand_of",
    "fleet_of_plan",
    "instances_on",
    "law_of_engine",
    "link_between",
    "link_ms_per_token",
    "makes_text",
    "settling_s",
    "text_system",
    "usual_s",
    "within",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

INPUT, OUTPUT, CACHED = "input_tokens", "output_tokens", "cached_tokens"
"""The axes of a mix of requests: tokens in, tokens out, and how many of those in are in the cache."""


@dataclass(frozen=True)
class Requests:
    """Requests by their lengths: tokens in, tokens out, tokens in that are in the cache."""

    input: Integers
    output: Integers
    cached: Integers

    @classmethod
    def of(cls, sizes: Sequence[Sequence[float]] | Floats) -> Requests:
        """From rows of (in, out) or (in, out, cached).

        >>> Requests.of([(100, 20)]).input.tolist()
        [100]
        """
        rows = np.asarray(sizes, dtype=np.float64)
        whole = np.rint(rows).astype(np.int64)
        cached = whole[:, 2] if whole.shape[1] > 2 else np.zeros(len(whole), dtype=np.int64)
        # The last token of a prompt is always computed: its answer is the first token.
        return cls(whole[:, 0], whole[:, 1], np.minimum(cached, whole[:, 0] - 1))

    def __len__(self) -> int:
        return int(self.input.size)

    def taken(self, which: Integers | NDArray[np.bool_]) -> Requests:
        """Some of them, in this order."""
        return Requests(self.input[which], self.output[which], self.cached[which])


@dataclass(frozen=True)
class Work:
    """What each request takes: tokens, KV tokens read, decoding steps, pairs of prefill, KV room times iterations."""

    tokens: Floats
    kv_tokens: Floats
    sequences: Floats
    pairs: Floats
    room: Floats

    def means(self, weight: Floats) -> Work:
        """The weighted mean of each, as one request."""
        names = ("tokens", "kv_tokens", "sequences", "pairs", "room")
        return Work(**{name: np.atleast_1d(np.average(getattr(self, name), weights=weight)) for name in names})


@dataclass(frozen=True)
class TokenLaw:
    """The law of one engine, in milliseconds: the longest of its pieces, and what experts and prompts add to it.

    Pieces are rows of (base, per token, per KV token, per sequence, per pair). Few tokens touch few experts, so more of
    them add less and less (`experts_ms`, `experts_rate`); a prompt, however short, adds `chunk_ms`. Before its first
    iteration a request waits `request_ms`.

    >>> law = TokenLaw(np.array([[2.0, 0.1, 0.0, 0.0, 0.0], [10.0, 0.0, 0.001, 0.0, 0.0]]), 10_000)
    >>> float(law.iteration_ms(8, 1000, 8)), float(law.iteration_ms(500, 0, 0))
    (11.0, 52.0)
    >>> law = TokenLaw(np.array([[2.0, 0.0, 0.0, 0.0, 0.0]]), 10_000, experts_ms=8.0, experts_rate=0.1, chunk_ms=1.0)
    >>> [round(law.iteration_ms(n, 0, s), 3) for n, s in ((1, 1), (100, 100), (101, 100))]
    [2.761, 10.0, 11.0]
    """

    pieces: Floats
    kv_tokens: int
    most_tokens: int = 8192
    most_seqs: int = 256
    context_tokens: int | None = None
    role: str = "mixed"
    prefill_first: bool = False
    reserves: bool = False
    kv_bytes_per_token: float = 0.0
    experts_ms: float = 0.0
    experts_rate: float = 0.0
    chunk_ms: float = 0.0
    request_ms: float = 0.0

    def experts(self, tokens: Floats | float) -> Floats:
        """What reading the experts of so many tokens takes: concave, so no piece says it."""
        return np.asarray(-self.experts_ms * np.expm1(-self.experts_rate * np.asarray(tokens, dtype=np.float64)))

    @cached_property
    def prices(self) -> Floats:
        """The pieces, each with what prompts add, in as long chunks as may be: no schedule takes less of any."""
        added = np.zeros(self.pieces.shape[1])
        added[1], added[3] = self.chunk_ms / self.most_tokens, -self.chunk_ms / self.most_tokens
        if self.role == "prefill":  # else batches of decodes say what experts take (`batches`)
            added[1] += float(self.experts(self.most_tokens)) / self.most_tokens
        return self.pieces + added if self.chunk_ms or self.experts_ms else self.pieces

    @cached_property
    def least(self) -> Floats:
        """Prices of work whatever the batches. A base below 0 is made up for by the first piece, whose base is not."""
        rows = self.prices.copy()
        for row in rows[rows[:, 0] < 0.0]:
            rows = np.vstack([rows, (rows[0, 0] * row - row[0] * rows[0]) / (rows[0, 0] - row[0])])
        rows = rows[rows[:, 0] >= 0.0, 1:]
        if self.experts_ms and self.role != "prefill":
            rows[:, 0] += float(self.experts(self.most_tokens)) / self.most_tokens
        return rows

    @property
    def batches(self) -> tuple[Floats, Floats]:
        """The least and the most sequences of each class of batches: of one size to 256, then each a tenth longer."""
        high = list(range(1, min(self.most_seqs, 256) + 1))
        while high[-1] < self.most_seqs:
            high.append(min(self.most_seqs, int(high[-1] * 1.1)))
        return np.array([0, *high[:-1]], dtype=np.float64) + 1.0, np.array(high, dtype=np.float64)

    def iteration_ms(self, tokens: float, kv_tokens: float = 0.0, sequences: float = 0.0, pairs: float = 0.0) -> float:
        """How long one iteration takes."""
        longest = float((self.pieces @ np.array([1.0, tokens, kv_tokens, sequences, pairs])).max())
        return longest + float(self.experts(tokens)) + (self.chunk_ms if tokens > sequences else 0.0)

    def slower(self, share: float) -> TokenLaw:
        """The law with every iteration longer by this share: what its error allows."""
        times = 1.0 + share
        experts, chunk = self.experts_ms * times, self.chunk_ms * times
        return replace(self, pieces=self.pieces * times, experts_ms=experts, chunk_ms=chunk)

    def limited(self, most_tokens: int, most_seqs: int) -> TokenLaw:
        """With a shorter chunk and fewer sequences."""
        return replace(self, most_tokens=min(most_tokens, self.most_tokens), most_seqs=min(most_seqs, self.most_seqs))

    def holds(self, requests: Requests) -> NDArray[np.bool_]:
        """Which requests fit into context and KV at all."""
        length = requests.input + requests.output
        return length <= min(self.context_tokens or self.kv_tokens, self.kv_tokens)

    def prefill_ms(self, requests: Requests, chunk: int | None = None) -> Floats:
        """The time to the first token on an empty machine, the prompt in chunks of so many tokens.

        >>> law = TokenLaw(np.array([[1.0, 0.1, 0.0, 0.0, 0.0]]), 10_000)
        >>> law.prefill_ms(Requests.of([(100, 5, 0), (100, 5, 50)]), 64).round(6).tolist()
        [12.0, 6.0]
        """
        size = chunk or self.most_tokens
        start, total = requests.cached.astype(np.float64), np.full(len(requests), self.request_ms)
        end = requests.input.astype(np.float64)
        while (left := end > start).any():
            stop = np.minimum(start + size, end)
            taken, pairs = stop - start, (stop * stop - start * start) / 2.0
            ms = self.pieces[:, :1] + self.pieces[:, 1:2] * taken + self.pieces[:, 4:5] * pairs
            total += np.where(left, ms.max(axis=0) + self.experts(taken) + self.chunk_ms, 0.0)
            start = stop
        return total

    def decode_ms(self) -> float:
        """The shortest iteration of one decoding sequence: no token comes faster."""
        return self.iteration_ms(1.0, 1.0, 1.0)

    def work(self, requests: Requests) -> Work:
        """What requests take of this engine, by its role. Never more than any schedule needs."""
        i, o = requests.input.astype(np.float64), requests.output.astype(np.float64)
        cached, steps = requests.cached.astype(np.float64), o - 1.0
        reads = steps * (i + o / 2.0)
        rounds = np.ceil((i - cached) / self.most_tokens)
        zero = np.zeros_like(i)
        first = self.role != "decode"
        after = self.role != "prefill"
        held = (i + o) * (rounds * first + steps * after) if self.reserves else i * rounds * first + reads * after
        return Work(
            tokens=(i - cached if first else zero) + (steps if after else zero),
            kv_tokens=reads if after else zero,
            sequences=steps if after else zero,
            pairs=(i * i - cached * cached) / 2.0 if first else zero,
            room=held,
        )

    def outstanding_ms(self, requests: Requests, output_tokens: float) -> tuple[Floats, Floats, Floats]:
        """What a router counts of requests, taken to make so many tokens.

        The emptiest prefill (infinite where a request does not fit), and the work until and after the first token.
        """
        i, cached, taken = (
            requests.input.astype(np.float64),
            requests.cached.astype(np.float64),
            max(output_tokens, 1.0),
        )
        steps, none = taken - 1.0, np.zeros(len(requests))
        alone = np.where(self.holds(requests), self.prefill_ms(requests), np.inf)
        prefill = np.stack([i - cached, none, none, (i * i - cached * cached) / 2.0])
        decode = np.stack([steps + none, steps * (i + taken / 2.0), steps + none, none])
        sooner = (self.least @ prefill).max(axis=0) if self.role != "decode" else none
        later = (self.least @ decode).max(axis=0) if self.role != "prefill" else none
        return alone, sooner, later

    def as_dict(self) -> dict[str, Any]:
        """As JSON data.

        >>> law = TokenLaw(np.array([[2.0, 0.1, 0.0, 0.0, 0.0]]), 10_000)
        >>> float(TokenLaw.from_dict(law.as_dict()).iteration_ms(10))
        3.0
        """
        return {**asdict(self), "pieces": self.pieces.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenLaw:
        """The law that `as_dict` wrote down."""
        return cls(**{**data, "pieces": np.array(data["pieces"], dtype=np.float64)})

    def busy_ms(self, work: Work) -> Floats:
        """The time that work keeps a machine busy at least, whatever its batches: the dearest piece."""
        loads = np.stack([work.tokens, work.kv_tokens, work.sequences, work.pairs])
        return np.asarray((self.least @ loads).max(axis=0))


def law_of_engine(engine: Engine, *, error: float = 0.0) -> TokenLaw:
    """The law as a profile states it, slower by this share."""
    (experts_ms, experts_rate), times = engine.experts, 1.0 + error
    return TokenLaw(
        pieces=np.array(engine.rows, dtype=np.float64) * times,
        kv_tokens=engine.kv_tokens,
        most_tokens=engine.most_tokens,
        most_seqs=engine.most_seqs,
        context_tokens=engine.context_tokens,
        role=engine.role,
        prefill_first=engine.schedule == "prefill-first",
        reserves=engine.reserves,
        kv_bytes_per_token=engine.kv_bytes_per_token or 0.0,
        experts_ms=experts_ms * times,
        experts_rate=experts_rate,
        chunk_ms=engine.chunk_ms * times,
        request_ms=engine.request_ms,
    )


def instances_on(gpus_of_machine: float | None, engine: Engine) -> int:
    """How many instances of an engine one machine runs; hardware that does not count its GPUs has one.

    >>> instances_on(8.0, Engine.model_validate({"pieces": [{"base_ms": 9}], "kv_tokens": 99, "tensor": 2}))
    4
    """
    return math.floor((1.0 if gpus_of_machine is None else gpus_of_machine) / engine.gpus + 1e-9)


# What is asked for


def within(times_of: Callable[[str], Floats], limits: Sequence[Limit | LatencyTarget]) -> NDArray[np.bool_]:
    """Which requests are answered, and within all limits, by the times that a limit may be about.

    Times of machines are held against what the network leaves, times that a client saw against what is stated.
    """
    good = np.isfinite(times_of("response"))
    for limit in limits:
        # A request of one token has no time per token to miss.
        good &= ~(times_of(limit.of) > limit.max_ms)
    return good


@dataclass(frozen=True)
class TokenDemand:
    """Requests to draw from, how often each comes, which class it is of, and when requests come."""

    requests: Requests
    weight: Floats
    kind: Integers
    rate_qps: float
    arrivals: Arrivals

    @property
    def output_tokens(self) -> float:
        """The mean of what is made: what a router takes any request to make."""
        return float(np.average(self.requests.output, weights=self.weight))


def demand_of(mix: Mix | None, arrivals: Arrivals, rate_qps: float) -> TokenDemand:
    """The requests of an application: those observed, each in its bin, else one per bin.

    Bins are the largest lengths of their class; means are taken over what was observed in each.
    """
    assert mix is not None  # without lengths the question is not asked
    named = (INPUT, OUTPUT, CACHED)
    order = [mix.axes.index(axis) for axis in named if axis in mix.axes]
    sizes = mix.bins if mix.observed is None else mix.observed
    rows = np.array([[size[axis] for axis in order] for size in sizes], dtype=np.float64)
    if mix.observed is None:
        weight, kind = np.asarray(mix.share, dtype=np.float64), np.arange(len(sizes))
    else:
        weight, kind = np.full(len(sizes), 1.0 / len(sizes)), _bins_of(mix)
    kept = weight > 0
    return TokenDemand(Requests.of(rows[kept]), weight[kept], kind[kept], rate_qps, arrivals)


def settling_s(demand: TokenDemand, limits: Sequence[Limit], laws: Sequence[TokenLaw]) -> float:
    """How long an empty fleet takes to fill: what 95% of the requests take at most where all limits are just kept.

    No token takes longer than an iteration of a full machine, the first no longer than ten of the longest prompts.

    >>> law = TokenLaw(np.array([[10.0, 0.1, 0.0, 0.0, 0.0]]), 10_000)
    >>> demand = TokenDemand(Requests.of([(100, 51)]), np.ones(1), np.zeros(1, dtype=np.int64), 1.0, Arrivals())
    >>> settling_s(demand, [Limit("ttft", 95.0, 500.0, 0), Limit("tpot", 95.0, 20.0, 1)], [law])
    1.2
    """
    takes = _takes_ms(demand, limits, laws)
    order = np.argsort(takes, kind="stable")
    passed = np.cumsum(demand.weight[order]) / demand.weight.sum()
    return float(takes[order][np.searchsorted(passed, 0.95 - 1e-9)]) / 1000.0


def usual_s(demand: TokenDemand, limits: Sequence[Limit], laws: Sequence[TokenLaw]) -> float:
    """How long a request takes on the mean where all limits are just kept: what is under way longer has piled up.

    >>> law = TokenLaw(np.array([[10.0, 0.1, 0.0, 0.0, 0.0]]), 10_000)
    >>> asked, kinds = Requests.of([(100, 51), (100, 1)]), np.zeros(2, dtype=np.int64)
    >>> demand = TokenDemand(asked, np.ones(2), kinds, 1.0, Arrivals())
    >>> usual_s(demand, [Limit("tpot", 95.0, 20.0, 0)], [law])
    0.7
    """
    return float(np.average(_takes_ms(demand, limits, laws), weights=demand.weight)) / 1000.0


def _takes_ms(demand: TokenDemand, limits: Sequence[Limit], laws: Sequence[TokenLaw]) -> Floats:
    """What each request takes at most where all limits are just kept."""
    least = {of: min((one.max_ms for one in limits if one.of == of), default=np.inf) for of in ("ttft", "tpot")}
    full = max(law.iteration_ms(law.most_seqs, law.kv_tokens, law.most_seqs) for law in laws)
    prompts = [law.prefill_ms(demand.requests)[law.holds(demand.requests)].max(initial=0.0) for law in laws]
    first, each = min(least["ttft"], 10.0 * float(max(prompts))), min(least["tpot"], full)
    return np.asarray(first + (demand.requests.output - 1) * each, dtype=np.float64)


def _bins_of(mix: Mix) -> Integers:
    """The bin of each observed size: the smallest (by its sum of tokens) that is no smaller on any axis."""
    sizes, bins = np.asarray(mix.observed, dtype=np.float64), np.asarray(mix.bins, dtype=np.float64)
    found = np.full(len(sizes), -1, dtype=np.int64)
    for number in np.argsort(-bins.sum(axis=1), kind="stable"):
        found[(sizes <= bins[number]).all(axis=1)] = number
    return found


# What runs


@dataclass(frozen=True)
class Group:
    """Alike instances: their law, how many there are, and how requests come to them.

    `limit` is what of the target an emptiest prefill may take for a request to be sent here (`least-work/1`); `share`
    is what part of the requests each of them gets (`shares/1`); by `weight` the requests there are counted
    (`weighted-least/1`). Of more than `cap` requests at a time none comes here.
    """

    law: TokenLaw
    count: int
    limit: float = 1.0
    share: float = 1.0
    id: str = ""
    weight: float | None = None
    cap: int | None = None


@dataclass(frozen=True)
class TokenFleet:
    """Groups of instances and the rule by which requests reach them.

    `output_tokens` is what the router takes a request to make; `link_ms_per_token` how long the KV of a token takes
    from a machine that prefills to one that decodes.
    """

    groups: tuple[Group, ...]
    output_tokens: float
    ttft_ms: float = math.inf
    rule: str = "least-work/1"
    link_ms_per_token: float = 0.0


@dataclass(frozen=True, eq=False)
class TextCrew:
    """Alike machines: the instances on each of them, how long one takes to serve, and its price (1e-9 per hour).

    `kind` says what is rented and what runs on it. Of machines that applications share, each has the instances of one
    of them, and pays an equal part.
    """

    id: str
    groups: tuple[Group, ...]
    count: int
    ready_ms: float = 0.0
    price_nanos: float = 0.0
    kind: str = ""
    offer: str | None = None


@dataclass(frozen=True, eq=False)
class TextSystem:
    """What makes text for an application: crews of machines, and how requests reach their instances (`fleet`)."""

    crews: tuple[TextCrew, ...]
    fleet: TokenFleet

    def sized(self, counts: Mapping[str, int]) -> TextSystem:
        """The same with so many machines in each crew."""
        return replace(self, crews=tuple(replace(crew, count=counts[crew.id]) for crew in self.crews))

    def by_kind(self, prefix: str = "") -> TextSystem:
        """The crews named by their kind, so that machines of plans that follow one another are the same machines.

        Those of one kind are one crew, at their mean price: applications may share some of them.
        """
        found: dict[str, TextCrew] = {}
        for crew in self.crews:
            before = found.get(crew.kind, replace(crew, id=prefix + crew.kind, count=0))
            count = before.count + crew.count
            price = (before.count * before.price_nanos + crew.count * crew.price_nanos) / max(count, 1)
            found[crew.kind] = replace(before, count=count, price_nanos=price if count else crew.price_nanos)
        return replace(self, crews=tuple(found.values()))


def makes_text(plan: Plan, inputs: Inputs, app: str) -> bool:
    """Whether a plan serves an application by engines that make tokens."""
    variants = inputs.profile.variants
    return any(
        run.engine is not None and run.hardware == worker.hardware
        for worker in plan.workers
        for load in worker.loads
        if load.app == app and load.variant in variants
        for run in variants[load.variant].runs
    )


def text_system(plan: Plan, inputs: Inputs, app: str) -> TextSystem:
    """What a plan (of one period) runs to make text for an application: a crew for each of its workers."""
    fleet, crews = fleet_of_plan(plan, inputs, app), list[TextCrew]()
    groups = iter(fleet.groups)
    for worker in plan.workers:
        mine = [load for load in worker.loads if load.app == app]
        each = tuple(replace(group, count=load.instances) for load, group in zip(mine, groups, strict=False))
        if not mine:
            continue
        engines = "+".join(
            f"{run_of(inputs.profile, load, worker.hardware).engine}:{group.law.most_tokens}x{group.law.most_seqs}"
            + (f"*{group.count}" if group.count > 1 else "")
            for load, group in zip(mine, each, strict=True)
        )
        ready_s = inputs.profile.hardware[worker.hardware].startup_s
        ready_s += max(load_s_of(inputs, load, worker.hardware) for load in mine)
        users = {load.app for load in worker.loads}
        name = worker.id if len(users) == 1 else f"{worker.id} {app}"
        price = (worker_price(inputs, worker) or 0) / len(users)
        kind = f"{worker.offer or worker.hardware} {engines}"
        crews.append(TextCrew(name, each, worker.count, 1000.0 * ready_s, price, kind, worker.offer))
    return TextSystem(tuple(crews), fleet)


def fleet_of_plan(plan: Plan, inputs: Inputs, app: str) -> TokenFleet:
    """The fleet that a plan says for an application: what the simulator plays and the router acts by."""
    profile, groups = inputs.profile, []
    rule = plan.dispatch.get(app)
    shares = {load: share for route in plan.routing.get(app, ()) for load, share in route.to.items()}
    for worker in plan.workers:
        for load in worker.loads:
            if load.app != app:
                continue
            run = run_of(profile, load, worker.hardware)
            engine = profile.engines.get(run.engine or "")
            if engine is None:
                raise InputError.one(
                    file="plan", path=f"$.workers.{worker.id}.loads.{load.id}", value=load.variant or "",
                    why="this load makes no tokens: its run names no engine", remedy="Make the plan again.",
                )  # fmt: skip
            law, serve = law_of_engine(engine), load.serve
            law = law.limited(serve.most_tokens or law.most_tokens, serve.most_seqs or law.most_seqs)
            count = worker.count * load.instances
            limit = getattr(rule, "limit", {}).get(load.id, 1.0)
            weight = rule.weight.get(load.id, 1.0) if rule is not None and rule.rule == "weighted-least/1" else None
            cap = cap_of(serve, law)
            groups.append(Group(law, count, limit, shares.get(load.id, 0.0) / count, load.id, weight, cap))
    output = getattr(rule, "output_tokens", 1.0)
    target = getattr(rule, "ttft_ms", None)
    name: str = rule.rule if rule is not None else "round-robin/1"
    if getattr(rule, "balancing", None) == "shortest_queue":
        name = "split-then-fewest/1"
    link = link_ms_per_token(plan, profile, app)
    return TokenFleet(tuple(groups), output, target or math.inf, name, link)


def cap_of(serve: Serve, law: TokenLaw) -> int | None:
    """The most requests at a time of an instance, where fewer are stated than its engine runs; else it queues them.

    >>> law = TokenLaw(np.array([[9.0, 0, 0, 0, 0]]), 1000, most_seqs=32)
    >>> cap_of(Serve(concurrency=20), law), cap_of(Serve(concurrency=32), law)
    (20, None)
    """
    # What comes to decode was prefilled already: it is refused no more.
    return serve.concurrency if 1 < serve.concurrency < law.most_seqs and law.role != "decode" else None


def link_ms_per_token(plan: Plan, profile: Profile, app: str | None) -> float:
    """How long the KV of a token takes from the plan's machines that prefill to those that decode, in milliseconds."""
    makes = [(worker, load) for worker in plan.workers for load in worker.loads if load.app == app]
    named = [(worker.hardware, run_of(profile, load, worker.hardware).engine or "") for worker, load in makes]
    engines = [(hardware, profile.engines[name]) for hardware, name in named if name in profile.engines]
    joined = [
        (engine.kv_bytes_per_token or 0.0, link_between(profile, given, taken))
        for given, engine in engines
        for taken, other in engines
        if (engine.role, other.role) == ("prefill", "decode")
    ]
    return max((size * 8.0 / (link.bandwidth_mbps * 1e3) for size, link in joined if link is not None), default=0.0)


def link_between(profile: Profile, one: str, other: str) -> Link | None:
    """The link between the tiers of two hardwares, over which KV moves."""
    tiers = {profile.hardware[name].tier for name in (one, other)}
    return next((link for link in profile.links if set(link.between) == tiers), None)
