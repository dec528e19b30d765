"""Hardware scaling while the best accuracy can be kept, else accuracy scaling: for every program over pipelines.

While the best accuracy can be kept, servers are minimised; beyond, accuracy is maximised first. The goals are solved
one after the other, and each keeps what the one before has reached (`climb`). At the end counts are whole, and the
shares are solved again as a linear program (`polish`): no verdict rests on an engine's rounding.

`solve_config` asks the exact program, `solve_paper` Loki's own,
`solve_steps` that of steps whose branches meet again; `reroute` keeps the servers of a plan, and routes anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetplan.errors import InputError, SolverFailed
from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported, Scope
from hetplan.planner.forms.milp import Milp
from hetplan.problems.faults import Faults
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.programs import (
    ONE_MORE,
    Aim,
    Forest,
    Program,
    config_form,
    flows_form,
    paper_form,
)
from hetplan.problems.pipeline.request import Fleet, Goal
from hetplan.problems.pipeline.tree import (
    Level,
    Mask,
    Places,
    Task,
    Tree,
    Vector,
    ends_of,
    forest_of,
    forest_of_variants,
)

__all__ = [
    "ABOUT",
    "CLAIMED",
    "GAP",
    "KEPT",
    "MOST_USED",
    "NO_RATE",
    "SLIPS",
    "Solution",
    "best_forest",
    "best_in_time_form",
    "best_prefixes",
    "best_quality",
    "climb",
    "config_program",
    "fill_evenly",
    "keep_goal",
    "keep_prefixes",
    "paper_program",
    "polish",
    "proportional_shares",
    "quality_of",
    "reroute",
    "scale",
    "serve_part",
    "solve_among_used",
    "solve_config",
    "solve_paper",
    "solve_steps",
    "tidy",
]

KEPT = 1e-7
"""How much of an earlier level's value a later one may lose."""

SAME = 1e-9
"""A value this near to its bound is it: both were solved to a tolerance."""

SLIPS = (0.0, 1e-5, 1e-4)
"""By how much capacities are tightened, in turn, until whole counts carry the demand exactly; the first is the rule."""

GAP = 1e-6
"""The default gap of exact programs."""

Write = Callable[[Forest, Aim], Program]


@dataclass(frozen=True)
class Solution:
    """A choice of servers with the shares that they carry.

    `forest` holds the configurations that `counts` are of, with the prefixes that `shares` are of.
    """

    forest: list[tuple[Tree, list[Level]]]
    counts: list[Places]
    shares: list[list[Vector]]
    mode: str
    reported: tuple[Reported, ...]
    served: dict[str, float] | None = None
    """Per application the rate that is served, where it is less than the demand."""
    longest_ms: dict[str, float] | None = None
    """Per application the longest way through, where branches join and no path says so."""
    levels_proved: bool = True
    """Whether what is claimed of later levels of the objective holds among all plans, and not only among some."""

    @property
    def qualities(self) -> list[float]:
        """Accuracy of each application."""
        return [quality_of(tree, levels, n) for (tree, levels), n in zip(self.forest, self.shares, strict=True)]

    @property
    def quality(self) -> float:
        """The weighted sum of the accuracies."""
        return sum(tree.weight * a for (tree, _), a in zip(self.forest, self.qualities, strict=True))

    @property
    def servers(self) -> int:
        """How many servers there are in all."""
        return sum(int(counts.sum()) for counts in self.counts)

    def valued(self, reported: Reported) -> Reported:
        """A claim of a goal with the value that the finished plan has."""
        values = {
            "quality": self.quality,
            "least_quality": min(self.qualities, default=0.0),
            "servers": float(self.servers),
        }
        value, answer = values.get(reported.about), reported.answer
        if value is None:
            return reported
        if answer is not None and answer.bound is not None and abs(value - answer.bound) <= SAME:
            value = answer.bound  # the same number but for its last digit
        return replace(reported, value=value)


MOST_USED: dict[Goal, int] = {"quality": 4, "fairest": 6}
"""So many configurations of each step are looked at where a plan is wanted soon.

The prices are those of accuracy, so where the worst served comes first they say less, and more is looked at: of two
applications on the street's servers 4 left it at .947 and 6 at .968, in the same time.
"""

NEAR = 3e-3
"""How near to the best of those."""


def solve_config(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """The exact program."""
    return scale(problem, ask, *config_program(problem))


def config_program(problem: Pipelines) -> tuple[Forest, Write, Scope]:
    """The exact program, ready to be written for a goal; and what its bounds are of."""
    fleet = problem.wish.fleet
    forest = forest_of(problem.served)
    return forest, lambda kept, aim: config_form(kept, fleet, aim), problem.scope


def solve_among_used(problem: Pipelines, ask: Ask) -> Solution | Infeasibility | None:
    """Soon: whole servers among the configurations of servers in parts; None where these have no plan: others may."""
    first = problem.levels[0]
    fleet = problem.wish.fleet
    if any(task.size == 0 for tree in problem.served for task in tree.tasks):
        return None
    forest = forest_of(problem.served)
    base = problem.aim(first, whole=False)
    program = config_form(forest, fleet, base)
    best = answer = ask(program.form, about=f"{ABOUT[first]}, servers in parts")
    if answer.status is Status.INFEASIBLE:
        return Infeasibility(why=(), answer=answer, proved=problem.wish.fleet.apart != "unlike")
    if first == "fairest" and answer.point is not None:
        # Only the worst served have a worth there: what the others are worth says the accuracy of all.
        program = config_form(
            forest, fleet, replace(keep_goal(base, first, program.form.value(answer.point)), goal="quality")
        )
        answer = ask(program.form, about=f"{ABOUT['quality']} at it, servers in parts")
    if answer.point is None or answer.row_duals is None:
        return None
    kept = _worth_most(program, forest, answer.point, answer.row_duals, MOST_USED[first])
    narrowed = replace(problem, of=tuple(kept))
    some = forest_of(kept)
    found = scale(narrowed, ask, some, lambda part, aim: config_form(part, fleet, aim), scope="restriction", gap=NEAR)
    if isinstance(found, Infeasibility):
        return None
    about = CLAIMED[first]
    claim = found.valued(Reported(about, "max", problem.scope_in_parts, best, value=found.quality))
    rest = tuple(one for one in found.reported if one.about != about)
    return replace(found, reported=(claim, *rest), levels_proved=all(one.scope != "restriction" for one in rest))


def _worth_most(program: Program, forest: Forest, point: Vector, prices: Vector, most: int) -> list[Tree]:
    """The trees with the configurations of each step that are used, or are worth most at these prices."""
    short = program.form.cost - program.form.matrix.T @ prices
    kept = []
    for (tree, _), columns in zip(forest, program.x, strict=True):
        worth = tree.by_task(np.where(point[columns] > KEPT, np.inf, short[columns]))
        kept.append(tree.keeping([own >= np.sort(own)[::-1][min(most, own.size) - 1] for own in worth]))
    return kept


def solve_paper(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """Loki's own program; with several hardware it may find less than there is."""
    return scale(problem, ask, *paper_program(problem))


def paper_program(problem: Pipelines) -> tuple[Forest, Write, Scope]:
    """Loki's own program, ready to be written for a goal; and what its bounds are of."""
    forest = forest_of_variants(problem.served)

    def write(kept: Forest, aim: Aim) -> Program:
        return paper_form(kept, problem.served, problem.wish.fleet, aim)

    return forest, write, problem.scope if problem.has_one_hardware else "restriction"


def scale(
    problem: Pipelines,
    ask: Ask,
    forest: Forest,
    write: Write,
    scope: Scope,
    *,
    gap: float = GAP,
    best: float | None = None,
) -> Solution | Infeasibility:
    """Hardware scaling while the best accuracy can be kept, else accuracy scaling.

    Where the `best` accuracy in time is known, nothing is claimed of it.
    """
    found = _hardware_scaling(problem, ask, forest, write, scope, gap, best)
    return found or _accuracy_scaling(problem, ask, lambda aim: write(forest, aim), scope, gap)


def _hardware_scaling(
    problem: Pipelines, ask: Ask, forest: Forest, write: Write, scope: Scope, gap: float, known: float | None
) -> Solution | None:
    """The least of servers (cost, moves) at the best accuracy in time; None where it cannot be kept."""
    goals = problem.wish.goals
    if goals[0] != "quality" or len(goals) < 2:
        return None
    best = best_forest(problem, forest)
    if any(not level.size for _, levels in best for level in levels):
        return None
    if known is None:
        in_parts = write(best, problem.aim(goals[1], whole=False))
        if ask(in_parts.form, about="can the best accuracy be kept at all").status is Status.INFEASIBLE:
            return None
    for slip in SLIPS:
        base = problem.aim(goals[1], slip=slip)
        climbed = climb(ask, lambda aim: write(best, aim), goals[1:], base, scope=scope, gap=gap)
        if isinstance(climbed, Answer):
            return None
        program, point, reported = climbed
        shares = polish(ask, problem.served, program.counts(point), problem.wish.fleet)
        if shares is not None:
            found = Solution(*shares, mode="hardware", reported=())
            if known is not None:
                return found if found.quality >= known - KEPT else replace(found, mode="accuracy")
            best_claim = found.valued(_best_in_time(problem, ask))
            if best_claim.value is not None and best_claim.answer is not None and best_claim.answer.bound is not None:
                # At latency levels that were chosen before, the best there may be less than the best there is.
                reached = best_claim.value >= best_claim.answer.bound - KEPT
                found = replace(found, mode="hardware" if reached else "accuracy")
            rest = tuple(found.valued(one) for one in reported)
            return replace(found, reported=(best_claim, *rest))
    return None


def best_forest(problem: Pipelines, forest: Forest) -> list[tuple[Tree, list[Level]]]:
    """Only what keeps the best accuracy in time; as the paper has it, the most accurate variants."""
    of = _top_prefixes if getattr(problem.options, "step1", "") == "top-variants" else best_prefixes
    return [(tree, of(tree, levels)) for tree, levels in forest]


def _best_in_time(problem: Pipelines, ask: Ask) -> Reported:
    """The claim that no number of servers gives a better accuracy in time."""
    answer = ask(best_in_time_form(problem), about="best accuracy in time, however many servers")
    return Reported("quality", "max", "problem", answer)


def best_in_time_form(problem: Pipelines) -> Milp:
    """The best accuracy in time, however many servers there are: flows alone, on each variant's fastest."""
    forest = forest_of_variants(problem.considered)
    return flows_form(forest, problem.wish.fleet, Aim("quality", floors=False))


def _accuracy_scaling(
    problem: Pipelines, ask: Ask, write: Callable[[Aim], Program], scope: Scope, gap: float, *, steps: bool = False
) -> Solution | Infeasibility:
    """The best accuracy on all servers, then the least of them."""
    goals = problem.levels
    # Within a wide gap the least servers are sought among the configurations already chosen: it is a matter of order.
    upto = len(goals) if gap <= GAP else goals.index("quality") + 1 if "quality" in goals else len(goals)
    is_last = upto == len(goals)
    for slip in SLIPS:
        climbed = climb(ask, write, goals[:upto], problem.aim(goals[0], slip=slip), scope=scope, gap=gap)
        if isinstance(climbed, Answer):
            if climbed.status is Status.INFEASIBLE:
                # Neither a restriction nor capacities that were tightened prove anything.
                proved = (scope == "problem" or steps) and slip == SLIPS[0]
                return Infeasibility(why=(), answer=climbed, proved=proved)
            if climbed.stop is Stop.FINISHED:
                continue  # by a hair: with a little less capacity all engines say the same
            return Infeasibility(why=(f"no plan was found: {climbed.detail or climbed.stop}",), proved=False)
        program, point, reported = climbed
        found, counts = None, program.counts(point)
        if steps:
            found = _side_by_side(problem, ask, counts)
        elif shares := polish(ask, problem.served, counts, problem.wish.fleet, fair=problem.fair, leaves_room=is_last):
            found = Solution(*shares, mode="accuracy", reported=())
        if found is not None:
            found = replace(found, reported=tuple(reported))
            if not is_last:
                tidied = tidy(problem, ask, found, goals[upto:])
                if tidied is found and not steps:  # these shares are handed out after all
                    shares = polish(ask, problem.served, counts, problem.wish.fleet, fair=problem.fair)
                    tidied = Solution(*shares, mode="accuracy", reported=found.reported) if shares else found
                found = tidied
            return replace(found, reported=tuple(found.valued(one) for one in found.reported))
    return Infeasibility(why=("whole servers do not carry what the program promised",), proved=False)


def tidy(problem: Pipelines, ask: Ask, found: Solution, goals: tuple[Goal, ...]) -> Solution:
    """The later levels of the objective among the chosen configurations, at the accuracy reached."""
    fleet, forest = problem.wish.fleet, found.forest
    least = min(found.qualities) - KEPT if problem.fair else None
    for slip in SLIPS:
        base = replace(problem.aim(goals[0], slip=slip), quality_least=found.quality - KEPT, each_least=least)
        climbed = climb(ask, lambda aim: config_form(forest, fleet, aim), goals, base, scope="restriction", gap=1e-3)
        if isinstance(climbed, Answer):
            return found
        program, point, reported = climbed
        shares = polish(ask, [tree for tree, _ in forest], program.counts(point), fleet, fair=problem.fair)
        if shares is not None:
            return Solution(*shares, mode=found.mode, reported=(*found.reported, *reported))
    return found


def _top_prefixes(tree: Tree, levels: list[Level]) -> list[Level]:
    """Only the prefixes of the most accurate variants."""
    tops = [task.quality >= task.quality.max() - 1e-12 for task in tree.tasks]
    return keep_prefixes(tree, levels, [top[level.variants[:, -1]] for top, level in zip(tops, levels, strict=True)])


def solve_steps(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """The best accuracy where branches meet again, then the fewest servers; `InputError` where no plan is exact."""
    _check_joins(problem)
    trees = problem.by_steps
    if any(not task.size for tree in trees for task in tree.tasks):
        return Infeasibility(
            why=(
                "latency: some stage has no variant that is fast enough, even with the fastest variants of the others",
            )
        )
    found = _accuracy_scaling(problem, ask, lambda aim: problem.steps_form(trees, aim), problem.scope, GAP, steps=True)
    if isinstance(found, Infeasibility) and not found.why:
        return replace(found, why=("capacity: the servers do not carry the demand in time",))
    return found


def _check_joins(problem: Pipelines) -> None:
    """Raise `InputError` where a pipeline that joins branches cannot be planned exactly."""
    faults = Faults.of(problem.inputs)
    if problem.formulation not in ("pipeline-milp", "loki-budget"):
        why = f"the formulation {problem.formulation} plans trees; a pipeline here joins branches"
        faults.in_options("formulation", why, "Use pipeline-milp or loki-budget.", value=problem.formulation)
    for tree in problem.wish.trees:
        at = f"$.pipelines.{problem.request.apps[tree.app].pipeline}"
        if tree.rule != "additive" or tree.paths:
            why = "steps with several steps before them are planned for accuracy that adds up over the steps only"
            remedy = 'Write "quality": "additive", or plan a tree.'
            faults.in_profile(f"{at}.quality.rule", why, remedy, value=tree.rule)
        for task in tree.tasks:
            if any(values.size and np.ptp(values) > 0 for values in task.factor.values()):
                why = f"what {task.id} sends on depends on the variant, which shares per step cannot follow"
                faults.in_profile(f"{at}.edges", why, "Give one fanout per edge, or plan a tree.")
        gains = tree.gains_by_branch(problem.edges_of(tree))
        for t, several in enumerate(gains):
            if several and np.ptp(several) > 1e-9:
                why = f"the branches that meet at {tree.tasks[t].id} bring different numbers of queries"
                faults.in_profile(f"{at}.edges", why, "Make the fanouts along them multiply to the same.")
    faults.settle()


def _side_by_side(problem: Pipelines, ask: Ask, counts: Sequence[Places]) -> Solution | None:
    """Steps beside one another on these servers, each with the best shares; the accuracy of all is their sum."""
    trees = problem.by_steps
    fixed = problem.steps_form(trees, Aim("quality", counts=counts))
    answer = ask(fixed.form, about="shares of the chosen servers")
    if answer.point is None:
        return None
    shares = [[answer.point[columns] for columns in own] for own in fixed.flows]
    forest, kept, flows, longest = [], [], [], {}
    for tree, n, own in zip(trees, counts, shares, strict=True):
        gains = tree.gains_at_steps(problem.edges_of(tree))
        tasks, levels, spread = list[Task](), list[Level](), list[Vector]()
        for t, (task, mine) in enumerate(zip(tree.tasks, tree.by_task(n), strict=True)):
            small = replace(task.keeping(mine > 0), parent=-1)
            tasks.append(small)
            share = np.zeros(len(task.variants))
            share[np.unique(task.variant)] = own[t]
            capacity = small.qps * mine[mine > 0]
            whole = np.bincount(small.variant, weights=capacity, minlength=len(task.variants))
            spread.append(share[small.variant] * capacity / whole[small.variant])
            weight = (tree.weights or {}).get(task.id, 1.0) * len(tree.tasks)
            levels.append(
                Level(np.zeros(small.size, np.int64), np.arange(small.size), small.ms,
                      np.full(small.size, gains[t]), weight * task.quality[small.variant], small.variant[:, None])
            )  # fmt: skip
        limits = problem.step_limits_ms(tree)
        flat = replace(tree, tasks=tuple(tasks), limit_ms=dict(enumerate(limits)))
        forest.append((flat, levels))
        kept.append(n[n > 0])
        flows.append(spread)
        longest[tree.app] = _longest_way(problem, flat, spread)
    return Solution(forest, kept, flows, mode="accuracy", reported=(), longest_ms=longest)


def _longest_way(problem: Pipelines, tree: Tree, shares: Sequence[np.ndarray]) -> float:
    """When the last step ends, execution and network alone."""
    network = problem.request.apps[tree.app].hop_ms
    took = [float(task.ms[n > 1e-9].max()) + network for task, n in zip(tree.tasks, shares, strict=True)]
    return max(ends_of(took, problem.edges_of(tree))) + problem.network_ms(tree.app, 0)


NO_RATE = 1e-6
"""So small a share of the demand is an engine's tolerance, not something that can be served."""

HAIR = 1e-9
"""By this share less is served where the last digit is too much."""


def reroute(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """Routing for the demand of now, with the servers of the plan before; what they cannot carry stays unserved."""
    counts = _running_servers(problem)
    trees = problem.served
    used = polish(ask, trees, counts, problem.wish.fleet)
    claim = "the best routing of these servers"
    if used is not None:
        found = Solution(*used, mode="rerouted", reported=())
        return replace(found, reported=(Reported("quality", "max", "none", value=found.quality, note=claim),))
    forest = forest_of(trees)
    program = config_form(forest, problem.wish.fleet, Aim("rate", counts=counts))
    answer = ask(program.form, about="how much of the demand these servers carry")
    if answer.value is None or answer.value <= 0:
        return Infeasibility(why=("the servers of the previous plan carry nothing of this demand in time",))
    served = Reported("served_share", "max", "restriction", answer)
    scaled = serve_part(problem, ask, trees, counts, float(answer.value))
    return scaled if isinstance(scaled, Infeasibility) else replace(scaled, mode="rerouted", reported=(served,))


def serve_part(
    problem: Pipelines, ask: Ask, trees: Sequence[Tree], counts: list[Places], share: float
) -> Solution | Infeasibility:
    """The shares of given servers when only this share of every demand is served."""
    for slip in (0.0, HAIR, 1e-7) if share > NO_RATE else ():
        served = tuple(replace(tree, demand=tree.demand * share * (1 - slip)) for tree in trees)
        shares = polish(ask, served, counts, problem.wish.fleet)
        if shares is not None:
            whole = {tree.app: tree.demand for tree in trees}
            forest = [(replace(tree, demand=whole[tree.app]), levels) for tree, levels in shares[0]]
            rates = {tree.app: tree.demand for tree in served}
            return Solution(forest, shares[1], shares[2], mode="partly served", reported=(), served=rates)
    return Infeasibility(why=("the servers carry nothing of it",), proved=False)


def _running_servers(problem: Pipelines) -> list[Places]:
    """Servers of the previous plan, per configuration."""
    if problem.start is None:
        raise InputError.one(
            path="--from",
            why="new routes need the plan whose servers stay",
            remedy="Give the previous plan (--from plan.json, start=plan).",
        )
    placed = Counter[tuple[object, ...]]()
    if any(len(worker.loads) > 1 for worker in problem.start.workers):
        raise InputError.one(
            file="plan", path="$.workers", why="steps share its servers; new routes are made for servers of one step",
            remedy="Plan again, with a state file; or make that plan with --set share_machines=false.",
        )  # fmt: skip
    for worker in problem.start.workers:
        for load in worker.loads:
            placed[load.app, load.node, load.variant, worker.hardware, load.serve.max_batch, load.instances] += (
                worker.count
            )
    counts, known = [], Counter[tuple[object, ...]]()
    for tree in problem.served:
        own = []
        for task in tree.tasks:
            for k, g, b, n in zip(task.variant, task.hardware, task.batch, task.k, strict=True):
                key = (tree.app, task.id, task.variants[k], problem.wish.fleet.hardware[g], int(b), int(n))
                own.append(placed[key])
                known[key] += 1
        counts.append(np.array(own, dtype=np.int64))
    apps = {tree.app for tree in problem.served}
    strange = [key for key in placed if key[0] in apps and placed[key] and not known[key]]
    if strange:
        which = "/".join(str(part) for part in strange[0])
        raise InputError.one(
            file="plan", path="$.workers", value=which, why="the profile has no such configuration in time",
            remedy="Plan again, without rerouting.",
        )  # fmt: skip
    return counts


def quality_of(tree: Tree, levels: Sequence[Level], shares: Sequence[Vector]) -> float:
    """The mean accuracy over the last tasks."""
    return float(sum(levels[s].quality @ shares[s] / shares[s].sum() for s in tree.sinks)) / len(tree.sinks)


def best_quality(tree: Tree, levels: Sequence[Level]) -> tuple[float, list[Vector]]:
    """A*: the best accuracy in time with unlimited servers, and per prefix what is still to be had from it on."""
    worth = [np.zeros(level.size) for level in levels]
    best: list[Vector] = [np.zeros(0)] * len(levels)
    for t in reversed(range(len(levels))):
        level = levels[t]
        if not tree.children[t]:
            worth[t] = level.quality / len(tree.sinks)
        for child in tree.children[t]:
            worth[t] = worth[t] + best[child]
        size = levels[tree.tasks[t].parent].size if tree.tasks[t].parent >= 0 else 1
        best[t] = np.full(size, -np.inf)
        np.maximum.at(best[t], level.parent, worth[t])
    return float(sum(best[root][0] for root in tree.roots)), [
        worth[t] - best[t][levels[t].parent] for t in range(len(levels))
    ]


def best_of(forest: Forest) -> float:
    """The weighted sum of the best accuracies."""
    return sum(tree.weight * best_quality(tree, levels)[0] for tree, levels in forest)


def best_prefixes(tree: Tree, levels: Sequence[Level]) -> list[Level]:
    """Only the prefixes by which the best accuracy is kept."""
    _, short = best_quality(tree, levels)
    return keep_prefixes(tree, levels, [loss >= -1e-12 for loss in short])


def keep_prefixes(tree: Tree, levels: Sequence[Level], masks: Sequence[Mask]) -> list[Level]:
    """Only some of the prefixes, and of those only the ones whose beginnings are kept too."""
    kept: list[Level] = []
    places: list[Places] = []
    for level, task, mask in zip(levels, tree.tasks, masks, strict=True):
        above = places[task.parent][level.parent] if task.parent >= 0 else np.zeros(level.size, np.int64)
        keep = mask & (above >= 0)
        place = np.full(level.size, -1)
        place[keep] = np.arange(int(keep.sum()))
        places.append(place)
        kept.append(
            Level(above[keep], level.config[keep], level.ms[keep], level.gain[keep], level.quality[keep],
                  level.variants[keep])
        )  # fmt: skip
    return kept


def climb(
    ask: Ask, write: Callable[[Aim], Program], goals: Sequence[str], base: Aim, *, scope: Scope, gap: float = GAP
) -> tuple[Program, Vector, list[Reported]] | Answer[Any]:
    """Solve level after level: the last program and its point, or the answer that found the first one wanting.

    A demand that whole servers miss by less than an engine's tolerance is neither feasible nor believed infeasible: no
    answer, though the work was finished.
    """
    try:
        return _climb(ask, write, goals, base, scope, gap)
    except SolverFailed as failure:
        return Answer(Status.NO_ANSWER, stop=Stop.FINISHED, detail=str(failure))


def _climb(
    ask: Ask, write: Callable[[Aim], Program], goals: Sequence[str], base: Aim, scope: Scope, gap: float
) -> tuple[Program, Vector, list[Reported]] | Answer[Any]:
    aim, reported = base, list[Reported]()
    best: tuple[Program, Vector] | None = None
    point: Vector | None = None
    for goal in goals:
        if goal == "servers" and best is not None:
            needed = _as_few_as_there_are(ask, write, aim, best, gap)
            if needed is not None:
                reported.append(Reported("servers", "min", scope, needed))
                aim = keep_goal(aim, goal, needed.value or 0.0)
                continue
        program = write(replace(aim, goal=goal))  # type: ignore[arg-type]
        hint = point if point is not None and point.size == program.form.cost.size else None
        answer = ask(program.form, start=hint, gap=gap, about=ABOUT[goal])
        if answer.point is None:
            if best is None:
                return answer
            break
        best, point = (program, answer.point), answer.point
        value = program.form.value(answer.point)
        reported.append(Reported(CLAIMED[goal], "max" if goal in ("quality", "fairest") else "min", scope, answer))
        aim = keep_goal(aim, goal, value)
    assert best is not None
    return best[0], best[1], reported


def _as_few_as_there_are(
    ask: Ask, write: Callable[[Aim], Program], aim: Aim, best: tuple[Program, Vector], gap: float
) -> Answer[Any] | None:
    """The proof that the servers of the best point so far are the fewest; None where one fewer would do.

    Most often none is to spare, and an engine that may count no lower sees so many times faster.
    """
    program, point = best
    now = sum(int(counts.sum()) for counts in program.counts(point))
    form = write(replace(aim, goal="servers", servers_above=now - 1)).form
    start = np.insert(point, next(block.start for block in form.columns if block.name == ONE_MORE), 1.0)
    answer = ask(form, start=start, gap=gap, about="whether one server fewer would do")
    # The objective does not count below one fewer, so a bound of no more than that (under a wide gap) proves nothing.
    return answer if answer.bound is not None and answer.bound > now - 1 + KEPT and answer.point is not None else None


ABOUT = {
    "quality": "best accuracy", "fairest": "best accuracy of the worst served", "servers": "fewest servers",
    "cost": "least cost", "changes": "fewest changes",
}  # fmt: skip

CLAIMED: dict[str, str] = {
    "quality": "quality", "fairest": "least_quality", "servers": "servers", "cost": "cost_per_hour",
    "changes": "changes",
}  # fmt: skip


def keep_goal(aim: Aim, goal: str, value: float) -> Aim:
    """What was asked, and no less of this goal than was reached."""
    if goal == "quality":
        return replace(aim, quality_least=value - KEPT)
    if goal == "fairest":
        return replace(aim, each_least=value - KEPT)
    if goal == "servers":
        return replace(aim, servers_most=round(value))
    if goal == "changes":
        return replace(aim, moves_most=round(value))
    return replace(aim, cost_most=value * (1 + 1e-9) + 1e-9)


def polish(
    ask: Ask,
    trees: Sequence[Tree],
    counts: Sequence[Places],
    fleet: Fleet,
    *,
    fair: bool = False,
    leaves_room: bool = True,
) -> tuple[list[tuple[Tree, list[Level]]], list[Places], list[list[Vector]]] | None:
    """The best shares that whole counts carry: configurations without a server are gone, the rest is linear.

    Where servers are kept free, those of them that leave most room, if that is asked for: not where others are made of
    these.
    """
    used = [_without_idle(tree, n) for tree, n in zip(trees, counts, strict=True)]
    forest = forest_of(tree for tree, _ in used)
    kept = [n for _, n in used]
    if any(not level.size for _, levels in forest for level in levels):
        return None
    aim = Aim("quality", counts=kept, slip=SLIPS[0])
    if fair:
        first = config_form(forest, fleet, replace(aim, goal="fairest"))
        answer = ask(first.form, about="shares of the chosen servers, fairest first")
        if answer.point is None:
            return None
        aim = replace(aim, each_least=first.form.value(answer.point) - KEPT / 10)
    program = config_form(forest, fleet, aim)
    answer = ask(program.form, about="shares of the chosen servers")
    if answer.status is not Status.OPTIMAL or answer.point is None:
        return None
    if leaves_room and any(tree.spare > 0 for tree in trees):
        # Of shares that are as good, those that fill no group to the brim.
        reached = replace(aim, goal="room", quality_least=program.form.value(answer.point) - KEPT / 10)
        roomy = config_form(forest, fleet, reached)
        again = ask(roomy.form, about="shares that leave most room")
        if again.point is not None:
            program, answer = roomy, again
    assert answer.point is not None
    shares = [[np.maximum(answer.point[columns], 0.0) for columns in flows] for flows in program.flows]
    return forest, kept, shares


def fill_evenly(
    ask: Ask,
    trees: Sequence[Tree],
    counts: Sequence[Places],
    fleet: Fleet,
    aim: Aim,
    is_worth: Callable[[Solution], bool] = lambda _: True,
) -> Solution | None:
    """Shares in proportion to what servers carry; else those by which they could carry the most of all rates.

    None where they break a limit, do not carry the demand, or where some of them have nothing to do. Of shares in
    proportion it is asked whether the plan `is_worth` a program, before one is solved.
    """
    cut_down = [_without_idle(tree, n) for tree, n in zip(trees, counts, strict=True)]
    forest, kept = forest_of(tree for tree, _ in cut_down), [n for _, n in cut_down]
    if any(not level.size for _, levels in forest for level in levels):
        return None
    even = [proportional_shares(tree, levels, n) for (tree, levels), n in zip(forest, kept, strict=True)]
    known = [own for own in even if own is not None]
    if len(known) == len(even) and not is_worth(Solution(forest, kept, known, mode="accuracy", reported=())):
        return None
    program = config_form(forest, fleet, aim)
    lower, upper = program.form.lower.copy(), program.form.upper.copy()
    for columns, n in zip(program.x, kept, strict=True):
        lower[columns] = upper[columns] = n
    answer = ask(replace(program.form, lower=lower, upper=upper), about="shares by which these servers carry most")
    if answer.point is None or answer.value is None or answer.value < 1.0:
        return None
    point = np.maximum(answer.point, 0.0) / answer.value
    shares = [own or [point[columns] for columns in flows] for own, flows in zip(even, program.flows, strict=True)]
    used_at = (
        np.bincount(level.config, weights=share, minlength=task.size)
        for (tree, levels), own in zip(forest, shares, strict=True)
        for task, level, share in zip(tree.tasks, levels, own, strict=True)
    )
    if any((used <= KEPT).any() for used in used_at):
        return None
    return Solution(forest, kept, shares, mode="accuracy", reported=())


def proportional_shares(tree: Tree, levels: Sequence[Level], counts: Places) -> list[Vector] | None:
    """Shares by which the groups of each step are equally full; None where that is no plan.

    A program says so of the step alone that is fullest. Not every way through may be in time, nor every step have room.
    """
    shares = list[Vector]()
    for task, level, own in zip(tree.tasks, levels, tree.by_task(counts), strict=True):
        carried = own * task.qps
        before = shares[task.parent] if task.parent >= 0 else np.ones(1)
        if (np.bincount(level.parent, minlength=before.size) < task.size).any():
            return None
        shares.append(before[level.parent] * (carried / carried.sum())[level.config])
        if tree.demand * float(shares[-1] @ level.gain) > carried.sum():
            return None
    return shares


def _without_idle(tree: Tree, counts: Places) -> tuple[Tree, Places]:
    return tree.keeping(tree.by_task(counts > 0)), counts[counts > 0]
