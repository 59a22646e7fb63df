"""Scores from released text alone, against brute force and on text that does or does not repeat records."""

from __future__ import annotations

import numpy as np
import pytest

from dpassay.attacks.membership import synthetic_text
from dpassay.attacks.membership.ngram_model import NGramModel
from dpassay.attacks.membership.synthetic_text import exposures, neighbourhood_scores, ngram_scores
from dpassay.audits.statistics.exposure import exposure_interpolated
from dpassay.data import corpora
from dpassay.mechanisms.embedding.embedder import HashedNgrams

NOTES = list(dict.fromkeys(text for text, _ in corpora.notes(900, seed=0)))
RECORDS, REFERENCE = NOTES[:200], NOTES[200:600]
COINS = np.random.default_rng(1).random(200) < 0.5


def auc(scores: np.ndarray) -> float:
    difference = scores[COINS][:, None] - scores[~COINS][None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def test_the_ngram_score_is_a_difference_of_two_laws() -> None:
    synthetic = RECORDS[:10]
    first, second = NGramModel.fit(synthetic, order=3), NGramModel.fit(REFERENCE, order=3)
    starts = [len("Patient with ")] * len(RECORDS)
    result = ngram_scores(RECORDS, iter(synthetic), iter(REFERENCE), order=3, starts=starts)
    for index in (0, 9, 199):
        text = RECORDS[index]
        expected = first.log_probability(text, starts[0]) - second.log_probability(text, starts[0])
        assert result[index] == pytest.approx(expected, rel=1e-12)
    assert (
        ngram_scores(["a"], ["ab"], order=2).tolist()
        == NGramModel.fit(["ab"], order=2).log_probabilities(["a"]).tolist()
    )


def test_the_neighbourhood_is_that_of_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of 7 texts and 3 records; float32 cosines of 128 terms are exact to 128·2⁻²⁴ < 10⁻⁵."""
    embedder = HashedNgrams()
    expected = []
    for texts in (RECORDS[100:140], REFERENCE[:30]):
        cosines = embedder.embed(RECORDS[:10]).astype(float) @ embedder.embed(texts).astype(float).T
        expected.append(np.sort(cosines, axis=1)[:, -4:].mean(axis=1))
    monkeypatch.setattr(synthetic_text, "PIECE", 7)
    monkeypatch.setattr(synthetic_text, "ROWS", 3)
    result = neighbourhood_scores(RECORDS[:10], iter(RECORDS[100:140]), iter(REFERENCE[:30]), neighbours=4)
    np.testing.assert_allclose(result, expected[0] - expected[1], atol=2e-5)
    alone = neighbourhood_scores(RECORDS[:10], RECORDS[100:140], neighbours=4)
    np.testing.assert_allclose(alone, expected[0], atol=1e-5)


def test_text_that_repeats_its_records_is_found_out_and_other_text_is_not() -> None:
    """AUC by chance is ½ with a standard deviation of √(201/(12·100·100)) = .041; 5 of them fail once in 10⁶."""
    members = [text for text, inside in zip(RECORDS, COINS, strict=True) if inside]
    copying = NGramModel.fit(members, order=30).sample(np.random.default_rng(2), 400, longest=250)
    assert auc(ngram_scores(RECORDS, copying, REFERENCE)) > 0.75  # chance and 6 deviations
    assert auc(neighbourhood_scores(RECORDS, copying, REFERENCE, neighbours=1)) > 0.75
    honest = NGramModel.fit(NOTES[600:], order=5).sample(np.random.default_rng(3), 400, longest=250)
    assert auc(ngram_scores(RECORDS, honest, REFERENCE)) == pytest.approx(0.5, abs=0.21)
    assert auc(neighbourhood_scores(RECORDS, honest, REFERENCE)) == pytest.approx(0.5, abs=0.21)


def test_exposures_are_those_of_each_canary_by_itself() -> None:
    rng = np.random.default_rng(4)
    canaries, references = rng.integers(0, 6, size=20).astype(float), rng.integers(0, 6, size=(20, 7)).astype(float)
    expected = [exposure_interpolated(canary, row) for canary, row in zip(canaries, references, strict=True)]
    assert exposures(canaries, references).tolist() == expected


def test_more_neighbours_than_memory_holds_are_too_many() -> None:
    with pytest.raises(ValueError, match="only 2 synthetic texts, fewer than the 1000000000000"):
        neighbourhood_scores(["a"], ["b", "c"], neighbours=10**12)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        ngram_scores(RECORDS, [])
    with pytest.raises(ValueError, match="only 2 reference texts, fewer than the 3 nearest"):
        neighbourhood_scores(RECORDS, RECORDS, ["a", "b"], neighbours=3)
    with pytest.raises(ValueError, match="neighbours must be at least 1"):
        neighbourhood_scores(RECORDS, RECORDS, neighbours=0)
    with pytest.raises(ValueError, match="at least 1"):
        exposures([1.0], np.zeros((1, 0)))
    with pytest.raises(ValueError, match="not NaN"):
        exposures([np.nan], [[1.0]])
