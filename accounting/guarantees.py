"""The guarantees that a mechanism may claim, with validated parameters.

A guarantee has no unit or adjacency; a claim and a bound state those beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpassay.base import validate


@dataclass(frozen=True, slots=True)
class PureDP:
    """ε-differential privacy: P(E) ≤ e^ε Q(E) for every event E and every pair of neighbours."""

    epsilon: float

    def __post_init__(self) -> None:
        validate.non_negative(epsilon=self.epsilon)


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(ε, δ)-differential privacy: P(E) ≤ e^ε Q(E) + δ."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        validate.non_negative(epsilon=self.epsilon)
        validate.open_probability(delta=self.delta)


@dataclass(frozen=True, slots=True)
class ZCDP:
    """ρ-zero-concentrated DP: Rényi divergence of order α at most ρα for every α > 1 (Bun and Steinke 2016)."""

    rho: float

    def __post_init__(self) -> None:
        validate.non_negative(rho=self.rho)


@dataclass(frozen=True, slots=True)
class GDP:
    """μ-Gaussian DP: the trade-off curve lies above that of N(0, 1) against N(μ, 1) (Dong, Roth and Su 2022)."""

    mu: float

    def __post_init__(self) -> None:
        validate.non_negative(mu=self.mu)


@dataclass(frozen=True, slots=True)
class RDP:
    """Rényi DP: divergence of order `alpha` at most `epsilon` (Mironov 2017)."""

    alpha: float
    epsilon: float

    def __post_init__(self) -> None:
        validate.finite(alpha=self.alpha)
        validate.non_negative(epsilon=self.epsilon)
        if self.alpha <= 1:
            raise ValueError(f"alpha must be above 1, not {self.alpha!r}")


@dataclass(frozen=True, slots=True)
class PrivacyProfile:
    """A whole curve: (`epsilons[i]`, `deltas[i]`)-DP for every i, with ε increasing and δ not increasing.

    An ε may be negative; δ is then at least 1 − e^ε.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise ValueError("a privacy profile needs as many deltas as epsilons, and at least one")
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            validate.finite(epsilon=epsilon)
            validate.probability(delta=delta)
            if epsilon < 0 and delta < -math.expm1(epsilon) * (1 - 2.0**-49):
                raise ValueError(f"no mechanism has δ = {delta!r} at ε = {epsilon!r}: δ is at least 1 − e^ε")
        if any(a >= b for a, b in zip(self.epsilons, self.epsilons[1:], strict=False)):
            raise ValueError("the epsilons of a privacy profile must increase")
        if any(a < b for a, b in zip(self.deltas, self.deltas[1:], strict=False)):
            raise ValueError("the deltas of a privacy profile must not increase")


@dataclass(frozen=True, slots=True)
class ExPostDP:
    """Data-dependent ex-post DP: |log P(x)/Q(x)| ≤ ε(D, x) for the data set and the output that occurred.

    It holds for one input and one output (Ligett et al. 2017). It composes with pure ε₀ as ε₀ + ε. It does not add to
    an (ε, δ) guarantee, and does not convert to other adjacencies or to groups. The number itself depends on the
    private data.
    """

    epsilon: float

    def __post_init__(self) -> None:
        validate.non_negative(epsilon=self.epsilon)


@dataclass(frozen=True, slots=True)
class SecretProtection:
    """(p, r)-secret protection: a secret guessed with probability at most p before is guessed with at most r after."""

    p: float
    r: float

    def __post_init__(self) -> None:
        validate.open_probability(p=self.p)
        validate.probability(r=self.r)
        if self.p > self.r:
            raise ValueError(
                f"r must be at least p, as guessing does not become harder; not p = {self.p}, r = {self.r}"
            )


Guarantee = PureDP | ApproxDP | ZCDP | GDP | RDP | PrivacyProfile | ExPostDP | SecretProtection
