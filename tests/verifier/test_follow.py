"""An application of one step is followed as a pipeline of that one step is."""

from __future__ import annotations

from pathlib import Path

import hetplan as hp
from hetplan.verifier.check import follow
from hetplan.verifier.plan_index import gather
from tests.build import answered, shipped

POOL = Path(__file__).resolve().parents[2] / "examples" / "pool"


def test_one_step_is_followed_as_a_pipeline_of_one_step() -> None:
    profile, slo = (shipped(POOL / f"{kind}.json") for kind in ("profile", "slo"))
    ((name, app),) = slo["apps"].items()
    variant = app["model"]
    app["network_ms_per_hop"] = 3.0
    app["latency"]["p50_ms"] = 40
    plan = hp.solve(profile, slo, options={"sizing": "fluid", "allow_late": 0.005}).plan
    assert plan is not None
    alone = follow(gather(plan, hp.load(profile, slo)), name, "t0")
    profile["pipelines"] = {"one": {"nodes": {"step": {"task": profile["variants"][variant]["task"]}}}}
    answered(app, pipeline="one")
    there = {"node": "step"}
    walked = plan.model_copy(
        update={
            "workers": tuple(
                one.model_copy(update={"loads": tuple(load.model_copy(update=there) for load in one.loads)})
                for one in plan.workers
            ),
            "routing": {name: tuple(route.model_copy(update=there) for route in plan.routing[name])},
        }
    )
    through = follow(gather(walked, hp.load(profile, slo)), name, "t0")
    assert alone.work == through.work
    assert (alone.worst_ms, alone.faults) == (through.worst_ms, {})
    assert alone.quality == through.quality
    lost = {limit: alone.late_share(limit)[0] for limit in alone.late}
    assert lost == {limit: through.late_share(limit)[0] for limit in through.late}
    assert lost
