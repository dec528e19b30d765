"""Units as Kubernetes holds them: a group per worker of the plan, names and labels that Kubernetes takes.

A group is one Deployment: its units differ by their index alone. Names are DNS labels that start with a letter, and
different where the ids differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hetplan.errors import InputError
from hetplan.executor.units import Unit, named

__all__ = [
    "LABEL_GROUP",
    "LABEL_INSTANCE",
    "LABEL_PART",
    "LEAVING",
    "Group",
    "grouped",
    "labels",
    "selector",
]


@dataclass(frozen=True)
class Group:
    """`unit` is any of them, with index 0; `indices` are those that get queries, `standby` those that wait."""

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


LEAVING = "/tmp/hetplan-leaving"
"""A file that is there while a pod ends: it is not ready any more, and serves on until nobody asks it."""

LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_PART = "app.kubernetes.io/component"
LABEL_GROUP = "hetplan/group"


def labels(instance: str, part: str, group: str | None = None) -> dict[str, str]:
    """The labels of an object: whose it is (also what pruning goes by), which part, which group."""
    marks = {
        "app.kubernetes.io/name": "hetplan",
        "app.kubernetes.io/managed-by": "hetplan",
        LABEL_INSTANCE: instance,
        LABEL_PART: part,
    }
    return marks if group is None else {**marks, LABEL_GROUP: group}


def selector(instance: str, part: str | None = None, group: str | None = None) -> str:
    """The label selector that finds what `labels` marked.

    >>> selector("prod", "worker")
    'app.kubernetes.io/managed-by=hetplan,app.kubernetes.io/instance=prod,app.kubernetes.io/component=worker'
    """
    marks = {"app.kubernetes.io/managed-by": "hetplan", LABEL_INSTANCE: instance}
    marks |= {LABEL_PART: part} if part is not None else {}
    marks |= {LABEL_GROUP: group} if group is not None else {}
    return ",".join(f"{name}={value}" for name, value in marks.items())
