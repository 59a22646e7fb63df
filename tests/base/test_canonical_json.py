"""Canonical JSON is that of RFC 8785: its own samples, and what it says of names, texts and numbers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.base.canonical_json import canonical_json

NUMBERS = Path(__file__).resolve().parents[2] / "conformance" / "rfc8785_numbers.json"
SAMPLES = json.loads(NUMBERS.read_text(encoding="ascii"))
"""The bits of a number → how it is written: RFC 8785, appendix B."""


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
