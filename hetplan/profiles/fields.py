"""The field types that every input file is made of: ids, numbers with their ranges, money, tables of numbers.

Leaves are strict (a number in quotes is an error, money excepted): a slip in a file is an error, and never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

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
from pydantic_core import PydanticCustomError
from pydantic_core import core_schema as schemas

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

__all__ = [
    "HOURS_A_MONTH",
    "NANO",
    "Amount",
    "Count",
    "Currency",
    "Fraction",
    "Grid",
    "Id",
    "Inside",
    "Key",
    "Later",
    "Model",
    "Money",
    "Named",
    "NonNegative",
    "OneOf",
    "Positive",
    "PositiveAmount",
    "PositiveCount",
    "Real",
    "Sha256",
    "Xi",
    "as_id",
    "money_text",
    "parse_money",
    "wrong",
]

HOURS_A_MONTH = 730.0
"""A year of 8,760 hours in twelve parts, as clouds bill; the verifier keeps a number of its own."""
NANO = 10**9
"""Money is an integer count of 1/NANO currency units per hour: sums and comparisons are exact."""

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")


class Model(BaseModel):
    """The ancestor of every section of a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True)


@dataclass(frozen=True)
class Later:
    """A section that few files have: its model, "module:Class", is imported when the first one is read."""

    where: str

    @property
    def model(self) -> type[BaseModel]:
        """The model itself."""
        module, _, name = self.where.partition(":")
        found: type[BaseModel] = getattr(import_module(module), name)
        return found

    def read(self, value: object, info: ValidationInfo) -> BaseModel:
        """The section as its model; one that is a model already stays as it is."""
        return self.model.model_validate(value, context=info.context)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> schemas.CoreSchema:
        return schemas.with_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _: schemas.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # Under a name the model goes among the schema's definitions, as those that are read at once do.
        name = f"{self.where.replace(':', '.')}:{id(self.model)}"
        named: Any = {**self.model.__pydantic_core_schema__, "ref": name}
        return handler(schemas.definitions_schema(schemas.definition_reference_schema(name), [named]))


@dataclass(frozen=True)
class OneOf:
    """A section of one of several models, by what its field `name` says; each may be one that is loaded later."""

    name: str
    models: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> schemas.CoreSchema:
        choices = {value: handler.generate_schema(model) for value, model in self.models.items()}
        return schemas.tagged_union_schema(choices, discriminator=self.name)


def wrong(why: str, remedy: str = "", *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """An error of a validator that says what was expected, what to write instead, and where below the value it is."""
    return PydanticCustomError("hetplan", "{why}", {"why": why, "remedy": remedy, "at": at})


def as_id(value: object, info: ValidationInfo) -> object:
    """The id in lower case; an error where it is none."""
    if not isinstance(value, str) or ID.match(value):
        return value
    lowered = value.lower()
    if not ID.match(lowered):
        near = re.sub(r"[^a-z0-9._-]+", "-", lowered).strip("._-")[:63] or "x1"
        why = "an id is 1 to 63 of a-z 0-9 . _ - and starts with a letter or digit"
        raise wrong(why, f"Write for instance {near!r}.")
    if isinstance(info.context, Mapping):
        # The loader hands in a list; what was normalised is reported once, as a warning.
        info.context.get("normalised", []).append(value)
    return lowered


def _no_twins(value: object) -> object:
    """Refuse two keys that differ in case only, of which one would silently win."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        seen: dict[str, str] = {}
        for key in value:
            if seen.setdefault(key.lower(), key) != key:
                why = f"ids are read in lower case, so {key!r} and {seen[key.lower()]!r} are the same id"
                raise wrong(why, "Rename one of them.", at=(key,))
    return value


Id = Annotated[
    str,
    Strict(),
    BeforeValidator(as_id),
    WithJsonSchema({"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$"}),
]
"""The name of a thing in a file, or a reference to one; written in any case, held in lower case."""


T = TypeVar("T")
Named = Annotated[dict[Id, T], BeforeValidator(_no_twins)]
"""Things by their ids."""

Key = Annotated[str, Strict(), Field(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
"""A name that is no id: an axis, a resource, a knob."""

LEAST, MOST, MOST_MONEY = 1e-15, 1e15, 10**9
"""No measurement and no wish is smaller or larger in the units of these files; what is, overflows later on."""


def _plausible(value: float) -> float:
    if value > MOST or 0 < value < LEAST:
        raise wrong(f"0, or a number from {LEAST:g} to {MOST:g}", "Check the number, and the unit of its key.")
    return value


def _countable(value: int) -> int:
    if value > MOST:
        raise wrong(f"a whole number of at most {MOST:g}", "Check the number.")
    return value


Real = Annotated[float, Strict()]
Positive = Annotated[float, Strict(), Field(gt=0)]
NonNegative = Annotated[float, Strict(), Field(ge=0)]
PositiveAmount = Annotated[Positive, AfterValidator(_plausible)]
Amount = Annotated[NonNegative, AfterValidator(_plausible)]
"""What somebody measured or wishes for; what hetplan computes may be smaller."""
Fraction = Annotated[float, Strict(), Field(ge=0, le=1)]
Count = Annotated[int, Strict(), Field(ge=0), AfterValidator(_countable)]
PositiveCount = Annotated[int, Strict(), Field(ge=1), AfterValidator(_countable)]

Inside = Annotated[
    Literal["round_robin", "shortest_queue"] | None,
    Field(description="which server of a group gets the next query; by default any of them, at random"),
]

Xi = Annotated[float, Field(gt=0, le=1, description="the share of the target that a prediction may use up")]

Currency = Annotated[str, Strict(), Field(pattern=r"^[A-Z]{3}$")]
"""A currency's three letters; hetplan never converts between currencies."""

Sha256 = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{4,64}$")]
"""A SHA-256 in hexadecimal, or its first digits."""


def parse_money(value: object) -> int:
    """Currency units per hour, as text or number, to an exact count of 1e-9.

    >>> parse_money("0.526"), parse_money(2)
    (526000000, 2000000000)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise wrong("money is a decimal number or its text", 'Write for instance "0.526".')
    try:
        amount = Decimal(text if (text := str(value)).isascii() and not set(text) & set("_ \t\n") else "?")
    except InvalidOperation:
        raise wrong("money is a decimal number or its text", 'Write for instance "0.526".') from None
    if not amount.is_finite():
        raise wrong("money is finite", "Write the amount per hour, or leave the key out where there is no limit.")
    if amount < 0:
        raise wrong("money is not negative", "Write the amount per hour, 0 or more.")
    if amount > MOST_MONEY:
        raise wrong("money is at most 1e9 per hour", "Is this a unit other than currency per hour? Divide it down.")
    if 0 < amount < Decimal(1).scaleb(-9):
        raise wrong("money is 0, or at least 1e-09 per hour", "Write 0, or check the unit: it is currency per hour.")
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
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}, {"type": "number", "minimum": 0}]}
    ),
]


def _grid(value: object) -> object:
    if isinstance(value, list | tuple):
        # Most cells are floats: only the others are worth a call.
        return tuple([c if type(c) is float and LEAST <= c <= MOST else _cell(c, at) for at, c in enumerate(value)])
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong("every cell is a number, or null where nothing was measured", "Write null there, or the number.")
    if not isfinite(value):
        raise wrong("every cell is finite", "Write null where nothing was measured.")
    if value and not LEAST <= abs(value) <= MOST:
        why = f"every cell is 0, or a number from {LEAST:g} to {MOST:g}"
        raise wrong(why, "Check the number, and the unit of the table; write null where nothing was measured.")
    return float(value)


def _cell(value: object, at: int) -> object:
    try:
        return _grid(value)
    except PydanticCustomError as error:
        fault = error.context or {}
        raise wrong(fault["why"], fault["remedy"], at=(at, *fault["at"])) from None


Grid = Annotated[
    Any,
    BeforeValidator(_grid),
    WithJsonSchema(
        {"anyOf": [{"type": ["number", "null"]}, {"type": "array", "items": {"type": ["number", "null", "array"]}}]}
    ),
]
"""A number, or nested rows of numbers, one level per axis; `null` is a cell that was not measured."""
