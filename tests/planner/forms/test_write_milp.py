"""MPS and LP files read back as the program they were written from."""

from __future__ import annotations

import io
from pathlib import Path

import highspy
import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.forms.write_milp import write_lp, write_mps
from hetplan.testing.milp_cases import MilpCase, milp_cases

CASES = [case for case in milp_cases() if "cross" not in case.name and case.form.cost.size]


def written(form: Milp, kind: str) -> str:
    stream = io.StringIO()
    (write_mps if kind == "mps" else write_lp)(form, stream)
    return stream.getvalue()


def read(text: str, kind: str, folder: Path) -> highspy.Highs:
    path = folder / f"program.{kind}"
    path.write_text(text)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    return highs


@pytest.mark.parametrize("kind", ["mps", "lp"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reads_back(case: MilpCase, kind: str, tmp_path: Path) -> None:
    form = case.form
    lp = read(written(form, kind), kind, tmp_path).getLp()
    order = _order(lp.col_names_, form.cost.size, form.column_name, kind)
    assert np.array_equal(np.array(lp.col_cost_)[order], form.cost)
    assert np.array_equal(np.array(lp.col_lower_)[order], form.lower)
    assert np.array_equal(np.array(lp.col_upper_)[order], form.upper)
    assert lp.offset_ == form.offset
    assert (lp.sense_ == highspy.ObjSense.kMaximize) == (form.sense == "max")
    kinds = list(lp.integrality_) or [highspy.HighsVarType.kContinuous] * form.cost.size
    assert [kinds[j] == highspy.HighsVarType.kInteger for j in order] == form.whole.tolist()
    assert _rows(_dense(lp)[:, order], lp.row_lower_, lp.row_upper_) == _rows(
        form.matrix.toarray() if form.cost.size < 1000 else None, form.row_lower, form.row_upper
    )


def _order(names: list[str], size: int, name_of, kind: str) -> list[int]:
    """Columns in the form's order: LP files list them as they occur."""
    if kind == "mps" or size >= 1000:
        return list(range(size))
    return [names.index(name_of(j).replace("[", ".").removesuffix("]").removesuffix(".")) for j in range(size)]


def _dense(lp: highspy.HighsLp) -> np.ndarray:
    from scipy.sparse import csc_array, csr_array

    parts = (lp.a_matrix_.value_, lp.a_matrix_.index_, lp.a_matrix_.start_)
    kind = csc_array if lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise else csr_array
    matrix = kind(parts, shape=(lp.num_row_, lp.num_col_))
    return matrix.toarray() if lp.num_col_ < 1000 else np.zeros((lp.num_row_, lp.num_col_))


def _rows(matrix: np.ndarray | None, lower, upper) -> set[tuple[tuple[float, ...], float, float]] | None:
    """Each row's sides one by one: formats split a range, and leave out a side or row without a bound."""
    if matrix is None or matrix.shape[1] >= 1000:
        return None
    sides = set()
    for line, low, high in zip(matrix.tolist(), lower, upper, strict=True):
        if np.isfinite(low):
            sides.add((tuple(line), float(low), np.inf))
        if np.isfinite(high):
            sides.add((tuple(line), -np.inf, float(high)))
    return sides


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_the_optimum_is_the_same(kind: str, tmp_path: Path) -> None:
    for case in CASES:
        if case.value is None:
            continue
        highs = read(written(case.form, kind), kind, tmp_path)
        highs.run()
        assert highs.getInfo().objective_function_value == pytest.approx(case.value, rel=1e-6, abs=1e-6), case.name


def test_names_are_the_users_made_legal_and_unique(tmp_path: Path) -> None:
    m = Builder("max", name="pool of g4dn & c5n")
    count = m.columns("count", ["g4dn.xlarge", "c5n 2x", "c5n_2x", "e12", "größe"], upper=3.0, cost=1.0)
    free = m.columns("free", [""], cost=1.0)
    m.add(m.rows("capacity", ["batch 8/g4dn"], upper=4.0), np.append(count, free), 1.0)
    m.add(m.rows("end", [""], upper=9.0), count, 1.0)
    form = m.build()
    for kind in ("mps", "lp"):
        lp = read(written(form, kind), kind, tmp_path).getLp()
        assert set(lp.col_names_) == {
            "count.g4dn.xlarge",
            "count.c5n_2x",
            "count.c5n_2x~2",
            "count.e12",
            "count.gr__e",
            "free_",
        }
        assert list(lp.row_names_) == ["capacity.batch_8_g4dn", "end_"]


def test_numbers_keep_every_digit(tmp_path: Path) -> None:
    m = Builder("min", offset=1e-7 / 3)
    x = m.columns("x", ["a", "b"], lower=[-1 / 3, -np.inf], upper=[1e300, 2**60 / 7], cost=[np.pi, -1e-17])
    m.add(m.rows("r", ["r"], lower=-1e20 / 3, upper=1 / 7), x, [1e-5 / 3, 12345.678901234567])
    form = m.build()
    for kind in ("mps", "lp"):
        lp = read(written(form, kind), kind, tmp_path).getLp()
        assert list(lp.col_cost_) == form.cost.tolist()
        assert lp.col_lower_[0] == -1 / 3
        assert lp.row_upper_[-1] == 1 / 7


def test_long_rows_stay_short_in_lp_files() -> None:
    form = next(case.form for case in milp_cases() if case.name == "ten thousand columns")
    assert max(map(len, written(form, "lp").splitlines())) < 255


def test_a_program_that_no_file_can_hold_is_refused() -> None:
    for name in ("row bounds that cross", "no columns, rows that hold"):
        form = next(case.form for case in milp_cases() if case.name == name)
        for write in (write_mps, write_lp):
            with pytest.raises(InputError):
                write(form, io.StringIO())
