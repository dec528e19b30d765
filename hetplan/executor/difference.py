"""What differs between what runs and what a plan wants, unit by unit and route by route; nothing is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hetplan.executor.units import LoadSpec, Seen, Unit
from hetplan.executor.wanted import Wanted

__all__ = ["Difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """Units to start, to change in place, to stop, to keep; whether the router must be told something new."""

    start: tuple[Unit, ...]
    change: tuple[tuple[Seen, Unit], ...]
    stop: tuple[Seen, ...]
    keep: tuple[Seen, ...]
    route: bool

    def __bool__(self) -> bool:
        return bool(self.start or self.change or self.stop or self.route)

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Rows for people: a sign, how many of which worker, and what of it."""
        for key, units in _grouped(self.start):
            yield "+", f"{len(units)} x {key[0]}", f"start on {key[1]}: {_loads(units[0].loads)}"
        for seen, unit in self.change:
            yield "~", unit.name, _changes(seen, unit)
        stopped = [seen for seen in self.stop if seen.unit is not None]
        for key, old in _grouped([seen.unit for seen in stopped if seen.unit is not None]):
            yield "-", f"{len(old)} x {key[0]}", f"stop on {key[1]}: {_loads(old[0].loads)}"
        for seen in self.stop:
            if seen.unit is None:
                yield "-", seen.name, "stop"
        if self.route:
            yield ">", "router", "follow the plan's routes"
        if self.keep:
            yield "=", f"{len(self.keep)} units", "go on as they are"


def difference(seen: Sequence[Seen], wanted: Wanted, *, routed: bool) -> Difference:
    """Compare; `routed` says whether the router follows the wanted routes already."""
    here = {one.name: one for one in seen if not _on_its_way(one, wanted)}
    start = tuple(unit for name, unit in wanted.units.items() if name not in here)
    change = tuple(
        (here[name], unit) for name, unit in wanted.units.items() if name in here and here[name].content != unit.content
    )
    keep = tuple(
        here[name] for name, unit in wanted.units.items() if name in here and here[name].content == unit.content
    )
    stop = tuple(one for one in seen if one.name not in wanted.units)
    return Difference(start, change, stop, keep, route=not routed)


def _on_its_way(seen: Seen, wanted: Wanted) -> bool:
    """Whether it still comes or goes for an apply that was cut off; to start it waits for that, too."""
    unit = wanted.units.get(seen.name)
    comes = seen.status == "starting" and unit is not None and seen.content == unit.content
    return comes or seen.status == "stopping"


def _grouped(units: Sequence[Unit]) -> Iterator[tuple[tuple[str, str], list[Unit]]]:
    ordered = sorted(units, key=lambda unit: (unit.worker, unit.host, unit.index))
    for key, members in groupby(ordered, key=lambda unit: (unit.worker, unit.host)):
        yield key, list(members)


def _loads(loads: Sequence[LoadSpec]) -> str:
    return ", ".join(_load(load) for load in loads) or "nothing"


def _load(load: LoadSpec) -> str:
    what = load.variant or (f"{load.app}/{load.node}" if load.node else load.app or load.id)
    knobs = "".join(f" {name}={value}" for name, value in load.knobs.items())
    many = f" x{load.instances}" if load.instances > 1 else ""
    batch = f" batch {load.max_batch}" if load.max_batch > 1 else ""
    return f"{load.id} = {what}{knobs}{many}{batch}"


def _changes(seen: Seen, unit: Unit) -> str:
    if seen.unit is None:
        return "hold " + _loads(unit.loads)
    old: Mapping[str, LoadSpec] = {load.id: load for load in seen.unit.loads}
    new: Mapping[str, LoadSpec] = {load.id: load for load in unit.loads}
    told = [f"unload {name}" for name in old if name not in new]
    told += [f"load {_load(load)}" for name, load in new.items() if name not in old]
    told += [f"change {_load(load)}" for name, load in new.items() if name in old and old[name] != load]
    if seen.unit.standby != unit.standby:
        told.append("to standby" if unit.standby else "out of standby")
    return "; ".join(told) or "other settings"
