"""A large fleet: one part is sized, several such parts are simulated together, then machines are taken out.

Among thousands of machines one more or less is no news, and a search that takes them one by one takes hours. So the
search is for a part of the requests. Its fleet, so many times over, serves all of them at least as well: the router has
more machines to choose from. The same search, with fewer machines of a type, then finds how much smaller that lets it
be. Where one play of all requests would be too long, as many parts are played as it allows, and the others are like
them.
"""

from __future__ import annotations

import math

from hetplan.planner.contract import Ask, Event
from hetplan.planner.sizing_search import Search, counts_of
from hetplan.problems.llm.judge import CONFIRMED, PLAYED, Judge
from hetplan.problems.llm.size import Fleets, Sized, Tried, sized
from hetplan.problems.llm.wish import Wish

__all__ = ["parts_of", "sized_alike"]

MOST_BUSY = 30.0
"""Machines that are busy all the time: up to so many are searched one by one."""
MOST_SENT = 300_000
"""Requests of a play that confirms."""
MOST_SEARCHED_WHOLE = 3
"""Where no part finds a fleet within budget and stock, the whole may: up to so many parts it is tried."""
LARGER = (1.0, 1.02, 1.04)
"""Times as many machines as its parts have: a fleet that is as good may be a little too small on other draws."""


def parts_of(wish: Wish) -> int:
    """How many fleets side by side a wish is sized as."""
    busy = (wish.busy(kind) for kind in wish.kinds if kind.engine.role == "mixed")
    least = min((one for one in busy if math.isfinite(one)), default=0.0)
    return max(1, math.ceil(least / MOST_BUSY))


def sized_alike(judge: Judge, ask: Ask, bound: float, *, any_will_do: bool = False) -> tuple[Sized | None, Tried]:
    """The cheapest fleet that keeps every limit, or any: a large one as several alike; and what was done to find it."""
    wish, parts = judge.wish, parts_of(judge.wish)
    if parts == 1:
        return sized(judge, ask, bound, any_will_do=any_will_do)
    one = judge.of(wish.part(parts))
    found, tried = sized(one, ask, bound / parts, any_will_do=any_will_do)
    if found is None and parts <= MOST_SEARCHED_WHOLE:
        return sized(judge, ask, bound, any_will_do=any_will_do)
    tried.parts, tried.complete = parts, False
    if found is None:
        return None, tried
    sent = CONFIRMED * PLAYED * one.settles_s * one.wish.rate_qps
    played = int(min(parts, max(1, MOST_SENT // sent)))
    ask.note(Event("simulate", f"{played} of {parts} fleets alike, together"))
    fleets = Fleets(
        judge.of(wish.with_rate(wish.rate_qps * played / parts)), ask, [[law] for law in found.laws],
        thetas=[found.theta], times=parts / played,
        starts=[counts_of(math.ceil(n * played * factor) for n in found.counts) for factor in LARGER],
    )  # fmt: skip
    made = Search(fleets).cheapest(any_will_do=any_will_do)
    tried.unconfirmed += fleets.refused
    return made, tried
