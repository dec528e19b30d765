"""What the load balancer of a fleet is told: limits, weights or shares of each type, and caps.

A balancer that is there has its rule (`apps.*.dispatch`); where none is, hetplan's router sends a request to the least
work. What a rule leaves open is found by simulation (`sizing`): the router's limit; weights, which are no ratio of
capacities (a small GPU that serves a sixth may have to count for a thirtieth); what part of the requests each type
gets.

**A cap** is the most requests at a time of an instance. More go elsewhere, and where all have theirs, a request is
refused at once. While more comes than a fleet can serve, those that it takes are then still in time; without caps all
are late. Caps are per type: what a large GPU serves in time is many times what a small one does. `with_caps` chooses
them for a minute of twice the rate, at the price of a few refused requests at the rate itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from hetplan.problems.llm.judge import Judge
from hetplan.problems.llm.request import TextRequest
from hetplan.serving.tokens import Group, TokenFleet, TokenLaw

__all__ = ["Steering", "fleet_of", "natural_cap", "steered_otherwise", "steerings_to_try", "with_caps"]

THETAS = (1.0, 0.5, 0.25)
POWERS = (1.0, 2.0, 3.0)
"""Weights are tried as speeds to these powers: what is best lies far from the speeds themselves."""
STEP = {"weighted-least/1": 2.0, "split-then-fewest/1": 1.25}
"""Weights, and shares, are then changed by this factor."""
LEAST_CAP = 2
"""A plan says by a number above 1 that there is a cap (`serving.tokens.cap_of`)."""
OVERLOAD, OVERLOAD_S, MOST_IN_OVERLOAD = 2.0, 60.0, 12_000
"""Caps are for a minute of twice the rate, of which so many requests are played at most."""
GIVEN, ROOM = 0.2, 0.9
"""Of what may be late, caps may take so much at the rate itself, and leave it below so much."""
DRAWS = 3
One = TypeVar("One")

LEVELS = tuple(2.0 ** (-k / 2.0) for k in range(9))
"""Caps are lowered together in these steps, then one after the other, so many rounds, in coarse and in fine ones."""
ROUNDS, FACTORS = 1, (0.5, 0.7, 1.4)


@dataclass(frozen=True)
class Steering:
    """The router's limit, and of each type its weight (of a split: the share of an instance) and its cap."""

    limit: float = 1.0
    weights: tuple[float, ...] = ()
    caps: tuple[int | None, ...] = ()


def fleet_of(wish: TextRequest, counts: Sequence[int], laws: Sequence[TokenLaw], steering: Steering) -> TokenFleet:
    """What the simulator plays and the router acts by."""
    weights = steering.weights or (1.0,) * len(counts)
    caps = steering.caps or (None,) * len(counts)
    least = wish.rule == "weighted-least/1"
    groups = [
        Group(law, int(count) * kind.instances, steering.limit, weight, kind.name, weight if least else None, cap)
        for kind, count, law, weight, cap in zip(wish.kinds, counts, laws, weights, caps, strict=True)
        if count
    ]
    link = wish.link_ms_per_token
    return TokenFleet(tuple(groups), wish.demand.output_tokens, wish.limit_ms("ttft"), wish.rule, link)


def steerings_to_try(wish: TextRequest, counts: Sequence[int], laws: Sequence[TokenLaw]) -> list[Steering]:
    """The first ones, as far as the rule leaves anything open."""
    several = sum(1 for n in counts if n) > 1
    if wish.rule == "least-work/1":
        limits = THETAS if math.isfinite(wish.limit_ms("ttft")) and several else THETAS[:1]
        return [Steering(limit) for limit in limits]
    if not several:
        return [Steering()]
    found = [Steering()]
    if wish.rule in STEP and wish.app.dispatch in ("weighted-least", "split-then-fewest"):
        busy = np.array([wish.busy(kind) * kind.instances for kind in wish.kinds])
        speeds = np.maximum(busy[np.isfinite(busy)].min() / busy, 1e-3)
        found = [Steering(weights=tuple(float(one) for one in speeds**power)) for power in POWERS]
    if not wish.may_refuse:
        return found
    caps = tuple(natural_cap(wish, law) for law in laws)
    return [*found, *(replace(one, caps=caps) for one in found)]


def steered_otherwise(wish: TextRequest, counts: Sequence[int], steering: Steering) -> Iterator[Steering]:
    """Those beside one: the weight of one type changed, or its cap."""
    used = [place for place, count in enumerate(counts) if count]
    if wish.rule == "least-work/1":
        yield from (replace(steering, limit=limit) for limit in THETAS if len(used) > 1)
        return
    step = STEP.get(wish.rule, 1.0)
    for place in used:
        if steering.weights and steering.weights[place] < max(steering.weights[k] for k in used):
            for factor in (step, 1.0 / step):
                yield replace(steering, weights=_changed(steering.weights, place, steering.weights[place] * factor))
        cap = steering.caps[place] if steering.caps else None
        if cap is not None:
            for factor in (2.0**0.5, 2.0**-0.5):
                yield replace(steering, caps=_changed(steering.caps, place, max(round(cap * factor), LEAST_CAP)))


def _changed(values: tuple[One, ...], place: int, value: One) -> tuple[One, ...]:
    return (*values[:place], value, *values[place + 1 :])


def natural_cap(wish: TextRequest, law: TokenLaw) -> int | None:
    """The most sequences that decode within the limit per token, and have room; None of engines that are no whole."""
    if law.role != "mixed":
        return None
    requests, weight = wish.demand.requests, wish.demand.weight
    steps = (requests.output - 1) * weight
    length = requests.input + requests.output / 2.0
    read = float(np.average(length, weights=steps)) if steps.any() else float(np.average(length, weights=weight))
    low, high = LEAST_CAP, max(min(law.most_seqs - 1, int(law.kv_tokens / read)), LEAST_CAP)
    while low < high:
        middle = (low + high + 1) // 2
        within = law.iteration_ms(middle, middle * read, middle) <= wish.limit_ms("tpot")
        low, high = (middle, high) if within else (low, middle - 1)
    return low


def with_caps(
    judge: Judge, counts: Sequence[int], laws: Sequence[TokenLaw], steering: Steering, may_go_on: Callable[[], bool]
) -> Steering:
    """The same with the caps under which most requests of a minute of twice the rate are in time.

    All caps are lowered together first, until the rate itself leaves no room, then each alone is lowered and raised.
    """
    wish = judge.wish
    most = steering.caps or tuple(natural_cap(wish, law) for law in laws)
    used = [place for place, count in enumerate(counts) if count]
    if not wish.may_refuse or any(most[place] is None for place in used):
        return steering
    minute = judge.minute(OVERLOAD, OVERLOAD_S, MOST_IN_OVERLOAD)

    def in_time(one: Steering) -> float:
        judge.played += 1
        return float(judge.play(fleet_of(wish, counts, laws, one), minute).goodput(wish.limits))

    def late(one: Steering, most: float) -> float:
        found = 0.0
        for seed in range(DRAWS):
            found += judge.excess(judge.play_once(fleet_of(wish, counts, laws, one), seed=seed)) / DRAWS
            if found > most:
                break
        return found

    bare = late(steering, math.inf)
    allowed = max(bare, min(bare + GIVEN, ROOM))
    best, shown = steering, in_time(steering)
    for level in LEVELS:
        if not may_go_on():
            return best
        caps = tuple(None if cap is None else max(round(cap * level), LEAST_CAP) for cap in most)
        one = replace(steering, caps=caps)
        if late(one, allowed) > allowed:
            break
        if (found := in_time(one)) > shown:
            best, shown = one, found
    tried = {best.caps}
    for place, factor in [(place, factor) for _ in range(ROUNDS) for place in used for factor in FACTORS]:
        better = bool(best.caps)
        while better and may_go_on():
            caps = _changed(best.caps, place, max(round((best.caps[place] or 0) * factor), LEAST_CAP))
            one, better = replace(best, caps=caps), False
            if caps in tried:
                break
            tried.add(caps)
            if (found := in_time(one)) > shown and late(one, allowed) <= allowed:
                best, shown, better = one, found, True
    return best
