r"""Bayesian searches of compound plans: the paper's CMBO, and the default built on what operators tell.

::

    cmbo       U = Pr[f_a >= A] Pr[f_l' <= L] / C        one process for log latency over (configuration, placement)
    cmbo-ci    the same; after the first compliant plan 1/C becomes max(best - 0.4 full price, 1e-3)
    struct     U with latency from seconds and bytes per operator, placed by arithmetic
    struct-ci  Pa Pl max(ref - cost, 1e-4)               cost estimated from the time that the target leaves

C is what measuring would take of the reference after what is cached. The estimated cost of a plan with
S = L - transfers - compute on free tiers is (sum_o sqrt(price_o c_o))^2 / S, kept within an eighth of and the full
price; ref is the best cost so far, before that 1.3 times the dearest full price. That levels in numbers have an order
is used by `struct` alone; `cmbo` keeps the paper's Hamming distance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict
from hetplan.solvers.search_engine import Search, SearchEngine
from hetplan.solvers.search_gp import LightProcess
from hetplan.solvers.search_history import Votes
from hetplan.solvers.search_models import Beliefs, Predicted, normal_below

if TYPE_CHECKING:
    from hetplan.solvers.search_models import MakeProcess

__all__ = ["Cmbo", "CmboCi", "CmboSearch", "Struct", "StructCi", "StructSearch"]

Vector = NDArray[np.float64]

LEAST_GAIN = 1e-4
LEAST_GAIN_CI = 1e-3
FULL_SHARE_LIKELY = 0.4
REFERENCE = 1.3
LEAST_COST_SHARE = 0.5
LEAST_COST_S = 1e-9
"""A configuration whose samples are all cached still counts for this share of the mean cost: a step is not free."""


class CmboSearch(Search):
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
        if self.improving and np.isfinite(self.best_cost):
            full = np.tile(self.form.full_price, len(self.form.configurations))
            score = likely * np.maximum(self.best_cost - FULL_SHARE_LIKELY * full, LEAST_GAIN_CI)
        else:
            cost = self.beliefs.to_measure(self.beliefs.predicted())
            cost = np.maximum(cost, max(LEAST_COST_SHARE * cost.mean(), LEAST_COST_S))
            score = likely / np.repeat(cost, len(self.form.placements))
        return int(np.argmax(np.where(self.open, score, -1.0)))


class CmboCiSearch(CmboSearch):
    """CMBO that looks for cheaper plans once it has one."""

    improving: ClassVar[bool] = True


class StructSearch(Search):
    """Latency from what is believed of each operator; measuring a configuration settles all its placements."""

    whole: ClassVar[bool] = True
    by_cost: ClassVar[bool] = False

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        self.beliefs = Beliefs(form, make)
        for found in form.old:
            self.beliefs.recall(found, form.drift)
        self.votes = Votes(form, make) if form.past and form.past_models else None

    def first(self) -> int:
        """The middle of the grid, which is nearest to everything; then any."""
        form = self.form
        far = np.abs(form.configurations - (np.array(form.levels) - 1) / 2).sum(axis=1)
        middle = int(np.argmin(far)) * len(form.placements)
        return middle if not self.told and self.open[middle] else super().first()

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
        if self.by_cost:
            reference = self.best_cost if np.isfinite(self.best_cost) else REFERENCE * float(self.form.full_price.max())
            score = likely * np.maximum(reference - estimated_cost(self.form, predicted, latency), LEAST_GAIN)
        else:
            cost = self.beliefs.to_measure(predicted)
            score = likely / np.maximum(cost, max(LEAST_COST_SHARE * cost.mean(), LEAST_COST_S))[:, None]
        return int(np.argmax(np.where(self.open, score.ravel(), -1.0)))


class StructCiSearch(StructSearch):
    """The default: expected saving against the best plan so far."""

    by_cost: ClassVar[bool] = True


def estimated_cost(form: BlackBox, predicted: Predicted, latency: Vector) -> Vector:
    """The price per hour that each (configuration, placement) would come to with shares cut down."""
    price = form.price
    scales = np.array([operator.by_share for operator in form.operators])
    time = form.placed.relative_time[form.placements]
    root = np.sqrt(predicted.seconds) @ np.sqrt(price * time * scales).T
    paid = predicted.seconds @ (time * (price > 0) * scales).T
    left = form.limit_s - (latency - paid)
    full = form.full_price[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(left > 0, root**2 / left, np.inf)
    return np.asarray(np.clip(cost, min(form.placed.shares) * full, full))


class Cmbo(SearchEngine):
    """The paper's search."""

    name: ClassVar[str] = "cmbo"
    search: ClassVar[type[Search]] = CmboSearch


class CmboCi(SearchEngine):
    """The paper's search, then by cost."""

    name: ClassVar[str] = "cmbo-ci"
    search: ClassVar[type[Search]] = CmboCiSearch


class Struct(SearchEngine):
    """By operators, per second of measuring."""

    name: ClassVar[str] = "struct"
    search: ClassVar[type[Search]] = StructSearch


class StructCi(SearchEngine):
    """By operators and expected saving: the default."""

    name: ClassVar[str] = "struct-ci"
    search: ClassVar[type[Search]] = StructCiSearch
