"""Where a pipeline is asked for next to nothing, or for more than there is."""

import pytest
from cases.pipelines import diamond, fluid, random_pipeline

from hetplan_papers.datasets.loki_by_hand import tiny, two_pipelines

EVERY = ("pipeline-milp", "loki", "loki-budget")


def servers(outcome):
    return sum(worker.count for worker in outcome.plan.workers)


@pytest.mark.parametrize("formulation", EVERY)
def test_next_to_no_demand_is_served(formulation):
    outcome = fluid(*tiny(0.2, 1e-9), formulation=formulation)
    assert outcome.reason == "verified", outcome.violations
    assert {worker.loads[0].node for worker in outcome.plan.workers} == {"a", "b"}


@pytest.mark.parametrize("formulation", EVERY)
@pytest.mark.parametrize("fanout", [{"a1": 0.0, "a2": 0.0}, {"a1": 0.0, "a2": 1.0}])
def test_a_step_to_which_nothing_is_sent_has_a_server(formulation, fanout):
    profile, slo = tiny(0.2, 20)
    profile["pipelines"]["p"]["edges"][0]["fanout"] = fanout
    outcome = fluid(profile, slo, formulation=formulation)
    assert outcome.reason == "verified", outcome.violations
    assert servers(outcome) == 2


@pytest.mark.parametrize("formulation", EVERY)
def test_fewer_servers_than_steps(formulation):
    outcome = fluid(*tiny(0.2, 5, servers=1), formulation=formulation)
    assert outcome.exit_code == 3
    assert "2 stages need a server each, and there are 1" in outcome.why[0]
    assert [(one.field, one.to) for one in outcome.repairs] == [("slo.limits.instances.g[1]", 2)]


def test_no_repair_that_serves_nothing_is_proposed():
    """Two servers each of two kinds for five steps: a lower demand would not help."""
    outcome = fluid(*random_pipeline(1431, gpus=2, tasks=5))
    assert outcome.exit_code == 3
    assert not any("rate_qps" in one.field for one in outcome.repairs)


@pytest.mark.slow
def test_branches_that_join_have_repairs_too():
    """Eight servers, two per step at 100/s each: 200/s; and 20 servers for 500/s."""
    outcome = fluid(*diamond(500, 120))
    assert outcome.exit_code == 3
    reported = {one.field: one.to for one in outcome.repairs}
    assert reported["slo.apps.x.rate_qps"] == pytest.approx(200, rel=1e-6)
    assert reported["slo.limits.instances.g[1]"] == 20
    few = fluid(*diamond(50, 120, servers=3))
    assert [(one.field, one.to) for one in few.repairs] == [("slo.limits.instances.g[1]", 4)]


def test_one_of_two_that_cannot_be_in_time_is_named():
    profile, slo = two_pipelines(4)
    slo["apps"]["y"]["latency"]["p99_ms"] = 20
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3
    assert "no path of y" in outcome.why[0]
    assert [one.field for one in outcome.repairs] == ["slo.apps.y.latency"]


def test_one_of_two_may_be_asked_for_nothing():
    profile, slo = two_pipelines(4)
    slo["apps"]["y"]["rate_qps"] = 0
    outcome = fluid(profile, slo)
    assert outcome.reason == "verified"
    assert [one.app for one in outcome.plan.unserved] == ["y"]
