"""Another server behind a load: any that speaks HTTP, started by the worker or running already.

Three ways to ask it: `plain` (the query's inputs as the body), `openai` (the inputs are the request; the model's name
is filled in), `kserve-v2` (the Open Inference Protocol: tensors by name, a batch joined along their first axis). The
batches of `plain` and `openai` are requests side by side; such servers batch by themselves. Who asks for a stream gets
the server's own, as it comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.http_client import Upstream, request_bytes, whole
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.models import Done, Result
from hetplan.executor.serving.openai_words import Asked
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.relay import Relay

__all__ = ["HttpModel", "OtherServer", "as_model", "joined", "split_outputs", "tensor"]

_LOOK_S, _READY_S = 0.1, 5.0
_JSON = "application/json"


class OtherServer:
    """A server that a load is behind: started here, and again when it has ended, or running at an address already."""

    def __init__(self, made: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        self.made, self._environment = made, {**made["environment"], **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        url = urlsplit(made["url"] or "http://127.0.0.1:0")
        self.upstream = Upstream(url.hostname or "127.0.0.1", url.port or 80)

    @property
    def ended(self) -> bool:
        """Whether it was ours and is no more."""
        return self._process is not None and self._process.returncode is not None

    async def prepare(self) -> None:
        """Start the server, if it is ours to start, and wait until it says that it is ready."""
        async with self._starting:
            if self.made["command"] and (self._process is None or self.ended):
                port = self.made["port"] or _free_port()
                self.upstream.close()
                self.upstream = Upstream("127.0.0.1", port)
                words = [word.replace("{port}", str(port)) for word in self.made["command"]]
                self._process = await asyncio.create_subprocess_exec(
                    *words, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **self._environment}
                )
            await self._until_ready()

    def close(self) -> None:
        """End the server, if it was ours."""
        self.upstream.close()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def request(self, path: str, body: bytes, kind: str = _JSON) -> bytes:
        """A POST as it goes to this server."""
        return request_bytes("POST", path, self.upstream.host, (("content-type", kind),), body)

    async def _until_ready(self) -> None:
        """The keeper's limit for a start ends this wait, if nothing else does."""
        asked = request_bytes("GET", self.made["ready"], self.upstream.host)
        while True:
            if self._process is not None and self.ended:
                raise ValueError(f"{self.made['command'][0]} ended with {self._process.returncode} before it was ready")
            with suppress(OSError, TimeoutError):
                status, _ = await asyncio.wait_for(whole(self.upstream, asked), _READY_S)
                if status < 300:
                    return
            await asyncio.sleep(_LOOK_S)


class HttpModel:
    """A server of hosts.toml that serves one load."""

    def __init__(self, made: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop) -> None:
        self._made, self._loop = made, loop
        self._server = OtherServer(made)
        self._under_way: set[asyncio.Task[None]] = set()
        self.open = 0

    async def prepare(self) -> None:
        """Have the server ready."""
        await self._server.prepare()

    def close(self) -> None:
        """Let go of it."""
        self._server.close()

    def stream(
        self, exchange: Exchange, path: str, asked: Asked | None, instance: int, ended: Callable[[bool], None]
    ) -> None:  # fmt: skip
        """Pass a request on, and its answer as it comes."""
        del instance  # there is one server
        body, route = exchange.body, self._made["route"]
        if asked is not None and self._made["protocol"] == "openai":
            body, route = as_model(asked, self._made["model"], body), path
        self.open += 1

        def over(well: bool) -> None:
            self.open -= 1
            ended(well)

        Relay(exchange, over).send(
            self._server.upstream, self._server.request(route, body, exchange.headers.get("content-type", _JSON))
        )

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch."""
        task = self._loop.create_task(self._run(queries, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _run(self, queries: Sequence[Query], done: Done) -> None:
        results: Sequence[Result]
        try:
            if self._server.ended:
                await asyncio.wait_for(self.prepare(), self._made["timeout_s"])
            results = await asyncio.wait_for(self._asked(queries), self._made["timeout_s"])
        except (OSError, ValueError, TimeoutError, EOFError) as error:
            why = str(error) or f"no answer within {self._made['timeout_s']:g} s"
            results = [Result(FAILED, b"", why[:500].encode())] * len(queries)
        done(results)

    async def _asked(self, queries: Sequence[Query]) -> Sequence[Result]:
        if self._made["protocol"] == "kserve-v2":
            return await self._infer(queries)
        return await asyncio.gather(*(self._one(query) for query in queries))

    async def _one(self, query: Query) -> Result:
        inputs, kind = query.inputs, _JSON
        if self._made["protocol"] == "openai":
            if not isinstance(inputs, dict):
                return Result(FAILED, b"", b"the inputs of this load are a request in OpenAI's form, an object")
            if inputs.get("stream"):
                return Result(FAILED, b"", b"this route answers whole: leave out stream, or ask /v1/chat/completions")
            inputs = {"model": self._made["model"], **inputs}
        body = inputs if isinstance(inputs, bytes) else json.dumps(inputs).encode()
        if isinstance(inputs, bytes):
            kind = "application/octet-stream"
        return _as_result(*await self._request(body, kind))

    async def _infer(self, queries: Sequence[Query]) -> Sequence[Result]:
        asked, rows = joined([query.inputs for query in queries])
        status, content = await self._request(json.dumps(asked).encode(), _JSON)
        if status != 200:
            return [_as_result(status, content)] * len(queries)
        answers = split_outputs(json.loads(content), rows)
        return [Result(SERVED, b"", json.dumps(answer).encode()) for answer in answers]

    async def _request(self, body: bytes, kind: str) -> tuple[int, bytes]:
        return await whole(self._server.upstream, self._server.request(self._made["route"], body, kind))


def as_model(asked: Asked, name: str, body: bytes) -> bytes:
    """The body with the name by which the server knows its model."""
    return body if asked.model == name else json.dumps({**asked.said, "model": name}).encode()


def _as_result(status: int, content: bytes) -> Result:
    if status >= 300:
        return Result(FAILED, b"", f"the server answered {status}: {content[:300].decode(errors='replace')}".encode())
    try:
        json.loads(content or b"null")
    except ValueError:
        content = json.dumps(content.decode(errors="replace")).encode()
    return Result(SERVED, b"", content or b"null")


# The Open Inference Protocol


def joined(inputs: Sequence[Any]) -> tuple[dict[str, Any], list[int]]:
    """Queries as one request, and how many rows each has; ValueError says what is wrong with one.

    >>> joined([{"x": [[1, 2]]}, {"x": [[3, 4], [5, 6]]}])[1]
    [1, 2]
    >>> joined([{"x": [[1, 2]]}])[0]["inputs"]
    [{'name': 'x', 'shape': [1, 2], 'datatype': 'INT64', 'data': [1, 2]}]
    """
    first = inputs[0]
    if not all(isinstance(one, dict) and one.keys() == first.keys() and one for one in inputs):
        raise ValueError(
            'the inputs of this load are tensors by name: {"x": [[1.0, 2.0]]}, the same names in each query'
        )
    rows = []
    for one in inputs:
        lengths = {len(value) if isinstance(value, list) else 0 for value in one.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError("the tensors of a query have one first axis, of the same length")
        rows.append(lengths.pop())
    return {"inputs": [tensor(name, [row for one in inputs for row in one[name]]) for name in first]}, rows


def tensor(name: str, value: list[Any]) -> dict[str, Any]:
    """A nested list as a tensor, row by row.

    >>> tensor("x", [[1.5, 2], [3, 4]])
    {'name': 'x', 'shape': [2, 2], 'datatype': 'FP32', 'data': [1.5, 2, 3, 4]}
    """
    shape: list[int] = []
    data: list[Any] = [value]
    while data and isinstance(data[0], list):
        shape.append(len(data[0]))
        if any(not isinstance(one, list) or len(one) != shape[-1] for one in data):
            raise ValueError(f"{name}: the rows differ in length")
        data = [item for one in data for item in one]
    kinds = {type(item) for item in data}
    datatype = {bool: "BOOL", int: "INT64", str: "BYTES"}.get(kinds.pop() if len(kinds) == 1 else float, "FP32")
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def split_outputs(answer: Any, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What each query gets of the outputs: its rows of each tensor.

    >>> said = {"outputs": [{"name": "y", "shape": [3, 2], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}]}
    >>> split_outputs(said, [1, 2])
    [{'y': [[1, 2]]}, {'y': [[3, 4], [5, 6]]}]
    """
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "data" in one for one in outputs):
        raise ValueError("the server's answer has no outputs with data")
    found: list[dict[str, Any]] = [{} for _ in rows]
    for one in outputs:
        nested = _nested(one["data"], one["shape"])
        if len(nested) != sum(rows):
            raise ValueError(f"{one['name']} has {len(nested)} rows for {sum(rows)}")
        at = 0
        for place, count in enumerate(rows):
            found[place][one["name"]] = nested[at : at + count]
            at += count
    return found


def _nested(data: list[Any], shape: Sequence[int]) -> list[Any]:
    for length in reversed(list(shape)[1:]):
        data = [data[at : at + length] for at in range(0, len(data), length)]
    return data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
