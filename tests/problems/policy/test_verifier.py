"""The verifier of policies: it agrees with every engine, and finds what is changed in a plan."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases.policy import files, random_process, solve

import hetplan as hp
from hetplan.planner.forms.queue_process import Batching, Empty, Late, Overflow, PerWhat, QueueProcess
from hetplan.planner.forms.queue_process_measures import measure
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_policy import PolicyTable, write_runs
from hetplan.verifier.policy import check
from hetplan.verifier.policy_chain import Chain, NewHeads, enclosed

OPTIONS = {"queue_max": 6, "grid": "fld{16}", "sizing": "fluid"}


def chain_of(form: QueueProcess, model: np.ndarray, batch: np.ndarray) -> Chain:
    rates = form.stage_rates[form.rates_by_queue]
    idle = form.empty is Empty.PAPER
    return Chain(form.latency_s, form.grid_s, form.stages, rates, model, batch, form.over_batch, idle)


KINDS = (
    {},
    {"objective": PerWhat.PER_DECISION},
    {"batching": Batching.VARIABLE},
    {"late": Late.DROP},
    {"late": Late.DROP, "batching": Batching.VARIABLE},
    {"overflow": Overflow.TRUNCATE},
    {"empty": Empty.PAPER, "objective": PerWhat.PER_DECISION},
    {"stages": 1, "rates": 2, "rate_of": np.array([0, 0, 0, 1, 1, 1])},
)


@pytest.mark.parametrize("how", KINDS, ids=str)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_enclosures_hold_what_the_engines_say(how: dict, seed: int) -> None:  # type: ignore[type-arg]
    """Powers of the transitions, applied to what decisions earn, close in on the engine's value from both sides."""
    form = random_process(seed, **how)
    answer = solve(form)
    chosen = form.chosen(answer.point)
    shape = (form.queue, form.slacks)
    earned = np.stack([form.actions.reward[chosen].reshape(shape), form.actions.weight[chosen].reshape(shape)], axis=-1)
    chain = chain_of(form, answer.point.model, answer.point.batch)
    low, high = enclosed(chain, earned, np.array(form.over_reward()), np.array(form.empty_reward()))
    assert (low <= high + 1e-12).all()
    assert low[0] / low[1] == pytest.approx(answer.value, abs=1e-8)
    mass = form.long_run(chosen)
    exact = np.array(form.earned(mass, chosen))
    assert ((low - 1e-9 <= exact) & (exact <= high + 1e-9)).all()


@pytest.mark.parametrize("late", list(Late))
def test_tables_that_share_what_is_alike_are_enclosed_as_each_alone(late: Late) -> None:
    """Two loads, then other latencies, other slacks and other stages: nothing of one is taken for another."""
    one = random_process(3, batching=Batching.VARIABLE, late=late, stages=2)
    slower = replace(one, latency_s=1.05 * one.latency_s)
    coarser = replace(one, grid_s=one.grid_s**1.1 * one.grid_s[-1] ** -0.1)
    forms = (one, replace(one, stage_rates=1.3 * one.stage_rates), slower, coarser, replace(one, stages=3))
    heads = NewHeads()
    for form in (*forms, *forms):
        policy = solve(form).point
        earned = np.stack([policy.batch, np.ones(policy.batch.shape)], axis=-1).astype(float)
        chain, over, idle = chain_of(form, policy.model, policy.batch), np.array([7.0, 1.0]), np.zeros(2)
        together, alone = enclosed(chain, earned, over, idle, heads), enclosed(chain, earned, over, idle)
        assert np.array_equal(together, alone)
        assert heads.of(chain)


@pytest.fixture(scope="module")
def inputs() -> Any:
    return load_inputs(*files(late="serve"))


@pytest.fixture(scope="module")
def plan() -> Plan:
    outcome = hp.solve(*files(late="serve"), options=OPTIONS, formulation="policy")
    assert outcome.exit_code == 0, outcome.violations
    return outcome.require()


def with_table(plan: Plan, **changes: Any) -> Plan:
    (table,) = plan.policies["a"]
    changed = PolicyTable.model_construct(**{**dict(table), **changes})
    return plan.model_copy(update={"policies": {"a": (changed,)}})


def row(plan: Plan, kind: str, n: int) -> list[str]:
    (table,) = plan.policies["a"]
    rows = table.model_rows() if kind == "choice" else table.batch_rows()
    return [table.models[x] if kind == "choice" else str(x) for x in rows[n - 1]]


def other_choice(plan: Plan, n: int, place: int, model: str, batch: int) -> Plan:
    (table,) = plan.policies["a"]
    choice, batches = row(plan, "choice", n), row(plan, "batch", n)
    choice[place], batches[place] = model, str(batch)
    return with_table(
        plan,
        choice={**table.choice, str(n): write_runs(choice)},
        batch={**table.batch, str(n): write_runs(batches)},
    )


def expected(plan: Plan, **changes: float) -> Plan:
    (table,) = plan.policies["a"]
    assert table.expected is not None
    return with_table(plan, expected=table.expected.model_copy(update=changes))


def dispatch(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"dispatch": {"a": plan.dispatch["a"].model_copy(update=changes)}})


def promise(plan: Plan, quantity: str, **changes: Any) -> Plan:
    changed = tuple(p.model_copy(update=changes) if p.quantity == quantity else p for p in plan.promises)
    assert changed != plan.promises
    return plan.model_copy(update={"promises": changed})


def workers(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update={"workers": tuple(w.model_copy(update=changes) for w in plan.workers)})


def slower_grid(plan: Plan) -> Plan:
    (table,) = plan.policies["a"]
    return with_table(plan, slack_ms=(1.0, *table.slack_ms[1:]))


def lose_a_load(plan: Plan) -> Plan:
    (worker,) = plan.workers
    return workers(plan, loads=worker.loads[:-1])


SPOILT: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "no policy": (lambda p: p.model_copy(update={"policies": {}}), "policy-missing"),
    "a slow model late": (lambda p: other_choice(p, 3, 0, "slow", 3), "policy-choice"),
    "a drop where queries are served": (lambda p: other_choice(p, 1, 0, "fast", 0), "policy-choice"),
    "another choice in time": (lambda p: other_choice(p, 1, 16, "fast", 1), "policy-expected"),
    "better goodput": (lambda p: expected(p, goodput=0.9), "policy-expected"),
    "fewer violations": (lambda p: expected(p, violation_by_query=0.5), "policy-expected"),
    "another utilisation": (lambda p: expected(p, utilisation=0.1), "policy-expected"),
    "another share beyond the table": (lambda p: expected(p, over_probability=0.4), "policy-expected"),
    "no expectation": (lambda p: with_table(p, expected=None), "policy-expected"),
    "better gain": (lambda p: with_table(p, gain=0.99), "policy-gain"),
    "another load": (lambda p: with_table(p, rate_qps=99.0), "policy-load"),
    "another SLO": (lambda p: with_table(p, slo_ms=110.0), "policy-slo"),
    "another grid": (slower_grid, "policy-grid"),
    "a model not loaded": (lose_a_load, "policy-models"),
    "another fallback": (
        lambda p: with_table(p, otherwise=p.policies["a"][0].otherwise.model_copy(update={"model": "slow"})),
        "policy-models",
    ),
    "another group": (lambda p: with_table(p, workers="w9"), "unknown-reference"),
    "another number of workers": (lambda p: workers(p, count=5), "policy-expected"),
    "another balancer": (lambda p: dispatch(p, balancing="shortest_queue"), "dispatch"),
    "no dispatch": (lambda p: p.model_copy(update={"dispatch": {}}), "dispatch"),
    "a better promise": (lambda p: promise(p, "goodput", value=0.99), "promise"),
    "a bound that is none": (lambda p: promise(p, "quality", relation=">="), "promise"),
    "valid beyond its tables": (
        lambda p: p.model_copy(update={"valid": p.valid.model_copy(update={"rate_qps": {"a": (0.0, 500.0)}})}),
        "valid",
    ),
}


def test_the_plan_as_it_is(plan: Plan, inputs: Any) -> None:
    assert check(plan, inputs) == []


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_spoilt_is_found(name: str, plan: Plan, inputs: Any) -> None:
    spoil, code = SPOILT[name]
    assert code in {violation.code for violation in check(spoil(plan), inputs)}


def test_stated_targets_are_checked(plan: Plan) -> None:
    kept = load_inputs(*files(late="serve", quality={"min": 0.7}))
    assert check(plan, kept) == []
    missed = load_inputs(*files(late="serve", quality={"min": 0.86}))
    assert {v.code for v in check(plan, missed)} == {"policy-target"}


def test_another_profile_is_found(plan: Plan) -> None:
    profile, slo = files(late="serve")
    profile["tables"]["t-slow"]["p95"] = [1.1 * ms for ms in profile["tables"]["t-slow"]["p95"]]
    assert check(plan, load_inputs(profile, slo))


def test_measures_and_chain_agree_on_everything() -> None:
    """Two computations of accuracy, lateness, share beyond the table and utilisation."""
    form = random_process(31, queue=5, stages=2)
    answer = solve(form)
    chosen = form.chosen(answer.point)
    measures = measure(form, answer.point, form.long_run(chosen))
    batch, model = answer.point.batch, answer.point.model
    in_time = form.actions.in_time[chosen].reshape(batch.shape)
    columns = np.stack([batch, in_time * batch, in_time * batch * form.accuracy[model], np.ones(batch.shape)], axis=-1)
    over = np.array([form.queue + 1.0, 0.0, 0.0, 1.0])
    low, high = enclosed(chain_of(form, model, batch), columns, over, np.zeros(4))
    queries, good, accurate, _ = 0.5 * (low + high)
    assert measures.violation_by_query == pytest.approx(1 - good / queries, abs=1e-9)
    assert measures.accuracy_by_query == pytest.approx(accurate / good, abs=1e-9)
    assert sum(measures.by_queue) == pytest.approx(1.0)
    assert sum(measures.model_share) == pytest.approx(1.0)
    assert measures.queue_p50 <= measures.queue_p99
    assert measures.accuracy_p1 <= measures.accuracy_p50
