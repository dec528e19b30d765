"""What the dispatch itself costs: the controller's decision, and the way to an instance and back."""

from __future__ import annotations

from dataclasses import dataclass

from hetplan.errors import InputError

__all__ = ["Overheads"]


@dataclass(frozen=True)
class Overheads:
    """Milliseconds per query: to decide, and one way over the network.

    Where instances fetch one query at a time, an instance stands still while its next query is decided and on its
    way: `occupied_ms` per query. Where queries queue at the instances, only the query itself is longer on its way.

    >>> Overheads(controller_ms=0.05, network_ms=0.2).occupied_ms
    0.45
    """

    controller_ms: float = 0.0
    network_ms: float = 0.0

    def __post_init__(self) -> None:
        for field in ("controller_ms", "network_ms"):
            value = getattr(self, field)
            if not 0.0 <= value < float("inf"):
                raise InputError.one(
                    file="overheads", path=field, value=value, why="must not be negative", remedy="Give milliseconds."
                )

    @property
    def lead_ms(self) -> float:
        """From arrival at the controller to arrival at the instance."""
        return self.controller_ms + self.network_ms

    @property
    def tail_ms(self) -> float:
        """From the end of service to the answer at the controller."""
        return self.network_ms

    @property
    def occupied_ms(self) -> float:
        """By how much one query keeps an instance longer from its next one."""
        return self.controller_ms + 2.0 * self.network_ms
