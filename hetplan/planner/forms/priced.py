r"""Trees of choices that share capacities, relaxed by prices: a form that can prove bounds by its own oracle.

Each tree picks one option per task, from the entrance down. Options of a task are pairs of a kind (quality, factors
to the child tasks) and a time; an option runs on any resource that has a rate for it. With one choice per tree::

    value = weight (sum over last tasks of the qualities on the path, multiplied or added) / last tasks
    use_g = sum over tasks served on g of demand x gain / rate,   gain = product of the factors before the task
    sum of the times on every path <= its limit

What is asked for is the best mixture: weights theta of choices, summing to 1 per tree, with the sum of use <= capacity.
For prices lam >= 0 on capacities, ``lam . capacity + sum over trees of max (value - lam . use)`` bounds it from above;
the inner maximum is exact, over all options of all tasks. So a bound that carries its prices is proved again here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import FEASIBILITY, VALUE

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer, Certificate

__all__ = ["Choice", "Menu", "Mixture", "Options", "Priced"]

Vector = NDArray[np.float64]
Places = NDArray[np.int64]

ROUNDING = 1e-10
"""Relative error that sums and products of a choice may have; bounds are widened by it."""


@dataclass(frozen=True)
class Options:
    """The options of one task: its kind, its time, its rate on each resource (0: cannot run there)."""

    kind: Places
    ms: Vector
    rate: Vector


@dataclass(frozen=True)
class Menu:
    """One tree: per task its parent (parents first, -1 at the entrance), kinds and options."""

    name: str
    parent: tuple[int, ...]
    quality: tuple[Vector, ...]
    factor: tuple[Mapping[int, Vector], ...]
    options: tuple[Options, ...]
    limit_ms: Mapping[int, float]
    demand: float
    weight: float
    additive: bool = False

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Child tasks."""
        return tuple(tuple(c for c, p in enumerate(self.parent) if p == t) for t in range(len(self.parent)))

    @cached_property
    def sinks(self) -> int:
        """How many last tasks there are."""
        return sum(not below for below in self.children)

    @cached_property
    def room_ms(self) -> Vector:
        """What may have passed when a task ends, so that all below can be in time."""
        room = np.full(len(self.parent), np.inf)
        for t in reversed(range(len(self.parent))):
            if not self.children[t]:
                room[t] = self.limit_ms[t]
            for child in self.children[t]:
                room[t] = min(room[t], room[child] - float(self.options[child].ms.min()))
        return room


@dataclass(frozen=True)
class Choice:
    """One option per task of a tree, and the resource that it runs on."""

    option: tuple[int, ...]
    resource: tuple[int, ...]


Mixture = tuple[tuple[tuple[float, Choice], ...], ...]
"""Per tree, weights and choices."""


@dataclass(frozen=True)
class Priced(Form[Mixture]):
    """The best mixture of choices on shared capacities; see the module."""

    kind: ClassVar[str] = "priced"

    menus: tuple[Menu, ...]
    capacity: Vector
    name: str = ""
    sense: ClassVar[str] = "max"

    def size(self) -> dict[str, int]:
        """Rows are capacities and trees; columns are options."""
        columns = sum(option.kind.size for menu in self.menus for option in menu.options)
        return {"rows": self.capacity.size + len(self.menus), "columns": columns}

    def worth(self, number: int, choice: Choice) -> tuple[float, Vector, bool]:
        """Value and use of a choice, and whether it is in time."""
        menu, use = self.menus[number], np.zeros(self.capacity.size)
        size = len(menu.parent)
        quality, gain, ms = np.zeros(size), np.ones(size), np.zeros(size)
        total, in_time = 0.0, True
        for t, parent in enumerate(menu.parent):
            option, at = menu.options[t], choice.option[t]
            kind = int(option.kind[at])
            own = float(menu.quality[t][kind])
            if parent >= 0:
                above = int(menu.options[parent].kind[choice.option[parent]])
                gain[t] = gain[parent] * float(menu.factor[parent][t][above])
                own = quality[parent] + own if menu.additive else quality[parent] * own
            quality[t] = own
            ms[t] = (ms[parent] if parent >= 0 else 0.0) + float(option.ms[at])
            rate = float(option.rate[at, choice.resource[t]])
            in_time = in_time and rate > 0
            use[choice.resource[t]] += menu.demand * gain[t] / rate if rate > 0 else np.inf
            if not menu.children[t]:
                total += own
                in_time = in_time and ms[t] <= menu.limit_ms[t] * (1 + 1e-12) + 1e-9
        return menu.weight * total / menu.sinks, use, in_time

    def best(self, number: int, prices: Vector) -> tuple[float, Choice]:
        """The most of value - prices . use over all choices of a tree, exactly; and a choice that has it."""
        menu = self.menus[number]
        costs = [_least_cost(option, prices) for option in menu.options]
        chosen = [0] * len(menu.parent)
        start = np.zeros(1) if menu.additive else np.ones(1)
        total = 0.0
        pending = [(t, start, np.ones(1), np.zeros(1)) for t, parent in enumerate(menu.parent) if parent < 0]
        roots = len(pending)
        for place, (t, quality, gain, ms) in enumerate(pending):
            value, option = _solve(menu, costs, t, quality, gain, ms)
            if place < roots:
                total += float(value[0])
            at = chosen[t] = int(option[0])
            kind = int(menu.options[t].kind[at])
            own = menu.quality[t][kind]
            after = quality + own if menu.additive else quality * own
            for child in menu.children[t]:
                pending.append((child, after, gain * menu.factor[t][child][kind], ms + menu.options[t].ms[at]))
        resource = tuple(int(costs[t][1][at]) for t, at in enumerate(chosen))
        return total, Choice(tuple(chosen), resource)

    def bound(self, prices: Vector) -> float:
        """What no mixture exceeds, by these prices."""
        inner = [self.best(number, prices)[0] for number in range(len(self.menus))]
        paid = float(prices @ self.capacity)
        margin = ROUNDING * (paid + sum(abs(value) for value in inner) + float(prices @ self.capacity) + 1.0)
        return paid + sum(inner) + margin

    def certify(self, answer: Answer[Mixture]) -> Certificate:
        """Weights, times, capacities and value recomputed; the bound from the prices, through the oracle."""
        from hetplan.planner.answer import Certificate, Vouched

        faults: list[str] = []
        value = None
        if answer.point is not None:
            value, faults = self._check_parts(answer.point)
            if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
                faults.append(f"the value is {value:.9g}, not {answer.value:.9g}")
        prices = answer.proof.get("prices")
        if not isinstance(prices, np.ndarray):
            vouched = Vouched.NONE if answer.bound is None else Vouched.CLAIMED
            return Certificate(tuple(faults), value=value, bound=answer.bound, vouched=vouched)
        if prices.shape != self.capacity.shape or not (np.isfinite(prices).all() and (prices >= 0).all()):
            return Certificate((*faults, "prices are numbers of 0 or more, one per capacity"), value=value)
        proved = self.bound(prices)
        if answer.bound is not None and answer.bound < proved - VALUE * max(1.0, abs(proved)):
            faults.append(f"the prices prove {proved:.9g}, not {answer.bound:.9g}")
        return Certificate(tuple(faults), value=value, bound=proved, vouched=Vouched.CERTIFIED, certified_bound=proved)

    def _check_parts(self, mixture: Mixture) -> tuple[float, list[str]]:
        faults: list[str] = []
        total, use = 0.0, np.zeros(self.capacity.size)
        for number, parts in enumerate(mixture):
            weights = [weight for weight, _ in parts]
            if min(weights, default=-1.0) < -FEASIBILITY or abs(sum(weights) - 1.0) > FEASIBILITY:
                faults.append(f"the weights of {self.menus[number].name} are no shares of 1")
            for weight, choice in parts:
                value, taken, in_time = self.worth(number, choice)
                if not in_time:
                    faults.append(f"a choice of {self.menus[number].name} is too slow, or runs where it cannot")
                total += weight * value
                use += weight * taken
        over = use > self.capacity + FEASIBILITY * np.maximum(self.capacity, 1.0)
        if over.any():
            faults.append(f"capacity {int(np.argmax(over))} is exceeded")
        return total, faults


def _least_cost(option: Options, prices: Vector) -> tuple[Vector, Places]:
    """Per option, the least price of one query per second, and on which resource."""
    cost = np.where(option.rate > 0, prices[None, :] / np.maximum(option.rate, 1e-300), np.inf)
    place = cost.argmin(axis=1)
    return cost[np.arange(cost.shape[0]), place], place


def _solve(
    menu: Menu, costs: Sequence[tuple[Vector, Places]], t: int, quality: Vector, gain: Vector, ms: Vector
) -> tuple[Vector, Places]:
    """Per state (quality, gain and time so far), the best value from task t on and the option that has it."""
    option = menu.options[t]
    fits = ms[:, None] + option.ms[None, :] <= menu.room_ms[t] + 1e-9
    own = menu.quality[t][option.kind]
    after = quality[:, None] + own[None, :] if menu.additive else quality[:, None] * own[None, :]
    value = -menu.demand * gain[:, None] * costs[t][0][None, :]
    if not menu.children[t]:
        value = value + menu.weight / menu.sinks * after
    else:
        state, at = np.nonzero(fits)
        kind = option.kind[at]
        below = np.zeros(state.size)
        for child in menu.children[t]:
            sent = gain[state] * menu.factor[t][child][kind]
            below += _solve(menu, costs, child, after[state, at], sent, ms[state] + option.ms[at])[0]
        value[state, at] += below
    value = np.where(fits, value, -np.inf)
    best = value.argmax(axis=1)
    return value[np.arange(value.shape[0]), best], best
