"""The question of a pool: which files ask it, its formulations, and the programs that bound what a plan claims.

`pool-milp`, the default, asks the exact fluid program, reads whole counts, and asks again for the rate of exactly
these counts. `pool-lp` rates counts that are given. `kairos` and `kairos-plus` are the paper's (`kairos`). Room for
waiting is `sizing`'s.

Of tens of thousands of classes of queries alike ones are one while counts are chosen. Classes are alike when the same
types serve them in time and their service times differ by little on each. A group g of them has the share ``p_g``, the
sum of theirs, and on type t one of two service times::

    the mean of the classes, by their shares   every x_gt can be kept class by class: a restriction; its counts do
    the least of the classes                   whatever the classes can do the groups can: a relaxation, so a bound

So the exact program is between the two, and the gap that is claimed holds for it. The rate of the chosen counts is
computed with every class by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.planner.elastic import explain
from hetplan.planner.forms.milp import Milp
from hetplan.planner.request import PLENTY, Application, Request, read_request
from hetplan.planner.terms import Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.faults import Faults
from hetplan.problems.pool.capacity import (
    GAP,
    SAME_RATE,
    ChosenPool,
    RatedPool,
    check_can_simulate,
    meets_request,
    program_claim,
    rate_at,
    rate_of_shares,
    starting_pool,
)
from hetplan.problems.pool.infeasible import infeasible_without_solver, limits_broken
from hetplan.problems.pool.kairos import choose_by_estimate, search_pools
from hetplan.problems.pool.options import Eq15Options, FluidOptions, PoolOptions, SearchOptions
from hetplan.problems.pool.plan import draft_idle
from hetplan.problems.pool.program import (
    Counts,
    Pool,
    bursts_of,
    fluid_program,
    fluid_program_at,
    minima_program,
    read_counts,
)
from hetplan.problems.pool.request import check_together, read_columns, read_pool_request, read_types
from hetplan.problems.pool.sizing import Choose, draft_sized, size_pool
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Notice, Plan

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.contract import Ask

__all__ = ["PoolQuestion", "given_counts", "group_classes", "has_alike_classes", "merge_classes", "obstacles"]

SLIPS = (0.0, 2e-6, 2e-5)
"""By how much budget and rate are tightened, in turn, until whole counts keep them exactly; the first is the rule."""
MOST_CLASSES = 4000
"""Above so many classes alike ones are merged while counts are chosen: the exact program would take minutes."""
GROUPS = 1000
"""About how many groups of alike classes there are."""
LOOSE = ("relaxation", "problem")
"""What no plan does better than, nothing of the problem does."""


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for a pool."""
    if len(request.apps) != 1:
        text = f"a pool serves one application; the SLO has {len(request.apps)}"
        yield Obstacle(text, "$.apps", "Give one app per file.", essential=True)
    if foreign := sorted({"quality", "changes"} & set(request.goals)):
        text = f"a pool gives the most rate for a budget, or the least cost for a rate, and knows no {foreign[0]}"
        yield Obstacle(text, "$.objective", 'Write "min cost", or leave it out.')
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if request.budget is not None and app.rate_qps is not None:
            text = f"a budget and a rate ({app.rate_qps:g} qps) are both given, and a pool is chosen for one of them"
            remedy = 'Remove it for the least cost of that rate, or set rate_qps to "max" for the most rate it buys.'
            yield Obstacle(text, "$.limits.cost_per_hour", remedy)
        if app.pipeline is not None:
            text = "a pool runs one model, not a pipeline"
            yield Obstacle(text, f"{at}.pipeline", 'Write "model": "..." in its place.', essential=True)
            continue
        if app.candidates:
            text = "a pool chooses its instances itself, candidates are for packing"
            yield Obstacle(
                text, f"{at}.candidates", "Take it out, or name another problem with --formulation.", essential=True
            )
            continue
        names = app.variants
        if len(names) != 1:
            text = f"a pool runs one variant; {len(names)} may be run here"
            yield Obstacle(text, f"{at}.{app.answered_by}", 'Name one: "model": "...".', essential=True)
        if app.range_qps is not None:
            text = "a pool is sized for one rate, not for a range"
            yield Obstacle(text, f"{at}.rate_qps", 'Write a number, or "max".')
        if (field := _field_of_several_rates(request, app)) is not None:
            text = "a pool is sized for one period with a rate in queries per second"
            yield Obstacle(text, field, 'Write "rate_qps" in its place.')
        if app.mix is None and any(one.open_axes for one in request.choices(variants=names[:1])):
            text = "a pool needs mix, the sizes of queries and their shares"
            remedy = 'Write {"axes": ["batch"], "bins": [[16], [64]], "share": [0.7, 0.3]}.'
            yield Obstacle(text, f"{at}.mix", remedy)


def _field_of_several_rates(request: Request, app: Application) -> str | None:
    """The field that asks for more than one rate."""
    if app.streams is not None:
        return f"$.apps.{app.id}.streams"
    if app.series is not None:
        return f"$.apps.{app.id}.rate_qps.series"
    return "$.horizon.periods" if request.horizon.periods > 1 else None


@dataclass(frozen=True)
class PoolQuestion(Pool):
    """How many instances of which type to rent for one model."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "pool"
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "pool-milp": FluidOptions,
        "pool-lp": PoolOptions,
        "kairos": Eq15Options,
        "kairos-plus": SearchOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pool-milp", "pool-lp", "kairos"), "kairos"),
        "kairos-plus": "kairos+",
    }

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a pool."""
        return infer_problem.pool(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> PoolQuestion:
        """Read the files; raises `InputError` with every fault found. The program needs no previous plan."""
        del start
        chosen = cast(PoolOptions, options)
        faults, notices = Faults.of(inputs), list[Notice]()
        request = read_request(inputs)
        wish = read_pool_request(request, faults)
        types, request = read_types(request, wish, faults, notices)
        times = read_columns(wish, types, chosen, faults, notices)
        chosen = check_together(inputs, wish, types, times, chosen, faults)
        faults.settle()
        return cls(inputs, wish, tuple(types), request, times, chosen, formulation, tools, tuple(notices))

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Answer by the chosen formulation; also where there is no pool, what reading the files found is reported."""
        found = self._answer(ask)
        if isinstance(found, Infeasibility):
            return replace(found, warnings=(*self.notices, *found.warnings))
        return replace(found, chosen={**found.chosen, "sizing": "simulation"}) if self.is_rated_by_simulation else found

    def _answer(self, ask: Ask) -> Draft | Infeasibility:
        if self.wish.rate_qps == 0.0 and self.formulation != "pool-lp":
            return draft_sized(self, ask, choose_minima(self, ask))
        if self.is_rated_by_simulation:
            check_can_simulate(self)
        return infeasible_without_solver(self) or size_pool(self, ask, self._formulation())

    def _formulation(self) -> Choose:
        """How the pool is chosen: as another package says, or by one of hetplan's formulations."""
        brought = self.tools.formulation
        if brought is not None and brought.decide is not None:
            return cast(Choose, brought.decide)
        own = {"pool-lp": rate_given, "kairos": choose_by_estimate, "kairos-plus": search_pools}
        return own.get(self.formulation, choose_by_program)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The programs that bound a claim: at the plan's machines, of all pools for the budget, or of the least cost.

        What simulation showed, or a formula says, is held against every dispatcher's best: with all the lateness that
        the target leaves, and with the bursts in which queries come.
        """
        from hetplan.planner.certify import Bounding

        simulated = any(one.quantity == "rate_qps" and one.model.startswith("simulation") for one in plan.promises)
        scale = 1.0 if self.fluid_target else self.options.derate
        shown = simulated or self.options.sizing == "formula"
        rate, budget, known = self.wish.rate_qps, self.request.budget, (claim.about, claim.sense)
        if known == ("fluid_rate_qps", "max"):
            if claim.scope == "restriction" or (claim.scope == "problem" and self.formulation == "pool-lp"):
                return [Bounding(fluid_program_at(self, self._machines(plan)), of_plans=True)]
            whole = claim.scope == "problem" and rate is None and budget is not None
            return [Bounding(fluid_program(self, None), of_plans=True)] if whole else []
        if known == ("rate_qps", "max"):
            if budget is None or rate is not None:
                return []
            if shown:
                return [Bounding(fluid_program(self.relaxation, None))] if claim.scope in LOOSE else []
            if claim.scope == "relaxation":
                return [Bounding(self._program_of_groups(), scale=scale)]
            if claim.scope != "problem":
                return []
            return [Bounding(fluid_program(self, None), scale=self.options.derate, of_plans=True)]
        if known == ("cost_per_hour", "min"):
            if rate is None:
                return None if self.wish.then_cheapest else []  # the least cost of the most rate, which no file says
            if rate == 0.0:
                return [Bounding(minima_program(self), of_plans=True)] if claim.scope == "problem" else []
            loose = Bounding(fluid_program(self.relaxation, rate))
            if shown:
                bursts = bursts_of(self) if claim.scope in LOOSE else ()
                tighter = [Bounding(fluid_program(self.relaxation, rate, bursts=bursts))] if bursts else []
                return [loose, *tighter] if claim.scope in LOOSE else []
            if claim.scope == "relaxation":
                return [loose, Bounding(self._program_of_groups(), scale=scale)]
            return [Bounding(fluid_program(self, self.fluid_target), of_plans=True)] if claim.scope == "problem" else []
        return []

    def _machines(self, plan: Plan) -> Counts:
        """How many of each type the plan has."""
        counts = [sum(one.count for one in plan.workers if one.hardware == kind.hardware) for kind in self.types]
        return np.array(counts, dtype=np.int64)

    def _program_of_groups(self) -> Milp:
        """The program by groups of alike classes, each as its fastest class; where classes are few, each by itself."""
        least: Pool = self
        if has_alike_classes(self):
            least = merge_classes(self, group_classes(self, GROUPS), fastest=True)
        return fluid_program(least, self.fluid_target)


# -- the exact fluid program -----------------------------------------------------------------------------------------


def choose_by_program(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility:
    """The pool of the exact fluid program over whole counts (`pool-milp`)."""
    if has_alike_classes(pool):
        by_groups = choose_by_groups(pool, ask)
        if by_groups is not None:
            return by_groups
    found = _best_of_program(pool, ask)
    if isinstance(found, Infeasibility):
        return found
    rated, answer = found
    if pool.wish.then_cheapest and rated.lam > 0:
        return _cheapest_at_most_rate(pool, ask, rated, answer)
    return ChosenPool(rated, (program_claim(pool, pool.sought, answer, rated),))


def _best_of_program(pool: Pool, ask: Ask) -> tuple[RatedPool, Answer[Any]] | Infeasibility:
    """The pool that the program chooses, and the program's answer."""
    target = pool.fluid_target
    first = starting_pool(pool, target)
    scale = target or pool.unit_rate
    about = "least cost for the rate" if target else "most rate for the budget"
    tightened = list(SLIPS)
    while True:
        slip = tightened.pop(0)
        form = fluid_program(pool, target, slip=slip)
        lam = target * (1 + slip) if target else 0.0
        at = None if first is None else first.point(pool, lam=lam or first.lam, scale=scale)
        answer = ask(form, start=at, gap=GAP, about=about)
        if answer.status is Status.INFEASIBLE:
            return explain(form, ask)
        if answer.point is None:
            return Infeasibility(why=(f"no pool was found: {answer.stop}",), proved=False)
        rated = rate_at(pool, ask, read_counts(pool, answer.point), known=answer.point)
        if not meets_request(pool, rated) and not tightened and first is not None:
            rated = rate_at(pool, ask, first.counts)
        if meets_request(pool, rated) or not tightened:
            return rated, answer


def _cheapest_at_most_rate(pool: Pool, ask: Ask, best: RatedPool, answer: Answer[Any]) -> ChosenPool:
    """Of all pools of the most rate, one of the least cost."""
    target = best.lam * (1 - SAME_RATE / 10)
    again = ask(fluid_program(pool, target), gap=GAP, about="least cost at that rate")
    if again.point is not None:
        cheaper = read_counts(pool, again.point)
        if pool.cost(cheaper) < pool.cost(best.counts):
            best = rate_at(pool, ask, cheaper, known=again.point)
    most, least = program_claim(pool, "rate_qps", answer, best), program_claim(pool, "cost_per_hour", again, best)
    return ChosenPool(best, (most, least))


# -- groups of alike classes -----------------------------------------------------------------------------------------


def has_alike_classes(pool: Pool) -> bool:
    """Whether there are many classes, and none may be late by design (else it matters which)."""
    return pool.p.size > MOST_CLASSES and all(share <= 0 for _, share in pool.limits) and not pool.wish.then_cheapest


def group_classes(pool: Pool, groups: int) -> Counts:
    """The group of each class: alike in where it is served in time, and near in how long it takes there."""
    usable = pool.usable
    logs = np.where(usable, np.log(np.where(usable, pool.L, 1.0)), 0.0)
    size = logs.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    width = max(float(np.ptp(size)) / groups, 1e-12)
    near = np.floor((size - size.min()) / width)
    _, group = np.unique(np.column_stack([usable, near]), axis=0, return_inverse=True)
    return np.asarray(group.ravel(), dtype=np.int64)


def merge_classes(pool: Pool, group: Counts, *, fastest: bool) -> Pool:
    """The pool with groups for classes; `fastest` takes of each group the least service time, else the mean."""
    count = int(group.max()) + 1
    share = np.asarray(np.bincount(group, weights=pool.p, minlength=count), dtype=np.float64)
    first = np.unique(group, return_index=True)[1]
    served = pool.usable[first]
    times = np.full((count, len(pool.types)), np.inf)
    if fastest:
        np.minimum.at(times, group, pool.L)
    else:
        held = np.where(pool.usable, pool.L, 0.0) * pool.p[:, None]
        times = np.column_stack([np.bincount(group, weights=column, minlength=count) for column in held.T])
        times /= share[:, None]
    compared = np.where(served, 0.0, np.inf)
    wish = replace(pool.wish, p=share, points=tuple(pool.wish.points[s] for s in first))
    mean = np.where(served, times, np.inf)
    spread = replace(pool.times, mean_ms=mean, compared_ms=compared, std_ms=None, max_ms=None)
    return replace(pool, wish=wish, times=replace(spread, extrapolated=np.zeros(mean.shape, dtype=bool)))


def choose_by_groups(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility | None:
    """The pool of the fluid program by groups of classes; None where only the exact one can say."""
    group = group_classes(pool, GROUPS)
    mean, least = merge_classes(pool, group, fastest=False), merge_classes(pool, group, fastest=True)
    form = fluid_program(least, pool.fluid_target)
    bound = ask(form, gap=GAP, about=f"bound by {mean.p.size} groups of classes")
    if bound.status is Status.INFEASIBLE:
        return explain(form, ask)
    found = _best_of_program(mean, ask)
    if isinstance(found, Infeasibility):
        return None
    counts = found[0].counts
    kept = rate_of_shares(pool, counts, found[0].share[group], found[1])
    rated = max(rate_at(pool, ask, counts), kept, key=lambda one: one.lam)
    if not meets_request(pool, rated):
        return None
    text = f"{pool.p.size} classes of queries were {mean.p.size} groups while counts were chosen"
    warning = Notice(code="W-merged", at="claims", text=f"{text}; the gap covers the difference")
    note = "against the bound of groups that count as their fastest class"
    claim = replace(program_claim(pool, pool.sought, bound, rated), scope="relaxation", note=note)
    return ChosenPool(rated, (claim,), warnings=(warning,))


# -- counts that are given -------------------------------------------------------------------------------------------


def rate_given(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility:
    """The rate of the pool whose counts are given (`pool-lp`)."""
    counts = given_counts(pool)
    reason = limits_broken(pool, counts)
    return reason if reason is not None else ChosenPool(rate_at(pool, ask, counts))


def given_counts(pool: Pool) -> Counts:
    """The counts that `pool-lp` is asked about: limits leave no choice."""
    faults = Faults.of(pool.inputs)
    for kind in pool.request.machines:
        if kind.most != kind.least:
            faults.in_slo(
                f"$.limits.instances.{kind.id}",
                "pool-lp rates a given pool, and this leaves a choice",
                "Give the same least and most for every hardware.",
                value=[kind.least, None if kind.most >= PLENTY else kind.most],
            )
    faults.settle()
    return pool.by_offer(pool.least.copy())


# -- a rate of nothing -----------------------------------------------------------------------------------------------


def choose_minima(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility | Draft:
    """A demand of nothing: the minima alone, serving where they can serve every class in time, else waiting.

    A loop that plans every few seconds meets minutes in which nobody asks; that is no error, and costs as little as it
    may.
    """
    form = minima_program(pool)
    answer = ask(form, gap=0.0, about="the least instances")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    counts = pool.by_offer(pool.least) if answer.point is None else read_counts(pool, answer.point)
    note = "nothing is asked for: the least instances alone"
    cost = Reported("cost_per_hour", "min", "problem", answer, value=pool.cost(counts) / NANO, note=note)
    if not pool.unserved_classes(pool.least > 0).size and not pool.is_rated_by_simulation:
        rated = rate_at(pool, ask, counts)
        if rated.lam > 0:
            return ChosenPool(rated, (cost,))
    return draft_idle(pool, counts, [cost])
