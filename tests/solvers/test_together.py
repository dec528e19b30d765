"""All engines in one process, imported in either order: some wheels have carried libraries that clash."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

ORDER = ["highspy", "scipy.optimize", "ortools.math_opt.python.mathopt", "ortools.sat.python.cp_model", "pyomo.environ"]
PROGRAM = """
import importlib, sys
for module in sys.argv[1].split(","):
    importlib.import_module(module)
from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.testing.milp_cases import milp_cases
engines = registry.solvers("milp")
for engine in engines if sys.argv[2] == "forward" else engines[::-1]:
    for case in milp_cases():
        if case.name in ("optimum of a maximum", "a knapsack") and not engine.refuses(case.form):
            print(engine.name, case.name, round(engine.solve(case.form, Limits()).value, 6), sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_all_engines_work_together(order: str) -> None:
    there = [module for module in ORDER if importlib.util.find_spec(module.partition(".")[0])]
    modules = there if order == "forward" else there[::-1]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(modules), order], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    printed = [line.split("|") for line in run.stdout.splitlines()]
    assert {value for _, case, value in printed if case == "a knapsack"} == {"48.0"}
    assert {value for _, case, value in printed if case == "optimum of a maximum"} == {"36.0"}
    assert len({engine for engine, _, _ in printed}) >= 2
