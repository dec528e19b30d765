"""Plans and hosts made by hand, and a client, for tests that apply plans on this machine."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hetplan.executor.kept_process import marked
from hetplan.executor.site import Site, read_site
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.workers import Load, Worker


def make_plan(*workers: Worker, **sections: Any) -> Plan:
    """A plan with a digest; its question does not matter to whoever applies it."""
    data = {
        "question": "pool", "method": Method(formulation="by hand"), "inputs": InputHashes(profile="p", slo="s"),
        "workers": workers, **sections,
    }  # fmt: skip
    return with_digest(Plan.model_validate(data))


def make_worker(name: str, count: int = 1, *, variant: str = "m", app: str = "app", **fields: Any) -> Worker:
    """A group with one load."""
    return Worker(
        id=name, hardware=fields.pop("hardware", "cpu"), count=count,
        loads=(Load(id=f"{name}.a", app=app, variant=variant, **fields.pop("load", {})),), **fields,
    )  # fmt: skip


def make_hosts(folder: Path, **changes: Any) -> Site:
    """One machine that plays everything, with sleep models of one millisecond."""
    content: dict[str, Any] = {
        "state_dir": str(folder / "state"),
        "limits": {"start_s": 120.0, "drain_s": 2.0, "call_s": 60.0},
        "router": {"port": 0},
        "targets": {"here": {"kind": "local"}},
        "hosts": {"box": {"target": "here", "machines": ["cpu", "gpu"], "count": 8}},
        "models": {"*": {"kind": "sleep", "ms": 1.0}},
    }
    return read_site({**content, **changes})


class Client:
    """A keep-alive client of one deployment's router."""

    def __init__(self, endpoint: str) -> None:
        self.connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=120)

    def post(self, app: str = "app", body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        raw = b"" if body is None else json.dumps(body).encode()
        self.connection.request("POST", f"/v1/{app}", raw, dict(headers or {}))
        answer = self.connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else dict(answer.getheaders())

    def get(self, path: str) -> Any:
        self.connection.request("GET", path)
        return json.loads(self.connection.getresponse().read())


def processes_of(folder: Path, word: str) -> list[int]:
    """The processes of a deployment's folder that were started with this word."""
    found = []
    for process in marked(folder):
        with suppress(OSError):  # gone meanwhile
            if word.encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                found.append(process)
    return found


def wait_for(done: Callable[[], object], limit_s: float = 120.0) -> None:
    """Until it has come to pass."""
    until = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < until, "it never came to pass"
        time.sleep(0.02)
