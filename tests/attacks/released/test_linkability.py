"""Linkability of rows by the nearest synthetic row, against its definition, with a copy and with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.attacks.released.linkability import linkability
from dpassay.attacks.released.tables import encode

Row = dict[str, Any]


def drawn(count: int, seed: int) -> list[Row]:
    """Rows whose columns are independent: parts of a row have nothing in common but the row."""
    rng = np.random.default_rng(seed)
    return [
        {"a": float(a), "b": float(b), "c": str(c)}
        for a, b, c in zip(rng.random(count), rng.random(count), rng.integers(0, 5, count), strict=True)
    ]


def test_a_copy_links_the_source_and_not_the_holdout() -> None:
    """The positive control. The parts of a holdout row are near to different rows of 200."""
    source, holdout = drawn(200, 1), drawn(200, 2)
    result = linkability(encode(source, source, holdout), ["a"], seed=0)
    assert result.source.all()
    assert result.holdout.mean() < 0.05
    assert result.details == {"known": ["a"], "distinct_synthetic_rows": 200}


def test_rows_that_do_not_depend_on_the_source_link_both_alike() -> None:
    """The negative control: 400 links by chance 1/300 on either side; more than 10 has probability below 10⁻⁶."""
    result = linkability(encode(drawn(300, 3), drawn(400, 1), drawn(400, 2)), ["a", "c"], seed=0)
    assert result.source.sum() <= 10
    assert result.holdout.sum() <= 10


def test_links_are_those_of_the_definition() -> None:
    """Numbers without ties: the nearest in each part by brute force."""
    synthetic, source, holdout = drawn(40, 4), drawn(60, 5), drawn(50, 6)
    tables = encode(synthetic, source, holdout, ignore=("c",))
    every = source + holdout
    width = {name: max(row[name] for row in every) - min(row[name] for row in every) for name in ("a", "b")}

    def nearest(row: Row, name: str) -> int:
        return min(range(40), key=lambda i: min(1.0, abs(synthetic[i][name] - row[name]) / width[name]))

    linked = [nearest(row, "a") == nearest(row, "b") for row in every]
    result = linkability(tables, ["b"], seed=1)
    assert [*result.source.tolist(), *result.holdout.tolist()] == linked
    assert any(linked)


def test_ties_link_by_chance_only() -> None:
    """Every row is equally near to all of 50 synthetic rows in both parts, so 1 in 50 seeds links all of them, and the
    others none: two random orders begin with the same row. 1000 seeds; more than 45 has probability below 10⁻⁵."""
    synthetic = [{"a": f"x{i}", "b": f"y{i}"} for i in range(50)]
    rows = [{"a": f"p{i}", "b": f"q{i}"} for i in range(20)]
    tables = encode(synthetic, rows[:10], rows[10:])
    seeds = [bool(linkability(tables, ["a"], seed=seed).source.any()) for seed in range(1000)]
    assert 4 <= sum(seeds) <= stats.binom.isf(1e-5, 1000, 1 / 50)


def test_copies_of_a_synthetic_row_are_one_row() -> None:
    """However the parties break ties, both find the row that is there five times."""
    source = drawn(30, 7)
    result = linkability(encode(source * 5, source, drawn(30, 8)), ["a"], seed=3)
    assert result.source.all()
    assert result.details["distinct_synthetic_rows"] == 30


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([], "the first party of linkability knows no column; name some of the 3 columns"),
        (["a", "b", "c"], "the second party of linkability knows no column; name some of the 3 columns"),
        (["z"], "'z'"),
    ],
)
def test_each_party_knows_a_column(known: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linkability(encode(drawn(5, 0), drawn(5, 1), drawn(5, 2)), known, seed=0)
