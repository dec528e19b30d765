"""The cyclic garbage collector at rest while many objects are made of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_at_rest"]


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No sweeps meanwhile: of the 10^5 objects of a large plan none is garbage, yet sweeps double the time.

    For work that ends soon: what it leaves in circles waits until afterwards.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
