"""The HTTP server against what clients and attackers send: pieces, pipelines, nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hetplan.executor.serving.http_server import MOST_BODY, Exchange, listen


def talk(raw: bytes | list[bytes], handle: Callable[[Exchange], None] | None = None) -> bytes:
    """All that the server answers to these pieces before the client hangs up."""

    def echo(exchange: Exchange) -> None:
        exchange.answer(200, exchange.method.encode() + b" " + exchange.path.encode() + b" " + exchange.body)

    async def run() -> bytes:
        server = await listen(handle or echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        for piece in [raw] if isinstance(raw, bytes) else raw:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        server.close()
        return answer

    return asyncio.run(run())


def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    pair = b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nxyGET /b HTTP/1.1\r\n\r\n"
    answer = talk(pair)
    assert answer.index(b"POST /a xy") < answer.index(b"GET /b ")


def test_answers_that_are_ready_early_wait_for_their_turn() -> None:
    held: list[Exchange] = []

    def backwards(exchange: Exchange) -> None:
        held.append(exchange)
        if len(held) == 2:
            held[1].answer(200, b"second")
            held[0].answer(200, b"first")

    answer = talk(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", backwards)
    assert answer.index(b"first") < answer.index(b"second")


def test_a_request_in_pieces_is_one_request() -> None:
    whole = b"POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789"
    assert b"POST /a 0123456789" in talk([whole[:9], whole[9:30], whole[30:45], whole[45:]])


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 4000
    head = b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert talk(head + body).endswith(body)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (MOST_BODY + 1), 413),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20000, 431),
    ],
)
def test_what_cannot_be_read_is_refused_and_the_connection_closed(raw: bytes, status: int) -> None:
    answer = talk([raw])
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer


def test_a_client_that_asks_for_it_is_hung_up_on() -> None:
    both = b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
    answer = talk(both)
    assert b"GET /a" in answer
    assert b"GET /b" not in answer
