"""A plan soon: whole servers among the configurations that servers in parts use, with the gap to the bound of those."""

import json
from pathlib import Path

import pytest
from cases.pipelines import fluid

import hetplan as hp
from hetplan.profiles.plan_file import with_digest
from hetplan_papers.datasets import loki_by_hand

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
STREET = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")
SOCIAL = (EXAMPLE / "social-profile.json", EXAMPLE / "social-slo.json")
USED = {"among": "used"}


@pytest.mark.parametrize(("files", "best"), [(SOCIAL, 0.982146), (STREET, 0.982793)], ids=["social", "street"])
def test_what_it_misses_of_the_best_is_within_the_gap_that_it_says(files, best):
    found = fluid(*files, options=USED)
    assert (found.exit_code, found.violations) == (0, ()), found.reason
    claim = found.plan.claims[0]
    assert (claim.about, claim.scope, claim.vouched) == ("quality", "relaxation", "certified")
    assert claim.value <= best + 1e-6 <= claim.bound
    assert 0 < claim.gap < 0.01
    again = hp.verify(found.plan, *files)
    assert again.ok
    assert str(again.claims[0].word) == "proved again"


@pytest.mark.slow
def test_a_wide_gap_is_said_whatever_was_asked_for():
    slo = json.loads(STREET[1].read_text())
    slo["apps"]["cameras"]["latency"]["p99_ms"] = 260
    found = fluid(STREET[0], slo, gap=0.5)
    assert found.violations == ()
    assert found.plan.claims[0].gap > 0.05
    assert any(one.code == "W-gap" for one in found.plan.warnings)


def test_a_plan_soon_is_not_called_optimal_where_a_later_level_is_the_best_of_some_plans_alone():
    """All accuracy there is, and the fewest servers among the configurations looked at."""
    found = fluid(*loki_by_hand.two_pipelines(3), options=USED)
    first, servers = found.plan.claims
    assert (found.violations, first.gap, servers.scope) == ((), 0.0, "restriction")
    assert found.status == "within-gap"
    raised = with_digest(found.plan.model_copy(update={"status": "feasible"}))
    assert not hp.verify(raised, *loki_by_hand.two_pipelines(3)).ok
    assert fluid(*loki_by_hand.tiny(0.2, 20)).status == "optimal"


@pytest.mark.slow
def test_the_worst_served_comes_first_soon_too():
    """Two pipelines on the street's servers: the whole program takes minutes."""
    slo = json.loads(STREET[1].read_text())
    app = slo["apps"]["cameras"] | {"rate_qps": 300}
    slo["apps"] = {"cameras": app, "later": app | {"latency": {"p99_ms": 300}}}
    found = fluid(STREET[0], slo, options=USED | {"fairness": "maxmin"}, time_limit=30)
    assert found.violations == ()
    least, quality = found.plan.claims[:2]
    assert (least.about, least.scope) == ("least_quality", "relaxation")
    assert 0 < least.gap < 0.03
    assert quality.scope == "restriction"


@pytest.mark.parametrize("options", [{}, USED])
def test_floors_of_accuracy_do_not_count_for_less_than_the_worst_served(options):
    """What is stated as the least of one application says nothing of who is the worst served."""
    profile, slo = loki_by_hand.two_pipelines(3)
    plain = fluid(profile, slo, options=options | {"fairness": "maxmin"}).plan.claims[0]
    slo["apps"]["x"]["quality"], slo["apps"]["y"]["quality"] = {"min": 0.2}, {"min": 0.85}
    found = fluid(profile, slo, options=options | {"fairness": "maxmin"})
    claim = found.plan.claims[0]
    assert (claim.about, claim.value) == ("least_quality", pytest.approx(plain.value))
    assert claim.bound is not None, claim.note
    assert claim.value <= claim.bound
