"""What two laws that floats only approximate are certain to lose."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpassay.accounting import DominatingPair
from dpassay.accounting.lattice.shuffle import law_of_maxima
from dpassay.base.arrays import Floats

Coin = tuple[float, float]
"""The probabilities of heads and tails, each right to a relative 1e-14."""


def certain_epsilon(
    first: Sequence[float] | Floats,
    second: Sequence[float] | Floats,
    *,
    count: int,
    delta: float,
    relative_error: float,
) -> float:
    """A lower bound on ε(δ) of `count` independent outcomes, for the worse of both directions.

    Where each probability is right to a factor e^±r, those of `count` outcomes are to e^±κ with κ = count·r, so that
    for every set S of outcomes

        P(S) − e^ε Q(S) ≥ e^−κ·(P̂(S) − e^(ε + 2κ)·Q̂(S)).

    Hence δ(ε) is at least e^−κ times what floats say at ε + 2κ, and ε(δ) at least what they say at δ·e^κ, less 2κ.

    Args:
        first, second: the probabilities of the same outcomes, as computed.
        count: of outcomes.
        delta: δ.
        relative_error: r, of each probability, the rounding of their sum to 1 included.
    """
    kappa = count * relative_error
    result = (
        DominatingPair.finite(first, second).self_compose(count).epsilon(math.nextafter(delta * math.exp(kappa), 1))
    )
    return result.lower - 2 * kappa


def certain_epsilon_of_coins(first: Coin, second: Coin, *, count: int, delta: float) -> float:
    """A lower bound on ε(δ) of `count` ≤ 10⁴ throws of a coin, and the exact value but for rounding.

    δ(ε) is the largest P(S) − e^ε Q(S), attained where S is "at least k heads" or "at most k", so ε(δ) is the largest
    log((P(S) − δ)/Q(S)) over these S. Logarithms of the probabilities of S err by less than 1e-9: each throw by 1e-14,
    and `count` sums of logarithms below 2·10⁴ by 4e-12 each.
    """
    error = 1e-9
    heads = np.arange(count, -1, -1)
    ways = np.array([math.log(math.comb(count, int(k))) for k in heads])
    best = -math.inf
    for (p, p_not), (q, q_not) in ((first, second), (second, first)):
        if p < q:  # more likely is then what has few heads
            p, p_not, q, q_not = p_not, p, q_not, q
        log_p, log_q = (
            np.logaddexp.accumulate(ways + heads * math.log(left) + (count - heads) * math.log(right))
            for left, right in ((p, p_not), (q, q_not))
        )
        mass = np.exp(log_p - error) * (1 - 1e-15) - delta
        tests = mass > 0
        if tests.any():
            best = max(best, float((np.log(mass[tests]) - log_q[tests]).max()) - 2 * error)
    return best


def certain_epsilon_of_maxima(
    *, batches: int, epochs: int, noise_multiplier: float, means: tuple[float, float], delta: float
) -> float:
    """A lower bound on ε(δ) of the largest of `batches` noisy sums of each epoch.

    The sums are 0 but for noise, of standard deviation `noise_multiplier`, and one of an epoch, drawn at random, has
    the mean ``means[0]`` or ``means[1]``.
    """
    first, second = (mean / noise_multiplier for mean in means)
    label = f"maxima({first!r}, {second!r}, {batches})"
    pair = DominatingPair.of(law_of_maxima(first, second, batches), label=label)
    return pair.self_compose(epochs).epsilon(delta).lower
