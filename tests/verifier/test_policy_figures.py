"""What policies give in the long run, recomputed: the planner's own figures pass, and no others.

What the planner says of a policy in the long run comes from another computation than the verifier's.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases.policy import files
from cases.policy_plans import OPTIONS, WISHES, Wish, named, planned, promised, with_table

import hetplan as hp
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.slo import Rates
from hetplan.verifier.policy import check


@pytest.mark.parametrize("name", WISHES)
def test_a_policy_passes(name: str) -> None:
    plan, inputs = planned(name)
    assert named(plan, inputs) == []


TABLE = "policies.a[0]"
STATED = ("accuracy_by_query", "accuracy_by_decision", "violation_by_query", "violation_by_decision", "goodput")
BEYOND = ("over_probability", "utilisation")


@pytest.mark.parametrize("figure", [*STATED, *BEYOND])
@pytest.mark.parametrize(
    "name", ["late are served", "late are dropped", "as the paper", "the shortest queue, much to do", "no more than N"]
)
def test_every_figure_is_recomputed(name: str, figure: str) -> None:
    plan, inputs = planned(name)
    (table,) = plan.policies["a"]
    for change, right in ((9e-7, True), (1.1e-6, False)):
        down = -change if getattr(table.expected, figure) > 0.5 else change
        spoilt = with_table(plan, expected=table.expected.model_copy(update={figure: table_of(plan, figure) + down}))
        assert (named(spoilt, inputs) == []) is right


@pytest.mark.quick_cases(11)
@pytest.mark.parametrize(
    "name", ["late are served", "late are dropped", "as the paper", "the shortest queue, and drops"]
)
@pytest.mark.parametrize(
    ("figure", "same", "other"),
    [("accuracy_p1", 9e-7, 0.01), ("accuracy_p50", 9e-7, 0.01), ("queue_p50", 0.0, 1.0), ("queue_p99", 0.0, 1.0)],
)
def test_what_most_get_is_recomputed(name: str, figure: str, same: float, other: float) -> None:
    plan, inputs = planned(name)
    expected = plan.policies["a"][0].expected
    assert expected is not None
    for change, codes in ((same, []), (-same, []), (other, ["policy-expected"]), (-other, ["policy-expected"])):
        changed = expected.model_copy(update={figure: table_of(plan, figure) + change})
        assert [one.code for one in check(with_table(plan, expected=changed), inputs)] == codes


def test_more_may_wait_than_the_table_reaches() -> None:
    plan, inputs = planned("far too much")
    expected = plan.policies["a"][0].expected
    assert expected is not None
    assert expected.queue_p50 == 5
    fewer = with_table(plan, expected=expected.model_copy(update={"queue_p50": 4}))
    (said,) = check(fewer, inputs)
    assert (said.code, said.at) == ("policy-expected", TABLE)
    assert said.text.startswith("queue_p50 4: a share of ")


def table_of(plan: Plan, figure: str) -> float:
    return float(getattr(plan.policies["a"][0].expected, figure))


def gaining(plan: Plan, gain: float) -> Plan:
    """The plan with another gain of its table, in what it claims too."""
    before = plan.policies["a"][0].gain
    claims = tuple(
        one.model_copy(update={"value": gain, "gap": None}) if one.value == before else one for one in plan.claims
    )
    return with_table(plan, gain=gain).model_copy(update={"claims": claims})


@pytest.mark.parametrize("name", ["late are served", "as the paper", "by decisions", "over a range"])
def test_a_gain_is_recomputed(name: str) -> None:
    plan, inputs = planned(name)
    gain = plan.policies["a"][0].gain
    assert gain is not None
    assert "policy-gain @ policies.a[0]" not in named(gaining(plan, gain + 9e-7), inputs)
    assert "policy-gain @ policies.a[0]" in named(gaining(plan, gain - 1.1e-6), inputs)
    assert named(with_table(plan, gain=gain + 9e-7), inputs) == ["claim @ claims[0]"]
    assert named(with_table(plan, gain=None), inputs) == ["claim @ claims[0]"]


@pytest.mark.parametrize("name", ["as the paper, swept", "by decisions, weighed"])
def test_a_gain_of_something_else_is_not(name: str) -> None:
    plan, inputs = planned(name)
    assert named(with_table(plan, gain=0.123), inputs) == ["claim @ claims[0]"]


def test_where_nothing_is_in_time_its_accuracy_means_nothing() -> None:
    plan, inputs = planned("far too much")
    expected = plan.policies["a"][0].expected
    assert expected is not None
    vague = with_table(plan, expected=expected.model_copy(update={"accuracy_by_query": 0.9}))
    assert named(vague, inputs) == []
    wrong = with_table(plan, expected=expected.model_copy(update={"violation_by_query": 0.9}))
    assert named(wrong, inputs) == ["policy-expected @ policies.a[0]"]
    assert named(promised(plan, "quality", value=0.9), inputs) == []


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("quantity", ["goodput", "quality", "violations", "utilisation"])
@pytest.mark.parametrize("name", ["late are served", "over a range"])
def test_every_promise_is_recomputed(name: str, quantity: str) -> None:
    plan, inputs = planned(name)
    (number,) = (n for n, one in enumerate(plan.promises) if one.quantity == quantity)
    value = plan.promises[number].value
    assert named(promised(plan, quantity, value=value + 9e-7), inputs) == []
    assert named(promised(plan, quantity, value=value - 1.1e-6), inputs) == [f"promise @ promises[{number}]"]
    assert named(promised(plan, quantity, relation=">="), inputs) == [f"promise @ promises[{number}]"]
    assert named(promised(plan, quantity, value=9.0, model="simulation/1"), inputs) == []
    assert named(promised(plan, quantity, value=9.0, app="b"), inputs) == []


def test_stated_targets_hold_by_what_the_tables_say() -> None:
    plan, _ = planned("late are served")
    accuracy, late = table_of(plan, "accuracy_by_query"), table_of(plan, "violation_by_query")

    def with_target(**target: Any) -> Inputs:
        wish: Wish = {"workers": (2, 2), **target}
        return load_inputs(*files(**wish))

    target = [f"policy-target @ {TABLE}"]
    assert named(plan, with_target(quality={"min": accuracy + 9e-7})) == []
    assert named(plan, with_target(quality={"min": accuracy + 1.1e-6})) == target
    assert named(plan, with_target(quality={"max": 0.1})) == []
    assert 0.01 < late < 0.02
    assert named(plan, with_target(percentile=99.0)) == [], "it warns that more are late"
    plan = plan.model_copy(update={"warnings": ()})
    assert named(plan, with_target(percentile=98.0)) == []
    assert named(plan, with_target(percentile=99.0)) == target
    simulated = with_table(plan, simulated={"violation": 0.0100011, "accuracy": 0.7})
    assert named(simulated, with_target()) == target
    assert named(simulated, with_target(percentile=98.0, quality={"min": 0.7000009})) == []
    assert named(simulated, with_target(percentile=98.0, quality={"min": 0.7000011})) == target
    better = with_table(plan, simulated={"violation": 0.0100009, "accuracy": 0.7})
    assert named(better, with_target()) == []
    half = with_table(plan, simulated={"accuracy": 0.7})
    assert named(half, with_target()) == target
    unsaid = with_table(plan, expected=None)
    assert [one.code for one in check(unsaid, with_target(quality={"min": 0.1}))] == [
        "policy-expected",
        "policy-target",
        "policy-target",
    ]
    assert [one.code for one in check(unsaid, with_target())] == [
        "policy-expected",
        "policy-target",
    ]


def test_only_rules_of_other_packages_keep_one_queue_for_all() -> None:
    made, inputs = planned("one queue for all")
    assert named(made, inputs) == []
    own = made.model_copy(update={"method": made.method.model_copy(update={"formulation": "policy-mdp"})})
    assert "dispatch @ dispatch.a" in named(own, inputs)


def test_the_rate_of_a_trace_is_what_is_wanted() -> None:
    plan, _ = planned("one queue for all")
    wanted = load_inputs(*files(workers=(2, 2), rate_qps=None))
    assert named(plan, replace(wanted, traces={"a": np.arange(1001) / 100.0})) == []
    assert named(plan, replace(wanted, traces={"a": 50.0 + np.arange(1001) / 100.0})) == []
    assert named(plan, replace(wanted, traces={"a": np.arange(1001) / 99.99})) == [
        "policy-load @ policies.a",
        "valid @ valid.rate_qps.a",
    ]
    assert named(plan, wanted) == []


def recorded(name: str, times_s: Any) -> Inputs:
    """The inputs of a plan with arrivals as they were recorded."""
    _, inputs = planned(name)
    app = inputs.slo.apps["a"]
    rates = Rates.model_validate({"mean": 100.0, "trace": {"file": "t.csv"}})
    slo = inputs.slo.model_copy(update={"apps": {"a": app.model_copy(update={"rate_qps": rates})}})
    return replace(inputs, slo=slo, traces={"a": times_s})


def counted(*counts: int) -> Any:
    """Arrival times with so many in each window of 0.1 s, from 5 s on, and a last one to end the last window."""
    times = [5.0 + 0.1 * (place + (np.arange(count) + 0.5) / count) for place, count in enumerate(counts)]
    return np.concatenate([[5.0], np.concatenate(times)[1:], [5.0 + 0.1 * (len(counts) + 0.01)]])


def test_recorded_arrivals_are_as_regular_as_they_are() -> None:
    # A mean of 10 and a variance of 20 / 6: three times as regular as Poisson arrivals.
    thrice = counted(*[13, 7, 11, 9, 10, 10] * 5)
    assert named(planned("more regular")[0], recorded("more regular", thrice)) == []
    assert named(planned("late are served")[0], recorded("late are served", thrice)) != []
    # Too few windows say nothing, nor do windows that are all alike.
    assert named(planned("late are served")[0], recorded("late are served", counted(*[13, 7, 11] * 3))) == []
    assert named(planned("late are served")[0], recorded("late are served", counted(*[10] * 30))) == []
    ten = recorded("late are served", counted(13, 7, 11, 9, 10, 10, 13, 7, 11, 9))
    assert named(planned("late are served")[0], ten) != []


def of_two_kinds() -> Any:
    """Two machines more, of another kind, on which all goes twice as fast."""
    profile, slo = files(workers=(2, 2), rate_qps=300.0)
    profile["hardware"]["gpu"] = {"kind": "gpu"}
    slo["limits"]["instances"]["gpu"] = [2, 2]
    for name, variant in profile["variants"].items():
        variant["runs"].append({"hardware": "gpu", "latency": f"g-{name}"})
        slow = profile["tables"][f"t-{name}"]
        profile["tables"][f"g-{name}"] = {**slow, "p95": [ms / 2 for ms in slow["p95"]]}
    return profile, slo


def test_groups_are_weighed_by_their_load() -> None:
    outcome = hp.solve(*of_two_kinds(), options=OPTIONS, formulation="policy")
    plan, inputs = outcome.require(), load_inputs(*of_two_kinds())
    assert len(plan.policies["a"]) == 2
    assert named(plan, inputs) == []
    (number,) = (n for n, one in enumerate(plan.promises) if one.quantity == "goodput")
    plain = sum(table.expected.goodput for table in plan.policies["a"] if table.expected) / 2
    assert abs(plan.promises[number].value - plain) > 1e-5
    assert named(promised(plan, "goodput", value=plain), inputs) == [f"promise @ promises[{number}]"]
    assert named(with_table(plan, rate_qps=1.0), inputs) == ["policy-load @ policies.a"]
