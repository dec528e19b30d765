"""Where no plan of a search keeps a wish, what is said to help is a repair that the reader takes back, and it helps."""

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.repairs import edit_documents

COMPOUND = Path(__file__).parents[3] / "examples/compound"
FILES = COMPOUND / "profile.json", COMPOUND / "measured.json"


def wish(latency_ms: float, quality: float, *, by: str) -> dict[str, Any]:
    slo: dict[str, Any] = json.loads((COMPOUND / "rate-slo.json").read_text())
    slo["objective"] = [f"{by} {'cost' if by == 'min' else 'goodput'}"]
    (app,) = slo["apps"].values()
    app["latency"]["p99_ms"] = latency_ms
    app["quality"]["min"] = quality
    return slo


def solved(slo: dict[str, Any]) -> hp.Outcome:
    return hp.solve(slo, *FILES, formulation="compound")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["min", "max"])
@pytest.mark.parametrize(
    ("latency_ms", "quality", "field"),
    [(40.0, 0.72, "latency"), (100.0, 0.72, "latency"), (300.0, 0.99, "quality")],
)
def test_what_is_said_to_help_helps(latency_ms: float, quality: float, field: str, by: str) -> None:
    slo = wish(latency_ms, quality, by=by)
    outcome = solved(slo)
    assert outcome.exit_code == 3
    repair = outcome.repairs[0]
    assert field in repair.field
    assert repair.edits, repair
    assert solved(edit_documents({"slo": slo}, repair.edits)["slo"]).exit_code == 0


def refused(slo: dict[str, Any], **options: Any) -> list[set[str]]:
    """What each repair of a wish that is refused changes; the same question takes each back, and keeps its word."""
    outcome = hp.solve(slo, *FILES, options=options)
    assert outcome.exit_code == 3
    for repair in outcome.repairs:
        files = edit_documents({"slo": slo, "options": options}, repair.edits)
        assert files != {"slo": slo, "options": options}, repair
        again = hp.solve(files["slo"], *FILES, options=files["options"])
        assert again.exit_code == 0, repair.text
    return [{str(edit.path[-1]) for edit in repair.edits} for repair in outcome.repairs]


def at_rate(rate: float, latency_ms: float = 400.0, **limits: Any) -> dict[str, Any]:
    slo = wish(latency_ms, 0.72, by="min")
    slo["apps"]["gate"]["rate_qps"] = rate
    return {**slo, **({"limits": limits} if limits else {})}


@pytest.mark.slow
@pytest.mark.parametrize(("latency_ms", "rate"), [(145.0, 20.0), (146.0, 20.0), (125.0, 50.0)])
def test_where_a_play_is_late_less_haste_or_fewer_queries_help(latency_ms: float, rate: float) -> None:
    assert refused(at_rate(rate, latency_ms)) == [{"p99_ms"}, {"rate_qps"}]


@pytest.mark.slow
@pytest.mark.parametrize(("latency_ms", "rate", "sizing"), [(156.0, 5.0, "simulation")])
def test_where_all_plays_are_late_their_plan_says_what_helps(latency_ms: float, rate: float, sizing: str) -> None:
    slo = at_rate(rate, latency_ms)
    outcome = hp.solve(slo, *FILES, options={"sizing": sizing, "max_simulations": 1})
    assert outcome.why == ("the SLO was violated in the only simulation; more simulations may help",)
    assert any("max_simulations" in changed for changed in refused(slo, sizing=sizing, max_simulations=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "latency_ms", "limits", "helps"),
    [
        (25.0, 400.0, {"instances": {"a100": [0, 1], "v100": [0, 1]}}, [{"a100"}, {"rate_qps"}]),
        (30.0, 400.0, {"instances": {"a100": [0, 0], "v100": [0, 0]}}, [{"a100"}]),
        (60.0, 400.0, {"cost_per_hour": "7"}, [{"cost_per_hour"}, {"rate_qps"}]),
        (60.0, 60.0, {"cost_per_hour": "7"}, [{"p99_ms", "cost_per_hour"}]),
    ],
    ids=["stock", "no stock", "budget", "budget and latency"],
)
def test_what_machines_or_money_lack_for_a_rate(
    rate: float, latency_ms: float, limits: dict[str, Any], helps: list[set[str]]
) -> None:
    assert refused(at_rate(rate, latency_ms, **limits), sizing="formula") == helps


@pytest.mark.slow
@pytest.mark.slow_cases(1)
@pytest.mark.parametrize(("latency_ms", "helps"), [(60.0, [{"rate_qps", "p99_ms"}]), (400.0, [{"rate_qps"}])])
def test_a_rate_beyond_all_replicas(latency_ms: float, helps: list[set[str]]) -> None:
    assert refused(at_rate(1e6, latency_ms), sizing="formula") == helps
