"""What every question reads of a wish in the same way."""

from __future__ import annotations

from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Runs

__all__ = ["variants_of"]


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
