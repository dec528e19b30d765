"""A summary as whoever shows it is handed it: sentences and tables, and the figures that its charts are drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["SIGNS", "Axis", "Bar", "Limit", "SummaryText", "Table", "limits_once"]

SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
"""How money is written of which people know the sign; of other money its code is."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns; `right` are the places of those that hold figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, how long, how its length is said, its colour, and what else is known of it."""

    label: str
    value: float
    note: str = ""
    colour: str = "k0"
    about: str = ""


@dataclass(frozen=True)
class Limit:
    """One limit of an application: the limit and the ends of what was found as figures, and all of it as words.

    `notes` say in which hours, and after which failure, it is closest to the limit.
    """

    app: str
    metric: str
    about: str
    asked: str
    found: str
    verdict: str
    relation: str = ""
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    """The plan on a line with what no plan can better; `end` is a simpler plan, where one is known."""

    sense: str
    value: tuple[float, str]
    bound: tuple[float, str]
    end: tuple[float, str] | None = None


@dataclass(frozen=True)
class SummaryText:
    """What a person checks of a plan, in words; `lines` are labels, each with its sentences."""

    head: str
    """Money, and what is served for it."""
    status: str
    bounds: tuple[str, ...]
    reserved: tuple[str, ...]
    tables: tuple[Table, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    state: str = "good"
    """"good", "open" where something was not simulated or is undecided, "bad" where something is missed."""
    costs: tuple[Bar, ...] = ()
    """Money a month of each group of machines, or of each application where machines change by the hour."""
    title: str = ""
    """Which applications, and what they are served at."""
    money: tuple[str, str] = ("", "")
    """Money a month, or what is counted where nothing has a price; and its unit."""
    buy: str = ""
    """Which machines, in a sentence."""
    monthly_bounds: tuple[str, ...] = ()
    axis: Axis | None = None
    limits: tuple[Limit, ...] = ()
    budget: tuple[Limit, ...] = ()
    """The limit on the money, if there is one."""
    ways: tuple[Bar, ...] = ()
    """Simpler ways to buy, the dearest first, this plan the last."""
    cautions: tuple[str, ...] = ()
    stated: bool = False
    """Whether nothing here looked at what the plan says: it is praised by nobody but itself."""


class _Asked(Protocol):
    """A row about a limit."""

    @property
    def app(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def limit(self) -> float | None: ...


_Row = TypeVar("_Row", bound=_Asked)


def limits_once(rows: Iterable[_Row]) -> list[list[_Row]]:
    """The rows of each limit: a violation rate of at most 1% and a p99 of the same application are one limit.

    >>> def row(metric: str, limit: float) -> Limit:
    ...     return Limit("a", metric, "", "", "", "met", limit=limit)
    >>> [len(one) for one in limits_once([row("p99", 60.0), row("p95", 40.0), row("violation rate", 0.01)])]
    [2, 1]
    """
    found: list[list[_Row]] = []
    for row in rows:
        if row.limit is None:
            continue
        percentile = f"{100.0 * (1.0 - row.limit):.6g}" if row.metric == "violation rate" else ""
        same = [one for one in found if percentile and _is_percentile(one[0], row.app, percentile)]
        if same:
            same[0].append(row)
        else:
            found.append([row])
    return found


def _is_percentile(row: _Asked, app: str, percentile: str) -> bool:
    return row.app == app and row.metric.rpartition(" ")[2] == f"p{percentile}"
