"""Room to wait for pools, whose programs leave a fixed share of their rate and no more where they are small.

The pool's own formula for queues (its size `estimated`) is asked about the very machines that a fleet gives it, after a
failure too. What it refuses is planned for a tenth more than its rate, and the fleet is planned again. Where there are
no machines for more, or it has taken long enough, a warning names who is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hetplan.planner.draft import Infeasible
from hetplan.planner.part import Part, Settled
from hetplan.problems.fleet.menus import left_of
from hetplan.problems.fleet.ways import Found, settled_anew
from hetplan.problems.fleet.wish import Wish
from hetplan.problems.parts import Cone
from hetplan.profiles.plan import Notice

__all__ = ["with_room"]

Answer = tuple[Found, Mapping[str, Part]] | Infeasible
Answers = dict[str, dict[tuple[float, tuple[tuple[str, int], ...]], Settled]]
"""What the formula said of the machines of each application: of the same machines it is asked once."""
STEP = 1.1
"""An application that is short of room is planned for so much more."""
ROUNDS, ROUNDS_OF_SEVERAL = 16, 6
"""So often at most, in one period (by then four times its rate) and over several, where a search takes seconds."""


def with_room(wish: Wish, answered: Callable[[Wish, Found | None], Answer]) -> Answer:
    """A fleet in which every pool has room to wait by its formula, as far as there is such a fleet.

    `answered` is handed the wish, and the fleet before it where there was one.
    """
    first = best = answered(wish, None)
    answers: Answers = {}
    rounds = ROUNDS if wish.periods == 1 else ROUNDS_OF_SEVERAL
    for _ in range(rounds if wish.options.size == "estimated" else 0):
        if isinstance(best, Infeasible) or not (short := {_key(*one, best[0]) for one in _short(*best, answers)}):
            break
        wish = replace(wish, room={**wish.room, **{key: STEP * wish.room.get(key, 1.0) for key in short}})
        more = answered(wish, best[0])
        if isinstance(more, Infeasible):
            break
        best = more
    if not isinstance(best, Infeasible):
        found = settled_anew(best[0])
        best = (found, best[1]) if found is not None else answered(wish, None)
    if isinstance(best, Infeasible) or isinstance(first, Infeasible):
        return best
    found = _with_warnings(*best, answers)
    if found.wish.room:
        # What holds without room to wait bounds every fleet; what was found with room bounds only those with as much.
        goal = found.goal
        if goal is not None and first[0].goal is not None:
            goal = replace(
                goal, bound=first[0].goal.bound, scope="relaxation", note=f"{goal.note}; it leaves out waiting"
            )
        found = replace(found, bound=first[0].bound, goal=goal, prices=first[0].prices, served=first[0].served)
    return found, best[1]


def _with_warnings(found: Found, parts: Mapping[str, Part], answers: Answers) -> Found:
    """The fleet, with a warning for every application that is short of room."""
    if found.wish.options.size != "estimated":
        return found
    periods: dict[str, list[int]] = {}
    for name, p in _short(found, parts, answers):
        periods.setdefault(name, []).append(p)
    several = found.wish.periods > 1
    notices = []
    for name, those in periods.items():
        when = f" in {len(those)} of {found.wish.periods} periods (p{those[0]} is the first)" if several else ""
        text = (
            f"{name} has fewer machines{when} than the pool's formula for queues asks for, so queries may wait too "
            "long: play it with hetplan simulate; --set size=auto sizes by simulation"
        )
        notices.append(Notice(code="W-queueing", at=f"apps.{name}", text=text))
    return replace(found, notices=(*found.notices, *notices))


def _short(found: Found, parts: Mapping[str, Part], answers: Answers) -> Iterator[tuple[str, int]]:
    """Pools that their formula refuses on the machines that they have, after a failure too: name and period."""
    wish = found.wish
    for app in wish.apps:
        part = parts[app.name]
        own = wish.options.parts.get(app.name, {})
        if app.question != "pool" or not isinstance(part, Cone) or own.keys() & {"size", "derate"}:
            continue
        options, before = {**part.options, "size": "estimated"}, answers.setdefault(app.name, {})
        careful = replace(part, options=options, settled=before, known={}, cuts=[])
        for p in range(wish.periods):
            rate = app.rates[p] * (1.0 + wish.options.headroom)
            if rate > 0 and (app.name, p) in found.parts and not _has_room(found, careful, app.name, p, rate):
                yield app.name, p


def _key(name: str, p: int, found: Found) -> tuple[str, float | None]:
    """What room is kept by: the rate; for the application of which the most is wanted, any rate."""
    app = next(app for app in found.wish.apps if app.name == name)
    return name, None if name == found.wish.most else app.rates[p]


def _has_room(found: Found, careful: Cone, name: str, p: int, rate: float) -> bool:
    wish, machines = found.wish, found.fleet.choices[name, p].machines
    for situation in wish.situations:
        offers = left_of(wish, careful, machines, situation)
        if offers and careful.settle(offers, rate * situation.keep).part is None:
            return False
    return True
