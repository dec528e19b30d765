"""Shares are enforced by what there is, or refused with the reason; on paper, and with real processes and cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cases.deployments import make_hosts, make_plan, make_worker

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.keeper import Slots
from hetplan.executor.kept_process import StartFailed, marked
from hetplan.executor.shares import LocalMeans, held, refusals
from hetplan.executor.site import Host
from hetplan.executor.units import LoadSpec, Unit


def unit(*loads: LoadSpec) -> Unit:
    return Unit("u", "w1", 0, "cpu", "here", "box", loads=loads)


def host(**fields: object) -> Host:
    return Host.model_validate({"target": "here", "machines": "cpu", "count": 4, **fields})


CPU = LoadSpec("w1.a", share_cpu_cores=0.5, enforce="cgroup")
GPU = LoadSpec("w1.a", share_gpu=0.25, enforce="mps")
MIG = LoadSpec("w1.a", share_gpu=0.25, enforce="mig")


@pytest.mark.parametrize(
    ("load", "why"),
    [(CPU, "whole cores alone"), (GPU, "no MPS control daemon"), (MIG, "lists no MIG- devices")],
)
def test_what_nothing_enforces_is_refused_unless_the_host_says_so(load: LoadSpec, why: str) -> None:
    means = LocalMeans(mps_pipe=Path("/nowhere"))
    (reason,) = refusals(unit(load), host(), means)
    assert why in reason
    assert 'enforcement = "none"' in reason
    assert refusals(unit(load), host(enforcement="none"), means) == []


def test_whole_cores_are_a_process_own() -> None:
    whole = LoadSpec("w1.a", share_cpu_cores=2.0, enforce="cgroup")
    assert refusals(unit(whole), host(cores=(0, 1)), LocalMeans()) == []
    assert held(unit(whole), host(cores=(0, 1)), LocalMeans()).cores == 2


def test_two_shares_in_one_process_are_not_distinguished() -> None:
    reasons = refusals(unit(GPU, LoadSpec("w1.b")), host(), LocalMeans())
    assert "one process cannot be held to it" in reasons[0]


def test_cores_run_out() -> None:
    slots = Slots()
    three = host(cores=(0, 1, 2), cores_per_worker=2)
    slots.take("a", three, cores=2)
    with pytest.raises(StartFailed, match="needs 2 cores of its own; 1 of 3 are free"):
        slots.take("b", three, cores=2)
    assert slots.take("b", three, cores=1).cores == (2,)


def test_a_plan_with_shares_is_refused_by_a_host_that_cannot_keep_them(tmp_path: Path) -> None:
    share = {"share": {"gpu": 0.25, "enforce": "mps"}}
    with (
        Deployment(make_hosts(tmp_path)) as deployment,
        pytest.raises(InputError, match=r"w1\.a wants 0.25 of a GPU enforced by mps"),
    ):
        deployment.difference(make_plan(make_worker("w1", load=share)))


@pytest.mark.slow
def test_workers_run_on_their_own_cores(deploy: Callable[..., Deployment]) -> None:
    there = sorted(os.sched_getaffinity(0))
    box = {"target": "here", "machines": ["cpu"], "count": 8, "cores": there[:1], "cores_per_worker": 1}
    deployment = deploy(hosts={"box": box})
    with pytest.raises(InputError, match="need more than the 1 of"):
        deployment.apply(make_plan(make_worker("w1", 2)))
    deployment.apply(make_plan(make_worker("w1", 1)))
    folder = (deployment.folder / "targets" / "here").resolve()
    pinned = [p for p in marked(folder) if b"serving.worker" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert [os.sched_getaffinity(process) for process in pinned] == [set(there[:1])]
