"""What the paper on two-stage fine-tuning states about privacy, and what holds: closed forms and integrals in mpmath.

Batches that are shuffled and accounted as Poisson samples are in `tests/known_bugs/`, `test_shuffled_batches.py`.
"""

from __future__ import annotations

from typing import Any

import mpmath
import pytest

from cupel.accounting import ApproxDP, account, calibrate
from cupel.mechanisms.two_stage.generator import TwoStage

mp = mpmath.mp.clone()
mp.dps = 20

DELTA = 1e-5


def pdf(x: mpmath.mpf, mean: float, sigma: float) -> mpmath.mpf:
    return mp.npdf(x, mean, sigma)


def divergence(order: float, rate: float, sigma: float, *, added: bool) -> float:
    """D_α between a step with and without a record whose gradient has length 1, by quadrature (Definition A.1)."""

    def mixture(x: mpmath.mpf) -> mpmath.mpf:
        return (1 - rate) * pdf(x, 0, sigma) + rate * pdf(x, 1, sigma)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        one, other = mixture(x), pdf(x, 0, sigma)
        if not added:
            one, other = other, one
        return other * (one / other) ** order

    edges = [*range(-40, 41, 5)]
    return float(mp.log(mp.quad(integrand, [edge * sigma for edge in edges])) / (order - 1))


def bound(order: int, rate: float, sigma: float) -> float:
    """log A_α/(α − 1) of Theorem A.4 for a whole α, by the binomial theorem: no integral."""
    moments = (
        mp.binomial(order, k)
        * mp.mpf(1 - rate) ** (order - k)
        * mp.mpf(rate) ** k
        * mp.exp(k * (k - 1) / (2 * sigma**2))
        for k in range(order + 1)
    )
    return float(mp.log(mp.fsum(moments)) / (order - 1))


@pytest.mark.parametrize(("order", "rate", "sigma"), [(2, 0.01, 1.0), (8, 0.05, 0.8), (16, 0.01, 1.5)])
def test_theorem_a4_has_its_inequality_the_wrong_way(order: int, rate: float, sigma: float) -> None:
    """By "(α, ρ)-RDP if ρ ≤ log max(A, B)/(α − 1)", ρ = 0 would do. Tables that differ in one row of gradient 1 have
    exactly that divergence, so "if ρ ≥" is right, and nothing below is enough."""
    exact = divergence(order, rate, sigma, added=True)
    assert bound(order, rate, sigma) == pytest.approx(exact, rel=1e-9)
    assert divergence(order, rate, sigma, added=False) <= exact  # A_α ≥ B_α
    assert exact > 0


def theorem_a7(rate: float, sigma: float, steps: int) -> float:
    """Equation 12, the least over a grid of orders; at α = 1, which the theorem allows, it divides by 0."""
    orders: dict[float, float] = {order: bound(order, rate, sigma) for order in range(2, 64)}
    orders |= {order / 4: divergence(order / 4, rate, sigma, added=True) for order in range(5, 24) if order % 4}
    return min(
        steps * found + float(mp.log1p(-mp.mpf(1) / order) - (mp.log(DELTA) + mp.log(order)) / (order - 1))
        for order, found in orders.items()
    )


@pytest.mark.parametrize(("epsilon", "epochs"), [(1.0, 10), (8.0, 10), (1.0, 1)])
def test_theorem_a7_is_sound_and_loose_for_poisson_samples(epsilon: float, epochs: int) -> None:
    """30000 records, batches of 32: what the theorem states lies above the certified ε of the same noise."""
    size: dict[str, Any] = {"records": 30_000, "batch_size": 32, "steps": epochs * 30_000 // 32}
    noise = calibrate(
        lambda value: TwoStage(noise_multiplier=value, **size).plan(),
        ApproxDP(epsilon, DELTA),
        adjacency="add_remove",
        decreasing=True,
        bracket=(0.1, 20.0),
    ).value
    mechanism = TwoStage(noise_multiplier=noise, **size)
    certified = account(mechanism.plan(), adjacency="add_remove", delta=DELTA, method="lattice").value
    stated = theorem_a7(mechanism.rate, noise, mechanism.steps)
    assert certified <= epsilon < stated
    assert stated > 1.05 * certified
    print(f"\nε = {epsilon}, {epochs} epochs: the theorem states {stated:.4f}, {stated / certified:.3f} times as much")
