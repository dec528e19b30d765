r"""Warm start: models of past queries of the same operators vote while this query's own model is young.

Each past query h has beliefs of its own. Per objective (accuracy, seconds) its gap is the mean of |z - mu_h(x)| / s on
this query's points, predicted before anything is updated, s the deviation of past outcomes; its weight is
1 / (0.05 + gap). The best K by weight vote: `soft` means the weighted mean of their probabilities, `hard` one vote each
for its best plan. The own model takes an objective over once it is mature: three points, and its one-step-ahead gap
over the last five below the best gap of the past. That is judged anew at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict
from hetplan.solvers.search_models import Beliefs, Predicted

if TYPE_CHECKING:
    from hetplan.solvers.search_models import MakeProcess

__all__ = ["Votes"]

Vector = NDArray[np.float64]

WEIGHT_FLOOR = 0.05
MATURE_AFTER = 3
RECENT = 5


@dataclass
class _Model:
    """A past query: what it believes of every configuration, and how far off it was here."""

    passes: Vector
    accuracy: Vector
    seconds: Vector
    predicted: Predicted
    in_time: Vector
    latency: Vector
    gaps: dict[str, list[float]] = field(default_factory=lambda: {"accuracy": [], "seconds": []})

    def gap(self, objective: str) -> float:
        """The mean so far; 1 - WEIGHT_FLOOR before anything is known, so that all weights are 1."""
        return float(np.mean(self.gaps[objective])) if self.gaps[objective] else 1.0 - WEIGHT_FLOOR


class Votes:
    """The past queries of one search."""

    def __init__(self, form: BlackBox, make: MakeProcess) -> None:
        self.form = form
        self.models: list[_Model] = []
        outcomes: dict[str, list[float]] = {"accuracy": [], "seconds": []}
        for past in form.past:
            beliefs = Beliefs(form, make)
            for found in past.found:
                beliefs.observe(found)
            if not beliefs.measured:
                continue
            predicted = beliefs.predicted()
            latency, in_time = beliefs.latency(predicted)
            self.models.append(
                _Model(beliefs.passes(), beliefs.accuracy.posterior()[0], np.log(predicted.seconds.sum(axis=1)),
                       predicted, in_time, latency)
            )  # fmt: skip
            for found in beliefs.measured.values():
                outcomes["accuracy"].append(form.orient(found.mean))
                outcomes["seconds"].append(float(np.log(sum(found.seconds))))
        self.spread = {name: max(float(np.std(values)), 1e-6) if values else 1.0 for name, values in outcomes.items()}
        self.own: dict[str, list[float]] = {"accuracy": [], "seconds": []}

    def judge(self, beliefs: Beliefs, found: Measured) -> None:
        """How far off everybody was on a new point, before it is learned."""
        if found.verdict is Verdict.SET_ASIDE or found.configuration in beliefs.measured:
            return
        c = found.configuration
        truth = {"accuracy": self.form.orient(found.mean), "seconds": float(np.log(sum(found.seconds)))}
        for model in self.models:
            model.gaps["accuracy"].append(abs(truth["accuracy"] - model.accuracy[c]) / self.spread["accuracy"])
            model.gaps["seconds"].append(abs(truth["seconds"] - model.seconds[c]) / self.spread["seconds"])
        if beliefs.measured:
            mine = beliefs.accuracy.posterior()[0][c]
            time = float(np.log(beliefs.predicted().seconds[c].sum()))
            self.own["accuracy"].append(abs(truth["accuracy"] - mine) / self.spread["accuracy"])
            self.own["seconds"].append(abs(truth["seconds"] - time) / self.spread["seconds"])

    def mature(self, objective: str) -> bool:
        """Whether this query's own model is better than the past."""
        own = self.own[objective]
        if not self.models or len(own) + 1 < MATURE_AFTER:
            return not self.models
        best = min(model.gap(objective) for model in self._best(objective))
        return float(np.mean(own[-RECENT:])) < best

    def joined(self, beliefs: Beliefs) -> tuple[Predicted, Vector, Vector]:
        """What is believed of seconds, latency, and the probability that a plan meets both targets."""
        own = bool(beliefs.measured)
        if own and self.mature("accuracy"):
            passes = beliefs.passes()
        else:
            passes = self._mean("accuracy", [model.passes for model in self._best("accuracy")])
        if own and self.mature("seconds"):
            predicted = beliefs.predicted()
            latency, in_time = beliefs.latency(predicted)
        else:
            voters = self._best("seconds")
            predicted, latency = voters[0].predicted, voters[0].latency
            in_time = self._mean("seconds", [model.in_time for model in voters])
        likely = passes[:, None] * in_time
        return predicted, latency, self._as_votes(likely) if self.form.hard_votes else likely

    def _best(self, objective: str) -> list[_Model]:
        return sorted(self.models, key=lambda model: model.gap(objective))[: self.form.past_models]

    def _mean(self, objective: str, given: list[Vector]) -> Vector:
        weights = np.array([1.0 / (WEIGHT_FLOOR + model.gap(objective)) for model in self._best(objective)])
        return np.asarray(np.tensordot(weights / weights.sum(), np.stack(given), axes=1))

    def _as_votes(self, likely: Vector) -> Vector:
        """One vote of its weight per model, for its best plan; what nobody votes for keeps a thousandth of its odds."""
        votes = np.zeros(likely.size)
        accuracy = {id(model): model for model in self._best("accuracy")}
        for model in self._best("seconds"):
            weight = 1.0 / (WEIGHT_FLOOR + model.gap("seconds"))
            own = accuracy.get(id(model), model)
            votes[int(np.argmax(own.passes[:, None] * model.in_time))] += weight
        return votes.reshape(likely.shape) + 1e-3 * likely
