"""Where actions lead that leave some of the queue behind: compiled rows and the verifier's against incomplete betas."""

import numpy as np
import pytest
from cases.explicit_process import reference_row

from hetplan.planner.forms.queue_process import Batching, Late, QueueProcess
from hetplan.planner.forms.queue_process_partial_kernels import compiled_rows
from hetplan.verifier.policy_chain import Chain, Step


def process(stages: int, load: float, **how: object) -> QueueProcess:
    """Two models, a queue of eight, uneven slacks; `load` in queries per second of the one worker."""
    batches = np.arange(1, 10)
    return QueueProcess(
        latency_s=np.stack([0.01 + 0.012 * batches, 0.03 + 0.02 * batches]),
        accuracy=np.array([0.6, 0.9]),
        grid_s=np.array([0.0, 0.008, 0.022, 0.05, 0.053, 0.09, 0.1, 0.12, 0.15]),
        stages=stages,
        stage_rates=np.array([stages * load]),
        batching=Batching.VARIABLE,
        **how,  # type: ignore[arg-type]
    )


CASES = [
    (1, 20.0, {}),
    (6, 20.0, {}),
    (6, 60.0, {"late": Late.DROP}),
    (60, 33.0, {}),
    # Many stages: for a likely phase an edge has everything below it, for another nothing.
    (200, 35.0, {}),
    (200, 3.5, {"late": Late.DROP}),
]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("stages", "load", "how"), CASES)
def test_rows_are_those_of_the_mathematics(stages: int, load: float, how: dict[str, object]) -> None:
    form = process(stages, load, **how)
    action = np.flatnonzero(form.actions.partial)
    rows = compiled_rows(form, action)
    assert np.abs(rows.sum(axis=1) - 1.0).max() < 1e-13
    assert rows.data.min() > 0
    wanted = np.zeros(rows.shape)
    for i, one in enumerate(action):
        columns, data = reference_row(form, int(one))
        wanted[i, columns] = data
    assert np.abs(rows.toarray() - wanted).max() < 2e-11


@pytest.mark.parametrize(("stages", "load", "how"), CASES)
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_step_of_the_verifier_is_one_of_the_mathematics(
    stages: int, load: float, how: dict[str, object], which: str
) -> None:
    """Under any policy at all, in every state but those that cannot be: several who wait and came this instant."""
    form = process(stages, load, **how)
    first, end = form.actions.first[:-1], form.actions.first[1:]
    chosen = {"first": first, "middle": (first + end) // 2, "last": end - 1}[which]
    policy = form.policy(chosen)
    rates = form.stage_rates[form.rates_by_queue]
    chain = Chain(form.latency_s, form.grid_s, form.stages, rates, policy.model, policy.batch, form.over_batch, False)
    values = np.random.default_rng(0).random(form.states)
    wanted = form.operator.compare(values, chosen)[1] - np.append(form.actions.reward[chosen], form.over_reward()[0])
    found = Step(chain).apply(np.append(values, 0.0)[:, None])[:-1].ravel()
    can_be = np.ones(form.states, bool)
    can_be[2 * form.slacks - 1 : form.over : form.slacks] = False
    assert found[can_be] == pytest.approx(wanted[can_be], abs=2e-10)
