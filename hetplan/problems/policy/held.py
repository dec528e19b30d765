"""Which models a worker holds, if its memory is too small for all of them.

Every model that a policy may choose stays loaded. More models are never worse, so only the sets that no other fitting
set contains can be best: for each of them the process is solved, at both ends of the loads, and the one with the most
goodput is planned with. Each is certified as every process is; so the choice is, where all of them were looked at.
"""

from __future__ import annotations

from dataclasses import replace

from hetplan.problems.policy.bench import Bench
from hetplan.problems.policy.form import Group
from hetplan.profiles.plan import Notice

__all__ = ["held"]


def held(bench: Bench, group: Group) -> Group:
    """The group with the models that its workers hold."""
    models = group.models
    if len(models.sets) < 2:
        return group if not models.sets else replace(group, models=models.only(models.sets[0]))
    ends = sorted({group.loads_qps[0], group.loads_qps[-1]})
    tried = [replace(group, models=models.only(chosen)) for chosen in models.sets]
    forms = [one.form(load, bench.options, batching="max") for one in tried for load in ends]
    answers = bench.ask.all(forms, about=f"{group.id}: which models to hold")
    worth = [sum(answers[k * len(ends) + j].value or 0.0 for j in range(len(ends))) for k in range(len(tried))]
    best = max(range(len(tried)), key=lambda k: (round(worth[k], 9), -k))
    text = (
        f"{', '.join(models.names)} do not fit a worker of {models.hardware} together: of {len(tried)} sets that do, "
        f"{', '.join(tried[best].models.names)} are held, with a goodput of {worth[best] / len(ends):.6g}"
        + ("" if models.all_sets else "; not every set was tried")
    )
    notice = Notice(code="W-models-held", at=f"limits.instances.{models.hardware}", text=text)
    return replace(tried[best], models=replace(tried[best].models, notices=(*models.notices, notice)))
