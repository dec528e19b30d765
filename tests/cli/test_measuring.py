"""`hetplan solve --evaluate`: a command measures, its journal survives any end, and bad measurements end nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compound"

SCRIPT = """
import json, os, random, sys, time
mode = sys.argv[1]
for line in sys.stdin:
    asked = json.loads(line)
    size, model = asked["knobs"]["size"], asked["knobs"]["model"]
    if mode == "stuck":
        time.sleep(300)
    if mode in ("slow", "slower"):
        time.sleep(0.004 if mode == "slow" else 0.02)
    if mode == "uneven":
        time.sleep(random.random() * 0.002)
    compute = {"n": 0.1, "s": 0.25, "m": 0.55, "x": 1.0}[model] * (size / 1280) ** 2
    chance = 0.95 - 0.25 * (1 - compute) ** 4
    score = float(random.Random(f"{size}/{model}/{asked['index']}").random() < chance)
    answer = {"score": score, "seconds": {"sample": 0.001, "detect": 0.16 * compute, "track": 0.01},
              "bytes": {"sample": 1e4, "detect": 6e3, "track": 2e3}, "input_bytes": 1e4}
    if mode == "bad" and size == 640:
        if model == "n":
            answer = {"error": "out of memory"}
        elif model == "s":
            time.sleep(300)
        elif model == "m":
            answer["score"] = float("nan")
        else:
            del answer["seconds"]["track"]
    if mode == "bad" and (size, model) == (960, "n"):
        sys.exit("no such model")
    if mode == "broken":
        print("loading the model", flush=True)
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., list[object]]:
    """Arguments of `hetplan solve` for one query, measured by the script in one of its modes."""
    slo = shipped(EXAMPLE / "slo.json")
    slo["apps"] = {"gate": slo["apps"]["gate"] | {"latency": {"p50_ms": 100}}}
    (tmp_path / "slo.json").write_text(json.dumps(slo))
    (tmp_path / "measure.py").write_text(SCRIPT)

    def arguments(mode: str = "good", *, journal: str = "journal.jsonl", plan: str = "plan.json") -> list[object]:
        hosts = tmp_path / "site.toml"
        command = json.dumps([sys.executable, "measure.py", mode])
        timeout_s = 1.5 if mode == "bad" else 60
        hosts.write_text(f"[evaluators.track-eval]\ncommand = {command}\ntimeout_s = {timeout_s}\n")
        return [
            "solve", EXAMPLE / "profile.json", tmp_path / "slo.json", "--evaluate", "track-eval", "--site", hosts,
            "--journal", tmp_path / journal, "--set", "samples_min=10", "--set", "samples_max=60",
            "-o", tmp_path / plan,
        ]  # fmt: skip

    return arguments


def plans_in(journal: Path) -> list[dict[str, Any]]:
    """What a journal concludes, in the order of measuring."""
    if not journal.exists():
        return []
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    return [{"knobs": line["knobs"], **line["plan"]} for line in lines if "plan" in line]


def test_plans_are_measured_and_the_journal_backs_them(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path
) -> None:
    ran = run(*asked())
    assert ran.code == 0, ran.out + ran.err
    assert "samples, kept in" in ran.err
    files = (EXAMPLE / "profile.json", tmp_path / "slo.json", tmp_path / "journal.jsonl")
    assert run("verify", tmp_path / "plan.json", *files).code == 0
    again = run("solve", *files, "-o", tmp_path / "again.json")
    assert again.code == 0
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("plan.json", "again.json"))
    assert first["dispatch"] == second["dispatch"]
    assert first["inputs"]["measured"] == second["inputs"]["measured"] is not None


@pytest.mark.slow
def test_a_kill_loses_nothing_and_the_same_command_goes_on_with_the_same_plans(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    journal = tmp_path / "journal.jsonl"
    process = spawn(*asked("slower"))
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 70, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    cut = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    before = sum(len(line["samples"]["scores"]) for line in cut if "samples" in line)
    assert before > 60
    assert run(*asked()).code == 0
    unbroken = tmp_path / "unbroken.jsonl"
    assert run(*asked(journal=unbroken.name, plan="other.json")).code == 0
    assert plans_in(journal) == plans_in(unbroken)
    assert (tmp_path / "plan.json").read_bytes() == (tmp_path / "other.json").read_bytes()
    lines = journal.read_text().splitlines()
    assert len(lines) == len(set(lines)), "nothing was measured twice"


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if ready():
            return
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()}")
        time.sleep(0.025)
    process.kill()
    pytest.fail("the measuring never began")


@pytest.mark.slow
@pytest.mark.parametrize("on", ["here", "ray"])
def test_several_at_once_give_the_same_bytes_wherever_they_are_and_whoever_is_first(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path, on: str
) -> None:
    for name in ("first", "second"):
        there = ["--on", "ray"] if on == "ray" and name == "second" else []
        if there:
            ray = pytest.importorskip("ray", reason="ray is not installed")
            ray.init("local", num_cpus=3, log_to_driver=False, include_dashboard=False)
        try:
            files = {"journal": f"{name}.jsonl", "plan": f"{name}.json"}
            ran = run(*asked("uneven", **files), "--jobs", 3, *there)
        finally:
            if there:
                ray.shutdown()
        assert ran.code == 0, ran.out + ran.err
    first, second = ((tmp_path / name).read_bytes() for name in ("first.jsonl", "second.jsonl"))
    assert first == second
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
    assert not list(tmp_path.glob("*.waiting"))
    ran = run("verify", tmp_path / "first.json", EXAMPLE / "profile.json", tmp_path / "slo.json",
              tmp_path / "first.jsonl")  # fmt: skip
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
def test_an_evaluator_on_a_cluster_fails_as_one_here_and_room_is_asked_for(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from hetplan.measure import evaluator_cluster

    ray.init("local", num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        ran = run(*asked("bad"), "--set", "max_measurements=12", "--json", "--jobs", 2, "--on", "ray")
        assert ran.code == 0, ran.err
        broken = run(*asked("broken", journal="broken.jsonl"), "--jobs", 2, "--on", "ray")
        monkeypatch.setattr(evaluator_cluster, "START_S", 3.0)
        crowded = run(*asked(journal="crowded.jsonl"), "--jobs", 3, "--on", "ray")
    finally:
        ray.shutdown()
    plan = json.loads((tmp_path / "plan.json").read_text())
    warned = {one["text"] for one in plan["warnings"] if one["code"] == "W-set-aside"}
    for reason in ("out of memory", "no answer within 1.5 s", "not a finite number", "lacks track", "no such model"):
        assert any(reason in text for text in warned), (reason, warned)
    assert broken.code == 1
    assert "remarks belong on standard error" in broken.err
    assert crowded.code == 2
    assert "--jobs (found 3): the cluster has room for 2 processes of the evaluator" in crowded.err


@pytest.mark.slow
def test_a_kill_of_several_at_once_loses_nothing_and_the_journal_becomes_the_same(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    unbroken, journal = tmp_path / "unbroken.jsonl", tmp_path / "journal.jsonl"
    waiting = tmp_path / "journal.jsonl.waiting"
    assert run(*asked(journal=unbroken.name, plan="other.json"), "--jobs", 3).code == 0
    process = spawn(*asked("slower"), "--jobs", 3)

    def several_are_under_way() -> bool:
        """Stopped while it is looked at, so that it is killed as it was seen."""
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        held = {json.dumps(json.loads(line)["knobs"]) for line in _whole_lines(waiting)[1:]}
        if len(held) > 1 and len(plans_in(journal)) >= 3:
            return True
        process.send_signal(signal.SIGCONT)
        return False

    wait_for(several_are_under_way, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    held, done = _whole_lines(waiting)[1:], _whole_lines(journal)
    now = plans_in(unbroken)[len(plans_in(journal))]["knobs"]
    first = [line for line in held if json.loads(line)["knobs"] == now]
    if len(first) > 1 and "plan" in json.loads(done[-1]):
        # As if it had been killed while the first of them was let in.
        journal.write_bytes(b"\n".join([*done, first[0], first[1][:30]]))
    assert run(*asked(), "--jobs", 3).code == 0
    assert journal.read_bytes() == unbroken.read_bytes()
    assert set(held) <= set(_whole_lines(journal))
    assert (tmp_path / "plan.json").read_bytes() == (tmp_path / "other.json").read_bytes()
    assert not waiting.exists()


@pytest.mark.slow
def test_several_at_once_say_how_far_they_are(asked: Callable[..., list[object]], run: Callable[..., Any]) -> None:
    from hetplan.cli.progress import Pace
    from hetplan.planner.contract import Event

    ran = run(*asked(), "--jobs", 3, "--set", "max_measurements=9", "--json")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in ran.out.splitlines()]
    events = [Event(**line["event"]) for line in lines if line.get("event", {}).get("what") == "measured"]
    assert len(events) >= 3, "it ends at a plan that costs nothing"
    assert [event.done for event in events] == [count / 9 for count in range(1, len(events) + 1)]
    clock = iter(range(0, 90, 10))
    pace = Pace(lambda: float(next(clock)))
    assert "about 70 s left" in [pace.text(event) for event in events][1]


def _whole_lines(file: Path) -> list[bytes]:
    content = file.read_bytes() if file.exists() else b""
    return content.split(b"\n")[:-1]


@pytest.mark.slow
def test_an_interrupt_packs_what_was_found_and_keeps_the_journal(
    asked: Callable[..., list[object]], tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    journal = tmp_path / "journal.jsonl"
    process = spawn(*asked("slow"), "--set", "samples_max=2000")
    wait_for(lambda: journal.exists() and b'"passes":true' in journal.read_bytes(), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["dispatch"]["gate"]["knobs"] in [one["knobs"] for one in plans_in(journal)]


@pytest.mark.slow
def test_an_interrupt_of_several_at_once_keeps_all_of_them(
    asked: Callable[..., list[object]], tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    journal = tmp_path / "journal.jsonl"
    waiting = tmp_path / "journal.jsonl.waiting"
    process = spawn(*asked("slow"), "--set", "samples_max=2000", "--jobs", 3)
    wait_for(lambda: len(_whole_lines(waiting)) > 20 and b'"passes":true' in journal.read_bytes(), process)
    held = _whole_lines(waiting)[1:]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert not waiting.exists()
    assert set(held) <= set(_whole_lines(journal))
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["dispatch"]["gate"]["knobs"] in [one["knobs"] for one in plans_in(journal)]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
def test_what_raises_hangs_or_makes_no_sense_is_set_aside_with_its_reason(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path, jobs: int
) -> None:
    ran = run(*asked("bad"), "--set", "max_measurements=12", "--json", "--jobs", jobs)
    assert ran.code == 0, ran.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    warned = {one["text"] for one in plan["warnings"] if one["code"] == "W-set-aside"}
    for reason in ("out of memory", "no answer within 1.5 s", "not a finite number", "lacks track", "no such model"):
        assert any(reason in text for text in warned), (reason, warned)
    assert len(warned) == 5
    assert plan["dispatch"]["gate"]["knobs"]["size"] != 640


@pytest.mark.slow
def test_a_command_that_never_answers_right_ends_the_search_soon(
    asked: Callable[..., list[object]], run: Callable[..., Any]
) -> None:
    ran = run(*asked("broken"))
    assert ran.code == 1
    assert "evaluator track-eval: none of the 8 configurations of gate that were tried could be measured" in ran.err
    assert "remarks belong on standard error" in ran.err


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("end", ["max_measurements=3", "measure_s=0.001", "search=random"])
def test_a_broken_command_exits_alike_whatever_ends_first(
    asked: Callable[..., list[object]], run: Callable[..., Any], end: str
) -> None:
    ran = run(*asked("broken"), "--set", end)
    assert ran.code == 1
    assert "that were tried could be measured" in ran.err


def test_what_was_set_aside_stays_so_until_it_is_to_be_tried_again(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path
) -> None:
    assert run(*asked("broken"), "--set", "max_measurements=3").code == 1
    before = (tmp_path / "journal.jsonl").read_bytes()
    again = run(*asked("good"), "--set", "max_measurements=3")
    assert again.code == 1
    assert "--set retry=true" in again.err
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    assert run(*asked("good"), "--set", "max_measurements=3", "--set", "retry=true").code == 0


def test_a_deadline_ends_a_measurement_under_way(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path
) -> None:
    slo = json.loads((tmp_path / "slo.json").read_text())
    slo["apps"]["gate"]["deadline_s"] = 0.6
    (tmp_path / "slo.json").write_text(json.dumps(slo))
    began = time.monotonic()
    ran = run(*asked("stuck"), "--json")
    assert time.monotonic() - began < 60, "one evaluation may take a minute, and is tried three times"
    assert ran.code == 5
    assert plans_in(tmp_path / "journal.jsonl") == [], "nothing is concluded of what time cut off"


def test_measurements_of_other_knobs_are_refused(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path
) -> None:
    assert run(*asked(), "--set", "max_measurements=4").code == 0
    profile = shipped(EXAMPLE / "profile.json")
    profile["links"][0]["bandwidth_mbps"] *= 2
    (tmp_path / "faster.json").write_text(json.dumps(profile))
    (pipeline,) = profile["pipelines"].values()
    pipeline["knobs"]["size"].append(2560)
    (tmp_path / "more.json").write_text(json.dumps(profile))
    files = (tmp_path / "slo.json", tmp_path / "journal.jsonl")
    assert run("solve", tmp_path / "faster.json", *files, "-o", tmp_path / "new.json").code == 0
    for command in (("solve",), ("verify", tmp_path / "plan.json"), ("simulate", tmp_path / "plan.json")):
        ran = run(*command, tmp_path / "more.json", *files)
        assert ran.code == 2, command
        assert "journal.jsonl: $.of" in ran.err
        assert "other operators, knobs, metrics or strata" in ran.err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: [*a[:3], *a[5:]], "nothing is measured without --evaluate"),
        (lambda a: [*a[:5], *a[7:]], "a trusted file says which command"),
        (lambda a: [*a[:4], "other", *a[5:]], "there is no such evaluator"),
        (lambda a: [*a[:6], "missing.toml", *a[7:]], "missing.toml"),
        (lambda a: [*a[:8], "no/such/folder/j", *a[9:]], "the journal cannot be written"),
        (lambda a: [*a[:3], "--jobs", 2], "nothing is measured without --evaluate"),
        (lambda a: [*a[:3], "--on", "ray"], "nothing is measured without --evaluate"),
        (lambda a: [*a, "--on", "spark"], "ray or ray:ADDRESS"),
        (lambda a: [*a, "--set", "parallel=3"], "Write --jobs N"),
        (lambda a: [*a, "--history", "missing.json"], "cannot be read"),
        (lambda a: [*a, "--history", EXAMPLE / "profile.json"], "measured plans of every application"),
    ],
)
def test_bad_use_is_reported(
    asked: Callable[..., list[object]],
    run: Callable[..., Any],
    change: Callable[[list[object]], list[object]],
    why: str,
) -> None:
    ran = run(*change(asked()))
    assert ran.code == 2
    assert why in ran.err


def test_a_history_is_where_the_next_search_begins(
    asked: Callable[..., list[object]], run: Callable[..., Any], tmp_path: Path
) -> None:
    assert run(*asked()).code == 0
    later = run(*asked(journal="later.jsonl"), "--history", tmp_path / "journal.jsonl")
    assert later.code == 0
    assert plans_in(tmp_path / "later.jsonl")[0]["passes"], "the past knows a compliant plan"
