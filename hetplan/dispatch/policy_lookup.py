"""Which model, on how many of those that wait: the look-up of a model-selection policy while serving.

A selector is built once from the tables of a plan. A look-up is two bisections and two list reads, a quarter of a
microsecond; it never raises: a load above the top table uses the top table and says `overload`, more waiting than the
table tells apart means its fallback, and a negative slack counts as the least.

The simulator makes the same decision in plain numbers (`rule_kernels`), with the same leeway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hetplan.errors import InputError
from hetplan.profiles.plan_policy import PolicyTable

__all__ = ["LEEWAY_MS", "RULE", "PolicySelector", "Selected"]

RULE = "queue-slack/1"
"""The version of the rule that this file serves."""

LEEWAY_MS = 1e-6
"""A slack this little below a grid point counts as on it: clocks and sums of floats are no better than that."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A decision: this model on the first `batch` of the queue; a batch of 0 drops the oldest query."""

    model: str
    batch: int
    overload: bool = False
    """The load is above every table's: generate tables for it."""


class PolicySelector:
    """The tables of one group of workers, by load.

    >>> table = PolicyTable(
    ...     workers="w", slo_ms=150, rate_qps=2000, queue_max=2, slack_ms=(0, 75, 150), models=("rn50", "yolo-n"),
    ...     choice={"1": "rn50x2 yolo-nx1", "2": "rn50x3"}, batch={"1": "1x3", "2": "2x3"},
    ...     otherwise={"model": "rn50", "batch": "max"},
    ... )
    >>> selector = PolicySelector([table])
    >>> selector.select(waiting=1, slack_ms=149.9, rate_qps=1900)
    Selected(model='rn50', batch=1, overload=False)
    >>> selector.select(waiting=7, slack_ms=-3.0, rate_qps=2100)
    Selected(model='rn50', batch=7, overload=True)
    """

    def __init__(self, tables: Sequence[PolicyTable], *, rule: str = RULE) -> None:
        if rule != RULE:
            raise InputError.one(
                file="plan", path="$.dispatch", value=rule, why=f"this version serves {RULE}", remedy="Upgrade hetplan."
            )
        if not tables or len({(table.workers, table.slo_ms) for table in tables}) != 1:
            raise ValueError("a selector takes the tables of one group of workers and one SLO")
        self.tables = sorted(tables, key=lambda table: table.rate_qps)
        self._rates = [table.rate_qps for table in self.tables]
        self._ready = [_Ready.of(table) for table in self.tables]

    def select(self, *, waiting: int, slack_ms: float, rate_qps: float) -> Selected:
        """What to run when so many wait, the oldest with this slack, at this load; nothing waits for `waiting` < 1."""
        place = bisect_left(self._rates, rate_qps)
        overload = place == len(self._rates)
        return self._ready[place - overload].select(waiting, slack_ms, overload)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A table, decoded; every decision that it can make is made beforehand, calm and overloaded."""

    slack_ms: list[float]
    decisions: list[list[tuple[Selected, Selected]]]
    fallback_model: str
    fallback_batch: int

    @classmethod
    def of(cls, table: PolicyTable) -> _Ready:
        decisions = [
            [
                (Selected(table.models[m], b), Selected(table.models[m], b, overload=True))
                for m, b in zip(models, batches, strict=True)
            ]
            for models, batches in zip(table.model_rows(), table.batch_rows(), strict=True)
        ]
        slack = [slack - LEEWAY_MS for slack in table.slack_ms]
        most = table.otherwise.batch
        return cls(slack, decisions, table.otherwise.model, 0 if most == "max" else most)

    def select(self, waiting: int, slack_ms: float, overload: bool) -> Selected:
        if waiting > len(self.decisions):
            batch = min(waiting, self.fallback_batch) if self.fallback_batch else waiting
            return Selected(self.fallback_model, batch, overload)
        if waiting < 1:
            return Selected(self.fallback_model, 0, overload)
        place = bisect_right(self.slack_ms, slack_ms) - 1
        return self.decisions[waiting - 1][place if place > 0 else 0][overload]
