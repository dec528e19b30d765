r"""One worker, its queue and its models: the decision process behind model-selection policies.

A worker holds models of different accuracy and speed. Whenever it is free and its queue is not empty, it picks a model
and a batch from the head of the queue. Notation, as in RAMSIS (EuroSys 2024), sections 4.1 to 4.4:

====================  ==================================================================================
n, N                  queries waiting, and the most that a state counts
T_j, j = 0..G-1       the slack of the oldest query, rounded down onto `grid_s`; T_0 = 0, T_{G-1} = SLO
l(m, b), acc_m        seconds that model m needs for a batch of b <= N + 1; its accuracy
K, nu                 own inter-arrival times are Erlang: K stages of rate nu (round robin over K workers
                      under Poisson arrivals of rate nu: every K-th query is ours)
x, r                  stages since the last own arrival, 0..K-1
====================  ==================================================================================

States are (n, T_j) and "over" (more than N wait). Actions are (m, b) with l(m, b) <= T_j, b = n (`max`) or 1 <= b <= n
(`variable`); where none is possible the fastest model takes all n (`serve`), or the head is dropped (`drop`). Under
`variable` and `serve` the fastest model may always take all n, late: a queue that must be worked off in small batches
never recovers. A batch counts its accuracy where it meets the slack of its oldest query, else nothing. After a
service during which nobody came the worker idles to (1, SLO).

`per_query` maximises E[sum of b acc] / E[sum of b]: accuracy per query that arrives, which is the goodput.
`per_decision` is the paper's objective: accuracy per decision, whatever the batch.

The form applies its own Bellman operator (`operator`), from the process data alone and without a transition matrix:
that is how `certify` re-proves the value of a policy and bounds its loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.form import Form
from hetplan.planner.forms.mdp import Criterion

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer
    from hetplan.planner.certificate import Certificate
    from hetplan.planner.forms.queue_process_actions import Actions
    from hetplan.planner.forms.queue_process_operator import Operator
    from hetplan.planner.forms.queue_process_partial import PartialMoves

__all__ = ["Batching", "Empty", "Late", "Overflow", "PerWhat", "QueuePolicy", "QueueProcess", "Reward"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
class QueueProcess(Form[QueuePolicy]):
    """A worker's decision process; see the module for its mathematics. The fastest model comes first.

    >>> two_models = QueueProcess(
    ...     latency_s=np.array([[1.0, 2.0], [2.0, 3.0]]), accuracy=np.array([0.5, 0.9]),
    ...     grid_s=np.array([0.0, 1.0, 2.0]), stages=1, stage_rates=np.array([np.log(2)]),
    ... )
    >>> two_models.size()
    {'states': 4, 'models': 2, 'queue': 1, 'slacks': 3, 'stages': 1, 'actions': 4}
    """

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
        from hetplan.planner.forms.queue_process_actions import list_actions

        return list_actions(self)

    @cached_property
    def action_count(self) -> int:
        """How many actions there are; kept when the actions themselves are dropped."""
        return int(self.actions.model.size)

    @cached_property
    def operator(self) -> Operator:
        """The Bellman operator and its transpose."""
        from hetplan.planner.forms.queue_process_operator import Operator

        return Operator(self)

    @cached_property
    def partial_moves(self) -> PartialMoves:
        """Where actions that leave some of the queue behind lead to, as sparse rows."""
        from hetplan.planner.forms.queue_process_partial import partial_moves

        return partial_moves(self)

    def forget(self) -> None:
        """Drop what was computed and is kept: up to a hundred megabytes where any batch may be taken."""
        if "actions" in vars(self):
            _ = self.action_count
        for kept in ("actions", "operator", "partial_moves"):
            vars(self).pop(kept, None)

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

    def size(self) -> dict[str, int]:
        """States, models, longest queue, slacks, stages, actions."""
        return {
            "states": self.states,
            "models": self.models,
            "queue": self.queue,
            "slacks": self.slacks,
            "stages": self.stages,
            "actions": self.action_count,
        }

    def policy(self, chosen: Integers) -> QueuePolicy:
        """The policy that takes action `chosen[(n - 1) G + j]` of `actions`."""
        shape = (self.queue, self.slacks)
        return QueuePolicy(self.actions.model[chosen].reshape(shape), self.actions.batch[chosen].reshape(shape))

    def chosen(self, policy: QueuePolicy) -> Integers:
        """The actions that a policy takes; -1 where it takes one that the state does not have."""
        return self.actions.find(policy.model.ravel(), policy.batch.ravel())

    def certify(self, answer: Answer[QueuePolicy]) -> Certificate:
        """Re-prove the policy's value and bound its loss, by one application of the Bellman operator to the proof."""
        from hetplan.planner.forms.queue_process_certify import certify_queue_process

        return certify_queue_process(self, answer)


def _faults(form: QueueProcess) -> list[str]:
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
