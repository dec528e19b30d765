"""The golden cases that can be checked by hand: transitions, stationary distributions, objectives, engines."""

import numpy as np
import pytest
from cases.explicit_process import best_value, explicit, reference_row
from cases.policy import g1, g2, g3, plays, rows, solve

from hetplan.planner.forms.queue_process import Criterion, PerWhat, QueueProcess
from hetplan.planner.forms.queue_process_arrivals import phase_weights, poisson

A, B = [0, 0, 0], [0, 0, 1]


def test_g1_transitions() -> None:
    matrix = rows(g1(), plays(g1(), B))
    short, long = [0, 0.346574, 0.5, 0.153426], [0.173287, 0.173287, 0.25, 0.403426]
    assert matrix == pytest.approx(np.array([short, short, long, long]), abs=1e-6)


@pytest.mark.parametrize("models", [A, B], ids=["A", "B"])
def test_the_explicit_process_has_the_same_transitions(models: list[int]) -> None:
    form = g1()
    process = explicit(form)
    chosen = np.append(form.chosen(plays(form, models)), process.first[3])
    assert process.moves[chosen].toarray() == pytest.approx(rows(form, plays(form, models)), abs=1e-12)


@pytest.mark.parametrize(
    ("models", "distribution"),
    [(A, [0.03544903, 0.31112456, 0.44885786, 0.20456855]), (B, [0.11323017, 0.23334342, 0.33664340, 0.31678301])],
    ids=["A", "B"],
)
def test_g1_stationary(models: list[int], distribution: list[float]) -> None:
    form = g1()
    assert form.long_run(form.chosen(plays(form, models))) == pytest.approx(distribution, abs=1e-8)


@pytest.mark.parametrize(
    ("accuracy", "models", "decision", "query"),
    [
        (0.9, A, 0.379991213, 0.315458356),
        (0.9, B, 0.419650769, 0.318693942),
        (0.88, A, 0.379991213, 0.315458356),
        (0.88, B, 0.412917901, 0.313580823),
    ],
)
def test_g1_values(accuracy: float, models: list[int], decision: float, query: float) -> None:
    for objective, value in ((PerWhat.PER_DECISION, decision), (PerWhat.PER_QUERY, query)):
        form = g1(accuracy, objective=objective)
        chosen = form.chosen(plays(form, models))
        assert form.value_of(form.long_run(chosen), chosen) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("accuracy", "objective", "best"),
    [
        (0.9, PerWhat.PER_DECISION, B),
        (0.9, PerWhat.PER_QUERY, B),
        (0.88, PerWhat.PER_DECISION, B),
        (0.88, PerWhat.PER_QUERY, A),
    ],
)
def test_the_objective_decides_between_a_and_b(accuracy: float, objective: PerWhat, best: list[int]) -> None:
    form = g1(accuracy, objective=objective)
    answer = solve(form)
    assert answer.point.model.tolist() == [best]
    assert form.certify(answer).faults == ()


def test_g1_hundred_sweeps() -> None:
    form = g1(objective=PerWhat.PER_DECISION, criterion=Criterion.HORIZON, horizon=100)
    assert solve(form).value == pytest.approx(42.3374187353523, abs=1e-11)
    assert best_value(explicit(form)) == pytest.approx(42.3374187353523, abs=1e-11)


def outcomes(form: QueueProcess) -> np.ndarray:
    """Phase x (state): where a service of the one model that takes 1.6 s ends."""
    return np.asarray(explicit(form).moves.toarray())


G2 = (
    (0, [[0.003315, 0.096471, 0.169843, 0.161690], [0.007756, 0.148442, 0.115153, 0.020721]], 0.171201, 0.105408),
    (1, [[0.033425, 0.142668, 0.101906, 0.061143], [0.079706, 0.239478, 0.073032, 0.008492]], 0.040762, 0.219387),
)


@pytest.mark.parametrize(("phase", "numbers", "empty", "over"), G2)
def test_g2_kernel(phase: int, numbers: list[list[float]], empty: float, over: float) -> None:
    """Seen through the operator: unit values in one state give the probability of that state, phase by phase."""
    form = g2()
    operator = form.operator
    service = next(i for i, s in enumerate(operator.services) if s.batch == 1)

    def probability(state: int) -> float:
        return float(operator._futures(np.eye(form.states)[state])[service, phase])

    for n, row in enumerate(numbers):
        assert [probability(n * form.slacks + j) for j in range(4)] == pytest.approx(row, abs=1e-6)
    assert probability(form.slacks - 1) == pytest.approx(empty, abs=1e-6)
    assert probability(form.over) == pytest.approx(over, abs=1e-6)


def test_g2_phases() -> None:
    means = np.array([2.0 * (2.0 - 1.0)])
    assert phase_weights(waiting=1, stages=2, means=means)[0] == pytest.approx([1 / 3, 2 / 3])
    assert phase_weights(waiting=2, stages=2, means=means)[0] == pytest.approx([0.6, 0.4])


def test_g3_partial_batch() -> None:
    form = g3()
    actions = form.actions
    (action,) = np.flatnonzero((actions.waiting == 2) & (actions.slack == 2) & (actions.batch == 1))
    wanted = np.zeros(form.states)
    wanted[[1, 2, form.slacks + 1, form.slacks + 2]] = 0.183940
    wanted[form.over] = 0.264241
    place = np.flatnonzero(form.partial_moves.action == action)
    assert form.partial_moves.moves[place].toarray()[0] == pytest.approx(wanted, abs=1e-6)
    columns, data = reference_row(form, int(action))
    assert data == pytest.approx(wanted[columns], abs=1e-6)


def test_poisson_keeps_small_counts_at_large_means() -> None:
    """At mean 60 the count 0 has 1e-26; cutting a support by the size of its entries has lost such counts."""
    window = poisson(60.0)
    assert window.low == 0
    assert window.probability[0] == pytest.approx(np.exp(-60.0), rel=1e-12)
    assert window.probability.sum() == pytest.approx(1.0, abs=1e-14)
    with pytest.raises(ValueError, match="read-only"):
        window.probability[0] = 1.0


def test_phases_of_unlikely_states_do_not_underflow() -> None:
    weights = phase_weights(waiting=1, stages=60, means=np.array([3000.0]))
    assert weights[0, -1] == pytest.approx(1 - 59 / 3000, rel=1e-3)
