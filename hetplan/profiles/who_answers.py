"""Which models may answer an application, and where nothing but speed and price chooses among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import App, Slo

__all__ = ["answers", "choices", "listed", "may_answer", "pipeline_of"]

_MOST_NAMED = 6


def pipeline_of(profile: Profile | None, wanted: App | None) -> Pipeline | None:
    """The pipeline that an application runs; None where it runs none, or the profile knows none of that name."""
    name = wanted.pipeline if wanted is not None else None
    return profile.pipelines.get(name) if profile is not None and name is not None else None


def may_answer(profile: Profile, app: App) -> Mapping[str, Sequence[str]]:
    """The models of an application, by step of its pipeline; the step is "" where there is none."""
    if app.candidates:
        return {}
    if app.pipeline is not None:
        pipeline = pipeline_of(profile, app)
        tasks = {name: node.task for name, node in pipeline.nodes.items() if node.task} if pipeline else {}
        return {
            step: [name for name, variant in profile.variants.items() if variant.task == task]
            for step, task in tasks.items()
        }
    found = [
        name
        for name, variant in profile.variants.items()
        if (app.named_models is None or name in app.named_models)
        and (app.families is None or variant.family in app.families)
        and (app.task is None or variant.task == app.task)
    ]
    return {"": found} if found else {}


def choices(profile: Profile, app: App) -> Iterator[tuple[str, Sequence[str]]]:
    """The steps at which several models may answer and some state no quality, with these models."""
    for step, names in may_answer(profile, app).items():
        if len(names) > 1 and any(profile.variants[name].quality is None for name in names):
            yield step, names


def answers(profile: Profile, slo: Slo) -> Iterator[tuple[str, str]]:
    """Each application, and in words who answers it."""
    for name, app in slo.apps.items():
        found = may_answer(profile, app)
        words = [f"{step + ': ' if step else ''}{listed(names)}" for step, names in found.items()]
        if words:
            yield name, "; ".join(words)


def listed(names: Sequence[str]) -> str:
    """Some models in words.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'any of a, b, c')
    """
    shown = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED))
    return shown if len(names) == 1 else f"any of {shown}"
