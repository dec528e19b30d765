"""Plans that keep the wish while queries wait: the default size, and the one that only estimates.

`estimated` keeps more of every server free than the shipped examples need; nothing is simulated.

`auto` tries a few shares of free capacity, each planned by the program and played for a counted number of queries. A
plan is good enough when it uses no more than `CHOSEN_AT` of what may be late: a choice is biased towards luck. The best
plan seen is confirmed by fresh seeds; more free capacity is not always better, so none is thrown away that was good.
Nothing is timed: the same inputs give the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasible
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.tree import Tree
from hetplan.problems.pipeline.wish import read_wish
from hetplan.problems.simulated import plan_to_simulate
from hetplan.profiles.plan import Promise
from hetplan.serving.targets import late_share, response_targets

__all__ = ["estimated", "kept"]

Way = Callable[..., Draft | Infeasible]

STEPS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of free capacity tried in turn, beyond the one that is asked for."""
ESTIMATE = 0.15
"""The share that `estimated` keeps free: the shipped examples need 0.05 and 0.1."""
DIVISOR = 1.8
"""`slo_divisor` where none is asked for: with capacity kept free, paths may be a little longer than Loki's."""
WIDTH = 0.025
"""Between a share that is too little and one that is enough, it is not worth looking further."""
SEARCHED = (2, 30_000)
"""Runs, and queries in each, by which plans are chosen."""
CONFIRMED = (5, 30_000)
"""The same for the plan that is handed out: what it promises rests on these, by seeds that chose nothing."""
MOST_QUERIES = 300_000
"""In a run of several applications, of which the least asked for would else set a very long one."""
CHOSEN_AT = 0.7
"""Of the share that may be late, the part that a chosen plan may use up."""


@dataclass(frozen=True)
class _Played:
    """What a few counted queries showed: late share / allowed share, the worst first; and the promises they back."""

    worst: float
    late: tuple[str, ...]
    promises: tuple[Promise, ...]


@dataclass(frozen=True)
class _Seen:
    """A share of free capacity, its plan, and how it did."""

    headroom: float
    draft: Draft
    played: _Played

    @property
    def good(self) -> bool:
        """Whether it may be chosen."""
        return self.played.worst <= CHOSEN_AT


def estimated(p: Pipelines, ask: Ask, way: Way) -> Draft | Infeasible:
    """The plan with a headroom that is usually enough, or half or none of it where that is too much to ask for."""
    least = p.options.headroom
    made: Draft | Infeasible | None = None
    for headroom in (max(least, ESTIMATE), max(least, ESTIMATE / 2), least):
        made = way(_with(p, headroom), ask, explained=headroom == least)
        if isinstance(made, Draft) and not made.target_missed:
            return replace(made, chosen=_named(p, headroom))
    assert made is not None
    return made


def kept(p: Pipelines, ask: Ask, way: Way) -> Draft | Infeasible:
    """The best plan seen that simulation shows to keep the wish; without one, why there is none."""
    if p.tools.simulate is None:
        raise InputError.one(
            file="options", path="size", value=p.options.size, why="no simulator was handed in",
            remedy='Hand in Tools(simulate=...), or set size to "planned" or "estimated".',
        )  # fmt: skip
    return _Search(p, ask, way).found()


@dataclass
class _Search:
    """The shares tried so far: `seen` have plans, from `beyond` on there is none."""

    p: Pipelines
    ask: Ask
    way: Way
    seen: list[_Seen] = field(default_factory=list)
    beyond: float = 1.0
    turns: int = 0

    def found(self) -> Draft | Infeasible:
        """Up until one is good, back by halves, then the best that fresh seeds confirm."""
        least = self.p.options.headroom
        steps = [step for step in STEPS if step > least] if least < STEPS[-1] else [least]
        first = least if least > 0 else steps[0]
        if self._tried(first) is None:
            # Is it what is asked for that has no plan, or only what we keep free?
            fluid = self.way(_with(self.p, least), self.ask, explained=True)
            if isinstance(fluid, Infeasible) or fluid.target_missed:
                return fluid
            self._played(least, fluid)
        for step in steps:
            if self.best is not None or step >= self.beyond or not self.may_go_on:
                break
            self._tried(step)
        self._narrowed(least)
        return self._confirmed()

    @property
    def may_go_on(self) -> bool:
        """Whether another plan may be tried."""
        return self.turns < self.p.options.evaluations and self.ask.remaining > 0

    @property
    def best(self) -> _Seen | None:
        """Of the plans that are good, the best by the objective, then the one with most to spare."""
        good = [one for one in self.seen if one.good]
        return min(good, key=lambda one: (_worth(self.p, one.draft), one.played.worst), default=None)

    def _tried(self, headroom: float) -> _Seen | None:
        """The plan that keeps this share free, played; None where there is no plan."""
        for one in self.seen:
            if one.headroom == headroom:
                return one
        made = self.way(_with(self.p, headroom), self.ask, explained=False)
        self.turns += 1
        if isinstance(made, Infeasible) or made.target_missed:
            self.beyond = min(self.beyond, headroom)
            return None
        return self._played(headroom, made)

    def _played(self, headroom: float, made: Draft) -> _Seen:
        made = replace(made, searched=True, chosen=_named(self.p, headroom))
        played = _play(self.p, made, SEARCHED, seed=self.ask.limits.seed)
        self.seen.append(_Seen(headroom, made, played))
        share = self.turns / self.p.options.evaluations
        text = f"headroom {headroom:g}: {played.worst:.2g} of what may be late"
        self.ask.note(Event("simulated", text, done=min(share, 1.0)))
        return self.seen[-1]

    def _narrowed(self, least: float) -> None:
        """Halve what is between too little, and enough or more than there is a plan for."""
        while self.may_go_on:
            good = min((one.headroom for one in self.seen if one.good), default=None)
            high = self.beyond if good is None else good
            low = max((one.headroom for one in self.seen if one.headroom < high), default=least)
            if high >= 1.0 or high - low <= WIDTH + 1e-9 or (good is None and low >= high):
                return
            self._tried(round((low + high) / 2, 4))

    def _confirmed(self) -> Draft:
        """The best plan that fresh seeds confirm; where they do not, the next best, then more free capacity."""
        refused: set[float] = set()
        last: _Played | None = None
        for _ in range(len(STEPS)):
            good = [one for one in self.seen if one.good and one.headroom not in refused]
            if not good:
                above = max((one.headroom for one in self.seen), default=0.0)
                more = next((step for step in STEPS if step > above and step < self.beyond), None)
                if more is None or not self.may_go_on or (found := self._tried(more)) is None or not found.good:
                    break
                good = [found]
            one = min(good, key=lambda one: (_worth(self.p, one.draft), one.played.worst))
            last = _play(self.p, one.draft, CONFIRMED, seed=self.ask.limits.seed + FRESH)
            if not last.late:
                quiet = tuple(notice for notice in one.draft.warnings if notice.code != "W-queueing")
                return replace(one.draft, promises=(*one.draft.promises, *last.promises), warnings=quiet)
            refused.add(one.headroom)
        return self._not_kept(last)

    def _not_kept(self, last: _Played | None) -> Draft:
        """The plan that came nearest, with why it is not enough: never one that is late in silence."""
        nearest = min(self.seen, key=lambda one: one.played.worst)
        late = (last.late if last is not None else ()) or nearest.played.late or tuple(self.p.inputs.slo.apps)
        ended = "more was not tried" if not self.may_go_on else "more leaves no plan, or does not help"
        why = (
            f"not kept: in simulation {', '.join(late[:5])} lose {nearest.played.worst:.2g} times what may be late, "
            f"even with a headroom of {nearest.headroom:g}; {ended}"
        )
        return replace(nearest.draft, target_missed=why)


FRESH = 1_000_003
"""Between the seeds that choose a plan and those that confirm it."""


def _with(p: Pipelines, headroom: float) -> Pipelines:
    """The same question with this share of every server kept free."""
    options = p.options.model_copy(update=_named(p, headroom))
    return Pipelines(p.inputs, read_wish(p.inputs, options), options, p.formulation, p.start, p.tools)


def _named(p: Pipelines, headroom: float) -> dict[str, Any]:
    """The options from which the same is found again at once."""
    divisor = p.options.slo_divisor if "slo_divisor" in p.options.model_fields_set else DIVISOR
    return {"headroom": headroom, "slo_divisor": divisor}


def _worth(p: Pipelines, made: Draft) -> tuple[float, ...]:
    """How good a plan is by the objective, first things first; less is better."""
    of_plan = {one.quantity: one.value for one in made.promises if one.app is None}
    quality = {one.app: one.value for one in made.promises if one.quantity == "quality"}
    found = {
        "quality": -round(sum(tree.weight * quality.get(tree.app, 0.0) for tree in p.asked_for), 9),
        "fairest": -round(min(quality.values(), default=0.0), 9),
        "cost": round(of_plan.get("cost_per_hour", 0.0), 9),
        **{name: of_plan.get(name, 0.0) for name in ("servers", "moves")},
    }
    return tuple(found[goal] for goal in p.levels if goal in found)


def _play(p: Pipelines, made: Draft, how: tuple[int, int], *, seed: int) -> _Played:
    """A counted number of queries, and what the applications' wishes say of them."""
    assert p.tools.simulate is not None
    seeds, queries = how
    rates = [tree.demand for tree in p.asked_for]
    length_s = min(queries / min(rates), max(MOST_QUERIES, queries) / sum(rates))
    plan = plan_to_simulate("pipeline", p.formulation, made, made.chosen)
    report = p.tools.simulate(plan, p.inputs, seeds=seeds, seed=seed, duration_s=length_s)
    played = [_of_app(p, tree, report.apps[tree.app], seeds) for tree in p.asked_for]
    return _Played(
        max(one.worst for one in played),
        tuple(app for one in played for app in one.late),
        tuple(promise for one in played for promise in one.promises),
    )


def _of_app(p: Pipelines, tree: Tree, found: Any, seeds: int) -> _Played:
    """What runs showed of one application."""
    app = p.inputs.slo.apps[tree.app]
    lost, allowed = found.figures["violations"], round(late_share(app), 12)
    shown = [(target, found.percentiles_ms[target.percentile]) for target in response_targets(app)]
    missed = any(not one.value <= target.max_ms or target.max_ms < one.high < inf for target, one in shown)
    below = tree.floor is not None and found.figures["accuracy"].high < tree.floor
    worst = lost.value / allowed if allowed > 0 else inf if lost.value > 0 else 0.0
    if below or any(not one.value <= target.max_ms for target, one in shown):
        worst = max(worst, 1.0 if not below else inf)
    backing: dict[str, Any] = {"app": tree.app, "relation": "<=", "model": "simulation/1", "seeds": seeds}
    # So many in time, at the upper end of the interval of the share, is what the strictest percentile says.
    promises = [
        Promise(quantity="response_ms", percentile=target.percentile, value=target.max_ms,
                interval=(one.low, min(one.high, target.max_ms)), **backing)
        for target, one in shown
        if one.low <= target.max_ms
    ]  # fmt: skip
    promises.append(Promise(quantity="violations", value=allowed, interval=(lost.low, lost.high), **backing))
    late = (missed and len(shown) > 1) or lost.high > allowed or below
    return _Played(worst, (tree.app,) if late else (), tuple(promises))
