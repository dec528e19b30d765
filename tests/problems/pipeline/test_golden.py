"""The specification's cases that fit on a page, on two engines and by every exact formulation."""

import pytest
from cases.pipelines import HAND, fluid

from hetplan.api.solve import choose, pose
from hetplan.planner.answer import Answer, Limits, Status
from hetplan.problems.pipeline.programs import config_form
from hetplan.problems.pipeline.scaling import climb
from hetplan.problems.pipeline.tree import prefixes
from hetplan.profiles.load import load_inputs
from hetplan.solvers.highs import Highs
from hetplan_papers.datasets import loki_by_hand


def claimed(outcome, about="quality"):
    return next(claim.value for claim in outcome.plan.claims if claim.about == about)


def servers(outcome):
    return sum(worker.count for worker in outcome.plan.workers)


def check(outcome, accuracy, count):
    if accuracy is None:
        assert outcome.exit_code == 3
        return
    assert outcome.reason == "verified", outcome.violations
    assert claimed(outcome) == pytest.approx(accuracy, abs=1e-5)
    if count is not None:
        assert servers(outcome) == count


@pytest.mark.quick_sample(30)
@pytest.mark.parametrize("engine", ["highs", "mathopt-scip"])
@pytest.mark.parametrize(("name", "arguments", "accuracy", "count"), HAND)
def test_hand_sized_cases(name, arguments, accuracy, count, engine):
    if engine == "mathopt-scip":
        pytest.importorskip("ortools")
    files = getattr(loki_by_hand, name)(*arguments)
    outcome = fluid(*files, solver=engine)
    check(outcome, accuracy, count)
    if accuracy is not None:
        assert outcome.status == "optimal"


@pytest.mark.quick_sample(15)
@pytest.mark.parametrize(("name", "arguments", "accuracy", "count"), HAND)
def test_the_papers_own_program_finds_the_same(name, arguments, accuracy, count):
    check(fluid(*getattr(loki_by_hand, name)(*arguments), formulation="loki"), accuracy, count)


@pytest.mark.parametrize(("servers_there", "accuracy"), [(2, 0.8), (3, 0.95), (4, 1.0)])
def test_equal_weights(servers_there, accuracy):
    outcome = fluid(*loki_by_hand.two_pipelines(servers_there, equal=True))
    assert claimed(outcome) == pytest.approx(accuracy)


def test_the_worst_served_first():
    outcome = fluid(*loki_by_hand.two_pipelines(3), options={"fairness": "maxmin"})
    assert claimed(outcome, "least_quality") == pytest.approx(0.9)
    assert outcome.status in ("optimal", "within-gap")


@pytest.mark.parametrize(("demand", "count"), [(20, 3), (30, 5), (31, None)])
def test_servers_are_minimised_by_the_papers_rule(demand, count):
    outcome = fluid(*loki_by_hand.tiny(0.2, demand), formulation="loki", options={"step1": "top-variants"})
    mode = next(p.basis for p in outcome.plan.promises if p.quantity == "quality")
    assert mode == ("mode accuracy" if count is None else "mode hardware")
    if count is not None:
        assert servers(outcome) == count


def test_under_a_tight_limit_the_papers_rule_never_minimises():
    outcome = fluid(*loki_by_hand.tiny(0.19, 20), formulation="loki", options={"step1": "top-variants"})
    assert next(p.basis for p in outcome.plan.promises if p.quantity == "quality") == "mode accuracy"
    assert claimed(outcome) == pytest.approx(0.9)


def test_one_latency_level_per_step():
    outcome = fluid(*loki_by_hand.tiny(0.2, 31), formulation="loki-budget")
    check(outcome, 0.964516, 5)
    assert outcome.plan.claims[0].scope == "restriction"


def test_no_demand_needs_no_servers():
    outcome = fluid(*loki_by_hand.tiny(0.2, 0))
    assert servers(outcome) == 0
    assert claimed(outcome) == 1.0
    assert outcome.exit_code == 0


def test_history_is_forecast():
    profile, slo = loki_by_hand.tiny(0.2, 1)
    slo["apps"]["x"]["rate_qps"] = {"history": [10, 20, 40]}
    outcome = fluid(profile, slo)
    rate = next(p.value for p in outcome.plan.promises if p.quantity == "rate_qps")
    assert rate == pytest.approx(23.905325, abs=1e-5)


def test_headroom_is_kept_free():
    full = fluid(*loki_by_hand.tiny(0.2, 30))
    roomy = fluid(*loki_by_hand.tiny(0.2, 24), options={"headroom": 0.2})
    assert servers(full) == servers(roomy) == 5


def test_a_floor_on_accuracy_is_a_demand_like_any_other():
    profile, slo = loki_by_hand.tiny(0.2, 60)
    slo["apps"]["x"]["quality"] = {"min": 0.9}
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3
    lowered = next(repair for repair in outcome.repairs if "quality" in repair.field)
    assert lowered.to == pytest.approx(0.84)


def test_servers_that_are_of_no_use_are_left_alone():
    """v1 runs on the one h only, v2 on g: accuracy is bounded by h, however many g there are."""
    profile, slo = loki_by_hand.two_gpus(90)
    for name, gpu in (("v1", "h"), ("v2", "g")):
        runs = profile["variants"][name]["runs"]
        profile["variants"][name]["runs"] = [run for run in runs if run["hardware"] == gpu]
    slo["limits"]["instances"] = {"g": [0, 10], "h": [0, 1]}
    outcome = fluid(profile, slo)
    assert claimed(outcome) == pytest.approx((50 + 0.8 * 40) / 90)
    assert claimed(outcome, "servers") == 2


def test_several_first_steps_are_all_entered_by_every_query():
    """Without the step in front of them, B and C of the two ends are served side by side, and count alike."""
    profile, slo = loki_by_hand.two_sinks(20)
    pipeline = profile["pipelines"]["p"]
    del pipeline["nodes"]["a"]
    pipeline["edges"] = []
    for demand, accuracy, count in ((10, 1.0, 2), (20, 1.0, 3), (40, 0.8125, 4)):
        slo["apps"]["x"]["rate_qps"] = demand
        check(fluid(profile, slo), accuracy, count)


def test_a_bound_that_counts_no_lower_proves_no_number_of_servers():
    """Under a wide gap an engine may stop where one fewer might do: then the fewest are asked for outright."""
    inputs = load_inputs(*loki_by_hand.tiny(0.2, 20))
    problem = pose(inputs, choose(inputs, question="pipeline", formulation="pipeline-milp"))
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    asked = []

    def ask(form, *, start=None, gap=None, about=""):
        asked.append(about)
        if "one server fewer" in about:
            value = form.value(start)
            return Answer(Status.OPTIMAL, point=start, value=value, bound=value - 1)
        return Highs().solve(form, Limits(gap=gap))

    _, _, reported = climb(
        ask,
        lambda one: config_form(forest, problem.wish.fleet, one),
        ("quality", "servers"),
        problem.aim("quality"),
        scope="problem",
    )
    assert asked == ["best accuracy", "whether one server fewer would do", "fewest servers"]
    assert reported[-1].answer.bound == pytest.approx(3)
