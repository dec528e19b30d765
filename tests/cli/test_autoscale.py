"""`hetplan autoscale`: what it says and how it ends; once for real, with workers that sleep and a demand that moves."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.kept_process import end_all, marked
from hetplan.planner.status import Exit
from tests.build import in_format_1_0

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"cpu": {"kind": "cpu"}},
    "offers": {"cpu": {"hardware": "cpu", "price_per_hour": "1", "stock": 24}},
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "quality": {"value": 0.9}, "runs": [{"hardware": "cpu", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [50], "p50": [50]}},
    "pipelines": {"one": {"nodes": {"r": {"task": "rank"}}, "edges": []}},
}
"""A server carries 20 queries/s."""

SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"instances": {"cpu": [0, 24]}},
    "apps": {
        "shop": {
            "pipeline": "one",
            "latency": {"p99_ms": 400},
            "rate_qps": 15,
        }
    },
}

ROOT = Path(__file__).resolve().parents[2]

HOSTS = """
name = "watched"
state_dir = "state"
files = ["profile.json", "slo.json"]
router = {port = PORT}
limits = {start_s = 120.0, drain_s = 2.0, call_s = 60.0}
[targets.here]
kind = "local"
[hosts.box]
target = "here"
machines = "cpu"
count = 24
[models."*"]
kind = "sleep"
ms = 5.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profile.json").write_text(json.dumps(in_format_1_0(PROFILE)))
    (tmp_path / "slo.json").write_text(json.dumps(SLO))
    (tmp_path / "site.toml").write_text(HOSTS.replace("PORT", str(free_port())))
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def arguments(folder: Path, *more: str) -> list[str]:
    files = [str(folder / name) for name in ("profile.json", "slo.json")]
    return ["autoscale", *files, "--site", str(folder / "site.toml"), *more]


@pytest.mark.slow
def test_a_dry_run_tells_what_it_would_start_and_starts_nothing(folder: Path, run: Callable[..., Any]) -> None:
    ran = run(*arguments(folder, "--once", "--dry-run", "--json"))
    assert ran.code == Exit.OK, ran.err
    events = [line["event"] for line in ran.lines if "event" in line]
    assert [event["what"] for event in events] == ["look", "plan", "change", "change"]
    assert "2 x w1: start on box" in events[2]["text"], "one is 75% busy: late too often while queries wait"
    assert ran.lines[-1]["exit"] == {"code": 0, "reason": "dry run: 2 changes, none made"}
    assert not (folder / "state" / "record.json").exists()


@pytest.mark.slow
def test_it_asks_other_questions_too(tmp_path: Path, run: Callable[..., Any]) -> None:
    variants = ROOT / "examples" / "variants"
    hosts = HOSTS.replace("PORT", str(free_port())).replace('"cpu"', '["cpu", "gpu", "inferentia"]')
    hosts = hosts.replace("count = 24", 'count = 24\nplays = ["c1", "c2", "g1", "i1"]')
    for name in ("profile.json", "slo.json"):
        (tmp_path / name).write_bytes((variants / name).read_bytes())
    (tmp_path / "site.toml").write_text(hosts)
    ran = run(*arguments(tmp_path, "--once", "--dry-run", "--json"))
    assert ran.code == Exit.OK, ran.err
    # The default plan, which leaves room to wait, is of three machines.
    assert sum("start on box" in line["event"]["text"] for line in ran.lines if "event" in line) == 3


@pytest.mark.slow
def test_people_read_what_happens_though_engines_are_kept_quiet(folder: Path) -> None:
    words = [sys.executable, "-m", "hetplan", *arguments(folder, "--once", "--dry-run")]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [line.split(":")[0] for line in ran.stdout.splitlines()] == ["plan", "change", "change", "dry run"]
    assert "nothing was planned yet: a plan, best-of-measured" in ran.stdout


def test_no_plan_ends_with_its_own_code_and_keeps_what_runs(folder: Path, run: Callable[..., Any]) -> None:
    slo = json.loads(json.dumps(SLO))
    slo["apps"]["shop"]["latency"]["p99_ms"] = 10
    (folder / "slo.json").write_text(json.dumps(slo))
    ran = run(*arguments(folder, "--once", "--json"))
    assert ran.code == Exit.INFEASIBLE
    assert "what runs is kept" in ran.lines[-2]["event"]["text"]


@pytest.mark.slow
def test_hosts_without_room_are_reported_and_nothing_is_touched(folder: Path, run: Callable[..., Any]) -> None:
    hosts = (folder / "site.toml").read_text()
    (folder / "site.toml").write_text(hosts.replace("count = 24", "count = 0"))
    ran = run(*arguments(folder, "--once", "--json"))
    assert ran.code == Exit.BAD_INPUT
    assert "room" in ran.lines[-2]["event"]["text"]


def test_files_that_cannot_be_read_end_it_at_once(folder: Path, run: Callable[..., Any]) -> None:
    (folder / "site.toml").write_text("targets = 3")
    assert run(*arguments(folder)).code == Exit.BAD_INPUT
    (folder / "slo.json").unlink()
    assert run(*arguments(folder)).code == Exit.BAD_INPUT


@dataclass
class Demand:
    """Queries at no more than a rate that can be changed, from a thread of their own; failures are counted."""

    rate_qps: float = 0.0
    endpoint: str = ""
    failures: int = 0
    ended: bool = False

    def run(self) -> None:
        def ask() -> None:
            try:
                with urllib.request.urlopen(f"{self.endpoint}/v1/shop", data=b"{}", timeout=60) as answer:
                    answer.read()
            except OSError:
                self.failures += 1

        threads: list[threading.Thread] = []
        while not self.ended:
            time.sleep(1.0 / max(self.rate_qps, 1.0))
            threads.append(threading.Thread(target=ask))
            threads[-1].start()
        for thread in threads:
            thread.join()


@pytest.fixture
def watching(folder: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["--json", "--every", "0.5", "--hold", "3", "--period", "30", "--headroom", "0", "--com", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hetplan", *arguments(folder, *words)], stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()
    end_all(folder / "state" / "targets" / "here")


@pytest.mark.slow
def test_workers_come_and_go_with_the_demand_and_no_query_is_lost(
    folder: Path, watching: subprocess.Popen[str]
) -> None:
    from hetplan.executor.deployment import Deployment
    from hetplan.executor.site import read_site
    from hetplan.registry import target

    assert watching.stdout is not None
    events: list[dict[str, Any]] = []

    def until(done: Callable[[], bool], limit_s: float = 300.0) -> None:
        stop_at = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < stop_at, [event["text"] for event in events[-5:]]
            line = json.loads(watching.stdout.readline())
            events.extend([line["event"]] if "event" in line else [])

    def applied() -> int:
        return sum(event["what"] == "apply" for event in events)

    with Deployment(read_site(folder / "site.toml"), targets=target) as deployment:
        until(lambda: applied() == 1)
        assert len(deployment.observe()) == 2, "at 15 a second one server would be late too often"
        demand = Demand(8.0, deployment.endpoint())
        sender = threading.Thread(target=demand.run)
        sender.start()
        try:
            demand.rate_qps = 120.0
            until(lambda: len(deployment.observe()) >= 3)
            demand.rate_qps = 8.0
            until(lambda: len(deployment.observe()) == 1)
        finally:
            demand.ended = True
            sender.join()
        assert demand.failures == 0
        assert [event["text"] for event in events if event["what"] in ("kept", "blind")] == []
        watching.send_signal(signal.SIGINT)
        rest, _ = watching.communicate(timeout=120)
        assert json.loads(rest.splitlines()[-1])["exit"]["code"] == Exit.INTERRUPTED
        assert deployment.observe(), "what runs stays"
        deployment.down()
        assert marked(folder / "state" / "targets" / "here") == []
