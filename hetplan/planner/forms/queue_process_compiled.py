"""How kernels are compiled: through numba where it is installed, and not at all where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

__all__ = ["HAVE_NUMBA", "compiled"]

F = TypeVar("F", bound=Callable[..., object])

try:
    import numba

    HAVE_NUMBA = True
except ImportError:  # pragma: no cover - numba is a dependency; this serves platforms without it
    HAVE_NUMBA = False


def compiled(function: F) -> F:
    """The function, compiled at its first call and kept on disk; sums may be reordered, NaN and infinity may not."""
    if not HAVE_NUMBA:  # pragma: no cover
        return function
    return cast("F", numba.njit(cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})(function))
