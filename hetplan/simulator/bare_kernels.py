"""`bare_kernel`: as `hetplan.dispatch.compiled.kernel`, for functions that make no arrays.

numba counts the references of every array that it passes from function to function. The engine's functions pass a world
of a dozen arrays around and make none, so the counting is left out: it took most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hetplan.dispatch.compiled import _cache_folder, _settings

__all__ = ["bare_kernel"]

_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def bare_kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function of numbers and arrays that makes no arrays; without numba it is returned unchanged."""
    try:
        import numba
    except ImportError:
        return function
    settings = _settings()
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _cache_folder()
    compiled: Callable[Parameters, Result]
    try:
        compiled = numba.njit(function, cache=True, **_OPTIONS)
    except RuntimeError:
        # No file to cache beside (a zipped or frozen package): compile at every start.
        compiled = numba.njit(function, **_OPTIONS)
    finally:
        settings.CACHE_DIR = before
    return compiled
