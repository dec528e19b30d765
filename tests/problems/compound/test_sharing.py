"""Operators of one model share its replicas where queries come at a rate: sized together, verified, simulated."""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.executor.serving.applications import Application
from hetplan.planner.request import read_request
from hetplan.problems.compound.candidates import _Caller, _SharedStations, candidates_of
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.pipeline_query import read_pipeline_queries, refuse_to_measure
from hetplan.problems.compound.request import MeasuredPlan, read_tiers
from hetplan.problems.compound.search import read_measurements
from hetplan.problems.faults import Faults
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import SHARED
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
FORMULA = {"sizing": "formula"}
Files = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def files(rates: dict[str, float], *, shared: bool = True, max_ms: float = 400) -> Files:
    """Applications like the example's gate, whose detectors are of one model, and whose trackers are of one."""
    profile, slo, measured = (shipped(EXAMPLE / name) for name in ("profile.json", "rate-slo.json", "measured.json"))
    for name in ("detect", "track") if shared else ():
        profile["pipelines"]["track"]["nodes"][name]["model"] = f"yolo-{name}"
    gate, known = slo["apps"]["gate"], measured["apps"]["gate"]
    latency = {"p95_ms": max_ms}
    slo["apps"] = {app: {**gate, "latency": latency, "rate_qps": rate} for app, rate in rates.items()}
    return profile, slo, {**measured, "apps": dict.fromkeys(rates, known)}


def solve(of: Files, **how: Any) -> hp.Plan:
    return hp.solve(of[0], of[1], of[2], options=FORMULA, **how).require()


def cost(plan: hp.Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


def led(plan: hp.Plan, app: str, node: str) -> set[str]:
    return {load for route in plan.routing[app] if route.node == node for load in route.to}


def late(plan: hp.Plan, of: Files) -> dict[str, float]:
    report = hp.simulate(plan, of[0], of[1], of[2], seeds=1, seed=77, duration_s=300).as_dict()
    return {app: one["figures"]["violations"]["value"] for app, one in report["apps"].items()}


@pytest.fixture(scope="module")
def several() -> tuple[Files, hp.Plan]:
    of = files({"gate": 4, "dock": 5, "yard": 3})
    return of, solve(of)


@pytest.mark.slow
def test_sharing_costs_less_and_all_are_in_time(several: tuple[Files, hp.Plan]) -> None:
    of, plan = several
    assert cost(plan) < 0.8 * cost(solve(files({"gate": 4, "dock": 5, "yard": 3}, shared=False)))
    assert SHARED in plan.requires
    assert led(plan, "gate", "detect") == led(plan, "dock", "detect") == led(plan, "yard", "detect")
    assert led(plan, "gate", "sample").isdisjoint(led(plan, "dock", "sample"))
    assert hp.verify(plan, of[0], of[1], of[2]).ok
    assert max(late(plan, of).values()) <= 0.05


@pytest.mark.slow
def test_what_is_played_before_it_is_promised_shares_as_well() -> None:
    of = files({"gate": 5, "dock": 5, "yard": 20}, max_ms=483)
    plan = hp.solve(of[0], of[1], of[2]).require()
    assert SHARED in plan.requires
    shown = late(plan, of)
    assert max(shown.values()) <= 0.06, shown


@pytest.mark.slow
def test_what_shares_waits_for_the_same_replicas_in_a_simulation(several: tuple[Files, hp.Plan]) -> None:
    of, plan = several
    more = {**of[1], "apps": {**of[1]["apps"], "dock": {**of[1]["apps"]["dock"], "rate_qps": 40}}}
    assert late(plan, (of[0], more, of[2]))["gate"] > 0.5, "gate waits behind what comes to dock"


@pytest.mark.slow
def test_the_verifier_counts_all_who_come(several: tuple[Files, hp.Plan]) -> None:
    of, plan = several

    def found(plan: hp.Plan, of: Files) -> set[str]:
        return {one.code for one in hp.verify(plan, of[0], of[1], of[2]).violations if one.at != "inputs.slo"}

    more = copy.deepcopy(of)
    more[1]["apps"]["dock"]["rate_qps"] = 60
    over = [one.at for one in hp.verify(plan, *more[:2], of[2]).violations if one.code == "overrun"]
    assert "dispatch.gate" in over, "the queries of dock overrun what gate uses"
    said = [
        one.model_copy(update={"value": 0.9 * one.value}) if one.quantity == "response_ms" else one
        for one in plan.promises
    ]
    assert "promise" in found(plan.model_copy(update={"promises": tuple(said)}), of)
    assert "requires" in found(plan.model_copy(update={"requires": ("chosen-plan/1",)}), of)
    apart = copy.deepcopy(of)
    apart[0]["pipelines"]["track"]["nodes"]["detect"].pop("model")
    assert "route-target" in found(plan, apart)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(2))
def test_replicas_together_are_the_cheapest_that_brute_force_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    of = files({"gate": float(random.uniform(5, 30)), "dock": float(random.uniform(5, 30))}, max_ms=450)
    inputs = load_inputs(of[0], of[1], measured=of[2])
    request = read_request(inputs)
    faults, callers, ways = Faults.of(inputs), list[_Caller](), list[MeasuredPlan]()
    for sought in read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults):
        form = sought.box(refuse_to_measure, CompoundOptions())
        form.journal.update({one.configuration: one for one in read_measurements(sought, inputs.measured, "measured")})
        ways = ways or [way.found for way in candidates_of(form, sought, 8) if way.found is not None]
        callers.append(_Caller.of(sought, form, ways[seed % len(ways)]))
    together = _SharedStations(callers)
    counts = together.replicas()
    assert counts is not None
    tried = [together.fewest + more for more in product(range(3), repeat=together.fewest.size)]
    least = min(float(together.price @ one) for one in tried if together.excess(one) == 0.0)
    assert float(together.price @ counts) == pytest.approx(least)
    assert max(together.members.values()) == 2


def test_two_operators_of_one_query_share(several: tuple[Files, hp.Plan]) -> None:
    of = files({"gate": 6}, max_ms=600)
    pipeline = of[0]["pipelines"]["track"]
    pipeline["nodes"] = {name: {"device": "gpu", "reads": ["size"], "model": "one"} for name in ("detect", "track")}
    pipeline["share_grid"] = [1]
    of[1]["limits"] = {"instances": {"v100": [0, 0]}}
    pipeline["edges"] = [{"from": "detect", "to": "track"}]
    for entry in of[2]["apps"]["gate"]:
        for part in (entry, entry.get("runs", {})):
            for key in ("seconds", "bytes"):
                part.get(key, {}).pop("sample", None)
    plan = solve(of)
    assert led(plan, "gate", "detect") == led(plan, "gate", "track")
    assert late(plan, of)["gate"] <= 0.05
    assert hp.verify(plan, of[0], of[1], of[2]).ok


def test_the_router_leads_a_step_to_the_load_of_another_application(several: tuple[Files, hp.Plan]) -> None:
    _, plan = several
    loads = [load for worker in plan.workers for load in worker.loads]
    lanes = [SimpleNamespace(app=load.app, node=load.node, name=load.id, open=True, worker="w") for load in loads]
    routes = [route.model_dump(mode="json", exclude_none=True) for route in plan.routing["dock"]]
    nodes = {name: {"edges": []} for name in ("sample", "detect", "track")}
    entry = {"dispatch": {"rule": "chosen-plan/1"}, "late": "serve", "slo_ms": None, "combine": "product", "paths": {},
             "nodes": nodes, "routes": routes}  # fmt: skip
    made = Application("dock", entry, lanes, {}, Random(0), SimpleNamespace(), None)  # type: ignore[arg-type]
    assert [{lane.name for lane in made.lanes_of(node)} for node in nodes] == [led(plan, "dock", n) for n in nodes]
