"""Good clients beside bad ones: the good ones lose nothing, and the router's memory stays flat.

    python benchmarks/soak.py [--seconds 600] [--files 1024]

A plan of two workers runs on this machine; its processes may open so many files. Four good clients ask without a
pause. Beside them others send heads that never end, say nothing at all on more connections than the router takes, send
halves of 60 MiB, send what is no HTTP, or close one side early. The command ends with an error where a good client got
anything but an answer, where the router was started again, or where its memory went on growing.

With `--streams` the worker is an engine that makes text: a good client reads every token of its stream, and bad ones
beside them read none, leave in the midst, or close their side once they have asked.
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
from statistics import median
from typing import Any
from urllib.request import urlopen

from hetplan.executor.deployment import Deployment
from hetplan.executor.site import read_site
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.workers import Load, Worker

__all__ = ["Soak", "soak"]

GOOD, IDLE_EACH, IDLE_PROCESSES = 4, 600, 2
TOKENS = 40
MIB = 1024 * 1024
Address = tuple[str, int]


class Soak:
    """Clients of one router until they are to stop; `wrong` is what good ones got that is no answer."""

    def __init__(self, at: Address, *, streams: bool = False) -> None:
        self.at, self.streams = at, streams
        self.stop = threading.Event()
        self.good = 0
        self.wrong: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()

    def run(self, seconds: float, look: Callable[[], None]) -> None:
        """All kinds at once; `look` is called every second."""
        kinds = [self._slow, self._huge, self._huge, self._broken, self._half_closed]
        kinds += [self._deaf, self._gone] if self.streams else []
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
                connection.request("POST", *self._asked)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 200 and self._is_whole(body):
                    self.good += 1
                else:
                    self.wrong[f"{answer.status} {body!r}"[:100]] += 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.wrong[repr(error)[:100]] += 1
                connection.close()
            time.sleep(0.005)
        connection.close()

    @property
    def _asked(self) -> tuple[str, bytes]:
        """The path and the body of a good request."""
        if self.streams:
            return "/v1/completions", json.dumps({"prompt": "say it", "max_tokens": TOKENS, "stream": True}).encode()
        return "/v1/app", b'{"inputs": [1, 2, 3]}'

    def _is_whole(self, body: bytes) -> bool:
        """Whether all is there: each token of a stream, and its end."""
        if not self.streams:
            return bool(json.loads(body).get("outcome") == "served")
        *tokens, end = [line for line in body.split(b"\n\n") if line]
        said = [json.loads(line.removeprefix(b"data: ")) for line in tokens]
        return (
            end == b"data: [DONE]" and sum(bool(one["choices"][0]["text"]) for one in said if one["choices"]) == TOKENS
        )

    def _ask(self, connection: socket.socket) -> None:
        path, body = self._asked
        connection.sendall(
            b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
        )

    def _deaf(self, connection: socket.socket) -> None:
        """Asks, and reads nothing."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._ask(connection)
        self.stop.wait(20.0)

    def _gone(self, connection: socket.socket) -> None:
        """Leaves in the midst of its stream."""
        self._ask(connection)
        connection.recv(100)

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
        self._ask(connection)
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


def rest_mib(process: int, wanted: float) -> float:
    """The memory of a process once its clients are gone: as soon as it is as wanted, or after a while."""
    end = time.monotonic() + 20.0
    while (now := rss_mib(process)) >= wanted and time.monotonic() < end:
        time.sleep(0.2)
    return now


def plan_of(folder: Path, *, streams: bool) -> tuple[Plan, dict[str, Any]]:
    """What is served, and what site.toml says of it."""
    if not streams:
        worker = Worker(id="w1", hardware="cpu", count=2, loads=(Load(id="w1.a", app="app", variant="m"),))
        how: dict[str, Any] = {"question": "pool", "workers": (worker,)}
        more: dict[str, Any] = {"models": {"*": {"kind": "sleep", "ms": 2.0}}}
    else:
        law = {"base_ms": 2.0, "token_ms": 0.01}
        model = {"task": "chat", "runs": {"cpu": {"law": law, "kv_tokens": 40_000}}}
        profile = {"format": "hetplan/profile/1.0", "machines": {"cpu": {}}, "models": {"m": model}}
        (folder / "profile.json").write_text(json.dumps(profile))
        serve = {"max_batch": 32, "concurrency": 32, "most_tokens": 512, "most_seqs": 32}
        load = Load.model_validate({"id": "w1.a", "app": "app", "variant": "m", "serve": serve})
        worker = Worker(id="w1", hardware="cpu", count=2, queue="per-load", loads=(load,))
        rule = {"rule": "least-work/1", "ttft_ms": 2000.0, "limit": {"w1.a": 1.0}, "output_tokens": float(TOKENS)}
        how = {
            "question": "llm",
            "workers": (worker,),
            "dispatch": {"app": rule},
            "routing": {"app": [{"to": {"w1.a": 1.0}}]},
        }
        more = {"models": {"*": {"kind": "sleep"}}, "files": [str(folder / "profile.json")]}
    inputs = InputHashes(profile="p", slo="s")
    return with_digest(Plan.model_validate({"method": Method(formulation="by hand"), "inputs": inputs, **how})), more


def soak(folder: Path, seconds: float, *, streams: bool = False) -> dict[str, object]:
    """Run it on a deployment of its own; AssertionError says what did not hold."""
    plan, more = plan_of(folder, streams=streams)
    hosts = read_site(
        {
            **more,
            "state_dir": str(folder / "state"), "limits": {"start_s": 120.0, "drain_s": 2.0, "call_s": 30.0},
            "router": {"port": 0}, "targets": {"here": {"kind": "local"}},
            "hosts": {"box": {"target": "here", "machines": ["cpu"], "count": 4}},
        }
    )  # fmt: skip
    with Deployment(hosts) as deployment:
        try:
            endpoint = deployment.apply(plan).endpoint
            host, _, port = endpoint.removeprefix("http://").partition(":")
            clients = Soak((host, int(port)), streams=streams)
            with urlopen(f"{endpoint}/healthz", timeout=60) as answer:
                router = int(json.loads(answer.read())["pid"])
            memory, before = list[float](), rss_mib(router)
            clients.run(seconds, lambda: memory.append(rss_mib(router)))
            assert not clients.wrong, f"good clients got {dict(clients.wrong)}"
            assert clients.good > seconds, f"only {clients.good} answers"
            assert Path(f"/proc/{router}").exists(), "the router was started again"
            assert not deployment.missing(), deployment.missing()
            # How many huge bodies meet is chance, so the most of a half says little: its middle says whether it grows.
            half = len(memory) // 2
            first, second = median(memory[:half]), median(memory[half:])
            assert second < first + 40.0, f"memory grew from {first:.0f} to {second:.0f} MiB"
            # Bodies that are held may come to 192 MiB; the rest is for connections and what is on its way.
            most = [max(memory[:half]), max(memory[half:])]
            assert max(most) < before + 240.0, f"{max(most):.0f} MiB, and {before:.0f} without clients"
            left = rest_mib(router, before + 40.0)
            assert left < before + 40.0, f"{left:.0f} MiB are left, and {before:.0f} were there before"
            mib = {"without clients": round(before), "most, by halves": [round(one) for one in most],
                   "middle, by halves": [round(first), round(second)], "afterwards": round(left)}  # fmt: skip
            return {"good": clients.good, "bad": dict(clients.bad), "MiB": mib}
        finally:
            deployment.down(wait_s=60.0)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--files", type=int, default=1024, help="open files of each process, as `ulimit -n` says it")
    parser.add_argument("--streams", action="store_true", help="of tokens, in place of single answers")
    parser.add_argument("--idle", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.idle:
        host, _, port = given.idle.partition(":")
        idle((host, int(port)), IDLE_EACH)
    resource.setrlimit(resource.RLIMIT_NOFILE, (given.files, given.files))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(soak(Path(folder), given.seconds, streams=given.streams)))


if __name__ == "__main__":
    main()
