"""What tests of fleets whose applications share machines have in common: asking, the bill, pools, and a forgery."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import hetplan as hp
from hetplan.planner.next_state import next_state
from hetplan.planner.outcome import Outcome
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import of_period

Json = dict[str, Any]
Files = tuple[Json, Json]


def solved(files: Files, **options: Any) -> Outcome:
    """The fleet of these files by the programs of its parts, to the end."""
    return hp.solve(*files, options={"sizing": "fluid", "gap": 0.0, **options}, formulation="fleet")


def cost(outcome: Outcome) -> float:
    """What the plan costs per hour."""
    bill = outcome.require().bill
    assert bill is not None
    return float(bill.cost_per_hour)


def text(outcome: Outcome) -> str:
    """The plan as a file has it."""
    return outcome.require().model_dump_json(by_alias=True, exclude_none=True)


def goes_on(files: Files, plan: hp.Plan) -> bool:
    """Whether it is planned again beside what it runs: nothing starts or stops, for the same money."""
    held = next_state(of_period(plan, plan.periods[-1]))
    outcome = hp.solve(*files, held, options={"sizing": "fluid", "gap": 0.0, "savings": False}, formulation="fleet")
    again = outcome.require()
    assert plan.bill is not None
    alike = not again.actions and abs(cost(outcome) - plan.bill.cost_per_hour) < 1e-9
    return alike and hp.verify(again, *files, held).ok


def add_pools(files: Files, names: Iterable[str], runs: Sequence[Json], series: Sequence[float]) -> None:
    """Pools of these names beside what there is, with a model each that takes 20 ms where these runs say."""
    profile, slo = files
    profile["tables"] = {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [20.0]}}
    for name in names:
        profile["tasks"][name] = {}
        profile["variants"][f"of-{name}"] = {"task": name, "runs": [{"latency": "t", **run} for run in runs]}
        slo["apps"][name] = {
            "question": "pool",
            "model": f"of-{name}",
            "latency": {"p95_ms": 100},
            "rate_qps": {"series": list(series)},
            "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]},
        }


def is_refused_with_places_changed(files: Files, plan: str, failure: str, first: str, other: str) -> bool:
    """Whether the check refuses a plan in which, after a failure, an instance of the other runs in one's place."""
    data = json.loads(plan)
    part = data["parts"][data["periods"][0]["failures"][failure][0]]
    load = next(load for worker in part["workers"] for load in worker["loads"] if load["app"] == first)
    load.update(app=other, variant=f"of-{other}")
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    found = hp.verify(forged, *files).violations
    return any(one.code == "survive" and "which none did before" in one.text for one in found)
