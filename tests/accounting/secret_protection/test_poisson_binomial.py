"""Laws of counts against exact rational arithmetic and 50-digit generating functions."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.secret_protection.poisson_binomial_laws import (
    envelope,
    occurrences,
    poisson_binomial,
    trimmed,
    weight_error,
)


def exact_law(probabilities: list[float]) -> list[Fraction]:
    """In whole numbers over one power of two, which every float has as its denominator."""
    law, denominator = [1], 1
    for hit, whole in (probability.as_integer_ratio() for probability in probabilities):
        law = [a * (whole - hit) + b * hit for a, b in zip([*law, 0], [0, *law], strict=True)]
        denominator *= whole
    return [Fraction(weight, denominator) for weight in law]


def assert_close(got: list[float], exact: list[Fraction], relative: float, absolute: float = 1e-290) -> None:
    assert len(got) == len(exact)
    for a, b in zip(got, exact, strict=True):
        assert abs(Fraction(a) - b) <= Fraction(relative) * b + Fraction(absolute)


ordinary = st.floats(2.0**-30, 1)
probability = st.one_of(ordinary, st.sampled_from([0.0, 1.0, 0.5, 1 - 2.0**-53, 5e-324]))


@examples(20, 60, derandomize=True)
@given(st.lists(probability, max_size=30), st.integers(0, 60), ordinary)
def test_weights_are_within_their_error(singles: list[float], times: int, repeated: float) -> None:
    """Blocks, binomials (from 32 equal probabilities on), certain and impossible trials, and all of them together."""
    probabilities = [*singles, *[repeated] * times]
    assert_close(poisson_binomial(probabilities).tolist(), exact_law(probabilities), weight_error(len(probabilities)))


def test_several_blocks_are_within_their_error() -> None:
    probabilities = np.random.default_rng(3).uniform(0, 1, 400).tolist()
    assert_close(poisson_binomial(probabilities).tolist(), exact_law(probabilities), weight_error(400))


@pytest.mark.parametrize("probability", [0.01, 0.5, 0.999, 1e-6])
def test_eight_thousand_equal_trials(probability: float) -> None:
    got = poisson_binomial(np.full(8000, probability))
    with mpmath.workdps(50):
        q = mpmath.mpf(probability)
        for k in {0, 1, 7, 80, 160, 800, 4000, 4100, 7990, 8000}:
            exact = mpmath.binomial(8000, k) * q**k * (1 - q) ** (8000 - k)
            assert abs(mpmath.mpf(float(got[k])) - exact) <= weight_error(8000) * exact + mpmath.mpf(10) ** -290


@pytest.mark.parametrize("largest", [0.02, 1.0])
def test_eight_thousand_different_trials(largest: float) -> None:
    """Σ w_k zᵏ = Π(1 − ρ + ρz) with positive terms only, so its relative error is at most that of the weights."""
    probabilities = np.random.default_rng(5).uniform(0, largest, 8000)
    got = poisson_binomial(probabilities)
    with mpmath.workdps(50):
        for z in (mpmath.mpf(1) / 2, mpmath.mpf(1), mpmath.mpf(2)):
            exact = mpmath.fprod(1 - mpmath.mpf(q) + mpmath.mpf(q) * z for q in probabilities.tolist())
            total = mpmath.fsum(mpmath.mpf(w) * z**k for k, w in enumerate(got.tolist()) if w)
            assert abs(total / exact - 1) <= weight_error(8000)


@examples(17, 50, derandomize=True)
@given(st.lists(ordinary, min_size=1, max_size=40), st.floats(-25, -3).map(lambda power: 10.0**power))
def test_what_is_left_out_is_at_most_what_is_said(probabilities: list[float], tail: float) -> None:
    exact = exact_law(probabilities)
    for law in (occurrences(probabilities, tail), trimmed(poisson_binomial(probabilities), weight_error(40), tail)):
        kept = slice(law.first, law.first + law.weights.size)
        assert sum(exact) - sum(exact[kept]) <= Fraction(law.lost_mass)
        for got, true in zip(law.weights.tolist(), exact[kept], strict=True):
            assert Fraction(got) <= true * (1 + Fraction(law.error))
            assert Fraction(got) >= true * (1 - Fraction(law.error)) - Fraction(law.lost_mass)


@examples(17, 50, derandomize=True)
@given(st.lists(st.lists(ordinary, max_size=12), min_size=1, max_size=4))
def test_an_envelope_is_larger_than_each_law_and_no_larger_than_needed(secrets: list[list[float]]) -> None:
    tail = 1e-12
    law = envelope([occurrences(secret, tail) for secret in secrets])
    weights = [*map(Fraction, law.weights.tolist()), Fraction(law.lost_mass)]
    total = sum(weights)
    exact = [exact_law(secret) for secret in secrets]
    for k in range(13):
        above = sum(weights[min(k, len(weights) - 1) :]) / total
        largest = max(sum(item[k:], Fraction(0)) for item in exact)
        assert above >= largest
        assert above <= largest * (1 + Fraction(1, 10**12)) + 3 * Fraction(tail)


def test_bad_probabilities_are_refused() -> None:
    for wrong in ([0.1, 1.5], [-0.1], [float("nan")]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            poisson_binomial(wrong)
    with pytest.raises(ValueError, match="a vector"):
        poisson_binomial([[0.1]])
