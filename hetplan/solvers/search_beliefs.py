r"""What a search believes of configurations that it has not measured, from this query and from past ones.

`Beliefs`: accuracy is one process over configurations. Seconds (on the reference) and bytes are processes of their
logarithms, one per operator over the knobs that it reads: far fewer settings than configurations. Latency of any
placement follows by the form's arithmetic, with sd_log = sqrt(sum (t_o sd_o)^2) / sum t_o + 0.02.

`Votes`, a warm start: models of past queries of the same operators vote while this query's own model is young. Each
past query h has beliefs of its own. Per objective (accuracy, seconds) its gap is the mean of |z - mu_h(x)| / s on this
query's points, predicted before anything is updated, s the deviation of past outcomes; its weight is 1 / (0.05 + gap).
The best K by weight vote: `soft` means the weighted mean of their probabilities, `hard` one vote each for its best
plan. The own model takes an objective over once it is mature: three points, and its one-step-ahead gap over the last
five below the best gap of the past. That is judged anew at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict
from hetplan.solvers.gaussian_process import LightProcess, Process, normal_below

__all__ = ["Beliefs", "MakeProcess", "Predicted", "Votes"]


Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
MakeProcess = Callable[..., Process]

LATENCY_SPREAD = 0.02
ACCURACY_SPREAD = 0.2
LOG_SPREAD = 1.0
FIRST_SAMPLES = 100.0


@dataclass(frozen=True)
class Predicted:
    """Per configuration: seconds and bytes of every operator with the deviations of the seconds' logarithms."""

    seconds: Vector
    spread: Vector
    bytes_out: Vector
    bytes_in: Vector


class Beliefs:
    """The processes of one query, fed with what is measured; `by_order` uses that levels have one, where they do."""

    def __init__(self, form: BlackBox, make: MakeProcess = LightProcess, *, by_order: bool = True) -> None:
        self.form = form
        ordered = np.zeros(len(form.levels), dtype=bool)
        if by_order:
            ordered[: len(form.ordered)] = form.ordered
        self.accuracy = make(form.configurations, ordered, expected=ACCURACY_SPREAD)
        self.measured: dict[int, Measured] = {}
        self.samples: list[int] = []
        self.tails: list[float] = []
        self._settings: list[Integers] = []
        self._of: list[Integers] = []
        self._prefix: list[Integers] = []
        for number, operator in enumerate(form.operators):
            settings, of = _distinct(form.configurations[:, list(operator.reads)])
            self._settings.append(settings)
            self._of.append(of)
            self._prefix.append(_distinct(form.configurations[:, sorted(_ancestors(form, number))])[1])
        count = len(form.operators)
        of_reads = [ordered[list(operator.reads)] for operator in form.operators]
        pairs = list(zip(self._settings, of_reads, strict=True))
        self._seconds = [make(settings, reads, expected=LOG_SPREAD) for settings, reads in pairs]
        self._bytes = [make(settings, reads, expected=LOG_SPREAD) for settings, reads in pairs]
        self._bytes_in = make(*pairs[0], expected=LOG_SPREAD)
        self._known: list[set[int]] = [set() for _ in range(count)]
        self._cached = [np.zeros(int(prefix.max(initial=0)) + 1, dtype=bool) for prefix in self._prefix]

    def observe(self, found: Measured) -> None:
        """Learn from a measured configuration; one that was set aside teaches nothing."""
        c = found.configuration
        if found.verdict is Verdict.SET_ASIDE or c in self.measured:
            return
        self.measured[c] = found
        self.accuracy.add(c, self.form.orient(found.mean), found.se**2)
        self.samples.append(found.samples)
        self.tails.append(_tail(self.form, found))
        self._learn_operators(found, cached=True)

    def _learn_operators(self, found: Measured, *, cached: bool) -> None:
        c = found.configuration
        for o in range(len(self.form.operators)):
            setting = int(self._of[o][c])
            self._cached[o][self._prefix[o][c]] |= cached
            if setting in self._known[o] or found.made[o] == 0.0:
                continue
            self._known[o].add(setting)
            self._seconds[o].add(setting, float(np.log(max(found.seconds[o], 1e-9))))
            self._bytes[o].add(setting, float(np.log(max(found.bytes_out[o], 1.0))))
            if o == 0:
                self._bytes_in.add(setting, float(np.log(max(found.bytes_in, 1.0))))

    def recall(self, found: Measured, drift: float) -> None:
        """Believe an old measurement with less certainty; what operators take is taken as it was."""
        if found.verdict is Verdict.SET_ASIDE:
            return
        self.accuracy.add(found.configuration, self.form.orient(found.mean), found.se**2 + drift**2)
        self._learn_operators(found, cached=False)

    def predicted(self) -> Predicted:
        """Of every configuration; where it was measured, as measured."""
        seconds, spread, sizes = [], [], []
        for o in range(len(self.form.operators)):
            mean, sd = self._seconds[o].posterior()
            seconds.append(np.exp(mean)[self._of[o]])
            known = np.zeros(mean.size, dtype=bool)
            known[list(self._known[o])] = True
            spread.append(np.where(known, 0.0, sd)[self._of[o]])
            sizes.append(np.exp(self._bytes[o].posterior()[0])[self._of[o]])
        arrives = np.exp(self._bytes_in.posterior()[0])[self._of[0]]
        found = Predicted(np.stack(seconds, axis=1), np.stack(spread, axis=1), np.stack(sizes, axis=1), arrives)
        for c, measured in self.measured.items():
            found.seconds[c], found.spread[c] = measured.seconds, 0.0
            found.bytes_out[c], found.bytes_in[c] = measured.bytes_out, measured.bytes_in
        return found

    def passes(self) -> Vector:
        """The probability that each configuration's accuracy meets the target."""
        mean, sd = self.accuracy.posterior()
        return normal_below((mean - self.form.orient(self.form.target)) / sd)

    def latency(self, predicted: Predicted) -> tuple[Vector, Vector]:
        """Seconds end to end per (configuration, placement) with whole devices, and the probability to be in time."""
        form = self.form
        latency = form.latency_s(predicted.seconds, predicted.bytes_out, predicted.bytes_in)
        latency = latency * (float(np.mean(self.tails)) if self.tails else 1.0)
        time = form.placed.relative_time[form.placements]
        weighted = (predicted.spread**2 * predicted.seconds**2) @ (time**2).T
        spread = np.sqrt(weighted) / np.maximum(predicted.seconds @ time.T, 1e-12) + LATENCY_SPREAD
        return latency, normal_below((np.log(form.limit_s) - np.log(np.maximum(latency, 1e-12))) / spread)

    def to_measure(self, predicted: Predicted) -> Vector:
        """Per configuration the reference seconds that measuring it would take, after what is cached."""
        expected = float(np.mean(self.samples)) if self.samples else FIRST_SAMPLES
        left = np.stack([~self._cached[o][self._prefix[o]] for o in range(len(self.form.operators))], axis=1)
        return np.asarray(expected * (predicted.seconds * left).sum(axis=1))


def _tail(form: BlackBox, found: Measured) -> float:
    """By how much the latency that is judged (a percentile) exceeds that of the mean sample."""
    if found.runs is None:
        return 1.0
    mean = form.latency_s(np.array([found.seconds]), np.array([found.bytes_out]), np.array([found.bytes_in]))[0]
    here = np.isfinite(form.called(found.configuration))
    whole = form.at_full(found)[here] / np.maximum(mean[here], 1e-12)
    return float(np.median(whole)) if np.isfinite(whole).all() else 1.0


def _distinct(rows: Integers) -> tuple[Integers, Integers]:
    """The distinct rows, and which one each row is."""
    if rows.shape[1] == 0:
        return np.zeros((1, 1), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    settings, of = np.unique(rows, axis=0, return_inverse=True)
    return settings, of.ravel().astype(np.int64)


def _ancestors(form: BlackBox, number: int) -> set[int]:
    """The knobs that an operator and all before it read."""
    knobs = set(form.operators[number].reads)
    for before in form.operators[number].after:
        knobs |= _ancestors(form, before)
    return knobs


WEIGHT_FLOOR = 0.05
MATURE_AFTER = 3
RECENT = 5
PAST_MODELS = 10
"""Models of past queries that a search listens to: those that were nearest to what was measured."""


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
        return predicted, latency, likely

    def _best(self, objective: str) -> list[_Model]:
        return sorted(self.models, key=lambda model: model.gap(objective))[:PAST_MODELS]

    def _mean(self, objective: str, given: list[Vector]) -> Vector:
        weights = np.array([1.0 / (WEIGHT_FLOOR + model.gap(objective)) for model in self._best(objective)])
        return np.asarray(np.tensordot(weights / weights.sum(), np.stack(given), axes=1))
