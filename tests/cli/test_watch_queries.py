"""`hetplan watch --queries`: decisions line by line, kept in a journal, the same after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.arriving import Arriving, kinds_of
from hetplan.errors import InputError
from hetplan.live_plan import live_plan
from hetplan.profiles.load import load_inputs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compound"
FILES = [EXAMPLE / "profile.json", EXAMPLE / "slo.json", "--measured", EXAMPLE / "measured.json"]


def operations(count: int) -> list[str]:
    rng, here, lines = np.random.default_rng(0), [], []
    for n in range(count):
        if here and rng.random() < 0.4:
            lines.append(json.dumps({"depart": here.pop(int(rng.integers(len(here))))}))
        else:
            app = ("gate", "dock", "yard", "lobby")[int(rng.integers(4))]
            here.append(f"q{n}")
            lines.append(json.dumps({"arrive": f"q{n}", "app": app, "weight": float(rng.lognormal())}))
    return [line + "\n" for line in lines]


def events(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if "event" in line]


def arguments(folder: Path) -> list[object]:
    return ["watch", *FILES, "--queries", folder / "queries", "--decided", folder / "decided", "--json"]


def test_each_line_is_decided_and_what_it_could_gain_is_bounded(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "queries").write_text("".join([*operations(40), "nonsense\n", '{"pin": "nobody"}\n']))
    ran = run(*arguments(tmp_path), "--once")
    assert ran.code == 0
    said = events(ran.out)
    kinds = {event["what"] for event in said}
    assert {"admitted", "waits", "departed", "refused", "bound"} <= kinds
    assert sum(event["what"] == "refused" for event in said) == 2
    gate = next(event for event in said if event["what"] == "admitted" and event["app"] == "gate")
    assert set(gate["placement"]) == {"sample", "detect", "track"}
    bound = next(event for event in said if event["what"] == "bound")
    assert bound["most_gain"] >= 0.0


@pytest.mark.slow
def test_after_kill_9_the_next_lines_are_decided_as_if_nothing_had_happened(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    lines = operations(60)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    (whole / "queries").write_text("".join(lines))
    expected = [event for event in events(run(*arguments(whole), "--once").out) if event["what"] != "bound"]
    (broken / "queries").write_text("".join(lines[:30]))
    command = [str(Path(sys.executable).with_name("hetplan")), *map(str, arguments(broken))]
    watching = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    while len((broken / "decided").read_bytes().splitlines() if (broken / "decided").exists() else []) < 31:
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    os.kill(watching.pid, signal.SIGKILL)
    watching.wait()
    (broken / "queries").write_text("".join(lines))
    later = [event for event in events(run(*arguments(broken), "--once").out) if event["what"] != "bound"]
    assert later
    assert later == expected[-len(later) :]
    # All thirty were decided before the kill: none of them is said again.
    came = [op["arrive"] for line in lines[30:] if "arrive" in (op := json.loads(line))]
    assert {event["query"] for event in later if event["what"] in ("admitted", "waits")} >= set(came)
    assert sum(event["what"] == "departed" for event in later) == 30 - len(came)


HOSTS = """
state_dir = "running"
[router]
port = 0
[targets.here]
kind = "local"
[hosts.this]
target = "here"
hardware = ["phone", "v100", "a100"]
machines = 9
enforcement = "none"
[[models]]
kind = "sleep"
"""


@pytest.mark.slow
def test_operators_of_queries_are_started_and_stopped_as_they_come_and_go(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    where = ["--hosts", tmp_path / "hosts.toml"]

    def lived(*lines: dict[str, Any]) -> list[dict[str, Any]]:
        with (tmp_path / "queries").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        ran = run(*arguments(tmp_path), "--once", "--apply", *where)
        assert ran.code == 0, ran.err
        return [event for event in events(ran.out) if event["what"] in ("applied", "refused")]

    def running() -> set[str]:
        loads = (Path(one).read_text() for one in (tmp_path / "running").rglob("record.json"))
        return {
            load["id"].split(".")[0] for text in loads for unit in json.loads(text)["units"] for load in unit["loads"]
        }

    try:
        (first,) = lived({"arrive": "q1", "app": "gate"}, {"arrive": "q2", "app": "yard"})
        assert (first["queries"], running()) == (2, {"q1", "q2"})
        body = urllib.request.urlopen(urllib.request.Request(f"{first['endpoint']}/v1/q1", data=b"{}"), timeout=10)
        assert json.load(body)["outcome"] == "served"
        refused, then = lived({"depart": "q1"}, {"arrive": "Q 3", "app": "yard"})
        assert "Q 3" in refused["text"]
        assert (then["queries"], running()) == (1, {"q2"})
        assert lived()[0]["steps"] == 0, "all runs as it was decided"
        assert lived({"depart": "q2"})[0]["queries"] == 0
        assert running() == set()
    finally:
        assert run("down", "--yes", *where).code == 0


def test_what_stays_keeps_its_names_when_others_leave() -> None:
    inputs = load_inputs(FILES[0], FILES[1], measured=FILES[3])
    arriving = Arriving(kinds_of(inputs), applies=True)
    for number, app in enumerate(("gate", "dock", "yard")):
        arriving.take(json.dumps({"arrive": f"q{number}", "app": app}).encode(), number)
    before, _ = live_plan(arriving.kinds.asked, arriving.kinds.running())
    arriving.take(b'{"depart": "q0"}', 3)
    after, known = live_plan(arriving.kinds.asked, arriving.kinds.running())
    assert {load.app for worker in after.workers for load in worker.loads} == {"q1", "q2"}
    assert [after.routing[name] for name in ("q1", "q2")] == [before.routing[name] for name in ("q1", "q2")]
    assert {worker.id for worker in after.workers} <= {worker.id for worker in before.workers}
    assert set(known.slo.apps) == {"q1", "q2"}


def test_stated_candidates_start_nothing() -> None:
    inputs = load_inputs(EXAMPLE / "candidates-profile.json", EXAMPLE / "candidates-slo.json")
    with pytest.raises(InputError, match="nothing can be started"):
        Arriving(kinds_of(inputs), applies=True)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--decided", "d"], "--decided"),
        (["--live", "x"], "--live"),
        (["--journal", "x"], "--journal"),
        (["--apply"], "--apply"),
    ],
)
def test_options_that_mean_nothing_alone_are_refused(
    run: Callable[..., Any], tmp_path: Path, more: list[str], named: str
) -> None:
    ran = run("watch", *FILES[:2], *more)
    assert ran.code == 2
    assert named in ran.err
