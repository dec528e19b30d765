"""Good clients beside bad ones: the good ones lose nothing, and the router's memory stays flat.

    python benchmarks/soak.py [--seconds 600] [--files 1024]

A plan of two workers runs on this machine; its processes may open so many files. Four good clients ask without a
pause. Beside them others send heads that never end, say nothing at all on more connections than the router takes, send
halves of 60 MiB, send what is no HTTP, or close one side early. The command ends with an error where a good client got
anything but an answer, where the router was started again, or where its memory went on growing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from hetplan.executor.deployment import Deployment
from hetplan.executor.hosts_file import read_hosts
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.workers import Load, Worker

__all__ = ["Soak", "soak"]

GOOD, IDLE_EACH, IDLE_PROCESSES = 4, 600, 2
MIB = 1024 * 1024
Address = tuple[str, int]


class Soak:
    """Clients of one router until they are to stop; `wrong` is what good ones got that is no answer."""

    def __init__(self, at: Address) -> None:
        self.at = at
        self.stop = threading.Event()
        self.good = 0
        self.wrong: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()

    def run(self, seconds: float, look: Callable[[], None]) -> None:
        """All kinds at once; `look` is called every second."""
        kinds = [self._slow, self._huge, self._huge, self._broken, self._half_closed]
        threads = [threading.Thread(target=self._well, name=f"good {at}") for at in range(GOOD)]
        threads += [threading.Thread(target=self._again, args=(kind,)) for kind in kinds for _ in range(2)]
        here = [sys.executable, __file__, "--idle", f"{self.at[0]}:{self.at[1]}"]
        # The good ones are connected before the crowd comes: it may keep others out, but not them.
        for thread in threads[:GOOD]:
            thread.start()
        time.sleep(1.0)
        idle = [subprocess.Popen(here) for _ in range(IDLE_PROCESSES)]
        for thread in threads[GOOD:]:
            thread.start()
        try:
            for _ in range(int(seconds)):
                time.sleep(1.0)
                look()
        finally:
            self.stop.set()
            for process in idle:
                process.kill()
                process.wait()
            for thread in threads:
                thread.join()

    def _well(self) -> None:
        connection = http.client.HTTPConnection(*self.at, timeout=60)
        while not self.stop.is_set():
            try:
                connection.request("POST", "/v1/app", b'{"inputs": [1, 2, 3]}')
                answer = connection.getresponse()
                said = json.loads(answer.read())
                if (answer.status, said.get("outcome")) == (200, "served"):
                    self.good += 1
                else:
                    self.wrong[f"{answer.status} {said}"[:100]] += 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.wrong[repr(error)[:100]] += 1
                connection.close()
            time.sleep(0.005)
        connection.close()

    def _again(self, kind: Callable[[socket.socket], None]) -> None:
        while not self.stop.is_set():
            with suppress(OSError), socket.create_connection(self.at, 5) as connection:
                connection.settimeout(5)
                kind(connection)
            self.bad[kind.__name__] += 1
            time.sleep(0.02)

    def _slow(self, connection: socket.socket) -> None:
        connection.sendall(b"POST /v1/app HTTP/1.1\r\nx: ")
        for _ in range(40):
            if self.stop.wait(0.25):
                return
            connection.sendall(b"y")

    def _huge(self, connection: socket.socket) -> None:
        connection.sendall(b"POST /v1/app HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (62 * MIB))
        piece = b"x" * MIB
        for _ in range(60):
            if self.stop.is_set():
                return
            connection.sendall(piece)
        self.stop.wait(1.0)

    def _broken(self, connection: socket.socket) -> None:
        connection.sendall(random.choice([os.urandom(300), b"\0" * 100, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"]))
        connection.recv(1000)

    def _half_closed(self, connection: socket.socket) -> None:
        connection.sendall(b"POST /v1/app HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass


def idle(at: Address, count: int) -> None:
    """Many connections that say a few bytes and then nothing, opened again when they are closed."""
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            connection = socket.create_connection(at, 1)
            connection.sendall(b"GET /")
            held.append(connection)
        if len(held) >= count:
            time.sleep(0.05)
            held.pop(0).close()


def rss_mib(process: int) -> float:
    """The memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def soak(folder: Path, seconds: float) -> dict[str, object]:
    """Run it on a deployment of its own; AssertionError says what did not hold."""
    hosts = read_hosts(
        {
            "state_dir": str(folder / "state"), "limits": {"start_s": 120.0, "drain_s": 2.0, "call_s": 30.0},
            "router": {"port": 0}, "targets": {"here": {"kind": "local"}},
            "hosts": {"box": {"target": "here", "hardware": ["cpu"], "machines": 4}},
            "models": [{"kind": "sleep", "ms": 2.0}],
        }
    )  # fmt: skip
    worker = Worker(id="w1", hardware="cpu", count=2, loads=(Load(id="w1.a", app="app", variant="m"),))
    inputs = InputHashes(profile="p", slo="s")
    plan = Plan.model_validate(
        {"question": "pool", "method": Method(formulation="by hand"), "inputs": inputs, "workers": (worker,)}
    )
    with Deployment(hosts) as deployment:
        try:
            endpoint = deployment.apply(with_digest(plan)).endpoint
            host, _, port = endpoint.removeprefix("http://").partition(":")
            clients = Soak((host, int(port)))
            with urlopen(f"{endpoint}/healthz", timeout=60) as answer:
                router = int(json.loads(answer.read())["pid"])
            memory: list[float] = []
            clients.run(seconds, lambda: memory.append(rss_mib(router)))
            assert not clients.wrong, f"good clients got {dict(clients.wrong)}"
            assert clients.good > seconds, f"only {clients.good} answers"
            assert Path(f"/proc/{router}").exists(), "the router was started again"
            assert not deployment.missing(), deployment.missing()
            half = len(memory) // 2
            first, second = max(memory[:half]), max(memory[half:])
            assert second < first + 40.0, f"memory grew from {first:.0f} to {second:.0f} MiB"
            assert second < 320.0, f"{second:.0f} MiB"
            return {"good": clients.good, "bad": dict(clients.bad), "MiB, most": [round(first), round(second)]}
        finally:
            deployment.down(wait_s=60.0)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--files", type=int, default=1024, help="open files of each process, as `ulimit -n` says it")
    parser.add_argument("--idle", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.idle:
        host, _, port = given.idle.partition(":")
        idle((host, int(port)), IDLE_EACH)
    resource.setrlimit(resource.RLIMIT_NOFILE, (given.files, given.files))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(soak(Path(folder), given.seconds)))


if __name__ == "__main__":
    main()
