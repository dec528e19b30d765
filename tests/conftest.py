"""Random cases are the same ones in every run, however slow the machine is; HETPLAN_EXPLORE=1 draws new ones.

Tests run side by side. Before a run of all of them begins, kernels that were never compiled are compiled once, so that
no two processes compile the same.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from hetplan.compiled import cache_folder, is_compiled
from hetplan.registry_further import KERNELS

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

COMPILE = "import sys; from hetplan.registry_further import compile_ahead; compile_ahead(sys.argv[1])"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `quick_cases(n)` all but the first n cases are slow; of `slow_cases(n)`, the longest."""
    met: Counter[str] = Counter()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        name = f"{item.path}::{item.originalname}"
        met[name] += 1
        for few, rest in (("quick_cases", pytest.mark.slow), ("slow_cases", pytest.mark.longest)):
            mark = item.get_closest_marker(few)
            if mark is not None and met[name] > mark.args[0]:
                item.add_marker(rest)


def pytest_configure(config: pytest.Config) -> None:
    """Compile ahead where all tests run, nothing is compiled yet, and this process is not one of those side by side."""
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
