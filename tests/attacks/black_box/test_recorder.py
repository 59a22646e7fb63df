"""What a recorder keeps of a run, and what it hands out again."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event

from dpassay.accounting import events
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.attacks.black_box.enumerated_neighbors import neighbors
from dpassay.attacks.black_box.recorder import Recorder, record, replay

GAUSSIAN = dp_event.GaussianDpEvent(2.0)
LAPLACE = dp_event.LaplaceDpEvent(1.0)
DISCRETE = dp_event.DiscreteLaplaceDpEvent(0.5, 1)
SELECTION = BoundedRangeSelectionDpEvent(1.0)
SAMPLED = dp_event.PoissonSampledDpEvent(0.5, GAUSSIAN)


def everything(data: list[float], recorder: Recorder) -> list[Any]:
    total = recorder.gaussian([[sum(data)], [0.0]], GAUSSIAN, scale=2.0)
    size = recorder.discrete_laplace(len(data), DISCRETE, scale=2.0)
    chosen = recorder.select([0.0, sum(data), -math.inf], SELECTION)
    other = recorder.laplace(sum(data), LAPLACE, scale=1.0)
    return [total.tolist(), float(size), chosen, float(other)]


def test_a_replay_has_the_releases_of_the_run_and_the_queries_of_its_own_data() -> None:
    run = record(everything, [1.0, 2.0])
    again = replay(everything, [5.0], run)
    assert again.output == run.output
    assert again.divergence is None
    assert [step.query.tolist() for step in again.steps[:2]] == [[5.0, 0.0], [1.0]]
    for step, own in zip(again.steps, run.steps, strict=True):
        assert step.value.tolist() == own.value.tolist()
    # Log-weights are kept as log-probabilities: log softmax(0, 5).
    assert again.steps[2].query.tolist() == pytest.approx(
        [-math.log1p(math.exp(5)), -math.log1p(math.exp(-5)), -np.inf]
    )
    assert run.output[0] == [[run.steps[0].value[0]], [run.steps[0].value[1]]]


def test_a_seeded_recorder_draws_from_the_declared_laws() -> None:
    """Means of 10⁵ draws: each bound is five standard errors, so that all four hold but with probability 3e-6."""
    count = 10**5
    rng = np.random.default_rng(1)
    recorder = Recorder(rng=rng)
    draws = recorder.gaussian(np.zeros(count), GAUSSIAN, scale=3.0)
    assert abs(np.mean(draws**2) / 9 - 1) < 5 * math.sqrt(2 / count)
    draws = recorder.laplace(np.zeros(count), LAPLACE, scale=3.0)
    assert abs(np.mean(np.abs(draws)) / 3 - 1) < 5 / math.sqrt(count)
    draws = recorder.discrete_laplace(np.zeros(count), DISCRETE, scale=3.0)
    assert np.array_equal(draws, np.rint(draws))
    zero = math.tanh(1 / 6)
    assert abs(np.mean(draws == 0) - zero) < 5 * math.sqrt(zero * (1 - zero) / count)
    hits = [recorder.select([0.0, math.log(3.0)], SELECTION) for _ in range(2000)]
    assert abs(np.mean(hits) - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 2000)


def test_a_sample_pays_for_what_is_inside_of_it_once() -> None:
    def mechanism(data: list[int], recorder: Recorder) -> None:
        recorder.sample(data, SAMPLED)
        for _ in range(2):
            recorder.gaussian(0.0, GAUSSIAN, scale=2.0)

    run = record(mechanism, [1, 2, 3])
    assert [step.covered for step in run.steps] == [False, True, False]
    assert run.charged() == events.compose([(SAMPLED, 1), (GAUSSIAN, 1)])


def test_units_keep_their_part_in_a_sample_and_new_ones_take_part() -> None:
    def mechanism(data: list[str], recorder: Recorder) -> list[bool]:
        flags: list[bool] = recorder.sample(data, SAMPLED, included=[name in "ac" for name in data]).tolist()
        return flags

    run = record(mechanism, ["a", "b", "c"])
    assert run.output == [True, False, True]
    assert replay(mechanism, ["c", "x", "b"], run).output == [True, True, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.gaussian(0.0, dp_event.GaussianDpEvent(3.0), scale=2.0), "GaussianDpEvent(noise_multiplier=3.0)"),
        (lambda r: r.gaussian([0.0, 0.0], GAUSSIAN, scale=2.0), "2 values, where the data have 1"),
        (lambda r: r.laplace(0.0, LAPLACE, scale=2.0), "laplace LaplaceDpEvent"),
        (lambda r: None, "1 of 1 steps are missing"),
        (lambda r: [r.gaussian(0.0, GAUSSIAN, scale=2.0) for _ in "12"], "one step more than the 1"),
    ],
)
def test_a_replay_breaks_off_where_steps_depend_on_the_data(change: Any, said: str) -> None:
    def mechanism(data: int, recorder: Recorder) -> None:
        try:
            recorder.gaussian(0.0, GAUSSIAN, scale=2.0) if data == 0 else change(recorder)
        except Exception:  # a mechanism that hides errors does not hide this
            raise AssertionError from None

    again = replay(mechanism, 1, record(mechanism, 0))
    assert again.output is None or "missing" in str(again.divergence)
    assert said in str(again.divergence)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: r.gaussian(math.nan, GAUSSIAN, scale=1.0), "finite numbers"),
        (lambda r: r.gaussian(0.0, GAUSSIAN, scale=-1.0), "scale must be at least 0"),
        (lambda r: r.select([], SELECTION), "non-empty 1-D array"),
        (lambda r: r.select([-math.inf], SELECTION), "finite maximum"),
        (lambda r: r.sample(["a", "a"], SAMPLED), "names of units must be distinct"),
        (lambda r: r.sample(["a"], SAMPLED, included=[True, False]), "1 units need as many flags"),
        (
            lambda r: r.sample(["a"], GAUSSIAN),
            "a sample step needs an event of type PoissonSampledDpEvent, not Gaussian",
        ),
        (
            lambda r: r.gaussian(0.0, LAPLACE, scale=1.0),
            "a gaussian step needs an event of type GaussianDpEvent, not Laplace",
        ),
        (lambda r: r.select([0.0], GAUSSIAN), "BoundedRangeSelectionDpEvent or ExPostSelectionDpEvent, not Gauss"),
        (lambda r: r.discrete_laplace(0, GAUSSIAN, scale=0.0), "scale must be above 0"),
    ],
)
def test_what_is_no_step_is_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(Recorder())


def test_all_neighbours() -> None:
    result = sorted(neighbors("ab", "bc", adjacency="add_remove"))
    # Taken out: a, b. Put in at three places: b or c.
    assert result == sorted([["b"], ["a"], *(list(t) for t in ("bab", "abb", "abb", "cab", "acb", "abc"))])
    assert sorted(neighbors("ab", "bc", adjacency="replace_one")) == [["a", "c"], ["b", "b"], ["c", "b"]]
    assert list(neighbors("ab", "0", adjacency="zero_out")) == [["0", "b"], ["a", "0"]]
    arrays = list(neighbors([np.ones(2), np.zeros(2)], [np.zeros(2)], adjacency="zero_out"))
    assert [[unit.sum() for unit in other] for other in arrays] == [[0, 0]]
    with pytest.raises(ValueError, match="cannot be enumerated"):
        list(neighbors("ab", "0", adjacency="secret"))


def test_neighbours_are_symmetric() -> None:
    """Each data set is a neighbour of its neighbours: all data sets of up to three units over two values."""
    for size in range(4):
        for data in map(list, itertools.product("ab", repeat=size)):
            for relation in ("add_remove", "replace_one"):
                for other in neighbors(data, "ab", adjacency=relation):
                    assert data in list(neighbors(other, "ab", adjacency=relation))
