"""Packs instances onto the fewest servers, in slots of equal size, where instances of several loads may share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["fit_together", "pack_servers", "slots_per_server"]

Seat = TypeVar("Seat")


HAIR = 1e-9


def slots_per_server(provides: Mapping[str, float], needs: Sequence[Mapping[str, float]], alone: Sequence[int]) -> int:
    """How many equal slots a server has, where instances of these needs fit if they take no more slots.

    Of need r, k_r fit `alone`, P is the largest k, and an instance takes w_r = P / k_r. What takes P together fits: of
    no resource does r need more than w_r parts of P. More does not, where of some resource each needs more than w_r
    parts of P + 1. Each k divides the next, and so each w; put down from the largest, what is free is always a whole
    number of the next: so many servers hold all that takes no more than their places. Else a server is one place.

    >>> slots_per_server({"gpu": 8.0}, [{"gpu": 1.0}, {"gpu": 2.0}], [8, 4])
    8
    >>> slots_per_server({"gpu": 8.0}, [{"gpu": 3.0}, {"gpu": 1.0}], [2, 8])  # two of 3 leave room for two of 1
    1
    """
    sizes = sorted(set(alone))
    if not sizes or any(large % small for small, large in pairwise(sizes)):
        return 1
    places = sizes[-1]
    fits = ((need * k, name) for one, k in zip(needs, alone, strict=True) for name, need in one.items())
    listed = all(amount <= provides.get(name, 0.0) * (1 + HAIR) for amount, name in fits)
    full = any(
        all(one.get(name, 0.0) * k > part * (1 + HAIR) for one, k in zip(needs, alone, strict=True))
        for name, part in ((name, room * places / (places + 1)) for name, room in provides.items())
    )
    return places if full and listed else 1


def fit_together(provides: Mapping[str, float], needs: Sequence[Mapping[str, float]]) -> bool:
    """Whether some two of these instances fit on one server.

    >>> fit_together({"gpu": 1.0}, [{"gpu": 0.6}, {"gpu": 0.3}]), fit_together({"gpu": 1.0}, [{"gpu": 0.6}] * 2)
    (True, False)
    """
    kinds = Counter(tuple(sorted(one.items())) for one in needs)
    return any(
        all(
            one.get(name, 0.0) + other.get(name, 0.0) <= provides.get(name, 0.0) * (1 + HAIR)
            for name in {**one, **other}
        )
        for number, (one, many) in enumerate((dict(kind), many) for kind, many in kinds.items())
        for other in map(dict, list(kinds)[number + (many == 1) :])
    )


def pack_servers(
    wanted: Mapping[Seat, int], places: int, *, least: int = 0, each: Mapping[Seat, int] | None = None
) -> list[tuple[dict[Seat, int], int]]:
    """Packs counts of instances into the fewest servers: the contents of each kind of server, and its count.

    One of a seat takes a place, or as many as `each` says. Sizes are in order: each divides all larger ones, and the
    largest divides `places`. Then as few servers as have the places also hold all: put down from the largest size to
    the smallest, what is free on a server is always a whole number of the next. `least` servers are used, as far as
    there is something for each.

    Alike servers come first: all of a step's instances take turns there. Else a seat has whole servers, and what is
    left of all of them is put together.

    >>> pack_servers({"see": 4, "name": 2}, 4)
    [({'see': 2, 'name': 1}, 2)]
    >>> pack_servers({"see": 5, "name": 2}, 4)
    [({'see': 4}, 1), ({'name': 2, 'see': 1}, 1)]
    >>> pack_servers({"see": 3, "name": 2}, 4, each={"see": 2})
    [({'see': 2}, 1), ({'see': 1, 'name': 2}, 1)]
    """
    wanted = {seat: count for seat, count in wanted.items() if count > 0}
    if not wanted:
        return []
    size = {seat: (each or {}).get(seat, 1) for seat in wanted}
    total, largest = sum(size[seat] * count for seat, count in wanted.items()), max(size.values())
    servers = max(-(-total // places), min(least, sum(wanted.values())))
    if all(count % servers == 0 for count in wanted.values()):
        return [({seat: count // servers for seat, count in wanted.items()}, servers)]
    room = -(-total // (servers * largest)) * largest
    fit = {seat: room // one for seat, one in size.items()}
    found = [({seat: fit[seat]}, count // fit[seat]) for seat, count in wanted.items() if count >= fit[seat]]
    left = {seat: count % fit[seat] for seat, count in wanted.items() if count % fit[seat]}
    mixed = list(_mixed(left, room, size))
    short = servers - sum(count for _, count in found) - len(mixed)
    while short > 0:
        _split_one(found, mixed)
        short -= 1
    return found + [(one, 1) for one in mixed]


def _mixed(left: Mapping[Seat, int], room: int, size: Mapping[Seat, int]) -> Iterator[dict[Seat, int]]:
    """Servers of several seats, the largest first; one that does not fit is continued on the next."""
    total = sum(size[seat] * count for seat, count in left.items())
    bins = [dict[Seat, int]() for _ in range(-(-total // room))]
    free = [room] * len(bins)
    for seat, count in sorted(left.items(), key=lambda one: (-size[one[0]], -one[1])):
        fitting = [n for n, places in enumerate(free) if places >= size[seat] * count]
        for n in [min(fitting, key=lambda n: free[n])] if fitting else range(len(bins)):
            part = min(free[n] // size[seat], count)
            if part > 0:
                bins[n][seat] = part
                free[n] -= size[seat] * part
                count -= part
    yield from bins


def _split_one(found: list[tuple[dict[Seat, int], int]], mixed: list[dict[Seat, int]]) -> None:
    """One server becomes two, each with a part of what it held."""
    last = max((n for n, (one, _) in enumerate(found) if sum(one.values()) > 1), default=None)
    if last is not None:
        one, count = found.pop(last)
        if count > 1:
            found.insert(last, (one, count - 1))
    else:
        one = mixed.pop(max(range(len(mixed)), key=lambda n: sum(mixed[n].values())))
    half, first = sum(one.values()) // 2, Counter[Seat]()
    for seat, count in one.items():
        first[seat] = min(count, half - first.total())
    mixed += [dict(+first), dict(Counter(one) - first)]
