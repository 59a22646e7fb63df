"""One run, counted within a family of trade-off functions.

m candidates, each in by its own fair coin; c′ guesses, c of them right. For a mechanism that is f-DP in one candidate,
the number of right guesses obeys a recursion of tails. With f̄(x) = 1 − f(x), the largest power of a test of size x,

    r_c = τ·c/m,  h_c = τ·(c′ − c)/m,  and for i = c − 1, …, 0:
    h_i = max(h_{i+1}, f̄⁻¹(r_{i+1})),  r_i = r_{i+1} + i/(c′ − i)·(h_i − h_{i+1}),

and "at least c right guesses has probability τ" is impossible where r₀ + h₀ > c′/m. The value is the smallest member
of the family that is not rejected at τ = 1 − confidence, found by bisection; a search over a grid, as published, gives
slightly less. A step of the bisection takes O(c) operations: 10⁵ guesses some twenty seconds in all.

The family is what the answer is about: (ε, δ)-DP with the stated δ is every mechanism, μ-GDP is Gaussian ones.

Source: Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), with two alternatives a
candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from scipy import special

from cupel.accounting import gaussian_curve, validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Direction, Rigor

Family: TypeAlias = Literal["gdp", "approx_dp"]

_STEPS = 50  # halvings: 1e-13 of either top
_TOPS = {"gdp": 40.0, "approx_dp": 80.0}  # μ and ε that no run of fewer than e⁸⁰ guesses reaches


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
    """A lower bound on ε at δ from one run, within a family.

    Args:
        m: candidates, each included by a fair coin.
        guesses: c′, fixed before the run, 1 to m.
        correct: c, right guesses.
        family: ``gdp`` (the smallest μ that is not rejected, as the ε of a Gaussian mechanism at δ) or ``approx_dp``
            (the smallest ε whose (ε, δ)-DP is not rejected).
        delta: δ in (0, 1) for ``gdp``, [0, 1) for ``approx_dp``.
        confidence: 1 − τ.
        adjacency, unit: of a candidate.

    Returns:
        A lower bound; `model_conditional` for ``gdp``, `finite_sample` for ``approx_dp``, which assumes nothing.

    Raises:
        ValueError: for counts, family or probabilities out of range.
    """
    validate.integer(minimum=1, m=m)
    validate.one_of(("gdp", "approx_dp"), family=family)
    validate.open_probability(confidence=confidence)
    if not 0 <= correct <= guesses <= m or guesses == 0:
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
        assumptions=(
            "each candidate was included by its own fair coin, independent of everything else",
            "the number of guesses was fixed before the run",
            *gaussian,
        ),
    )


def _epsilon(m: int, guesses: int, correct: int, family: Family, delta: float, tail: float) -> float:
    inverses: dict[str, Callable[[float], Callable[[float], float]]] = {
        "gdp": _gaussian,
        "approx_dp": lambda epsilon: _approximate(epsilon, delta),
    }
    low, high = 0.0, _TOPS[family]
    if not rejects(m, guesses, correct, inverses[family](low), tail):
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if rejects(m, guesses, correct, inverses[family](middle), tail) else (low, middle)
    if family == "approx_dp":
        return low
    return gaussian_curve.epsilon(low, delta).lower if low else 0.0


def rejects(m: int, guesses: int, correct: int, inverse: Callable[[float], float], tail: float) -> bool:
    """Whether a trade-off function forbids that so many right guesses have probability `tail`.

    Args:
        m: candidates.
        guesses: c′.
        correct: c.
        inverse: f̄⁻¹, the smallest size of a test of this power.
        tail: τ.
    """
    r, h = tail * correct / m, tail * (guesses - correct) / m
    for i in range(correct - 1, -1, -1):
        following = max(h, inverse(min(r, 1.0)))
        r += i / (guesses - i) * (following - h)
        h = following
        if r + h > guesses / m:
            return True
    return r + h > guesses / m


def _gaussian(mu: float) -> Callable[[float], float]:
    return lambda power: float(special.ndtr(special.ndtri(power) - mu))


def _approximate(epsilon: float, delta: float) -> Callable[[float], float]:
    """f = max(0, 1 − δ − e^ε x, e^{−ε}(1 − δ − x)): a power p needs a size of max((p − δ)/e^ε, 1 − e^ε(1 − p) − δ)."""
    grow = math.exp(epsilon)
    return lambda power: max(0.0, (power - delta) / grow, 1 - delta - grow * (1 - power))
