"""Loads that run one at a time need what computes once, and memory each; everything else needs it side by side."""

from functools import cache
from typing import Any

import pytest
from cases.policy import files

import hetplan as hp
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.workers import Share
from hetplan.verifier.check import verify_plan

OPTIONS = {"queue_max": 6, "grid": "fld{16}", "sizing": "fluid"}
CORES = {"fast": 4.0, "middle": 4.0, "slow": 2.0}


def documents(cores: float = 4.0, memory_gib: float = 1.0, **resources: float) -> Any:
    """Three models on machines of 4 cores and 3 GiB; `cores` and `memory_gib` are what the fast one needs."""
    profile, slo = files(late="serve")
    profile["hardware"]["cpu"]["provides"] = {"cpu_cores": 4.0, "mem_gib": 3.0}
    for name, variant in profile["variants"].items():
        variant["runs"][0]["needs"] = {"cpu_cores": CORES[name], "mem_gib": 1.0}
    profile["variants"]["fast"]["runs"][0]["needs"] = {"cpu_cores": cores, "mem_gib": memory_gib}
    slo["limits"]["capacity"] = resources
    return profile, slo


@cache
def solved() -> Plan:
    outcome = hp.solve(*documents(), options=OPTIONS, formulation="policy")
    assert outcome.exit_code == 0, outcome.violations
    return outcome.require()


def found(plan: Plan, inputs: Inputs) -> list[str]:
    every = verify_plan(plan, inputs).violations
    return [f"{one.code}: {one.text}" for one in every if one.code.startswith("resource")]


def loads(plan: Plan, **changes: Any) -> Plan:
    """The plan with its first load changed."""
    (worker,) = plan.workers
    changed = (worker.loads[0].model_copy(update=changes), *worker.loads[1:])
    return plan.model_copy(update={"workers": (worker.model_copy(update={"loads": changed}),)})


def test_the_largest_of_the_needs_fits() -> None:
    plan = solved()
    (worker,) = plan.workers
    assert len(worker.loads) == 3
    assert found(plan, load_inputs(*documents())) == []


def test_the_largest_of_the_needs_is_too_large() -> None:
    plan = solved()
    assert found(plan, load_inputs(*documents(4.1))) == ["resource: loads take 4.1 cpu_cores, cpu provides 4"]


def test_memory_is_held_by_all() -> None:
    plan = solved()
    spoilt = found(plan, load_inputs(*documents(memory_gib=1.5)))
    assert spoilt == ["resource: loads take 3.5 mem_gib, cpu provides 3"]


def test_the_limit_in_total_counts_the_same() -> None:
    plan = solved()
    (worker,) = plan.workers
    taken = 4.0 * worker.count
    assert found(plan, load_inputs(*documents(cpu_cores=taken))) == []
    spoilt = found(plan, load_inputs(*documents(cpu_cores=taken - 0.1)))
    assert spoilt == [f"resource-limit: {taken:g} cpu_cores in all, the limit is {taken - 0.1:g}"]


def test_queues_of_their_own_run_side_by_side() -> None:
    plan = solved()
    (worker,) = plan.workers
    spoilt = plan.model_copy(update={"workers": (worker.model_copy(update={"queue": "per-load"}),)})
    assert found(spoilt, load_inputs(*documents())) == ["resource: loads take 10 cpu_cores, cpu provides 4"]


@pytest.mark.parametrize(
    ("changes", "cores"),
    [
        (lambda load: {"serve": load.serve.model_copy(update={"concurrency": 2})}, "10"),
        (lambda _: {"instances": 2}, "14"),
        (lambda _: {"share": Share(cpu_cores=1.0, enforce="cgroup")}, "10"),
    ],
    ids=["two batches at once", "two instances", "a share that is held"],
)
def test_two_at_once_take_what_each_needs(changes: Any, cores: str) -> None:
    plan = solved()
    spoilt = loads(plan, **changes(plan.workers[0].loads[0]))
    wrong = found(spoilt, load_inputs(*documents()))
    assert f"resource: loads take {cores} cpu_cores, cpu provides 4" in wrong
