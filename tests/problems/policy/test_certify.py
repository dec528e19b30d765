"""Planted wrong answers about queues: what `certify` must find, and what its bound must never be below."""

from dataclasses import replace

import numpy as np
import pytest
from cases.explicit_process import explicit
from cases.policy import random_process, solve

from hetplan.planner.answer import Answer, Status, Vouched
from hetplan.planner.forms.queue_process import Batching, Criterion, Empty, Late, PerWhat, QueuePolicy, QueueProcess

KINDS = (
    {},
    {"objective": PerWhat.PER_DECISION},
    {"batching": Batching.VARIABLE},
    {"late": Late.DROP},
    {"empty": Empty.PAPER},
    {"criterion": Criterion.DISCOUNTED, "discount": 0.9},
    {"criterion": Criterion.HORIZON, "horizon": 12},
)
EACH = pytest.mark.parametrize("how", KINDS, ids=str)


@EACH
def test_a_sound_answer_is_certified(how: dict) -> None:  # type: ignore[type-arg]
    form = random_process(1, **how)
    answer = solve(form)
    certificate = form.certify(answer)
    assert certificate.faults == ()
    assert certificate.vouched is Vouched.CERTIFIED
    assert certificate.value == pytest.approx(answer.value, abs=1e-8)
    assert 0 <= certificate.residual < 1e-7


@EACH
def test_a_wrong_value_is_found(how: dict) -> None:  # type: ignore[type-arg]
    form = random_process(1, **how)
    answer = solve(form)
    assert form.certify(replace(answer, value=answer.value + 1e-4)).faults


@EACH
def test_a_bound_below_its_own_policy_is_found(how: dict) -> None:  # type: ignore[type-arg]
    form = random_process(1, **how)
    answer = solve(form)
    assert form.certify(replace(answer, bound=answer.value - 1e-3)).faults
    bare = form.certify(replace(answer, value=None, bound=answer.value - 1e-3, proof={}))
    assert bare.faults or form.criterion is Criterion.DISCOUNTED


@pytest.mark.slow
@EACH
def test_another_policy_with_the_best_one_s_proof_is_found(how: dict) -> None:  # type: ignore[type-arg]
    """The value of the proof is not the value of the policy that is handed over."""
    form = random_process(1, **how)
    answer = solve(form)
    actions = form.actions
    scores = explicit(form).scores(np.asarray(answer.proof["values"]), float(answer.proof.get("gain", 0.0)))
    ranges = zip(actions.first, actions.first[1:], strict=False)
    worst = np.array([start + int(scores[start:stop].argmin()) for start, stop in ranges])
    certificate = form.certify(replace(answer, point=form.policy(worst)))
    assert certificate.faults
    fresh = form.certify(replace(answer, point=form.policy(worst), value=None, proof={}))
    if form.criterion is Criterion.AVERAGE:
        assert fresh.value < answer.value - 1e-6


def test_an_action_that_the_state_does_not_have_is_found() -> None:
    form = random_process(1)
    answer = solve(form)
    model = np.array(answer.point.model)
    model[0, 0] = form.models - 1
    faults = form.certify(replace(answer, point=QueuePolicy(model, answer.point.batch))).faults
    assert "no action at n = 1, slack 0" in faults[0]
    assert form.certify(replace(answer, point=QueuePolicy(model[:1], model[:1]))).faults


def test_a_distribution_that_is_not_stationary_is_found() -> None:
    form = random_process(2)
    answer = solve(form)
    mass = np.array(answer.proof["stationary"])
    mass[0], mass[1] = mass[0] + 1e-4, mass[1] - 1e-4
    faults = form.certify(replace(answer, proof={**answer.proof, "stationary": mass})).faults
    assert "not stationary" in faults[0]


def test_shifted_values_still_bound_every_policy() -> None:
    """Any values prove a bound; only good ones prove a close one."""
    rng = np.random.default_rng(3)
    for seed in range(6):
        form = random_process(seed, **KINDS[seed % 5])
        answer = solve(form)
        noise = rng.normal(scale=0.05, size=form.states)
        proof = {"values": np.asarray(answer.proof["values"]) + noise, "gain": answer.value - 0.02}
        certificate = form.certify(replace(answer, proof=proof))
        assert certificate.faults == ()
        assert certificate.bound >= answer.value - 1e-9
        assert certificate.residual > 1e-3


def test_answers_without_proof_or_point() -> None:
    form = random_process(4)
    answer = solve(form)
    bare = form.certify(replace(answer, proof={}))
    assert (bare.vouched, bare.value) == (Vouched.CLAIMED, pytest.approx(answer.value))
    assert form.certify(Answer(Status.OPTIMAL)).faults
    assert form.certify(Answer(Status.INFEASIBLE)).faults
    assert form.certify(Answer(Status.NO_ANSWER)).faults == ()


def test_values_that_are_none_are_not_a_proof() -> None:
    form: QueueProcess = random_process(5)
    answer = solve(form)
    broken = np.full(form.states, np.nan)
    assert form.certify(replace(answer, proof={"values": broken})).vouched is Vouched.CLAIMED
