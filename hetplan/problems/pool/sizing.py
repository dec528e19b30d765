"""Pools that keep the wish while queries wait: the default size, and the one that only estimates.

`estimated` takes a pool for n machines that share one queue, each as busy as the fluid program has them. A query of
class s on type t is late when it waits longer than QoS - L_st:

    late(u) = sum_st p_s x_st P(wait > QoS - L_st),   P(wait > w) = E(n, u n) exp(-2 n (1 - u) w / (S (a^2 + v^2)))

with E the chance that all n are busy (Erlang's C), S and v the mean and the spread of a query's service time, a that of
the time between two arrivals (1 unless their process has a shape). The use u looked for is the highest that leaves no
more late than the target does.

`auto` plays the plan itself, under the arrivals that the wish states. For a budget the rate is narrowed down that the
program's pool keeps, then that of pools around it which the formula does not say to carry less. For a rate, pools of
the fluid program are played until one keeps it, then cheaper ones, nearest first. What is handed out is confirmed by
seeds that chose nothing. Plans and queries are counted; no clock decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.planner.request import PLENTY
from hetplan.planner.sizing import ErrorBudget
from hetplan.planner.sizing_search import (
    GOOD,
    LEAST_MORE,
    Counts,
    Refused,
    Search,
    Together,
    counts_of,
    more_room,
    neighbours,
)
from hetplan.problems.pool.draft import draft
from hetplan.problems.pool.infeasible import less_rate
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.program import fluid, rates_of, read_counts
from hetplan.problems.pool.rates import GAP, Chosen, Rated, RatedPools, Simulated, rate_at, rated_by, start
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
from hetplan.profiles.plan_file import settled

__all__ = ["cheapest_kept", "estimated", "estimated_use", "is_playable", "keep_first", "kept", "kept_use", "looked_at"]

MOST_USED = 0.98
"""Nobody plans for all of a fluid rate."""
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
FIRST, HOPELESS = (1, 10_000), 2.5
"""A first look; a pool that it finds so many times later than may be is looked at no more."""
MOST_PLAYED = 24
"""Plays of one solve, at most."""


def estimated_use(pool: Pool, rated: Rated) -> float:
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
        tail = all_busy(n, use * n) * np.exp(-2.0 * n * (1.0 - use) * room / (mean * spread))
        low, high = (use, high) if float((part * tail).sum()) <= allowed else (low, use)
    return min(max(low, 0.01), MOST_USED)


def kept_use(pool: Pool, rated: Rated) -> float:
    """The share of the fluid rate up to which `estimated` finds a plan on exactly these machines."""
    use, following = pool.options.derate, estimated_use(pool, rated)
    return use if use <= following else min(following, LESS * use)


def estimated(pool: Pool, ask: Ask, way: Callable[[Pool], Draft | Infeasibility]) -> Draft | Infeasibility:
    """The plan by this way whose derate is the formula's for its own pool, found in a few rounds.

    Where stock and limits leave one pool alone, its derate is known at once.
    """
    only = _given(pool) if pool.wish.rate_qps is not None else None
    if only is not None:
        use = kept_use(pool, rate_at(pool, ask, only))
        made = way(replace(pool, options=pool.options.model_copy(update={"derate": use})))
        return (
            made if isinstance(made, Infeasibility) else _of_any_plan(pool, ask, replace(made, chosen={"derate": use}))
        )
    use, made = pool.options.derate, way(pool)
    for _ in range(ROUNDS):
        if isinstance(made, Infeasibility):
            return made
        following = estimated_use(pool, _rated_of(pool, ask, made))
        if abs(following - use) <= 1e-9 or (pool.wish.rate_qps is not None and use <= following):
            break
        use = following if pool.wish.rate_qps is None else min(following, LESS * use)
        made = way(replace(pool, options=pool.options.model_copy(update={"derate": use})))
    return made if isinstance(made, Infeasibility) else _of_any_plan(pool, ask, replace(made, chosen={"derate": use}))


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
    return counts if is_all and counts.any() and pool.allows(counts) else None


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
    trial, rated = _Trial(pool, ask), chosen.rated
    if pool.wish.rate_qps is not None:
        return trial.confirmed(rated, pool.wish.rate_qps, chosen.backed, chosen.warnings)
    if pool.formulation == "fluid-milp":
        rated, rate = trial.most_kept(rated)
    else:
        rate = trial.narrowed(rated)
    backed = chosen.backed if rated is chosen.rated else tuple(_of_another(pool, rated, one) for one in chosen.backed)
    return trial.confirmed(rated, (1.0 - WIDTH) * rate, backed, chosen.warnings)


def _of_another(pool: Pool, rated: Rated, said: Reported) -> Reported:
    """What the program proves, said of another pool than its own."""
    value = pool.cost(rated.counts) / NANO if said.about == "cost_per_hour" else pool.options.derate * rated.lam
    return replace(said, scope="none", answer=None, value=value)


def _around(pool: Pool, per_type: Counts) -> Iterator[Counts]:
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
            yield _changed(counts, t, max(0, min(afford, kinds[t].available) - counts[t]))

    for more in (t for t in types if per_type[t] < kinds[t].available):
        grown = _changed(per_type, more, 1)
        yield from filled(grown) if left(grown) >= 0 else ()
        for less in (t for t in owned if t != more and left(grown) < 0):
            fewer = max(0, kinds[less].affordable(left(grown) + kinds[less].cost(grown[less])))
            yield from filled(_changed(grown, less, fewer - grown[less]))
    for less in owned:
        yield from filled(_changed(per_type, less, -1))


def _changed(counts: Counts, place: int, by: int) -> Counts:
    return (*counts[:place], counts[place] + by, *counts[place + 1 :])


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
    """The plan of a pool at this rate, as it is written.

    Numbers are rounded in it: where pairs of the matching cost the same, the last digit decides who serves whom.
    """
    return settled(plan_to_simulate("pool", pool.formulation, draft(pool, Chosen(rated, simulated=_at(rate)), ())))


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

    def narrowed(self, rated: Rated, low: float = 0.0) -> float:
        """The highest rate of the grid that a few queries show to be kept; `low`, one of them, is known to be."""
        base = 1e3 / self.pool.qos if math.isfinite(self.pool.qos) else 1.0

        def place(rate: float) -> int:
            return math.floor(math.log(rate / base) / math.log1p(WIDTH) + 1e-6)

        good, bad = place(low) if low > 0 else None, place(rated.lam) + 1
        at = (
            place(rated.lam * estimated_use(self.pool, rated)) if good is None else min((good + bad) // 2, good + AHEAD)
        )
        for _ in range(MOST_NARROWED):
            if (good is not None and bad - good <= 1) or not self.left:
                break
            if self.at(rated, base * (1.0 + WIDTH) ** at).worst <= FULL:
                good = at
            else:
                bad = at
            at = bad - BEHIND if good is None else min((good + bad) // 2, good + AHEAD)
        return 0.0 if good is None else base * (1.0 + WIDTH) ** good

    def most_kept(self, first: Rated) -> tuple[Rated, float]:
        """The pool that few queries show to carry most within the budget, and its rate.

        The formula errs alike for pools that are alike. So it says in which order those around the best so far are
        looked at, each at a rate that is worth the change, and which are not.
        """
        pool, best, rate = self.pool, first, self.narrowed(first)
        tried = {tuple(pool.of_type(first.counts).tolist())}
        while self.left:
            want = (1.0 + WIDTH) * rate
            says = best.lam * estimated_use(pool, best) / rate if rate > 0 else 1.0
            around = dict.fromkeys(_around(pool, tuple(pool.of_type(best.counts).tolist())))
            rows = [row for row in around if row not in tried and any(row) and self._may_be_had(row)]
            tried.update(rows)
            answers = rates_of(pool, self.ask, np.array(rows), about="rates of pools around the best") if rows else []
            near = [rated_by(pool, pool.by_offer(np.array(row)), one) for row, one in zip(rows, answers, strict=True)]
            carried = [
                (one.lam * estimated_use(pool, one) / says, one) for one in near if one.lam >= want and one.lam > 0
            ]
            hopeful = sorted((one for one in carried if one[0] >= LIKELY * want), key=lambda one: -one[0])
            found = next((one for _, one in hopeful if self.left and self._carries(one, want)), None)
            if found is None:
                break
            best, rate = found, self.narrowed(found, want)
        return best, rate

    def _carries(self, rated: Rated, rate: float) -> bool:
        """Whether a few queries show that it keeps this rate; any, where that is 0."""
        return self.at(rated, rate).worst <= FULL if rate > 0 else self.narrowed(rated) > 0

    def _may_be_had(self, per_type: tuple[int, ...]) -> bool:
        pool, counts = self.pool, self.pool.by_offer(np.array(per_type))
        return pool.cost(counts) <= (pool.request.budget or 0) and pool.allows(counts)

    def confirmed(
        self, rated: Rated, rate: float, program: Sequence[Reported], warnings: Sequence[Notice] = ()
    ) -> Draft:
        """The plan at this rate, or at a little less where only that is asked for; or why it is not confirmed."""
        last: Played | None = None
        for back in range(ROUNDS if rate > 0 else 0):
            rate *= LESS if back else 1.0
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
        if programs[0].answer is not None:
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


def cheapest_kept(pool: Pool, ask: Ask) -> Draft | Infeasibility | None:
    """The cheapest pool found that keeps the stated rate; None where not even the fluid program reaches it."""
    check_simulator(pool.tools, pool.options.size, name="simulate_plan")
    bound = lower_bound(pool, ask)
    if bound is None:
        return None
    sizing = _ForRate(pool, ask, bound)
    search = Search(sizing)
    found = search.cheapest()
    if found is not None:
        return found
    if (large := sizing.unplayed) is not None:
        return _unplayed(pool, Chosen(large, (replace(bound, value=pool.cost(large.counts) / NANO),)))
    if sizing.missed is not None or search.last is None:
        return sizing.missed
    trial, nearest, rate = sizing.trial, sizing.rated(search.last), sizing.rate
    share = search.looks[search.last]
    why = f"not kept: the last of {len(search.looks)} pools, at {rate:g} qps, {_in_words(share)}"
    carried = trial.narrowed(nearest) if trial.left and pool.tools.says_what_helps else 0.0
    repairs = where_late(pool.wish.app, None if carried > 0 else rate)
    return Infeasibility(
        why=(why,), repairs=((less_rate(pool, carried),) if carried > 0 else ()) + repairs, proved=False
    )


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


@dataclass
class _ForRate(RatedPools, Together):
    """A pool for a stated rate, as the sizing search asks for it."""

    bound: Reported
    unplayed: Rated | None = None
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
        return self.trial.left

    def candidates(self) -> Generator[Counts, float, None]:
        """Pools of the fluid program, each for a rate raised after the last was late; then machines are added."""
        pool, last, late_in_turn = self.pool, None, 0
        given = _given(pool)
        if given is not None and self._room(only := counts_of(given)) > 0.0 and is_playable(pool, self.rated(only)):
            self.only = only
            yield only
            return
        want = self._by_formula()
        while True:
            answer = self.ask(fluid(pool, want), gap=GAP, about=f"least cost for a fluid rate of {want:.6g}")
            if answer.point is None:
                least = self.rate if last is None else last.lam * LEAST_MORE
                if want <= least:
                    break
                lower = 0.95 * want if last is None else 0.5 * (want + least)
                want = lower if lower > least * LEAST_MORE else least
                continue
            before, last = last, self.rated(counts := counts_of(read_counts(pool, answer.point)))
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
            if not is_playable(pool, last := self.rated(counts)):
                return
            yield counts

    def _by_formula(self) -> float:
        """The fluid rate of which the formula takes the stated part: it needs counts, and counts need a rate."""
        pool, want, use = self.pool, self.rate, 0.8
        for _ in range(2):
            answer = self.ask(fluid(pool, self.rate / use), gap=GAP, about="least cost for a use")
            if answer.point is None:
                break
            use = min(max(estimated_use(pool, self.rated(counts_of(read_counts(pool, answer.point)))), 0.2), MOST_USED)
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
            answers = rates_of(tolerant(pool), self.ask, per_type, about="bound on the rate of pools near by")
            for row, answer in zip(new, answers, strict=True):
                self.may_carry[row] = answer.value is None or answer.value >= self.rate
        yield from (row for row in near if self.may_carry[row])

    def room(self, station: Hashable, counts: Counts) -> float:
        """What the formula has them carry, over the rate; 0 where not even the fluid rate is enough."""
        del station
        return self._room(counts)

    def _room(self, counts: Counts) -> float:
        rated = self.rated(counts)
        return rated.lam * estimated_use(self.pool, rated) / self.rate if rated.lam >= self.rate else 0.0

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How late a few queries are; of the only pool there may be, whether it is hopeless: there is no choice."""
        return dict.fromkeys(stations, self._look(counts))

    def _look(self, counts: Counts) -> float:
        if counts == self.only:
            late = _played(self.pool, self.rated(counts), self.rate, FIRST, self.ask.limits.seed).worst
            return late if late > HOPELESS else 0.0
        late = self.trial.at(self.rated(counts), self.rate).worst
        if late <= GOOD:
            _keep(self.pool, self.ask, self.rated(counts), self.bound, good=True)
        return late

    def confirm(self, counts: Counts) -> Draft | Refused:
        """The plan, if fresh seeds confirm it."""
        rated = self.rated(counts)
        found = self.trial.confirmed(rated, self.rate, (_kept_at(self.pool, rated, self.bound),))
        if not found.target_missed:
            return found
        self.missed = self.missed or found
        return Refused(self.stations(counts))

    def _is_far(self, rated: Rated) -> bool:
        """Whether a pool costs so much more than any must that a repair is the better answer."""
        least = self.bound.bound if self.bound.answer is None else self.bound.answer.bound
        return least is not None and self.pool.cost(rated.counts) / NANO > FAR * least


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
