r"""Searches of compound plans, and the engine around them: limits, and the account of what was found when.

A search proposes plans and observes what measuring them gave; the engine has them measured (several beside each other
where it may), keeps the cheapest compliant plan, and stops at a limit, when nothing is left, or when nothing can be
cheaper::

    cmbo       U = Pr[f_a >= A] Pr[f_l' <= L] / C        one process for log latency over (configuration, placement)
    cmbo-ci    the same; after the first compliant plan 1/C becomes max(best - 0.4 full price, 1e-3)
    struct     U with latency from seconds and bytes per operator, placed by arithmetic
    struct-ci  Pa Pl max(ref - cost, 1e-4)               cost estimated from the time that the target leaves

C is what measuring would take of the reference after what is cached. The estimated cost of a plan with
S = L - transfers - compute on free tiers is (sum_o sqrt(price_o c_o))^2 / S, kept within an eighth of and the full
price; ref is the best cost so far, before that 1.3 times the dearest full price. That levels in numbers have an order
is used by `struct` alone; `cmbo` keeps the paper's Hamming distance.

Where something else than the least cost is sought (`Aim`), `struct` and `struct-ci` ask for the most expected gain of
that figure within budget and limits: of accuracy by its process, of latency with the shares that the budget pays for,
of a front by weighted sums of the figures whose weights are drawn anew at every step. Searches at random take any aim.

To compare with: at random.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.black_box import BlackBox, Measured, OutOfTime, Verdict
from hetplan.planner.front import unbeaten
from hetplan.solvers.engine import OneByOne
from hetplan.solvers.gaussian_process import LightProcess, expected_improvement, normal_below
from hetplan.solvers.search_beliefs import Beliefs, MakeProcess, Predicted, Votes

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = [
    "BlackBoxEngine",
    "BlackBoxSearch",
    "Cmbo",
    "CmboCi",
    "CmboSearch",
    "RandomPlans",
    "Struct",
    "StructCi",
    "StructSearch",
]


MOST_IN_VAIN = 8
"""After so many configurations set aside and none measured, the evaluator is taken to be broken."""


class BlackBoxSearch:
    """One search: `ask` for plans to measure, `tell` what they gave; `best` and `front` are of those measured so far.

    Deterministic in the seed and in what was measured.
    """

    whole: ClassVar[bool] = False
    """Whether measuring a configuration settles all its placements."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        self.form, self.make = form, make
        self.random = np.random.default_rng(seed)
        self.open: NDArray[np.bool_] = np.ones(len(form), dtype=bool)
        if form.calls is not None and form.space is None:
            self.open &= np.isfinite(form.called_all).ravel()
        self.best, self.best_value = -1, np.inf
        self.observed = 0
        self._front: list[tuple[int, tuple[float, ...]]] = []

    def ask(self, count: int = 1) -> list[int]:
        """The next plans to measure, at most so many; none when nothing is left."""
        plans: list[int] = []
        closed: list[NDArray[np.int64]] = []
        while len(plans) < count and self.open.any():
            cold = self.observed + len(plans) < self.form.first_random and not self.warm
            plan = self.first() if cold else self.next()
            plans.append(plan)
            # Until observed, a plan under way (or its configuration, where that settles it) is not asked for again.
            here = self._settled_rows(plan)
            here = here[self.open[here]]
            self.open[here] = False
            closed.append(here)
        for here in closed:
            self.open[here] = True
        return plans

    @property
    def warm(self) -> bool:
        """Whether enough is believed to begin without plans at random."""
        return False

    def first(self) -> int:
        """A plan to begin with: any one."""
        return int(self.random.choice(np.flatnonzero(self.open)))

    def next(self) -> int:
        """The plan that promises most."""
        raise NotImplementedError

    def tell(self, plan: int, found: Measured) -> None:
        """Take in what measuring a plan's configuration gave."""
        self.observed += 1
        self.open[self._settled_rows(plan)] = False
        if self.whole and found.passes:
            values = self.form.values(found.configuration, below=self.best_value)
            here, value = int(self._settled_rows(plan)[int(np.argmin(values))]), float(values.min())
        else:
            here, value = plan, self.form.value(plan)
        if value < self.best_value:
            self.best, self.best_value = here, value
        if len(self.form.aim.of) > 1 and found.passes:
            first = found.configuration * len(self.form.placements)
            fresh = [(first + place, figures) for place, figures in self.form.figures(found.configuration)]
            self._front = unbeaten([*self._front, *fresh])
        self.learn(plan, found)

    def front(self) -> list[tuple[int, tuple[float, ...]]]:
        """Measured plans that no other one beats in the figures sought (less is better), with these figures."""
        if len(self.form.aim.of) > 1:
            return list(self._front)
        return [(self.best, (self.best_value,))] if self.best >= 0 else []

    def learn(self, plan: int, found: Measured) -> None:
        """Update what is believed."""

    def chance(self) -> float | None:
        """How likely, under what is believed, no setting that was not measured extends the front by more than `SLACK`.

        Of each figure's range; None where nothing is believed.
        """
        return None

    def _settled_rows(self, plan: int) -> NDArray[np.int64]:
        if not self.whole:
            return np.array([plan])
        placements = len(self.form.placements)
        first = plan // placements * placements
        return np.arange(first, first + placements)


class BlackBoxEngine(OneByOne[BlackBox, int]):
    """The engine around a search; `limits.work` counts measurements."""

    form: ClassVar[str] = "black-box"
    takes: ClassVar[type[BlackBox]] = BlackBox
    search: ClassVar[type[BlackBoxSearch]] = BlackBoxSearch
    any_aim: ClassVar[bool] = False
    any_space: ClassVar[bool] = False

    def why_not(self, form: BlackBox) -> str:
        """Searches of the papers know one wish, and list all settings."""
        if form.space is not None and not self.any_space:
            return f"{self.name} lists every setting; only some of them are allowed here, or they are too many"
        return "" if form.aim.cheapest or self.any_aim else f"{self.name} looks for the least cost only"

    def begin(self, form: BlackBox, seed: int) -> BlackBoxSearch:
        """The search itself, for those who measure themselves (ask and tell)."""
        return self.search(form, seed)

    def answer(self, form: BlackBox, limits: Limits, *, start: int | None, on_event: OnEvent | None) -> Answer[int]:
        """Measure plan after plan; the cheapest compliant one so far is the answer at any time."""
        search = self.begin(form, limits.seed)
        began, spent, to_first = time.monotonic(), 0.0, 0
        stop: Stop | None = None
        queue = [] if start is None else [start]
        while True:
            stop = _limit(form, limits, search, began, spent)
            if stop is not None or _in_vain(form):
                break
            most = form.most if limits.work is None else min(form.most, limits.work)
            plans = queue or search.ask(min(form.parallel, most - search.observed))
            queue = []
            if not plans or (form.aim.cheapest and search.best_value <= 0.0):
                break
            measured = _each(form, [plan // len(form.placements) for plan in plans])
            try:
                for plan, found in zip(plans, measured, strict=True):
                    search.tell(plan, found)
                    spent += found.gpu_s
                    to_first = to_first or (search.observed if search.best >= 0 else 0)
                    if on_event is not None:
                        on_event(_event(search, plan, found, form))
            except Interrupted:
                stop = Stop.CANCELLED
                break
            except OutOfTime:
                stop = Stop.TIME
                break
        return self._answer(form, search, stop or Stop.FINISHED, spent, to_first)

    def _answer(self, form: BlackBox, search: BlackBoxSearch, stop: Stop, spent: float, to_first: int) -> Answer[int]:
        work = {"measured": float(search.observed), "to_first": float(to_first), "gpu_s": spent}
        engine = self.signature
        if (chance := search.chance()) is not None:
            work["chance"] = chance
        if search.best < 0:
            exhausted = form.complete and search.whole
            status = Status.INFEASIBLE if exhausted and not form.failed else Status.NO_ANSWER
            return Answer(status, stop, work=work, engine=engine)
        return Answer(Status.FEASIBLE, stop, point=search.best, value=search.best_value, work=work, engine=engine)


def _in_vain(form: BlackBox) -> bool:
    """Whether nothing at all can be measured: so many were tried, and every one was set aside."""
    return len(form.journal) >= MOST_IN_VAIN and len(form.failed) == len(form.journal)


def _each(form: BlackBox, configurations: Sequence[int]) -> Iterator[Measured]:
    """What measuring each of them gives, in their order; those that are new are measured beside each other.

    What the first of them gave is not in the journal before all are measured, so nothing hangs on who was faster.
    """
    fresh = [c for c in dict.fromkeys(configurations) if c not in form.journal]
    if form.together is None or len(fresh) < 2:
        yield from map(form.observe, configurations)
        return
    given = iter(form.together(fresh))
    for configuration in configurations:
        if configuration not in form.journal:
            form.journal[configuration] = next(given)
        yield form.journal[configuration]
    next(given, None)  # it ends


def _limit(form: BlackBox, limits: Limits, search: BlackBoxSearch, began: float, spent: float) -> Stop | None:
    if limits.cancel is not None and limits.cancel.is_set():
        return Stop.CANCELLED
    if search.observed >= form.most or (limits.work is not None and search.observed >= limits.work):
        return Stop.WORK
    if form.gpu_s is not None and spent >= form.gpu_s:
        return Stop.WORK
    seconds = min((s for s in (limits.seconds, form.seconds) if s is not None), default=None)
    if seconds is not None and time.monotonic() - began >= seconds:
        return Stop.TIME
    return None


def _event(search: BlackBoxSearch, plan: int, found: Measured, form: BlackBox) -> Event:
    value = search.best_value if np.isfinite(search.best_value) else None
    return Event("measured", f"{form.name} plan {plan}: {found.verdict}", value=value, done=search.observed / form.most)


Vector = NDArray[np.float64]

LEAST_GAIN = 1e-4
LEAST_GAIN_CI = 1e-3
FULL_SHARE_LIKELY = 0.4
REFERENCE = 1.3
LEAST_COST_SHARE = 0.5
LEAST_COST_S = 1e-9
COST_SPREAD = 0.15
SLACK = 0.05
DRAWN_TOGETHER = 512
DRAWS = 400
WIDER, TRUST = 3.0, 0.7
"""Where it is said what a front may miss, deviations count for so much more, and the model is right so often at most.

Without them it said 0.94 where 0.7 were right; `benchmarks/compound_fronts.py` measures it.
"""
"""A configuration whose samples are all cached still counts for this share of the mean cost: a step is not free."""


class CmboSearch(BlackBoxSearch):
    """Accuracy by configuration, latency by one process over (configuration, placement)."""

    improving: ClassVar[bool] = False

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        self.beliefs = Beliefs(form, make, by_order=False)
        rows = np.repeat(form.configurations, len(form.placements), axis=0)
        where = np.tile(form.placements, (len(form.configurations), 1))
        self.latency = make(np.concatenate([rows, where], axis=1))

    def learn(self, plan: int, found: Measured) -> None:
        """Update both processes."""
        self.beliefs.observe(found)
        if found.verdict is Verdict.SET_ASIDE:
            return
        k = plan % len(self.form.placements)
        latency = float(self.form.at_full(found)[k])
        self.latency.add(plan, float(np.log(max(latency, 1e-9))))

    def next(self) -> int:
        """The open plan of the highest utility."""
        if not self.beliefs.measured:
            return self.first()
        mean, sd = self.latency.posterior()
        in_time = normal_below((np.log(self.form.limit_s) - mean) / sd)
        likely = np.repeat(self.beliefs.passes(), len(self.form.placements)) * in_time
        if self.improving and np.isfinite(self.best_value):
            full = np.tile(self.form.full_price, len(self.form.configurations))
            score = likely * np.maximum(self.best_value - FULL_SHARE_LIKELY * full, LEAST_GAIN_CI)
        else:
            cost = self.beliefs.to_measure(self.beliefs.predicted())
            cost = np.maximum(cost, max(LEAST_COST_SHARE * cost.mean(), LEAST_COST_S))
            score = likely / np.repeat(cost, len(self.form.placements))
        return int(np.argmax(np.where(self.open, score, -1.0)))


class CmboCiSearch(CmboSearch):
    """CMBO that looks for cheaper plans once it has one."""

    improving: ClassVar[bool] = True


class StructSearch(BlackBoxSearch):
    """Latency from what is believed of each operator; measuring a configuration settles all its placements."""

    whole: ClassVar[bool] = True
    by_cost: ClassVar[bool] = False

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        self.beliefs = Beliefs(form, make)
        for found in form.old:
            self.beliefs.recall(found, form.drift)
        self.votes = Votes(form, make) if form.past else None

    def first(self) -> int:
        """The middle of the grid, which is nearest to everything; then any."""
        form = self.form
        far = np.abs(form.configurations - (np.array(form.levels) - 1) / 2).sum(axis=1)
        middle = int(np.argmin(far)) * len(form.placements)
        return middle if not self.observed and self.open[middle] else super().first()

    @property
    def warm(self) -> bool:
        """Old measurements or past queries tell where to begin."""
        return bool(self.form.old) or self.votes is not None

    def learn(self, plan: int, found: Measured) -> None:
        """Update what is believed of accuracy and of every operator."""
        del plan
        if self.votes is not None:
            self.votes.judge(self.beliefs, found)
        self.beliefs.observe(found)

    def next(self) -> int:
        """The open plan of the best score."""
        if not (self.beliefs.measured or self.warm):
            return self.first()
        if self.votes is None:
            predicted = self.beliefs.predicted()
            latency, in_time = self.beliefs.latency(predicted)
            likely = self.beliefs.passes()[:, None] * in_time
        else:
            predicted, latency, likely = self.votes.joined(self.beliefs)
        if not self.form.aim.cheapest:
            score = likely * self._gain(predicted, latency)
        elif self.by_cost:
            reference = self.best_value if np.isfinite(self.best_value) else REFERENCE * self.form.dearest
            score = likely * np.maximum(reference - estimated_cost(self.form, predicted, latency), LEAST_GAIN)
        else:
            cost = self.beliefs.to_measure(predicted)
            score = likely / np.maximum(cost, max(LEAST_COST_SHARE * cost.mean(), LEAST_COST_S))[:, None]
        return int(np.argmax(np.where(self.open, score.ravel(), -1.0)))

    def _gain(self, predicted: Predicted, latency: Vector) -> Vector:
        """By how much each plan is expected to be better than the best so far, in what is sought; see the module."""
        form, aim = self.form, self.form.aim
        mean, sd = self.beliefs.accuracy.posterior()
        if len(aim.of) > 1:
            return self._front_gain(predicted, latency, mean + sd)
        likely = _affordable(form, estimated_cost(form, predicted, latency))
        if "quality" in aim.of:
            best = -self.best_value if np.isfinite(self.best_value) else float(mean.min())
            return likely * np.maximum(expected_improvement(mean, sd, best), LEAST_GAIN * LEAST_GAIN)[:, None]
        fast = _paid_for(form, predicted, latency)
        reference = self.best_value if np.isfinite(self.best_value) else REFERENCE * float(fast.max())
        return likely * np.maximum(reference - fast, LEAST_GAIN * reference)

    def _front_gain(self, predicted: Predicted, latency: Vector, hoped: Vector) -> Vector:
        """The gain of one weighted sum of the figures, weights drawn anew at every step, over the front's best of it.

        Where cost and latency are both sought, all shares are cut alike, to one drawn from the grid.
        """
        form, of = self.form, self.form.aim.of
        weights = self.random.dirichlet(np.ones(len(of)))
        share = float(self.random.choice(form.placed.shares)) if "latency" in of else 1.0
        cost, slow = estimated_cost(form, predicted, latency), latency
        if "latency" in of:
            paid = _paid_seconds(form, predicted)
            slow = latency + paid * (1.0 / share - 1.0)
            cost = form.paid_at(predicted.seconds, share) + calls_of(form)
        figures = {"quality": np.broadcast_to(-hoped[:, None], slow.shape), "cost": cost, "latency": slow}
        known = np.array([row for _, row in self._front]).reshape(-1, len(of))
        score, best = np.zeros(slow.shape), np.zeros(len(known))
        for k, name in enumerate(of):
            low, high = float(figures[name].min()), float(figures[name].max())
            if len(known):
                low, high = min(low, float(known[:, k].min())), max(high, float(known[:, k].max()))
            unit = max(high - low, 1e-12)
            score = np.maximum(score, weights[k] * (figures[name] - low) / unit)
            best = np.maximum(best, weights[k] * (known[:, k] - low) / unit)
        in_time = np.where(slow <= form.limit_s, 1.0, LEAST_GAIN)
        return _affordable(form, cost) * in_time * np.maximum(float(best.min(initial=1.0)) - score, LEAST_GAIN)

    def chance(self) -> float | None:
        """By draws of the accuracies that could, together; all others are taken as independent."""
        process = self.beliefs.accuracy
        if len(self.form.aim.of) < 2 or not self._front or not isinstance(process, LightProcess) or not process.at:
            return None
        bar = self._bars()
        bar[list(self.form.journal)] = np.inf
        mean, sd = process.posterior()
        above = (mean - bar) / (WIDER * sd)
        near = np.argsort(-above, kind="stable")[:DRAWN_TOGETHER]
        near = near[np.isfinite(bar[near])]
        far = np.setdiff1d(np.flatnonzero(np.isfinite(bar)), near)
        alone = float(np.exp(np.log(np.maximum(normal_below(-above[far]), 1e-300)).sum()))
        if not near.size:
            return TRUST * alone
        centre, spread = process.joint(near)
        values, vectors = np.linalg.eigh(spread)
        root = WIDER * vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = centre + np.random.default_rng(0).standard_normal((DRAWS, near.size)) @ root.T
        return TRUST * alone * float((drawn <= bar[near]).all(axis=1).mean())

    def _bars(self) -> Vector:
        """Per configuration the accuracy above which it would extend the front, at one of its placements and shares.

        Seconds are taken as believed; a placement up to `SLACK` late may be in time.
        """
        form, of = self.form, self.form.aim.of
        predicted = self.beliefs.predicted()
        latency, _ = self.beliefs.latency(predicted)
        known = np.array([row for _, row in self._front])
        slack = SLACK * np.maximum(np.ptp(known, axis=0), 1e-9)
        paid, least = _paid_seconds(form, predicted), form.orient(form.target)
        bar = np.full(len(form.configurations), np.inf)
        for share in form.placed.shares if "latency" in of else (1.0,):
            slow = latency + paid * (1.0 / share - 1.0) if "latency" in of else latency
            # Where queries wait, the least that so many of them may cost: no estimate that could be above it.
            cost = form.paid_at(predicted.seconds, share if "latency" in of else min(form.placed.shares)) + calls_of(
                form
            )
            cost = cost if "latency" in of or form.queued else estimated_cost(form, predicted, latency)
            figures = {"cost": np.broadcast_to(cost, slow.shape), "latency": slow}
            here = np.full(slow.shape, least)
            for row in known:
                others = [k for k, name in enumerate(of) if name != "quality"]
                beaten = np.logical_and.reduce([row[k] - slack[k] <= figures[of[k]] for k in others])
                above = -row[of.index("quality")] + slack[of.index("quality")] if "quality" in of else np.inf
                here = np.where(beaten, np.maximum(here, above), here)
            fits = (slow <= form.limit_s * (1 + SLACK)) & (figures["cost"] <= form.aim.budget)
            bar = np.minimum(bar, np.where(fits, here, np.inf).min(axis=1))
        return bar


class StructCiSearch(StructSearch):
    """The default: expected saving against the best plan so far."""

    by_cost: ClassVar[bool] = True


def estimated_cost(form: BlackBox, predicted: Predicted, latency: Vector) -> Vector:
    """The price per hour that each (configuration, placement) would come to with shares cut down."""
    price = form.price
    scales = np.array([operator.by_share for operator in form.operators])
    time = form.placed.relative_time[form.placements]
    root = np.sqrt(predicted.seconds) @ np.sqrt(price * time * scales).T
    left = form.limit_s - (latency - _paid_seconds(form, predicted))
    full = form.full_price[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(left > 0, root**2 / left, np.inf)
    cut = np.clip(cost, min(form.placed.shares) * full, full)
    return np.asarray(cut + form.carried(predicted.seconds) + calls_of(form))


def calls_of(form: BlackBox) -> Vector:
    """What the calls of every (configuration, placement) cost per hour; nothing of those that are not open."""
    return np.where(np.isfinite(form.called_all), form.called_all, 0.0)


def _affordable(form: BlackBox, cost: Vector) -> Vector:
    """The probability that an estimated cost is within the budget: grids of shares make it miss by some."""
    if np.isinf(form.aim.budget):
        return np.ones_like(cost)
    return normal_below((form.aim.budget - cost) / (COST_SPREAD * max(form.aim.budget, 1e-9)))


def _paid_seconds(form: BlackBox, predicted: Predicted) -> Vector:
    """Per plan the seconds at whole devices of operators whose shares are paid for and count."""
    scales = np.array([operator.by_share for operator in form.operators])
    time = form.placed.relative_time[form.placements]
    return np.asarray(predicted.seconds @ (time * (form.price > 0) * scales).T)


def _paid_for(form: BlackBox, predicted: Predicted, latency: Vector) -> Vector:
    """The latency of each plan with the shares that the budget pays for."""
    if np.isinf(form.aim.budget):
        return latency
    scales = np.array([operator.by_share for operator in form.operators])
    time = form.placed.relative_time[form.placements]
    root = np.sqrt(predicted.seconds) @ np.sqrt(form.price * time * scales).T
    paid = _paid_seconds(form, predicted)
    return np.asarray(latency + np.maximum(root**2 / max(form.aim.budget, 1e-9) - paid, 0.0))


class Cmbo(BlackBoxEngine):
    """The paper's search."""

    name: ClassVar[str] = "cmbo"
    search: ClassVar[type[BlackBoxSearch]] = CmboSearch


class CmboCi(BlackBoxEngine):
    """The paper's search, then by cost."""

    name: ClassVar[str] = "cmbo-ci"
    search: ClassVar[type[BlackBoxSearch]] = CmboCiSearch


class Struct(BlackBoxEngine):
    """By operators, per second of measuring."""

    name: ClassVar[str] = "struct"
    any_aim: ClassVar[bool] = True
    search: ClassVar[type[BlackBoxSearch]] = StructSearch


class StructCi(BlackBoxEngine):
    """By operators and expected saving: the default."""

    name: ClassVar[str] = "struct-ci"
    any_aim: ClassVar[bool] = True
    search: ClassVar[type[BlackBoxSearch]] = StructCiSearch


class RandomSearch(BlackBoxSearch):
    """Any open plan."""

    def next(self) -> int:
        """Another one at random."""
        return self.first()


class RandomPlans(BlackBoxEngine):
    """At random."""

    name: ClassVar[str] = "random-plans"
    any_aim: ClassVar[bool] = True
    search: ClassVar[type[BlackBoxSearch]] = RandomSearch
