"""Random faults under load: after each the plan is met again, nothing is orphaned, no query vanishes without a reason.

    python benchmarks/chaos.py [--rounds 200] [--seed 0] [--write docs/measured/chaos.md]

A plan of three workers runs on this machine; clients ask without a pause. Each round kills or stops a worker, the
router or the keeper, or fills the disk and kills a worker on it (where a small file system can be mounted). Then
`apply` is called as people would call it, and the time is taken until all that the plan wants runs again.

Ctrl-C (or SIGTERM) ends the rounds and all that was started, and prints the table of the rounds so far (exit 130).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.site import read_site
from hetplan.executor.target import ApplyFailed
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.workers import Load, Worker

__all__ = ["FAULTS", "Chaos", "Round", "small_disk", "table"]

WORKERS = 3
LIMIT_S = 120.0
WORDS = {name: f"hetplan.executor.{word}" for name, word in
         (("keeper", "keeper"), ("router", "serving.router"), ("worker", "serving.worker"))}  # fmt: skip
FAULTS = (
    *(f"{what} {name}" for name in WORDS for what in ("kill", "stop")),
    "kill keeper and worker", "kill router and worker", "full disk, kill worker", "full disk, kill router",
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """What a round did, how long the plan was not met, and what clients saw in it."""

    fault: str
    healed_s: float
    outcomes: dict[str, int]


@dataclass
class Client:
    """Asks without a pause, each time on a new connection, and counts what comes of it."""

    endpoint: str
    seen: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is to stop."""
        while not self.stop.is_set():
            self.seen[self.once()] += 1

    def once(self) -> str:
        """One query: its outcome, or how it failed; "no reason" is what must not happen."""
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=90)
        try:
            connection.request("POST", "/v1/app", b"")
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except ConnectionRefusedError:
            return "refused"
        except (OSError, http.client.HTTPException):
            return "broken"
        finally:
            connection.close()
        return said["outcome"] if said["outcome"] == "served" or said.get("why") else "no reason"


class Chaos:
    """One deployment, its clients, and rounds of faults."""

    def __init__(self, folder: Path, seed: int = 0, clients: int = 3) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.deployment = Deployment(
            read_site(
                {
                    "state_dir": str(folder / "state"), "limits": {"start_s": LIMIT_S, "drain_s": 2.0, "call_s": 30.0},
                    "router": {"port": 0}, "targets": {"here": {"kind": "local"}},
                    "hosts": {"box": {"target": "here", "machines": ["cpu"], "count": 2 * WORKERS}},
                    "models": {"*": {"kind": "sleep", "ms": 5.0}},
                }
            )
        )  # fmt: skip
        self.plan = _plan()
        self._clients = clients

    def run(self, rounds: int, faults: tuple[str, ...] = FAULTS) -> Generator[Round]:
        """The rounds; AssertionError says what did not hold after one."""
        with self.deployment:
            try:
                self.deployment.apply(self.plan)
                self._wait("the spare router", lambda: len(self._processes("router")) == 2)
                clients = [Client(self.deployment.endpoint()) for _ in range(self._clients)]
                threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
                for thread in threads:
                    thread.start()
                try:
                    for _ in range(rounds):
                        yield self._round(self.draw.choice(faults), clients)
                finally:
                    for client in clients:
                        client.stop.set()
                    for thread in threads:
                        thread.join()
            finally:
                self.deployment.down(wait_s=60.0)
            assert marked(self._target) == [], "something is left after down"

    def _round(self, fault: str, clients: list[Client]) -> Round:
        before = _total(clients)
        began = time.monotonic()
        with self._disk(full=fault.startswith("full disk")):
            names = fault.removeprefix("full disk, ").split()
            number = signal.SIGSTOP if names[0] == "stop" else signal.SIGKILL
            for name in names[1::2]:
                os.kill(self.draw.choice(self._processes(name)), number)
            time.sleep(self.draw.uniform(0.0, 0.5))
            self.deployment.close()
        self._wait(f"the plan after {fault}", self._met)
        healed_s = time.monotonic() - began
        self._wait(f"all clients were answered after {fault}", lambda: _total(clients).total() > before.total() + 20)
        outcomes = _total(clients) - before
        assert not outcomes["no reason"], f"{fault}: a query failed without a reason"
        assert not outcomes["refused"], f"{fault}: a connection was refused"
        # Who was being answered by a router that dies sees that its connection breaks; nobody else does.
        most = 2 * self._clients if "router" in fault else 0
        assert outcomes["broken"] <= most, f"{fault}: {outcomes['broken']} connections broke"
        return Round(fault, healed_s, dict(outcomes))

    def _met(self) -> bool:
        """Whether the plan is met with exactly the processes that it needs; where it is not, apply, as people would."""
        with suppress(ApplyFailed):
            if self.deployment.missing():
                self.deployment.apply(self.plan)
            counts = {name: len(self._processes(name)) for name in WORDS}
            right = counts == {"keeper": 1, "router": 2, "worker": WORKERS}
            return right and len(marked(self._target)) == sum(counts.values()) and not self.deployment.missing()
        return False

    @property
    def _target(self) -> Path:
        return (self.deployment.folder / "targets" / "here").resolve()

    def _processes(self, name: str) -> list[int]:
        """Those that go on: one that was stopped does not count."""
        found = []
        for process in marked(self._target):
            with suppress(OSError):
                if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    continue
                if WORDS[name].encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                    found.append(process)
        return found

    @contextmanager
    def _disk(self, *, full: bool) -> Iterator[None]:
        filler = self.folder / "filler"
        if full:
            with open(filler, "wb", buffering=0) as file, suppress(OSError):
                while file.write(b"x" * 4096):
                    pass
        try:
            yield
        finally:
            filler.unlink(missing_ok=True)

    @staticmethod
    def _wait(what: str, done: Callable[[], object]) -> None:
        until = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < until, f"not within {LIMIT_S:g} s: {what}"
            time.sleep(0.05)


def _total(clients: list[Client]) -> Counter[str]:
    return sum((client.seen for client in clients), Counter())


def _plan() -> Plan:
    worker = Worker(id="w1", hardware="cpu", count=WORKERS, loads=(Load(id="w1.a", app="app", variant="m"),))
    data: dict[str, Any] = {
        "question": "pool", "method": Method(formulation="by hand"), "inputs": InputHashes(profile="p", slo="s"),
        "workers": (worker,),
    }  # fmt: skip
    return with_digest(Plan.model_validate(data))


@contextmanager
def small_disk() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A folder on a file system of a few megabytes, and the faults that can be tried there."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
        with suppress(OSError):
            if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
                try:
                    yield Path(folder), FAULTS
                finally:
                    subprocess.run(["umount", "-l", folder], check=True)
                return
        yield Path(folder), tuple(fault for fault in FAULTS if not fault.startswith("full disk"))


def table(rounds: list[Round]) -> str:
    """A line per kind of fault, as Markdown."""
    lines = ["| fault | rounds | s until the plan is met: median | most | served | lost, with a reason | broken |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for fault in dict.fromkeys(sorted(one.fault for one in rounds)):
        alike = [one for one in rounds if one.fault == fault]
        healed = [one.healed_s for one in alike]
        seen: Counter[str] = sum((Counter(one.outcomes) for one in alike), Counter())
        lost = seen.total() - seen["served"] - seen["broken"]
        lines.append(
            f"| {fault} | {len(alike)} | {statistics.median(healed):.1f} | {max(healed):.1f} | {seen['served']} | "
            f"{lost} | {seen['broken']} |"
        )
    return "\n".join(lines) + "\n"


_ENDS = (signal.SIGINT, signal.SIGTERM)


def _interrupted(*_: object) -> None:
    """The first interruption counts: a second one must not keep it from ending what it started."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="put the table into this page, between its two marks")
    given = parser.parse_args()
    done: list[Round] = []
    for number in _ENDS:
        signal.signal(number, _interrupted)
    interrupted = False
    with small_disk() as (folder, faults), closing(Chaos(folder, given.seed).run(given.rounds, faults)) as rounds:
        try:
            for one in rounds:
                done.append(one)
                line = f"{len(done):4} {one.fault:24} {one.healed_s:6.1f} s  {one.outcomes}"
                print(line, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            interrupted = True
    print(table(done))
    if interrupted:
        sys.exit(130)
    if given.write is not None:
        head, _, rest = given.write.read_text().partition("<!-- table -->\n")
        tail = rest.partition("<!-- end -->")[2]
        given.write.write_text(f"{head}<!-- table -->\n{table(done)}<!-- end -->{tail}")


if __name__ == "__main__":
    main()
