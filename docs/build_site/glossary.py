"""The glossary of the site: the words that reports define, those of verdicts, and further ones of the guides."""

from __future__ import annotations

from dpassay.audits.verdict_wording import MEANS
from dpassay.reports.text import GLOSSARY, IN_GUIDES


def terms() -> dict[str, str]:
    """Every term with its meaning, in the order of the alphabet; Greek letters first."""
    found = {name: meaning for name, (_, meaning) in GLOSSARY.items()} | IN_GUIDES
    found |= {name: meaning.rstrip(".") for name, meaning in MEANS.items()}
    return dict(sorted(found.items(), key=lambda item: (item[0][0].isascii(), item[0].casefold())))


def page() -> str:
    """The glossary as a page of the site."""
    rows = [f"| **{name}** | {meaning} |" for name, meaning in terms().items()]
    return "\n".join(["# Glossary", "", "| term | meaning |", "| --- | --- |", *rows]) + "\n"
