"""The glossary of the site has the words of reports, of the README and of the guides, and no word that nobody uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from build_site import glossary

from dpassay.reports.text import GLOSSARY, IN_GUIDES

ROOT = Path(__file__).resolve().parents[2]
GUIDES = " ".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


ASKED = (
    "ε, δ, unit, adjacency, neighbouring, ledger, accountant, slot, canary, holdout, power, claim, audit, event, clip, "
    "certified, a priori, ex post, bounded range, batching key, one run, p-value, ceiling, SUPPORTED, UNPROVEN"
)


@pytest.mark.parametrize("term", ASKED.split(", "))
def test_a_reader_finds(term: str) -> None:
    assert f"| **{term}** | " in glossary.page()


def test_the_words_of_tutorials_and_of_reports_are_there() -> None:
    """A tutorial prints in italics what it explains."""
    pages = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/tutorials").glob("*.md"))
    known = {term.casefold() for term in glossary.terms()}
    found = [term for term in known if re.search(rf"(?i)(?<!\*)\*{re.escape(term)}s?\*(?!\*)", pages)]
    assert len(found) > 8
    assert not set(GLOSSARY) & set(IN_GUIDES)
    assert set(glossary.terms()) >= set(GLOSSARY) | set(IN_GUIDES)


@pytest.mark.parametrize("term", IN_GUIDES)
def test_a_guide_uses_the_word(term: str) -> None:
    for word in term.split(", "):
        assert re.search(
            rf"(?i)(?<!\w){re.escape(word)[:-1]}".replace(r"\ ", r"[ \n-]").replace(r"\-", "[ -]"), GUIDES
        ), term


def test_meanings_are_short_and_say_no_term_by_itself() -> None:
    for term, meaning in glossary.terms().items():
        assert 2 <= len(meaning.split()) <= 45, term
        assert not meaning.casefold().startswith(f"a {term.casefold()} "), term
        assert "|" not in meaning
