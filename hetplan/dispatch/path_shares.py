"""Where a request goes next, by the shares of the path that it has taken so far (rule ``path-shares/1``)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from hetplan.errors import InputError
from hetplan.profiles.plan import Route

__all__ = ["PathShares"]

Key = tuple[tuple[str, ...], str | None]


class PathShares:
    """The routing section of one application, ready to be asked.

    The route is the one whose `prefix` is the whole path, else the last load alone, else none: a route without a
    prefix holds for any path.

    >>> rule = PathShares([Route(node="a", to={"a1": 0.25, "a2": 0.75}), Route(prefix=("a1",), node="b", to={"b1": 1})])
    >>> rule.choose((), "a", 0.2), rule.choose((), "a", 0.3), rule.choose(("a1",), "b", 0.9)
    ('a1', 'a2', 'b1')
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._table: dict[Key, tuple[list[float], list[str]]] = {}
        for route in routes:
            loads = list(route.to)
            self._table[route.prefix, route.node] = (list(accumulate(route.to.values())), loads)

    def choose(self, path: tuple[str, ...], node: str | None, draw: float) -> str:
        """The load that serves this request next; `draw` is uniform in [0, 1)."""
        for prefix in (path, path[-1:], ()):
            found = self._table.get((prefix, node))
            if found is not None:
                upto, loads = found
                return loads[min(bisect_right(upto, draw * upto[-1]), len(loads) - 1)]
        raise InputError.one(
            file="plan",
            path="$.routing",
            value=" > ".join(path) or "the entrance",
            why=f"no route leads from there to {node}",
            remedy="Make the plan anew.",
        )
