"""Operators that are calls of an API: paid for by the query, limited, failing now and then, and on no machine."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.measure.evaluator import Sample
from hetplan.measure.evaluator_profiler import measuring
from hetplan.planner.repairs import edit_documents
from hetplan.profiles.load import load_inputs
from hetplan.serving.bill import prices_of
from hetplan.studies.points import bill

API = {
    "tier": "host", "price_per_call": "0.0001", "price_per_million_in": "2", "price_per_million_out": "10",
    "failures": 0.1, "retries": 2, "retry_ms": 200,
}  # fmt: skip
PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0", "reference": "box", "tiers": ["host", "pool"],
    "metrics": {"right": {"range": [0, 1], "kind": "bernoulli"}},
    "hardware": {"box": {"kind": "cpu", "tier": "host", "relative_time": 6},
                 "gpu": {"kind": "gpu", "tier": "pool", "relative_time": 0.5, "provides": {"gpu": 1}}},
    "offers": {"box-own": {"hardware": "box", "price_per_hour": "0"},
               "gpu-share": {"hardware": "gpu", "price_per_hour": "4", "per": "gpu"}},
    "links": [{"between": ["host", "pool"], "bandwidth_mbps": 1000, "latency_ms": 1}],
    "apis": {"acme": API},
    "pipelines": {"rag": {
        "nodes": {
            "find": {"device": "cpu"},
            "write": {"device": "gpu", "reads": ["model"], "calls": [
                {"api": "acme", "where": {"model": ["large"]}, "tokens": {"in": 900, "out": 150}}]},
        },
        "edges": [{"from": "find", "to": "write"}],
        "knobs": {"model": ["small", "large"]}, "metric": "right", "strata": 1, "share_grid": [1, 0.5],
    }},
}  # fmt: skip
SECONDS = {"small": 0.2, "large": 0.3}
QUALITY = {"small": 0.7, "large": 0.95}
PER_QUERY = 0.0001 + (900 * 2 + 150 * 10) / 1e6


def measured(count: int = 1000) -> dict[str, Any]:
    """Calls take 300 ms and up to 30 ms more, each sample otherwise."""
    entries = []
    for model, seconds in SECONDS.items():
        write = [seconds * (1 + 0.1 * k / count) for k in range(count)]
        runs = {"seconds": {"find": [0.01] * count, "write": write},
                "bytes": {"find": [1000.0] * count, "write": [100.0] * count},
                "input_bytes": [100.0] * count}  # fmt: skip
        entries.append({
            "knobs": {"model": model}, "mean": QUALITY[model], "se": 0.01, "samples": count, "verdict": "pass",
            "passes": True, "seconds": {"find": 0.01, "write": sum(write) / count},
            "bytes": {"find": 1000.0, "write": 100.0}, "input_bytes": 100.0, "runs": runs,
        })  # fmt: skip
    return {"apps": {"ask": entries}}


def slo(**app: Any) -> dict[str, Any]:
    amount = {} if {"streams", "rate_qps"} & app.keys() else {"streams": 2, "rate_qps": 1.5}
    asked = {"pipeline": "rag", "quality": {"min": 0.6}, **amount,
             "latency": {"p95_ms": 900}, **app}  # fmt: skip
    return {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": {"ask": asked}}


def profile(**api: Any) -> dict[str, Any]:
    made = copy.deepcopy(PROFILE)
    made["apis"]["acme"].update(api)
    return made


def promised(plan: hp.Plan, quantity: str) -> float:
    (value,) = [one.value for one in plan.promises if one.quantity == quantity]
    return value


@pytest.mark.slow
def test_a_better_answer_is_called_for_and_its_bill_is_recomputed() -> None:
    wish = slo(quality={"min": 0.9})
    plan = hp.solve(profile(), wish, measured()).plan
    assert plan is not None
    rule = plan.dispatch["ask"]
    assert rule.placement["write"] == "acme"  # type: ignore[union-attr]
    assert [load.node for worker in plan.workers for load in worker.loads] == ["find"]
    assert promised(plan, "calls_per_query") == pytest.approx(PER_QUERY)
    assert promised(plan, "cost_per_hour") == pytest.approx(1.5 * 3600 * PER_QUERY)
    assert promised(plan, "cost_per_query") == pytest.approx(PER_QUERY)
    assert promised(plan, "quality") == pytest.approx(0.95 * (1 - 0.1**3))
    assert hp.verify(plan, profile(), wish, measured()).ok
    # Of 100 calls 90 are answered at once and 9 the second time: of these the fastest 5 are within p95.
    assert 300 + 200 < promised(plan, "response_ms") < 60 + 325 + 200
    inputs = load_inputs(profile(), wish, measured=measured())
    assert sum(prices_of(plan, inputs).values()) == pytest.approx(promised(plan, "cost_per_hour"))
    assert bill(plan, inputs) == pytest.approx(promised(plan, "cost_per_hour")), "studies leave no call out"
    for quantity in ("cost_per_hour", "cost_per_query", "calls_per_query", "response_ms", "quality"):
        better = 1.02 if quantity == "quality" else 0.98
        forged = plan.model_copy(update={"promises": tuple(
            one.model_copy(update={"value": one.value * better, "interval": None}) if one.quantity == quantity else one
            for one in plan.promises)})  # fmt: skip
        assert not hp.verify(forged, profile(), wish, measured()).ok, quantity
    moved = plan.model_copy(update={"dispatch": {
        "ask": rule.model_copy(update={"placement": {"find": "host", "write": "pool"}})}})  # fmt: skip
    assert "is a call of acme" in str(hp.verify(moved, profile(), wish, measured()).violations)


@pytest.mark.parametrize(("rate", "place"), [(0.02, "acme"), (2.0, "pool")])
def test_few_queries_are_called_for_and_many_run_on_a_share_of_a_machine(rate: float, place: str) -> None:
    document = profile(failures=0.0, retries=0)
    asked = slo(streams=1, rate_qps=rate, latency={"p95_ms": 400})
    plan = hp.solve(document, asked, measured()).plan
    assert plan is not None
    assert plan.dispatch["ask"].placement["write"] == place  # type: ignore[union-attr]
    assert promised(plan, "cost_per_hour") == pytest.approx(2.0 if place == "pool" else 3600 * rate * PER_QUERY)


def test_limits_of_an_api_are_kept_with_the_calls_that_are_made_again() -> None:
    wish, tried = slo(quality={"min": 0.9}), 1.5 * (1 + 0.1 + 0.01)
    assert hp.solve(profile(calls_per_s=1.001 * tried), wish, measured()).plan is not None
    refused = hp.solve(profile(calls_per_s=0.999 * tried), wish, measured())
    assert refused.plan is None
    assert "profile.apis.acme.calls_per_s" in str(refused.why)
    plan = hp.solve(profile(), wish, measured()).plan
    assert plan is not None
    tight = hp.verify(plan, profile(tokens_per_s=1000), wish, measured())
    assert "api-limit" in {found.code for found in tight.violations}


def test_what_is_never_answered_counts_against_quality_and_percentile() -> None:
    late = hp.solve(profile(retries=0), slo(quality={"min": 0.8}), measured())
    assert late.plan is None  # one call in ten is never answered: there is no p95
    median = slo(quality={"min": 0.8}, latency={"p50_ms": 900})
    plan = hp.solve(profile(retries=0), median, measured()).plan
    assert plan is not None
    assert promised(plan, "quality") == pytest.approx(0.9 * 0.95)
    poor = hp.solve(profile(retries=0), slo(quality={"min": 0.9}, latency=median["apps"]["ask"]["latency"]), measured())
    assert poor.plan is None


def test_a_simulation_draws_calls_and_their_failures() -> None:
    wish = slo(quality={"min": 0.9})
    plan = hp.solve(profile(), wish, measured()).plan
    assert plan is not None
    played = hp.simulate(plan, profile(), wish, measured(), seeds=1, duration_s=2000)
    seen, promise = played.apps["ask"].percentiles_ms, promised(plan, "response_ms")
    assert 505 < seen[95.0].value < promise * 1.005
    assert 300 < seen[50.0].value < 400
    assert played.apps["ask"].figures["accuracy"].value == pytest.approx(0.94905)
    sure = profile(failures=0.0)
    plan = hp.solve(sure, wish, measured()).plan
    assert plan is not None
    never = hp.simulate(plan, sure, wish, measured(), seeds=1, duration_s=2000).apps["ask"].percentiles_ms
    assert never[99.0].value < 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"streams": 1}, "rate_qps"),
        ({"offers": {}}, "$.machines"),
        ({"knob": "colour"}, "where.colour"),
        ({"api": "nobody"}, "calls[0].api"),
    ],
)
def test_what_cannot_be_paid_or_reached_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    document, wish = profile(), slo()
    call = document["pipelines"]["rag"]["nodes"]["write"]["calls"][0]
    if "streams" in change:
        wish = slo(**change)
    elif "offers" in change:
        document["offers"] = {}
    elif "knob" in change:
        call["where"] = {"colour": ["red"]}
    else:
        call["api"] = change["api"]
    with pytest.raises(InputError) as error:
        hp.solve(document, wish, measured())
    assert field in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("rising", [[], [["k", "k2"]]])
def test_a_search_measures_calls_and_machines_alike(rising: list[list[str]]) -> None:
    """Listed settings, and settings that are drawn, find what all measurements together give."""
    document, wish = profile(failures=0.02), slo(quality={"min": 0.65})
    pipeline = document["pipelines"]["rag"]
    pipeline["knobs"] |= {"k": [1, 2], "k2": [1, 2]}
    pipeline["nodes"]["find"]["reads"] = ["k", "k2"]
    pipeline["space"] = {"rising": rising} if rising else None
    pipeline["evaluator"] = "made-up"

    class Evaluator:
        def __call__(self, knobs: dict[str, Any], stratum: int, index: int) -> Sample:
            model, more = knobs["model"], 1 + 0.1 * (index % 100) / 100
            seconds = {"find": 0.01 * knobs["k"] * knobs["k2"], "write": SECONDS[model] * more}
            return Sample(float(index % 20 < 20 * QUALITY[model]), seconds, {"find": 1e3, "write": 1e2}, 100.0)

    how = {"max_measurements": 12, "samples_max": 400, "stop_rule": "t"}
    outcome = hp.solve(document, wish, evaluate=measuring(Evaluator()), options=how)
    assert outcome.plan is not None
    assert outcome.plan.dispatch["ask"].knobs["model"] == "small"  # type: ignore[union-attr]
    assert promised(outcome.plan, "cost_per_hour") == 4.0  # two streams, each half a GPU
    better = hp.solve(document, slo(quality={"min": 0.9}), evaluate=measuring(Evaluator()), options=how)
    assert better.plan is not None
    assert better.plan.dispatch["ask"].placement["write"] == "acme"  # type: ignore[union-attr]


def at_a_rate(max_ms: float = 900, percentile: float = 95, quality: float = 0.9, rate: float = 10.0) -> dict[str, Any]:
    return slo(quality={"min": quality}, rate_qps=rate, latency={f"p{percentile:g}_ms": max_ms})


def late(plan: hp.Plan, document: dict[str, Any], wish: dict[str, Any], length_s: float = 1500) -> float:
    report = hp.simulate(plan, document, wish, measured(), seeds=2, seed=991, duration_s=length_s)
    return report.apps["ask"].figures["violations"].value


@pytest.mark.slow
def test_calls_wait_for_their_turn_in_simulation() -> None:
    """10 queries a second make 11.1 calls: a limit of 12 holds on average, and yet calls wait long."""
    wish = at_a_rate()
    plan = hp.solve(profile(), wish, measured(), options={"sizing": "formula"}).require()
    found = [late(plan, profile(calls_per_s=most), wish) for most in (1000, 20, 14, 12, 10)]
    assert found[0] == 0.0
    assert found == sorted(found)
    assert 0.03 < found[2] < 0.1 < found[3] < 0.6 < found[4]


@pytest.mark.slow
def test_tokens_space_calls_as_calls_do() -> None:
    """Each call has 1,050 tokens, so that so many tokens a second are 14 calls a second."""
    wish = at_a_rate()
    plan = hp.solve(profile(), wish, measured(), options={"sizing": "formula"}).require()
    by_calls, by_tokens = profile(calls_per_s=14), profile(tokens_per_s=14 * 1050)
    assert late(plan, by_calls, wish) == late(plan, by_tokens, wish)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "max_ms", "place"), [(16, 900, "acme"), (14, 900, None), (12, 900, None)])
def test_a_plan_leaves_room_for_turns_or_is_refused(most: float, max_ms: float, place: str | None) -> None:
    wish, document = at_a_rate(max_ms), profile(calls_per_s=most)
    outcome = hp.solve(document, wish, measured())
    if place is None:
        assert outcome.exit_code == 3
        assert "raise the limits of profile.apis.acme" in str(outcome.why)
        return
    plan = outcome.require()
    assert plan.dispatch["ask"].placement["write"] == place  # type: ignore[union-attr]
    assert late(plan, document, wish) <= 0.05
    assert hp.verify(plan, document, wish, measured()).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "max_ms", "helps"),
    [
        (14, 900, [{"rate_qps"}, {"p95_ms"}]),
        (8, 900, [{"rate_qps"}]),  # more calls come than are taken: no time is long enough
        (8, 100, [{"rate_qps", "p95_ms"}]),
    ],
)
def test_where_turns_take_too_long_what_is_said_helps(most: float, max_ms: float, helps: list[set[str]]) -> None:
    wish, document = at_a_rate(max_ms), profile(calls_per_s=most)
    outcome = hp.solve(document, wish, measured())
    assert [{str(edit.path[-1]) for edit in repair.edits} for repair in outcome.repairs] == helps
    for repair in outcome.repairs:
        assert hp.solve(document, edit_documents({"slo": wish}, repair.edits)["slo"], measured()).exit_code == 0


@pytest.mark.slow
def test_where_turns_take_too_long_a_machine_of_ones_own_answers() -> None:
    wish = at_a_rate(quality=0.6, rate=3.0, max_ms=600)
    free = {"price_per_call": "0", "price_per_million_in": "0", "price_per_million_out": "0"}
    places = {}
    for most in (50.0, 3.5):
        document = profile(calls_per_s=most, **free)
        plan = hp.solve(document, wish, measured()).require()
        places[most] = plan.dispatch["ask"].placement["write"]  # type: ignore[union-attr]
        assert late(plan, document, wish, 3000) <= 0.05
    assert places == {50.0: "acme", 3.5: "pool"}


@pytest.mark.slow
def test_applications_stand_in_one_line() -> None:
    """Each alone is in time; together they are not."""
    document = profile(calls_per_s=14)
    alone = at_a_rate(rate=6)
    both = {**alone, "apps": {"ask": alone["apps"]["ask"], "tell": alone["apps"]["ask"]}}
    known = {"apps": {"ask": measured()["apps"]["ask"], "tell": measured()["apps"]["ask"]}}

    def worst(wish: dict[str, Any]) -> float:
        plan = hp.solve(document, wish, known, options={"sizing": "formula"}).require()
        report = hp.simulate(plan, document, wish, known, seeds=2, seed=991, duration_s=1500)
        return max(one.figures["violations"].value for one in report.apps.values())

    assert worst(alone) < 0.01
    assert worst(both) > 0.2
