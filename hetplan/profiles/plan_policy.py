"""The policy section of a plan: tables "(queue length, slack) -> model and batch", readable without hetplan.

A row of a table is a run-length text over the slacks: ``"rn50x2 yolo-nx1"`` is rn50 at the first two slacks and yolo-n
at the third. `batch` is written the same way; a batch of 0 drops the oldest query. A slack between two of `slack_ms`
counts as the lower one, a slack below the first as the first; more than `queue_max` waiting means `otherwise`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Fraction, Id, Model, NonNegative, Positive, PositiveCount, Real

__all__ = ["Expected", "Otherwise", "PolicyTable", "read_runs", "write_runs"]


def write_runs(items: Iterable[object]) -> str:
    """Run-length text of a row.

    >>> write_runs(["rn50", "rn50", "yolo-n"]), write_runs([1, 1, 1])
    ('rn50x2 yolo-nx1', '1x3')
    """
    return " ".join(f"{item}x{sum(1 for _ in run)}" for item, run in groupby(items))


def read_runs(text: str) -> list[str]:
    """The row that a run-length text means; ValueError where it is none.

    >>> read_runs("rn50x2 yolo-nx1")
    ['rn50', 'rn50', 'yolo-n']
    """
    row: list[str] = []
    for run in text.split():
        item, cross, count = run.rpartition("x")
        if not (item and cross and count.isascii() and count.isdigit() and 0 < len(count) < 7):
            raise ValueError(f'a run is written ITEMxCOUNT, as in "rn50x2"; not {run!r}')
        row += [item] * int(count)
    return row


class Otherwise(Model):
    """What to do where the table does not reach: this model on all that wait, or on so many at most."""

    model: Id
    batch: Literal["max"] | PositiveCount = "max"


class Expected(Model):
    """What the stationary distribution says of a policy. Averages of a model of the queue; none of them is a bound."""

    accuracy_by_query: Fraction = Field(description="accuracy of the queries answered in time")
    accuracy_by_decision: Fraction = Field(description="accuracy of the decisions whose batch is in time")
    violation_by_query: Fraction
    violation_by_decision: Fraction
    goodput: Fraction = Field(description="accuracy per query that arrives: accuracy x (1 - violation)")
    over_probability: Fraction = Field(description="share of decisions that find more than queue_max waiting")
    utilisation: NonNegative = Field(description="share of time that a worker is busy")
    accuracy_p1: Fraction = Field(description="99 % of the queries answered in time get at least this accuracy")
    accuracy_p50: Fraction
    queue_p50: NonNegative
    queue_p99: NonNegative


class PolicyTable(Model):
    """What one group of workers does at one load."""

    workers: Id
    slo_ms: Positive
    rate_qps: Positive = Field(description="the group's load that the table was made for")
    queue_max: PositiveCount
    slack_ms: tuple[NonNegative, ...]
    models: tuple[Id, ...]
    choice: dict[str, str]
    batch: dict[str, str]
    otherwise: Otherwise
    objective: Literal["per_query", "per_decision"] = "per_query"
    batching: Literal["max", "variable"] = "max"
    gain: Real | None = Field(default=None, description="value of the objective in the long run")
    expected: Expected | None = None
    simulated: dict[str, Real] | None = None
    sweeps: Annotated[int, Field(ge=0)] | None = None
    span: NonNegative | None = Field(default=None, description="how far any other policy can be better, re-proved")
    overload: bool = False

    @model_validator(mode="after")
    def _whole(self) -> PolicyTable:
        if list(self.slack_ms) != sorted(set(self.slack_ms)) or not self.slack_ms:
            raise ValueError("slack_ms rises from one entry to the next")
        wanted = {str(n) for n in range(1, self.queue_max + 1)}
        for name, rows in (("choice", self.choice), ("batch", self.batch)):
            if set(rows) != wanted:
                raise ValueError(f"{name} has a row for each queue length 1 to {self.queue_max}")
            for n, text in rows.items():
                row = read_runs(text)
                if len(row) != len(self.slack_ms):
                    raise ValueError(f"{name}.{n} has {len(row)} entries for {len(self.slack_ms)} slacks")
                if name == "choice" and not set(row) <= set(self.models):
                    raise ValueError(f"{name}.{n} names models that are not in `models`")
                if name == "batch" and not all(item.isdigit() and int(item) <= int(n) for item in set(row)):
                    raise ValueError(f"{name}.{n} takes more than wait")
        if self.otherwise.model not in self.models:
            raise ValueError("otherwise.model is none of `models`")
        return self

    def model_rows(self) -> list[list[int]]:
        """Index into `models`, a row per queue length."""
        place = {name: i for i, name in enumerate(self.models)}
        return [[place[item] for item in read_runs(self.choice[str(n)])] for n in range(1, self.queue_max + 1)]

    def batch_rows(self) -> list[list[int]]:
        """How many are taken, a row per queue length."""
        return [[int(item) for item in read_runs(self.batch[str(n)])] for n in range(1, self.queue_max + 1)]

    @staticmethod
    def rows(items: Sequence[Sequence[object]]) -> dict[str, str]:
        """Rows of a matrix as run-length texts, the first under "1"."""
        return {str(n): write_runs(row) for n, row in enumerate(items, start=1)}
