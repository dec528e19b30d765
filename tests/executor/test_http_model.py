"""Other people's servers behind a load: started, asked in three protocols, started again when they end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cases.deployments import Client, make_hosts, make_plan, make_worker, processes_of, wait_for

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.http_client import Upstream, request_bytes, whole
from hetplan.executor.serving.http_model import HttpModel, OtherServer
from hetplan.executor.serving.models import Result
from hetplan.executor.serving.open_inference import joined, split_outputs
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.stream_router import StreamRouter
from hetplan.executor.wanted import wanted
from hetplan.profiles.workers import Worker

SERVER = """
import http.server, json, os, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, said, kind="application/json"):
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        ready = time.monotonic() > began + 0.3
        self.answer(200 if ready and self.path in ("/", "/health", "/v2/health/ready") else 503, {})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-type"] == "application/octet-stream":
            return self.answer(200, b"%d bytes" % len(raw), "text/plain")
        asked = json.loads(raw)
        if self.path == "/v1/chat/completions":
            said = asked["messages"][-1]["content"]
            return self.answer(200, {"model": asked["model"], "choices": [{"message": {"content": said.upper()}}]})
        if self.path == "/v2/models/m/infer":
            (x,) = asked["inputs"]
            y = {"name": "y", "shape": x["shape"], "datatype": x["datatype"], "data": [2 * one for one in x["data"]]}
            rows = {**y, "name": "rows", "shape": [x["shape"][0]], "data": [x["shape"][0]] * x["shape"][0]}
            return self.answer(200, {"outputs": [y, rows]})
        if asked == "end":
            os._exit(3)
        if asked == "teapot":
            return self.answer(418, {"why": "short and stout"})
        self.answer(200, {"echo": asked, "path": self.path, "size": sys.argv[2]})

    def log_message(self, *_):
        pass

began = time.monotonic()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def serve(deploy: Callable[..., Deployment], tmp_path: Path) -> Callable[..., tuple[Deployment, Client]]:
    """A deployment of one worker, whose load is served by the script."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)

    def start(worker: Worker | None = None, **rule: Any) -> tuple[Deployment, Client]:
        command = [sys.executable, str(script), "{port}", "{variant}-x"]
        deployment = deploy(models={"*": {"command": command, **rule}})
        endpoint = deployment.apply(make_plan(worker or make_worker("w1", 1))).endpoint
        return deployment, Client(endpoint)

    return start


@pytest.mark.slow
def test_a_plain_server_is_started_asked_and_ended(serve: Callable[..., tuple[Deployment, Client]]) -> None:
    deployment, client = serve(route="/do/{variant}")
    assert client.post(body={"inputs": {"a": 1}})[1]["outputs"] == {"echo": {"a": 1}, "path": "/do/m", "size": "m-x"}
    client.connection.request("POST", "/v1/app", b"\x00raw" * 10, {"content-type": "image/x"})
    answer = client.connection.getresponse().read()
    assert b'"40 bytes"' in answer, "what is no JSON comes as text"
    status, said = client.post(body={"inputs": "teapot"})
    assert (status, said["outcome"]) == (500, "failed")
    assert "the server answered 418" in said["why"]
    folder = (deployment.folder / "targets" / "here").resolve()
    deployment.down()
    assert marked(folder) == []


@pytest.mark.slow
def test_a_server_that_ends_is_started_again(serve: Callable[..., tuple[Deployment, Client]]) -> None:
    deployment, client = serve()
    folder = (deployment.folder / "targets" / "here").resolve()
    (server,) = processes_of(folder, "m-x")
    assert client.post(body={"inputs": "end"})[0] == 500
    wait_for(lambda: server not in processes_of(folder, "m-x"))
    assert client.post(body={"inputs": 7})[1]["outputs"]["echo"] == 7
    (again,) = processes_of(folder, "m-x")
    assert again != server
    assert not deployment.missing()


@pytest.mark.slow
def test_a_query_that_a_killed_server_never_saw_goes_to_the_next(tmp_path: Path) -> None:
    """Asked before the worker heard that its server is no more; a query that a server may have seen is not."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script), "{port}", "here"]
    made: dict[str, Any] = {"command": command, "url": None, "port": None, "ready": "/health", "environment": {},
                            "protocol": "plain", "route": "/", "timeout_s": 60.0, "model": "m"}  # fmt: skip

    async def scene() -> list[Sequence[Result]]:
        loop = asyncio.get_running_loop()
        model, said = HttpModel(made, loop=loop), list[Sequence[Result]]()
        await model.prepare()
        for inputs in (7, "end"):
            process = model._server._process
            assert process is not None
            if inputs == 7:
                process.kill()
                with suppress(ChildProcessError):  # ended, and the loop has seen nothing of it
                    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            answer: asyncio.Future[Sequence[Result]] = loop.create_future()
            model.run([Query({}, inputs)], answer.set_result)
            said.append(await answer)
        model.close()
        return said

    (again,), (ended,) = asyncio.run(scene())
    assert (again.outcome, json.loads(again.body)["echo"]) == (SERVED, 7)
    assert (ended.outcome, ended.body) == (FAILED, b"the server hung up")


def _answering(listener: socket.socket) -> socket.socket:
    """The next connection, with one request of it answered."""
    line, _ = listener.accept()
    line.recv(1000)
    line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    return line


def test_a_server_that_ends_while_it_reads_may_have_seen_the_query() -> None:
    """A kept connection that breaks is tried anew; where no server is left, the query may be what ended it."""

    async def scene() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        upstream, asked = Upstream(*listener.getsockname()), request_bytes("POST", "/", "here")
        first = asyncio.to_thread(_answering, listener)
        (status, _), kept = await asyncio.gather(whole(upstream, asked), first)

        def ended() -> None:
            kept.recv(1000)
            listener.close()
            kept.close()

        with pytest.raises(OSError, match="the server hung up") as caught:
            await asyncio.gather(whole(upstream, asked), asyncio.to_thread(ended))
        assert (status, isinstance(caught.value, ConnectionError)) == (200, False)
        with pytest.raises(ConnectionError, match="no connection to"):
            await whole(upstream, asked)

    asyncio.run(scene())


@pytest.mark.parametrize("twice", [True, False])
def test_a_server_that_hangs_up_is_asked_again_only_with_the_models_word(twice: bool) -> None:
    """It read the query, and may have carried it out; what listens there now is another, or the same anew."""

    async def scene() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(5.0 if twice else 0.1)
        upstream = Upstream(*listener.getsockname(), twice=twice)
        asked = request_bytes("POST", "/", "here")
        _, kept = await asyncio.gather(whole(upstream, asked), asyncio.to_thread(_answering, listener))

        def ended() -> bool:
            kept.recv(1000)
            kept.close()
            with suppress(TimeoutError):
                _answering(listener)
                return True
            return False

        again = asyncio.create_task(asyncio.to_thread(ended))
        if twice:
            assert (await whole(upstream, asked))[0] == 200
        else:
            with pytest.raises(OSError, match="the server hung up"):
                await whole(upstream, asked)
        assert await again == twice

    asyncio.run(scene())


@pytest.mark.parametrize("said", [{}, {"retry": False}])
def test_the_connections_of_a_model_know_its_word(said: dict[str, Any]) -> None:
    async def scene() -> None:
        made = {"command": [], "url": "http://127.0.0.1:9", "environment": {}, "timeout_s": 1.0, **said}
        assert OtherServer(made).upstream.twice == (said == {})
        link = SimpleNamespace(address="127.0.0.1", port=9)
        lane = SimpleNamespace(unit="w-0", name="w.a", link=link, retry=said == {})
        assert StreamRouter({}, None)._instance(lane, 0, {}).upstream.twice == lane.retry  # type: ignore[arg-type]

    asyncio.run(scene())


def test_a_connection_that_was_closed_while_idle_is_not_asked() -> None:
    async def scene() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        upstream, asked = Upstream(*listener.getsockname()), request_bytes("POST", "/", "here")
        _, kept = await asyncio.gather(whole(upstream, asked), asyncio.to_thread(_answering, listener))
        listener.close()
        kept.close()  # and the loop has not been back to see it
        with pytest.raises(ConnectionError, match="no connection to"):
            await whole(upstream, asked)

    asyncio.run(scene())


@pytest.mark.slow
def test_openai_servers_get_the_request_and_the_models_name(serve: Callable[..., tuple[Deployment, Client]]) -> None:
    _, client = serve(protocol="openai")
    request = {"messages": [{"role": "user", "content": "hello"}]}
    said = client.post(body={"inputs": request})[1]["outputs"]
    assert (said["model"], said["choices"][0]["message"]["content"]) == ("m", "HELLO")
    assert "leave out stream" in client.post(body={"inputs": {**request, "stream": True}})[1]["why"]
    assert "an object" in client.post(body={"inputs": 3})[1]["why"]


@pytest.mark.slow
def test_kserve_servers_get_tensors(serve: Callable[..., tuple[Deployment, Client]]) -> None:
    _, client = serve(protocol="kserve-v2")
    said = client.post(body={"inputs": {"x": [[1, 2], [3, 4]]}})[1]["outputs"]
    assert said == {"y": [[2, 4], [6, 8]], "rows": [2, 2]}
    assert "tensors by name" in client.post(body={"inputs": [1, 2]})[1]["why"]
    assert "rows differ in length" in client.post(body={"inputs": {"x": [[1, 2], [3]]}})[1]["why"]


@pytest.mark.slow
def test_a_batch_of_tensors_is_one_request(serve: Callable[..., tuple[Deployment, Client]]) -> None:
    """Four queries come while the batch is gathered: they go together, and each gets its own rows."""
    from concurrent.futures import ThreadPoolExecutor

    batching = make_worker("w1", 1, load={"serve": {"max_batch": 4, "max_wait_ms": 3000}})
    _, client = serve(batching, protocol="kserve-v2")
    at = f"http://{client.connection.host}:{client.connection.port}"
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(lambda n=n: Client(at).post(body={"inputs": {"x": [[n, n]]}})[1]) for n in range(4)]
        said = [one.result(120.0) for one in asked]
    assert [one["outputs"]["y"] for one in said] == [[[2 * n, 2 * n]] for n in range(4)]
    assert {one["outputs"]["rows"][0] for one in said} == {4}
    assert {one["path"][0]["batch"] for one in said} == {4}


def test_a_command_that_ends_before_it_is_ready_is_named(deploy: Callable[..., Deployment]) -> None:
    from hetplan.executor.target import ApplyFailed

    deployment = deploy(models={"*": {"command": [sys.executable, "-c", "import sys; sys.exit(4)"]}})
    with pytest.raises(ApplyFailed, match="ended with 4 before it was ready"):
        deployment.apply(make_plan(make_worker("w1", 1)))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({}, "is started by `command` or runs at `url`"),
        ({"command": ["a"], "url": "http://b:1"}, "is started by `command` or runs at `url`"),
        ({"url": "ftp://b"}, "url"),
        ({"command": ["a", "{nothing}"]}, "has no {nothing}"),
    ],
)
def test_rules_that_are_wrong_are_named(tmp_path: Path, rule: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError) as refused:
        wanted(make_plan(make_worker("w1")), make_hosts(tmp_path, models={"*": {**rule}}))
    assert why in str(refused.value)


def test_what_is_joined_comes_apart_again() -> None:
    queries = [{"x": [[[1, 2]], [[3, 4]]]}, {"x": [[[5, 6]]]}]
    request, rows = joined(queries)
    (x,) = request["inputs"]
    assert (x["shape"], rows) == ([3, 1, 2], [2, 1])
    assert split_outputs({"outputs": [x]}, rows) == queries
    with pytest.raises(ValueError, match="3 rows for 4"):
        split_outputs({"outputs": [x]}, [2, 2])
