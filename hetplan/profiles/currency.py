"""The currency of a wish that names none: that of the offers."""

from __future__ import annotations

from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo

__all__ = ["in_their_currency"]


def in_their_currency(slo: Slo, profile: Profile) -> Slo:
    """The wish in the currency of the offers: they have one, and a wish that states another was refused before."""
    currency = next(iter(profile.offers.values())).currency
    return slo.model_copy(update={"limits": slo.limits.model_copy(update={"currency": currency})})
