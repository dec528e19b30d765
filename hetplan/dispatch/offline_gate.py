"""Whether offline work may run on a machine now: only where online queries do not feel it (INFaaS, Section 4.3)."""

from __future__ import annotations

from hetplan.dispatch.variant_snapshot import VariantSnapshot
from hetplan.dispatch.variant_state import VariantState

__all__ = ["offline_allowed"]


def offline_allowed(snapshot: VariantSnapshot, machine: str, *, below: float = 0.40) -> bool:
    """True where no resource is used above 40% and no online variant is slower than its profile.

    >>> from hetplan.dispatch.variant_snapshot import Machine
    >>> offline_allowed(VariantSnapshot({}, {"m": Machine("m", "cpu", {"cpu_cores": 0.4})}), "m")
    True
    """
    if snapshot.machines[machine].busiest > below:
        return False
    for pair in snapshot.pairs:
        if pair.machine != machine or pair.state is VariantState.INACTIVE or pair.latency_ms is None:
            continue
        if pair.latency_ms > snapshot.variants[pair.variant].latency_ms:
            return False
    return True
