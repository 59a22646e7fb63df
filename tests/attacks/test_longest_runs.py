"""The longest run of words in common, against a search of all pairs of places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupel.attacks.longest_runs import longest_runs
from cupel.mechanisms.word_runs import Words

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
    return Words.of(" ".join(one) for one in lists)


@settings(max_examples=40)
@given(texts, texts, st.sampled_from([1, 4, 1 << 20]))
def test_every_run_is_found_and_none_goes_over_the_end_of_a_text(
    mine: list[list[str]], others: list[list[str]], chunk: int
) -> None:
    wanted = [max((in_common(text, other) for other in others), default=0) for text in mine]
    assert longest_runs(words(mine), words(others), chunk=chunk).tolist() == wanted


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
