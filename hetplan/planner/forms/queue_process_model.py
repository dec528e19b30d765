"""The data of a queue process, its states, and its actions: what operator, proof and engines are computed from.

Actions are listed state by state: fastest model first, and of one model the largest batch first. Engines take the first
of equally good actions, so ties go to the fastest model and the largest batch everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.form import Form

__all__ = [
    "Actions",
    "Batching",
    "Criterion",
    "Empty",
    "Late",
    "Overflow",
    "PerWhat",
    "QueueModel",
    "QueuePolicy",
    "Reward",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SAME_TIME = 1e-9
"""Times nearer than this share of the SLO are one: rounding does not make late what takes just the slack."""


class Criterion(StrEnum):
    """Over which stretch of time a policy is judged."""

    AVERAGE = "average"
    DISCOUNTED = "discounted"
    HORIZON = "horizon"


class Batching(StrEnum):
    """Which batches may be taken: all that wait, or any number from the head."""

    MAX = "max"
    VARIABLE = "variable"


class PerWhat(StrEnum):
    """What accuracy is averaged over."""

    PER_QUERY = "per_query"
    PER_DECISION = "per_decision"


class Late(StrEnum):
    """What happens to a head that no model can serve in time."""

    SERVE = "serve"
    DROP = "drop"


class Overflow(StrEnum):
    """More than N waiting: serve N + 1 late with the fastest model, or keep N and lose the rest (the paper)."""

    SERVE_ALL = "serve_all"
    TRUNCATE = "truncate"


class Empty(StrEnum):
    """Whether idling is a decision of its own (the paper) or part of the step before it (its published code)."""

    SKIP = "skip"
    PAPER = "paper"


class Reward(StrEnum):
    """What a decision earns under `per_decision`: the accuracy, or the accuracy times b / n (the published code)."""

    ACCURACY = "accuracy"
    B_OVER_N = "b_over_n"


@dataclass(frozen=True)
class QueuePolicy:
    """What to do with n = 1..N waiting (rows) and slack T_j (columns): the model's index, and how many queries to take.

    A batch of 0 drops the head.
    """

    model: Integers
    batch: Integers


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


@dataclass(frozen=True)
class QueueModel(Form[QueuePolicy]):
    """The process' data, its states and its actions; the fastest model comes first."""

    kind: ClassVar[str] = "queue-process"
    sense: ClassVar[str] = "max"

    latency_s: Floats
    """Row m, column b - 1: seconds for a batch of b = 1..N + 1."""
    accuracy: Floats
    grid_s: Floats
    stages: int
    stage_rates: Floats
    """One rate, or several where the rate depends on how many waited when the service began (`rate_of`)."""
    rate_of: Integers | None = None
    """Which of `stage_rates` holds for n = 0..N + 1; all 0 where not given."""
    objective: PerWhat = PerWhat.PER_QUERY
    batching: Batching = Batching.MAX
    late: Late = Late.SERVE
    overflow: Overflow = Overflow.SERVE_ALL
    empty: Empty = Empty.SKIP
    reward: Reward = Reward.ACCURACY
    criterion: Criterion = Criterion.AVERAGE
    discount: float = 1.0
    horizon: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise ValueError(f"not a queue process: {'; '.join(faults)}")

    @property
    def models(self) -> int:
        """M."""
        return int(self.latency_s.shape[0])

    @property
    def queue(self) -> int:
        """N."""
        return int(self.latency_s.shape[1]) - 1

    @property
    def slacks(self) -> int:
        """G."""
        return self.grid_s.size

    @property
    def slo_s(self) -> float:
        """The SLO, which is the largest slack."""
        return float(self.grid_s[-1])

    @property
    def states(self) -> int:
        """N G states (n, T_j), at (n - 1) G + j; then "over"; then "empty" where idling is a decision."""
        return self.over + 1 + (self.empty is Empty.PAPER)

    @property
    def over(self) -> int:
        """The index of the state "over"."""
        return self.queue * self.slacks

    @property
    def after_idling(self) -> int:
        """Where a service goes during which nobody came: (1, SLO), or the state "empty"."""
        return self.over + 1 if self.empty is Empty.PAPER else self.slacks - 1

    @property
    def over_batch(self) -> int:
        """How many queries the fastest model takes in "over"."""
        return self.queue + 1 if self.overflow is Overflow.SERVE_ALL else self.queue

    @property
    def own_rate(self) -> float:
        """Own arrivals per second, at the rate that holds for a queue of one."""
        return float(self.stage_rates[int(self.rates_by_queue[1])]) / self.stages

    @cached_property
    def rates_by_queue(self) -> Integers:
        """`rate_of`, zeros where it is not given."""
        return np.zeros(self.queue + 2, dtype=np.int64) if self.rate_of is None else self.rate_of

    @cached_property
    def actions(self) -> Actions:
        """All actions of all states (n, T_j), with their rewards and weights."""
        return list_actions(self)

    @cached_property
    def action_count(self) -> int:
        """How many actions there are; kept when the actions themselves are dropped."""
        return int(self.actions.model.size)

    def over_reward(self) -> tuple[float, float]:
        """Reward and weight of a decision in "over"; all served there are late."""
        return 0.0, float(self.queue + 1) if self.objective is PerWhat.PER_QUERY else 1.0

    def empty_reward(self) -> tuple[float, float]:
        """Reward and weight of idling, where it is a decision."""
        return 0.0, 0.0 if self.objective is PerWhat.PER_QUERY else 1.0

    @property
    def least_weight(self) -> float:
        """No policy has less weight per decision: idling, which may weigh nothing, never comes twice in a row."""
        return 0.5 if self.empty is Empty.PAPER and self.objective is PerWhat.PER_QUERY else 1.0

    def earned(self, mass: Floats, chosen: Integers) -> tuple[float, float]:
        """Expected reward and weight of a decision under a distribution over states."""
        sums = []
        others = (self.over_reward(), self.empty_reward())
        for k, numbers in enumerate((self.actions.reward, self.actions.weight)):
            total = float(mass[: self.over] @ numbers[chosen]) + float(mass[self.over]) * others[0][k]
            sums.append(total + float(mass[self.over + 1 :].sum()) * others[1][k])
        return sums[0], sums[1]

    def policy(self, chosen: Integers) -> QueuePolicy:
        """The policy that takes action `chosen[(n - 1) G + j]` of `actions`."""
        shape = (self.queue, self.slacks)
        return QueuePolicy(self.actions.model[chosen].reshape(shape), self.actions.batch[chosen].reshape(shape))

    def chosen(self, policy: QueuePolicy) -> Integers:
        """The actions that a policy takes; -1 where it takes one that the state does not have."""
        return self.actions.find(policy.model.ravel(), policy.batch.ravel())


def list_actions(form: QueueModel) -> Actions:
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
        in_time.append((b > 0) & (form.latency_s[m, np.maximum(b, 1) - 1] <= _just_in_time(form)[j]))
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


def _just_in_time(form: QueueModel) -> Floats:
    """The longest that a service may take at each slack."""
    return form.grid_s + _SAME_TIME * form.slo_s


def _of_queue(form: QueueModel, n: int) -> tuple[Integers, Integers, Integers]:
    """Slack, model and batch of the actions with n waiting, in order."""
    smallest = 1 if form.batching is Batching.VARIABLE else n
    sizes = np.arange(n, smallest - 1, -1)
    fits = form.latency_s[None, :, sizes - 1] <= _just_in_time(form)[:, None, None]
    if form.batching is Batching.VARIABLE and form.late is Late.SERVE:
        fits[:, 0, 0] = True
    j, m, k = np.nonzero(fits)
    parts = [(j, m, sizes[k])]
    stuck = np.flatnonzero(~fits.any(axis=(1, 2)))
    if form.late is Late.SERVE:
        parts.append((stuck, np.zeros_like(stuck), np.full_like(stuck, n)))
    else:
        parts += [_dropping_actions(form, n, int(at)) for at in stuck]
    j, m, b = (np.concatenate(arrays).astype(np.int64) for arrays in zip(*parts, strict=True))
    order = np.argsort(j, kind="stable")
    return j[order], m[order], b[order]


def _dropping_actions(form: QueueModel, n: int, j: int) -> tuple[Integers, Integers, Integers]:
    """The actions at (n, T_j) where no offered batch fits the slack: the largest that does, else a drop of the head."""
    smaller = form.latency_s[:, : n - 1] <= _just_in_time(form)[j]
    if not smaller.any():
        return np.array([j]), np.array([0]), np.array([0])
    size = int(np.flatnonzero(smaller.any(axis=0))[-1])
    models = np.flatnonzero(smaller[:, size])
    return np.full(models.size, j), models, np.full(models.size, size + 1)


def _faults(form: QueueModel) -> list[str]:
    found: list[str] = []
    shape = form.latency_s.shape
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2 or not (form.latency_s > 0).all():
        return ["`latency_s` has a row per model and a column per batch 1..N + 1, all > 0"]
    if not np.isfinite(form.latency_s).all():
        found.append("every latency is finite")
    if (np.diff(form.latency_s[:, 0]) < 0).any():
        found.append("models are in the order of their latency at batch 1")
    if form.accuracy.shape != (form.models,) or not ((form.accuracy >= 0) & (form.accuracy <= 1)).all():
        found.append("one accuracy in [0, 1] per model")
    if form.grid_s.size < 2 or form.grid_s[0] != 0 or not (np.diff(form.grid_s) > 0).all():
        found.append("the grid of slacks rises from 0 to the SLO")
    if form.stages < 1:
        found.append("at least one stage")
    if form.stage_rates.size < 1 or not (np.isfinite(form.stage_rates) & (form.stage_rates > 0)).all():
        found.append("every rate is finite and > 0")
    rate_of = form.rate_of
    if rate_of is not None and (rate_of.shape != (form.queue + 2,) or rate_of.max() >= form.stage_rates.size):
        found.append("`rate_of` names one of the rates for n = 0..N + 1")
    if form.stage_rates.size > 1 and form.stages > 1:
        found.append("a rate that depends on the queue goes with one stage only")
    if form.late is Late.DROP and form.empty is Empty.PAPER:
        found.append("dropping goes with `empty` = skip only")
    if form.reward is Reward.B_OVER_N and form.objective is PerWhat.PER_QUERY:
        found.append("the reward b / n is one per decision")
    if form.criterion is Criterion.DISCOUNTED and not 0 <= form.discount < 1:
        found.append("the discount lies in [0, 1)")
    if form.criterion is Criterion.HORIZON and form.horizon < 1:
        found.append("a horizon of at least one decision")
    return found
