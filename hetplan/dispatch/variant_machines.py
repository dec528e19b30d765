"""Machines under variants (INFaaS): when they are added, what is packed onto them, when they do offline work.

Machines are added by three rules over a snapshot, one per hardware at most (Section 4.2.3). Items are placed one by one
as they come and never moved: how many machines a rule opens is set against the least possible. Offline work runs only
where online queries do not feel it (Section 4.3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hetplan.dispatch.variants import Machine, VariantSnapshot, VariantState

__all__ = ["OnlinePacking", "PackRule", "VmAction", "offline_allowed", "online_pack", "vm_actions"]

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
    added = [VmAction(hardware, 1, tuple(why)) for hardware, why in sorted(reasons.items())]
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


PackRule = Literal["best_fit", "first_fit", "next_fit", "worst_fit"]


@dataclass(frozen=True)
class OnlinePacking:
    """Where each item went, how many machines were opened, and the fewest that their sum allows."""

    machine_of: tuple[int, ...]
    machines: int
    least: int


def online_pack(
    items: Sequence[Mapping[str, float]], room: Mapping[str, float], *, rule: PackRule = "best_fit"
) -> OnlinePacking:
    """Place items (resource -> amount) on machines that have this room each.

    `best_fit` leaves the least room over (L2 norm of what is left, each resource as a share of a machine).

    >>> items = [{"m": 0.6}, {"m": 0.5}, {"m": 0.4}, {"m": 0.5}]
    >>> [online_pack(items, {"m": 1.0}, rule=rule).machines for rule in ("first_fit", "best_fit", "next_fit")]
    [2, 2, 3]
    """
    left: list[dict[str, float]] = []
    placed: list[int] = []
    for number, item in enumerate(items):
        if any(amount > room.get(name, math.inf) * (1 + 1e-9) for name, amount in item.items()):
            raise ValueError(f"item {number} is larger than a whole machine")
        fitting = [k for k, have in enumerate(left) if _fits(item, have)]
        if rule == "next_fit":
            fitting = [k for k in fitting if k == len(left) - 1]
        if not fitting:
            left.append(dict(room))
            chosen = len(left) - 1
        elif rule in ("first_fit", "next_fit"):
            chosen = fitting[0]
        else:
            sign = 1.0 if rule == "best_fit" else -1.0
            chosen = min(fitting, key=lambda k: (sign * _over(item, left[k], room), k))
        for name, amount in item.items():
            if name in left[chosen]:
                left[chosen][name] -= amount
        placed.append(chosen)
    return OnlinePacking(tuple(placed), len(left), _least(items, room))


def _fits(item: Mapping[str, float], have: Mapping[str, float]) -> bool:
    return all(amount <= have[name] + 1e-9 for name, amount in item.items() if name in have)


def _over(item: Mapping[str, float], have: Mapping[str, float], room: Mapping[str, float]) -> float:
    return math.sqrt(sum(((have[name] - item.get(name, 0.0)) / most) ** 2 for name, most in room.items() if most > 0))


def _least(items: Sequence[Mapping[str, float]], room: Mapping[str, float]) -> int:
    totals = [sum(item.get(name, 0.0) for item in items) / most for name, most in room.items() if most > 0]
    return max([math.ceil(total - 1e-9) for total in totals], default=0)


def offline_allowed(snapshot: VariantSnapshot, machine: str, *, below: float = 0.40) -> bool:
    """True where no resource is used above 40% and no online variant is slower than its profile.

    >>> from hetplan.dispatch.variants import Machine
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
