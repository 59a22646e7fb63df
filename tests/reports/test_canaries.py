"""The page of an audit by planted canaries: well-formed, self-contained, and nothing can break out of its text."""

from __future__ import annotations

import dataclasses
import re

import pytest
from planted_audit import document
from printed_numbers import two_forms
from whole_pages import HOSTILE, Nesting, outside

from dpassay.reports.canaries import CanaryAudit, render


def failed() -> CanaryAudit:
    audit = dataclasses.replace(
        document().audit, bounds=(), controls_passed=False, details={"failures": ["a control failed"]}
    )
    return document().model_copy(update={"audit": audit})


@pytest.mark.parametrize(
    ("what", "headline", "scale"),
    [
        (document(), "A leak is shown, not above the claim", True),
        (document(refuted=True), "REFUTED", True),
        (document(claim=None, guarantee="", refuted=None), "A leak is shown", False),
        (failed(), "No conclusion", False),
    ],
)
def test_the_page_is_well_formed_and_self_contained(what: CanaryAudit, headline: str, scale: bool) -> None:
    page = render(what)
    Nesting(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|//[a-z]|<script|<link|@import|url\((?!#)", page)
    assert re.search(rf'<p class="word[^>]*>(<span.*</span> )?{headline}</p>', page)
    assert ('id="figure-scale"' in page) is scale
    assert ("What went wrong" in page) is (headline == "No conclusion")


def test_numbers_are_rounded_to_the_side_that_is_true() -> None:
    page = render(document())
    assert "ε ≥\u00a01.23456<" in page.replace("ε\u00a0", "ε ")
    assert "3.98766<" in page
    assert "1.23457" not in page
    assert "3.98765" not in page


def test_the_page_carries_the_name_of_its_audit() -> None:
    """In the title of the window, in the header, and on every printed sheet."""
    page = render(document("a name"))
    assert re.search(r"<title>[^<]* · a name · dpassay audit</title>", page)
    assert "<h1>a name</h1>" in page
    assert '@top-left { content: "PRIVATE · a name"; }' in re.sub(r"\\b7 ", "·", page)


def test_a_number_has_one_form() -> None:
    assert two_forms(render(document())) == []


def test_nothing_breaks_out_of_its_text() -> None:
    calm, hostile = render(document()), render(document(HOSTILE))
    assert set(Nesting(hostile).tags) == set(Nesting(calm).tags)
    assert Nesting(outside(hostile)).tags == Nesting(outside(calm)).tags
    assert "<script" not in hostile
    assert "49" not in outside(hostile).partition("<body>")[2]
    assert "\x00" not in hostile
    assert "\u202e" not in hostile
