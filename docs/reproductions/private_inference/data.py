"""The data of the reproduction: private records, held-out texts of the same kind, and public texts for centres.

All topical texts are made up by the grammar that the embedded model knows. That is a favourable case: the model has
seen the grammar, though none of these texts, and a public text of the same grammar is as near as public text gets. The
notes are real rows, and `public_texts("other", …)` is a public corpus that fits the private one badly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from grammar import topical_document

from dpassay.data import corpora
from dpassay.data.records import Record, with_content_ids

TOPICS_OF: dict[str, tuple[str, ...]] = {
    "outdoors": ("weather", "travel", "garden", "sport"),
    "indoors": ("cooking", "music", "market", "books"),
}
"""Topics of each label, so that the records of a label are heterogeneous."""
SHARES = (0.4, 0.3, 0.2, 0.1)
"""Shares of a label's topics, in that order: real corpora have small groups too."""
LABELS = tuple(TOPICS_OF)
OTHER_TOPICS = ("weather", "travel", "cooking", "music")
"""Half of the topics: all that the public corpus ``other`` has."""

_PARTS = {"private": 1, "held out": 2, "public": 3}
Part = Literal["private", "held out", "public"]
PublicKind = Literal["same", "other"]
PUBLIC_KINDS: tuple[PublicKind, ...] = ("same", "other")
CentreSource = Literal["private", "same", "other"]
CENTRE_NAMES: dict[CentreSource, str] = {
    "private": "private k-means",
    "same": "public centres",
    "other": "centres of other text",
}


def topical(count: int, seed: int, part: Part = "private", shares: Sequence[float] = SHARES) -> list[tuple[str, str]]:
    """Made-up documents with their labels: labels in equal parts, topics within a label by `shares`.

    Args:
        count: how many.
        seed: of the draw; the parts of one seed are independent draws.
        part: which of them.
        shares: of a label's topics.

    Returns:
        Pairs (text, label); `corpus.topic_of` gives a text's topic.
    """
    rng = np.random.default_rng([_PARTS[part], seed])
    rows = []
    for _ in range(count):
        label = LABELS[int(rng.integers(len(LABELS)))]
        topic = TOPICS_OF[label][int(rng.choice(len(shares), p=shares))]
        rows.append((topical_document(topic, rng), label))
    return rows


def notes(count: int, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Real notes with self-rated health as label, and as many others that are held out."""
    rows = corpora.notes(2 * count, seed)
    return rows[:count], rows[count:]


def records(rows: Sequence[tuple[str, str]]) -> list[Record]:
    """Private records whose ids come from their content."""
    return with_content_ids((text, label, None) for text, label in rows)


def public_texts(kind: PublicKind, count: int, seed: int) -> list[str]:
    """Public texts for centres.

    Args:
        kind: ``same`` is the same grammar with equal shares of all topics; ``other`` has half of the topics, and every
            other text is a note.
        count: how many.
        seed: of the draw.
    """
    equal = [1 / len(SHARES)] * len(SHARES)
    if kind == "same":
        return [text for text, _ in topical(count, seed, "public", equal)]
    rng = np.random.default_rng([_PARTS["public"], seed, 1])
    half = [topical_document(OTHER_TOPICS[int(rng.integers(len(OTHER_TOPICS)))], rng) for _ in range(count // 2)]
    return half + [text for text, _ in corpora.notes(count - count // 2, seed)]


def centre_texts(source: CentreSource, rows: Sequence[tuple[str, str]], count: int, seed: int) -> list[str]:
    """What centres are found in: the private texts themselves (which protects nothing), or `count` public ones."""
    return [text for text, _ in rows] if source == "private" else public_texts(source, count, seed)
