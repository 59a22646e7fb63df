"""The six leaks leak as they say, and their twins keep ε = 1 exactly, by noise that is coupled."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
import seeded_bugs as bugs
import seeded_leaks as leaks
from enumerated_noise import Enumerated, pmf
from numpy.typing import NDArray
from scipy import stats

from dpassay.accounting import PureDP
from dpassay.testing import assert_never_exceeds

ROUNDING = 1e-12
HIGH = 5
"""Noise above what any step after the counts changes: no count is below zero, and no city is missing."""
RUNS = 2000
INFINITE = [leak for leak in leaks.LEAKS if math.isinf(leak.epsilon)]


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Enumerated:
    result = Enumerated()
    monkeypatch.setattr(leaks, "noise", result)
    return result


def by_name(leak: leaks.Leak) -> str:
    return leak.name


def cells(table: bugs.Rows) -> NDArray[np.int64]:
    """The counts of a table, of each month if it has some, shape (n,)."""
    return np.ravel(leaks.by_month(table) if "month" in table[0] else bugs.counts(table))


def truth(generate: bugs.Generator, rows: bugs.Rows, noise: Enumerated) -> NDArray[np.int64]:
    """What a generator counts, by an output with the same noise on each count, shape (n,)."""
    noise.start(dict.fromkeys(range(1000), HIGH))
    return cells(generate(rows, 0)) - HIGH


def small_pairs(adjacency: str) -> list[tuple[bugs.Rows, bugs.Rows]]:
    """All neighbours of at most two records of five kinds."""
    kinds: bugs.Rows = [
        {"month": 1, **bugs.NEW},
        {"month": 4, **bugs.OLD},
        {"month": 1, "city": "west", "age": 97.5},
        {"month": 6, "city": "elsewhere", "age": -5.0},
        {},
    ]
    tables = [list(rows) for size in range(2) for rows in itertools.combinations_with_replacement(kinds, size)]
    if adjacency == "add_remove":
        return [(rows, [*rows, kind]) for rows in tables for kind in kinds]
    return [([*rows, a], [*rows, b]) for rows in tables for a, b in itertools.combinations(kinds, 2)]


@pytest.mark.parametrize("leak", leaks.LEAKS, ids=by_name)
def test_a_twin_counts_as_much_as_its_noise_covers(leak: leaks.Leak, noise: Enumerated) -> None:
    """Noise of a scale on integers that move by c in sum is (c / scale)-DP: a pair attains ε = 1, none exceeds it."""
    spent = []
    for first, second in [*small_pairs(leak.adjacency), (leak.data, leak.neighbor)]:
        moved = np.abs(truth(leak.twin, first, noise) - truth(leak.twin, second, noise)).sum()
        spent.append(moved / noise.scale)
    assert max(spent) == pytest.approx(bugs.EPSILON, abs=ROUNDING)


@pytest.mark.parametrize("leak", leaks.LEAKS, ids=by_name)
def test_a_twin_looks_at_its_rows_once(leak: leaks.Leak, noise: Enumerated) -> None:
    """Whenever noise makes up for what the counts of neighbours differ in, the tables are the same, in each cell."""
    rng = np.random.default_rng(0)
    for first, second in [*small_pairs(leak.adjacency), (leak.data, leak.neighbor)]:
        moved = truth(leak.twin, first, noise) - truth(leak.twin, second, noise)
        for seed in range(5):
            drawn = rng.integers(-3, 4, moved.size)
            noise.start(dict(enumerate(drawn.tolist())))
            table = leak.twin(first, seed)
            noise.start(dict(enumerate((drawn + moved).tolist())))
            assert leak.twin(second, seed) == table


def apart(reach: int) -> float:
    """The probability that noisy counts of one record and of none differ, negative ones being zero, by enumeration."""
    law = pmf(bugs.ADD_REMOVE_SCALE, reach)
    pairs = itertools.product(law.items(), repeat=2)
    return sum(p * q for (one, p), (none, q) in pairs if max(1 + one, 0) != max(none, 0))


def positive(scale: float) -> float:
    return sum(probability for value, probability in pmf(scale, 60).items() if value >= 0)


STATED = {
    "decimals_from_data": (0.99, 1.0),
    "ages_of_records": (positive(bugs.REPLACE_ONE_SCALE), 1.0),
    "noise_cached_by_count": (apart(60),) * 2,
    "most_common_first": (0.99, 1.0),
    "redrawn_until_complete": (1.0, 1.0),
}
"""The least and the largest probability of the event on the neighbour."""


@pytest.mark.parametrize("leak", INFINITE, ids=by_name)
def test_an_infinite_epsilon_has_an_output_that_only_one_neighbour_gives(leak: leaks.Leak) -> None:
    """With 2,000 runs each, of fixed seeds; others would fail with probability 1e-4 at most."""
    without, with_it = (
        [leak.score(leak.generate(rows, seed)) for seed in range(RUNS)] for rows in (leak.data, leak.neighbor)
    )
    missing = 0 if leak.name != "redrawn_until_complete" else RUNS * (1 - positive(bugs.ADD_REMOVE_SCALE))
    if missing:  # here the neighbour always gives what the data set gives now and then
        assert abs(sum(without) - missing) < 4 * math.sqrt(missing)
    else:
        assert sum(without) == 0
    least, largest = STATED[leak.name]
    seen = sum(with_it)
    assert stats.binom.cdf(seen, RUNS, least) > 5e-5
    assert stats.binom.sf(seen - 1, RUNS, largest) > 5e-5


def test_the_docstrings_state_these_probabilities() -> None:
    assert f"{apart(60):.2f}" in str(leaks.noise_cached_by_count.__doc__)
    assert f"{positive(bugs.REPLACE_ONE_SCALE):.2f}" in str(leaks.ages_of_records.__doc__)
    assert f"{positive(bugs.ADD_REMOVE_SCALE):.2f}" in str(leaks.redrawn_until_complete.__doc__)


def test_a_finite_epsilon_is_that_of_all_counts_of_a_record(noise: Enumerated) -> None:
    """A count that moves from 0 to 1 attains e^(1 / scale), as the tests of `seeded_bugs.py` enumerate."""
    (leak,) = (leak for leak in leaks.LEAKS if math.isfinite(leak.epsilon))
    before, after = (truth(leak.generate, rows, noise) for rows in (leak.data, leak.neighbor))
    assert np.abs(after - before).sum() / noise.scale == pytest.approx(leak.epsilon, abs=ROUNDING)
    assert set(before[after != before]) == {0}


def test_rows_that_no_column_allows_are_no_error() -> None:
    odd: bugs.Rows = [
        {"city": "nowhere", "age": "old", "month": "May"},
        {"city": 7, "age": math.nan, "month": math.inf},
        {"city": None, "age": 1e9, "month": -3},
        {},
    ]
    for leak in leaks.LEAKS:
        for generate in (leak.generate, leak.twin):
            for rows in (odd, []):
                assert all(row.keys() >= {"city", "age"} for row in generate(rows, 0))


@pytest.mark.slow
@pytest.mark.parametrize("leak", leaks.LEAKS, ids=by_name)
def test_an_assertion_refutes_the_leaks_and_not_their_twins(leak: leaks.Leak) -> None:
    """With 5000 runs at confidence 0.9999; a twin fails with probability at most 1e-4."""

    def score_of(generate: bugs.Generator, rows: bugs.Rows, source: Any) -> int:
        return leak.score(generate(rows, source.below(2**62)))

    check = functools.partial(
        assert_never_exceeds,
        claim=PureDP(bugs.EPSILON),
        data=leak.data,
        neighbor=leak.neighbor,
        adjacency=leak.adjacency,
        runs=5000,
        confidence=0.9999,
        score=float,
    )
    check(functools.partial(score_of, leak.twin))
    with pytest.raises(AssertionError, match="leaks more than it claims"):
        check(functools.partial(score_of, leak.generate))
