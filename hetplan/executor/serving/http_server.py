"""A small HTTP/1.1 server for one event loop, on httptools: what router and worker both need of HTTP, written once.

A request is read whole and handed to a function as an `Exchange`; answers go out in the order of the requests, as
bytes or piece by piece. What clients may ask of one listener is bounded by `HttpLimits`: heads, bodies, time,
connections, and the bytes of all bodies together.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from hetplan.executor.serving.process import Receiver

__all__ = ["Exchange", "HttpConnection", "HttpLimits", "HttpServer", "listen", "listen_for_keeper"]

_REASON = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
BACKLOG = 1024
_LARGE = 256 * 1024
"""So many bytes of a body are joined into one piece; an answer of more waits for its client."""
_WHO = b"www-authenticate: Bearer\r\n"
_RETRY = b"retry-after: 1\r\n"
_RESERVE = 64
"""Connections above the limit: they are answered 503, or what `always` names, and closed."""
_LONGEST_KEPT, _MOST_KEPT = 1024, 512
"""Heads that are remembered: bytes of one, and how many."""
_LINGER_S = 2.0
"""How long a client that was refused may go on sending: closed at once, it might never see the reason."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What the clients of one listener may ask of it."""

    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024 * 1024
    held_bytes: int = 192 * 1024 * 1024
    """Bodies that are being read or wait for their answers, all connections together."""
    connections: int = 8192
    unanswered: int = 256
    """Requests of one connection (pipelined) above which no more are read until answers have gone out."""
    head_s: float = 10.0
    body_s: float = 30.0
    """Without one more byte of the body, or with a client that takes no byte of the answer."""
    idle_s: float = 120.0
    always: tuple[str, ...] = ("/healthz", "/livez")
    """Answered even when there are too many connections, so that a busy server is not taken for a dead one."""


class _State(IntEnum):
    IDLE, HEAD, BODY, LINGERING = range(4)


_IDLE, _HEAD, _BODY, _LINGERING = _State


class _Refused(Exception):
    def __init__(self, status: int, why: str, fields: bytes = b"") -> None:
        super().__init__(why)
        self.status, self.why, self.fields = status, why, fields


class _Head(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    version: str
    length: int


class Exchange:
    """One request and the way to answer it; answers go out in the order of the requests.

    `headers` has names in lower case, and a field that came several times joined by commas. `keeps` says whether the
    connection stays open afterwards.
    """

    __slots__ = (
        "_answer",
        "_open",
        "_version",
        "body",
        "connection",
        "headers",
        "keeps",
        "method",
        "on_gone",
        "on_room",
        "path",
        "query",
        "refused",
    )

    def __init__(self, connection: HttpConnection, head: _Head, body: bytes, *, keeps: bool = False) -> None:
        self.connection, self.body, self.keeps = connection, body, keeps
        self.method, self.path, self.query, self.headers, self._version, _ = head
        self.refused = self._open = False
        self._answer: bytes | None = None
        self.on_gone: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self.connection.transport is None

    def allows(self, *methods: str) -> bool:
        """Whether the method is one of these; where it is not, the request is answered 405."""
        if self.method in methods:
            return True
        names = ", ".join(methods)
        why = b'{"why": "the method is %b"}' % " or ".join(methods).encode()
        self.answer(405, why, fields=b"allow: %b\r\n" % names.encode())
        return False

    def answer(self, status: int, body: bytes = b"", *, kind: bytes = b"application/json", fields: bytes = b"") -> None:
        """Send the answer; `fields` are whole header lines."""
        self._answer = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b" % (
            _REASON[status], kind, len(body), fields, self._end_of_head(), b"" if self.method == "HEAD" else body,
        )  # fmt: skip
        self.connection.flush()

    def begin(self, status: int, *, kind: bytes = b"application/json", fields: bytes = b"") -> None:
        """Begin an answer that is sent piece by piece, until `finish` or `cut`; `on_gone`: the client hung up."""
        if self._version == "1.0":
            self.keeps = False
        else:
            fields += b"transfer-encoding: chunked\r\n"
        self._answer = b"%bcontent-type: %b\r\n%b%b" % (_REASON[status], kind, fields, self._end_of_head())
        self._open = True
        self.connection.flush()

    def push(self, piece: bytes) -> bool:
        """Send one more piece; False where the client takes too few: `on_room` is called once it has caught up."""
        if not piece or self.method == "HEAD":
            return True
        return self.connection.push(self, piece if self._version == "1.0" else b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish(self) -> None:
        """The answer is whole."""
        if self._open:
            self._open = False
            if self.method != "HEAD" and self._version != "1.0":
                self.connection.push(self, b"0\r\n\r\n")
            self.connection.flush()

    def cut(self) -> None:
        """Break off, so that the client sees that the answer is not whole."""
        if self.connection.transport is not None:
            self.connection.transport.abort()

    def _end_of_head(self) -> bytes:
        if self.keeps:
            return b"\r\n" if self._version == "1.1" else b"connection: keep-alive\r\n\r\n"
        return b"connection: close\r\n\r\n"


class HttpConnection(Receiver):
    """One client; every whole request is handed to the server's function as an `Exchange`."""

    def __init__(self, server: HttpServer) -> None:
        self.server, self.limits = server, server.limits
        self.transport: Any = None
        self.surplus = False
        self._parser = HttpRequestParser(self)
        self._pending: deque[Exchange] = deque()
        self._come: list[Exchange] = []
        self._receive: Callable[[bytes], None] | None = None
        self._begun: Exchange | None = None
        self._full = False
        self._refusal: _Refused | None = None
        self._state = _IDLE
        self._since = self._full_since = server.now
        self._reading = True
        self._ending = False  # the client has asked for nothing more, or may not
        self._continue = False
        self._moved = False
        self._stuck = 0
        self.on_message_begin()
        self._state = _IDLE

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """One more client. (asyncio has switched Nagle off: no answer waits for an acknowledgement.)"""
        self.transport = transport
        self.server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's name)
        """What is still to be answered is answered into the void."""
        self.transport = None
        self.server.forget(self, self._read + sum(len(exchange.body) for exchange in self._pending))
        self._drop_body()
        waiting = [exchange.on_gone for exchange in self._pending if exchange.on_gone is not None]
        self._pending.clear()
        del self._parser  # it holds this connection, and would keep it in memory
        for gone in waiting:
            gone()

    def eof_received(self) -> bool:
        """A client that sends nothing more may still wait for answers, but not for those that it may break off."""
        self._ending = True
        breaks_off = any(exchange.on_gone is not None for exchange in self._pending)
        return self._receive is None and bool(self._pending) and not breaks_off

    def pause_writing(self) -> None:
        """The client takes its answers too slowly: nothing more is read of it until it has caught up."""
        self._full, self._full_since = True, self.server.now
        self._regulate()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._full = False
        self._regulate()
        if self._begun is not None and self._begun.on_room is not None:
            self._begun.on_room()

    def data_received(self, data: bytes) -> None:
        """Take every whole request out of what came."""
        if self._receive is not None:
            self._receive(data)
            return
        if self._state is _IDLE and not self._ending:
            exchange = self._known(data)
            if exchange is not None:
                self._take(exchange)
                return
        while data and not self._ending:
            if self._receive is not None:
                self._receive(data)
                return
            data = self._parse(data)

    def _known(self, data: bytes) -> Exchange | None:
        """The request, where all of it came at once and its head has come before: a head is parsed once."""
        end = data.find(b"\r\n\r\n") + 4
        before = self.server.heads.get(data[:end])
        if before is None or len(data) - end != before.length or self.server.held > self.limits.held_bytes // 2:
            return None
        self.server.held += len(data) - end
        return Exchange(self, before, data[end:], keeps=True)

    def _remember(self, data: bytes) -> None:
        """Remember the head of a request that came at once, and alone; those that ask for more are parsed each time."""
        (exchange,) = self._come
        end = data.find(b"\r\n\r\n") + 4
        asks = "expect" in exchange.headers or "upgrade" in exchange.headers or not exchange.keeps
        if len(data) - end == len(exchange.body) and end <= _LONGEST_KEPT and not asks:
            heads = self.server.heads
            if len(heads) >= _MOST_KEPT:
                heads.clear()
            about = exchange.method, exchange.path, exchange.query, exchange.headers
            heads[data[:end]] = _Head(*about, self._version, len(exchange.body))

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; what is left over belongs to another protocol, or to a parser that begins anew."""
        rest = b""
        refusal: _Refused | None = None
        self._moved = False
        idle = self._state is _IDLE
        try:
            self._parser.feed_data(data)
            if idle and self._state is _IDLE and len(self._come) == 1:
                self._remember(data)
        except HttpParserUpgrade as upgrade:
            rest, self._parser = data[upgrade.args[0] :], HttpRequestParser(self)
            if self._state is not _IDLE:
                rest = self._without_upgrade() + rest
        except HttpParserError as error:
            refusal = self._refusal or _Refused(413 if "overflow" in str(error) else 400, f"no HTTP/1.1: {error}")
        for exchange in self._come:
            self._take(exchange)
        self._come.clear()
        if self._ending or self.transport is None:
            return b""
        if refusal is not None:
            self._refuse(refusal)
        elif self._state is not _IDLE:
            if self._state is _BODY:
                self._since = self.server.now
            # A field that does not end: the parser keeps it, so it is counted here.
            self._stuck = 0 if self._moved else self._stuck + len(data)
            if self._stuck > self.limits.head_bytes:
                self._refuse(_Refused(431, f"a head has at most {self.limits.head_bytes} bytes"))
            elif self._continue:
                self._say_continue()
        return rest

    def _take(self, exchange: Exchange) -> None:
        if self._ending or self.transport is None:
            self.server.held -= len(exchange.body)
            return
        self._pending.append(exchange)
        exchange.keeps = exchange.keeps and not self.server.draining
        self._ending = not exchange.keeps
        if self.surplus and exchange.path not in self.limits.always:
            exchange.keeps, self._ending = False, True
            exchange.answer(503, b'{"why": "too many connections"}', fields=_RETRY)
            return
        try:
            self.server.handle(exchange)
        except Exception as error:
            self.report(error, "a request was not handled")
            if exchange._answer is None:
                exchange.answer(500, b'{"why": "an error of the server"}')
        if len(self._pending) >= self.limits.unanswered:
            self._regulate()

    # The parser's side: called as a request is read

    def on_message_begin(self) -> None:
        """A request begins."""
        self._state, self._since = _HEAD, self.server.now
        self._url = self._method = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._joined: list[bytes] = []
        self._head = self._read = self._loose = self._stuck = 0

    def on_url(self, piece: bytes) -> None:
        """A part of the target."""
        self._url += piece
        self._head += len(piece)
        if self._head > self.limits.head_bytes:
            self._stop_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or one that follows a chunked body (it is counted and left out)."""
        self._head += len(name) + len(value) + 4
        if self._head > self.limits.head_bytes:
            self._stop_head()
        if self._state is not _HEAD:
            return
        key, headers = _lower(name), self._headers
        text = value.decode("latin-1")
        headers[key] = text if key not in headers else f"{headers[key]}, {text}"

    def on_headers_complete(self) -> None:
        """The head is whole: is the body one that may come?"""
        self._state, self._moved = _BODY, True
        self._version = version = self._parser.get_http_version()
        headers = self._headers
        if version != "1.1" and version != "1.0":
            self._stop(400, "this server speaks HTTP/1.1")
        if self.server.guard and not self._may_come_in():
            self._stop(401, "this listener asks for a token: authorization: Bearer TOKEN", _WHO)
        if "content-length" in headers:
            self._may_hold(int(headers["content-length"]))
        if "expect" in headers and version == "1.1":
            if headers["expect"].lower() != "100-continue":
                self._stop(417, "the only expectation that is met is 100-continue")
            self._continue = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
            self._say_continue()

    def on_body(self, piece: bytes) -> None:
        """A part of the body."""
        self._moved = True
        size = len(piece)
        self._may_hold(size)
        self._read += size
        self.server.held += size
        self._body.append(piece)
        self._loose += size
        if self._loose >= _LARGE:
            # Pieces of this size go back to the system whole, and hold no more than what was read.
            self._joined.append(b"".join(self._body))
            self._body.clear()
            self._loose = 0

    def on_message_complete(self) -> None:
        """A request is whole; one that asks for an upgrade and has a body is not: the parser stops before its body."""
        parser, body = self._parser, self._body
        has_body = "transfer-encoding" in self._headers or self._headers.get("content-length", "0") != "0"
        if has_body and parser.should_upgrade() and parser.get_method() != b"CONNECT":
            self._method = parser.get_method()
            return
        self._state, self._continue, self._moved = _IDLE, False, True
        whole = body[0] if len(body) == 1 else b"".join(body)
        if self._joined:
            whole = b"".join([*self._joined, whole])
        self._drop_body()
        method, (path, query) = parser.get_method().decode("ascii"), _target(self._url)
        head = _Head(method, path, query, self._headers, self._version, len(whole))
        self._come.append(Exchange(self, head, whole, keeps=parser.should_keep_alive()))

    def _without_upgrade(self) -> bytes:
        """The head again, for a new parser that reads the body: nobody upgrades on a request with a body."""
        fields = self._headers.items()
        kept = [f"{name}: {value}\r\n" for name, value in fields if name not in ("upgrade", "expect")]
        head = b"%b %b HTTP/%b\r\n" % (self._method, self._url, self._version.encode())
        return head + "".join(kept).encode("latin-1") + b"\r\n"

    def _may_come_in(self) -> bool:
        said = self._headers.get("authorization", "").encode("latin-1")
        return compare_digest(said, self.server.guard) or _target(self._url)[0] in self.limits.always

    def _drop_body(self) -> None:
        self._read, self._loose, self._body, self._joined = 0, 0, [], []

    def _may_hold(self, size: int) -> None:
        if self._read + size > self.limits.body_bytes:
            self._stop(413, f"a body has at most {self.limits.body_bytes} bytes")
        # The last part is for small bodies: senders of large ones cannot keep others out.
        most = self.limits.held_bytes * (1.0 if self._read + size <= _LARGE else 0.9)
        if self.server.held + size > most:
            self._stop(503, "the server holds as many bytes as it may", _RETRY)

    def _stop_head(self) -> None:
        self._stop(431, f"a head has at most {self.limits.head_bytes} bytes")

    def _stop(self, status: int, why: str, fields: bytes = b"") -> None:
        self._refusal = _Refused(status, why, fields)
        raise self._refusal

    # Answers

    def flush(self) -> None:
        """Write the answers that are ready and whose turn it is."""
        pending = self._pending
        while pending and self.transport is not None:
            exchange = pending[0]
            if exchange._answer is None:
                return
            if exchange._answer:
                self.transport.write(exchange._answer)
                exchange._answer = b""
            if exchange._open:
                if self._begun is not exchange:
                    self._begun = exchange
                    if not self._full and exchange.on_room is not None:
                        exchange.on_room()
                return
            self._begun = None
            self._answered(exchange)

    def push(self, exchange: Exchange, data: bytes) -> bool:
        """Write a piece of an answer, or keep it until it is that answer's turn; whether there is room for more."""
        if self.transport is None:
            return True
        if self._begun is exchange:
            self.transport.write(data)
            return not self._full
        exchange._answer = (exchange._answer or b"") + data
        return len(exchange._answer) < _LARGE

    def _answered(self, exchange: Exchange) -> None:
        """Its answer is on its way: the next one's turn, or the end."""
        self._pending.popleft()
        self.server.held -= len(exchange.body)
        if exchange.refused:
            self._state, self._since = _LINGERING, self.server.now
            with suppress(OSError):
                self.transport.write_eof()
        elif not exchange.keeps or (self._ending and not self._pending):
            self.transport.close()
        elif not self._pending:
            if self._state is _IDLE:
                self._since = self.server.now
            self._say_continue()
        if not self._reading:
            self._regulate()

    def upgrade(self, exchange: Exchange, protocol: str, receive: Callable[[bytes], None]) -> None:
        """From here on this connection speaks another protocol, whose bytes go to `receive`."""
        if self._pending[0] is not exchange:
            exchange.answer(400, b'{"why": "other requests of this connection wait for their answers"}')
            return
        self._pending.popleft()
        self.server.held -= len(exchange.body)
        self._receive, self._ending = receive, False
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: %b\r\nconnection: upgrade\r\n\r\n" % protocol.encode()
        )

    def report(self, error: Exception, what: str) -> None:
        """Hand an error of this program to the event loop, which logs it."""
        self.server.loop.call_exception_handler({"message": what, "exception": error, "protocol": self})

    def end_if_idle(self) -> None:
        """Close where no request is under way."""
        if self._receive is None and self._state is _IDLE and not self._pending and self.transport is not None:
            self.transport.close()

    def check_time(self, now: float) -> None:
        """Close what has taken too long."""
        waited, limits = now - self._since, self.limits
        if self._full and now - self._full_since > limits.body_s:
            self.transport.abort()
        elif self._receive is not None or (self._pending and self._ending):
            return
        elif self._state is _HEAD and waited > limits.head_s:
            self._refuse(_Refused(408, f"a head is sent within {limits.head_s:g} s"))
        elif self._state is _BODY and waited > limits.body_s:
            self._refuse(_Refused(408, f"no more of the body came for {limits.body_s:g} s"))
        elif self._state is _LINGERING and waited > _LINGER_S:
            self.transport.abort()
        elif self._state is _IDLE and not self._pending and waited > limits.idle_s:
            self.transport.close()

    def _refuse(self, refusal: _Refused) -> None:
        """Answer what cannot be taken, in its turn, and close."""
        self._refusal, self._ending = refusal, True
        self.server.held -= self._read
        self._drop_body()
        exchange = Exchange(self, _Head("GET", "/", "", {}, "1.1", 0), b"")
        exchange.refused = True
        self._pending.append(exchange)
        exchange.answer(refusal.status, f"{refusal.why}\n".encode(), kind=b"text/plain", fields=refusal.fields)

    def _say_continue(self) -> None:
        """A client that asks before it sends its body is answered once earlier requests are."""
        if self._continue and not self._pending and not self._come and self.transport is not None:
            self._continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _regulate(self) -> None:
        """Read on, or not: a client that does not take its answers, or sends too many requests ahead, waits."""
        if self._receive is not None or self.transport is None:
            return
        wanted = not self._full and len(self._pending) < self.limits.unanswered
        if wanted != self._reading:
            self._reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()


class HttpServer:
    """A listener: its connections, what they hold together, and the clock that closes what takes too long."""

    def __init__(self, handle: Callable[[Exchange], None], limits: HttpLimits, token: str | None = None) -> None:
        self.handle, self.limits = handle, limits
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self.guard = f"Bearer {token}".encode() if token else b""
        self.held = 0
        self.draining = False
        self.heads: dict[bytes, _Head] = {}
        self.connections: set[HttpConnection] = set()
        self._surplus: dict[HttpConnection, None] = {}
        self._server: asyncio.Server
        self._every_s = min(1.0, max(0.02, min(limits.head_s, limits.body_s, limits.idle_s) / 4.0))
        self._timer = self.loop.call_later(self._every_s, self._check_times)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int, sock: socket.socket | None = None) -> None:
        """Listen on this address, or on a socket that listens already."""
        at: dict[str, Any] = {"host": host, "port": port, "reuse_address": True} if sock is None else {"sock": sock}
        self._server = await self.loop.create_server(lambda: HttpConnection(self), **at, backlog=BACKLOG)

    def close(self) -> None:
        """Take no more connections."""
        self._timer.cancel()
        self._server.close()

    def drain(self) -> None:
        """Take no more connections, close those without requests, and each of the others after its next answer."""
        self._server.close()
        self.draining = True
        for connection in list(self.connections):
            connection.end_if_idle()

    def admit(self, connection: HttpConnection) -> None:
        """Take a connection in. One above the limit is answered 503; of many such the one that came first is cut."""
        if len(self.connections) < self.limits.connections + len(self._surplus):
            self.connections.add(connection)
            return
        if len(self._surplus) >= _RESERVE:
            first = next(iter(self._surplus))
            del self._surplus[first]
            first.transport.abort()
        connection.surplus = True
        self._surplus[connection] = None
        self.connections.add(connection)

    def forget(self, connection: HttpConnection, held: int) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        self._surplus.pop(connection, None)
        self.held -= held

    def _check_times(self) -> None:
        self.now = self.loop.time()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.check_time(self.now)
        self._timer = self.loop.call_later(self._every_s, self._check_times)


@lru_cache(512)
def _lower(name: bytes) -> str:
    return name.lower().decode("latin-1")


@lru_cache(512)
def _target(url: bytes) -> tuple[str, str]:
    """The path and the query string of a request's target.

    >>> _target(b"/v1/a%2Fb?x=1"), _target(b"http://host:80/metrics?format=prometheus"), _target(b"*")
    (('/v1/a/b', 'x=1'), ('/metrics', 'format=prometheus'), ('*', ''))
    """
    if b"://" in url and not url.startswith(b"/"):
        try:
            parts = parse_url(url)
        except HttpParserError:
            return "", ""
        url = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
    path, _, query = url.decode("latin-1").partition("?")
    return unquote(path) if "%" in path else path, query


async def listen(
    handle: Callable[[Exchange], None], host: str, port: int, limits: HttpLimits | None = None, *,
    sock: socket.socket | None = None, token: str | None = None,
) -> HttpServer:  # fmt: skip
    """A server on this address; port 0 takes any free one. A quarter of the process's open files is left to others.

    With a token, requests that do not bring it are refused with 401 before their body is read.
    """
    limits = limits or HttpLimits()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY:
        limits = replace(limits, connections=max(1, min(limits.connections, files * 3 // 4 - _RESERVE)))
    server = HttpServer(handle, limits, token)
    await server.start(host, port, sock)
    return server


async def listen_for_keeper(handle: Callable[[Exchange], None]) -> HttpServer:
    """A small listener on this machine alone, so that clients who fill the other one hide nothing from the keeper."""
    server = HttpServer(handle, HttpLimits(head_bytes=4096, body_bytes=0, connections=32))
    await server.start("127.0.0.1", 0)
    return server
