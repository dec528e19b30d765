"""An answer of another server, passed on piece by piece as it comes, no faster than its reader takes it."""

from __future__ import annotations

from collections.abc import Callable

from hetplan.executor.serving.http_client import Call, Upstream
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.openai_words import as_error

__all__ = ["Relay"]


class Relay:
    """One request that another server answers. Where the client hangs up, so does this."""

    def __init__(self, exchange: Exchange, ended: Callable[[bool], None]) -> None:
        self.exchange, self.ended = exchange, ended
        self.begun = False
        self.status = 0
        self._call: Call | None = None

    def send(self, upstream: Upstream, data: bytes) -> None:
        """Ask the server."""
        self.exchange.on_gone, self.exchange.on_room = self._gone, self._go_on
        self._call = upstream.ask(data, self)

    def cancel(self) -> None:
        """Hang up on the server; nothing more comes."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The answer begins: so does ours."""
        self.begun, self.status = True, status
        kind = headers.get("content-type", "application/json").encode("latin-1")
        self.exchange.begin(status, kind=kind, fields=self.fields(headers))

    def fields(self, headers: dict[str, str]) -> bytes:
        """What of the server's head, and of our own knowledge, the client gets."""
        passed = ((name, headers[name]) for name in _PASSED if name in headers)
        return b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in passed)

    def piece(self, data: bytes) -> None:
        """More of it."""
        if not self.exchange.push(data) and self._call is not None:
            self._call.hold(True)

    def end(self) -> None:
        """It is whole."""
        self._call = None
        self.exchange.finish()
        self.ended(self.status < 400)

    def lost(self, why: str) -> None:
        """It breaks off: the client sees that, or gets the reason where nothing was sent yet."""
        self._call = None
        if self.begun:
            self.exchange.cut()
        else:
            self.exchange.answer(503, as_error(why, kind="server_error"), fields=b"retry-after: 1\r\n")
        self.ended(False)

    def _go_on(self) -> None:
        if self._call is not None:
            self._call.hold(False)

    def _gone(self) -> None:
        if self._call is not None:
            self.cancel()
            self.ended(False)


_PASSED = ("cache-control", "retry-after", "x-request-id")
