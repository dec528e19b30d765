"""A pool small enough to work out by hand, as files, and two ways to run the command line on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.build import in_format_1_0

HERE = Path(__file__).resolve().parent

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "sources": {"hand": {"kind": "assumed", "note": "worked out by hand"}},
    "hardware": {"base": {"kind": "gpu"}, "a": {"kind": "cpu"}, "b": {"kind": "cpu"}},
    "offers": {
        "base": {"hardware": "base", "price_per_hour": "1"},
        "a": {"hardware": "a", "price_per_hour": "0.5"},
        "b": {"hardware": "b", "price_per_hour": "0.25"},
    },
    "tasks": {"rank": {}},
    "variants": {
        "model": {
            "task": "rank",
            "runs": [{"hardware": name, "latency": f"model-{name}"} for name in ("base", "a", "b")],
        }
    },
    "tables": {
        f"model-{name}": {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": mean, "source": "hand"}
        for name, mean in {"base": [10, 20, 40], "a": [10, 60, 200], "b": [20, 200, 400]}.items()
    },
}

SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"cost_per_hour": "3", "instances": {"base": [1, None]}},
    "apps": {
        "rank": {
            "model": "model",
            "latency": {"p99_ms": 100},
            "rate_qps": "max",
            "mix": {"axes": ["batch"], "bins": [[1], [4], [8]], "share": [0.5, 0.25, 0.25]},
        }
    },
}
"""The best pool for 3 per hour is (2 base, 2 a, 0 b), unique, carrying 160 queries/s by the fluid program."""


@dataclass
class Files:
    """The two input files in a folder of their own."""

    folder: Path

    @property
    def profile(self) -> str:
        return str(self.folder / "profile.json")

    @property
    def slo(self) -> str:
        return str(self.folder / "slo.json")

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def solve(self) -> tuple[str, ...]:
        """A solve by the fluid program alone: what the command line does around it is not about queues."""
        return ("solve", self.profile, self.slo, "--set", "sizing=fluid")

    def write(self, *, profile: dict[str, Any] | None = None, slo: dict[str, Any] | None = None) -> None:
        (self.folder / "profile.json").write_text(json.dumps(profile or in_format_1_0(PROFILE)))
        (self.folder / "slo.json").write_text(json.dumps(slo or SLO))

    def slo_with(self, change: Callable[[dict[str, Any]], None]) -> None:
        slo = deepcopy(SLO)
        change(slo)
        self.write(slo=slo)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write()
    return made


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run() -> Callable[..., Ran]:
    """Run the command line in this process."""

    def call(*arguments: object, stdin: str | None = None) -> Ran:
        from hetplan.cli.app import build_app

        result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def odd_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The misbehaving engines in this process's registry, for one test."""
    from hetplan import registry

    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr(registry, "SOLVERS", dict(registry.SOLVERS))
    __import__("odd_engines").register()


@pytest.fixture
def spawn() -> Callable[..., subprocess.Popen[str]]:
    """Start the command line as a process of its own, with the misbehaving engines at hand."""

    def start(*arguments: object, before: str = "", **environment: str) -> subprocess.Popen[str]:
        lines = (
            "import sys, odd_engines",
            "odd_engines.register()",
            before,
            f"sys.argv = {['hetplan', *map(str, arguments)]!r}",
            "from hetplan.cli import main",
            "main()",
        )
        paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "PYTHONPATH": paths},
        )

    return start
