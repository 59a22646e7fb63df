"""Secrets by three methods and selections with the adaptive optimum, against closed forms and published values."""

from __future__ import annotations

import json
import math
from typing import Any

import mpmath
import pytest
from dp_accounting import dp_event

from dpassay.accounting import Adjacency, Rigor, events
from dpassay.accounting.comparison import releases as job
from dpassay.accounting.comparison.comparison import Comparison, compare
from dpassay.accounting.comparison.curves import panels
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, SecretReleaseDpEvent
from dpassay.accounting.secret_protection.accountant import secret_release

EIGHTY = 80, 0.01, 1e-4
"""80 records that hold the secret, each drawn with probability 0.01, guessed with probability 1e-4 before."""


def exact(sigma: float, p: float, occurrences: int, rate: float) -> mpmath.mpf:
    """r after one round, Σ w_k Φ̄(Φ̄⁻¹(p) − k/σ), with 50 digits."""
    with mpmath.workdps(50):
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(p))
        q = mpmath.mpf(rate)
        return mpmath.fsum(
            mpmath.binomial(occurrences, k)
            * q**k
            * (1 - q) ** (occurrences - k)
            * mpmath.ncdf(k / mpmath.mpf(sigma) - quantile)
            for k in range(occurrences + 1)
        )


def values(result: Comparison) -> dict[str, float]:
    return {row.bound.method: row.bound.value for row in result.rows}


@pytest.mark.parametrize(
    ("sigma", "published", "digit"), [(1.0, 0.02202592, 1e-8), (2.0, 0.00173397, 1e-8), (5.0, 2.402890e-4, 1e-10)]
)
def test_one_round_is_exact(sigma: float, published: float, digit: float) -> None:
    count, rate, p = EIGHTY
    result = job.compare_secret(secret_release(sigma, [rate] * count), p)
    row = next(row for row in result.rows if row.bound.method == "secret_protection")
    assert row.bound.interval is not None
    truth = exact(sigma, p, count, rate)
    assert row.bound.interval.lower <= truth <= row.bound.interval.upper
    assert row.bound.value == pytest.approx(published, abs=digit / 2)
    assert values(result)["concave_majorant"] == row.bound.value
    assert result.quantity == "r"
    assert (str(result.adjacency), str(result.unit), result.at) == ("secret", "secret", p)


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_single_gaussian_is_an_estimate_and_too_low(rounds: int) -> None:
    count, rate, p = EIGHTY
    result = job.compare_secret(secret_release(2.0, [rate] * count), p, rounds, methods=("single_gaussian",))
    (row,) = result.rows
    with mpmath.workdps(50):
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(p))
        formula = float(mpmath.ncdf(mpmath.mpf("0.8") * mpmath.sqrt(rounds) / 2 - quantile))
    # The mean of the trimmed law is short of 0.8 by at most 80e-15; the quantile's error is scipy's, 1e-13.
    assert row.bound.value == pytest.approx(formula, rel=1e-11)
    assert row.bound.rigor is Rigor.ESTIMATE
    if rounds == 1:
        assert row.bound.value < exact(2.0, p, count, rate) / 3


def test_several_rounds() -> None:
    """Bin(80, 0.01), ten rounds, σ = 2: r = 0.0162015 by an independent computation."""
    count, rate, p = EIGHTY
    result = job.compare_secret(secret_release(2.0, [rate] * count), p, 10)
    row = next(row for row in result.rows if row.bound.method == "secret_protection")
    assert row.bound.interval is not None
    assert row.bound.interval.lower - 5e-8 <= 0.0162015 <= row.bound.interval.upper + 5e-8
    assert row.bound.rigor is Rigor.CERTIFIED
    assert row.bound.value <= values(result)["concave_majorant"] <= 1


def test_two_digits_of_a_secret_compose_to_certainty() -> None:
    """A release without noise of whether the secret is there: r = w₁ + w₀ p, and by the majorant of a line from
    (0, w₁) to (1, 1) two rounds give 1 − w₀²(1 − p)."""
    release = SecretReleaseDpEvent(0.0, (0.5, 0.5))
    result = job.compare_secret(release, 0.01, 2, methods=("concave_majorant",))
    assert values(result)["concave_majorant"] >= 1 - 0.25 * 0.99
    assert values(result)["concave_majorant"] == pytest.approx(1 - 0.25 * 0.99, abs=2e-3)  # 193 points of the curve


def test_too_many_rounds_for_the_majorant_are_said() -> None:
    release = secret_release(1e4, [0.01] * 80)
    result = job.compare_secret(release, 1e-4, 10_000, methods=("concave_majorant",))
    assert result.rows == ()
    assert "round by round" in result.unsupported["concave_majorant"]


def test_an_estimate_without_noise_has_a_reason() -> None:
    result = job.compare_secret(SecretReleaseDpEvent(0.0, (0.5, 0.5)), 0.01)
    assert "sigma must be above 0" in result.unsupported["single_gaussian"]
    assert values(result)["secret_protection"] == pytest.approx(0.5 + 0.5 * 0.01, rel=1e-12)


def test_wrong_numbers_are_refused() -> None:
    release = secret_release(2.0, [0.01] * 80)
    with pytest.raises(ValueError, match="p must be"):
        job.compare_secret(release, 0.0)
    with pytest.raises(ValueError, match="rounds must be"):
        job.compare_secret(release, 0.1, 0)
    with pytest.raises(ValueError, match="method must be"):
        job.compare_secret(release, 0.1, methods=("magic",))


def test_curves_of_a_secret() -> None:
    count, rate, p = EIGHTY
    release = secret_release(2.0, [rate] * count)
    result = job.compare_secret(release, p)
    (panel,) = job.secret_panels(release, 1, result)
    assert (panel.argument, panel.quantity, panel.notes) == ("p", "r", ())
    curve = next(curve for curve in panel.curves if curve.method == "secret_protection")
    for guess, value, lower in zip(curve.arguments, curve.values, curve.others, strict=True):
        assert lower <= exact(2.0, guess, count, rate) <= value
    assert json.dumps(result.to_json(), allow_nan=False)
    assert events.from_json(dict(result.about)["event"]) == release


def test_the_adaptive_optimum_stands_beside_the_accountants() -> None:
    """367 tokens at clip 9, denominator 64, temperature 1.5: zCDP gives 9.888715, the optimum is about 9.2489."""
    eta, count, delta = 2 * 9 / (64 * 1.5), 367, 108000**-1.1
    event = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(eta), count)
    answers, others = job.selection_answers(eta, count, delta, "add_remove")
    result = compare(event, adjacency="add_remove", delta=delta, methods=("zcdp", "basic"), others=answers)
    assert values(result)["adaptive"] == pytest.approx(9.2489, abs=5e-4)
    assert values(result)["zcdp"] == pytest.approx(9.888715, abs=5e-7)
    assert result.rows[0].bound.method == "adaptive"
    drawn = panels(event, result, others=others, seconds=0.01)
    assert all("adaptive" in {curve.method for curve in panel.curves} or panel.notes for panel in drawn)


def test_what_the_adaptive_optimum_refuses_is_a_reason() -> None:
    answers, _ = job.selection_answers(200.0, 3, 1e-5, "add_remove")
    event = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(200.0), 3)
    result = compare(event, adjacency="add_remove", delta=1e-5, methods=("basic",), others=answers)
    assert "adaptive needs eta between" in result.unsupported["adaptive"]
    assert math.isclose(values(result)["basic"], 600.0)


# --- vectors of several layers


def layers(count: int, adjacency: str = "replace_one") -> job.Layers:
    return job.Layers(count, 1.0, 2, Adjacency(adjacency))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε(δ) of μ-GDP by bisection with 40 digits (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(40):
        low, high, m = mpmath.mpf(0), mpmath.mpf(200), mpmath.mpf(mu)
        for _ in range(80):
            middle = (low + high) / 2
            exact = mpmath.ncdf(m / 2 - middle / m) - mpmath.exp(middle) * mpmath.ncdf(-m / 2 - middle / m)
            low, high = (low, middle) if exact <= delta else (middle, high)
        return float(high)


def test_noise_of_layers() -> None:
    """(5, 1e-5), four layers: 1.783737 jointly, 4.098369 by classical noise and basic composition."""
    noises = values(job.compare_layers(layers(4), delta=1e-5, epsilon=5.0))
    assert noises["exact"] == pytest.approx(1.783737, abs=5e-7)
    assert noises["classical"] == pytest.approx(4.098369, abs=5e-7)
    for epsilon, item in ((1.0, 3.730632), (5.0, 0.891868)):
        single = values(job.compare_layers(layers(1), delta=1e-5, epsilon=epsilon))
        assert single["exact"] == pytest.approx(item, abs=5e-7)
        assert single["analytic"] == pytest.approx(item, abs=5e-7)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_epsilon_of_layers_is_that_of_one_gaussian(adjacency: str) -> None:
    scale = 1.0 if adjacency == "replace_one" else 0.5  # 2C/n and C/n
    result = values(job.compare_layers(layers(4, adjacency), delta=1e-5, sigma=3.0))
    exact = gaussian_epsilon(2 * scale / 3, 1e-5)
    assert exact <= result["exact"] <= exact * (1 + 1e-9)
    shared = 4 * gaussian_epsilon(scale / 3, 1e-5 / 4)
    assert shared <= result["analytic"] <= shared * (1 + 1e-9)
    classical = 4 * math.sqrt(2 * math.log(1.25e5 * 4)) * scale / 3
    assert result["classical"] == pytest.approx(classical, rel=1e-12)


def test_the_classical_noise_is_refused_where_it_is_wrong() -> None:
    result = job.compare_layers(layers(1), delta=1e-5, epsilon=8.42)  # valid below 8.419771
    assert "8.41977" in result.unsupported["classical"]
    assert "classical" in values(job.compare_layers(layers(1), delta=1e-5, epsilon=8.4197))
    assert "classical" in job.compare_layers(layers(1), delta=1e-5, sigma=0.5).unsupported


def test_curves_of_layers() -> None:
    result = job.compare_layers(layers(4), delta=1e-5, epsilon=5.0)
    (panel,) = job.layer_panels(layers(4), result, epsilon=5.0)
    assert (panel.argument, panel.quantity, panel.notes) == ("layers", "noise_multiplier", ())
    exact = next(curve for curve in panel.curves if curve.method == "exact")
    assert exact.arguments == (1.0, 2.0, 3.0, 4.0)
    for count, value in zip(exact.arguments, exact.values, strict=True):
        assert value == pytest.approx(exact.values[0] * math.sqrt(count), rel=1e-12)
    assert json.dumps(result.to_json(), allow_nan=False)


def test_wrong_questions_about_layers() -> None:
    wrong: list[dict[str, Any]] = [{}, {"epsilon": 1.0, "sigma": 1.0}, {"epsilon": 0.0}, {"sigma": -1.0}]
    for asked in wrong:
        with pytest.raises(ValueError, match=r"epsilon|sigma"):
            job.compare_layers(layers(2), delta=1e-5, **asked)
    with pytest.raises(ValueError, match="layers"):
        layers(0)
