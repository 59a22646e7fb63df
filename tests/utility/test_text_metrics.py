"""Words, diversity, lengths and overlap against counting by hand."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.data import word_runs
from dpassay.data.text_overlap import overlap
from dpassay.data.word_runs import HashSet, Words, distinct, occurrences
from dpassay.utility.result import Sides
from dpassay.utility.text_metrics import compare_lengths, diversity, expected_distinct

Text = tuple[str, ...]


def grams(text: Text, n: int) -> list[Text]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


def random_texts(count: int, words: str, longest: int, seed: int) -> list[Text]:
    draw = random.Random(seed)
    return [tuple(draw.choices(words, k=draw.randrange(longest + 1))) for _ in range(count)]


def joined(texts: Sequence[Text]) -> list[str]:
    return [" ".join(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("Red, green.", "red ,  GREEN .", True),
        ("red green", "redgreen", False),
        ("don't", "don ' t", True),
        ("猫が好き", "猫 が 好 き", True),
        ("Größe 3", "größe 3", True),
        ("a_b", "a b", False),
        ("\ud800 x", "x", False),
    ],
)
def test_what_a_word_is(text: str, other: str, same: bool) -> None:
    first, second = (Words.of([of]).whole()[0] for of in (text, other))
    assert (first == second) == same


SPACES = "".join(filter(str.isspace, map(chr, range(0x110000))))


@examples(67, 200)
@given(st.lists(st.text(st.sampled_from("aB7_é.,-'猫が\x00\u200b\ud800İ" + SPACES), max_size=30), max_size=6))
def test_words_are_those_of_the_whole_text(texts: list[str]) -> None:
    """Against a search of the text that is not cut at spaces, and however little is remembered."""
    a_word = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]")
    expected = [a_word.findall(text.lower()) for text in texts]
    for pieces, longest in ((2**19, 32), (2, 3), (0, 0)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(word_runs, "KNOWN_PIECES", pieces)
            patched.setattr(word_runs, "LONGEST_PIECE", longest)
            result = Words.of(texts)
        assert result.lengths.tolist() == [len(words) for words in expected]
        digests = [
            hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            for words in expected
            for word in words
        ]
        assert result.hashes.tolist() == [int.from_bytes(digest, "little") for digest in digests]


def test_little_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = word_runs.PieceHashes()
    monkeypatch.setattr(word_runs, "KNOWN_PIECES", 50)
    for number in range(1000):
        assert known[f"{number},{number}"] == known.words[str(number)] + known.words[","] + known.words[str(number)]
        assert len(known["x" * 33]) == 8
        known.forget()
        assert max(len(known), len(known.words)) <= 50
        assert "x" * 33 not in known


def test_the_hash_of_a_text_is_the_sum_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added up in whole numbers of any size."""
    monkeypatch.setattr(word_runs, "PIECE", 3)
    words = Words.of(joined([(), *random_texts(20, "abc", 9, seed=5), (), ()]))
    constants = word_runs._constants(9).tolist()
    for start, end, result in zip(words.starts[:-1], words.starts[1:], words.whole().tolist(), strict=True):
        mine = words.hashes[start:end].tolist()
        assert result == sum(a * b for a, b in zip(constants, mine, strict=False)) % 2**64


hashes = st.lists(
    st.one_of(st.integers(0, 9), st.integers(2**64 - 9, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 40)),
    max_size=60,
)


@examples(100, 300)
@given(hashes, hashes)
def test_a_set_of_hashes(held: list[int], asked: list[int]) -> None:
    """Also of hashes that crowd together, and the least and largest ones."""
    result = HashSet(np.array(held, dtype=np.uint64))
    assert result.hashes.tolist() == sorted(set(held))
    for these in (asked, asked + held):
        array = np.array(these, dtype=np.uint64)
        assert result.contains(array).tolist() == [item in held for item in these]
        assert result.hashes[result.indices(array)].tolist() == [item for item in these if item in held]


def test_a_set_of_many_hashes() -> None:
    draw = np.random.default_rng(0)
    held = np.concatenate([draw.integers(0, 2**64, 3000, dtype=np.uint64), np.arange(5, 500, dtype=np.uint64)])
    asked = np.concatenate([draw.integers(0, 2**64, 3000, dtype=np.uint64), held, np.arange(600, dtype=np.uint64)])
    assert np.array_equal(HashSet(held.copy()).contains(asked), np.isin(asked, held))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_runs_stay_within_a_text(n: int) -> None:
    """Each hash stands for one run, in order, and no run crosses from one text to the next."""
    texts = random_texts(40, "abc", 7, seed=n)
    expected = [gram for text in texts for gram in grams(text, n)]
    result = Words.of(joined(texts)).runs(n).tolist()
    assert len(result) == len(expected)
    assert len(set(zip(result, expected, strict=True))) == len(set(result)) == len(set(expected))


def test_a_text_of_n_words_has_the_hash_of_its_run() -> None:
    words = Words.of(["one two three"])
    assert words.whole().tolist() == words.runs(3).tolist()


def test_runs_do_not_depend_on_blocks_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = joined(random_texts(50, "abcd", 9, seed=3))
    whole = Words.of(texts)
    expected = whole.runs(3).tolist()
    monkeypatch.setattr(word_runs, "BLOCK", 7)
    assert Words.of(texts).runs(3).tolist() == expected
    pieces = list(whole.pieces(6))
    assert [len(piece) for piece in pieces] == [6] * 8 + [2]
    assert [run for piece in pieces for run in piece.runs(3).tolist()] == expected


@pytest.mark.parametrize("counts", [(1,), (3, 1, 2), (5,), (1, 1, 1, 1), (2, 2, 4)])
def test_expected_distinct_by_enumeration(counts: tuple[int, ...]) -> None:
    things = [kind for kind, count in enumerate(counts) for _ in range(count)]
    for draws in range(len(things) + 1):
        subsets = list(itertools.combinations(things, draws))
        expected = sum(len(set(subset)) for subset in subsets) / len(subsets)
        assert expected_distinct(np.bincount(counts), draws) == pytest.approx(expected, rel=1e-13, abs=1e-14)


def test_expected_distinct_of_many() -> None:
    """20 million things: as many kinds as draws if all differ, and the plain number of kinds if all are drawn.

    Differences of ln Γ near 3e8 are off by some 1e-7.
    """
    assert expected_distinct([0, 20_000_000], 1_000_000) == pytest.approx(1_000_000, rel=1e-5)
    assert expected_distinct([0, 0, 10**7], 2 * 10**7) == 10**7
    with pytest.raises(ValueError, match="draws must be at most"):
        expected_distinct([0, 1, 1], 4)


def test_distinct_n_by_sets() -> None:
    synthetic, real = random_texts(30, "abc", 12, seed=1), random_texts(80, "abcdefgh", 12, seed=2)
    rows = diversity(Words.of(joined(synthetic)), Words.of(joined(real)))
    assert [row.n for row in rows] == [1, 2, 3, 4]
    for row in rows:
        all_grams = {
            side: [gram for text in of for gram in grams(text, row.n)]
            for side, of in (("synthetic", synthetic), ("real", real))
        }
        common = min(map(len, all_grams.values()))
        assert row.same_size == common
        for side, of in all_grams.items():
            assert row.runs.to_json()[side] == len(of)
            assert row.distinct.to_json()[side] == pytest.approx(len(set(of)) / len(of), rel=1e-15)
            expected = expected_distinct(np.bincount(list(Counter(of).values())), common) / common
            assert row.distinct_at_same_size.to_json()[side] == pytest.approx(expected, rel=1e-12)
        assert row.distinct_at_same_size.synthetic == pytest.approx(row.distinct.synthetic, rel=1e-12)


def test_texts_without_a_run_have_no_diversity() -> None:
    rows = diversity(Words.of(["one", ""]), Words.of(["one two three four five"]))
    assert rows[0].distinct == Sides(1.0, 1.0)
    assert rows[1].distinct == Sides(None, 1.0)
    assert rows[1].distinct_at_same_size == Sides(None, None)


def test_repeats_are_counted() -> None:
    assert occurrences(np.array([5, 3, 5, 5, 9, 3, 8], dtype=np.uint64)).tolist() == [0, 2, 1, 1]
    assert occurrences(np.empty(0, dtype=np.uint64)).tolist() == [0]
    assert distinct(np.array([5, 3, 5, 9, 3], dtype=np.uint64)).tolist() == [3, 5, 9]
    assert distinct(np.empty(0, dtype=np.uint64)).tolist() == []


def test_lengths_by_hand() -> None:
    """W₁ of equally many is the mean difference in order; KS is the largest gap of the two staircases."""
    draw = np.random.default_rng(0)
    first, second = draw.integers(0, 30, size=50), draw.integers(5, 50, size=50)
    result = compare_lengths(first.tolist(), second.tolist())
    assert result.wasserstein_1 == pytest.approx(np.abs(np.sort(first) - np.sort(second)).mean(), rel=1e-12)
    gaps = [abs((first <= x).mean() - (second <= x).mean()) for x in range(60)]
    assert result.kolmogorov_smirnov == pytest.approx(max(gaps), rel=1e-12)
    assert result.synthetic.mean == pytest.approx(first.mean())
    assert result.real.quantiles[0.5] == np.median(second)
    assert result.real.quantiles[1.0] == second.max()
    same = compare_lengths([3, 4], [4, 3])
    assert (same.wasserstein_1, same.kolmogorov_smirnov) == (0, 0)
    with pytest.raises(ValueError, match="there is no real one"):
        compare_lengths([1], [])


def longest_common(text: Text, other: Text) -> int:
    return max(
        (n for n in range(1, len(text) + 1) if set(grams(text, n)) & set(grams(other, n))),
        default=0,
    )


@pytest.mark.parametrize(("run_words", "seed"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_overlap_by_sets(run_words: int, seed: int) -> None:
    synthetic, real = random_texts(60, "abcdef", 9, seed), random_texts(40, "abcdef", 9, seed + 100)
    synthetic += real[:5]
    synthetic += [()]
    pieces = [Words.of(joined(real[:7])), Words.of(joined(real[7:]))]
    result = overlap(Words.of(joined(synthetic)), pieces, run_words)
    for i, text in enumerate(synthetic):
        n = min(run_words, len(text))
        known = {gram for other in real for gram in grams(other, n)} if n else set()
        own = [gram in known for gram in grams(text, n)] if n else [False]
        assert result.share[i] == pytest.approx(sum(own) / len(own), abs=1e-15)
        streak = max((len(list(group)) for hit, group in itertools.groupby(own) if hit), default=0)
        assert result.longest[i] == (streak + n - 1 if streak else 0)
        assert result.exact[i] == (bool(text) and text in real)
        common = max(longest_common(text, other) for other in real)
        assert result.longest[i] >= common or common < n
    summary = result.summary()
    assert summary["exact_share"] == pytest.approx(result.exact.mean())
    assert summary["near_share"] == pytest.approx((result.share >= 0.5).mean())
    assert summary["longest_stretch_words"]["1"] == result.longest.max()


def test_overlap_with_nothing() -> None:
    result = overlap(Words.of(["some words of a text", "", "two words"]), [Words.of(["unlike"])])
    assert result.share.tolist() == [0, 0, 0]
    assert not result.exact.any()
    assert result.longest.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="at least one text"):
        overlap(Words.of([]), [])
