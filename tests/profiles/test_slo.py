"""What an SLO may say, beyond what the examples say."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.profiles import load_slo
from hetplan.profiles.schema import schema
from hetplan.profiles.slo import App, Slo


def slo_of(app: dict[str, Any], **more: Any) -> Slo:
    return load_slo({"format": "hetplan/slo/1.0", "apps": {"a": {"task": "t", **app}}, **more})


@pytest.mark.parametrize(
    "demand",
    [
        {"rate_qps": 5},
        {"rate_qps": "max"},
        {"rate_qps": {"low": 5, "high": 5}},
        {"rate_qps": {"history": [0, 5]}},
        {"streams": 3},
        {"rate_qps": {"trace": {"file": "sub/arrivals.csv"}}, "arrivals": {"process": "empirical"}},
        {"rate_qps": {"mean": 5, "trace": {"file": "arrivals.csv"}}},
        {"rate_qps": 5, "arrivals": {"process": "mmpp", "relative_rates": [0.5, 2], "stay_s": [20, 10]}},
        {"rate_qps": 5, "arrivals": {"process": "diurnal", "peak": 1.8, "period_s": 86400}},
        {"rate_qps": 5, "arrivals": {"process": "gamma", "shape": 0.7}},
        {"rate_qps": 5, "arrivals": {"process": "deterministic"}},
        {"rate_qps": 5, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]}},
    ],
)
def test_demands(demand: dict[str, Any]) -> None:
    assert slo_of(demand).apps["a"].arrivals is not None


def test_a_series_has_a_rate_per_period() -> None:
    slo = slo_of({"rate_qps": {"series": [1, 2, 3]}}, horizon={"period_s": 60, "periods": 3}, requires=["series"])
    assert slo.apps["a"].series == (1, 2, 3)
    with pytest.raises(InputError, match="the horizon has 1, not 3"):
        slo_of({"rate_qps": {"series": [1, 2, 3]}})


@pytest.mark.parametrize(
    ("word", "means"),
    [("none", "serve"), ("opportunistic", "reroute"), ("Last_Task", "drop-last-task"), ("per-task", "drop-per-task")],
)
def test_the_papers_words_for_late_queries(word: str, means: str) -> None:
    assert slo_of({"late": word}).apps["a"].late == means


def test_limits_come_in_one_order_however_they_are_listed() -> None:
    limits = {"tpot_p95_ms": 40, "ttft_p95_ms": 600, "p99.9_ms": 200, "p50_ms": 80}
    targets = slo_of({"latency": limits}).apps["a"].targets
    assert [target.key for target in targets] == ["p50_ms", "p99.9_ms", "ttft_p95_ms", "tpot_p95_ms"]
    assert {target.key: target.max_ms for target in targets} == limits


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ({"latency": {"p99.0_ms": 9}}, r"p99\.0_ms.*Write p99_ms"),
        ({"latency": {"p0.95_ms": 9}}, "Write p95_ms"),
        ({"latency": {"p101_ms": 9}}, "from 1 to 100"),
        ({"latency": {"p99": 9}}, "Write p99_ms"),
        ({"latency": {"response_p99_ms": 9}}, "Write p99_ms"),
        ({"latency": {"p0.005_ms": 9}}, "Write for instance p99_ms"),
        ({"latency": {"max_ms": 9}}, "Write for instance p99_ms"),
        ({"latency": {"p99_ms": 0.0002}}, "if these are seconds, write milliseconds"),
        ({"latency": [{"of": "ttft", "percentile": 95, "max_ms": 600}]}, r'Write \{"ttft_p95_ms": 600\}'),
        ({"latency": [{"percentile": 0.99, "max_ms": 60}]}, r'Write \{"p99_ms": 60\}'),
        ({"latency": [{"percentile": 99, "max_ms": ms} for ms in (70, 60, 80)]}, r'Write \{"p99_ms": 60\}'),
        ({"latency": [{"percentile": 990, "max_ms": 7}]}, r'Write \{"p99_ms": 60\}'),
        ({"runs": {"variants": ["net"]}}, 'Write "model": "net"'),
        ({"runs": {"families": ["a", "b"]}}, r'Write "family": \["a", "b"\]'),
        ({"demand": {"rate_qps": 5}}, 'Write "rate_qps": 5'),
        ({"demand": {"rate_qps": {"low": 5, "high": 9}}}, 'Write "rate_qps": {"low": 5, "high": 9}'),
        ({"demand": {"history_qps": [4, 5], "streams": 2}}, r'Write "rate_qps": {"history": \[4, 5\]}, "streams": 2'),
        ({"demand": {"rate_qps": 5, "trace": {"file": "a"}}}, 'Write "rate_qps": {"mean": 5, "trace": {"file": "a"}}'),
        ({"demand": {"series": list(range(100))}}, r'Write "rate_qps": {"series": \[...\]}'),
        ({"demand": 500}, 'Write "rate_qps": 500'),
        ({"demand": {"level": "max"}}, 'Write "rate_qps": "max"'),
        ({"demand": {"history_qps": [1, 2], "rate_qps": 4}}, r'Write "rate_qps": {"history": \[1, 2\]}.*said once'),
        ({"rate": 5}, 'Write "rate_qps": 5'),
        ({"variants": ["net"]}, 'Write "model": "net"'),
        ({"runs": {"task": "t", "variants": ["net"]}}, "one of model, models, family, task, pipeline, not 2"),
        ({"balancing": "round_robin"}, 'Write "dispatch": "round-robin"'),
        ({"violations": {"max": 0.05}}, r"5% late is p95.*Write latency: \{p95_ms: 60\}"),
    ],
)
def test_what_names_no_limit_is_answered_by_the_form_that_does(app: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        slo_of(app)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("350", "Write 350 without quotes"),
        ("1_000", "Write 1000, as JSON"),
        ("+5", "Write 5, as JSON"),
        (".5", r"Write 0\.5, as JSON"),
        ("017", "Write 17, as JSON"),
        ("NaN", "leave the key out"),
    ],
)
def test_a_number_that_is_read_as_text_is_answered_as_json_writes_it(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        slo_of({"network_ms_per_hop": text})


def test_both_meanings_of_resources_are_named() -> None:
    with pytest.raises(InputError, match=r"Write provides or.*capacity"):
        slo_of({}, limits={"resources": {"watts": 3}})


@pytest.mark.parametrize("name", ["p99_ms", "p99.9_ms", "p100_ms", "p1_ms", "ttft_p95_ms", "tpot_p90.25_ms"])
def test_the_schema_takes_the_names_of_limits(name: str) -> None:
    assert slo_of({"latency": {name: 60}}).apps["a"].targets[0].key == name
    assert re.search(_pattern(), name)


@pytest.mark.parametrize("name", ["xp99_ms", "p99", "p99.0_ms", "p0.9_ms", "p101_ms", "response_p99_ms", "p099_ms"])
def test_the_schema_refuses_what_names_no_limit(name: str) -> None:
    with pytest.raises(InputError):
        slo_of({"latency": {name: 60}})
    assert not re.search(_pattern(), name)


def _pattern() -> str:
    latency = schema("slo")["$defs"]["App"]["properties"]["latency"]
    assert latency["additionalProperties"] is False
    (pattern,) = latency["patternProperties"]
    return str(pattern)


def test_candidates_stand_in_place_of_runs() -> None:
    document: dict[str, Any] = {"candidates": [{"demand": {"gpu": 0.5}, "weight": 2, "price_per_hour": "1.835"}]}
    app = App.model_validate(document)
    assert (app.answered_by, app.named_models) == ("candidates", None)
    assert app.candidates[0].price_per_hour == 1_835_000_000


def test_an_app_has_its_own_device() -> None:
    link = {"between": ["device", "edge"], "bandwidth_mbps": 31, "latency_ms": 8}
    app = slo_of({"device": {"relative_time": 3.9, "links": [link]}}).apps["a"]
    assert app.device is not None
    assert app.device.links[0].bandwidth_mbps == 31


def test_a_slo_without_apps_is_a_slo() -> None:
    assert load_slo({"format": "hetplan/slo/1.0"}).apps == {}


@pytest.mark.parametrize(
    ("objective", "goals", "front"),
    [
        ("max rate", ("rate",), None),
        (["max quality", "min machines"], ("quality", "machines"), None),
        ("front quality cost", ("",), ("quality", "cost")),
    ],
)
def test_an_objective_is_a_term_or_a_list_of_them(objective: Any, goals: tuple[str, ...], front: Any) -> None:
    slo = slo_of({}, objective=objective)
    assert (slo.goals, slo.front) == (goals, front)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ([{"max": "rate"}], 'Write "max rate"'),
        ([{"max": "quality"}, {"min": "servers"}], r'Write \["max quality", "min machines"\]'),
        ([{"front": ["quality", "cost"]}], 'Write "front quality cost"'),
        ("max cost", "max is followed by one of rate, quality, goodput, served"),
        ("cheapest", "a term begins with max, min or front"),
        ("min cost rate", "min is followed by one of"),
        (["min cost", "min cost"], "there twice"),
        ("front quality quality", 'different words.*Write for instance "front quality cost"'),
        ({"max": "rate"}, 'Write "max rate"'),
        (3, r'Write \["max quality", "min cost"\]'),
    ],
)
def test_what_is_no_term_is_answered_by_one(objective: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        slo_of({}, objective=objective)


AXES = {"batch": [1, 8]}
TIMES: dict[str, Any] = {"quantity": "latency_ms", "axes": AXES, "mean": [10, 40]}
RATES: dict[str, Any] = {"quantity": "requests_per_s", "axes": AXES, "mean": [100, 40], "given": {"ttft_p99_ms": 900}}


@pytest.mark.parametrize(
    ("table", "changes", "limits", "said"),
    [
        (TIMES, {"latency": {}}, {}, r'Write \{"p99_ms": \.\.\.\}'),
        (TIMES, {"attainment": 0.9}, {}, "states attainment"),
        (TIMES, {}, {"capacity": {"watts": 3}}, "Say what machines provide in all: limits.provides"),
        (RATES, {"latency": {"ttft_p99.9_ms": 500}}, {}, r'latency\["ttft_p99\.9_ms"\].*which is looser'),
    ],
)
def test_a_question_answers_in_the_form_that_files_have(
    table: dict[str, Any], changes: dict[str, Any], limits: dict[str, Any], said: str
) -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"t4": {"kind": "gpu"}},
        "offers": {"t4": {"hardware": "t4", "price_per_hour": "1"}},
        "tasks": {"t": {}},
        "variants": {
            "m": {"task": "t", "runs": [{"hardware": "t4", "latency" if table is TIMES else "rate": "table"}]}
        },
        "tables": {"table": table},
    }
    mix = {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}
    app = {"latency": {"p99_ms": 50}, "rate_qps": 30, "mix": mix, **changes}
    with pytest.raises(InputError, match=said):
        hp.solve(profile, slo_of(app, objective="min cost", limits=limits), formulation="pool")
