"""APIs of others: models that are called and paid for by the call and the token, and run on none of one's machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, Strict, model_validator

from hetplan.profiles.fields import NANO, Amount, Currency, Id, Key, Model, Money, PositiveAmount, wrong

__all__ = ["Api", "ApiCall", "Tokens"]

MILLION = 1_000_000


class Tokens(Model):
    """How many tokens a call reads and writes, on average."""

    in_: Amount = Field(alias="in", default=0.0)
    out: Amount = 0.0


class Api(Model):
    """What an API costs, how much it takes, how it fails.

    Calls are made from `tier`; what they take is as measured there. A call fails with the chance `failures`, each time
    anew; it is made again up to `retries` times, each `retry_ms` after the one before it began. Only calls that are
    answered are paid for.

    >>> api = Api(tier="host", price_per_call="0.0001", price_per_million_in="2", failures=0.5, retries=1)
    >>> round(api.price_of(Tokens(**{"in": 500})), 9), api.tried, api.given_up
    (0.0011, 1.5, 0.25)
    """

    tier: Id
    price_per_call: Money = 0
    price_per_million_in: Money = 0
    price_per_million_out: Money = 0
    currency: Currency = "USD"
    calls_per_s: PositiveAmount | None = Field(default=None, description="the most calls, those made again among them")
    tokens_per_s: PositiveAmount | None = Field(default=None, description="the most tokens, read and written")
    failures: Annotated[float, Field(ge=0, lt=1)] = 0.0
    retries: Annotated[int, Strict(), Field(ge=0, le=20)] = 0
    retry_ms: Amount = 0.0

    def price_of(self, tokens: Tokens) -> float:
        """Currency units of one call."""
        by_token = (self.price_per_million_in * tokens.in_ + self.price_per_million_out * tokens.out) / MILLION
        return (self.price_per_call + by_token) / NANO

    def gap_s(self, tokens: Tokens | None = None) -> float:
        """The seconds between two calls of so many tokens at least, so that neither calls nor tokens come too fast."""
        each = 0.0 if tokens is None else tokens.in_ + tokens.out
        return max(1.0 / (self.calls_per_s or math.inf), each / (self.tokens_per_s or math.inf))

    @property
    def tried(self) -> float:
        """How often a call is made on average, until it is answered or given up."""
        return float(sum(self.failures**k for k in range(self.retries + 1)))

    @property
    def given_up(self) -> float:
        """The chance that a call is never answered."""
        return float(self.failures ** (self.retries + 1))


class ApiCall(Model):
    """An operator is a call of this API where its knobs have one of these levels; then it runs on no machine."""

    api: Id
    where: dict[Key, tuple[Any, ...]] = Field(min_length=1)
    tokens: Tokens = Field(default_factory=Tokens)

    @model_validator(mode="after")
    def _somewhere(self) -> ApiCall:
        empty = next((knob for knob, levels in self.where.items() if not levels), None)
        if empty is not None:
            raise wrong("a call is made at some level of each knob", "List the levels, or drop the knob.", at=(empty,))
        return self

    def made(self, knobs: Mapping[str, Any]) -> bool:
        """Whether an operator with these knobs is this call.

        >>> ApiCall(api="a", where={"model": ["large"]}).made({"model": "large", "k": 3})
        True
        """
        return all(knobs.get(knob) in levels for knob, levels in self.where.items())
