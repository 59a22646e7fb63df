"""Canaries: fair independent coins, keys found in text, each counted once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from dpassay.attacks.canaries.reconstruction import (
    PREFIX,
    Canaries,
    Reconstruction,
    disclosed,
    extract_keys,
    reconstruct,
)
from dpassay.data import corpora


@dataclass(frozen=True)
class Document:
    text: str
    source: int | None = None
    complete: bool = True
    slot: int = 0


def test_keys_are_runs_of_exactly_five_digits() -> None:
    text = "My 5-digit key is 04821. 123456 1234 x99999y 04821, 00000-11111\n2222２"
    assert extract_keys(text) == ["04821", "99999", "00000", "11111"]
    assert extract_keys("") == []


def test_a_record_reads_like_the_builtin_corpus() -> None:
    assert PREFIX == corpora.KEY_PREFIX


def test_candidates_differ_and_never_is_apart() -> None:
    canaries = Canaries.draw(1000, seed=1)
    assert len(set(canaries.keys) | set(canaries.never)) == 2000
    assert set(canaries.source) | set(canaries.holdout) == set(canaries.keys)
    assert all(extract_keys(text) == [key] for text, key in zip(canaries.records(), canaries.source, strict=True))


def test_coins_are_fair_and_independent() -> None:
    """50000 coins: their number, and their runs, within two-sided limits missed with probability 1e-6 each."""
    coins = Canaries.draw(50_000, never=0, seed=2).included
    low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), 50_000, 0.5)
    assert low <= coins.sum() <= high
    changes = int((coins[1:] != coins[:-1]).sum())
    assert low - 1 <= changes <= high
    keys = np.array([int(key) for key in Canaries.draw(50_000, never=0, seed=2).keys])
    assert abs(stats.spearmanr(keys, coins).statistic) < 5 / np.sqrt(50_000)  # false alarm 6e-7


def test_the_number_included_is_not_fixed() -> None:
    counts = {len(Canaries.draw(100, seed=seed).source) for seed in range(20)}
    assert len(counts) > 3  # the chance of at most 3 values in 20 draws of Bin(100, ½) is below 1e-8


def test_without_a_seed_every_draw_differs() -> None:
    assert Canaries.draw(50).keys != Canaries.draw(50).keys  # equal with probability below 1e-200


def test_copies_are_records_and_not_candidates() -> None:
    canaries = Canaries.draw(40, copies=3, seed=4)
    assert len(canaries.records()) == 3 * len(canaries.source)
    result = reconstruct([Document(text) for text in canaries.records()], canaries)
    assert (result.source_hits, result.candidates, result.copies) == (len(canaries.source), 40, 3)


def test_disclosures_count_once_each() -> None:
    canaries = Canaries(("11111", "22222", "33333"), np.array([True, False, True]), ("44444",))
    documents = [Document("11111 11111"), Document("11111"), Document("22222 and 44444"), Document("3333")]
    assert disclosed(documents, canaries).tolist() == [True, True, False]
    result = reconstruct(documents, canaries)
    assert (result.source, result.holdout, result.source_hits, result.holdout_hits) == (2, 1, 1, 1)
    assert (result.never, result.never_hits, result.disclosed, result.documents) == (1, 1, 2, 4)
    assert (result.asked, result.reproduced) == (0, 0)


def test_asked_for_keys_are_those_of_each_documents_own_record() -> None:
    canaries = Canaries(("11111", "22222"), np.array([True, True]))
    records = canaries.records()
    documents = [
        Document("My 5-digit key is 11111", source=0),
        Document("My 5-digit key is 11111", source=1),
        Document("My 5-digit key is 22222 22222", source=1),
        Document("22222"),
    ]
    result = reconstruct(documents, canaries, records)
    assert (result.asked, result.reproduced) == (3, 2)
    assert reconstruct(documents, canaries).asked == 0


def test_a_document_that_the_budget_cut_off_was_not_asked() -> None:
    """One that rambles on to its largest length was, and counts as a failure."""
    canaries = Canaries(("11111",), np.array([True]))
    text = PREFIX + "11111"
    documents = [
        Document("1234567", 0, complete=False, slot=0),
        Document(text, 0, slot=0),
        Document("111", 0, complete=False, slot=0),
        Document(text, 0, slot=1),
    ]
    result = reconstruct(documents, canaries, [text])
    assert (result.asked, result.reproduced) == (3, 2)


def test_records_without_a_key_are_not_asked_for() -> None:
    canaries = Canaries(("11111",), np.array([True]))
    result = reconstruct([Document("a note", 0), Document("11111", 1)], canaries, ["a note", PREFIX + "11111"])
    assert (result.asked, result.reproduced) == (1, 1)


@pytest.mark.parametrize(
    ("keys", "included", "never"),
    [
        (("11111", "11111"), [True, False], ()),
        (("1111", "22222"), [True, False], ()),
        (("11111",), [True, False], ()),
        (("11111",), [True], ("11111",)),
    ],
)
def test_impossible_canaries_are_refused(keys: tuple[str, ...], included: list[bool], never: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"(canaries|included) must have"):
        Canaries(keys, np.array(included), never)


def test_there_are_only_so_many_keys() -> None:
    assert len(Canaries.draw(70_000, seed=0).never) == 30_000
    with pytest.raises(ValueError, match="100000 keys"):
        Canaries.draw(70_000, never=40_000)


def test_counts_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="inconsistent"):
        Reconstruction(
            candidates=10, source=5, source_hits=6, holdout_hits=0, never=0, never_hits=0, documents=1, asked=0
        )
