"""`hetplan simulate --replan`: a plan and its successors under loads that change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetplan.cli.app import build_app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "variants"
PROFILE, SLO = (str(EXAMPLE / f"{name}.json") for name in ("profile", "slo"))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), [str(one) for one in arguments])


def last(output: str) -> dict[str, Any]:
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A plan for the example's loads, and a wish in which one of them more than trebles."""
    folder = tmp_path_factory.mktemp("variants")
    plan, wish = folder / "plan.json", folder / "rising.json"
    made = run("solve", PROFILE, SLO, "-o", str(plan))
    assert made.exit_code == 0, made.output
    slo = json.loads(Path(SLO).read_text())
    slo["horizon"] = {"period_s": 15, "periods": 3}
    slo["apps"]["thumbnails"]["rate_qps"] = {"series": [120, 400, 400]}
    wish.write_text(json.dumps(slo))
    return str(plan), str(wish)


def played(files: tuple[str, str], *more: str) -> dict[str, Any]:
    result = run("simulate", files[0], PROFILE, files[1], "--seeds", "1", "--noise", "mean", *more, "--json")
    assert result.exit_code in (0, 6), result.output
    return last(result.stdout)["report"]


@pytest.mark.slow
def test_who_plans_anew_follows_the_load(files: tuple[str, str]) -> None:
    fixed, follows = played(files), played(files, "--replan", "2")
    late = [report["apps"]["thumbnails"]["figures"]["violations"]["value"] for report in (fixed, follows)]
    assert late[1] < 0.7 * late[0]
    assert follows["cost_per_hour"]["value"] > fixed["cost_per_hour"]["value"]
    assert {line["by"] for line in follows["lines"]} == {"slo"}


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--duration", "5"), ("--arrivals", "poisson"), ("--learn",)])
def test_what_is_not_played_together_is_refused(files: tuple[str, str], more: tuple[str, ...]) -> None:
    result = run("simulate", files[0], PROFILE, files[1], "--replan", "2", *more)
    assert result.exit_code == 2
    assert more[0] in result.output


@pytest.mark.slow
def test_baselines_are_played_beside_it(files: tuple[str, str]) -> None:
    result = run("simulate", files[0], PROFILE, files[1], "--seeds", "1", "--noise", "mean", "--replan", "5",
                 "--baselines")  # fmt: skip
    assert result.exit_code in (0, 6), result.output
    rows = [line.split() for line in result.stdout.splitlines() if "thumbnails" in line]
    assert {"plan", "static-peak", "autoscaled"} <= {row[0] for row in rows}


def test_loads_that_do_not_change_are_refused(files: tuple[str, str]) -> None:
    result = run("simulate", files[0], PROFILE, SLO, "--replan", "2")
    assert result.exit_code == 2
    assert "rate_qps.series" in result.output


@pytest.mark.slow
def test_a_pool_follows_its_demand_too(tmp_path: Path) -> None:
    """Demand that grows fivefold: who plans anew pays for it only then, and is in time."""
    pool, plan, wish = EXAMPLE.parent / "pool", tmp_path / "plan.json", tmp_path / "wish.json"
    slo = json.loads((pool / "slo.json").read_text())
    slo |= {"objective": ["min cost"], "limits": {}}
    slo["apps"]["ranking"]["rate_qps"] = 50
    wish.write_text(json.dumps(slo))
    made = run("solve", str(pool / "profile.json"), str(wish), "--set", "sizing=fluid", "-o", str(plan))
    assert made.exit_code == 0, made.output
    slo["horizon"] = {"period_s": 200, "periods": 3}
    del slo["apps"]["ranking"]["rate_qps"]
    slo["apps"]["ranking"]["rate_qps"] = {"series": [50, 400, 400]}
    wish.write_text(json.dumps(slo))
    late, cost = [], []
    for more in ((), ("--replan", "10")):
        result = run(
            "simulate", str(plan), str(pool / "profile.json"), str(wish), "--seeds", "1", "--noise", "mean", *more,
            "--json",
        )  # fmt: skip
        assert result.exit_code in (0, 6), result.output
        report = last(result.stdout)["report"]
        late.append(report["apps"]["ranking"]["figures"]["violations"]["value"])
        cost.append(report["cost_per_hour"]["value"])
    assert late[1] < 0.6 * late[0]
    assert cost[1] > 1.2 * cost[0]


@pytest.mark.slow
def test_a_fleet_follows_its_demand(tmp_path: Path) -> None:
    """Machines by the hour for what is foreseen, with their starts; beside it what autoscalers do."""
    run_on = {"gpu": {"kind": "gpu", "startup_s": 20}}
    profile = {
        "format": "hetplan/profile/1.0", "hardware": run_on, "tasks": {"rank": {}},
        "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1", "stock": 20}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
    }  # fmt: skip
    mix = {"axes": ["batch"], "bins": [[1]], "share": [1]}
    apps = {
        name: {"question": "pool", "model": "m", "latency": {"p95_ms": 80},
               "rate_qps": {"series": series}, "mix": mix}
        for name, series in (("rank", [30.0, 300.0, 300.0]), ("sort", [30.0, 30.0, 30.0]))
    }  # fmt: skip
    slo = {"format": "hetplan/slo/1.0", "horizon": {"period_s": 200, "periods": 3}, "apps": apps}
    files = [tmp_path / name for name in ("profile.json", "slo.json", "plan.json")]
    for path, held in zip(files, (profile, slo), strict=False):
        path.write_text(json.dumps(held))
    assert run("solve", *files[:2], "--set", "savings=false", "-o", files[2]).exit_code == 0
    asked = ["simulate", files[2], *files[:2], "--seeds", "1", "--noise", "mean"]
    result = run(*asked, "--replan", "10", "--baselines", "--json")
    assert result.exit_code in (0, 6), result.output
    said = [json.loads(line) for line in result.stdout.splitlines()]
    report, beside = said[-1]["report"], {one["baseline"]: one["report"] for one in said if "baseline" in one}
    assert set(beside) == {"static-peak", "cheapest-type", "autoscaled"}
    assert 0.5 * beside["static-peak"]["cost_per_hour"]["value"] < report["cost_per_hour"]["value"]
    late = {name: one["figures"]["violations"]["value"] for name, one in report["apps"].items()}
    assert late["sort"] < 0.01
    assert 0.0 < late["rank"] < 0.3, "machines that start take their time, and then serve"


def test_plans_of_other_questions_are_refused(tmp_path: Path) -> None:
    compound, plan = EXAMPLE.parent / "compound", tmp_path / "compound.json"
    files = (str(compound / "profile.json"), str(compound / "slo.json"))
    measured = (str(compound / "measured.json"),)
    made = run("solve", *files, *measured, "-o", str(plan))
    assert made.exit_code == 0, made.output
    result = run("simulate", str(plan), *files, *measured, "--replan", "2")
    assert result.exit_code == 2
    assert "variants, llm" in result.output
