"""The leak that a test detects with 50 % power: numbers that a binomial law gives, and the sentence that says them."""

from __future__ import annotations

import json
import math

import pytest
from scipy import stats

from dpassay.audits.detection import detectable
from dpassay.audits.statistics.ceilings import ErrorRates, OneRun
from dpassay.audits.statistics.power import AsPrinted, RandomizedResponse, SourceAndHoldout, chance_to_show
from dpassay.base.number_format import format_percent, format_upper

STANDS_OUT, PRINTED = "of the planted canaries stand out", "of the planted keys are printed"


def test_fifty_three_of_a_hundred_are_no_reassurance() -> None:
    """59 right guesses of 100 are the fewest that show something at 95 %: P[Bin(100, ½) ≥ 59] = .044."""
    assert stats.binom.sf(58, 100, 0.5) < 0.05 < stats.binom.sf(57, 100, 0.5)
    limit = detectable(OneRun(1000, 100, "tight"), confidence=0.95)
    assert limit.right is not None
    assert limit.epsilon is not None
    assert limit.share is not None
    assert stats.binom.sf(58, 100, limit.right) == pytest.approx(0.5, rel=1e-9)
    assert math.log(limit.right / (1 - limit.right)) == pytest.approx(limit.epsilon, rel=1e-9)
    right, share = format_percent(limit.right, "up"), format_percent(limit.share, "up")
    best = f"(the best attack at ε = {format_upper(limit.epsilon, 3)})"
    ways = f"{right} of its guesses are right {best}, or if {share} of the planted canaries stand out"
    assert limit.sentence(STANDS_OUT) == (
        f"A test of this size has 50 % power to show a leak if {ways}; less for smaller leaks."
    )
    assert "stand out" not in limit.sentence()
    json.dumps(limit.to_json(), allow_nan=False)


def test_what_is_printed_is_compared_with_what_chance_prints() -> None:
    """Five printed keys, all planted, are the fewest that show something at 95 %."""
    alone = detectable(AsPrinted(1000), confidence=0.95)
    assert stats.binom.sf(4, 1000, (alone.share or 0) / 2) == pytest.approx(0.5, rel=1e-9)
    said = f"if {format_percent(alone.share or 0, 'up')} of the planted keys are printed and no others; less"
    assert said in alone.sentence(PRINTED)
    common = detectable(AsPrinted(1000), 1.0, confidence=0.95, by_chance=0.1)
    assert (common.share or 0) > 0.1
    assert "has 50 % power to refute the claim" in common.sentence(PRINTED)
    assert "are printed, and others as often as here; less" in common.sentence(PRINTED)
    split = detectable(SourceAndHoldout(100, 100), confidence=0.95)
    assert split.epsilon is None
    assert "of the source units are hit and no others" in split.sentence("of the source units are hit")


def test_many_runs_are_compared_with_randomised_response() -> None:
    limit = detectable(ErrorRates(700, 700), 1.0, confidence=0.95, share=False)
    at = chance_to_show(ErrorRates(700, 700), RandomizedResponse(limit.epsilon or 0), 1.0, confidence=0.95)
    assert at == pytest.approx(0.5, abs=1e-6)
    assert f"(randomised response of ε = {format_upper(limit.epsilon, 3)})" in limit.sentence()


def test_a_test_that_is_too_small_says_so() -> None:
    limit = detectable(OneRun(20, 4, "tight"), confidence=0.95)
    assert limit.sentence(STANDS_OUT) == "A test of this size has less than 50 % power to show a leak, whatever leaks."
