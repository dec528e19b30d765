"""Machines that are paid whole and shared: what one may hold, how many there are, and what is on each of them.

A machine of type t holds a_pi instances of each item i, by one of its patterns p; m_p machines are filled so, each at
the price of the whole machine, whatever is on it::

    sum_p a_pi m_p >= x_i                                   every instance has its place
    sum_p m_p + sum_{i whole} x_i <= count_t                as many machines as may be had

Only patterns to which nothing can be added are listed: less may be on a machine than its pattern allows. So the counts
are those of vector bin packing, exactly. Where a machine may be filled in more than `MOST_PATTERNS` ways, machines are
counted by what all instances take together: the bound is one of a relaxation, and the places are found by best fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.variants.kinds import machine_nanos
from hetplan.problems.variants.wish import Snapshot
from hetplan.profiles.fields import NANO

__all__ = ["Filling", "MachineRoom", "add_machines", "patterns_of", "read_fillings"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = tuple[tuple[float, ...], ...]
Patterns = tuple[tuple[int, ...], ...]

MOST_PATTERNS = 2000
MOST_ON_ONE = 1000
"""Instances of an item on one machine."""
MOST_TRIED = 50_000
"""Fillings that are looked at, those included to which something can be added."""
SLIP = 1e-9


@dataclass(frozen=True)
class Filling:
    """So many machines of a type, each with these instances of items."""

    type: int
    holds: Mapping[int, int]
    count: int


class MachineRoom:
    """What one machine of a type has room for, of the items that share it."""

    def __init__(self, v: Snapshot, t: int) -> None:
        kinds, provides = [v.kinds[v.items[i].kind] for i in v.sharing_types[t]], v.types[t].provides
        names = sorted({name for kind in kinds for name in kind.needs if name in provides})
        self.items = v.sharing_types[t]
        self._needs = np.array([[kind.needs.get(name, 0.0) for name in names] for kind in kinds])
        room = np.array([provides[name] for name in names])
        self._room = room + SLIP * (1 + room)
        self._beside = [
            min((s.beside + 1 for s in v.items[i].serves if s.beside is not None), default=10**9) for i in self.items
        ]

    def holds(self, counts: Sequence[int]) -> bool:
        """Whether so many instances of each item fit, and bear each other's company."""
        company = sum(counts)
        return all(company <= most for most, n in zip(self._beside, counts, strict=True) if n) and bool(
            (counts @ self._needs <= self._room).all()
        )

    def patterns(self, most: Sequence[int]) -> Patterns | None:
        """The ways to fill it with no more than so many of each item to which nothing can be added."""
        needs = tuple(map(tuple, self._needs.tolist()))
        return _patterns(needs, tuple(self._room.tolist()), tuple(self._beside), tuple(most))

    def most(self, i: int, beside: Mapping[int, int] | None = None) -> int:
        """How many instances of an item fit, beside others."""
        counts = [(beside or {}).get(item, 0) for item in self.items]
        place = self.items.index(i)
        before = counts[place]
        while counts[place] < MOST_ON_ONE:
            counts[place] += 1
            if not self.holds(counts):
                return counts[place] - 1 - before
        return counts[place] - before


def patterns_of(v: Snapshot, t: int, upper: Vector) -> Patterns | None:
    """What a machine of a type may hold of the items that share it (None: in too many ways)."""
    room = MachineRoom(v, t)
    return room.patterns([int(upper[i]) for i in room.items])


@lru_cache(maxsize=64)
def _patterns(needs: Rows, room: tuple[float, ...], beside: tuple[int, ...], most: tuple[int, ...]) -> Patterns | None:
    """The ways to fill one machine to which nothing can be added (None: they are too many)."""
    found: list[tuple[int, ...]] = []
    for tried, pattern in enumerate(_fillings(needs, room, beside, most)):
        if pattern:
            found.append(pattern)
        if len(found) > MOST_PATTERNS or tried > MOST_TRIED:
            return None
    return tuple(found)


def _fillings(
    needs: Rows, room: tuple[float, ...], beside: tuple[int, ...], most: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """The ways to fill one machine; those to which something can be added are empty."""
    size, counts = len(most), [0] * len(most)

    def fits(left: Sequence[float], company: int, i: int) -> bool:
        return company <= beside[i] and all(need <= one for need, one in zip(needs[i], left, strict=True))

    def below(at: int, left: tuple[float, ...], company: int, bears: int) -> Iterator[tuple[int, ...]]:
        if at == size:
            more = company < bears and any(counts[i] < most[i] and fits(left, company + 1, i) for i in range(size))
            yield tuple(counts) if company and not more else ()
            return
        yield from below(at + 1, left, company, bears)
        for count in range(1, most[at] + 1):
            if not fits(left, company + count, at) or company + count > bears:
                break
            left = tuple(one - need for need, one in zip(needs[at], left, strict=True))
            counts[at] = count
            yield from below(at + 1, left, company + count, min(bears, beside[at]))
        counts[at] = 0

    return below(0, room, 0, 10**9)


def add_machines(
    v: Snapshot, m: Builder, x: Integers, upper: Vector, *, costs: bool, extra: Mapping[int, Integers]
) -> dict[int, Integers]:
    """Columns of machines for every type that is shared; `extra` are more machines of a type that may be bought."""
    found: dict[int, Integers] = {}
    for t, items in v.sharing_types.items():
        price = machine_nanos(v.inputs, v.types[t]) / NANO
        patterns, name = patterns_of(v, t, upper), f"machines {v.types[t].name}"
        if patterns is None:
            machines = m.columns(name, ["all"], whole=True, cost=price if costs else 0.0, unit="machines")
            _by_totals(v, m, x, t, machines)
        else:
            labels = [_label(v, items, pattern) for pattern in patterns]
            machines = m.columns(name, labels, whole=True, cost=price if costs else 0.0, unit="machines")
            holds = np.array(patterns, dtype=float).reshape(len(patterns), len(items))
            row = m.rows(f"on {v.types[t].name}", [v.item_name(i) for i in items], lower=0.0)
            p, k = np.nonzero(holds)
            m.add(row[k], machines[p], holds[p, k])
            m.add(row, x[list(items)], -1.0)
        if (count := v.types[t].count) is not None:
            row = m.rows(f"had {v.types[t].name}", ["machines"], upper=float(count), equation="(3)")
            whole = [i for i, item in enumerate(v.items) if v.kinds[item.kind].type == t and i not in items]
            m.add(row, machines, 1.0)
            m.add(row, x[whole], 1.0)
            if t in extra:
                m.add(row, extra[t], -1.0)
        found[t] = machines
    return found


def _label(v: Snapshot, items: Sequence[int], pattern: Sequence[int]) -> str:
    return " + ".join(f"{n} {v.item_name(i)}" for i, n in zip(items, pattern, strict=True) if n)


def _by_totals(v: Snapshot, m: Builder, x: Integers, t: int, machines: Integers) -> None:
    """No more of each resource than the machines provide together."""
    items, provides = list(v.sharing_types[t]), v.types[t].provides
    for name, room in sorted(provides.items()):
        needs = np.array([v.kinds[v.items[i].kind].needs.get(name, 0.0) for i in items])
        if needs.any():
            row = m.rows(f"{name} on {v.types[t].name}", ["machines"], upper=0.0, equation="(3)")
            m.add(row, x[items], needs)
            m.add(row, machines, -room)


def read_fillings(v: Snapshot, form: Milp, point: Vector, upper: Vector, x: Integers) -> list[Filling] | None:
    """What is on the machines of each type that is shared (None: they were counted in total)."""
    found: list[Filling] = []
    for t, items in v.sharing_types.items():
        patterns = patterns_of(v, t, upper)
        if patterns is None:
            return None
        block = next(block for block in form.columns if block.name == f"machines {v.types[t].name}")
        counts = np.rint(point[block.start : block.stop]).astype(int)
        left = Counter({i: int(x[i]) for i in items})
        for pattern, count in zip(patterns, counts, strict=True):
            found += _filled(t, dict(zip(items, pattern, strict=True)), int(count), left)
    return found


def _filled(t: int, pattern: Mapping[int, int], count: int, left: Counter[int]) -> Iterator[Filling]:
    """Machines of one pattern, the last of them with what is left."""
    while count > 0:
        holds = {i: min(n, left[i]) for i, n in pattern.items() if min(n, left[i]) > 0}
        if not holds:
            return
        alike = min([count, *(left[i] // n for i, n in holds.items())])
        for i, n in holds.items():
            left[i] -= n * alike
        yield Filling(t, holds, alike)
        count -= alike
