"""`hetplan watch --queries`: decisions line by line, kept in a journal, the same after a kill."""

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

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("more", "named"),
    [(["--decided", "d"], "--decided"), (["--live", "x"], "--live"), (["--journal", "x"], "--journal")],
)
def test_options_that_mean_nothing_alone_are_refused(
    run: Callable[..., Any], tmp_path: Path, more: list[str], named: str
) -> None:
    ran = run("watch", *FILES[:2], *more)
    assert ran.code == 2
    assert named in ran.err
