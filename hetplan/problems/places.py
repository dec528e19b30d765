"""Which places are on one server, where loads may share it: as few servers as hold them, alike where that can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

__all__ = ["on_servers", "places_for"]

Seat = TypeVar("Seat")


MOST_ON_ONE = 64
"""More instances on one machine are not planned."""


def places_for(provides: Mapping[str, float], needs: Sequence[Mapping[str, float]]) -> int:
    """How many instances of these needs a machine holds, whichever they are; 1 where that is not one number.

    n, where n of each fit, and of some resource each needs more than one part of n + 1.

    >>> places_for({"gpu": 1.0}, [{"gpu": 0.5}, {"gpu": 0.4}]), places_for({"gpu": 1.0}, [{"gpu": 0.5}, {"gpu": 0.3}])
    (2, 1)
    """
    rooms = {
        max(1, min(MOST_ON_ONE, *(int(provides[name] / one + 1e-9) for name, one in need.items() if one > 0)))
        for need in needs
    }
    if len(rooms) != 1:
        return 1
    (places,) = rooms
    full = (min(need.get(name, 0.0) for need in needs) > room / (places + 1) for name, room in provides.items())
    return places if any(full) else 1


def on_servers(wanted: Mapping[Seat, int], places: int, *, least: int = 0) -> list[tuple[dict[Seat, int], int]]:
    """Servers with so many places each that hold these (places of each seat), and how many there are of each kind.

    `least` servers are used, as far as there is a place for each. Alike servers come first: all of a step's places take
    turns there. Else a seat has whole servers, and what is left of all of them is put together.

    >>> on_servers({"see": 4, "name": 2}, 4)
    [({'see': 2, 'name': 1}, 2)]
    >>> on_servers({"see": 5, "name": 2}, 4)
    [({'see': 4}, 1), ({'name': 2, 'see': 1}, 1)]
    """
    wanted = {seat: count for seat, count in wanted.items() if count > 0}
    total = sum(wanted.values())
    if not total:
        return []
    servers = max(-(-total // places), min(least, total))
    if all(count % servers == 0 for count in wanted.values()):
        return [({seat: count // servers for seat, count in wanted.items()}, servers)]
    room = -(-total // servers)
    found = [({seat: room}, count // room) for seat, count in wanted.items() if count >= room]
    left = {seat: count % room for seat, count in wanted.items() if count % room}
    mixed = list(_mixed(left, room))
    short = servers - sum(count for _, count in found) - len(mixed)
    while short > 0:
        _split_one(found, mixed)
        short -= 1
    return found + [(one, 1) for one in mixed]


def _mixed(left: Mapping[Seat, int], room: int) -> Iterator[dict[Seat, int]]:
    """Servers of several seats, the largest first; one that does not fit is continued on the next."""
    bins: list[Counter[Seat]] = [Counter() for _ in range(-(-sum(left.values()) // room))]
    for seat, count in sorted(left.items(), key=lambda one: -one[1]):
        fitting = [one for one in bins if room - one.total() >= count]
        if fitting:
            min(fitting, key=lambda one: room - one.total())[seat] += count
            continue
        for one in bins:
            part = min(room - one.total(), count)
            if part > 0:
                one[seat] += part
                count -= part
    for one in bins:
        yield dict(one)


def _split_one(found: list[tuple[dict[Seat, int], int]], mixed: list[dict[Seat, int]]) -> None:
    """One server becomes two, each with a part of what it held."""
    if found:
        (one, count) = found.pop()
        if count > 1:
            found.append((one, count - 1))
    else:
        one = mixed.pop(max(range(len(mixed)), key=lambda n: sum(mixed[n].values())))
    half, first = sum(one.values()) // 2, Counter[Seat]()
    for seat, count in one.items():
        first[seat] = min(count, half - first.total())
    mixed += [dict(+first), dict(Counter(one) - first)]
