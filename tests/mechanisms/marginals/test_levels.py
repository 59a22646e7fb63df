"""Levels of columns: which values they hold, and rows that are drawn from them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.data.table_schema import MISSING, Schema
from dpassay.mechanisms.marginals.levels import Levels


def schema(*columns: dict[str, Any]) -> Schema:
    return Schema.model_validate({"columns": columns})


@pytest.mark.parametrize("bins", [2, 3, 7, 10, 11, 100])
def test_levels_of_numbers_are_runs_of_values_of_nearly_one_size(bins: int) -> None:
    numbers = schema({"name": "x", "type": "number", "low": -0.3, "high": 0.7, "decimals": 1, "missing": True})
    column = numbers.columns[0]
    words = [column.word_at(index) for index in range(column.size)]
    levels = Levels(numbers, bins)
    (own,) = levels.of([(word,) for word in [*words, MISSING]])
    present = min(bins, 11)
    assert levels.sizes == (present + 1,)
    assert own[-1] == present
    assert own[:-1].tolist() == sorted(own[:-1].tolist())
    sizes = Counter(own[:-1].tolist())
    assert sorted(sizes) == list(range(present))
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_levels_of_a_huge_domain_do_not_overflow() -> None:
    """The largest whole numbers that a schema allows, against exact integers of Python."""
    numbers = schema({"name": "x", "type": "number", "low": -(2**52), "high": 2**52})
    values = [-(2**52), -(2**52) + 1, -1, 0, 1, 2**52 - 1, 2**52]
    (own,) = Levels(numbers, 1000).of([(str(value),) for value in values])
    assert own.tolist() == [(value + 2**52) * 1000 // (2**53 + 1) for value in values]
    drawn = Levels(numbers, 1000).rows([own], np.random.default_rng(0))
    assert Levels(numbers, 1000).of(drawn)[0].tolist() == own.tolist()


def test_rows_are_of_their_levels_and_uniform_within_them() -> None:
    """Seeded; the chi-square test of 30 + 3 cells has a false alarm once in a million."""
    mixed = schema(
        {"name": "age", "type": "number", "low": 0, "high": 89, "missing": True},
        {"name": "sex", "type": "category", "values": ["f", "m"], "missing": True},
        {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2020-01-10"},
    )
    levels = Levels(mixed, 3)
    assert levels.sizes == (4, 3, 3)
    rng = np.random.default_rng(0)
    given = [rng.integers(size, size=9000) for size in levels.sizes]
    rows = levels.rows(given, rng)
    for own, back in zip(given, levels.of(rows), strict=True):
        assert own.tolist() == back.tolist()
    ages = Counter(row[0] for row, level in zip(rows, given[0].tolist(), strict=True) if level == 1)
    assert sorted(ages) == [str(age) for age in range(30, 60)]
    assert stats.chisquare(list(ages.values())).pvalue > 1e-6
    assert {row[1] for row in rows} == {"f", "m", MISSING}


def test_a_word_outside_the_domain_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="outside the public domain") as refused:
        Levels(schema({"name": "sex", "type": "category", "values": ["f", "m"]}), 8).of([("q",)])
    assert "'q'" not in str(refused.value)
