"""Workers of several offers and of several kinds: each gets the queries that its tables are for."""

from __future__ import annotations

from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.promise_figures import Verdict

Files = tuple[dict[str, Any], dict[str, Any]]


def files(slower: dict[str, float], counts: dict[str, int], rate: float, **app: Any) -> Files:
    """Two models on hardware that is so many times slower than the first; each of so many workers."""
    tables, variants = {}, {}
    for model, alone, accuracy in (("quick", 8.0, 0.6), ("good", 16.0, 0.75)):
        for hardware, times in slower.items():
            row = [times * alone * (0.5 + 0.5 * batch) for batch in (1, 2, 4, 8)]
            axes = {"batch": [1, 2, 4, 8]}
            tables[f"{model}-{hardware}"] = {"quantity": "latency_ms", "axes": axes, "p95": row}
        runs = [{"hardware": hardware, "latency": f"{model}-{hardware}"} for hardware in slower]
        variants[model] = {"task": "see", "quality": {"value": accuracy}, "runs": runs}
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0", "hardware": {hardware: {"kind": "gpu"} for hardware in slower},
        "tasks": {"see": {}}, "variants": variants, "tables": tables,
    }  # fmt: skip
    wish = {"task": "see", "latency": {"p99_ms": 120}, "rate_qps": rate}
    slo = {
        "format": "hetplan/slo/1.0", "objective": ["max goodput"],
        "limits": {"instances": {hardware: [count, count] for hardware, count in counts.items()}},
        "apps": {"a": {**wish, **app}},
    }  # fmt: skip
    return profile, slo


def stocked(made: Files, **stock: int) -> Files:
    """With offers of the first hardware, each of so many machines; the later ones are dearer."""
    hardware = next(iter(made[0]["hardware"]))
    offers = {
        name: {"hardware": hardware, "price_per_hour": f"{1 + 0.1 * number:.1f}", "stock": count}
        for number, (name, count) in enumerate(stock.items())
    }
    return {**made[0], "offers": offers}, made[1]


def solved(made: Files) -> hp.Plan:
    outcome = hp.solve(*made, formulation="policy")
    assert outcome.plan is not None
    assert outcome.exit_code == 0, outcome.violations
    return outcome.plan


@pytest.mark.slow
@pytest.mark.parametrize("balancing", ["round-robin", "shortest-queue"])
def test_unlike_workers_get_the_queries_that_their_tables_are_for(balancing: str) -> None:
    made = files({"fast": 1.0, "slow": 3.0}, {"fast": 3, "slow": 3}, 400.0, dispatch=balancing)
    plan = solved(made)
    shares = {load.split(".")[0]: share for load, share in plan.routing["a"][0].to.items()}
    rates = {table.workers: table.rate_qps for table in plan.policies["a"]}
    assert shares == pytest.approx({worker: rate / 400.0 for worker, rate in rates.items()})
    assert shares["w1"] > 2 * shares["w2"]
    played = {line.quantity: line for line in hp.simulate(plan, *made).lines}
    assert played["response_ms"].verdict is not Verdict.BROKEN
    assert hp.verify(plan, *made).ok


@pytest.mark.slow
def test_verify_refuses_unlike_workers_that_get_equal_shares() -> None:
    made = files({"fast": 1.0, "slow": 3.0}, {"fast": 3, "slow": 3}, 400.0)
    plan = solved(made)
    alike = plan.model_copy(update={"routing": {}})
    assert "policy-load" in {found.code for found in hp.verify(alike, *made, prove=False).violations}
    (route,) = plan.routing["a"]
    half = route.model_copy(update={"to": dict.fromkeys(route.to, 0.5)})
    forged = plan.model_copy(update={"routing": {"a": (half,)}})
    assert "policy-load" in {found.code for found in hp.verify(forged, *made, prove=False).violations}


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("balancing", ["round-robin", "shortest-queue", "random"])
def test_workers_of_several_offers_are_one_group(balancing: str) -> None:
    made = files({"fast": 1.0}, {"fast": 6}, 450.0, dispatch=balancing)
    one, several = solved(made), solved(stocked(made, near=2, far=3, dear=3))
    taken = [(worker.offer, worker.count) for worker in several.workers]
    assert taken == [("fast-near", 2), ("fast-far", 3), ("fast-dear", 1)]
    assert not several.routing
    (table,) = one.policies["a"]
    for other, count in zip(several.policies["a"], (2, 3, 1), strict=True):
        assert other.rate_qps == pytest.approx(450.0 * count / 6)
        assert (other.choice, other.batch, other.expected) == (table.choice, table.batch, table.expected)
    assert [claim.value for claim in several.claims] == [claim.value for claim in one.claims]
    report = hp.verify(several, *stocked(made, near=2, far=3, dear=3))
    assert report.ok, report.violations


@pytest.mark.slow
def test_what_all_offers_have_is_the_most() -> None:
    made = stocked(files({"fast": 1.0}, {"fast": 6}, 450.0), near=2, far=3)
    with pytest.raises(hp.InputError, match="have 6 in stock: together they have 5"):
        hp.solve(*made, formulation="policy")


@pytest.mark.slow
def test_verify_refuses_a_table_for_more_than_comes() -> None:
    made = stocked(files({"fast": 1.0}, {"fast": 4}, 300.0), near=2, far=3)
    plan = solved(made)
    first, second = plan.policies["a"]
    tables = tuple(
        table.model_copy(update={"rate_qps": rate}) for table, rate in ((first, 100.0), (second, 200.0))
    )  # fmt: skip
    forged = plan.model_copy(update={"policies": {"a": tables}})
    assert "policy-load" in {found.code for found in hp.verify(forged, *made, prove=False).violations}


def test_a_batch_that_takes_just_as_long_as_the_limit_is_in_time_for_all() -> None:
    """Nine of "quick" take 120 ms on the line through what was measured, and so they do to the verifier."""
    made = files({"slow": 3.0}, {"slow": 3}, 95.0, dispatch="round-robin")
    outcome = hp.solve(*made, options={"batching": "variable", "sizing": "fluid"}, formulation="policy")
    assert outcome.exit_code == 0, outcome.violations
