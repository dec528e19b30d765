"""The shipped examples of every question, planned, applied on this machine and asked, by sleep models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client

import hetplan as hp
from hetplan.executor.deployment import Deployment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def asked(client: Client, app: str, body: dict[str, Any]) -> tuple[int, Any]:
    """The answer to a query, asked again while the plan's own rule gives it up as late: the machine may stand still."""
    for _ in range(50):
        status, said = client.post(app, body)
        if said["outcome"] != "dropped":
            break
    return status, said


@pytest.mark.slow
@pytest.mark.parametrize("question", ["pool", "pipeline", "policy", "variants", "compound"])
def test_an_example_is_served_as_planned(deploy: Callable[..., Deployment], question: str) -> None:
    folder = EXAMPLES / question
    files = {"profile": str(folder / "profile.json"), "slo": str(folder / "slo.json")}
    measured = {"measured": str(folder / "measured.json")} if question == "compound" else {}
    plan = hp.solve(files["profile"], files["slo"], **measured).require()  # type: ignore[arg-type]
    hardware = sorted({worker.hardware for worker in plan.workers})
    places = sorted({worker.host for worker in plan.workers if worker.host})
    box = {"target": "here", "hardware": hardware, "plays": places, "machines": 64, "enforcement": "none"}
    # Operators of compound queries have no tables: their times are measured per configuration.
    deployment = deploy(
        profiles=[files["profile"]], slo=files["slo"], hosts={"box": box}, models=[{"kind": "sleep"}], **measured
    )
    client = Client(deployment.apply(plan).endpoint)
    served = sorted({load.app for worker in plan.workers for load in worker.loads if load.app} | set(plan.routing))
    assert served
    wanted = json.loads(Path(files["slo"]).read_text())["apps"]
    for app in served:
        mix = wanted[app]["demand"].get("mix")
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
