"""Policies of small queues, as the planner makes them: every way of spoiling one is caught and named."""

from collections.abc import Callable
from typing import Any

import pytest
from cases.policy import files
from cases.policy_plans import by_option, chosen, named, planned, with_table

from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_policy import Expected
from hetplan.profiles.workers import Serve
from hetplan.verifier.check import verify_plan
from hetplan.verifier.policy import check

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
    # Of several faults the first is reported; what is to be judged here comes first.
    unlawful = [one for one in found if one.code == "policy-choice" and "at slack 12.5 ms" in one.text]
    assert (unlawful == []) is lawful


def with_state_of(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"dispatch": {"a": plan.dispatch["a"].model_copy(update=changes)}})


def with_workers(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"workers": tuple(one.model_copy(update=changes) for one in plan.workers)})


def served(plan: Plan, **serve: int) -> Plan:
    (worker,) = plan.workers
    return with_workers(plan, loads=tuple(load.model_copy(update={"serve": Serve(**serve)}) for load in worker.loads))


def said(plan: Plan, **figures: float) -> Expected | None:
    expected = plan.policies["a"][0].expected
    return expected and expected.model_copy(update=figures)


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
    "another balancer": (
        "late are served",
        lambda plan: with_state_of(plan, balancing="shared_fifo"),
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
        "one queue for all",
        lambda plan: otherwise(with_table(plan, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 99.0)), model="slow"),
        [f"policy-grid @ {TABLE}"],
    ),
    "a table twice": ("late are served", doubled, ["policy-load @ policies.a"]),
    "another load": ("late are served", lambda plan: with_table(plan, rate_qps=100.0002), ["policy-load @ policies.a"]),
    "a lower load": (
        "one queue for all",
        lambda plan: with_table(plan, rate_qps=99.9998),
        ["policy-load @ policies.a"],
    ),
    "a load but for rounding": ("one queue for all", lambda plan: with_table(plan, rate_qps=100.00009), []),
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
        "one queue for all",
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
        "one queue for all",
        lambda plan: with_table(plan, slack_ms=(*plan.policies["a"][0].slack_ms[:-1], 100.00000009)),
        [],
    ),
    "a slow model where the table ends": (
        "late are served",
        lambda plan: otherwise(plan, model="slow"),
        [f"policy-models @ {TABLE}"],
    ),
    "models in another order": (
        "one queue for all",
        lambda plan: with_table(plan, models=("middle", "fast", "slow")),
        [f"policy-models @ {TABLE}"],
    ),
    "models in another order, and so where the table ends": (
        "one queue for all",
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
    "batches that are cut short": (
        "late are served",
        lambda plan: served(plan, max_batch=4),
        [f"policy-models @ {TABLE}"],
    ),
    "batches at once": (
        "one queue for all",
        lambda plan: served(plan, max_batch=5, concurrency=2),
        [f"policy-models @ {TABLE}"],
    ),
    "no expectation": (
        "late are served",
        lambda plan: with_table(plan, expected=None),
        [f"policy-expected @ {TABLE}"],
    ),
    "no expectation of one queue for all": ("one queue for all", lambda plan: plan, []),
    "another number of workers": (
        "late are served",
        lambda plan: with_workers(plan, count=3),
        [f"policy-expected @ {TABLE}"],
    ),
    "a percentile that was not measured": (
        "late are served",
        lambda plan: by_option(plan, statistic="p99"),
        [f"policy-table @ {TABLE}"],
    ),
    "another monotone": ("late are served", lambda plan: by_option(plan, monotone="optimistic"), []),
    "fitted rates are not recomputed": (
        "the shortest queue",
        lambda plan: by_option(with_table(plan, expected=said(plan, goodput=0.1)), rates="fitted"),
        [],
    ),
    "more workers than is recomputed": ("late are served", lambda plan: with_workers(plan, count=2001), []),
}


@pytest.mark.parametrize("words", SPOILT)
def test_what_is_spoilt_is_caught_and_named(words: str) -> None:
    name, spoil, expected = SPOILT[words]
    plan, inputs = planned(name)
    # What follows from one wrong expectation, of the gain and of promises, is not what this is about.
    follows = {f"policy-gain @ {TABLE}", *(f"promise @ promises[{n}]" for n in range(9))}
    assert set(named(spoil(plan), inputs)) - follows == set(expected)


def test_late_queries_dropped_where_they_are_to_be_served_are_seen_by_the_generic_check() -> None:
    plan, inputs = planned("late are served")
    found = {
        f"{one.code} @ {one.at}" for one in verify_plan(with_state_of(plan, late="drop"), inputs, check).violations
    }
    assert "dispatch @ dispatch.a" in found


def test_a_table_of_nobody_or_of_batches_beyond_it_is_a_violation_and_no_fault_of_the_verifier() -> None:
    plan, inputs = planned("late are served")
    first = plan.workers[0].model_copy(update={"id": "another"})
    found = {one.at for one in verify_plan(plan.model_copy(update={"workers": (first,)}), inputs, check).violations}
    assert TABLE in found
    table = plan.policies["a"][0]
    otherwise = table.otherwise.model_copy(update={"batch": table.queue_max + 2})
    found = {str(one) for one in verify_plan(with_table(plan, otherwise=otherwise), inputs, check).violations}
    assert any("takes 6 at once where more than 4 wait" in one for one in found)


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
