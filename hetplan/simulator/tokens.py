"""Machines that make text token by token, played iteration by iteration: times to first token, per token, in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.confidence import share_interval
from hetplan.profiles.operating_points import Limit
from hetplan.profiles.slo import App
from hetplan.serving.tokens import Group, Requests, TokenDemand, TokenFleet, TokenLaw, within
from hetplan.simulator.demand import AppDemand, TextDemand, arrival_times, seeded
from hetplan.simulator.figures import Together, responses_of

if TYPE_CHECKING:
    from hetplan.simulator.token_kernels import Rules, World

__all__ = [
    "RULES",
    "Coming",
    "Played",
    "coming_of",
    "compile_kernels",
    "draw",
    "drawn_at",
    "kinds_of",
    "play",
    "played_of",
    "rows_of",
    "rules_of",
    "steady_goodput",
    "world_of",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RULES = {"least-work/1": 0, "round-robin/1": 1, "shares/1": 2, "split-then-fewest/1": 3, "weighted-least/1": 0}
"""The rules of text, and the kernel's number of each: by weight, all requests are work of the same length."""
_DRAWN = ("shares/1", "split-then-fewest/1")
_NEVER = 2**62
MOST_OUTPUT, MOST_STEPS = 1e6, 1e8
"""Tokens of one output that are played, and these times machines: each machine has a calendar so long."""
_ROLES = {"mixed": 0, "prefill": 1, "decode": 2}


@dataclass(frozen=True)
class Played:
    """What became of each request, in milliseconds; NaN of one that was not served. `tpot_ms` is NaN of one token."""

    arrival_ms: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    response_ms: Floats
    gap_ms: Floats | None
    lost: Integers
    machine: Integers
    waited_ms: Floats
    """Of each request, before its prefill began."""
    longest_gap_ms: Floats
    served: int
    end_ms: float
    busy: Floats
    rounds: Integers
    tokens: Integers
    most_kv: Floats
    course: Floats
    """Per stretch of time: machine-milliseconds busy, and these times sequences, share of KV, requests waiting."""
    settles_ms: float = 0.0
    """How long the fleet takes to fill: what comes in that time does not count, as far as it is half of the play."""
    whole: bool = False
    """Whether all requests count."""

    @cached_property
    def waiting(self) -> Floats:
        """Requests waiting at each machine, on the mean over time.

        By Little's law: what requests of each machine waited before their prefill began, over the time.
        """
        came = self.machine >= 0
        weights = np.nan_to_num(np.maximum(self.waited_ms[came], 0.0), posinf=0.0)
        return np.bincount(self.machine[came], weights, minlength=len(self.busy)) / max(self.end_ms or 1.0, 1e-9)

    @cached_property
    def queued_until_ms(self) -> float:
        """Until when a request waited for others, before its prefill began or between two tokens.

        The longest gap of an answer is a wait as far as it is longer than is usual. When it was is not known, but not
        before the prefill. Who was never served waited to the end.
        """
        begun_ms, gap_ms = self.arrival_ms + self.waited_ms, self.longest_gap_ms
        if np.isnan(begun_ms).any():
            return self.end_ms
        return float((begun_ms + np.maximum(gap_ms - np.median(gap_ms), 0.0)).max()) if len(begun_ms) else 0.0

    def of(self, what: str) -> Floats:
        """The times that a limit is about: `ttft`, `tpot` or `response`."""
        return {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "response": self.response_ms}[what]

    def judged(self) -> slice:
        """The requests that count: not those that met an emptier fleet, nor those behind which hardly anybody came."""
        count = len(self.arrival_ms)
        if self.whole:
            return slice(0, count)
        last = float(self.arrival_ms[-1]) if count else 0.0
        settled = min(self.settles_ms, last / 2.0)
        first = int(np.searchsorted(self.arrival_ms, settled))
        beyond = int(np.searchsorted(self.arrival_ms, last - settled / 4.0, side="right"))
        return slice(max(first, count // 10), min(beyond, count - count // 20))

    def times_ms(self, of: str, part: slice | None = None) -> Floats:
        """The times of the requests that count, or of a part of them; infinite of one that was not served.

        A request of one token has no time per token, so it is left out; where all are such, there is a 0.
        """
        mine = self.judged() if part is None else part
        lost, values = ~np.isfinite(self.response_ms[mine]), self.of(of)[mine]
        found = np.where(lost, np.inf, values)[lost | ~np.isnan(values)]
        return found if len(found) or not len(values) else np.zeros(1)

    @staticmethod
    def percentile(runs: Sequence[Played], limit: Limit, width: float) -> tuple[float, float, float]:
        """The time at a limit's percentile, of all runs together, and its interval; `width`: half of it, in spreads."""
        every = [responses_of(np.sort(run.times_ms(limit.of))) for run in runs]
        return Together(every, width).percentile(limit.percentile)

    def goodput(self, limits: Sequence[Limit]) -> float:
        """The share of requests within all limits at once."""
        good = self.within(limits)[self.judged()]
        return float(good.mean()) if len(good) else 0.0

    @staticmethod
    def attainment(runs: Sequence[Played], limits: Sequence[Limit], width: float) -> tuple[float, float, float]:
        """The share of requests within all limits at once, over runs that count alike, and its interval."""
        shares = [run.goodput(limits) for run in runs]
        return (float(np.mean(shares)), *share_interval(shares, width))

    def within(self, limits: Sequence[Limit]) -> NDArray[np.bool_]:
        """Which requests are within all limits."""
        return within(self.of, limits)


@dataclass
class Coming:
    """Requests on their way to a fleet, and what each engine would take for each size: worked out once per law."""

    arrival_ms: Floats
    requests: Requests
    output_tokens: float
    settles_s: float = 0.0
    _columns: dict[object, tuple[Floats, Floats, Floats]] = field(default_factory=dict, repr=False)

    @cached_property
    def sizes(self) -> tuple[Requests, Integers]:
        """The sizes that there are, and which of them each request has."""
        asked = self.requests
        number = asked.input * (int(asked.output.max(initial=0)) + 1) + asked.output
        number = number * (int(asked.cached.max(initial=0)) + 1) + asked.cached
        _, first, which = np.unique(number, return_index=True, return_inverse=True)
        return asked.taken(first), which

    @cached_property
    def blank(self) -> tuple[Integers, Floats]:
        """What a play keeps of each request, before any came: of many fleets, each begins with a copy."""
        from hetplan.simulator import token_kernels as k

        requests = self.requests
        asked, times = np.zeros((len(requests), 14), dtype=np.int64), np.full((len(requests), 5), np.nan)
        asked[:, k.INPUT], asked[:, k.OUTPUT], asked[:, k.CACHED] = requests.input, requests.output, requests.cached
        asked[:, k.MACHINE], asked[:, k.SIZE] = -1, self.sizes[1]
        times[:, k.ARRIVED], times[:, k.GAP] = self.arrival_ms, 0.0
        return asked, times

    def columns(self, law: TokenLaw) -> tuple[Floats, Floats, Floats]:
        """Of each size the emptiest prefill, and the work until and after the first token, as the router counts it."""
        key = (
            law.pieces.tobytes(), law.kv_tokens, law.most_tokens, law.most_seqs, law.context_tokens, law.prefill_first,
            law.role, law.experts_ms, law.experts_rate, law.chunk_ms, law.request_ms,
        )  # fmt: skip
        if key not in self._columns:
            self._columns[key] = law.outstanding_ms(self.sizes[0], self.output_tokens)
        return self._columns[key]

    def at_rate(self, factor: float) -> Coming:
        """The same requests, so many times as fast."""
        return replace(self, arrival_ms=self.arrival_ms / factor)


def draw(demand: TokenDemand, *, seed: int, count: int, settles_s: float = 0.0) -> Coming:
    """About so many requests of a demand: the same seed gives the same. `settles_s`: see `Played.judged`."""
    seconds = count / max(demand.rate_qps, 1e-12)
    arrival = arrival_times(demand.arrivals, rate_qps=demand.rate_qps, duration_s=seconds, random=seeded(seed, 0))
    return drawn_at(demand, arrival, seed=seed, settles_s=settles_s)


def coming_of(demand: AppDemand, seed: int, duration_s: float) -> Coming:
    """The requests of an application in a run with this seed."""
    assert demand.text is not None  # an application without lengths makes no text
    arrival = demand.times(seed, duration_s)
    seed, purpose = seed if demand.queries_seed is None else demand.queries_seed, 2 * demand.number + 1
    return drawn_at(demand.text.lengths, arrival, seed=seed, purpose=purpose, settles_s=demand.text.settles_s)


def drawn_at(demand: TokenDemand, arrival: Floats, *, seed: int, purpose: int = 1, settles_s: float = 0.0) -> Coming:
    """Requests of a demand that come at these times, in seconds."""
    edges = np.cumsum(demand.weight)
    which = np.searchsorted(edges / edges[-1], seeded(seed, purpose).random(len(arrival)), side="right")
    return Coming(
        arrival * 1000.0, demand.requests.taken(np.minimum(which, len(edges) - 1)), demand.output_tokens, settles_s
    )


def play(
    fleet: TokenFleet,
    coming: Coming,
    *,
    gaps: bool = False,
    seed: int = 0,
    most_rounds: int = _NEVER,
) -> Played:
    """Serve requests in order of their arrival.

    >>> law = TokenLaw(np.array([[10.0, 0.1, 0.0, 0.0, 0.0]]), 10_000)
    >>> fleet = TokenFleet((Group(law, 1),), output_tokens=3)
    >>> found = play(fleet, Coming(np.array([0.0]), Requests.of([(100, 3)]), output_tokens=3))
    >>> found.ttft_ms.round(6).tolist(), found.tpot_ms.round(6).tolist(), found.response_ms.round(6).tolist()
    ([20.0], [10.1], [40.2])
    """
    from hetplan.simulator import token_kernels as k

    groups = [group for group in fleet.groups if group.count > 0]
    kind = np.repeat(np.arange(len(groups)), [group.count for group in groups]).astype(np.int64)
    course = np.zeros((0, 4))
    world = world_of(groups, kind, coming, fleet.link_ms_per_token, gaps=gaps, course=course)
    rules = rules_of(fleet, groups, kind, coming, seed=seed)
    k.play(world, rules, most_rounds, np.inf)
    return played_of(world, coming, rules.alone)


def steady_goodput(fleet: TokenFleet, wanted: App, rate_qps: float, *, seed: int, most: int) -> tuple[float, int]:
    """The share of requests within all limits under a steady load, once machines have filled; how many were played."""
    asked = TextDemand.of(wanted, fleet, rate_qps)
    count = min(asked.requests(rate_qps), most)
    played = play(fleet, draw(asked.lengths, seed=seed, count=count, settles_s=asked.settles_s), seed=seed)
    return played.goodput(asked.limits), len(played.arrival_ms)


def world_of(
    groups: Sequence[Group], kind: Integers, coming: Coming, link_ms: float, *, gaps: bool, course: Floats
) -> World:
    """Machines of these kinds (places in `groups`) before anything came; `course` has its width and then zeros."""
    from hetplan.simulator import token_kernels as k

    asked, times = coming.blank[0].copy(), coming.blank[1].copy()
    rows, kinds, count = rows_of(kind, coming, gaps=gaps), kinds_of(groups, coming, link_ms), len(asked)
    return k.World(
        asked=asked, times=times, want_gaps=gaps, handed=np.zeros(count), heap=np.zeros(count + 1, dtype=np.int64),
        course=course, progress=np.array([0, 0, 0, 0, -1]), **rows, **kinds,
    )  # fmt: skip


def rows_of(kind: Integers, coming: Coming, *, gaps: bool) -> dict[str, Any]:
    """Machines of these kinds with nothing to do: what `World` has a row for of each."""
    from hetplan.simulator import token_kernels as k

    longest, machines = float(coming.requests.output.max(initial=1)), len(kind)
    if longest > MOST_OUTPUT or longest * machines > MOST_STEPS:
        raise InputError.one(
            file="slo", path="$.apps.*.mix", value=f"an output of {longest:.6g} tokens",
            why=f"up to {MOST_OUTPUT:g} tokens of a request are played one by one, and on all {machines} machines "
            f"together up to {MOST_STEPS:g} of the longest",
            remedy="Check the bins of output_tokens, what was observed, and the trace.",
        )  # fmt: skip
    ring = int(longest) + 3
    rings = ring if gaps else 1
    state, clock = np.zeros((machines, 20), dtype=np.int64), np.zeros((machines, 5))
    state[:, k.KIND], clock[:, k.UNTIL] = kind, np.inf
    state[:, [k.HEAD, k.TAIL, k.NEWEST, k.PROMPT, k.READY, k.LASTREADY]] = -1
    return {
        "state": state, "clock": clock, "work": np.zeros(machines),
        "calendar": np.full((machines, ring), -1, dtype=np.int64), "ends": np.zeros((machines, rings)),
        "ticks": np.zeros((machines, rings), dtype=np.int64), "gaps": np.zeros((machines, rings)),
    }  # fmt: skip


def kinds_of(groups: Sequence[Group], coming: Coming, link_ms: float) -> dict[str, Any]:
    """What machines of each kind can do, and the work that each size of request is to them."""
    law, more, room = _laws(groups)
    sooner, later = (np.stack([_counted(coming, group)[n] for group in groups], axis=1) for n in (0, 1))
    return {
        "law": law,
        "more": more,
        "room": room,
        "link_ms": np.full(len(groups), link_ms),
        "sooner": sooner,
        "later": later,
    }


def _counted(coming: Coming, group: Group) -> tuple[Floats, Floats]:
    """What each size of request counts at a machine until its first token and after it."""
    _, sooner, later = coming.columns(group.law)
    if group.weight is None:
        return sooner, later
    return np.zeros_like(sooner), np.full_like(later, 1.0 / group.weight)


def rules_of(fleet: TokenFleet, groups: Sequence[Group], kind: Integers, coming: Coming, *, seed: int) -> Rules:
    """How the requests of a run get their machines."""
    from hetplan.simulator import token_kernels as k

    count = len(coming.requests)
    return k.Rules(
        RULES[fleet.rule], _takes(groups), kind,
        np.stack([coming.columns(group.law)[0] for group in groups], axis=1),
        np.array([group.limit * fleet.ttft_ms if group.weight is None else np.inf for group in groups]),
        np.zeros(len(groups)),
        np.random.Generator(np.random.PCG64(seed)).random(count) if fleet.rule in _DRAWN else np.zeros(count),
        np.array([group.share for group in groups], dtype=np.float64),
    )  # fmt: skip


def played_of(world: World, coming: Coming, alone: Floats, *, whole: bool = False) -> Played:
    """What became of each request of a play; `alone` has the emptiest prefill of each size by the machines' kinds."""
    from hetplan.simulator import token_kernels as k

    asked, times, state, count = world.asked, world.times, world.state, len(world.asked)
    steps, kind = coming.requests.output - 1, state[:, k.KIND]
    done, first = times[:, k.DONE], times[:, k.FIRST]
    served, arrival_ms = int(world.progress[k.SERVED]), coming.arrival_ms
    end_ms = float(np.nanmax(done)) if served else 0.0
    own, size = asked[:, [k.MACHINE, k.SIZE]].T
    # What a request waits before its first iteration keeps no machine.
    before = np.where(own >= 0, world.more[kind[own], k.REQUEST], 0.0)
    first, done = first + before, done + before
    waited = np.where(own >= 0, first - arrival_ms - alone[size, kind[own]], np.nan)
    return Played(
        arrival_ms=arrival_ms,
        ttft_ms=first - arrival_ms,
        tpot_ms=np.divide(done - first, steps, out=np.full(count, np.nan), where=steps > 0),
        response_ms=done - arrival_ms,
        gap_ms=times[:, k.GAP] if world.want_gaps else None,
        lost=asked[:, k.LOST],
        machine=asked[:, k.MACHINE],
        served=served,
        end_ms=end_ms,
        busy=world.clock[:, k.BUSY],
        rounds=state[:, k.ROUNDS],
        tokens=state[:, k.TOKENS],
        most_kv=state[:, k.MOST] / world.room[kind, k.ROOM],
        course=world.course,
        settles_ms=coming.settles_s * 1000.0,
        whole=whole,
        waited_ms=waited,
        longest_gap_ms=times[:, k.GAP],
    )


def _laws(groups: Sequence[Group]) -> tuple[Floats, Floats, Integers]:
    """The laws with equally many pieces each, what is beside them, and the limits of each type."""
    pieces = max(len(group.law.pieces) for group in groups)
    law = np.stack([group.law.pieces[np.minimum(np.arange(pieces), len(group.law.pieces) - 1)] for group in groups])
    room = [
        (
            one.kv_tokens,
            one.most_tokens,
            one.most_seqs,
            one.prefill_first,
            one.reserves,
            _ROLES[one.role],
            _NEVER if group.cap is None else group.cap,
        )
        for group in groups
        for one in (group.law,)
    ]
    laws = [group.law for group in groups]
    # Who comes over a link waited where the prompt was computed.
    handed_ms = max((one.request_ms for one in laws if one.role == "prefill"), default=0.0)
    more = [
        (one.experts_ms, one.experts_rate, one.chunk_ms, handed_ms if one.role == "decode" else one.request_ms)
        for one in laws
    ]
    return np.ascontiguousarray(law), np.array(more, dtype=np.float64), np.array(room, dtype=np.int64)


def _takes(groups: Sequence[Group]) -> Integers:
    """Which types take what arrives, and which what comes over a link."""
    roles = [group.law.role for group in groups]
    return np.array([[role != "decode" for role in roles], [role == "decode" for role in roles]], dtype=np.int64)


def compile_kernels() -> None:
    """Serve one request, so that everything is compiled."""
    law = TokenLaw(np.array([[10.0, 0.1, 0.0, 0.0, 0.0]]), 1000)
    play(TokenFleet((Group(law, 1),), 2.0), Coming(np.array([0.0]), Requests.of([(10, 2)]), 2.0))
