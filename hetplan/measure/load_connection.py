"""As little of HTTP/1.1 as a load generator needs, on httptools: one request at a time on a connection that stays open.

A client library would take longer per request than most servers under test. Replies may have a length, come in chunks,
or end with the connection. What they say of themselves is read from their header fields (``hetplan-outcome``,
``hetplan-quality``); the body is not looked at, only kept where that is asked for.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

__all__ = ["Connection", "Reply", "new_event_loop"]


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
        self._request = -1
        self.open = False
        self._forget()

    def send(self, request: int, data: bytes) -> None:
        """Send a request; `request` is what `free` will be called with."""
        self._request = request
        self._transport.write(data)

    def close(self) -> None:
        """Close it; a reply that is still due will not come."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: Any) -> None:
        """Nagle off, as a client of a server that answers fast should."""
        self._transport = transport
        self._parser = HttpResponseParser(self)
        self.open = True
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Hand it to the parser; what is no HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            if self.open:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """A reply without a length ends here; any other that is still due was lost."""
        self.open = False
        request = self._request
        if request >= 0 and exc is None and self._status and not self._measured:
            self.on_message_complete()
        else:
            self._request = -1
            self._free(self, request, None)

    # The parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        """What a reply says of itself."""
        name = name.lower()
        if name == b"hetplan-outcome":
            self._outcome = value.decode("ascii", "replace")
        elif name == b"hetplan-quality":
            self._quality = _number(value)
        elif name == b"content-length" or name == b"transfer-encoding":
            self._measured = True

    def on_headers_complete(self) -> None:
        """The status of the reply."""
        self._status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        """Kept only where that was asked for."""
        if self._keep:
            self._body += piece

    def on_message_complete(self) -> None:
        """The reply is whole; one that only says that another follows is none."""
        if self._status < 200:
            self._forget()
            return
        request, self._request = self._request, -1
        reply = Reply(self._status, self._outcome, self._quality, self._body)
        if not self._parser.should_keep_alive():
            self.open = False
            self._transport.close()
        self._forget()
        if request < 0:  # nothing was asked
            self.open = False
            self._transport.abort()
        else:
            self._free(self, request, reply)

    def _forget(self) -> None:
        self._status, self._outcome, self._quality, self._body = 0, "", -1.0, b""
        self._measured = False


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
