"""`assert_never_exceeds` fails mechanisms that leak more than they claim, passes those that do not, and says which."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import own_mechanisms as mechanisms
import pytest

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import GDP, ApproxDP, ExPostDP, PureDP
from dpassay.audits.games.distinguishing_choice import detection_limit
from dpassay.testing.assertions import CONFIDENCE, RUNS, SeededSource, assert_never_exceeds

PAIR: dict[str, Any] = {"data": [1, 2], "neighbor": [1, 2, 3]}

limit = functools.partial(detection_limit, confidence=CONFIDENCE, statistic="score_bets")


def test_a_mechanism_that_keeps_its_claim_passes_and_tells_what_could_have_been() -> None:
    (bound,) = assert_never_exceeds(mechanisms.count, PureDP(1.0), **PAIR)
    assert 0.5 < bound.value <= 1.0  # about .75 at this confidence; a test without power shows 0
    assert bound.ceiling == limit(PureDP(1.0), RUNS).ceiling > 5
    assert bound.detectable is not None
    assert bound.detectable.epsilon is not None
    assert 1 < bound.detectable.epsilon < 1.5
    assert bound.rigor is Rigor.FINITE_SAMPLE
    assert bound.confidence == CONFIDENCE
    assert (bound.adjacency, bound.unit) == (Adjacency.ADD_REMOVE, Unit())
    again = assert_never_exceeds(mechanisms.count, PureDP(1.0), **PAIR)
    assert again == (bound,)


@pytest.mark.parametrize(("noise", "runs", "seed"), [(1.0, RUNS, 0), (1.865, 20_000, 3)])
def test_noise_that_is_too_small_is_found(noise: float, runs: int, seed: int) -> None:
    """(1, 1e-5) needs a standard deviation of 3.73. Counts beyond one threshold show .9 here, at any threshold.

    Over seeds, the first is found nearly always, the second in 21 of 40 (`benchmarks/shift_power.py`).
    """

    def mechanism(data: list[int], source: SeededSource) -> float:
        return len(data) + float(source.generator.normal(scale=noise))

    with pytest.raises(AssertionError, match=r"mechanism leaks more than it claims, \(ε, δ\)"):
        assert_never_exceeds(mechanism, ApproxDP(1.0, 1e-5), data=[1], neighbor=[1, 2], runs=runs, seed=seed)
    (bound,) = assert_never_exceeds(mechanism, ApproxDP(4.5, 1e-5), data=[1], neighbor=[1, 2], runs=RUNS)
    assert bound.detectable is not None
    assert bound.detectable.noise is not None
    assert bound.detectable.noise < 0.6  # half of what (4.5, 1e-5) needs is 0.53


def test_the_seed_is_the_sample() -> None:
    assert len({assert_never_exceeds(mechanisms.count, PureDP(1.0), **PAIR, runs=400, seed=n) for n in range(3)}) == 3


def test_a_planted_bug_is_found_and_the_message_says_where_to_look() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_never_exceeds(mechanisms.loud_count, PureDP(1.0), **PAIR)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "loud_count leaks more than it claims, pure differential privacy with ε = 1 (add_remove, unit record)"
    )
    assert lines[1].startswith("shown:   ε ≥ 1.")
    assert lines[1].endswith(" with confidence 0.999999; the claim allows 1")
    assert " of 1800 runs on the neighbor and in " in lines[2]
    assert "one record more or less" in lines[3]
    assert lines[-1] == "again:   seed=0, runs=2000; the same runs if all randomness comes from `source`"


def test_the_values_that_occur_are_a_leak() -> None:
    with pytest.raises(
        AssertionError, match=r"of the form \(keys, lengths, NaN\).* points to the neighbor in 180 of 180 runs"
    ):
        assert_never_exceeds(mechanisms.only_those_there, PureDP(1.0), **PAIR, runs=200)


def test_noise_from_a_fixed_seed_is_said_to_be() -> None:
    with pytest.raises(AssertionError, match="note:    Every run on D gave one output, and every run on D′ another"):
        assert_never_exceeds(mechanisms.fixed_seed, PureDP(1.0), **PAIR, runs=200)


def test_a_mechanism_with_entropy_of_its_own() -> None:
    """The claim is true, so each of these fails with probability at most 1e-6 a run of this suite."""
    (bound,) = assert_never_exceeds(mechanisms.coin, PureDP(math.log(3)), **PAIR, score=float, runs=800)
    assert bound.value > 0.2  # .65 from the expected counts, with a standard error of .06
    with pytest.raises(AssertionError, match="coin leaks more"):
        assert_never_exceeds(mechanisms.coin, PureDP(0.1), **PAIR, runs=2400)  # some of them fit the score


def test_a_mechanism_that_takes_a_numpy_generator() -> None:
    def adapted(data: list[int], source: SeededSource) -> Any:
        return mechanisms.numpy_sum(data, rng=source.generator)

    near: dict[str, Any] = {"data": [0], "neighbor": [1], "adjacency": "replace_one"}
    (bound,) = assert_never_exceeds(adapted, GDP(1.0), **near, runs=400)
    assert bound.delta is not None
    far: dict[str, Any] = {"data": [0], "neighbor": [4], "adjacency": "replace_one"}
    with pytest.raises(AssertionError, match=r"Gaussian differential privacy with μ = 1 \(replace_one"):
        assert_never_exceeds(adapted, GDP(1.0), **far, runs=400)


def test_the_generator_and_the_source_of_a_run_differ_from_those_of_others() -> None:
    first, same, second = (SeededSource(np.random.SeedSequence(5, spawn_key=(key,))) for key in (0, 0, 1))
    assert first.generator.normal() == same.generator.normal() != second.generator.normal()
    assert first.below(10**9) == same.below(10**9) != second.below(10**9)
    assert first.name == "recorded"


def test_no_two_runs_share_their_randomness() -> None:
    """Two of 400 words of 64 bits agree by chance with probability below 1e-14."""
    seen: list[int] = []

    def draws(data: list[int], source: SeededSource) -> int:
        seen.extend([source.below(2**64), int(source.generator.integers(2**63))])
        return 0

    assert_never_exceeds(draws, PureDP(1.0), **PAIR, runs=100)
    assert len(set(seen)) == len(seen) == 400


def test_several_pairs_are_paid_for() -> None:
    pairs = [([1, 2], [1, 2, 3]), ([1], [1, 3]), ([], [3])]
    bounds = assert_never_exceeds(mechanisms.count, PureDP(1.0), pairs=pairs, runs=400)
    assert [bound.confidence for bound in bounds] == [1 - (1 - CONFIDENCE) / 3] * 3
    assert len({bound.value for bound in bounds}) == 3  # each with runs of its own

    def quiet_if_empty(data: list[int], source: SeededSource) -> int:
        return mechanisms.count(data, source) if data else 0

    with pytest.raises(AssertionError, match="pair:    number 2 of 3, counted from 0, the worst of 1 that failed"):
        assert_never_exceeds(quiet_if_empty, PureDP(1.0), pairs=pairs, runs=400)


@pytest.mark.slow
def test_workers_do_not_change_what_is_found() -> None:
    results = [assert_never_exceeds(mechanisms.count, PureDP(1.0), **PAIR, runs=200, workers=n) for n in (1, 2)]
    assert results[0] == results[1]


def test_an_interrupted_test_goes_on(tmp_path: Path) -> None:
    mechanism = functools.partial(mechanisms.stop_at, 151, str(tmp_path / "runs"))
    options: dict[str, Any] = {**PAIR, "runs": 200, "folder": tmp_path / "kept"}
    with pytest.raises(KeyboardInterrupt):
        assert_never_exceeds(mechanism, PureDP(1.0), **options)
    result = assert_never_exceeds(mechanism, PureDP(1.0), **options)
    assert result == assert_never_exceeds(mechanisms.count, PureDP(1.0), **PAIR, runs=200)
    assert (tmp_path / "runs").stat().st_size == 400 + 1  # the interrupted run was run again, and no other
    for change in ({"neighbor": [1, 2, 4]}, {"score": float}):
        with pytest.raises(ValueError, match="holds repetitions of other settings"):
            assert_never_exceeds(mechanism, PureDP(1.0), **{**options, **change})
    with pytest.raises(ValueError, match="holds repetitions of other settings"):
        assert_never_exceeds(mechanisms.count, PureDP(1.0), **options)


def test_kept_outputs_are_those_of_the_same_arguments(tmp_path: Path) -> None:
    """A partial, an object or a closure with another scale is another mechanism: its outputs are not taken for it."""

    def closure(scale: float) -> Any:
        return lambda data, source: mechanisms.scaled_count(data, source, scale=scale)

    def partial(scale: float) -> Any:
        return functools.partial(mechanisms.scaled_count, scale=scale)

    for number, make in enumerate((partial, mechanisms.ScaledCount, closure)):
        options: dict[str, Any] = {**PAIR, "runs": 200, "folder": tmp_path / str(number)}
        result = assert_never_exceeds(make(10.0), PureDP(1.0), **options)
        assert assert_never_exceeds(make(10.0), PureDP(1.0), **options) == result
        with pytest.raises(ValueError, match="holds repetitions of other settings"):
            assert_never_exceeds(make(0.1), PureDP(1.0), **options)
    with pytest.raises(ValueError, match="holds repetitions of other settings"):
        assert_never_exceeds(mechanisms.count, PureDP(1.0), **options)


@pytest.mark.parametrize("data", [[[1, 2], [1, 2, 3]], [np.arange(2), np.arange(3)]], ids=["list", "array"])
def test_a_mechanism_that_changes_its_data_is_refused(data: list[Any]) -> None:
    """From the second run on there would be nothing to tell apart, and the leak would pass."""

    def last_one_read(data: Any, source: SeededSource) -> int:
        total = int(sum(data))
        data[-1] = 0
        return total

    with pytest.raises(ValueError, match=r"last_one_read changes its data, so that later runs have others"):
        assert_never_exceeds(last_one_read, PureDP(1.0), data=data[0], neighbor=data[1], runs=200)


def test_a_test_that_could_not_fail_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="this test could not fail; take more than") as caught:
        assert_never_exceeds(mechanisms.fails, PureDP(6.0), **PAIR)
    assert str(caught.value).startswith(
        "2000 runs can show at most ε = 5.56098, and pure differential privacy with ε = 6"
    )
    enough = int(str(caught.value).split("more than ")[1].split()[0])
    assert limit(PureDP(6.0), enough).can_refute
    assert not limit(PureDP(6.0), enough - 1).can_refute
    with pytest.raises(ValueError, match="no number of runs is enough"):
        assert_never_exceeds(mechanisms.fails, PureDP(60.0), **PAIR)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": [1], "neighbor": [1]}, "not neighbours under add_remove: .* 0 and 0 records are left"),
        ({"data": [1, 2], "neighbor": [1, 3]}, "not neighbours under add_remove: .* 1 and 1 records"),
        ({"data": [1, 2], "neighbor": [1, 2, 3], "adjacency": "replace_one"}, "replace_one: .* 0 and 1 records"),
        ({"data": [1, 2, 3], "neighbor": [3, 2, 1], "adjacency": "replace_one"}, "3 and 3 .* in the same order"),
        ({"data": np.zeros((4, 2)), "neighbor": np.ones((4, 2)), "adjacency": "zero_out"}, "4 and 4 records"),
        ({"pairs": []}, "at least one pair"),
        ({"pairs": [[0]]}, "with two data sets in each"),
        ({}, "give either data and neighbor, or pairs"),
        ({"data": [1], "neighbor": [], "pairs": [([1], [])]}, "give either data and neighbor, or pairs"),
        ({"data": [1], "neighbor": [], "runs": 10}, "10 runs on each side are too few"),
        ({"data": [1], "neighbor": [], "confidence": 1.0}, "confidence must be"),
    ],
)
def test_what_is_no_test_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assert_never_exceeds(mechanisms.fails, PureDP(1.0), **options)
    with pytest.raises(ValueError, match="says nothing about how often outputs occur"):
        assert_never_exceeds(mechanisms.fails, ExPostDP(1.0), **PAIR)


@pytest.mark.parametrize(
    "options",
    [
        {"data": [1, 1, 1], "neighbor": [1, 1]},
        {"data": [math.nan, 2.0], "neighbor": [2.0]},
        {"data": np.array([[1.0, math.nan], [2.0, 3.0]]), "neighbor": np.array([[1.0, math.nan]])},
        {"data": [1, 2], "neighbor": [1, 3], "adjacency": "replace_one"},
        {"data": [1, 2, 3], "neighbor": [1], "unit": Unit("group", 2)},
        {"data": "a text", "neighbor": "another"},
        {"data": [np.array([1, 2]), np.array([1])], "neighbor": [np.array([1, 2])]},
    ],
)
def test_neighbours_are_not_refused(options: dict[str, Any]) -> None:
    def constant(data: Any, source: SeededSource) -> int:
        return 0

    assert [bound.value for bound in assert_never_exceeds(constant, PureDP(0.1), runs=100, **options)] == [0.0]


def test_faults_of_the_mechanism_and_odd_outputs_are_shown_as_they_are() -> None:
    with pytest.raises(KeyError, match="no column") as caught:
        assert_never_exceeds(mechanisms.fails, PureDP(1.0), **PAIR)
    assert any("in repetition 0 of seed 0" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="an output of type object is neither a number"):
        assert_never_exceeds(mechanisms.object_of, PureDP(1.0), **PAIR)
    with pytest.raises(AssertionError, match=r"the given score .*points to the neighbor"):
        assert_never_exceeds(
            mechanisms.object_of,
            ApproxDP(1.0, 1e-5),
            **PAIR,
            runs=200,
            score=lambda output: isinstance(output, np.datetime64),
        )
