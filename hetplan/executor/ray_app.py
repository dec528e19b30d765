"""What runs inside a Ray cluster: a replica that keeps a worker process and says where it listens.

The router links to the worker itself; Ray places the replica and starts it anew when it or its worker dies. A request
to the application is answered with the worker's address, port and the digest of what it holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from hetplan.executor.units import Unit, in_url

__all__ = ["KeptWorker", "build"]


class KeptWorker:
    """A worker process on this node; it holds what it was last asked to, and ends with this process."""

    def __init__(self, bind: str) -> None:
        self.bind = bind
        self.port = 0
        self._folder = Path(tempfile.mkdtemp(prefix="hetplan-worker-"))
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, unit: Unit, *, limit_s: float) -> None:
        """Start the worker, or have it change its loads in place; returns when it holds them."""
        config = {"content": unit.content, "bind": self.bind, "port": self.port, "cores": [], "unit": unit.as_dict()}
        path = self._folder / "config.json"
        path.with_suffix(".new").write_text(json.dumps(config))
        path.with_suffix(".new").replace(path)
        if self._process is None or self._process.poll() is not None:
            self._start(path, limit_s)
        else:
            self._process.send_signal(signal.SIGHUP)
        self._until_it_holds(unit.content, limit_s)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def end(self, *, drain_s: float) -> None:
        """Let it finish what it has, then end it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=drain_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, path: Path, limit_s: float) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "hetplan.executor.serving.worker", str(path)]
        try:
            self._process = subprocess.Popen(
                [*command, "--report", str(writing), "--parent", str(os.getpid())], pass_fds=(writing,)
            )
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        said, until = b"", time.monotonic() + limit_s
        with os.fdopen(reading, "rb") as report:
            while not said.endswith(b"\n") and time.monotonic() < until and self._process.poll() is None:
                said += report.read() or b""
                time.sleep(0.02)
            said += report.read() or b""
        answer = json.loads(said) if said.strip() else {"failed": "the worker did not come up"}
        if "failed" in answer:
            self.end(drain_s=0.0)
            raise RuntimeError(f"{answer['failed']}")
        self.port = int(answer["port"])

    def _until_it_holds(self, content: str, limit_s: float) -> None:
        until, seen = time.monotonic() + limit_s, ""
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://{in_url(self.bind)}:{self.port}/healthz", timeout=2.0) as answer:
                    health = json.loads(answer.read())
            except OSError as error:
                seen = str(error)
            else:
                if health["content"] == content:
                    return
                seen = health.get("refused") or "it still holds what it held"
            time.sleep(0.05)
        raise RuntimeError(f"the worker does not hold what it should after {limit_s:g} s: {seen}")


def build(_args: Mapping[str, Any]) -> Any:
    """The application, as Ray Serve imports it (`import_path`)."""
    # By name: this runs where ray is, and is checked where it is not.
    serve: Any = import_module("ray.serve")

    @serve.deployment(name="worker")
    class Worker:
        def __init__(self) -> None:
            self.address = import_module("ray.util").get_node_ip_address()
            self.kept = KeptWorker(self.address)
            self.content = ""

        async def reconfigure(self, config: dict[str, Any]) -> None:
            unit = Unit.from_dict(config["unit"])
            await asyncio.to_thread(self.kept.hold, unit, limit_s=config["start_s"])
            self.content = unit.content

        async def check_health(self) -> None:
            if not self.kept.alive():
                raise RuntimeError("its worker process has ended")

        async def __call__(self, _request: Any) -> dict[str, Any]:
            return {"address": self.address, "port": self.kept.port, "content": self.content}

        def __del__(self) -> None:
            self.kept.end(drain_s=5.0)

    deployment: Any = Worker
    return deployment.bind()
