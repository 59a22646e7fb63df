"""Noise that is drawn with the same seed in every run is known to whoever has the code."""

from __future__ import annotations

import functools

import numpy as np
from dp_accounting import dp_event
from exhibits import Exhibit, at_least, claimed, on_the_page, one_by_one, told_apart, verdict

from dpassay.accounting import ApproxDP, gaussian
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings

CLAIM = ApproxDP(1.0, 1e-5)
DATA, NEIGHBOR = list("aab"), list("aabb")
SCALE = gaussian.analytic_noise_multiplier(CLAIM.epsilon, CLAIM.delta)
EVENT = dp_event.GaussianDpEvent(SCALE)


def mechanism(*, bug: bool) -> Mechanism[list[str]]:
    goes_on = np.random.default_rng(7)  # from run to run; in place of the operating system's entropy, for this test

    def run(data: list[str], recorder: Recorder) -> list[float]:
        generator = np.random.default_rng(0) if bug else goes_on

        def noise(size: int) -> np.ndarray:
            return generator.normal(scale=SCALE, size=size)

        counts = [data.count(letter) for letter in "ab"]
        noisy: list[float] = recorder.gaussian(counts, EVENT, scale=SCALE, noise=noise).tolist()
        return noisy

    return run


def test_record_and_replay_finds_that_noise_repeats() -> None:
    """Two values of noise known to 2⁻⁵¹ or so: that another run repeats them has probability below 10⁻²⁵. The mended
    one draws from the operating system's entropy, and is accused with probability below 1e-6."""
    result = record_replay_findings(mechanism(bug=True), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)
    assert {finding.kind for finding in result} == {"noise"}
    assert min(finding.p_value for finding in result if finding.p_value is not None) < 1e-25
    assert not record_replay_findings(mechanism(bug=False), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    return tuple(told_apart(one_by_one(mechanism(bug=bug)), DATA, NEIGHBOR, CLAIM, runs=3000) for bug in (True, False))


def test_the_two_data_sets_are_told_apart() -> None:
    """Every run is right about which it was: the bound is all that so many runs can show. The mended mechanism is at
    its claim at most, so a bound above it has probability .001."""
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value == wrong.ceiling
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "noise from a fixed seed",
        "no single source: experiment code that seeds all of its generators for reproducible results",
        "record and replay; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, all that so many runs can show",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
