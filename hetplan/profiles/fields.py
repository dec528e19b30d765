"""The field types that every input file is made of: ids, numbers with their ranges, money, tables of numbers.

Leaves are strict (a number in quotes is an error, money excepted) so that a slip in a file is told, never guessed at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)

__all__ = [
    "NANO",
    "Count",
    "Fraction",
    "Grid",
    "Id",
    "Key",
    "Model",
    "Money",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "Real",
    "money_text",
    "parse_money",
]

NANO = 10**9
"""Money is an integer count of 1/NANO currency units per hour: sums and comparisons are exact."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")


class Model(BaseModel):
    """The ancestor of every section of a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


def _id(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return value
    lowered = value.lower()
    if lowered != value and isinstance(info.context, Mapping):
        # The loader hands in a list; what was normalised is reported once, as a warning.
        info.context.get("normalised", []).append(value)
    return lowered


def _id_form(value: str) -> str:
    if not _ID.match(value):
        raise ValueError("an id is 1 to 63 of a-z 0-9 . _ - and starts with a letter or digit")
    return value


Id = Annotated[str, Strict(), BeforeValidator(_id), AfterValidator(_id_form)]
"""The name of a thing in a file, or a reference to one; written in any case, held in lower case."""

Key = Annotated[str, Strict(), Field(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
"""A name that is no id: an axis, a resource, a knob."""

Real = Annotated[float, Strict()]
Positive = Annotated[float, Strict(), Field(gt=0)]
NonNegative = Annotated[float, Strict(), Field(ge=0)]
Fraction = Annotated[float, Strict(), Field(ge=0, le=1)]
Count = Annotated[int, Strict(), Field(ge=0)]
PositiveCount = Annotated[int, Strict(), Field(ge=1)]


def parse_money(value: object) -> int:
    """Currency units per hour, as text or number, to an exact count of 1e-9.

    >>> parse_money("0.526"), parse_money(2)
    (526000000, 2000000000)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError('money is a decimal number or its text, such as "0.526"')
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError('money is a decimal number or its text, such as "0.526"') from None
    if not amount.is_finite():
        raise ValueError("money must be finite")
    if amount < 0:
        raise ValueError("money must not be negative")
    if amount > 10**9:
        raise ValueError("more than 1e9 per hour; is this a unit other than currency per hour?")
    # Finer than 1e-9 per hour is below any bill; rounding there cannot change a verdict.
    return int((amount * NANO).to_integral_value(ROUND_HALF_EVEN))


def money_text(nanos: int) -> str:
    """The shortest decimal text of a count of 1e-9.

    >>> money_text(526000000), money_text(2_000_000_000)
    ('0.526', '2')
    """
    text = format(Decimal(nanos).scaleb(-9), "f")
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


Money = Annotated[
    int,
    BeforeValidator(parse_money),
    PlainSerializer(money_text, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}, {"type": "number", "minimum": 0}]}),
]


def _grid(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_grid(item) for item in value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"every cell is a number, or null where nothing was measured; not {value!r}")
    if not math.isfinite(value):
        raise ValueError("every cell is finite; write null where nothing was measured")
    return float(value)


Grid = Annotated[
    Any,
    BeforeValidator(_grid),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "array"}]}}]}),
]
"""A number, or nested rows of numbers, one level per axis; `null` is a cell that was not measured."""
