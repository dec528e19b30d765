"""Pools that meet the SLO while queries wait, in the ways that option `sizing` names.

`fluid` takes the derated fluid rate as it is. `formula` takes a pool for n machines that share one queue, each as
busy as the fluid program has them. A query of class s on type t is late when it waits longer than QoS - L_st:

    late(u) = sum_st p_s x_st P(wait > QoS - L_st),   P(wait > w) = E(n, u n) exp(-2 n (1 - u) w / (S (a^2 + v^2)))

with E the chance that all n are busy (Erlang's C), S and v the mean and the spread of a query's service time, a that of
the time between two arrivals (1 unless their process has a shape). The use u looked for is the highest that leaves no
more late than the target does.

`simulation`, the default, plays the plan itself, under the arrivals that the wish states. For a budget the rate is
narrowed down that the program's pool keeps, then that of pools around it which the formula does not say to carry less.
For a rate, pools of the fluid program are played until one keeps it, then cheaper ones, nearest first. What is handed
out is confirmed by seeds that chose nothing. Plans and queries are counted; no clock decides.

Of rules without a formula it takes the allowable rate of Kairos' simulator (`capacity.simulate`), below that of every
seed. For a rate, pools are searched upward from the fluid optimum, then every cheaper one whose bound reaches the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, cast

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.planner.request import PLENTY
from hetplan.planner.sizing_search import (
    GOOD,
    LEAST_MORE,
    MOST_MORE,
    Counts,
    Refused,
    Search,
    Together,
    counts_of,
    more_room,
    neighbours,
)
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.draft_simulation import (
    HOPELESS,
    QUERIES,
    SEARCHED,
    Played,
    Simulations,
    check_simulator,
    look,
    plan_to_simulate,
    play_length_s,
    repairs_if_late,
    with_shown,
)
from hetplan.problems.pool.capacity import (
    GAP,
    ChosenPool,
    RatedPool,
    SimulatedRate,
    rate_at,
    rate_by_answer,
    simulate,
    starting_pool,
    value_of,
)
from hetplan.problems.pool.infeasible import less_rate
from hetplan.problems.pool.kairos import configurations
from hetplan.problems.pool.options import FluidOptions, SearchOptions
from hetplan.problems.pool.plan import draft_pool, plan_chosen
from hetplan.problems.pool.program import MOST_PROGRAMS, Pool, bursts_of, fluid_program, rates_of, read_counts
from hetplan.problems.waiting import wait_probability
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.plan_file import settled

__all__ = [
    "draft_sized",
    "formula_utilization",
    "is_playable",
    "look_at_pool",
    "size_pool",
    "usable_utilization",
]

Choose = Callable[[Pool, Ask], ChosenPool | Infeasibility | Draft]
"""A formulation: how a pool is chosen."""


MOST_USED, FIRST_USED, LEAST_USED = 0.98, 0.8, 0.2
"""Nobody plans for all of a fluid rate. The formula needs counts, and counts need a rate: so its first guess begins at
one of these, and is not below the other."""
WIDTH = 0.015
"""Step of the grid of rates that pools are played at. On one grid pools that carry alike have the same rate: more money
buys no less. What is promised is one step lower, since the highest rate that looked good has been lucky."""
AHEAD, BEHIND = 5, 15
"""Steps from the highest rate that is kept to the next try (8%), and back while none is (20%)."""
MOST_NARROWED = 8
"""Plays by which the rate of one pool is narrowed down."""
ROUNDS = 6
"""Plans of which each takes its derate from the one before, and tries to confirm a rate."""
LESS = 0.97
"""What is left of a derate, or of a rate, each time that it proves too high."""
LIKELY = 0.92
"""Times what is wanted: of which the formula, scaled to the best pool so far, says less is not looked at. It errs by up
to 8% between few fast machines and many slow ones."""
AROUND = 12
"""Machine types in use, and so many of the cheapest others at most, are exchanged for another."""
FULL = 0.9
"""Of the share that may be late, what the rate of one pool may use up: fresh seeds confirm it, and more of them if
they leave it open."""
MOST_CHEAPER = 400
"""Cheaper pools whose bound is asked for, of one that is good."""
MOST_INSTANCES, RATES = 500, (1e-3, 1e6)
"""Larger pools, or other rates, are not played: of so many the formula says nearly all that there is to say."""
FAR = 3.0
"""Times the least cost there can be: such a pool is not handed out where it is not sure to be kept at once."""
FIRST = (1, 10_000)
"""Runs, and queries in each, of a first look."""
MOST_PLAYED = 24
"""Plays of one solve, at most."""


def size_pool(pool: Pool, ask: Ask, choose: Choose) -> Draft | Infeasibility:
    """The plan of what a formulation chooses, with as much room for waiting as option `sizing` asks for."""
    sizing, is_search = pool.options.sizing, isinstance(pool.options, SearchOptions)
    is_long, is_default = pool.is_rated_by_simulation, pool.formulation == "pool-milp"
    if pool.wish.app.targets and (is_search or sizing != "fluid"):
        if is_search or is_default:
            keep_first_plan(pool, ask)
        if sizing == "formula":
            return size_by_formula(pool, ask, lambda tried: draft_sized(tried, ask, choose(tried, ask)))
        if sizing == "simulation" and not is_long and pool.fluid_target is not None and is_default:
            sized = cheapest_in_simulation(pool, ask)
            if sized is not None:
                return sized if isinstance(sized, Infeasibility) else bound_in_bursts(pool, ask, sized)
    if is_long and pool.fluid_target is not None and is_default:
        found = cheapest_by_allowable_rate(pool, ask)
        if found is not None:
            return found if isinstance(found, Infeasibility) else plan_chosen(pool, ask, found)
        why = choose(pool, ask)  # it says why there is none
        return why if isinstance(why, Infeasibility) else Infeasibility(why=("no bound was found",), proved=False)
    return draft_sized(pool, ask, choose(pool, ask))


def draft_sized(pool: Pool, ask: Ask, found: ChosenPool | Infeasibility | Draft) -> Draft | Infeasibility:
    """The plan of a pool that was chosen, at the rate that option `sizing` lets it promise."""
    if not isinstance(found, ChosenPool):
        return found
    if found.rated.lam > 0 and found.simulated is None:
        if pool.is_rated_by_simulation:
            shown = _simulated_rate(pool, ask, found.rated)
            found = replace(found, simulated=shown, backed=tuple(_rate_claims(pool, ask, shown, found.backed)))
        elif pool.options.sizing == "simulation" and pool.wish.app.targets and pool.wish.rate_qps != 0.0:
            return size_chosen(pool, ask, found)
    return plan_chosen(pool, ask, found)


# -- what no dispatcher beats ----------------------------------------------------------------------------------------


def lower_bound(pool: Pool, ask: Ask) -> Reported | None:
    """The fluid program's least cost, without derate and with all tolerance: no dispatcher can do with less."""
    form = fluid_program(pool.relaxation, pool.wish.rate_qps)
    answer = ask(form, gap=GAP, about="least cost that any dispatcher needs")
    return Reported("cost_per_hour", "min", "relaxation", answer) if answer.point is not None else None


def upper_bound(pool: Pool, ask: Ask) -> Answer[Any]:
    """The fluid program's highest rate, with all tolerance: no dispatcher can carry more."""
    return ask(fluid_program(pool.relaxation, None), gap=GAP, about="rate that no dispatcher can exceed")


def bound_in_bursts(pool: Pool, ask: Ask, made: Draft) -> Draft:
    """The plan that simulation shows to keep the rate, against what bursts ask of all plans, where that is more.

    No plan is chosen by it: a search goes on by `lower_bound`, and asks this of its result, if there is time.
    """
    costs = [one for one in made.reported if one.about == "cost_per_hour" and one.answer is not None]
    if not costs or made.target_missed or ask.remaining <= 0 or not (bursts := bursts_of(pool)):
        return made
    answer: Answer[Any] | None = None
    with suppress(Interrupted):
        form = fluid_program(pool.relaxation, pool.wish.rate_qps, bursts=bursts)
        answer = ask(form, gap=GAP, about="least cost that any dispatcher needs in bursts")
    (cost,) = costs
    known, more = (one.bound if one and one.bound is not None else -math.inf for one in (cost.answer, answer))
    if not known < more <= (cost.value or 0.0) * (1 + BOUND_SLIP):
        return made
    in_bursts = replace(cost, answer=answer, note=f"{cost.note} in bursts such as come")
    return replace(made, reported=tuple(in_bursts if one is cost else one for one in made.reported))


# -- by a formula ----------------------------------------------------------------------------------------------------


def formula_utilization(pool: Pool, rated: RatedPool) -> float:
    """The share of the fluid rate that the formula has in time."""
    if not math.isfinite(pool.qos) or rated.lam <= 0:
        return MOST_USED
    part = np.where(pool.served, pool.p[:, None] * rated.share, 0.0)
    times = np.where(pool.served, pool.L, 0.0)
    mean = float((part * times).sum())
    between = 1.0 / (pool.wish.app.arrivals.shape or 1.0)  # a^2
    spread = between + float((part * (times / mean) ** 2).sum()) - 1.0  # a^2 + v^2
    n = pool.instances(rated.counts)
    room = np.where(pool.served, np.maximum(pool.qos - pool.M, 0.0), 0.0)
    allowed = pool.wish.app.targets[-1].left
    low, high = 0.0, 1.0
    for _ in range(30):
        use = 0.5 * (low + high)
        tail = wait_probability(n, use * n) * np.exp(-2.0 * n * (1.0 - use) * room / (mean * spread))
        low, high = (use, high) if float((part * tail).sum()) <= allowed else (low, use)
    return min(max(low, 0.01), MOST_USED)


def usable_utilization(pool: Pool, rated: RatedPool) -> float:
    """The share of the fluid rate up to which `formula` finds a plan on exactly these machines."""
    use, following = pool.options.derate, formula_utilization(pool, rated)
    return use if use <= following else min(following, LESS * use)


def size_by_formula(pool: Pool, ask: Ask, way: Callable[[Pool], Draft | Infeasibility]) -> Draft | Infeasibility:
    """The plan by this way whose derate is the formula's for its own pool, found in a few rounds.

    Where stock and limits leave one pool alone, its derate is known at once.
    """
    only = _only_counts(pool) if pool.wish.rate_qps is not None else None
    use = pool.options.derate if only is None else usable_utilization(pool, rate_at(pool, ask, only))
    made = way(pool.with_options(derate=use))
    for _ in range(ROUNDS if only is None else 0):
        if isinstance(made, Infeasibility):
            return made
        following = formula_utilization(pool, _pool_of_plan(pool, ask, made))
        if abs(following - use) <= 1e-9 or (pool.wish.rate_qps is not None and use <= following):
            break
        use = following if pool.wish.rate_qps is None else min(following, LESS * use)
        made = way(pool.with_options(derate=use))
    return made if isinstance(made, Infeasibility) else _bounded_draft(pool, ask, replace(made, chosen={"derate": use}))


def _bounded_draft(pool: Pool, ask: Ask, made: Draft) -> Draft:
    """The plan that a formula sizes, against what no dispatcher does better: of other pools the formula says nothing.

    Pools that it gives another share of their rate may be cheaper, or carry more.
    """
    found = list[Reported]()
    for one in made.reported:
        if one.about == "cost_per_hour" and pool.wish.rate_qps is not None:
            bound = lower_bound(pool, ask)
            note = "what a formula says to be enough, against the least that any dispatcher needs"
            found.append(replace(bound or _without_bound(one), value=one.value, note=note))
        elif one.about == "rate_qps":
            note = "the rate that a formula says, against the most that any dispatcher can carry"
            bound = Reported("rate_qps", "max", "relaxation", upper_bound(pool, ask), note=note)
            found.append(replace(bound, value=one.value))
        else:
            found.append(_without_bound(one) if one.about == "cost_per_hour" else one)
    return replace(made, reported=tuple(found))


def _without_bound(one: Reported) -> Reported:
    """What is said, and how good it is by nothing."""
    return Reported(one.about, one.sense, "none", value=one.value)


def _only_counts(pool: Pool) -> np.ndarray | None:
    """The only counts that there may be; None where stock and limits leave a choice, or none at all."""
    counts = np.array([offer.stock for offer in pool.offers], dtype=np.int64)
    is_all = bool((counts < PLENTY).all()) and np.array_equal(pool.of_type(counts), pool.least)
    return counts if is_all and counts.any() and pool.allows(counts) else None


def _pool_of_plan(pool: Pool, ask: Ask, made: Draft) -> RatedPool:
    """The counts of a plan with the flows that they carry."""
    counts = np.zeros(len(pool.offers), dtype=np.int64)
    for worker in made.workers:
        for o, offer in enumerate(pool.offers):
            if (offer.id, offer.machine) == (worker.offer, worker.hardware):
                counts[o] += worker.count
    return rate_at(pool, ask, counts)


def keep_first_plan(pool: Pool, ask: Ask) -> None:
    """Keep a plan that no engine is needed for: the first word, until a program has one."""
    rate, use = pool.wish.rate_qps, FIRST_USED
    for _ in range(1 if rate is None else 2):
        found = starting_pool(pool, None if rate is None else rate / use)
        if found is None:
            return
        rated = RatedPool(found.counts, found.lam, found.share, Answer(Status.NO_ANSWER))
        use = max(formula_utilization(pool, rated), LEAST_USED)
        if rate is None:
            _keep(pool, ask, rated, Reported("rate_qps", "max", "none", value=use * rated.lam))
        else:
            _keep(pool, ask, rated, Reported("cost_per_hour", "min", "none"))


def _keep(pool: Pool, ask: Ask, rated: RatedPool, bound: Reported, *, good: bool = False) -> None:
    """Keep the plan that the formula makes of a pool; of those that look `good` in simulation the cheapest."""
    cost = value_of(pool, "cost_per_hour", rated)
    claim = replace(bound, value=cost) if bound.about == "cost_per_hour" else bound
    rank = (1, -cost) if good else (0,)
    ask.keep(lambda: _formula_plan(pool, ChosenPool(rated, (claim,))), rank=rank, value=claim.value)


def _formula_plan(pool: Pool, chosen: ChosenPool) -> Draft:
    """The plan of these machines at the rate that the formula gives them, or at the one that was stated."""
    use = formula_utilization(pool, chosen.rated)
    if pool.wish.rate_qps is not None:
        use = pool.wish.rate_qps / chosen.rated.lam
    estimate = pool.with_options(derate=use, sizing="formula")
    # What the program proves at another share of the rate bounds nothing of what a formula, or simulation, says.
    claims = [one if one.scope == "relaxation" else _without_bound(one) for one in chosen.backed]
    claims = [replace(one, value=use * chosen.rated.lam) if one.about == "rate_qps" else one for one in claims]
    return replace(draft_pool(estimate, chosen, claims), chosen={"derate": use})


def _plan_without_simulation(pool: Pool, chosen: ChosenPool) -> Draft:
    """The plan by the formula, which says that nothing was simulated."""
    made = _formula_plan(pool, chosen)
    rate = next(one.value for one in made.promises if one.quantity == "rate_qps")
    text = f"{pool.instances(chosen.rated.counts)} instances at {rate:.4g} qps were not simulated"
    warning = Notice(code="W-unconfirmed", at="promises", text=f"{text}: the rate comes from a formula")
    return replace(made, warnings=(*made.warnings, warning))


# -- in simulation: a chosen pool, or the best for a budget ----------------------------------------------------------


def size_chosen(pool: Pool, ask: Ask, chosen: ChosenPool) -> Draft:
    """The plan of a pool, with the highest rate that it was seen to keep; a stated rate is kept or missed."""
    check_simulator(pool.tools, pool.options.sizing, name="simulate_plan")
    if not is_playable(pool, chosen.rated):
        return _plan_without_simulation(pool, chosen)
    ask.keep(lambda: _formula_plan(pool, chosen), rank=(0,))
    trial, rated = _Trial(pool, ask), chosen.rated
    if pool.wish.rate_qps is not None:
        return trial.confirm(rated, pool.wish.rate_qps, chosen.backed, chosen.warnings)
    if pool.formulation == "pool-milp":
        rated, rate = trial.best_for_budget(rated)
    else:
        rate = trial.highest_rate(rated)
    backed = chosen.backed
    if rated is not chosen.rated:  # what the program proves, it proves of its own pool
        backed = tuple(
            replace(one, scope="none", answer=None, value=value_of(pool, one.about, rated)) for one in chosen.backed
        )
    return trial.confirm(rated, (1.0 - WIDTH) * rate, backed, chosen.warnings)


def _exchanges(pool: Pool, per_type: Counts) -> Iterator[Counts]:
    """Pools for the same money: one machine more of a type, fewer of another; or one fewer, and more of another.

    What is left of the budget buys more of any one type.
    """
    budget, kinds = pool.request.budget or 0, pool.request.machines
    owned = [t for t, count in enumerate(per_type) if count]
    cheapest = sorted(pool.rentable, key=lambda t: float(pool.W[:, t] @ pool.p) * pool.prices[t])
    types = list(dict.fromkeys([*owned, *cheapest[:AROUND]]))

    def left(counts: Counts) -> int:
        return budget - sum(kinds[t].cost(n) for t, n in enumerate(counts) if n)

    def filled(counts: Counts) -> Iterator[Counts]:
        for t in types:
            afford = kinds[t].affordable(left(counts) + kinds[t].cost(counts[t]))
            yield _with_more(counts, t, max(0, min(afford, kinds[t].available) - counts[t]))

    for more in (t for t in types if per_type[t] < kinds[t].available):
        grown = _with_more(per_type, more, 1)
        yield from filled(grown) if left(grown) >= 0 else ()
        for less in (t for t in owned if t != more and left(grown) < 0):
            fewer = max(0, kinds[less].affordable(left(grown) + kinds[less].cost(grown[less])))
            yield from filled(_with_more(grown, less, fewer - grown[less]))
    for less in owned:
        yield from filled(_with_more(per_type, less, -1))


def _with_more(counts: Counts, place: int, by: int) -> Counts:
    return (*counts[:place], counts[place] + by, *counts[place + 1 :])


def is_playable(pool: Pool, rated: RatedPool) -> bool:
    """Whether a simulation can hold it."""
    return pool.instances(rated.counts) <= MOST_INSTANCES and RATES[0] <= rated.lam <= RATES[1]


def look_at_pool(pool: Pool, rated: RatedPool, rate: float, *, seed: int, goes_on: Callable[[Played], bool]) -> Played:
    """What a few queries show of a pool at this rate; and some more, where what they show `goes_on`."""
    if rate <= 0:
        return Played(0.0, ())
    simulate, app = pool.tools.extra["simulate_plan"], pool.wish.app.id
    plan, runs = _playable(pool, rated, rate), _run_lengths(pool, rate, FIRST, SEARCHED)
    return look(simulate, plan, pool.inputs, [app], runs, seed=seed, goes_on=goes_on)[0]


def _run_lengths(pool: Pool, rate: float, *runs: tuple[int, int]) -> list[tuple[int, float | None]]:
    """So many runs of so many queries each, with how long these take to come."""
    return [(count, play_length_s(pool.inputs, {pool.wish.app.id: rate}, queries)) for count, queries in runs]


def _playable(pool: Pool, rated: RatedPool, rate: float) -> Plan:
    """The plan of a pool at this rate, as it is written.

    Numbers are rounded in it: where pairs of the matching cost the same, the last digit decides who serves whom.
    """
    made = draft_pool(pool, ChosenPool(rated, simulated=_played_rate(rate)), ())
    return settled(plan_to_simulate("pool", pool.formulation, made))


@dataclass
class _Trial:
    """Looks at plans of pools in simulation, up to a number of them, and tests the one that was chosen."""

    pool: Pool
    ask: Ask
    looks: dict[tuple[tuple[int, ...], float], float] = field(default_factory=dict)
    simulations: Simulations = field(init=False)

    def __post_init__(self) -> None:
        pool, options = self.pool, self.pool.options
        most = min(options.max_simulations, MOST_PLAYED) if isinstance(options, FluidOptions) else MOST_PLAYED
        simulate = pool.tools.extra["simulate_plan"]
        self.simulations = Simulations(simulate, pool.inputs, self.ask, most, self.ask.limits.seed)

    @property
    def may_go_on(self) -> bool:
        """Whether another plan may be played."""
        return self.simulations.may_go_on

    @cached_property
    def bound(self) -> Answer[Any]:
        """The rate that no dispatcher can exceed."""
        return upper_bound(self.pool, self.ask)

    def late(self, rated: RatedPool, rate: float, runs: Sequence[tuple[int, int]] = (FIRST, SEARCHED)) -> float:
        """How many times as many are late as may be: what a few queries show of a pool at this rate."""
        key = (tuple(rated.counts.tolist()), rate)
        if key not in self.looks:
            plan, about = _playable(self.pool, rated, rate), f"{key[0]} at {rate:.6g} qps"
            lengths = _run_lengths(self.pool, rate, *runs)
            self.looks[key] = self.simulations.look(plan, [self.pool.wish.app.id], *lengths, about=about)[0].worst
        return self.looks[key]

    def highest_rate(self, rated: RatedPool, low: float = 0.0) -> float:
        """The highest rate of the grid that a few queries show to be kept; `low`, one of them, is known to be."""
        base = 1e3 / self.pool.qos if math.isfinite(self.pool.qos) else 1.0

        def place(rate: float) -> int:
            return math.floor(math.log(rate / base) / math.log1p(WIDTH) + 1e-6)

        good, bad = place(low) if low > 0 else None, place(rated.lam) + 1
        at = place(rated.lam * formula_utilization(self.pool, rated))
        if good is not None:
            at = min((good + bad) // 2, good + AHEAD)
        for _ in range(MOST_NARROWED):
            if (good is not None and bad - good <= 1) or not self.may_go_on:
                break
            if self.late(rated, base * (1.0 + WIDTH) ** at) <= FULL:
                good = at
            else:
                bad = at
            at = bad - BEHIND if good is None else min((good + bad) // 2, good + AHEAD)
        return 0.0 if good is None else base * (1.0 + WIDTH) ** good

    def best_for_budget(self, first: RatedPool) -> tuple[RatedPool, float]:
        """The pool that few queries show to carry most within the budget, and its rate.

        The formula errs alike for pools that are alike. So it says in which order those around the best so far are
        looked at, each at a rate that is worth the change, and which are not.
        """
        pool, best, rate = self.pool, first, self.highest_rate(first)
        tried = {tuple(pool.of_type(first.counts).tolist())}
        while self.may_go_on:
            want = (1.0 + WIDTH) * rate
            says = best.lam * formula_utilization(pool, best) / rate if rate > 0 else 1.0
            around = dict.fromkeys(_exchanges(pool, tuple(pool.of_type(best.counts).tolist())))
            rows = [row for row in around if row not in tried and any(row) and self._is_affordable(row)]
            tried.update(rows)
            answers = rates_of(pool, self.ask, np.array(rows), about="rates of pools around the best") if rows else []
            near = (
                rate_by_answer(pool, pool.by_offer(np.array(row)), one) for row, one in zip(rows, answers, strict=True)
            )
            carried = [
                (one.lam * formula_utilization(pool, one) / says, one)
                for one in near
                if one.lam > 0 and one.lam >= want
            ]
            hopeful = sorted((one for one in carried if one[0] >= LIKELY * want), key=lambda one: -one[0])
            found = next((one for _, one in hopeful if self.may_go_on and self._carries(one, want)), None)
            if found is None:
                break
            best, rate = found, self.highest_rate(found, want)
        return best, rate

    def _carries(self, rated: RatedPool, rate: float) -> bool:
        """Whether a few queries show that it keeps this rate; any, where that is 0."""
        return self.late(rated, rate) <= FULL if rate > 0 else self.highest_rate(rated) > 0

    def _is_affordable(self, per_type: tuple[int, ...]) -> bool:
        pool, counts = self.pool, self.pool.by_offer(np.array(per_type))
        return pool.cost(counts) <= (pool.request.budget or 0) and pool.allows(counts)

    def confirm(
        self, rated: RatedPool, rate: float, program: Sequence[Reported], warnings: Sequence[Notice] = ()
    ) -> Draft:
        """The plan at this rate, or at a little less where only that is asked for; or why it is not confirmed."""
        pool, app = self.pool, self.pool.wish.app
        last: Played | None = None
        for back in range(ROUNDS if rate > 0 and self.ask.remaining > 0 else 0):
            rate *= LESS if back else 1.0
            length_s = play_length_s(pool.inputs, {app.id: rate}, QUERIES)
            last = self.simulations.test(_playable(pool, rated, rate), (app.id,), length_s)
            if not last.late:
                return replace(self._draft(rated, rate, program, last, warnings), searched=True)
            if pool.wish.rate_qps is not None or self.ask.remaining <= 0:
                break
        made = self._draft(rated, rate, program, None, warnings)
        if not rate:
            tried = min(at for _, at in self.looks)
            why = f"in simulation the violation rate is too high at every rate that was tried, from {tried:.4g} qps on"
            return replace(made, target_missed=why, repairs=repairs_if_late(app, None))
        why = (
            f"in simulation at {rate:.6g} qps {_refusal(last)}" if last else "the time limit ended before a simulation"
        )
        return replace(made, target_missed=why, repairs=(less_rate(pool, 0.9 * rate),))

    def _draft(
        self,
        rated: RatedPool,
        rate: float,
        program: Sequence[Reported],
        shown: Played | None,
        warnings: Sequence[Notice],
    ) -> Draft:
        runs = next((one.seeds for one in shown.promises if one.seeds), 1) if shown is not None else 1
        chosen = ChosenPool(rated, simulated=_played_rate(rate, runs), warnings=tuple(warnings))
        made = draft_pool(self.pool, chosen, self._claims(rated, program, rate))
        return made if shown is None else with_shown(made, shown)

    def _claims(self, rated: RatedPool, program: Sequence[Reported], rate: float) -> list[Reported]:
        """Of a rate that is sought, what is kept against what nobody exceeds; and what the pool carries unqueued."""
        note = "the most that the chosen pool can carry if nothing waits"
        fluid_rate = Reported("fluid_rate_qps", "max", "restriction", rated.answer, value=rated.lam, note=note)
        programs = [one for one in program if one.about == "rate_qps"]
        if not programs:
            return [*program, fluid_rate]
        if programs[0].answer is not None:
            note = "the most that any pool for the budget can carry if nothing waits"
            fluid_rate = replace(fluid_rate, scope="problem", answer=programs[0].answer, note=note)
        note = "the rate that simulation shows to be kept, against the most that any dispatcher can carry"
        shown = Reported("rate_qps", "max", "relaxation", self.bound, value=rate, note=note)
        return [shown, fluid_rate, *(one for one in program if one.about != "rate_qps")]


def _played_rate(rate: float, runs: int = 1) -> SimulatedRate:
    """A rate that was played, in so many runs."""
    return SimulatedRate((rate,) * runs, basis="limits that are kept at this rate")


def _refusal(played: Played) -> str:
    """In words, that a simulation does not confirm a rate."""
    if played.worst >= 1.0:
        return f"the violation rate is {played.worst:.2g} times its limit"
    lost = next((one for one in played.promises if one.quantity == "violations"), None)
    if lost is None or lost.interval is None:
        return "too few queries arrive to decide whether they are in time"
    most, limit = (f"{100 * share:.2g}%" for share in (lost.interval[1], lost.value))
    return f"the violation rate may be {most}, above its limit of {limit}"


# -- in simulation: the cheapest for a rate --------------------------------------------------------------------------


def cheapest_in_simulation(pool: Pool, ask: Ask) -> Draft | Infeasibility | None:
    """The cheapest pool found that keeps the stated rate; None where not even the fluid program reaches it."""
    check_simulator(pool.tools, pool.options.sizing, name="simulate_plan")
    bound = lower_bound(pool, ask)
    if bound is None:
        return None
    sizing = _TrialSizing(pool, ask, bound)
    search = Search(sizing)
    found = search.cheapest()
    if found is not None:
        return found
    if (large := sizing.unplayed) is not None:
        claim = replace(bound, value=value_of(pool, "cost_per_hour", large))
        return _plan_without_simulation(pool, ChosenPool(large, (claim,)))
    if sizing.missed is not None or search.last is None:
        return sizing.missed
    trial, nearest, rate = sizing.trial, sizing.rate_pool(search.last), sizing.rate
    why = f"not met: of {len(search.looks)} pools at {rate:g} qps the last has a violation rate of "
    why += f"{(share := search.looks[search.last]):.2g} times its limit"
    why += " in a short run, which is too close to the limit" if share < 1.0 else ""
    carried = trial.highest_rate(nearest) if trial.may_go_on and pool.tools.says_what_helps else 0.0
    repairs = repairs_if_late(pool.wish.app, None if carried > 0 else rate)
    fewer = (less_rate(pool, carried),) if carried > 0 else ()
    return Infeasibility(why=(why,), repairs=fewer + repairs, proved=False)


@dataclass
class _PoolRates:
    """What pools carry, each asked once, and what they cost: the part that every search for a rate has."""

    pool: Pool
    ask: Ask
    known: dict[Counts, RatedPool] = field(default_factory=dict, init=False)

    @property
    def rate(self) -> float:
        """The stated rate."""
        return self.pool.wish.rate_qps or 0.0

    def rate_pool(self, counts: Counts) -> RatedPool:
        """What a pool carries if nothing waits."""
        if counts not in self.known:
            self.known[counts] = rate_at(self.pool, self.ask, np.array(counts))
        return self.known[counts]

    def price(self, counts: Counts) -> int:
        """What the machines cost per hour."""
        return self.pool.cost(np.array(counts))

    def cheapest(self, fluid_rate: float, *, about: str = "") -> Counts | None:
        """The cheapest pool of the fluid program for a rate; None where there is none, or none was found."""
        about = about or f"least cost for a fluid rate of {fluid_rate:.6g}"
        answer = self.ask(fluid_program(self.pool, fluid_rate), gap=GAP, about=about)
        return None if answer.point is None else counts_of(read_counts(self.pool, answer.point))


@dataclass
class _TrialSizing(_PoolRates, Together):
    """A pool for a stated rate, as the sizing search asks for it."""

    bound: Reported
    unplayed: RatedPool | None = None
    """A pool that is too large to be played."""
    only: Counts | None = None
    """The pool that there may be, where stock and limits leave no choice."""
    missed: Draft | None = None
    """The first that was put to the test in vain."""
    may_carry: dict[Counts, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trial = _Trial(self.pool, self.ask)

    @property
    def may_go_on(self) -> bool:
        """Whether another pool may be played."""
        return self.trial.may_go_on

    def candidates(self) -> Generator[Counts, float, None]:
        """Pools of the fluid program, each for a rate raised after the last was late; then machines are added."""
        pool, last, late_in_turn = self.pool, None, 0
        given = _only_counts(pool)
        if given is not None and self._room(only := counts_of(given)) > 0.0 and is_playable(pool, self.rate_pool(only)):
            self.only = only
            yield only
            return
        want = self._formula_rate()
        while True:
            counts = self.cheapest(want)
            if counts is None:
                least = self.rate if last is None else last.lam * LEAST_MORE
                if want <= least:
                    break
                lower = 0.95 * want if last is None else 0.5 * (want + least)
                want = lower if lower > least * LEAST_MORE else least
                continue
            before, last = last, self.rate_pool(counts)
            _keep(pool, self.ask, last, self.bound)
            if not is_playable(pool, last):
                self.unplayed = last if before is None or not self._is_far(last) else None
                return
            late = yield counts
            if self.missed is not None and self._is_far(last):
                return
            want = max(want * more_room(late, late_in_turn), last.lam * LEAST_MORE)
            late_in_turn += 1
        while last is not None and not self._is_far(last):
            # No pool has a higher fluid rate. One machine more may still be the room that queues need.
            rows = [counts_of(row) for row in last.counts + np.eye(len(last.counts), dtype=np.int64)]
            larger = [row for row in rows if pool.allows(row)]
            if not larger:
                return
            counts = max(larger, key=lambda row: (self._room(row), -self.price(row)))
            if not is_playable(pool, last := self.rate_pool(counts)):
                return
            yield counts

    def _formula_rate(self) -> float:
        """The fluid rate of which the formula takes the stated part: it needs counts, and counts need a rate."""
        want, use = self.rate, FIRST_USED
        for _ in range(2):
            counts = self.cheapest(self.rate / use, about="least cost for a use")
            if counts is None:
                break
            use = max(formula_utilization(self.pool, self.rate_pool(counts)), LEAST_USED)
            want = self.rate / use
        return want

    def neighbours(self, counts: Counts, station: Hashable) -> Iterator[Counts]:
        """Cheaper pools of which no bound says that they cannot carry the rate."""
        del station
        pool = self.pool
        rows = (row for row in neighbours(counts, pool.c.tolist()) if any(row) and pool.allows(row))
        near = list(islice((row for row in rows if self.may_carry.get(row, True)), MOST_CHEAPER))
        if new := [row for row in near if row not in self.may_carry]:
            per_type = np.array([pool.of_type(np.array(row)) for row in new])
            answers = rates_of(pool.relaxation, self.ask, per_type, about="bound on the rate of pools near by")
            for row, answer in zip(new, answers, strict=True):
                self.may_carry[row] = answer.value is None or answer.value >= self.rate
        yield from (row for row in near if self.may_carry[row])

    def room(self, station: Hashable, counts: Counts) -> float:
        """What the formula has them carry, over the rate; 0 where not even the fluid rate is enough."""
        del station
        return self._room(counts)

    def _room(self, counts: Counts) -> float:
        rated = self.rate_pool(counts)
        return rated.lam * formula_utilization(self.pool, rated) / self.rate if rated.lam >= self.rate else 0.0

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How late a few queries are; of the only pool there may be, whether it is hopeless: there is no choice."""
        return dict.fromkeys(stations, self._look(counts))

    def _look(self, counts: Counts) -> float:
        if counts == self.only:
            late = self.trial.late(self.rate_pool(counts), self.rate, (FIRST,))
            return late if late > HOPELESS else 0.0
        late = self.trial.late(self.rate_pool(counts), self.rate)
        if late <= GOOD:
            _keep(self.pool, self.ask, self.rate_pool(counts), self.bound, good=True)
        return late

    def confirm(self, counts: Counts) -> Draft | Refused:
        """The plan, if fresh seeds confirm it."""
        rated = self.rate_pool(counts)
        note = "what simulation shows to keep the rate, against the least that any dispatcher needs"
        claim = replace(self.bound, value=value_of(self.pool, "cost_per_hour", rated), note=note)
        found = self.trial.confirm(rated, self.rate, (claim,))
        if not found.target_missed:
            return found
        self.missed = self.missed or found
        return Refused(self.stations(counts))

    def _is_far(self, rated: RatedPool) -> bool:
        """Whether a pool costs so much more than any must that a repair is the better answer."""
        least = self.bound.bound if self.bound.answer is None else self.bound.answer.bound
        return least is not None and value_of(self.pool, "cost_per_hour", rated) > FAR * least


# -- by the allowable rate of Kairos' simulator ----------------------------------------------------------------------


def cheapest_by_allowable_rate(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility | None:
    """The cheapest pool found whose allowable rate is enough, searched upward from the fluid optimum.

    First pools of the fluid program for growing rates, until one carries the rate; then every cheaper configuration
    whose fluid bound reaches the rate, the roomiest first, as long as `max_simulations` lasts. None where not even the
    fluid program reaches the rate.
    """
    bound = lower_bound(pool, ask)
    if bound is None:
        return None
    sizing = _AllowableSizing(pool, ask)
    best = Search(sizing).cheapest()
    if best is None:
        rate = max((one.promised for one in sizing.tried.values()), default=0.0)
        most = f"the best of {len(sizing.tried)} tried carries {rate:.6g}"
        why = f"no pool was found that carries {pool.wish.rate_qps:g} qps in simulation; {most}"
        return Infeasibility(why=(why,), repairs=(less_rate(pool, rate),), proved=False)
    note = "the least that any dispatcher needs, against what simulation shows to be enough"
    claim = replace(bound, value=value_of(pool, "cost_per_hour", best), note=note)
    warnings: tuple[Notice, ...] = ()
    if not sizing.may_go_on or not sizing.is_listed:
        text = f"{len(sizing.tried)} pools were simulated; a cheaper one that was not simulated may be enough too"
        warnings = (Notice(code="W-not-all-tried", at="claims", text=text),)
    return ChosenPool(best, (claim,), simulated=sizing.tried[counts_of(best.counts)], warnings=warnings, searched=True)


def _simulated_rate(pool: Pool, ask: Ask, rated: RatedPool) -> SimulatedRate:
    """What a pool carries in simulation; no more is promised than its fluid rate."""
    shown = simulate(pool, pool.of_type(rated.counts), rated.lam, first_seed=ask.limits.seed)
    return replace(shown, at_most=rated.lam)


def _rate_claims(pool: Pool, ask: Ask, simulated: SimulatedRate, backed: Sequence[Reported]) -> list[Reported]:
    """What is claimed once the rate is a simulated one: against the fluid bound where the program was to choose."""
    kept = [reported for reported in backed if reported.about != "rate_qps"]
    if pool.fluid_target is not None:
        return kept
    note = "the rate that simulation shows, against the most that any dispatcher can carry"
    if pool.formulation != "pool-milp":
        return [Reported("rate_qps", "max", "none", value=simulated.promised), *kept]
    bound = Reported("rate_qps", "max", "relaxation", upper_bound(pool, ask), note=note)
    return [replace(bound, value=simulated.promised), *kept]


@dataclass
class _AllowableSizing(_PoolRates, Together):
    """A pool whose simulated rate is enough, as the sizing search asks for it: what is looked at is confirmed."""

    tried: dict[Counts, SimulatedRate] = field(default_factory=dict)
    is_listed: bool = True
    """Whether all cheaper configurations could be listed."""
    listed: list[Counts] | None = None

    def __post_init__(self) -> None:
        self.most = cast(FluidOptions, self.pool.options).max_simulations

    @property
    def may_go_on(self) -> bool:
        """Whether another pool may be simulated."""
        return len(self.tried) < self.most and self.ask.remaining > 0

    def candidates(self) -> Generator[Counts, float, None]:
        """Pools of the fluid program, each for a rate raised by what simulation found missing at the one before."""
        want = self.rate
        while True:
            counts = self.cheapest(want)
            if counts is None:
                return
            missing = yield counts
            # Above the fluid rate of this pool, so that the next is another one.
            want = max(want * min(max(missing, LEAST_MORE), MOST_MORE), self.rate_pool(counts).lam * LEAST_MORE)

    def neighbours(self, counts: Counts, station: Hashable) -> Iterator[Counts]:
        """Every cheaper configuration whose fluid bound reaches the rate, the roomiest first."""
        del station
        if self.listed is None:
            self.listed = self._list_cheaper(self.price(counts))
        most = self.price(counts)
        return (row for row in self.listed if self.price(row) < most)

    def _list_cheaper(self, price: int) -> list[Counts]:
        pool, loose = self.pool, self.pool.relaxation
        found = configurations(pool, price - 1)
        at = np.flatnonzero(_may_carry(loose, found.counts, self.rate))
        self.is_listed = at.size <= MOST_PROGRAMS // 10
        if not self.is_listed:
            return []
        answers = rates_of(loose, self.ask, found.rows(at), about="bound on the rate of each cheaper configuration")
        # What an engine said nothing about may still do.
        bounds = np.array([answer.value if answer.value is not None else np.inf for answer in answers])
        at, bounds = at[bounds >= self.rate], bounds[bounds >= self.rate]
        return [counts_of(pool.by_offer(found.row(int(i)))) for i in at[np.argsort(-bounds, kind="stable")]]

    def room(self, station: Hashable, counts: Counts) -> float:
        """No formula says what they carry in simulation."""
        del station
        return math.inf if self.rate_pool(counts).lam > 0 else 0.0

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How much more it would have to carry; 0 where it is enough."""
        return dict.fromkeys(stations, self._missing_factor(counts))

    def _missing_factor(self, counts: Counts) -> float:
        rated = self.rate_pool(counts)
        self.tried[counts] = shown = _simulated_rate(self.pool, self.ask, rated)
        self.ask.note(Event("simulated", f"{counts}", value=shown.promised))
        if shown.promised < self.rate:
            return self.rate / shown.promised if shown.promised > 0 else math.inf
        cost = value_of(self.pool, "cost_per_hour", rated)
        claim = Reported("cost_per_hour", "min", "none", value=cost)
        made = ChosenPool(rated, (claim,), simulated=shown, searched=True)
        self.ask.keep(lambda: plan_chosen(self.pool, self.ask, made), simulated=True, rank=(-cost,), value=cost)
        return 0.0

    def confirm(self, counts: Counts) -> RatedPool:
        """The look had all the seeds that there are."""
        return self.rate_pool(counts)


def _may_carry(pool: Pool, counts: Sequence[np.ndarray[Any, Any]], rate: float) -> np.ndarray[Any, Any]:
    """A cheap necessary condition: each query on the fastest type, machines counted by how fast they are at best."""
    fastest = np.where(pool.usable, pool.L, np.inf).min(axis=1)
    gain = np.array([float((fastest[ok] / pool.W[ok, t]).max(initial=0.0)) for t, ok in enumerate(pool.usable.T)])
    room = sum(column * share for column, share in zip(counts, gain, strict=True))
    need = rate * float(pool.p @ fastest) / 1000.0
    return np.asarray(room >= need * (1 - math.ulp(1.0) * 16))
