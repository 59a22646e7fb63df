"""A user's own pair of neighbours, against every way to leave out records, and against the pairs of strategies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import Row, describe_columns
from dpassay.attacks.black_box.neighboring_data import Sample
from dpassay.attacks.black_box.output_features import OutputFeatures
from dpassay.attacks.black_box.own_neighbors import OwnNeighbors, own_in_words, own_neighbors, own_pair
from dpassay.attacks.black_box.worst_cases import OWN, neighboring_data

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
WORDS = [word for length in range(1, 5) for word in itertools.product("ab", repeat=length)]


def rows(word: Sequence[Any]) -> tuple[Row, ...]:
    return tuple({"x": letter} for letter in word)


def unit(size: int) -> Unit:
    return Unit() if size == 1 else Unit.parse(f"group({size})")


def made(first: Sequence[Any], second: Sequence[Any], adjacency: Adjacency, size: int) -> OwnNeighbors | None:
    try:
        return own_neighbors(rows(first), rows(second), adjacency, unit(size))
    except ValueError:
        return None


@pytest.mark.parametrize("size", [1, 2])
def test_data_sets_are_neighbours_if_leaving_out_some_records_makes_one_the_other(size: int) -> None:
    """All pairs of words of up to four letters, against all choices of letters to leave out."""
    accepted = 0
    for first, second in itertools.product(WORDS, repeat=2):
        small, large = sorted((first, second), key=len)
        more = len(large) - len(small)
        left = {tuple(large[place] for place in kept) for kept in itertools.combinations(range(len(large)), len(small))}
        result = made(first, second, ADD, size)
        assert (result is not None) == (1 <= more <= size and small in left), (first, second)
        if result is not None:
            accepted += 1
            assert result.swapped is (len(first) > len(second))
            assert (result.data, result.neighbor) == (rows(small), rows(large))
            assert len(set(result.positions)) == more
            rest = tuple(letter for place, letter in enumerate(large) if place not in result.positions)
            assert rest == small
    assert accepted > 100


@pytest.mark.parametrize("size", [1, 2])
def test_exchanged_records_are_those_at_which_data_sets_differ(size: int) -> None:
    for first, second in itertools.product(WORDS, repeat=2):
        result = made(first, second, REPLACE, size)
        differ = [place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]]
        assert (result is not None) == (len(first) == len(second) and 1 <= len(differ) <= size), (first, second)
        if result is not None:
            assert list(result.positions) == differ
            assert result.data == rows(first), "the first is D"


def test_cells_of_different_types_are_different() -> None:
    """A generator of JSON Lines can tell 1 from 1.0, from true and from the text."""
    for one, other in itertools.permutations([1, 1.0, True, "1", None], 2):
        result = made([one, "y"], [other, "y"], REPLACE, 1)
        assert result is not None
        assert result.positions == (0,)
    assert made([float("nan"), 1], [float("nan"), 2], REPLACE, 1) is not None


REFUSED: dict[str, tuple[str, str, Adjacency, int, str]] = {
    "equally many": ("aSb", "aSb", ADD, 1, "have 3 records each, but with add_remove one of two neighbours has more"),
    "two more": ("ab", "aSSb", ADD, 1, 'has 2 records more than the first data set, .* such as "group(2)"'),
    "another order": ("abS", "Sabc", ADD, 1, "the first 3 records of the first data set are not in it"),
    "one more and one other": ("ab", "Sbb", ADD, 1, "the first 1 record of the first data set are not in it"),
    "one more that replaces": ("ab", "abS", REPLACE, 1, "has 2 records and the second has 3, but with replace_one"),
    "the same": ("aS", "aS", REPLACE, 1, "hold the same records"),
    "two exchanged": ("abS", "Sba", REPLACE, 1, 'different records at 2 positions, .* such as "group(2)"'),
    "none": ("", "a", ADD, 1, "the first data set holds no records"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_are_no_neighbours_is_said_in_numbers(name: str) -> None:
    first, second, adjacency, size, says = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(says).replace(r"\.\*", ".*")) as error:
        own_neighbors(rows(first), rows(second), adjacency, unit(size))
    assert "S" not in str(error.value)


def test_records_with_other_columns_are_refused() -> None:
    first: list[Row] = [{"x": 1, "y": 2}] * 2
    for other in ({"y": 2, "x": 1}, {"x": 1}, {"x": 1, "y": 2, "z": 3}):
        with pytest.raises(ValueError, match="the second: record 3 has other columns than the first record of the fi"):
            own_neighbors(first, [*first, other], ADD, Unit())


def people(count: int = 60) -> list[Row]:
    rng = np.random.default_rng(4)
    return [
        {
            "age": int(rng.integers(20, 60)),
            "city": str(rng.choice(["north", "south", "west", "east"], p=[0.5, 0.3, 0.15, 0.05])),
            "plan": str(rng.choice(["a", "b", "c"])),
            "note": f"the {rng.choice(['tall', 'small', 'old'])} house number {number} of the street",
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_the_pair_of_a_strategy_given_as_ones_own_is_described_alike(adjacency: Adjacency) -> None:
    """The same target, new values and features of an output. Features that only an expected event brings are left out;
    `repeated_category` calls new what D has once."""
    columns = describe_columns(people())
    sample = Sample(tuple(people()), columns, adjacency)
    compared = 0
    for pair in neighboring_data(sample, np.random.default_rng(0)):
        if adjacency is REPLACE and len(pair.data) - len(pair.neighbor):
            continue
        try:
            own = own_neighbors(pair.data, pair.neighbor, adjacency, Unit())
        except ValueError:
            assert adjacency is REPLACE, "a strategy puts the target last, where add_remove finds it"
            continue
        (given, place) = own_pair(own, columns)
        assert given.neighbor[place] == given.target == pair.target
        if pair.name != "repeated_category":
            assert given.novel == pair.novel
            output = [*pair.neighbor[::2], pair.target]
            theirs = OutputFeatures(columns, [pair]).of(output, [pair.name])
            ours = OutputFeatures(columns, [given]).of(output, [OWN])
            assert ours[""] == theirs[""]
            assert ours[OWN].items() <= theirs[pair.name].items()
            compared += 1
    assert compared >= (8 if adjacency is ADD else 1)


def test_of_several_records_the_one_with_most_new_values_is_the_target() -> None:
    data = people()
    columns = describe_columns(data)
    new = [{**data[0], "city": "up"}, {**data[0], "city": "down", "plan": "z"}, {**data[0], "plan": "y"}]
    own = own_neighbors(data, [*data[:9], new[0], *data[9:30], new[1], new[2], *data[30:]], ADD, unit(3))
    assert own.positions == (9, 31, 32)
    pair, place = own_pair(own, columns)
    assert (pair.target, place, pair.novel) == (new[1], 31, ("city", "plan"))


def test_the_pair_in_words() -> None:
    assert own_in_words(ADD, 1, ("a.csv", "b.csv")) == (
        "D: the user's own file a.csv. D′: the user's own file b.csv, which has one record more, the target."
    )
    assert own_in_words(REPLACE, 3) == (
        "D: the user's own data. D′: the user's own data, which has 3 records in the place of as many of D, one of "
        "which is the target."
    )
