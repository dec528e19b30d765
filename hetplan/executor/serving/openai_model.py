"""Servers of OpenAI's protocol behind a load that makes text: one per instance, each with its part of the GPUs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hetplan.executor.serving.embedded_engine import NOT_SO
from hetplan.executor.serving.frames import FAILED
from hetplan.executor.serving.http_model import OtherServer, as_model
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.models import Done, Result
from hetplan.executor.serving.openai_words import Asked, as_error
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.relay import Relay

__all__ = ["OpenaiModel", "apart_from_engines"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOOK_S, _AGAIN_S = 0.2, 1.0


class OpenaiModel:
    """The servers of one load. One that ends is started again; until then its requests are refused.

    `beside` says what engines of each load of the worker take of its GPUs, in order; this load is the one of `number`.
    """

    def __init__(
        self, made: Mapping[str, Any], instances: int, *, loop: asyncio.AbstractEventLoop,
        beside: Sequence[int] = (), number: int = 0,
    ) -> None:  # fmt: skip
        self._made, self._loop = made, loop
        every = os.environ.get(_VISIBLE)
        own = gpus_of(every, beside, number)
        parts = [part or (own if own != every else None) for part in gpus_apart(own, instances)]
        self._servers = [OtherServer(made, {_VISIBLE: part} if part is not None else None) for part in parts]
        self._watching: asyncio.Task[None] | None = None
        self.open = 0

    async def prepare(self) -> None:
        """Have all servers ready; they load side by side."""
        try:
            await asyncio.gather(*(server.prepare() for server in self._servers))
        except BaseException:
            self.close()
            raise
        self._watching = self._loop.create_task(self._watch())

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Queries of other protocols are refused."""
        done([Result(FAILED, b"", NOT_SO)] * len(queries))

    def close(self) -> None:
        """End the servers that are ours."""
        if self._watching is not None:
            self._watching.cancel()
        for server in self._servers:
            server.close()

    def stream(self, exchange: Exchange, path: str, asked: Asked, instance: int, ended: Callable[[bool], None]) -> None:
        """Pass a request on to a server, and its answer as it comes."""
        server = self._servers[instance % len(self._servers)]
        if server.ended:
            why = as_error("this instance is being started again", kind="server_error")
            exchange.answer(503, why, fields=b"retry-after: 1\r\n")
            ended(False)
            return
        self.open += 1

        def over(well: bool) -> None:
            self.open -= 1
            ended(well)

        body = as_model(asked, self._made["model"], exchange.body)
        Relay(exchange, over).send(server.upstream, server.request(path, body))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for server in self._servers:
                if server.ended:
                    try:
                        await asyncio.wait_for(server.prepare(), self._made["timeout_s"])
                    except (OSError, ValueError, TimeoutError):
                        await asyncio.sleep(_AGAIN_S)


def gpus_of(visible: str | None, takes: Sequence[int], number: int) -> str | None:
    """The GPUs that a worker sees for one of its loads, where each takes so many; all, where these are too few.

    Loads that are no engines (0) have those before the GPUs of the engines: most programs begin with the first.

    >>> gpus_of("0,1,2,3,4,5", [2, 4], 1), gpus_of("0,1", [2, 4], 1), gpus_of(None, [2, 4], 1)
    ('2,3,4,5', '0,1', None)
    >>> [gpus_of("0,1,2,3", [1, 0, 2], number) for number in range(3)]
    ['1', '0', '2,3']
    """
    listed = visible.split(",") if visible else []
    if len(takes) < 2 or sum(takes) > len(listed):
        return visible
    left = len(listed) - sum(takes) if 0 in takes else 0
    if not takes[number]:
        return ",".join(listed[:left]) or visible
    return ",".join(listed[left + sum(takes[:number]) :][: takes[number]])


def apart_from_engines(made: Mapping[str, Any], takes: Sequence[int], number: int) -> dict[str, Any]:
    """The model of a load beside engines: a program of its own sees their GPUs only where its rule says so.

    >>> apart_from_engines({"environment": {"A": "b"}}, [0, 1], 0)["environment"].get("A")
    'b'
    """
    seen = gpus_of(os.environ.get(_VISIBLE), takes, number)
    others = {_VISIBLE: seen} if seen is not None else {}
    return {**made, "environment": {**others, **made["environment"]}}


def gpus_apart(visible: str | None, instances: int) -> list[str | None]:
    """The GPUs that a worker sees, dealt out to its instances in equal parts.

    >>> gpus_apart("0,1,2,3", 2), gpus_apart(None, 2), gpus_apart("0", 1)
    (['0,1', '2,3'], [None, None], [None])
    """
    listed = visible.split(",") if visible else []
    each = len(listed) // instances
    if instances == 1 or not each:
        return [None] * instances
    return [",".join(listed[each * place : each * (place + 1)]) for place in range(instances)]
