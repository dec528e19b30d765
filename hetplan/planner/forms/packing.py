r"""One option per group, or none, within capacities: most benefit, or all groups at least cost.

::

    max  sum_i sum_j w_ij x_ij          or      min  sum_i sum_j w_ij x_ij + sum_t G_t z_t
    (1)  sum_ij d_ijr x_ij <= C_r                what all options together take of resource r
    (2)  sum_j x_ij <= 1 (max), = 1 (min)        of each group i one option j
    (3)  every item of a chosen option is put on one machine of its tier; what is on a machine fits into it
    (4)  z_t machines of tier t are in use, at most Z_t

(3) and (4) hold where `items` are given. Prices pi >= 0 per unit of each resource (those of (1), then those of the
tiers' machines together) give a bound without any engine's word, whatever the prices are (`Packing.bound`)::

    max:  sum_i max(0, max_j (w_ij - pi d_ij)) + pi C
    min:  sum_i min_j (w_ij + pi d_ij) - pi C + sum_t Z_t min(0, G_t - pi room_t)

An option that does not fit even alone counts in neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import BOUND_SLIP, FEASIBILITY, PROOF_ROWS, VALUE

if TYPE_CHECKING:
    from hetplan.planner.answer import Certificate

__all__ = ["Choice", "Items", "Packing", "sums_of"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_SUMS = 20_000

SAFE = 1e-12
"""By how much, relative to the sum of all terms, a bound is moved outward: more than its rounding."""


@dataclass(frozen=True)
class Items:
    """What options put on machines: option j has the items `first[j]` to `first[j + 1]`.

    `machines` is how many there are of each tier (infinite: as many as wanted), `room` what one of them holds of each
    resource, `price` what using one costs (where all groups are to be served at least cost).
    """

    first: Integers
    tier: Integers
    size: Vector
    machines: Vector
    room: Vector
    price: Vector

    @cached_property
    def option(self) -> Integers:
        """The option that each item belongs to."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))


@dataclass(frozen=True)
class Choice:
    """The option of each group (its number among all options; -1 for none) and, with items, the machine of each item.

    `machine` has an entry per item of all options, -1 where the option is not chosen; machines of a tier count from 0.
    """

    option: Integers
    machine: Integers | None = None


@dataclass(frozen=True)
class Packing(Form[Choice]):
    """Options of groups; group i has the options `first[i]` to `first[i + 1]`. See the module.

    >>> form = Packing("max", np.array([0, 2, 3]), np.ones(3), np.array([[2.0], [1.0], [1.0]]), np.array([2.0]))
    >>> form.value(Choice(np.array([1, 2])))
    2.0
    >>> [round(form.bound(np.array([price])), 9) for price in (0.25, 0.5, 1.0)]
    [2.0, 2.0, 2.0]
    """

    kind: ClassVar[str] = "packing"

    sense: Literal["max", "min"]
    first: Integers
    worth: Vector
    demand: Vector
    capacity: Vector
    items: Items | None = None
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    name: str = ""

    def size(self) -> dict[str, int]:
        """Groups, options, resources, items."""
        items = {} if self.items is None else {"items": int(self.items.tier.size)}
        return {
            "groups": self.first.size - 1,
            "options": int(self.worth.size),
            "resources": self.taken.shape[1],
            **items,
        }

    @cached_property
    def group(self) -> Integers:
        """The group that each option belongs to."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))

    def options_of(self, group: int) -> Integers:
        """The options of a group."""
        return np.arange(int(self.first[group]), int(self.first[group + 1]))

    @cached_property
    def taken(self) -> Vector:
        """What each option takes: of the resources, then of its tiers' machines together."""
        if self.items is None:
            return self.demand
        tiers, kinds = self.items.room.shape
        of_tiers = np.zeros((self.worth.size, tiers, kinds))
        np.add.at(of_tiers, (self.items.option, self.items.tier), self.items.size)
        return np.concatenate([self.demand, of_tiers.reshape(self.worth.size, tiers * kinds)], axis=1)

    @cached_property
    def limit(self) -> Vector:
        """How much there is of what `taken` counts; infinite where nothing limits it."""
        if self.items is None:
            return self.capacity
        room = np.where(self.items.room > 0, self.items.room, 0.0)
        with np.errstate(invalid="ignore"):
            total = np.where(room > 0, self.items.machines[:, None] * room, 0.0)
        return np.concatenate([self.capacity, total.ravel()])

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Which options could be chosen at all, were they alone."""
        room = self.limit + FEASIBILITY * np.maximum(1.0, np.abs(self.limit))
        alone = np.asarray((self.taken <= room).all(axis=1), dtype=np.bool_)
        if self.items is not None:
            room = self.items.room + FEASIBILITY * np.maximum(1.0, np.abs(self.items.room))
            placeable = (self.items.size <= room[self.items.tier]).all(axis=1)
            placeable &= self.items.machines[self.items.tier] >= 1
            np.logical_and.at(alone, self.items.option, placeable)
        return alone

    @cached_property
    def opening(self) -> Vector:
        """What using one machine of each tier costs; nothing where benefit is sought."""
        if self.items is None or self.sense == "max":
            return np.zeros(0 if self.items is None else self.items.machines.size)
        return self.items.price

    def opened(self, choice: Choice) -> Integers:
        """Machines in use per tier."""
        if self.items is None or choice.machine is None:
            return np.zeros(self.opening.size, dtype=np.int64)
        used = choice.machine >= 0
        pairs = np.unique(np.stack([self.items.tier[used], choice.machine[used]]), axis=1)
        return np.bincount(pairs[0], minlength=self.opening.size).astype(np.int64)

    def value(self, choice: Choice) -> float:
        """The benefit, or the cost with that of the machines in use."""
        chosen = choice.option[choice.option >= 0]
        return math.fsum(self.worth[chosen]) + float(self.opening @ self.opened(choice))

    def prices(self, given: Vector) -> Vector:
        """The nearest prices that may prove something: none below 0, none where there is no end of a resource."""
        prices = np.maximum(np.nan_to_num(given, nan=0.0, posinf=0.0), 0.0)
        elastic = ~np.isfinite(self.limit)
        if self.items is not None and elastic[self.capacity.size :].any():
            tiers, kinds = self.items.room.shape
            of_tier = prices[self.capacity.size :].reshape(tiers, kinds)
            spent = np.where(self.items.room > 0, of_tier * self.items.room, 0.0).sum(axis=1)
            endless = ~np.isfinite(self.items.machines)
            scale = np.where(endless & (spent > self.opening), self.opening / np.maximum(spent, 1e-300), 1.0)
            prices[self.capacity.size :] = (of_tier * scale[:, None]).ravel()
        prices[: self.capacity.size][elastic[: self.capacity.size]] = 0.0
        return prices

    def bound(self, prices: Vector, *, opening: Vector | None = None, worth: Vector | None = None) -> float:
        """The bound that these prices prove: no choice has more benefit, or less cost."""
        return _safe(self, self.prices(prices), self.opening if opening is None else opening, worth)

    def certify(self, answer: Answer[Choice]) -> Certificate:
        """Feasibility and value recomputed; the bound from the prices that the answer carries under ``prices``."""
        from hetplan.planner.answer import Certificate, Vouched

        if answer.status is Status.UNBOUNDED:
            return Certificate(faults=("unbounded, yet there are only finitely many choices",))
        if answer.status is Status.INFEASIBLE:
            return _certify_infeasible(self, answer)
        if answer.point is None:
            return Certificate()
        faults = _faults(self, answer)
        if faults:
            return Certificate(faults=tuple(faults))
        value = self.value(answer.point)
        carried = answer.proof.get("prices")
        proved = None if carried is None else self.whole(self.bound(np.asarray(carried, dtype=float)))
        sign = 1.0 if self.sense == "max" else -1.0
        claimed = answer.bound
        if claimed is not None and sign * (value - claimed) > BOUND_SLIP * max(1.0, abs(value)):
            return Certificate(faults=(f"bounds all by {claimed:.9g}, and itself has {value:.9g}",))
        if proved is not None and (claimed is None or sign * (proved - claimed) <= VALUE * max(1.0, abs(proved))):
            return Certificate(value=value, bound=proved, vouched=Vouched.CERTIFIED, certified_bound=proved)
        vouched = Vouched.NONE if claimed is None else Vouched.CLAIMED
        return Certificate(value=value, bound=claimed, vouched=vouched, certified_bound=proved)

    def written_proof(self, answer: Answer[Choice]) -> dict[str, Any] | None:
        """The prices of resources by name, where there are no machines beside them and as many fit into a plan."""
        carried = answer.proof.get("prices")
        if carried is None or self.items is not None or len(self.resources) > PROOF_ROWS:
            return None
        prices = self.prices(np.asarray(carried, dtype=float))
        return {"prices": {name: float(price) for name, price in zip(self.resources, prices, strict=True)}}

    def bound_of_written(self, proof: Mapping[str, Any]) -> float | None:
        """By the prices of resources; there is no such proof where there are machines beside them."""
        if self.items is not None or not proof["prices"].keys() <= set(self.resources):
            return None
        prices = np.array([float(proof["prices"].get(name, 0.0)) for name in self.resources])
        sound = bool(np.isfinite(prices).all()) and not (prices < 0.0).any()
        return self.whole(self.bound(prices)) if sound else None

    def whole(self, bound: float) -> float:
        """The bound moved to the next value that there can be.

        A whole number where every worth is one (as with weights of 1); where only machines cost anything, the next sum
        of their prices.
        """
        if self.sense == "min" and self.opening.any() and not self.worth.any() and math.isfinite(bound):
            return self._next_sum(bound)
        if self.opening.any() or not (self.worth == np.round(self.worth)).all() or not math.isfinite(bound):
            return bound
        slack = 1e-9 * max(1.0, abs(bound))
        return float(math.floor(bound + slack)) if self.sense == "max" else float(math.ceil(bound - slack))

    def _next_sum(self, bound: float) -> float:
        """The least that any numbers of machines cost which is not below a bound."""
        assert self.items is not None
        low = bound - 1e-9 * max(1.0, abs(bound))
        # Some number of the dearest machines alone reaches the bound: beyond it nothing needs to be looked at.
        paid = self.opening > 0
        reach = low + float(self.opening.max())
        sums = [cost for cost, _ in sums_of(self.opening[paid], self.items.machines[paid], reach) if cost >= low]
        return max(bound, min(sums)) if sums else bound


def sums_of(prices: Vector, most_of_each: Vector, most: float) -> Iterator[tuple[float, tuple[int, ...]]]:
    """What numbers of machines cost, up to a sum, in no order; nothing where there are too many to be looked at.

    >>> sorted(sums_of(np.array([2.0, 3.0]), np.array([np.inf, 1.0]), 5.0))
    [(0.0, (0, 0)), (2.0, (1, 0)), (3.0, (0, 1)), (4.0, (2, 0)), (5.0, (1, 1))]
    """
    ranges = [range(int(min(most // price, limit)) + 1) for price, limit in zip(prices, most_of_each, strict=True)]
    if most < 0 or math.prod(map(len, ranges)) > MOST_SUMS:
        return
    for counts in product(*ranges):
        cost = float(np.dot(prices, counts))
        if cost <= most * (1 + 1e-12):
            yield cost, counts


def _best(form: Packing, scores: Vector) -> Vector:
    """Per group the best score of its options; for benefit never below 0, for cost infinite without options."""
    has = np.diff(form.first) > 0
    scores = np.where(form.fits, scores, -np.inf if form.sense == "max" else np.inf)
    best = np.zeros(form.first.size - 1) if form.sense == "max" else np.full(form.first.size - 1, np.inf)
    if has.any():
        reduce = np.maximum if form.sense == "max" else np.minimum
        best[has] = reduce.reduceat(scores, form.first[:-1][has])
    return np.maximum(best, 0.0) if form.sense == "max" else best


def _safe(form: Packing, prices: Vector, opening: Vector, worth: Vector | None) -> float:
    """The Lagrangian at these prices, moved outward by more than its rounding."""
    sign = 1.0 if form.sense == "max" else -1.0
    worth = form.worth if worth is None else worth
    best = _best(form, worth - sign * (form.taken @ prices))
    end = form.capacity.size
    paid = prices[:end][prices[:end] > 0] * form.capacity[prices[:end] > 0]
    terms = [math.fsum(best), sign * math.fsum(paid)]
    if form.items is not None:
        spent = prices[end:].reshape(form.items.room.shape) * np.where(form.items.room > 0, form.items.room, 0.0)
        left = np.minimum(0.0, opening - spent.sum(axis=1))
        left[~np.isfinite(form.items.machines)] = 0.0
        terms.append(-sign * math.fsum(np.where(left < 0, form.items.machines, 0.0) * left))
    size = math.fsum(np.abs(best[np.isfinite(best)])) + sum(abs(term) for term in terms if math.isfinite(term))
    return math.fsum(terms) + sign * SAFE * size if all(map(math.isfinite, terms)) else sum(terms)


def _certify_infeasible(form: Packing, answer: Answer[Choice]) -> Certificate:
    """Benefit can always be nothing; of cost, prices prove it under which serving all takes more than there is."""
    from hetplan.planner.answer import Certificate, Vouched

    if form.sense == "max":
        return Certificate(faults=("infeasible, yet no group needs to be served",))
    carried = answer.proof.get("prices")
    free = np.zeros_like(form.opening)
    if np.bincount(form.group[form.fits], minlength=form.first.size - 1).min(initial=1) == 0:
        return Certificate(infeasible=Vouched.CERTIFIED)
    if carried is not None:
        prices = np.maximum(np.asarray(carried, dtype=float), 0.0)
        prices[~np.isfinite(form.limit)] = 0.0
        if _safe(form, prices, free, np.zeros_like(form.worth)) > 0:
            return Certificate(infeasible=Vouched.CERTIFIED)
    return Certificate(infeasible=Vouched.CLAIMED)


def _faults(form: Packing, answer: Answer[Choice]) -> list[str]:
    """What is wrong with a choice."""
    choice = answer.point
    assert choice is not None
    option = choice.option
    groups = form.first.size - 1
    if option.shape != (groups,):
        return [f"{option.size} choices for {groups} groups"]
    served = option >= 0
    if ((option < form.first[:-1]) | (option >= form.first[1:]))[served].any():
        return ["an option that its group does not have"]
    faults = []
    if form.sense == "min" and not served.all():
        faults.append(f"{int((~served).sum())} groups without an option")
    used = form.taken[option[served]].sum(axis=0)
    limit = form.limit[: form.capacity.size]
    over = used[: limit.size] > limit + FEASIBILITY * np.maximum(1.0, np.abs(limit))
    faults += [f"takes {used[r]:.9g} of resource {r}, there is {limit[r]:.9g}" for r in np.flatnonzero(over)]
    if form.items is not None:
        faults += _misplaced_items(form, form.items, choice)
    if not faults and answer.value is not None:
        value = form.value(choice)
        if abs(answer.value - value) > VALUE * max(1.0, abs(value)):
            faults.append(f"says {answer.value:.9g}, recomputed it is {value:.9g}")
    return faults


def _misplaced_items(form: Packing, items: Items, choice: Choice) -> list[str]:
    """Items that are nowhere, on machines that are not there, or on full ones."""
    machine = choice.machine
    if machine is None or machine.shape != items.tier.shape:
        return ["items without machines"]
    chosen = np.zeros(form.worth.size, dtype=bool)
    chosen[choice.option[choice.option >= 0]] = True
    here = chosen[items.option]
    if (machine[here] < 0).any() or (machine[~here] >= 0).any():
        return ["items of chosen options are on machines, and no others are"]
    if (machine[here] >= items.machines[items.tier[here]]).any():
        return ["an item is on a machine beyond those that there are"]
    if not here.any():
        return []
    place, which = np.unique(np.stack([items.tier[here], machine[here]]), axis=1, return_inverse=True)
    load = np.zeros((place.shape[1], items.size.shape[1]))
    np.add.at(load, which.ravel(), items.size[here])
    room = items.room[place[0]]
    full = (load > room + FEASIBILITY * np.maximum(1.0, np.abs(room))).any(axis=1)
    return [f"machine {place[1, k]} of tier {place[0, k]} is overfull" for k in np.flatnonzero(full)[:3]]
