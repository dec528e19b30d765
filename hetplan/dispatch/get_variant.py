"""Which variant answers one query, and where (INFaaS, Section 4.1): a running one, else one to load, else what is near.

>>> from hetplan.dispatch.variant_snapshot import Machine, OnMachine, ProfiledVariant, VariantSnapshot
>>> from hetplan.dispatch.variant_state import VariantState
>>> b = ProfiledVariant("b", "resnet50", "inferentia", latency_ms=20, saturation_qps=100, cost=3)
>>> machines = {name: Machine(name, "inferentia") for name in ("m1", "m2")}
>>> pairs = (OnMachine("b", "m1", VariantState.ACTIVE, 0.6), OnMachine("b", "m2", VariantState.ACTIVE, 0.3))
>>> choice = get_variant(VariantSnapshot({"b": b}, machines, pairs), VariantQuery("resnet50", slo_ms=50))
>>> choice.variant, choice.machine, choice.loads
('b', 'm2', False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hetplan.dispatch.variant_snapshot import Machine, OnMachine, ProfiledVariant, VariantSnapshot
from hetplan.dispatch.variant_state import VariantState

__all__ = ["VariantChoice", "VariantQuery", "get_variant", "instead_of_interfered"]

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
