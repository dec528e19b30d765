"""Why there is no pool, and the smallest change: in the user's fields and units, and enough when followed."""

import copy

import pytest
from build import limits_at
from cases.pool import decide, exactly, files, g1, g3, promise

from hetplan.planner.draft import Infeasibility, Repair


def refused(*args: object, **kwargs: object) -> Infeasibility:
    found = decide(*args, **kwargs)  # type: ignore[arg-type]
    assert isinstance(found, Infeasibility), found
    return found


def repair(found: Infeasibility, field: str) -> Repair:
    (one,) = [one for one in found.repairs if one.field == field]
    return one


def test_a_bin_that_is_late_on_every_type() -> None:
    latency = {"base": [10.0, 120.0, 150.0], "aux": [20.0, 110.0, 400.0]}
    case = files(latency, [0.5, 0.3, 0.2], prices={"base": 1, "aux": "0.25"}, qos_ms=100, budget=5)
    found = refused(case)
    assert found.proved
    assert "batch=20 (share 0.3), batch=30 (share 0.2)" in found.why[0]
    assert "0.5 of the queries" in found.why[0]
    # The need is the largest over bins of the least over types: max(110, 150).
    looser = repair(found, "slo.apps.app.latency.p99_ms")
    assert (looser.to, looser.amount, looser.unit) == (150.0, 50.0, "ms")
    case[1]["apps"]["app"]["latency"]["p99_ms"] = looser.to
    assert promise(decide(case), "rate_qps") > 0
    case[1]["apps"]["app"]["latency"]["p99_ms"] = 149.9
    assert isinstance(decide(case), Infeasibility)


def test_what_the_files_were_read_to_say_stands_beside_the_reason() -> None:
    """That a class is late was read outside the table: whoever reads "no pool" must know."""
    case = files({"base": [10.0, 40.0, 160.0]}, [0.5, 0.3, 0.2], prices={"base": 1}, qos_ms=100, budget=5)
    table = case[0]["tables"]["t-base"]
    table["axes"]["batch"], table["mean"], table["outside"] = [10, 20], [10.0, 60.0], "linear"
    found = refused(case)
    assert "late on every type" in found.why[0]
    assert [notice.code for notice in found.warnings] == ["W-extrapolated"]


def test_a_tolerance_cures_late_bins() -> None:
    latency = {"base": [10.0, 120.0], "aux": [20.0, 110.0]}
    case = files(latency, [0.8, 0.2], prices={"base": 1, "aux": "0.25"}, qos_ms=100, budget=5)
    tolerance = repair(refused(case, allow_late=0.01), "options.allow_late")
    assert tolerance.to == pytest.approx(0.2)
    assert "the percentile of slo.apps.app.latency.p99_ms to 80 at most" in tolerance.text
    case[1]["apps"]["app"]["latency"] = limits_at(80, case[1]["apps"]["app"]["latency"])
    assert promise(decide(case, allow_late=0.2), "rate_qps") > 0


def test_with_a_tolerance_the_target_covers_only_the_rest() -> None:
    latency = {"base": [10.0, 120.0, 150.0], "aux": [20.0, 110.0, 400.0]}
    case = files(latency, [0.6, 0.3, 0.1], prices={"base": 1, "aux": "0.25"}, qos_ms=100, budget=5)
    case[1]["apps"]["app"]["latency"] = limits_at(90, case[1]["apps"]["app"]["latency"])
    assert repair(refused(case, allow_late=0.1), "slo.apps.app.latency.p90_ms").to == 110.0


def test_the_network_is_part_of_the_target() -> None:
    case = files({"base": [10.0, 95.0]}, [0.8, 0.2], prices={"base": 1}, qos_ms=100, budget=5)
    assert promise(decide(case), "rate_qps") > 0
    case[1]["apps"]["app"]["network_ms_per_hop"] = 10
    assert repair(refused(case), "slo.apps.app.latency.p99_ms").to == 105.0


def test_a_type_that_may_not_be_rented_is_named() -> None:
    case = g1(budget=5, instances={"base": [0, 0]})
    found = refused(case)
    assert repair(found, "slo.limits.instances.base[1]").to == 1


def test_a_budget_too_small_for_any_rate() -> None:
    latency = {"gpu": [10.0, 40.0], "cpu": [20.0, 200.0]}
    case = files(latency, [0.75, 0.25], prices={"gpu": "0.526", "cpu": "0.149"}, qos_ms=100, budget="0.5")
    found = refused(case)
    assert "needs $0.5260, the budget is 0.5" in found.why[0]
    more = repair(found, "slo.limits.cost_per_hour")
    assert more.to == "0.526"
    case[1]["limits"]["cost_per_hour"] = more.to
    assert promise(decide(case), "rate_qps") > 0


def test_the_cheapest_cover_counts_the_minima() -> None:
    latency = {"gpu": [10.0, 40.0], "cpu": [20.0, 200.0]}
    case = files(
        latency,
        [0.75, 0.25],
        prices={"gpu": "0.526", "cpu": "0.149"},
        qos_ms=100,
        budget="0.5",
        instances={"cpu": [2, None]},
    )
    assert "needs $0.8240, the budget is 0.5" in refused(case).why[0]


def test_minima_alone_over_the_budget() -> None:
    case = g3(budget=2, instances={"base": [2, None], "b": [1, None]})
    found = refused(case)
    assert "2 base, 1 b" in found.why[0]
    assert "need $2.2500, the budget is 2" in found.why[0]
    assert repair(found, "slo.limits.cost_per_hour").to == "2.25"
    assert {one.field for one in found.repairs} >= {"slo.limits.instances.base[0]", "slo.limits.instances.b[0]"}


def test_a_rate_beyond_the_maxima() -> None:
    case = g3(rate_qps=160, instances={"base": [1, 1], "a": [0, 9], "b": [0, 9]})
    found = refused(case, derate=1.0)
    # One base and nine of a and b: base spends 40 ms on a quarter of the queries.
    both = "slo.limits.instances.base[1] and slo.apps.app.rate_qps cannot hold together"
    assert found.why == (both,), "more of a and b would not help"
    raised = repair(found, "slo.limits.instances.base[1]")
    assert raised.to == 2
    lowered = repair(found, "slo.apps.app.rate_qps")
    follow = copy.deepcopy(case)
    follow[1]["limits"]["instances"]["base"] = [1, raised.to]
    assert promise(decide(follow, derate=1.0), "rate_qps") >= 160 * (1 - 1e-6)
    follow = copy.deepcopy(case)
    follow[1]["apps"]["app"]["rate_qps"] = float(lowered.to or 0) * (1 - 1e-9)
    assert promise(decide(follow, derate=1.0), "rate_qps") > 0
    follow[1]["apps"]["app"]["rate_qps"] = float(lowered.to or 0) * (1 + 1e-4)
    assert isinstance(decide(follow, derate=1.0), Infeasibility)


def test_a_stock_that_is_too_small_is_named() -> None:
    found = refused(
        files({"base": [10.0, 40.0]}, [0.5, 0.5], prices={"base": 1}, qos_ms=100, rate_qps=100, stock={"base": 2}),
        derate=1.0,
    )
    # 100 qps at 25 ms are 2.5 instances.
    assert repair(found, "profile.offers.base.stock").to == 3
    assert repair(found, "slo.apps.app.rate_qps").to == pytest.approx(80.0)


def test_a_given_pool_outside_the_limits() -> None:
    found = refused(exactly(g3(budget=2), {"base": 2, "b": 2}), formulation="pool-lp")
    assert "need $2.5000, the budget is 2" in found.why[0]


def test_a_given_pool_that_is_too_slow() -> None:
    found = refused(exactly(g3(rate_qps=100), {"base": 2}), formulation="pool-lp")
    assert "carries 80 qps" in found.why[0]
    assert repair(found, "slo.apps.app.rate_qps").to == pytest.approx(80.0)


def test_no_repair_that_cannot_be_applied() -> None:
    case = files({"base": [110.0, 120.0]}, [0.5, 0.5], prices={"base": 1}, qos_ms=100, budget=5)
    found = refused(case)
    assert {one.field for one in found.repairs} == {"slo.apps.app.latency.p99_ms"}
    assert repair(found, "slo.apps.app.latency.p99_ms").to == 120.0


def test_a_given_pool_with_too_many_late() -> None:
    latency = {"base": [10.0, 40.0], "aux": [20.0, 200.0]}
    case = files(latency, [0.75, 0.25], prices={"base": 1, "aux": "0.25"}, qos_ms=100, budget=5)
    found = refused(exactly(case, {"aux": 2}), formulation="pool-lp", allow_late=0.01)
    assert "a share of 0.25 of the queries" in found.why[0]


def test_a_base_that_serves_not_all_says_what_does() -> None:
    latency = {"a": [10.0, 200.0, 40.0], "b": [200.0, 10.0, 40.0]}
    case = files(latency, [0.5, 0.25, 0.25], prices={"a": 1, "b": 1}, qos_ms=100, budget=5)
    found = refused(case, formulation="kairos")
    assert not found.proved
    assert "pool-milp" in found.why[0]
    assert promise(decide(case), "rate_qps") > 0
