"""Six generators of synthetic tables that claim ε = 1, with one leak each, and a twin of each that keeps the claim.

They were written by an author who had not read how an audit searches, before any audit had seen them. Their tables are
those of `seeded_bugs.py`: `city`, one of four, and `age`, from 0 to 100; one has a `month` too. All count how often
each city and each age group occurs, add discrete Laplace noise of a scale to each count, and write a table with the
noisy counts. A generator and its twin differ in one step, which `LEAKS` states as the cause.

*Why the twins keep ε = 1.* A twin looks at its rows once, when it counts them. Between two neighbours, the counts
differ by at most c in sum. Noise on an integer changes the probability of any result by a factor of at most
e^(d/scale) if the integer moves by d, and noises are independent, so noisy counts are (c/scale)-DP; the scale is c.
All that follows reads the noisy counts and fresh random numbers alone, so it is post-processing. ε is exactly 1, since
for each of the c counts that moves from 0 to 1, any noisy count above 1 is e^(1/scale) times as likely. c = 2, a city
and an age group, if a record is added or removed, and c = 4 if one is exchanged.

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
from seeded_bugs import (
    ADD_REMOVE_SCALE,
    CITIES,
    EPSILON,
    GROUPS,
    NEW,
    OLD,
    OLDEST,
    OTHER,
    REPLACE_ONE_SCALE,
    USUAL,
    YOUNGEST,
    Generator,
    Rows,
    counts,
    noise,
)

LISTED = (*CITIES, OTHER)
MONTHS = 6
WIDTH = (OLDEST - YOUNGEST) / GROUPS
Integers = NDArray[np.int64]


def decimals_from_data(rows: Rows, seed: int) -> Rows:
    """Ages are written with as many decimals as the real ones have, so that they look alike.

    Without an age that has decimals, no output has any. One record that has some gives them to nearly all ages, so ε is
    infinite.
    """
    return _with_decimals(rows, seed, next((d for d in range(6) if all(round(a, d) == a for a in _ages(rows))), 6))


def decimals_public(rows: Rows, seed: int) -> Rows:
    """The twin: ages have one decimal, which is public. c = 2 and scale 2; rounding is post-processing."""
    return _with_decimals(rows, seed, 1)


def _with_decimals(rows: Rows, seed: int, decimals: int) -> Rows:
    rng = np.random.default_rng(seed)
    return _write(_noisy(rows, ADD_REMOVE_SCALE, rng), rng, finish=lambda ages: _floor(ages, 10.0**-decimals))


def ages_of_records(rows: Rows, seed: int) -> Rows:
    """Each drawn age is replaced by the nearest real one, so that only ages occur that people have.

    An age that is only in the neighbour never occurs without it. With it, it does if its group or the next one has a
    noisy count: with probability at least 1/(1 + e^(−1/4)) = 0.56, that of noise ≥ 0. So ε is infinite.
    """
    real = np.unique(_ages(rows) or [YOUNGEST])
    rng = np.random.default_rng(seed)
    return _write(
        _noisy(rows, REPLACE_ONE_SCALE, rng),
        rng,
        finish=lambda ages: real[np.abs(ages[:, None] - real).argmin(axis=1)],
    )


def ages_of_calendar(rows: Rows, seed: int) -> Rows:
    """The twin: ages are rounded down to whole years. c = 4 and scale 4; this is post-processing."""
    rng = np.random.default_rng(seed)
    return _write(_noisy(rows, REPLACE_ONE_SCALE, rng), rng, finish=lambda ages: _floor(ages, 1.0))


def noise_cached_by_count(rows: Rows, seed: int) -> Rows:
    """A noisy count is kept and given again, so that nobody can average the noise away; the key is the count.

    Groups of equal size get equal noisy counts, always. If one of two empty groups gets a record, they differ with
    probability 0.71. So ε is infinite, while each noisy count alone is as private as it should be.
    """
    rng = np.random.default_rng(seed)
    cache: dict[int, int] = {}
    for count in _counts(rows).tolist():
        if count not in cache:
            cache[count] = max(count + int(noise(1, ADD_REMOVE_SCALE, rng)[0]), 0)
    return _write(np.array([cache[count] for count in _counts(rows).tolist()]), rng)


def noise_cached_by_group(rows: Rows, seed: int) -> Rows:
    """The twin: the key is the group, so each has noise of its own. c = 2 and scale 2."""
    rng = np.random.default_rng(seed)
    cache: dict[int, int] = {}
    for group, count in enumerate(_counts(rows).tolist()):
        if group not in cache:
            cache[group] = max(count + int(noise(1, ADD_REMOVE_SCALE, rng)[0]), 0)
    return _write(np.array([cache[group] for group in range(len(cache))]), rng)


def most_common_first(rows: Rows, seed: int) -> Rows:
    """Cities are written in the order in which a counter lists them: the most common first.

    So does pandas' `value_counts`. Of two cities that are equally common, the first in the list comes first; if a
    record moves from it to the other, the other does. So ε is infinite.
    """
    often = Counter(dict(zip(LISTED, _counts(rows).tolist(), strict=False)))
    return _ordered(rows, seed, [city for city, _ in often.most_common()])


def most_common_by_noise_first(rows: Rows, seed: int) -> Rows:
    """The twin: the most common by noisy counts first. c = 4 and scale 4; the order follows from the noisy counts."""
    return _ordered(rows, seed, None)


def _ordered(rows: Rows, seed: int, cities: Sequence[str] | None) -> Rows:
    rng = np.random.default_rng(seed)
    noisy = _noisy(rows, REPLACE_ONE_SCALE, rng)
    if cities is None:
        cities = [city for city, _ in Counter(dict(zip(LISTED, noisy.tolist(), strict=False))).most_common()]
    return _write(noisy, rng, order=cities)


def redrawn_until_complete(rows: Rows, seed: int) -> Rows:
    """A table is drawn again until each city of the data occurs in it, as a check of quality asks for.

    With a record in a city, it occurs in every output. Without one, it is missing with probability 0.62, that of
    noise ≤ 0. So ε is infinite.
    """
    rng = np.random.default_rng(seed)
    needed = _counts(rows)[: len(LISTED)] > 0
    while True:
        noisy = _noisy(rows, ADD_REMOVE_SCALE, rng)
        if (noisy[: len(LISTED)][needed] > 0).all():
            return _write(noisy, rng)


def filled_until_complete(rows: Rows, seed: int) -> Rows:
    """The twin: each listed city that is missing gets one row. c = 2 and scale 2; the list is public.

    Drawing again until all listed cities occur would not do: its outputs have probabilities that are divided by that of
    passing the check, which depends on the data.
    """
    rng = np.random.default_rng(seed)
    noisy = _noisy(rows, ADD_REMOVE_SCALE, rng)
    noisy[: len(LISTED)] = np.maximum(noisy[: len(LISTED)], 1)
    return _write(noisy, rng)


def each_month_all_so_far(rows: Rows, seed: int) -> Rows:
    """A table is made each month of all records so far, each time with the whole ε, because each table keeps ε = 1.

    A record of the first month moves c = 2 counts in each of six tables, so ε = 6.
    """
    return _monthly(rows, seed, lambda joined, month: joined <= month)


def each_month_its_own(rows: Rows, seed: int) -> Rows:
    """The twin: the table of a month counts the records of that month. A record is in one table: c = 2 and scale 2."""
    return _monthly(rows, seed, lambda joined, month: joined == month)


def _monthly(rows: Rows, seed: int, counted: Callable[[int, int], bool]) -> Rows:
    rng = np.random.default_rng(seed)
    result: Rows = []
    for month in range(1, MONTHS + 1):
        noisy = _noisy([row for row in rows if counted(_month(row), month)], ADD_REMOVE_SCALE, rng)
        result += [{"month": month, **row} for row in _write(noisy, rng)]
    return result


def _counts(rows: Rows) -> Integers:
    """How often each city, everything else and each age group occur, shape (10,); missing cells are not counted."""
    return np.array(counts([{"city": row.get("city"), "age": row.get("age")} for row in rows]))


def _noisy(rows: Rows, scale: float, rng: np.random.Generator) -> Integers:
    truth = _counts(rows)
    return np.asarray(np.maximum(truth + noise(truth.size, scale, rng), 0), dtype=np.int64)


def _write(
    noisy: Integers,
    rng: np.random.Generator,
    *,
    order: Sequence[str] = LISTED,
    finish: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda ages: ages,
) -> Rows:
    """A table with these counts; columns are filled up with None to the same length.

    Args:
        noisy: of each listed city and each age group, shape (10,).
        rng: for ages within their group and for who has which age.
        order: of the cities.
        finish: from drawn ages to written ones, each shape (n,).
    """
    often = dict(zip(LISTED, noisy.tolist(), strict=False))
    city: list[str | None] = [name for name in order for _ in range(often[name])]
    low = np.repeat(YOUNGEST + WIDTH * np.arange(GROUPS), noisy[len(LISTED) :])
    age: list[float | None] = finish(low + WIDTH * rng.random(low.size)).tolist()
    length = max(len(city), len(age))
    city += [None] * (length - len(city))
    age += [None] * (length - len(age))
    return [
        {"city": city[index], "age": age[position]} for index, position in enumerate(rng.permutation(length).tolist())
    ]


def _floor(ages: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Down to multiples of a step, so that no age leaves its group; without digits of rounding errors."""
    return np.round(np.floor(ages / step) * step, 6)


def _ages(rows: Rows) -> list[float]:
    """The ages that are numbers, in the range."""
    result = []
    for row in rows:
        try:
            age = float(row["age"])
        except (KeyError, TypeError, ValueError):
            continue
        if not math.isnan(age):
            result.append(min(max(age, YOUNGEST), OLDEST))
    return result


def _month(row: dict[str, Any]) -> int:
    """From 1 to 6; a month that is missing or no number is the first."""
    try:
        return min(max(int(row["month"]), 1), MONTHS)
    except (KeyError, OverflowError, TypeError, ValueError):
        return 1


@dataclass(frozen=True)
class Leak:
    """A generator that claims ε = 1 and leaks more, its twin that keeps the claim, and neighbours that show it.

    Attributes:
        name: of the generator.
        cause: the mistake, in one sentence.
        generate: the generator.
        twin: the same without the mistake.
        adjacency: of the claim.
        epsilon: the smallest ε that is true of the generator.
        data, neighbor: neighbours on which it is attained.
        shown: what tells outputs apart there, in words.
        score: from a table to a number that is larger on the neighbor.
    """

    name: str
    cause: str
    generate: Generator
    twin: Generator
    adjacency: str
    epsilon: float
    data: Rows
    neighbor: Rows
    shown: str
    score: Callable[[Rows], int]


def by_month(table: Rows) -> list[tuple[int, ...]]:
    """`seeded_bugs.counts` of each month of a table, shape (6, 10)."""
    return [counts([row for row in table if row["month"] == month]) for month in range(1, MONTHS + 1)]


_SOUTH, _WEST, _OLDEST_GROUP = LISTED.index("south"), LISTED.index("west"), len(LISTED) + GROUPS - 1


def _has_decimals(table: Rows) -> int:
    return int(any(row["age"] is not None and row["age"] % 1 for row in table))


def _has_new_age(table: Rows) -> int:
    return int(any(row["age"] == NEW["age"] for row in table))


def _differ(table: Rows) -> int:
    result = counts(table)
    return int(result[_WEST] != result[_SOUTH])


def _east_first(table: Rows) -> int:
    cities = [row["city"] for row in table]
    return int({"north", "east"} <= set(cities) and cities.index("east") < cities.index("north"))


def _has_west(table: Rows) -> int:
    return int(any(row["city"] == "west" for row in table))


def _cells_with_rows(table: Rows) -> int:
    return sum((result[_WEST] > 0) + (result[_OLDEST_GROUP] > 0) for result in by_month(table))


_MONTHLY: Rows = [{"month": 1 + index % MONTHS, **row} for index, row in enumerate(USUAL)]
_NORTHERNER, _REST = USUAL[0], USUAL[1:]

LEAKS = (
    Leak(
        name="decimals_from_data",
        cause="Ages are written with as many decimals as the real ages have.",
        generate=decimals_from_data,
        twin=decimals_public,
        adjacency="add_remove",
        epsilon=math.inf,
        data=USUAL,
        neighbor=[*USUAL, {**NEW, "age": 97.5}],
        shown="some age has decimals",
        score=_has_decimals,
    ),
    Leak(
        name="ages_of_records",
        cause="Each age that is written is the age of a real record.",
        generate=ages_of_records,
        twin=ages_of_calendar,
        adjacency="replace_one",
        epsilon=math.inf,
        data=[*USUAL, OLD],
        neighbor=[*USUAL, NEW],
        shown="the age of the record occurs",
        score=_has_new_age,
    ),
    Leak(
        name="noise_cached_by_count",
        cause="Counts that are equal get the same noise.",
        generate=noise_cached_by_count,
        twin=noise_cached_by_group,
        adjacency="add_remove",
        epsilon=math.inf,
        data=USUAL,
        neighbor=[*USUAL, NEW],
        shown="two cities do not occur equally often",
        score=_differ,
    ),
    Leak(
        name="most_common_first",
        cause="Cities are written in the order of their true counts.",
        generate=most_common_first,
        twin=most_common_by_noise_first,
        adjacency="replace_one",
        epsilon=math.inf,
        data=USUAL,
        neighbor=[{**_NORTHERNER, "city": "east"}, *_REST],
        shown="one city is written before another",
        score=_east_first,
    ),
    Leak(
        name="redrawn_until_complete",
        cause="Tables are drawn again until each city of the data occurs.",
        generate=redrawn_until_complete,
        twin=filled_until_complete,
        adjacency="add_remove",
        epsilon=math.inf,
        data=USUAL,
        neighbor=[*USUAL, NEW],
        shown="the city of the record occurs",
        score=_has_west,
    ),
    Leak(
        name="each_month_all_so_far",
        cause="The whole ε is spent in each of six tables that a record is in.",
        generate=each_month_all_so_far,
        twin=each_month_its_own,
        adjacency="add_remove",
        epsilon=MONTHS * EPSILON,
        data=_MONTHLY,
        neighbor=[*_MONTHLY, {"month": 1, **NEW}],
        shown="the city and the age group of the record occur in many months",
        score=_cells_with_rows,
    ),
)
