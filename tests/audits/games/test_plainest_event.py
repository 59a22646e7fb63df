"""The event that names the cause: the plainest of those that are as good as the best, by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import describe_columns
from dpassay.attacks.black_box.feature_words import Plainness, copied_in_words, in_words, plain_threshold, plainness
from dpassay.attacks.black_box.neighboring_data import Sample
from dpassay.attacks.black_box.output_events import SHOWN, TOWARD, Event
from dpassay.attacks.black_box.output_features import FAILED, Features, OutputFeatures
from dpassay.attacks.black_box.worst_cases import neighboring_data
from dpassay.audits.games.event_choice import choose_event
from dpassay.audits.games.plainest_event import CHANCE, by_chance, is_copied

NOVEL = Event("novel values of the target", 1.0)


def sides(runs: int, on_d: Features, on_d_prime: Features) -> tuple[list[Features], list[Features]]:
    return [dict(on_d) for _ in range(runs)], [dict(on_d_prime) for _ in range(runs)]


def test_of_equal_events_the_plainest_is_chosen() -> None:
    """Of what is left each time: rows, a value, a range, a count, a mean, something composed."""
    features = ["rows", "a: target's value", "b: largest", "b: distinct values", "b: mean", NOVEL.feature]
    for first in range(len(features)):
        left = features[first:]
        _, event = choose_event(*sides(10, dict.fromkeys(left, 0.0), dict.fromkeys(left, 2.0)), [NOVEL], 0.0)
        assert event.feature == left[0]


def test_a_plainer_event_that_is_worse_is_not_chosen() -> None:
    on_d, on_d_prime = sides(20, {"rows": 5.0, NOVEL.feature: 0.0}, {"rows": 6.0, NOVEL.feature: 1.0})
    on_d[0]["rows"] = 6.0
    value, event = choose_event(on_d, on_d_prime, [NOVEL], 0.0)
    assert event == NOVEL
    on_d[0]["rows"] = 5.0
    assert choose_event(on_d, on_d_prime, [NOVEL], 0.0) == (value, Event("rows", 5.5))


def test_what_few_runs_make_by_accident_is_no_cause() -> None:
    """Of three runs on either side, one of many plainer features fits perfectly with a chance of one in ten each."""
    few, many = (sides(runs, {"rows": 5.0, NOVEL.feature: 0.0}, {"rows": 6.0, NOVEL.feature: 1.0}) for runs in (3, 5))
    assert choose_event(*few, [NOVEL], 0.0)[1] == NOVEL
    assert choose_event(*many, [NOVEL], 0.0)[1].feature == "rows"
    names = [f"{index}: target's value" for index in range(100)]
    crowd = sides(5, {NOVEL.feature: 0.0}, {NOVEL.feature: 1.0})
    for side, value in zip(crowd, (0.0, 1.0), strict=True):
        for run in side:
            run.update(dict.fromkeys(names, value))
    assert choose_event(*crowd, [NOVEL], 0.0)[1] == NOVEL


def test_the_plainest_has_the_estimate_of_the_best() -> None:
    """The search compares pairs as it would without the rule."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        drawn = [
            [{name: float(rng.integers(4) + shift) for name in ("rows", "x: mean", "x: largest")} for _ in range(12)]
            for shift in (0, 2)
        ]
        first, second = (choose_event(drawn[0], drawn[1], [], 0.0, plainest_wins=wins) for wins in (True, False))
        assert first[0] == second[0]
        assert plainness(first[1]) <= plainness(second[1])


@pytest.mark.parametrize(("hits", "runs"), [((0, 5), (5, 5)), ((1, 4), (6, 4)), ((3, 3), (5, 5)), ((4, 0), (5, 3))])
def test_the_chance_is_that_of_all_ways_to_deal_the_hits(hits: tuple[int, int], runs: tuple[int, int]) -> None:
    """By counting them, and beside scipy."""
    every, both = sum(runs), sum(hits)
    dealt = [sum(index < runs[0] for index in chosen) for chosen in combinations(range(every), both)]
    more = sum(number >= hits[0] for number in dealt) / len(dealt)
    fewer = sum(number <= hits[0] for number in dealt) / len(dealt)
    assert by_chance(hits, runs) == pytest.approx(min(1.0, 2 * min(more, fewer)))
    tail = stats.hypergeom(every, both, runs[0])
    assert by_chance(hits, runs) == pytest.approx(min(1.0, 2 * min(tail.sf(hits[0] - 1), tail.cdf(hits[0]))))


def test_the_rule_rarely_names_a_feature_that_tells_nothing() -> None:
    """One real, composed event and ten plainer features of pure noise, two values each, after six runs a side.

    A noise feature replaces the real one with probability at most `CHANCE`; in 400 trials more than 39 have probability
    below 1e-4 (binomial).
    """
    rng, wrong = np.random.default_rng(11), 0
    for _ in range(400):
        drawn = [
            [
                {NOVEL.feature: float(side), **{f"{k}: target's value": float(rng.integers(2)) for k in range(10)}}
                for _ in range(6)
            ]
            for side in (0, 1)
        ]
        wrong += choose_event(drawn[0], drawn[1], [NOVEL], 0.0)[1] != NOVEL
    assert wrong <= stats.binom.isf(1e-4, 400, CHANCE)


def test_what_is_copied_is_said() -> None:
    held = ({"rows": 5.0, "b: mean": 0.5}, {"rows": 6.0, "b: mean": 0.7})
    runs = sides(8, {"rows": 5.0, "b: mean": 0.4}, {"rows": 6.0, "b: mean": 0.7})
    assert is_copied("rows", runs, held)
    assert not is_copied("b: mean", runs, held)
    assert not is_copied("rows", runs, None)
    assert not is_copied("rows", ([*runs[0], {"rows": 4.0}], runs[1]), held), "one run has another number"
    assert not is_copied("rows", ([{FAILED: 1.0}], runs[1]), held), "nothing was written"
    assert is_copied("rows", ([{FAILED: 1.0}, *runs[0]], runs[1]), held), (
        "a failed run copies nothing, and hides nothing"
    )
    assert copied_in_words("rows") == "the number of rows equals the number of records"


def test_a_column_that_repeats_the_mean_is_named_by_its_mean() -> None:
    """Its largest value tells as much and is plainer, but is not that of the data."""
    held = ({"b: mean": 2.0, "b: largest": 9.0}, {"b: mean": 3.0, "b: largest": 12.0})
    runs = sides(8, {"b: mean": 2.0, "b: largest": 2.0}, {"b: mean": 3.0, "b: largest": 3.0})
    assert choose_event(*runs, [], 0.0, held=held)[1].feature == "b: mean"
    assert choose_event(*runs, [], 0.0)[1].feature == "b: largest"
    runs = sides(8, {"b: target's value": 0.0, "b: largest": 9.0}, {"b: target's value": 1.0, "b: largest": 12.0})
    assert choose_event(*runs, [], 0.0, held=held)[1].feature == "b: largest"
    assert choose_event(*runs, [], 0.0)[1].feature == "b: target's value"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event("rows", 200.5), "the output has at least 201 rows"),
        (Event(FAILED, 0.5), "the run fails"),
        (Event("city: target's value", 0.5), "column 'city' has the target's value"),
        (Event("city: target's value", 2.5), "at least 3 cells of column 'city' have the target's value"),
        (Event("a: b: largest", 2.5), "the largest value of column 'a: b' is at least 2.5"),
        (Event("{n}: empty cells", 1.0), "column '{n}' has an empty cell"),
        (Event(f"age: {TOWARD}", 1.0), "a number of column 'age' is nearer to the target's than to those of D"),
        (Event(TOWARD, 1.0), "a number is nearer to the target's than to those of D"),
        (Event(SHOWN, 2.0), "the target shows in at least 2 columns"),
        (Event("rows with the target's city and plan", 1.0), "a row has the target's city and plan together"),
        (Event("something new", 1.5), "“something new” is at least 1.5"),
        (Event("rows", -math.inf), "the output has a row"),
    ],
)
def test_events_are_clauses(event: Event, words: str) -> None:
    assert in_words(event) == words


def test_one_is_the_threshold_if_no_run_had_a_smaller_number() -> None:
    assert plain_threshold(Event("city: target's value", 2.5), 0.0).threshold == 1.0
    assert plain_threshold(Event("city: target's value", 2.5), 1.0).threshold == 2.5
    assert plain_threshold(Event("age: largest", 2.5), 0.0).threshold == 2.5


def test_every_feature_has_words() -> None:
    """None of an output of all kinds of columns falls back on its own name."""
    rows = [
        {
            "city": "ABC"[index % 3],
            "plan": "xyz"[index % 3],
            "age": 20.5 + index,
            "note": " ".join(["word"] * (3 + index % 4)) + f" w{index}",
        }
        for index in range(30)
    ]
    columns = describe_columns(rows)
    pairs = neighboring_data(Sample(tuple(rows), columns, Adjacency.ADD_REMOVE), np.random.default_rng(0))
    features = OutputFeatures(columns, pairs).of(rows, [pair.name for pair in pairs])
    names = {name for item in features.values() for name in item}
    assert len(names) > 30
    for name in names:
        for threshold in (1.0, 7.25):
            assert not in_words(Event(name, threshold)).startswith("“"), name
    assert plainness(Event("no such feature", 1.0))[0] == Plainness.COMPOSED
