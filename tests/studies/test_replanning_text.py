"""Text that is planned anew: constant demand changes nothing, a step gets its machines after their start."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hetplan as hp
from hetplan.api.plans_by_rate import Recipes
from hetplan.cli.app import build_app
from hetplan.errors import InputError
from hetplan.profiles.load import load_inputs
from hetplan.simulator.simulate import simulate
from hetplan.studies.llm_baselines import text_beside
from hetplan.studies.replanning import play_replanned, replanned_fleet

START_S, LOAD_S = 20.0, 10.0
PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"gpu": {"kind": "gpu", "startup_s": START_S}, "big": {"kind": "gpu", "startup_s": START_S}},
    "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1", "stock": 30},
               "big": {"hardware": "big", "price_per_hour": "3", "stock": 30}},
    "tasks": {"chat": {}, "rank": {}},
    "variants": {
        "talker": {"task": "chat", "runs": [{"hardware": "gpu", "engine": "slow", "load_s": LOAD_S},
                                            {"hardware": "big", "engine": "fast", "load_s": LOAD_S}]},
        "ranker": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]},
    },
    "engines": {
        "slow": {"pieces": [{"base_ms": 10, "token_ms": 0.1, "sequence_ms": 0.5}], "kv_tokens": 20000, "most_seqs": 32},
        "fast": {"pieces": [{"base_ms": 6, "token_ms": 0.06, "sequence_ms": 0.4}], "kv_tokens": 20000, "most_seqs": 32},
    },
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
}  # fmt: skip
MIX = {"axes": ["input_tokens", "output_tokens"], "bins": [[100, 20], [300, 40]], "share": [0.5, 0.5]}
CHAT: dict[str, Any] = {
    "task": "chat", "attainment": 0.9,
    "latency": {"ttft_p95_ms": 500, "tpot_p95_ms": 60},
}  # fmt: skip


def wish(series: list[float], process: str = "poisson", period_s: float = 120.0) -> dict[str, Any]:
    demand = {"rate_qps": {"series": series}, "mix": MIX, "arrivals": {"process": process}}
    horizon = {"period_s": period_s, "periods": len(series)}
    return {"format": "hetplan/slo/1.0", "horizon": horizon, "apps": {"chat": {**CHAT, **demand}}}


def planned(rate: float) -> Any:
    slo = wish([rate])
    del slo["horizon"]
    slo["apps"]["chat"]["rate_qps"] = rate
    return hp.solve(PROFILE, slo, options={"sizing": "fluid"}).require()


def test_constant_demand_is_served_as_without_planning_anew() -> None:
    inputs = load_inputs(PROFILE, wish([16.0, 16.0, 16.0], "deterministic"))
    grid = Recipes(planned(16.0), inputs).rounded({"chat": 16.0})["chat"]
    plan = planned(grid)
    still, anew = simulate(plan, inputs, seeds=2), play_replanned(plan, inputs, every_s=10.0, seeds=2)
    said = [one.as_dict() | {"warnings": []} for one in (anew, still)]
    alike = [
        one | {"groups": list(one["groups"].values()), "lines": [line for line in one["lines"] if line["by"] == "slo"]}
        for one in said
    ]
    assert alike[0] == alike[1], "but for the names of machines, and for what the one plan promises"
    bill = next(one.value for one in plan.promises if one.quantity == "cost_per_hour")
    assert anew.cost_per_hour is not None
    assert anew.cost_per_hour.value == pytest.approx(bill)


@pytest.mark.slow
def test_a_step_gets_its_machines_after_start_and_loading_and_not_before() -> None:
    """Nothing tells of the step at 240 s until the first look after it, at 250 s: machines serve from 280 s on."""
    inputs = load_inputs(PROFILE, wish([8.0, 8.0, 40.0, 40.0, 40.0]))
    plan = planned(8.0)
    still, anew = simulate(plan, inputs, seeds=2), play_replanned(plan, inputs, every_s=10.0, seeds=2)
    at = anew.timeline.width_s * np.arange(len(anew.timeline.workers))
    before = anew.timeline.workers[(at > 120.0) & (at < 250.0 + START_S + LOAD_S - anew.timeline.width_s)]
    after = anew.timeline.workers[(at >= 250.0 + START_S + LOAD_S) & (at < 300.0)]
    assert before.max() < 0.75 * after.max()
    assert len(set(before[-8:].tolist())) == 1, "nobody serves before his time"
    late = [one.apps["chat"].figures["violations"].value for one in (still, anew)]
    assert late[1] < 0.5 * late[0]
    rates = [one.apps["chat"].queries_per_seed for one in (still, anew)]
    assert rates[0] == rates[1], "under the same requests"
    assert anew.cost_per_hour is not None
    assert still.cost_per_hour is not None
    assert anew.cost_per_hour.value > still.cost_per_hour.value
    assert {line.by for line in anew.lines} == {"slo"}


@pytest.mark.slow
def test_each_plan_that_is_played_is_verified_and_costs_the_least_of_all_counts() -> None:
    """Over one type, a fleet is a count: the plan has the fewest machines whose program carries the rate."""
    profile = copy.deepcopy(PROFILE)
    del profile["offers"]["big"]
    inputs = load_inputs(profile, wish([8.0, 40.0]))
    recipes = Recipes(planned(8.0), inputs)
    counts = [machines(recipes.system_for({"chat": rate})) for rate in (8.0, 16.0, 40.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    for rate, count in zip((8.0, 16.0, 40.0), counts, strict=True):
        plan = recipes.plan_for({"chat": rate})
        assert plan is not None
        asked = wish([rate])
        del asked["horizon"]
        asked["apps"]["chat"]["rate_qps"] = recipes.rounded({"chat": rate})["chat"]
        broken = {one.code for one in hp.verify(plan, profile, asked).violations}
        assert broken <= {"input-hash"}, "but for the files, which are made of rates on the way"
        fewer = copy.deepcopy(profile)
        fewer["offers"]["gpu"]["stock"] = count - 1
        if count > 1:
            assert hp.solve(fewer, asked, options={"sizing": "fluid"}).plan is None, "one less is not enough"


def machines(fleet: Any) -> int:
    return sum(crew.count for crew in fleet.texts["chat"].crews)


@pytest.mark.slow
def test_baselines_are_one_type_each_and_the_scaled_one_follows() -> None:
    inputs = load_inputs(PROFILE, wish([8.0, 40.0, 40.0, 8.0, 8.0, 8.0]))
    plan = planned(8.0)
    found = text_beside(plan, inputs, seeds=1)
    peak, cheap, scaled = (found[name] for name in ("static-peak", "cheapest-type", "autoscaled"))
    assert [next(iter(one.groups)).split(" ")[0] for one in (peak, cheap)] == ["big", "gpu"]
    assert all(len(one.groups) == 1 for one in found.values())
    assert peak.cost_per_hour is not None
    assert scaled.cost_per_hour is not None
    assert peak.apps["chat"].figures["violations"].value < 0.1, "sized for the peak"
    assert scaled.apps["chat"].figures["violations"].value > peak.apps["chat"].figures["violations"].value
    assert scaled.timeline.workers.min() < scaled.timeline.workers.max()
    assert len({one.apps["chat"].queries_per_seed for one in found.values()}) == 1


@pytest.mark.slow
def test_where_stock_ends_the_last_plan_stays_and_it_is_said() -> None:
    profile = copy.deepcopy(PROFILE)
    del profile["offers"]["big"]
    profile["offers"]["gpu"]["stock"] = 2
    report = play_replanned(planned(8.0), load_inputs(profile, wish([8.0, 60.0])), every_s=10.0, seeds=1)
    assert {code for code, *_ in report.warnings} >= {"W-no-plan", "W-unstable"}
    assert report.timeline.workers.max() <= 2.0


def fleet_wish() -> dict[str, Any]:
    slo = wish([8.0, 40.0, 40.0])
    slo["apps"]["chat"]["question"] = "llm"
    mix = {"axes": ["batch"], "bins": [[1]], "share": [1]}
    slo["apps"]["rank"] = {
        "question": "pool", "model": "ranker", "latency": {"p95_ms": 80},
        "rate_qps": {"series": [30.0, 150.0, 150.0]}, "mix": mix,
    }  # fmt: skip
    return slo


@pytest.mark.slow
@pytest.mark.parametrize("only_text", [False, True])
def test_a_fleet_with_text_is_planned_anew_as_one(only_text: bool) -> None:
    slo = fleet_wish()
    if only_text:
        slo["apps"]["other"] = copy.deepcopy(slo["apps"]["chat"])
        del slo["apps"]["rank"]
    plan = hp.solve(PROFILE, slo, options={"savings": False, "sizing": "fluid"}, formulation="fleet").require()
    report = replanned_fleet(plan, load_inputs(PROFILE, slo), every_s=10.0, seeds=2)["plan"]
    assert report.apps.keys() == slo["apps"].keys()
    assert {line.app for line in report.lines} == slo["apps"].keys()
    assert report.cost_per_hour is not None
    assert report.timeline.workers[-1] > report.timeline.workers[0]
    first = 2 * 1.0  # at least a machine for each
    assert report.cost_per_hour.value > first
    for name, app in report.apps.items():
        late = app.figures["violations"].value
        assert 0.0 < late < 0.6, f"{name}: late until its machines serve, and in time then"
        asked = 120.0 * sum(slo["apps"][name]["rate_qps"]["series"])
        assert app.queries_per_seed == pytest.approx(asked, rel=0.1)


@pytest.mark.slow
def test_from_the_command_line_with_baselines(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("profile.json", "slo.json", "plan.json")]
    slo = fleet_wish()
    for path, held in zip(files, (PROFILE, slo), strict=False):
        path.write_text(json.dumps(held))

    def run(*arguments: Any) -> Any:
        return CliRunner().invoke(build_app(), [str(one) for one in arguments])

    made = run("solve", *files[:2], "--set", "savings=false", "--set", "sizing=fluid", "-o", files[2])
    assert made.exit_code == 0, made.output
    result = run("simulate", files[2], *files[:2], "--replan", "10", "--baselines", "--seeds", "1", "--json")
    assert result.exit_code in (0, 6), result.output
    said = [json.loads(line) for line in result.stdout.splitlines()]
    beside = {one["baseline"]: one["report"] for one in said if "baseline" in one}
    assert set(beside) == {"static-peak", "cheapest-type", "autoscaled"}
    for report in (said[-1]["report"], *beside.values()):
        assert set(report["apps"]) == {"chat", "rank"}
        assert report["format"] == said[-1]["report"]["format"]


def test_what_is_not_played_of_text_is_refused() -> None:
    inputs, plan = load_inputs(PROFILE, wish([8.0, 8.0])), planned(8.0)
    with pytest.raises(InputError, match="what their law says"):
        play_replanned(plan, inputs, every_s=10.0, noise="mean")
    asked = wish([8.0])
    del asked["horizon"]
    asked["apps"]["chat"]["rate_qps"] = 8.0
    with pytest.raises(InputError, match=r"rate_qps\.series"):
        play_replanned(plan, load_inputs(PROFILE, asked), every_s=10.0)
