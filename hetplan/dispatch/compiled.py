"""Plain loops, compiled where numba is installed and run as they stand where it is not.

One source serves both: a function under `kernel` or `bare_kernel` uses only numbers, numpy arrays and loops, so that
what was tested in plain Python is what runs compiled. numba costs a third of a second to import, so modules of kernels
(``*_kernels.py``) are imported by the functions that run them, never at the top of a module.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

__all__ = ["bare_kernel", "is_compiled", "kernel"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_KEPT = 4


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function with numba: cached on disk, free of the interpreter's lock, no fast-math.

    Without numba the function is returned unchanged, and so it is under ``NUMBA_DISABLE_JIT=1``.
    """
    return _compiled(function)


def bare_kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """As `kernel`, for a function of numbers and arrays that makes no arrays.

    numba counts the references of every array that it passes from function to function. The simulation engine's
    functions pass a world of a dozen arrays around and make none, so the counting is left out: it took most of the
    time.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[Parameters, Result], **options: Any) -> Callable[Parameters, Result]:
    try:
        import numba
    except ImportError:
        return function
    # numba watches only a function's own file, and a kernel calls kernels of other files: the cache is
    # therefore kept in a folder named by the content of all of them.
    settings = _settings()
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _cache_folder()
    compiled: Callable[Parameters, Result]
    try:
        compiled = numba.njit(function, cache=True, nogil=True, **options)
    except RuntimeError:
        # No file to cache beside (a zipped or frozen package): compile at every start.
        compiled = numba.njit(function, nogil=True, **options)
    finally:
        settings.CACHE_DIR = before
    return compiled


def is_compiled() -> bool:
    """Whether kernels run compiled here.

    >>> is_compiled() in (True, False)
    True
    """
    try:
        return not _settings().DISABLE_JIT
    except ImportError:
        return False


def _settings() -> Any:
    """numba's settings; a module whose names are made while it is imported."""
    return import_module("numba.core.config")


@cache
def _cache_folder() -> str:
    package, beside = Path(__file__).parent.parent, Path(__file__).parent / "__pycache__"
    content = hashlib.sha256()
    for source in sorted(package.glob("*/*_kernels.py")):
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = beside / f"kernels-{content.hexdigest()[:12]}"
    if not folder.exists():
        # What earlier versions left behind goes, except the last few: another process may still use one.
        earlier = sorted(beside.glob("kernels-*"), key=_last_used_s, reverse=True)
        for old in earlier[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
    return str(folder)


def _last_used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process has just cleared it away
        return 0.0
