"""The accuracy that the formulas assume of elementary functions, against 60 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr

from dpassay.accounting.conversions import formulas


@pytest.mark.parametrize("sign", [-1, 1])
def test_log_ndtr_is_as_accurate_as_the_formulas_assume(sign: int) -> None:
    """The tail is followed down to e^(−5·10⁵), where conversions of tiny δ ask for it."""
    rng = np.random.default_rng(0)
    points = sign * np.concatenate([10.0 ** rng.uniform(-12, 3, size=400), rng.uniform(0, 40, size=400)])
    with mpmath.workdps(60):
        for point in points:
            below = mpmath.erfc(mpmath.mpf(abs(point)) / mpmath.sqrt(2)) / 2
            exact = mpmath.log(below) if point < 0 else mpmath.log1p(-below)
            allowed = mpmath.mpf(10) ** -88 if point > 20 else formulas.NDTR_ERROR * abs(exact)
            assert abs(mpmath.mpf(float(log_ndtr(point))) - exact) <= allowed, point


def test_logarithms_and_exponentials_are_accurate_to_four_units() -> None:
    rng = np.random.default_rng(1)
    with mpmath.workdps(40):
        for value in 10.0 ** rng.uniform(-300, 300, size=400):
            for result in (math.log(value), float(np.log(value))):
                assert abs(mpmath.mpf(result) / mpmath.log(mpmath.mpf(value)) - 1) <= 4 * formulas.UNIT * 2
        for value in rng.uniform(-700, 700, size=400):
            for result in (math.exp(value), float(np.exp(value))):
                assert abs(mpmath.mpf(result) / mpmath.exp(mpmath.mpf(value)) - 1) <= 4 * formulas.UNIT * 2
