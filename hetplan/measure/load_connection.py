"""HTTP/1.1 by hand, as little of it as a load generator needs: one request at a time on a connection that stays open.

A client library would take longer per request than most servers under test. Replies may have a length, come in chunks,
or end with the connection; what they say of themselves is read from their header fields (``hetplan-outcome``,
``hetplan-quality``) and nothing of the body is looked at, only kept where that is asked for (as it came).
"""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Connection", "Reply", "new_event_loop"]

_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: 0 where nothing did, the outcome and quality where the server says them, the body if kept."""

    status: int
    outcome: str = ""
    quality: float = -1.0
    body: bytes = b""


class Connection(asyncio.Protocol):
    """One connection; `free` is called when its reply is complete, or when it is lost."""

    def __init__(self, free: Callable[[Connection, int, Reply | None], None], *, keep: bool = False) -> None:
        self._free, self._keep = free, keep
        self._transport: Any = None
        self._got = b""
        self._head_end = 0
        self._awaited = -1  # bytes of the whole reply; -1: no head yet, -2: chunks, -3: until the end
        self._request = -1
        self._closes = False
        self.open = False

    def send(self, request: int, data: bytes) -> None:
        """Send a request; `request` is what `free` will be called with."""
        self._request, self._got, self._awaited, self._closes = request, b"", -1, False
        self._transport.write(data)

    def close(self) -> None:
        """Close it; a reply that is still due will not come."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio."""
        self._transport = transport
        self.open = True
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._got = self._got + data if self._got else data
        if self._awaited == -1:
            end = self._got.find(_END)
            if end < 0:
                return
            self._read_head(end)
        if self._awaited >= 0:
            if len(self._got) >= self._awaited:
                self._done()
        elif self._awaited == -2 and (self._got.endswith(_LAST_CHUNK) or self._got[self._head_end :] == b"0\r\n\r\n"):
            self._done()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.open = False
        if self._request < 0:
            self._free(self, -1, None)
        elif self._awaited == -3 and exc is None:
            self._done()
        else:
            request, self._request = self._request, -1
            self._free(self, request, None)

    def _read_head(self, end: int) -> None:
        head = self._got[:end].lower()
        self._head_end = end + 4
        place = head.find(b"\r\ncontent-length:")
        if place >= 0:
            self._awaited = self._head_end + int(_field(head, place + 17))
        elif b"\r\ntransfer-encoding: chunked" in head:
            self._awaited = -2
        else:
            self._awaited = -3
        self._closes = b"\r\nconnection: close" in head or head.startswith(b"http/1.0")

    def _done(self) -> None:
        head = self._got[: self._head_end - 2]
        status = int(head[9:12])
        outcome, quality = "", -1.0
        low = head.lower()
        place = low.find(b"\r\nhetplan-outcome:")
        if place >= 0:
            outcome = _field(low, place + 18).decode("ascii", "replace")
        place = low.find(b"\r\nhetplan-quality:")
        if place >= 0:
            quality = _number(_field(low, place + 18))
        request, self._request = self._request, -1
        if self._closes:
            self.open = False
            self._transport.close()
        body = self._got[self._head_end :] if self._keep else b""
        self._free(self, request, Reply(status, outcome, quality, body))


def _field(head: bytes, start: int) -> bytes:
    end = head.find(b"\r\n", start)
    return (head[start:end] if end >= 0 else head[start:]).strip()


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


class _PreciseSelector(selectors.EpollSelector if hasattr(selectors, "EpollSelector") else selectors.DefaultSelector):  # type: ignore[misc]
    """Waits to the microsecond: epoll rounds up to whole milliseconds, `select` on the epoll itself does not."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are as precise as the system allows."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(_PreciseSelector())
