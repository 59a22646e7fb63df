"""A mean over the private number of records, with noise for a sensitivity that is divided by that number too."""

from __future__ import annotations

import functools

import numpy as np
from dp_accounting import dp_event
from exhibits import Exhibit, at_least, claimed, on_the_page, redrawn, told_apart, verdict
from numpy.typing import NDArray

from dpassay.accounting import PureDP
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.enumerated_neighbors import neighbors
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings

CLAIM = PureDP(1.0)
DATA, NEIGHBOR = [0.0, 0.0], [0.0]  # values in [0, 1]


def mechanism(*, bug: bool) -> Mechanism[list[float]]:
    def wrong(data: list[float], recorder: Recorder) -> NDArray[np.float64]:
        size = max(1, len(data))
        return recorder.laplace(sum(data) / size, dp_event.LaplaceDpEvent(1.0), scale=1 / size)

    def right(data: list[float], recorder: Recorder) -> NDArray[np.float64]:
        """A noisy sum and a noisy count at ½ each; their quotient is what anybody can work out."""
        return recorder.laplace([sum(data), len(data)], dp_event.LaplaceDpEvent(1.0), scale=2.0)

    return wrong if bug else right


def test_record_and_replay_finds_noise_and_query_off() -> None:
    """Its noise is another one for each neighbour, so that no event describes it."""
    data = [0.0, 0.0, 0.0, 0.9]
    near = list(neighbors(data, [0.0, 1.0], adjacency="add_remove"))
    plan = dp_event.LaplaceDpEvent(1.0)
    result = record_replay_findings(mechanism(bug=True), data, near, adjacency="add_remove", plan=plan)
    assert [(finding.kind, finding.declared) for finding in result] == [("scale", 0.25)]
    assert not record_replay_findings(mechanism(bug=False), data, near, adjacency="add_remove", plan=plan)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """Two zeros or one: a large release speaks for one. The mended one is tested with the linear discriminant."""
    wrong = told_apart(redrawn(mechanism(bug=True)), DATA, NEIGHBOR, CLAIM, runs=60_000, score=abs)
    right = told_apart(redrawn(mechanism(bug=False)), DATA, NEIGHBOR, CLAIM, runs=20_000)
    return wrong, right


def test_the_two_data_sets_are_told_apart() -> None:
    """The densities are e^(−2|x|) and e^(−|x|)/2, whose ratio is without bound: no ε holds."""
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "noise added to a mean after dividing by the private count, and scaled by it",
        "no single source: noisy averages under add_remove",
        "record and replay; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}; no ε holds",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
