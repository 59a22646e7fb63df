"""The ε of the seeded bugs and of the right generators, by enumerating noise: no formula of theirs is used."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import seeded_bugs as bugs
from enumerated_noise import Enumerated, pmf
from scipy import stats

from dpassay.accounting import PureDP
from dpassay.testing import assert_never_exceeds

Law = dict[tuple[int, ...], float]

ROUNDING = 1e-12
"""Of sums of some thousand positive products, each of a relative error near 1e-15."""
CHANGED = {"add_remove": [3, 9], "replace_one": [2, 3, 8, 9]}
"""The counts in which the neighbours of the cases differ, by the place of their noise."""


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Enumerated:
    result = Enumerated()
    monkeypatch.setattr(bugs, "noise", result)
    return result


def outputs(
    generate: bugs.Generator, rows: bugs.Rows, cells: list[int], reach: int, noise: Enumerated
) -> Iterator[tuple[tuple[int, ...], float, bool]]:
    """Counts of the output and probability of each noise on `cells`, and whether a tail was put on a value above.

    There is no noise on the other counts. They are independent, so they change no ratio of probabilities.
    """
    noise.start({})
    generate(rows, 0)
    law = pmf(noise.scale, reach)
    for drawn in itertools.product(law, repeat=len(cells)):
        noise.start(dict(zip(cells, drawn, strict=True)))
        yield bugs.counts(generate(rows, 0)), math.prod(law[value] for value in drawn), reach in drawn


def epsilon(
    generate: bugs.Generator, item: bugs.Rows, other: bugs.Rows, cells: list[int], reach: int, noise: Enumerated
) -> float:
    """The largest log-ratio of the probabilities of an output, over all whose counts are too small for the tail above.

    The tail below is exact, if no count is above `reach`: counts below zero become zero.
    """
    laws = [law_of(generate, rows, cells, reach, noise) for rows in (item, other)]
    return max(abs(math.log(laws[0][key] / laws[1][key])) for key in laws[0].keys() & laws[1].keys())


def law_of(generate: bugs.Generator, rows: bugs.Rows, cells: list[int], reach: int, noise: Enumerated) -> Law:
    """The probability of each output whose counts are too small for the tail above."""
    law: Law = defaultdict(float)
    for output, probability, cut in outputs(generate, rows, cells, reach, noise):
        if not cut:
            law[output] += probability
    return law


FINITE = [case for case in (*bugs.BUGS, *bugs.RIGHT) if math.isfinite(case.epsilon)]
INFINITE = [case for case in bugs.BUGS if math.isinf(case.epsilon)]


@pytest.mark.grid
@pytest.mark.parametrize("case", FINITE, ids=lambda case: case.name)
def test_a_finite_epsilon_is_attained_and_the_score_is_optimal(case: bugs.Case, noise: Enumerated) -> None:
    """By Neyman and Pearson: the likelihood ratio of an output depends on the score alone, and grows with it."""
    data, neighbor = (
        law_of(case.generate, rows, CHANGED[case.adjacency], 2, noise) for rows in (case.data, case.neighbor)
    )
    ratios: dict[int, float] = {}
    for output in data.keys() & neighbor.keys():
        result = math.log(neighbor[output] / data[output])
        assert ratios.setdefault(case.score(output), result) == pytest.approx(result, abs=ROUNDING)
    assert sorted(ratios) == list(range(len(CHANGED[case.adjacency]) + 1))
    assert sorted(ratios.values()) == [ratios[score] for score in sorted(ratios)]
    assert max(map(abs, ratios.values())) == pytest.approx(case.epsilon, abs=ROUNDING)


SHOWN = {"labels_from_data": (2, 0.62), "singletons_suppressed": (2, 0.77), "range_from_data": (9, 0.5)}
"""The place of the noise that decides on the neighbour, and how likely its output is there by the docstring."""


@pytest.mark.parametrize("case", INFINITE, ids=lambda case: case.name)
def test_an_infinite_epsilon_has_an_output_that_only_one_neighbour_gives(case: bugs.Case, noise: Enumerated) -> None:
    index, stated = SHOWN[case.name]
    never = outputs(case.generate, case.data, list(range(5, 10)), 1, noise)
    assert all(case.score(output) == 0 for output, *_ in never)
    mass = sum(p for output, p, _ in outputs(case.generate, case.neighbor, [index], 3, noise) if case.score(output))
    assert mass > stated if case.name == "range_from_data" else round(mass, 2) == stated


@pytest.mark.parametrize("case", bugs.RIGHT, ids=lambda case: case.name)
def test_no_small_neighbours_exceed_the_epsilon_of_a_right_generator(case: bugs.Case, noise: Enumerated) -> None:
    """All tables of at most two records of three kinds, one outside of the lists: ε is attained and never exceeded."""
    kinds = [bugs.NEW, bugs.OLD, {"city": "elsewhere", "age": -5.0}]
    tables = [list(rows) for size in range(3) for rows in itertools.combinations_with_replacement(kinds, size)]
    if case.adjacency == "add_remove":
        pairs = [(rows, [*rows, kind]) for rows in tables if len(rows) < 2 for kind in kinds]
    else:
        pairs = [
            ([*rows, a], [*rows, b]) for rows in tables if len(rows) < 2 for a, b in itertools.combinations(kinds, 2)
        ]
    results = []
    for first, second in pairs:
        cells = np.flatnonzero(np.subtract(bugs.counts(first), bugs.counts(second))).tolist()
        results.append(epsilon(case.generate, first, second, cells, 2, noise))
    assert max(results) == pytest.approx(case.epsilon, abs=ROUNDING)


@pytest.mark.parametrize("scale", [1.0, 2.0, 4.0])
def test_noise_has_the_law_that_is_enumerated(scale: float) -> None:
    """By a χ² test of 20,000 draws of a fixed seed; another seed would fail with probability 1e-4."""
    draws, reach = bugs.noise(20_000, scale, np.random.default_rng(0)), 5
    law = pmf(scale, reach)
    seen = [int((np.clip(draws, -reach, reach) == value).sum()) for value in law]
    assert stats.chisquare(seen, [20_000 * probability for probability in law.values()]).pvalue > 1e-4


def test_rows_that_no_column_allows_are_counted() -> None:
    """Neighbours that an audit makes may be outside of the lists."""
    odd: bugs.Rows = [{"city": "nowhere", "age": "old"}, {"city": 7, "age": math.nan}, {"city": "west", "age": 1e9}]
    assert bugs.counts(odd) == (0, 0, 0, 1, 2, 2, 0, 0, 0, 1)
    for case in bugs.CASES.values():
        assert all(row.keys() == {"city", "age"} for row in case.generate([*odd, {}], 0))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*bugs.BUGS, *bugs.RIGHT], ids=lambda case: case.name)
def test_an_assertion_refutes_the_bugs_and_not_the_right_generators(case: bugs.Case) -> None:
    """With 5000 runs at confidence 0.9999; a right generator fails with probability at most 1e-4."""

    def mechanism(rows: bugs.Rows, source: Any) -> list[int]:
        return list(bugs.counts(case.generate(rows, source.below(2**62))))

    neighbours: Any = {"data": case.data, "neighbor": case.neighbor, "adjacency": case.adjacency}
    settings: Any = {"runs": 5000, "confidence": 0.9999, "score": case.score}
    check = functools.partial(assert_never_exceeds, mechanism, PureDP(bugs.EPSILON), **neighbours, **settings)
    if case in bugs.RIGHT:
        check()
    else:
        with pytest.raises(AssertionError, match="leaks more than it claims"):
            check()
