"""A router and one worker of this machine that serve a single model, as `hetplan profile` measures it.

They are the processes that `hetplan apply` starts, without a keeper: they end with the process that started them.

    with ServedModel({"kind": "onnx", "path": "small.onnx", ...}, cores=(0,)) as served:
        ...  # POST to served.url
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hetplan.executor.kept_process import python_path
from hetplan.executor.routing_table import routing_table
from hetplan.executor.site import RouterSettings
from hetplan.executor.units import Endpoint, LoadSpec, Unit, named

__all__ = ["ServedModel"]

_APP = "measured"
_HERE = "127.0.0.1"


_LEFT_OUT: dict[str, dict[str, Any]] = {
    "onnx": {"sha256": None, "passes": {}, "outcome": None, "outcomes": []},
    "command": {"environment": {}},
    "http": {
        "command": [], "port": None, "protocol": "plain", "ready": None, "model": _APP, "environment": {},
    },
}  # fmt: skip
"""What a rule of site.toml says besides, by kind; an endpoint of HTTP counts as ready."""


def _begun_by(process: int) -> list[int]:
    """The processes that this one has started, and those that they have; none where the system does not say."""
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                found += [child, *_begun_by(child)]
    return found


class ServedModel:
    """The two processes. `url` takes queries; `pids` are theirs and what they began; `OSError` says why they fail."""

    def __init__(self, model: Mapping[str, Any], *, cores: Sequence[int] = (), limit_s: float = 120.0) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hetplan-measured-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._until = time.monotonic() + limit_s
        whole = {**_LEFT_OUT.get(model["kind"], {}), **model}
        unit = named(Unit("", "w1", 0, "here", "here", "here", loads=(LoadSpec("w1.a", app=_APP, model=whole),)))
        try:
            worker = self._started("worker", {
                "unit": unit.as_dict(), "content": unit.content, "bind": _HERE, "port": 0, "cores": list(cores),
            })  # fmt: skip
            app: dict[str, Any] = {
                "dispatch": {"rule": "fcfs/1"}, "predict": {}, "routes": [], "slo_ms": None, "late": "serve",
                "balancing": "least-work", "combine": "product", "paths": {}, "nodes": {"main": {"edges": []}},
            }  # fmt: skip
            table = routing_table({_APP: app}, [(unit, Endpoint(_HERE, worker))], RouterSettings(bind=_HERE, port=0))
            self.url = f"http://{_HERE}:{self._started('router', table)}/v1/{_APP}"
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that serve."""
        own = [process.pid for process in self._processes]
        return (*own, *(child for process in own for child in _begun_by(process)))

    def _started(self, what: str, config: Mapping[str, Any]) -> int:
        """Start a process; the port that it reports."""
        file = self._folder / f"{what}.json"
        file.write_text(json.dumps(config))
        reads, writes = os.pipe()
        words = [str(file), "--report", str(writes), "--parent", str(os.getpid())]
        try:
            with open(self._folder / f"{what}.log", "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", f"hetplan.executor.serving.{what}", *words],
                    pass_fds=[writes], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    env={**os.environ, "PYTHONPATH": python_path()},
                )  # fmt: skip
        finally:
            os.close(writes)
        self._processes.append(process)
        with os.fdopen(reads, "rb") as report:
            ready, _, _ = select.select([report], [], [], max(self._until - time.monotonic(), 0.0))
            line = report.readline() if ready else b""
        if not line:
            log_lines = (self._folder / f"{what}.log").read_text(errors="replace").strip().splitlines()
            raise OSError(f"the {what} does not start: {log_lines[-1] if log_lines else 'it does not answer'}")
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise OSError(f"the {what} does not start: {said['failed']}")
        return int(said["port"])

    def close(self) -> None:
        """End both, and remove their folder."""
        for begun in self.pids:
            with suppress(ProcessLookupError):
                os.kill(begun, signal.SIGKILL)
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
