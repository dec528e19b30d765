r"""A queue process written out as an explicit decision process, by the sums of the paper (RAMSIS, eqs. (1) to (3)).

For a service of length tau that begins in phase r, the next state (n', T_j') needs

    interval B   until bucket j' begins: k_B <= K - 1 - r stages, nobody comes
    interval C   bucket j' (what of it the service covers): k_C >= K - r - k_B, the first one comes
    interval D   the rest: n' K - r - k_B - k_C <= k_D <= (n' + 1) K - 1 - r - k_B - k_C

and the phase has the weights of interval A. Counts are Poisson, summed as they are here: a matrix per service. It
shares no arithmetic with the structured engine, which it exists to check. `best_value` solves it by a linear program
of scipy's, or backwards in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process import Criterion, Empty, QueueProcess
from hetplan.planner.forms.queue_process_arrivals import join_tables, phase_weights

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Explicit", "best_value", "explicit", "reference_row"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NOTHING = 1e-18


@dataclass(frozen=True)
class Explicit:
    """Pairs of a state and an action: those of state s are first[s] <= i < first[s + 1]; row i of `moves` leads on."""

    first: Integers
    moves: csr_array
    reward: Floats
    weights: Floats
    form: QueueProcess

    @property
    def states(self) -> int:
        """How many states there are."""
        return self.first.size - 1

    def scores(self, values: Floats, gain: float = 0.0) -> Floats:
        """What each pair is worth when the future is worth `values` and each unit of weight costs `gain`."""
        step = self.form.discount if self.form.criterion is Criterion.DISCOUNTED else 1.0
        return np.asarray(self.reward - gain * self.weights + step * (self.moves @ values))

    def best(self, scores: Floats) -> Floats:
        """The best score in each state."""
        return np.asarray(np.maximum.reduceat(scores, self.first[:-1]))


def explicit(form: QueueProcess) -> Explicit:
    """The explicit process; states are numbered as the form numbers them."""
    from scipy.sparse import csr_array, vstack

    actions = form.actions
    rows = _full_rows(form)
    partial = np.flatnonzero(actions.partial)
    if partial.size:
        order = np.argsort(np.concatenate([np.flatnonzero(~actions.partial), partial]), kind="stable")
        rows = vstack([rows, _partial_rows(form, partial)]).tocsr()[order]
    extra = [_service_rows(form, 0, form.over_batch, np.array([form.slo_s]), form.over_batch)]
    others = [form.over_reward()]
    if form.empty is Empty.PAPER:
        extra.append(csr_array(([1.0], [form.slacks - 1], [0, 1]), shape=(1, form.states)))
        others.append(form.empty_reward())
    return Explicit(
        first=np.concatenate([actions.first, actions.model.size + 1 + np.arange(len(extra))]).astype(np.int64),
        moves=csr_array(vstack([rows, *extra])),
        reward=np.concatenate([actions.reward, [reward for reward, _ in others]]),
        weights=np.concatenate([actions.weight, [weight for _, weight in others]]),
        form=form,
    )


def best_value(process: Explicit) -> float:
    """The value of the best policy, by the form's criterion.

    By a linear program over how often each pair is chosen: flow out of a state is flow into it. In the long run all
    weight together is 1 (Charnes and Cooper's ratio); discounted, one unit enters at the start, and so much of it goes
    on. A horizon is gone through backwards.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    form, start = process.form, process.form.slacks - 1
    if form.criterion is Criterion.HORIZON:
        values = np.zeros(process.states)
        for _ in range(form.horizon):
            values = process.best(process.scores(values))
        return float(values[start])
    pairs = np.arange(process.reward.size)
    state = np.repeat(np.arange(process.states), np.diff(process.first))
    discounted = form.criterion is Criterion.DISCOUNTED
    out = coo_array((np.ones(pairs.size), (state, pairs)), shape=(process.states, pairs.size))
    balance = out - (form.discount if discounted else 1.0) * process.moves.T
    enters = np.zeros(process.states)
    enters[start] = 1.0 if discounted else 0.0
    rows = balance if discounted else vstack([balance, process.weights[None, :]])
    right = enters if discounted else np.append(enters, 1.0)
    found = linprog(-process.reward, A_eq=rows, b_eq=right, method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)


def _full_rows(form: QueueProcess) -> csr_array:
    """The rows of the actions that take all, in their order."""
    from scipy.sparse import vstack

    actions = form.actions
    full = np.flatnonzero(~actions.partial)
    code, slack = actions.waiting[full] * form.models + actions.model[full], actions.slack
    parts, places = [], []
    for value in np.unique(code):
        here = full[code == value]
        n, m = divmod(int(value), form.models)
        waited = form.slo_s - form.grid_s[slack[here]]
        parts.append(_service_rows(form, m, n, waited, n))
        places.append(here)
    order = np.argsort(np.concatenate(places), kind="stable")
    return vstack(parts).tocsr()[order]


def _partial_rows(form: QueueProcess, partial: Integers) -> csr_array:
    from scipy.sparse import csr_array

    rows = [reference_row(form, int(i)) for i in partial]
    first = np.concatenate([[0], np.cumsum([columns.size for columns, _ in rows])])
    columns, data = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    return csr_array((data, columns, first), shape=(partial.size, form.states))


def reference_row(form: QueueProcess, i: int) -> tuple[Integers, Floats]:
    """States and probabilities after partial action i, by incomplete beta functions."""
    from scipy.special import betainc

    actions = form.actions
    state = int(np.searchsorted(actions.first, i, side="right")) - 1
    n, j = state // form.slacks + 1, state % form.slacks
    model, batch = int(actions.model[i]), int(actions.batch[i])
    if batch == 0 and n == 1:
        return np.array([form.after_idling]), np.ones(1)
    taken = max(batch, 1)
    latency = float(form.latency_s[model, batch - 1]) if batch else 0.0
    rate = float(form.stage_rates[form.rates_by_queue[n]])
    waited = form.slo_s - float(form.grid_s[j])
    weights = phase_weights(waiting=n, stages=form.stages, means=np.array([rate * waited]))[0]
    counts = (n - 1) * form.stages + np.arange(form.stages)
    edges = form.grid_s[1:-1] - form.grid_s[j] + latency
    share = np.clip(edges / waited, 0.0, 1.0) if waited > 0 else (edges > 0).astype(float)
    head = taken * form.stages
    before = betainc(head, counts[:, None] - head + 1, share[None, :])
    slack = np.diff(before, axis=1, prepend=0.0, append=1.0)
    joins = join_tables(form, np.array([model]), np.array([batch]), np.array([n]))[0]
    both = np.einsum("r,rj,ra->aj", weights, slack, joins.probability)
    left = n - taken + joins.low + np.arange(both.shape[0])
    row = np.zeros(form.states)
    for number, landed in zip(left, both, strict=True):
        if number > form.queue:
            row[form.over] += landed.sum()
        else:
            row[(number - 1) * form.slacks : number * form.slacks - 1] += landed
    columns = np.flatnonzero(row > 0)
    return columns, row[columns]


def _service_rows(form: QueueProcess, model: int, batch: int, waited_s: Floats, waiting: int) -> csr_array:
    """A row per time that the oldest has waited."""
    from scipy.sparse import csr_array
    from scipy.special import gammaln, xlogy

    rate = float(form.stage_rates[form.rates_by_queue[waiting]])
    stages = form.stages
    counts = (waiting - 1) * stages + np.arange(stages)
    means = rate * waited_s[:, None]
    with np.errstate(divide="ignore"):
        logs = xlogy(counts, means) - gammaln(counts + 1.0)
    logs[(means[:, 0] <= 0) & (waiting > 1)] = 0.0
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    after = _outcomes(form, float(form.latency_s[model, batch - 1]), rate)
    return csr_array(_trimmed(weights @ after))


def _trimmed(rows: Floats) -> Floats:
    rows[rows < _NOTHING] = 0.0
    return rows


def _outcomes(form: QueueProcess, latency_s: float, rate: float) -> Floats:
    """The distribution of the next state, a row per phase at the beginning of the service."""
    stages, slo_s, grid = form.stages, form.slo_s, form.grid_s
    result = np.zeros((stages, form.states))
    phases = np.arange(stages)
    gaps = phases[None, :] - phases[:, None]
    for j in range(form.slacks - 1):
        # Time to go at the edges of the bucket; the first bucket has no upper edge.
        high = latency_s if j == 0 else min(latency_s, slo_s - float(grid[j]))
        low = slo_s - float(grid[j + 1])
        if latency_s <= low:
            continue
        alone = _count(gaps, rate * (latency_s - high))
        joined = alone @ _somebody(form, rate * (high - low), rate * low)
        for number in range(1, form.queue + 1):
            result[:, (number - 1) * form.slacks + j] = joined[:, number]
        result[:, form.over] += joined[:, -1]
    result[:, form.after_idling] += _count(gaps, rate * latency_s).sum(axis=1)
    return result


def _count(counts: Integers, mean: float) -> Floats:
    """Poisson probabilities of these counts, 0 for negative ones."""
    from scipy.special import gammaln, xlogy

    kept = np.maximum(counts, 0)
    return np.where(counts >= 0, np.exp(xlogy(kept, mean) - mean - gammaln(kept + 1.0)), 0.0)


def _somebody(form: QueueProcess, during: float, after: float) -> Floats:
    """Row y, column n': P(the first comes in interval C, n' have come at the end of D | y stages before C)."""
    from scipy.special import pdtr, pdtrc

    stages, queue = form.stages, form.queue
    most = stages + int(during + 12.0 * np.sqrt(during) + 60.0)
    settled = np.arange(stages, most + stages)
    first = _count(settled[None, :] - np.arange(stages)[:, None], during)
    edges = np.arange(1, queue + 2)[None, :] * stages - settled[:, None]
    # P(count < edge), and P(count >= edge) for the last one; a difference is taken on the side where it is small.
    below = np.where(edges > 0, pdtr(np.maximum(edges - 1, 0), after), 0.0)
    beyond = np.where(edges > 0, pdtrc(np.maximum(edges - 1, 0), after), 1.0)
    numbers = np.where(below[:, :-1] < 0.5, np.diff(below, axis=1), -np.diff(beyond, axis=1))
    table = np.concatenate([np.zeros((settled.size, 1)), numbers, beyond[:, -1:]], axis=1)
    return np.asarray(first @ table)
