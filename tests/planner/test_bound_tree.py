"""Bounds proved by trees: whatever a tree says, it bounds; what is no tree is refused; a plan holds what proves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner import safe_bound
from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.safe_bound import BoundTree, bound_of_tree, written_tree
from hetplan.solvers.highs import Highs


def drawn(seed: int) -> Milp:
    """Three whole columns of at most four, one continuous, three rows."""
    rng = np.random.default_rng(seed)
    m = Builder(["min", "max"][seed % 2], offset=float(rng.integers(-3, 4)))
    x = m.columns("x", ["a", "b", "c"], upper=rng.integers(1, 5, 3), cost=rng.integers(-5, 6, 3) / 4, whole=True)
    y = m.columns("y", ["y"], upper=2.5, cost=float(rng.integers(-3, 4)))
    lower = np.where(rng.random(3) < 0.3, rng.integers(-3, 2, 3), -np.inf)
    row = m.rows("r", ["1", "2", "3"], lower=lower, upper=rng.integers(2, 12, 3) + 0.5)
    m.add(row[:, None], np.append(x, y)[None, :], rng.integers(-2, 5, (3, 4)))
    return m.build()


def best_of(form: Milp) -> float | None:
    """The best value by trying every whole point with the continuous column's two ends."""
    dense, found = form.matrix.toarray(), []
    for whole in itertools.product(*(range(int(most) + 1) for most in form.upper[:3])):
        rest, slope = dense[:, :3] @ np.array(whole), dense[:, 3]
        low, high = float(form.lower[3]), float(form.upper[3])
        feasible = True
        for i in range(3):
            if slope[i] == 0:
                feasible &= bool(form.row_lower[i] <= rest[i] <= form.row_upper[i])
                continue
            ends = sorted(((form.row_lower[i] - rest[i]) / slope[i], (form.row_upper[i] - rest[i]) / slope[i]))
            low, high = max(low, ends[0]), min(high, ends[1])
        if feasible and low <= high:
            found += [form.value(np.array([*whole, end])) for end in (low, high)]
    if not found:
        return None
    return min(found) if form.sense == "min" else max(found)


@st.composite
def any_trees(draw: st.DrawFn) -> BoundTree:
    """Any splits of the three whole columns, and any multipliers: honest in shape, whatever it says."""
    splits: list[list[int]] = []
    hanging: list[tuple[int, int]] = []
    leaves = 0
    for number in range(draw(st.integers(0, 4))):
        splits.append([draw(st.integers(0, 2)), draw(st.integers(-1, 5)), 0, 0])
        if number:
            split, side = hanging.pop(draw(st.integers(0, len(hanging) - 1)))
            splits[split][2 + side] = number
        hanging += [(number, 0), (number, 1)]
    for split, side in hanging:
        leaves += 1
        splits[split][2 + side] = -leaves
    y = st.lists(st.sampled_from([-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0, 50.0]), min_size=3, max_size=3)
    rows = draw(st.lists(y, min_size=max(1, leaves), max_size=max(1, leaves)))
    return BoundTree(np.array(splits, dtype=np.int64).reshape(-1, 4), np.array(rows))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 400), tree=any_trees(), known=st.booleans())
def test_whatever_a_tree_says_no_point_is_beyond_its_bound(seed: int, tree: BoundTree, known: bool) -> None:
    form = drawn(seed)
    best = best_of(form)
    bound = bound_of_tree(form, tree, value=best if known else None)
    assert bound is not None
    if best is not None:
        sign = 1.0 if form.sense == "min" else -1.0
        assert sign * bound <= sign * best + 1e-8


@pytest.mark.parametrize("seed", range(60))
def test_the_tree_of_an_answer_proves_the_best_value(seed: int) -> None:
    form, engine = drawn(seed), Highs()
    best, answer = best_of(form), engine.solve(form, Limits())
    proved = engine.prove(form, answer, Limits())
    if best is None:
        assert "tree" not in proved.proof
        return
    tree = proved.proof["tree"]
    assert isinstance(tree, BoundTree)
    assert bound_of_tree(form, tree, value=best) == pytest.approx(best, rel=1e-6, abs=1e-6)
    verdict = certify(form, proved)
    assert (verdict.faults, verdict.vouched) == ((), Vouched.CERTIFIED)


def branched() -> tuple[Milp, Answer[np.ndarray], BoundTree]:
    """A form whose proof needs splits, its answer, and the tree."""
    m = Builder("max")
    x = m.columns("x", ["a", "b"], upper=9, cost=[5 / 3, 4 / 3], whole=True)
    y = m.columns("y", ["y"], upper=1.0, cost=0.1)
    m.add(m.rows("r", ["1"], upper=23.5), np.append(x, y), [6, 4.5, 1])
    m.add(m.rows("s", ["2"], upper=6.3), np.append(x, y), [1, 2, 0])
    form = m.build()
    answer = Highs().prove(form, Highs().solve(form, Limits()), Limits())
    tree = answer.proof["tree"]
    assert isinstance(tree, BoundTree)
    assert len(tree.splits) >= 2
    return form, answer, tree


def spoilt(tree: BoundTree, row: int, at: int, value: int) -> BoundTree:
    splits = tree.splits.copy()
    splits[row, at] = value
    return replace(tree, splits=splits)


def test_what_is_no_tree_of_the_form_proves_nothing_and_is_named() -> None:
    form, answer, tree = branched()
    last = len(tree.splits) - 1
    wrong = {
        "a side that comes back to its own split": spoilt(tree, last, 2, last),
        "a side that goes up": spoilt(tree, last, 2, 0),
        "one leaf on both sides": spoilt(tree, last, 3, int(tree.splits[last, 2])),
        "a leaf that is not there": spoilt(tree, last, 2, -99),
        "a split that is not there": spoilt(tree, last, 2, 99),
        "a continuous column": spoilt(tree, 0, 0, 2),
        "a column that is not there": spoilt(tree, 0, 0, 7),
        "a leaf too many": replace(tree, leaves=np.vstack([tree.leaves, tree.leaves[:1]])),
        "a leaf too few": replace(tree, leaves=tree.leaves[:-1]),
        "no leaf": replace(tree, leaves=tree.leaves[:0]),
        "too few rows": replace(tree, leaves=tree.leaves[:, :1]),
        "not a number": replace(tree, leaves=tree.leaves * np.nan),
        "one leaf for both sides, and no other": BoundTree(np.array([[0, 2, -1, -1]]), tree.leaves[:1]),
        "one split on both sides": BoundTree(np.array([[0, 2, 1, 1], [1, 2, -1, -2]]), tree.leaves[:2]),
        "a side that is the root": BoundTree(np.array([[0, 2, -1, 1], [1, 2, -2, 0]]), tree.leaves[:2]),
        "splits that are no whole numbers": BoundTree(tree.splits.astype(float), tree.leaves),  # type: ignore[arg-type]
        "leaves without their splits": replace(tree, splits=tree.splits[:0]),
    }
    for name, forged in wrong.items():
        assert bound_of_tree(form, forged) is None, name
        verdict = certify(form, replace(answer, proof={"tree": forged}))
        assert any("tree" in fault for fault in verdict.faults), name


def test_a_worse_point_is_not_certified_by_a_true_tree() -> None:
    form, answer, _ = branched()
    worse = np.array([1.0, 1.0, 0.0])
    value = form.value(worse)
    lie = Answer(Status.OPTIMAL, point=worse, value=value, bound=value, proof=answer.proof)
    verdict = certify(form, lie)
    assert verdict.vouched is not Vouched.CERTIFIED
    assert verdict.certified_bound == pytest.approx(answer.value, rel=1e-6)


def test_a_weak_tree_leaves_the_engines_word_and_its_bound_is_kept_beside_it() -> None:
    form, answer, tree = branched()
    root = BoundTree(tree.splits[:0], Highs().solve(replace(form, whole=np.zeros(3, bool)), Limits()).row_duals[None])
    verdict = certify(form, replace(answer, bound=answer.value, proof={"tree": root}))
    assert (verdict.vouched, verdict.bound) == (Vouched.CLAIMED, answer.value)
    assert verdict.certified_bound is not None
    assert answer.value is not None
    assert answer.value * 1.001 < verdict.certified_bound < answer.value * 1.5


def test_leaves_are_bounded_in_parts_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    form, answer, tree = branched()
    whole = bound_of_tree(form, tree)
    monkeypatch.setattr(safe_bound, "AT_ONCE", 1)
    assert bound_of_tree(form, tree) == whole
    weakest = replace(tree, leaves=np.vstack([np.zeros_like(tree.leaves[:1]), tree.leaves[1:]]))
    loose = bound_of_tree(form, weakest)
    assert loose is not None
    assert answer.value is not None
    assert loose > answer.value * 1.01


def test_a_tree_proves_as_much_of_another_form_as_is_so_there() -> None:
    form, answer, tree = branched()
    roomier = replace(form, row_upper=form.row_upper + 20.0)
    better = Highs().solve(roomier, Limits()).value
    bound = bound_of_tree(roomier, tree)
    assert better is not None
    assert answer.value is not None
    assert bound is not None
    assert bound >= better > answer.value


def test_a_tree_of_empty_boxes_proves_that_there_is_no_point() -> None:
    m = Builder("min")
    x = m.columns("x", ["a"], upper=9, cost=1.0, whole=True)
    m.add(m.rows("r", ["1"], lower=2.4, upper=2.6), x, 1.0)
    tree = BoundTree(np.array([[0, 2, -1, -2]]), np.array([[1.0], [-1.0]]))
    assert bound_of_tree(m.build(), tree) == np.inf


def test_what_a_plan_holds_of_a_tree_proves_the_same() -> None:
    form, _, tree = branched()
    text = written_tree(form, tree)
    columns = {form.column_name(j): j for j in range(form.cost.size)}
    rows = {form.row_name(i): i for i in range(form.row_lower.size)}
    splits = np.array([[int(word) for word in line.split()] for line in text["splits"]])  # type: ignore[attr-defined]
    splits[:, 0] = [columns[text["columns"][k]] for k in splits[:, 0]]  # type: ignore[index]
    leaves = np.zeros((len(text["leaves"]), len(rows)))  # type: ignore[arg-type]
    leaves[:, [rows[name] for name in text["rows"]]] = [  # type: ignore[attr-defined]
        [float(word) for word in line.split()]
        for line in text["leaves"]  # type: ignore[attr-defined]
    ]
    assert bound_of_tree(form, BoundTree(splits, leaves)) == bound_of_tree(form, tree)
