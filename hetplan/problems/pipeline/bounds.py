"""Programs that bound what a plan of pipelines claims: of whole servers, of servers in parts, and in bursts.

`programs_of_claim` writes them again from the files, for who proves a claim. A plan that leaves room to wait claims
what it reaches beside what servers in parts, filled to the brim, would: a bound of every plan, however much room that
one keeps (`claims_in_parts`).

Bursts ask for more, whoever dispatches: rows that join the program of servers in parts (`Burst`). Of the N queries that
come in a window of length T (`serving.window`), those that are to be in time have the servers for T + D, at every step.
With N_j the atoms of N, q_j their chances, D a response limit that a share m of the queries may miss, and all else as
in `programs`::

    s_j                                                    share of the queries that is in time, where N_j come
    v_yj                                                   jobs on configuration y for these, per query that comes
    (5) sum_{y of t} v_yj >= s_j                           steps t at the entrance
    (5) sum_{y of t} v_yj >= sum_{y of u} r_y v_yj - (1 - s_j) c_t        steps t that follow u
    (6) N_j w_y v_yj <= x_y (T + D)                        every configuration: its servers have no more time
    (7) sum_j q_j N_j (1 - s_j) <= m E N                   no more are late than may be

Paths need not be in time here, as the rows (1) to (3) have them: a burst may be met on any servers there are. Where the
accuracy is the best there is, no job may go to others, in bursts neither.

c_t is for who lets those be late that send on most. A job sends on floor(r) or ceil(r), r in the mean: so jobs of
queries in time send on r each, less ceil(r) - r for each job of a late query. That has no more jobs at a step than the
product of all ceil(r) before it.

w_y is the least server time that a job takes, in batches of any measured size up to that of y. Where times vary,
`serving.window` says what it is, and T + 2 D takes the place of T + D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetplan.planner.certify import Bounding
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.request import Application
from hetplan.planner.tolerances import BOUND_SLIP, SLIP
from hetplan.problems.pipeline.pipelines import MOST_PREFIXES, Pipelines
from hetplan.problems.pipeline.programs import Aim, Program, config_form, variant_form
from hetplan.problems.pipeline.request import Goal
from hetplan.problems.pipeline.scaling import (
    CLAIMED,
    KEPT,
    best_forest,
    best_in_time_form,
    best_of,
    best_prefixes,
    best_quality,
    config_program,
    keep_goal,
    paper_program,
)
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Level,
    Places,
    Task,
    Tree,
    Vector,
    count_prefixes,
    ends_of,
    forest_of,
    forest_of_variants,
    prefixes,
    restore_stated,
    variant_tree,
)
from hetplan.profiles.plan import Claim, Plan
from hetplan.serving.table_points import answering_statistic
from hetplan.serving.window import Window, busiest, least_work, time_after

__all__ = [
    "Burst",
    "bursts_of",
    "bursts_of_claim",
    "claims_in_parts",
    "loosest",
    "part_answered",
    "parts_form",
    "programs_of_claim",
    "without_room",
]

NEAR = 10 * KEPT
"""So much less than its program a plan may have of an earlier goal: a millionth, where qualities are that small."""

MOST_PREFIXES_WHOLE = 600
"""Up to so many the whole program stands in for one of some configurations: it is solved in seconds."""


def programs_of_claim(problem: Pipelines, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The programs for a goal, where no less of the goals before it is reached than the plan says.

    The loosest first: servers in parts, the best accuracy that any number of servers gives, whole servers.
    """
    goals: dict[str, Goal] = {CLAIMED[goal]: goal for goal in problem.levels}
    if problem.formulation not in ("pipeline-milp", "loki", "loki-budget"):
        return None
    if claim.about not in goals:
        return []
    goal = goals[claim.about]
    if claim.sense != ("max" if goal in ("quality", "fairest") else "min"):
        return []
    narrow = claim.scope == "restriction"
    whole = problem.form != "loki-budget"
    # Of later goals, plans of some configurations are bounded too: those that were chosen for the first.
    wider = narrow and not (whole and claim.scope == problem.scope and goal == problem.levels[0])
    if wider and (problem.wish.joins or sum(map(count_prefixes, problem.served)) > MOST_PREFIXES_WHOLE):
        return None
    found = [Bounding(form, wider=wider) for form in _programs_in_parts(problem, goal, plan, claim)]
    for form in _programs_of_whole_servers(problem, goal, _reached(problem, goal, plan), claim):
        found.append(Bounding(form, wider=wider, of_plans=not wider))
    return found if found or (whole and not narrow) else None


def _reached(problem: Pipelines, goal: Goal, plan: Plan, *, solved: bool = True) -> dict[Goal, float]:
    """What the plan says that it has of the goals before; as their programs have it, which rounding moves by a hair."""
    before, found = problem.levels[: problem.levels.index(goal)], dict[Goal, float]()
    solves = {one.id: one.value for one in plan.solves}
    for other in before:
        said = next((one for one in plan.claims if one.about == CLAIMED[other]), None)
        if said is None:
            raise ValueError(f"the plan says nothing of its {CLAIMED[other]}")
        exactly = solves.get(said.solve) if solved and said.solve is not None else None
        found[other] = exactly if exactly is not None and abs(exactly - said.value) <= NEAR else said.value
    return found


def _programs_in_parts(problem: Pipelines, goal: Goal, plan: Plan, claim: Claim) -> Iterator[Milp]:
    """Servers in parts, at what the plan has of the goals before; the best accuracy of any number of servers."""
    if claim.scope in (problem.scope_in_parts, "restriction"):
        reached, bare = _reached(problem, goal, plan, solved=False), without_room(problem)
        wide = loosest(bare)
        yield parts_form(wide, goal, reached)
        if claim.scope != "restriction" and (bursts := bursts_of_claim(wide, bare)):
            yield parts_form(wide, goal, reached, bursts)
        if claim.scope == "restriction":
            yield parts_form(bare, goal, reached)
        of_paths = problem.options.sizing == "fluid" or claim.scope == "restriction"
        if goal == problem.levels[0] and of_paths and not problem.wish.joins:
            served = forest_of(problem.served)
            yield config_form(served, problem.wish.fleet, problem.aim(goal, whole=False)).form
    if goal == problem.levels[0] == "quality" and claim.scope == "problem" and not problem.wish.joins:
        yield best_in_time_form(problem)


def _programs_of_whole_servers(
    problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], claim: Claim
) -> Iterator[Milp]:
    """Whole servers."""
    first, roomy = goal == problem.levels[0], problem.options.sizing != "fluid"  # other plans may do with less room
    if problem.wish.joins:
        trees = problem.by_steps
        if claim.scope == problem.scope and not roomy:
            yield from _whole_server_programs(problem, goal, reached, claim, lambda aim: problem.steps_form(trees, aim))
        return
    forest, write, scope = paper_program(problem) if problem.form == "loki" else config_program(problem)
    if claim.scope != "restriction" and (claim.scope != scope or problem.form == "loki-budget" or roomy):
        return
    best = best_of(forest)
    if not first and problem.levels[0] == "quality" and reached["quality"] >= best - 2 * KEPT:
        top = best_forest(problem, forest)
        after: dict[Goal, float] = {other: value for other, value in reached.items() if other != "quality"}
        yield from _whole_server_programs(problem, goal, after, claim, lambda aim: write(top, aim))
    yield from _whole_server_programs(problem, goal, reached, claim, lambda aim: write(forest, aim))


def _whole_server_programs(
    problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], claim: Claim, write: Callable[[Aim], Program]
) -> Iterator[Milp]:
    """Whole servers for a goal; of servers also whether one fewer than the bound would do."""
    aim = problem.aim(goal)
    for other, value in reached.items():
        aim = keep_goal(aim, other, value)
    if goal == "servers" and reached:
        yield write(replace(aim, servers_above=round(claim.bound or 0.0) - 1)).form
    yield write(aim).form


SEND_NONE = 1e-6
"""Where some send on less than that, all that is sent on may be of those dropped."""


def without_room(p: Pipelines, divisor: float | None = None) -> Pipelines:
    """The question whose bounds hold however much is kept free: all of each server, and this part of the deadline."""
    return p.with_options(spare=0.0, headroom=0.0, slo_divisor=p.options.slo_divisor if divisor is None else divisor)


def claims_in_parts(problem: Pipelines, ask: Ask, made: Draft) -> tuple[Reported, ...]:
    """What a plan reaches, beside what servers in parts would: a bound of all plans, however much is kept free."""
    wide, scope = loosest(problem), problem.scope_in_parts
    bursts, problem = bursts_of_claim(wide, problem), wide
    shown = {one.app: one.value for one in made.promises if one.quantity == "quality"}
    quality = sum(tree.weight * shown[tree.app] for tree in problem.served)
    found, reached = list[Reported](), dict[Goal, float]()
    totals = {one.quantity: one.value for one in made.promises if one.app is None}
    totals |= {"quality": quality, "least_quality": min(shown[tree.app] for tree in problem.served)}
    for goal in problem.levels:
        answer = ask(parts_form(problem, goal, reached), about=f"{goal}, servers in parts")
        value, note = totals.get(CLAIMED[goal]), None
        sense: Literal["max", "min"] = "max" if goal in ("quality", "fairest") else "min"
        if bursts and answer.bound is not None and value is not None:
            form = parts_form(problem, goal, reached, bursts)
            bursty = ask(form, about=f"{goal}, servers in parts, in bursts such as come")
            if _is_tighter(sense, bursty.bound, than=answer.bound, of=value):
                answer, note = bursty, "against the best in bursts such as come, whoever dispatches"
        found.append(Reported(CLAIMED[goal], sense, scope, answer, value=value, note=note))
        if answer.value is None:
            break
        # What comes later is bounded at the accuracy that the plan has, however much more there could be.
        reached[goal] = float(value or 0.0)
    return tuple(found)


def _is_tighter(sense: Literal["max", "min"], bound: float | None, *, than: float, of: float) -> bool:
    """Whether a bound of a value says more than another one, and does not refute the plan that has the value."""
    if bound is None:
        return False
    sign = 1.0 if sense == "min" else -1.0
    return sign * than < sign * bound <= sign * of + BOUND_SLIP * abs(of)


def loosest(problem: Pipelines) -> Pipelines:
    """The question in which a path may take all of its deadline, and no more queries are in time than must be.

    A plan that is played says itself how long its paths may be, a rule for late queries who is dropped, and routes who
    is late on purpose, on servers that are slow and cheap: any other plan that keeps the wish does as well.
    """
    whole, trees = problem.options.slo_divisor, list[Tree]()
    problem = replace(problem, options=problem.options.model_copy(update={"slo_divisor": 1.0}), before=None, of=None)
    for tree in problem.wish.trees:
        app, limit_ms = problem.request.apps[tree.app], {sink: whole * ms for sink, ms in tree.limit_ms.items()}
        tree = replace(tree, limit_ms=limit_ms)
        joins = tree.app in problem.wish.joins
        too_long = _may_be_late_at_steps(problem, tree) if joins else _may_be_late(tree)
        if (answered := least_served(app, may_be_late=too_long)) < app.min_answered_share:
            late = 1.0 - answered
            tree = replace(tree, late=late, late_quality=late * _best_of_any(tree, joins=joins))
        trees.append(replace(_send_fewest(tree, max(answered, SEND_NONE)), demand=answered * tree.demand))
    return replace(problem, wish=replace(problem.wish, trees=tuple(trees)))


def least_served(app: Application, *, may_be_late: bool) -> float:
    """The share of queries that need servers which are in time; all that are answered where no path is too long."""
    return min(app.min_answered_share, app.min_attainment) if may_be_late else app.min_answered_share


def _may_be_late(tree: Tree) -> bool:
    """Whether some path takes longer than its deadline."""
    slowest = [task.ms.max(initial=0.0) for task in tree.tasks]
    return any(sum(slowest[t] for t in tree.path(sink)) > tree.limit_ms[sink] + ON_LIMIT_MS for sink in tree.sinks)


def _may_be_late_at_steps(problem: Pipelines, tree: Tree) -> bool:
    """Whether the slowest of all steps end later than they may, where branches meet again."""
    ended = ends_of([float(task.ms.max(initial=0.0)) for task in tree.tasks], problem.edges_of(tree))
    limits = problem.step_limits_ms(tree)
    return any(end > limit + ON_LIMIT_MS for end, limit in zip(ended, limits, strict=True))


def _best_of_any(tree: Tree, *, joins: bool) -> float:
    """The best accuracy of paths that may take as long as they like."""
    if joins:
        weights = tree.weights or {}
        return sum(weights.get(task.id, 1.0) * float(task.quality.max(initial=0.0)) for task in tree.tasks)
    free = variant_tree(replace(tree, limit_ms=dict.fromkeys(tree.limit_ms, np.inf)))
    return best_quality(free, prefixes(free))[0]


def _send_fewest(tree: Tree, answered: float) -> Tree:
    """The same, each query that is answered sending on as few as may be: those that send on more may be dropped.

    A step sends on floor(f) or ceil(f). All send on f in the mean, and of those dropped none more than ceil(f): with
    `dropped` of them for each that is answered, these send on f - (ceil(f) - f) dropped at least, or floor(f).
    """
    tasks, dropped = list(tree.tasks), np.full(len(tree.tasks), (1.0 - answered) / answered)
    for t, task in enumerate(tasks if answered < 1.0 else ()):
        factor = {}
        for child, sent in task.factor.items():
            least = sent - (np.ceil(sent) - sent).max() * dropped[t]
            factor[child] = np.floor(sent) if (least < np.floor(sent)).any() else least
            more = dropped[t] * np.ceil(sent).max() / max(factor[child].min(), SEND_NONE)
            dropped[child] = max(dropped[child], more)  # of several branches that meet, the one that leaves the least
        tasks[t] = replace(task, factor=factor)
    return replace(tree, tasks=tuple(tasks))


def part_answered(app: Application, tree: Tree) -> float:
    """Of what steps do where every query is in time, what is left for each at least where no more are than must be.

    `tree` may take all of its deadline.
    """
    answered = max(least_served(app, may_be_late=_may_be_late(tree)), SEND_NONE)
    fewest, part = _send_fewest(tree, answered), np.full(len(tree.tasks), answered)
    for t, task in enumerate(tree.tasks):
        for child, sent in task.factor.items():
            some = sent > 0.0
            part[child] = part[t] * (fewest.tasks[t].factor[child][some] / sent[some]).min(initial=1.0)
    return float(part.min())


def bursts_of_claim(wide: Pipelines, stated: Pipelines) -> Sequence[Burst]:
    """The bursts that servers in parts must carry; none where the program has no paths to send them on."""
    return bursts_of(wide, stated) if _has_paths(wide) else ()


def _has_paths(problem: Pipelines) -> bool:
    """Whether a program knows each path and how long it takes; else each step has to be in time by itself alone."""
    return not problem.wish.joins and sum(map(count_prefixes, problem.served)) <= MOST_PREFIXES


def parts_form(problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], bursts: Sequence[Burst] = ()) -> Milp:
    """The program of servers in parts for a goal, where no less of others is reached than this.

    Where branches join, and where paths are too many, it has shares of variants, and configurations that are in time
    beside the fastest others: so it knows no less than all plans.
    """
    aim = replace(problem.aim("quality", whole=False), bursty=bool(bursts))
    for other, value in reached.items():
        aim = keep_goal(aim, other, value)
    stated, aim = {tree.app: tree for tree in problem.wish.trees}, replace(aim, goal=goal)
    if problem.wish.joins:
        trees = [restore_stated(tree, stated[tree.app]) for tree in problem.by_steps]
        return problem.steps_form(trees, aim).form
    trees = [restore_stated(tree, stated[tree.app]) for tree in problem.served]
    if not _has_paths(problem):
        by_variants = forest_of_variants(trees)
        return variant_form("in parts", by_variants, trees, problem.wish.fleet, aim).form
    forest = forest_of(trees)
    tops = (tree.weight * tree.with_late(best_quality(tree, levels)[0]) for tree, levels in forest)
    best = sum(tops) if bursts else np.inf
    if reached.get("quality", 0.0) >= best - KEPT:
        forest = [(tree, best_prefixes(tree, levels)) for tree, levels in forest]

    def more(m: Builder, x: Sequence[Places]) -> None:
        for burst in bursts:
            burst.add(m, *forest[burst.number], x[burst.number])

    return config_form(forest, problem.wish.fleet, aim, more=more).form


MOST_COLUMNS = 1500
"""Larger programs take longer than the plan that they bound: fewer atoms do then."""


@dataclass(frozen=True)
class Burst:
    """A window of a pipeline's arrivals, and a limit, ms, that a share `late` of its queries may miss.

    `tree` is the pipeline as stated, `number` which of the trees it is; of each step `work` is w_y in ms, `span_ms` how
    long the servers of each configuration have for those in time.
    """

    tree: Tree
    number: int
    window: Window
    limit_ms: float
    late: float
    work: tuple[Vector, ...]
    span_ms: tuple[Vector, ...]

    def add(self, m: Builder, tree: Tree, levels: Sequence[Level], x: Places) -> None:
        """Add the columns s and v and their rows; `x` are the columns of the servers of each configuration.

        Jobs go to the configurations of `tree` where some of the prefixes in `levels` end.
        """
        used = [np.unique(level.config) for level in levels]
        fit = [own[np.isfinite(work[own])] for own, work in zip(used, self.work, strict=True)]
        window, at = self.window, f" of {self.limit_ms:g} ms of {tree.app} ({self.late:.4g})"
        part = window.chance * window.count / window.mean / self.late  # what may be late is 1: few may be
        enough = m.rows("in time in bursts" + at, ["share"], lower=part.sum() - 1.0, equation="(7)")
        for j, count in enumerate(window.count.tolist()):
            s = m.columns(f"in time, burst {j}{at}", ["share"], upper=1.0)
            m.add(enough, s, part[j])
            self._add_burst(m, tree, fit, x, s, count, f"burst {j}{at}")

    def _add_burst(
        self, m: Builder, tree: Tree, fit: Sequence[Places], x: Places, s: Places, count: float, burst: str
    ) -> None:
        """(5) and (6) where so many queries come, on these configurations of each step."""
        stated, start, v = self.tree.tasks, 0, list[Places]()
        most = _most_jobs(self.tree)
        for t, task in enumerate(tree.tasks):
            work, span_ms = self.work[t][fit[t]], self.span_ms[t][fit[t]]
            v.append(m.columns(f"v {task.id}, {burst}", str, size=fit[t].size))
            room = m.rows(f"time {task.id}, {burst}", str, size=fit[t].size, upper=0.0, equation="(6)")
            m.add(room, v[t], count * work / span_ms)
            m.add(room, x[start : start + task.size][fit[t]], -1.0)
            start += task.size
            if task.parent < 0:
                jobs = m.rows(f"jobs {task.id}, {burst}", ["all"], lower=0.0, equation="(5)")
                m.add(jobs, s, -1.0)
            else:
                sent = stated[task.parent].factor[t]
                fewer = most[task.parent] * float((np.ceil(sent) - sent).max())
                jobs = m.rows(f"jobs {task.id}, {burst}", ["all"], lower=-fewer, equation="(5)")
                m.add(jobs, v[task.parent], -sent[tree.tasks[task.parent].variant[fit[task.parent]]])
                if fewer > 0.0:
                    m.add(jobs, s, -fewer)
            m.add(jobs, v[t], 1.0)


def _most_jobs(tree: Tree) -> Vector:
    """At most how many jobs a query has at each step."""
    most = np.ones(len(tree.tasks))
    for t, task in enumerate(tree.tasks):
        if task.parent >= 0:
            most[t] = most[task.parent] * np.ceil(tree.tasks[task.parent].factor[t]).max()
    return most


def bursts_of(problem: Pipelines, stated: Pipelines) -> list[Burst]:
    """The bursts that ask for more servers than the rates do; none where it is not known when queries come.

    `problem` answers no more than it must: what comes, and how many a query sends on, is as `stated`.
    """
    found, trees = list[Burst](), {tree.app: tree for tree in stated.wish.trees}
    for number, tree in enumerate(problem.served):
        app, comes = problem.request.apps[tree.app], trees[tree.app]
        steps = min(len(tree.path(sink)) for sink in tree.sinks)
        size = sum(task.size for task in tree.tasks)
        for target in app.targets:
            limit = target.limit_ms(steps)
            if limit <= 0.0 or app.arrivals.process not in ("mmpp", "gamma"):
                continue
            works = [_works(task, limit) for task in tree.tasks]
            after_ms = time_after(limit, varies=any(varies.any() for _, varies in works))
            window = busiest(app.arrivals, comes.demand, after_ms / 1000.0, target.left)
            while window is not None and window.count.size * size > MOST_COLUMNS:
                window = window.coarser() if window.count.size > 1 else None
            if window is not None:
                spans = tuple(
                    1000.0 * window.seconds + np.where(varies, time_after(limit, varies=True), limit)
                    for _, varies in works
                )
                found.append(Burst(comes, number, window, limit, target.left, tuple(work for work, _ in works), spans))
    return found


def _works(task: Task, limit_ms: float) -> tuple[Vector, Vector]:
    """What a job takes of a server of each configuration, ms, infinite where it is late; and where times vary."""
    works, varies = np.full(task.size, np.inf), np.zeros(task.size, dtype=bool)
    for y in range(task.size):
        choice, most = task.choice(y), int(task.batch[y])
        law = choice.law
        varies[y], statistic = law.has_spread, answering_statistic(law.statistics, "mean")
        sizes = [int(size) for size in law.axes.get("batch", ()) if size <= most] if "batch" not in choice.at else []
        for size in {*sizes, most}:
            times, least = law.distribution({}, size) if law.has_spread else None, law.ms({}, size, statistic)
            if times is not None:
                least = least_work(times, limit_ms)
            elif least > limit_ms * (1.0 + SLIP):
                continue
            works[y] = min(works[y], least / size)
    return works / task.k, varies
