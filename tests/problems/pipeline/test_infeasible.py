"""What binds, and the three smallest repairs."""

import pytest

import hetplan as hp
from benchmarks.datasets import loki, loki_by_hand
from benchmarks.datasets.sources import present

published = pytest.mark.skipif(not present("loki"), reason="the published data are not at hand (HETPLAN_DATA)")


def repair(outcome, part):
    return next((one for one in outcome.repairs if part in one.field), None)


def test_tiny():
    outcome = hp.solve(*loki_by_hand.tiny(0.2, 101))
    assert outcome.exit_code == 3
    assert "step a" in outcome.why[0]
    assert "no latency limit" in outcome.why[1]
    assert repair(outcome, "rate_qps").to == pytest.approx(100)
    assert repair(outcome, "instances").to == 6
    assert repair(outcome, "latency") is None


def test_top_variants_of_the_tiny_case():
    outcome = hp.solve(*loki_by_hand.tiny(0.2, 31), options={"variants": "top"})
    assert repair(outcome, "instances").to == 6
    assert hp.solve(*loki_by_hand.tiny(0.2, 31, servers=6), options={"variants": "top"}).exit_code == 0


@published
def test_beyond_the_chain():
    outcome = hp.solve(*loki.traffic_chain(2306))
    assert repair(outcome, "rate_qps").to == pytest.approx(2305.57, abs=5e-3)
    assert repair(outcome, "instances").to == 21
    assert repair(outcome, "latency") is None
    assert any("however long it may take" in line for line in outcome.why)


@published
def test_beyond_the_top_variants():
    outcome = hp.solve(*loki.traffic_chain(208), options={"variants": "top"})
    assert "step" in outcome.why[0]
    assert repair(outcome, "rate_qps").to == pytest.approx(207.964, abs=1e-3)
    assert repair(outcome, "instances").to == 21
    assert repair(outcome, "latency").to == pytest.approx(336.79, abs=5e-3)


def test_the_repairs_work():
    profile, slo = loki_by_hand.tiny(0.2, 31)
    top = {"variants": "top"}
    outcome = hp.solve(profile, slo, options=top)
    slo["apps"]["x"]["demand"]["rate_qps"] = repair(outcome, "rate_qps").to * (1 - 1e-9)
    assert hp.solve(profile, slo, options=top).exit_code == 0


def test_no_path_in_time_names_the_fastest_and_what_it_needs():
    profile, slo = loki_by_hand.tiny(0.05, 20)
    outcome = hp.solve(profile, slo)
    assert "a=a2, b=b2" in outcome.why[0]
    needs = repair(outcome, "latency").to
    assert needs == pytest.approx(90)
    slo["apps"]["x"]["latency"][0]["max_ms"] = needs
    assert hp.solve(profile, slo).exit_code == 0


def test_a_floor_above_the_best():
    profile, slo = loki_by_hand.tiny(0.19, 20)
    slo["apps"]["x"]["quality"] = {"min": 0.95}
    outcome = hp.solve(profile, slo)
    assert "the best in time is 0.9" in outcome.why[0]
    assert repair(outcome, "quality").to == pytest.approx(0.9)


def test_money_that_does_not_reach():
    profile, slo = loki_by_hand.tiny(0.2, 100)
    profile["offers"] = {"g-od": {"hardware": "g", "price_per_hour": "2"}}
    slo["limits"]["cost_per_hour"] = "9"
    slo["objective"] = [{"max": "quality"}, {"min": "cost"}]
    outcome = hp.solve(profile, slo)
    assert repair(outcome, "cost_per_hour").to == pytest.approx(10)
