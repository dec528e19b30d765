"""A large fleet: one part is sized, several such parts are played together, then machines are taken out.

Among thousands of machines one more or less is no news, and a search that takes them one by one takes hours. So the
search is for a part of the requests. Its fleet, so many times over, serves all of them at least as well: the router has
more machines to choose from. How much smaller that lets it be is found by halving, and fresh draws confirm it. Where
one play of all requests would be too long, as many parts are played as it allows, and the others are like them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hetplan.planner.contract import Ask, Event
from hetplan.problems.llm.judge import CONFIRMED, Judge
from hetplan.problems.llm.size import Sized, Tried, can_be_had, fleet_of, price_of, sized
from hetplan.problems.llm.wish import Wish

__all__ = ["MOST_SEARCHED_WHOLE", "parts_of", "sized_in_parts"]

MOST_BUSY = 30.0
"""Machines that are busy all the time: up to so many are searched one by one."""
MOST_SENT = 300_000
"""Requests of a play that confirms."""
MOST_SEARCHED_WHOLE = 3
"""Where no part finds a fleet within budget and stock, the whole may: up to so many parts it is tried."""
DRAWS = (0, 1, 2)
BETWEEN, LARGER = (0.0, 0.25, 0.5, 1.0), (1.02, 1.04)


def parts_of(wish: Wish) -> int:
    """How many fleets side by side a wish is sized as."""
    busy = (wish.busy(kind) for kind in wish.kinds if kind.engine.role == "mixed")
    least = min((one for one in busy if math.isfinite(one)), default=0.0)
    return max(1, math.ceil(least / MOST_BUSY))


def sized_in_parts(judge: Judge, ask: Ask, bound: float, parts: int) -> tuple[Sized | None, Tried, list[float]]:
    """The fleet, what was done to find it, and what part of the requests each type got."""
    wish = judge.wish
    one = judge.of(wish.part(parts))
    found, tried = sized(one.wish, one, ask, bound / parts)
    tried.parts, tried.complete = parts, False
    if found is None:
        return None, tried, []
    sent = CONFIRMED * one.settles_s * one.wish.rate_qps
    played = int(min(parts, max(1, MOST_SENT // sent)))
    part = wish.with_rate(wish.rate_qps * played / parts)
    judge = judge.of(part)

    def whole(counts: Sequence[int]) -> tuple[int, ...]:
        return tuple(math.ceil(count * parts / played) for count in counts)

    ask.note(Event("simulate", f"{played} of {parts} fleets alike, together"))
    start = tuple(count * played for count in found.counts)
    for counts in _tries(part, judge, replace(found, counts=start)):
        if ask.remaining <= 0:
            break
        shown = judge.surely(fleet_of(part, counts, found.laws, found.theta))
        cost = price_of(wish, whole(counts))
        budget = wish.request.budget
        if shown.kept and can_be_had(wish, whole(counts)) and (budget is None or cost <= budget):
            made = replace(found, counts=whole(counts), cost_nanos=cost, shown=shown)
            return made, tried, judge.shares(counts)
        tried.unconfirmed += 1
    return None, tried, []


def _tries(part: Wish, judge: Judge, start: Sized) -> list[tuple[int, ...]]:
    """Fleets to confirm: the smallest that a few draws allow, some between it and the first, and some larger."""
    least = start.counts
    dearest = sorted(range(len(least)), key=lambda kind: -part.supply(part.kinds[kind]).cost(1))
    for kind in dearest:
        least = _fewest(lambda counts: _keeps(part, judge, start, counts), least, kind)
    gaps = [(low, high - low) for low, high in zip(least, start.counts, strict=True)]
    between = (tuple(low + math.ceil(share * gap) for low, gap in gaps) for share in BETWEEN)
    larger = (tuple(math.ceil(count * factor) for count in start.counts) for factor in LARGER)
    return list(dict.fromkeys((*between, *larger)))


def _keeps(part: Wish, judge: Judge, start: Sized, counts: tuple[int, ...]) -> bool:
    fleet = fleet_of(part, counts, start.laws, start.theta)
    return any(counts) and all(judge.excess(judge.once(fleet, seed=seed)) <= 1.0 for seed in DRAWS)


def _fewest(keeps: Callable[[tuple[int, ...]], bool], counts: tuple[int, ...], kind: int) -> tuple[int, ...]:
    """The counts with as few of one type as a few draws allow, found by halving."""

    def with_only(count: int) -> tuple[int, ...]:
        return (*counts[:kind], count, *counts[kind + 1 :])

    low, high = -1, counts[kind]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(with_only(middle)) else (middle, high)
    return with_only(high)
