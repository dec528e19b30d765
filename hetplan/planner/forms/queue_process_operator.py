r"""The Bellman operator of a queue process, and its transpose, without a transition matrix.

Why it needs none: a first own arrival with z seconds of service to go leaves slack' = SLO - z. Bucket j is therefore
z in (SLO - T_{j+1}, SLO - T_j], fixed relative to the *end* of a service and the same for every action; and after an
own arrival the process is fresh. So all actions share one backward pass over the buckets, with

    c_j = T_{j+1} - T_j        the length of bucket j
    d_j = SLO - T_{j+1}        what follows it until the end of the service
    B_j(y)  = E[V(floor((y + Poisson(nu d_j)) / K), T_j)]          y >= K stages at the end of bucket j: somebody came
    W_j(x)  = E[W_{j+1}(x + C); x + C < K] + E[B_j(x + C); x + C >= K],   C ~ Poisson(nu c_j)
    W_{G-1} = V after idling
    U_tau(x) = the same at j0, the first j with T_{j+1} > SLO - tau, over what is left of it: c = T_{j0+1} - SLO + tau
    Q(n, j, m) = R + sum over r of w(r | n, j) U_{l(m, n)}(r)

V(n' > N, .) is V(over). The transpose spreads mass the same way forwards. Here all of it is numpy correlations; the
compiled engine computes the same numbers by other sums (`solvers/queue_structured_kernels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_arrivals import Window, phase_weights, poisson
from hetplan.planner.forms.queue_process_model import Criterion, Empty
from hetplan.planner.forms.queue_process_partial import QueueMoves

__all__ = ["OperatedQueue", "Operator", "Service", "first_bucket"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KEPT_WEIGHTS = 20_000_000
"""Phase weights are kept between applications up to this many numbers (160 MB), else computed anew."""


@dataclass(frozen=True)
class Service:
    """A model and a batch that some state may run, and how its first bucket looks."""

    model: int
    batch: int
    rate: int
    bucket: int
    arrivals: Window


class Operator:
    """Applies the process to values (backwards) and to distributions (forwards)."""

    def __init__(self, form: QueueMoves) -> None:
        self.form = form
        self._kept: dict[int, Floats] = {}

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """One per (model, full batch) in use, then the one of "over"."""
        form, actions = self.form, self.form.actions
        full = ~actions.partial
        pairs = np.unique(np.stack([actions.batch[full], actions.model[full]], axis=1), axis=0)
        services = [self._service(int(m), int(b), int(b)) for b, m in pairs]
        return (*services, self._service(0, form.over_batch, form.over_batch))

    @cached_property
    def service_of(self) -> Integers:
        """The service of each action; -1 for a partial one."""
        form, actions = self.form, self.form.actions
        place = np.full((form.models, form.queue + 2), -1, dtype=np.int64)
        for i, service in enumerate(self.services[:-1]):
            place[service.model, service.batch] = i
        return np.where(actions.partial, -1, place[actions.model, actions.batch])

    def bellman(self, values: Floats, gain: float = 0.0) -> tuple[Floats, Integers]:
        """One application: the new values, and the first best action of each state (n, T_j)."""
        first = self.form.actions.first
        worth, others = self._apply(values, gain)
        best = np.maximum.reduceat(worth, first[:-1])
        places = np.flatnonzero(worth == np.repeat(best, np.diff(first)))
        return np.concatenate([best, others]), places[np.searchsorted(places, first[:-1])]

    def compare(self, values: Floats, chosen: Integers, gain: float = 0.0) -> tuple[Floats, Floats]:
        """The new values under the best actions and under a fixed policy, from one application."""
        worth, others = self._apply(values, gain)
        best = np.maximum.reduceat(worth, self.form.actions.first[:-1])
        return np.concatenate([best, others]), np.concatenate([worth[chosen], others])

    def push(self, mass: Floats, chosen: Integers) -> Floats:
        """Where a distribution over states is one decision later, under a policy."""
        form, actions = self.form, self.form.actions
        result = np.zeros(form.states)
        load = np.zeros((len(self.services), form.stages))
        service = self.service_of[chosen]
        by_state = mass[: form.over].reshape(form.queue, form.slacks)
        for n in range(1, form.queue + 1):
            here = service[(n - 1) * form.slacks : n * form.slacks]
            full = np.flatnonzero(here >= 0)
            np.add.at(load, here[full], by_state[n - 1, full, None] * self._weights(n)[full])
        load[-1] += mass[form.over] * self._over_weights()
        self._push_services(load, result)
        rows = form.partial_moves
        if rows.action.size:
            place = np.full(actions.model.size, -1, dtype=np.int64)
            place[rows.action] = np.arange(rows.action.size)
            partial = np.flatnonzero(service < 0)
            result += rows.moves[place[chosen[partial]]].T @ mass[partial]
        if form.empty is Empty.PAPER:
            result[form.slacks - 1] += mass[form.after_idling]
        return result

    def _apply(self, values: Floats, gain: float) -> tuple[Floats, Floats]:
        """The worth of every action, and of the states that leave no choice: over, and empty where it is one."""
        form, actions = self.form, self.form.actions
        ahead = form.discount * values if form.criterion is Criterion.DISCOUNTED else values
        worth = actions.reward - gain * actions.weight
        future, slack = self._futures(ahead), actions.slack
        for n in range(1, form.queue + 1):
            here = slice(int(actions.first[(n - 1) * form.slacks]), int(actions.first[n * form.slacks]))
            full = np.flatnonzero(self.service_of[here] >= 0)
            if full.size:
                used, column = np.unique(self.service_of[here][full], return_inverse=True)
                table = self._weights(n) @ future[used].T
                worth[here][full] += table[slack[here][full], column]
        rows = form.partial_moves
        if rows.action.size:
            worth[rows.action] += rows.moves @ ahead
        reward, weight = form.over_reward()
        others = [reward - gain * weight + float(self._over_weights() @ future[-1])]
        if form.empty is Empty.PAPER:
            reward, weight = form.empty_reward()
            others.append(reward - gain * weight + float(ahead[form.slacks - 1]))
        return worth, np.array(others)

    def _service(self, model: int, batch: int, waiting: int) -> Service:
        form = self.form
        rate = int(form.rates_by_queue[waiting])
        bucket, length = first_bucket(form.grid_s, float(form.latency_s[model, batch - 1]))
        return Service(model, batch, rate, bucket, poisson(float(form.stage_rates[rate]) * length))

    def _weights(self, n: int) -> Floats:
        """w(r | n, j) for all j."""
        if n in self._kept:
            return self._kept[n]
        form = self.form
        rate = float(form.stage_rates[form.rates_by_queue[n]])
        weights = phase_weights(waiting=n, stages=form.stages, means=rate * (form.slo_s - form.grid_s))
        if form.queue * form.slacks * form.stages <= _KEPT_WEIGHTS:
            self._kept[n] = weights
        return weights

    def _over_weights(self) -> Floats:
        form = self.form
        rate = float(form.stage_rates[form.rates_by_queue[form.over_batch]])
        mean = np.array([rate * form.slo_s])
        return np.asarray(phase_weights(waiting=form.over_batch, stages=form.stages, means=mean)[0])

    @cached_property
    def _buckets(self) -> tuple[tuple[tuple[Window, Window, tuple[int, ...]], ...], ...]:
        """Per rate and bucket: arrivals in it, arrivals after it, and the services that begin in it."""
        grid = self.form.grid_s
        return tuple(
            tuple(
                (
                    poisson(float(rate) * float(grid[j + 1] - grid[j])),
                    poisson(float(rate) * float(grid[-1] - grid[j + 1])),
                    tuple(i for i, s in enumerate(self.services) if s.rate == which and s.bucket == j),
                )
                for j in range(grid.size - 1)
            )
            for which, rate in enumerate(self.form.stage_rates)
        )

    def _futures(self, values: Floats) -> Floats:
        """U_tau(x) of every service: a row each."""
        form = self.form
        stages = form.stages
        table = np.append(np.zeros(1), np.full(form.queue + 1, values[form.over]))
        by_slack = values[: form.over].reshape(form.queue, form.slacks)
        result = np.zeros((len(self.services), stages))
        for buckets in self._buckets:
            carried = np.full(stages, values[form.after_idling])
            for j in range(form.slacks - 2, -1, -1):
                within, after, starting = buckets[j]
                top = stages - 1 + max([within.high, *(self.services[i].arrivals.high for i in starting)])
                table[1 : form.queue + 1] = by_slack[:, j]
                somebody = np.arange(stages + after.low, top + after.high + 1) // stages
                landed = table[np.minimum(somebody, form.queue + 1)]
                line = np.concatenate([carried, np.correlate(landed, after.probability, "valid")])
                for i in starting:
                    result[i] = _look_ahead(line, self.services[i].arrivals, stages)
                carried = _look_ahead(line, within, stages)
        return result

    def _push_services(self, load: Floats, result: Floats) -> None:
        """The transpose of `_futures`: spreads the load of every service over the states it may end in."""
        form = self.form
        stages = form.stages
        landing = np.zeros((form.queue + 2, form.slacks))
        for buckets in self._buckets:
            carried = np.zeros(stages)
            for j in range(form.slacks - 1):
                within, after, starting = buckets[j]
                top = stages - 1 + max([within.high, *(self.services[i].arrivals.high for i in starting)])
                line = np.zeros(top + 1)
                _look_back(line, carried, within)
                for i in starting:
                    _look_back(line, load[i], self.services[i].arrivals)
                landed = np.convolve(line[stages:], after.probability)
                somebody = np.arange(stages + after.low, top + after.high + 1) // stages
                place = np.minimum(somebody, form.queue + 1)
                landing[:, j] += np.bincount(place, weights=landed, minlength=form.queue + 2)
                carried = line[:stages]
            result[form.after_idling] += carried.sum()
        result[: form.over] += landing[1:-1].ravel()
        result[form.over] += landing[-1].sum()


def first_bucket(grid_s: Floats, latency_s: float) -> tuple[int, float]:
    """Into which bucket the beginning of a service falls, and how much of that bucket the service covers."""
    slo_s = float(grid_s[-1])
    bucket = min(int(np.searchsorted(grid_s[1:], slo_s - latency_s, side="right")), grid_s.size - 2)
    return bucket, max(float(grid_s[bucket + 1]) - slo_s + latency_s, 0.0)


def _look_ahead(line: Floats, arrivals: Window, stages: int) -> Floats:
    """E[line(x + arrivals)] for x = 0..stages - 1."""
    return np.correlate(line[arrivals.low : arrivals.high + stages], arrivals.probability, "valid")


def _look_back(line: Floats, mass: Floats, arrivals: Window) -> None:
    line[arrivals.low : arrivals.high + mass.size] += np.convolve(mass, arrivals.probability)


class OperatedQueue(QueueMoves):
    """A queue process with its operator, and what follows from applying it."""

    @cached_property
    def operator(self) -> Operator:
        """The Bellman operator and its transpose."""
        return Operator(self)

    def forget(self) -> None:
        """Drop what was computed and is kept: up to a hundred megabytes where any batch may be taken."""
        if "actions" in vars(self):
            _ = self.action_count
        for kept in ("actions", "operator", "partial_moves"):
            vars(self).pop(kept, None)

    def value_of(self, mass: Floats, chosen: Integers) -> float:
        """Reward per weight under a distribution over states."""
        reward, weight = self.earned(mass, chosen)
        return reward / weight

    def long_run(self, chosen: Integers, mass: Floats | None = None) -> Floats:
        """The stationary distribution under a policy, by repeated steps of the transposed operator."""
        if mass is None:
            mass = np.zeros(self.states)
            mass[self.slacks - 1] = 1.0
        for _ in range(20_000):
            moved = self.operator.push(mass, chosen)
            change = float(np.abs(moved - mass).sum())
            mass = moved
            if change < 1e-13:
                break
        return np.asarray(mass / mass.sum())
