"""The actions of a queue process, state by state: fastest model first, and of one model the largest batch first.

Engines take the first of equally good actions, so ties go to the fastest model and the largest batch everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process import Batching, Late, PerWhat, Reward

if TYPE_CHECKING:
    from hetplan.planner.forms.queue_process import QueueProcess

__all__ = ["Actions", "list_actions"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Actions:
    """Parallel arrays; the actions of the state (n, T_j) are ``first[s] <= i < first[s + 1]``, s = (n - 1) G + j."""

    first: Integers
    waiting: Integers
    """n of the action's state."""
    slack: Integers
    """j of the action's state."""
    model: Integers
    batch: Integers
    """How many are taken; 0 drops the head."""
    in_time: NDArray[np.bool_]
    reward: Floats
    weight: Floats

    @property
    def partial(self) -> NDArray[np.bool_]:
        """Which actions leave some of the queue behind; a drop always does, or leaves it empty."""
        return self.batch < self.waiting

    @property
    def taken(self) -> Integers:
        """How many queries leave the queue: the batch, or the dropped head."""
        return np.maximum(self.batch, 1)

    def find(self, model: Integers, batch: Integers) -> Integers:
        """Per state, the action with this model and batch; -1 where there is none."""
        states = self.first.size - 1
        state = np.repeat(np.arange(states), np.diff(self.first))
        places = np.flatnonzero((self.model == model[state]) & (self.batch == batch[state]))
        found = np.full(states, -1, dtype=np.int64)
        found[state[places]] = places
        return found


def list_actions(form: QueueProcess) -> Actions:
    """Every action of every state (n, T_j)."""
    waiting: list[Integers] = []
    slack: list[Integers] = []
    model: list[Integers] = []
    batch: list[Integers] = []
    for n in range(1, form.queue + 1):
        j, m, b = _of_queue(form, n)
        waiting.append(np.full(j.size, n, dtype=np.int64))
        slack.append(j)
        model.append(m)
        batch.append(b)
    n_all, j_all, m_all, b_all = (np.concatenate(parts) for parts in (waiting, slack, model, batch))
    counts = np.bincount((n_all - 1) * form.slacks + j_all, minlength=form.over)
    served = b_all > 0
    in_time = served & (form.latency_s[m_all, np.maximum(b_all, 1) - 1] <= form.grid_s[j_all])
    accuracy = np.where(in_time, form.accuracy[m_all], 0.0)
    if form.objective is PerWhat.PER_QUERY:
        weight = np.maximum(b_all, 1).astype(float)
        reward = accuracy * weight
    else:
        weight = np.ones(b_all.size)
        reward = accuracy * (b_all / n_all) if form.reward is Reward.B_OVER_N else accuracy
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Actions(first, n_all, j_all, m_all, b_all, in_time, reward, weight)


def _of_queue(form: QueueProcess, n: int) -> tuple[Integers, Integers, Integers]:
    """Slack, model and batch of the actions with n waiting, in order."""
    smallest = 1 if form.batching is Batching.VARIABLE else n
    sizes = np.arange(n, smallest - 1, -1)
    fits = form.latency_s[None, :, sizes - 1] <= form.grid_s[:, None, None]
    j, m, k = np.nonzero(fits)
    parts = [(j, m, sizes[k])]
    parts += [_forced(form, n, int(stuck)) for stuck in np.flatnonzero(~fits.any(axis=(1, 2)))]
    j, m, b = (np.concatenate(arrays).astype(np.int64) for arrays in zip(*parts, strict=True))
    order = np.argsort(j, kind="stable")
    return j[order], m[order], b[order]


def _forced(form: QueueProcess, n: int, j: int) -> tuple[Integers, Integers, Integers]:
    """The actions at (n, T_j) where no offered batch fits the slack."""
    if form.late is Late.SERVE:
        return np.array([j]), np.array([0]), np.array([n])
    smaller = form.latency_s[:, : n - 1] <= form.grid_s[j]
    if not smaller.any():
        return np.array([j]), np.array([0]), np.array([0])
    size = int(np.flatnonzero(smaller.any(axis=0))[-1])
    models = np.flatnonzero(smaller[:, size])
    return np.full(models.size, j), models, np.full(models.size, size + 1)
