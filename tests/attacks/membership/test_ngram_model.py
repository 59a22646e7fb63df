"""The n-gram model against counts by hand, a slow model from the formula, and its own sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpassay.attacks.membership import ngram_model
from dpassay.attacks.membership.ngram_model import BOUNDARY, NGramModel

TEXTS = ["My 5-digit key is 04821", "My 5-digit key is 55310", "Größe: 3 µm", "", "aaaa", "abab", "My dog"]


def slow_law(texts: list[str], before: list[int], order: int) -> np.ndarray:
    """p(· | before) by the formula, longest context first, counting over all texts every time."""
    if order == 0:
        return np.full(257, 1 / 257)
    context = before[len(before) - (order - 1) :] if order - 1 <= len(before) else None
    shorter = slow_law(texts, before, order - 1)
    if context is None:
        return shorter
    counts = np.zeros(257)
    for text in texts:
        symbols = [BOUNDARY, *text.encode(), BOUNDARY]
        for index in range(1, len(symbols)):
            if index >= len(context) and symbols[index - len(context) : index] == context:
                counts[symbols[index]] += 1
    if counts.sum() == 0:
        return shorter
    kinds = np.count_nonzero(counts)
    return np.asarray((counts + kinds * shorter) / (counts.sum() + kinds))


def test_a_case_by_hand() -> None:
    """From "ab": the bigram a→b was seen once, of one kind; unigrams a, b, end once each of three kinds.

    p(b) = (1 + 3/257)/6, so p(b | a) = (1 + p(b))/2; p(a | beginning) is the same by symmetry.
    """
    unigram = (1 + 3 / 257) / 6
    model = NGramModel.fit(["ab"], order=2)
    assert model.log_probability("ab", 1) == pytest.approx(math.log((1 + unigram) / 2), rel=1e-14)
    assert model.log_probability("ab") == pytest.approx(2 * math.log((1 + unigram) / 2), rel=1e-14)
    assert model.log_probability("ac", 1) == pytest.approx(math.log((0 + 3 / 257 / 6) / 2), rel=1e-14)


@pytest.mark.parametrize("order", [1, 2, 5, 9])
def test_every_law_is_that_of_the_formula_and_sums_to_one(order: int) -> None:
    model = NGramModel.fit(TEXTS, order=order)
    assert model.order == order
    for context in ["", "M", "My 5-digit key is ", "My 5-digit key is 5", "zzz", "Gr", "aaaaaaaaaaaa", "x04", "🙂"]:
        law = model.next_probabilities(context)
        assert law.sum() == pytest.approx(1, abs=257 * 2**-52)
        assert law.min() > 0
        np.testing.assert_allclose(law, slow_law(TEXTS, [BOUNDARY, *context.encode()], order), rtol=1e-13)


def test_texts_are_products_of_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of 8 bytes, so that levels are merged and texts scored over many pieces."""
    whole = NGramModel.fit(TEXTS, order=4)
    texts = [*TEXTS, "My cat", "55310", "🙂"]
    expected = []
    for text in texts:
        symbols = [BOUNDARY, *text.encode()]
        laws = (slow_law(TEXTS, symbols[:i], 4)[symbols[i]] for i in range(1, len(symbols)))
        expected.append(sum(math.log(p) for p in laws))
    monkeypatch.setattr(ngram_model, "CHUNK", 8)
    for model in (whole, NGramModel.fit(iter(TEXTS), order=4)):
        np.testing.assert_allclose(model.log_probabilities(texts), expected, rtol=1e-12)


def test_a_start_splits_a_text_into_two_factors() -> None:
    model = NGramModel.fit(TEXTS)
    text = "Größe: 3 key"
    whole, law = model.log_probability(text), model.next_probabilities("Größe")
    for start in range(len(text) + 1):
        first = model.log_probability(text[:start])
        assert first + model.log_probability(text, start) == pytest.approx(whole, rel=1e-12)
    assert model.log_probability("Größe:", 5) == pytest.approx(math.log(law[ord(":")]))
    assert model.log_probabilities(["ab", "abc"], [2, 0]).tolist() == [0.0, model.log_probability("abc")]


def test_what_was_seen_is_likelier_than_what_was_not() -> None:
    keys = [f"My 5-digit key is {key:05d}" for key in np.random.default_rng(0).choice(100_000, 400, replace=False)]
    model = NGramModel.fit(keys[:200])
    scores = model.log_probabilities(keys, [18] * 400)
    # By chance it would be 1/2, with a standard deviation of √(401/(12·200·200)) = .029 (Mann and Whitney).
    assert np.mean(scores[:200, None] > scores[None, 200:]) > 0.8


def test_samples_have_the_law_of_the_model() -> None:
    """χ² of the first two bytes over the law worked out from `next_probabilities`; fails once in 10⁶ seeds."""
    from scipy import stats

    model = NGramModel.fit(["ab", "aa", "ba", "abb", "b"], order=3)
    drawn = model.sample(np.random.default_rng(1), 20_000, longest=2)
    cells = {"".join(pair): 0.0 for n in range(3) for pair in itertools.product("ab", repeat=n)}
    end = model.next_probabilities("")[BOUNDARY]
    cells[""] = end
    for text in [text for text in cells if text]:
        p = math.exp(model.log_probability(text))
        cells[text] = p if len(text) == 2 else p * model.next_probabilities(text)[BOUNDARY]
    expected = np.array([*cells.values(), 1 - sum(cells.values())]) * len(drawn)
    counts = np.array([sum(text == cell for text in drawn) for cell in cells])
    result = np.append(counts, len(drawn) - counts.sum())
    assert expected.min() > 5
    assert stats.chisquare(result, expected).pvalue > 1e-6


def test_samples_begin_with_their_prefix_and_repeat_what_was_counted() -> None:
    """Contexts of three bytes or more have one continuation here, seen 40 times: one level errs once in 41 draws.

    The next shorter context is drawn from then, so that two levels err once in 1681 and the 20 steps of a text in 1.2%.
    More than 20 wrong texts of 200 have probability below 10⁻¹² (Poisson with mean 2.4).
    """
    text = "My 5-digit key is 04821"
    model = NGramModel.fit([text] * 40, order=30)
    drawn = model.sample(np.random.default_rng(2), 200, prefix="My 5")
    assert all(sample.startswith("My 5") for sample in drawn)
    assert drawn.count(text) >= 180
    assert model.sample(np.random.default_rng(2), 200, prefix="My 5") == drawn
    assert model.sample(np.random.default_rng(2), 0) == []


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        NGramModel.fit([])
    with pytest.raises(ValueError, match="order must be at least 1, not 0"):
        NGramModel.fit(["a"], order=0)
    with pytest.raises(ValueError, match="order must be at most 256, not 257"):
        NGramModel.fit(["a"], order=257)
    model = NGramModel.fit(["a"])
    with pytest.raises(ValueError, match="not 3"):
        model.log_probability("ab", 3)
    with pytest.raises(ValueError, match="2 texts need as many starts, not 1"):
        model.log_probabilities(["a", "b"], [0])
    with pytest.raises(ValueError, match="longest must be at least 3, not 2"):
        model.sample(np.random.default_rng(0), 1, prefix="abc", longest=2)
    assert model.log_probabilities([]).shape == (0,)
    assert model.log_probabilities(["", "a"])[0] == 0
