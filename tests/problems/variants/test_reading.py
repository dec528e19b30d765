"""What the files may say, what is refused, and what is only warned of."""

import pytest
from cases.variants import counts, machines, money, solve, table2

import hetplan as hp
from hetplan.api.solve import choose
from hetplan.errors import InputError
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.request import read_snapshot
from hetplan.profiles.load import load_inputs
from tests.build import answered


def fault(documents, formulation=None, **options):
    with pytest.raises(InputError) as raised:
        solve(documents, formulation, **options)
    return raised.value.faults[0]


def test_the_question_is_inferred():
    profile, slo, state = table2(10.0)
    assert choose(load_inputs(profile, slo, state=state)).problem.question == "variants"
    assert hp.solve(profile, slo, state).require().question == "variants"


def test_without_saturation_rates_batch_over_latency_is_taken():
    profile, slo, _ = table2(10.0)
    for variant in profile["variants"].values():
        for run in variant["runs"]:
            run.pop("saturation_qps")
    named, inferred = hp.solve(profile, slo, formulation="variants"), hp.solve(profile, slo)
    assert inferred.require().question == "variants"
    assert inferred.require().workers == named.require().workers


@pytest.mark.parametrize(
    ("where", "value", "path"),
    [
        (("variants", "a", "runs", 0, "saturation_qps"), 0, "max_qps"),
        (("variants", "a", "runs", 0, "saturation_qps"), 500.0, "max_qps"),
        (("variants", "a", "runs", 0, "saturation_qps"), float("nan"), ""),
        (("variants", "a", "runs", 0, "load_s"), -1.0, "load_s"),
        (("variants", "a", "runs", 0, "at", "batch"), 1.5, "batch"),
    ],
)
def test_a_wrong_profile(where, value, path):
    documents = table2(10.0)
    *steps, last = where
    held = documents[0]
    for step in steps:
        held = held[step]
    held[last] = value
    found = fault(documents)
    assert path in found.path
    assert found.remedy


def test_a_wrong_wish():
    assert "rate_qps" in fault(table2(-1.0)).path
    assert "p99_ms" in fault(table2(10.0, 0.0)).path
    assert "slack" in fault(table2(10.0, slack=0.9)).path
    assert "pooled" in fault(table2({"x": 1.0, "y": 1.0}), sharing="pooled").why
    assert "instances at the least" in fault(table2(1e10)).why


def test_the_limit_that_the_network_takes_whole_is_named():
    documents = table2(10.0)
    app = documents[1]["apps"]["images"]
    app["network_ms_per_hop"] = app["latency"]["p99_ms"]
    app["latency"]["p50_ms"] = 2 * app["network_ms_per_hop"]
    found = fault(documents)
    assert (found.path, found.remedy) == ("$.apps.images.network_ms_per_hop", "Raise latency.p99_ms above it.")


def test_a_floor_needs_a_quality_of_one_metric():
    documents = table2(10.0)
    documents[1]["apps"]["images"]["quality"] = {"min": 0.5}
    assert "quality" in fault(documents).path
    profile = documents[0]
    profile["metrics"] = {"top1": {}, "bleu": {"range": [0, 100]}}
    profile["tasks"] = {"classify": {"metric": "top1"}, "translate": {"metric": "bleu"}}
    profile["variants"]["b"]["task"] = "translate"
    for variant in profile["variants"].values():
        variant["quality"] = {"value": 0.9}
    assert "several metrics" in fault(documents).why


def test_no_load_needs_no_variant():
    found = solve(table2(0.0, running={"a": 3}))
    assert found.exit_code == 0, found.violations
    assert counts(found) == {}
    assert [action.do for action in found.plan.actions] == ["unload", "stop"]


def test_what_runs_for_nobody_is_stopped():
    documents = table2(10.0, 50.0, running={"a": 1})
    answered(documents[1]["apps"]["images"], model="b")
    found = solve(documents)
    assert found.exit_code == 0, found.violations
    assert counts(found) == {"b": 1}
    assert money(found, "net_cost_per_hour") == pytest.approx(3 - 1)


def codes(found):
    return {warning.code for warning in found.require().warnings}


def test_warnings():
    for files, named in ((table2(10.0), True), (table2(10.0, slack=3.0), False)):
        (text,) = (one.text for one in solve(files).plan.warnings if one.code == "W-queueing")
        assert ("would wait longer" in text) == named
    unlimited = table2(10.0, 50.0, needs={"b": {"inf_cores": 1.0}}, resources={"cpu_cores": 8.0})
    assert "W-unlimited" in codes(solve(unlimited))
    documents = machines(
        {"m": (1, {"units": 6.0})},
        {"x-large": ("m", 10.0, 99.0, 1, {"units": 7.0}), "x-small": ("m", 10.0, 10.0, 5, {"units": 1.0})},
        {"x": 10.0},
    )
    found = solve(documents)
    assert "W-too-large" in codes(found)
    assert counts(found) == {"x-small": 1}


def test_saturation_is_derived_where_it_is_not_stated():
    documents = table2(10.0, 50.0)
    del documents[0]["variants"]["b"]["runs"][0]["saturation_qps"]
    found = solve(documents)
    assert found.exit_code == 0, found.violations
    assert counts(found) == {"b": 1}


def test_sizes_of_queries_decide_what_is_in_time():
    documents = table2(10.0, 50.0)
    profile, slo, _ = documents
    profile["tables"]["t-b"] = {
        "quantity": "latency_ms", "axes": {"batch": [1], "sentence_len": [10, 100]}, "mean": [[20.0, 60.0]],
    }  # fmt: skip
    slo["apps"]["images"]["mix"] = {"axes": ["sentence_len"], "bins": [[10], [60]], "share": [0.5, 0.5]}
    assert solve(documents).exit_code == 0
    assert counts(solve(documents)) == {"b": 1}  # 42 ms for the longer ones
    slo["apps"]["images"]["mix"]["bins"] = [[10], [90]]
    assert counts(solve(documents)) == {"c": 1}  # 55 ms would be late


def test_company_slows_down():
    def most(slowdown):
        documents = machines(
            {"m": (2, {"units": 8.0})}, {"x-v": ("m", 40.0, 10.0, 1, {"units": 2.0})}, {"x": 20.0}, slo_ms=50.0
        )
        profile = documents[0]
        profile["tables"]["slow"] = {"quantity": "slowdown", "axes": {"co_load": [0, 1, 2, 3]}, "mean": slowdown}
        profile["variants"]["x-v"]["runs"][0]["slowdown"] = "slow"
        found = solve(documents)
        assert found.exit_code == 0, found.violations
        return max(sum(load.instances for load in worker.loads) for worker in found.plan.workers)

    assert most([1.0, 1.0, 1.0, 1.0]) >= 1
    assert most([1.0, 1.5, 2.0, 3.0]) == 1  # 60 ms beside another


def test_a_budget_binds():
    documents = table2(1000.0)
    documents[1]["limits"] = {"cost_per_hour": str(22 * 3600)}
    assert solve(documents).exit_code == 0
    documents[1]["limits"] = {"cost_per_hour": str(21 * 3600)}
    assert solve(documents).exit_code == 3


def test_whole_machines_at_the_price_of_their_offer():
    documents = table2(1000.0)
    profile = documents[0]
    for name, price in {"cpu": "1", "inferentia": "3", "gpu": "16"}.items():
        profile["offers"] = {**profile.get("offers", {}), name: {"hardware": name, "price_per_hour": price, "stock": 2}}
    for variant in profile["variants"].values():
        variant["runs"][0]["price_per_hour"] = None
    found = solve(documents)
    assert found.exit_code == 0, found.violations
    assert counts(found) == {"b": 2, "c": 1}
    assert money(found, "cost_per_hour") * 3600 == pytest.approx(22)


def test_a_run_without_a_batch_may_serve_each_that_was_measured():
    table = {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": [5, 8, 11]}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu": {"kind": "gpu"}},
        "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1"}},
        "tasks": {"t": {}},
        "variants": {"m": {"task": "t", "runs": [{"hardware": "gpu", "latency": "m"}]}},
        "tables": {"m": table},
    }
    wish = {
        "format": "hetplan/slo/1.0",
        "apps": {
            "a": {
                "model": "m", "latency": {"p99_ms": 60}, "rate_qps": 600
            }
        },
    }  # fmt: skip
    # One by one a machine serves 200 a second, so three are needed; eight at a time 727.
    [worker] = hp.solve(profile, wish, options={"sizing": "fluid"}).require().workers
    assert (worker.count, worker.loads[0].serve.max_batch) == (1, 8)
    kinds = read_snapshot(hp.load(profile, wish), VariantsOptions()).kinds
    assert [kind.batch for kind in kinds] == [1, 4, 8]
    # A stated batch is the only one; so is the batch at which a saturation was measured.
    profile["variants"]["m"]["runs"][0]["at"] = {"batch": 4}
    assert [k.batch for k in read_snapshot(hp.load(profile, wish), VariantsOptions()).kinds] == [4]
    profile["variants"]["m"]["runs"][0] |= {"at": {}, "saturation_qps": 150}
    assert [k.batch for k in read_snapshot(hp.load(profile, wish), VariantsOptions()).kinds] == [1]
    # Where queries come in sizes, the axis is the size of a query.
    del profile["variants"]["m"]["runs"][0]["saturation_qps"]
    wish["apps"]["a"]["mix"] = {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}
    assert [k.batch for k in read_snapshot(hp.load(profile, wish), VariantsOptions()).kinds] == [1]
