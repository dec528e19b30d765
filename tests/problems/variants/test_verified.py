"""Wrong plans, planted: each is caught by the question's own check, and named."""

import pytest
from cases.variants import HOUR, LOAD_S, machines, money, solve, table2

import hetplan as hp
from hetplan.profiles.load import load_inputs
from hetplan.verifier.variants import check


def planned(documents, **options):
    profile, slo, state = documents
    return solve(documents, **options).require(), load_inputs(profile, slo, state=state)


def codes(plan, inputs):
    return {violation.code for violation in check(plan, inputs)}


def growing():
    return table2(90.0, 300.0, slack=1.0, weight_per_s=0.1, load_s=LOAD_S, running={"a": 3})


def test_a_right_plan_passes():
    assert codes(*planned(growing())) == set()


def test_a_variant_on_two_kinds_of_hardware_loads_at_the_price_of_each():
    """33 and 10 queries/s for 42: one on each, of 1 an hour both, loading for 5 and for 1 second."""
    run = {"at": {"batch": 1}, "latency": "t", "price_per_hour": "1"}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"g": {"kind": "gpu"}, "c": {"kind": "cpu"}},
        "tasks": {"t": {}},
        "variants": {
            "v": {
                "task": "t",
                "family": "f",
                "runs": [
                    {**run, "hardware": "g", "saturation_qps": 33, "load_s": 5, "needs": {"mem": 1}},
                    {**run, "hardware": "c", "saturation_qps": 10, "load_s": 1, "needs": {"mem": 2}},
                ],
            }
        },
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
    }
    app = {"family": "f", "latency": {"p99_ms": 50}, "rate_qps": 40}
    slo = {
        "format": "hetplan/slo/1.0",
        "apps": {"x": app},
        "limits": {"capacity": {"mem": 4}},
        "change": {"slack": 1.05, "load_weight_per_s": 0.1},
    }
    found = hp.solve(profile, slo, formulation="variants")
    assert found.exit_code == 0, found.violations
    assert money(found, "gross_cost_per_hour") * HOUR == pytest.approx(2 + 0.5 + 0.1)


def test_too_few_instances():
    documents = table2(1000.0, 300.0)
    plan, inputs = planned(documents)
    fewer = tuple(worker.model_copy(update={"count": 1}) for worker in plan.workers)
    assert "variants-need" in codes(plan.model_copy(update={"workers": fewer}), inputs)


@pytest.mark.parametrize("name", ["gross_cost_per_hour", "net_cost_per_hour"])
def test_a_wrong_cost(name):
    plan, inputs = planned(growing())
    wrong = tuple(
        promise.model_copy(update={"value": promise.value * 0.9 - 1}) if promise.quantity == name else promise
        for promise in plan.promises
    )
    assert "variants-cost" in codes(plan.model_copy(update={"promises": wrong}), inputs)
    left = tuple(promise for promise in plan.promises if promise.quantity != name)
    assert "variants-cost" in codes(plan.model_copy(update={"promises": left}), inputs)


def test_taken_down_before_the_next_is_up():
    plan, inputs = planned(growing())
    turned = [action.model_copy(update={"after": ()}) for action in plan.actions]
    last = [action for action in turned if action.do in ("unload", "stop")]
    first = [action for action in turned if action.do not in ("unload", "stop")]
    assert "variants-served" in codes(plan.model_copy(update={"actions": (*last, *first)}), inputs)


def test_a_machine_over_full_on_the_way():
    documents = machines(
        {"m": (1, {"units": 6.0})},
        {"x-old": ("m", 200.0, 10.0, 1, {"units": 4.0}), "x-new": ("m", 10.0, 10.0, 1, {"units": 4.0})},
        {"x": 10.0}, slo_ms=100.0, on={"m-0": {"x-old": 1}},
    )  # fmt: skip
    plan, inputs = planned(documents)
    assert [action.do for action in plan.actions] == ["move", "upgrade", "unload"]
    assert codes(plan, inputs) == set()
    rash = tuple(action for action in plan.actions if action.do != "move")
    assert "variants-room" in codes(plan.model_copy(update={"actions": rash}), inputs)


def test_a_machine_without_a_name():
    documents = machines({"m": (1, {"units": 6.0})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 4.0})}, {"x": 10.0})
    plan, inputs = planned(documents)
    nameless = tuple(worker.model_copy(update={"host": None}) for worker in plan.workers)
    assert "variants-host" in codes(plan.model_copy(update={"workers": nameless}), inputs)


def test_a_machine_without_a_name_over_full_on_the_way():
    documents = machines(
        {"m": (1, {"units": 6.0})},
        {"x-old": ("m", 200.0, 10.0, 1, {"units": 4.0}), "x-new": ("m", 10.0, 10.0, 1, {"units": 4.0})},
        {"x": 10.0}, slo_ms=100.0,
    )  # fmt: skip
    del documents[0]["hosts"]
    documents[0]["offers"]["m"]["stock"] = 1
    old = {"id": "w1", "hardware": "m", "offer": "m", "loads": [{"id": "w1.1", "variant": "x-old"}]}
    documents[2]["workers"] = [old]
    plan, inputs = planned(documents)
    assert [(action.do, action.load) for action in plan.actions] == [
        ("move", "w1.1"),
        ("upgrade", "w1.2"),
        ("unload", "w1.1"),
    ]
    assert codes(plan, inputs) == set()
    rash = tuple(action for action in plan.actions if action.do != "move")
    assert "variants-room" in codes(plan.model_copy(update={"actions": rash}), inputs)


def test_idle_machines_left_out_of_the_costs():
    documents = machines({"m": (2, {"units": 6.0})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 4.0})}, {"x": 10.0})
    documents[0]["offers"]["m"]["price_per_hour"] = "5"
    documents[1]["limits"] = {"instances": {"m": [2, 2]}}
    plan, inputs = planned(documents)
    assert codes(plan, inputs) == set()
    cheaper = tuple(
        promise.model_copy(update={"value": promise.value - 5})
        if promise.quantity == "gross_cost_per_hour"
        else promise
        for promise in plan.promises
    )
    assert "variants-cost" in codes(plan.model_copy(update={"promises": cheaper}), inputs)
