"""Operators that are calls of an API, on real hosts: a key, calls that fail and are made again, limits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client

import hetplan as hp
from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.serving.frames import FAILED
from hetplan.executor.serving.http_model import HttpModel, key_of
from hetplan.executor.serving.models import Result
from hetplan.executor.serving.query_body import Query
from hetplan.executor.site import read_site
from hetplan.executor.wanted import wanted

KEY = "sk-only-for-tests"
PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0", "reference": "box", "tiers": ["host"],
    "metrics": {"right": {"range": [0, 1], "kind": "bernoulli"}},
    "hardware": {"box": {"kind": "cpu", "tier": "host", "relative_time": 1}},
    "offers": {"box-own": {"hardware": "box", "price_per_hour": "0"}},
    "apis": {"acme": {"tier": "host", "price_per_call": "0.0001", "failures": 0.05, "retries": 2, "retry_ms": 250}},
    "pipelines": {"rag": {
        "nodes": {"find": {"device": "cpu"}, "write": {"device": "cpu", "reads": ["model"], "calls": [
            {"api": "acme", "where": {"model": ["large"]}, "tokens": {"in": 900, "out": 150}}]}},
        "edges": [{"from": "find", "to": "write"}], "knobs": {"model": ["large"]}, "metric": "right", "strata": 1,
    }},
}  # fmt: skip
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0", "objective": ["min cost"],
    "apps": {"ask": {"pipeline": "rag", "quality": {"min": 0.6}, "streams": 2, "rate_qps": 4,
                     "latency": {"p50_ms": 900}}},
}  # fmt: skip
MEASURED = {"format": "hetplan/measured/1.0", "apps": {"ask": [{
    "knobs": {"model": "large"}, "mean": 0.9, "se": 0.01, "samples": 500, "verdict": "pass", "passes": True,
    "seconds": {"find": 0.001, "write": 0.02}, "bytes": {"find": 10.0, "write": 10.0}, "input_bytes": 10.0,
}]}}  # fmt: skip


class Api(ThreadingHTTPServer):
    """A fake API; `fails` are the answers of the next calls, `seen` when each came and what it said."""

    def __init__(self) -> None:
        self.fails: list[int] = []
        self.seen: list[tuple[float, str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        api = self.server
        assert isinstance(api, Api)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        api.seen.append((time.monotonic(), self.path, asked))
        known = self.headers["authorization"] == f"Bearer {KEY}"
        status = 401 if not known else api.fails.pop(0) if api.fails else 200
        body = json.dumps({"said": asked["messages"], "by": asked["model"]}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not to the terminal."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def files(folder: Path) -> dict[str, Any]:
    for name, said in (("profile", PROFILE), ("slo", SLO), ("measured", MEASURED)):
        (folder / f"{name}.json").write_text(json.dumps(said))
    (folder / "acme.key").write_text(KEY + "\n")
    return {"files": [str(folder / f"{name}.json") for name in ("profile", "slo", "measured")]}


def rules(url: str, **more: Any) -> dict[str, dict[str, Any]]:
    named = {"protocol": "openai", "name": "big-{knobs.model}"}
    called = {"kind": "api", "model": "*", "machine": "acme", "url": url, **named, **more}
    return {"called": called, "*": {"kind": "sleep"}}


BOX = {"box": {"target": "here", "machines": ["box", "acme"], "count": {"box": 4, "acme": 1}}}


def plan() -> hp.Plan:
    return hp.solve(PROFILE, SLO, MEASURED).require()


@pytest.mark.slow
def test_a_call_has_the_key_and_is_made_again_where_it_fails(
    api: Api, deploy: Callable[..., Deployment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    url = f"http://127.0.0.1:{api.server_port}/v1/chat"
    deployment = deploy(**files(tmp_path), hosts=BOX, models=rules(url, key_env="ACME_KEY"))
    endpoint = deployment.apply(plan()).endpoint
    client = Client(endpoint)
    assert KEY not in "".join(p.read_text(errors="replace") for p in tmp_path.glob("state/**/*") if p.is_file())
    assert api.seen == [], "calls are paid for: none is made to see whether it answers"
    asked = {"inputs": {"messages": ["why?"]}}
    api.fails = [503, 429]
    status, said = client.post("ask", asked)
    assert (status, said["outputs"][-1]["outputs"]) == (200, {"said": ["why?"], "by": "big-large"})
    assert [path for _, path, _ in api.seen] == ["/v1/chat"] * 3
    assert [hop["node"] for hop in said["path"]] == ["find", "write"]
    came = [at for at, _, _ in api.seen]
    assert came[1] - came[0] > 0.1
    assert came[2] - came[1] > 0.1
    api.fails = [503] * 3
    assert client.post("ask", asked)[0] == 500
    api.fails = [404]
    status, said = client.post("ask", asked)
    assert (status, len(api.seen)) == (500, 7), "what the API refuses is not asked again"
    assert "404" in said["why"]
    for seen in deployment.observe():
        assert seen.endpoint is not None
        assert seen.unit is not None
        worker = Client(f"http://127.0.0.1:{seen.endpoint.port}").connection
        for load in seen.unit.loads:
            worker.request("POST", "/v1/chat/completions", b'{"messages": ["mine"]}', {"hetplan-load": load.id})
            answer = worker.getresponse()
            assert (answer.status, b"none that streams" in answer.read()) == (404, True)
    assert len(api.seen) == 7, "no request of a client's own goes out with the key"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_that_is_not_answered_in_time_has_failed(retries: int) -> None:
    async def scene() -> tuple[Sequence[Result], int]:
        loop, came = asyncio.get_running_loop(), 0

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal came
            came += 1
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = {"command": [], "ready": None, "environment": {}, "url": url, "protocol": "plain", "route": "/",
                "timeout_s": 0.2, "retries": retries, "retry_ms": 10.0}  # fmt: skip
        model, answer = HttpModel(made, loop=loop), loop.create_future()
        model.run([Query({}, 7)], answer.set_result)
        said = await answer
        server.close()
        return said, came

    (result,), came = asyncio.run(scene())
    assert (result.outcome, result.body, came) == (FAILED, b"no answer within 0.2 s", retries + 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"files": []}, "no profile says that it is a call"),
        ({"hosts": {"box": {**BOX["box"], "machines": ["box"], "count": 4}}}, 'Add "acme" to the machines'),
        ({"models": rules("http://api.example/v1", key_env="K")}, "for all to read"),
        ({"models": rules("https://api.example", key_env="K", key_file="k")}, "in a file or in the environment"),
        ({"models": rules("https://api.example", machine=["acme", "box"], name="m")}, "on a machine, not at an API"),
        ({"models": rules("https://api.example", name=None)}, "a model is named"),
        ({"models": {"*": {"kind": "sleep"}}}, "how long this load takes"),
        ({"targets": {"here": {"kind": "elsewhere"}}}, "the key is not there"),
        ({"targets": {"here": {"kind": "kubernetes"}}}, "no target of hosts"),
    ],
)
def test_what_cannot_be_called_is_refused_with_a_remedy(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    said = {"targets": {"here": {"kind": "local"}}, "hosts": BOX, "models": rules("https://api.example"),
            **files(tmp_path), **change}  # fmt: skip
    with pytest.raises(InputError, match=why):
        wanted(plan(), read_site(said))


def test_the_place_of_an_outcome_goes_to_whoever_makes_the_calls(tmp_path: Path) -> None:
    rule = rules("http://127.0.0.1:1/", key_file="acme.key", outcome="choices.0.verdict")
    said = {"targets": {"here": {"kind": "local"}}, "hosts": BOX, "models": rule, **files(tmp_path)}
    made = wanted(plan(), read_site(said))
    kinds = {load.model["kind"]: load.model.get("outcome") for unit in made.units.values() for load in unit.loads}
    assert kinds == {"api": "choices.0.verdict", "sleep": None}


def test_a_key_that_is_not_there_is_named_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "bad.key").write_text("two\nlines")
    for place in ("none.key", "bad.key"):
        with pytest.raises(ValueError, match=f"key_file .*{place}") as error:
            key_of({"key_file": str(tmp_path / place), "key_env": None})
        assert "lines" not in str(error.value).replace("letters", "")
    assert key_of({"key_file": None, "key_env": None}) is None
    files(tmp_path)
    assert key_of({"key_file": str(tmp_path / "acme.key"), "key_env": None}) == KEY
