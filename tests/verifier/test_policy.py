"""Policies of small queues, as the planner makes them: each passes, and every way of spoiling one is caught and named.

What the planner says of a policy in the long run comes from another computation than the verifier's.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from cases.policy import files

from hetplan import front_door
from hetplan.planner.plan import Plan
from hetplan.planner.plan_policy import PolicyTable, write_runs
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.verifier.policy import check

Wish = dict[str, Any]
OPTIONS = {"queue_max": 4, "grid": "fld{8}", "simulate": False}


def gamma(shape: float) -> Wish:
    return {"demand": {"rate_qps": 100.0, "arrivals": {"process": "gamma", "shape": shape}}}


WISHES: dict[str, tuple[Wish, Wish, str | None]] = {
    "late are served": ({"late": "serve"}, {}, None),
    "late are dropped": ({"late": "drop", "rate_qps": 400.0}, {"batching": "variable"}, None),
    "all that wait": ({"rate_qps": 300.0}, {"batching": "max"}, None),
    "all that wait, or dropped": ({"late": "drop", "rate_qps": 400.0}, {"batching": "max"}, None),
    "no more than N": ({"rate_qps": 250.0}, {"overflow": "truncate"}, None),
    "as the paper": ({}, {"empty_state": "paper"}, "paper"),
    "as the paper, swept": ({}, {"sweeps": 3}, "paper"),
    "by decisions": ({}, {"objective": "per_decision"}, None),
    "by decisions, weighed": ({}, {"objective": "per_decision", "reward": "b_over_n"}, None),
    "the shortest queue": ({"balancing": "shortest_queue"}, {}, None),
    "the shortest queue, much to do": ({"balancing": "shortest_queue", "rate_qps": 400.0}, {}, None),
    "the shortest queue, too much to do": ({"balancing": "shortest_queue", "rate_qps": 3000.0}, {}, None),
    # Four at once take the slow model 63 ms.
    "the shortest queue, just in time": ({"balancing": "shortest_queue", "slo_ms": 63.0}, {}, None),
    "the shortest queue, short of time": ({"balancing": "shortest_queue", "slo_ms": 60.0}, {}, None),
    "the shortest queue, and drops": ({"balancing": "shortest_queue", "rate_qps": 800.0, "late": "drop"}, {}, None),
    "hardly anything": ({"rate_qps": 0.5}, {}, None),
    # The model that is fastest on one query is not on two.
    "fast on one, fast on many": ({"models": {"one": (0.6, 1.0, 9.0), "many": (0.75, 8.0, 3.0)}}, {}, None),
    "more regular": (gamma(3.0), {}, None),
    "a bit more regular": (gamma(1.3), {}, None),
    "much more regular": (gamma(500.0), {}, None),
    "much more regular, of more workers": (gamma(500.0) | {"workers": (5, 5)}, {}, None),
    "burstier": (gamma(0.3), {"clamp": True}, None),
    "over a range": ({"rate_qps": {"low": 60.0, "high": 120.0}}, {"accuracy_step": 0.5}, None),
    "far too much": ({"rate_qps": 3000.0}, {}, None),
    "over a network": ({"network_ms_per_hop": 5}, {"monotone": "optimistic"}, None),
    "half of the SLO": ({}, {}, "jellyfish"),
    "one model": ({}, {}, "single"),
}


@cache
def planned(name: str) -> tuple[Plan, Inputs]:
    wish, options, formulation = WISHES[name]
    documents = files(**{"workers": (2, 2), **wish})
    outcome = front_door.solve(*documents, question="policy", formulation=formulation, options={**OPTIONS, **options})
    return outcome.require(), load_inputs(*documents)


def named(plan: Plan, inputs: Inputs) -> list[str]:
    return sorted({f"{one.code} @ {one.at}" for one in check(plan, inputs)})


@pytest.mark.parametrize("name", WISHES)
def test_a_policy_passes(name: str) -> None:
    plan, inputs = planned(name)
    assert named(plan, inputs) == []


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


def table_of(plan: Plan, figure: str) -> float:
    return float(getattr(plan.policies["a"][0].expected, figure))


@pytest.mark.parametrize("name", ["late are served", "as the paper", "by decisions", "over a range"])
def test_a_gain_is_recomputed(name: str) -> None:
    plan, inputs = planned(name)
    gain = plan.policies["a"][0].gain
    assert gain is not None
    assert named(with_table(plan, gain=gain + 9e-7), inputs) == []
    assert named(with_table(plan, gain=gain - 1.1e-6), inputs) == ["policy-gain @ policies.a[0]"]
    assert named(with_table(plan, gain=None), inputs) == []


@pytest.mark.parametrize("name", ["as the paper, swept", "by decisions, weighed"])
def test_a_gain_of_something_else_is_not(name: str) -> None:
    plan, inputs = planned(name)
    assert named(with_table(plan, gain=0.123), inputs) == []


def test_where_nothing_is_in_time_its_accuracy_means_nothing() -> None:
    plan, inputs = planned("far too much")
    expected = plan.policies["a"][0].expected
    assert expected is not None
    vague = with_table(plan, expected=expected.model_copy(update={"accuracy_by_query": 0.9}))
    assert named(vague, inputs) == []
    wrong = with_table(plan, expected=expected.model_copy(update={"violation_by_query": 0.9}))
    assert named(wrong, inputs) == ["policy-expected @ policies.a[0]"]
    assert named(promised(plan, "quality", value=0.9), inputs) == []


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


def promised(plan: Plan, quantity: str, **changes: Any) -> Plan:
    changed = tuple(one.model_copy(update=changes) if one.quantity == quantity else one for one in plan.promises)
    return plan.model_copy(update={"promises": changed})


def with_table(plan: Plan, **changes: Any) -> Plan:
    first, *others = plan.policies["a"]
    changed = PolicyTable.model_construct(**{**dict(first), **changes})
    return plan.model_copy(update={"policies": {"a": (changed, *others)}})


def chosen(plan: Plan, waiting: int, slack: int, model: str, batch: int) -> Plan:
    """Another choice of the first table, of which nothing is stated any more."""
    table = plan.policies["a"][0]
    models = [table.models[place] for place in table.model_rows()[waiting - 1]]
    batches = list(table.batch_rows()[waiting - 1])
    models[slack], batches[slack] = model, batch
    return with_table(
        plan,
        choice={**table.choice, str(waiting): write_runs(models)},
        batch={**table.batch, str(waiting): write_runs(batches)},
    )


CHOICES = [
    # On 1, 2, 3, 4 take fast 6, 8, 10, 12 ms, middle 13, 18, 23, 28, slow 27, 39, 51, 63; slacks rise by 12.5 to 100.
    ("late are served", 1, 0, "fast", 1, True),
    ("late are served", 1, 0, "slow", 1, False),
    ("late are served", 1, 1, "middle", 1, False),
    ("late are served", 1, 2, "middle", 1, True),
    ("late are served", 1, 2, "slow", 1, False),
    ("late are served", 1, 3, "slow", 1, True),
    ("late are served", 3, 0, "fast", 2, False),
    ("late are served", 3, 0, "fast", 3, True),
    ("late are served", 3, 0, "middle", 3, False),
    ("late are served", 3, 1, "fast", 2, True),
    ("late are served", 4, 5, "slow", 4, False),
    ("late are served", 4, 6, "slow", 4, True),
    ("late are served", 4, 5, "slow", 3, True),
    ("late are served", 2, 8, "fast", 0, False),
    ("late are dropped", 2, 0, "fast", 0, True),
    ("late are dropped", 2, 0, "fast", 2, False),
    ("late are dropped", 2, 1, "fast", 0, False),
    ("late are dropped", 2, 1, "fast", 1, True),
    ("all that wait", 3, 8, "fast", 2, False),
    ("all that wait", 3, 8, "fast", 3, True),
    ("all that wait", 4, 0, "fast", 4, True),
    ("all that wait, or dropped", 3, 8, "fast", 2, False),
    ("all that wait, or dropped", 3, 0, "fast", 0, True),
    ("all that wait, or dropped", 3, 1, "fast", 0, False),
]


@pytest.mark.parametrize(("name", "waiting", "slack", "model", "batch", "lawful"), CHOICES)
def test_choices_are_lawful(name: str, waiting: int, slack: int, model: str, batch: int, lawful: bool) -> None:
    plan, inputs = planned(name)
    found = check(chosen(plan, waiting, slack, model, batch), inputs)
    unlawful = [one for one in found if one.code == "policy-choice"]
    assert (unlawful == []) is lawful
    for one in unlawful:
        at = plan.policies["a"][0].slack_ms[slack]
        assert (one.at, one.text) == (
            "policies.a[0]",
            f"{model} on {batch} of {waiting} at slack {at:g} ms is no choice there",
        )


def of_the_fastest(plan: Plan, batch: Callable[[int, int], int]) -> Plan:
    """A table that runs the fastest model alone, on so many by how many wait and the number of the slack."""
    for waiting in range(1, 5):
        for slack in range(9):
            plan = chosen(plan, waiting, slack, "fast", batch(waiting, slack))
    return plan


SERVED = ("late are served", "serve", lambda waiting, slack: 1 if (waiting, slack) == (2, 1) else waiting)
DROPPED = ("late are dropped", "drop", lambda _, slack: 0 if slack < 2 else 1)
DROPPED_WHOLE = ("all that wait, or dropped", "drop", lambda _, slack: 0 if slack < 1 else 1)


@pytest.mark.parametrize(
    ("of", "one_ms", "slack_is", "lawful"),
    [
        # One in time at the slack of 12.5 ms, but for rounding of 1e-7 ms.
        (SERVED, 12.5, 0.0, True),
        (SERVED, 12.5, 5e-8, True),
        (SERVED, 12.5, 5e-7, False),
        # Dropped, where not even one is in time.
        (DROPPED, 12.5, 0.0, True),
        (DROPPED, 12.5, -5e-8, True),
        (DROPPED, 12.5, -5e-7, False),
        # One of two is taken, where not both are in time.
        (DROPPED_WHOLE, 8.5, 0.0, True),
        (DROPPED_WHOLE, 8.5, -5e-8, True),
        (DROPPED_WHOLE, 8.5, -5e-7, False),
        (DROPPED_WHOLE, 12.5, 0.0, True),
    ],
)
def test_choices_are_judged_on_the_grid(of: Any, one_ms: float, slack_is: float, lawful: bool) -> None:
    name, late, batch = of
    plan, _ = planned(name)
    models = {"fast": (0.6, one_ms - 4.0 + slack_is, 4.0), "middle": (0.75, 90.0, 5.0), "slow": (0.85, 95.0, 12.0)}
    inputs = load_inputs(*files(workers=(2, 2), late=late, models=models))
    found = check(of_the_fastest(plan, batch), inputs)
    # Of several faults the first is told; what is to be judged here comes first.
    unlawful = [one for one in found if one.code == "policy-choice" and "at slack 12.5 ms" in one.text]
    assert (unlawful == []) is lawful


def with_state_of(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"dispatch": {"a": plan.dispatch["a"].model_copy(update=changes)}})


def with_workers(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"workers": tuple(one.model_copy(update=changes) for one in plan.workers)})


def valid(plan: Plan, most: float | None) -> Plan:
    return plan.model_copy(update={"valid": plan.valid.model_copy(update={"rate_qps": {"a": (0.0, most)}})})


def doubled(plan: Plan) -> Plan:
    (table,) = plan.policies["a"]
    return plan.model_copy(update={"policies": {"a": (table, table)}})


def otherwise(plan: Plan, **changes: Any) -> Plan:
    return with_table(plan, otherwise=plan.policies["a"][0].otherwise.model_copy(update=changes))


TABLE = "policies.a[0]"
SPOILT: dict[str, tuple[str, Callable[[Plan], Plan], list[str]]] = {
    "no policy": (
        "late are served",
        lambda plan: plan.model_copy(update={"policies": {}}),
        ["policy-missing @ policies.a"],
    ),
    "no dispatch": (
        "late are served",
        lambda plan: plan.model_copy(update={"dispatch": {}}),
        ["dispatch @ dispatch.a"],
    ),
    "dropped, where they are to be served": (
        "late are served",
        lambda plan: with_state_of(plan, late="drop"),
        ["dispatch @ dispatch.a"],
    ),
    "another balancer": (
        "late are served",
        lambda plan: with_state_of(plan, balancing="shared_fifo"),
        ["dispatch @ dispatch.a"],
    ),
    "queues of their own, where one is meant": (
        "half of the SLO",
        lambda plan: with_state_of(plan, balancing="round_robin"),
        ["dispatch @ dispatch.a"],
    ),
    "valid beyond its tables": ("late are served", lambda plan: valid(plan, 100.001), ["valid @ valid.rate_qps.a"]),
    "valid without end": ("late are served", lambda plan: valid(plan, None), ["valid @ valid.rate_qps.a"]),
    "valid as far as its tables": ("late are served", lambda plan: valid(plan, 100.00009), []),
    "valid beyond the end of a range": (
        "over a range",
        lambda plan: valid(plan, 120.001),
        ["valid @ valid.rate_qps.a"],
    ),
    "tables that end before the range": (
        "over a range",
        lambda plan: plan.model_copy(update={"policies": {"a": plan.policies["a"][:-1]}}),
        ["policy-load @ policies.a"],
    ),
    "a model that is not loaded, and another SLO": (
        "late are served",
        lambda plan: with_workers(with_table(plan, slo_ms=50.0), loads=plan.workers[0].loads[:1]),
        [f"policy-models @ {TABLE}"],
    ),
    "a grid to elsewhere, of models in another order": (
        "half of the SLO",
        lambda plan: otherwise(with_table(plan, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 99.0)), model="slow"),
        [f"policy-grid @ {TABLE}"],
    ),
    "a table twice": ("late are served", doubled, ["policy-load @ policies.a"]),
    "another load": ("late are served", lambda plan: with_table(plan, rate_qps=100.0002), ["policy-load @ policies.a"]),
    "a lower load": (
        "half of the SLO",
        lambda plan: with_table(plan, rate_qps=99.9998),
        ["policy-load @ policies.a"],
    ),
    "a load but for rounding": ("half of the SLO", lambda plan: with_table(plan, rate_qps=100.00009), []),
    "another group": (
        "late are served",
        lambda plan: with_table(plan, workers="w9"),
        [f"unknown-reference @ {TABLE}"],
    ),
    "a model that is not loaded": (
        "late are served",
        lambda plan: with_workers(plan, loads=plan.workers[0].loads[:1]),
        [f"policy-models @ {TABLE}"],
    ),
    "another SLO": (
        "half of the SLO",
        lambda plan: with_table(plan, slo_ms=100.001, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 100.001)),
        [f"policy-slo @ {TABLE}"],
    ),
    "a grid from elsewhere": (
        "late are served",
        lambda plan: with_table(plan, slack_ms=(1.0, *plan.policies["a"][0].slack_ms[1:])),
        [f"policy-grid @ {TABLE}"],
    ),
    "a grid to elsewhere": (
        "late are served",
        lambda plan: with_table(plan, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 99.0)),
        [f"policy-grid @ {TABLE}"],
    ),
    "a grid to the end but for rounding": (
        "half of the SLO",
        lambda plan: with_table(plan, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 100.00000009)),
        [],
    ),
    "a slow model where the table ends": (
        "late are served",
        lambda plan: otherwise(plan, model="slow"),
        [f"policy-models @ {TABLE}"],
    ),
    "models in another order": (
        "half of the SLO",
        lambda plan: with_table(plan, models=("middle", "fast", "slow")),
        [f"policy-models @ {TABLE}"],
    ),
    "models in another order, and so where the table ends": (
        "half of the SLO",
        lambda plan: otherwise(with_table(plan, models=("middle", "fast", "slow")), model="middle"),
        [f"policy-models @ {TABLE}"],
    ),
    "fewer where the table ends": (
        "no more than N",
        lambda plan: otherwise(plan, batch=3),
        [f"policy-expected @ {TABLE}"],
    ),
    "all where the table ends, more than can be waiting": (
        "late are served",
        lambda plan: otherwise(plan, batch="max"),
        [],
    ),
    "no expectation": (
        "late are served",
        lambda plan: with_table(plan, expected=None),
        [f"policy-expected @ {TABLE}"],
    ),
    "no expectation of one queue for all": ("half of the SLO", lambda plan: plan, []),
    "another number of workers": (
        "late are served",
        lambda plan: with_workers(plan, count=3),
        [f"policy-expected @ {TABLE}"],
    ),
    "a percentile that was not measured": (
        "late are served",
        lambda plan: by_option(plan, percentile="p99"),
        [f"policy-table @ {TABLE}"],
    ),
    "another monotone": ("late are served", lambda plan: by_option(plan, monotone="optimistic"), []),
    "fitted rates are not recomputed": (
        "the shortest queue",
        lambda plan: by_option(with_table(plan, gain=0.1), rates="fitted"),
        [],
    ),
    "more workers than is recomputed": ("late are served", lambda plan: with_workers(plan, count=2001), []),
}


def by_option(plan: Plan, **options: Any) -> Plan:
    every = {**plan.method.options, **options}
    return plan.model_copy(update={"method": plan.method.model_copy(update={"options": every})})


@pytest.mark.parametrize("words", SPOILT)
def test_what_is_spoilt_is_caught_and_named(words: str) -> None:
    name, spoil, expected = SPOILT[words]
    plan, inputs = planned(name)
    # What follows from one wrong expectation, of the gain and of promises, is not what this is about.
    follows = {f"policy-gain @ {TABLE}", *(f"promise @ promises[{n}]" for n in range(9))}
    assert set(named(spoil(plan), inputs)) - follows == set(expected)


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
    assert named(plan, with_target(percentile=98.0, violations={"max": 0.02})) == []
    assert named(plan, with_target(percentile=99.0, violations={"max": 0.01})) == target
    assert 0.01 < late < 0.02
    simulated = with_table(plan, simulated={"violation": 0.0100011, "accuracy": 0.7})
    assert named(simulated, with_target(violations={"max": 0.01})) == target
    assert named(simulated, with_target(quality={"min": 0.7000009})) == []
    assert named(simulated, with_target(quality={"min": 0.7000011})) == target
    better = with_table(plan, simulated={"violation": 0.0100009, "accuracy": 0.7})
    assert named(better, with_target(violations={"max": 0.01})) == []
    half = with_table(plan, simulated={"accuracy": 0.7})
    assert named(half, with_target(violations={"max": 0.01})) == target
    untold = with_table(plan, expected=None)
    assert [one.code for one in check(untold, with_target(quality={"min": 0.1}))] == [
        "policy-expected",
        "policy-target",
    ]
    assert [one.code for one in check(untold, with_target(violations={"max": 0.01}))] == [
        "policy-expected",
        "policy-target",
    ]


def test_the_rate_of_a_trace_is_what_is_wanted() -> None:
    plan, _ = planned("half of the SLO")
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
    demand = type(app.demand).model_validate({"rate_qps": 100.0, "trace": {"file": "t.csv"}})
    slo = inputs.slo.model_copy(update={"apps": {"a": app.model_copy(update={"demand": demand})}})
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


def test_latencies_are_those_of_the_profile() -> None:
    plan, inputs = planned("late are served")
    profile, slo = files(workers=(2, 2))
    profile["variants"]["slow"]["runs"] = []
    assert named(plan, load_inputs(profile, slo)) == [f"policy-table @ {TABLE}"]
    rates = {"quantity": "requests_per_s", "axes": {"batch": [1, 8]}, "mean": [9, 9]}
    profile["tables"]["r"] = rates
    profile["variants"]["slow"]["runs"] = [{"hardware": "cpu", "rate": "r"}]
    assert named(plan, load_inputs(profile, slo)) == [f"policy-table @ {TABLE}"]
    profile, slo = files(workers=(2, 2))
    profile["hardware"]["gpu"] = {"kind": "gpu"}
    for variant in profile["variants"].values():
        variant["runs"].insert(0, {"hardware": "gpu", "latency": "t-slow"})
    assert named(plan, load_inputs(profile, slo)) == named(plan, inputs) == []


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
    outcome = front_door.solve(*of_two_kinds(), question="policy", options=OPTIONS)
    plan, inputs = outcome.require(), load_inputs(*of_two_kinds())
    assert len(plan.policies["a"]) == 2
    assert named(plan, inputs) == []
    (number,) = (n for n, one in enumerate(plan.promises) if one.quantity == "goodput")
    plain = sum(table.expected.goodput for table in plan.policies["a"] if table.expected) / 2
    assert abs(plan.promises[number].value - plain) > 1e-5
    assert named(promised(plan, "goodput", value=plain), inputs) == [f"promise @ promises[{number}]"]
    assert named(with_table(plan, rate_qps=1.0), inputs) == ["policy-load @ policies.a"]
