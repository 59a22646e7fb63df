"""The histogram without noise is written out beside the one with noise."""

from __future__ import annotations

import functools

from dp_accounting import dp_event
from exhibits import Exhibit, at_least, claimed, on_the_page, one_by_one, told_apart, verdict

from dpassay.accounting import PureDP
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.enumerated_neighbors import neighbors
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings

CLAIM = PureDP(1.0)
EVENT = dp_event.DiscreteLaplaceDpEvent(1.0, 1)
DATA, NEIGHBOR = list("aab"), list("aabb")


def mechanism(*, bug: bool) -> Mechanism[list[str]]:
    def run(data: list[str], recorder: Recorder) -> dict[str, list[float]]:
        counts = [float(data.count(letter)) for letter in "ab"]
        noisy = recorder.discrete_laplace(counts, EVENT, scale=1.0).tolist()
        return {"histogram": noisy, "votes": counts if bug else [max(0.0, count) for count in noisy]}

    return run


def test_record_and_replay_finds_an_output_that_is_no_function_of_the_releases() -> None:
    near = list(neighbors(DATA, "ab", adjacency="add_remove"))
    (result,) = record_replay_findings(mechanism(bug=True), DATA, near, adjacency="add_remove", plan=EVENT)
    assert (result.kind, result.step) == ("output", None)
    assert not record_replay_findings(mechanism(bug=False), DATA, near, adjacency="add_remove", plan=EVENT)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """By what is written for b, which is 1 or 2; the mended one by the noisy number."""
    return tuple(
        told_apart(
            one_by_one(mechanism(bug=bug)), DATA, NEIGHBOR, CLAIM, runs=3000, score=lambda written: written["votes"][1]
        )
        for bug in (True, False)
    )


def test_the_two_data_sets_are_told_apart() -> None:
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value == wrong.ceiling
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "a clean histogram written out beside the noisy one",
        "no single source: logs and caches of voting rounds",
        "record and replay; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, all that so many runs can show; no ε holds",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
