"""Settings that are too many to be listed, or of which not all are allowed: knobs, conditions, rules between knobs.

A configuration is a row of places, one per knob (place k is its k-th level). A knob that does not matter under the
others' levels is at its first one, so that settings that do the same are one and the same row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetplan.profiles.knobs import KnobSpace

__all__ = ["LISTED", "Rule", "Space", "is_ordered", "settings_of"]

Integers = NDArray[np.int64]
Condition = tuple[tuple[int, frozenset[int]], ...]
"""Knobs, each with the places that it may be at."""

LISTED = 20_000
"""So many settings are listed and counted; of more, some are drawn."""
TRIES = 60


@dataclass(frozen=True)
class Rule:
    """Where the knobs of `when` are all at one of their places, those of `then` are too."""

    when: Condition
    then: Condition


@dataclass(frozen=True)
class Space:
    """The settings; `matters` says when a knob does, `rising` which knobs' values (by place) may not fall.

    >>> space = Space((2, 3), matters={1: ((0, frozenset({1})),)})
    >>> space.count, space.canonical(np.array([[0, 2], [1, 2]])).tolist()
    (4, [[0, 0], [1, 2]])
    """

    levels: tuple[int, ...]
    matters: Mapping[int, Condition] | None = None
    rules: tuple[Rule, ...] = ()
    rising: tuple[tuple[tuple[int, tuple[float, ...]], ...], ...] = ()

    @cached_property
    def product(self) -> int:
        """How many rows there are before anything is forbidden."""
        return math.prod(self.levels)

    @cached_property
    def rows(self) -> Integers | None:
        """Every allowed row once, in order, where they are few enough to be listed."""
        if self.product > LISTED:
            return None
        grid = np.indices(self.levels).reshape(len(self.levels), -1).T.astype(np.int64)
        return np.unique(self._kept(grid), axis=0)

    @property
    def whole(self) -> bool:
        """Whether every row is a setting, and none the same as another."""
        return not (self.matters or self.rules or self.rising)

    def has(self, number: int) -> bool:
        """Whether this is the number of an allowed row, whose knobs that do not matter are at their first level."""
        row = np.array([self.row(number)])
        return bool((self.canonical(row) == row).all() and self.allowed(row)[0])

    @property
    def count(self) -> int | None:
        """How many there are, where they are listed."""
        return None if self.rows is None else len(self.rows)

    def canonical(self, rows: Integers) -> Integers:
        """The same settings with every knob that does not matter at its first level."""
        rows = np.array(rows, dtype=np.int64)
        for knob, condition in (self.matters or {}).items():
            rows[~_holds(rows, condition), knob] = 0
        return rows

    def allowed(self, rows: Integers) -> NDArray[np.bool_]:
        """Which rows keep every rule; a rule about a knob that does not matter holds."""
        good = np.ones(len(rows), dtype=bool)
        for rule in self.rules:
            then = tuple((knob, places) for knob, places in rule.then)
            idle = np.zeros(len(rows), dtype=bool)
            for knob, _ in then:
                idle |= ~_holds(rows, (self.matters or {}).get(knob, ()))
            good &= ~_holds(rows, rule.when) | _holds(rows, then) | idle
        for chain in self.rising:
            values = [np.array(known)[rows[:, knob]] for knob, known in chain]
            for low, high in pairwise(values):
                good &= low <= high
        return good

    def _kept(self, rows: Integers) -> Integers:
        rows = self.canonical(rows)
        return rows[self.allowed(rows)]

    def draw(self, random: np.random.Generator, count: int) -> Integers:
        """At most so many allowed rows at random; fewer where they are hard to find."""
        if self.rows is not None:
            return self.rows[random.permutation(len(self.rows))[:count]]
        found = np.zeros((0, len(self.levels)), dtype=np.int64)
        for _ in range(TRIES):
            drawn = random.integers(0, np.array(self.levels), size=(2 * count, len(self.levels)))
            found = np.concatenate([found, self._kept(drawn)])
            if len(found) >= count:
                break
        return found[:count]

    def around(self, row: Sequence[int], random: np.random.Generator, most: int) -> Integers:
        """Allowed rows that differ from one in a single knob (and in what then matters no more); of a knob, some."""
        here = np.array(row, dtype=np.int64)
        changed = []
        for knob, size in enumerate(self.levels):
            others = np.delete(np.arange(size), here[knob])
            if others.size > most:
                others = random.choice(others, most, replace=False)
            block = np.repeat(here[None, :], others.size, axis=0)
            block[:, knob] = others
            changed.append(block)
        return self._kept(np.concatenate(changed))

    def number(self, row: Sequence[int]) -> int:
        """The number of a row: its place among all rows before anything is forbidden."""
        number = 0
        for place, size in zip(row, self.levels, strict=True):
            number = number * size + int(place)
        return number

    def numbers(self, rows: Integers) -> list[int]:
        """The number of each row."""
        if self.product >= 2**62:
            return [self.number(row) for row in rows.tolist()]
        weights = np.cumprod(np.array([1, *self.levels[:0:-1]], dtype=np.int64))[::-1]
        found: list[int] = (rows @ weights).tolist()
        return found

    def row(self, number: int) -> tuple[int, ...]:
        """The row of a number.

        >>> space = Space((4, 5, 6))
        >>> [space.number(space.row(n)) for n in (0, 7, 119)], space.numbers(np.array([space.row(7)]))
        ([0, 7, 119], [7])
        """
        places = []
        for size in reversed(self.levels):
            number, place = divmod(number, size)
            places.append(place)
        return tuple(reversed(places))


def settings_of(levels: Mapping[str, Sequence[Any]], stated: KnobSpace | None) -> Space:
    """The settings of knobs with these levels, by the places of levels; `stated` says which are allowed."""
    sizes = tuple(map(len, levels.values()))
    if stated is None:
        return Space(sizes)
    place = {name: n for n, name in enumerate(levels)}

    def read_condition(named: Mapping[str, Sequence[Any]]) -> Condition:
        return tuple((place[k], frozenset(list(levels[k]).index(level) for level in v)) for k, v in named.items())

    return Space(
        sizes,
        {place[knob]: read_condition(others) for knob, others in stated.matters.items()},
        tuple(Rule(read_condition(rule.if_), read_condition(rule.then)) for rule in stated.rules),
        tuple(tuple((place[name], tuple(map(float, levels[name]))) for name in chain) for chain in stated.rising),
    )


def _holds(rows: Integers, condition: Condition) -> NDArray[np.bool_]:
    held = np.ones(len(rows), dtype=bool)
    for knob, places in condition:
        held &= np.isin(rows[:, knob], sorted(places))
    return held


def is_ordered(levels: Sequence[Any]) -> bool:
    """Whether the levels of a knob are numbers that rise, or fall.

    >>> is_ordered([1, 2, 4]), is_ordered([4, 1]), is_ordered([1, 4, 2]), is_ordered(["a", "b"])
    (True, True, False, False)
    """
    if len(levels) < 2 or any(isinstance(level, bool) or not isinstance(level, int | float) for level in levels):
        return False
    steps = np.sign(np.diff(np.array(levels, dtype=float)))
    return bool(abs(steps.sum()) == steps.size)
