"""Published claims of training loops: exact laws, the libraries' own code, and conditions under which they hold."""

from __future__ import annotations

import math

import mpmath
import pytest
from published_rows import checked, lower, upper
from scipy import special

from cupel.published_claims.registry import read_published_claims
from cupel.published_claims.training_loops import CHECKS, rate_and_divisor


def test_all_have_a_row_and_the_verdict_of_their_file() -> None:
    rows = [claim for claim in read_published_claims() if claim.check.startswith("training_loops.")]
    assert {claim.check.partition(".")[2] for claim in rows} == set(CHECKS)
    for claim in rows:
        found = checked(claim.id)
        assert found.as_recorded, claim.id
        assert all(step[-1] == "." for step in found.finding.steps)


# Opacus: a divisor that is computed from the number of records


def exact_epsilon(numbers: int, ratio: float, delta: float) -> float:
    """ε of the squared norm of Gaussians of two variances, 1 and `ratio`, above a threshold: by the incomplete gamma
    function, over 4000 thresholds."""
    best = 0.0
    for step in range(1, 4000):
        half = numbers / 2 * (1 + (ratio - 1) * step / 2000)
        hits, alarms = special.gammaincc(numbers / 2, half / ratio), special.gammaincc(numbers / 2, half)
        if hits > delta and alarms > 1e-300:
            best = max(best, math.log((hits - delta) / alarms))
    return best


@pytest.mark.parametrize("dimensions", [500_000, 5_000_000])
def test_noise_of_two_scales(dimensions: int) -> None:
    """At most the exact ε, and of its size: Chernoff's bounds need a threshold that is missed half of the time."""
    exact = exact_epsilon(dimensions, (100 / 99) ** 2, 1e-5)
    found = lower("lib-opacus-divisor", steps=1, dimensions=dimensions)
    assert 0.45 * exact < found < exact
    assert lower("lib-opacus-divisor", steps=10, dimensions=dimensions // 10) == found


def test_tails_of_chi_square_laws() -> None:
    """The two bounds in the docstring, in 40 digits."""
    with mpmath.workdps(40):
        for degrees in (10, 1000, 100_000):
            for shift in (mpmath.mpf(k) / 100 for k in (1, 2, 10)):
                for x, above in ((1 + shift, True), (1 - shift, False)):
                    half = mpmath.mpf(degrees) / 2
                    tail = mpmath.gammainc(half, *((half * x,) if above else (0, half * x)), regularized=True)
                    assert tail <= mpmath.exp(-half * (x - 1 - mpmath.log(x)))


def test_equal_divisors_show_nothing() -> None:
    """Of 950 and 949 records both have 95 and 94; of 1000 and 999 in batches of 1, both have 1."""
    assert [rate_and_divisor(n, 100)[1] for n in (1000, 999, 950, 949, 901, 900)] == [100, 99, 95, 94, 90, 100]
    found = checked("lib-opacus-divisor", batch=1)
    assert (found.finding.lower, found.verdict) == (0.0, "UNPROVEN")


def test_what_opacus_answers_for_both_relations() -> None:
    pytest.importorskip("opacus")
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(2.0, 0.1, 10)]
    for row in ("lib-opacus-divisor", "lib-opacus-divisor-public"):
        assert accountant.get_epsilon(1e-5) == pytest.approx(checked(row).claimed, rel=1e-9)
    assert upper("lib-opacus-divisor-public") < 0.799
    assert checked("lib-opacus-divisor-public", noise_multipliers=[1.5]).verdict == "REFUTED"
