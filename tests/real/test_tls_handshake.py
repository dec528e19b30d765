"""Connections to a TLS listener that never begin, or never end, their handshake: they count, end, and harm nobody."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_face import Listener

pytestmark = pytest.mark.slow

MOST, HANDSHAKE_S = 40, 1.5


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Listener]:
    """A TLS listener, and the one for the keeper, in a process of their own."""
    with Listener(tmp_path, connections=MOST, handshake_s=HANDSHAKE_S) as listener:
        yield listener


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The begin of a handshake that goes no further."""


@pytest.mark.parametrize("say", [b"", HELLO, b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "half a hello", "no TLS"])
@pytest.mark.parametrize("count", [20, 150])
def test_they_count_and_end_in_time_and_others_are_served(served: Listener, say: bytes, count: int) -> None:
    assert served.ask() == 200
    assert served.held() <= 1
    began, silent = time.monotonic(), []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", served.port), 5.0)
        if say:
            one.sendall(say)
        silent.append(one)
    time.sleep(0.2)
    held = served.held()
    if say != b"GET / HTTP/1.1\r\n\r\n" and time.monotonic() - began < HANDSHAKE_S / 2.0:
        assert held >= min(count, MOST), "they count before their handshake"
    assert held <= MOST + 64 + 1, "no more than the limit, and those that are told so"
    assert served.ask() == 200, "it is asked how it is, and always says it"
    until = time.monotonic() + HANDSHAKE_S + 10.0
    while served.held() > 0 and time.monotonic() < until:
        time.sleep(0.1)
    assert served.held() == 0, "all of them have ended"
    assert served.ask(path="/v1/app") == 200, "there is room for others again"
    for one in silent:
        one.settimeout(5.0)
        try:
            while one.recv(4096):
                pass  # an alert of TLS
        except ConnectionError:
            pass
        one.close()


def test_what_comes_with_the_end_of_the_handshake_is_read(served: Listener) -> None:
    """A client sends its first request in one piece with the last of its handshake, fifty times."""
    trust = ssl._create_unverified_context()
    for _ in range(50):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trust.wrap_bio(incoming, outgoing)
        with socket.create_connection(("127.0.0.1", served.port), 5.0) as one:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    one.sendall(outgoing.read())
                    incoming.write(one.recv(65536))
            client.write(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n")
            one.sendall(outgoing.read())
            answer = b""
            while b"\r\n\r\nok" not in answer:
                incoming.write(one.recv(65536))
                try:
                    answer += client.read(65536)
                except ssl.SSLWantReadError:
                    continue
            assert answer.startswith(b"HTTP/1.1 200")
