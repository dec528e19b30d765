"""Requests to another server of HTTP, answered piece by piece: what streams pass through, in router and worker."""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Iterable
from typing import Any, Protocol

from httptools import HttpParserError, HttpResponseParser

from hetplan.executor.serving.process import Receiver
from hetplan.executor.units import in_url

__all__ = ["Call", "Taker", "Upstream", "request_bytes", "whole"]

_MOST_IDLE = 64
_CONNECT_S = 5.0
_HUNG_UP = "the server hung up"


class Taker(Protocol):
    """Who takes an answer. After `end` or `lost` nothing more comes; after `Call.cancel` nothing at all."""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The answer begins."""
        ...

    def piece(self, data: bytes) -> None:
        """More of its body."""
        ...

    def end(self) -> None:
        """It is whole."""
        ...

    def lost(self, why: str) -> None:
        """It will not come, or not whole."""
        ...


def request_bytes(
    method: str, path: str, host: str, fields: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> bytes:
    """A whole request.

    >>> request_bytes("GET", "/health", "here")
    b'GET /health HTTP/1.1\\r\\nhost: here\\r\\ncontent-length: 0\\r\\n\\r\\n'
    """
    lines = [f"{method} {path} HTTP/1.1", f"host: {in_url(host)}", *(f"{name}: {value}" for name, value in fields)]
    lines += [f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


class Call:
    """A request that is under way."""

    __slots__ = ("_held", "_line", "_task", "data", "sent", "taker")

    def __init__(self, data: bytes, taker: Taker) -> None:
        self.data, self.taker = data, taker
        self.sent = False  # whether a server may have seen it
        self._line: _Line | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = False

    def cancel(self) -> None:
        """Hang up: the server sees that nobody listens any more."""
        if self._task is not None:
            self._task.cancel()
        if self._line is not None:
            self._line.call = None
            self._line.transport.abort()
            self._line = None

    def hold(self, held: bool) -> None:
        """Read no more of the answer for now, or go on."""
        if held != self._held and self._line is not None:
            self._held = held
            (self._line.transport.pause_reading if held else self._line.transport.resume_reading)()


class Upstream:
    """Connections to one address, a request at a time on each; idle ones are kept and used again.

    A request on a kept connection that the server closes without a word is sent again on a new one only where it may be
    served twice (`twice`): the server may have closed an idle connection, or have died of this very request.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None, *, twice: bool = True) -> None:
        self.host, self.port, self._tls, self.twice = host, port, tls, twice
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Line] = []

    def ask(self, data: bytes, taker: Taker) -> Call:
        """Send a whole request; what comes of it goes to the taker."""
        call = Call(data, taker)
        while self._idle:
            line = self._idle.pop()
            if line.open:
                line.send(call)
                return call
            line.transport.abort()
        call._task = self._loop.create_task(self._open(call))
        return call

    def close(self) -> None:
        """Close the connections that are idle."""
        for line in self._idle:
            line.transport.abort()
        self._idle.clear()

    async def _open(self, call: Call) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, line = await self._loop.create_connection(lambda: _Line(self), self.host, self.port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            call._task = None
            none = f"no connection to {self.host}:{self.port}: {error or 'it took too long'}"
            call.taker.lost(_HUNG_UP if call.sent else none)
            return
        call._task = None
        line.send(call)

    def _freed(self, line: _Line) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(line)
        else:
            line.transport.abort()

    def _again(self, call: Call) -> None:
        """The server closed a kept connection meanwhile: the same on a new one. It may have seen the request."""
        call._task = self._loop.create_task(self._open(call))


class _Line(Receiver):
    """One connection."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.call: Call | None = None
        self.transport: Any = None
        self._served = 0
        self._measured = self._said = False
        self._parser: HttpResponseParser | None = None
        self._headers: dict[str, str] = {}

    @property
    def open(self) -> bool:
        """Whether an idle connection may be used: not one that the server closed, seen by asyncio already or not."""
        if self.transport.is_closing():
            return False
        look = select.poll()
        look.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return not look.poll(0)

    def send(self, call: Call) -> None:
        """Send the request of a call."""
        self.call, call._line, call.sent = call, self, True
        self._parser, self._headers, self._measured, self._said = HttpResponseParser(self), {}, False, False
        self.transport.write(call.data)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand it to the parser; what is no HTTP ends the connection."""
        if self.call is None or self._parser is None:
            self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._lose(f"the server speaks no HTTP: {error}")
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """A body without a length ends here; anything else that is still due will not come."""
        call = self.call
        if self in self.upstream._idle:
            self.upstream._idle.remove(self)
        if call is not None and self._said and not self._measured and exc is None:
            self.on_message_complete()
        elif call is not None and self._served and not self._said and self.upstream.twice:
            self.call = call._line = None
            self.upstream._again(call)
        else:
            self._lose(_HUNG_UP)
        self._parser = None  # it holds this connection, and would keep it in memory

    def _lose(self, why: str) -> None:
        call, self.call = self.call, None
        if call is not None:
            call._line = None
            call.taker.lost(why)

    # The parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head."""
        key = name.lower().decode("latin-1")
        self._headers[key] = value.decode("latin-1")
        self._measured = self._measured or key in ("content-length", "transfer-encoding")

    def on_headers_complete(self) -> None:
        """The head is whole; one that only says that another follows is left out."""
        if self._parser is None or self._parser.get_status_code() < 200:
            return
        self._said = True
        if self.call is not None:
            self.call.taker.head(self._parser.get_status_code(), self._headers)

    def on_body(self, piece: bytes) -> None:
        """More of the body."""
        if self.call is not None:
            self.call.taker.piece(piece)

    def on_message_complete(self) -> None:
        """The answer is whole: the connection is free, if the server keeps it."""
        if not self._said:
            self._headers, self._measured = {}, False
            return
        call, self.call = self.call, None
        if call is None or self._parser is None:
            return
        call._line = None
        keeps = self._parser.should_keep_alive() and not self.transport.is_closing()
        self._served += 1
        if call._held:
            self.transport.resume_reading()
        call.taker.end()
        if keeps:
            self.upstream._freed(self)
        else:
            self.transport.close()


class _Whole:
    """Gathers an answer."""

    def __init__(self, most: int) -> None:
        self.status, self.pieces, self.held, self.most = 0, list[bytes](), 0, most
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: dict[str, str]) -> None:  # noqa: ARG002 (nobody asks for them)
        self.status = status

    def piece(self, data: bytes) -> None:
        self.held += len(data)
        if self.held <= self.most:
            self.pieces.append(data)

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def lost(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(OSError(why))


async def whole(upstream: Upstream, data: bytes, *, most: int = 64 * 1024 * 1024) -> tuple[int, bytes]:
    """The status and the body of an answer.

    OSError where none comes, or one longer than `most` bytes; ConnectionError where the request was never sent.
    """
    taker = _Whole(most)
    call = upstream.ask(data, taker)
    try:
        await taker.done
    except OSError as error:
        if call.sent:
            raise
        raise ConnectionError(str(error)) from None
    finally:
        call.cancel()
    if taker.held > most:
        raise OSError(f"an answer of more than {most} bytes")
    return taker.status, b"".join(taker.pieces)
