"""What knobs of a pipeline may be beyond lists of levels: ranges of numbers, conditions, and rules between knobs.

A range is searched at `points` places: all whole numbers of an integer knob, else as many as are stated. A knob that
does not matter under the others' levels is left at its first one, and costs no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Key, Model, PositiveAmount, Real, wrong

__all__ = ["KnobRange", "KnobRule", "KnobSpace", "Knobs"]

POINTS = 33
MOST_POINTS = 10_000


class KnobRange(Model):
    """Numbers from one to another; `scale` log has equal ratios between them instead of equal steps."""

    from_: Real = Field(alias="from")
    to: Real
    kind: Literal["integer", "continuous"] = "continuous"
    step: PositiveAmount | None = None
    points: int | None = Field(default=None, ge=2, le=MOST_POINTS, description="of a continuous knob; 33 by default")
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _agrees(self) -> KnobRange:
        if not self.from_ < self.to:
            raise wrong("a range goes from less to more", "Exchange the two, or list one level.", at=("to",))
        if self.scale == "log" and (self.from_ <= 0 or self.step is not None):
            raise wrong("a scale of ratios begins above 0 and has points, no step", 'Write "linear".', at=("scale",))
        if self.kind == "integer" and any(x is not None and x != round(x) for x in (self.from_, self.to, self.step)):
            raise wrong("an integer knob has whole numbers", 'Write whole ones, or "continuous".', at=("kind",))
        if self.step is not None and self.points is not None:
            raise wrong("a step and a number of points", "Keep one of them.", at=("points",))
        if len(self.levels) > MOST_POINTS:
            raise wrong(f"{MOST_POINTS} points are the most", "Take a larger step.", at=("step",))
        return self

    @property
    def levels(self) -> tuple[Any, ...]:
        """The points.

        >>> KnobRange.model_validate({"from": 1, "to": 5, "kind": "integer"}).levels
        (1, 2, 3, 4, 5)
        >>> KnobRange.model_validate({"from": 1, "to": 100, "scale": "log", "points": 3}).levels
        (1.0, 10.0, 100.0)
        """
        if self.step is not None or (self.kind == "integer" and self.points is None and self.scale == "linear"):
            step = self.step or 1.0
            count = min(math.floor((self.to - self.from_) / step * (1 + 1e-12)) + 1, MOST_POINTS + 1)
            found = [self.from_ + k * step for k in range(count)]
        else:
            parts = [k / ((self.points or POINTS) - 1) for k in range(self.points or POINTS)]
            if self.scale == "log":
                found = [self.from_ * (self.to / self.from_) ** part for part in parts]
            else:
                found = [self.from_ + part * (self.to - self.from_) for part in parts]
        if self.kind == "integer":
            return tuple(dict.fromkeys(round(x) for x in found))
        return tuple(float(f"{x:.10g}") for x in found)


class KnobRule(Model):
    """Where all knobs of `if` have one of these levels, those of `then` have one of theirs."""

    if_: dict[Key, tuple[Any, ...]] = Field(alias="if", min_length=1)
    then: dict[Key, tuple[Any, ...]] = Field(min_length=1)


class KnobSpace(Model):
    """Knobs beyond lists: see the module."""

    ranges: dict[Key, KnobRange] = Field(default_factory=dict)
    unordered: tuple[Key, ...] = Field(default=(), description="knobs whose numbers are names: none is near another")
    matters: dict[Key, dict[Key, tuple[Any, ...]]] = Field(
        default_factory=dict, description="a knob matters only where these knobs have one of these levels"
    )
    rules: tuple[KnobRule, ...] = ()
    rising: tuple[tuple[Key, ...], ...] = Field(default=(), description="knobs whose numbers do not fall in this order")

    def levels(self, listed: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        """Every knob's levels: those that are listed, then those of ranges."""
        return {**listed, **{name: one.levels for name, one in self.ranges.items()}}

    def check(self, listed: Mapping[str, tuple[Any, ...]]) -> None:
        """Every knob and level that is named is there."""
        for name in self.ranges.keys() & listed.keys():
            raise wrong(f"{name} has levels and a range", "Keep one of them.", at=("space", "ranges", name))
        levels = self.levels(listed)
        named: list[tuple[tuple[str | int, ...], str, tuple[Any, ...]]] = [
            (("unordered",), name, ()) for name in self.unordered
        ]
        named += [(("rising", n), name, ()) for n, chain in enumerate(self.rising) for name in chain]
        named += [(("matters", knob), knob, ()) for knob in self.matters]
        named += [(("matters", knob), k, v) for knob, others in self.matters.items() for k, v in others.items()]
        for n, rule in enumerate(self.rules):
            named += [(("rules", n), k, v) for part in (rule.if_, rule.then) for k, v in part.items()]
        for at, name, wanted in named:
            if name not in levels:
                listing = ", ".join(levels) or "none"
                raise wrong(f"there is no knob {name!r}", f"There are: {listing}.", at=("space", *at))
            for level in wanted:
                if level not in levels[name]:
                    raise wrong(f"{level!r} is no level of {name}", "Name one that it has.", at=("space", *at))
        for chain in self.rising:
            for name in chain:
                if any(isinstance(x, bool) or not isinstance(x, int | float) for x in levels[name]):
                    raise wrong(f"the levels of {name} are no numbers", "Leave it out.", at=("space", "rising"))
        for knob, others in self.matters.items():
            if any(other in self.matters for other in others) or knob in others:
                why = f"whether {knob} matters depends on a knob that may itself not matter"
                raise wrong(why, "Name the knob at the top only.", at=("space", "matters", knob))

    def broken(self, knobs: Mapping[str, Any], first: Mapping[str, Any]) -> str:
        """Which rule a setting breaks, in words; "" where it keeps all."""
        idle = {knob for knob, others in self.matters.items() if any(knobs.get(k) not in v for k, v in others.items())}
        for knob in sorted(idle):
            if knobs.get(knob) != first[knob]:
                return f"{knob} does not matter here, and is not at its first level"
        for rule in self.rules:
            if all(knobs.get(k) in v for k, v in rule.if_.items()) and not idle & rule.then.keys():
                for knob, levels in rule.then.items():
                    if knobs.get(knob) not in levels:
                        return f"{knob} is {knobs.get(knob)!r} where a rule allows {', '.join(map(str, levels))}"
        for chain in self.rising:
            values = [knobs[name] for name in chain]
            if values != sorted(values):
                return f"{', '.join(chain)} fall from one to the next"
        return ""


class Knobs(Model):
    """Knobs with levels, and what they may be beyond lists."""

    knobs: dict[Key, tuple[Any, ...]]
    space: KnobSpace

    @model_validator(mode="after")
    def _agree(self) -> Knobs:
        self.space.check(self.knobs)
        return self
