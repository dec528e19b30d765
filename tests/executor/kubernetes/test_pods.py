"""The programs that run in pods, as processes on this machine: a worker, and a router that finds it by name."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.hosts_file import RouterSettings
from hetplan.executor.kubernetes.pod import PodAddresses, _all_served, look_up
from hetplan.executor.routing_table import routing_table
from hetplan.executor.units import Endpoint, LoadSpec, Unit, named

SLEEP = {"kind": "sleep", "law": {"ms": 4.0}, "statistic": "mean", "times": 1.0, "seed": 0}
UNIT = named(Unit("", "w1", 0, "t4", "cluster", "pool", loads=(LoadSpec("w1.a", app="rank", model=SLEEP),)))

Start = Callable[..., subprocess.Popen[str]]


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("0.0.0.0", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def run(part: str, content: dict[str, Any], port: int) -> subprocess.Popen[str]:
        config = tmp_path / f"{part}.json"
        config.write_text(json.dumps(content))
        words = ["-m", "hetplan.executor.kubernetes.pod", part, "--config", str(config), "--port", str(port)]
        running.append(subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def ask(url: str, data: bytes | None = None) -> Any:
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=30) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@pytest.mark.slow
def test_a_query_goes_through_the_router_to_the_pod_behind_a_name(start: Start, tmp_path: Path) -> None:
    worker_port, router_port = free_ports()
    worker = start("worker", {"unit": UNIT.as_dict()}, worker_port)
    assert ask(f"http://127.0.0.1:{worker_port}/healthz")["content"] == UNIT.content
    apps = {"rank": {"dispatch": {"rule": "shares/1"}, "predict": {}, "routes": [], "slo_ms": None, "late": "serve"}}
    apps["rank"] |= {"balancing": None, "combine": "product", "paths": {}, "nodes": {"serve": {"edges": []}}}
    apps["rank"]["routes"] = [{"when": {}, "prefix": [], "to": {"w1.a": 1.0}}]
    table = routing_table(apps, [(UNIT, Endpoint("localhost", worker_port))], RouterSettings())
    router = start("router", {"routes": table}, router_port)
    answer = ask(f"http://127.0.0.1:{router_port}/v1/rank", b"{}")
    assert answer["outcome"] == "served"
    assert answer["path"][0]["unit"] == UNIT.name
    # Its mounted file changes: it follows, and is the same process.
    other = routing_table(apps, [(UNIT, Endpoint("localhost", worker_port))], RouterSettings(seed=7))
    (tmp_path / "router.json").write_text(json.dumps({"routes": other}))
    health = f"http://127.0.0.1:{router_port}/healthz"
    until = time.monotonic() + 60
    while ask(health)["follows"] != other["revision"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    for process in (router, worker):
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_a_port_that_is_taken_is_named_in_the_log(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        worker = start("worker", {"unit": UNIT.as_dict()}, taken.getsockname()[1])
        _, said = worker.communicate(timeout=120)
    assert worker.returncode == 1
    assert "in use" in said


def test_new_routes_wait_until_each_load_has_a_pod() -> None:
    def table(*loads: str, standby: bool = False) -> dict[str, Any]:
        return {"units": [{"loads": [{"id": load}], "standby": standby} for load in loads]}

    assert _all_served(table("a", "b"), table("a", "b", "b"))
    assert not _all_served(table("a", "b"), table("a"))
    assert not _all_served(table("a"), table("a", standby=True))


def test_pods_beyond_the_plan_serve_too() -> None:
    addresses = PodAddresses(lambda _: ["a", "b", "c"])
    units = [{"name": "w1-0", "address": "w1", "standby": True}, {"name": "w1-1", "address": "w1", "standby": False}]
    found = {unit["name"]: (unit["address"], unit["standby"]) for unit in addresses.resolved(units)}
    assert found == {"w1-0": ("a", True), "w1-1": ("b", False), "w1-1+c": ("c", False)}


def test_each_unit_keeps_its_pod_and_takes_a_free_one_when_it_is_gone() -> None:
    pods: dict[str, list[str] | None] = {"w1": ["a", "b", "c"], "w2": ["z"]}
    addresses = PodAddresses(lambda name: pods[name])
    units = [{"name": f"w1-{i}", "address": "w1"} for i in range(3)] + [{"name": "w2-0", "address": "w2"}]

    def now() -> dict[str, str]:
        return {unit["name"]: unit["address"] for unit in addresses.resolved(units)}

    assert now() == {"w1-0": "a", "w1-1": "b", "w1-2": "c", "w2-0": "z"}
    pods["w1"] = ["c", "d", "a"]
    assert now() == {"w1-0": "a", "w1-1": "d", "w1-2": "c", "w2-0": "z"}
    pods["w1"] = ["c"]
    assert now() == {"w1-2": "c", "w2-0": "z"}
    pods["w1"] = None
    assert now() == {"w1-2": "c", "w2-0": "z"}, "a name server that does not answer takes no pod away"
    pods["w1"] = []
    assert now() == {"w2-0": "z"}


def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1" in (look_up("localhost") or [])

    def fails(code: int) -> Callable[..., Any]:
        def lookup(*_: Any, **__: Any) -> Any:
            raise socket.gaierror(code, "")

        return lookup

    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_NONAME))
    assert look_up("no-such-name") == []
    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_AGAIN))
    assert look_up("slow") is None
