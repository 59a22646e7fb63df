"""The longest run of words in common, against a search of all pairs of places."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.attacks.released.longest_runs import longest_runs
from dpassay.data.word_runs import Words

texts = st.lists(st.lists(st.sampled_from("abc"), max_size=9), max_size=5)


def in_common(first: list[str], second: list[str]) -> int:
    """By definition."""
    best = 0
    for i in range(len(first)):
        for j in range(len(second)):
            n = 0
            while i + n < len(first) and j + n < len(second) and first[i + n] == second[j + n]:
                n += 1
            best = max(best, n)
    return best


def words(lists: list[list[str]]) -> Words:
    return Words.of(" ".join(item) for item in lists)


@examples(14, 40)
@given(texts, texts, st.sampled_from([1, 4, 1 << 20]))
def test_every_run_is_found_and_none_goes_over_the_end_of_a_text(
    mine: list[list[str]], others: list[list[str]], chunk: int
) -> None:
    wanted = [max((in_common(text, other) for other in others), default=0) for text in mine]
    assert longest_runs(words(mine), words(others), chunk=chunk).tolist() == wanted


@examples(27, 80)
@given(texts, texts, st.integers(2, 4), st.sampled_from([4, 1 << 20]))
def test_shorter_runs_are_not_looked_for(
    mine: list[list[str]], others: list[list[str]], least: int, chunk: int
) -> None:
    runs = [max((in_common(text, other) for other in others), default=0) for text in mine]
    result = longest_runs(words(mine), words(others), least=least, chunk=chunk)
    assert result.tolist() == [run if run >= least else 0 for run in runs]


def test_only_words_of_runs_in_common_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three texts of 200 words, parts of two: the run over their end in another text is two stretches here."""
    from dpassay.attacks.released import longest_runs as module

    sorted_: list[tuple[int, int]] = []
    of_chunk = module.of_chunk

    def watched(a: Any, b: Any) -> Any:
        sorted_.append((len(a.hashes), len(b.hashes)))
        return of_chunk(a, b)

    monkeypatch.setattr(module, "of_chunk", watched)
    rare = [f"{letter}{number}" for letter in "pqr" for number in range(200)]
    mine = [" ".join(rare[i : i + 200]) for i in (0, 200, 400)]
    others = [f"x {' '.join(rare[190:210])} y {' '.join(rare[50:59])}", f"{' '.join(rare[3:7])} z"]
    assert longest_runs(Words.of(mine), Words.of(others), least=5).tolist() == [10, 10, 0]
    assert sorted_ == [(29, 29)]


def test_runs_are_those_of_their_texts_however_many() -> None:
    texts = [f"a b {number % 5000} c" if number % 7 else "a" for number in range(10_000)]
    result = longest_runs(Words.of(texts), Words.of(texts[9990:]), least=3)
    assert result.tolist() == [4 * (text in texts[9990:]) * (" " in text) for text in texts]


def test_texts_that_are_all_the_same() -> None:
    others = ["x a b c"] * 50
    assert (
        longest_runs(Words.of(["a b"] * 50 + ["b c y"] * 50 + [""] * 9), Words.of(others)).tolist()
        == [2] * 100 + [0] * 9
    )


@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_a_long_text_that_is_repeated_whole(chunk: int) -> None:
    long = " ".join(str(number) for number in range(3000))
    assert longest_runs(
        Words.of([long, "none of it", "7 8 9 x"]), Words.of(["y", f"x {long} x"]), chunk=chunk
    ).tolist() == [
        3000,
        0,
        3,
    ]
