"""Extraction counts units: verbatim, near-verbatim, and those with the longest runs."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy import stats

from dpassay.attacks.released.holdout import Hits, Units, content_key
from dpassay.attacks.released.text_extraction import Criteria, ExtractionSide, extraction
from dpassay.data.word_runs import Words

A = "the quick brown fox jumps over the lazy dog at noon"
B = "a slow green turtle crawls under an eager cat by night"
SHORT = "hello there"


def extracted(synthetic: list[str], source: list[str], holdout: list[str], **rule: float) -> dict[str, Hits]:
    units = Units.of([content_key(text) for text in source], [content_key(text) for text in holdout])
    result = extraction(Words.of(synthetic), Words.of(source), Words.of(holdout), units, Criteria(**rule))  # type: ignore[arg-type]
    return {hits.name: hits for hits in result}


def grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def by_definition(records: list[str], synthetic: list[str], rule: Criteria) -> list[tuple[bool, bool, int]]:
    """Verbatim, near-verbatim and the longest run of each record, by searching all texts for every run."""
    given, out = [text.split() for text in synthetic], []

    @functools.cache
    def held(n: int) -> set[tuple[str, ...]]:
        return {run for other in given for run in grams(other, n)}

    for words in map(str.split, records):

        def share(n: int, words: list[str] = words) -> float:
            runs = grams(words, min(n, len(words))) if words else []
            return sum(run in held(len(run)) for run in runs) / max(1, len(runs))

        longest = max((n for n in range(1, len(words) + 1) if share(n) > 0), default=0)
        verbatim = share(rule.words) > 0
        out.append((verbatim, share(rule.near_words) >= rule.near_share, longest if verbatim else 0))
    return out


@examples(60, 600)
@given(st.integers(0, 10**9), st.sampled_from([(8, 4, 0.75), (3, 2, 0.5), (1, 1, 1.0), (5, 6, 0.2)]))
def test_everything_that_is_found_is_so_by_definition(seed: int, rule: tuple[int, int, float]) -> None:
    """Texts of few different words, some of which repeat parts of others; several are empty or short."""
    draw = random.Random(seed)
    texts = [draw.choices("abcdefg"[: draw.randint(2, 7)], k=draw.choice([0, 1, 3, 9, 20])) for _ in range(24)]
    for text in draw.sample(texts, 8):
        other = draw.choice(texts)
        begin, end = sorted(draw.choices(range(len(other) + 1), k=2))
        text[draw.randint(0, len(text)) :] = other[begin:end]
    written = [" ".join(text) for text in texts]
    criteria = Criteria(*rule)
    side = ExtractionSide.of(Words.of(written[:12]), Words.of(written[12:]), criteria)
    result = zip(side.verbatim.tolist(), side.near.tolist(), side.longest.tolist(), strict=True)
    assert list(result) == by_definition(written[:12], written[12:], criteria)


@pytest.mark.parametrize(("length", "hit"), [(7, False), (8, True), (9, True)])
def test_verbatim_is_a_run_of_so_many_words(length: int, hit: bool) -> None:
    given = "We saw that " + " ".join(A.upper().split()[1 : 1 + length]) + ", and left."
    result = extracted([given], [A], [B])["verbatim_extraction"]
    assert result.source.tolist() == [hit]
    assert result.holdout.tolist() == [False]


def test_a_shorter_record_counts_where_it_occurs_whole() -> None:
    result = extracted(["He said: hello there, you!"], [SHORT, "hello you"], [B])["verbatim_extraction"]
    assert result.source.tolist() == [True, False]


def test_near_verbatim_is_a_share_of_runs() -> None:
    """11 words have 8 runs of 4; a word exchanged in the middle breaks 4 of them, at the end 1."""
    middle, end = A.replace("over", "beyond"), A.replace("noon", "dawn")
    for text, share in ((middle, 4 / 8), (end, 7 / 8)):
        for threshold in (share - 0.01, share, share + 0.01):
            result = extracted([text], [A], [B], near_share=threshold)["near_verbatim_extraction"]
            assert result.source.tolist() == [threshold <= share]


def test_the_longest_runs_are_guessed_in_a_number_that_is_fixed() -> None:
    """Of 20 units the share .15 is 3: those with 10, 9 and 3 words, of which the last may be too few, and .05 is 1."""
    source = [f"{i} {i}x {i}y filler words in here" for i in range(8)] + [A, B]
    holdout = [f"{i} {i}x {i}y filler words in here" for i in range(20, 30)]
    given = [" ".join(A.split()[:9]), " ".join(B.split()[:10]), "24 24x 24y"]
    for words, share, hit in ((3, 0.15, ([8, 9], [4])), (3, 0.05, ([9], [])), (4, 0.15, ([8, 9], []))):
        result = extracted(given, source, holdout, longest_share=share, words=words)["longest_runs"]
        assert (np.flatnonzero(result.source).tolist(), np.flatnonzero(result.holdout).tolist()) == hit
    quantiles = result.details["longest_run"]
    assert quantiles["source"]["quantiles"] == {"0.5": None, "0.95": 10, "0.99": 10, "1": 10}
    assert quantiles["holdout"]["quantiles"]["1"] is None


def test_ties_are_broken_without_looking_at_the_side() -> None:
    """All have the same two words in common with the synthetic one: of 400 guesses source units are hypergeometric."""
    source, holdout = ([f"{side}{i} one two" for i in range(1000)] for side in "sh")
    result = extracted(["one two three"], source, holdout, longest_share=0.2, words=2)["longest_runs"]
    assert result.source.sum() + result.holdout.sum() == 400
    low, high = stats.hypergeom.ppf(np.array([5e-7, 1 - 5e-7]), 2000, 1000, 400)
    assert low <= result.source.sum() <= high  # false alarm 1e-6


def test_copies_are_one_unit_and_what_is_on_both_sides_is_none() -> None:
    result = extracted([A, B], [A, A, B, SHORT], [B, "another text", "another text"])["verbatim_extraction"]
    assert result.source.tolist() == [True, False]
    assert result.holdout.tolist() == [False]
    assert result.details["copies"] == 2
    assert result.details["in_both"] == 1


def test_a_user_is_hit_by_any_record() -> None:
    units = Units.of(["u", "v", "u"], ["w"])
    result = extraction(Words.of([A]), Words.of([SHORT, B, A]), Words.of(["x y"]), units)[0]
    assert result.source.tolist() == [True, False]
    assert units.source.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "rule", [{"words": 0}, {"near_words": 0}, {"near_share": 0.0}, {"near_share": 1.1}, {"longest_share": 1.0}]
)
def test_impossible_criteria(rule: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(rule))):
        Criteria(**rule)  # type: ignore[arg-type]


def test_an_empty_side_is_refused() -> None:
    units = Units.of([], ["x"])
    with pytest.raises(ValueError, match="needs at least one record in the source"):
        extraction(Words.of([A]), Words.of([]), Words.of([A]), units)


def test_units_do_not_depend_on_the_order_of_sides() -> None:
    units, other = Units.of(["a", "b", "a"], ["b", "c"]), Units.of(["b", "c"], ["a", "b", "a"])
    assert np.array_equal(units.source, other.holdout)
    assert np.array_equal(units.holdout, other.source)
    assert (units.copies, units.in_both) == (other.copies, other.in_both) == (1, 1)
