"""The program of `variants` as configuration columns, where it splits: every application with its own instances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.forms.columns import Columns
from hetplan.problems.variants.idle import least_of_whole
from hetplan.problems.variants.milp import Room, rooms, upper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.problems.variants.question import Variants

__all__ = ["columns", "counts_in_order", "least_use", "why_no_columns"]


def why_no_columns(v: Variants) -> str:
    """Why the program is no set of columns ("" when it is)."""
    if any(len(item.serves) != 1 for item in v.items):
        return "applications share instances"
    if v.inputs.slo.limits.moves is not None:
        return "moves are limited"
    if least_of_whole(v):
        return "some machines must be there, used or not"
    first: dict[int, tuple[int, float]] = {}
    for item, g in zip(v.items, v.group.tolist(), strict=True):
        mine = (item.serves[0].app, item.serves[0].qps)
        if first.setdefault(g, mine) != mine:
            return "instances of one variant count together that serve at different rates, or different applications"
    if any(all(s.late for s in item.serves) for item in v.items):
        return "running instances that break a limit are counted"
    return ""


def _order(v: Variants) -> NDArray[np.int64]:
    return np.argsort([item.serves[0].app for item in v.items], kind="stable").astype(np.int64)


def columns(v: Variants, *, typed: bool, shrunk: dict[str, float] | None = None) -> Columns:
    """The form; its items stand by application."""
    order = _order(v)
    all_rooms = rooms(v, typed=typed)
    price = np.zeros(v.N.size)
    price[v.group] = v.loading
    use = np.array([room.use[order] for room in all_rooms]).reshape(len(all_rooms), order.size)
    size = np.array([room.size - (shrunk or {}).get(room.label, 0.0) for room in all_rooms])
    return Columns(
        block=np.array([v.items[i].serves[0].app for i in order], dtype=np.int64),
        need=v.need,
        gain=np.array([v.items[i].serves[0].qps for i in order]),
        cost=v.C[order],
        group=v.group[order],
        free=v.N.astype(float),
        surcharge=price,
        upper=upper(v)[order],
        use=use,
        capacity=size,
        rows=tuple(room.label for room in all_rooms),
        name="variants",
    )


def least_use(v: Variants, room: Room, *, typed: bool) -> Columns:
    """The least that all loads can take of one room, the others kept."""
    form = columns(v, typed=typed)
    others = [k for k, label in enumerate(form.rows) if label != room.label]
    return replace(
        form, cost=room.use[_order(v)], surcharge=np.zeros_like(form.surcharge), use=form.use[others],
        capacity=form.capacity[others], rows=tuple(form.rows[k] for k in others), name="variants least use",
    )  # fmt: skip


def counts_in_order(v: Variants, point: NDArray[np.float64]) -> NDArray[np.int64]:
    """The form's counts, by item of the problem."""
    x = np.zeros(len(v.items), dtype=np.int64)
    x[_order(v)] = np.rint(point).astype(np.int64)
    return x
