"""Units that differ by their index only form a group: one Deployment, whose replicas they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hetplan.errors import InputError
from hetplan.executor.units import Unit, named

__all__ = ["Group", "grouped"]


@dataclass(frozen=True)
class Group:
    """`unit` stands for all of them, with index 0; `indices` are those that get queries, `standby` those that wait."""

    unit: Unit
    indices: tuple[int, ...] = ()
    standby: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What the names of its units begin with, and the parts that cannot change."""
        return group_name(self.unit)

    @property
    def replicas(self) -> int:
        """How many pods."""
        return len(self.indices) + len(self.standby)

    @property
    def units(self) -> dict[str, Unit]:
        """Its units by name."""
        made = [
            named(replace(self.unit, index=index, standby=standby))
            for indices, standby in ((self.indices, False), (self.standby, True))
            for index in indices
        ]
        return {unit.name: unit for unit in made}

    def with_units(self, units: Iterable[Unit]) -> Group:
        """The group with these units more, or changed: one Deployment has one template, so the newest holds for all."""
        added = list(units)
        newest = _alike(added)
        members = {**self.units, **{unit.name: unit for unit in added}}.values()
        return _group([named(replace(newest, index=unit.index, standby=unit.standby)) for unit in members])

    def without(self, names: Iterable[str]) -> Group:
        """The group with fewer units."""
        gone = set(names)
        left = [unit for name, unit in self.units.items() if name not in gone]
        return replace(
            self,
            indices=tuple(sorted(unit.index for unit in left if not unit.standby)),
            standby=tuple(sorted(unit.index for unit in left if unit.standby)),
        )


def grouped(units: Iterable[Unit]) -> Mapping[str, Group]:
    """The groups by name.

    >>> units = [named(Unit("", "w1", index, "t4", "cluster", "pool")) for index in range(3)]
    >>> [(group.unit.worker, group.indices) for group in grouped(units).values()]
    [('w1', (0, 1, 2))]
    """
    members: dict[str, list[Unit]] = {}
    for unit in units:
        members.setdefault(group_name(unit), []).append(unit)
    return {name: _group(listed) for name, listed in members.items()}


def group_name(unit: Unit) -> str:
    """The unit's name without its index."""
    return f"{unit.worker}-{unit.name.rpartition('-')[2]}"


def _group(units: list[Unit]) -> Group:
    return Group(
        _alike(units),
        tuple(sorted(unit.index for unit in units if not unit.standby)),
        tuple(sorted(unit.index for unit in units if unit.standby)),
    )


def _alike(units: list[Unit]) -> Unit:
    """What all of them are but for index and standby."""
    first, *others = [named(replace(unit, index=0, standby=False)) for unit in units]
    if any(other.content != first.content for other in others):
        raise InputError.one(
            file="plan",
            path=f"$.workers[{first.worker}]",
            why="workers of one group hold different loads, which one Deployment cannot",
            remedy="Change all of the group at once.",
        )
    return first
