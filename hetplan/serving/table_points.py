"""Which number of a table answers for a load: where on the table's axes a query is, and by which statistic.

**One order of precedence** says where on an axis of the table a batch of queries is, the first that says it wins:

1. the class of the query, by the mix (a query that carries a ``batch`` of its own makes the batch larger still);
2. what the load sets: its batch as ``batch`` (a batch below the smallest that was measured takes as long as that),
   then its knobs;
3. the ``at`` of its run;
4. the knobs of its variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.profiles.columns import Statistic
    from hetplan.profiles.plan import Notice
    from hetplan.profiles.tables import Table

__all__ = ["ORDER", "At", "answering_statistic", "point_of", "settings_of", "statistic_of"]

ORDER = ("mean", "p50", "p90", "p95", "p99", "max")
"""The statistics of a time, each no smaller than most times below it; `answering_statistic` goes along them."""

At = Mapping[str, float]


def settings_of(*, knobs: Mapping[str, Any], at: At, variant_knobs: Mapping[str, Any]) -> dict[str, float]:
    """Where a load is on the axes that no query names: its knobs, then its run's `at`, then its variant's knobs.

    >>> settings_of(knobs={"size": 320}, at={"size": 640, "co_load": 1}, variant_knobs={"co_load": 0, "mode": "fast"})
    {'co_load': 1.0, 'size': 320.0}
    """
    merged = {**variant_knobs, **at, **knobs}
    return {name: float(value) for name, value in merged.items() if isinstance(value, int | float)}


def point_of(axes: Mapping[str, Sequence[float]], settings: At, at: At, size: int = 1) -> dict[str, float]:
    """Where on the axes of a table a batch of `size` queries of one class is; `OffTable` where nothing says it.

    >>> point_of({"batch": (1, 8), "pixels": (320, 640)}, {"pixels": 640}, {"batch": 2}, size=3)
    {'batch': 6.0, 'pixels': 640.0}
    """
    point: dict[str, float] = {}
    for axis, steps in axes.items():
        if axis == "batch":
            point[axis] = max(float(at.get("batch", 1.0)) * size, float(steps[0]))
        elif axis in at:
            point[axis] = float(at[axis])
        elif axis in settings:
            point[axis] = float(settings[axis])
        else:
            from hetplan.profiles.multilinear import OffTable

            raise OffTable(
                f'nothing says where on the axis {axis} of its table a query is ("at": {{"{axis}": ...}})',
                'Add it to the application\'s "mix", or to the run\'s "at".',
            )
    return point


def answering_statistic(held: Iterable[str], wanted: str) -> str:
    """The statistic that answers where `wanted` may be missing: itself, else the next higher one, else the next lower.

    So what is missing is never made to look faster while something slower was measured. One rule for every question;
    who takes another than was wanted says so (W-statistic), and refuses it where the user named it by an option.

    >>> answering_statistic(["p50", "p99"], "p95"), answering_statistic(["p50", "p99"], "mean")
    ('p99', 'p50')
    >>> answering_statistic(["mean", "p50"], "p95")
    'p50'
    """
    known = [name for name in ORDER if name in set(held)]
    if wanted in known or wanted not in ORDER or not known:
        return wanted
    higher = [name for name in known if ORDER.index(name) > ORDER.index(wanted)]
    return higher[0] if higher else known[-1]


def statistic_of(
    table: Table, wanted: Statistic, *, named: str = "", at: str = ""
) -> tuple[Statistic, tuple[Notice, ...]]:
    """The statistic of a table that answers for `wanted`, and the warning where it is another.

    `named` is the option by which the user asked for `wanted`, "" where it is only the default: what the user named is
    refused where it was not measured.

    >>> from hetplan.profiles.tables import Table
    >>> statistic_of(Table(quantity="latency_ms", p50=4.0, p99=9.0), "p95", at="tables.t")[0]
    'p99'
    """
    found: Statistic = answering_statistic(table.statistics, wanted)  # type: ignore[assignment]
    if found == wanted:
        return found, ()
    if named:
        listed = ", ".join(name for name in table.statistics if name != "std")
        raise InputError.one(
            file=table.file or "profile", path=f"$.{at}.{wanted}" if at else wanted, value=wanted,
            why=f"option {named} asks for {wanted}, which the table lacks",
            remedy=f"Measure it, or set {named} to one that is there: {listed}.",
        )  # fmt: skip
    from hetplan.profiles.plan import Notice

    return found, (Notice(code="W-statistic", at=at, text=f"{wanted} was not measured: {found} is used instead"),)
