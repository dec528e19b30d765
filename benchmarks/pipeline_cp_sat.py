"""How long CP-SAT takes for the budget model of the traffic chain, written natively in whole numbers, beside HiGHS.

    python benchmarks/pipeline_cp_sat.py

Levels and whole servers in one program. Shares and loads count in ten-thousandths; where coefficients are rounded, up,
so that every point found carries its load; the rows that say what a load is may be overfilled. Process time of one
thread, the writing of the model included, imports not.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

from benchmarks.pipeline import DEMANDS
from hetplan.api.solve import choose, pose
from hetplan.planner.answer import Limits
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.programs import levels_form
from hetplan.problems.pipeline.tree import all_levels, prefixes, thin_out, variant_tree
from hetplan.profiles.load import load_inputs
from hetplan.profiles.profile import Profile
from hetplan.solvers.highs import Highs
from hetplan_papers.datasets import loki
from hetplan_papers.datasets.sources import present

PARTS = 10_000
"""A share or load of 1, in whole numbers."""
FINE = 100
"""The smallest coefficient of a rounded row: finer is slower, coarser wastes capacity."""
SERVERS = 20


def budget_form(demand: float) -> Milp:
    """Levels and servers of the traffic chain, both whole."""
    profile, slo = loki.traffic_chain(demand, servers=SERVERS)
    inputs = load_inputs(Profile.model_validate(profile), slo)
    problem = pose(inputs, choose(inputs, question="pipeline", formulation="loki-budget"))
    forest = [(tree, prefixes(tree)) for tree in map(variant_tree, problem.served)]
    levels = [[thin_out(values, 8) for values in all_levels(tree)] for tree in problem.served]
    form = levels_form(problem.served, forest, levels, problem.wish.fleet, problem.aim("quality")).form
    whole = form.whole.copy()
    for block in form.columns:
        whole[block.start : block.stop] |= block.name.startswith("x ")
    return replace(form, whole=whole)


def by_cp_sat(form: Milp) -> float:
    """The value that CP-SAT proves best in its whole numbers."""
    from ortools.sat.python import cp_model

    model, matrix = cp_model.CpModel(), form.matrix.tocsr()
    weighted_sum = cp_model.LinearExpr.weighted_sum
    unit = np.where(form.whole, 1.0, 1.0 / PARTS)
    most = np.where(form.whole, np.minimum(form.upper, SERVERS), PARTS).astype(int)
    columns = [model.new_int_var(0, upper, "") for upper in most.tolist()]
    loads = {i for block in form.rows if block.name.startswith("load ") for i in range(block.start, block.stop)}
    for i in range(matrix.shape[0]):
        at = slice(matrix.indptr[i], matrix.indptr[i + 1])
        entries, used = matrix.data[at] * unit[matrix.indices[at]], [columns[j] for j in matrix.indices[at]]
        least = np.abs(entries).min()
        if form.row_lower[i] == form.row_upper[i] and i not in loads:
            exact = np.round(entries / least).astype(int).tolist()
            model.add(weighted_sum(used, exact) == round(form.row_upper[i] / least))
        else:
            scale = FINE / least
            up = np.ceil(entries * scale - 1e-9).astype(int).tolist()
            model.add(weighted_sum(used, up) <= int(form.row_upper[i] * scale + 1e-9))
    cost, priced = form.cost * unit, np.flatnonzero(form.cost)
    scale = 1e6 / cost.max()
    model.maximize(weighted_sum([columns[j] for j in priced], np.round(cost[priced] * scale).astype(int).tolist()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.search_branching = cp_model.LP_SEARCH  # the steadiest of nine ways tried
    if solver.solve(model) != cp_model.OPTIMAL:
        raise SystemExit("CP-SAT did not end with a proof")
    return float(solver.objective_value) / scale


def by_highs(form: Milp) -> float:
    """HiGHS on the same form, as it is."""
    value = Highs().solve(form, Limits(gap=1e-6)).value
    assert value is not None
    return value


def main() -> int:
    """Time both on ten demands."""
    if not present("loki"):
        print("the published profiles are not at hand (HETPLAN_DATA)")
        return 0
    forms = [budget_form(demand) for demand in DEMANDS]
    for way in (by_cp_sat, by_highs):
        way(forms[0])  # imports are not what is measured
        seconds, values = [], []
        for form in forms:
            began = time.process_time()
            values.append(way(form))
            seconds.append(time.process_time() - began)
        accuracies = " ".join(f"{100 * value:.3f}" for value in values)
        print(f"{way.__name__:10} median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s: {accuracies}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
