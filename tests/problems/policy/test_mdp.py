"""Decision processes in general: the engine against brute force over all policies, and lies against `certify`."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cases.policy import best_by_program, random_mdp
from scipy.sparse import csr_array

from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.mdp import Criterion, Mdp, average_of
from hetplan.solvers import policy_iteration
from hetplan.solvers.mdp_wide_kernels import WideMatrix
from hetplan.solvers.policy_iteration import MdpModifiedPolicy


def best_by_hand(form: Mdp) -> float:
    """The best value over all deterministic policies (over plans of one decision at a time for a horizon)."""
    if form.criterion is Criterion.HORIZON:
        values = np.zeros(form.states)
        for _ in range(form.horizon):
            scores = form.reward + form.moves @ values
            values = np.array([scores[form.first[s] : form.first[s + 1]].max() for s in range(form.states)])
        return float(values[form.start])
    found = []
    for choice in product(*(range(form.first[s], form.first[s + 1]) for s in range(form.states))):
        chosen = np.array(choice)
        moves = form.moves[chosen].toarray()
        if form.criterion is Criterion.DISCOUNTED:
            values = np.linalg.solve(np.eye(form.states) - form.discount * moves, form.reward[chosen])
            found.append(values[form.start])
        else:
            spread = np.linalg.matrix_power(moves, 1 << 12)[0]
            found.append(spread @ form.reward[chosen] / (spread @ form.weights[chosen]))
    return float(max(found))


KINDS = {
    "average": {},
    "ratio": {"weighted": True},
    "discounted": {"criterion": Criterion.DISCOUNTED, "discount": 0.85, "start": 2},
    "horizon": {"criterion": Criterion.HORIZON, "horizon": 7, "start": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_engine_against_brute_force(kind: str, seed: int) -> None:
    form = random_mdp(seed, **KINDS[kind])
    answer = MdpModifiedPolicy().solve(form, Limits())
    wanted = best_by_hand(form)
    if form.criterion is not Criterion.HORIZON:
        assert best_by_program(form) == pytest.approx(wanted, abs=1e-7), "the oracle of larger processes"
    assert answer.value == pytest.approx(wanted, abs=1e-7)
    certificate = form.certify(answer)
    assert certificate.faults == ()
    assert certificate.value == pytest.approx(wanted, abs=1e-7)
    assert certificate.vouched is Vouched.CERTIFIED
    assert wanted - 1e-9 <= certificate.bound <= wanted + 1e-6


def test_values_of_any_quality_give_a_true_bound() -> None:
    """Whatever values are carried, no policy beats the bound that they prove."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        kind = KINDS[("average", "ratio", "discounted")[seed % 3]]
        form = random_mdp(seed, **kind)
        answer = MdpModifiedPolicy().solve(form, Limits())
        proof = {"values": rng.normal(size=form.states), "gain": float(rng.uniform(-1, 1))}
        certificate = form.certify(replace(answer, proof=proof, bound=None))
        assert certificate.faults == ()
        assert certificate.bound >= best_by_hand(form) - 1e-9


def test_lies_are_found() -> None:
    form = random_mdp(4)
    answer = MdpModifiedPolicy().solve(form, Limits())
    assert form.certify(replace(answer, value=answer.value + 1e-3)).faults
    wrong_state = np.array(answer.point)
    wrong_state[0] = form.first[-1] - 1
    assert "no action of state" in form.certify(replace(answer, point=wrong_state)).faults[0]
    assert form.certify(replace(answer, point=wrong_state[:-1])).faults
    assert form.certify(Answer(Status.INFEASIBLE)).faults
    assert form.certify(Answer(Status.OPTIMAL)).faults
    without = form.certify(replace(answer, proof={}))
    assert (without.vouched, without.certified_bound) == (Vouched.CLAIMED, None)


def test_average_of_a_periodic_policy() -> None:
    """Two states in turn: rewards 0 and 1 average one half, though values never settle."""
    form = Mdp(np.array([0, 1, 2]), csr_array(np.array([[0.0, 1.0], [1.0, 0.0]])), np.array([0.0, 1.0]))
    assert average_of(form, np.array([0, 1])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"first": np.array([0, 2])}, "must run from 0"),
        ({"first": np.array([0, 0, 2])}, "has no action"),
        ({"reward": np.array([0.0])}, "reward per pair"),
        ({"weight": np.array([1.0, -1.0])}, "weight"),
        ({"moves": csr_array(np.array([[0.5, 0.4], [1.0, 0.0]]))}, "sums to 1"),
        ({"moves": csr_array(np.array([[1.5, -0.5], [1.0, 0.0]]))}, "not negative"),
        ({"criterion": Criterion.DISCOUNTED}, "discount"),
        ({"criterion": Criterion.HORIZON}, "horizon"),
    ],
)
def test_what_is_no_process(how: dict, why: str) -> None:  # type: ignore[type-arg]
    right = {"first": np.array([0, 1, 2]), "moves": csr_array(np.eye(2)), "reward": np.zeros(2)}
    with pytest.raises(ValueError, match=why):
        Mdp(**{**right, **how})


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 6, 41])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_four_rows_side_by_side_are_scipys_product_to_the_last_bit(rows: int, kind: type) -> None:
    rng = np.random.default_rng(rows)
    dense = rng.random((rows, 30)) * (rng.random((rows, 30)) < rng.random((rows, 1)))
    matrix = csr_array(dense)
    matrix.indices, matrix.indptr = matrix.indices.astype(kind), matrix.indptr.astype(kind)
    values = rng.standard_normal(30)
    assert np.array_equal(WideMatrix(matrix).times(values), matrix @ values)


def test_a_large_matrix_is_swept_to_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    form = random_mdp(3, criterion=Criterion.HORIZON, horizon=7, start=1)
    plain = MdpModifiedPolicy().solve(form, Limits())
    monkeypatch.setattr(policy_iteration, "WIDE", 0)
    wide = MdpModifiedPolicy().solve(form, Limits())
    assert wide.value == plain.value
    assert np.array_equal(wide.point, plain.point)
