r"""Packing forms: the floor that choices are put on, greedy engines, and prices.

Greedy takes options in order of benefit per demand, each if its group has none yet and it fits. How demand counts is
the norm: ``sum`` of all that it takes, ``norm`` of its shares of what there is, the largest share (``max``) or their
Euclidean length (``l2``). What does not fit is passed over; ``stop`` ends at the first that does not (the paper's
"until exhausted", read strictly), so that it never finds more.

Prices give every resource one price; each group takes what is worth most after paying. Whatever the prices are, they
prove a bound. The best ones minimise the bound, a convex piecewise linear function L of them (Kelley's cutting
planes): each point tried gives a cut, the cuts' minimum the next point, drawn back towards the best so far. In units of
what there is of each resource, mu = pi C, this is a program of as many columns as resources.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.tolerances import FEASIBILITY
from hetplan.solvers.engine import OneByOne
from hetplan.solvers.highs_model import quiet_highs

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = [
    "Fcfs",
    "Floor",
    "Greedy",
    "GreedyL2",
    "GreedyMax",
    "GreedyNorm",
    "GreedyStop",
    "GreedySum",
    "PackingEngine",
    "best_prices",
    "better",
    "choose_by",
    "fill",
    "filled_up",
    "in_order",
    "norms",
]


Vector = NDArray[np.float64]
Norm = Literal["sum", "norm", "max", "l2"]

CHUNK = 4096


class PackingEngine(OneByOne[Packing, Choice]):
    """The ancestor of the engines for `Packing` forms."""

    form: ClassVar[str] = "packing"
    takes: ClassVar[type[Packing]] = Packing

    def worth(
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
                return Answer(Status.INFEASIBLE, proof=proof, engine=self.signature)
            return Answer(Status.NO_ANSWER, stop, proof=proof, engine=self.signature, detail="no choice was found")
        value = form.value(choice)
        status = Status.FEASIBLE
        if bound is not None and abs(bound - value) <= 1e-9 * max(1.0, abs(value)):
            status = Status.OPTIMAL
        return Answer(status, stop, point=choice, value=value, bound=bound, proof=proof, engine=self.signature)


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
    if form.items is not None:
        choice = _on_floor(form, order, stop=stop)
    else:
        choice = filled_up(form, np.full(form.first.size - 1, -1, dtype=np.int64), order, stop=stop)
    return None if form.sense == "min" and (choice.option < 0).any() else choice


def _on_floor(form: Packing, order: NDArray[np.int64], *, stop: bool) -> Choice:
    floor = Floor(form)
    for option in order.tolist():
        if floor.option[form.group[option]] < 0 and not floor.add(option) and stop:
            break
    return floor.choice()


def filled_up(form: Packing, chosen: NDArray[np.int64], order: NDArray[np.int64], *, stop: bool = False) -> Choice:
    """What is chosen already and, of groups without an option, options in this order; for a form without machines.

    Many options at a time: up to the first that does not fit, again and again.
    """
    chosen = chosen.copy()
    left = form.capacity + FEASIBILITY / 2 * np.maximum(1.0, np.abs(form.capacity))
    left = left - form.demand[chosen[chosen >= 0]].sum(axis=0)
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

    def answer(
        self, form: Packing, limits: Limits, *, start: Choice | None, on_event: OnEvent | None
    ) -> Answer[Choice]:
        """Take options in the order of benefit per demand."""
        del limits, start, on_event
        best: Choice | None = None
        for name, demand in norms(form).items():
            if self.norm in (None, name):
                found = fill(form, in_order(form, demand), stop=self.stops)
                best = better(form, best, found)
        return self.worth(form, best)


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

    def answer(
        self, form: Packing, limits: Limits, *, start: Choice | None, on_event: OnEvent | None
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
        return self.worth(form, None if form.sense == "min" and (choice.option < 0).any() else choice)


SLACK = FEASIBILITY / 2
Integers = NDArray[np.int64]
FloorState = tuple[Vector, Integers, Integers | None, list[Vector]]


class Floor:
    """What is left of resources and machines while options are chosen one after the other."""

    def __init__(self, form: Packing) -> None:
        self.form, self.items = form, form.items
        self.left = form.limit[: form.capacity.size] + SLACK * np.maximum(1.0, np.abs(form.limit[: form.capacity.size]))
        self.option = np.full(form.first.size - 1, -1, dtype=np.int64)
        tiers = 0 if form.items is None else form.items.machines.size
        self.free: list[NDArray[np.float64]] = []
        self.used: list[int] = [0] * tiers
        if form.items is not None:
            self.machine = np.full(form.items.tier.size, -1, dtype=np.int64)
            self.free = [np.zeros((0, form.items.room.shape[1])) for _ in range(tiers)]
            room = form.items.room[form.items.tier]
            self.item_size = (form.items.size / np.where(room > 0, room, 1.0)).sum(axis=1)

    def room_left(self) -> NDArray[np.float64]:
        """What is left of each resource and, all machines of a tier together, of the tiers."""
        if self.items is None:
            return self.left
        parts = []
        for tier, free in enumerate(self.free):
            closed = self.items.machines[tier] - len(free)
            with np.errstate(invalid="ignore"):
                fresh = np.where(self.items.room[tier] > 0, closed * self.items.room[tier], 0.0)
            parts.append(free.sum(axis=0) + fresh)
        return np.concatenate([self.left, *parts])

    def add(self, option: int, *, opens: bool = True) -> bool:
        """Choose an option for its group if it fits; `opens` allows machines that are not in use yet."""
        if (self.form.demand[option] > self.left).any():
            return False
        placed: list[tuple[int, int, int]] = []
        if self.items is not None:
            begin, end = int(self.items.first[option]), int(self.items.first[option + 1])
            for item in (begin + np.argsort(-self.item_size[begin:end], kind="stable")).tolist():
                where = self._place(item, opens)
                if where is None:
                    self._undo(placed)
                    return False
                placed.append((item, int(self.items.tier[item]), where))
            for item, _, where in placed:
                self.machine[item] = where
        self.left = self.left - self.form.demand[option]
        self.option[self.form.group[option]] = option
        return True

    def remove(self, group: int) -> None:
        """Take a group's option away again."""
        option = int(self.option[group])
        self.option[group] = -1
        self.left = self.left + self.form.demand[option]
        if self.items is not None:
            for item in range(int(self.items.first[option]), int(self.items.first[option + 1])):
                tier, where = int(self.items.tier[item]), int(self.machine[item])
                self.free[tier][where] += self.items.size[item]
                self.machine[item] = -1

    def state(self) -> FloorState:
        """All of it as it is now, for `restore`."""
        machine = None if self.items is None else self.machine.copy()
        return self.left.copy(), self.option.copy(), machine, [free.copy() for free in self.free]

    def restore(self, state: FloorState) -> None:
        """Back to what it was."""
        self.left, self.option, machine, self.free = state
        if machine is not None:
            self.machine = machine

    def choice(self) -> Choice:
        """What was chosen, machines in use numbered without gaps."""
        if self.items is None:
            return Choice(self.option.copy())
        machine = self.machine.copy()
        for tier in range(len(self.free)):
            here = (self.items.tier == tier) & (machine >= 0)
            machine[here] = np.unique(machine[here], return_inverse=True)[1]
        return Choice(self.option.copy(), machine)

    def _place(self, item: int, opens: bool) -> int | None:
        assert self.items is not None
        tier, size = int(self.items.tier[item]), self.items.size[item]
        free = self.free[tier]
        fits = np.flatnonzero((free + SLACK >= size).all(axis=1))
        if fits.size:
            where = int(fits[(free[fits] - size).sum(axis=1).argmin()])
        elif opens and len(free) < self.items.machines[tier] and (self.items.room[tier] + SLACK >= size).all():
            self.free[tier] = free = np.concatenate([free, self.items.room[tier][None, :]])
            where = len(free) - 1
        else:
            return None
        free[where] = free[where] - size
        return where

    def _undo(self, placed: list[tuple[int, int, int]]) -> None:
        assert self.items is not None
        for item, tier, where in reversed(placed):
            self.free[tier][where] += self.items.size[item]


TOLERANCE = 1e-4
MOST_CUTS = 200
START = 0.15
TOWARDS = 0.6


class _Cuts:
    """The least of a convex function above its cuts, over a box and over rows of what prices may come to."""

    def __init__(self, upper: Vector, rows: list[tuple[NDArray[np.int32], Vector, float]]) -> None:
        import highspy

        self.highs = quiet_highs()
        self.size = upper.size
        self.infinity = highspy.kHighsInf
        for most in upper:
            self.highs.addVar(0.0, float(most))
        self.highs.addVar(-self.infinity, self.infinity)
        self.highs.changeColCost(self.size, 1.0)
        for where, amounts, most in rows:
            self.highs.addRow(-self.infinity, most, len(where), where, amounts)

    def add(self, at: Vector, value: float, slope: Vector) -> None:
        """The function is at least value + slope (x - at)."""
        columns = np.arange(self.size + 1, dtype=np.int32)
        self.highs.addRow(float(value - slope @ at), self.infinity, columns.size, columns, np.append(-slope, 1.0))

    def least(self) -> tuple[Vector, float]:
        """Where the cuts are least, and how low."""
        self.highs.run()
        x = np.array(self.highs.getSolution().col_value)
        return x[:-1], float(x[-1])


def best_prices(form: Packing, limits: Limits) -> Vector:
    """Prices under which the bound is as good as prices make it, to within the tolerance."""
    scale, upper, rows = _box(form)
    tried = np.flatnonzero(upper > 0)
    prices = np.zeros(upper.size)
    if not tried.size:
        return prices
    place = np.full(upper.size, -1)
    place[tried] = np.arange(tried.size)
    cuts = _Cuts(upper[tried], [(place[at].astype(np.int32), amounts, most) for at, amounts, most in rows])
    sign = 1.0 if form.sense == "max" else -1.0
    began = time.monotonic()
    best, best_value = np.zeros(tried.size), np.inf
    at = np.minimum(START * _total(form), upper[tried])
    for where, amounts, most in rows:
        at[place[where]] = np.minimum(at[place[where]], most / amounts / len(amounts))
    for _ in range(MOST_CUTS):
        prices[tried] = at / scale[tried]
        value, slope = _lagrangian(form, prices)
        if sign * value < best_value:
            best, best_value = at, sign * value
        cuts.add(at, sign * value, sign * slope[tried] / scale[tried])
        lowest, floor = cuts.least()
        spent = limits.seconds is not None and time.monotonic() - began > limits.seconds / 2
        if best_value - floor <= TOLERANCE * max(1.0, abs(best_value)) or spent:
            break
        at = TOWARDS * lowest + (1 - TOWARDS) * best
    prices[tried] = best / scale[tried]
    return prices


def _total(form: Packing) -> float:
    """All that options could bring: the scale of prices."""
    most = np.zeros(form.first.size - 1)
    np.maximum.at(most, form.group[form.fits], np.abs(form.worth[form.fits]))
    return float(most.sum()) + float(form.opening.sum()) or 1.0


def _box(form: Packing) -> tuple[Vector, Vector, list[tuple[NDArray[np.int64], Vector, float]]]:
    """Per price: its unit, the most that it may be in it; rows for tiers without end, whose opening they may cost."""
    limit = form.limit
    scale = np.where(np.isfinite(limit) & (limit > 0), limit, 1.0)
    top = (1.0 if form.sense == "max" else 10.0) * _total(form)
    upper = np.where(np.isfinite(limit) & (limit > 0), top, 0.0)
    rows: list[tuple[NDArray[np.int64], Vector, float]] = []
    if form.items is not None and form.sense == "min":
        kinds = form.items.room.shape[1]
        for tier in np.flatnonzero(~np.isfinite(form.items.machines)):
            room = np.where(np.isfinite(form.items.room[tier]), form.items.room[tier], 0.0)
            where = form.capacity.size + tier * kinds + np.flatnonzero(room > 0)
            if where.size and form.opening[tier] > 0:
                scale[where] = room[room > 0]
                upper[where] = form.opening[tier]
                rows.append((where, np.ones(where.size), float(form.opening[tier])))
    return scale, upper, rows


def _lagrangian(form: Packing, prices: Vector) -> tuple[float, Vector]:
    """The bound and its slope in the prices."""
    sign = 1.0 if form.sense == "max" else -1.0
    paid = form.worth - sign * (form.taken @ prices)
    best = choose_by(form, paid)
    chosen = best[best >= 0]
    value = float(paid[chosen].sum())
    slope = -sign * form.taken[chosen].sum(axis=0)
    end = form.capacity.size
    finite = np.isfinite(form.capacity)
    value += sign * float(prices[:end][finite] @ form.capacity[finite])
    slope[:end][finite] += sign * form.capacity[finite]
    if form.items is not None:
        room = np.where(np.isfinite(form.items.room), form.items.room, 0.0)
        left = form.opening - (prices[end:].reshape(room.shape) * room).sum(axis=1)
        over = (left < 0) & np.isfinite(form.items.machines)
        value -= sign * float((form.items.machines[over] * left[over]).sum())
        slope[end:] += (
            sign * np.where(over[:, None], np.where(over, form.items.machines, 0.0)[:, None] * room, 0.0).ravel()
        )
    return value, slope


def choose_by(form: Packing, score: Vector) -> NDArray[np.int64]:
    """Per group the option of the best score: for benefit the highest if above 0 (else -1), for cost the lowest."""
    sign = 1.0 if form.sense == "max" else -1.0
    signed = np.where(form.fits, sign * score, -np.inf)
    has = np.diff(form.first) > 0
    best = np.full(form.first.size - 1, -np.inf)
    best[has] = np.maximum.reduceat(signed, form.first[:-1][has])
    hit = np.flatnonzero(signed == best[form.group])
    chosen = np.full(best.size, -1, dtype=np.int64)
    chosen[form.group[hit[::-1]]] = hit[::-1]
    chosen[(best <= 0) if form.sense == "max" else ~np.isfinite(best)] = -1
    return chosen
