"""The router's link to a worker: frames over one connection, opened on the worker's HTTP port by an upgrade.

Many queries are under way on a link at once and are answered in any order. A frame is its length, its kind and its
content; all numbers are in network order.

====== ======== ==================================================================================================
kind   from     content
====== ======== ==================================================================================================
ASK    router   query, how long it has waited, time left to its deadline and to where it is given up, load, body
BATCH  router   load, then several (query, waited, body): to be served together, at once
DONE   worker   query, outcome, waited in the worker, service, size of its batch, load, step outcome, children, body
PING   both     nothing; the worker sends it back at once, so that the router sees that it is not frozen
CANCEL router   query: nobody waits for it any more; one that has not begun leaves its queue
====== ======== ==================================================================================================

Times are ms as single floats; a time that there is no limit for is infinite. `children` is JSON, empty where the model
does not say what follows: how many queries (or which) go to each child step. The step outcome is what the model's
answer came to ("unsure"), empty where it says none.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from struct import Struct
from time import monotonic
from typing import Any, NamedTuple

__all__ = [
    "APART_S",
    "ASK",
    "BATCH",
    "CANCEL",
    "DONE",
    "DROPPED",
    "FAILED",
    "MOST_FRAME",
    "PING",
    "PING_FRAME",
    "PROTOCOL",
    "SERVED",
    "Answered",
    "Asked",
    "FrameReader",
    "FrameWriter",
    "ask_frame",
    "batch_frame",
    "cancel_frame",
    "done_frame",
    "read_ask",
    "read_batch",
    "read_cancel",
    "read_done",
]

PROTOCOL = "hetplan-frames/4"
ASK, BATCH, DONE, PING, CANCEL = 1, 2, 3, 4, 5
SERVED, DROPPED, FAILED = 0, 1, 2
MOST_FRAME = 80 * 1024 * 1024

_HEAD = Struct("!IB")
PING_FRAME = _HEAD.pack(0, PING)
_ASK, _ASK_HEAD = Struct("!IffffB"), Struct("!IBIffffB")
_BATCH, _BATCH_HEAD = Struct("!BI"), Struct("!IBBI")
_ITEM = Struct("!IffI")
_CANCEL = Struct("!IBI")
_DONE, _DONE_HEAD = Struct("!IBffIBBI"), Struct("!IBIBffIBBI")


class Asked(NamedTuple):
    """A query as a worker gets it."""

    query: int
    waited_ms: float
    slack_ms: float
    give_up_ms: float
    rate_qps: float
    load: str
    body: bytes


class Answered(NamedTuple):
    """A query as a worker hands it back."""

    query: int
    outcome: int
    queue_ms: float
    service_ms: float
    batch: int
    load: str
    children: bytes
    body: bytes
    step_outcome: str = ""


def ask_frame(
    query: int, load: bytes, body: bytes, waited_ms: float, slack_ms: float, give_up_ms: float, rate_qps: float
) -> bytes:
    """One query for a queue of the worker.

    >>> frame = ask_frame(7, b"w1.a", b"{}", 1.5, 50.0, float("inf"), 900.0)
    >>> read_ask(frame[5:])
    Asked(query=7, waited_ms=1.5, slack_ms=50.0, give_up_ms=inf, rate_qps=900.0, load='w1.a', body=b'{}')
    """
    named = len(load)
    head = _ASK_HEAD.pack(
        _ASK.size + named + len(body), ASK, query, waited_ms, slack_ms, give_up_ms, rate_qps, named
    )  # fmt: skip
    return b"".join((head, load, body))


def read_ask(content: bytes) -> Asked:
    """The content of an ASK frame."""
    query, waited_ms, slack_ms, give_up_ms, rate_qps, named = _ASK.unpack_from(content)
    start = _ASK.size
    return Asked(
        query, waited_ms, slack_ms, give_up_ms, rate_qps, content[start : start + named].decode(),
        content[start + named :],
    )  # fmt: skip


def batch_frame(load: bytes, items: Iterable[tuple[int, float, float, bytes]]) -> bytes:
    """Queries (number, waited, slack, body) that are served together.

    >>> frame = batch_frame(b"w1.a", [(1, 0.5, 9.0, b"x"), (2, 0.0, 9.0, b"")])
    >>> read_batch(frame[5:])
    ('w1.a', [(1, 0.5, 9.0, b'x'), (2, 0.0, 9.0, b'')])
    """
    parts = [load]
    for query, waited, slack, body in items:
        parts += (_ITEM.pack(query, waited, slack, len(body)), body)
    content = b"".join(parts)
    return _BATCH_HEAD.pack(_BATCH.size + len(content), BATCH, len(load), len(parts) // 2) + content


def read_batch(content: bytes) -> tuple[str, list[tuple[int, float, float, bytes]]]:
    """The content of a BATCH frame."""
    named, count = _BATCH.unpack_from(content)
    at = _BATCH.size + named
    load = content[_BATCH.size : at].decode()
    items = []
    for _ in range(count):
        query, waited, slack, size = _ITEM.unpack_from(content, at)
        at += _ITEM.size + size
        items.append((query, waited, slack, content[at - size : at]))
    return load, items


def cancel_frame(query: int) -> bytes:
    """A query that nobody waits for any more. A worker of an earlier version takes no notice of it.

    >>> read_cancel(cancel_frame(7)[5:])
    7
    """
    return _CANCEL.pack(4, CANCEL, query)


def read_cancel(content: bytes) -> int:
    """The content of a CANCEL frame."""
    return int.from_bytes(content, "big")


def done_frame(answered: Answered) -> bytes:
    """What became of a query.

    >>> frame = done_frame(Answered(7, SERVED, 0.5, 12.0, 4, "w1.a", b"", b"[1]", "unsure"))
    >>> read_done(frame[5:])[3:]
    (12.0, 4, 'w1.a', b'', b'[1]', 'unsure')
    """
    query, outcome, queue_ms, service_ms, batch, name, children, body, step_outcome = answered
    load, said = name.encode(), step_outcome.encode()
    of_load, of_said, of_children = len(load), len(said), len(children)
    size = _DONE.size + of_load + of_said + of_children + len(body)
    head = _DONE_HEAD.pack(size, DONE, query, outcome, queue_ms, service_ms, batch, of_load, of_said, of_children)
    return b"".join((head, load, said, children, body))


def read_done(content: bytes) -> Answered:
    """The content of a DONE frame."""
    query, outcome, queue_ms, service_ms, batch, of_load, of_said, of_children = _DONE.unpack_from(content)
    said_at = _DONE.size + of_load
    children_at = said_at + of_said
    body_at = children_at + of_children
    return Answered(
        query, outcome, queue_ms, service_ms, batch, content[_DONE.size : said_at].decode(),
        content[children_at:body_at], content[body_at:], content[said_at:children_at].decode() if of_said else "",
    )  # fmt: skip


class FrameReader:
    """Cuts a stream of bytes into frames, each handed on as (kind, content).

    >>> got = []
    >>> reader = FrameReader(lambda kind, content: got.append((kind, content)))
    >>> frame = done_frame(Answered(1, SERVED, 0, 0, 1, "a", b"", b""))
    >>> reader.feed(frame[:3]); reader.feed(frame[3:] + frame)
    >>> len(got), got[0][0] == DONE
    (2, True)
    """

    def __init__(self, take: Callable[[int, bytes], None]) -> None:
        self._take = take
        self._buffer = bytearray()
        self._missing = 0

    def feed(self, data: bytes) -> None:
        """More bytes of the stream; ValueError where they can be no frame."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._missing:
                return
            data, self._buffer = bytes(self._buffer), bytearray()
        buffer, at, size = data, 0, len(data)
        self._missing = 0
        while size - at >= 5:
            length, kind = _HEAD.unpack_from(buffer, at)
            if length > MOST_FRAME:
                raise ValueError(f"a frame of {length} bytes")
            end = at + 5 + length
            if end > size:
                self._missing = end - at
                break
            self._take(kind, buffer[at + 5 : end])
            at = end
        if at < size:
            self._buffer = bytearray(buffer[at:])


class FrameWriter:
    """Writes frames to a transport: at once where one comes alone, together where several come in one turn of the loop.

    To wait for the end of the turn is another turn of the loop, which costs a lone frame more than its write. So frames
    are gathered as long as several come, or closely one after the other; after one that was alone the next goes out at
    once.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._out: list[bytes] = []
        self._wrote_s, self._alone = 0.0, True

    def write(self, transport: Any, frame: bytes) -> None:
        """Send a frame; into the void where there is no transport."""
        if self._out:
            self._out.append(frame)
            return
        now = monotonic()
        if self._alone and now - self._wrote_s > APART_S:
            self._wrote_s = now
            if transport is not None:
                transport.write(frame)
            return
        self._out.append(frame)
        self._loop.call_soon(self._flush, transport)

    def _flush(self, transport: Any) -> None:
        out, self._out = self._out, []
        self._wrote_s, self._alone = monotonic(), len(out) == 1
        if transport is not None:
            transport.write(b"".join(out))


APART_S = 0.0001
"""What comes so long after the one before it has come alone."""
