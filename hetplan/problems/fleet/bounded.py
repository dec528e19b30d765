"""The bound of fleets whose variants and pipelines leave no room for queries that wait, and drop who may be late.

While machines are looked for, these have the room that a formula asks for (or their own questions, by simulation). It
is careful: on fewer machines they may be in time all the same. So a bound of all fleets asks less of them: each limit
is held against service times alone, and a path may use all of it. Where late queries are dropped, machines answer no
more than percentiles ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from hetplan.errors import Interrupted
from hetplan.planner.bridge import Cone, Part, Table
from hetplan.planner.contract import Ask
from hetplan.problems.fleet.search import is_over
from hetplan.problems.fleet.ways import SAYS_SIZE, Found, searched
from hetplan.problems.fleet.wish import Wish
from hetplan.profiles.validate import validate

__all__ = ["bounded", "missing", "part_answered", "sized_by_formula"]

Answered = tuple[Found, Mapping[str, Part]]
BARE: Mapping[str, Mapping[str, Any]] = {
    "variants": {"sizing": "fluid"},
    "pipeline": {"sizing": "fluid", "slo_divisor": 1.0},
}
MAY_DROP = ("pool", *BARE)
MOST = 10_000
"""So many machines of each hardware are more than anybody needs."""
NEXT_TO_NONE = 1e-6
"""An application of which next to nothing must be answered is asked for this part of its rate."""


def sized_by_formula(wish: Wish) -> tuple[str, ...]:
    """Applications for which more machines are looked for than their program asks for."""
    return tuple(name for name, question in _played(wish).items() if question in BARE)


def missing(wish: Wish) -> tuple[str, ...]:
    """Applications whose plans are played and may drop late queries, or send some where they are late on purpose."""
    apps, found = wish.request.apps, list[str]()
    for name, question in _played(wish).items():
        drops = question in MAY_DROP and apps[name].least_answered < 1.0
        if drops or (question in BARE and apps[name].least_in_time < 1.0):
            found.append(name)
    return tuple(found)


def _played(wish: Wish) -> dict[str, str]:
    """The questions of applications that are sized by more than their programs."""
    if wish.options.sizing == "fluid":
        return {}
    said = {name for name, own in wish.options.parts.items() if own.keys() & SAYS_SIZE}
    return {app.name: app.question for app in wish.apps if app.name not in said}


def bounded(best: Answered, wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Answered:
    """The fleet with a bound of all fleets: that of `wish`, in which nobody was given room yet, and who may be, drops.

    Without parts, or time, there is none: then the bound is one of fleets that have the room that a formula asks for,
    and those who drop are free.
    """
    mine, drop = sized_by_formula(wish), missing(wish)
    found = replace(best[0], formula=mine)
    free = replace(found, shown=found.shown.without(drop))
    if (mine or drop) and parts and not is_over(ask):
        bare = {name: _bare(part) if name in mine else part for name, part in parts.items()}
        bare |= {name: _dropping(wish, part) for name, part in bare.items() if name in drop}
        with suppress(Interrupted):
            least = searched(wish, bare, ask, settle=False, foresee=False)
            if isinstance(least, Found) and not is_over(ask):
                free = replace(found, shown=least.shown, formula=())
    return free, best[1]


def _bare(part: Part) -> Part:
    """The same by service times alone."""
    if isinstance(part, Cone):
        return part.bare or part
    return part.asked_anew(options={**part.options, **BARE[part.question]}) if isinstance(part, Table) else part


def _dropping(wish: Wish, part: Part) -> Part:
    """The same, as few answered as may be."""
    if isinstance(part, Cone):
        return part.dropping or part
    if not isinstance(part, Table):
        return part
    least = {name: part_answered(wish, part) * one for name, one in (part.members or {part.app: 1.0}).items()}
    return part.asked_anew(members=least)


def part_answered(wish: Wish, part: Table) -> float:
    """Of what machines do where every query is in time, what they do at least where late ones need none."""
    if part.app not in missing(wish):
        return 1.0
    files = part.files(1.0, dict.fromkeys(part.hardware, (0, MOST)), None)
    if part.question != "pipeline":
        return NEXT_TO_NONE
    room = "hetplan.problems.pipeline"
    says = import_module(f"{room}.wish")
    options = validate(says.ConfigOptions, {**part.options, **BARE["pipeline"]}, file="options")
    (tree,) = import_module(f"{room}.wish").read_wish(files, options).trees
    part_of = import_module(f"{room}.bounds").part_answered
    return max(float(part_of(wish.request.apps[part.app], tree)), NEXT_TO_NONE)
