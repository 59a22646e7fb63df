"""Brute force over neighbours, event by event: what is declared wrongly is found, and what is right is not accused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event

from dpassay.accounting import events
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.attacks.black_box.enumerated_neighbors import neighbors
from dpassay.attacks.black_box.recorder import Recorder, record
from dpassay.audits.games.replay.record_replay import outputs_equal, record_replay_findings

GAUSSIAN = dp_event.GaussianDpEvent(2.0)
VECTORS = [(0.6, 0.8), (-1.0, 0.0), (0.0, 0.5)]


def findings(mechanism: Any, data: Any = VECTORS, others: Any = None, **options: Any) -> list[Any]:
    relation = options.pop("adjacency", "add_remove")
    near = list(neighbors(data, data, adjacency=relation)) if others is None else others
    return record_replay_findings(mechanism, data, near, adjacency=relation, rng=np.random.default_rng(1), **options)


def kinds(result: list[Any]) -> list[str]:
    return [finding.kind for finding in result]


def total(data: list[tuple[float, float]]) -> np.ndarray:
    return np.asarray(np.array(data).reshape(-1, 2).sum(axis=0))


@pytest.mark.parametrize(
    ("relation", "moved"),
    # One vector of length 1 comes or goes; the two that are farthest apart, (0.6, 0.8) and (−1, 0), are exchanged.
    [("add_remove", 1.0), ("replace_one", math.sqrt(1.6**2 + 0.8**2)), ("zero_out", 1.0)],
)
def test_the_sensitivity_of_a_sum_is_what_brute_force_finds(relation: str, moved: float) -> None:
    """σ = 2 and a noise multiplier z declare that a unit contributes 2/z, and may move the sum by twice that under
    replace_one. The smallest declaration that holds is found to one part in 10⁶."""
    near = list(neighbors(VECTORS, VECTORS if relation != "zero_out" else [(0.0, 0.0)], adjacency=relation))
    times = 2 if relation == "replace_one" else 1

    def mechanism(sensitivity: float) -> Any:
        event = dp_event.GaussianDpEvent(2.0 * times / sensitivity)
        return lambda data, recorder: recorder.gaussian(total(data), event, scale=2.0)

    assert not findings(mechanism(moved * (1 + 1e-6)), others=near, adjacency=relation)
    (result,) = findings(mechanism(moved * (1 - 1e-6)), others=near, adjacency=relation)
    assert (result.kind, result.step) == ("sensitivity", 0)
    assert result.declared == pytest.approx(moved * (1 - 1e-6), rel=1e-12)
    assert result.measured == pytest.approx(moved, rel=1e-12)


@pytest.mark.parametrize("name", ["laplace", "discrete_laplace"])
@pytest.mark.parametrize(("relation", "moved"), [("add_remove", 1), ("replace_one", 2)])
def test_the_sensitivity_of_a_histogram_is_counted_in_l1(name: str, relation: str, moved: int) -> None:
    data = list("aabc")

    def mechanism(share: float) -> Any:
        def run(data: list[str], recorder: Recorder) -> Any:
            counts = [data.count(letter) for letter in "abc"]
            if name == "laplace":
                return recorder.laplace(counts, dp_event.LaplaceDpEvent(3.0 * share), scale=3.0)
            return recorder.discrete_laplace(counts, dp_event.DiscreteLaplaceDpEvent(1 / 3 / share, 1), scale=3.0)

        return run

    assert not findings(mechanism(1.0), data, adjacency=relation)
    (result,) = findings(mechanism(1.01), data, adjacency=relation)
    assert result.kind == "sensitivity"
    assert result.measured == moved
    assert result.declared == pytest.approx(moved / 1.01, rel=1e-12)


def test_the_range_of_a_selection_is_over_all_outcomes() -> None:
    """Votes for three candidates at temperature ½: one vote more moves one score by 1, so that η = 2."""

    def mechanism(eta: float) -> Any:
        event = BoundedRangeSelectionDpEvent(eta)
        return lambda data, recorder: recorder.select([data.count(name) / 0.5 for name in "abc"], event)

    assert not findings(mechanism(2.0), list("aabc"))
    (result,) = findings(mechanism(1.9), list("aabc"))
    assert (result.kind, result.declared) == ("range", 1.9)
    assert result.measured == pytest.approx(2.0, abs=1e-12)


def test_an_outcome_that_only_some_data_allow_has_no_range() -> None:
    event = BoundedRangeSelectionDpEvent(100.0)
    (result,) = findings(
        lambda data, recorder: recorder.select([0.0 if name in data else -math.inf for name in "abc"], event),
        list("ab"),
    )
    assert (result.kind, result.measured) == ("range", math.inf)


def test_what_is_read_past_all_events_changes_the_output() -> None:
    def leaks(data: list[str], recorder: Recorder) -> Any:
        noisy = recorder.gaussian(len(data), dp_event.GaussianDpEvent(2.0), scale=2.0)
        return {"count": noisy, "exact": len(data)}

    def keeps(data: list[str], recorder: Recorder) -> Any:
        noisy = recorder.gaussian(len(data), dp_event.GaussianDpEvent(2.0), scale=2.0)
        return {"count": noisy, "rounded": round(float(noisy))}

    assert kinds(findings(leaks, list("ab"))) == ["output"]
    assert not findings(keeps, list("ab"))


def test_noise_and_steps_that_depend_on_the_data_are_found() -> None:
    def private_scale(data: list[str], recorder: Recorder) -> Any:
        return recorder.gaussian(0.0, GAUSSIAN, scale=2.0 / len(data))

    (result,) = findings(private_scale, list("aab"))
    assert (result.kind, result.declared) == ("scale", 2 / 3)

    def private_count(data: list[str], recorder: Recorder) -> Any:
        return [float(recorder.gaussian(0.0, GAUSSIAN, scale=2.0)) for _ in data]

    (more,) = findings(private_count, list("aab"), [list("aabb")])
    assert (more.kind, more.step, more.neighbor) == ("steps", 3, 0)
    assert "one step more than the 3" in more.measured


def test_what_is_charged_is_compared_with_the_plan() -> None:
    def twice(data: list[str], recorder: Recorder) -> Any:
        return [float(recorder.gaussian(len(data), GAUSSIAN, scale=2.0)) for _ in "12"]

    assert not findings(twice, list("ab"), plan=events.compose([(GAUSSIAN, 2)]))
    (result,) = findings(twice, list("ab"), plan=GAUSSIAN)
    assert result.kind == "charges"
    assert result.declared == repr(GAUSSIAN)
    assert result.measured == repr(dp_event.SelfComposedDpEvent(GAUSSIAN, 2))


def test_a_sampled_step_is_held_to_its_inner_event_for_any_sample() -> None:
    """Rate ½: in a replay a unit more takes part, so its contribution of 3 is seen although 1 is declared."""
    data = [(i, 1.0) for i in range(4)]

    def step(data: list[tuple[int, float]], recorder: Recorder) -> Any:
        inner = dp_event.GaussianDpEvent(1.0)
        flags = recorder.sample([name for name, _ in data], dp_event.PoissonSampledDpEvent(0.5, inner))
        return recorder.gaussian(sum(x for (_, x), flag in zip(data, flags, strict=True) if flag), inner, scale=1.0)

    assert not findings(step, data, [[*data, (9, 1.0)], data[1:]])
    (result,) = findings(step, data, [[*data, (9, 3.0)]])
    assert (result.kind, result.declared, result.measured) == ("sensitivity", 1.0, 3.0)


def test_a_release_of_a_sample_that_reads_all_units_is_found() -> None:
    """A sample is drawn, charged for, and not used. Of 12 units 3 take part on average: with probability 2·4⁻¹² or less
    no unit is outside of any of two samples."""
    inner = dp_event.GaussianDpEvent(1.0)
    data = [(i, float(i + 1)) for i in range(12)]

    def of_all(data: list[tuple[int, float]], recorder: Recorder) -> Any:
        recorder.sample([name for name, _ in data], dp_event.PoissonSampledDpEvent(0.25, inner))
        return recorder.gaussian(sum(x for _, x in data) / 12, inner, scale=1.0)

    near = [[unit for unit in data if unit is not gone] for gone in data]
    (result,) = findings(of_all, data, near, plan=dp_event.PoissonSampledDpEvent(0.25, inner))
    assert (result.kind, result.step, result.p_value) == ("sampling", 1, None)
    assert result.measured == "a query that changes by 1 with units outside of the sample"
    assert result.neighbor == 11  # the largest one that is outside
    assert not findings(of_all, data, [[*data, (12, 12.0)]])  # a new one takes part, whatever it is


def test_all_runs_are_compared_with_the_plan() -> None:
    """A loop that is charged once: the first of these five runs draws once, and a later one more often."""

    def until_large(data: list[str], recorder: Recorder) -> Any:
        drawn = -math.inf
        while drawn < len(data):
            drawn = float(recorder.gaussian(len(data), GAUSSIAN, scale=2.0))
        return drawn

    rng = np.random.default_rng(1)  # as `findings` has it
    runs = [record(until_large, ["a"], rng=rng) for _ in range(5)]
    assert len(runs[0].steps) == 1 < max(len(run.steps) for run in runs)
    (result,) = findings(until_large, ["a"], [["a"]], plan=GAUSSIAN, recordings=5)
    assert result.kind == "charges"


def test_single_precision_needs_a_tolerance() -> None:
    """Sums of 50 rows of length 1, rounded to 24 bits: each error is at most 50·2⁻²⁴ of their norm, 50, and so of their
    difference at most 3e-4."""
    rows = np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def total(data: list[np.ndarray], recorder: Recorder) -> Any:
        return recorder.gaussian(np.sum(data, axis=0, dtype=np.float32), GAUSSIAN, scale=2.0)

    near = [[*rows[:i], *rows[i + 1 :]] for i in range(20)]
    assert kinds(findings(total, list(rows), near)) == ["sensitivity"]
    assert not findings(total, list(rows), near, tolerance=3e-4)


def test_randomness_that_is_not_recorded_leaves_no_conclusion() -> None:
    hidden = np.random.default_rng(1)

    def mechanism(data: list[str], recorder: Recorder) -> Any:
        return float(recorder.gaussian(len(data), GAUSSIAN, scale=2.0)) + hidden.normal()

    assert kinds(findings(mechanism, ["a"], [["a", "b"]])) == ["control"]


def test_secrets_and_a_single_recording_are_refused() -> None:
    with pytest.raises(ValueError, match="must be add_remove, replace_one or zero_out"):
        record_replay_findings(lambda data, recorder: None, [], [], adjacency="secret")
    with pytest.raises(ValueError, match="recordings must be at least 2, not 1"):
        record_replay_findings(lambda data, recorder: None, [], [], adjacency="add_remove", recordings=1)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([1, {"a": (2.0,)}], [1, {"a": (2.0,)}], True),
        ([1, {"a": (2.0,)}], [1, {"a": (2.5,)}], False),
        (np.array([1.0, math.nan]), np.array([1.0, math.nan]), True),
        (np.array([1.0, 2.0]), np.array([1, 2]), False),
        (np.array(["a"]), np.array(["b"]), False),
        (math.nan, math.nan, True),
        (1, 1.0, False),
        (GAUSSIAN, dp_event.GaussianDpEvent(2.0), True),
        (None, 0, False),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), True),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), False),
    ],
)
def test_outputs_are_compared_to_the_bit(one: Any, other: Any, equal: bool) -> None:
    assert outputs_equal(one, other) is equal
