"""An open-loop load: requests go out when they are due, however late the replies to earlier ones are.

A client that waits for a reply before it sends the next leaves out the very requests that would have met a slow
server (coordinated omission). So the times to send are fixed beforehand, and each request has its connection until
its reply is there. Response times count from when a request was due, not from when it was sent. How late the sender
itself was is measured too: where that is not small, the machine that sends is the bottleneck.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.precise_loop import new_event_loop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Connection", "Marks", "Reply", "Sent", "Target", "send_load"]

MOST_CONNECTIONS = 4000
"""Connections that are open at once, at most."""
_SPARE = 8
"""Idle connections that are kept, so that a request does not wait for a handshake."""
_TICK_S = 0.1


@dataclass(frozen=True)
class Target:
    """Where the requests of one application go, when, and what they say.

    `due_s` rises from 0; `kinds` are places in `bodies`, one per class of query. With `clients`, only so many requests
    are under way at once and each next one is due when a reply came, up to `until_s`; `due_s` then only says how many
    there may be. With `keep` the bodies of replies are kept. With `streams` replies come piece by piece, and when they
    did is noted; `fields` are header lines of each body.
    """

    app: str
    url: str
    due_s: NDArray[np.float64]
    kinds: NDArray[np.int32]
    bodies: Sequence[bytes]
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()
    clients: int = 0
    until_s: float = 0.0
    keep: bool = False
    streams: bool = False
    fields: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """When the pieces of a reply came, in seconds: the first, the last, the longest gap, and how many tokens."""

    first_s: float
    last_s: float
    gap_s: float
    tokens: int


@dataclass(frozen=True)
class Sent:
    """What became of the requests of one application, in the order in which they were due.

    `response_ms` counts from when a request was due and is infinite where no answer came; `late_ms` is by how much the
    sender was late. `status` is HTTP's, 0 where the connection broke or nothing came in time, -1 for what was never
    sent (the run was cancelled). `outcome` is the server's own word; `quality` is NaN where it says none. `bodies` are
    those of the replies, empty where they were not kept or none came.
    """

    app: str
    due_s: NDArray[np.float64]
    kinds: NDArray[np.int32]
    late_ms: NDArray[np.float64]
    response_ms: NDArray[np.float64]
    status: NDArray[np.int16]
    outcome: Sequence[str]
    quality: NDArray[np.float64]
    connections: int
    bodies: Sequence[bytes] = ()
    marks: Sequence[Marks | None] = ()
    """Of streamed replies, counted from the begin of the run."""


def send_load(
    targets: Sequence[Target],
    *,
    timeout_s: float = 10.0,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[Sent]:
    """Send everything on schedule and wait for the replies, no longer than `timeout_s` for each."""
    for target in targets:
        if not _is_address(target.url):
            raise InputError.one(
                file="--endpoint", value=target.url, why="an address of http or https", remedy="Write http://HOST:PORT."
            )
        if "@" in urlsplit(target.url).netloc:
            raise InputError.one(
                file="--endpoint", why="an address with a name or a password in it, which would not be sent",
                remedy='Write --header "authorization: @FILE", and what is to be sent into the file.',
            )  # fmt: skip
    loop = new_event_loop()
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        sender = _Sender(loop, targets, timeout_s, on_event or (lambda _event: None), cancel or threading.Event())
        return loop.run_until_complete(sender.run())
    finally:
        if collected:
            gc.enable()
        loop.close()


def _is_address(url: str) -> bool:
    """Whether requests can be sent there at all."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or half an IPv6 address
        return False


class _Pool:
    """Connections to one address; the one that was used last is used next."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, url: str, free: Callable[[int, Reply | None], None], *, keep: bool,
        streams: bool,
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        ciphered = parts.scheme == "https"
        self._loop, self._host, self._port = loop, parts.hostname or "", parts.port or (443 if ciphered else 80)
        self._where = f"{parts.scheme}://{self._host}:{self._port}"
        # Whom to trust is said as to any program: SSL_CERT_FILE.
        self._tls = ssl.create_default_context() if ciphered else None
        self._tell, self._keep = free, keep
        self._made = StreamedConnection if streams else Connection
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.opened = 0
        self.living = 0

    async def fill(self, count: int) -> None:
        """Open connections before they are needed; `InputError` where not even one can be had."""
        for _ in range(count):
            try:
                await self._open()
            except ssl.SSLCertVerificationError as error:
                raise InputError.one(
                    file="--endpoint", value=self._where, why=error.verify_message,
                    remedy="Say whom to trust: SSL_CERT_FILE=ca.pem hetplan loadtest ...",
                ) from None  # fmt: skip
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise InputError.one(
                    file="--endpoint", value=self._where, why=f"nobody serves there ({why})",
                    remedy="Apply the plan first; `hetplan status` says the address.",
                ) from None  # fmt: skip

    def send(self, request: int, data: bytes) -> bool:
        """Send now, or as soon as a connection is there; whether it was now."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                connection.send(request, data)
                if len(self._idle) < _SPARE:
                    self._more()
                return True
        self._waiting.append((request, data))
        self._more()
        return False

    def close(self) -> None:
        """Close all that are idle."""
        for task in self._tasks:
            task.cancel()
        for connection in self._idle:
            connection.close()

    def _more(self) -> None:
        if self.living + self._opening >= MOST_CONNECTIONS or self._opening > len(self._waiting) + _SPARE:
            return
        self._opening += 1
        task = self._loop.create_task(self._open_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_quietly(self) -> None:
        try:
            await self._open()
        except OSError:
            waiting, self._waiting = self._waiting, deque()
            for request, _ in waiting:
                self._tell(request, None)
        finally:
            self._opening -= 1

    async def _open(self) -> None:
        made = self._loop.create_connection(
            lambda: self._made(self._free_slot, keep=self._keep), self._host, self._port, ssl=self._tls
        )
        _, connection = await made
        self.opened += 1
        self.living += 1
        self._use(connection)

    def _use(self, connection: Connection) -> None:
        if self._waiting:
            request, data = self._waiting.popleft()
            connection.send(request, data)
        else:
            self._idle.append(connection)

    def _free_slot(self, connection: Connection, request: int, reply: Reply | None) -> None:
        if not connection.open:
            self.living -= 1
        if request >= 0:
            self._tell(request, reply)
        if connection.open:
            self._use(connection)
        elif self._waiting:
            self._more()


class _Sender:
    """One run over all targets. A request is known by its place in the targets' lists, laid end to end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        targets: Sequence[Target],
        timeout_s: float,
        on_event: Callable[[Event], None],
        cancel: threading.Event,
    ) -> None:
        import numpy as np

        self.loop, self.targets, self.timeout_s, self.on_event, self.cancel = loop, targets, timeout_s, on_event, cancel
        self.due_s: list[float] = np.concatenate([target.due_s for target in targets]).tolist()
        count = len(self.due_s)
        self.sent_s, self.done_s = [-1.0] * count, [-1.0] * count
        self.replies: list[Reply | None] = [None] * count
        keep = any(target.keep for target in targets)
        urls = {urlsplit(target.url).netloc: target.url for target in targets}
        streams = any(target.streams for target in targets)
        self.pools = {
            place: _Pool(loop, url, self._take_answer, keep=keep, streams=streams) for place, url in urls.items()
        }
        self.data: list[bytes] = []
        self.pool_of: list[_Pool] = []
        self.clients: list[_Clients | None] = []
        scheduled: list[int] = []
        for target in targets:
            first, requests = len(self.data), _requests(target)
            mine = range(first, first + len(target.due_s))
            self.data += [requests[kind] for kind in target.kinds.tolist()]
            self.pool_of += [self.pools[urlsplit(target.url).netloc]] * len(mine)
            self.clients += [_Clients(target, deque(mine)) if target.clients else None] * len(mine)
            scheduled += [] if target.clients else mine
        self.order = sorted(scheduled, key=self.due_s.__getitem__)
        self.next, self.asked, self.answered = 0, 0, 0
        self.start_s = 0.0
        self.finished: asyncio.Future[None] = loop.create_future()

    async def run(self) -> list[Sent]:
        for pool in self.pools.values():
            await pool.fill(_SPARE)
        self.start_s = self.loop.time() + 0.05
        self.loop.call_at(self.start_s, self._begin)
        ticking = self.loop.create_task(self._tick())
        await self.finished
        ticking.cancel()
        for pool in self.pools.values():
            pool.close()
        await asyncio.sleep(0)
        return self._sorted_out()

    def _begin(self) -> None:
        for clients in {id(one): one for one in self.clients if one is not None}.values():
            for _ in range(min(clients.target.clients, len(clients.left))):
                self._send_now(clients.left.popleft())
        self._go()

    def _go(self) -> None:
        """Send all that is due, and come back when the next one is."""
        order, due_s, count = self.order, self.due_s, len(self.order)
        now = self.loop.time() - self.start_s
        while self.next < count and due_s[order[self.next]] <= now:
            request = order[self.next]
            self.next += 1
            self.asked += 1
            self.pool_of[request].send(request, self.data[request])
            now = self.sent_s[request] = self.loop.time() - self.start_s
        if self.next < count and not self.cancel.is_set():
            self.loop.call_at(self.start_s + due_s[order[self.next]], self._go)
        self._end_if_done()

    def _send_now(self, request: int) -> None:
        """A client's next request: it is due when the client has its last reply."""
        self.asked += 1
        self.due_s[request] = self.sent_s[request] = self.loop.time() - self.start_s
        self.pool_of[request].send(request, self.data[request])

    def _take_answer(self, request: int, reply: Reply | None) -> None:
        if self.done_s[request] >= 0.0:
            return
        now = self.done_s[request] = self.loop.time() - self.start_s
        self.replies[request] = reply
        self.answered += 1
        clients = self.clients[request]
        if clients is not None and clients.left and now < clients.target.until_s and not self.cancel.is_set():
            if reply is not None:
                self._send_now(clients.left.popleft())
            else:
                # Nobody is there: asking again at once would only spin.
                self.loop.call_later(_TICK_S, self._send_now, clients.left.popleft())
                return
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self.next == len(self.order) and self.answered == self.asked and not self.finished.done():
            self.finished.set_result(None)

    async def _tick(self) -> None:
        """Give up on what has taken too long; heed a cancellation; tell how far it is."""
        oldest = 0
        closed = [request for request, clients in enumerate(self.clients) if clients is not None]
        last = max([self.due_s[self.order[-1]] if self.order else 0.0, *(target.until_s for target in self.targets)])
        while True:
            await asyncio.sleep(_TICK_S)
            now = self.loop.time() - self.start_s
            while oldest < self.next and self._is_settled(self.order[oldest], now):
                oldest += 1
            for request in closed:
                if self.sent_s[request] >= 0.0:
                    self._is_settled(request, now)
            if self.cancel.is_set() and not self.finished.done():
                self.finished.set_result(None)
            said = f"{self.asked} sent, {self.asked - self.answered} not answered yet"
            self.on_event(Event("load", said, done=min(now / max(last, 1e-9), 1.0), seconds=now))

    def _is_settled(self, request: int, now: float) -> bool:
        """Whether a request that was sent is over: answered, or given up on."""
        if self.done_s[request] < 0.0 and now - self.due_s[request] > self.timeout_s:
            self._take_answer(request, None)
        return self.done_s[request] >= 0.0

    def _sorted_out(self) -> list[Sent]:
        found: list[Sent] = []
        first = 0
        for target in self.targets:
            found.append(self._of(target, slice(first, first + len(target.due_s))))
            first += len(target.due_s)
        return found

    def _of(self, target: Target, mine: slice) -> Sent:
        import numpy as np

        due, sent, done = (np.array(times[mine]) for times in (self.due_s, self.sent_s, self.done_s))
        replies = self.replies[mine]
        answered = np.array([reply is not None for reply in replies], dtype=bool)
        tried = sent >= 0.0
        if target.clients:
            # Of the requests that clients might have made, those that they did.
            due, sent, done, answered = due[tried], sent[tried], done[tried], answered[tried]
            replies = [reply for reply, was in zip(replies, tried.tolist(), strict=True) if was]
        status = [
            (0 if went >= 0 else -1) if reply is None else reply.status
            for went, reply in zip(sent.tolist(), replies, strict=True)
        ]
        qualities = [reply.quality if reply is not None and reply.quality >= 0 else np.nan for reply in replies]
        return Sent(
            app=target.app,
            due_s=due,
            kinds=target.kinds[: len(tried)][tried] if target.clients else target.kinds,
            late_ms=np.where(sent >= 0, (sent - due) * 1000.0, np.nan),
            response_ms=np.where(answered, (done - due) * 1000.0, np.inf),
            status=np.array(status, dtype=np.int16),
            outcome=[reply.outcome if reply is not None else "" for reply in replies],
            quality=np.array(qualities, dtype=np.float64),
            connections=sum(pool.opened for pool in self.pools.values()),
            bodies=[reply.body if reply is not None else b"" for reply in replies] if target.keep else (),
            marks=[self._marks(reply) for reply in replies] if target.streams else (),
        )

    def _marks(self, reply: Reply | None) -> Marks | None:
        found = reply.marks if reply is not None else None
        if found is None:
            return None
        return Marks(found.first_s - self.start_s, found.last_s - self.start_s, found.gap_s, found.tokens)


@dataclass(frozen=True)
class _Clients:
    """Clients of one application, and the requests that they have not made yet."""

    target: Target
    left: deque[int]


def _requests(target: Target) -> list[bytes]:
    """The whole request of each class of query."""
    parts = urlsplit(target.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = [f"POST {path} HTTP/1.1", f"host: {parts.netloc}", f"content-type: {target.content_type}"]
    head += [f"{name}: {value}" for name, value in target.headers]
    if any(not line.isprintable() for line in [*head, *target.fields]):
        raise InputError.one(file="--endpoint", value=target.url, why="no control characters", remedy="Mend it.")
    said = "\r\n".join(head)
    own = [f"{line}\r\n" for line in target.fields] or [""] * len(target.bodies)
    return [
        f"{said}\r\n{line}content-length: {len(body)}\r\n\r\n".encode() + body
        for line, body in zip(own, target.bodies, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: 0 where nothing did, the outcome and quality where the server says them, the body if kept."""

    status: int
    outcome: str = ""
    quality: float = -1.0
    body: bytes = b""
    marks: Marks | None = None


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
        """It may be used."""
        self._transport = transport
        self._parser = HttpResponseParser(self)
        self.open = True

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
            self._quality = _as_number(value)
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
        reply = self._reply()
        if not self._parser.should_keep_alive():
            self.open = False
            self._transport.close()
        self._forget()
        if request < 0:  # nothing was asked
            self.open = False
            self._transport.abort()
        else:
            self._free(self, request, reply)

    def _reply(self) -> Reply:
        return Reply(self._status, self._outcome, self._quality, self._body)

    def _forget(self) -> None:
        self._status, self._outcome, self._quality, self._body = 0, "", -1.0, b""
        self._measured = False


class StreamedConnection(Connection):
    """One whose replies are events: `data: {...}` and an empty line, a token or more in each."""

    _rest: bytes
    _used: int
    _events: int
    _first: float
    _last: float
    _gap: float

    def on_body(self, piece: bytes) -> None:
        """Note when it came, where it has tokens."""
        super().on_body(piece)
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        tokens = 0
        for event in whole:
            used = _USED.search(event)
            self._used = int(used[1]) if used is not None else self._used
            tokens += event.startswith(b"data: {") and _EMPTY.search(event) is None
        if tokens:
            now = asyncio.get_running_loop().time()
            self._gap = max(self._gap, now - self._last) if self._events else 0.0
            self._first = self._first if self._events else now
            self._last, self._events = now, self._events + tokens

    def _reply(self) -> Reply:
        marks = Marks(self._first, self._last, self._gap, self._used or self._events) if self._events else None
        return Reply(self._status, self._outcome, self._quality, self._body, marks)

    def _forget(self) -> None:
        super()._forget()
        self._rest, self._used, self._events = b"", 0, 0
        self._first = self._last = self._gap = 0.0


_USED, _EMPTY = re.compile(rb'"completion_tokens": ?(\d+)'), re.compile(rb'"choices": ?\[\]')


def _as_number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
