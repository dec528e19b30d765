"""Other servers behind a load: any that speak HTTP, started by the worker, running already, or an API of others.

A load of kind "openai" makes text and has a server per instance; every other has one.

Three ways to ask it: `plain` (the query's inputs as the body), `openai` (the inputs are the request; the model's name
is filled in), `kserve-v2` (the Open Inference Protocol: tensors by name, a batch joined along their first axis). The
batches of `plain` and `openai` are requests side by side; such servers batch by themselves. Who asks for a stream gets
the server's own, as it comes.

A call fails where no answer comes in time. One of an API also fails where too many are made (429) or the API itself
fails (5xx); it is made again as often, and `retry_ms` after the one before it began, as the plan counts on.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.http_client import Upstream, request_bytes, whole
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.models import Done, Result, as_outcome, failed, refused
from hetplan.executor.serving.open_inference import joined, split_outputs
from hetplan.executor.serving.openai_words import Asked, as_error
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.relay import Relay

__all__ = ["HttpModel", "OtherServer", "key_of"]

_LOOK_S, _READY_S, _END_S, _WATCH_S, _AGAIN_S = 0.1, 5.0, 1.0, 0.2, 1.0
_JSON = "application/json"
_TOO_MANY, _ITS_FAULT = 429, 500


class OtherServer:
    """A server behind a load: started here, and again when it has ended, or running at an address already."""

    def __init__(self, made: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        self.made, self._environment = made, {**made["environment"], **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        url = urlsplit(made["url"] or "http://127.0.0.1:0")
        tls = ssl.create_default_context() if url.scheme == "https" else None
        self._twice, self._key = bool(made.get("retry", True)), tuple[tuple[str, str], ...]()
        self.upstream = Upstream(url.hostname or "", url.port or (443 if tls else 80), tls, twice=self._twice)

    @property
    def ended(self) -> bool:
        """Whether it was ours and is no more."""
        return self._process is not None and self._process.returncode is not None

    async def gone(self) -> bool:
        """Whether it was ours and is no more, even where its end was not reported yet."""
        if self._process is None:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_S)
        return self.ended

    async def prepare(self) -> None:
        """Start the server, if it is ours to start, and wait until it says that it is ready; read an API's key."""
        if (key := key_of(self.made)) is not None:
            name = self.made["header"]
            self._key = ((name, f"Bearer {key}" if name.lower() == "authorization" else key),)
        async with self._starting:
            if self.made["command"] and (self._process is None or self.ended):
                port = self.made["port"] or _free_port()
                self.upstream.close()
                self.upstream = Upstream("127.0.0.1", port, twice=self._twice)
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
        return request_bytes("POST", path, self.upstream.host, (("content-type", kind), *self._key), body)

    async def _until_ready(self) -> None:
        """The keeper's limit for a start ends this wait, if nothing else does; without an address there is none."""
        if self.made["ready"] is None:
            return
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
    """The servers of one load: one for each environment. One that ends is started again."""

    def __init__(
        self, made: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop,
        environments: Sequence[Mapping[str, str]] = ({},),
    ) -> None:  # fmt: skip
        self._made, self._loop, self._makes_text = made, loop, made.get("kind") == "openai"
        self._servers = [OtherServer(made, more) for more in environments]
        self._server = self._servers[0]
        self._watching: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self.open = 0

    async def prepare(self) -> None:
        """Have all servers ready; they load side by side."""
        try:
            await asyncio.gather(*(server.prepare() for server in self._servers))
        except BaseException:
            self.close()
            raise
        if self._makes_text and self._watching is None:
            self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        """Start those again that end: requests for text go by the router's choice, and would find nobody."""
        while True:
            await asyncio.sleep(_WATCH_S)
            for server in self._servers:
                if server.ended:
                    try:
                        await asyncio.wait_for(server.prepare(), self._made["timeout_s"])
                    except (OSError, ValueError, TimeoutError):
                        await asyncio.sleep(_AGAIN_S)

    def close(self) -> None:
        """Let go of them, and end those that are ours."""
        if self._watching is not None:
            self._watching.cancel()
        for server in self._servers:
            server.close()

    def stream(
        self, exchange: Exchange, path: str, asked: Asked | None, instance: int, ended: Callable[[bool], None]
    ) -> None:  # fmt: skip
        """Pass a request on, and its answer as it comes."""
        server = self._servers[instance % len(self._servers)]
        if server.ended and self._makes_text:
            why = as_error("this instance is being started again", kind="server_error")
            exchange.answer(503, why, fields=b"retry-after: 1\r\n")
            ended(False)
            return
        body, route = exchange.body, self._made["route"]
        kind = exchange.headers.get("content-type", _JSON)
        if asked is not None and self._made["protocol"] == "openai":
            body, route, kind = as_model(asked, self._made["model"], body), path, _JSON
        self.open += 1

        def over(well: bool) -> None:
            self.open -= 1
            ended(well)

        Relay(exchange, over).send(server.upstream, server.request(route, body, kind))

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch; of a load that makes text, refuse it."""
        if self._makes_text:
            done(refused(len(queries)))
            return
        task = self._loop.create_task(self._run(queries, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _run(self, queries: Sequence[Query], done: Done) -> None:
        results: Sequence[Result]
        try:
            if self._server.ended:
                await asyncio.wait_for(self.prepare(), self._made["timeout_s"])
            results = await self._asked(queries)
        except Exception as error:
            results = failed(error, len(queries), limit_s=self._made["timeout_s"])
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
        return self._judged(_as_result(*await self._request(body, kind)))

    def _judged(self, result: Result) -> Result:
        """A result with what it comes to, where what follows depends on it."""
        place = self._made.get("outcome")
        if place is None or result.outcome != SERVED:
            return result
        return result._replace(step_outcome=as_outcome(_found_at(json.loads(result.body), place)))

    async def _infer(self, queries: Sequence[Query]) -> Sequence[Result]:
        asked, rows = joined([query.inputs for query in queries])
        status, content = await self._request(json.dumps(asked).encode(), _JSON)
        if status != 200:
            return [_as_result(status, content)] * len(queries)
        answers = split_outputs(json.loads(content), rows)
        return [self._judged(Result(SERVED, b"", json.dumps(answer).encode())) for answer in answers]

    async def _request(self, body: bytes, kind: str) -> tuple[int, bytes]:
        data = self._server.request(self._made["route"], body, kind)
        for _ in range(self._made.get("retries", 0)):
            until_s = monotonic() + self._made["retry_ms"] / 1e3
            with suppress(OSError):  # no answer in time among them
                status, content = await asyncio.wait_for(self._once(data), self._made["timeout_s"])
                if status != _TOO_MANY and status < _ITS_FAULT:
                    return status, content
            await asyncio.sleep(until_s - monotonic())
        return await asyncio.wait_for(self._once(data), self._made["timeout_s"])

    async def _once(self, data: bytes) -> tuple[int, bytes]:
        try:
            return await whole(self._server.upstream, data)
        except ConnectionError:  # no server has seen it: asking a new one serves it once
            if not await self._server.gone():
                raise
        await self.prepare()
        return await whole(self._server.upstream, data)


def key_of(made: Mapping[str, Any]) -> str | None:
    """The key of an API, read where the calls are made; ValueError where it cannot be."""
    place, key = made.get("key_file") or made.get("key_env"), None
    if place is None:
        return None
    with suppress(OSError, UnicodeDecodeError):
        key = Path(place).read_text().strip() if made["key_file"] else os.environ.get(place)
    if not key or not key.isascii() or not key.isprintable():
        what = "key_file" if made["key_file"] else "key_env"
        raise ValueError(f"{what} {place}: no key of printable letters there, on the machine that makes the calls")
    return key


def as_model(asked: Asked, name: str, body: bytes) -> bytes:
    """The body with the name by which the server knows its model."""
    return body if asked.model == name else json.dumps({**asked.said, "model": name}).encode()


def _found_at(answer: Any, place: str) -> Any:
    """What an answer says at a place; None where it has no such place.

    >>> _found_at({"choices": [{"finish_reason": "stop"}]}, "choices.0.finish_reason"), _found_at({"a": 1}, "a.b")
    ('stop', None)
    """
    for name in place.split("."):
        if isinstance(answer, Mapping):
            answer = answer.get(name)
        elif isinstance(answer, list) and name.isdecimal() and int(name) < len(answer):
            answer = answer[int(name)]
        else:
            return None
    return answer if isinstance(answer, str | int | float) else None


def _as_result(status: int, content: bytes) -> Result:
    if status >= 300:
        return Result(FAILED, b"", f"the server answered {status}: {content[:300].decode(errors='replace')}".encode())
    try:
        json.loads(content or b"null")
    except ValueError:
        content = json.dumps(content.decode(errors="replace")).encode()
    return Result(SERVED, b"", content or b"null")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
