"""An event loop that wakes up when it was asked to, not up to a millisecond later.

Who sends requests on schedule, measures when answers come, or plays the times of a table needs that. On a quiet machine
such a timer fires within some 0.1 ms.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

__all__ = ["new_event_loop"]


class _PreciseSelector(selectors.EpollSelector if hasattr(selectors, "EpollSelector") else selectors.DefaultSelector):  # type: ignore[misc]
    """Waits to the microsecond: epoll rounds up to whole milliseconds, `select` on the epoll itself does not."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are as precise as the system allows."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(_PreciseSelector())
