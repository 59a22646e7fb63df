"""A classifier trained on synthetic texts and tested on real ones, beside one trained on real texts.

Every number is computed from private labels and texts, and is private.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dpassay.base import defaults, validate
from dpassay.base.arrays import Bools, Floats
from dpassay.utility.result import Result

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MAX_LABELS = 100
FEATURES = 2**16
HELD_OUT_SHARE = 0.3
RESAMPLES = 1000
_ITERATIONS = 300
_ROWS = 4096  # texts hashed at once

Labels = NDArray[np.str_]
TestedOn = Literal["held_out", "real"]


@dataclass(frozen=True)
class Score(Result):
    """A score in [0, 1] with the lower and upper end of its bootstrap interval."""

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class TextClassifierScores(Result):
    """Accuracy and macro F1 of one classifier on the test texts."""

    accuracy: Score
    macro_f1: Score


@dataclass(frozen=True)
class TrainingTexts(Result):
    """The numbers of texts that classifiers were trained and tested on."""

    synthetic: int
    real_training: int
    real_test: int


@dataclass(frozen=True)
class ClassifierComparison(Result):
    """Scores of three classifiers on the same real test texts.

    Attributes:
        train_on_synthetic: trained on synthetic texts.
        train_on_real: trained on real texts, the ceiling.
        majority_class: the most frequent label of the real training texts everywhere, the floor.
        confidence: of the intervals, in (0, 1).
        texts: sizes of the training and test sets.
        labels: the number of different labels of real texts.
        unknown_label_share: fraction of synthetic texts whose label no real text has, in [0, 1].
        tested_on: ``held_out`` for texts that the generator never saw, ``real`` for texts set apart of those it saw.
    """

    train_on_synthetic: TextClassifierScores
    train_on_real: TextClassifierScores
    majority_class: TextClassifierScores
    confidence: float
    texts: TrainingTexts
    labels: int
    unknown_label_share: float
    tested_on: TestedOn


def held_out(texts: Sequence[str], share: float = HELD_OUT_SHARE, seed: int = 0) -> Bools:
    """Which real texts are set apart for testing, an expected share in (0, 1) of different texts: a hash of the text,
    with a public seed, decides, so that equal texts stay together."""
    validate.open_probability(share=share)
    key = str(seed).encode()
    below = int(share * 2**64)
    digests = (hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8, key=key).digest() for text in texts)
    return np.fromiter((int.from_bytes(digest, "little") < below for digest in digests), np.bool_, len(texts))


def predictions(texts: Sequence[str], labels: Sequence[str], asked: Sequence[str]) -> Labels:
    """Labels of `asked` by a classifier trained on at least one labelled text.

    TF-IDF of hashed words and pairs of words, and logistic regression with scikit-learn's default penalty. Where all
    training texts have one label, it is the answer everywhere.

    Raises:
        ValueError: for an empty training set or more than `MAX_LABELS` labels.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    known = np.unique(np.asarray(labels, dtype=np.str_))
    if not len(known):
        raise ValueError("a classifier is trained on at least one text; there is none")
    if len(known) > MAX_LABELS:
        raise ValueError(f"there are {len(known)} labels, at most {MAX_LABELS} are compared; name another label column")
    if len(known) == 1 or not len(asked):
        return np.full(len(asked), known[0])
    known_texts, asked_texts = _hashed(texts), _hashed(asked)
    used = np.flatnonzero(np.bincount(known_texts.indices, minlength=FEATURES))
    if len(used) < FEATURES:  # as with a vocabulary, what no training text has is left out
        known_texts, asked_texts = known_texts[:, used], asked_texts[:, used]
    weights = TfidfTransformer(sublinear_tf=True).fit(known_texts)
    model = LogisticRegression(max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(weights.transform(known_texts, copy=False), np.asarray(labels, dtype=np.str_))
    return np.asarray(model.predict(weights.transform(asked_texts, copy=False)), dtype=np.str_)


def _hashed(texts: Sequence[str]) -> csr_matrix:
    """Counts of hashed words and pairs of words, shape (N, `FEATURES`)."""
    from scipy.sparse import vstack
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        token_pattern=r"(?u)\w+|[^\w\s]",
        ngram_range=(1, 2),
        n_features=FEATURES,
        alternate_sign=False,
        norm=None,
        dtype=np.float32,
    )
    pieces = [texts[begin : begin + _ROWS] for begin in range(0, len(texts), _ROWS)]
    # Lone surrogates have no UTF-8.
    return vstack([hashing.transform([text.encode("utf-8", "replace").decode() for text in of]) for of in pieces])


def largest_class(labels: Sequence[str], count: int) -> Labels:
    """The most frequent label, first in alphabetical order among equals, `count` times."""
    known, counts = np.unique(np.asarray(labels, dtype=np.str_), return_counts=True)
    return np.full(count, known[counts.argmax()])


def scores(
    true: Sequence[str], predicted: Sequence[str], *, confidence: float = defaults.CONFIDENCE, seed: int = 0
) -> TextClassifierScores:
    """Accuracy and macro F1 with percentile bootstrap intervals over the test texts.

    Macro F1 is the mean over the labels of the test texts of 2TP/(2TP + FP + FN). A resample depends on the numbers of
    the (true, predicted) pairs alone, which are multinomial, so no text is resampled one by one. In a resample without
    a label, neither true nor predicted, that label has no part in the mean.

    Args:
        true, predicted: shape (n,), n ≥ 1.
        confidence: of the intervals, in (0, 1).
        seed: of the resamples.

    Raises:
        ValueError: for no test text, or arrays of different lengths.
    """
    validate.open_probability(confidence=confidence)
    if not len(true) or len(true) != len(predicted):
        raise ValueError(f"scores are over at least one test text, each with a prediction, not {len(true)}")
    classes, coded = np.unique(np.concatenate([np.asarray(true), np.asarray(predicted)]), return_inverse=True)
    n, k = len(true), len(classes)
    cells, counts = np.unique(coded[:n] * k + coded[n:], return_counts=True)
    draw = np.random.default_rng(seed)
    resamples = np.concatenate([counts[None], draw.multinomial(n, counts / n, size=RESAMPLES)]).astype(np.float64)
    right, left = cells // k, cells % k
    correct = resamples[:, right == left]
    occurs = np.unique(right)
    one_hot = np.eye(k)
    hits = correct @ one_hot[right[right == left]]
    both = resamples @ (one_hot[right] + one_hot[left])  # 2TP + FP + FN
    with np.errstate(invalid="ignore"):
        f1 = (2 * hits / both)[:, occurs]
    return TextClassifierScores(
        accuracy=_score(correct.sum(axis=1) / n, confidence), macro_f1=_score(np.nanmean(f1, axis=1), confidence)
    )


def _score(values: Floats, confidence: float) -> Score:
    """The first value, with the percentile interval of the others."""
    low, high = np.quantile(values[1:], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Score(float(values[0]), (float(low), float(high)))


def downstream(
    synthetic: tuple[Sequence[str], Sequence[str]],
    real: tuple[Sequence[str], Sequence[str]],
    test: tuple[Sequence[str], Sequence[str]],
    *,
    confidence: float = defaults.CONFIDENCE,
    seed: int = 0,
    tested_on: TestedOn = "held_out",
) -> ClassifierComparison:
    """Scores of three classifiers on real test texts.

    Args:
        synthetic: texts and labels to train on.
        real: texts and labels to train the ceiling on, none of them a test text.
        test: texts and labels to test on.
        confidence: of the intervals.
        seed: of the resamples.
        tested_on: where the test texts are from.

    Raises:
        ValueError: if one of the three is empty, or there are too many labels.
    """
    for name, (texts, _) in {"synthetic": synthetic, "real training": real, "real test": test}.items():
        if not len(texts):
            raise ValueError(f"a downstream classifier needs {name} texts; there is none")
    texts, true = test
    answers = {
        "train_on_synthetic": predictions(*synthetic, texts),
        "train_on_real": predictions(*real, texts),
        "majority_class": largest_class(real[1], len(texts)),
    }
    known = {*real[1], *true}
    return ClassifierComparison(
        **{name: scores(true, of.tolist(), confidence=confidence, seed=seed) for name, of in answers.items()},
        confidence=confidence,
        texts=TrainingTexts(len(synthetic[0]), len(real[0]), len(texts)),
        labels=len(known),
        unknown_label_share=sum(label not in known for label in synthetic[1]) / len(synthetic[1]),
        tested_on=tested_on,
    )
