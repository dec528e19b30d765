"""The one definition of a gap."""

from __future__ import annotations

from hetplan.planner.tolerances import ROUNDING

__all__ = ["relative_gap"]


def relative_gap(value: float, bound: float, *, floor: float = 1e-9) -> float:
    """|value - bound| / max(|value|, |bound|, floor); what is no more than rounding is 0.

    >>> relative_gap(2.0, 1.5)
    0.25
    >>> relative_gap(0.0, 0.0)
    0.0
    """
    gap = abs(value - bound) / max(abs(value), abs(bound), floor)
    return gap if gap > ROUNDING else 0.0
