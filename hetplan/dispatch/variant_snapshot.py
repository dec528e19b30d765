"""What variant selection looks at: variants as profiled, machines as they are, and what is where in which state.

Immutable: a monitor makes a new one every second or two, and thousands of queries are decided on it. What queries ask
again and again (which variants serve a model, cheapest first; which machines hold each) is sorted once per snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hetplan.dispatch.variant_state import VariantState
from hetplan.profiles.tables import Table

__all__ = ["Machine", "OnMachine", "ProfiledVariant", "VariantSnapshot"]


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
