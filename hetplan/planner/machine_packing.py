"""Packs several things onto shared machines: what one may hold, how many it takes, what is on each of them.

Things (instances of variants, steps of pipelines, pools) say what they need of what a machine provides. A machine holds
a_pi of kind i of them, by one of its patterns pi; M_pi machines are filled so::

    (2)  sum_pi a_pi,i M_pi >= x_i                  everything has its place
         u_t = sum_pi M_pi                          the machines in use, which the program rents

Things that need the same are one kind i, so that batch sizes and names do not multiply patterns. Only patterns to which
nothing can be added are listed: less may be on a machine than its pattern allows. So the counts are those of vector bin
packing, exactly. Where a machine may be filled in more than `MOST_PATTERNS` ways, machines are counted by what all that
they hold takes together: a relaxation, whose places are found by best fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import Expression
from hetplan.planner.tolerances import SLIP

__all__ = ["IN_TOTAL", "MOST_ON_ONE", "Filling", "Sharing", "in_total", "place", "read_fillings", "total_of"]

Columns = NDArray[np.int64]
Vector = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]
Patterns = tuple[tuple[int, ...], ...]

MOST_PATTERNS = 2000
"""Ways to fill machines of one type that are written out: each is one more whole column of the program."""
MOST_ON_ONE = 1000
"""Of one thing on one machine."""
MOST_TRIED = 50_000
"""Fillings that are looked at, those included to which something can be added."""
IN_TOTAL = "in total"
"""The rows of `in_total`."""


@dataclass(frozen=True)
class Filling:
    """So many machines of a type, each with these things and how many of each."""

    machine: str
    holds: Mapping[int, int]
    count: int


class Sharing:
    """The things that may share a machine of one type, by number: what each needs, and the company that it bears.

    `company` counts all that is on the machine, the thing itself included.
    """

    def __init__(
        self,
        machine: str,
        provides: Mapping[str, float],
        things: Sequence[int],
        needs: Sequence[Mapping[str, float]],
        company: Sequence[int],
    ) -> None:
        self.machine, self.provides, self.things = machine, provides, tuple(things)
        self.resources = tuple(sorted({name for one in needs for name in one if name in provides}))
        room = np.array([provides[name] for name in self.resources])
        self._room = room + SLIP * (1 + room)
        self._needs = np.array([[one.get(name, 0.0) for name in self.resources] for one in needs], dtype=float)
        self._needs = self._needs.reshape(len(self.things), len(self.resources))
        self._company = list(company)

    @cached_property
    def _kinds(self) -> tuple[Rows, tuple[int, ...], NDArray[np.int64]]:
        """Needs and company of each kind of things, and the kind of each thing."""
        numbers: dict[tuple[tuple[float, ...], int], int] = {}
        keys = zip(map(tuple, self._needs.tolist()), self._company, strict=True)
        of = [numbers.setdefault(key, len(numbers)) for key in keys]
        needs, company = zip(*numbers, strict=True) if numbers else ((), ())
        return needs, company, np.array(of, dtype=np.int64)

    def can_hold(self, counts: Sequence[int]) -> bool:
        """Whether one machine can hold these counts of each thing, by resources and by how many may run together."""
        company = sum(counts)
        return all(company <= most for most, n in zip(self._company, counts, strict=True) if n) and bool(
            (counts @ self._needs <= self._room).all()
        )

    def max_more(self, thing: int, beside: Mapping[int, int] | None = None) -> int:
        """How many more of a thing fit on one machine, next to these counts."""
        counts = [(beside or {}).get(one, 0) for one in self.things]
        number = self.things.index(thing)
        before = counts[number]
        while counts[number] < MOST_ON_ONE:
            counts[number] += 1
            if not self.can_hold(counts):
                return counts[number] - 1 - before
        return counts[number] - before

    def min_machines(self, counts: Sequence[int]) -> int:
        """A lower bound on the machines that hold these counts of each thing."""
        total = np.asarray(counts) @ self._needs
        provided = np.array([self.provides[name] for name in self.resources])
        parts = total[provided > 0] / provided[provided > 0]
        return math.ceil(float(parts.max(initial=0.0)) - SLIP)

    def patterns(self, most: ArrayLike) -> Patterns | None:
        """The ways to fill a machine, by kind, with no more than so many of each thing (None: they are too many)."""
        needs, company, of = self._kinds
        limits = np.bincount(of, weights=most, minlength=len(needs))
        return _patterns(needs, tuple(self._room.tolist()), company, tuple(int(one) for one in limits))

    @property
    def kinds(self) -> int:
        """How many kinds of things there are."""
        return len(self._kinds[0])

    def of_kind(self, kind: int) -> list[int]:
        """The things of one kind."""
        return [thing for thing, one in zip(self.things, self._kinds[2], strict=True) if one == kind]


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


def place(
    m: Builder,
    sharing: Sharing,
    x: Columns,
    most: ArrayLike,
    name: Callable[[int], str],
    *,
    less: Mapping[str, float] | None = None,
) -> Expression:
    """Add the machines that hold x, no more than `most` of each thing; returns how many there are in all.

    `less` is as `in_total` has it.
    """
    patterns, block = sharing.patterns(most), f"machines {sharing.machine}"
    if patterns is None:
        machines = m.columns(block, ["all"], whole=True, unit="machines")
        in_total(m, sharing, x, [(Expression(machines), sharing.provides)], less=less)
        return Expression(machines)
    things = [" or ".join(map(name, sharing.of_kind(kind)[:2])) for kind in range(sharing.kinds)]

    def label(k: int) -> str:
        return " + ".join(f"{n} {thing}" for n, thing in zip(patterns[k], things, strict=True) if n)

    machines = m.columns(block, label, size=len(patterns), whole=True, unit="machines")
    holds = np.array(patterns, dtype=float).reshape(len(patterns), len(things))
    row = m.rows(f"on {sharing.machine}", things, lower=0.0, equation="(2)")
    p, k = np.nonzero(holds)
    m.add(row[k], machines[p], holds[p, k])
    m.add(row[sharing._kinds[2]], x, -1.0)
    return Expression(machines)


def in_total(
    m: Builder,
    sharing: Sharing,
    x: Columns,
    machines: Sequence[tuple[Expression, Mapping[str, float]]],
    *,
    less: Mapping[str, float] | None = None,
) -> None:
    """Add that x takes no more of each resource than machines provide together, `less` of some (by their labels)."""
    for number, resource in enumerate(sharing.resources):
        needs = sharing._needs[:, number]
        if needs.any():
            label = total_of(resource, sharing.machine)
            upper = -(less or {}).get(label, 0.0)
            row = m.rows(IN_TOTAL, [label], upper=upper, equation="(2)")
            m.add(row, x, needs)
            for used, provides in machines:
                m.add(row, used.columns, np.multiply(used.coefficients, -provides.get(resource, 0.0)))


def total_of(resource: str, machine: str) -> str:
    """How the row of `in_total` is called."""
    return f"{resource} of {machine}" if machine else resource


def read_fillings(
    form: Milp, point: Vector, sharing: Sharing, most: ArrayLike, counts: Mapping[int, int]
) -> list[Filling] | None:
    """The contents of the machines that `place` added, from a solution; None where they are counted in total."""
    patterns = sharing.patterns(most)
    if patterns is None:
        return None
    block = next(block for block in form.columns if block.name == f"machines {sharing.machine}")
    machines = np.rint(point[block.start : block.stop]).astype(int)
    left = Counter({thing: counts.get(thing, 0) for thing in sharing.things})
    things = [sharing.of_kind(kind) for kind in range(sharing.kinds)]
    found = list[Filling]()
    for pattern, count in zip(patterns, machines.tolist(), strict=True):
        found += _filled(sharing.machine, pattern, count, things, left)
    return found


def _filled(
    machine: str, pattern: Sequence[int], count: int, things: Sequence[Sequence[int]], left: Counter[int]
) -> Iterator[Filling]:
    """Machines of one pattern, alike as long as there is enough of a thing, the last of them with what is left."""
    while count > 0:
        holds = dict[int, int]()
        for kind, most in enumerate(pattern):
            for thing in things[kind]:
                if n := min(most, left[thing]):
                    holds[thing], most = n, most - n
        if not holds:
            return
        alike = min([count, *(left[thing] // n for thing, n in holds.items())])
        for thing, n in holds.items():
            left[thing] -= n * alike
        yield Filling(machine, holds, alike)
        count -= alike
