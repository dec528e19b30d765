"""Which question plans each application; and whether files that no other question answers are a fleet of one period."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hetplan.planner.contract import Obstacle
from hetplan.planner.request import read_request
from hetplan.problems.fleet.fits import obstacles
from hetplan.problems.ladder import LADDER
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan_periods import inputs_of_part
from hetplan.profiles.slo import answered_by

__all__ = ["PARTS", "between", "hindrance", "of_one_variant", "question_of"]

PARTS = ("llm", "pool", "pipeline", "variants", "policy")
"""Questions that can be parts of a fleet."""
BETWEEN = {"rate", "quality", "cost", "changes"}
"""What a fleet of one period can be planned for."""


def between(inputs: Inputs) -> Iterator[Obstacle]:
    """What keeps files of one period, which no question's own program answers, from being a fleet."""
    request = read_request(inputs)
    yield from obstacles(request)
    if not inputs.profile.offers:
        yield Obstacle("no offers: a fleet says what to buy", "$.offers", "Add offers with their prices.")
    if not request.apps or not BETWEEN.issuperset(request.goals):
        yield Obstacle("a fleet is planned for cost, rate, quality or changes", "$.objective", 'Write "min cost".')
    for name, app in request.apps.items():
        if app.rate_qps is None and not app.wants_most:
            yield Obstacle(f"{name} states no rate", f"$.apps.{name}.rate_qps", 'Write "rate_qps".')
        elif isinstance(found := question_of(inputs, name, 1.0), Obstacle):
            yield found


def question_of(inputs: Inputs, name: str, rate: float) -> str | Obstacle:
    """The most specific question that the application's own files ask; one variant may be chosen for a pool."""
    own = _own(inputs, name, rate)
    found = {question: LADDER[question](own) for question in PARTS if question != "policy"}
    for question, why in found.items():
        if not why:
            return question
    if _is_pool_of_one(own, name):
        return "pool"
    nearest = min(found, key=lambda one: (sum(o.essential for o in found[one]), len(found[one])))
    first = found[nearest][0]
    return replace(first, why=f"{name} fits no question. The nearest is {nearest}, but {first.why}")


def hindrance(inputs: Inputs, name: str, question: str, rate: float) -> Obstacle | None:
    """What keeps an application's own files from asking the question that is stated; a policy's are made for it."""
    own = _own(inputs, name, rate)
    why = LADDER[question](own) if question != "policy" else ()
    return why[0] if why and not (question == "pool" and _is_pool_of_one(own, name)) else None


def _own(inputs: Inputs, name: str, rate: float) -> Inputs:
    return inputs_of_part(inputs, {name: rate}).with_slo(objective=())


def _is_pool_of_one(own: Inputs, name: str) -> bool:
    """Whether it is a pool of whichever of its variants is chosen."""
    app = read_request(own).apps[name]
    names = app.variants if app.pipeline is None and not app.candidates else ()
    return len(names) > 1 and not any(LADDER["pool"](of_one_variant(own, name, one)) for one in names)


def of_one_variant(inputs: Inputs, name: str, variant: str) -> Inputs:
    """The same files, where the application runs this variant alone; its floor is kept by who chose it."""
    return inputs.with_app(name, **answered_by(variant), quality=None)
