"""Checks that several problems share when they say whether files are theirs: each returns what is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle

if TYPE_CHECKING:
    from hetplan.planner.request import Application
    from hetplan.profiles.profile import Profile

__all__ = ["ANOTHER", "amount_field", "no_application", "outcomes"]

ANOTHER = "Take it out, or name another problem with --formulation."


def no_application() -> Obstacle:
    """The obstacle of an SLO that wishes for nothing."""
    return Obstacle("there is no application", "$.apps", "Write at least one.", essential=True)


def amount_field(app: Application) -> str:
    """The field that says how much an application asks for."""
    return "rate_qps.history" if app.history else "rate_qps.series" if app.series else "rate_qps"


def outcomes(profile: Profile, name: str | None, plans: str) -> Iterator[Obstacle]:
    """The steps of a pipeline whose outcomes plans of this kind do not decide on."""
    found = profile.pipelines.get(name or "")
    for step, node in found.nodes.items() if found is not None else ():
        if node.outcomes is not None and not (node.outcomes.measured and node.device and "compound" in plans):
            text = f"{plans} do not depend on the answer of a step"
            remedy = "Drop the outcomes and every `on` of an edge, or name a question that plans with them."
            yield Obstacle(text, f"$.pipelines.{name}.nodes.{step}.outcomes", remedy, file="profile")
