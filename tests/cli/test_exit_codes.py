"""Every exit code, produced by a command that a user could give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetplan import errors
from hetplan.cli.exits import ending_of
from hetplan.cli.output import Exit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_0_a_verified_plan(files: Any, run: Callable[..., Any]) -> None:
    ran = run("solve", files.profile, files.slo, "-o", files.plan)
    assert ran.code == 0
    assert json.loads(files.plan.read_text())["question"] == "pool"


@pytest.mark.usefixtures("odd_engines")
def test_1_an_engine_that_breaks(files: Any, run: Callable[..., Any]) -> None:
    ran = run("solve", files.profile, files.slo, "--solver", "broken", "-o", files.plan)
    assert ran.code == 1
    assert "broken: segment of memory lost" in ran.err
    assert "Traceback" not in ran.err
    assert not files.plan.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "nowhere.json", "nowhere-either.json"],
        ["solve", "only-one.json"],
        ["solve", "--no-such-option"],
        ["no-such-command"],
        ["list", "options", "no-such-problem"],
        ["check", "--schema", "no-such-kind"],
        ["list", "options"],
        ["list", "solvers", "pool"],
        ["render", "plan.json", "--to", "kubernetes"],
        ["render", "profile.json", "--to", "lp"],
        ["apply", "--restore", "--undo", "--site", "site.toml"],
        ["apply", "plan.json", "--systemd", "units", "--site", "site.toml"],
        ["import", "file.json", "--as", "no-such-kind"],
        ["show", "nowhere.json"],
    ],
)
def test_2_bad_input_or_usage(arguments: list[str], run: Callable[..., Any]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.strip()
    assert "Traceback" not in ran.err
    assert not ran.out


def test_3_infeasible_says_why_and_what_would_help(files: Any, run: Callable[..., Any]) -> None:
    files.slo_with(lambda slo: slo["limits"].update(cost_per_hour="0.75"))
    ran = run(*files.solve, "-o", files.plan)
    assert ran.code == 3
    assert "Why" in ran.out
    assert "What would make it possible" in ran.out
    assert "cost_per_hour" in ran.out
    assert not files.plan.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("odd_engines")
def test_4_a_proof_that_is_not_there(files: Any, run: Callable[..., Any]) -> None:
    assert run("solve", files.profile, files.slo, "--require-proof", "-o", files.plan).code == 0
    ran = run("solve", files.profile, files.slo, "--solver", "proofless", "--require-proof", "-o", files.plan)
    assert ran.code == 4
    assert files.plan.exists(), "the plan itself is verified, so it is written"


@pytest.mark.usefixtures("odd_engines")
def test_5_a_limit_ends_the_work(files: Any, run: Callable[..., Any]) -> None:
    ran = run("solve", files.profile, files.slo, "--solver", "speechless", "-o", files.plan)
    assert ran.code == 5
    assert not files.plan.exists()


def test_6_a_plan_that_breaks_its_promise(files: Any, run: Callable[..., Any]) -> None:
    assert run(*files.solve, "-o", files.plan).code == 0
    plan = json.loads(files.plan.read_text())
    plan["workers"][0]["count"] += 5
    files.plan.write_text(json.dumps(plan))
    ran = run("verify", files.plan, files.profile, files.slo)
    assert ran.code == 6
    assert "violation" in ran.out
    assert "edited since it was made" in ran.err


@pytest.mark.slow
def test_8_plans_that_differ(files: Any, run: Callable[..., Any]) -> None:
    other = files.folder / "other.json"
    assert run(*files.solve, "-o", files.plan).code == 0
    assert run("solve", files.profile, files.slo, "--set", "derate=0.5", "-o", other).code == 0
    assert run("diff", files.plan, other).code == 0
    assert run("diff", files.plan, other, "--exit-code").code == 8
    assert run("diff", files.plan, files.plan, "--exit-code").code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError.one(why="no"), Exit.BAD_INPUT),
        (errors.NoSolver("milp", {}), Exit.BAD_INPUT),
        (errors.SolverFailed("highs", "broke"), Exit.FAULT),
        (errors.PlanRejected(["cost"]), Exit.CHECK_FAILED),
        (errors.Infeasible(["none"]), Exit.INFEASIBLE),
        (errors.Interrupted("late", exit_code=5), Exit.LIMIT),
        (errors.Interrupted("stop"), Exit.INTERRUPTED),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (FileNotFoundError(2, "No such file", "x.json"), Exit.BAD_INPUT),
        (ZeroDivisionError("by zero"), Exit.FAULT),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: Exit) -> None:
    ending = ending_of(error)
    assert ending is not None
    assert ending.code == code
    assert ending.reason


@pytest.mark.parametrize("command", ["solve", "check"])
@pytest.mark.parametrize(("example", "read_as"), [("variants", "policy"), ("pool", "pool")])
def test_files_that_were_read_as_another_question_say_as_which(
    command: str, example: str, read_as: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    """Limits on machines and a way of balancing make variants a policy, whose faults alone would puzzle."""
    slo = json.loads((EXAMPLES / example / "slo.json").read_text())
    if example == "variants":
        slo["limits"] = {"instances": {kind: [0, 9] for kind in ("cpu", "gpu", "inferentia")}}
        slo["apps"]["faces"]["dispatch"] = "round-robin"
    else:
        slo["apps"]["ranking"]["network_ms_per_hop"] = 1000
    (tmp_path / "slo.json").write_text(json.dumps(slo))
    files = (EXAMPLES / example / "profile.json", tmp_path / "slo.json")
    ran = run(command, *files)
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == f"note: read as the question {read_as}; name another with --formulation"
    named = run("solve", *files, "--formulation", read_as)
    assert named.code == 2
    assert "read as" not in named.err


def test_a_closed_pipe_is_left_to_the_system() -> None:
    assert ending_of(BrokenPipeError(32, "Broken pipe")) is None


def test_a_single_file_is_answered_by_which_two_are_needed(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("solve", "profile.json")
    assert ran.code == 2
    assert "there is no such file" in ran.err
    (tmp_path / "mine.json").write_text('{"format": "hetplan/profile/1.0"}')
    ran = run("solve", tmp_path / "mine.json")
    assert ran.code == 2
    assert "a profile and an SLO file are needed" in " ".join(ran.err.split())
