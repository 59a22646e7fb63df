"""One-run lower bounds on ε within a family of trade-off functions.

There are m candidates, each included by its own fair coin, and c′ guesses, c of them right. For a mechanism that is
f-DP in one candidate, the tails of the number of right guesses satisfy a recursion. With f̄(x) = 1 − f(x), the largest
power of a test of size x,

    r_c = τ·c/m,  h_c = τ·(c′ − c)/m,  and for i = c − 1, …, 0:
    h_i = max(h_{i+1}, f̄⁻¹(r_{i+1})),  r_i = r_{i+1} + a_i·(h_i − h_{i+1}),  a_i = i/(c′ − i),

and "at least c right guesses has probability τ" is impossible if r₀ + h₀ > c′/m. The value is the largest member of
the family that bisection finds rejected at τ = 1 − confidence; a search over a grid, as published, gives slightly less.

The family limits what the bound applies to: (ε, δ)-DP with the stated δ covers every mechanism, μ-GDP Gaussian ones.

*Speed.* The sequences never decrease as i falls, so r + h > c′/m rejects at any i; and once f̄⁻¹(r_{i+1}) ≤ h_{i+1}
they are constant. The steps in between cover a few standard deviations of the number of right guesses: thousands of
steps for 10⁵ guesses.

*Rounding.* With s_i = r_i − a_i·h_i the recursion reads s_{c−1} = τc′/(m(c′ − c + 1)) and

    s_i = s_{i+1} + c′/((c′ − i)(c′ − i − 1))·h_{i+1},  r_i = s_i + a_i·h_i,

sums of positive terms that increase in each of their parts, since f̄⁻¹ does. So if every step is rounded down, r and h
lie below their exact values, and what is rejected is rejected by the exact recursion too. `_DOWN` and the margins of
f̄⁻¹ exceed the rounding of the operations that they follow; for a Gaussian they assume that the quantile and erfc are
accurate to a few units in the last place.

*More right guesses never show less.* Unless c right guesses reject nothing, h_{c−1} = f̄⁻¹(r_c). Starting from c + 1,
s_c alone is above that s_{c−1}, r_c is at least τ(c + 1)/m, so h_{c−1} is at least as large, and so are all terms
after it.

Source: Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), with two alternatives
per candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Literal, TypeAlias

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.statistics.counts import count
from dpassay.base import validate

Family: TypeAlias = Literal["gdp", "approx_dp"]
Inverse: TypeAlias = Callable[[float], float]

_ROUNDING = 2.0**-53  # of one operation, relative
_DOWN = 1 - 16 * _ROUNDING  # more than ten operations on positive numbers can lose to rounding
_STEPS = 50  # bisections: 1e-13 of either upper limit
_TOPS = {"gdp": 40.0, "approx_dp": 80.0}  # upper limits of μ and ε for any run with fewer than e⁸⁰ guesses


def epsilon_one_run_f_dp(
    m: int,
    guesses: int,
    correct: int,
    *,
    family: Family,
    delta: float,
    confidence: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on ε at δ from one run, within a family of trade-off functions.

    Args:
        m: number of candidates, each included by a fair coin.
        guesses: c′, fixed before the run, 1 to m.
        correct: c, number of right guesses.
        family: ``gdp`` (the smallest μ that is not rejected, as the ε of a Gaussian mechanism at δ) or ``approx_dp``
            (the smallest ε whose (ε, δ)-DP is not rejected).
        delta: δ in (0, 1) for ``gdp``, [0, 1) for ``approx_dp``.
        confidence: 1 − τ.
        adjacency, unit: of a candidate.

    Returns:
        A lower bound; `model_conditional` for ``gdp``, `finite_sample` for ``approx_dp``, which covers any mechanism.

    Raises:
        ValueError: if a count or probability is out of range, or the family is unknown.
    """
    m, guesses, correct = count(minimum=1, m=m), count(guesses=guesses), count(correct=correct)
    validate.one_of(("gdp", "approx_dp"), family=family)
    validate.open_probability(confidence=confidence)
    if not correct <= guesses <= m or guesses == 0:
        raise ValueError(
            f"counts must satisfy 0 ≤ correct ≤ guesses ≤ m and guesses ≥ 1, not {correct}, {guesses}, {m}"
        )
    if not (0 if family == "approx_dp" else math.ulp(0)) <= validate.probability(delta=delta) < 1:
        raise ValueError(f"delta must be in {'[0, 1)' if family == 'approx_dp' else '(0, 1)'}, not {delta!r}")
    value, ceiling = (_epsilon(m, guesses, c, family, delta, 1 - confidence) for c in (correct, guesses))
    gaussian = ("the mechanism is Gaussian (μ-GDP with this trade-off curve)",) if family == "gdp" else ()
    return Bound(
        direction=Direction.LOWER,
        value=value,
        method=f"one_run_f_dp_{family}",
        rigor=Rigor.MODEL_CONDITIONAL if family == "gdp" else Rigor.FINITE_SAMPLE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=ceiling,
        null_family="every μ-GDP mechanism" if family == "gdp" else ANY_MECHANISM,
        assumptions=(
            "each candidate was included by its own fair coin, independent of everything else",
            "the number of guesses was fixed before the run",
            *gaussian,
        ),
    )


def _epsilon(m: int, guesses: int, correct: int, family: Family, delta: float, tail: float) -> float:
    def rejected(parameter: float) -> bool:
        inverse = gaussian_inverse(parameter) if family == "gdp" else approximate_inverse(parameter, delta)
        return rejects(m, guesses, correct, inverse, tail)

    low, high = 0.0, _TOPS[family]
    if not rejected(low):
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    if family == "approx_dp":
        return low
    return gaussian_curve.epsilon(low, delta).lower if low else 0.0


def rejects(m: int, guesses: int, correct: int, inverse: Inverse, tail: float) -> bool:
    """Whether a trade-off function excludes that at least c of c′ right guesses among m candidates have probability
    `tail`; true only if the exact recursion, without rounding, rejects too. `inverse` is f̄⁻¹, the smallest size of a
    test of this power, rounded down."""
    r, h = tail * correct / m * _DOWN, tail * (guesses - correct) / m
    s = tail * guesses / (m * (guesses - correct + 1)) * _DOWN
    limit = guesses / m / _DOWN
    for wrong in range(guesses - correct + 1, guesses + 1):  # c′ − i
        following = inverse(r)
        if following <= h:
            return False
        if wrong > guesses - correct + 1:
            s = (s + guesses / (wrong * (wrong - 1)) * h) * _DOWN
        h = following
        r = (s + (guesses - wrong) / wrong * h) * _DOWN
        if (r + h) * _DOWN > limit:
            return True
    return False


def gaussian_inverse(mu: float) -> Inverse:
    """f̄⁻¹(p) = Φ(Φ⁻¹(p) − μ), rounded down by far more than the quantile's error of a few units in the last place."""
    quantile, scale = NormalDist().inv_cdf, math.sqrt(0.5)

    def inverse(power: float) -> float:
        z = quantile(min(power, 1 - _ROUNDING)) - mu
        return 0.5 * math.erfc((4e-15 * (1 + abs(z) + mu) - z) * scale) * _DOWN

    return inverse


def approximate_inverse(epsilon: float, delta: float) -> Inverse:
    """f = max(0, 1 − δ − e^ε x, e^{−ε}(1 − δ − x)): a power p needs a size of max((p − δ)/e^ε, 1 − e^ε(1 − p) − δ)."""
    grow = math.exp(epsilon) / _DOWN
    return lambda power: max(0.0, (power - delta) / grow * _DOWN, 1 - delta - grow * (1 - power) - 16 * _ROUNDING)
