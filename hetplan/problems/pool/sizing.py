"""Pools that keep the wish while queries wait: the default size, and the one that only estimates.

`estimated` takes a pool for n machines that share one queue, each as busy as the fluid program has them. A query of
class s on type t is late when it waits longer than QoS - L_st:

    late(u) = sum_st p_s x_st P(wait > QoS - L_st),   P(wait > w) = E(n, u n) exp(-2 n (1 - u) w / (S (a^2 + v^2)))

with E the chance that all n are busy (Erlang's C), S and v the mean and the spread of a query's service time, a that of
the time between two arrivals (1 unless their process has a shape). The use u looked for is the highest that leaves no
more late than the target does.

`auto` plays the plan itself, under the arrivals that the wish states. For a budget the rate is narrowed down that the
chosen pool keeps. For a rate, pools of the fluid program are played until one keeps it, then cheaper ones, nearest
first. What is handed out is confirmed by seeds that chose nothing. Plans and queries are counted; no clock decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.planner.request import PLENTY
from hetplan.planner.sizing import ErrorBudget
from hetplan.problems.pool.draft import draft
from hetplan.problems.pool.infeasible import less_rate
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.program import fluid, rates_of, read_counts
from hetplan.problems.pool.rates import GAP, Chosen, Rated, Simulated, rate_at, start
from hetplan.problems.pool.size import lower_bound, tolerant
from hetplan.problems.simulated import (
    QUERIES,
    SEARCHED,
    Played,
    check_simulator,
    look,
    plan_to_simulate,
    play_length_s,
    play_until_clear,
    where_late,
    with_shown,
)
from hetplan.problems.waiting import all_busy
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice, Plan

__all__ = ["cheapest_kept", "estimated", "estimated_use", "is_playable", "keep_first", "kept", "kept_use", "looked_at"]

MOST_USED = 0.98
"""Nobody plans for all of a fluid rate."""
WIDTH = 0.015
"""Between a rate that is kept and one that is not, it is not worth looking further."""
MOST_NARROWED = 8
"""Plays by which the rate of one pool is narrowed down."""
ROUNDS = 6
"""Plans of which each takes its derate from the one before."""
LESS = 0.97
"""For a stated rate each such plan has no more of the derate before it than that."""
BACK = 0.97
"""What is left of a rate, each time that fresh seeds do not confirm it."""
MOST_BACK = 6
FULL = 0.9
"""Of the share that may be late, what the rate of one pool may use up: fresh seeds confirm it, and more of them if
they leave it open."""
BELOW = 0.985
"""Of the highest rate that a few queries show to be kept, what is promised: a choice is biased towards luck."""
LEAST_RAISED, MOST_RAISED = 1.02, 1.5
"""By how much the fluid rate is raised, at least and at most, after a pool that was late."""
HOPEFUL = 0.85
"""A cheaper pool is played where the formula has it carry at least this share of the rate."""
TAUGHT, WORST_TAUGHT = 0.03, 10.0
"""How much more than a pool that was late another must carry, by the formula, to be played: a power of its lateness."""
MOST_CHEAPER = 400
"""Cheaper pools that are looked at."""
MOST_INSTANCES, RATES = 500, (1e-3, 1e6)
"""Larger pools, or other rates, are not played: of so many the formula says nearly all that there is to say."""
FAR = 3.0
"""Times the least cost there can be: such a pool is not handed out where it is not sure to be kept at once."""
FIRST, HOPELESS = (1, 10_000), 2.5
"""A first look; a pool that it finds so many times later than may be is looked at no more."""
OPEN, MOST_NEARLY = 0.95, 2
"""Cheaper pools that used up so much of what may be late, and so many of them, may still be confirmed."""
MOST_AGAIN = 3
"""Larger pools that are tried where none of those that looked good is confirmed."""
MOST_PLAYED = 24
"""Plays of one solve, at most."""


def estimated_use(pool: Pool, rated: Rated) -> float:
    """The share of the fluid rate that the formula has in time."""
    if not math.isfinite(pool.qos) or rated.lam <= 0:
        return MOST_USED
    part = np.where(pool.served, pool.p[:, None] * rated.share, 0.0)
    times = np.where(pool.served, pool.L, 0.0)
    mean = float((part * times).sum())
    between = 1.0 / (pool.wish.app.demand.arrivals.shape or 1.0)  # a^2
    spread = between + float((part * (times / mean) ** 2).sum()) - 1.0  # a^2 + v^2
    n = pool.instances(rated.counts)
    room = np.where(pool.served, np.maximum(pool.qos - pool.M, 0.0), 0.0)
    allowed = pool.wish.app.targets[-1].left
    low, high = 0.0, 1.0
    for _ in range(30):
        use = 0.5 * (low + high)
        tail = all_busy(n, use * n) * np.exp(-2.0 * n * (1.0 - use) * room / (mean * spread))
        low, high = (use, high) if float((part * tail).sum()) <= allowed else (low, use)
    return min(max(low, 0.01), MOST_USED)


def kept_use(pool: Pool, rated: Rated) -> float:
    """The share of the fluid rate up to which `estimated` finds a plan on exactly these machines."""
    use, following = pool.options.derate, estimated_use(pool, rated)
    return use if use <= following else min(following, LESS * use)


def estimated(pool: Pool, ask: Ask, way: Callable[[Pool], Draft | Infeasible]) -> Draft | Infeasible:
    """The plan by this way whose derate is the formula's for its own pool, found in a few rounds.

    Where stock and limits leave one pool alone, its derate is known at once.
    """
    only = _given(pool) if pool.wish.rate_qps is not None else None
    if only is not None:
        use = kept_use(pool, rate_at(pool, ask, only))
        made = way(replace(pool, options=pool.options.model_copy(update={"derate": use})))
        return made if isinstance(made, Infeasible) else _of_any_plan(pool, ask, replace(made, chosen={"derate": use}))
    use, made = pool.options.derate, way(pool)
    for _ in range(ROUNDS):
        if isinstance(made, Infeasible):
            return made
        following = estimated_use(pool, _rated_of(pool, ask, made))
        if abs(following - use) <= 1e-9 or (pool.wish.rate_qps is not None and use <= following):
            break
        use = following if pool.wish.rate_qps is None else min(following, LESS * use)
        made = way(replace(pool, options=pool.options.model_copy(update={"derate": use})))
    return made if isinstance(made, Infeasible) else _of_any_plan(pool, ask, replace(made, chosen={"derate": use}))


def _of_any_plan(pool: Pool, ask: Ask, made: Draft) -> Draft:
    """The plan that a formula sizes, against what no dispatcher does better: of other pools the formula says nothing.

    Pools that it gives another share of their rate may be cheaper, or carry more.
    """
    found = list[Reported]()
    for one in made.reported:
        if one.about == "cost_per_hour" and pool.wish.rate_qps is not None:
            bound = lower_bound(pool, ask)
            note = "what a formula says to be enough, against the least that any dispatcher needs"
            found.append(replace(bound or _unproved(one), value=one.value, note=note))
        elif one.about == "rate_qps":
            answer = ask(fluid(tolerant(pool), None), gap=GAP, about="rate that no dispatcher can exceed")
            note = "the rate that a formula says, against the most that any dispatcher can carry"
            found.append(Reported("rate_qps", "max", "relaxation", answer, value=one.value, note=note))
        else:
            found.append(_unproved(one) if one.about == "cost_per_hour" else one)
    return replace(made, reported=tuple(found))


def _unproved(one: Reported) -> Reported:
    """What is said, and how good it is by nothing."""
    return Reported(one.about, one.sense, "none", value=one.value)


def _given(pool: Pool) -> np.ndarray | None:
    """The only counts that there may be; None where stock and limits leave a choice, or none at all."""
    counts = np.array([offer.stock for offer in pool.offers], dtype=np.int64)
    is_all = bool((counts < PLENTY).all()) and np.array_equal(pool.of_type(counts), pool.least)
    return counts if is_all and counts.any() and pool.request.allows(counts) else None


def _rated_of(pool: Pool, ask: Ask, made: Draft) -> Rated:
    """The counts of a plan with the flows that they carry."""
    counts = np.zeros(len(pool.offers), dtype=np.int64)
    for worker in made.workers:
        for o, offer in enumerate(pool.offers):
            if (offer.id, offer.machine) == (worker.offer, worker.hardware):
                counts[o] += worker.count
    return rate_at(pool, ask, counts)


def kept(pool: Pool, ask: Ask, chosen: Chosen) -> Draft:
    """The plan of a pool, with the highest rate that it was seen to keep; a stated rate is kept or missed."""
    check_simulator(pool.tools, pool.options.size, name="simulate_plan")
    if not is_playable(pool, chosen.rated):
        return _unplayed(pool, chosen)
    ask.keep(lambda: _by_formula(pool, chosen), rank=(0,))
    trial = _Trial(pool, ask)
    if pool.wish.rate_qps is not None:
        return trial.confirmed(chosen.rated, pool.wish.rate_qps, chosen.backed, chosen.warnings)
    return trial.confirmed(chosen.rated, BELOW * trial.narrowed(chosen.rated), chosen.backed, chosen.warnings)


def is_playable(pool: Pool, rated: Rated) -> bool:
    """Whether a simulation can hold it."""
    return pool.instances(rated.counts) <= MOST_INSTANCES and RATES[0] <= rated.lam <= RATES[1]


def looked_at(
    pool: Pool, rated: Rated, rate: float, seed: int, *, open_yet: tuple[float, float] = (0.0, HOPELESS)
) -> Played:
    """What a few queries show of a pool at this rate; and still fewer, where what they show is not `open_yet`."""
    first = _played(pool, rated, rate, FIRST, seed)
    return _played(pool, rated, rate, SEARCHED, seed) if open_yet[0] <= first.worst <= open_yet[1] else first


def _played(pool: Pool, rated: Rated, rate: float, how: tuple[int, int], seed: int) -> Played:
    if rate <= 0:
        return Played(0.0, ())
    app, plan, simulate = pool.wish.app.id, _playable(pool, rated, rate), pool.tools.extra["simulate_plan"]
    runs = [(how[0], play_length_s(pool.inputs, {app: rate}, how[1]))]
    return look(simulate, plan, pool.inputs, [app], runs, seed=seed)[0]


def _playable(pool: Pool, rated: Rated, rate: float) -> Plan:
    """The plan of a pool at this rate."""
    return plan_to_simulate("pool", pool.formulation, draft(pool, Chosen(rated, simulated=_at(rate)), ()))


def _unplayed(pool: Pool, chosen: Chosen) -> Draft:
    """The plan by the formula, which says that nothing was simulated."""
    made = _by_formula(pool, chosen)
    rate = next(one.value for one in made.promises if one.quantity == "rate_qps")
    text = f"{pool.instances(chosen.rated.counts)} instances at {rate:.4g} qps were not simulated"
    warning = Notice(code="W-unconfirmed", at="promises", text=f"{text}: the rate comes from a formula")
    return replace(made, warnings=(*made.warnings, warning))


def _by_formula(pool: Pool, chosen: Chosen) -> Draft:
    """The plan of these machines at the rate that the formula gives them, or at the one that was stated."""
    use = estimated_use(pool, chosen.rated)
    if pool.wish.rate_qps is not None:
        use = pool.wish.rate_qps / chosen.rated.lam
    estimate = replace(pool, options=pool.options.model_copy(update={"derate": use, "size": "estimated"}))
    # What the program proves at another share of the rate bounds nothing of what a formula, or simulation, says.
    claims = [one if one.scope == "relaxation" else _unproved(one) for one in chosen.backed]
    claims = [replace(one, value=use * chosen.rated.lam) if one.about == "rate_qps" else one for one in claims]
    return replace(draft(estimate, chosen, claims), chosen={"derate": use})


@dataclass
class _Trial:
    """Plays plans of pools, up to a number of them."""

    pool: Pool
    ask: Ask
    played: dict[tuple[tuple[int, ...], float], Played] = field(default_factory=dict)
    bound: Answer[Any] | None = None
    budget: ErrorBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = ErrorBudget(self.ask.limits.seed)

    @property
    def left(self) -> bool:
        """Whether another plan may be played."""
        options = self.pool.options
        most = min(options.evaluations, MOST_PLAYED) if isinstance(options, FluidOptions) else MOST_PLAYED
        return len(self.played) < most and self.ask.remaining > 0

    def at(self, rated: Rated, rate: float) -> Played:
        """What a few queries show of a pool at this rate."""
        key = (tuple(rated.counts.tolist()), rate)
        if key not in self.played:
            self.played[key] = looked_at(self.pool, rated, rate, self.ask.limits.seed)
            text = f"{key[0]} at {rate:.6g} qps: {self.played[key].worst:.2g} of what may be late"
            self.ask.note(Event("simulated", text, value=self.played[key].worst))
        return self.played[key]

    def narrowed(self, rated: Rated) -> float:
        """The highest rate that a few queries show to be kept."""
        low, high = 0.0, rated.lam
        rate = rated.lam * estimated_use(self.pool, rated)
        for _ in range(MOST_NARROWED):
            good = self.at(rated, rate).worst <= FULL
            low, high = (rate, high) if good else (low, rate)
            if high - low <= WIDTH * high or not self.left:
                break
            rate = min(0.5 * (low + high), 1.08 * low) if low > 0 else 0.8 * high
        return low

    def nearly(self, rate: float, good: Rated) -> list[Rated]:
        """Pools cheaper than a good one that looked too near to be chosen: each alone may be confirmed."""
        pool, cost = self.pool, self.pool.cost(good.counts)
        near = [np.array(counts) for (counts, at), shown in self.played.items() if at == rate and shown.worst <= OPEN]
        cheaper = sorted((counts for counts in near if pool.cost(counts) < cost), key=pool.cost)
        return [rate_at(pool, self.ask, counts) for counts in cheaper[:MOST_NEARLY]]

    def confirmed(
        self, rated: Rated, rate: float, program: Sequence[Reported], warnings: Sequence[Notice] = ()
    ) -> Draft:
        """The plan at this rate, or at a little less where only that is asked for; or why it is not confirmed."""
        last: Played | None = None
        for back in range(MOST_BACK if rate > 0 else 0):
            rate *= BACK if back else 1.0
            last = self._tested(rated, rate)
            if not last.late:
                return replace(self._drafted(rated, rate, program, last, warnings), searched=True)
            if self.pool.wish.rate_qps is not None or self.ask.remaining <= 0:
                break
        made = self._drafted(rated, rate, program, None, warnings)
        if not rate:
            tried = min(at for _, at in self.played)
            why = f"in simulation {_shown(None)} at every rate that was tried, from {tried:.4g} qps on"
            app = self.pool.wish.app
            return replace(made, target_missed=why, repairs=where_late(app, None))
        why = f"in simulation at {rate:.6g} qps {_shown(last)}"
        return replace(made, target_missed=why, repairs=(less_rate(self.pool, 0.9 * rate),))

    def _tested(self, rated: Rated, rate: float) -> Played:
        """What runs show of a pool at this rate, until it is clear."""
        pool, app = self.pool, self.pool.wish.app.id
        simulate = pool.tools.extra["simulate_plan"]
        length_s = play_length_s(pool.inputs, {app: rate}, QUERIES)
        return play_until_clear(
            simulate, _playable(pool, rated, rate), pool.inputs, self.budget, apps=(app,), length_s=length_s,
            may_go_on=lambda: self.ask.remaining > 0,
        )  # fmt: skip

    def _drafted(
        self,
        rated: Rated,
        rate: float,
        program: Sequence[Reported],
        shown: Played | None,
        warnings: Sequence[Notice],
    ) -> Draft:
        runs = next((one.seeds for one in shown.promises if one.seeds), 1) if shown is not None else 1
        chosen = Chosen(rated, simulated=_at(rate, runs), warnings=tuple(warnings))
        made = draft(self.pool, chosen, self._claims(rated, program, rate))
        return made if shown is None else with_shown(made, shown)

    def _claims(self, rated: Rated, program: Sequence[Reported], rate: float) -> list[Reported]:
        """Of a rate that is sought, what is kept against what nobody exceeds; and what the pool carries unqueued."""
        note = "the most that the chosen pool can carry if nothing waits"
        fluid_rate = Reported("fluid_rate_qps", "max", "restriction", rated.answer, value=rated.lam, note=note)
        programs = [one for one in program if one.about == "rate_qps"]
        if not programs:
            return [*program, fluid_rate]
        note = "the most that any pool for the budget can carry if nothing waits"
        fluid_rate = replace(fluid_rate, scope="problem", answer=programs[0].answer, note=note)
        if self.bound is None:
            self.bound = self.ask(fluid(tolerant(self.pool), None), gap=GAP, about="rate that no dispatcher can exceed")
        note = "the rate that simulation shows to be kept, against the most that any dispatcher can carry"
        shown = Reported("rate_qps", "max", "relaxation", self.bound, value=rate, note=note)
        return [shown, fluid_rate, *(one for one in program if one.about != "rate_qps")]


def _in_words(share: float) -> str:
    """What a few queries showed, by which a pool was not chosen."""
    if share >= 1.0:
        return f"is late {share:.2g} times as often as allowed"
    return f"is late {share:.2g} times as often as allowed in a short run: too near to the limit to rely on"


def _at(rate: float, runs: int = 1) -> Simulated:
    """A rate that was played, in so many runs."""
    return Simulated((rate,) * runs, basis="limits that are kept at this rate")


def cheapest_kept(pool: Pool, ask: Ask) -> Draft | Infeasible | None:
    """The cheapest pool found that keeps the stated rate; None where not even the fluid program reaches it."""
    check_simulator(pool.tools, pool.options.size, name="simulate_plan")
    rate = pool.wish.rate_qps or 0.0
    bound = lower_bound(pool, ask)
    if bound is None:
        return None
    trial, made, nearest = _Trial(pool, ask), None, None
    only = _only(trial, rate)
    if only is not None:
        return trial.confirmed(only, rate, (_kept_at(pool, only, bound),))
    above = 0.0
    for again in range(1 + MOST_AGAIN):
        good, nearest = _first_kept(trial, bound, rate, above)
        if nearest is not None and not is_playable(pool, nearest):
            return _unplayed(pool, Chosen(nearest, (replace(bound, value=pool.cost(nearest.counts) / NANO),)))
        if nearest is None or (again and _is_far(pool, nearest, bound)):
            break
        if good and not again:
            good = _cheaper(pool, ask, trial, rate, good, bound)
        elif not good and trial.at(nearest, rate).worst < 1.0:
            good = [nearest]  # Too near to be chosen among others; alone it may be confirmed.
        good = sorted(good, key=lambda one: pool.cost(one.counts))
        for rated in [*(trial.nearly(rate, good[0]) if good else ()), *good[:3]]:
            found = trial.confirmed(rated, rate, (_kept_at(pool, rated, bound),))
            if not found.target_missed:
                return found
            made = made or found
        if not good or not trial.left:
            break
        above = LEAST_RAISED * max(one.lam for one in good)
    if made is not None:
        return made
    if nearest is None:
        return None
    share = trial.at(nearest, rate).worst
    why = f"not kept: the last of {len(trial.played)} pools, at {rate:g} qps, {_in_words(share)}"
    carried = trial.narrowed(nearest) if trial.left and pool.tools.says_what_helps else 0.0
    repairs = where_late(pool.wish.app, None if carried > 0 else rate)
    return Infeasible(why=(why,), repairs=((less_rate(pool, carried),) if carried > 0 else ()) + repairs, proved=False)


def keep_first(pool: Pool, ask: Ask) -> None:
    """Keep a plan that no engine is needed for: the first word, until a program has one."""
    rate, use = pool.wish.rate_qps, 0.8
    for _ in range(1 if rate is None else 2):
        found = start(pool, None if rate is None else rate / use)
        if found is None:
            return
        rated = Rated(found.counts, found.lam, found.share, Answer(Status.NO_ANSWER))
        use = min(max(estimated_use(pool, rated), 0.2), MOST_USED)
        if rate is None:
            _keep(pool, ask, rated, Reported("rate_qps", "max", "none", value=use * rated.lam))
        else:
            _keep(pool, ask, rated, Reported("cost_per_hour", "min", "none"))


def _keep(pool: Pool, ask: Ask, rated: Rated, bound: Reported, *, good: bool = False) -> None:
    """Keep the plan that the formula makes of a pool; of those that look `good` in simulation the cheapest."""
    cost = pool.cost(rated.counts) / NANO
    claim = replace(bound, value=cost) if bound.about == "cost_per_hour" else bound
    ask.keep(lambda: _by_formula(pool, Chosen(rated, (claim,))), rank=(1, -cost) if good else (0,), value=claim.value)


def _kept_at(pool: Pool, rated: Rated, bound: Reported) -> Reported:
    note = "what simulation shows to keep the rate, against the least that any dispatcher needs"
    return replace(bound, value=pool.cost(rated.counts) / NANO, note=note)


def _only(trial: _Trial, rate: float) -> Rated | None:
    """The pool that there may be where stock and limits leave no choice, if the rate is not hopeless there.

    A look would choose nothing: what confirms it is played at once.
    """
    pool, counts = trial.pool, _given(trial.pool)
    if counts is None:
        return None
    rated = rate_at(pool, trial.ask, counts)
    if rated.lam < rate or not is_playable(pool, rated):
        return None
    first = _played(pool, rated, rate, FIRST, trial.ask.limits.seed)
    return rated if first.worst <= HOPELESS else None


def _first_kept(trial: _Trial, bound: Reported, rate: float, above: float) -> tuple[list[Rated], Rated | None]:
    """Pools of the fluid program, each for a rate raised after the last was late; and the last that was played.

    The first is for a fluid rate of `above` at least. One that is too large to be played is the last where there is no
    smaller one to say that it is far too dear.
    """
    pool, ask = trial.pool, trial.ask
    want, last = rate, None
    use = 0.8
    for _ in range(2):
        # The formula needs counts, and counts need a rate: the pool for a common use says which.
        answer = ask(fluid(pool, rate / use), gap=GAP, about="least cost for a use")
        if answer.point is None:
            break
        use = min(max(estimated_use(pool, rate_at(pool, ask, read_counts(pool, answer.point))), 0.2), 0.98)
        want = rate / use
    want = max(want, above)
    while trial.left:
        answer = ask(fluid(pool, want), gap=GAP, about=f"least cost for a fluid rate of {want:.6g}")
        if answer.point is None:
            least = max(rate, above) if last is None else last.lam * LEAST_RAISED
            if want <= least:
                break
            lower = 0.95 * want if last is None else 0.5 * (want + least)
            want = lower if lower > least * LEAST_RAISED else least
            continue
        before, last = last, rate_at(pool, ask, read_counts(pool, answer.point))
        _keep(pool, ask, last, bound)
        if not is_playable(pool, last):
            return [], before if before is not None and _is_far(pool, last, bound) else last
        shown = trial.at(last, rate)
        if shown.good:
            _keep(pool, ask, last, bound, good=True)
            return [last], last
        raised = min(max(shown.worst**0.2, LEAST_RAISED), MOST_RAISED)
        want = max(want * raised, last.lam * LEAST_RAISED)
    return _more_machines(trial, bound, rate, last)


def _more_machines(trial: _Trial, bound: Reported, rate: float, last: Rated | None) -> tuple[list[Rated], Rated | None]:
    """Where no pool has a higher fluid rate: one machine more at a time, whose room the queues may still need."""
    pool = trial.pool
    while trial.left and last is not None and not _is_far(pool, last, bound):
        rows = [row for row in last.counts + np.eye(len(last.counts), dtype=np.int64) if pool.request.allows(row)]
        larger = [rate_at(pool, trial.ask, row) for row in rows]
        if not larger:
            break
        last = max(larger, key=lambda one: (one.lam * estimated_use(pool, one), -pool.cost(one.counts)))
        if not is_playable(pool, last):
            break
        if trial.at(last, rate).good:
            return [last], last
    return [], last


def _is_far(pool: Pool, rated: Rated, bound: Reported) -> bool:
    """Whether a pool costs so much more than any must that a repair is the better answer."""
    least = bound.bound if bound.answer is None else bound.answer.bound
    return least is not None and pool.cost(rated.counts) / NANO > FAR * least


def _cheaper(pool: Pool, ask: Ask, trial: _Trial, rate: float, good: list[Rated], bound: Reported) -> list[Rated]:
    """Cheaper pools that keep the rate too: one machine less, or one in the place of one or two others.

    The formula has all machines in one queue. Where few of one type are late, it says too much of all pools that have
    so few: what such pools taught does not hold for one that has more of a type than each of them.
    """
    tried = {tuple(one.counts.tolist()) for one in good}
    best, hopeful = good[0], HOPEFUL * rate
    least, were_late = hopeful, np.zeros(len(best.counts), dtype=np.int64)
    almost: list[np.ndarray] = []
    while trial.left:
        near = list(islice(_neighbours(pool, best.counts, tried), MOST_CHEAPER))
        if not near:
            break
        loose = tolerant(pool)
        rows = np.array([pool.of_type(row) for row in near])
        answers = rates_of(loose, ask, rows, about="bound on the rate of pools near by")
        following = None
        for row, answer in zip(near, answers, strict=True):
            tried.add(tuple(row.tolist()))
            if answer.value is not None and answer.value < rate:
                continue
            rated = rate_at(pool, ask, row)
            carries = rated.lam * estimated_use(pool, rated)
            # Where work comes faster than it can be done, a run of any length only hides it.
            enough = hopeful if (row > were_late).any() and were_late.any() else least
            # With a machine more than one that was in time by too little, whatever the formula says.
            enough = 0.0 if any((part <= row).all() for part in almost) else enough
            if rated.lam < rate or carries < enough or not trial.left:
                continue
            shown = trial.at(rated, rate)
            if shown.good:
                following = rated
                _keep(pool, ask, rated, bound, good=True)
                break
            almost += [row] if shown.worst < 1.0 else []
            least = max(least, carries * min(shown.worst, WORST_TAUGHT) ** TAUGHT)
            were_late = np.maximum(were_late, row)
        if following is None:
            break
        good.append(following)
        best = following
    return good


def _neighbours(pool: Pool, counts: np.ndarray, tried: Set[tuple[int, ...]]) -> Iterator[np.ndarray]:
    """Cheaper counts, the cheapest first: up to two machines fewer, and up to two others in their place.

    Of many types there are millions of them: each is made only when its turn comes.
    """
    size, none = len(counts), -1
    price = np.append(np.asarray(pool.c, dtype=np.int64), 0)  # the last one is that of no machine
    owned = [int(o) for o in np.flatnonzero(counts)]
    less = [(a, b) for a in owned for b in (none, *owned) if b == none or (b >= a and (b > a or counts[a] > 1))]
    first, second = np.triu_indices(size)
    none_of = np.full(size, none)
    more = np.vstack([[none, none], np.column_stack([none_of, np.arange(size)]), np.column_stack([first, second])])
    saved = np.array([int(price[a] + price[b]) for a, b in less], dtype=np.int64)
    change = price[more].sum(axis=1)[None, :] - saved[:, None]
    seen = set(tried)
    for place in np.argsort(change, axis=None, kind="stable"):
        fewer, other = divmod(int(place), len(more))
        if change[fewer, other] >= 0:
            return
        row = counts.copy()
        for o, step in ((less[fewer][0], -1), (less[fewer][1], -1), (more[other][0], 1), (more[other][1], 1)):
            if o != none:
                row[o] += step
        key = tuple(row.tolist())
        if key not in seen and row.any() and pool.request.allows(row):
            yield row
        seen.add(key)


def _shown(played: Played | None) -> str:
    """In words, that a simulation does not confirm a rate."""
    if played is None:
        return "too many queries are late"
    if played.worst >= 1.0:
        return f"{played.worst:.2g} times as many queries are late as allowed"
    lost = next((one for one in played.promises if one.quantity == "violations"), None)
    if lost is None or lost.interval is None:
        return "too few queries come to say whether they are in time"
    most, limit = (f"{100 * share:.2g}%" for share in (lost.interval[1], lost.value))
    return f"the violation rate may be {most}, so the limit of {limit} may not be kept"
