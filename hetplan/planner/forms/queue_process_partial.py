r"""Where actions lead that leave some of the queue behind: b < n taken at (n, T_j), and drops.

With A = SLO - T_j, k = (n - 1) K + r stages in it and h = b K, the new head came at t after the old one, the h-th of k
points spread uniformly over A:

    P(t <= u | k) = P(Binomial(k, u / A) >= h)
    slack' = T_j - tau + t          n' = n - b + floor((r + Poisson(nu tau)) / K)

Given r the two are independent; r is averaged out at once by w(r | n, j), so an action becomes a short sparse row over
the states. What is lost is that (n', slack') says less of the phase than the process knows: after b < n the process is
Markov only approximately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_arrivals import join_tables, phase_weights
from hetplan.planner.forms.queue_process_model import QueueModel

if TYPE_CHECKING:
    from scipy.sparse import csr_array


__all__ = ["PartialMoves", "QueueMoves", "partial_moves", "reference_row"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class PartialMoves:
    """One sparse row over the states per partial action; `action` says which."""

    action: Integers
    moves: csr_array


class QueueMoves(QueueModel):
    """A queue process that knows where actions lead that leave some of the queue behind."""

    @cached_property
    def partial_moves(self) -> PartialMoves:
        """Where actions that leave some of the queue behind lead to, as sparse rows."""
        return partial_moves(self)


def partial_moves(form: QueueModel) -> PartialMoves:
    """The rows of all partial actions."""
    from scipy.sparse import csr_array

    from hetplan.compiled import is_compiled

    action = np.flatnonzero(form.actions.partial)
    if action.size == 0:
        return PartialMoves(action, csr_array((0, form.states)))
    if is_compiled():
        from hetplan.planner.forms.queue_process_partial_kernels import compiled_rows

        return PartialMoves(action, compiled_rows(form, action))
    rows = [reference_row(form, int(i)) for i in action]
    first = np.concatenate([[0], np.cumsum([columns.size for columns, _ in rows])])
    columns, data = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    return PartialMoves(action, csr_array((data, columns, first), shape=(action.size, form.states)))


def reference_row(form: QueueModel, i: int) -> tuple[Integers, Floats]:
    """States and probabilities after partial action i, by incomplete beta functions: slow, for want of a compiler."""
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
