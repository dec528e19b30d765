"""What if a price, a stock, a limit, a rate were another: the plan along one or two ranges, and where it changes.

Values of a range are tried first. Then the places are looked for where the fleet changes between two of them:

- **A price, while the cost is least.** The bill of a fleet is a straight line over the price, and the least cost is the
  lowest of these lines. Where the lines of two neighbours cross, the question is asked again: either no fleet is
  cheaper there and the place is exact, or a third fleet is, and lies between. So every fleet that is best somewhere is
  found (Eisner and Severance 1976), as far as answers are optimal.
- **Anything else.** Halving, until the place is known to a 1000th of the range, or to the next whole number. A limit
  that only gives room (a budget, a stock, a time) or only takes it (a rate, a floor of quality) and leaves the value
  (and those of further wishes) as it is between two points changes nothing there: the plan of the tighter point is
  best on the whole stretch, and is kept. Elsewhere two values with one fleet are not looked between: a fleet that
  comes and goes there is not seen.

Fleets take long to plan: there only the values named are tried.

At every point the program is solved and its bound certified. Questions that size their plans by simulation are asked
once more in full at both ends and at both sides of every change: the `confirmed` points.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, overload

from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.planner.terms import OnEvent
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.canonical import rounded
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.read_plan import read_plan
from hetplan.studies.axes import Axis, Files, axis_of
from hetplan.studies.points import Asked, Task, fleet_text, is_price, solve_point, study_digest

if TYPE_CHECKING:
    from hetplan.studies.robust import Robustness

__all__ = ["Breakpoint", "Segment", "WhatIf", "whatif", "whatif_for"]

NARROW = 1e-3
"""The place of a change is known to this part of its range."""

SAME = 1e-8
"""Two values that differ by less, relatively, are the same."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Breakpoint:
    """Where the fleet changes along the first axis: between `low` and `high`, which are one place where it is exact."""

    low: float
    high: float
    exact: bool
    before: dict[str, int] | None
    after: dict[str, int] | None
    value_before: float | None = None
    value_after: float | None = None
    beside: float | None = None
    """The value of the second axis."""


@dataclass(frozen=True)
class Segment:
    """A stretch of the first axis with one fleet; `brings` is what one more of the axis brings within it."""

    start: float
    end: float
    fleet: dict[str, int] | None
    first: float | None
    last: float | None
    brings: float | None
    why: str = ""
    beside: float | None = None


@dataclass(frozen=True)
class WhatIf:
    """The answer: points (of programs), segments and breakpoints, and the points that were confirmed in full."""

    axes: tuple[Axis, ...]
    question: str
    about: str
    sense: str
    points: tuple[Point, ...]
    confirmed: tuple[Point, ...]
    breakpoints: tuple[Breakpoint, ...]
    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found: dict[str, Any] = rounded(
            {
                "format": "hetplan/whatif/1.0",
                "question": self.question,
                "objective": {"about": self.about, "sense": self.sense},
                "axes": [{"name": axis.name, "now": axis.now, "unit": axis.unit} for axis in self.axes],
                "segments": [asdict(one) for one in self.segments],
                "breakpoints": [asdict(one) for one in self.breakpoints],
                "points": list(self.points),
                "confirmed": list(self.confirmed),
                "notes": list(self.notes),
                "curves": [self.curve()],
            }
        )
        return found

    def csv(self) -> str:
        """One line per point; those that were confirmed in full say so."""
        to = io.StringIO()
        out = csv.writer(to, lineterminator="\n")
        figures = ("status", "value", "bound", "scope", "vouched", "cost_per_hour", "rate_qps")
        out.writerow([*(axis.name for axis in self.axes), "by", "about", *figures, "fleet"])
        for by, points in (("program", self.points), ("confirmed", self.confirmed)):
            for point in points:
                row = [_cell(value) for value in (*point["values"], by, self.about, *(point.get(f) for f in figures))]
                out.writerow([*row, fleet_text(point["fleet"])])
        return to.getvalue()

    def svg(self) -> str:
        """The curves as a picture by itself."""
        from hetplan.drawing.charts import Curve, curves

        drawn = self.curve()
        lines = [Curve(one["label"], one["x"], one["y"], self.sense) for one in drawn["lines"]]
        return curves(lines, label=drawn["title"], x=drawn["x"], y=drawn["y"], zero=False).svg(alone=True)

    def curve(self) -> dict[str, Any]:
        """The objective along the first axis, a line per value of the second, as `hetplan report` draws it."""
        first, second = self.axes[0], self.axes[1].name if len(self.axes) > 1 else ""
        lines: dict[tuple[float, ...], list[Point]] = {}
        for point in self.points:
            lines.setdefault(tuple(point["values"][1:]), []).append(point)
        return {
            "title": f"{self.about or 'plan'} along {first.name}",
            "x": f"{first.name} ({first.unit})" if first.unit else first.name,
            "y": self.about,
            "lines": [
                {
                    "label": f"{second} {beside[0]:.6g}" if beside else self.about,
                    "x": [point["values"][0] for point in line],
                    "y": [point.get("value") if point["ok"] else None for point in line],
                }
                for beside, line in lines.items()
            ],
            "marks": {} if first.now is None else {"now": first.now},
        }


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


@overload
def whatif(
    *files: GivenFile | Inputs | None,
    vary: str | Sequence[str],
    robust: None = None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    solver: str | None = None,
    points: int = 400,
    confirm: bool = True,
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> WhatIf: ...


@overload
def whatif(
    *files: GivenFile | Inputs | None,
    vary: None = None,
    robust: Mapping[str, float],
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    solver: str | None = None,
    points: int = 400,
    confirm: bool = True,
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Robustness: ...


@check_arguments
def whatif(
    *files: GivenFile | Inputs | None,
    vary: str | Sequence[str] | None = None,
    robust: Mapping[str, float] | None = None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    solver: str | None = None,
    points: int = 400,
    confirm: bool = True,
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> WhatIf | Robustness:
    """How the plan changes along one or two ranges, or how far numbers may be off before it fails.

    `vary` names one range or two ("budget=1:5", "price:OFFER=0.5:1:6"); at most `points` values are planned. `robust`
    says by which part numbers may be off at most, "demand", "latency" and "prices", "gamma" of them at once: found are
    machines that hold all the same. An empty one asks for the margins alone, of the plan that is among the files.

    >>> import hetplan as hp
    >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
    >>> found = hp.whatif(*files, vary="budget=0.5:1.5:2", confirm=False)
    >>> [round(one.low, 2) for one in found.breakpoints][:2], found.about
    ([0.6, 0.66], 'rate_qps')
    >>> found = hp.whatif("examples/pool/llm-profile.json", "examples/pool/llm-slo.json", robust={"demand": 0.2})
    >>> found.box.fleet, round(found.box.price, 3), found.margins[0].what
    ({'a100': 2, 'l4': 1}, 0.113, 'demand')
    """
    if (vary is None) == (robust is None):
        raise InputError.one(path="vary", why="either vary or robust", remedy='Write vary="budget=1:5".')
    named = sort_files(files, "whatif", plans=(0, 0 if robust is None else 1), in_python=True)
    spread = Spread(jobs, on_event=on_event, cancel=cancel)
    how: dict[str, Any] = {"formulation": formulation, "options": options, "solver": solver}
    if robust is not None:
        from hetplan.studies.robust import Box, robust_for

        plan = read_plan(named.plan, trust_digest=True) if named.plans else None
        stated = {name: value for name, value in how.items() if value is not None}
        return robust_for(named.inputs, plan=plan, box=Box.of(robust) if robust else None, spread=spread, **stated)
    return whatif_for(named.inputs, vary or (), most=points, confirm=confirm, spread=spread, **how)


def whatif_for(
    inputs: Inputs, vary: str | Sequence[str], *, most: int = 400, confirm: bool = True, spread: Spread | None = None,
    **choices: Any,
) -> WhatIf:  # fmt: skip
    """`whatif` for inputs that are read already."""
    files = Files.of(inputs)
    axes = [axis_of(text, files) for text in ([vary] if isinstance(vary, str) else vary)]
    if not 1 <= len(axes) <= 2 or len({axis.name for axis in axes}) < len(axes):
        why = f"one axis or two different ones, not {len(axes)}"
        raise InputError.one(file="--vary", why=why, remedy="Leave one out, or ask twice.")
    asked = Asked.of(files, axes, **choices)
    spread = spread or Spread()
    spread.of = spread.of or study_digest(asked, [axis.name for axis in axes])
    with spread:
        return _Sweep(asked, spread, most).found(confirm=confirm)


@dataclass
class _Sweep:
    """The work: points by their values, and what is looked between."""

    asked: Asked
    spread: Spread
    most: int
    points: dict[tuple[float, ...], Point] = field(default_factory=dict)
    capped: bool = False

    def found(self, *, confirm: bool) -> WhatIf:
        axes = self.asked.axes
        self._solve(list(product(*(axis.values for axis in axes))))
        while not self.asked.is_slow and (
            wanted := [at for beside in self._beside() for at in self._next_values(beside)]
        ):
            if len(self.points) + len(wanted) > self.most:
                self.capped = True
                wanted = wanted[: max(0, self.most - len(self.points))]
            self._solve(wanted)
            if self.capped:
                break
        points = [self.points[values] for values in sorted(self.points, key=lambda at: (at[1:], at[0]))]
        named = next((point for point in points if point["ok"]), points[0])
        breaks = [one for beside in self._beside() for one in self._breakpoints(beside)]
        confirmed = tuple(self._confirm(breaks)) if confirm and self.asked.sizes else ()
        return WhatIf(
            axes=axes,
            question=self.asked.question,
            about=named.get("about", ""),
            sense=named.get("sense", ""),
            points=tuple(points),
            confirmed=confirmed,
            breakpoints=tuple(breaks),
            segments=tuple(one for beside in self._beside() for one in self._segments(beside)),
            notes=tuple(self._notes(points, confirmed, confirm=confirm)),
        )

    def _solve(self, wanted: Sequence[tuple[float, ...]], *, sized: bool = False) -> list[Point]:
        new = [values for values in dict.fromkeys(wanted) if sized or values not in self.points]
        tasks: list[Task] = [{"values": list(values), "sized": sized} for values in new]
        about = "plans confirmed" if sized else "points"
        found = self.spread.all(solve_point, self.asked, tasks, about=about)
        if not sized:
            self.points |= dict(zip(new, found, strict=True))
            for beside in self._beside():
                _fill_between(self._line(beside), self.asked.axes[0].gives)
        return found

    def _beside(self) -> list[tuple[float, ...]]:
        """The values of the second axis, each by itself; one empty one where there is none."""
        return [tuple(values) for values in product(*(axis.values for axis in self.asked.axes[1:]))]

    def _line(self, beside: tuple[float, ...]) -> list[Point]:
        return [self.points[at] for at in sorted(self.points) if at[1:] == beside]

    def _next_values(self, beside: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
        axis = self.asked.axes[0]
        for left, right in pairwise(self._line(beside)):
            if (value := next_try(axis, left, right)) is not None:
                yield (value, *beside)

    def _breakpoints(self, beside: tuple[float, ...]) -> Iterator[Breakpoint]:
        axis = self.asked.axes[0]
        seen: set[float] = set()
        for left, right in pairwise(self._line(beside)):
            if left["fleet"] == right["fleet"]:
                continue
            low, high = left["values"][0], right["values"][0]
            at = crossing_price(axis, left, right)
            if at is not None and next_try(axis, left, right) is None:
                at = min(max(at, low), high)
                if any(abs(at - one) <= 2e-9 for one in seen):
                    continue
                seen.add(at)
                low = high = at
                # Both fleets cost the same there.
                value = left["value"] + left["slopes"][0] * (at - left["values"][0])
                yield Breakpoint(at, at, True, left["fleet"], right["fleet"], value, value, *beside)
                continue
            values = (left.get("value"), right.get("value"))
            yield Breakpoint(low, high, low == high, left["fleet"], right["fleet"], *values, *beside)

    def _segments(self, beside: tuple[float, ...]) -> Iterator[Segment]:
        run: list[Point] = []
        for point in [*self._line(beside), None]:
            if run and (point is None or point["fleet"] != run[0]["fleet"]):
                yield _segment(run, beside)
                run = []
            if point is not None:
                run.append(point)

    def _confirm(self, breaks: Sequence[Breakpoint]) -> list[Point]:
        """In full: at the ends and at both sides of every change."""
        wanted: list[tuple[float, ...]] = []
        for beside in self._beside():
            line = [point["values"][0] for point in self._line(beside)]
            own = [one for one in breaks if one.beside == (beside[0] if beside else None)]
            places = {line[0], line[-1], *(one.low for one in own), *(one.high for one in own)}
            wanted += [(value, *beside) for value in sorted(places)]
        return self._solve(wanted, sized=True)

    def _dearer(self, confirmed: Sequence[Point]) -> Iterator[str]:
        """Sized plans that are worse than one for a harder value: that one does there too."""
        axis = self.asked.axes[0]
        for beside in self._beside() if axis.gives else ():
            line = [point for point in confirmed if tuple(point["values"][1:]) == beside and point["ok"]]
            best, dearer = None, dict[str, list[str]]()
            for point in line if axis.gives > 0 else reversed(line):
                if best is None or _worse(point, best) <= 0:
                    best = point
                elif _worse(point, best) > SAME * abs(best["value"]):
                    better = (
                        f"the plan of {best['values'][0]:g} does too, and better: {best['about']} {best['value']:.6g}"
                    )
                    dearer.setdefault(better, []).append(", ".join(f"{one:g}" for one in point["values"]))
            yield from (f"at {'; '.join(ats)} {better}" for better, ats in dearer.items())

    def _notes(self, points: Sequence[Point], confirmed: Sequence[Point], *, confirm: bool) -> Iterator[str]:
        axis = self.asked.axes[0]
        if self.asked.sizes:
            more = "plans made in full are what `solve` gives" if confirm else "`solve` sizes its plans by simulation"
            yield f"the first table is of the program alone, without queues; {more}"
        yield from self._dearer(confirmed)
        if self.asked.is_slow:
            yield "a fleet takes long to plan: none was tried between the values named (LOW:HIGH:COUNT names more)"
            return
        if self.capped:
            yield f"{self.most} points were tried, the most allowed (--most): some changes are known roughly only"
        priced = is_price(axis) and all("slopes" in point for point in points if point["ok"])
        proved = all(p.get("vouched") == "certified" and p.get("scope") == "problem" for p in points if p["ok"])
        if priced and proved and not self.capped:
            yield "every fleet that is best at some price of the range is in the table: least costs are certified"
        elif len(self.points) > 1:
            monotone = " unless that is proved to change nothing" if axis.gives else ""
            yield f"changes are known to {NARROW:g} of the range; between points of one fleet none was tried{monotone}"


def _fill_between(line: Sequence[Point], gives: int) -> None:
    """Along an axis that only gives room (+1) or takes it (-1): a plan is kept for as long as none is better."""
    ordered = line if gives > 0 else list(reversed(line))
    for tight, loose in pairwise(ordered if gives else ()):
        if tight["ok"] and loose["ok"] and tight["fleet"] != loose["fleet"] and _is_as_good(tight, loose):
            loose |= {name: tight[name] for name in ("fleet", "cost_per_hour", "rate_qps")}


def _worse(one: Point, other: Point) -> float:
    """By how much the first is worse than the second, in what is wished first."""
    by: float = one["value"] - other["value"]
    return by if one["sense"] == "min" else -by


def _is_as_good(one: Point, other: Point) -> bool:
    """Whether two plans are as good in all that is wished, one wish after another."""
    mine, others = ((at["value"], *at.get("further", ())) for at in (one, other))
    return len(mine) == len(others) and all(_is_same(*both) for both in zip(mine, others, strict=True))


def _is_same(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= SAME * max(abs(one), abs(other))


def _segment(run: Sequence[Point], beside: tuple[float, ...]) -> Segment:
    first, last = run[0], run[-1]
    width = last["values"][0] - first["values"][0]
    brings = None
    if width > 0 and first.get("value") is not None and last.get("value") is not None:
        brings = (last["value"] - first["value"]) / width
    return Segment(
        first["values"][0], last["values"][0], first["fleet"], first.get("value"), last.get("value"), brings,
        first.get("why", ""), *beside,
    )  # fmt: skip


def next_try(axis: Axis, left: Mapping[str, Any], right: Mapping[str, Any]) -> float | None:
    """The value between two neighbours that is tried next; None where nothing is left to find."""
    if left["fleet"] == right["fleet"]:
        return None
    low, high = left["values"][0], right["values"][0]
    at = crossing_price(axis, left, right)
    if at is not None:
        value = axis.rounded(at)
        return value if low + 2e-9 < value < high - 2e-9 else None
    ends = axis.ends
    if axis.kind != "whole" and high - low <= NARROW * (ends[1] - ends[0]):
        return None
    return axis.middle(low, high)


def crossing_price(axis: Axis, left: Mapping[str, Any], right: Mapping[str, Any]) -> float | None:
    """Where the bills of two fleets are the same, along a price; None where that is not what is looked for."""
    if not is_price(axis) or not (left["ok"] and right["ok"]) or "slopes" not in left or "slopes" not in right:
        return None
    one, other = left["slopes"][0], right["slopes"][0]
    if one is None or other is None:
        return None
    low, high = left["values"][0], right["values"][0]
    there = right["value"] - left["value"] - one * (high - low)
    if abs(one - other) < SAME:
        return low if abs(there) <= SAME * max(1.0, abs(right["value"])) else None
    at: float = (right["value"] - left["value"] + one * low - other * high) / (one - other)
    return at
