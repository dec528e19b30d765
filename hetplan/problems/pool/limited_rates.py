"""Rates of machines under limits on times: by the runs of a table, or by the conditions under which it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hetplan.errors import InputError
from hetplan.problems.faults import Faults
from hetplan.problems.pool.letters import Type, Vector
from hetplan.problems.pool.wish import Wish
from hetplan.profiles.operating_points import Limit, Verdict, judge, limits_of, nearest
from hetplan.profiles.plan import Notice
from hetplan.profiles.tables import Table

__all__ = ["check_given", "rates_under"]

UNCHECKED = "W-latency-unchecked"


def check_given(table: Table, kind: Type, wish: Wish, faults: Faults, notices: list[Notice]) -> None:
    """A table of rates without runs holds under conditions; the limits must follow from them."""
    for i, limit in enumerate(limits_of(wish.app) if not table.points else ()):
        verdict = judge(table.given, [limit])
        if verdict is Verdict.UNCHECKED:
            text = f"its `given` does not say whether its rates hold at {limit}"
            notices.append(Notice(code=UNCHECKED, at=f"tables.{kind.table_id}", text=text))
        elif verdict is Verdict.REFUTED:
            found = ", ".join(f"{name} {value:g}" for name, value in table.given.items())
            why = f"the rates of {kind.table_id} were measured at {found}, which is looser"
            at = f"$.apps.{wish.app_id}.latency[{i}].max_ms"
            faults.in_slo(at, why, "Measure at this target, or relax it.", value=limit.max_ms)


def rates_under(
    table: Table, points: Sequence[Mapping[str, float]], free: Vector, kind: Type, wish: Wish, refuted: list[str],
    notices: list[Notice],
) -> Vector:  # fmt: skip
    """Requests per second of each class (`free`: without limits), 0 where every run of its size breaks a limit.

    What is refuted is added to `refuted`, what no run says to the notices.
    """
    limits = limits_of(wish.app)
    held = table.under(limits)
    if held is table:
        return free
    rates = _read(held, points)
    if (rates == 0.0).any():
        which = ", ".join(f"{name} {value:g}" for name, value in points[int(np.argmin(rates))].items())
        refuted.append(f"{kind.table_id} at {which}: {_nearest(table, points[int(np.argmin(rates))], limits)}")
    unchecked = int(((rates > 0.0) & (_read(table.under(limits, Verdict.KEPT), points) != rates)).sum())
    if unchecked:
        listed = " and ".join(map(str, limits))
        text = f"of {unchecked} of {len(points)} classes no run says whether {listed}; none that breaks it is counted"
        notices.append(Notice(code=UNCHECKED, at=f"tables.{kind.table_id}", text=text))
    return rates


def _read(table: Table, points: Sequence[Mapping[str, float]]) -> Vector:
    """The rate of each class, 0 where there is none."""
    found = np.zeros(len(points))
    for place, point in enumerate(points):
        try:
            found[place] = table.read([point]).values[0]
        except InputError:
            continue
    return found


def _nearest(table: Table, point: Mapping[str, float], limits: Sequence[Limit]) -> str:
    """The run that comes nearest, of the size that is nearest to a class."""

    def away(at: Mapping[str, float]) -> float:
        return sum(abs(math.log((1.0 + at[name]) / (1.0 + point[name]))) for name in table.axes)

    least = min(away(one.at) for one in table.points)
    return nearest([one for one in table.points if away(one.at) == least], limits)
