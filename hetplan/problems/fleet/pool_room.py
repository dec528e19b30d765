"""Room of pools that are played: of machines and rates it is looked whether too many are late, by few queries first.

Where a pool has least room by its formula, in each period, its machines are looked at in simulation. Machines that have
as many of each hardware as others that kept a rate, or more, keep it too; those that have no more than others that were
short are short. A look ends with the first queries where these are clear. Once no look says that a pool is short, the
question itself plays its plan with seeds and queries that chose nothing (`confirmed`): on the machines of each period,
but for those that have no fewer than others on which a rate as high was confirmed. So all that is called kept was
confirmed, or has more machines for no higher a rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from hetplan.planner.bridge import Cone
from hetplan.problems.fleet.menus import surviving
from hetplan.problems.fleet.wish import Situation, Wish

__all__ = ["confirmed", "helping", "looks_kept", "of_pool", "tightest"]

SURE = 0.7
"""Of what may be late: what a look shows no more of is confirmed nearly always."""
STEP = 1.03
"""So much more: a formula is near, and a few machines are the next that there are."""


def tightest(wish: Wish, pool: Cone, machines: Sequence[int]) -> Situation | None:
    """Where a pool has least room by its formula, of the situations in which it has to keep something."""
    least = dict[Situation, float]()
    for one in (one for one in wish.situations if one.keep > 0):
        left = surviving(wish, pool, machines, one)
        if any(left):
            least[one] = pool.room_of(left) / one.keep
    return min(least, key=lambda one: least[one], default=None)


def looks_kept(pool: Cone, left: tuple[int, ...], rate: float) -> bool:
    """Whether a few queries, or what was seen of others, show no more late on these machines than may be."""
    known = pool.looks.known(left, rate)
    if known is None:
        known = pool.late is None or pool.late(left, rate) < 1.0
        pool.looks.add(left, rate, is_kept=known)
    return known


def confirmed(pool: Cone, left: tuple[int, ...], offers: Mapping[str, int], rate: float) -> bool:
    """Whether the question itself keeps the rate on these machines, or was seen to do so on no more of them."""
    known = pool.confirmed.known(left, rate)
    if known is None:
        known = pool.settle(offers, rate).part is not None
        pool.confirmed.add(left, rate, is_kept=known)
        if not known:
            pool.looks.refuted(left, rate)
    return known


def helping(pool: Cone, left: tuple[int, ...], rate: float) -> set[str]:
    """The hardware of which one machine more is enough for a pool, of several; clearly so, where a look was refuted."""
    found, is_refuted = set[str](), pool.confirmed.known(left, rate) is False
    for hardware in pool.hardware if len(pool.hardware) > 1 else ():
        more = tuple(n + (hardware == other) for other, n in zip(pool.hardware, left, strict=True))
        if pool.late is not None and is_refuted:
            helps = pool.late(more, rate) <= SURE
        else:
            helps = looks_kept(pool, more, rate)
        if helps:
            found.add(hardware)
    return found


def of_pool(
    wish: Wish, pool: Cone, left: tuple[int, ...], most: float, planned: float, helps: Set[str]
) -> Mapping[str, float]:
    """How many machines of each hardware are worth one, of a pool of which these are too few for `most`.

    Those are worth less of which one more does not help, where one more of another does; else all.
    """
    rooms = dict.fromkeys(pool.hardware, 1.0) | dict(wish.rooms.get((pool.app, planned), {}))
    less = [hardware for hardware in pool.hardware if hardware not in helps]
    if not helps or pool.carried([n if h not in less else 0 for h, n in zip(pool.hardware, left, strict=True)]) >= most:
        less = list(rooms)
    while pool.carried([n / rooms[h] for h, n in zip(pool.hardware, left, strict=True)]) >= most:
        rooms |= {hardware: STEP * rooms[hardware] for hardware in less}
    return rooms
