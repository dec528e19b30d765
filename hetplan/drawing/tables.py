"""Documents as rows, and rows as a table of pandas where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["frame_of", "judged_rows", "load_rows"]

Document = Mapping[str, Any]


def load_rows(plan: Document) -> list[dict[str, Any]]:
    """A row per load of a plan's worker groups.

    >>> plan = {"workers": [{"id": "w", "hardware": "t4", "count": 2, "loads": [{"id": "a", "variant": "net"}]}]}
    >>> load_rows(plan)[0]["variant"]
    'net'
    """
    of_worker, of_load = ("id", "period", "hardware", "offer", "host", "count"), ("id", "app", "node", "variant")
    return [
        {("worker" if name == "id" else name): worker.get(name) for name in of_worker}
        | {("load" if name == "id" else name): load.get(name) for name in of_load}
        | {"instances": load.get("instances", 1), "max_batch": (load.get("serve") or {}).get("max_batch", 1)}
        for worker in plan.get("workers") or ()
        for load in worker.get("loads") or [dict[str, Any]()]
    ]


def judged_rows(report: Document) -> list[dict[str, Any]]:
    """A row per promise or wish of a simulation's report, with the simulated figure and its interval."""
    rows = []
    for line in report.get("lines") or ():
        found = line.get("simulated") or {}
        low, high = found.get("interval") or (None, None)
        row = {name: line.get(name) for name in ("app", "quantity", "percentile", "relation", "promised", "by")}
        rows.append(row | {"simulated": found.get("value"), "low": low, "high": high, "verdict": line.get("verdict")})
    return rows


def frame_of(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """The rows as a table of pandas; ImportError with what to install where it is absent."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error
    return DataFrame(rows)
