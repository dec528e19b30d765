"""Router and worker under load: requests per second, and what they add to the service time, litserve beside them.

    python benchmarks/router.py [--seconds 6] [--rates 1000,3000,4000] [--workers 2,4] [--litserve VENV/bin/python]
    python benchmarks/router.py --seconds 3 --beside [--fastapi PYTHON] [--litserve PYTHON] [--ray PYTHON]

A plan of one pool (rule matching/1) with so many sleep models of `--service-ms`, applied on this machine. An
open-loop client of one process sends Poisson arrivals on schedule over `--connections` connections, whether answers
come or not; latency counts from the scheduled moment, so a client that falls behind hides nothing. Overhead is latency
less service time; how late the client itself was is reported beside it.
litserve serves the same sleep (its own worker, batch of 1) from an environment of its own, where one is named.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import router_beside
from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.serving.process import ask_for_short_turns
from hetplan.executor.site import read_site
from hetplan.precise_loop import new_event_loop
from hetplan.profiles.plan import InputHashes, MatchingDispatch, Method, Plan, Route, SharesDispatch
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load, Serve, Worker

AT_ONCE_MS = 1e-6
"""A model of this time answers at once."""
FOLDER: list[str] = []
"""The state folder of the deployment that is measured, for its processes' CPU time."""

LITSERVE = """
import sys, time
import litserve as ls
class Sleep(ls.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return request
    def predict(self, x):
        time.sleep({seconds})
        return x
    def encode_response(self, output): return {{"outputs": None}}
if __name__ == "__main__":
    ls.LitServer(Sleep(api_path="/v1/pool"), accelerator="cpu", workers_per_device={workers}).run(
        port={port}, log_level="error", generate_client_file=False
    )
"""


class Client(asyncio.Protocol):
    """One connection with one request under way at a time."""

    def __init__(self, pool: OpenLoop) -> None:
        self.pool, self.buffer, self.due = pool, b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.pool.idle.append(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lower = self.buffer[:end].lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) >= end + 4 + length:
            ok, self.buffer = self.buffer.startswith(b"HTTP/1.1 200"), b""
            self.pool.answered(self, ok)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.pool.broken += 1


class OpenLoop:
    """An open loop: requests are due on schedule; one without an idle connection waits, and its wait counts."""

    def __init__(self, head: bytes, times: Sequence[float]) -> None:
        self.head, self.times = head, times
        self.idle: list[Client] = []
        self.waiting: list[float] = []
        self.latency_ms: list[float] = []
        self.late_ms: list[float] = []
        self.failed = self.broken = 0
        self.next = 0

    async def run(self, host: str, port: int, connections: int) -> float:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            await loop.create_connection(lambda: Client(self), host, port)
        self.began = time.monotonic() + 0.05
        loop.call_at(self.began + self.times[0], self.send)
        until = self.began + self.times[-1] + 5.0
        while len(self.latency_ms) + self.failed < len(self.times) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return time.monotonic() - self.began

    def send(self) -> None:
        now = time.monotonic()
        while self.next < len(self.times) and self.began + self.times[self.next] <= now:
            due = self.began + self.times[self.next]
            self.late_ms.append(1e3 * (now - due))
            self.next += 1
            if self.idle:
                self.write(self.idle.pop(), due)
            else:
                self.waiting.append(due)
        if self.next < len(self.times):
            asyncio.get_running_loop().call_at(self.began + self.times[self.next], self.send)

    def write(self, client: Client, due: float) -> None:
        client.due = due
        client.transport.write(self.head)

    def answered(self, client: Client, ok: bool) -> None:
        if ok:
            self.latency_ms.append(1e3 * (time.monotonic() - client.due))
        else:
            self.failed += 1
        if self.waiting:
            self.write(client, self.waiting.pop(0))
        else:
            self.idle.append(client)


def measure(port: int, *, rate: float, seconds: float, connections: int, service_ms: float) -> dict[str, Any]:
    draw = random.Random(1)
    times, at = [], 0.0
    while at < seconds:
        at += draw.expovariate(rate)
        times.append(at)
    body = b'{"at": {"batch": 1}}'
    head = b"POST /v1/pool HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nhetplan-reply: brief\r\n"
    head += b"content-length: %d\r\n\r\n" % len(body) + body
    load = OpenLoop(head, times)
    before = cpu_s(FOLDER[0] if FOLDER else None)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        took = runner.run(load.run("127.0.0.1", port, connections))
    after = cpu_s(FOLDER[0] if FOLDER else None)
    answered = sorted(load.latency_ms)

    def at_share(values: Sequence[float], share: float) -> float:
        return values[min(int(share * len(values)), len(values) - 1)] if values else float("nan")

    late = sorted(load.late_ms)
    return {
        "offered_qps": rate, "answered_qps": round(len(answered) / max(took - 0.05, seconds), 1),
        "unanswered": len(times) - len(answered),
        "overhead_p50_ms": round(at_share(answered, 0.5) - service_ms, 3),
        "overhead_p99_ms": round(at_share(answered, 0.99) - service_ms, 3),
        "sender_late_p99_ms": round(at_share(late, 0.99), 3),
        "cpu_us_per_request": {
            kind: round(1e6 * (after[kind] - before.get(kind, 0.0)) / len(times)) for kind in after
        },
    }  # fmt: skip


HEAD = (
    "| server | workers | offered qps | answered qps | unanswered | overhead p50 ms | overhead p99 ms | "
    "client late p99 ms | CPU µs per request |\n|---|---|---|---|---|---|---|---|---|"
)


def row(server: str, workers: int, found: dict[str, Any]) -> str:
    """A line of the table."""
    used = ", ".join(f"{kind} {us}" for kind, us in found["cpu_us_per_request"].items() if us)
    rates = f"{found['offered_qps']:,.0f} | {found['answered_qps']:,.0f} | {found['unanswered']}"
    times = f"{found['overhead_p50_ms']:.2f} | {found['overhead_p99_ms']:.1f} | {found['sender_late_p99_ms']:.2f}"
    return f"| {server} | {workers} | {rates} | {times} | {used} |"


def cpu_s(folder: str | None) -> dict[str, float]:
    """CPU seconds that the deployment's processes have used, by what they are."""
    used: dict[str, float] = {"client": time.process_time()}
    for process in marked(Path(folder)) if folder else []:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        kind = words[2].decode().rpartition(".")[2] if len(words) > 2 else "other"
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        used[kind] = used.get(kind, 0.0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def pool_plan(workers: int, service_ms: float, *, at_once: int = 1, rule: str = "matching/1") -> Plan:
    """One type of worker, matched with queries of one class, or each asked at once by its share."""
    table = Table(quantity="latency_ms", axes={"batch": (1.0, 2.0)}, mean=(service_ms, service_ms))
    load = Load(id="w1.a", app="pool", variant="m", serve=Serve(concurrency=at_once))
    matching = MatchingDispatch(slo_ms=100.0, weight={"cpu": 1.0}, predict={"m@cpu": "t"})
    return with_digest(
        Plan(
            question="pool", requires=(rule,), method=Method(formulation="by hand"),
            inputs=InputHashes(profile="none", slo="none"),
            workers=(Worker(id="w1", hardware="cpu", count=workers, loads=(load,)),),
            routing={"pool": (Route(to={"w1.a": 1.0}),)},
            dispatch={"pool": matching if rule == "matching/1" else SharesDispatch()},
            tables={"t": table},
        )
    )  # fmt: skip


@contextmanager
def ours(workers: int, service_ms: float, **how: Any) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        hosts = read_site(
            {
                "state_dir": folder, "router": {"port": 0}, "targets": {"here": {"kind": "local"}},
                "hosts": {"box": {"target": "here", "machines": ["cpu"], "count": 64}},
                "models": {"*": {"kind": "sleep", "ms": service_ms}},
            }
        )  # fmt: skip
        with Deployment(hosts) as deployment:
            try:
                deployment.apply(pool_plan(workers, service_ms, **how))
                FOLDER.append(str(Path(folder, "targets", "here").resolve()))
                yield int(deployment.endpoint().rpartition(":")[2])
            finally:
                FOLDER.clear()
                deployment.down()


@contextmanager
def litserve(python: str, workers: int, service_ms: float) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "serve.py"
        script.write_text(LITSERVE.format(seconds=service_ms / 1e3, workers=workers, port=port))
        server = subprocess.Popen(
            [python, str(script)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(port)
            yield port
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def wait_for(port: int, limit_s: float = 60.0) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.2)
        else:
            time.sleep(2.0)
            return
    raise TimeoutError("the server does not come up")


def beside(pythons: Mapping[str, str], seconds: float, rounds: int) -> None:
    """What a request costs here and elsewhere, in one run; `pythons` are those of environments of others.

    All chains take their turns in each round, so that what else the machine does meets them alike.
    """
    kinds = [kind for kind in router_beside.CHAINS if pythons.get(kind, sys.executable)]
    kinds = [kind for kind in kinds if kind != "haproxy" or shutil.which("haproxy")]
    for kind in router_beside.CHAINS:
        if kind not in kinds:
            print(f"{kind}: left out (it is not installed, or no Python was named that has it)", file=sys.stderr)
    found: dict[tuple[str, int], list[router_beside.Found]] = {}
    for number in range(rounds):
        for name in (*(f"hetplan, {rule}" for rule in RULES), *kinds):
            with hetplan_chain(name) if name not in kinds else other_chain(name, pythons) as (port, pids):
                for connections in CONNECTIONS:
                    one = router_beside.closed_loop(port, connections=connections, seconds=seconds, pids=pids)
                    found.setdefault((name, connections), []).append(one)
        print(f"round {number + 1} of {rounds} is over", file=sys.stderr, flush=True)
    print(router_beside.HEAD)
    for (name, connections), ones in found.items():
        print(router_beside.row(name, connections, ones, found[f"hetplan, {RULES[0]}", connections]))


RULES = "shares/1", "matching/1"
CONNECTIONS = 1, 16, 64, 256


@contextmanager
def hetplan_chain(name: str) -> Iterator[tuple[int, list[int]]]:
    """Our router under a rule, and a worker."""
    with ours(1, AT_ONCE_MS, at_once=max(CONNECTIONS), rule=name.removeprefix("hetplan, ")) as port:
        yield port, serving(Path(FOLDER[0]))


def other_chain(kind: str, pythons: Mapping[str, str]) -> AbstractContextManager[tuple[int, list[int]]]:
    """A chain that is not ours."""
    return router_beside.chain(kind, pythons.get(kind, sys.executable))


def serving(folder: Path) -> list[int]:
    """The router and the worker of a deployment; a router that only waits for the other's end is none."""
    words = {process: Path(f"/proc/{process}/cmdline").read_bytes() for process in marked(folder)}
    return [process for process, said in words.items() if b"executor.serving" in said and b"--waits" not in said]


def main() -> None:
    ask_for_short_turns()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of load per row")
    parser.add_argument("--rates", default="1000,3000,4000")
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--service-ms", type=float, default=0.2)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--beside", action="store_true", help="what a request costs here, and through other chains")
    parser.add_argument("--rounds", type=int, default=7, help="of all chains, with --beside; medians are shown")
    parser.add_argument(
        "--fastapi", default="", help="the Python of an environment with uvicorn[standard], fastapi, httpx"
    )
    parser.add_argument("--litserve", default="", help="the Python of an environment that has litserve")
    parser.add_argument("--ray", default="", help="the Python of an environment that has ray[serve]")
    given = parser.parse_args()
    if given.beside:
        pythons = {"fastapi": given.fastapi, "litserve": given.litserve, "ray": given.ray}
        beside(pythons, given.seconds, given.rounds)
        return
    rates = [float(rate) for rate in given.rates.split(",")]
    counts = [int(count) for count in given.workers.split(",")]
    served: list[tuple[str, int, Any]] = [("hetplan", count, ours(count, given.service_ms)) for count in counts]
    if given.litserve:
        served += [("litserve", count, litserve(given.litserve, count, given.service_ms)) for count in counts]
    else:
        print("litserve: left out (no --litserve PYTHON was named)", file=sys.stderr)
    print(HEAD, flush=True)
    for name, count, server in served:
        with server as port:
            measure(port, rate=500, seconds=1.0, connections=given.connections, service_ms=given.service_ms)
            for rate in rates:
                found = measure(
                    port, rate=rate, seconds=given.seconds, connections=given.connections, service_ms=given.service_ms
                )
                print(row(name, count, found), flush=True)


if __name__ == "__main__":
    main()
