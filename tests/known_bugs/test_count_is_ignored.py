"""A release is made ten times and accounted once."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, Floats, at_least, claimed, on_the_page, redrawn, told_apart, verdict

from dpassay.accounting import PureDP, accountant
from dpassay.accounting.bounds import Bound
from dpassay.accounting.events import compose
from dpassay.attacks.black_box.recorder import Mechanism, Recorder, record
from dpassay.audits.games.replay.record_replay import record_replay_findings

TIMES = 10
EVENT = dp_event.LaplaceDpEvent(2.0)  # ε = ½
DATA, NEIGHBOR = list("aab"), list("aaab")


def releases(data: list[str], recorder: Recorder) -> list[float]:
    return [float(recorder.laplace(data.count("a"), EVENT, scale=2.0)) for _ in range(TIMES)]


MECHANISM: Mechanism[list[str]] = releases


def plan(*, bug: bool) -> dp_event.DpEvent:
    """What the run is accounted as."""
    return EVENT if bug else dp_event.SelfComposedDpEvent(EVENT, TIMES)


def claim(*, bug: bool) -> PureDP:
    return PureDP(accountant("basic", "add_remove").compose(plan(bug=bug)).epsilon(0.0).value)


def test_record_and_replay_counts_what_is_released() -> None:
    (result,) = record_replay_findings(MECHANISM, DATA, [NEIGHBOR], adjacency="add_remove", plan=plan(bug=True))
    assert result.kind == "charges"
    assert (result.declared, result.measured) == (repr(EVENT), repr(dp_event.SelfComposedDpEvent(EVENT, TIMES)))
    assert not record_replay_findings(MECHANISM, DATA, [NEIGHBOR], adjacency="add_remove", plan=plan(bug=False))
    assert record(MECHANISM, DATA).charged() == compose([(EVENT, TIMES)])


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """By the log-likelihood ratio, Σ |x − 2| − |x − 3| over 2."""

    def ratios(data: list[str], runs: int, rng: np.random.Generator) -> Floats:
        released = redrawn(MECHANISM)(data, runs, rng)
        return np.asarray(np.sum(np.abs(released - 2) - np.abs(released - 3), axis=1) / 2)

    return tuple(told_apart(ratios, DATA, NEIGHBOR, claim(bug=bug), runs=40_000, score=float) for bug in (True, False))


def test_the_two_data_sets_are_told_apart() -> None:
    assert claim(bug=True).epsilon == pytest.approx(0.5, abs=1e-12)
    assert claim(bug=False).epsilon == pytest.approx(5.0, abs=1e-12)
    wrong, right = sampled()
    assert verdict(claim(bug=True), wrong) == "REFUTED"
    assert verdict(claim(bug=False), right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "one event charged for ten releases",
        "`dp_accounting` 0.6.0 ignores the count of `RandomizedResponseDpEvent` (`test_bugs_of_dp_accounting.py`)",
        "record and replay; distinguishing",
        claimed(claim(bug=True)),
        at_least(sampled()[0]),
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
