"""When machines are added (INFaaS, Section 4.2.3): three rules over a snapshot, one machine per hardware at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hetplan.dispatch.variant_snapshot import Machine, VariantSnapshot
from hetplan.dispatch.variant_state import VariantState

__all__ = ["VmAction", "vm_actions"]

_TIES = ("cpu", "inferentia", "gpu")


@dataclass(frozen=True)
class VmAction:
    """One machine more (or, where it is asked for, one less) of a hardware, and why."""

    hardware: str
    count: int
    reasons: tuple[str, ...]
    machine: str | None = None


def vm_actions(
    snapshot: VariantSnapshot,
    *,
    busy_above: float = 0.80,
    overloaded_above: float = 0.80,
    idle_machine: bool = False,
    floor: Mapping[str, int] | None = None,
) -> tuple[VmAction, ...]:
    """What to add: (R1) a resource used above 80% on all machines that have it; (R2) every instance of a hardware
    interfered on all its machines; (R3) above 80% of all machines with an overloaded instance.

    With `idle_machine` (not in the paper) an empty machine of a hardware that needs no more goes, down to `floor`.

    >>> use = {"g1": 0.85, "g2": 0.90}
    >>> machines = {name: Machine(name, "gpu", {"gpu": busy}) for name, busy in use.items()}
    >>> [(one.hardware, one.count) for one in vm_actions(VariantSnapshot({}, machines))]
    [('gpu', 1)]
    """
    reasons: dict[str, list[str]] = {}
    for hardware, machines in snapshot.idlest.items():
        for resource in sorted({name for machine in machines for name in machine.utilisation}):
            having = [machine.utilisation[resource] for machine in machines if resource in machine.utilisation]
            if min(having) > busy_above:
                text = f"{resource} above {busy_above:.0%} on all {len(having)}"
                reasons.setdefault(hardware, []).append(text)
        if _all_interfered(snapshot, machines):
            reasons.setdefault(hardware, []).append("every instance interfered on every machine")
    worst = _overloaded(snapshot, overloaded_above)
    if worst is not None:
        reasons.setdefault(worst, []).append(f"above {overloaded_above:.0%} of all machines overloaded")
    added = [VmAction(hardware, 1, tuple(told)) for hardware, told in sorted(reasons.items())]
    return (*added, *(_idle(snapshot, reasons.keys(), floor or {}) if idle_machine else ()))


def _all_interfered(snapshot: VariantSnapshot, machines: tuple[Machine, ...]) -> bool:
    """At least one instance, all of them interfered, and on every machine one."""
    names = {machine.id for machine in machines}
    running = [p for p in snapshot.pairs if p.machine in names and p.state is not VariantState.INACTIVE]
    interfered = all(pair.state is VariantState.INTERFERED for pair in running)
    return bool(running) and interfered and {pair.machine for pair in running} == names


def _overloaded(snapshot: VariantSnapshot, above: float) -> str | None:
    pairs = [pair for pair in snapshot.pairs if pair.state is VariantState.OVERLOADED]
    holding = {pair.machine for pair in pairs}
    if not snapshot.machines or len(holding) <= above * len(snapshot.machines):
        return None
    counts = Counter(snapshot.machines[pair.machine].hardware for pair in pairs)
    order = {name: place for place, name in enumerate(_TIES)}
    return min(counts, key=lambda name: (-counts[name], order.get(name, len(order)), name))


def _idle(snapshot: VariantSnapshot, growing: object, floor: Mapping[str, int]) -> tuple[VmAction, ...]:
    used = {pair.machine for pair in snapshot.pairs if pair.state is not VariantState.INACTIVE}
    gone = []
    for hardware, machines in sorted(snapshot.idlest.items()):
        empty = [machine for machine in machines if machine.id not in used]
        if empty and hardware not in growing and len(machines) > floor.get(hardware, 0):  # type: ignore[operator]
            gone.append(VmAction(hardware, -1, ("empty",), min(machine.id for machine in empty)))
    return tuple(gone)
