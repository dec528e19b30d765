"""Workers, servers and answers that are not as they should be: each costs its own query, never those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetplan.executor.serving.applications import Tally
from hetplan.executor.serving.frames import FAILED
from hetplan.executor.serving.http_model import HttpModel
from hetplan.executor.serving.links import Link
from hetplan.executor.serving.models import Result
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.query_tree import QueryState
from hetplan.executor.serving.router import Router


class Cannot:
    """An exchange whose answer cannot be written."""

    gone = False

    def __init__(self) -> None:
        self.said: list[int] = []

    def answer(self, status: int, body: bytes = b"", **_: Any) -> None:
        self.said.append(status)
        if status == 200:
            raise TypeError("an output of no known type")


def test_an_answer_that_cannot_be_written_ends_its_own_query(tmp_path: Path) -> None:
    """It is written while the worker's frames are read: what it raised would end the link with all others' answers."""
    errors: list[dict[str, Any]] = []

    async def run() -> list[int]:
        router, exchange = Router(tmp_path / "routes.json"), Cannot()
        router._loop = asyncio.get_running_loop()
        router._loop.set_exception_handler(lambda _, said: errors.append(said))
        app = SimpleNamespace(tally=Tally(), steps=SimpleNamespace(sinks=1), slo_s=1.0)
        query = QueryState(app, exchange, {}, (), 0.0, brief=True, open=1)
        router._queries[id(query)] = query
        router._close(query)
        return exchange.said

    assert asyncio.run(run()) == [200, 500]
    assert isinstance(errors[0]["exception"], TypeError)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 401 No\r\n\r\n", b"\0" * 100_000, b""], ids=["refuses", "endless", "hangs up"]
)
def test_a_worker_that_takes_no_link_is_asked_ever_more_seldom(said: bytes) -> None:
    asked: list[int] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        writer.write(said)
        if not said:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = Link("w", "127.0.0.1", port, on_done=print, on_ready=print, on_lost=lambda *_: None)
        await asyncio.sleep(1.0)
        assert not link.ready
        link.close()
        server.close()

    asyncio.run(run())
    assert 2 <= len(asked) <= 8  # 20, 40, 80 ms and so on


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("plain", b"[" * 100_000), ("plain", b'{"a": ' * 50_000), ("openai", b"[" * 100_000),
        ("kserve-v2", b"[" * 100_000), ("kserve-v2", b'{"outputs": [{"name": "y", "data": 5, "shape": 7}]}'),
        ("kserve-v2", b'{"outputs": [{"data": [1], "shape": [1]}]}'), ("kserve-v2", b"[]"), ("kserve-v2", b"\xff"),
    ],
    ids=str,
)  # fmt: skip
def test_a_server_that_answers_anything_costs_its_query_and_no_place(protocol: str, said: bytes) -> None:
    """A batch that is never done keeps a server of the worker for good."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(said), said))
        await writer.drain()
        writer.close()

    async def run() -> Sequence[Result]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        made = {
            "command": [], "url": f"http://127.0.0.1:{port}", "port": 0, "protocol": protocol, "ready": None,
            "route": "/", "timeout_s": 20.0, "environment": {}, "model": "m", "outcome": "a.b",
        }  # fmt: skip
        model = HttpModel(made, loop=asyncio.get_running_loop())
        done: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        model.run([Query({}, {"x": [[1.0]]})], done.set_result)
        found = await asyncio.wait_for(done, 30.0)
        model.close()
        server.close()
        return found

    (result,) = asyncio.run(run())
    assert (result.outcome, bool(result.body)) == (FAILED, True)
