"""Decisions about one query from a few numbers: where it would be done first, who has least to do, who is given up.

Simulator and router both call these. They hold workers and queries in unlike ways, so each walks its own; what is
decided at each step is written here. The router calls them as they are; `rule_kernels` makes them parts of what
compiles. This module imports nothing that loads NumPy.
"""

from __future__ import annotations

from math import floor, inf

from hetplan.serving.system import Late

__all__ = ["behind", "done_ms", "has_less_to_do", "has_room_for", "makes_up", "spare_in_second"]

_DROP, _DROP_LAST_TASK = int(Late.DROP), int(Late.DROP_LAST_TASK)
_DROP_PER_TASK, _REROUTE = int(Late.DROP_PER_TASK), int(Late.REROUTE)


def done_ms(free_ms: float, due_ms: float, is_busy: bool, now_ms: float, takes_ms: float) -> float:
    """When a worker that serves its queue in order would have answered a query that joins it now (``earliest/1``).

    What it serves was expected to end at `due_ms`, all that it has at `free_ms`. One that is overdue is never expected
    to have ended before now.

    >>> done_ms(50.0, 20.0, True, 10.0, 5.0), done_ms(50.0, 20.0, True, 30.0, 5.0)
    (55.0, 65.0)
    """
    if is_busy and due_ms < now_ms:
        free_ms += now_ms - due_ms
    return max(now_ms, free_ms) + takes_ms


def has_less_to_do(bound: int, servers: int, other_bound: int, other_servers: int) -> bool:
    """Whether a queue is shorter than another (shortest queue): queries per server, the next one counted.

    >>> has_less_to_do(2, 4, 1, 1), has_less_to_do(1, 1, 1, 1)
    (True, False)
    """
    return (bound + 1) * other_servers < (other_bound + 1) * servers


def behind(late: int, is_last: bool, now: float, takes: float, entered: float, deadline: float, budget: float) -> float:
    """By how much a query that begins a step now misses what its application's policy for late ones asks there.

    Times are all in milliseconds or all in seconds, and so is the result; above 0 the query is given up.

    ==================  ==============================================================================
    ``serve``           nothing is asked
    ``drop``            that it ends by its deadline
    ``drop-last-task``  the same, at a last step alone
    ``drop-per-task``   that it was at the step, service included, for no longer than the step's budget
    ``reroute``         the same, unless the steps that follow make up for it; at a last step its deadline
    ==================  ==============================================================================

    >>> behind(int(Late.DROP_LAST_TASK), True, 90.0, 20.0, 0.0, 100.0, inf)
    10.0
    >>> behind(int(Late.REROUTE), False, 90.0, 20.0, 60.0, 100.0, 45.0), behind(0, True, 9.0, 9.0, 0.0, 1.0, 1.0)
    (5.0, -inf)
    """
    if late == _DROP or (is_last and late in (_DROP_LAST_TASK, _REROUTE)):
        return now + takes - deadline
    if late in (_DROP_PER_TASK, _REROUTE):
        return now - entered + takes - budget
    return -inf


def makes_up(longest_ms: float, takes_ms: float, late_ms: float) -> bool:
    """Whether a load is fast enough for a query that comes late: a step's budget is made for its longest execution.

    >>> makes_up(50.0, 20.0, 30.0), makes_up(50.0, 21.0, 30.0)
    (True, False)
    """
    return takes_ms <= longest_ms - late_ms + 1e-9


def spare_in_second(left: float, until_ms: float, each_s: float, now_ms: float) -> tuple[float, float]:
    """What is left of a backup's spare capacity, and until when: all of it comes back with every second.

    >>> spare_in_second(0.0, 1000.0, 5.0, 999.0), spare_in_second(0.0, 1000.0, 5.0, 1000.0)
    ((0.0, 1000.0), (5.0, 2000.0))
    """
    if now_ms >= until_ms:
        return each_s, (floor(now_ms / 1000.0) + 1.0) * 1000.0
    return left, until_ms


def has_room_for(jobs: float, left: float, longest_ms: float, takes_ms: float, late_ms: float) -> bool:
    """Whether a backup takes so many queries that come late (less than one is one): it is fast enough and has room.

    >>> has_room_for(0.5, 1.0, 50.0, 20.0, 30.0), has_room_for(1.5, 1.0, 50.0, 20.0, 30.0)
    (True, False)
    """
    return makes_up(longest_ms, takes_ms, late_ms) and left >= max(1.0, jobs)
