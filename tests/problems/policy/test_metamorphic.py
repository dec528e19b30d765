"""What may not change an answer: another name of the same arrivals, another unit of time, models that nobody needs."""

from dataclasses import replace

import numpy as np
import pytest
from cases.policy import files, random_process, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.contract import Tools
from hetplan.planner.forms.queue_process import Batching, Late, PerWhat, QueueProcess
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.question import Policy
from hetplan.profiles.load import load_inputs

SMALL = {"queue_max": 6, "grid": "fld{12}"}


def first_form(profile: dict, slo: dict, **options: object) -> QueueProcess:  # type: ignore[type-arg]
    chosen = PolicyOptions.model_validate({**SMALL, **options})
    inputs = load_inputs(profile, slo)
    policy = Policy.from_inputs(inputs, chosen, formulation="policy-mdp", tools=Tools())
    (group,) = policy.asked.groups()
    return group.form(group.loads_qps[0], chosen, batching="max")


def test_gamma_of_shape_two_on_half_the_workers_is_poisson_on_all() -> None:
    """Own inter-arrival times are Erlang(60) of rate 2000 either way: bit for bit the same process."""
    gamma = files(workers=(30, 30), rate_qps=1000.0, arrivals={"process": "gamma", "shape": 2.0})
    poisson = files(workers=(60, 60), rate_qps=2000.0)
    one, other = first_form(*gamma), first_form(*poisson)
    assert (one.stages, one.stage_rates.tolist()) == (other.stages, other.stage_rates.tolist()) == (60, [2000.0])
    first, second = solve(one), solve(other)
    assert first.value == second.value
    assert (first.point.model == second.point.model).all()


@pytest.mark.parametrize("how", [{}, {"batching": Batching.VARIABLE}, {"late": Late.DROP}], ids=str)
def test_another_unit_of_time(how: dict) -> None:  # type: ignore[type-arg]
    """All times by a power of two and the load by its inverse: the same to the last bit, in the same policy."""
    form = random_process(11, **how)
    slower = replace(
        form, latency_s=form.latency_s * 1024, grid_s=form.grid_s * 1024, stage_rates=form.stage_rates / 1024
    )
    first, second = solve(form), solve(slower)
    assert first.value == pytest.approx(second.value, abs=1e-12)
    assert (first.point.model == second.point.model).all()
    assert (first.point.batch == second.point.batch).all()


def test_a_dominated_model_changes_nothing() -> None:
    plain = files()
    models = {"fast": (0.6, 4.0, 2.0), "middle": (0.75, 8.0, 5.0), "slow": (0.85, 15.0, 12.0)}
    more = files(models={**models, "poor": (0.7, 9.0, 5.0)})
    one, other = first_form(*plain), first_form(*more)
    assert other.models == 3
    assert (one.latency_s == other.latency_s).all()


def test_the_order_of_models_in_the_files_changes_nothing() -> None:
    profile, slo = files()
    turned = {**profile, "variants": dict(reversed(profile["variants"].items()))}
    one, other = first_form(profile, slo), first_form(turned, slo)
    assert (one.latency_s == other.latency_s).all()
    assert (one.accuracy == other.accuracy).all()


def test_a_model_twice_changes_no_value() -> None:
    form = random_process(12)
    twice = replace(form, latency_s=form.latency_s[[0, 1, 1, 2]], accuracy=form.accuracy[[0, 1, 1, 2]])
    first, second = solve(form), solve(twice)
    assert second.value == pytest.approx(first.value, abs=1e-10)
    assert (second.point.model != 2).all(), "of equal models the first is taken"


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["", "variable", "drop"]))
def test_properties_of_random_processes(seed: int, kind: str) -> None:
    """Rows are distributions, the policy is worth what its distribution says, more choice is never worse."""
    how: dict[str, object] = {"": {}, "variable": {"batching": Batching.VARIABLE}, "drop": {"late": Late.DROP}}[kind]
    form = random_process(seed, queue=3, slacks=5, stages=1 + seed % 4, **how)
    answer = solve(form)
    certificate = form.certify(answer)
    assert certificate.faults == ()
    chosen = form.chosen(answer.point)
    for unit in np.eye(form.states)[:: max(1, form.states // 6)]:
        pushed = form.operator.push(unit, chosen)
        assert pushed.min() >= 0
        assert pushed.sum() == pytest.approx(1.0, abs=1e-12)
    assert form.value_of(form.long_run(chosen), chosen) == pytest.approx(answer.value, abs=1e-7)
    fewer = replace(form, latency_s=form.latency_s[:-1], accuracy=form.accuracy[:-1])
    if kind == "":
        assert solve(fewer).value <= answer.value + 1e-9
        assert solve(replace(form, batching=Batching.VARIABLE)).value >= answer.value - 1e-9


def test_goodput_grows_with_workers() -> None:
    values = []
    for workers in (2, 3, 4, 6, 8):
        form = first_form(*files(workers=(workers, workers), rate_qps=120.0))
        values.append(solve(form).value)
    assert (np.diff(values) > 0).all()


def test_per_query_is_never_worse_in_goodput_than_per_decision() -> None:
    for seed in range(8):
        form = random_process(seed)
        policy = solve(replace(form, objective=PerWhat.PER_DECISION)).point
        chosen = form.chosen(policy)
        assert form.value_of(form.long_run(chosen), chosen) <= solve(form).value + 1e-9
