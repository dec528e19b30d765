"""A small HTTP/1.1 server for one event loop: keep-alive, pipelining, Nagle off, bounded sizes, nothing else.

The heads that clients send are the same again and again: each is parsed once and remembered.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

__all__ = ["MOST_BODY", "Exchange", "HttpConnection", "listen"]

MOST_HEAD, MOST_BODY = 16 * 1024, 64 * 1024 * 1024
_MOST_HEADS = 512
_REASON = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: Mapping[str, str]
    length: int
    closes: bool
    refused: int = 0
    why: str = ""


class Exchange:
    """One request and the way to answer it; answers go out in the order of the requests."""

    __slots__ = ("_answer", "body", "connection", "head")

    def __init__(self, connection: HttpConnection, head: _Head, body: bytes) -> None:
        self.connection, self.head, self.body = connection, head, body
        self._answer: bytes | None = None

    @property
    def method(self) -> str:
        """GET, POST, ..."""
        return self.head.method

    @property
    def path(self) -> str:
        """What was asked for, the query string included."""
        return self.head.path

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, names in lower case."""
        return self.head.headers

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self.connection.transport is None

    def answer(self, status: int, body: bytes = b"", *, kind: bytes = b"application/json", fields: bytes = b"") -> None:
        """Send the answer; `fields` are whole header lines."""
        end = b"connection: close\r\n\r\n" if self.head.closes else b"\r\n"
        self._answer = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b" % (
            _REASON[status], kind, len(body), fields, end, body,
        )  # fmt: skip
        self.connection.flush()


class HttpConnection(asyncio.Protocol):
    """One client; every whole request is handed to `handle` as an `Exchange`."""

    heads: dict[bytes, _Head] = {}  # noqa: RUF012 (one memory for all connections)

    def __init__(self, handle: Callable[[Exchange], None]) -> None:
        self.handle = handle
        self.transport: Any = None
        self._buffer = bytearray()
        self._missing = 0
        self._pending: deque[Exchange] = deque()
        self._next: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nagle off: an answer must not wait for the client's acknowledgement."""
        self.transport = transport
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's name)
        """What is still to be answered is answered into the void."""
        self.transport = None
        self._pending.clear()

    def data_received(self, data: bytes) -> None:
        """Take every whole request out of what came."""
        if self._next is not None:
            self._next(data)
            return
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._missing:
                return
            data, self._buffer = bytes(self._buffer), bytearray()
        self._take(data)

    def _take(self, buffer: bytes) -> None:
        start, size = 0, len(buffer)
        self._missing = 0
        while start < size and self.transport is not None and self._next is None:
            end = buffer.find(b"\r\n\r\n", start, start + MOST_HEAD)
            if end < 0:
                if size - start >= MOST_HEAD:
                    self._refuse(_Head("", "", {}, 0, True, 431, "the head is too long"))
                    return
                break
            raw = buffer[start:end]
            head = self.heads.get(raw)
            if head is None:
                head = _parsed(raw)
                if len(self.heads) >= _MOST_HEADS:
                    self.heads.clear()
                self.heads[raw] = head
            if head.refused:
                self._refuse(head)
                return
            after = end + 4 + head.length
            if after > size:
                self._missing = after - start
                break
            exchange = Exchange(self, head, buffer[end + 4 : after])
            self._pending.append(exchange)
            start = after
            self.handle(exchange)
        rest = buffer[start:]
        if self._next is not None and rest:
            self._next(rest)
        elif rest:
            self._buffer = bytearray(rest)

    def flush(self) -> None:
        """Write the answers that are ready and whose turn it is."""
        pending = self._pending
        while pending and pending[0]._answer is not None:
            exchange = pending.popleft()
            if self.transport is None:
                return
            self.transport.write(exchange._answer)
            if exchange.head.closes:
                self.transport.close()
                return

    def upgrade(self, exchange: Exchange, protocol: str, receive: Callable[[bytes], None]) -> None:
        """From here on this connection speaks another protocol, whose bytes go to `receive`."""
        self._pending.remove(exchange)
        self._next = receive
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: %b\r\nconnection: upgrade\r\n\r\n" % protocol.encode()
        )

    def _refuse(self, head: _Head) -> None:
        exchange = Exchange(self, head, b"")
        self._pending.append(exchange)
        exchange.answer(head.refused, f"{head.why}\n".encode(), kind=b"text/plain")


def _parsed(raw: bytes) -> _Head:
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return _Head("", "", {}, 0, True, 400, "this is no HTTP/1.1 request")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            return _Head("", "", {}, 0, True, 400, "a header field is name: value")
        name = name.lower()
        if name in headers and name == "content-length":
            return _Head("", "", {}, 0, True, 400, "two lengths")
        headers[name] = value.strip()
    closes = headers.get("connection", "").lower() == "close" or words[2] == "HTTP/1.0"
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers:
        return _Head(words[0], words[1], headers, 0, True, 411, "send a content-length; chunks are not taken")
    if not (length.isascii() and length.isdigit()):
        return _Head(words[0], words[1], headers, 0, True, 400, "content-length is a number")
    if len(length) > 12 or int(length) > MOST_BODY:
        return _Head(words[0], words[1], headers, 0, True, 413, f"a body has at most {MOST_BODY} bytes")
    return _Head(words[0], words[1], headers, int(length), closes)


async def listen(handle: Callable[[Exchange], None], host: str, port: int) -> asyncio.Server:
    """A server on this address; port 0 takes any free one."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: HttpConnection(handle), host, port, backlog=1024, reuse_address=True)
