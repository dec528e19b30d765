"""The open-loop sender against servers that reply at once, late, in pieces, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.measure.load_send import Sent, Target, send_load

Answer = Callable[[int, bytes], list[tuple[float, bytes]]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nhetplan-outcome: served\r\nHetplan-Quality: 0.75\r\n\r\nok"


class Stub(asyncio.Protocol):
    """Counts requests over all connections; `answer(number, request)` says which bytes go back after how long."""

    def __init__(self, answer: Answer, seen: list[bytes]) -> None:
        self.answer, self.seen, self.rest = answer, seen, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            length = int(self.rest[:end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.rest) < end + 4 + length:
                return
            request, self.rest = self.rest[: end + 4 + length], self.rest[end + 4 + length :]
            number = len(self.seen)
            self.seen.append(request)
            loop = asyncio.get_running_loop()
            for after_s, piece in self.answer(number, request):
                if piece == b"close":
                    loop.call_later(after_s, self.transport.close)
                elif after_s:
                    loop.call_later(after_s, self.transport.write, piece)
                else:
                    self.transport.write(piece)


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server that answers so, and what it was asked."""
    seen: list[bytes] = []
    with served_by(lambda: Stub(answer, seen)) as url:
        yield url, seen


@contextmanager
def served_by(protocol: Callable[[], asyncio.Protocol]) -> Iterator[str]:
    """The address of a server that speaks so."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(protocol, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/app"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()


def numbered(answer: Answer) -> Answer:
    """Answers by which request it is, known by its body: those due at one time may come in any order."""
    return lambda _number, request: answer(int(request.rpartition(b"\r\n\r\n")[2]), request)


def sent_numbered(answer: Answer, due_s: list[float], **how: Any) -> Sent:
    count = len(due_s)
    with serving(numbered(answer)) as (url, _):
        bodies = [str(number).encode() for number in range(count)]
        (found,) = send_load([Target("app", url, np.array(due_s), np.arange(count, dtype=np.int32), bodies)], **how)
    return found


def target(url: str, due_s: list[float], *, kinds: list[int] | None = None, **more: Any) -> Target:
    bodies = [b'{"at": {"batch": 1}}', b'{"at": {"batch": 8}}']
    return Target("app", url, np.array(due_s), np.array(kinds or [0] * len(due_s), np.int32), bodies, **more)


def sent_to(answer: Answer, due_s: list[float], **how: Any) -> tuple[Sent, list[bytes]]:
    with serving(answer) as (url, seen):
        (found,) = send_load([target(url, due_s)], **how)
    return found, seen


def test_everything_is_sent_and_answered() -> None:
    found, seen = sent_to(lambda _number, _request: [(0.0, OK)], [i * 0.002 for i in range(100)])
    assert set(found.status.tolist()) == {200}
    assert set(found.outcome) == {"served"}
    assert found.quality.tolist() == [0.75] * 100
    assert np.isfinite(found.response_ms).all()
    assert (found.late_ms >= 0).all()
    assert len(seen) == 100
    assert seen[0].startswith(b"POST /v1/app HTTP/1.1\r\nhost: 127.0.0.1:")


def test_the_class_of_a_query_picks_its_body() -> None:
    with serving(lambda _number, _request: [(0.0, OK)]) as (url, seen):
        send_load([target(url, [0.0, 0.05, 0.1], kinds=[1, 0, 1])])
    assert sorted(b'"batch": 8' in request for request in seen) == [False, True, True]


class AllAtOnce(asyncio.Protocol):
    """Answers nobody until so many have asked."""

    wanted = 40
    asking: list[Any]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.asking += [self.transport] * data.count(b"POST ")
        if len(self.asking) == self.wanted:
            for transport in self.asking:
                transport.write(OK)


def test_a_slow_server_does_not_slow_the_sender() -> None:
    """Coordinated omission: whoever waits for an answer before asking again is never answered here."""
    AllAtOnce.asking = []
    due_s = [i * 0.005 for i in range(AllAtOnce.wanted)]
    with served_by(AllAtOnce) as url:
        (found,) = send_load([target(url, due_s)])
    assert set(found.status.tolist()) == {200}
    assert found.connections >= AllAtOnce.wanted
    assert (found.response_ms > 1e3 * (due_s[-1] - np.array(due_s)) - 1e-3).all()


def test_a_stall_shows_in_all_that_waited_for_it() -> None:
    """A server that stops for 200 ms: responses count from when requests were due."""

    def stalls(number: int, _request: bytes) -> list[tuple[float, bytes]]:
        if number == 5:
            threading.Event().wait(0.2)
        return [(0.0, OK)]

    found, _ = sent_to(stalls, [i * 0.01 for i in range(25)])
    waited = np.sort(found.response_ms)[::-1]
    assert waited[0] >= 190
    assert (waited[:15] >= 40).all()


def test_replies_in_pieces_in_chunks_and_with_the_connection() -> None:
    pieces = [(0.0, OK[:10]), (0.005, OK[10:60]), (0.01, OK[60:])]
    chunks = [
        (0.0, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        (0.005, b"0\r\n\r\n"),
    ]
    empty = [(0.0, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")]
    until_closed = [(0.0, b"HTTP/1.0 200 OK\r\n\r\nall there is"), (0.01, b"close")]
    then_closes = [(0.0, b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), (0.0, b"close")]
    kinds = [pieces, chunks, empty, until_closed, then_closes, [(0.0, OK)]]
    found = sent_numbered(lambda number, _request: kinds[number], [i * 0.05 for i in range(6)])
    assert found.status.tolist() == [200, 200, 200, 200, 503, 200]


def test_a_reply_may_follow_a_first_word_and_chunks_may_hold_anything() -> None:
    hidden = b"0\r\n\r\nHTTP/1.1 500 No\r\n\r\n"
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = head + b"%x\r\n" % len(hidden) + hidden[:5], hidden[5:] + b"\r\n0\r\n\r\n"
    with serving(lambda _number, _request: [(0.0, first), (0.02, second)]) as (url, _):
        (found,) = send_load([target(url, [0.0, 0.05], keep=True)])
    assert found.status.tolist() == [200, 200]
    assert found.bodies == [hidden, hidden]


def test_what_is_no_http_counts_as_no_answer() -> None:
    found, _ = sent_to(lambda _number, _request: [(0.0, b"hello\r\n\r\n")], [0.0, 0.05], timeout_s=2.0)
    assert found.status.tolist() == [0, 0]
    assert (found.response_ms == np.inf).all()


@pytest.mark.slow
def test_no_answer_and_broken_connections_are_counted() -> None:
    def answer(number: int, _request: bytes) -> list[tuple[float, bytes]]:
        return [[], [(0.0, b"close")], [(0.0, OK[:30]), (0.005, b"close")], [(0.0, OK)]][number]

    found = sent_numbered(answer, [0.0, 0.05, 0.1, 0.15], timeout_s=1.5)
    assert found.status.tolist() == [0, 0, 0, 200]
    assert np.isinf(found.response_ms[:3]).all()


def test_nobody_listens() -> None:
    with pytest.raises(InputError, match=r"nobody serves there .*refused"):
        send_load([target("http://127.0.0.1:9/v1/app", [0.0])])


def test_only_http() -> None:
    with pytest.raises(InputError, match="an address of http"):
        send_load([target("ftp://127.0.0.1/v1/app", [0.0])])


def test_a_cancelled_load_hands_over_what_was_sent() -> None:
    cancel = threading.Event()

    def answer(number: int, _request: bytes) -> list[tuple[float, bytes]]:
        if number == 9:
            cancel.set()
        return [(0.0, OK)]

    found, seen = sent_to(answer, [i * 0.02 for i in range(2000)], cancel=cancel)
    assert 10 <= len(seen) < 2000
    assert (found.status == 200).sum() >= 9
    assert found.status[-1] == -1


def test_several_applications_and_clients_side_by_side() -> None:
    with serving(lambda _number, _request: [(0.01, OK)]) as (url, _):
        found, closed = send_load(
            [
                target(url, [i * 0.01 for i in range(30)]),
                Target("b", url, np.zeros(500), np.zeros(500, np.int32), [b"{}"], clients=2, until_s=0.3),
            ]
        )
    assert set(found.status.tolist()) == {200}
    # Two clients, each asking again 10 ms later, for 0.3 s.
    assert 2 <= len(closed.status) <= 62
    assert (np.diff(np.sort(closed.due_s)) >= 0).all()
    assert (closed.late_ms == 0).all()


def test_header_fields_cannot_smuggle_lines() -> None:
    with pytest.raises(InputError, match="control characters"):
        send_load([target("http://127.0.0.1:9/v1/app", [0.0], headers=(("a", "b\r\nc: d"),))])


@pytest.mark.parametrize("url", ["ftp://h/", "http://h:99999/", "http://:80/", "http://h:0/", "http://[::1/", "foo"])
def test_what_is_no_address_is_bad_input(url: str) -> None:
    nowhere = Target("a", url, np.zeros(1), np.zeros(1, np.int32), [b"{}"])
    with pytest.raises(InputError, match="an address of http"):
        send_load([nowhere], timeout_s=1.0)


@pytest.mark.slow
def test_bodies_are_kept_where_that_is_asked_for() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsaid"
    with serving(lambda _number, _request: [(0.0, answer[:-2]), (0.001, answer[-2:])]) as (url, _):
        (kept,) = send_load([target(url, [0.0, 0.01], keep=True)])
        (dropped,) = send_load([target(url, [0.0])])
    assert list(kept.bodies) == [b"said", b"said"]
    assert list(dropped.bodies) == []
