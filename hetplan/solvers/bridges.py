r"""From one form to another, with the way back.

`packing_to_milp` is the linearised program of Circinus' Appendix B: u_kt in {0,1} puts item k on machine t of its tier,
sum_t u_kt = x_j for the option j that the item belongs to, what stands on a machine fits (times z_t, where machines in
use cost something), and machines of a tier are used in their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Builder, Elastic, Milp, Vector
from hetplan.planner.forms.packing import Choice, Items, Packing

__all__ = ["machines_needed", "packing_to_milp"]

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
    stands = m.rows("stands", (), size=kept.size, lower=0.0, upper=0.0, equation="(3)")
    row_of = np.full(items.tier.size, -1, dtype=np.int64)
    row_of[kept] = stands
    m.add(stands, column_of[items.option[kept]], -1.0)
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
            # What takes nothing that there is an end of stands in no row above, and needs the machine as well.
            ends = np.isfinite(items.room[tier])
            light = np.flatnonzero(here & ~(items.size[item][:, ends] > 0).any(axis=1))
            if light.size:
                open_ = m.rows("open", (), size=light.size, upper=0.0, equation="(4)")
                m.add(open_, u[light], 1.0)
                m.add(open_, z[where[light]], -1.0)
    return item, where, u
