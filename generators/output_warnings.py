"""Warnings about what a run made, and whether its language model suits its texts.

Those about documents may be released with them; those about records are private.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dpassay.base.number_format import format_number
from dpassay.reports.assay import Output

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel


def nothing_made(output: Output) -> list[str]:
    """Warns of a run without a document that has text."""
    if output.documents > output.empty:
        return []
    return [
        "The run made no complete document with text, so it cannot be released. Give documents more tokens to end in, "
        "or another model, and make a new run in a new folder, which is charged anew."
    ]


def unknown_texts(model: LanguageModel | None, texts: Collection[str] | None, which: str) -> list[str]:
    """Warns of texts of a kind that the embedded model does not know.

    Args:
        model: the embedded model; None for another one, of which nothing is said.
        texts: documents, which are public if they are released, or records, which are private; None for a table.
        which: of these, in words.
    """
    if model is None or not texts:
        return []
    from dpassay.mechanisms.models.perplexity import least_unfamiliar, median_perplexity

    perplexity, least = median_perplexity(model, texts), least_unfamiliar(model)
    if perplexity is None or perplexity <= least:
        return []
    return [
        f"The embedded model does not know texts like the {which}: their median perplexity is "
        f"{format_number(perplexity)}, above {format_number(least)}, the square root of the size of its vocabulary. It "
        "is made for trials on a few kinds of made-up texts, and for others it writes noise; name a model of your own "
        "(model: a folder or a hub id)."
    ]


def is_longer(model: LanguageModel, text: str, tokens: int) -> bool:
    """Whether a text has more tokens, so that those beyond are cut; 64 characters of it are read for each."""
    return len(text) > tokens and len(model.encode(text[: 64 * (tokens + 1)])) > tokens


def cut_records(cut: int, read: int, limit: str) -> list[str]:
    """Warns of records most of which were cut; private.

    Args:
        cut: how many were.
        read: of so many.
        limit: what cut them, in words.
    """
    if 2 * cut <= read:
        return []
    return [
        f"{cut} of {read} records were cut to the first tokens that {limit} leaves for them: the run has read the "
        "beginnings of texts only."
    ]
