"""Over random snapshots: every plan passes its verification machine by machine, and two exact ways agree."""

import pytest
from cases.random_variants import random_snapshot
from cases.variants import money, solve

GROSS = "gross_cost_per_hour"


def check(seed, try_repairs=True):
    documents = random_snapshot(seed)
    columns = solve(documents, "variants-columns", try_repairs=try_repairs)
    milp = solve(documents, "variants-milp", try_repairs=False)
    for found in (columns, milp):
        assert found.exit_code in (0, 3), (seed, found.reason, found.violations)
        assert found.plan is not None or found.why, seed
    assert (columns.plan is None) == (milp.plan is None), seed
    if columns.plan is not None:
        best, other = money(milp, GROSS), money(columns, GROSS)
        assert abs(best - other) <= 1.1e-3 * max(best, other), seed
        claim = columns.claims[0]
        assert claim.bound is not None
        assert claim.bound <= money(milp, GROSS) * 3600 * (1 + 1e-6) + 1e-9


def test_odd_ones_are_among_them():
    found = dict.fromkeys(("no load", "one machine", "fits nowhere", "equal costs", "runs already", "no names"), 0)
    for seed in range(300):
        profile, slo, state = random_snapshot(seed)
        runs = [run for variant in profile["variants"].values() for run in variant["runs"]]
        stock = [offer["stock"] for offer in profile.get("offers", {}).values()]
        found["no load"] += any(app["rate_qps"] == 0 for app in slo["apps"].values())
        found["one machine"] += sum(stock) == 1
        found["fits nowhere"] += any(run["needs"]["mem_gib"] == 1000 for run in runs)
        found["equal costs"] += len(runs) > 1 and len({run["price_per_hour"] for run in runs}) == 1
        found["runs already"] += bool(state["workers"])
        found["no names"] += bool(stock) and "hosts" not in profile
    assert min(found.values()) >= 10, found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_every_plan_is_verified(first):
    for seed in range(first, first + 10):
        check(seed)


def test_what_is_said_to_run_where_it_does_not_fit_is_called_like_nothing():
    check(142)


@pytest.mark.slow_cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_every_plan_of_a_thousand_is_verified(first):
    for seed in range(first, first + 100):
        check(seed, try_repairs=False)


@pytest.mark.slow
def test_the_order_in_the_files_changes_nothing():
    for seed in (3, 8, 21, 34):
        profile, slo, state = random_snapshot(seed)
        turned = (
            {**profile, "variants": dict(reversed(profile["variants"].items()))},
            {**slo, "apps": dict(reversed(slo["apps"].items()))},
            {**state, "workers": state["workers"][::-1]},
        )
        here, there = solve((profile, slo, state)), solve(turned)
        assert here.status == there.status
        if here.plan is not None:
            assert money(here, GROSS) == pytest.approx(money(there, GROSS), rel=1e-9)
