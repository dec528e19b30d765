"""`hetplan autoscale` of a schedule with machines paid for ahead, where more queries come than its hour expects."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hetplan.cli.autoscale import _Followed
from hetplan.planner.next_state import next_state
from hetplan.planner.status import Exit
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.state import State

AHEAD = {"term_s": 14400, "discount": 0.4, "upfront": "0.4"}
PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"big": {"kind": "gpu", "startup_s": 60}},
    "offers": {
        "big-a": {"hardware": "big", "zone": "a", "price_per_hour": "1", "stock": 8, "commit": AHEAD},
        "big-b": {"hardware": "big", "zone": "b", "price_per_hour": "1.1", "stock": 8},
    },
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "big", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [20]}},
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "horizon": {"period_s": 3600, "periods": 2, "repeats": 2},
    "apps": {
        "shop": {
            "question": "pool", "model": "m", "latency": {"p95_ms": 200},
            "rate_qps": {"series": [60.0, 60.0]}, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]},
        },
        "news": {
            "question": "pool", "model": "m", "latency": {"p95_ms": 200},
            "rate_qps": {"series": [60.0, 60.0]}, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]},
        },
    },
}  # fmt: skip
HOSTS = """
name = "kept"
files = ["profile.json", "slo.json"]
[targets.here]
kind = "local"
[hosts.box]
target = "here"
machines = "big"
count = 30
[models."*"]
kind = "sleep"
ms = 5.0
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, held in (("profile.json", PROFILE), ("slo.json", SLO)):
        (tmp_path / name).write_text(json.dumps(held))
    (tmp_path / "site.toml").write_text(HOSTS)
    return [str(tmp_path / name) for name in ("profile.json", "slo.json")]


def scheduled(files: list[str], run: Callable[..., Any]) -> tuple[Path, Plan]:
    path = Path(files[0]).with_name("plan.json")
    made = run("solve", *files, "--formulation", "fleet", "--set", "savings=false", "-o", path)
    assert made.code == Exit.OK, made.err
    return path, read_plan(path)


def _instead(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _its, *given: method(*given)


class Busy:
    """So many queries a second, until something was planned for them."""

    def __init__(self, plan: Plan, rates: Mapping[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.rates, self.looks, self.applied = rates, 0, list[Plan]()
        self.running = of_period(plan, plan.periods[0])
        for name in ("arrived", "state", "plan", "difference"):
            monkeypatch.setattr(_Followed, name, _instead(getattr(self, name)))

    def arrived(self) -> Mapping[str, int]:
        self.looks += 1
        if self.looks > 60 or len(self.applied) > 1:
            os.kill(os.getpid(), signal.SIGINT)
        return {app: int(rate * time.monotonic()) for app, rate in self.rates.items()}

    def state(self) -> State:
        return next_state(self.running)

    def plan(self) -> Plan | None:
        return self.applied[-1] if self.applied else None

    def difference(self, plan: Plan) -> list[str]:
        self.applied.append(plan)
        self.running = plan
        return []


@pytest.mark.slow
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="Ctrl-C reaches the main thread")
def test_beyond_the_schedule_it_plans_with_what_is_paid_for_ahead(
    files: list[str], run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plan = scheduled(files, run)
    paid = {one.offer: one.count for one in plan.commitments or ()}
    assert paid == {"big-a": 4}, "a term is twice as long as a period, and what is paid for ahead is cheaper"
    busy = Busy(plan, {"shop": 200.0, "news": 60.0}, monkeypatch)
    hosts = path.with_name("site.toml")
    words = ("--site", hosts, path, "--dry-run", "--every", "0.2", "--headroom", "0", "--json")
    ran = run("autoscale", *files, *words)
    said = [line["event"]["text"] for line in ran.lines if "event" in line and line["event"]["what"] != "look"]
    assert ran.code == Exit.INTERRUPTED, ran.err
    assert any("the schedule is left" in text for text in said)
    assert len(busy.applied) == 2, said
    anew = busy.applied[-1]
    counts: dict[str, int] = {}
    for worker in anew.workers:
        counts[worker.offer or ""] = counts.get(worker.offer or "", 0) + worker.count
    assert set(counts) <= {"big-a", "big-b"}, "names of the profile alone"
    assert counts["big-a"] > paid["big-a"], "what is not paid for is rented, by the hour"
    # A worker of the schedule goes on under its name, and each group of alike machines has one.
    before = {worker.id for worker in of_period(plan, plan.periods[0]).workers}
    assert before <= {worker.id for worker in anew.workers}
    assert len({(one.offer, one.loads[0].app) for one in anew.workers}) == len(anew.workers)
    for routes in anew.routing.values():
        assert sum(routes[0].to.values()) == pytest.approx(1.0)
