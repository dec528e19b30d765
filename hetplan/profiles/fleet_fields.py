"""What a profile and an SLO say of fleets alone: commitments, quotas of zones, limits per offer. Loaded when stated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Amount, Count, Fraction, Key, Model, Money, PositiveAmount, wrong

__all__ = ["KINDS", "Commit", "OfferLimit", "Zone", "place_of"]

KINDS = ("spot", "on_demand", "reserved")
"""Ways to buy that are limited like an offer. Reserved machines are on demand too: nobody takes them."""


def place_of(name: str) -> tuple[str, ...]:
    """Where the limit on an offer, or on a way to buy, is in an SLO.

    >>> place_of("spot"), place_of("t4-east")
    (('limits', 'spot'), ('limits', 'offers', 't4-east'))
    """
    return ("limits", name) if name in KINDS else ("limits", "offers", name)


class Commit(Model):
    """An offer's machines may also be paid for ahead, for a whole term: cheaper, and paid whether they run or not."""

    term_s: PositiveAmount = Field(description="how long a commitment lasts")
    upfront: Money = Field(default=0, description="paid once per machine at the start of the term")
    discount: Fraction | None = Field(default=None, description="share of the offer's price that is saved")
    price_per_hour: Money | None = Field(default=None, description="price of a committed machine; or a discount")

    @model_validator(mode="after")
    def _one_price(self) -> Commit:
        if (self.discount is None) == (self.price_per_hour is None):
            raise wrong("exactly one of discount and price_per_hour", 'Write for instance {"discount": 0.4}.')
        return self


class Zone(Model):
    """A zone: what all machines there may take together, by what their hardware provides ("machines": how many)."""

    quota: dict[Key, Amount] = Field(default_factory=dict)


class OfferLimit(Model):
    """How many machines of an offer, or of a way to buy, run in each period; as counts, or as a share of all."""

    min: Count = 0
    max: Count | None = None
    min_share: Fraction = Field(default=0.0, description="of all machines")
    max_share: Fraction = Field(default=1.0, description="of all machines")

    @model_validator(mode="after")
    def _least_to_most(self) -> OfferLimit:
        if self.max is not None and self.min > self.max:
            raise wrong(f"min <= max, not {self.min} and {self.max}", "Exchange them.", at=("max",))
        if self.min_share > self.max_share:
            why = f"min_share <= max_share, not {self.min_share:g} and {self.max_share:g}"
            raise wrong(why, "Exchange them.", at=("max_share",))
        return self

    @property
    def of_all(self) -> bool:
        """Whether a share of all machines is limited."""
        return self.min_share > 0 or self.max_share < 1


Lost = Literal["none", "zone", "all"]
"""Spot machines that may be gone at once: none, those of any one zone, or all of them."""
