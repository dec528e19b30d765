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
    slacks: int
    """G."""
    model: Integers
    batch: Integers
    """How many are taken; 0 drops the head."""
    in_time: NDArray[np.bool_]
    reward: Floats
    weight: Floats

    @property
    def state(self) -> Integers:
        """(n - 1) G + j of each action; made anew, since a million actions are not rare."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))

    @property
    def waiting(self) -> Integers:
        """n of each action's state."""
        return np.asarray(self.state // self.slacks + 1)

    @property
    def slack(self) -> Integers:
        """j of each action's state."""
        return np.asarray(self.state % self.slacks)

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
        state = self.state
        places = np.flatnonzero((self.model == model[state]) & (self.batch == batch[state]))
        found = np.full(self.first.size - 1, -1, dtype=np.int64)
        found[state[places]] = places
        return found


def list_actions(form: QueueProcess) -> Actions:
    """Every action of every state (n, T_j)."""
    counts: list[Integers] = []
    model: list[Integers] = []
    batch: list[Integers] = []
    in_time: list[NDArray[np.bool_]] = []
    for n in range(1, form.queue + 1):
        j, m, b = _of_queue(form, n)
        counts.append(np.bincount(j, minlength=form.slacks))
        model.append(m)
        batch.append(b)
        in_time.append((b > 0) & (form.latency_s[m, np.maximum(b, 1) - 1] <= form.grid_s[j]))
    first = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    m_all, b_all, good = np.concatenate(model), np.concatenate(batch), np.concatenate(in_time)
    reward = np.where(good, form.accuracy[m_all], 0.0)
    if form.objective is PerWhat.PER_QUERY:
        weight = np.maximum(b_all, 1).astype(float)
        reward *= weight
    else:
        weight = np.ones(b_all.size)
    actions = Actions(first, form.slacks, m_all, b_all, good, reward, weight)
    if form.reward is Reward.B_OVER_N:
        reward *= b_all / actions.waiting
    return actions


def _of_queue(form: QueueProcess, n: int) -> tuple[Integers, Integers, Integers]:
    """Slack, model and batch of the actions with n waiting, in order."""
    smallest = 1 if form.batching is Batching.VARIABLE else n
    sizes = np.arange(n, smallest - 1, -1)
    fits = form.latency_s[None, :, sizes - 1] <= form.grid_s[:, None, None]
    if form.batching is Batching.VARIABLE and form.late is Late.SERVE:
        fits[:, 0, 0] = True
    j, m, k = np.nonzero(fits)
    parts = [(j, m, sizes[k])]
    stuck = np.flatnonzero(~fits.any(axis=(1, 2)))
    if form.late is Late.SERVE:
        parts.append((stuck, np.zeros_like(stuck), np.full_like(stuck, n)))
    else:
        parts += [_dropping(form, n, int(at)) for at in stuck]
    j, m, b = (np.concatenate(arrays).astype(np.int64) for arrays in zip(*parts, strict=True))
    order = np.argsort(j, kind="stable")
    return j[order], m[order], b[order]


def _dropping(form: QueueProcess, n: int, j: int) -> tuple[Integers, Integers, Integers]:
    """The actions at (n, T_j) where no offered batch fits the slack: the largest that does, else a drop of the head."""
    smaller = form.latency_s[:, : n - 1] <= form.grid_s[j]
    if not smaller.any():
        return np.array([j]), np.array([0]), np.array([0])
    size = int(np.flatnonzero(smaller.any(axis=0))[-1])
    models = np.flatnonzero(smaller[:, size])
    return np.full(models.size, j), models, np.full(models.size, size + 1)
