"""The families of variants that applications name."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.inputs import Steps
from hetplan.profiles.json_path import closest

__all__ = ["check_families"]


def check_families(found: Dangling, named: Sequence[str], at: Steps) -> None:
    """Each is the family of some variant."""
    known, variants = found.known["variants"], found.profile.variants
    families = frozenset(variant.family for variant in variants.values() if variant.family is not None)
    for number, family in enumerate(named):
        if not known:
            found.must_know("variants", family, *at, number)
        elif family not in families and known <= variants.keys():
            near = closest(family, families)
            remedy = f"{near}Or give variants that family." if near else "Give variants that family."
            found.fault((*at, number), family, f"no variant is of family {family!r}", remedy)
