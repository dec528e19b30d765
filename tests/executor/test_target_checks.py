"""The conformance kit on the local target, and on targets that break its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cases.deployments import make_hosts

from hetplan.executor.local import Local
from hetplan.executor.target import Setting
from hetplan.executor.units import Endpoint, LoadSpec, Unit, named
from hetplan.testing.target_checks import check_target

SLEEP = {"kind": "sleep", "law": {"ms": 1.0}, "statistic": "mean", "times": 1.0, "seed": 0}
LOAD = LoadSpec("w1.a", app="app", variant="m", model=SLEEP)
UNITS = [named(Unit("", "w1", index, "cpu", "here", "box", loads=(LOAD,))) for index in (0, 1)]
FALSE = {"kind": "command", "command": ["false"], "timeout_s": 1.0, "environment": {}}
BROKEN = named(Unit("", "bad", 0, "cpu", "here", "box", loads=(replace(LOAD, model=FALSE),)))


def local(folder: Path) -> Local:
    return Local(Setting("here", make_hosts(folder), folder / "target"))


@pytest.mark.slow
def test_the_local_target_does_what_targets_do(tmp_path: Path) -> None:
    check_target(local(tmp_path), UNITS, broken=BROKEN)


class Forgetful(Local):
    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        super().stop([name for name in names if not name.startswith("w1-1")], drain_s=drain_s)


@pytest.mark.slow
def test_a_target_that_does_not_stop_is_found_out(tmp_path: Path) -> None:
    target = Forgetful(Setting("here", make_hosts(tmp_path), tmp_path / "target"))
    with pytest.raises(AssertionError, match="it runs"):
        check_target(target, UNITS)


@pytest.mark.slow
def test_a_target_that_starts_twice_is_found_out(tmp_path: Path) -> None:
    class Restless(Local):
        def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
            self.stop([unit.name for unit in units], drain_s=0.0)
            return super().start(units, limit_s=limit_s)

    with pytest.raises(AssertionError, match="left alone"):
        check_target(Restless(Setting("here", make_hosts(tmp_path), tmp_path / "target")), UNITS)
