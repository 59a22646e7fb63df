"""The assertion for test-suites."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event

from dpassay.attacks.black_box.recorder import Recorder
from dpassay.audits.games.replay.record_replay import assert_events_hold

EVENT = dp_event.GaussianDpEvent(2.0)


def count(data: list[str], recorder: Recorder) -> float:
    return float(recorder.gaussian(len(data), EVENT, scale=2.0))


def double(data: list[str], recorder: Recorder) -> float:
    return float(recorder.gaussian(2 * len(data), EVENT, scale=2.0))


def test_it_passes_and_fails_with_every_finding() -> None:
    assert_events_hold(count, ["a"], [["a", "b"], []], plan=EVENT)
    said = (
        "double does not do what it declares (add_remove):\n"
        "- charges: declared GaussianDpEvent(noise_multiplier=1.0), found GaussianDpEvent(noise_multiplier=2.0)\n"
        "- sensitivity, step 0, neighbour 1: declared 1, found 4"
    )
    with pytest.raises(AssertionError) as error:
        assert_events_hold(double, ["a"], [["a", "b"], ["a", "b", "c"]], plan=dp_event.GaussianDpEvent(1.0))
    assert str(error.value) == said


def test_the_same_seed_draws_the_same() -> None:
    drawn: list[float] = []

    def keeping(data: list[str], recorder: Recorder) -> float:
        drawn.append(count(data, recorder))
        return drawn[-1]

    for _ in "12":
        assert_events_hold(keeping, ["a"], [["a", "b"]], seed=3)
    first, second = np.split(np.array(drawn), 2)
    assert first.tolist() == second.tolist()
    assert len(set(first)) == 2  # one value a recording, handed out again in its replays


def test_without_a_neighbour_nothing_is_tested() -> None:
    with pytest.raises(ValueError, match="at least one neighbour"):
        assert_events_hold(count, ["a"], [])
