"""`hetplan simulate`: promised against simulated, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetplan.cli.app import build_app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pool"
PROFILE, SLO = str(EXAMPLE / "profile.json"), str(EXAMPLE / "slo.json")
SHORT = ("--seeds", "2", "--duration", "8")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), [str(one) for one in arguments])


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert run("solve", PROFILE, SLO, "-o", str(path)).exit_code == 0
    return str(path)


def last(output: str) -> dict[str, Any]:
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_a_plan_that_keeps_its_promises(plan: str, tmp_path: Path) -> None:
    svg = tmp_path / "timeline.svg"
    result = run("simulate", plan, PROFILE, SLO, "--seeds", "2", "--duration", "120", "--svg", str(svg))
    assert result.exit_code == 0, result.output
    assert "response_ms p99" in result.output
    assert "met" in result.output
    assert svg.read_text().startswith("<svg ")


def test_the_same_seed_gives_the_same_report(plan: str) -> None:
    reports = [last(run("simulate", plan, PROFILE, SLO, *SHORT, "--json").stdout)["report"] for _ in range(2)]
    assert reports[0] == reports[1]
    other = last(run("simulate", plan, PROFILE, SLO, *SHORT, "--seed", "7", "--json").stdout)["report"]
    assert other["apps"] != reports[0]["apps"]


@pytest.mark.slow
def test_processes_give_the_same_report(plan: str) -> None:
    lines = [run("simulate", plan, PROFILE, SLO, *SHORT, *jobs, "--json").stdout for jobs in ((), ("--jobs", "2"))]
    assert last(lines[1])["report"] == last(lines[0])["report"]
    assert "2 of 2 runs" in lines[1]


@pytest.mark.slow
def test_processes_give_the_same_report_of_text(tmp_path: Path) -> None:
    files = [str(EXAMPLE.parent / "llm" / name) for name in ("profile.json", "slo.json")]
    made = str(tmp_path / "plan.json")
    assert run("solve", *files, "--set", "sizing=fluid", "-o", made).exit_code == 0
    few = ("--seeds", "3", "--json")
    lines = [run("simulate", made, *files, *few, *jobs).stdout for jobs in ((), ("--jobs", "2"))]
    assert last(lines[1])["report"] == last(lines[0])["report"]


def test_more_than_the_pool_carries_breaks_the_promise_and_exits_6(plan: str, tmp_path: Path) -> None:
    trace = tmp_path / "rush.csv"
    trace.write_text("arrival_s\n" + "\n".join(f"{i / 1000:.4f}" for i in range(8000)))
    result = run("simulate", plan, PROFILE, SLO, *SHORT, "--trace", str(trace), "--json")
    assert result.exit_code == 6, result.output
    printed = last(result.stdout)
    assert printed["exit"]["code"] == 6
    broken = [line for line in printed["report"]["lines"] if line["verdict"] == "broken"]
    # The default plan was played before it was written, so it promises percentiles too: of its stated arrivals.
    assert "slo" in [line["by"] for line in broken]


def test_baselines_stand_beside_the_plan(plan: str) -> None:
    result = run("simulate", plan, PROFILE, SLO, *SHORT, "--baselines")
    assert result.exit_code == 0, result.output
    assert "Beside what people run today" in result.output
    for name in ("static-peak", "autoscale", "cheapest"):
        assert name in result.output.replace("_", "-"), result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arrivals", "teleport"), "--arrivals"),
        (("--arrivals", "mmpp:1"), "relative rate and its stay"),
        (("--arrivals", "gamma:-1"), "shape"),
        (("--arrivals", "gamma:1e-9"), "0.01"),
        (("--noise", "teleport"), "--noise"),
        (("--duration", "inf"), "finite"),
        (("--duration", "1e12"), "Lower --duration"),
        (("--arrivals", "diurnal:1.5,1e12", "--duration", "1e11"), "Lower --duration"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--svg", "/nowhere/at/all.svg"), "all.svg"),
        (("--jobs", "2", "--baselines"), "--baselines"),
        (("--jobs", "0"), "--jobs"),
        (("--on", "slurm"), "ray"),
    ],
)
def test_bad_usage_is_reported(plan: str, arguments: tuple[str, ...], says: str) -> None:
    result = run("simulate", plan, PROFILE, SLO, *SHORT, *arguments)
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_bad_arrivals_say_why_and_not_by_which_library(plan: str) -> None:
    result = run("simulate", plan, PROFILE, SLO, *SHORT, "--arrivals", "diurnal:0.5")
    assert result.exit_code == 2
    assert "a peak is at least the mean" in result.output
    assert "validation error" not in result.output


def test_a_picture_that_cannot_be_written_is_reported_before_the_simulation(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("simulated before the check")

    monkeypatch.setattr("hetplan.simulator.simulate.simulate", never)
    for svg in (tmp_path / "none" / "t.svg", tmp_path):
        result = run("simulate", plan, PROFILE, SLO, *SHORT, "--svg", str(svg))
        assert result.exit_code == 2, result.output
        assert str(svg) in result.output.replace("\n", "")


def test_what_is_undecided_is_not_called_kept(plan: str) -> None:
    result = run("simulate", plan, PROFILE, SLO, *SHORT, "--json")
    printed = last(result.stdout)
    undecided = [line for line in printed["report"]["lines"] if line["verdict"] in ("undecided", "not-simulated")]
    assert undecided
    assert printed["exit"]["reason"] == f"nothing broken, {len(undecided)} undecided"


@pytest.mark.slow
def test_the_way_from_a_state_is_played_and_reported(plan: str, tmp_path: Path) -> None:
    (first, *_rest) = json.loads(Path(plan).read_text())["workers"]
    state, target = tmp_path / "state.json", tmp_path / "next.json"
    state.write_text(json.dumps({"format": "hetplan/state/1.0", "workers": [{**first, "count": 2}]}))
    planned = ("--set", "sizing=fluid", str(state))
    assert run("solve", PROFILE, SLO, *planned, "-o", str(target)).exit_code == 0
    result = run("simulate", str(target), PROFILE, SLO, *SHORT, str(state))
    assert result.exit_code == 0, result.output
    assert "On the way to the plan" in result.output
    assert "W-transition" in result.output
    way = last(run("simulate", str(target), PROFILE, SLO, *SHORT, str(state), "--json").stdout)
    assert way["report"]["transition"]["seconds"] == 51.0
    without = run("simulate", str(target), PROFILE, SLO, *SHORT)
    assert "On the way" not in without.output


def test_a_dispatcher_that_learns(plan: str) -> None:
    result = run("simulate", plan, PROFILE, SLO, *SHORT, "--learn")
    assert result.exit_code == 0, result.output
    refused = run("simulate", plan, PROFILE, SLO, "--trace", PROFILE, "--arrivals", "poisson")
    assert refused.exit_code == 2
    assert "Leave one of" in refused.output
