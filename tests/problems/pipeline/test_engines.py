"""The programs of pipelines on engines of other kinds than the default."""

from pathlib import Path

import pytest

import hetplan as hp
from hetplan import registry
from hetplan.api.solve import choose, pose
from hetplan.errors import NoSolver
from hetplan.planner.answer import Limits
from hetplan.planner.forms.form import certify
from hetplan.problems.pipeline.programs import config_form
from hetplan.problems.pipeline.tree import prefixes
from hetplan.profiles.load import load_inputs
from hetplan_papers.datasets import loki
from hetplan_papers.datasets.sources import present

published = pytest.mark.skipif(not present("loki"), reason="the published data are not at hand (HETPLAN_DATA)")


@published
@pytest.mark.slow
def test_a_constraint_solver_on_a_grid_keeps_shares_whole():
    """Shares handed to CP-SAT as they are get rounded: 67.4669 was called optimal. On a grid it is the true 82.4055."""
    pytest.importorskip("ortools")
    inputs = load_inputs(*loki.traffic_chain(600))
    problem = pose(inputs, choose(inputs, question="pipeline", formulation="pipeline-milp"))
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    form = config_form(forest, problem.wish.fleet, problem.aim("quality")).form
    engine = next(one for one in registry.solvers("milp") if one.name == "cp-sat-scaled")
    answer = engine.solve(form, Limits(work=10))
    certificate = certify(form, answer)
    assert certificate.sound
    assert 100 * certificate.value == pytest.approx(82.4055, abs=0.01)


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.slow
def test_a_constraint_solver_that_is_named_answers_the_shipped_pool_and_the_bound_is_proved():
    pytest.importorskip("ortools")
    files = (EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json")
    planned = {"sizing": "fluid"}
    outcome = hp.solve(*files, solver="cp-sat", options=planned)
    assert outcome.exit_code == 0, outcome.why
    mine, default = outcome.plan.claims[0], hp.solve(*files, options=planned).plan.claims[0]
    assert mine.value == pytest.approx(default.value, rel=1e-6)
    assert (mine.vouched, mine.gap) == ("certified", pytest.approx(0.0, abs=1e-4))


@pytest.mark.slow
def test_a_constraint_solver_that_is_named_answers_a_shipped_pipeline_and_claims_no_more_than_is_proved():
    pytest.importorskip("ortools")
    files = (EXAMPLES / "pipeline" / "social-profile.json", EXAMPLES / "pipeline" / "social-slo.json")
    outcome = hp.solve(*files, solver="cp-sat", options={"sizing": "fluid"})
    assert outcome.exit_code == 0, outcome.why
    mine, best = outcome.plan.claims[0], hp.solve(*files, options={"sizing": "fluid"}).plan.claims[0].value
    assert best - 0.005 <= mine.value <= best + 1e-9
    assert mine.bound >= best - 1e-9
    engines = {solve.solver.partition(" ")[0] for solve in outcome.plan.solves}
    assert "cp-sat-scaled" in engines


def test_an_engine_without_a_stand_in_still_refuses_what_it_cannot_take():
    files = (EXAMPLES / "pipeline" / "social-profile.json", EXAMPLES / "pipeline" / "social-slo.json")
    with pytest.raises(NoSolver, match="integer columns"):
        hp.solve(*files, solver="glop", options={"sizing": "fluid"})
