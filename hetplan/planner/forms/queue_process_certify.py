"""What can be re-proved of an answer to a `QueueProcess`: the policy's value, and how much better any other could be.

Everything rests on one application of the form's own Bellman operator to the values that the answer carries, whatever
engine found them. For the average, with gain g, residuals d of the policy's own operator and D of the best one,

    g + min d / w  <=  value of the policy  <=  g + max d / w        any policy  <=  g + max(max D, 0) / (least weight)

where w is a weight per decision. A carried stationary distribution is checked by one step of the transpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Certificate, Status, Vouched
from hetplan.planner.forms.queue_process_model import Criterion
from hetplan.planner.tolerances import BOUND_SLIP, VALUE

if TYPE_CHECKING:
    from hetplan.planner.forms.queue_process_model import QueuePolicy
    from hetplan.planner.forms.queue_process_operator import OperatedQueue

__all__ = ["certify_queue_process"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_ROUNDING = 1e-12
"""Added to every bound: sums of some thousand products of numbers up to 100 are no better than that."""

_STATIONARY = 1e-9
"""How much mass one step may move of a distribution that is called stationary."""


def certify_queue_process(form: OperatedQueue, answer: Answer[QueuePolicy]) -> Certificate:
    """The verdict on one answer."""
    if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
        return Certificate(faults=(f"a queue always has a policy, and its worth is bounded: never {answer.status}",))
    if answer.point is None:
        claimed = answer.status in (Status.OPTIMAL, Status.FEASIBLE)
        return Certificate(faults=(f"{answer.status} without a policy",) if claimed else ())
    shape = (form.queue, form.slacks)
    if answer.point.model.shape != shape or answer.point.batch.shape != shape:
        return Certificate(faults=(f"a policy has {form.queue} rows of {form.slacks} entries",))
    chosen = form.chosen(answer.point)
    if (chosen < 0).any():
        n, j = divmod(int((chosen < 0).argmax()), form.slacks)
        model, batch = int(answer.point.model[n, j]), int(answer.point.batch[n, j])
        return Certificate(faults=(f"model {model} with batch {batch} is no action at n = {n + 1}, slack {j}",))
    if form.criterion is Criterion.HORIZON:
        return _certify_horizon(form, answer, chosen)
    values = _carried_numbers(form, answer, "values")
    if values is None:
        return _without_values(form, answer, chosen)
    return _by_residual(form, answer, chosen, values)


def _carried_numbers(form: OperatedQueue, answer: Answer[QueuePolicy], name: str) -> Floats | None:
    if name not in answer.proof:
        return None
    numbers = np.asarray(cast("Floats", answer.proof[name]), dtype=float)
    return numbers if numbers.shape == (form.states,) and bool(np.isfinite(numbers).all()) else None


def _by_residual(form: OperatedQueue, answer: Answer[QueuePolicy], chosen: Integers, values: Floats) -> Certificate:
    gain = float(cast("float", answer.proof.get("gain", 0.0)))
    discounted = form.criterion is Criterion.DISCOUNTED
    best, followed = form.operator.compare(values, chosen, 0.0 if discounted else gain)
    own = followed - values
    most = float((best - values).max())
    if discounted:
        scale = 1.0 / (1.0 - form.discount)
        base = float(values[form.slacks - 1])
        low, high = base + float(own.min()) * scale, base + float(own.max()) * scale
        bound = base + most * scale
    else:
        low, high = _ratio(form, gain, float(own.min())), _ratio(form, gain, float(own.max()))
        bound = gain + max(most, 0.0) / form.least_weight
    value = 0.5 * (low + high)
    faults: list[str] = []
    if not discounted:
        mass = _carried_numbers(form, answer, "stationary")
        if mass is not None:
            fault, value = _by_distribution(form, chosen, mass, low, high)
            faults += [fault] if fault else []
        elif high - low > VALUE:
            value = form.value_of(form.long_run(chosen), chosen)
    if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
        faults.append(f"the policy is worth {value:.9g}, not {answer.value:.9g}")
    faults += _false_bound(answer, value)
    bound = max(bound, value) + _ROUNDING
    return Certificate(tuple(faults), value, bound, Vouched.CERTIFIED, bound, residual=bound - value)


def _false_bound(answer: Answer[QueuePolicy], value: float) -> list[str]:
    """What to say of a bound that the answer's own policy exceeds; nothing of any other."""
    if answer.bound is None or value <= answer.bound + BOUND_SLIP * max(1.0, abs(value)):
        return []
    return [f"bounds all policies by {answer.bound:.9g}, and its own is worth {value:.9g}"]


def _ratio(form: OperatedQueue, gain: float, surplus: float) -> float:
    """Reward per weight when r - gain w averages `surplus`, or farther out on the side on which it lies."""
    return gain + surplus / form.least_weight


def _by_distribution(form: OperatedQueue, chosen: Integers, mass: Floats, low: float, high: float) -> tuple[str, float]:
    moved = float(np.abs(form.operator.push(mass, chosen) - mass).sum())
    value = form.value_of(mass, chosen)
    if (mass < 0).any() or abs(float(mass.sum()) - 1.0) > _STATIONARY or moved > _STATIONARY:
        return f"the distribution is not stationary: a step moves {moved:.3g} of it", form.value_of(
            form.long_run(chosen), chosen
        )
    slip = VALUE * max(1.0, abs(value))
    if not low - slip <= value <= high + slip:
        return f"distribution and values disagree: {value:.9g} is not in [{low:.9g}, {high:.9g}]", value
    return "", value


def _without_values(form: OperatedQueue, answer: Answer[QueuePolicy], chosen: Integers) -> Certificate:
    """Nothing to prove a bound by: the policy is evaluated anew."""
    faults: list[str] = []
    value: float | None = None
    if form.criterion is Criterion.AVERAGE:
        value = form.value_of(form.long_run(chosen), chosen)
        if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
            faults.append(f"the policy is worth {value:.9g}, not {answer.value:.9g}")
        faults += _false_bound(answer, value)
    vouched = Vouched.NONE if answer.bound is None else Vouched.CLAIMED
    return Certificate(tuple(faults), value=value, bound=answer.bound, vouched=vouched)


def _certify_horizon(form: OperatedQueue, answer: Answer[QueuePolicy], chosen: Integers) -> Certificate:
    """Dynamic programming over again; the policy is that of the first decision."""
    values = np.zeros(form.states)
    for _ in range(form.horizon - 1):
        values, _ = form.operator.bellman(values)
    best, own = form.operator.compare(values, chosen)
    start = form.slacks - 1
    value, bound = float(own[start]), float(best[start]) + _ROUNDING
    faults = _false_bound(answer, value)
    if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
        faults.append(f"the plan is worth {value:.9g}, not {answer.value:.9g}")
    return Certificate(tuple(faults), value, bound, Vouched.CERTIFIED, bound, residual=bound - value)
