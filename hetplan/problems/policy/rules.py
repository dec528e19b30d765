"""Plans of rules that other packages bring: a policy per group of workers and load, whatever found it."""

from __future__ import annotations

from collections.abc import Callable

from hetplan.planner.draft import Draft, Reported
from hetplan.problems.policy.bench import Bench
from hetplan.problems.policy.draft import draft
from hetplan.problems.policy.form import Asked, Group, SolvedPolicy
from hetplan.problems.policy.ways import divided

__all__ = ["plan_rule"]


def plan_rule(
    asked: Asked, bench: Bench, *, rule: Callable[[Bench, Group, float], SolvedPolicy], one_queue: bool = False
) -> Draft:
    """The plan of what a rule does at each load; with `one_queue` all workers take from one, else each has its own.

    Nothing bounds what a rule reaches: goodput is claimed where it is known, else the quality of its first model.
    """
    solved = [[rule(bench, group, load) for load in group.loads_qps] for group in divided(asked, bench)]
    reported = []
    for one in (one for policies in solved for one in policies):
        known = one.measures is not None or one.simulated is not None
        value = one.goodput if known else float(one.group.models.accuracy[int(one.policy.model[0, 0])])
        about = "goodput" if known else "quality"
        of = f"{about}[{one.group.id}@{one.load_qps:g}qps]"
        reported.append(Reported(about=of, sense="max", scope="none", value=value))
    return draft(asked, solved, reported=reported, discipline="shared_fifo" if one_queue else "own")
