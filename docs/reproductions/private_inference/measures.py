"""Utility of what a run wrote, in one row of numbers. They are exact numbers about made-up or public data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from grammar import topic_of

from dpassay.data import corpora
from dpassay.data.word_runs import Words
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.utility.frechet import embedded_moments
from dpassay.utility.mauve import compute_mauve, mauve_score
from dpassay.utility.text_classifiers import predictions
from dpassay.utility.text_metrics import diversity

Rows = Sequence[tuple[str, str | None]]
"""Texts with their labels; no classifier is trained where a label is None."""

COLUMNS: list[dict[str, Any]] = [
    {"title": "documents", "key": "documents", "digits": 0},
    {"title": "Fréchet", "key": "frechet"},
    {"title": "MAUVE", "key": "mauve"},
    {"title": "topics TV", "key": "topic_distance"},
    {"title": "recognised TV", "key": "recognised_distance"},
    {"title": "in grammar", "key": "in_grammar"},
    {"title": "distinct-2", "key": "distinct_2", "digits": 2},
    {"title": "accuracy", "key": "accuracy"},
]
"""Of a table of `utility`; `mauve` is missing where the package is."""
NAMES = tuple(str(column["key"]) for column in COLUMNS)


def total_variation(first: Counter[str], second: Counter[str]) -> float | None:
    """Half the sum of absolute differences of shares; None where one side has nothing."""
    if not first.total() or not second.total():
        return None
    kinds = first.keys() | second.keys()
    return sum(abs(first[kind] / first.total() - second[kind] / second.total()) for kind in kinds) / 2


def topics(texts: Sequence[str]) -> Counter[str]:
    """How many texts each topic's grammar derives whole, and the notes' wording; ``none`` is the rest."""
    return Counter(topic_of(text) or ("note" if corpora.well_formed_note(text) else "none") for text in texts)


def utility(written: Rows, real: Rows, test: Rows, seed: int = 0) -> dict[str, Any]:
    """Numbers of synthetic texts beside the real ones they were made from.

    Args:
        written: synthetic texts.
        real: that the generator saw.
        test: real ones that it did not see, for the classifier.
        seed: of public choices within MAUVE.

    Returns:
        ``frechet`` (the squared distance in the space of the builtin embedder), ``mauve`` (50 buckets), the
        total-variation distance of topics with what is in no grammar as a class of its own (``topic_distance``) and
        without it (``recognised_distance``), the share of texts wholly ``in_grammar``, ``distinct_2`` (the share of
        different pairs of words over that of real texts, at the same size) and ``accuracy`` on `test`.
    """
    texts, real_texts = [text for text, _ in written], [text for text, _ in real]
    embed = HashedNgrams().embed
    fits = [embedded_moments(side, embed).fit for side in (texts, real_texts)]
    assert fits[0] is not None
    assert fits[1] is not None
    made, true = topics(texts), topics(real_texts)
    distinct = diversity(Words.of(texts), Words.of(real_texts))[1].distinct_at_same_size
    found: dict[str, Any] = {
        "documents": len(texts),
        "frechet": fits[0].distance(fits[1]),
        "mauve": _mauve(texts, real_texts, seed),
        "topic_distance": total_variation(made, true),
        "in_grammar": 1 - made["none"] / len(texts),
        "distinct_2": distinct.synthetic / distinct.real,
        "accuracy": accuracy(written, test),
        "topics": dict(sorted(made.items())),
    }
    del made["none"], true["none"]
    return found | {"recognised_distance": total_variation(made, true)}


def accuracy(written: Rows, test: Rows) -> float | None:
    """Of a classifier trained on synthetic texts, on real ones; None without labels."""
    labels = [label for _, label in written if label is not None]
    if len(labels) < len(written):
        return None
    answers = predictions([text for text, _ in written], labels, [text for text, _ in test])
    return float(np.mean(answers == np.array([label for _, label in test])))


def _mauve(texts: Sequence[str], real: Sequence[str], seed: int) -> float | None:
    """None where the package is missing, or there are fewer texts than buckets."""
    embed = HashedNgrams().embed
    try:
        compute_mauve()
        return float(mauve_score(embed(texts), embed(real), seed=seed).value)
    except ValueError:
        return None
