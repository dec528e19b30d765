"""The fewest machines for what takes parts of them, by hand."""

from collections.abc import Sequence
from functools import cache


def fewest(sizes: Sequence[float], node: float) -> int:
    """The fewest nodes that hold what takes so many cards, by all ways to put it."""

    @cache
    def fit(left: tuple[float, ...], room: tuple[float, ...]) -> bool:
        if not left:
            return True
        return any(
            fit(left[1:], tuple(sorted((*room[:n], free - left[0], *room[n + 1 :]))))
            for n, free in enumerate(room)
            if free >= left[0] and free not in room[:n]
        )

    ordered = tuple(sorted(sizes, reverse=True))
    return next(n for n in range(1, len(sizes) + 1) if fit(ordered, (node,) * n))
