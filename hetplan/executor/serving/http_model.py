"""Another server behind a load: any that speaks HTTP, started by the worker or running already.

Three ways to ask it: `plain` (the query's inputs as the body), `openai` (the inputs are the request; the model's name
is filled in), `kserve-v2` (the Open Inference Protocol: tensors by name, a batch joined along their first axis). The
batches of `plain` and `openai` are requests side by side; such servers batch by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.models import Done, Result
from hetplan.executor.serving.query_body import Query

__all__ = ["HttpModel", "joined", "split_outputs", "tensor"]

_LOOK_S = 0.1
_JSON = "application/json"


class HttpModel:
    """A server of hosts.toml that serves one load."""

    def __init__(self, made: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop) -> None:
        self._made, self._loop = made, loop
        self._process: asyncio.subprocess.Process | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._idle: list[_Connection] = []
        url = urlsplit(made["url"] or "http://127.0.0.1:0")
        self._host, self._port = url.hostname or "127.0.0.1", url.port or 80

    async def prepare(self) -> None:
        """Start the server, if it is ours to start, and wait until it says that it is ready."""
        async with self._starting:
            if self._made["command"] and (self._process is None or self._process.returncode is not None):
                self._port = self._made["port"] or _free_port()
                words = [word.replace("{port}", str(self._port)) for word in self._made["command"]]
                self._process = await asyncio.create_subprocess_exec(
                    *words, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **self._made["environment"]}
                )
            await self._until_ready()

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch."""
        task = self._loop.create_task(self._run(queries, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """End the server, if it was ours."""
        for connection in self._idle:
            connection.close()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _run(self, queries: Sequence[Query], done: Done) -> None:
        results: Sequence[Result]
        try:
            if self._process is not None and self._process.returncode is not None:
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
                return Result(FAILED, b"", b"answers of this load come whole: leave out stream")
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
        """One POST. A kept connection that the server has closed meanwhile is replaced once."""
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else await _Connection.open(self._host, self._port)
            try:
                answer = await connection.ask("POST", self._made["route"], body, kind)
            except (OSError, EOFError):
                connection.close()
                if kept:
                    continue
                raise
            if connection.keeps:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    async def _until_ready(self) -> None:
        """The keeper's limit for a start ends this wait, if nothing else does."""
        while True:
            if self._process is not None and self._process.returncode is not None:
                raise ValueError(
                    f"{self._made['command'][0]} ended with {self._process.returncode} before it was ready"
                )
            with suppress(OSError, EOFError, ValueError):
                connection = await _Connection.open(self._host, self._port)
                status, _ = await connection.ask("GET", self._made["ready"], b"", _JSON)
                connection.close()
                if status < 300:
                    return
            await asyncio.sleep(_LOOK_S)


def _as_result(status: int, content: bytes) -> Result:
    if status >= 300:
        return Result(FAILED, b"", f"the server answered {status}: {content[:300].decode(errors='replace')}".encode())
    try:
        json.loads(content or b"null")
    except ValueError:
        content = json.dumps(content.decode(errors="replace")).encode()
    return Result(SERVED, b"", content or b"null")


class _Connection:
    """One connection to the server; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host
        self.keeps = True

    @classmethod
    async def open(cls, host: str, port: int) -> _Connection:
        return cls(*await asyncio.open_connection(host, port), host)

    async def ask(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        )
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = _Answer()
        parser = HttpResponseParser(answer)
        while not answer.whole:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError("the server hung up")
            try:
                parser.feed_data(data)
            except HttpParserError as error:
                raise ValueError(f"the server speaks no HTTP: {error}") from None
        self.keeps = parser.should_keep_alive()
        return parser.get_status_code(), b"".join(answer.pieces)

    def close(self) -> None:
        self._writer.close()


class _Answer:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.whole = False

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.whole = True


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
