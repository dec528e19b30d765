"""What a profile and an SLO say of fleets alone: commitments, quotas of zones, limits per offer. Loaded when stated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Amount, Count, Fraction, Key, Model, Money, PositiveAmount, wrong

__all__ = ["KINDS", "Commit", "OfferLimit", "Zone"]

KINDS = ("on-demand", "spot", "committed")
"""Ways to buy that `limits.offers` may name beside offers. Committed machines are on demand too: nobody takes them."""


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

    least: Count = 0
    most: Count | None = None
    share: tuple[Fraction, Fraction] | None = Field(default=None, description="[least, most] of all machines")

    @model_validator(mode="after")
    def _least_to_most(self) -> OfferLimit:
        if self.most is not None and self.least > self.most:
            raise wrong(f"least <= most, not {self.least} and {self.most}", "Exchange them.", at=("most",))
        if self.share is not None and self.share[0] > self.share[1]:
            raise wrong("a share is [least, most] with least <= most", "Exchange them.", at=("share",))
        return self


Lost = Literal["none", "zone", "all"]
"""Spot machines that may be gone at once: none, those of any one zone, or all of them."""
