"""Tables that a plan carries along for its dispatcher are the profile's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

from hetplan.profiles.plan_dispatch import EarliestDispatch, MatchingDispatch
from hetplan.profiles.tables import Statistic, Table
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation

__all__ = ["check_tables"]


def _numbers(grid: object) -> list[object]:
    """Nested rows flattened, each opening marked so that rows of different shape never look alike."""
    if isinstance(grid, tuple):
        return ["row", *(number for item in grid for number in _numbers(item))]
    return [grid]


def _alike(left: object, right: object) -> bool:
    """Equal as far as the 12 significant digits of a plan can show."""
    first, second = _numbers(left), _numbers(right)
    return len(first) == len(second) and all(
        math.isclose(one, two, rel_tol=1e-11) if isinstance(one, float) and isinstance(two, float) else one == two
        for one, two in zip(first, second, strict=True)
    )


def _differences(carried: Table, measured: Table) -> Iterator[str]:
    for name in ("quantity", "outside"):
        if getattr(carried, name) != getattr(measured, name):
            yield f"{name} is {getattr(carried, name)}, the profile says {getattr(measured, name)}"
    same_points = _alike(tuple(carried.axes.values()), tuple(measured.axes.values()))
    if tuple(carried.axes) != tuple(measured.axes) or not same_points:
        yield "its axes are not the profile's"
    for statistic in get_args(Statistic):
        grid = getattr(carried, statistic)
        if grid is not None and not _alike(grid, getattr(measured, statistic)):
            yield f"its {statistic} is not the profile's"


def check_tables(facts: Facts) -> list[Violation]:
    """Every carried table equals the profile's; every table that a dispatcher predicts by is carried."""
    plan, profile = facts.plan, facts.inputs.profile
    found: list[Violation] = []
    for name, table in plan.tables.items():
        measured = profile.tables.get(name)
        differences = _differences(table, measured) if measured is not None else ["the profile has no such table"]
        found += [Violation("table", f"tables.{name}", text) for text in differences]
    for app, dispatch in plan.dispatch.items():
        if isinstance(dispatch, MatchingDispatch | EarliestDispatch):
            for key, name in dispatch.predict.items():
                at = f"dispatch.{app}.predict.{key}"
                variant, _, hardware = key.partition("@")
                runs = profile.variants[variant].runs if variant in profile.variants else ()
                if not any(run.hardware == hardware and run.latency == name for run in runs):
                    found.append(Violation("predict", at, f"the profile does not run {key} by table {name}"))
                if name not in plan.tables:
                    found.append(Violation("predict", at, f"table {name} is not carried in the plan"))
    return found
