"""Canonical JSON is that of RFC 8785: its own samples, and what it says of names, texts and numbers."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.base.canonical_json import canonical_json

SAMPLES = {  # RFC 8785, appendix B
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


TEXTS = st.text(st.characters(codec="utf-8"))


@pytest.mark.parametrize(("bits", "text"), SAMPLES.items())
def test_numbers_are_those_of_the_rfc(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value) == text


def test_names_are_sorted_by_utf_16_and_texts_are_escaped_as_little_as_possible() -> None:
    """RFC 8785, sections 3.2.2 and 3.2.3."""
    names = ["€", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "ö"]
    expected = ["\r", "1", "\u0080", "ö", "€", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical_json(dict.fromkeys(names)))) == expected
    text = "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/"
    assert canonical_json({"string": text, "literals": [None, True, False]}) == (
        '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 2**53 + 1, 10**400, "\ud800", {1: 2}, {"x": {2}}, b"x"]
)
def test_what_has_no_canonical_text_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be|can't encode|is no type"):
        canonical_json(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=12,
    )
)
@examples(60, 2000)
def test_the_text_reads_back_as_the_value_and_is_its_only_one(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text, parse_int=float) == value
    assert canonical_json(json.loads(text)) == canonical_json(json.loads(text, parse_int=float)) == text
