"""The state of a variant on a machine: inactive, active, overloaded, interfered; one pure step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Observation", "VariantState", "next_state"]


class VariantState(StrEnum):
    """What may be done with a variant on a machine."""

    INACTIVE = "inactive"
    ACTIVE = "active"
    OVERLOADED = "overloaded"
    INTERFERED = "interfered"


@dataclass(frozen=True)
class Observation:
    """What was seen of a variant on a machine since the last look.

    `rate_qps` against the saturation `peak_qps`; measured against profiled latency; and whether it was loaded or
    unloaded meanwhile.
    """

    rate_qps: float = 0.0
    peak_qps: float = float("inf")
    latency_ms: float | None = None
    profiled_ms: float | None = None
    loaded: bool = False
    unloaded: bool = False


def next_state(state: VariantState, seen: Observation, *, tolerance: float = 1.0) -> VariantState:
    """The state after an observation; overload wins over interference, for it explains slowness by itself.

    >>> next_state(VariantState.ACTIVE, Observation(rate_qps=100, peak_qps=100))
    <VariantState.OVERLOADED: 'overloaded'>
    >>> next_state(VariantState.OVERLOADED, Observation(rate_qps=99, peak_qps=100, latency_ms=25, profiled_ms=20))
    <VariantState.INTERFERED: 'interfered'>
    """
    if seen.unloaded:
        return VariantState.INACTIVE
    if state is VariantState.INACTIVE and not seen.loaded:
        return VariantState.INACTIVE
    if seen.rate_qps >= seen.peak_qps:
        return VariantState.OVERLOADED
    slow = (
        seen.latency_ms is not None
        and seen.profiled_ms is not None
        and seen.latency_ms > seen.profiled_ms * tolerance * (1 + 1e-12)
    )
    return VariantState.INTERFERED if slow else VariantState.ACTIVE
