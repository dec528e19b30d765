"""Canonical JSON against RFC 8785's own vectors; digests that only content changes."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.profiles.canonical import canonical_bytes, digest, number_text, rounded

# RFC 8785, appendix B: bits of a double and its text.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers(bits: str, text: str) -> None:
    assert number_text(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_no_text_for_what_is_no_number(bits: str) -> None:
    with pytest.raises(ValueError, match="no JSON form"):
        canonical_bytes([struct.unpack(">d", bytes.fromhex(bits))[0]])


def test_the_example_of_the_standard() -> None:
    source = r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_bytes(json.loads(source)).decode() == expected


def test_keys_sort_by_utf16_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    written = list(json.loads(canonical_bytes(dict.fromkeys(keys, 0))))
    assert written == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_whole_numbers_beyond_a_double_are_written_as_doubles() -> None:
    assert canonical_bytes([2**53, 2**53 + 1, 10**21, -(10**25)]) == b"[9007199254740992,9007199254740992,1e+21,-1e+25]"


def test_subclasses_and_strangers() -> None:
    import numpy as np

    assert canonical_bytes([np.float64(2.0), True, (1, 2)]) == b"[2,true,[1,2]]"
    with pytest.raises(TypeError, match="set"):
        canonical_bytes({"a": {1}})


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_comes_back(value: float) -> None:
    assert float(number_text(value)) == value


finite = st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(documents)
def test_layout_and_order_change_nothing(document: Any) -> None:
    text = canonical_bytes(document)
    assert json.loads(text, parse_int=float) == document
    assert canonical_bytes(json.loads(json.dumps(shuffled(document), indent=3))) == text
    assert digest(json.loads(text)) == digest(document)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_is_close_and_settles(value: float) -> None:
    once = rounded([value])[0]
    assert math.isclose(once, value, rel_tol=5.1e-12, abs_tol=5e-324)
    assert rounded(once) == once
    assert len(repr(once).split("e")[0].replace(".", "").strip("-0")) <= 12


def test_rounding_leaves_whole_numbers_and_text() -> None:
    assert rounded({"a": 10**15 + 1, "b": "0.1234567890123456", "c": (True, None)}) == {
        "a": 10**15 + 1,
        "b": "0.1234567890123456",
        "c": [True, None],
    }
