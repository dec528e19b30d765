"""An engine that cannot take a form says why in words that help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetplan.errors import NoSolver, SolverFailed
from hetplan.planner.answer import Limits, Vouched
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.solvers.cp_sat import CpSat, CpSatScaled
from hetplan.solvers.highs import Highs
from hetplan.solvers.mathopt import Glop
from hetplan.solvers.milp_engine import MilpEngine
from hetplan.solvers.pyomo_bridge import Pyomo, pyomo_with


def integer_form(**changes: object) -> Milp:
    m = Builder("max")
    settings = {"upper": 5.0, "cost": [1.0, 2.0], "whole": True} | changes
    x = m.columns("count", ["gpu", "cpu"], **settings)
    m.add(m.rows("budget", ["usd"], upper=2.5), x, [0.5, 0.25])
    return m.build()


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    class Absent(MilpEngine):
        name = "absent"
        package = "no-such-package"
        module = "no_such_package"
        extra = "ortools"

    form = integer_form()
    assert Absent().refuses(form) == "no-such-package is not installed; run: pip install 'hetplan[ortools]'"
    assert Absent().version() == ""
    with pytest.raises(NoSolver, match="not installed"):
        Absent().solve(form, Limits())


def test_cp_sat_refuses_continuous_columns() -> None:
    assert "2 columns are continuous" in CpSat().refuses(integer_form(whole=False))


def test_cp_sat_refuses_coefficients_that_no_power_of_ten_makes_whole() -> None:
    m = Builder("max")
    x = m.columns("count", ["gpu"], upper=5.0, cost=1.0, whole=True)
    m.add(m.rows("budget", ["usd"], upper=2.5), x, [1.0 / 3.0])
    assert "row budget[usd]" in CpSat().refuses(m.build())
    assert "objective" in CpSat().refuses(integer_form(cost=[np.pi, 1.0]))


def test_cp_sat_refuses_columns_without_bounds_unless_rows_give_them() -> None:
    assert CpSat().refuses(integer_form(upper=np.inf)) == ""
    m = Builder("min")
    m.columns("count", ["gpu", "cpu"], cost=1.0, whole=True)
    m.rows("nothing", ["r"], upper=1.0)
    assert "column count[gpu] has no finite bounds" in CpSat().refuses(m.build())


def test_cp_sat_refuses_numbers_beyond_64_bits() -> None:
    assert "64 bits" in CpSat().refuses(integer_form(upper=1e18, cost=[1e6, 1.0]))


def test_cp_sat_scaled_leaves_linear_programs_to_highs() -> None:
    form = integer_form(whole=False)
    assert not CpSatScaled().refuses(form)
    answer, expected = (engine.solve(form, Limits()) for engine in (CpSatScaled(), Highs()))
    assert (answer.status, answer.value) == (expected.status, expected.value)
    assert certify(form, answer).vouched is Vouched.CERTIFIED


def test_cp_sat_names_the_engine_that_takes_continuous_columns() -> None:
    assert "cp-sat-scaled" in CpSat().refuses(replace(integer_form(), whole=np.array([True, False])))


def test_linear_engines_refuse_integers() -> None:
    assert "2 integer columns" in Glop().refuses(integer_form())


def test_highs_refuses_what_it_would_reject() -> None:
    assert "1e+15" in Highs().refuses(integer_form(upper=np.inf)) or Highs().refuses(integer_form()) == ""
    m = Builder("max")
    m.add(m.rows("r", ["r"], upper=1.0), m.columns("x", ["x"]), 1e16)
    assert "larger units" in Highs().refuses(m.build())


def test_a_release_known_to_be_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Highs, "version", lambda self: "1.14.0")
    assert "wrong optima" in Highs().refuses(integer_form())
    assert Highs().refuses(integer_form(whole=False)) == ""
    assert "wrong optima" in Pyomo().refuses(integer_form())


def test_an_engine_that_pyomo_does_not_find_is_refused() -> None:
    assert "does not find gurobi_no_such" in pyomo_with("gurobi_no_such").refuses(integer_form())


def test_an_engine_whose_limits_are_unknown_is_not_run_with_one() -> None:
    unknown = pyomo_with("ipopt")
    with pytest.raises(SolverFailed, match="limit of seconds"):
        unknown._options(Limits(seconds=3.0))
    assert unknown._options(Limits()) == {}


def test_an_engine_by_pyomos_other_interface_answers() -> None:
    engine = pyomo_with("highs")
    form = integer_form()
    if reason := engine.refuses(form):
        pytest.skip(reason)
    assert engine.name == "pyomo:highs"
    assert engine.solve(form, Limits()).value == pytest.approx(12.0)
