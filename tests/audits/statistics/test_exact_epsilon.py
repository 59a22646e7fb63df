"""The exact ε of two laws against the best of all events, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from dpassay.accounting.bounds import Rigor
from dpassay.audits.statistics.finite_laws import exact_epsilon


def by_events(p: Sequence[Fraction], q: Sequence[Fraction], delta: Fraction) -> Any:
    """max over events E and both directions of log((P(E) − δ)/Q(E)), in 50 digits; at least 0."""
    best: Any = mpmath.mpf(0)
    for event in product((0, 1), repeat=len(p)):
        for first, second in ((p, q), (q, p)):
            mass = sum((a for a, inside in zip(first, event, strict=True) if inside), Fraction(0)) - delta
            against = sum((b for b, inside in zip(second, event, strict=True) if inside), Fraction(0))
            if mass > 0 and against == 0:
                return mpmath.inf
            if mass > 0:
                ratio = mass / against
                best = max(best, mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator))
    return best


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(60))
def test_the_interval_contains_what_the_best_event_shows(seed: int) -> None:
    g = np.random.default_rng(seed)
    size = int(g.integers(1, 8))
    weights = [[int(w) for w in g.integers(0 if seed % 3 == 0 else 1, 10 ** int(g.integers(1, 6)), size)] for _ in "pq"]
    for side in weights:
        side[0] += 1
    delta = Fraction(int(g.integers(0, 30)), 100) if seed % 2 else Fraction(0)
    p, q = ([Fraction(w, sum(side)) for w in side] for side in weights)
    result = exact_epsilon(dict(enumerate(weights[0])), dict(enumerate(weights[1])), delta)
    with mpmath.workdps(50):
        truth = by_events(p, q, delta)
    assert result.rigor is Rigor.CERTIFIED
    assert result.interval is not None
    assert result.value == result.interval.lower <= truth <= result.interval.upper
    if truth != mpmath.inf:
        assert result.interval.width <= 1e-13 * max(1, float(truth))
    floats = exact_epsilon(dict(enumerate(map(float, p))), dict(enumerate(map(float, q))), float(delta))
    assert floats.rigor is Rigor.ESTIMATE
    assert floats.value == pytest.approx(float(truth), abs=1e-9)  # unless δ is where a ratio ends: not in these


def test_known_mechanisms() -> None:
    assert exact_epsilon({0: 3, 1: 1}, {0: 1, 1: 3}).value == pytest.approx(math.log(3), abs=1e-14)
    assert exact_epsilon({0: 1, 1: 1}, {0: 1, 1: 1}).value == 0.0
    assert exact_epsilon({0: 1}, {1: 1}).value == math.inf
    assert exact_epsilon({0: 1}, {1: 1}, Fraction(99, 100)).value == math.inf
    # δ of the mass shows the input, the rest nothing.
    leak = {"a": Fraction(1, 100), "x": Fraction(99, 100)}, {"b": Fraction(1, 100), "x": Fraction(99, 100)}
    assert exact_epsilon(*leak, Fraction(1, 100)).value == 0.0
    assert exact_epsilon(*leak, Fraction(1, 101)).value == math.inf


def test_numbers_beyond_the_floats() -> None:
    result = exact_epsilon({0: 1, 1: 10**400}, {0: 10**400, 1: 1})
    assert result.interval is not None
    with mpmath.workdps(50):
        assert result.interval.lower <= 400 * mpmath.log(10) <= result.interval.upper
    logs = exact_epsilon({0: 0.0, 1: -1000.0}, {0: 0.0, 1: -900.0, 2: -math.inf}, logarithms=True)
    assert logs.value == pytest.approx(100, rel=1e-12)
    assert logs.rigor is Rigor.ESTIMATE


@pytest.mark.parametrize(
    ("laws", "delta", "message"),
    [
        (({}, {0: 1}), 0.0, "law_d: at least one outcome must have a weight above 0"),
        (({0: 1}, {0: 0}), 0.0, "law_d_prime: at least one outcome"),
        (({0: -1, 1: 2}, {0: 1}), 0.0, "must be finite and at least 0, not -1"),
        (({0: math.nan}, {0: 1}), 0.0, "must be a number, not nan"),
        (({0: math.inf}, {0: 1}), 0.0, "must be finite"),
        (({0: "1"}, {0: 1}), 0.0, "must be a number, not '1'"),
        (({0: 1}, {0: 1}), 1.0, "delta must be below 1"),
        (({0: 1}, {0: 1}), -0.1, "delta must be between"),
    ],
)
def test_bad_laws_are_refused(laws: tuple[Any, Any], delta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exact_epsilon(*laws, delta)
