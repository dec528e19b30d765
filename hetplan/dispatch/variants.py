"""Which variant answers a query, and where (INFaaS, Section 4.1): a running one, else one to load, else what is near.

Machines under variants are here too: they are added by three rules over a snapshot, one per hardware at most (Section
4.2.3); items are packed one by one as they come and never moved, so that the machines that a rule opens can be set
against the least possible; offline work runs only where online queries do not feel it (Section 4.3).

A variant on a machine is inactive, active, overloaded or interfered; `next_state` is one pure step. A snapshot says
what selection looks at: variants as profiled, machines as they are, what is where in which state. It never changes: a
monitor makes a new one every second or two, and thousands of queries are decided on it. What queries ask again and
again (which variants serve a model, cheapest first; which machines hold each) is sorted once per snapshot.

>>> from hetplan.dispatch.variants import Machine, OnMachine, ProfiledVariant, VariantSnapshot
>>> from hetplan.dispatch.variants import VariantState
>>> b = ProfiledVariant("b", "resnet50", "inferentia", latency_ms=20, saturation_qps=100, cost=3)
>>> machines = {name: Machine(name, "inferentia") for name in ("m1", "m2")}
>>> pairs = (OnMachine("b", "m1", VariantState.ACTIVE, 0.6), OnMachine("b", "m2", VariantState.ACTIVE, 0.3))
>>> choice = get_variant(VariantSnapshot({"b": b}, machines, pairs), VariantQuery("resnet50", slo_ms=50))
>>> choice.variant, choice.machine, choice.loads
('b', 'm2', False)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from hetplan.profiles.tables import Table

__all__ = [
    "Machine",
    "Observation",
    "OnMachine",
    "OnlinePacking",
    "PackRule",
    "ProfiledVariant",
    "VariantChoice",
    "VariantQuery",
    "VariantSnapshot",
    "VariantState",
    "VmAction",
    "get_variant",
    "instead_of_interfered",
    "next_state",
    "offline_allowed",
    "online_pack",
    "vm_actions",
]


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


@dataclass(frozen=True)
class ProfiledVariant:
    """A variant as measured: T, Q, C, Tl of the paper. `table` gives the time of queries that state their sizes."""

    id: str
    model: str
    hardware: str
    latency_ms: float
    saturation_qps: float
    cost: float
    load_s: float = 0.0
    quality: float | None = None
    needs: Mapping[str, float] = field(default_factory=dict)
    table: Table | None = None
    at: Mapping[str, float] = field(default_factory=dict)

    def time_ms(self, sizes: Mapping[str, float]) -> float:
        """How long a query of these sizes takes."""
        if self.table is None or not sizes:
            return self.latency_ms
        point = {**self.at, **sizes}
        return float(self.table.read([{axis: point[axis] for axis in self.table.axes}]).values[0])


@dataclass(frozen=True)
class Machine:
    """A machine: its hardware, how busy each of its resources is (0 to 1), what is free of each."""

    id: str
    hardware: str
    utilisation: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, float] = field(default_factory=dict)

    @property
    def busiest(self) -> float:
        """The utilisation of its busiest resource."""
        return max(self.utilisation.values(), default=0.0)

    def holds(self, needs: Mapping[str, float]) -> bool:
        """Whether an instance with these needs has room; a resource that is not stated has no limit."""
        return all(amount <= self.free[name] + 1e-9 for name, amount in needs.items() if name in self.free)


@dataclass(frozen=True)
class OnMachine:
    """A variant on a machine: its state, how loaded it is (0 to 1), its measured latency."""

    variant: str
    machine: str
    state: VariantState
    load: float = 0.0
    latency_ms: float | None = None


@dataclass(frozen=True)
class VariantSnapshot:
    """Everything at one moment. Pairs that are not listed are inactive."""

    variants: Mapping[str, ProfiledVariant]
    machines: Mapping[str, Machine]
    pairs: tuple[OnMachine, ...] = ()

    @cached_property
    def cheapest(self) -> Mapping[str, tuple[ProfiledVariant, ...]]:
        """The variants of each model by cost per query, ties by id; those of all models under ""."""
        order = sorted(self.variants.values(), key=lambda v: (v.cost / v.saturation_qps, v.id))
        found: dict[str, list[ProfiledVariant]] = {"": order}
        for variant in order:
            found.setdefault(variant.model, []).append(variant)
        return {model: tuple(listed) for model, listed in found.items()}

    @cached_property
    def soonest(self) -> Mapping[str, tuple[ProfiledVariant, ...]]:
        """The same by loading time plus latency."""
        return {
            model: tuple(sorted(listed, key=lambda v: (1000.0 * v.load_s + v.latency_ms, v.id)))
            for model, listed in self.cheapest.items()
        }

    @cached_property
    def active(self) -> Mapping[str, tuple[OnMachine, ...]]:
        """Active pairs of each variant, the least loaded first."""
        found: dict[str, list[OnMachine]] = {}
        for pair in self.pairs:
            if pair.state is VariantState.ACTIVE:
                found.setdefault(pair.variant, []).append(pair)
        return {name: tuple(sorted(listed, key=lambda p: (p.load, p.machine))) for name, listed in found.items()}

    @cached_property
    def taken(self) -> frozenset[tuple[str, str]]:
        """Pairs that are not inactive."""
        return frozenset((p.variant, p.machine) for p in self.pairs if p.state is not VariantState.INACTIVE)

    @cached_property
    def idlest(self) -> Mapping[str, tuple[Machine, ...]]:
        """Machines of each hardware, the least used first."""
        found: dict[str, list[Machine]] = {}
        for machine in self.machines.values():
            found.setdefault(machine.hardware, []).append(machine)
        return {name: tuple(sorted(listed, key=lambda m: (m.busiest, m.id))) for name, listed in found.items()}


Prefer = Literal["cheapest", "closest_to_slo", "fastest"]


@dataclass(frozen=True)
class VariantQuery:
    """What a query wants: a model ("" for any), a latency limit, a least quality; and its sizes, where times vary."""

    model: str = ""
    slo_ms: float = float("inf")
    min_quality: float | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)
    variant: str | None = None


@dataclass(frozen=True)
class VariantChoice:
    """Where to send the query; `loads` says that the variant must be loaded there first.

    Without a choice, `variant` is None; `suggest` is the nearest variant and `relax` what would admit it.
    """

    variant: str | None
    machine: str | None = None
    loads: bool = False
    first_delay_ms: float = 0.0
    suggest: str | None = None
    relax: Mapping[str, float] = field(default_factory=dict)


def get_variant(snapshot: VariantSnapshot, query: VariantQuery, *, prefer: Prefer = "cheapest") -> VariantChoice:
    """The choice; ties go to the lower id."""
    listed = _listed(snapshot.cheapest, snapshot, query)
    running = [v for v in listed if v.id in snapshot.active and _meets(v, query)]
    if running:
        chosen = _preferred(running, query, prefer)
        return VariantChoice(chosen.id, snapshot.active[chosen.id][0].machine)
    fallback: tuple[float, str, ProfiledVariant, Machine] | None = None
    for variant in _listed(snapshot.soonest, snapshot, query):
        if not _meets(variant, query):
            continue
        time_ms = variant.time_ms(query.sizes)
        delay = 1000.0 * variant.load_s + time_ms
        if fallback is not None and (delay, variant.id) >= fallback[:2]:
            if not query.sizes:
                break
            continue
        for machine in snapshot.idlest.get(variant.hardware, ()):
            if (variant.id, machine.id) not in snapshot.taken and machine.holds(variant.needs):
                fallback = (delay, variant.id, variant, machine)
                break
    if fallback is not None:
        delay, _, variant, machine = fallback
        return VariantChoice(variant.id, machine.id, loads=True, first_delay_ms=delay)
    return _nearest(listed, query)


def _listed(
    by_model: Mapping[str, tuple[ProfiledVariant, ...]], snapshot: VariantSnapshot, query: VariantQuery
) -> tuple[ProfiledVariant, ...]:
    if query.variant is not None:
        named = snapshot.variants.get(query.variant)
        return (named,) if named is not None else ()
    return by_model.get(query.model, ())


def _meets(variant: ProfiledVariant, query: VariantQuery) -> bool:
    if query.min_quality is not None and (variant.quality is None or variant.quality < query.min_quality):
        return False
    time_ms = variant.latency_ms if not query.sizes else variant.time_ms(query.sizes)
    return time_ms <= query.slo_ms


def _preferred(running: list[ProfiledVariant], query: VariantQuery, prefer: Prefer) -> ProfiledVariant:
    if prefer == "cheapest":
        return running[0]
    if prefer == "fastest":
        return min(running, key=lambda v: (v.time_ms(query.sizes), v.id))
    return min(running, key=lambda v: (query.slo_ms - v.time_ms(query.sizes), v.id))


def _nearest(listed: tuple[ProfiledVariant, ...], query: VariantQuery) -> VariantChoice:
    """What misses by least, and the limits that would admit it."""
    if not listed:
        return VariantChoice(None)

    def far(v: ProfiledVariant) -> float:
        late = max(0.0, (v.time_ms(query.sizes) - query.slo_ms) / query.slo_ms)
        if query.min_quality is None:
            return late
        short = query.min_quality - (v.quality or 0.0)
        return late + max(0.0, short / v.quality if v.quality else float("inf"))

    nearest = min(listed, key=lambda v: (far(v), v.id))
    relax: dict[str, float] = {}
    if nearest.time_ms(query.sizes) > query.slo_ms:
        relax["slo_ms"] = nearest.time_ms(query.sizes)
    if query.min_quality is not None and (nearest.quality or 0.0) < query.min_quality:
        relax["min_quality"] = nearest.quality or 0.0
    return VariantChoice(None, suggest=nearest.id, relax=relax)


def instead_of_interfered(snapshot: VariantSnapshot, pair: OnMachine) -> str | None:
    """Where another instance of an interfered variant goes: the same machine if it has room, else the least loaded."""
    if pair.state is not VariantState.INTERFERED:
        return None
    variant = snapshot.variants[pair.variant]
    if snapshot.machines[pair.machine].holds(variant.needs):
        return pair.machine
    others = (m for m in snapshot.idlest.get(variant.hardware, ()) if m.id != pair.machine and m.holds(variant.needs))
    found = next(others, None)
    return None if found is None else found.id


# Machines: when they are added, what is packed onto them, when they do offline work

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
