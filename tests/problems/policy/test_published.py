"""The golden cases on the published models (skipped where the data are absent)."""

import numpy as np
import pytest
from cases.policy import solve
from cases.policy_published import GOLDEN, SIMULATED, Golden, present, process

from hetplan.planner.forms.queue_process import Batching, Criterion, PerWhat
from hetplan.planner.forms.queue_process_measures import measure
from hetplan.simulator.policy import simulate_policy

pytestmark = pytest.mark.skipif(not present(), reason="the published measurements are not beside the project")
CASES = pytest.mark.parametrize("case", GOLDEN, ids=str)
FIRST = GOLDEN[0]


@pytest.mark.slow
@CASES
def test_hundred_sweeps_and_what_they_expect(case: Golden) -> None:
    form = process(case, objective=PerWhat.PER_DECISION, criterion=Criterion.HORIZON, horizon=100)
    answer = solve(form)
    assert answer.value == pytest.approx(case.v100, abs=1e-8)
    average = process(case, objective=PerWhat.PER_DECISION)
    chosen = average.chosen(answer.point)  # type: ignore[arg-type]
    measures = measure(average, answer.point, average.long_run(chosen))  # type: ignore[arg-type]
    assert measures.accuracy_by_query == pytest.approx(case.accuracy, abs=1e-9)
    assert measures.violation_by_query == pytest.approx(case.violation, abs=1e-9)


@pytest.mark.quick_cases(3)
@CASES
def test_best_goodput(case: Golden) -> None:
    form = process(case)
    answer = solve(form)
    assert answer.value == pytest.approx(case.best, abs=1e-9)
    certificate = form.certify(answer)
    assert certificate.faults == ()
    assert certificate.residual < 1e-8


def test_the_first_case_in_full() -> None:
    form = process(FIRST, objective=PerWhat.PER_DECISION)
    answer = solve(form)
    assert answer.value == pytest.approx(0.7539143223, abs=1e-9)
    mass = np.asarray(answer.proof["stationary"])
    by_queue = mass[: form.over].reshape(form.queue, form.slacks).sum(axis=1)
    assert by_queue[:4] == pytest.approx([0.05726, 0.52924, 0.41029, 0.00321], abs=1e-5)
    # States of the paper's count: one more row for the empty queue.
    assert form.states + form.slacks == 3334
    assert form.actions.model.size + form.slacks + 1 == 3979


def test_discounted_and_second_state() -> None:
    discounted = solve(process(FIRST, objective=PerWhat.PER_DECISION, criterion=Criterion.DISCOUNTED, discount=0.99))
    assert discounted.value == pytest.approx(75.46136862648, abs=1e-7)
    horizon = solve(process(FIRST, objective=PerWhat.PER_DECISION, criterion=Criterion.HORIZON, horizon=100))
    assert np.asarray(horizon.proof["values"])[2 * 101 - 1] == pytest.approx(75.43162629166, abs=1e-8)


RUNS = {
    1: "1x24 2x16 3x9 4x36 5x8 4x8",
    2: "1x32 2x28 3x16 2x8 4x16 3x1",
    3: "1x43 2x58",
    4: "1x54 2x47",
}


def test_the_published_policy_where_it_matters() -> None:
    """Run lengths over the slack; elsewhere than at states that occur a policy is arbitrary."""
    form = process(FIRST, objective=PerWhat.PER_DECISION)
    answer = solve(form)
    mass = np.asarray(answer.proof["stationary"])[: form.over].reshape(form.queue, form.slacks)
    compared = 0
    for n, text in RUNS.items():
        wanted = [int(model) for run in text.split() for model, count in [run.split("x")] for _ in range(int(count))]
        occurs = mass[n - 1] > 1e-12
        compared += int(occurs.sum())
        assert (answer.point.model[n - 1] + 1)[occurs].tolist() == np.array(wanted)[occurs].tolist()  # type: ignore[union-attr]
    assert compared > 150
    assert (np.diff(answer.point.model[0, 80:]) < 0).any(), "policies are not monotone in the slack"  # type: ignore[union-attr]


KINDS = (
    {"objective": PerWhat.PER_DECISION},
    {},
    {"batching": Batching.VARIABLE},
)


@pytest.mark.slow
@pytest.mark.parametrize("row", SIMULATED, ids=lambda row: f"{row[0]}-{row[1]}-{row[3]}")
def test_simulated_goodput(row) -> None:  # type: ignore[no-untyped-def]
    task, slo_ms, workers, load, wanted = row
    for how, goodput in zip(KINDS, wanted, strict=True):
        form = process((task, slo_ms, workers, load, "100"), **how)
        answer = solve(form)
        run = simulate_policy(
            form,
            [answer.point],
            workers=workers,
            load_qps=load,
            queries=2_000_000,
            seeds=(11, 12, 13),  # type: ignore[list-item]
        )
        assert run.goodput == pytest.approx(goodput, abs=2e-4)


def test_simulation_of_the_first_case() -> None:
    """Better than expected in goodput and violations; not so in the accuracy of the queries in time (no bound)."""
    form = process(FIRST, objective=PerWhat.PER_DECISION)
    answer = solve(form)
    run = simulate_policy(form, [answer.point], workers=60, load_qps=2000, queries=1_000_000, seeds=(5, 6, 7))  # type: ignore[list-item]
    measures = measure(form, answer.point, np.asarray(answer.proof["stationary"]))  # type: ignore[arg-type]
    assert run.goodput == pytest.approx(0.74887, abs=2e-4)
    assert run.violation < 1e-4 < measures.violation_by_query
    assert run.goodput > measures.goodput
