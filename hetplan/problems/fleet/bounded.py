"""The bound of fleets whose variants and pipelines leave no room for queries that wait.

While machines are looked for, these have the room that a formula asks for (or their own questions, by simulation). It
is careful: on fewer machines they may be in time all the same. So a bound of all fleets asks less of them: each limit
is held against service times alone, and a path may use all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hetplan.errors import Cancelled
from hetplan.planner.contract import Ask
from hetplan.planner.part import Part
from hetplan.problems.fleet.search import is_over
from hetplan.problems.fleet.ways import SAYS_SIZE, Found, searched
from hetplan.problems.fleet.wish import Wish
from hetplan.problems.parts import Table

__all__ = ["bounded", "sized_by_formula"]

Answered = tuple[Found, Mapping[str, Part]]
BARE: Mapping[str, Mapping[str, Any]] = {
    "variants": {"size": "planned"},
    "pipeline": {"size": "planned", "slo_divisor": 1.0},
}


def sized_by_formula(wish: Wish) -> tuple[str, ...]:
    """Applications for which more machines are looked for than their program asks for."""
    if wish.options.size == "planned":
        return ()
    said = {name for name, own in wish.options.parts.items() if own.keys() & SAYS_SIZE}
    return tuple(app.name for app in wish.apps if app.question in BARE and app.name not in said)


def bounded(best: Answered, wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Answered:
    """The fleet with a bound of all fleets: that of `wish`, in which nobody was given room yet.

    Without parts, or time, there is none: then the bound is one of fleets that have the room that a formula asks for.
    """
    mine = sized_by_formula(wish)
    found = replace(best[0], formula=mine)
    if mine and parts and not is_over(ask):
        bare = {name: _bare(part) if name in mine else part for name, part in parts.items()}
        with suppress(Cancelled):
            least = searched(wish, bare, ask, settle=False, foresee=False)
            if isinstance(least, Found) and not is_over(ask):
                bound = min(found.bound or least.bound, least.bound)  # 0: nothing is known yet
                found = replace(found, bound=bound, prices=least.prices, served=least.served, formula=())
    return found, best[1]


def _bare(part: Part) -> Part:
    """The same by service times alone."""
    if not isinstance(part, Table):
        return part
    options = {**part.options, **BARE[part.question]}
    return part.asked_anew(options=options)
