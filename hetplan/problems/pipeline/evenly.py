"""Servers shared out over offers of their hardware, so that what is lost with an offer is of no step alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Need", "evenly", "shared_out"]


@dataclass(frozen=True)
class Need:
    """So many servers of one configuration (`place`) on a hardware, which hold that content."""

    place: tuple[str, int, int]
    hardware: int
    content: object
    count: int


def evenly(
    needs: Sequence[Need], room: Mapping[tuple[int, str | None], int], had: Mapping[tuple[object, str | None], int]
) -> Counter[tuple[tuple[str, int, int], str | None]]:
    """How many servers of each place are of each offer.

    Those that run (`had`, by content and offer) stay where they are. The others go to the offers of their hardware in
    proportion to what is left of each (`room`), those of whom there are most first.
    """
    left, running = Counter(room), Counter(had)
    taken = Counter[tuple[tuple[str, int, int], str | None]]()
    more = dict[tuple[str, int, int], int]()
    for need in needs:
        more[need.place] = need.count
        for hardware, offer in room:
            if hardware == need.hardware:
                stays = min(more[need.place], running[need.content, offer], left[hardware, offer])
                taken[need.place, offer] += stays
                running[need.content, offer] -= stays
                left[hardware, offer] -= stays
                more[need.place] -= stays
    for need in sorted(needs, key=lambda one: -more[one.place]):
        offers = [offer for hardware, offer in room if hardware == need.hardware]
        counts = shared_out(more[need.place], [left[need.hardware, offer] for offer in offers])
        for offer, count in zip(offers, counts, strict=True):
            taken[need.place, offer] += count
            left[need.hardware, offer] -= count
    return taken


def shared_out(count: int, room: Sequence[int]) -> list[int]:
    """So many in proportion to the room that each has, and never more than that.

    >>> shared_out(3, [4, 2]), shared_out(1, [1, 2]), shared_out(9, [2, 1])
    ([2, 1], [0, 1], [2, 1])
    """
    total = sum(room)
    count = min(count, total)
    exact = [count * one / max(total, 1) for one in room]
    found = [int(one + 1e-9) for one in exact]
    order = sorted(range(len(room)), key=lambda place: (found[place] - exact[place], place))
    for place in order[: count - sum(found)]:
        found[place] += 1
    return found
