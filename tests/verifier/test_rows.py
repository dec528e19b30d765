"""Programs of named rows: whatever a proof says, it bounds every point; what is no proof is refused, in words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.verifier.rows import NoProof, Rows


def drawn(seed: int) -> tuple[Rows, float | None]:
    """Three whole columns of at most four, three rows; and the best value there is."""
    rng = np.random.default_rng(seed)
    sense = ["min", "max"][seed % 2]
    program = Rows(sense)
    cost, high = rng.integers(-5, 6, 3) / 4, rng.integers(1, 5, 3)
    matrix, room = rng.integers(-2, 5, (3, 3)), rng.integers(2, 12, 3) + 0.5
    least = np.where(rng.random(3) < 0.3, rng.integers(-3, 2, 3), -np.inf)
    for j in range(3):
        program.column(f"x[{j}]", cost=float(cost[j]), low=0.0, high=float(high[j]), whole=True)
    for i in range(3):
        terms = {f"x[{j}]": float(matrix[i, j]) for j in range(3)}
        program.row(f"r[{i}]", terms, low=float(least[i]), high=float(room[i]))
    points = np.array(list(itertools.product(*(range(most + 1) for most in high))))
    taken = points @ matrix.T
    kept = points[((taken >= least) & (taken <= room)).all(axis=1)]
    if not len(kept):
        return program, None
    values = kept @ cost
    return program, float(values.min() if sense == "min" else values.max())


@st.composite
def any_proofs(draw: st.DrawFn) -> dict[str, Any]:
    """Any splits and any multipliers: honest in shape, whatever they say."""
    splits: list[list[int]] = []
    hanging: list[tuple[int, int]] = []
    leaves = 0
    for number in range(draw(st.integers(0, 4))):
        splits.append([draw(st.integers(0, 2)), draw(st.integers(-1, 5)), 0, 0])
        if hanging:
            split, side = hanging.pop(draw(st.integers(0, len(hanging) - 1)))
            splits[split][side] = number
        hanging += [(number, 2), (number, 3)]
    for split, side in hanging:
        leaves += 1
        splits[split][side] = -leaves
    prices = st.floats(-3.0, 3.0, allow_nan=False)
    lines = [" ".join(f"{draw(prices):.6g}" for _ in range(3)) for _ in range(max(leaves, 1))]
    columns, rows = [f"x[{j}]" for j in range(3)], [f"r[{i}]" for i in range(3)]
    return {
        "tree": {"columns": columns, "rows": rows, "splits": [" ".join(map(str, s)) for s in splits], "leaves": lines}
    }


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 400), proof=any_proofs())
def test_whatever_a_proof_says_no_point_is_beyond_its_bound(seed: int, proof: dict[str, Any]) -> None:
    program, best = drawn(seed)
    bound = program.bound(proof)
    if best is not None:
        assert program.flip * bound <= program.flip * best


def halves() -> Rows:
    """max x + y, 2x + 2y <= 3, whole: 1, where the relaxation has 1.5."""
    program = Rows("max")
    for name in "xy":
        program.column(name, cost=1.0, low=0.0, high=5.0, whole=True)
    program.row("room", {"x": 2.0, "y": 2.0}, high=3.0)
    return program


def tree(*splits: str, leaves: tuple[str, ...], columns: tuple[str, ...] = ("x", "y")) -> dict[str, Any]:
    return {"tree": {"columns": list(columns), "rows": ["room"], "splits": list(splits), "leaves": list(leaves)}}


def test_splits_prove_what_the_relaxation_does_not() -> None:
    program = Rows("max")
    program.column("x", cost=1.0, low=0.0, high=5.0, whole=True)
    program.row("room", {"x": 2.0}, high=3.0)
    assert program.bound({"row_duals": {"room": 0.5}}) == pytest.approx(1.5, abs=1e-12)
    # x <= 1 has its own end; x >= 2 takes more room than there is.
    assert program.bound(tree("0 1 -1 -2", leaves=("0", "1"))) == pytest.approx(1.0, abs=1e-12)


def test_where_nothing_is_possible_the_bound_says_so() -> None:
    nothing = Rows("max")
    nothing.column("x", cost=1.0, low=0.0, high=5.0, whole=True)
    nothing.row("room", {"x": 2.0}, high=-1.0)
    assert nothing.bound({"row_duals": {"room": 1.0}}) == -np.inf


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        ({}, "no proof that can be read"),
        ({"left_out": "tree: 9000 leaves"}, "too long"),
        ({"row_duals": {"elsewhere": 1.0}}, "does not have"),
        ({"row_duals": {"room": float("inf")}}, "no numbers"),
        ({"tree": None}, "no proof that can be read"),
        (tree(leaves=("0.5", "0.5")), "no splits"),
        (tree("0 0 -1 -1", leaves=("0.5",)), "no tree"),
        (tree("0 0 -1 -2", leaves=("0.5", "0.5", "0.5")), "no tree"),
        (tree("0 0 0 -1", leaves=("0.5",)), "no tree"),
        (tree("0 0 -1 -2", leaves=("0.5", "nan")), "no proof that can be read"),
        (tree("5 0 -1 -2", leaves=("0.5", "0.5")), "no proof that can be read"),
        (tree("0 0 -1 -2", leaves=("0.5", "0.5"), columns=("z",)), "whole numbers"),
    ],
)
def test_what_is_no_proof_is_refused_in_words(proof: dict[str, Any], why: str) -> None:
    with pytest.raises(NoProof, match=why):
        halves().bound(proof)


def test_a_column_without_an_end_is_not_believed_to_have_one() -> None:
    program = Rows("max")
    program.column("x", cost=1.0, low=0.0, high=np.inf)
    program.row("room", {"x": 1.0 / 3.0}, high=1.0)
    with pytest.raises(NoProof, match="bound nothing"):
        program.bound({"row_duals": {"room": 2.9}})


@pytest.mark.parametrize("seed", range(60))
def test_a_search_shows_what_is_best_and_never_more(seed: int) -> None:
    program, best = drawn(seed)
    sign = [1.0, -1.0][seed % 2]
    beyond = program.searched(sign * 1e6)
    if best is None:
        assert beyond == sign * np.inf
        return
    assert sign * beyond <= sign * best + 1e-9
    assert beyond == pytest.approx(best, abs=1e-6)
    again, _ = drawn(seed)
    assert sign * again.searched(best) >= sign * best - 1e-6
    assert sign * again.searched(best, most=2) <= sign * best + 1e-9
