"""One point of a study: the files with some values in them, planned, and what is kept of the plan."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hetplan.api.solve import Choice, choose, plan_for
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.draft import Edit
from hetplan.planner.outcome import Outcome
from hetplan.planner.repairs import edit_documents
from hetplan.profiles.canonical import digest
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import machines_of as in_period
from hetplan.serving.bill import call_costs
from hetplan.serving.loads import worker_price
from hetplan.studies.axes import Axis, Files, change_inputs, factor

__all__ = [
    "Asked",
    "Task",
    "bill",
    "fleet_change",
    "fleet_of",
    "fleet_text",
    "found_of",
    "is_price",
    "solve_point",
    "study_digest",
    "try_changes",
]

PLENTY = "1000000"
MANY_KINDS = 6
"""A fleet of more kinds of machines than this is no line that anybody reads."""

Task = dict[str, Any]
"""`values` per axis, and whether the plan is `sized` as `hetplan solve` would, or by its program alone."""


@dataclass(frozen=True)
class Asked:
    """What is asked at every point: the files, what varies in them, and how the question is answered."""

    files: Files
    axes: tuple[Axis, ...]
    question: str
    formulation: str
    options: Mapping[str, Any]
    solver: str | None = None
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of(
        cls, files: Files, axes: Sequence[Axis], *, question: str | None = None, formulation: str | None = None,
        options: Mapping[str, Any] | None = None, solver: str | None = None, limits: Limits | None = None,
    ) -> Asked:  # fmt: skip
        """The question is chosen once, from the files as they are, so that no point asks another one."""
        choice = choose(files.inputs, question=question, formulation=formulation, options=options)
        stated = {name.replace("-", "_"): value for name, value in (options or {}).items()}
        return cls(files, tuple(axes), choice.problem.question, choice.formulation, stated, solver,
                   replace(limits or Limits(), cancel=None))  # fmt: skip

    @property
    def sizes(self) -> bool:
        """Whether plans are sized beyond their program, by simulation or a formula, unless that is switched off."""
        return getattr(_choice(self).options, "sizing", "fluid") != "fluid"

    @property
    def is_slow(self) -> bool:
        """Whether one plan takes so long that only the values named are tried."""
        return self.question == "fleet"

    def plan(self, inputs: Inputs, *, sized: bool = True, cancel: threading.Event | None = None) -> Outcome:
        """The question asked of these inputs; repairs are not tried."""
        options = dict(self.options)
        if not sized and self.sizes:
            options["sizing"] = "fluid"
        if self.is_slow:
            options.setdefault("savings", False)
        return plan_for(
            inputs,
            question=self.question,
            formulation=self.formulation,
            options=options,
            solver=self.solver,
            limits=replace(self.limits, cancel=cancel),
            try_repairs=False,
        )


def study_digest(asked: Asked, what: Sequence[str]) -> str:
    """What a journal belongs to: the files, the question and how it is answered."""
    options = dict(asked.options)
    return digest({"inputs": dict(asked.files.inputs.digests), "question": asked.question, "options": options,
                   "formulation": asked.formulation, "solver": asked.solver, "what": list(what),
                   "seed": asked.limits.seed})  # fmt: skip


def _choice(asked: Asked) -> Choice:
    return choose(
        asked.files.inputs, question=asked.question, formulation=asked.formulation, options=dict(asked.options)
    )


def solve_point(asked: Asked, task: Task, cancel: threading.Event | None = None) -> dict[str, Any]:
    """What was found at one point, as plain data."""
    inputs = change_inputs(asked.files, asked.axes, task["values"])
    sized = bool(task.get("sized"))
    try:
        outcome = asked.plan(inputs, sized=sized, cancel=cancel)
    except InputError as error:
        # A value may make the files ask what has no answer; the other points do not suffer from it.
        return {**task, "status": "refused", "why": str(error.faults[0]), "fleet": None, "ok": False}
    found = found_of(outcome, inputs)
    if outcome.plan is not None and outcome.plan.bill is None and found["about"] == "cost_per_hour":
        found |= {"slopes": _slopes(asked, task["values"], outcome.plan, inputs)}
    return {**task, **found}


def try_changes(asked: Asked, task: Task, cancel: threading.Event | None = None) -> dict[str, Any]:
    """What is found with these `factors` on and `edits` of the files, as plain data."""
    documents = asked.files.documents
    for name, value in task.get("factors", ()):
        documents = factor(documents, name, value)
    edits = [Edit(file, tuple(steps), value) for file, steps, value in task.get("edits", ())]
    try:
        inputs = asked.files.inputs_with(edit_documents(documents, edits))
        return found_of(asked.plan(inputs, sized=bool(task.get("sized")), cancel=cancel), inputs)
    except InputError as error:
        return {"status": "refused", "why": str(error.faults[0]), "fleet": None, "ok": False}


def edits_that_hold(inputs: Inputs, machines: Mapping[tuple[str | None, str], int]) -> list[list[Any]]:
    """The edits that leave these machines (by offer and hardware) and no others, whatever they cost."""
    edits: list[list[Any]] = [["profile", ["offers", name, "stock"], 0] for name in inputs.profile.offers]
    for (offer, hardware), count in machines.items():
        if offer is not None:
            edits.append(["profile", ["offers", offer, "stock"], count])
        else:
            edits.append(["slo", ["limits", "instances", hardware], [0, count]])
    if inputs.slo.limits.cost_per_hour is not None:
        # They are paid for already; a wish for the most keeps a budget that it never meets.
        edits.append(["slo", ["limits", "cost_per_hour"], PLENTY])
    return edits


def machines_of(plan: Plan) -> dict[tuple[str | None, str], int]:
    """How many machines of each offer and hardware a plan has."""
    found: dict[tuple[str | None, str], int] = {}
    for worker in plan.workers:
        key = (worker.offer, worker.hardware)
        found[key] = found.get(key, 0) + worker.count
    return found


def found_of(outcome: Outcome, inputs: Inputs) -> dict[str, Any]:
    """The figures of an outcome that studies compare."""
    plan = outcome.plan if outcome.exit_code in (0, 4, 5) else None
    first = outcome.claims[0] if outcome.claims else None
    found: dict[str, Any] = {
        "status": outcome.status if plan is not None or outcome.plan is None else "rejected",
        "ok": plan is not None,
        "why": "" if plan is not None else "; ".join((*outcome.why, *outcome.violations)) or outcome.reason,
        "fleet": fleet_of(plan) if plan is not None else None,
        "machines": [[*kind, count] for kind, count in machines_of(plan).items()] if plan is not None else [],
        "cost_per_hour": None if plan is None else bill(plan, inputs),
        "about": first.about if first is not None else "",
        "sense": first.sense if first is not None else "",
        "value": first.value if first is not None else None,
        "further": [claim.value for claim in outcome.claims[1:]],
        "bound": first.bound if first is not None else None,
        "scope": first.scope if first is not None else "",
        "vouched": first.vouched if first is not None else "",
    }
    if plan is not None:
        found["rate_qps"] = sum(one.value for one in plan.promises if one.quantity == "rate_qps") or None
    return found


def fleet_of(plan: Plan) -> dict[str, int]:
    """Machines by offer (or kind, where there are no offers), and by what they run where that differs.

    Of a plan of parts, the most of each offer in any period, and what is paid for ahead.
    """
    if plan.parts is not None:
        most: dict[str, int] = {}
        for period in plan.periods:
            for name, count in in_period(plan, period.id).items():
                most[name] = max(most.get(name, 0), count)
        ahead = {f"{one.offer} ahead": one.count for one in plan.commitments or ()}
        return dict(sorted({**most, **ahead}.items()))
    several = len({load.variant for worker in plan.workers for load in worker.loads}) > 1
    found: dict[str, int] = {}
    for worker in plan.workers:
        name = worker.offer or worker.hardware
        name += f" in {worker.period}" if len(plan.periods) > 1 else ""
        if several:
            runs = sorted({load.variant or load.node or load.id for load in worker.loads})
            name = f"{name} {'+'.join(runs)}" if runs else name
        found[name] = found.get(name, 0) + worker.count
    return dict(sorted(found.items()))


def fleet_text(fleet: Mapping[str, int] | None) -> str:
    """A fleet in a line.

    >>> fleet_text({"cpu4-spot": 4, "t4": 3}), fleet_text({}), fleet_text(None)
    ('4 cpu4-spot, 3 t4', 'no machines', 'no plan')
    """
    if fleet is None:
        return "no plan"
    return ", ".join(f"{count} {name}" for name, count in fleet.items()) or "no machines"


def fleet_change(fleet: Mapping[str, int] | None, base: Mapping[str, int]) -> str:
    """A fleet in a line: where another one has many kinds of machines, by what it has more and fewer of.

    >>> base = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7}
    >>> fleet_change({**base, "a": 3, "g": 6, "h": 1}, base), fleet_change(base, base), fleet_change({"b": 2}, {"a": 1})
    ('+2 a, -1 g, +1 h', 'the same', '2 b')
    """
    if fleet is None or len(base) <= MANY_KINDS:
        return fleet_text(fleet)
    more = {name: fleet.get(name, 0) - base.get(name, 0) for name in sorted({*fleet, *base})}
    return ", ".join(f"{count:+d} {name}" for name, count in more.items() if count) or "the same"


def bill(plan: Plan, inputs: Inputs) -> float | None:
    """What machines and calls of a plan cost per hour at the prices of these files; None where one is not known."""
    if plan.bill is not None:
        return plan.bill.cost_per_hour
    if len(plan.periods) > 1:
        return _mean_bill(plan, inputs)
    total = 0
    for worker in plan.workers:
        price = worker_price(inputs, worker)
        if price is None:
            return None
        total += price * (worker.count + worker.standby)
    return total / NANO + sum(call_costs(plan, inputs).values())


def _mean_bill(plan: Plan, inputs: Inputs) -> float | None:
    """The mean over periods, each as long as it is; None where one has no end."""
    total, seconds = 0.0, 0.0
    for period in plan.periods:
        workers = tuple(worker for worker in plan.workers if worker.period == period.id)
        one = bill(plan.model_copy(update={"periods": (period,), "workers": workers}), inputs)
        if one is None or period.end_s is None:
            return None
        total += one * (period.end_s - period.start_s)
        seconds += period.end_s - period.start_s
    return total / seconds if seconds > 0 else None


def _slopes(asked: Asked, values: Sequence[float], plan: Plan, inputs: Inputs) -> list[float | None]:
    """Per axis that is a price: by how much the bill of this fleet rises per unit of it (a bill is a straight line)."""
    found: list[float | None] = []
    for place, axis in enumerate(asked.axes):
        slope = None
        if is_price(axis):
            moved = [*values[:place], values[place] + 1.0, *values[place + 1 :]]
            now, then = bill(plan, inputs), bill(plan, change_inputs(asked.files, asked.axes, moved))
            slope = None if now is None or then is None else round(then - now, 9)
        found.append(slope)
    return found


def is_price(axis: Axis) -> bool:
    """Whether it is what one offer or one run costs, or a factor on that."""
    if axis.path is None:
        return axis.name.startswith("prices")
    return axis.path[1][-1] == "price_per_hour"
