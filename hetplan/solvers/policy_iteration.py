r"""Modified policy iteration: the best policy of whatever decision process offers its sweeps.

A decision process is in one of finitely many states s. An action a that is open there makes a "pair" with it: it earns
r(s, a), weighs w(s, a) (1 where nothing is said), and leads to state s' with probability P(s' | s, a). A policy p
chooses an action for every state. Policies are judged by one of

    average     reward per decision, in the long run
    ratio       reward per unit of weight, in the long run: E[r] / E[w]
    discounted  the sum of all rewards, those one decision later worth `discount` times as much
    horizon     the sum of the rewards of so many decisions

Operators. At a price g per unit of weight, and with values v of where a decision leads,

    (T_p v)(s) = r(s, p(s)) - g w(s, p(s)) + sum_s' P(s' | s, p(s)) v(s')         of a policy ("follow")
    (T v)(s)   = the most of that over all actions of s                           of the best ("improve")
    (P_p' m)   = where a distribution m over states is one decision later         ("push")

These three are all that is asked of a process (`Sweeps`): the structured engine for queues has no matrix at all.

Average. Every policy is to come back to one state, the reference. Then some g* and relative values h solve
h + g* = T h, and a policy that attains the maximum is best. Any v at all encloses g*::

    min (T v - v)  <=  g*  <=  max (T v - v)

so iteration ends when that span is below `SPAN`, and what it says can be proved again from v alone. *Value iteration*
repeats v <- T v: cheap, and slow where a process forgets slowly. *Policy iteration* solves h + rho = T_p h for each
policy: few rounds, each a system of equations. Modified policy iteration is between the two: `EVALUATIONS` sweeps of
the current policy after each improvement. The reference is kept at 0, so that values do not grow.

Near overload a queue may stay empty or full for thousands of decisions on end, and with many workers arrivals are
almost regular: sweeps crawl. After `PATIENCE` improvements policies are therefore evaluated exactly, and their
distributions found, by GMRES on the same sweeps: h - P_p h + rho = r_p - g w_p with h(reference) = 0.

Ratio (Dinkelbach). The best ratio is the g at which the best average of r - g w is 0. From the ratio of any policy

    g <- E_p[r] / E_p[w]     under the stationary distribution of the policy p that is best for r - g w

rises to it; values and distribution start warm, and rounds end when g moves by less than 1e-10. No policy does better
than g + max(0, max (T v - v)) / (the least weight).

Discounted. T contracts, and the best value is between v + min (T v - v) / (1 - discount) and the same of the maximum.
Whatever is common to all states is so known to the end; only the span of T v - v has to shrink.

Horizon. v_0 = 0, v_{k+1} = T v_k; the answer is the first decision of so many.

References: M. Puterman, Markov Decision Processes (1994), chapters 6 and 8; W. Dinkelbach, On nonlinear fractional
programming, Management Science 13 (1967); J. MacQueen, A modified dynamic programming method for Markovian decision
problems, Journal of Mathematical Analysis and Applications 14 (1966), for the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.queue_process import Criterion

__all__ = ["Iteration", "Solved", "Sweeps"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
X = TypeVar("X")

EVALUATIONS = 8
"""Sweeps of the current policy between two improvements: a sweep of one policy costs a fraction of one of all."""
PATIENCE = 4
"""Improvements after which a policy is evaluated exactly."""
SPAN = 1e-9
"""How much between the bounds of an average, or of a discounted sum, is left open."""
RATIO = 1e-10
"""By how much a ratio may still move in the last round."""
SETTLED = 1e-13
"""A stationary distribution is taken for found when a step moves less mass than this."""
MOST_SWEEPS = 20_000
"""Sweeps at most where no limit says otherwise."""
PATIENT_PUSHES = 50
"""Steps of a distribution after which it is found by GMRES."""


class Sweeps(Protocol):
    """What a process must offer to be iterated."""

    @property
    def states(self) -> int:
        """How many states."""
        ...

    @property
    def reference(self) -> int:
        """A state that every policy comes back to."""
        ...

    def improve(self, values: Floats, gain: float) -> tuple[Floats, Integers]:
        """The best of all actions under the future `values`, and the first that attains it."""
        ...

    def follow(self, values: Floats, chosen: Integers, gain: float) -> Floats:
        """The worth of the chosen actions."""
        ...

    def push(self, mass: Floats, chosen: Integers) -> Floats:
        """Where a distribution is one decision later."""
        ...

    def earned(self, mass: Floats, chosen: Integers) -> tuple[float, float]:
        """Expected reward and weight of a decision under a distribution over states."""
        ...


class Judged(Protocol):
    """What a form says of how its policies are judged."""

    @property
    def criterion(self) -> Criterion:
        """Average, discounted or horizon."""
        ...

    @property
    def discount(self) -> float:
        """What a reward is worth one decision later."""
        ...

    @property
    def horizon(self) -> int:
        """How many decisions there are."""
        ...


@dataclass
class Solved:
    """What an iteration ends with; `values` are those whose residual lies in [least, most]."""

    chosen: Integers
    values: Floats
    gain: float
    least: float
    most: float
    stop: Stop
    stationary: Floats | None = None


@dataclass
class Iteration:
    """One run: what it may spend, and what it has spent."""

    sweeps: Sweeps
    limits: Limits
    on_event: Callable[[Event], None] | None = None
    work: dict[str, float] = field(
        default_factory=lambda: {"sweeps": 0.0, "evaluations": 0.0, "pushes": 0.0, "rounds": 0.0}
    )

    def __post_init__(self) -> None:
        self._started = time.monotonic()

    def best(
        self, form: Judged, *, read: Callable[[Integers], X], engine: str,
        ratio_from: Integers | None, least_weight: float,
    ) -> Answer[X]:  # fmt: skip
        """The best policy by the form's criterion, with what proves it; `read` says a choice in the form's words.

        `ratio_from` is a policy to begin with where averages are per unit of weight; None where they are per decision.
        """
        base, bound = self.sweeps.reference, None
        if form.criterion is Criterion.HORIZON:
            solved = self.horizon(form.horizon)
            value = bound = float(solved.values[base])
        elif form.criterion is Criterion.DISCOUNTED:
            solved = self.discounted(form.discount)
            worth, scale = float(solved.values[base]), 1.0 / (1.0 - form.discount)
            value, bound = worth + 0.5 * (solved.least + solved.most) * scale, worth + solved.most * scale
        elif ratio_from is None:
            solved = self.average(np.zeros(self.sweeps.states))
            solved.stationary = self.stationary(solved.chosen)
            value, bound = self._ratio(solved.stationary, solved.chosen), solved.most
        else:
            solved = self.ratio(ratio_from)
            value = solved.gain
            if least_weight > 0:
                bound = value + max(solved.most, 0.0) / least_weight
        proof: dict[str, object] = {"values": solved.values, "gain": solved.gain}
        if solved.stationary is not None:
            proof["stationary"] = solved.stationary
        return Answer(
            status=Status.OPTIMAL if solved.stop is Stop.FINISHED else Status.FEASIBLE,
            stop=solved.stop,
            point=read(solved.chosen),
            value=value,
            bound=bound,
            proof=proof,
            work=self.work,
            engine=engine,
            deterministic=solved.stop in (Stop.FINISHED, Stop.WORK),
        )

    def average(self, values: Floats, gain: float = 0.0, span: float = SPAN) -> Solved:
        """The best policy for the rewards r - gain w, to a span."""
        tries = 0
        while True:
            result, chosen = self.sweeps.improve(values, gain)
            self.work["sweeps"] += 1
            change = result - values
            least, most = float(change.min()), float(change.max())
            stop = Stop.FINISHED if most - least < span else self._stop_reason()
            if stop is not None:
                return Solved(chosen, values, gain, least, most, stop)
            tries += 1
            if tries > PATIENCE:
                values = self._evaluate(chosen, gain, result)
                continue
            values = self._pin(result)
            for _ in range(EVALUATIONS):
                values = self._pin(self.sweeps.follow(values, chosen, gain))
            self.work["evaluations"] += EVALUATIONS

    def ratio(self, chosen: Integers) -> Solved:
        """The best policy for E[r] / E[w], from the ratio of some policy upwards.

        Never from above the best ratio: there every reward is a loss, and a policy does best by lingering where queues
        are full.
        """
        mass = self.stationary(chosen, settled=1e-6)
        gain = self._ratio(mass, chosen)
        values = np.zeros(self.sweeps.states)
        # Early rounds only have to move g the right way: they are as exact as g is wrong.
        span = 1e-4
        while True:
            solved = self.average(values, gain, span)
            self.work["rounds"] += 1
            last = span <= SPAN or solved.stop is not Stop.FINISHED
            mass = self.stationary(solved.chosen, mass, settled=SETTLED if last else 1e-8)
            moved, gain = self._ratio(mass, solved.chosen) - gain, self._ratio(mass, solved.chosen)
            if self.on_event is not None:
                self.on_event(Event("ratio", value=gain))
            if solved.stop is not Stop.FINISHED or (last and abs(moved) < RATIO):
                solved.gain, solved.stationary = gain, mass
                return solved
            values = solved.values
            span = max(min(span * 1e-3, abs(moved)), SPAN)

    def _ratio(self, mass: Floats, chosen: Integers) -> float:
        reward, weight = self.sweeps.earned(mass, chosen)
        return reward / weight

    def discounted(self, discount: float) -> Solved:
        """The best policy for the discounted sum."""
        values = np.zeros(self.sweeps.states)
        while True:
            result, chosen = self.sweeps.improve(discount * values, 0.0)
            self.work["sweeps"] += 1
            change = result - values
            least, most = float(change.min()), float(change.max())
            # Whatever is common to all changes is known to the end: only their span is still uncertain.
            stop = Stop.FINISHED if most - least < SPAN * (1.0 - discount) else self._stop_reason()
            if stop is not None:
                return Solved(chosen, values, 0.0, least, most, stop)
            values = result
            for _ in range(EVALUATIONS):
                values = self.sweeps.follow(discount * values, chosen, 0.0)
            self.work["evaluations"] += EVALUATIONS

    def horizon(self, decisions: int) -> Solved:
        """The first decision of the best plan for so many."""
        values = np.zeros(self.sweeps.states)
        chosen = np.zeros(0, dtype=np.int64)
        for _ in range(decisions):
            values, chosen = self.sweeps.improve(values, 0.0)
            self.work["sweeps"] += 1
        return Solved(chosen, values, 0.0, 0.0, 0.0, Stop.FINISHED)

    def stationary(self, chosen: Integers, mass: Floats | None = None, settled: float = SETTLED) -> Floats:
        """The long-run distribution under a policy, by repeated steps until one moves less than `settled`."""
        mass = self._start_mass() if mass is None else mass
        for step in range(MOST_SWEEPS):
            if step == PATIENT_PUSHES:
                mass = self._balance(chosen, mass)
            moved = self.sweeps.push(mass, chosen)
            self.work["pushes"] += 1
            change = float(np.abs(moved - mass).sum())
            mass = moved
            if change < settled:
                break
        return np.asarray(mass / mass.sum())

    def _evaluate(self, chosen: Integers, gain: float, guess: Floats) -> Floats:
        """The relative values h: h - P h + rho = r, h(reference) = 0; rho is in the place of h(reference)."""
        reference = self.sweeps.reference
        reward = self.sweeps.follow(np.zeros(self.sweeps.states), chosen, gain)

        def apply(values: Floats) -> Floats:
            average, values[reference] = values[reference], 0.0
            self.work["evaluations"] += 1
            return np.asarray(values - (self.sweeps.follow(values, chosen, gain) - reward) + average)

        found = _solve_by_action(apply, reward, guess=guess - guess[reference], tolerance=1e-13)
        found[reference] = 0.0
        return found

    def _balance(self, chosen: Integers, guess: Floats) -> Floats:
        """The distribution p with p - P'p + u (sum of p) = u, u all on the reference."""

        def apply(mass: Floats) -> Floats:
            result = mass - self.sweeps.push(mass, chosen)
            result[self.sweeps.reference] += mass.sum()
            self.work["pushes"] += 1
            return np.asarray(result)

        found = np.maximum(_solve_by_action(apply, self._start_mass(), guess=guess, tolerance=1e-14), 0.0)
        return np.asarray(found / found.sum())

    def _start_mass(self) -> Floats:
        mass = np.zeros(self.sweeps.states)
        mass[self.sweeps.reference] = 1.0
        return mass

    def _pin(self, values: Floats) -> Floats:
        return np.asarray(values - values[self.sweeps.reference])

    def _stop_reason(self) -> Stop | None:
        done = self.work["sweeps"] + self.work["evaluations"]
        if self.limits.cancel is not None and self.limits.cancel.is_set():
            return Stop.CANCELLED
        if self.limits.seconds is not None and time.monotonic() - self._started > self.limits.seconds:
            return Stop.TIME
        if done >= (MOST_SWEEPS if self.limits.work is None else self.limits.work):
            return Stop.WORK
        return None


def _solve_by_action(apply: Callable[[Floats], Floats], right: Floats, *, guess: Floats, tolerance: float) -> Floats:
    """The x with apply(x) = right, from a guess; as near as a thousand applications bring it.

    >>> _solve_by_action(lambda x: 2 * x, np.array([2.0, 4.0]), guess=np.zeros(2), tolerance=1e-12).round(9).tolist()
    [1.0, 2.0]
    """

    from scipy.sparse.linalg import LinearOperator, gmres

    def matvec(x: Floats) -> Floats:
        return apply(np.array(x, dtype=np.float64).ravel())

    # Its constructor chooses a subclass by its arguments, which its annotations do not say.
    by_action: Callable[..., Any] = LinearOperator
    system = by_action((right.size, right.size), matvec=matvec, dtype=np.float64)
    found, _ = gmres(system, right, x0=guess, rtol=tolerance, restart=80, maxiter=12)
    return np.asarray(found, dtype=np.float64)
