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
from typing import TYPE_CHECKING

from hetplan.planner.forms.queue_process_certify import certify_queue_process
from hetplan.planner.forms.queue_process_model import (
    Batching,
    Criterion,
    Empty,
    Late,
    Overflow,
    PerWhat,
    QueuePolicy,
    Reward,
)
from hetplan.planner.forms.queue_process_operator import OperatedQueue

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer, Certificate

__all__ = ["Batching", "Criterion", "Empty", "Late", "Overflow", "PerWhat", "QueuePolicy", "QueueProcess", "Reward"]


@dataclass(frozen=True)
class QueueProcess(OperatedQueue):
    """A worker's decision process; see the module for its mathematics. The fastest model comes first.

    >>> import numpy as np
    >>> two_models = QueueProcess(
    ...     latency_s=np.array([[1.0, 2.0], [2.0, 3.0]]), accuracy=np.array([0.5, 0.9]),
    ...     grid_s=np.array([0.0, 1.0, 2.0]), stages=1, stage_rates=np.array([np.log(2)]),
    ... )
    >>> two_models.size()
    {'states': 4, 'models': 2, 'queue': 1, 'slacks': 3, 'stages': 1, 'actions': 4}
    """

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

    def certify(self, answer: Answer[QueuePolicy]) -> Certificate:
        """Re-prove the policy's value and bound its loss, by one application of the Bellman operator to the proof."""
        return certify_queue_process(self, answer)
