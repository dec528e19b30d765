"""The bound of fleets whose variants and pipelines leave no room for queries that wait.

While machines are looked for, these have the room that a formula asks for (or their own questions, by simulation). It
is careful: on fewer machines they may be in time all the same. So a bound of all fleets asks less of them: each limit
is held against service times alone, and a path may use all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible
from hetplan.planner.part import Part
from hetplan.problems.fleet.search import is_over
from hetplan.problems.fleet.ways import SAYS_SIZE, Found, searched
from hetplan.problems.fleet.wish import Wish
from hetplan.problems.parts import Table

__all__ = ["bounded", "sized_by_formula"]

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


def bounded(found: Found, wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Found:
    """The fleet with a bound of all fleets: that of `wish`, in which nobody was given room yet."""
    mine = sized_by_formula(wish)
    bare = {name: _bare(part) if name in mine else part for name, part in parts.items()}
    if not mine or is_over(ask):
        return found
    least = searched(wish, bare, ask, reckoned=False, settle=False, foresee=False)
    if isinstance(least, Infeasible) or is_over(ask):
        return found
    return replace(found, bound=min(found.bound, least.bound), prices=least.prices, served=least.served, formula=())


def _bare(part: Part) -> Part:
    """The same by service times alone."""
    if not isinstance(part, Table):
        return part
    options = {**part.options, **BARE[part.question]}
    return Table(part.app, part.question, part.hardware, part.inputs, options, part.solve, recipes=part.recipes)
