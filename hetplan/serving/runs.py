"""Which runs there are: a run is named by (variant, hardware, `at`), and a load of a plan says which one it is."""

from __future__ import annotations

from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.slo import Runs

__all__ = [
    "at_of",
    "runs_on",
    "variants_of",
]


def variants_of(profile: Profile, runs: Runs | None) -> list[str]:
    """The variants that an application may run."""
    if runs is None:
        return sorted(profile.variants)
    if runs.variants is not None:
        return list(runs.variants)
    if runs.families is not None:
        return sorted(name for name, variant in profile.variants.items() if variant.family in runs.families)
    if runs.task is not None:
        return sorted(name for name, variant in profile.variants.items() if variant.task == runs.task)
    return []


def runs_on(profile: Profile, variant: str | None, hardware: str) -> tuple[Run, ...]:
    """The runs of a variant on one hardware, in the profile's order; none where the profile knows no such variant."""
    known = profile.variants.get(variant or "")
    return tuple(run for run in known.runs if run.hardware == hardware) if known is not None else ()


def at_of(run: Run) -> dict[str, float]:
    """The `at` by which a load names this run.

    >>> at_of(Run(hardware="gpu", latency="t", at={"batch": 8}))
    {'batch': 8.0}
    """
    return dict(run.at)
