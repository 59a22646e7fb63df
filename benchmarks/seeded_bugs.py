"""Five generators of synthetic tables that claim ε = 1, with one bug each, and the two that they should have been.

A table is a list of rows with two columns: `city`, one of four, and `age`, from 0 to 100. All seven generators do the
same: they count how often each city and each age group occurs, add noise to the counts, and write a table with the
noisy counts; its ages are uniform in their group. They differ in the noise, the cities and the ages that they take.

Noise is discrete Laplace, P[Z = z] ∝ e^(−|z|/scale), on each count of its own (Ghosh, Roughgarden and Sundararajan,
"Universally Utility-Maximizing Privacy Mechanisms", 2009). Between two neighbours, c counts move by one. For each, the
probability of any noisy count changes by a factor of at most e^(1/scale), and by exactly that for noisy counts on the
far side; noise is independent. So the smallest ε of noisy counts is c/scale, and writing a table hides nothing of the
counts, apart from noisy counts below zero, which become zero. With two columns, a record more or less moves c = 2
counts (`add_remove`), and a record exchanged for another moves up to c = 4 (`replace_one`).

`CASES` lists the generators with their ε, the neighbours where it is attained, and what tells outputs apart there.
Nothing but NumPy is needed, so that other tools can run the generators in environments of their own.

Noise comes from a seed, for tests. Tables made here must not be released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = list[dict[str, Any]]
Generator = Callable[[Rows, int], Rows]

EPSILON = 1.0
CITIES = ("north", "east", "south", "west")
OTHER = "other"
"""Cities that are not in the list are counted as this one."""
YOUNGEST, OLDEST, GROUPS = 0.0, 100.0, 5
"""Ages are clipped to these; groups are equally wide. An age that is missing or no number is the youngest."""

ADD_REMOVE_SCALE = 2 / EPSILON
REPLACE_ONE_SCALE = 4 / EPSILON


def right_for_add_remove(rows: Rows, seed: int) -> Rows:
    """No bug: c = 2 and scale 2, so ε = 1 exactly, if one record is added or removed."""
    return _publish(rows, seed, scale=ADD_REMOVE_SCALE)


def right_for_replace_one(rows: Rows, seed: int) -> Rows:
    """No bug: c = 4 and scale 4, so ε = 1 exactly, if one record is replaced."""
    return _publish(rows, seed, scale=REPLACE_ONE_SCALE)


def sensitivity_of_one(rows: Rows, seed: int) -> Rows:
    """The noise covers a record that is added, but the claim is about one that is replaced.

    c = 4 and scale 2, so ε = 2.
    """
    return _publish(rows, seed, scale=ADD_REMOVE_SCALE)


def budget_not_split(rows: Rows, seed: int) -> Rows:
    """Each column is counted with the whole ε.

    c = 2 and scale 1, so ε = 2, if one record is added or removed.
    """
    return _publish(rows, seed, scale=1 / EPSILON)


def labels_from_data(rows: Rows, seed: int) -> Rows:
    """Only cities that occur are counted.

    A city that occurs in one record appears with probability 1/(1 + e^(−1/2)) = 0.62, that of noise ≥ 0; without the
    record it never does. So ε is infinite.
    """
    return _publish(rows, seed, scale=ADD_REMOVE_SCALE, cities=sorted({_city(row) for row in rows}))


def singletons_suppressed(rows: Rows, seed: int) -> Rows:
    """Cities that occur only once are left out before noise is added, "to protect outliers".

    A city that occurs in two records appears with probability 1 − e^(−1)/(1 + e^(−1/2)) = 0.77, that of noise ≥ −1;
    without one of them it never does. So ε is infinite. Another new city does not show it.
    """
    often = Counter(_city(row) for row in rows)
    return _publish(rows, seed, scale=ADD_REMOVE_SCALE, cities=sorted(city for city in often if often[city] > 1))


def range_from_data(rows: Rows, seed: int) -> Rows:
    """Age groups reach from the smallest to the largest age that occurs.

    No age of the output is beyond the largest of the data. If the largest one is replaced by a larger one, some are,
    with probability above 1/2 (noise ≥ 0 in the last group). So ε is infinite.
    """
    ages = [_age(row) for row in rows] or [YOUNGEST]
    return _publish(rows, seed, scale=REPLACE_ONE_SCALE, ages=(min(ages), max(ages)))


def no_noise(rows: Rows, seed: int) -> Rows:
    """No protection: the counts themselves. What even this does not show to a tool, it cannot find in so few runs."""
    return _publish(rows, seed, scale=0.0)


def counts(table: Rows) -> tuple[int, ...]:
    """How often each city, everything else and each age group occur in a synthetic table, shape (10,)."""
    cities = _city_counts([row for row in table if row["city"] is not None], (*CITIES, OTHER))
    ages = _age_counts([row for row in table if row["age"] is not None], YOUNGEST, OLDEST)
    return (*cities.tolist(), *ages.tolist())


def _publish(
    rows: Rows,
    seed: int,
    *,
    scale: float,
    cities: Sequence[str] = (*CITIES, OTHER),
    ages: tuple[float, float] = (YOUNGEST, OLDEST),
) -> Rows:
    """A table with noisy counts of cities and of age groups; columns are filled up with None to the same length."""
    rng = np.random.default_rng(seed)
    often = np.maximum(_city_counts(rows, cities) + noise(len(cities), scale, rng), 0)
    groups = np.maximum(_age_counts(rows, *ages) + noise(GROUPS, scale, rng), 0)
    city: list[str | None] = [name for name, n in zip(cities, often.tolist(), strict=True) for _ in range(n)]
    width = (ages[1] - ages[0]) / GROUPS
    low = np.repeat(ages[0] + width * np.arange(GROUPS), groups)
    age: list[float | None] = (low + width * rng.random(low.size)).tolist()
    length = max(len(city), len(age))
    city += [None] * (length - len(city))
    age += [None] * (length - len(age))
    return [
        {"city": city[index], "age": age[position]} for index, position in enumerate(rng.permutation(length).tolist())
    ]


def noise(size: int, scale: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Discrete Laplace noise, the difference of two geometric variables; none at scale 0."""
    if scale == 0:
        return np.zeros(size, dtype=np.int64)
    first, second = rng.geometric(-math.expm1(-1 / scale), (2, size))
    return np.asarray(first - second, dtype=np.int64)


def _city(row: dict[str, Any]) -> str:
    city = row.get("city")
    return OTHER if city is None else str(city)


def _age(row: dict[str, Any]) -> float:
    try:
        age = float(row["age"])
    except (KeyError, TypeError, ValueError):
        return YOUNGEST
    return YOUNGEST if math.isnan(age) else min(max(age, YOUNGEST), OLDEST)


def _city_counts(rows: Rows, cities: Sequence[str]) -> NDArray[np.int64]:
    """Shape (cities,). Cities that are not listed are counted as `OTHER` if that is listed, and else not at all."""
    position = {city: index for index, city in enumerate(cities)}
    rest = position.get(OTHER, len(cities))
    return np.bincount([position.get(_city(row), rest) for row in rows], minlength=len(cities) + 1)[: len(cities)]


def _age_counts(rows: Rows, low: float, high: float) -> NDArray[np.int64]:
    """Shape (groups,)."""
    width = (high - low) / GROUPS or 1.0
    return np.bincount([min(int((_age(row) - low) / width), GROUPS - 1) for row in rows], minlength=GROUPS)


USUAL: Rows = [{"city": CITIES[index % 2], "age": 40.0 + index % 20} for index in range(48)]
OLD: dict[str, Any] = {"city": "south", "age": 60.0}
NEW: dict[str, Any] = {"city": "west", "age": 97.0}
"""A record alone in its groups, and one that is also in groups of its own, beyond the other ages."""

_SOUTH, _WEST, _SIXTIES, _OLDEST = 2, 3, 8, 9  # places in `counts`


@dataclass(frozen=True)
class Case:
    """A generator that claims ε = 1, and the neighbours that show the most.

    Attributes:
        name: of the generator.
        generate: the generator.
        adjacency: of the claim.
        epsilon: the smallest ε that is true.
        data, neighbor: where it is attained.
        score: from `counts` of a table to a number that is larger on the neighbor; an optimal one for finite ε.
    """

    name: str
    generate: Generator
    adjacency: str
    epsilon: float
    data: Rows
    neighbor: Rows
    score: Callable[[Sequence[int]], int]


def _added(result: Sequence[int]) -> int:
    return (result[_WEST] > 0) + (result[_OLDEST] > 0)


def _exchanged(result: Sequence[int]) -> int:
    return _added(result) + (result[_SOUTH] == 0) + (result[_SIXTIES] == 0)


def _west(result: Sequence[int]) -> int:
    return int(result[_WEST] > 0)


def _sixty(result: Sequence[int]) -> int:
    return int(result[_SIXTIES] + result[_OLDEST] > 0)


_add: dict[str, Any] = {"adjacency": "add_remove", "data": USUAL, "neighbor": [*USUAL, NEW]}
_replace: dict[str, Any] = {"adjacency": "replace_one", "data": [*USUAL, OLD], "neighbor": [*USUAL, NEW]}
_twice: dict[str, Any] = {"adjacency": "add_remove", "data": [*USUAL, NEW], "neighbor": [*USUAL, NEW, NEW]}

BUGS = (
    Case("sensitivity_of_one", sensitivity_of_one, epsilon=2.0, score=_exchanged, **_replace),
    Case("budget_not_split", budget_not_split, epsilon=2.0, score=_added, **_add),
    Case("labels_from_data", labels_from_data, epsilon=math.inf, score=_west, **_add),
    Case("singletons_suppressed", singletons_suppressed, epsilon=math.inf, score=_west, **_twice),
    Case("range_from_data", range_from_data, epsilon=math.inf, score=_sixty, **_replace),
)
RIGHT = (
    Case("right_for_add_remove", right_for_add_remove, epsilon=EPSILON, score=_added, **_add),
    Case("right_for_replace_one", right_for_replace_one, epsilon=EPSILON, score=_exchanged, **_replace),
)
CONTROL = Case("no_noise", no_noise, epsilon=math.inf, score=_west, **_add)
CASES = {case.name: case for case in (*BUGS, *RIGHT, CONTROL)}
