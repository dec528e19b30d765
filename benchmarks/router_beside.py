"""What a request costs through our router, through FastAPI behind a proxy, and through relays of bare asyncio.

Each chain is two processes, one hop: who takes requests, and who answers them. All answer the same bytes to the same
request at once. Clients ask in a closed loop over so many connections; counted are CPU microseconds per request of the
chain (the client's are left out) and of who takes requests alone, the time that a request takes, and requests per
second.

    hetplan      the router and a worker of a plan, whose model answers at once
    haproxy      HAProxy in front of the server of `parsed`
    fastapi      uvicorn with FastAPI that forwards by httpx, in front of uvicorn with FastAPI
    litserve     its server and one worker
    ray          Ray Serve's proxy and one replica, with all other processes of Ray
    parsed       a relay of asyncio's protocols that reads HTTP with httptools, in front of a server of the same kind
    streams      a relay of asyncio's streams that reads heads and bodies, in front of a server of the same kind
    bytes        a relay of asyncio's protocols that passes bytes on unread, in front of a server that reads nothing

`bytes` is a tunnel: each client has its own connection to the server, no byte is looked at, and nothing else could be
served, refused or counted. A relay of requests does at least what `streams` or `parsed` do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

__all__ = ["CHAINS", "HEAD", "Found", "chain", "closed_loop", "row"]

BODY = b'{"at": {"batch": 1}}'
REPLY = b'{"outcome": "served"}'
REQUEST = b"POST /v1/pool HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nhetplan-reply: brief\r\n"
REQUEST += b"content-length: %d\r\n\r\n" % len(BODY) + BODY
CHAINS = ("haproxy", "fastapi", "litserve", "ray", "parsed", "streams", "bytes")
"""Chains beside ours: HAProxy where it is installed, the next three where an environment is named that has them."""
HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{front}
  default_backend behind
backend behind
  http-reuse always
  server one 127.0.0.1:{behind}
"""
_MARK = "HETPLAN_BENCHMARK_CHAIN"

FASTAPI_WORKER = """
from fastapi import FastAPI, Request
app = FastAPI()
@app.post("/v1/{name}")
async def answer(name: str, request: Request):
    asked = await request.json()
    return {"outcome": "served"}
"""
FASTAPI_PROXY = """
import httpx
from contextlib import asynccontextmanager
from fastapi import FastAPI, Request, Response
client = None
@asynccontextmanager
async def life(app):
    global client
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx.AsyncClient(base_url="http://127.0.0.1:{port}", limits=limits)
    yield
app = FastAPI(lifespan=life)
@app.post("/v1/{{name}}")
async def forward(name: str, request: Request):
    said = {{"content-type": "application/json"}}
    reply = await client.post(f"/v1/{{name}}", content=await request.body(), headers=said)
    return Response(reply.content, reply.status_code, media_type=reply.headers["content-type"])
"""
STREAMS = """
import asyncio, sys
REPLY = b'{"outcome": "served"}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"
async def message(reader):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    at = head.lower().index(b"content-length:")
    return head, await reader.readexactly(int(head[at + 15:].split(b"\\r\\n", 1)[0]))
async def answer(reader, writer):
    try:
        while True:
            await message(reader)
            writer.write(HEAD % len(REPLY) + REPLY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def relay(reader, writer):
    behind, to = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    try:
        while True:
            to.write(b"".join(await message(reader)))
            await to.drain()
            writer.write(b"".join(await message(behind)))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        to.close()
async def main():
    server = await asyncio.start_server(relay if len(sys.argv) > 2 else answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
PARSED = """
import asyncio, sys
from collections import deque
from httptools import HttpRequestParser, HttpResponseParser
REPLY = b'{"outcome": "served"}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"
class Reads(asyncio.Protocol):
    kind = HttpRequestParser
    def connection_made(self, transport):
        self.transport, self.parser, self.body, self.headers = transport, self.kind(self), b"", {}
    def data_received(self, data): self.parser.feed_data(data)
    def on_url(self, url): self.url = url
    def on_header(self, name, value): self.headers[name.lower()] = value
    def on_body(self, body): self.body += body
    def on_message_complete(self):
        self.whole()
        self.body, self.headers = b"", {}
class Answer(Reads):
    def whole(self): self.transport.write(HEAD % len(REPLY) + REPLY)
class Behind(Reads):
    kind = HttpResponseParser
    def whole(self):
        self.front.transport.write(HEAD % len(self.body) + self.body)
        idle.append(self)
idle = deque()
class Relay(Reads):
    def whole(self):
        data = b"POST %b HTTP/1.1\\r\\nhost: behind\\r\\ncontent-type: %b\\r\\ncontent-length: %d\\r\\n\\r\\n" % (
            self.url, self.headers.get(b"content-type", b"-"), len(self.body)) + self.body
        if idle:
            self.to(idle.popleft(), data)
        else:
            self.task = asyncio.get_running_loop().create_task(self.open(data))
    def to(self, behind, data):
        behind.front = self
        behind.transport.write(data)
    async def open(self, data):
        loop = asyncio.get_running_loop()
        _, behind = await loop.create_connection(Behind, "127.0.0.1", int(sys.argv[2]))
        self.to(behind, data)
async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Relay if len(sys.argv) > 2 else Answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
LITSERVE = """
import sys
import litserve as ls
class Answer(ls.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return request
    def predict(self, x): return x
    def encode_response(self, output): return {"outcome": "served"}
if __name__ == "__main__":
    ls.LitServer(Answer(api_path="/v1/pool"), accelerator="cpu", workers_per_device=1).run(
        port=int(sys.argv[1]), log_level="error", generate_client_file=False
    )
"""
RAY = """
import sys, time
import ray
from ray import serve
from starlette.requests import Request
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.5})
class Answer:
    async def __call__(self, request: Request):
        asked = await request.json()
        return {"outcome": "served"}
serve.run(Answer.bind(), route_prefix="/v1/pool")
time.sleep(1e6)
"""
BYTES = """
import asyncio, sys
REPLY = b'{"outcome": "served"}'
WHOLE = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(REPLY) + REPLY
class Answer(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(WHOLE)
class Behind(asyncio.Protocol):
    def __init__(self, front): self.front = front
    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.front.early)
        self.front.behind = transport
    def data_received(self, data): self.front.transport.write(data)
class Relay(asyncio.Protocol):
    early, behind = b"", None
    def connection_made(self, transport):
        self.transport = transport
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(loop.create_connection(lambda: Behind(self), "127.0.0.1", int(sys.argv[2])))
    def data_received(self, data):
        if self.behind is None: self.early += data
        else: self.behind.write(data)
    def connection_lost(self, exc):
        if self.behind is not None: self.behind.close()
async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Relay if len(sys.argv) > 2 else Answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""


class Found:
    """What a chain did: CPU microseconds per request, milliseconds of a request, requests per second."""

    def __init__(self, took_ms: Sequence[float], cpu_s: float, seconds: float, front_s: float) -> None:
        ordered = sorted(took_ms)
        self.front_us = 1e6 * front_s / max(len(ordered), 1)
        self.cpu_us = 1e6 * cpu_s / max(len(ordered), 1)
        self.p50_ms = median(ordered) if ordered else float("nan")
        self.p99_ms = ordered[int(0.99 * len(ordered))] if ordered else float("nan")
        self.per_s = len(ordered) / seconds


class _Client(asyncio.Protocol):
    """Asks again as soon as it has its answer."""

    def __init__(self, took_ms: list[float], until: float) -> None:
        self.took_ms, self.until, self.data = took_ms, until, b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.ask()

    def ask(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end or not _whole(head.lower(), body):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            if not self.over.done():
                self.over.set_exception(RuntimeError(f"it answers {head[:60]!r}"))
            return
        self.data = b""
        now = time.perf_counter()
        self.took_ms.append(1e3 * (now - self.began))
        if now < self.until:
            self.ask()
        elif not self.over.done():
            self.over.set_result(None)


def _whole(head: bytes, body: bytes) -> bool:
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])


def closed_loop(port: int, *, connections: int, seconds: float, pids: Sequence[int]) -> Found:
    """So many clients, each with one request under way."""

    async def run(length: float) -> list[float]:
        loop, took = asyncio.get_running_loop(), list[float]()
        until = time.perf_counter() + length
        clients = [
            (await loop.create_connection(lambda: _Client(took, until), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        await asyncio.gather(*(client.over for client in clients))
        for client in clients:
            client.transport.close()
        return took

    asyncio.run(run(0.3))
    fronts = [pid for pid in pids if _is_front(pid)]
    before, before_front, began = _cpu_s(pids), _cpu_s(fronts), time.perf_counter()
    took = asyncio.run(run(seconds))
    return Found(took, _cpu_s(pids) - before, time.perf_counter() - began, _cpu_s(fronts) - before_front)


def _is_front(pid: int) -> bool:
    """Whether this process takes requests and asks another: our router, HAProxy, a proxy, a relay with two ports."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    if b"relay.py" in words:
        return len(words) == words.index(b"relay.py") + 3
    return any(one in word for word in words for one in (b"serving.router", b"haproxy", b"proxy:app"))


def _cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of all threads of these processes, to the nanosecond where the system counts so."""
    total = 0.0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0]) / 1e9
    return total


def _words(kind: str, python: str, folder: Path, front: int, behind: int) -> list[tuple[int, list[str]]]:
    """The commands of a chain, and the port on which each listens; who answers first, who takes requests last."""
    if kind == "fastapi":
        (folder / "worker.py").write_text(FASTAPI_WORKER)
        (folder / "proxy.py").write_text(FASTAPI_PROXY.format(port=behind))
        how = ["--log-level", "error", "--no-access-log"]
        served = ((behind, "worker"), (front, "proxy"))
        return [(port, [python, "-m", "uvicorn", f"{what}:app", "--port", str(port), *how]) for port, what in served]
    if kind in ("litserve", "ray"):
        (folder / "serve.py").write_text(LITSERVE if kind == "litserve" else RAY)
        return [(front, [python, "serve.py", str(front)])]
    texts = {"parsed": PARSED, "haproxy": PARSED, "streams": STREAMS, "bytes": BYTES}
    (folder / "relay.py").write_text(texts[kind])
    relay = [sys.executable, "relay.py"]
    if kind == "haproxy":
        (folder / "haproxy.cfg").write_text(HAPROXY.format(front=front, behind=behind))
        return [(behind, [*relay, str(behind)]), (front, ["haproxy", "-db", "-f", "haproxy.cfg"])]
    return [(behind, [*relay, str(behind)]), (front, [*relay, str(front), str(behind)])]


@contextmanager
def chain(kind: str, python: str) -> Iterator[tuple[int, list[int]]]:
    """The port of a chain that is not ours, and its processes, those that its processes started with them."""
    front, behind = _free_port(), _free_port()
    with tempfile.TemporaryDirectory() as name:
        mark = {_MARK: f"{os.getpid()}-{front}"}
        try:
            for port, words in _words(kind, python, Path(name), front, behind):
                subprocess.Popen(words, cwd=name, env={**os.environ, **mark}, stdout=subprocess.DEVNULL)
                _wait_for(front, port)
            yield front, _with(mark[_MARK])
        finally:
            for process in _with(mark[_MARK]):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def _with(mark: str) -> list[int]:
    """The processes that were started with this mark."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if f"{_MARK}={mark}".encode() in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _wait_for(front: int, port: int) -> None:
    """Until this port answers: by what is asked for at the front, elsewhere by any connection."""
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as line:
                if port != front:
                    return
                line.settimeout(5.0)
                line.sendall(REQUEST)
                if line.recv(65536).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the server does not come up")


HEAD = (
    "| chain | connections | CPU µs per request | least | over ours | of the front | p50 ms | p99 ms | per second |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def row(name: str, connections: int, found: Sequence[Found], ours: Sequence[Found]) -> str:
    """A line of the table: medians over the rounds, and the least CPU time of one."""

    def middle(what: str, of: Sequence[Found] = found) -> float:
        return median(getattr(one, what) for one in of)

    cpu = f"{middle('cpu_us'):.0f} | {min(one.cpu_us for one in found):.0f}"
    over = middle("cpu_us") / middle("cpu_us", ours)
    took = f"{middle('p50_ms'):.2f} | {middle('p99_ms'):.2f} | {middle('per_s'):,.0f}"
    return f"| {name} | {connections} | {cpu} | {over:.2f} | {middle('front_us'):.0f} | {took} |"
