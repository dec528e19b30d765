"""The shipped examples of every question, planned, applied on this machine and asked, by sleep models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client

import hetplan as hp
from hetplan.executor.deployment import Deployment
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def asked(client: Client, app: str, body: dict[str, Any]) -> tuple[int, Any]:
    """The answer to a query, asked again while the plan's own rule gives it up as late: the machine may stand still."""
    for _ in range(50):
        status, said = client.post(app, body)
        if said["outcome"] != "dropped":
            break
    return status, said


@pytest.mark.parametrize(
    "question",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("pool", "pipeline", "variants", "compound")),
        pytest.param("policy", marks=pytest.mark.longest),
    ],
)
def test_an_example_is_served_as_planned(deploy: Callable[..., Deployment], question: str) -> None:
    folder = EXAMPLES / question
    files = {"profile": str(folder / "profile.json"), "slo": str(folder / "slo.json")}
    measured = [str(folder / "measured.json")] if question == "compound" else {}
    plan = hp.solve(*files.values(), *measured).require()
    hardware = sorted({worker.hardware for worker in plan.workers})
    places = sorted({worker.host for worker in plan.workers if worker.host})
    box = {"target": "here", "machines": hardware, "plays": places, "count": 64, "enforcement": "none"}
    # Operators of compound queries have no tables: their times are measured per configuration.
    deployment = deploy(files=[*files.values(), *measured], hosts={"box": box}, models={"*": {"kind": "sleep"}})
    client = Client(deployment.apply(plan).endpoint)
    served = sorted({load.app for worker in plan.workers for load in worker.loads if load.app} | set(plan.routing))
    assert served
    wanted = json.loads(Path(files["slo"]).read_text())["apps"]
    for app in served:
        mix = wanted[app].get("mix")
        at = dict(zip(mix["axes"], mix["bins"][0], strict=True)) if mix else {}
        for _ in range(3):
            status, said = asked(client, app, {"at": at})
            assert status == 200, said
            loads = {load.id: load for worker in plan.workers for load in worker.loads}
            for hop in said["path"]:
                assert loads[hop["load"]].app in (app, None)
                assert loads[hop["load"]].variant == hop["variant"]
            assert said["path"]
    assert not deployment.difference(plan)


@pytest.mark.slow
def test_queries_that_wait_at_an_operator_are_served_together(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    profile = shipped(EXAMPLES / "compound" / "profile.json")
    profile["tables"] = {"grown": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [10, 16]}}
    profile["pipelines"]["track"]["nodes"]["detect"]["batches"] = "grown"
    slo = shipped(EXAMPLES / "compound" / "rate-slo.json")
    slo["apps"] = {"gate": {**slo["apps"]["gate"], "rate_qps": 20, "late": "serve"}}
    files = {"profile": str(tmp_path / "profile.json"), "slo": str(tmp_path / "slo.json")}
    Path(files["profile"]).write_text(json.dumps(profile))
    Path(files["slo"]).write_text(json.dumps(slo))
    measured = str(EXAMPLES / "compound" / "measured.json")
    plan = hp.solve(files["profile"], files["slo"], measured, options={"sizing": "formula"}).require()
    hardware = sorted({worker.hardware for worker in plan.workers})
    box = {"target": "here", "machines": hardware, "count": 64, "enforcement": "none"}
    # So slow that those who come at once wait for one another, however fast this machine is.
    deployment = deploy(
        files=[files["profile"], files["slo"], measured], hosts={"box": box},
        models={"*": {"kind": "sleep", "times": 8}},
    )  # fmt: skip
    endpoint = deployment.apply(plan).endpoint
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda _: asked(Client(endpoint), "gate", {}), range(16)))
    assert {status for status, _ in said} == {200}
    batches = {hop["load"]: hop["batch"] for _, answer in said for hop in answer["path"] if hop["batch"] > 1}
    loads = {load.id: load for worker in plan.workers for load in worker.loads}
    assert {loads[name].node for name in batches} == {"detect"}
    assert max(batches.values()) <= 4


@pytest.mark.slow
def test_the_router_sends_as_many_calls_as_a_fanout_says(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    profile = shipped(EXAMPLES / "compound" / "profile.json")
    profile["pipelines"]["track"]["edges"][1]["fanout"] = 3
    slo = shipped(EXAMPLES / "compound" / "rate-slo.json")
    slo["apps"]["gate"]["rate_qps"] = 5
    slo["apps"]["gate"]["latency"] = {"p95_ms": 800}
    files = {"profile": str(tmp_path / "profile.json"), "slo": str(tmp_path / "slo.json")}
    Path(files["profile"]).write_text(json.dumps(profile))
    Path(files["slo"]).write_text(json.dumps(slo))
    measured = str(EXAMPLES / "compound" / "measured.json")
    plan = hp.solve(files["profile"], files["slo"], measured).require()
    box = {"target": "here", "machines": sorted({one.hardware for one in plan.workers}), "count": 64,
           "enforcement": "none"}  # fmt: skip
    deployment = deploy(
        files=[files["profile"], files["slo"], measured], hosts={"box": box}, models={"*": {"kind": "sleep"}}
    )
    client = Client(deployment.apply(plan).endpoint)
    status, said = asked(client, "gate", {})
    assert status == 200, said
    assert Counter(hop["node"] for hop in said["path"]) == {"sample": 1, "detect": 1, "track": 3}
