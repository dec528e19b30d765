"""Text of `init` and `import`: which model answers which application, and what is assumed of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetplan.profiles.slo import ANSWERERS
from hetplan.profiles.who_answers import answers, choices, listed

if TYPE_CHECKING:
    from hetplan.cli.output import Output
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import Slo

__all__ = ["assumed_choices", "say_answers", "say_of_profile", "say_of_wish"]


def say_answers(out: Output, profile: Profile, slo: Slo) -> dict[str, str]:
    """Print and return who answers each application."""
    found = dict(answers(profile, slo))
    for app, words in found.items():
        out.people.line(f"application {app} is answered by {words}")
    return found


def assumed_choices(profile: Profile, slo: Slo) -> list[str]:
    """Where several models may answer, and no quality says which should."""
    return [
        f"{listed(names)} may answer {app}{f' at step {step}' if step else ''}, as no quality says otherwise: the "
        f"cheapest that is fast enough will (--model {names[0]} takes one; a column quality and --quality compare them)"
        for app, wish in slo.apps.items()
        for step, names in choices(profile, wish)
    ]


def say_of_profile(out: Output, profile: Profile) -> None:
    """Each model, what it answers, on which machines and with which room; and what was assumed of them."""
    for name, variant in profile.variants.items():
        runs = [
            f"{run.hardware} (KV room {profile.engines[run.engine].kv_tokens:,} tokens)" if run.engine else run.hardware
            for run in variant.runs
        ]
        out.people.line(f"model {name} answers task {variant.task}, on {', '.join(runs)}")
    for source in profile.sources.values():
        if source.note:
            out.people.line(f"assumed: {source.note}")


def say_of_wish(out: Output, slo: Mapping[str, Any]) -> None:
    """What answers each application of an SLO, where no profile is at hand."""
    for app, wish in slo["apps"].items():
        for kind in filter(wish.__contains__, ANSWERERS):
            named, who = kind in ("model", "models"), wish[kind]
            listed = who if isinstance(who, str) else ", ".join(who)
            words = listed if named else f"the models of {kind} {listed} (--set task= for another)"
            out.people.line(f"application {app} is answered by {words}")
