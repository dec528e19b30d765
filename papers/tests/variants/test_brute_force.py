"""Every choice of counts, one by one, against the exact programs of hetplan: the paper's Table 3 and random bills."""

from __future__ import annotations

import pytest
from cases.random_variants import random_snapshot
from cases.variants import LOAD_S, counts, money, solve, table2

import hetplan

GROSS, NET = "gross_cost_per_hour", "net_cost_per_hour"


@pytest.mark.parametrize(
    ("load", "slo_ms", "slack", "cost", "best"),
    [
        (10, 300, 1.0, 2, {"a": 2}),
        (10, 50, 1.0, 3, {"b": 1}),
        (1000, 300, 1.0, 22, {"b": 2, "c": 1}),
        (1000, 17, 1.0, 32, {"c": 2}),
        (10, 300, 1.05, 3, None),
        (1000, 300, 1.05, 25, {"b": 3, "c": 1}),
        (1000, 17, 1.05, 32, {"c": 2}),
    ],
)
def test_table_3(load: int, slo_ms: int, slack: float, cost: float, best: dict[str, int] | None) -> None:
    found = solve(table2(float(load), float(slo_ms), slack=slack), "brute-force")
    assert (found.exit_code, found.violations, found.status) == (0, (), "heuristic")
    assert money(found, GROSS) == pytest.approx(cost, rel=1e-6)
    assert best is None or counts(found) == best


@pytest.mark.parametrize(
    ("slack", "slo_ms", "gross", "net"), [(1.05, 300, 3.0, 0.0), (1.0, 300, 2.0, -1.0), (1.0, 50, 4.5, 1.5)]
)
def test_what_runs_counts_against_loading(slack: float, slo_ms: int, gross: float, net: float) -> None:
    documents = table2(10.0, float(slo_ms), slack=slack, weight_per_s=0.1, load_s=LOAD_S, running={"a": 3})
    found = solve(documents, "brute-force")
    assert (money(found, GROSS), money(found, NET)) == (pytest.approx(gross), pytest.approx(net))


@pytest.mark.parametrize("seed", range(40))
def test_no_program_finds_less_and_no_rule_does(seed: int) -> None:
    documents = random_snapshot(seed)
    best = solve(documents, "variants-milp", sharing="dedicated", share_machines=False, try_repairs=False)
    try:
        tried = solve(documents, "brute-force", sharing="dedicated", try_repairs=False)
    except hetplan.InputError as too_many:
        pytest.skip(str(too_many))
    greedy = solve(documents, "greedy", sharing="dedicated", try_repairs=False)
    for found in (tried, greedy):
        assert found.exit_code in (0, 3), found.violations
    if best.plan is None or tried.plan is None or tried.plan.unserved:
        return
    assert money(tried, GROSS) == pytest.approx(money(best, GROSS), rel=1.1e-3, abs=1e-9)
    if greedy.plan is not None and not greedy.plan.unserved:
        assert money(greedy, GROSS) >= money(tried, GROSS) * (1 - 1e-6) - 1e-9
