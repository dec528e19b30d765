"""Greedy packing: options in order of benefit per demand, each taken if its group has none yet and it fits.

How demand counts is the norm: ``sum`` of all that it takes, ``norm`` of its shares of what there is, the largest share
(``max``) or their Euclidean length (``l2``). What does not fit is passed over; ``stop`` ends at the first that does not
(the paper's "until exhausted", read strictly), so that it never finds more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.tolerances import FEASIBILITY
from hetplan.solvers.packing_floor import Floor

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = [
    "Fcfs",
    "Greedy",
    "GreedyL2",
    "GreedyMax",
    "GreedyNorm",
    "GreedyStop",
    "GreedySum",
    "PackingEngine",
    "better",
    "fill",
    "in_order",
    "norms",
]

Vector = NDArray[np.float64]
Norm = Literal["sum", "norm", "max", "l2"]

CHUNK = 4096


class PackingEngine:
    """The ancestor of the engines for `Packing` forms: what they say of themselves, and families one by one."""

    name: ClassVar[str] = ""
    form: ClassVar[str] = "packing"

    def version(self) -> str:
        """hetplan's own."""
        return "1"

    def refuses(self, form: Any) -> str:
        """Only its kind."""
        return "" if isinstance(form, Packing) else f"takes packing forms, not {form.kind}"

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """Choose an option of each group."""
        raise NotImplementedError

    def solve_all(
        self, forms: Iterable[Packing], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Choice]]:
        """One after the other; `limits.seconds` is for all of them."""
        began = time.monotonic()
        answers = []
        for form in forms:
            left = limits
            if limits.seconds is not None:
                spent = time.monotonic() - began
                left = Limits(**{**vars(limits), "seconds": max(0.0, limits.seconds - spent)})
            answers.append(self.solve(form, left, on_event=on_event))
        return answers

    def answer(
        self, form: Packing, choice: Choice | None, *, prices: Vector | None = None, stop: Stop = Stop.FINISHED
    ) -> Answer[Choice]:
        """The answer that a choice amounts to, with the bound that prices prove."""
        proof = {} if prices is None else {"prices": prices}
        bound = None if prices is None else form.whole(form.bound(prices))
        if choice is None:
            if (
                form.sense == "min"
                and np.bincount(form.group[form.fits], minlength=form.first.size - 1).min(initial=1) == 0
            ):
                return Answer(Status.INFEASIBLE, proof=proof, engine=self._engine)
            return Answer(Status.NO_ANSWER, stop, proof=proof, engine=self._engine, detail="no choice was found")
        value = form.value(choice)
        status = Status.FEASIBLE
        if bound is not None and abs(bound - value) <= 1e-9 * max(1.0, abs(value)):
            status = Status.OPTIMAL
        return Answer(status, stop, point=choice, value=value, bound=bound, proof=proof, engine=self._engine)

    @property
    def _engine(self) -> str:
        return f"{self.name} {self.version()}"


def norms(form: Packing) -> dict[str, Vector]:
    """The demand of each option by each norm."""
    finite = np.isfinite(form.limit) & (form.limit > 0)
    share = form.taken[:, finite] / form.limit[finite]
    return {
        "sum": form.taken.sum(axis=1),
        "norm": share.sum(axis=1),
        "max": share.max(axis=1, initial=0.0),
        "l2": np.sqrt((share**2).sum(axis=1)),
    }


def in_order(form: Packing, demand: Vector) -> NDArray[np.int64]:
    """Options by benefit per demand (or the cheapest first), without those of no benefit and those that never fit."""
    if form.sense == "min":
        score = form.worth + 1e-9 * demand
        order = np.argsort(score, kind="stable")
        return order[form.fits[order]]
    # Options that take nothing come first, of them the best; those that also give nothing (0/0) are left out below.
    with np.errstate(divide="ignore", invalid="ignore"):
        score = form.worth / demand
    free = np.isposinf(score)
    order = np.lexsort((-form.worth, -score)) if free.any() else np.argsort(-score, kind="stable")
    return order[(form.fits & (form.worth > 0))[order]]


def fill(form: Packing, order: NDArray[np.int64], *, stop: bool = False) -> Choice | None:
    """Take options in this order; None where a group that must be served is left."""
    choice = _on_floor(form, order, stop=stop) if form.items is not None else _by_chunks(form, order, stop=stop)
    return None if form.sense == "min" and (choice.option < 0).any() else choice


def _on_floor(form: Packing, order: NDArray[np.int64], *, stop: bool) -> Choice:
    floor = Floor(form)
    for option in order.tolist():
        if floor.option[form.group[option]] < 0 and not floor.add(option) and stop:
            break
    return floor.choice()


def _by_chunks(form: Packing, order: NDArray[np.int64], *, stop: bool) -> Choice:
    """The same without machines, many options at a time: up to the first that does not fit, again and again."""
    chosen = np.full(form.first.size - 1, -1, dtype=np.int64)
    left = form.capacity + FEASIBILITY / 2 * np.maximum(1.0, np.abs(form.capacity))
    ended = False
    for begin in range(0, order.size, CHUNK):
        rest = order[begin : begin + CHUNK]
        while rest.size:
            rest = rest[chosen[form.group[rest]] < 0]
            fits = (form.demand[rest] <= left).all(axis=1)
            if stop and not fits.all():
                rest, ended = rest[: int(np.argmin(fits))], True
            else:
                rest = rest[fits]
            if not rest.size:
                break
            first = np.sort(np.unique(form.group[rest], return_index=True)[1])
            total = np.cumsum(form.demand[rest[first]], axis=0)
            over = (total > left).any(axis=1)
            until = int(np.argmax(over)) if over.any() else first.size
            taken = rest[first[:until]]
            chosen[form.group[taken]] = taken
            if until:
                left = left - total[until - 1]
            if stop and over.any():
                return Choice(chosen)
            rest = rest[first[until] :] if over.any() else rest[:0]
        if ended:
            break
    return Choice(chosen)


class Greedy(PackingEngine):
    """The best of the four norms; each has an engine of its own as well."""

    name: ClassVar[str] = "greedy"
    norm: ClassVar[Norm | None] = None
    stops: ClassVar[bool] = False

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """Take options in the order of benefit per demand."""
        del limits, start, on_event
        best: Choice | None = None
        for name, demand in norms(form).items():
            if self.norm in (None, name):
                found = fill(form, in_order(form, demand), stop=self.stops)
                best = better(form, best, found)
        return self.answer(form, best)


def better(form: Packing, one: Choice | None, other: Choice | None) -> Choice | None:
    """The choice of more benefit or less cost; the first where they are alike."""
    if one is None or other is None:
        return other if one is None else one
    ahead = form.value(other) - form.value(one)
    return other if (ahead > 0) == (form.sense == "max") and ahead != 0 else one


class GreedySum(Greedy):
    """Demand is the sum of all that an option takes (the paper's words leave it open)."""

    name: ClassVar[str] = "greedy-sum"
    norm: ClassVar[Norm | None] = "sum"


class GreedyNorm(Greedy):
    """Demand is the sum of the shares of what there is."""

    name: ClassVar[str] = "greedy-norm"
    norm: ClassVar[Norm | None] = "norm"


class GreedyMax(Greedy):
    """Demand is the largest share of what there is."""

    name: ClassVar[str] = "greedy-max"
    norm: ClassVar[Norm | None] = "max"


class GreedyL2(Greedy):
    """Demand is the Euclidean length of the shares."""

    name: ClassVar[str] = "greedy-l2"
    norm: ClassVar[Norm | None] = "l2"


class GreedyStop(Greedy):
    """Every norm, ending at the first option that does not fit."""

    name: ClassVar[str] = "greedy-stop"
    stops: ClassVar[bool] = True


class Fcfs(PackingEngine):
    """First come, first served: each group in turn gets its option of least demand, if that fits."""

    name: ClassVar[str] = "fcfs"

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """Groups in their order."""
        del limits, start, on_event
        by_demand = np.lexsort((np.arange(form.worth.size), norms(form)["sum"], form.group))
        first = by_demand[np.unique(form.group[by_demand], return_index=True)[1]] if form.worth.size else by_demand
        floor = Floor(form)
        for option in first.tolist():
            if form.fits[option]:
                floor.add(option)
        choice = floor.choice()
        return self.answer(form, None if form.sense == "min" and (choice.option < 0).any() else choice)
