"""An API of somebody else's behind a load: called with its key, at most so often, and called again where it fails.

Its limits hold for all operators that call it: they are in one process, and wait in one line. A call fails where no
answer comes in time, where too many are made (429), or where the API itself fails (5xx); it is made again `retry_ms`
after the one before it began, as the plan counts on. Any other answer is an answer.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from hetplan.executor.serving.http_client import Upstream, request_bytes, whole
from hetplan.executor.serving.http_model import HttpModel

__all__ = ["ApiModel", "key_of"]

_TOO_MANY, _ITS_FAULT = 429, 500
_free_s: dict[str, float] = {}
"""Of each API, when the next call may be made."""


class ApiModel(HttpModel):
    """The calls of one load."""

    def __init__(self, made: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({**made, "command": [], "ready": None, "port": 0, "environment": {}}, loop=loop)
        self._limit_s = None
        self._headers: tuple[tuple[str, str], ...] = ()
        url = urlsplit(made["url"])
        self._host = url.netloc
        tls = ssl.create_default_context() if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        self._server.upstream = Upstream(url.hostname or "", port, tls, twice=made.get("retry", True))

    async def prepare(self) -> None:
        """Read the key; nothing is called before there is a query, as each call is paid for."""
        key = key_of(self._made)
        if key is not None:
            name = self._made["header"]
            self._headers = ((name, f"Bearer {key}" if name.lower() == "authorization" else key),)

    async def _request(self, body: bytes, kind: str) -> tuple[int, bytes]:
        headers = (("content-type", kind), *self._headers)
        data = request_bytes("POST", self._made["route"], self._host, headers, body)
        for again in range(self._made["retries"] + 1):
            began = await self._turn()
            last = again == self._made["retries"]
            try:
                status, content = await asyncio.wait_for(whole(self._server.upstream, data), self._made["timeout_s"])
                if last or (status != _TOO_MANY and status < _ITS_FAULT):
                    return status, content
            except (OSError, TimeoutError):
                if last:
                    raise
            await asyncio.sleep(max(began + self._made["retry_ms"] / 1e3 - monotonic(), 0.0))
        raise AssertionError("the last call returns or raises")

    async def _turn(self) -> float:
        """Wait until one more call keeps the limits; when that is."""
        now = monotonic()
        turn = max(_free_s.get(self._made["api"], now), now)
        _free_s[self._made["api"]] = turn + self._made["gap_s"]
        await asyncio.sleep(turn - now)
        return turn


def key_of(made: Mapping[str, Any]) -> str | None:
    """The key, read where the calls are made; ValueError where it cannot be."""
    place, key = made["key_file"] or made["key_env"], None
    if place is None:
        return None
    with suppress(OSError, UnicodeDecodeError):
        key = Path(place).read_text().strip() if made["key_file"] else os.environ.get(place)
    if not key or not key.isascii() or not key.isprintable():
        what = "key_file" if made["key_file"] else "key_env"
        raise ValueError(f"{what} {place}: no key of printable letters there, on the machine that makes the calls")
    return key
