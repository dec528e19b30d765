"""What is packed: the ways to serve each application, as stated or as found by a search, and the machines there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hetplan.planner.forms.packing import Choice, Items, Packing
from hetplan.profiles.fields import NANO
from hetplan.profiles.slo import App

__all__ = ["Found", "Item", "Query", "Tier", "Way", "machines_of", "packing"]


@dataclass(frozen=True)
class Tier:
    """One tier: its hardware, how many machines of it there are, what one holds, what it costs.

    `own` says that every application has one for itself (its device): nothing of it is shared. `per` names the resource
    whose share is paid for; without it a machine in use is paid for whole. `elsewhere` are resources that its machines
    do not list and the wish limits in total.
    """

    name: str
    hardware: str
    relative_time: float
    machines: float
    room: Mapping[str, float]
    price_nanos: int = 0
    offer: str | None = None
    per: str | None = None
    own: bool = False
    elsewhere: frozenset[str] = frozenset()

    @property
    def price(self) -> float:
        """Currency units per hour of what is paid for: a machine, or one of what `per` names."""
        return self.price_nanos / NANO

    @property
    def machine_price(self) -> float:
        """Currency units per hour of one machine, all of it."""
        return self.price * (self.room.get(self.per, 1.0) if self.per is not None else 1.0)

    def fits(self, needs: Mapping[str, float]) -> bool:
        """Whether a machine has room for so much."""
        return all(amount <= self.room.get(kind, 0.0) for kind, amount in needs.items() if kind not in self.elsewhere)


@dataclass(frozen=True)
class Item:
    """What one operator takes of one machine of a tier."""

    tier: str
    node: str | None
    size: Mapping[str, float]


@dataclass(frozen=True)
class Found:
    """A plan that a search found: knobs, a tier and a share per operator, and what was measured and predicted of it.

    `price` is what its shares of machines come to, however those are paid for: what the search went by.
    """

    knobs: Mapping[str, object]
    placement: Mapping[str, str]
    share: Mapping[str, float]
    latency_s: float
    accuracy: float
    se: float
    samples: int
    verdict: str
    price: float


@dataclass(frozen=True)
class Way:
    """One way to serve an application: what it takes of totals, what of machines, what it costs per hour.

    Shared machines that are paid for whole are not in its `price`: they cost where they are in use.
    """

    demand: Mapping[str, float] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    price: float = 0.0
    weight: float = 1.0
    label: str | None = None
    found: Found | None = None


@dataclass(frozen=True)
class Query:
    """An application with its ways; `waited` counts the plans in a row that left it unserved."""

    app_id: str
    app: App
    ways: tuple[Way, ...]
    waited: int = 0
    why_none: str = ""


def packing(
    queries: Sequence[Query],
    tiers: Sequence[Tier],
    totals: Mapping[str, float],
    *,
    sense: Literal["max", "min"],
    aging: float = 0.0,
) -> Packing:
    """The form: a group per application, an option per way, totals as resources, machines of shared tiers."""
    ways = [way for query in queries for way in query.ways]
    counts = np.array([len(query.ways) for query in queries], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    aged = np.repeat([1.0 + aging * query.waited for query in queries], counts) if queries else np.zeros(0)
    worth = np.array([way.weight for way in ways]) * aged if sense == "max" else np.array([way.price for way in ways])
    names = tuple(totals)
    demand = np.array([[way.demand.get(name, 0.0) for name in names] for way in ways]).reshape(len(ways), len(names))
    shared = [tier for tier in tiers if not tier.own]
    return Packing(
        sense,
        first,
        worth.astype(float),
        demand.astype(float),
        np.array([totals[name] for name in names], dtype=float),
        items=_items(ways, shared) if any(way.items for way in ways) else None,
        groups=tuple(query.app_id for query in queries),
        resources=names,
        name="compound",
    )


def _items(ways: Sequence[Way], tiers: Sequence[Tier]) -> Items:
    place = {tier.name: t for t, tier in enumerate(tiers)}
    kinds = tuple(dict.fromkeys(kind for way in ways for item in way.items for kind in item.size))
    kept = [[item for item in way.items if item.tier in place] for way in ways]
    flat = [item for items in kept for item in items]
    at = np.array([place[item.tier] for item in flat], dtype=np.int64)
    size = np.array([[item.size.get(kind, 0.0) for kind in kinds] for item in flat]).reshape(len(flat), len(kinds))
    room = np.array([[tier.room.get(kind, 0.0) for kind in kinds] for tier in tiers]).reshape(len(tiers), len(kinds))
    elsewhere = np.array([[kind in tier.elsewhere for kind in kinds] for tier in tiers]).reshape(room.shape)
    return Items(
        first=np.concatenate([[0], np.cumsum([len(items) for items in kept])]).astype(np.int64),
        tier=at,
        size=np.where(elsewhere[at], 0.0, size),
        machines=np.array([tier.machines for tier in tiers], dtype=float),
        room=room,
        price=np.array([0.0 if tier.per == "gpu" else tier.machine_price for tier in tiers]),
    )


def machines_of(form: Packing, option: int, choice: Choice, tiers: Sequence[Tier]) -> dict[str, tuple[int, ...]]:
    """Per tier the machines on which a chosen option's items stand."""
    if form.items is None or choice.machine is None:
        return {}
    shared = [tier for tier in tiers if not tier.own]
    where: dict[str, list[int]] = {}
    for item in range(int(form.items.first[option]), int(form.items.first[option + 1])):
        where.setdefault(shared[int(form.items.tier[item])].name, []).append(int(choice.machine[item]))
    return {tier: tuple(machines) for tier, machines in where.items()}
