"""The HTTP server against what clients and attackers send: pieces, pipelines, nonsense, silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hetplan.executor.serving.http_server import Exchange, HttpLimits, HttpServer, listen

Handle = Callable[[Exchange], None]


def echo(exchange: Exchange) -> None:
    what = (exchange.method, exchange.path, exchange.query, exchange.headers.get("x-a", ""))
    exchange.answer(200, " ".join(filter(None, what)).encode() + b" " + exchange.body)


def serve(
    client: Callable[[HttpServer], Awaitable[Any]], handle: Handle = echo, limits: HttpLimits | None = None
) -> Any:
    async def run() -> Any:
        server = await listen(handle, "127.0.0.1", 0, limits)
        try:
            return await asyncio.wait_for(client(server), 60)
        finally:
            server.close()

    return asyncio.run(run())


async def dial(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


def talk(
    raw: bytes | list[bytes], handle: Handle = echo, limits: HttpLimits | None = None, *, ends: bool = True
) -> bytes:
    """All that the server answers to these pieces; the client ends its side first, or waits for the server to."""

    async def client(server: HttpServer) -> bytes:
        reader, writer = await dial(server)
        for piece in [raw] if isinstance(raw, bytes) else raw:
            writer.write(piece)
            await writer.drain()
            if not isinstance(raw, bytes):
                await asyncio.sleep(0.01 if len(raw) < 10 else 0.0)
        if ends:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    return serve(client, handle, limits)


def bodies(answers: bytes) -> list[bytes]:
    """The bodies of answers that say their length."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        found.append(rest[:length])
        answers = rest[length:]
    return found


async def until(found: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = asyncio.get_running_loop().time() + limit_s
    while not found():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.005)


# Reading


def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    pair = b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nxyGET /b HTTP/1.1\r\n\r\n"
    assert bodies(talk(pair)) == [b"POST /a xy", b"GET /b "]


def test_answers_that_are_ready_early_wait_for_their_turn() -> None:
    held: list[Exchange] = []

    def backwards(exchange: Exchange) -> None:
        held.append(exchange)
        if len(held) == 2:
            held[1].answer(200, b"second")
            held[0].answer(200, b"first")

    assert bodies(talk(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", backwards)) == [b"first", b"second"]


PIPELINE = (
    b"POST /a HTTP/1.1\r\nX-A: one\r\nContent-Length: 10\r\n\r\n0123456789"
    b"POST /b?x=1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;name=value\r\nwxyz\r\n3\r\nabc\r\n0\r\nX-A: a trailer\r\nX-B: another\r\n\r\n"
    b"GET /c HTTP/1.1\r\n\r\n"
    b"POST /d HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
)
ECHOED = [b"POST /a one 0123456789", b"POST /b x=1 wxyzabc", b"GET /c ", b"POST /d "]


def test_chunks_extensions_and_trailers_are_read_and_trailers_reach_no_other_request() -> None:
    assert bodies(talk(PIPELINE)) == ECHOED


def test_requests_may_be_cut_anywhere() -> None:
    async def client(server: HttpServer) -> None:
        for place in range(1, len(PIPELINE)):
            reader, writer = await dial(server)
            writer.write(PIPELINE[:place])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            writer.write(PIPELINE[place:])
            writer.write_eof()
            assert bodies(await reader.read()) == ECHOED, place
            writer.close()

    serve(client)
    assert bodies(talk([PIPELINE[place : place + 1] for place in range(len(PIPELINE))])) == ECHOED


def test_requests_that_are_alike_are_still_read_one_by_one() -> None:
    """Heads are remembered; what follows them is not, and neither is what asks for more than an answer."""
    seen: list[Exchange] = []

    def handle(exchange: Exchange) -> None:
        seen.append(exchange)
        echo(exchange)

    head = b"POST /a?x=1 HTTP/1.1\r\nX-A: one\r\nContent-Length: 2\r\n\r\n"
    pieces = [head + b"ab", head + b"cd", head + b"e", b"f" + head + b"gh", head + b"ij" + head + b"kl", head + b"mn"]
    got = [b"POST /a x=1 one " + body for body in (b"ab", b"cd", b"ef", b"gh", b"ij", b"kl", b"mn")]
    assert bodies(talk(pieces, handle)) == got
    assert all(exchange.headers == seen[0].headers for exchange in seen)
    closing = b"GET /b HTTP/1.1\r\nconnection: close\r\n\r\n"

    async def client(server: HttpServer) -> None:
        for _ in range(3):
            reader, writer = await dial(server)
            writer.write(closing)
            assert b"connection: close" in await reader.read()
            writer.close()
        assert server.held == 0
        assert not server.heads

    serve(client)


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 4000
    head = b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert talk(head + body).endswith(body)


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        (b"/a%2Fb?x=%201", b"GET /a/b x=%201 "),
        (b"http://host:80/a?x=1", b"GET /a x=1 "),
        (b"http://host", b"GET / "),
    ],
)
def test_targets_may_be_quoted_have_a_query_or_be_absolute(target: bytes, seen: bytes) -> None:
    assert bodies(talk(b"GET " + target + b" HTTP/1.1\r\n\r\n")) == [seen]


def test_a_field_that_comes_twice_is_joined() -> None:
    assert bodies(talk(b"GET /a HTTP/1.1\r\nX-a: 1\r\nx-A: 2\r\n\r\n")) == [b"GET /a 1, 2 "]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nname : value\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nhost: x\n\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (HttpLimits().body_bytes + 1), 413),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nexpect: 200-ok\r\ncontent-length: 1\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20000, 431),
        (b"GET /" + b"y" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 4000, 431),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 4000, 431),
    ],
)
def test_what_cannot_be_read_is_refused_and_the_connection_closed(raw: bytes, status: int) -> None:
    answer = talk([b"GET /before HTTP/1.1\r\n\r\n", raw], ends=False)
    assert b"GET /before" in answer
    refusal = answer[answer.index(b"HTTP/1.1", 1) :]
    assert refusal.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in refusal
    assert refusal.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("begin", [b"", b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"])
def test_a_field_without_an_end_is_not_kept(begin: bytes) -> None:
    limits = HttpLimits(head_bytes=1000)
    pieces = [begin or b"GET / HTTP/1.1\r\n", b"x: ", *[b"y" * 50] * 25]
    assert talk(pieces, limits=limits, ends=False).startswith(b"HTTP/1.1 431 ")
    assert talk([b"GET / HTTP/1.1\r\n", b"x: ", *[b"y" * 50] * 15, b"\r\n\r\n"], limits=limits).startswith(
        b"HTTP/1.1 200"
    )


def test_chunks_count_towards_the_cap_of_a_body() -> None:
    limits = HttpLimits(body_bytes=10)
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert talk(head + b"5\r\n12345\r\n5\r\n12345\r\n0\r\n\r\n", limits=limits).startswith(b"HTTP/1.1 200 ")
    assert talk(head + b"5\r\n12345\r\n6\r\n123456\r\n0\r\n\r\n", limits=limits).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_is_refused_amid_its_body_still_sees_why() -> None:
    pieces = [b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n", *[b"x" * 100_000] * 8]
    assert talk(pieces, limits=HttpLimits(body_bytes=10)).startswith(b"HTTP/1.1 413 ")


# Methods, HEAD, Expect, connections that stay or close


def test_a_method_that_a_path_does_not_take_is_answered_405_and_the_others_are_named() -> None:
    def handle(exchange: Exchange) -> None:
        if exchange.allows("GET", "HEAD"):
            exchange.answer(200, b"yes")

    answer = talk(b"DELETE /a HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\n", handle)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"allow: GET, HEAD\r\n" in answer
    assert bodies(answer)[1] == b"yes"


def test_the_answer_to_head_has_the_length_and_no_body() -> None:
    answer = talk(b"HEAD /abc HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"content-length: 10\r\n\r\n")
    assert second.endswith(b"GET /b ")


def test_a_client_that_asks_first_is_reported_to_go_on_when_its_turn_has_come() -> None:
    held: list[Exchange] = []

    async def client(server: HttpServer) -> bytes:
        reader, writer = await dial(server)
        head = b"POST /b HTTP/1.1\r\ncontent-length: 2\r\nExpect: 100-continue\r\n\r\n"
        writer.write(b"GET /a HTTP/1.1\r\n\r\n" + head)
        await until(lambda: len(held) == 1)
        await asyncio.sleep(0.02)
        held[0].answer(200, b"first")
        seen = await reader.readuntil(b"first")
        assert b"100 Continue" not in seen
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"xy")
        await until(lambda: len(held) == 2)
        held[1].answer(200, held[1].body)
        return await reader.readuntil(b"xy")

    assert serve(client, held.append).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_would_be_refused_is_not_asked_for() -> None:
    raw = b"POST / HTTP/1.1\r\ncontent-length: 11\r\nexpect: 100-continue\r\n\r\n"
    answer = talk(raw, limits=HttpLimits(body_bytes=10))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_asks_for_it_is_hung_up_on() -> None:
    both = b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
    answer = talk(both, ends=False)
    assert b"GET /a" in answer
    assert b"connection: close" in answer
    assert b"GET /b" not in answer


def test_a_client_of_http_1_0_is_hung_up_on_unless_it_asks_otherwise() -> None:
    assert b"connection: close" in talk(b"GET /a HTTP/1.0\r\n\r\n", ends=False)
    kept = talk(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n", ends=False)
    assert b"connection: keep-alive" in kept
    assert b"GET /b" in kept


def test_a_client_that_has_ended_its_side_is_still_answered() -> None:
    held: list[Exchange] = []

    async def client(server: HttpServer) -> bytes:
        reader, writer = await dial(server)
        writer.write(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nPOST /c HTT")
        writer.write_eof()
        await until(lambda: len(held) == 2)
        await asyncio.sleep(0.05)
        held[0].answer(200, b"first")
        held[1].answer(200, b"second")
        return await reader.read()

    assert bodies(serve(client, held.append)) == [b"first", b"second"]


def test_an_upgrade_that_nobody_takes_is_an_ordinary_request() -> None:
    raw = b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
    assert bodies(talk(raw)) == [b"GET /a ", b"GET /b "]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (b"Content-Length: 3", b"abc"),
        (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Expect: 100-continue\r\nContent-Length: 3", b"abc"),
    ],
)
@pytest.mark.parametrize("cut", [1, 60, 1000])
def test_the_body_of_a_request_that_asks_for_an_upgrade_is_its_own(fields: bytes, body: bytes, cut: int) -> None:
    """Java's client asks every server for HTTP/2 so, with a body from the start."""
    head = b"POST /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    raw = b"GET /0 HTTP/1.1\r\n\r\n" + head + fields + b"\r\n\r\n" + body + b"GET /b HTTP/1.1\r\n\r\n"
    answers = talk([raw[begin : begin + cut] for begin in range(0, len(raw), cut)])
    assert bodies(answers.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")) == [b"GET /0 ", b"POST /a abc", b"GET /b "]
    assert answers.count(b"100 Continue") <= 1


def test_after_an_upgrade_the_rest_goes_to_the_other_protocol() -> None:
    got: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        exchange.connection.upgrade(exchange, "frames", got.append)

    raw = b"GET /link HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: frames\r\n\r\nabc"
    assert talk([raw, b"def"], handle).startswith(b"HTTP/1.1 101 ")
    assert b"".join(got) == b"abcdef"


def test_an_error_of_the_program_is_answered_and_the_connection_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def handle(exchange: Exchange) -> None:
        if exchange.path == "/a":
            raise ZeroDivisionError
        echo(exchange)

    answer = talk(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", handle)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"GET /b ")
    assert "ZeroDivisionError" in caplog.text


# Time


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"", b""),
        (b"GET /a HT", b"HTTP/1.1 408 "),
        (b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nx", b"HTTP/1.1 408 "),
    ],
)
def test_a_silent_client_is_closed(raw: bytes, answer: bytes) -> None:
    limits = HttpLimits(head_s=0.1, body_s=0.1, idle_s=0.1)
    found = talk(raw, limits=limits, ends=False)
    assert found.startswith(answer)
    assert bool(found) == bool(answer)


@pytest.mark.slow
def test_a_connection_that_waits_for_its_answer_or_is_used_again_is_not_idle() -> None:
    async def client(server: HttpServer) -> bytes:
        reader, writer = await dial(server)
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        await until(lambda: len(held) == 1)
        await asyncio.sleep(0.7)
        held[0].answer(200, b"first")
        await reader.readuntil(b"first")
        writer.write(b"GET /b HTTP/1.1\r\n\r\n")
        await until(lambda: len(held) == 2)
        held[1].answer(200, b"second")
        return await reader.read()  # idle from here on: the server closes

    held: list[Exchange] = []
    assert serve(client, held.append, HttpLimits(idle_s=0.4)).endswith(b"second")


# Room


def test_above_the_cap_of_bytes_bodies_are_refused_until_others_are_answered() -> None:
    held: list[Exchange] = []

    async def client(server: HttpServer) -> None:
        request = b"POST /a HTTP/1.1\r\ncontent-length: 60\r\n\r\n" + b"x" * 60
        first = await dial(server)
        first[1].write(request)
        await until(lambda: len(held) == 1)
        second = await dial(server)
        second[1].write(request)
        refused = await second[0].read()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in refused
        held[0].answer(200, b"done")
        await first[0].readuntil(b"done")
        first[1].write(request)
        await until(lambda: len(held) == 2)
        first[1].close()
        held[1].answer(200, b"nobody reads this")
        await until(lambda: server.held == 0)

    serve(client, held.append, HttpLimits(held_bytes=100))


def test_what_breaks_off_amid_a_body_gives_back_what_it_held() -> None:
    async def client(server: HttpServer) -> None:
        _, writer = await dial(server)
        writer.write(b"POST /a HTTP/1.1\r\ncontent-length: 60\r\n\r\n" + b"x" * 30)
        await until(lambda: server.held == 30)
        writer.close()
        await until(lambda: server.held == 0)

    serve(client)


def test_above_the_cap_of_connections_only_the_vital_is_answered() -> None:
    async def client(server: HttpServer) -> None:
        idle = [await dial(server) for _ in range(3)]
        await until(lambda: len(server.connections) == 3)
        for path, status in ((b"/a", 503), (b"/healthz", 200)):
            reader, writer = await dial(server)
            writer.write(b"GET %b HTTP/1.1\r\nconnection: close\r\n\r\n" % path)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert (b"retry-after" in answer) == (status == 503)
            writer.close()
        crowd = [await dial(server) for _ in range(70)]
        assert await crowd[0][0].read() == b""  # the first of too many makes room
        assert len(server.connections) <= 3 + 64
        idle[0][1].close()
        for _, writer in crowd:
            writer.close()
        await until(lambda: len(server.connections) == 2)
        reader, writer = await dial(server)
        writer.write(b"GET /a HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")

    serve(client, limits=HttpLimits(connections=3))


def test_a_client_that_sends_many_requests_ahead_waits() -> None:
    held: list[Exchange] = []

    async def client(server: HttpServer) -> None:
        reader, writer = await dial(server)
        for _ in range(6):
            writer.write(b"GET /a HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.02)
        assert len(held) == 4
        for place in range(6):
            await until(lambda place=place: len(held) > place)
            held[place].answer(200, b"<%d>" % place)
        assert await reader.readuntil(b"<5>")

    serve(client, held.append, HttpLimits(unanswered=4))


# Streams


def streaming(*pieces: bytes, gone: list[bool] | None = None) -> Handle:
    def handle(exchange: Exchange) -> None:
        if exchange.path != "/stream":
            echo(exchange)
            return
        if gone is not None:
            exchange.on_gone = lambda: gone.append(True)
        exchange.begin(200, kind=b"text/event-stream")
        rest = iter([*pieces, None])

        def more() -> None:
            piece = next(rest)
            if piece is None:
                exchange.finish()
            elif piece == b"!":
                exchange.cut()
            else:
                exchange.push(piece)
                asyncio.get_running_loop().call_soon(more)

        more()

    return handle


def test_a_stream_comes_in_chunks_and_the_next_request_after_it() -> None:
    handle = streaming(b"one", b"", b"x" * 300)
    answer = talk(b"GET /stream HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", handle)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    assert rest.startswith(b"3\r\none\r\n12c\r\n" + b"x" * 300 + b"\r\n0\r\n\r\nHTTP/1.1 200 OK")
    assert rest.endswith(b"GET /b ")


def test_a_stream_to_an_old_client_ends_with_the_connection_and_one_to_head_has_no_body() -> None:
    handle = streaming(b"one", b"two")
    old = talk(b"GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", handle, ends=False)
    assert b"chunked" not in old
    assert old.endswith(b"connection: close\r\n\r\nonetwo")
    assert talk(b"HEAD /stream HTTP/1.1\r\n\r\n", handle).endswith(b"chunked\r\n\r\n")


def test_a_stream_that_fails_is_cut_off_so_that_nobody_takes_it_for_whole() -> None:
    gone: list[bool] = []

    async def client(server: HttpServer) -> bytes:
        reader, writer = await dial(server)
        writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
        got = b""
        try:
            while piece := await reader.read(1000):
                got += piece
        except ConnectionResetError:
            pass
        return got

    got = serve(client, streaming(b"one", b"!", gone=gone))
    assert b"0\r\n\r\n" not in got
    assert gone == [True]


def test_a_stream_waits_for_a_slow_client_and_ends_when_it_leaves() -> None:
    made: list[int] = []
    gone: list[bool] = []

    def endless(exchange: Exchange) -> None:
        def more() -> None:
            while not gone:
                made.append(1)
                if not exchange.push(b"x" * 50_000):
                    return

        exchange.on_room, exchange.on_gone = more, lambda: gone.append(True)
        exchange.begin(200)

    async def client(server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
        await until(lambda: len(made) > 3)
        before = -1
        while before != len(made):  # the buffers of both sides fill up
            before = len(made)
            await asyncio.sleep(0.2)
        await reader.readexactly(20_000_000)
        await until(lambda: len(made) > before)
        writer.transport.abort()
        await until(lambda: gone == [True])
        await until(lambda: not server.connections)

    serve(client, endless)


def test_a_piece_that_comes_before_its_turn_is_kept_until_then() -> None:
    held: list[Exchange] = []

    def handle(exchange: Exchange) -> None:
        held.append(exchange)
        if len(held) == 2:
            exchange.begin(200)
            exchange.push(b"two")
            held[0].answer(200, b"one")
            exchange.finish()

    answer = talk(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", handle)
    assert answer.index(b"one") < answer.index(b"3\r\ntwo\r\n0\r\n\r\n")


def test_a_client_that_takes_nothing_of_its_answer_is_cut() -> None:
    async def client(server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        await until(lambda: not server.connections)
        writer.close()
        del reader

    serve(client, lambda exchange: exchange.answer(200, b"x" * 30_000_000), HttpLimits(body_s=0.2))


# Who may come in


def test_without_the_token_no_body_is_read() -> None:
    async def client(server: HttpServer) -> tuple[bytes, int]:
        reader, writer = await dial(server)
        writer.write(
            b"POST /v1/a HTTP/1.1\r\ncontent-length: 1000000\r\nauthorization: Bearer no\r\n\r\n" + b"x" * 1000
        )
        answer = await reader.read()
        writer.close()
        return answer, server.held

    async def run() -> tuple[bytes, int]:
        server = await listen(echo, "127.0.0.1", 0, token="0123456789abcdef")
        try:
            return await asyncio.wait_for(client(server), 60)
        finally:
            server.close()

    answer, held = asyncio.run(run())
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer" in answer
    assert held == 0


def test_a_large_body_comes_whole_and_its_memory_goes_back() -> None:
    body = bytes(range(256)) * 4096 * 2
    assert bodies(talk(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)) == [b"POST / " + body]
