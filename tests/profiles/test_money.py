"""Money is read as plain decimal text, and nothing else that Python would take for a number."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from hetplan.profiles.fields import parse_money


@pytest.mark.parametrize("text", ["1_0", " 1", "1 ", "\u0661", "1\n", "", "one", "0x1", "1,5"])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    """Underscores, spaces and digits of other scripts were read in silence."""
    with pytest.raises(PydanticCustomError, match="decimal number"):
        parse_money(text)


@pytest.mark.parametrize(("text", "nanos"), [("0.526", 526_000_000), ("1e-3", 1_000_000), (2, 2 * 10**9), ("0", 0)])
def test_plain_numbers_are_exact(text: object, nanos: int) -> None:
    assert parse_money(text) == nanos
