"""Canaries of text: what is planted, and that a text which repeats one is told apart."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from scipy import stats

from dpassay.attacks.canaries import texts as planted_canaries
from dpassay.attacks.canaries.texts import (
    PLAIN_WORDS,
    TEMPLATES,
    check_template,
    draw_coins,
    draw_echoes,
    draw_keys,
    echo_log_probabilities,
    form,
    numbers_in,
    printed_keys,
)
from dpassay.attacks.membership.ngram_model import NGramModel

WORDS = [f"{a}{b}{c}" for a in "bdgklm" for b in "aeiou" for c in "nrst"]


def texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=12)) for _ in range(count)]


def test_coins_are_fair_and_there_are_as_many_as_asked_for() -> None:
    """200001 fair coins are further than 6 standard deviations from half with probability below 2e-9."""
    coins = draw_coins(200_001)
    assert coins.shape == (200_001,)
    assert coins.dtype == np.bool_
    assert abs(coins.mean() - 0.5) < 6 * 0.5 / 200_001**0.5


def test_keys_are_distinct_and_not_in_the_data() -> None:
    taken = {f"{key:05d}" for key in range(0, 100_000, 2)}
    keys = draw_keys(49_000, taken, np.random.default_rng(0))
    assert len(set(keys)) == 49_000
    assert not taken & set(keys)
    assert all(re.fullmatch("[0-9]{5}", key) for key in keys)
    with pytest.raises(ValueError, match="50000 numbers like ##### are not in the data, but 50001 are needed"):
        draw_keys(50_001, taken, np.random.default_rng(0))


def test_keys_are_written_like_the_numbers_in_the_data() -> None:
    """Of 400 keys 300 are expected in the first form; outside the interval with probability below 1e-6."""
    text = "Call 0171-5550142 or 12345. On 2013-05-31 or 31/12/2013 pay 20.00 of 1234 for x12345y, 12345678."
    assert numbers_in(text) == ["0171-5550142", "12345", "12345678"]
    keys = draw_keys(400, ["0171-5550142"], np.random.default_rng(0), {"####-#######": 3, "#####": 1})
    long = [key for key in keys if re.fullmatch("[0-9]{4}-[0-9]{7}", key)]
    assert {form(key) for key in keys} == {"####-#######", "#####"}
    low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), 400, 3 / 4)
    assert low <= len(long) <= high
    # The digits are uniform: chi-squared with 9 degrees of freedom, above the limit with probability 1e-6.
    digits = np.bincount([int(item) for key in long for item in key if item != "-"], minlength=10)
    assert stats.chisquare(digits).statistic < stats.chi2.isf(1e-6, 9)


def test_a_key_is_found_where_it_stands_alone() -> None:
    written = ["It is 00042.", "123456 and 9876", "key 31337, twice: 31337", "0171-5550142x", "11-22-33"]
    keys = ["00042", "12345", "23456", "31337", "98760", "0171-5550142", "5550142", "11-22", "22-33", "17-55"]
    assert printed_keys(iter(written), keys).tolist() == [True, 0, 0, True, 0, True, True, True, True, 0]


@pytest.mark.parametrize("template", ["nothing", "{key} and {key}", "My 5-digit key is {key}"])
def test_templates_with_another_number_or_place_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape("template must have {key} once and no digit")):
        check_template(template)
    assert all(check_template(item) == item for item in TEMPLATES)


def test_echoes_end_in_common_words_that_differ() -> None:
    known = texts(300)
    known[0] += " Xavier"  # one record's word stays out of endings
    echoes = draw_echoes(500, known, np.random.default_rng(1))
    endings = [echo.text[echo.start :].split() for echo in echoes]
    assert len({tuple(ending) for ending in endings}) == len(echoes)
    assert {word for ending in endings for word in ending} == set(WORDS)
    assert {len(ending) for ending in endings} == {8}
    assert all(echo.text[: echo.start].strip() for echo in echoes)


def test_plain_words_help_out_where_the_data_have_few() -> None:
    echoes = draw_echoes(200, ["one two"] * 9 + ["three"], np.random.default_rng(0))
    assert {word for echo in echoes for word in echo.text[echo.start :].split()} == {"one", "two", *PLAIN_WORDS}


def test_a_repeated_echo_is_far_likelier_than_others() -> None:
    """Each of eight random words out of 120 costs about ln 120 nats unless it was seen; one copy leaves them apart."""
    echoes = draw_echoes(60, texts(300), np.random.default_rng(1))
    seen, copied = [echo.text for echo in echoes[:20]], [echo.text for echo in echoes[20:40]]
    plain, beside = echo_log_probabilities(texts(300, 1) + seen, echoes, copied=copied)
    assert plain[:20].min() > plain[20:].max() + 5
    assert beside[:40].min() > beside[40:].max() + 5
    np.testing.assert_allclose(beside[:20], plain[:20], atol=1)


def test_long_files_are_judged_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    echoes = draw_echoes(10, texts(300), np.random.default_rng(2))
    pieces = [[*texts(40, seed), echoes[seed].text] for seed in range(3)]
    size = max(sum(len(text) + 1 for text in piece[:-1]) for piece in pieces) + 1
    assert all(sum(len(text) + 1 for text in piece) >= size for piece in pieces)
    monkeypatch.setattr(planted_canaries, "PIECE", size)
    judged, starts = [echo.text for echo in echoes], [echo.start for echo in echoes]
    each = [NGramModel.fit(piece, order=planted_canaries.ORDER).log_probabilities(judged, starts) for piece in pieces]
    plain, beside = echo_log_probabilities((text for piece in pieces for text in piece), echoes)
    np.testing.assert_array_equal(plain, np.max(each, axis=0))
    np.testing.assert_array_equal(beside, plain)


def test_no_text_is_a_text_of_nothing() -> None:
    echoes = draw_echoes(5, texts(300), np.random.default_rng(2))
    plain, beside = echo_log_probabilities([], echoes, copied=[echoes[0].text])
    assert np.isfinite(plain).all()
    assert beside[0] > plain[0] + 50
