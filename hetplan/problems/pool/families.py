"""The fluid programs of many configurations of a pool, solved by one warm engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pool.form import fluid_at
from hetplan.problems.pool.letters import Counts, Pool

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = ["MOST_PROGRAMS", "at_counts", "rates_of"]

MOST_PROGRAMS = 100_000
"""Above this many configurations, solving one program each is the wrong tool."""


def at_counts(pool: Pool, family: Counts) -> list[Milp]:
    """`fluid_at` for each row of counts per type; the forms share all but one vector."""
    first = fluid_at(pool, np.zeros(len(pool.types)))
    (capacity,) = [block for block in first.rows if block.name == "capacity"]
    forms = []
    for counts in family:
        upper = first.row_upper.copy()
        upper[capacity.start : capacity.stop] = counts
        forms.append(replace(first, row_upper=upper))
    return forms


def rates_of(pool: Pool, ask: Ask, rows: Counts, *, about: str) -> list[Answer[Any]]:
    """The fluid programs of configurations (rows of counts per type), by one warm engine."""
    return ask.all(at_counts(pool, rows), about=about)
