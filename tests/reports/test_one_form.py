"""A number has one form on a page: the same digits, the same rounding, the same notation wherever it stands."""

from __future__ import annotations

import pytest
from printed_numbers import two_forms

from cupel.reports.assay import Assay
from cupel.reports.html import render


@pytest.mark.parametrize("side", ["private", "release"])
def test_every_page_prints_a_number_in_one_form(assay: Assay, side: str) -> None:
    assert two_forms(render(assay, side=side)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ε ≤ 0.644365, and again 0.6444", [("0.644365", "0.6444")]),
        ("a loss of 0.19822, at least 0.1982", [("0.1982", "0.19822")]),
        ("1e-05 and 1 × 10⁻⁵", [("1 × 10⁻⁵", "1e-05")]),
        ("1.06294e-4 and 1.06 × 10⁻⁴", [("1.06 × 10⁻⁴", "1.06294e-4")]),
        ("4096 and 4\u202f096 records", [("4096", "4\u202f096")]),
        ("at most 3.16251, at most 3.16252", [("3.16251", "3.16252")]),
        ("3.16251 in [3.16251, 3.16252]", []),
        ("2.02 % of 2.0215, version 2.02.1, 0.5 of 0.512", []),
        ("<code>0.644365</code> 0.6444", []),
    ],
)
def test_two_forms_of_a_number_are_found(words: str, found: list[tuple[str, str]]) -> None:
    assert [tuple(sorted(pair)) for pair in two_forms(f"<body><p>{words}</p></body>")] == [
        tuple(sorted(pair)) for pair in found
    ]
