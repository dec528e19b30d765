"""InferLine's and Proteus' rules: what they take, where they fail, and that their plans are verified."""

import copy

import pytest
from cases.pipelines import fluid, random_pipeline

import hetplan as hp
from hetplan_papers.datasets import loki
from hetplan_papers.datasets.loki_by_hand import tiny, two_sinks
from hetplan_papers.datasets.sources import present

needs_data = pytest.mark.skipif(not present("loki"), reason="the published data are not at hand (HETPLAN_DATA)")


def claimed(outcome, about="quality"):
    return next(claim.value for claim in outcome.plan.claims if claim.about == about)


@pytest.mark.parametrize("formulation", ["inferline", "proteus"])
def test_next_to_no_demand_is_served(formulation):
    outcome = fluid(*tiny(0.2, 1e-9), formulation=formulation)
    assert outcome.reason == "verified", outcome.violations
    assert {worker.loads[0].node for worker in outcome.plan.workers} == {"a", "b"}


@pytest.mark.parametrize("formulation", ["inferline", "proteus"])
@pytest.mark.parametrize("fanout", [{"a1": 0.0, "a2": 0.0}, {"a1": 0.0, "a2": 1.0}])
def test_a_step_to_which_nothing_is_sent_is_planned(formulation, fanout):
    profile, slo = tiny(0.2, 20)
    profile["pipelines"]["p"]["edges"][0]["fanout"] = fanout
    outcome = fluid(profile, slo, formulation=formulation)
    assert outcome.reason == "verified", outcome.violations


def test_fewer_servers_than_steps():
    outcome = fluid(*tiny(0.2, 5, servers=1), formulation="inferline")
    assert outcome.exit_code == 3
    assert "2 stages need a server each, and there are 1" in outcome.why[0]


@pytest.mark.parametrize("rate", [1e-9, 20.0])
def test_what_steps_reach_on_their_own_bounds_nothing_of_the_whole(rate):
    files = tiny(0.2, rate)
    plan = fluid(*files, formulation="proteus").require()
    assert hp.verify(plan, *files).ok
    (place,) = [k for k, one in enumerate(plan.claims) if one.about == "quality_per_step"]
    for wrong in ({"about": "quality", "scope": "problem"}, {"scope": "problem"}):
        claims = list(copy.copy(plan.claims))
        claims[place] = claims[place].model_copy(update=wrong)
        forged = plan.model_copy(update={"claims": tuple(claims)})
        assert not hp.verify(forged, *files).ok  # the summary says another
        said = hp.verify(forged.model_copy(update={"summary": None}), *files)
        assert said.reason == "verified, but for its bound"


@pytest.mark.parametrize(("slo_s", "variants"), [(0.2, {"a1", "b1"}), (0.19, {"a1", "b2"})])
def test_inferline_fixes_the_most_accurate_path_that_is_in_time(slo_s, variants):
    outcome = fluid(*tiny(slo_s, 20), formulation="inferline")
    assert {worker.loads[0].variant for worker in outcome.plan.workers} == variants


def test_a_fixed_variant_is_kept_beside_the_best_others():
    outcome = fluid(*tiny(0.2, 20), formulation="inferline", options={"variants": {"b": "b2"}})
    assert {worker.loads[0].variant for worker in outcome.plan.workers} == {"a1", "b2"}


def test_steps_that_are_planned_on_their_own_keep_servers_free_too():
    """Two servers for a step at 24.1/s, a good one of 10/s and a fast one of 40/s; .34 of each is kept free."""
    profile, slo = two_sinks(24.1)
    profile["pipelines"]["p"]["edges"][1]["fanout"] = 0.001
    full = fluid(profile, slo, formulation="proteus")
    outcome = fluid(profile, slo, formulation="proteus", options={"spare": 0.34})
    assert outcome.reason == full.reason == "verified", outcome.violations
    good = 10 / 24.1
    assert accuracy(full.require()) == pytest.approx((1 + good + (1 - good) / 2) / 2)
    good *= 0.66
    assert accuracy(outcome.require()) == pytest.approx((1 + good + (1 - good) / 2) / 2)


def accuracy(plan):
    return next(one.value for one in plan.promises if one.quantity == "quality")


@pytest.mark.parametrize("solver", ["highs", "mathopt-scip"])
def test_servers_that_are_all_kept_free_carry_nothing(solver):
    """Of two steps on three servers each keeps one free; an engine may find a rate of 1e-15 of the demand."""
    profile, slo = random_pipeline(1548)
    slo["apps"]["x"]["rate_qps"] = 0.252
    slo["limits"]["instances"]["g"] = [0, 3]
    if solver != "highs":
        pytest.importorskip("ortools")
    outcome = fluid(profile, slo, formulation="inferline", solver=solver, options={"spare": 1})
    assert outcome.exit_code == 3
    assert outcome.why == ("the servers carry nothing of it",)


@needs_data
@pytest.mark.parametrize(("demand", "percent"), [(200, 99.64), (300, 96.30)])
def test_every_step_on_its_own(demand, percent):
    outcome = fluid(*loki.traffic_chain(demand), formulation="proteus")
    assert 100 * claimed(outcome) == pytest.approx(percent, abs=0.5)
    longest = next(p.value for p in outcome.plan.promises if p.quantity == "service_ms")
    assert 165 < longest < 190  # beyond the 125 ms that queueing leaves


@needs_data
@pytest.mark.parametrize(("demand", "why"), [(600, "does not settle"), (1000, "do not carry")])
def test_every_step_on_its_own_fails(demand, why):
    outcome = fluid(*loki.traffic_chain(demand), formulation="proteus")
    assert outcome.plan is None
    assert why in outcome.why[0]


@needs_data
def test_fixed_variants_serve_their_capacity():
    outcome = fluid(*loki.traffic_chain(300), formulation="inferline")
    served = next(p.value for p in outcome.plan.promises if p.quantity == "rate_qps")
    assert served == pytest.approx(207.964, abs=1e-3)
    assert outcome.plan.unserved[0].rate_qps == pytest.approx(300 - served, abs=1e-6)
    assert outcome.exit_code == 0
