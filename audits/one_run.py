"""What one run shows when every candidate was included by its own fair coin (Steinke, Nasr and Jagielski 2023).

m candidates are each put into the data, or left out, by independent fair coins S. From the released output T an
attacker guesses r of the m coins and abstains on the others; v guesses are right. If the mechanism is (ε, δ)-DP in one
candidate, then given T the number of right guesses is stochastically at most Bin(r, q) + F(T), where
q = e^ε/(1 + e^ε) and F(T) ≥ 0 is a number of failures with E[F(T)] ≤ 2mδ (their section 5). With
f(v) = P[Bin(r, q) ≥ v], this gives P[at least v right] ≤ E[f(v − F)].

*The number of guesses.* With r fixed in advance, that expectation is at most the concave majorant of i ↦ f(v − i) at
2mδ, and it equals f(v) + 2mδ·A, A = max_i (f(v − i) − f(v))/i, as long as 2mδ is at most the maximising i. Where r
depends on the output (as many guesses as secrets were disclosed), that is a valid p-value only for δ = 0: failures may
then be correlated with the r at which they count most. Splitting the error repairs it: reject iff f(v) ≤ β/2 and
2mδ·A ≤ β/2. Given T, P[reject] ≤ f + E[F|T]·A ≤ β/2 + E[F|T]·β/(4mδ), whose mean is at most β.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Direction, Rigor
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

_COINS = "each candidate was included by its own fair coin, independent of everything else"
_STEPS = 60  # halvings of an interval of length ≤ 64: below 1e-16 of it


def epsilon_one_run(
    m: int,
    guesses: int,
    correct: int,
    *,
    delta: float,
    confidence: float,
    fixed_guesses: bool = True,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on ε at δ from one run: the smallest ε that the number of right guesses does not reject.

    Args:
        m: candidates, each included by a fair coin.
        guesses: r, how many coins were guessed, 0 to m.
        correct: v, how many guesses were right, 0 to r.
        delta: δ in [0, 1).
        confidence: 1 − β, in (0, 1).
        fixed_guesses: r was fixed before the run. False where r depends on the output; the bound is then the same
            for δ = 0 and smaller for δ > 0 (see the module).
        adjacency: what a coin decides: presence of a unit is add_remove.
        unit: the unit that a candidate is; a record by default.

    Returns:
        A finite-sample lower bound, ε = inf{ε ≥ 0: p(ε) ≥ β}; its ceiling is the value had all r guesses been right.

    Raises:
        ValueError: for counts or probabilities out of range.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2 (pure ε: Theorem 2.1 with abstention).
    """
    value, ceiling = epsilons_one_run(
        m, guesses, np.array([correct, guesses]), delta=delta, confidence=confidence, fixed_guesses=fixed_guesses
    )
    return Bound(
        direction=Direction.LOWER,
        value=float(value),
        method="one_run",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=float(ceiling),
        assumptions=(_COINS,),
    )


def epsilons_one_run(
    m: int,
    guesses: ArrayLike,
    correct: ArrayLike,
    *,
    delta: float,
    confidence: float,
    fixed_guesses: bool = True,
) -> Floats:
    """The values of `epsilon_one_run` for arrays of guesses and right guesses that broadcast together."""
    validate.integer(m=m)
    validate.open_probability(confidence=confidence)
    if not 0 <= validate.probability(delta=delta) < 1:
        raise ValueError(f"delta must be below 1, not {delta!r}")
    r, v = np.broadcast_arrays(np.asarray(guesses), np.asarray(correct))
    if not (np.issubdtype(r.dtype, np.integer) and np.issubdtype(v.dtype, np.integer)):
        raise ValueError("guesses and correct must be whole numbers")
    if np.any(v < 0) or np.any(v > r) or np.any(r > m):
        raise ValueError("counts must satisfy 0 ≤ correct ≤ guesses ≤ m")
    beta = 1 - confidence
    pure = _pure(r, v, beta)
    if delta == 0:
        return pure
    pairs, inverse = np.unique(np.stack([r.ravel(), v.ravel()], axis=1), axis=0, return_inverse=True)
    tops = _pure(pairs[:, 0], pairs[:, 1], beta)
    failures = 2 * m * delta
    rule = _fixed_p_value if fixed_guesses else _adaptive_p_value
    found = [
        _first_crossing(rule(int(pair[0]), int(pair[1]), failures), beta, float(top))
        for pair, top in zip(pairs, tops, strict=True)
    ]
    return np.asarray(np.array(found, dtype=np.float64)[inverse.reshape(-1)].reshape(r.shape))


def ceiling_one_run(guesses: ArrayLike, *, confidence: float) -> Floats:
    """The largest pure ε that this many guesses can show, all of them right: −ln(β^{−1/r} − 1), at least 0.

    Args:
        guesses: r ≥ 0, integers of shape (…).
        confidence: 1 − β, in (0, 1).
    """
    r = np.asarray(guesses)
    if not np.issubdtype(r.dtype, np.integer) or np.any(r < 0):
        raise ValueError("guesses must be whole numbers of at least 0")
    scale = -math.log1p(-validate.open_probability(confidence=confidence))
    value = -np.log(np.expm1(np.minimum(scale / np.maximum(r, 1), 1.0)))
    return np.asarray(np.where(r * math.log(2) > scale, value, 0.0))


def canaries_needed(epsilon: float, *, confidence: float) -> int:
    """The fewest guesses that show ε at this confidence, if all of them are right and δ = 0.

    Args:
        epsilon: ε > 0 to be shown.
        confidence: 1 − β, in (0, 1).
    """
    scale = -math.log1p(-validate.open_probability(confidence=confidence))
    return math.ceil(scale / math.log1p(math.exp(-validate.positive(epsilon=epsilon))))


@dataclass(frozen=True, slots=True)
class Disclosures:
    """How often disclosed secrets were in the data, against chance.

    Attributes:
        p_value: the probability of at least as many from the data, if the output does not depend on who was in it.
            It tests ε = 0 only; no ε follows from it.
        epsilon: the one-run lower bound, with the disclosed candidates as the guesses "in".
    """

    p_value: float
    epsilon: Bound


def disclosures_with_holdout(
    k: int,
    v: int,
    m: int,
    *,
    source: int | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Disclosures:
    """K of m candidates were disclosed, v of them had been in the data.

    Given how many candidates were in, and an output that does not depend on which, v is hypergeometric.

    Args:
        k: K, candidates that the output discloses, each counted once.
        v: how many of them were in the data.
        m: candidates, each included by a fair coin.
        source: how many of the m were in; m/2 if not given.
        delta: δ of the ε bound. K depends on the output, and the bound accounts for it.
        confidence: of the ε bound.
        adjacency, unit: of the ε bound.

    Raises:
        ValueError: for counts that cannot be.
    """
    included = validate.integer(source=m // 2 if source is None else source)
    if not (0 <= v <= min(k, included) and k - v <= m - included):
        raise ValueError(f"impossible counts: {v} of {k} disclosed among {included} of {m} candidates in the data")
    bound = epsilon_one_run(
        m, k, v, delta=delta, confidence=confidence, fixed_guesses=False, adjacency=adjacency, unit=unit
    )
    return Disclosures(hypergeometric_tail(v, m, included, k), bound)


def hypergeometric_tail(hits: int, total: int, marked: int, drawn: int) -> float:
    """P[H ≥ hits] for H the number of `marked` among `drawn` of `total`, drawn without replacement; in log space."""
    lowest, highest = max(hits, drawn + marked - total, 0), min(drawn, marked)
    if lowest == max(drawn + marked - total, 0):
        return 1.0
    j = np.arange(lowest, highest + 1, dtype=np.float64)
    terms = _log_choose(marked, j) + _log_choose(total - marked, drawn - j) - _log_choose(total, float(drawn))
    return min(1.0, float(np.exp(special.logsumexp(terms))))


def _pure(r: NDArray[np.int64], v: NDArray[np.int64], beta: float) -> Floats:
    """δ = 0: logit of the q at which P[Bin(r, q) ≥ v] = β. Both q and 1 − q are quantiles, so neither cancels."""
    a, b = np.maximum(v, 1).astype(np.float64), (r - v + 1).astype(np.float64)
    with np.errstate(divide="ignore"):  # q may underflow to 0 for one right guess in very many
        value = np.log(special.betaincinv(a, b, beta)) - np.log(special.betainccinv(b, a, beta))
    return np.asarray(np.where(v > 0, np.maximum(value, 0.0), 0.0))


def _fixed_p_value(r: int, v: int, failures: float) -> Callable[[float], float]:
    """p(ε) with r fixed in advance: the concave majorant of i ↦ f(v − i) at `failures` = 2mδ. Increases with ε."""
    law = _below(r, v)

    def p_value(epsilon: float) -> float:
        tail, below = law(epsilon)
        if not len(below):
            return 1.0
        slope = _slopes(below)
        best = int(np.argmax(slope))
        if failures <= best + 1:
            return min(1.0, tail + failures * float(slope[best]))
        # Beyond the maximising i the increments descend, so i ↦ f(v − i) is concave there and its own majorant.
        curve = tail + np.concatenate([[0.0], np.cumsum(below)])
        return min(1.0, float(np.interp(failures, np.arange(len(curve)), curve)))

    return p_value


def _adaptive_p_value(r: int, v: int, failures: float) -> Callable[[float], float]:
    """p(ε) with r chosen after the output: 2·max(f(v), 2mδ·A). Increases with ε where it is below 1 (tested)."""
    law = _below(r, v)

    def p_value(epsilon: float) -> float:
        tail, below = law(epsilon)
        if not len(below):
            return 1.0
        return min(1.0, 2 * max(tail, failures * float(_slopes(below).max())))

    return p_value


def _slopes(below: Floats) -> Floats:
    """(f(v − i) − f(v))/i for i = 1 … v."""
    return np.asarray(np.cumsum(below) / np.arange(1, len(below) + 1))


def _below(r: int, v: int) -> Callable[[float], tuple[float, Floats]]:
    """ε ↦ (P[Bin(r, q) ≥ v], [P[Bin = v − 1], …, P[Bin = 0]]); the binomial coefficients are worked out once."""
    j = np.arange(v - 1, -1, -1, dtype=np.float64)
    coefficients = _log_choose(r, j)

    def law(epsilon: float) -> tuple[float, Floats]:
        log_wrong = -np.logaddexp(0.0, epsilon)  # log(1 − q)
        tail = float(special.betaincc(r - v + 1, v, np.exp(log_wrong))) if v else 1.0
        return tail, np.exp(coefficients + j * epsilon + r * log_wrong)  # q^j (1 − q)^{r−j}

    return law


def _first_crossing(p_value: Callable[[float], float], beta: float, top: float) -> float:
    """The largest float found with p < β, by bisection of [0, top]; the p-value at `top` is at least β."""
    if top == 0 or p_value(0.0) >= beta:
        return 0.0
    low, high = 0.0, top
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if p_value(middle) >= beta else (middle, high)
    return low


def _log_choose(n: int, k: float | Floats) -> Floats:
    return np.asarray(special.gammaln(n + 1.0) - special.gammaln(np.add(k, 1.0)) - special.gammaln(n - k + 1.0))
