r"""Packing with a bound: by prices, and through the whole-number program, all of it or what the prices leave open.

`packing_to_milp` is the linearised program of Circinus' Appendix B: u_kt in {0,1} puts item k on machine t of its tier,
sum_t u_kt = x_j for the option j that the item belongs to, what is on a machine fits (times z_t, where machines in use
cost something), and machines of a tier are used in their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop, left_of
from hetplan.planner.forms.milp import Builder, Elastic, Milp, Vector
from hetplan.planner.forms.packing import Choice, Items, Packing
from hetplan.planner.tolerances import VALUE
from hetplan.solvers.highs import Highs
from hetplan.solvers.packing import PackingEngine, best_prices, better, choose_by, fill, filled_up, in_order, norms
from hetplan.solvers.packing_local import at_least_cost, by_moves, in_fewer_machines, machine_orders

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Dual", "DualCore", "Exact", "ExactCpSat", "machines_needed", "packing_to_milp", "portfolio", "sound_start"]


EPS = 1e-9


def greedy_by(form: Packing, prices: Vector) -> Choice | None:
    """Greedy by benefit per price paid."""
    finite = np.where(np.isfinite(form.limit) & (form.limit > 0), form.limit, np.inf)
    return fill(form, in_order(form, form.taken @ (prices + EPS / finite)))


class Dual(PackingEngine):
    """Prices with their bound; the choice by them or by one of the norms, whichever is best."""

    name: ClassVar[str] = "dual"

    def answer(
        self, form: Packing, limits: Limits, *, start: Choice | None, on_event: OnEvent | None
    ) -> Answer[Choice]:
        """Choose, with a bound that the prices prove."""
        del on_event
        prices = best_prices(form, limits)
        choice = better(form, portfolio(form, prices), sound_start(form, start))
        return self.worth(form, choice, prices=form.prices(prices), stop=Stop.FINISHED)


def portfolio(form: Packing, prices: Vector) -> Choice | None:
    """The best choice among those by prices and by norms."""
    if form.sense == "min" and form.items is not None:
        found = better(form, at_least_cost(form, prices), fill(form, in_order(form, norms(form)["sum"])))
        fewer = in_fewer_machines(form, found, form.whole(form.bound(prices)))
        return found if fewer is None else fewer
    best = greedy_by(form, prices)
    for demand in norms(form).values():
        best = better(form, best, fill(form, in_order(form, demand)))
    if form.items is None and form.sense == "max":
        best = better(form, best, by_shares(form, prices))
    if form.items is not None:
        for found in machine_orders(form, prices):
            best = better(form, best, found)
    if form.sense == "min":
        best = better(form, best, fill(form, by_price(form, prices)))
        best = better(form, best, by_moves(form, prices, best))
    return best


def by_shares(form: Packing, prices: Vector) -> Choice | None:
    """For most benefit: the linear program over the groups that prices leave open, rounded down and filled up.

    A vertex of it parts at most as many groups as there are capacities; only these are left to the filling.
    """
    if not form.fits.any():
        return None
    core, chosen = _core(form, prices, max(OPEN, int(OPEN_SHARE * (form.first.size - 1))))
    small = _part(form, core, chosen)
    if (small.capacity < 0).any() or not small.fits.any():
        return None
    program, _ = packing_to_milp(small)
    answer = Highs().solve(replace(program, whole=np.zeros_like(program.whole)), Limits())
    if answer.point is None:
        return None
    taken = np.flatnonzero(small.fits)[answer.point > 1 - WHOLE]
    option = chosen.copy()
    option[core] = -1
    option[core[small.group[taken]]] = taken + (form.first[:-1][core] - small.first[:-1])[small.group[taken]]
    return filled_up(form, option, in_order(form, form.taken @ prices + EPS))


def by_price(form: Packing, prices: Vector) -> NDArray[np.int64]:
    """For least cost: groups' options in order of regret, the group that would lose most by waiting first."""
    paid = np.where(form.fits, form.worth + form.taken @ prices, np.inf)
    order = np.lexsort((paid, form.group))
    order = order[np.isfinite(paid[order])]
    best = np.full(form.first.size - 1, np.inf)
    np.minimum.at(best, form.group, paid)
    extra = paid[order] - best[form.group[order]]
    return order[np.argsort(extra, kind="stable")]


def sound_start(form: Packing, start: Choice | None) -> Choice | None:
    """A choice to begin from, if it is one."""
    if start is None:
        return None
    return start if not form.certify(Answer(Status.FEASIBLE, point=start)).faults else None


MOST_COLUMNS = 200_000
CORE = 300
"""Groups that the whole-number program chooses for."""
OPEN_SHARE, OPEN = 0.15, 100
"""Groups that the linear program chooses for: this share of all, at least so many."""
WHOLE = 1e-6
"""How near to 1 a linear program's share must be to count as chosen."""
CORE_SECONDS = 10.0


class Exact(PackingEngine):
    """The whole program, answered by HiGHS from the choice by prices on."""

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True
    inner: ClassVar[str] = "hetplan.solvers.highs:Highs"

    def version(self) -> str:
        """The version of the engine behind it."""
        return str(self._engine_behind().version())

    def why_not(self, form: Packing) -> str:
        """Too large to be answered, or nothing to answer it."""
        if not self.version():
            return f"{self.inner.partition(':')[2]} is not installed"
        columns = int(form.worth.size)
        if form.items is not None:
            columns += int(machines_needed(form)[form.items.tier].sum())
        return f"{columns} columns are too many" if columns > MOST_COLUMNS else ""

    def answer(
        self, form: Packing, limits: Limits, *, start: Choice | None, on_event: OnEvent | None
    ) -> Answer[Choice]:
        """The best choice, or as near as the limits allow."""
        began = time.monotonic()
        prices = form.prices(best_prices(form, limits))
        best = better(form, portfolio(form, prices), sound_start(form, start))
        if not form.fits.any():
            return self.worth(form, best, prices=prices)
        known = form.value(best) if best is not None and form.sense == "min" else np.inf
        milp, read = packing_to_milp(form, least_cost=known)
        answer = self._engine_behind().solve(milp, left_of(limits, began), on_event=on_event)
        found = None if answer.point is None else read(np.asarray(answer.point))
        proved = form.whole(form.bound(prices))
        if answer.status is Status.INFEASIBLE and best is None:
            return Answer(Status.INFEASIBLE, proof={"prices": prices}, engine=self.signature)
        choice = better(form, found, best)
        if choice is None:
            return Answer(Status.NO_ANSWER, answer.stop, proof={"prices": prices}, engine=self.signature)
        value = form.value(choice)
        claimed = answer.bound if answer.bound is not None else proved
        tighter = min if form.sense == "max" else max
        bound = tighter(proved, form.whole(claimed))
        bound = max(bound, value) if form.sense == "max" else min(bound, value)
        done = answer.status is Status.OPTIMAL or abs(bound - value) <= VALUE / 10 * max(1.0, abs(value))
        return Answer(
            Status.OPTIMAL if done else Status.FEASIBLE, answer.stop, point=choice, value=value, bound=bound,
            proof={"prices": prices}, work=answer.work, engine=self.signature, deterministic=answer.deterministic,
        )  # fmt: skip

    def _engine_behind(self) -> Any:
        from importlib import import_module

        module, _, name = self.inner.partition(":")
        return getattr(import_module(module), name)()

    @property
    def signature(self) -> str:
        """Its name, and the engine behind it."""
        return f"{self.name} ({self.inner.partition(':')[2]} {self.version()})"


class ExactCpSat(Exact):
    """The same by CP-SAT, numbers scaled to integers."""

    name: ClassVar[str] = "exact-cp-sat"
    inner: ClassVar[str] = "hetplan.solvers.cp_sat:CpSatScaled"


class DualCore(PackingEngine):
    """Prices settle most groups; the whole-number program chooses for those whose options are nearly worth the same."""

    name: ClassVar[str] = "dual-core"

    def answer(
        self, form: Packing, limits: Limits, *, start: Choice | None, on_event: OnEvent | None
    ) -> Answer[Choice]:
        """Choose by prices, then again among what they leave open."""
        began = time.monotonic()
        prices = form.prices(best_prices(form, limits))
        best = better(form, portfolio(form, prices), sound_start(form, start))
        stop = Stop.FINISHED
        if best is not None and form.items is None:
            core, chosen = _core(form, prices, CORE)
            small = _part(form, core, chosen)
            if (small.capacity >= 0).all():
                milp, read = packing_to_milp(small)
                seconds = CORE_SECONDS if limits.seconds is None else limits.seconds - (time.monotonic() - began)
                answer = Highs().solve(
                    milp, replace(limits, seconds=max(0.0, seconds), gap=limits.gap and limits.gap / 10),
                    on_event=on_event,
                )  # fmt: skip
                stop = answer.stop if answer.stop in (Stop.TIME, Stop.CANCELLED) else stop
                if answer.point is not None:
                    option = chosen.copy()
                    picked = read(np.asarray(answer.point)).option
                    offset = form.first[:-1][core] - small.first[:-1]
                    option[core] = np.where(picked >= 0, picked + offset, -1)
                    best = better(form, best, Choice(option))
        return replace(self.worth(form, best, prices=prices), stop=stop, deterministic=stop is not Stop.TIME)


def _core(form: Packing, prices: Vector, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The groups whose best and second best (or nothing) differ least after paying, and what prices give the rest."""
    sign = 1.0 if form.sense == "max" else -1.0
    paid = np.where(form.fits, sign * form.worth - form.taken @ prices, -np.inf)
    chosen = choose_by(form, form.worth - sign * (form.taken @ prices))
    best = np.where(chosen >= 0, paid[chosen], 0.0)
    rest = paid.copy()
    rest[chosen[chosen >= 0]] = -np.inf
    second = np.full(best.size, 0.0 if form.sense == "max" else -np.inf)
    np.maximum.at(second, form.group, rest)
    unserved = np.full(best.size, -np.inf)
    np.maximum.at(unserved, form.group, paid)
    regret = np.where(chosen >= 0, best - second, -unserved)
    core = np.sort(np.argsort(regret, kind="stable")[:most])
    return core.astype(np.int64), chosen


def _part(form: Packing, core: NDArray[np.int64], chosen: NDArray[np.int64]) -> Packing:
    """The form of these groups alone, with what the others leave."""
    others = np.ones(chosen.size, dtype=bool)
    others[core] = False
    taken = chosen[others & (chosen >= 0)]
    counts = np.diff(form.first)[core]
    options = np.concatenate([form.options_of(i) for i in core]) if core.size else core
    return Packing(
        form.sense,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        form.worth[options],
        form.demand[options],
        form.capacity - form.demand[taken].sum(axis=0),
    )


Integers = NDArray[np.int64]


def machines_needed(form: Packing, least_cost: float = np.inf) -> Integers:
    """How many machines per tier a best choice may use: no more than there are, than items, than their cost allows."""
    items = form.items
    if items is None:
        return np.zeros(0, dtype=np.int64)
    of_tier = np.zeros((form.worth.size, items.machines.size))
    np.add.at(of_tier, (items.option, items.tier), form.fits[items.option].astype(float))
    most = np.zeros((form.first.size - 1, items.machines.size))
    np.maximum.at(most, form.group, of_tier)
    useful = np.minimum(items.machines, most.sum(axis=0))
    if np.isfinite(least_cost):
        paid = form.opening > 0
        useful[paid] = np.minimum(useful[paid], np.floor(least_cost / form.opening[paid] + 1e-9))
    return np.asarray(useful.astype(np.int64))


def packing_to_milp(
    form: Packing, *, least_cost: float = np.inf, fields: Callable[[int], Elastic | None] | None = None
) -> tuple[Milp, Callable[[Vector], Choice]]:
    """The whole-number program, and how its points read.

    `least_cost` is the cost of a choice at hand: no better one uses more machines than it pays for. `fields` says how
    the user may change each resource (for the smallest repair where all cannot be served).
    """
    m = Builder(form.sense, name=form.name or "packing")
    keep = np.flatnonzero(form.fits)
    groups = form.first.size - 1
    x = m.columns("option", _option_label(form, keep), size=keep.size, upper=1.0, cost=form.worth[keep], whole=True)
    least = 1.0 if form.sense == "min" else 0.0
    one = m.rows("one", lambda i: form.groups[i] if form.groups else str(i), size=groups, lower=least, upper=1.0,
                 equation="(2)")  # fmt: skip
    m.add(one[form.group[keep]], x, 1.0)
    for r in np.flatnonzero(np.isfinite(form.capacity)):
        label = form.resources[r] if r < len(form.resources) else str(r)
        elastic = fields(int(r)) if fields is not None else None
        row = m.rows("room", [label], upper=float(form.capacity[r]), equation="(1)", elastic=elastic)
        m.add(row, x, form.demand[keep, r])
    place: tuple[Integers, Integers, Integers] | None = None
    if form.items is not None:
        place = _machines(m, form, form.items, keep, x, machines_needed(form, least_cost))

    def read(point: Vector) -> Choice:
        option = np.full(groups, -1, dtype=np.int64)
        chosen = keep[point[: keep.size] > 0.5]
        option[form.group[chosen]] = chosen
        if form.items is None or place is None:
            return Choice(option)
        machine = np.full(form.items.tier.size, -1, dtype=np.int64)
        item, where, column = place
        on = point[column] > 0.5
        machine[item[on]] = where[on]
        return Choice(option, machine)

    return m.build(), read


def _option_label(form: Packing, keep: Integers) -> Callable[[int], str]:
    def label(i: int) -> str:
        option = int(keep[i])
        group = int(form.group[option])
        name = form.groups[group] if form.groups else str(group)
        return f"{name}/{option - int(form.first[group])}"

    return label


def _machines(
    m: Builder, form: Packing, items: Items, keep: Integers, x: Integers, count: Integers
) -> tuple[Integers, Integers, Integers]:
    """Rows (3) and (4): items onto machines, machines in order."""
    column_of = np.full(form.worth.size, -1, dtype=np.int64)
    column_of[keep] = x
    kept = np.flatnonzero(form.fits[items.option])
    copies = count[items.tier[kept]]
    item = np.repeat(kept, copies)
    where = np.arange(item.size) - np.repeat(np.cumsum(copies) - copies, copies)
    u = m.columns("on", lambda i: f"{item[i]}@{where[i]}", size=item.size, upper=1.0, whole=True)
    placed = m.rows("placed", (), size=kept.size, lower=0.0, upper=0.0, equation="(3)")
    row_of = np.full(items.tier.size, -1, dtype=np.int64)
    row_of[kept] = placed
    m.add(placed, column_of[items.option[kept]], -1.0)
    if item.size:
        m.add(row_of[item], u, 1.0)
    kinds = items.room.shape[1]
    for tier in range(items.machines.size):
        here = items.tier[item] == tier
        machines = int(count[tier])
        paid = bool(form.opening[tier] > 0)
        z = m.columns("used", (), size=machines, upper=1.0, cost=form.opening[tier], whole=True) if paid else None
        if z is not None and machines > 1:
            order = m.rows("order", (), size=machines - 1, lower=0.0, equation="(4)")
            m.add(order, z[:-1], 1.0)
            m.add(order, z[1:], -1.0)
        for kind in range(kinds):
            room = float(items.room[tier, kind])
            if not np.isfinite(room):
                continue
            rows = m.rows("machine", (), size=machines, upper=0.0 if z is not None else room, equation="(3)")
            m.add(rows[where[here]], u[here], items.size[item[here], kind])
            if z is not None:
                m.add(rows, z, -room)
        if z is not None:
            # What takes nothing that there is an end of is in no row above, and needs the machine as well.
            ends = np.isfinite(items.room[tier])
            light = np.flatnonzero(here & ~(items.size[item][:, ends] > 0).any(axis=1))
            if light.size:
                open_ = m.rows("open", (), size=light.size, upper=0.0, equation="(4)")
                m.add(open_, u[light], 1.0)
                m.add(open_, z[where[light]], -1.0)
    return item, where, u
