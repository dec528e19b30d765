"""Kernels once more, as plain Python: what they do without numba."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

KERNELS = (
    "hetplan.dispatch.matching_kernels",
    "hetplan.dispatch.rule_kernels",
    "hetplan.simulator.pool_kernels",
)


@pytest.fixture(scope="session")
def interpreted() -> dict[str, ModuleType]:
    """The kernel modules by their last name, imported as if numba were absent, beside the compiled ones."""
    for name in KERNELS:
        importlib.import_module(name)
    compiled = {name: sys.modules.pop(name) for name in KERNELS}
    numba = sys.modules.pop("numba")
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        loaded = {name.rpartition(".")[2]: importlib.import_module(name) for name in KERNELS}
    finally:
        sys.modules["numba"] = numba
        for name, module in compiled.items():
            package, _, leaf = name.rpartition(".")
            sys.modules[name] = module
            setattr(sys.modules[package], leaf, module)
    return loaded
