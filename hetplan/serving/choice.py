"""Which route of a plan holds for a query at a step: one rule for the simulator and the router.

It is the route whose `prefix` is the whole path so far, else the last load alone, else none; of those the one that
names most outcomes (`after`), then the one that names most of the class (`when`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hetplan.serving.law import same_value

if TYPE_CHECKING:
    from hetplan.profiles.plan import Route

__all__ = ["best_route"]


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
