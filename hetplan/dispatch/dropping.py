"""What becomes of a request that is late: the four policies of Loki, as pure decisions.

``serve``            nothing is dropped (the paper's "none")
``drop-last-task``   at a last step, dropped if it cannot end by its deadline
``drop-per-task``    dropped when it has been at a step, execution included, for longer than the step's budget
``reroute``          the same, unless the steps that follow can make up for it: on its own way or on a backup's
                     (`rerouting`; the paper's "opportunistic"); at a last step its deadline alone counts

All look before a request is served, when its execution time is known: who is dropped then spares others the wait.

>>> drops("drop-last-task", last=True, now_ms=90, exec_ms=20, deadline_ms=100)
True
>>> drops("drop-per-task", spent_ms=61, budget_ms=60), drops("reroute", spent_ms=61, budget_ms=60, made_up=True)
(True, False)
"""

from __future__ import annotations

from math import inf

from hetplan.errors import InputError

__all__ = ["POLICIES", "drops", "late_by_ms"]

POLICIES = ("serve", "drop", "drop-last-task", "drop-per-task", "reroute")


def drops(
    policy: str,
    *,
    last: bool = False,
    now_ms: float = 0.0,
    exec_ms: float = 0.0,
    deadline_ms: float = inf,
    spent_ms: float = 0.0,
    budget_ms: float = inf,
    made_up: bool = False,
) -> bool:
    """Whether a policy drops a request here; `made_up`: servers of the next steps can make up for the lateness.

    >>> drops("reroute", spent_ms=61, budget_ms=60), drops("reroute", last=True, spent_ms=61, budget_ms=60)
    (True, False)
    """
    in_time = now_ms + exec_ms <= deadline_ms
    if policy == "serve":
        return False
    if policy == "drop":
        return now_ms > deadline_ms
    if policy == "drop-last-task":
        return last and not in_time
    if policy == "drop-per-task":
        return spent_ms > budget_ms
    if policy == "reroute":
        return not in_time if last else spent_ms > budget_ms and not made_up
    raise InputError.one(
        path="late", value=policy, why="no such policy", remedy=f"Choose one of {', '.join(POLICIES)}."
    )


def late_by_ms(spent_ms: float, budget_ms: float) -> float:
    """By how much a request has overdrawn the budgets of the steps behind it (0 where it has not).

    >>> late_by_ms(70, 60), late_by_ms(50, 60)
    (10, 0.0)
    """
    return max(0.0, spent_ms - budget_ms)
