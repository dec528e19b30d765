r"""Value iteration, relative and modified policy iteration, and Dinkelbach's method: written once, for whatever sweeps.

A process offers three sweeps (`Sweeps`): the Bellman operator, the operator of one policy, and the transpose of that on
distributions. With rewards r - g w,

    average     v <- T v - (T v)(reference), until max(T v - v) - min(T v - v) falls below `span`; between improvements
                `evaluations` sweeps of the current policy (0: relative value iteration)
    ratio       g <- E_p[r] / E_p[w] under the stationary distribution p of the policy that is best for r - g w,
                until it moves by less than 1e-10 (Dinkelbach); values and p start warm
    discounted  v <- T v until the span of the residuals / (1 - discount) falls below `span`
    horizon     v_0 = 0, v_{h+1} = T v_h; the policy is that of the first of the decisions

Near overload a queue may stay empty or full for thousands of decisions on end, and with many workers arrivals are
almost regular: sweeps crawl. After `patience` improvements the current policy is evaluated exactly instead, and its
distribution found, by GMRES on the same sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.contract import Event

__all__ = ["Iteration", "Solved", "Sweeps"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SETTLED = 1e-13
"""A stationary distribution is taken for found when a step moves less mass than this."""
_RATIO = 1e-10
_MOST_SWEEPS = 20_000
_PATIENT_PUSHES = 50


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
    evaluations: int = 8
    span: float = 1e-9
    relative: bool = True
    patience: int = 4
    on_event: Callable[[Event], None] | None = None
    work: dict[str, float] = field(
        default_factory=lambda: {"sweeps": 0.0, "evaluations": 0.0, "pushes": 0.0, "rounds": 0.0}
    )

    def __post_init__(self) -> None:
        self._started = time.monotonic()

    def average(self, values: Floats, gain: float = 0.0, span: float | None = None) -> Solved:
        """The best policy for the rewards r - gain w, to a span."""
        wanted = self.span if span is None else span
        tries = 0
        while True:
            result, chosen = self.sweeps.improve(values, gain)
            self.work["sweeps"] += 1
            change = result - values
            least, most = float(change.min()), float(change.max())
            stop = Stop.FINISHED if most - least < wanted else self._spent()
            if stop is not None:
                return Solved(chosen, values, gain, least, most, stop)
            tries += 1
            if tries > self.patience:
                values = self._evaluated(chosen, gain, result)
                continue
            values = self._pinned(result)
            for _ in range(self.evaluations):
                values = self._pinned(self.sweeps.follow(values, chosen, gain))
            self.work["evaluations"] += self.evaluations

    def ratio(self, chosen: Integers) -> Solved:
        """The best policy for E[r] / E[w], from the ratio of some policy upwards.

        Never from above the best ratio: there every reward is a loss, and a policy does best by lingering where queues
        are full.
        """
        mass = self.stationary(chosen, settled=1e-6)
        gain = self._ratio(mass, chosen)
        values = np.zeros(self.sweeps.states)
        span, settled = max(1e-4, self.span), 1e-8
        while True:
            solved = self.average(values, gain, span)
            self.work["rounds"] += 1
            last = span <= self.span or solved.stop is not Stop.FINISHED
            mass = self.stationary(solved.chosen, mass, settled=_SETTLED if last else settled)
            moved, gain = self._ratio(mass, solved.chosen) - gain, self._ratio(mass, solved.chosen)
            if self.on_event is not None:
                self.on_event(Event("ratio", value=gain))
            if solved.stop is not Stop.FINISHED or (last and abs(moved) < _RATIO):
                solved.gain, solved.stationary = gain, mass
                return solved
            values = solved.values
            span = max(min(span * 1e-3, abs(moved)), self.span)

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
            stop = Stop.FINISHED if most - least < self.span * (1.0 - discount) else self._spent()
            if stop is not None:
                return Solved(chosen, values, 0.0, least, most, stop)
            values = result
            for _ in range(self.evaluations):
                values = self.sweeps.follow(discount * values, chosen, 0.0)
            self.work["evaluations"] += self.evaluations

    def horizon(self, decisions: int) -> Solved:
        """The first decision of the best plan for so many."""
        values = np.zeros(self.sweeps.states)
        chosen = np.zeros(0, dtype=np.int64)
        for _ in range(decisions):
            values, chosen = self.sweeps.improve(values, 0.0)
            self.work["sweeps"] += 1
        return Solved(chosen, values, 0.0, 0.0, 0.0, Stop.FINISHED)

    def stationary(self, chosen: Integers, mass: Floats | None = None, settled: float = _SETTLED) -> Floats:
        """The long-run distribution under a policy, by repeated steps until one moves less than `settled`."""
        mass = self._beginning() if mass is None else mass
        for step in range(_MOST_SWEEPS):
            if step == _PATIENT_PUSHES:
                mass = self._balanced(chosen, mass)
            moved = self.sweeps.push(mass, chosen)
            self.work["pushes"] += 1
            change = float(np.abs(moved - mass).sum())
            mass = moved
            if change < settled:
                break
        return np.asarray(mass / mass.sum())

    def _evaluated(self, chosen: Integers, gain: float, guess: Floats) -> Floats:
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

    def _balanced(self, chosen: Integers, guess: Floats) -> Floats:
        """The distribution p with p - P'p + u (sum of p) = u, u all on the reference."""

        def apply(mass: Floats) -> Floats:
            result = mass - self.sweeps.push(mass, chosen)
            result[self.sweeps.reference] += mass.sum()
            self.work["pushes"] += 1
            return np.asarray(result)

        found = np.maximum(_solve_by_action(apply, self._beginning(), guess=guess, tolerance=1e-14), 0.0)
        return np.asarray(found / found.sum())

    def _beginning(self) -> Floats:
        mass = np.zeros(self.sweeps.states)
        mass[self.sweeps.reference] = 1.0
        return mass

    def _pinned(self, values: Floats) -> Floats:
        return values - values[self.sweeps.reference] if self.relative else values

    def _spent(self) -> Stop | None:
        done = self.work["sweeps"] + self.work["evaluations"]
        if self.limits.cancel is not None and self.limits.cancel.is_set():
            return Stop.CANCELLED
        if self.limits.seconds is not None and time.monotonic() - self._started > self.limits.seconds:
            return Stop.TIME
        if done >= (_MOST_SWEEPS if self.limits.work is None else self.limits.work):
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
