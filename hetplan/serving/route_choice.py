"""Which route of a plan a query takes at a step, and how a pool queues: one rule for the simulator and router.

A route is the route whose `prefix` is the whole path so far, else the last load alone, else none; of those the one that
names most outcomes (`after`), then the one that names most of the class (`when`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from hetplan.serving.law import same_value

if TYPE_CHECKING:
    from hetplan.profiles.plan import Route

__all__ = ["best_route", "is_large", "preferred_first"]

T = TypeVar("T")


def is_large(at: Mapping[str, float], threshold: float) -> bool:
    """Whether a query of this class queues for the base under ``threshold/1``; the others queue for all the rest.

    >>> is_large({"batch": 8}, 8.0), is_large({"batch": 9}, 8.0)
    (False, True)
    """
    return at.get("batch", 1.0) > threshold


def preferred_first(prefer: Iterable[T], every: Iterable[T]) -> list[T]:
    """The order in which ``fcfs/1`` looks for an idle machine of a hardware: what is preferred, then as they come.

    >>> preferred_first(["b"], ["a", "b", "a", "c"])
    ['b', 'a', 'c']
    """
    return list(dict.fromkeys((*prefer, *every)))


def best_route(
    routes: Sequence[Route],
    *,
    path: tuple[str, ...] = (),
    outcomes: Mapping[str, str] | None = None,
    at: Mapping[str, float] | None = None,
) -> Route | None:
    """The route of a step for this path of loads, its outcomes and the class; None without any.

    Outcomes, or a class, of None are not asked about.

    >>> from hetplan.profiles.plan import Route
    >>> routes = [Route(prefix=("a",), when={"batch": 8}, to={"x": 1.0}), Route(to={"y": 1.0})]
    >>> [list(best_route(routes, path=("a",), at={"batch": batch}).to) for batch in (8, 9)]
    [['x'], ['y']]
    """
    fitting = [
        route
        for route in routes
        if (not route.prefix or route.prefix in (path, path[-1:]))
        and (outcomes is None or all(outcomes.get(step) == name for step, name in (route.after or {}).items()))
        and (at is None or all(axis in at and same_value(at[axis], value) for axis, value in route.when.items()))
    ]
    return max(fitting, key=lambda route: (len(route.prefix), len(route.after or {}), len(route.when)), default=None)
