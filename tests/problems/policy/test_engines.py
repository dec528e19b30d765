"""The engine against a linear program over the explicit process; the form's operator against its matrix."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from cases.explicit_process import best_value, explicit
from cases.policy import random_process, solve

from hetplan.planner.answer import Limits, Status, Stop
from hetplan.planner.forms import queue_process_partial_kernels
from hetplan.planner.forms.queue_process import (
    Batching,
    Criterion,
    Empty,
    Late,
    Overflow,
    PerWhat,
    QueueProcess,
    Reward,
)
from hetplan.planner.forms.queue_process_partial import partial_moves
from hetplan.solvers.queue_structured import QueueStructured
from hetplan.solvers.queue_structured_kernels import Tables
from hetplan.solvers.queue_structured_tables import _last_landings, prepare

KINDS = {
    "per query": {},
    "per decision": {"objective": PerWhat.PER_DECISION},
    "any batch": {"batching": Batching.VARIABLE},
    "any batch per decision": {
        "batching": Batching.VARIABLE,
        "objective": PerWhat.PER_DECISION,
        "reward": Reward.B_OVER_N,
    },
    "drop": {"late": Late.DROP},
    "drop, any batch": {"late": Late.DROP, "batching": Batching.VARIABLE},
    "truncate": {"overflow": Overflow.TRUNCATE},
    "idling decides": {"empty": Empty.PAPER},
    "idling decides, per decision": {"empty": Empty.PAPER, "objective": PerWhat.PER_DECISION},
    "rates by queue": {"stages": 1, "rates": 2, "rate_of": np.array([0, 0, 0, 1, 1, 1])},
    "discounted": {"criterion": Criterion.DISCOUNTED, "discount": 0.9},
    "horizon": {"criterion": Criterion.HORIZON, "horizon": 20},
    "smallest": {"queue": 1, "models": 1, "stages": 1},
    "one stage": {"stages": 1},
    "many stages": {"stages": 12},
}
EACH = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.quick_cases(10)
@EACH
@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_agrees_with_a_linear_program_over_the_explicit_process(kind: str, seed: int) -> None:
    form = random_process(seed, **KINDS[kind])
    answer = solve(form)
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(best_value(explicit(form)), abs=3e-8)
    certificate = form.certify(answer)
    assert not certificate.faults
    assert certificate.residual < 1e-6


@EACH
def test_operator_and_matrix(kind: str) -> None:
    """One application to random values, one step of a random distribution: the same to rounding."""
    form = random_process(3, **KINDS[kind])
    process = explicit(form)
    rng = np.random.default_rng(4)
    values, mass = rng.normal(size=form.states), rng.dirichlet(np.ones(form.states))
    best, chosen = form.operator.bellman(values, 0.3)
    assert best == pytest.approx(process.best(process.scores(values, 0.3)), abs=1e-12)
    every = np.concatenate([chosen, process.first[form.over : -1]])
    pushed = form.operator.push(mass, chosen)
    assert pushed == pytest.approx(process.moves[every].T @ mass, abs=1e-13)
    assert pushed.sum() == pytest.approx(1.0, abs=1e-12)
    scale = form.discount if form.criterion is Criterion.DISCOUNTED else 1.0
    for policy in (chosen, form.actions.first[:-1]):
        every = np.concatenate([policy, process.first[form.over : -1]])
        earned = process.reward[every] - 0.3 * process.weights[every]
        again, followed = form.operator.compare(values, policy, 0.3)
        assert np.array_equal(again, best)
        assert followed == pytest.approx(earned + scale * (process.moves[every] @ values))


def test_a_form_that_forgets_still_knows_its_size() -> None:
    form = random_process(3)
    size = form.size()
    form = random_process(3)
    _ = form.actions
    form.forget()
    assert form.size() == size
    assert "actions" not in vars(form), "nothing was listed again"


def test_rows_in_several_blocks_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    form = random_process(6, queue=5, stages=4, batching=Batching.VARIABLE)
    whole = form.partial_moves.moves
    monkeypatch.setattr(queue_process_partial_kernels, "_BLOCK", 1)
    blocks = partial_moves(form).moves
    assert (blocks.indptr == whole.indptr).all()
    assert (blocks.indices == whole.indices).all()
    assert (blocks.data == whole.data).all()


def test_a_family_on_threads_is_the_family_one_by_one() -> None:
    forms = [random_process(seed) for seed in range(6)]
    said: list[str] = []
    several = QueueStructured().solve_all(forms, Limits(threads=3), on_event=lambda event: said.append(event.detail))
    assert [a.value for a in several] == [solve(form).value for form in forms]
    assert sorted(said) == sorted(form.name for form in forms)


def test_limits() -> None:
    form = random_process(7)
    stopped = solve(form, work=1)
    assert (stopped.status, stopped.stop) == (Status.FEASIBLE, Stop.WORK)
    certificate = form.certify(stopped)
    assert certificate.faults == ()
    best = solve(form)
    assert stopped.value <= best.value <= certificate.bound + 1e-9
    cancel = threading.Event()
    cancel.set()
    assert solve(form, cancel=cancel).stop is Stop.CANCELLED


def test_a_start_gives_the_same_answer() -> None:
    form = random_process(8)
    first = solve(form)
    again = QueueStructured().solve(form, Limits(), start=first.point)
    assert again.value == pytest.approx(first.value, abs=1e-12)


def test_near_overload_the_queue_is_solved_exactly() -> None:
    """Long spells of an empty and of a full queue: sweeps alone crawl, and the value must still be right."""
    form = QueueProcess(
        latency_s=np.array([[0.5, 0.9, 1.25, 1.6, 2.0, 2.4, 2.8], [0.9, 1.5, 2.2, 2.9, 3.6, 4.3, 5.0]]),
        accuracy=np.array([0.6, 0.9]),
        grid_s=np.linspace(0, 1, 21),
        stages=20,
        stage_rates=np.array([20 * 2.25]),
        batching=Batching.VARIABLE,
    )
    answer = solve(form)
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(best_value(explicit(form)), abs=1e-8)
    assert form.certify(answer).faults == ()


@pytest.mark.parametrize(
    "how",
    [
        {"latency_s": np.array([[2.0, 3.0], [1.0, 2.0]])},
        {"accuracy": np.array([0.5, 1.2])},
        {"grid_s": np.array([0.0, 1.0, 1.0])},
        {"stages": 0},
        {"stage_rates": np.array([0.0])},
        {"latency_s": np.array([[1.0, np.nan], [2.0, 3.0]])},
        {"late": Late.DROP, "empty": Empty.PAPER},
        {"reward": Reward.B_OVER_N},
        {"criterion": Criterion.HORIZON},
        {"criterion": Criterion.DISCOUNTED},
        {"stages": 2, "stage_rates": np.array([1.0, 2.0])},
    ],
)
def test_a_form_refuses_what_is_no_process(how: dict) -> None:  # type: ignore[type-arg]
    right = {
        "latency_s": np.array([[1.0, 2.0], [2.0, 3.0]]),
        "accuracy": np.array([0.5, 0.9]),
        "grid_s": np.array([0.0, 1.0, 2.0]),
        "stages": 1,
        "stage_rates": np.array([1.0]),
    }
    with pytest.raises(ValueError, match="not a queue process"):
        QueueProcess(**{**right, **how})


def test_tables_that_are_kept_for_the_next_form_are_those_of_this_form() -> None:
    """Whole batches, then any; then another load, other latencies, slacks, stages and a longer queue."""
    one = random_process(3, stages=2)
    longer = replace(one, latency_s=np.hstack([one.latency_s, one.latency_s[:, -1:] + 0.1]))
    slower, coarser = replace(one, latency_s=1.05 * one.latency_s), replace(one, grid_s=1.1 * one.grid_s)
    others = (replace(one, batching=Batching.VARIABLE), replace(one, stage_rates=1.3 * one.stage_rates), slower)
    for form in (one, *others, coarser, replace(one, stages=3), longer, one):
        kept = prepare(form)
        _last_landings.clear()
        alone = prepare(form)
        prepare(one)
        for name, left, right in zip(Tables._fields, kept, alone, strict=True):
            assert np.array_equal(left, right), name
