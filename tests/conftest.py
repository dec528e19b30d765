"""Random cases are the same ones in every run, however slow the machine is; HETPLAN_EXPLORE=1 draws new ones.

Of tests marked `quick_sample(n)` other cases are quick each day, and of those that `over_a_tenth.txt` names. The seed
is printed; HETPLAN_SAMPLE sets it.

Tests run side by side. Before a run of all of them begins, kernels that were never compiled are compiled once, so that
no two processes compile the same.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from build import state_profiles_as_planned
from hypothesis import HealthCheck, settings
from once import FOLDER

from hetplan.compiled import cache_folder, is_compiled
from hetplan.registry import KERNELS

settings.register_profile(
    "any machine",
    derandomize=not os.environ.get("HETPLAN_EXPLORE"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

# Containers often keep Python from writing bytecode. Here many processes start the same package: it is compiled once.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

state_profiles_as_planned()

SAMPLE = "HETPLAN_SAMPLE"

OVER_A_TENTH = Path(__file__).with_name("over_a_tenth.txt")
"""Tests whose cases take over a tenth of a CPU second, as `benchmarks/quick_tests.py` measured them."""
ONE_IN = 8
"""So many of their cases have one that is quick."""

COMPILE = "import sys; from hetplan.registry import compile_ahead; compile_ahead(sys.argv[1])"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `quick_cases(n)` all but the first n cases are slow; of `slow_cases(n)`, the longest.

    Of one marked `quick_sample(n)` all but n cases that the seed draws are slow; of `quick_sample(n, m)` m are, and the
    others are among the longest. What is still quick then and takes over a tenth of a second is so one day in eight.
    """
    over_a_tenth = frozenset(OVER_A_TENTH.read_text().splitlines()) if OVER_A_TENTH.exists() else frozenset[str]()
    met: Counter[str] = Counter()
    sampled: dict[str, list[pytest.Function]] = {}
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        name = f"{item.path.relative_to(item.config.rootpath)}::{item.originalname}"
        met[name] += 1
        for few, rest in (("quick_cases", pytest.mark.slow), ("slow_cases", pytest.mark.longest)):
            mark = item.get_closest_marker(few)
            if mark is not None and met[name] > mark.args[0]:
                item.add_marker(rest)
        if item.get_closest_marker("quick_sample") and not item.get_closest_marker("slow"):
            sampled.setdefault(name, []).append(item)
    for name, cases in sampled.items():
        most, *more = cases[0].get_closest_marker("quick_sample").args  # type: ignore[union-attr]
        cases.sort(key=lambda item: item.name)  # which tests were asked for, and in which order, changes no draw
        drawn = random.Random(f"{os.environ[SAMPLE]} {name}").sample(cases, len(cases))
        for place, item in enumerate(drawn[most:] if len(cases) > 1 else ()):
            item.add_marker(pytest.mark.longest if more and place >= more[0] else pytest.mark.slow)
    for item in items:
        is_later = item.get_closest_marker("slow") or item.get_closest_marker("longest")
        if item.nodeid.partition("[")[0] in over_a_tenth and not is_later and not _is_drawn(item.nodeid):
            item.add_marker(pytest.mark.slow)


def _is_drawn(nodeid: str) -> bool:
    return random.Random(f"{os.environ[SAMPLE]} {nodeid}").randrange(ONE_IN) == 0


def pytest_report_header() -> str:
    """The seed, so that the same cases can be drawn again."""
    return f"{SAMPLE}={os.environ[SAMPLE]} draws which cases of sampled tests are quick"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed again where quiet runs print no header."""
    if terminalreporter.verbosity < 0:
        terminalreporter.write_line(pytest_report_header())


def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed. Compile ahead where all tests run, nothing is compiled yet, and this process is no worker."""
    # Processes side by side inherit both.
    os.environ.setdefault(SAMPLE, f"{datetime.now(UTC):%Y-%m-%d}")
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="hetplan-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True))
    alone = hasattr(config, "workerinput") or config.getoption("collectonly")
    folder = cache_folder()
    if alone or config.args_source is not config.ArgsSource.TESTPATHS or not is_compiled() or folder is None:
        return
    if any(os.scandir(folder)):
        return
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: subprocess.run([sys.executable, "-c", COMPILE, name], check=False), KERNELS))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


INTERPRETED = (
    "hetplan.dispatch.matching_kernels",
    "hetplan.dispatch.rule_kernels",
    "hetplan.simulator.pool_kernels",
)


@pytest.fixture(scope="session")
def interpreted() -> dict[str, ModuleType]:
    """The kernel modules by their last name, imported as if numba were absent, beside the compiled ones."""
    for name in INTERPRETED:
        importlib.import_module(name)
    compiled = {name: sys.modules.pop(name) for name in INTERPRETED}
    numba = sys.modules.pop("numba")
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        loaded = {name.rpartition(".")[2]: importlib.import_module(name) for name in INTERPRETED}
    finally:
        sys.modules["numba"] = numba
        for name, module in compiled.items():
            package, _, leaf = name.rpartition(".")
            sys.modules[name] = module
            setattr(sys.modules[package], leaf, module)
    return loaded
