"""Probes plant what they say, and their pairs are neighbours: compared with counts by brute force."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import Row, describe_columns
from dpassay.attacks.black_box.neighboring_data import Sample
from dpassay.attacks.black_box.output_features import OutputFeatures
from dpassay.attacks.black_box.probes import FINDS, MAX_LEVEL, Ladder, Probe, edge, probe


def people(count: int = 200) -> list[dict[str, Any]]:
    return [
        {
            "id": f"p{index:04d}",
            "age": 20 + 7 * index % 61,
            "city": ["Ulm", "Bern", "Graz"][index % 3],
            "code": f"c{index % 4}",
            "born": datetime.date(2000, 1, 1 + index % 5),
            "note": f"a b c {chr(97 + index % 26)} {chr(97 + index // 26)}",
        }
        for index in range(count)
    ]


def planted(rows: Sequence[Row], adjacency: str = "add_remove", copies: int = 1) -> Probe:
    sample = Sample(tuple(rows), describe_columns(rows), Adjacency(adjacency), copies)
    result = probe(sample, np.random.default_rng(0))
    assert result is not None
    return result


def ladder(of: Probe, name: str) -> Ladder:
    return next(item for item in of.ladders if item.name == name)


def test_every_level_has_as_many_records_as_it_says() -> None:
    """Counted in the cells as they are, without features."""
    rows = people()
    of = planted(rows)
    assert [item.name for item in of.ladders] == list(FINDS)
    cities = Counter(row["city"] for row in of.data if row["city"] not in {"Ulm", "Bern", "Graz"})
    codes = Counter(row["code"] for row in of.data if row["code"][0] != "c")
    assert sorted(cities.values()) == sorted(codes.values()) == list(range(1, MAX_LEVEL + 1))
    words = Counter(word for row in of.data for word in set(row["note"].split()) if len(word) > 2)
    assert sorted(words.values()) == list(range(1, MAX_LEVEL + 1))
    beyond = Counter(row["age"] for row in of.data if row["age"] > 80)
    assert sorted(beyond.values()) == sorted([1] * 12 + list(range(1, 13)))
    extremes, groups = ([age for age, count in beyond.items() if (age >= 680) is far] for far in (True, False))
    assert len(extremes) == 12
    assert min(extremes) > max(groups)
    ordered = sorted(groups)
    assert min(high - low for low, high in itertools.pairwise([80, *ordered])) > 40
    for mark in ladder(of, "trimmed_range").marks:
        if mark.column == "age":
            assert sum(row["age"] >= float(mark.value) for row in of.data) == mark.level
    lengths = sorted({len(row["note"]) for row in of.data})[-12:]
    assert lengths[-1] >= 10 * max(len(row["note"]) for row in rows)
    assert all(high >= 1.05 * low for low, high in itertools.pairwise(lengths))
    for mark in ladder(of, "trimmed_length").marks:
        assert sum(len(row["note"]) >= float(mark.value) for row in of.data) == mark.level


def test_groups_lie_in_another_order_in_each_column() -> None:
    """So two groups that are near each other in one column are not in the other."""
    rows = people()
    of = planted(rows)
    orders = [
        [
            mark.level
            for mark in sorted(ladder(of, "group_size").marks, key=lambda mark: mark.value)
            if mark.column == name
        ]
        for name in ("age", "born")
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(1, 13))
    assert orders[0] != orders[1]


def test_the_features_of_a_probe_are_the_numbers_of_records_of_each_level() -> None:
    """An output that is the data shows level m in m rows, in each of two columns of categories, and in each text."""
    rows = people()
    of = planted(rows)
    features = OutputFeatures(describe_columns(rows), (), {item.name: item.marks for item in of.ladders})
    shown = features.of(of.data, list(FINDS))
    levels = range(1, MAX_LEVEL + 1)
    assert [shown["threshold"][str(level)] for level in levels] == [2 * level for level in levels]
    assert [shown["vocabulary"][str(level)] for level in levels] == list(levels)
    ranges = [shown["trimmed_range"][str(level)] for level in range(1, 13)]
    assert ranges == [2 * level for level in range(1, 13)]  # age and born
    assert [shown["group_size"][str(level)] for level in range(1, 13)] == ranges
    assert [shown["trimmed_length"][str(level)] for level in range(1, 13)] == list(range(1, 13))
    assert set(features.of(rows, ["threshold"])["threshold"].values()) == {0.0}


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("count", [24, 49, 200])
def test_pairs_of_ladders_are_neighbours_with_so_many_planted_records(adjacency: str, copies: int, count: int) -> None:
    of = planted(people(count), adjacency, copies)
    for item in of.ladders:
        target = {name: cell for name, cell in item.target.items() if name != "id"}
        for level in range(1, item.levels):
            pair = item.pair(level)
            sides = [Counter(str(sorted(row.items(), key=str)) for row in side) for side in (pair.data, pair.neighbor)]
            fewer, more = (sides[0] - sides[1]).total(), (sides[1] - sides[0]).total()
            assert (fewer, more) == ((0 if adjacency == "add_remove" else copies), copies)
            held = [
                sum({name: cell for name, cell in row.items() if name != "id"} == target for row in side)
                for side in (pair.data, pair.neighbor)
            ]
            assert held == [level, level + copies]
            assert all(len({row["id"] for row in side}) == len(side) for side in (pair.data, pair.neighbor))
    assert all(len({row["id"] for row in side}) == len(side) for side in (of.data,))
    assert len(of.data) <= 3 * max(count, 60) + MAX_LEVEL


def test_a_table_without_categories_numbers_or_prose_has_no_probe() -> None:
    rows = [{"truth": index % 2 == 0} for index in range(20)]
    assert probe(Sample(tuple(rows), describe_columns(rows), Adjacency.ADD_REMOVE), np.random.default_rng(0)) is None


def slow_edge(published: dict[int, list[bool]]) -> int | None:
    """The definition, by trying every m."""
    levels = sorted(published)
    for m in levels[:-1]:  # nothing up to m, something at m + 1
        if not any(any(published[level]) for level in levels if level <= m) and any(published[m + 1]):
            return m
    return None


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=3, max_size=6))
@examples(100, 400)
def test_the_edge_is_where_it_is_defined_to_be(runs: list[list[bool]]) -> None:
    published = dict(enumerate(runs, 1))
    assert edge(published) == slow_edge(published)


@pytest.mark.parametrize("threshold", range(1, MAX_LEVEL + 2))
def test_a_threshold_is_found_at_every_number(threshold: int) -> None:
    """What is published from k records on has its edge at k − 1; k = 1 and k above the last level have none."""
    levels = range(1, MAX_LEVEL + 1)
    published = {level: [level >= threshold] * 3 for level in levels}
    assert edge(published) == (threshold - 1 if 1 < threshold <= MAX_LEVEL else None)


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_range_that_leaves_some_records_out_is_moved_by_one_more(cut: int) -> None:
    """A generator that clips at the (cut + 1)-th largest: the pair has `cut` extreme records and one more."""
    rows = people()
    of = planted(rows)
    features = OutputFeatures(describe_columns(rows), (), {item.name: item.marks for item in of.ladders})

    def clipped(data: Sequence[Row]) -> list[dict[str, Any]]:
        most = {name: sorted(row[name] for row in data)[-1 - cut] for name in ("age", "born")}
        return [{**row, **{name: min(row[name], most[name]) for name in most}} for row in data]

    shown = features.of(clipped(of.data), ["trimmed_range"])["trimmed_range"]
    item = ladder(of, "trimmed_range")
    level = edge({level: [shown[str(level)] > 0] for level in range(1, item.levels + 1)})
    assert level == cut
    pair = item.pair(level)
    largest = [max(row["age"] for row in clipped(side)) for side in (pair.data, pair.neighbor)]
    assert largest[1] > largest[0] + 60
    later = OutputFeatures(describe_columns(rows), (), None, lambda name: pair)
    happened = [
        later.of(clipped(side), [pair.name])[pair.name][pair.events[0].feature] >= pair.events[0].threshold
        for side in (pair.data, pair.neighbor)
    ]
    assert happened == [False, True]


def test_words_and_categories_that_are_published_from_some_number_on_are_events_of_their_pairs() -> None:
    """A generator that blanks what fewer than five records have, in words and in cities."""
    rows = people()
    of = planted(rows)

    def often(data: Sequence[Row]) -> list[dict[str, Any]]:
        words = Counter(word for row in data for word in set(row["note"].split()))
        cities, codes = (Counter(row[name] for row in data) for name in ("city", "code"))
        return [
            {
                **row,
                "note": " ".join(word for word in row["note"].split() if words[word] >= 5),
                "city": row["city"] if cities[row["city"]] >= 5 else None,
                "code": row["code"] if codes[row["code"]] >= 5 else None,
            }
            for row in data
        ]

    for name in ("threshold", "vocabulary"):
        pair = ladder(of, name).pair(4)
        features = OutputFeatures(describe_columns(rows), [pair])
        for side, expected in ((pair.data, False), (pair.neighbor, True)):
            shown = features.of(often(side), [pair.name])[pair.name]
            assert [shown[event.feature] >= event.threshold for event in pair.events] == [expected]


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_lengths_that_leave_some_texts_out_are_moved_by_one_more(cut: int) -> None:
    """A generator that cuts texts at the length of the (cut + 1)-th longest: the pair has `cut` long texts and one
    more."""
    rows = people()
    of = planted(rows)
    features = OutputFeatures(describe_columns(rows), (), {item.name: item.marks for item in of.ladders})

    def cut_off(data: Sequence[Row]) -> list[dict[str, Any]]:
        most = sorted(len(row["note"]) for row in data)[-1 - cut]
        return [{**row, "note": row["note"][:most]} for row in data]

    item = ladder(of, "trimmed_length")
    shown = features.of(cut_off(of.data), [item.name])[item.name]
    level = edge({level: [shown[str(level)] > 0] for level in range(1, item.levels + 1)})
    assert level == cut
    assert _events_happen(cut_off, item, level) == [False, True]


@pytest.mark.parametrize("least", [2, 5, 10])
def test_groups_that_are_published_from_some_size_on_are_events_of_their_pair(least: int) -> None:
    """A generator that writes the middle of every cluster of `least` records or more: the pair has one record less,
    and so many."""
    rows = people()
    of = planted(rows)
    features = OutputFeatures(describe_columns(rows), (), {item.name: item.marks for item in of.ladders})

    def clustered(data: Sequence[Row]) -> list[dict[str, Any]]:
        return [
            {**row, "age": age} for row, age in zip(data, clusters([row["age"] for row in data], least), strict=False)
        ]

    item = ladder(of, "group_size")
    shown = features.of(clustered(of.data), [item.name])[item.name]
    level = edge({level: [shown[str(level)] > 0] for level in range(1, item.levels + 1)})
    assert level == least - 1
    assert _events_happen(clustered, item, level) == [False, True]


def clusters(numbers: Sequence[float], least: int, gap: float = 15.0) -> list[float]:
    """The means of the clusters of so many numbers or more; a new one begins after a gap."""
    ordered = sorted(numbers)
    ends = [index for index, (low, high) in enumerate(itertools.pairwise(ordered), 1) if high - low > gap]
    parts = [ordered[start:end] for start, end in itertools.pairwise([0, *ends, len(ordered)])]
    return [sum(part) / len(part) for part in parts if len(part) >= least]


def _events_happen(generator: Any, item: Ladder, level: int) -> list[bool]:
    """Whether the first event of a pair of a ladder happens on D, and on D′."""
    pair = item.pair(level)
    features = OutputFeatures(describe_columns(people()), [pair])
    event = pair.events[0]
    return [
        features.of(generator(side), [pair.name])[pair.name].get(
            event.feature, features.of(generator(side), [])[""].get(event.feature, 0.0)
        )
        >= event.threshold
        for side in (pair.data, pair.neighbor)
    ]
