"""What a promise may say by a model that is more than arithmetic, and what it must show."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hetplan.profiles.plan import Promise
from hetplan.verifier.facts import Facts

__all__ = ["model_faults"]

_ARITHMETIC = ("no-queueing", "fluid")
_MODELS = (*_ARITHMETIC, "stationary", "simulation", "measured")


def model_faults(facts: Facts, promise: Promise, questions: Collection[str]) -> Iterator[str]:
    """A model says only what it knows, and shows what it rests on; `questions` are those of hetplan."""
    model, options = promise.model.partition("/")[0], facts.plan.method.options
    if model not in _MODELS:
        yield f"unknown model {promise.model}"
    if model in _ARITHMETIC and promise.percentile is not None:
        yield f"a percentile of {promise.quantity} by the model {promise.model}, which knows no queueing"
    if promise.percentile is not None and not promise.quantity.endswith("_ms"):
        yield f"a percentile of {promise.quantity}, which is no time"
    if model == "simulation" and (not promise.seeds or promise.interval is None):
        yield f"{promise.quantity} by simulation, without the seeds and the interval that it rests on"
    if model == "stationary" and facts.plan.question in {*questions} - {"policy", "compound"}:
        yield f"{promise.quantity} by the stationary model, which is one of policies and of operators with a rate"
    # Measurements come with the inputs, or are described in words; a search may also have been handed a way to measure.
    said = facts.plan.inputs.measured or promise.basis or options.get("evaluator") == "evaluate"
    if model == "measured" and not said:
        yield f"{promise.quantity} is said to be measured, and nothing says what was"
