"""The page of several audits of one generator: well-formed, self-contained, and it says whether errors add up."""

from __future__ import annotations

import dataclasses
import re

from printed_numbers import two_forms
from summary_page import summary_document
from whole_pages import HOSTILE, Nesting, outside

from dpassay.reports.summary import render


def test_the_page_is_well_formed_and_self_contained() -> None:
    for document, headline in (
        (summary_document(), "A leak is shown, not above the claim"),
        (summary_document(refuted=True), "REFUTED"),
        (summary_document(claim=None, guarantee="", refuted=None), "A leak is shown"),
    ):
        page = render(document)
        Nesting(page)
        assert not re.search(r"https?://|//[a-z]|<script|<link|@import|url\((?!#)", page)
        assert re.search(rf'<p class="word[^>]*>(<span.*</span> )?{headline}</p>', page)
        assert two_forms(page) == []


def test_it_says_whether_what_was_asked_of_each_adds_up() -> None:
    fits = summary_document(counted=0.95)
    assert not fits.widened
    assert "add up to 0.1, so their bounds hold jointly" in fits.asked
    widened = summary_document(counted=0.975)
    assert widened.widened
    assert "add up to 0.1, more than the 0.05 of confidence 0.95" in widened.asked
    assert "Each" not in fits.asked
    assert "its bounds were computed again" in widened.asked


def test_every_bound_has_the_name_of_its_attack() -> None:
    """And that of its file, where several made the same attack."""
    document = summary_document()
    first, second = document.parts
    (bound,) = document.audit.bounds
    both = dataclasses.replace(document.audit, bounds=(bound, bound))
    for one, another, names in (
        ("exact_match", "third_party", ("Exact match", "Planted canaries")),
        ("exact_match", "exact_match", ("Exact match (one.json)", "Exact match (two.json)")),
    ):
        parts = [
            first.model_copy(update={"name": "audits/one.json", "attacks": [one]}),
            second.model_copy(update={"name": "audits/two.json", "attacks": [another]}),
        ]
        page = render(document.model_copy(update={"audit": both, "parts": parts}))
        for name in names:
            assert re.search(rf'<th role="rowheader" scope="row">{re.escape(name)} ?<', page)


def test_nothing_breaks_out_of_its_text() -> None:
    calm, hostile = render(summary_document()), render(summary_document(HOSTILE))
    assert set(Nesting(hostile).tags) == set(Nesting(calm).tags)
    assert Nesting(outside(hostile)).tags == Nesting(outside(calm)).tags
    assert "<script" not in hostile
    assert "49" not in outside(hostile).partition("<body>")[2]
    assert "\x00" not in hostile
    assert "\u202e" not in hostile
