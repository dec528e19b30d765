"""Pools judged by simulation: the rate to promise of a pool, and the smallest pool for a rate.

The simulator is handed in (`Tools.simulate`); nothing here imports it. It is called as ::

    simulate(latency_ms, counts, pmf, qos_ms, rule=..., seeds=..., lp_qps=..., base=..., sizes=..., most_late=...)

with a row per type and a column per class, classes in growing size where there is one axis; and, where option
`noise` is not "mean", also ``noise=..., std_ms=..., max_ms=...`` (arrays like latency_ms). It returns an object with
`per_seed`: of each seed the highest rate (queries/s) at which no more than `most_late` of the queries were late, 0
where none was found. A search hands in ``above=`` besides, the best median so far: a pool that does not beat it may get
any rates that do not either, so that its simulation can end early. With option `dispatch` "threshold" the rule is the
name ``threshold/1``, with ``threshold="climb"`` or ``"sweep"`` for how to look for it, and the object has the best
`threshold` too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from hetplan.dispatch.matching import Matching
from hetplan.errors import InputError, Interrupted
from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.planner.sizing_search import LEAST_MORE, MOST_MORE, Counts, Search, Together, counts_of
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.pool.bursts import bursts_of
from hetplan.problems.pool.infeasible import less_rate
from hetplan.problems.pool.letters import Counts as PerType
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.listing import configurations
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.program import MOST_PROGRAMS, fluid, rates_of, read_counts
from hetplan.problems.pool.rates import GAP, Chosen, Rated, RatedPools, Simulated
from hetplan.problems.simulated import check_simulator
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

__all__ = ["against_bursts", "check_can_simulate", "claims", "lower_bound", "simulate", "smallest", "tolerant"]


def check_can_simulate(pool: Pool) -> None:
    """Raise where a pool cannot be simulated: nobody to do it, rates instead of times, noise without its numbers."""
    file = pool.inputs.files.get("profile", "profile.json")
    check_simulator(pool.tools)
    if not pool.served.all() or not all(kind.is_timed for kind in pool.types):
        raise InputError.one(
            file=file,
            path=f"$.variants.{pool.wish.variant}.runs",
            why="a pool of one query at a time is simulated from tables of latency, not of rates",
            remedy="Leave option size out, and simulate the plan.",
        )
    if pool.options.noise != "mean" and (pool.times.std_ms is None or pool.times.max_ms is None):
        raise InputError.one(
            file=file, path="$.tables", why="lognormal noise needs std and max", remedy='Add them, or noise "mean".'
        )


def simulate(
    pool: Pool,
    per_type: PerType | Sequence[int],
    lam: float,
    *,
    first_seed: int,
    look: Literal["climb", "sweep"] = "climb",
    above: float = 0.0,
) -> Simulated:
    """The allowable rate of a pool whose fluid rate is `lam`, per seed; `look` is how a threshold is looked for.

    Where its median is not more than `above`, the rates are only known not to be.
    """
    assert pool.tools.simulate is not None
    order, sizes = _by_size(pool)
    more: dict[str, Any] = {}
    if pool.options.noise != "mean" and pool.times.std_ms is not None and pool.times.max_ms is not None:
        more = {"noise": pool.options.noise, "std_ms": pool.times.std_ms[order].T, "max_ms": pool.times.max_ms[order].T}
    if pool.options.dispatch == "threshold":
        more["threshold"] = look
    if above > 0:
        more["above"] = above
    found = pool.tools.simulate(
        pool.L[order].T,
        tuple(int(count) for count in pool.k * per_type),
        pool.p[order],
        pool.qos,
        rule=_rule(pool, per_type),
        seeds=tuple(range(first_seed, first_seed + pool.options.seeds)),
        lp_qps=lam,
        base=pool.base if pool.options.dispatch == "matching" else pool.base_among(per_type),
        sizes=sizes,
        most_late=pool.wish.app.targets[-1].left,
        **more,
    )
    threshold = getattr(found, "threshold", None) if pool.options.dispatch == "threshold" else None
    return Simulated(tuple(float(rate) for rate in found.per_seed), threshold=threshold)


def _rule(pool: Pool, per_type: PerType | Sequence[int]) -> Matching | str:
    """The rule that the plan will state; a threshold is not known before it was looked for.

    A plan names the weights of the types that it uses, and of the base: those of others, which may scale what late
    pairs cost, are left at the base's.
    """
    if pool.options.dispatch != "matching":
        return f"{pool.options.dispatch}/1"
    weight = tuple(np.where(np.asarray(per_type) > 0, pool.weights, 1.0).tolist())
    return Matching(slo_ms=pool.qos, weight=weight, xi=pool.options.xi, penalty=pool.options.penalty)


def _by_size(pool: Pool) -> tuple[np.ndarray[Any, Any], list[float] | None]:
    """Classes in growing size, and their sizes, where there is one axis."""
    if len(pool.wish.points[0]) != 1:
        return np.arange(pool.p.size), None
    sizes = np.array([next(iter(point.values())) for point in pool.wish.points])
    order = np.argsort(sizes)
    return order, sizes[order].tolist()


def tolerant(pool: Pool) -> Pool:
    """The pool with all the lateness that the target leaves: its fluid rate is a bound on every dispatcher's."""
    app = pool.wish.app
    left = app.targets[-1].left if app.targets else 0.0
    options = pool.options.model_copy(update={"violation_tolerance": left, "derate": 1.0})
    return replace(pool, options=options, may_drop=app.least_answered < 1.0)


def lower_bound(pool: Pool, ask: Ask) -> Reported | None:
    """The fluid program's least cost, without derate and with all tolerance: no dispatcher can do with less."""
    answer = ask(fluid(tolerant(pool), pool.wish.rate_qps), gap=GAP, about="least cost that any dispatcher needs")
    return Reported("cost_per_hour", "min", "relaxation", answer) if answer.point is not None else None


def against_bursts(pool: Pool, ask: Ask, made: Draft) -> Draft:
    """The plan that simulation shows to keep the rate, against what bursts ask of all plans, where that is more.

    No plan is chosen by it: a search goes on by `lower_bound`, and asks this of its result, if there is time.
    """
    costs = [one for one in made.reported if one.about == "cost_per_hour" and one.answer is not None]
    if not costs or made.target_missed or ask.remaining <= 0 or not (bursts := bursts_of(pool)):
        return made
    answer: Answer[Any] | None = None
    with suppress(Interrupted):
        form = fluid(tolerant(pool), pool.wish.rate_qps, bursts=bursts)
        answer = ask(form, gap=GAP, about="least cost that any dispatcher needs in bursts")
    (cost,) = costs
    known, more = (one.bound if one and one.bound is not None else -math.inf for one in (cost.answer, answer))
    if not known < more <= (cost.value or 0.0) * (1 + BOUND_SLIP):
        return made
    in_bursts = replace(cost, answer=answer, note=f"{cost.note} in bursts such as come")
    return replace(made, reported=tuple(in_bursts if one is cost else one for one in made.reported))


def claims(pool: Pool, ask: Ask, simulated: Simulated, backed: Sequence[Reported]) -> list[Reported]:
    """What is claimed once the rate is a simulated one: against the fluid bound where the program was to choose."""
    kept = [reported for reported in backed if reported.about != "rate_qps"]
    if pool.fluid_target is not None:
        return kept
    note = "the rate that simulation shows, against the most that any dispatcher can carry"
    if pool.formulation != "fluid-milp":
        return [Reported("rate_qps", "max", "none", value=simulated.promised), *kept]
    answer = ask(fluid(tolerant(pool), None), gap=GAP, about="rate that no dispatcher can exceed")
    return [Reported("rate_qps", "max", "relaxation", answer, value=simulated.promised, note=note), *kept]


def smallest(
    pool: Pool, ask: Ask, drafted: Callable[[Pool, Ask, Chosen], Draft | Infeasibility]
) -> Chosen | Infeasibility | None:
    """The cheapest pool found that carries the rate in simulation, searched upward from the fluid optimum.

    First pools of the fluid program for growing rates, until one carries the rate; then every cheaper configuration
    whose fluid bound reaches the rate, the roomiest first, as long as `evaluations` lasts. None where not even the
    fluid program reaches the rate.
    """
    check_can_simulate(pool)
    bound = lower_bound(pool, ask)
    if bound is None:
        return None
    sizing = _ForRate(pool, ask, drafted)
    best = Search(sizing).cheapest()
    if best is None:
        rate = max((one.promised for one in sizing.tried.values()), default=0.0)
        most = f"the best of {len(sizing.tried)} tried carries {rate:.6g}"
        why = f"no pool was found that carries {pool.wish.rate_qps:g} qps in simulation; {most}"
        return Infeasibility(why=(why,), repairs=(less_rate(pool, rate),), proved=False)
    cost = pool.cost(best.counts) / NANO
    claim = replace(
        bound, value=cost, note="the least that any dispatcher needs, against what simulation shows to be enough"
    )
    warnings: tuple[Notice, ...] = ()
    if not sizing.may_go_on or not sizing.is_listed:
        text = f"{len(sizing.tried)} pools were simulated; a cheaper one that was not simulated may be enough too"
        warnings = (Notice(code="W-not-all-tried", at="claims", text=text),)
    return Chosen(best, (claim,), simulated=sizing.tried[counts_of(best.counts)], warnings=warnings, searched=True)


@dataclass
class _ForRate(RatedPools, Together):
    """A pool whose simulated rate is enough, as the sizing search asks for it: what is looked at is confirmed."""

    drafted: Callable[[Pool, Ask, Chosen], Draft | Infeasibility]
    """The plan of a pool: what is kept of those that carry the rate."""
    tried: dict[Counts, Simulated] = field(default_factory=dict)
    is_listed: bool = True
    """Whether all cheaper configurations could be listed."""
    listed: list[Counts] | None = None

    def __post_init__(self) -> None:
        self.most = cast(FluidOptions, self.pool.options).evaluations

    @property
    def may_go_on(self) -> bool:
        """Whether another pool may be simulated."""
        return len(self.tried) < self.most and self.ask.remaining > 0

    def candidates(self) -> Generator[Counts, float, None]:
        """Pools of the fluid program, each for a rate raised by what simulation found missing at the one before."""
        want = self.rate
        while True:
            answer = self.ask(fluid(self.pool, want), gap=GAP, about=f"least cost for a fluid rate of {want:.6g}")
            if answer.point is None:
                return
            counts = counts_of(read_counts(self.pool, answer.point))
            missing = yield counts
            # Above the fluid rate of this pool, so that the next is another one.
            want = max(want * min(max(missing, LEAST_MORE), MOST_MORE), self.rated(counts).lam * LEAST_MORE)

    def neighbours(self, counts: Counts, station: Hashable) -> Iterator[Counts]:
        """Every cheaper configuration whose fluid bound reaches the rate, the roomiest first."""
        del station
        if self.listed is None:
            self.listed = self._list(self.price(counts))
        most = self.price(counts)
        return (row for row in self.listed if self.price(row) < most)

    def _list(self, price: int) -> list[Counts]:
        pool, loose = self.pool, tolerant(self.pool)
        found = configurations(pool, price - 1)
        at = np.flatnonzero(_could_carry(loose, found.counts, self.rate))
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
        return math.inf if self.rated(counts).lam > 0 else 0.0

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How much more it would have to carry; 0 where it is enough."""
        return dict.fromkeys(stations, self._missing(counts))

    def _missing(self, counts: Counts) -> float:
        rated = self.rated(counts)
        shown = simulate(self.pool, self.pool.of_type(rated.counts), rated.lam, first_seed=self.ask.limits.seed)
        self.tried[counts] = shown = replace(shown, at_most=rated.lam)
        self.ask.note(Event("simulated", f"{counts}", value=shown.promised))
        if shown.promised < self.rate:
            return self.rate / shown.promised if shown.promised > 0 else math.inf
        cost = self.pool.cost(rated.counts) / NANO
        claim = Reported("cost_per_hour", "min", "none", value=cost)
        made = Chosen(rated, (claim,), simulated=shown, searched=True)
        self.ask.keep(lambda: self.drafted(self.pool, self.ask, made), simulated=True, rank=(-cost,), value=cost)
        return 0.0

    def confirm(self, counts: Counts) -> Rated:
        """The look had all the seeds that there are."""
        return self.rated(counts)


def _could_carry(pool: Pool, counts: Sequence[np.ndarray[Any, Any]], rate: float) -> np.ndarray[Any, Any]:
    """A cheap necessary condition: each query on the fastest type, machines counted by how fast they are at best."""
    fastest = np.where(pool.usable, pool.L, np.inf).min(axis=1)
    gain = np.array([float((fastest[ok] / pool.W[ok, t]).max(initial=0.0)) for t, ok in enumerate(pool.usable.T)])
    room = sum(column * share for column, share in zip(counts, gain, strict=True))
    need = rate * float(pool.p @ fastest) / 1000.0
    return np.asarray(room >= need * (1 - math.ulp(1.0) * 16))
