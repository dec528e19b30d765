"""How kernels are compiled: through numba where it is installed, and not at all where it is not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar, cast

__all__ = ["HAVE_NUMBA", "compiled"]

F = TypeVar("F", bound=Callable[..., object])

HAVE_NUMBA = find_spec("numba") is not None
"""numba is a dependency; this serves platforms that do not have it."""


def compiled(function: F) -> F:
    """The function, compiled at its first call and kept on disk; sums may be reordered.

    It runs outside the interpreter's lock.
    """
    if not HAVE_NUMBA:
        return function
    import numba

    return cast("F", numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})(function))
