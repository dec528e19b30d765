"""Room to wait, asked for on the very machines that a fleet gives to a part, after each failure too.

Of pools, whose programs leave a fixed share of their rate and no more where they are small, their formula for queues is
asked (their size `estimated`). Variants and pipelines, which leave room by formulas, are played (`auto`): formulas are
no proof. Who is short is planned for a tenth more than its rate, and the fleet is planned again. Where there are no
machines for more, or it has taken long enough, a warning names who is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hetplan.errors import Cancelled
from hetplan.planner.draft import Infeasible
from hetplan.planner.part import Part, Settled
from hetplan.problems.fleet.menus import left_of
from hetplan.problems.fleet.ways import PLAYED, Found, settled_anew
from hetplan.problems.fleet.wish import Application, Wish
from hetplan.problems.parts import Cone, Table
from hetplan.profiles.plan import Notice

__all__ = ["with_room"]

Answer = tuple[Found, Mapping[str, Part]] | Infeasible
Answers = dict[str, dict[tuple[float, tuple[tuple[str, int], ...]], Settled]]
"""What was said of the machines of each application: of the same machines it is asked once."""
STEP = 1.1
"""An application that is short of room is planned for so much more."""
SIZED = ("estimated", "auto")
ROUNDS, ROUNDS_OF_SEVERAL = 16, 6
"""So often at most, in one period (by then four times its rate) and over several, where a search takes seconds."""


def with_room(wish: Wish, answered: Callable[[Wish, Found | None], Answer], over: Callable[[], bool]) -> Answer:
    """A fleet in which every part has room to wait, as far as there is such a fleet, and the parts as they settle then.

    `answered` is handed the wish, and the fleet before it, if any. Once the time is `over` nothing is played.
    """
    first = best = answered(wish, None)
    answers: Answers = {}
    rounds = ROUNDS if wish.periods == 1 else ROUNDS_OF_SEVERAL
    for _ in range(rounds if wish.options.size in SIZED else 0):
        if isinstance(best, Infeasible) or over():
            break
        if not (short := {_key(*one, best[0]) for one in _short(*best, answers)}):
            break
        wish = replace(wish, room={**wish.room, **{key: STEP * wish.room.get(key, 1.0) for key in short}})
        try:
            more = answered(wish, best[0])
        except Cancelled:
            break
        if isinstance(more, Infeasible):
            break
        best = more
    if not isinstance(best, Infeasible):
        found = settled_anew(best[0])
        best = (found, best[1]) if found is not None else answered(wish, None)
    if isinstance(best, Infeasible) or isinstance(first, Infeasible):
        return best
    hurried = over()
    found = _unplayed(*best, answers) if hurried else _with_warnings(*best, answers)
    if found.wish.room:
        # What holds without room to wait bounds every fleet; what was found with room bounds only those with as much.
        goal = found.goal
        if goal is not None and first[0].goal is not None:
            goal = replace(
                goal, bound=first[0].goal.bound, scope="relaxation", note=f"{goal.note}; it leaves out waiting"
            )
        found = replace(found, bound=first[0].bound, goal=goal, prices=first[0].prices, served=first[0].served)
    return (found, best[1]) if hurried else _as_played(found, best[1], answers)


def _as_played(found: Found, parts: Mapping[str, Part], answers: Answers) -> tuple[Found, Mapping[str, Part]]:
    """The fleet with the plans that were played in place of those of the formulas."""
    settling = dict(parts)
    for name, one in ((app.name, _careful(found.wish, app, parts[app.name], answers)) for app in found.wish.apps):
        if isinstance(one, Table):
            settling[name] = replace(one, otherwise=parts[name])  # type: ignore[arg-type]
    own = dict(found.parts)
    for name, p in own:
        if settling[name] is not parts[name]:
            offers = left_of(
                found.wish, settling[name], found.fleet.choices[name, p].machines, found.wish.situations[0]
            )
            own[name, p] = settling[name].settle(offers, found.wish.rate(_app(found, name), p)).part or own[name, p]
    return replace(found, parts=own), settling


def _unplayed(found: Found, parts: Mapping[str, Part], answers: Answers) -> Found:
    """The fleet, with a warning for every application that was to be asked whether it has room."""
    late = [app.name for app in found.wish.apps if _careful(found.wish, app, parts[app.name], answers) is not None]
    text = "the time was over before it was known whether its queues have room: play it with hetplan simulate"
    notices = (Notice(code="W-queueing", at=f"apps.{name}", text=f"{name}: {text}") for name in late)
    return replace(found, notices=(*found.notices, *notices))


def _with_warnings(found: Found, parts: Mapping[str, Part], answers: Answers) -> Found:
    """The fleet, with a warning for every application that is short of room."""
    periods: dict[str, list[int]] = {}
    for name, p in _short(found, parts, answers):
        periods.setdefault(name, []).append(p)
    several = found.wish.periods > 1
    notices = []
    for name, those in periods.items():
        when = f" in {len(those)} of {found.wish.periods} periods (p{those[0]} is the first)" if several else ""
        text = (
            f"{name} has fewer machines{when} than its queues ask for, so queries may wait too long: play it with "
            "hetplan simulate"
        )
        notices.append(Notice(code="W-queueing", at=f"apps.{name}", text=text))
    return replace(found, notices=(*found.notices, *notices))


def _short(found: Found, parts: Mapping[str, Part], answers: Answers) -> Iterator[tuple[str, int]]:
    """Parts that are short of room on the machines that they have, after a failure too: name and period."""
    wish = found.wish
    for app in wish.apps:
        careful = _careful(wish, app, parts[app.name], answers)
        for p in range(wish.periods):
            rate = app.rates[p] * (1.0 + wish.options.headroom)
            if careful is None or rate <= 0 or (app.name, p) not in found.parts:
                continue
            if not _has_room(found, careful, app.name, p, rate):
                yield app.name, p


def _careful(wish: Wish, app: Application, part: Part, answers: Answers) -> Cone | Table | None:
    """Who says whether there is room: of a pool its formula, of variants and pipelines a simulation; None: nobody."""
    own, before = wish.options.parts.get(app.name, {}), answers.setdefault(app.name, {})
    if own.keys() & {"size", "derate"} or wish.options.size not in SIZED:
        return None
    if app.question == "pool" and isinstance(part, Cone):
        return replace(part, options={**part.options, "size": "estimated"}, settled=before, known={}, cuts=[])
    if app.question in PLAYED and isinstance(part, Table) and wish.options.size == "auto":
        return replace(part, options={**part.options, "size": "auto"}, settled=before)
    return None


def _app(found: Found, name: str) -> Application:
    return next(app for app in found.wish.apps if app.name == name)


def _key(name: str, p: int, found: Found) -> tuple[str, float | None]:
    """What room is kept by: the rate; for the application of which the most is wanted, any rate."""
    return name, None if name == found.wish.most else _app(found, name).rates[p]


def _has_room(found: Found, careful: Part, name: str, p: int, rate: float) -> bool:
    wish, machines = found.wish, found.fleet.choices[name, p].machines
    for situation in wish.situations:
        offers = left_of(wish, careful, machines, situation)
        if offers and careful.settle(offers, rate * situation.keep).part is None:
            return False
    return True
