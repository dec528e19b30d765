"""`hetplan profile` and `hetplan loadtest` as a user calls them."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cases.tiny_models import write_model
from typer.testing import CliRunner

from hetplan.cli.app import build_app
from hetplan.profiles.load_one import load_profile
from tests import build

MEASURE = """
format = "hetplan/measure/1.0"
[machines.cpu-1]
[repeats]
through = "nothing"
most_waited = 1
warm_up = 1
min_runs = 3
max_runs = 4
max_s = 5
p99_within = 100
[models.a]
task = "t"
callable = "sleeps:load"
axes = {batch = [1, 2, 3]}
"""
SLEEPS = """
import time
def load():
    return lambda point: lambda: time.sleep(0.002 * point["batch"])
"""


def run(*words: object) -> tuple[int, str, list[dict[str, Any]]]:
    ran = CliRunner().invoke(build_app(), [str(word) for word in words])
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return ran.exit_code, ran.output, lines


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "measure.toml").write_text(MEASURE)
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    monkeypatch.delitem(sys.modules, "sleeps", raising=False)
    return tmp_path


@pytest.mark.slow
def test_a_profile_and_the_same_again_from_its_journal(folder: Path) -> None:
    profile = folder / "p.json"
    code, _, lines = run("profile", folder / "measure.toml", "-o", profile, "--json")
    assert code == 0
    assert lines[-1]["cells"] == 3
    assert any(line.get("event", {}).get("what") == "profile" for line in lines)
    first = profile.read_bytes()
    load_profile(profile)
    code, said, _ = run("profile", folder / "measure.toml", "-o", profile)
    assert code == 0
    assert "a         cpu-1" in said or "a " in said
    assert profile.read_bytes() == first
    code, _, lines = run("profile", folder / "measure.toml", "-o", profile, "--fresh", "--json")
    assert (code, lines[-1]["resumed"]) == (0, 0)


def test_a_file_of_somebody_else_is_not_overwritten(folder: Path) -> None:
    (folder / "p.json").write_text("{}")
    code, said, _ = run("profile", folder / "measure.toml", "-o", folder / "p.json")
    assert code == 2
    assert (folder / "p.json").read_text() == "{}"
    assert "--force" in said


def test_nothing_that_can_be_measured(folder: Path) -> None:
    (folder / "measure.toml").write_text(MEASURE.replace("sleeps:load", "sleeps:gone"))
    code, _, _ = run("profile", folder / "measure.toml", "-o", folder / "p.json")
    assert code == 1
    assert not (folder / "p.json").exists()


def started(folder: Path) -> subprocess.Popen[str]:
    """A run of many slow cells, stopped in its midst by whoever called."""
    slow = MEASURE.replace("[1, 2, 3]", str(list(range(1, 200))))
    (folder / "measure.toml").write_text(slow)
    command = [str(Path(sys.executable).with_name("hetplan")), "profile", "measure.toml", "-o", "p.json", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    journal = folder / "p.json.journal"
    until = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 4):
        assert time.monotonic() < until, "no cell was measured"
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_a_killed_run_loses_one_cell_at_most(folder: Path) -> None:
    process = started(folder)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = len((folder / "p.json.journal").read_bytes().splitlines()) - 1
    few = MEASURE.replace("[1, 2, 3]", "[1, 2, 3, 4]")
    (folder / "measure.toml").write_text(few)
    code, _, lines = run("profile", folder / "measure.toml", "-o", folder / "p.json", "--json")
    assert code == 0
    assert kept >= 3
    assert lines[-1]["resumed"] >= 3


@pytest.mark.slow
def test_an_interrupted_run_writes_what_it_found(folder: Path) -> None:
    process = started(folder)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(said.splitlines()[-1])["cells"] >= 3
    table = load_profile(folder / "p.json").tables["a-cpu-1"]
    assert table.mean[0] is not None
    assert table.mean[-1] is None


PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"m": {"kind": "cpu"}},
    "offers": {"m": {"hardware": "m", "price_per_hour": "1"}},
    "tasks": {"rank": {}},
    "metrics": {"right": {}},
    "variants": {"v": {"task": "rank", "quality": {"value": 0.8}, "runs": [{"hardware": "m", "latency": "v-m"}]}},
    "tables": {"v-m": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [5, 10]}},
}
PROFILE["tasks"]["rank"] = {"metric": "right"}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"cost_per_hour": "2"},
    "apps": {
        "rank": {
            "model": "v",
            "latency": {"p90_ms": 3000},
            "rate_qps": "max",
            "mix": {"axes": ["batch"], "bins": [[1], [4]], "share": [0.5, 0.5]},
        }
    },
}


class Router(asyncio.Protocol):
    """Answers at once, or after so long."""

    after_s = 0.0
    seen: list[bytes]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)
        reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nhetplan-outcome: served\r\nhetplan-quality: 0.8\r\n\r\n"
        asyncio.get_running_loop().call_later(self.after_s, self.transport.write, reply)


@pytest.fixture
def router() -> Iterator[str]:
    Router.after_s, Router.seen = 0.0, []
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(Router, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan whose wish holds on a busy machine too."""
    folder = tmp_path_factory.mktemp("planned")
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    (folder / "slo.json").write_text(json.dumps(SLO))
    words = (
        folder / "profile.json",
        folder / "slo.json",
        "--formulation",
        "pool",
        "--set",
        "sizing=fluid",
        "-o",
        folder / "plan.json",
    )
    assert run("solve", *words)[0] == 0
    return folder


def load_words(folder: Path, router: str, *more: object) -> list[object]:
    files = [folder / name for name in ("plan.json", "profile.json", "slo.json")]
    return ["loadtest", *files, "--endpoint", router, "--duration", "1", "--json", *more]


@pytest.mark.slow
def test_a_load_beside_its_simulation(planned: Path, router: str) -> None:
    code, said, lines = run(*load_words(planned, router, "--simulations", "2", "--tolerance", "inf"))
    assert code == 0, said
    report = lines[-1]["report"]
    wish = report["lines"][0]
    assert (wish["by"], wish["quantity"], wish["promised"]) == ("slo", "response_ms", 3000)
    assert 5 <= wish["simulated"]["value"] <= 3000
    assert report["apps"]["rank"]["requests"] > 50
    assert report["apps"]["rank"]["payload_bytes"] == len(b'{"at": {"batch": 1.0}}')
    assert report["apps"]["rank"]["stated"]["accuracy"]["value"] == pytest.approx(0.8)
    bodies = {request.split(b"\r\n\r\n")[1] for request in Router.seen}
    assert bodies == {b'{"at": {"batch": 1.0}}', b'{"at": {"batch": 4.0}}'}
    assert Router.seen[0].startswith(b"POST /v1/rank HTTP/1.1")


@pytest.mark.slow
def test_a_wish_that_is_broken_is_exit_6(planned: Path, router: str) -> None:
    Router.after_s = 0.09
    tight = json.loads((planned / "slo.json").read_text())
    tight["apps"]["rank"]["latency"]["p90_ms"] = 30
    (planned / "tight.json").write_text(json.dumps(tight))
    words = load_words(planned, router, "--simulations", "0")
    words[words.index(planned / "slo.json")] = planned / "tight.json"
    code, _, lines = run(*words)
    assert code == 6
    assert lines[-1]["report"]["lines"][0]["verdict"] == "broken"


@pytest.mark.slow
def test_the_table_for_people_names_all_three(planned: Path, router: str) -> None:
    words = load_words(planned, router, "--simulations", "2", "--tolerance", "inf")
    code, said, _ = run(*(word for word in words if word != "--json"))
    assert code == 0
    assert "promised" in said
    assert "against simulation" in said
    assert "response_ms p90" in said


@pytest.mark.slow
def test_a_simulation_that_is_not_what_was_measured_is_exit_9(planned: Path, router: str) -> None:
    """Every reply takes 400 ms, where the profile says 5 and 10."""
    Router.after_s = 0.4
    code, said, lines = run(*load_words(planned, router, "--simulations", "2", "--tolerance", "50"))
    assert code == 9, said
    assert "simulation and measurement disagree by more than 50%: rank response_ms p50" in lines[-1]["exit"]["reason"]
    assert "rank: response_ms p50" in lines[-1]["report"]["disagreeing"]
    assert lines[-1]["report"]["tolerance"] == 0.5


@pytest.mark.slow
def test_fields_for_a_gateway_are_sent(planned: Path, router: str) -> None:
    words = load_words(planned, router, "--simulations", "0", "--header", "authorization: Bearer me")
    assert run(*words)[0] == 0
    assert all(b"\r\nauthorization: Bearer me\r\n" in request for request in Router.seen)
    (planned / "gateway.txt").write_text("Bearer me\n")
    words[-1] = f"authorization: @{planned / 'gateway.txt'}"
    Router.seen.clear()
    assert run(*words)[0] == 0
    assert all(b"\r\nauthorization: Bearer me\r\n" in request for request in Router.seen)
    for field in ("nonsense", "authorization: @no-such-file"):
        assert run(*load_words(planned, router, "--header", field))[0] == 2


def test_what_cannot_work_is_said_before_the_load(planned: Path, router: str) -> None:
    np.savez(planned / "set.npz", x=np.zeros((2, 2)), labels=np.zeros(2))
    for more, said in (
        (["--learn", planned / "gone" / "new.json"], "its folder is not there"),
        (["--labelled", planned / "set.npz", "--scorer", "nobody:home"], "--scorer"),
        (["--endpoint", router.replace("//", "//me:secret@")], "a name or a password"),
    ):
        began = time.monotonic()
        code, text, _ = run(*load_words(planned, router, *more, "--duration", "20"))
        assert code == 2, text
        assert said in text.replace("\n", " "), text
        assert "me:secret" not in text
        assert time.monotonic() - began < 15


def test_nobody_there(planned: Path) -> None:
    code, said, _ = run(*load_words(planned, "http://127.0.0.1:9"))
    assert code == 2
    assert "refused" in said


def test_queries_like_measured_samples_are_sent_alike() -> None:
    """A simulated query is like one of the samples; what is sent has one body."""
    from hetplan.cli.loadtest import _targets
    from hetplan.profiles.slo import Arrivals
    from hetplan.simulator.demand import AppDemand

    demand = AppDemand("cam", 0, 200.0, Arrivals(process="poisson"), 100.0, 99.0, samples=30)
    (target,) = _targets([demand], "http://127.0.0.1:9", 1.0, 0, None, ())
    assert len(target.due_s) > 50
    assert set(target.kinds.tolist()) == {0}
    assert len(target.bodies) == 1


@pytest.mark.slow
def test_a_profile_is_measured_through_a_router_that_is_started_for_it(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.onnx")
    wish = MEASURE.replace('callable = "sleeps:load"', 'onnx = "tiny.onnx"').replace('through = "nothing"\n', "")
    (tmp_path / "measure.toml").write_text(wish)
    code, said, _ = run("profile", tmp_path / "measure.toml", "-o", tmp_path / "p.json")
    assert code == 0, said
    assert "network_ms_per_hop" in said
    profile = build.planned(json.loads((tmp_path / "p.json").read_text()))
    (source,) = profile["sources"].values()
    assert "through a router" in source["note"]
    # The model takes microseconds; what a query costs its worker beside it is in the table.
    assert all(mean > 0.1 for mean in profile["tables"]["a-cpu-1"]["mean"])


SECONDS = """
import json, sys
for line in sys.stdin:
    batch = json.loads(line)["knobs"]["batch"]
    print(json.dumps({"error": "too large"} if batch > 2 else {"seconds": 0.5, "fanout": 2.5}), flush=True)
"""
ALL_KINDS = """
[models.c]
task = "t"
command = ["{python}", "seconds.py"]
axes = {{batch = [1, 4]}}
[models.h]
task = "t"
http = "{url}/run?x=1"
axes = {{batch = [2]}}
"""


@pytest.mark.slow
def test_models_of_every_kind_are_measured_through_a_router(folder: Path) -> None:
    (folder / "seconds.py").write_text(SECONDS)
    with Answers() as url:
        wish = MEASURE.replace('through = "nothing"\n', "").replace("[1, 2, 3]", "[1]")
        (folder / "measure.toml").write_text(wish + ALL_KINDS.format(python=sys.executable, url=url))
        code, _, lines = run("profile", folder / "measure.toml", "-o", folder / "p.json", "--json")
    assert code == 0
    assert [(one["at"], one["why"]) for one in lines[-1]["failed"]] == [
        ("c on cpu-1 at batch 4", "the worker answered 500: too large")
    ]
    profile = build.planned(json.loads((folder / "p.json").read_text()))
    (source,) = profile["sources"].values()
    assert "measured through a router" in source["note"]
    tables = profile["tables"]
    assert tables["a-cpu-1"]["p50"][0] > 2.1, "the sleep takes 2 ms, the hand-over is not nothing"
    # Half a second is what the command says, and not what it took: the hand-over comes on top.
    assert 500.05 < tables["c-cpu-1"]["p50"][0] < 600.0
    assert tables["h-cpu-1"]["p50"][0] > 0.1
    assert tables["h-cpu-1-bytes-out"]["mean"] == [len(Answers.BODY)]
    cells = {name: profile["extensions"][f"measured.{name}"]["cpu-1"]["cells"][0] for name in "ach"}
    assert all(0.0 < cell["beside_ms"] < 100.0 for cell in cells.values())
    assert [asked for path, asked in Answers.seen if path == "/run?x=1"][-1] == {"at": {"batch": 2}}


class Answers:
    """A server that answers all alike, and keeps what it was asked."""

    BODY = b'{"score": 0.25, "fanout": 3}'
    seen: ClassVar[list[tuple[str, Any]]] = []

    def __enter__(self) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                Answers.seen.append((self.path, json.loads(content)))
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(Answers.BODY)
                self.wfile.write(head + Answers.BODY)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
