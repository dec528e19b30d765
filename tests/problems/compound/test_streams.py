"""Many streams of one application: each has every operator for itself, on whatever machines have room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hetplan as hp

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
PROFILE, MEASURED = EXAMPLE / "profile.json", EXAMPLE / "measured.json"


def gate(streams: int, **limits) -> dict:
    slo = json.loads((EXAMPLE / "slo.json").read_text())
    app = {**slo["apps"]["gate"], "streams": streams}
    return {**slo, "objective": ["min cost"], "limits": limits, "apps": {"gate": app}}


def test_forty_streams_are_forty_streams():
    slo = gate(40)
    plan = hp.solve(PROFILE, slo, MEASURED).require()
    one = hp.solve(PROFILE, gate(1), MEASURED).require()
    cost, single = (next(p.value for p in made.promises if p.quantity == "cost_per_hour") for made in (plan, one))
    assert cost == pytest.approx(40 * single), "shares are paid for stream by stream"
    for node in ("sample", "detect", "track"):
        loads = [(load, worker) for worker in plan.workers for load in worker.loads if load.node == node]
        assert sum(load.instances * worker.count for load, worker in loads) == 40
    assert [route.node for route in plan.routing["gate"]] == ["sample", "detect", "track"], "in the pipeline's order"
    assert all(
        sum(load.instances * load.share.gpu for load in worker.loads) <= 1 + 1e-9
        for worker in plan.workers
        if worker.hardware != "phone"
    ), "no GPU is given out twice"
    report = hp.simulate(plan, PROFILE, slo, MEASURED, seeds=1, duration_s=20)
    times = report.as_dict()["apps"]["gate"]["percentiles_ms"]
    promised = next(p.value for p in plan.promises if p.quantity == "response_ms")
    assert times["99"]["value"] == pytest.approx(promised), "nobody waits for another stream"


def test_a_plan_with_a_stream_too_few_or_sent_elsewhere_fails_its_verification():
    slo = gate(6)
    plan = hp.solve(PROFILE, slo, MEASURED).require()
    last = plan.workers[0]
    fewer = last.model_copy(update={"loads": (last.loads[0].model_copy(update={"instances": 1}), *last.loads[1:])})
    spoilt = plan.model_copy(update={"workers": (fewer, *plan.workers[1:])})
    assert any("not 6 times" in one.text for one in hp.verify(spoilt, PROFILE, slo, MEASURED).violations)
    routes = tuple(route.model_copy(update={"to": {next(iter(route.to)): 1.0}}) for route in plan.routing["gate"])
    spoilt = plan.model_copy(update={"routing": {"gate": routes}})
    assert any("by their streams" in one.text for one in hp.verify(spoilt, PROFILE, slo, MEASURED).violations)


def test_too_few_machines_for_the_streams_are_named():
    outcome = hp.solve(PROFILE, gate(6, instances={"v100": [0, 0], "a100": [0, 2]}), MEASURED)
    assert outcome.exit_code == 3
    assert any("too little of tier cloud" in why for why in outcome.why), outcome.why
    enough = hp.solve(PROFILE, gate(6, instances={"v100": [0, 0], "a100": [0, 3]}), MEASURED)
    assert enough.exit_code == 0, enough.why
