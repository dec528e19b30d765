"""Ctrl-C reaches Python while an engine works, and ends the work."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from hetplan import registry
from hetplan.testing.milp_cases import hard_mip

# Whoever runs the tests in the background may ignore Ctrl-C, and children take that over.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.testing.milp_cases import hard_mip
engine = next(engine for engine in registry.solvers("milp") if engine.name == sys.argv[1])
form = hard_mip()
engine.solve(form, Limits(seconds=0.2))
print("ready", flush=True)
try:
    engine.solve(form, Limits(seconds=45.0))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
@pytest.mark.parametrize("name", ["highs", "mathopt-scip", "cp-sat"])
def test_ctrl_c(name: str) -> None:
    engine = next(engine for engine in registry.solvers("milp") if engine.name == name)
    if reason := engine.refuses(hard_mip()):
        pytest.skip(reason)
    run = subprocess.Popen([sys.executable, "-c", PROGRAM, name], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(timeout=0.6)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=120)
    finally:
        run.kill()
    assert said == "interrupted\n"
