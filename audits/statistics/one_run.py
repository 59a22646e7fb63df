"""One-run lower bounds on ε, where every candidate is included by its own fair coin.

Each of m candidates is included in the data, or omitted, by independent fair coins S. From the released output T an
attacker guesses r of the m coins and abstains on the others; v guesses are right. The hypothesis "(ε, δ)-DP in one
candidate" is rejected if this many right guesses are improbable under it; ε = inf{ε ≥ 0: p(ε) ≥ β}. Let
q = e^ε/(1 + e^ε), w_k = P[Bin(r, q) = k], f = P[Bin(r, q) ≥ v].

*Pure ε.* Given T, the number of right guesses is stochastically at most Bin(r, q), so p = f, whatever r depends on.

*δ > 0, tight.* Let X_{r,k} be the probability of r guesses, k of them right. Summing (ε, δ)-DP over candidates, coins
and outputs in which the candidate is guessed correctly gives Σ_{r,k} z_{r,k} ≤ mδ for
z_{r,k} = max(0, k·X_{r,k} − e^ε(r − k + 1)·X_{r,k−1}), because flipping one of k right coins leaves k − 1, and each
outcome with k − 1 is reached by r − k + 1 flips. Since k·w_k = e^ε(r − k + 1)·w_{k−1}, the ratios Y_k = X_{r,k}/w_k
grow by at most z_{r,k}/(k·w_k) per step. Summing by parts, P[r, ≥ v right] − f·P[r] = Σ_k C_k (Y_k − Y_{k−1}) with
C_k = (1 − f)·P[W ≥ k] for k ≥ v and f·P[W < k] below, W ~ Bin(r, q). C_k/(k·w_k) is largest at k = v, because
binomials are log-concave. So, with σ = f(1 − f)/(v·w_v) and Z_r = Σ_k z_{r,k},

    P[r guesses, at least v right] ≤ f·P[r guesses] + σ·Z_r,   Σ_r Z_r ≤ mδ.

With r fixed in advance, p = f + mδ·σ. It is attained by tilting randomised response by one step at v. A test compares
it with the linear programme over all (ε, δ)-DP mechanisms.

*δ > 0, adaptive: r chosen after the output* (for example, one guess per disclosed secret). Then p = f + mδ·σ is not
valid, because the failures of probability δ can be placed at the r at which they count most. Reject iff f ≤ β/2 and
mδ·f/(v·w_v) ≤ β/2, both of which increase with ε; summing the display over r, P[reject] ≤ β/2 + mδ·max_r σ_r ≤ β.

*δ > 0, published* (Steinke, Nasr and Jagielski 2023, Theorem 5.2, r fixed): p = f + 2mδ·A,
A = max_{1≤i≤v} P[v − i ≤ W < v]/i. Its excess over f is about 2.5 times the necessary one at ε = 0, and 25 times at
ε = 3. In the lower tail it is too small: m = r = 3, v = 1, ε = 0, δ = .01 gives .88250; but drawing T uniformly and, if
it is −S, drawing again with probability .08, is (0, .01)-DP with P[v ≥ 1] = .88375. So the larger of 2A and σ is used.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.audits.statistics.counts import count, counts, ordered
from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats, Integers

Rule: TypeAlias = Literal["published", "tight", "adaptive"]

_COINS = "each candidate was included by its own fair coin, independent of everything else"
_FIXED = "the number of guesses was fixed before the run"
_MANY = 10**15  # upper limit of the search for a number of canaries
_STEPS = 60  # bisections of an interval of length ≤ 64: below 1e-16 of it


def epsilon_one_run(
    m: int,
    guesses: int,
    correct: int,
    *,
    delta: float,
    confidence: float,
    rule: Rule = "published",
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on ε at δ from one run: the smallest ε that the number of right guesses does not reject.

    Args:
        m: number of candidates, each included by a fair coin.
        guesses: r, how many coins were guessed, 0 to m.
        correct: v, how many guesses were right, 0 to r.
        delta: δ in [0, 1).
        confidence: 1 − β, in (0, 1).
        rule: how δ > 0 is accounted for (see the module): ``published`` and ``tight`` need r fixed before the run,
            ``adaptive`` lets r depend on the output. For δ = 0 all rules are equal and none needs r fixed.
        adjacency: the change that a coin decides; add_remove for the presence of a unit.
        unit: what a candidate is; a record by default.

    Returns:
        A finite-sample lower bound, ε = inf{ε ≥ 0: p(ε) ≥ β}; its ceiling is the bound if all r guesses were right.

    Raises:
        ValueError: if a count or probability is out of range.

    Source: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), Theorem 5.2; the other
        rules are proven in the module's docstring.
    """
    value, ceiling = epsilons_one_run(
        m, guesses, np.array([correct, guesses]), delta=delta, confidence=confidence, rule=rule
    )
    return Bound(
        direction=Direction.LOWER,
        value=float(value),
        method="one_run" if rule == "published" else f"one_run_{rule}",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=float(ceiling),
        null_family=ANY_MECHANISM,
        assumptions=(_COINS, *((_FIXED,) if delta and rule != "adaptive" else ())),
    )


def epsilons_one_run(
    m: int,
    guesses: ArrayLike,
    correct: ArrayLike,
    *,
    delta: float,
    confidence: float,
    rule: Rule = "published",
) -> Floats:
    """The values of `epsilon_one_run` for arrays of guesses and right guesses that broadcast together."""
    m = count(m=m)
    validate.open_probability(confidence=confidence)
    validate.one_of(("published", "tight", "adaptive"), rule=rule)
    validate.probability_below_one(delta=delta)
    v, r = counts(correct=correct, guesses=guesses)
    ordered(correct=v, guesses=r, m=np.full(r.shape, m))
    beta = 1 - confidence
    pure = _pure(r, v, beta)
    if delta == 0:
        return pure
    pairs, inverse = np.unique(np.stack([r.ravel(), v.ravel()], axis=1), axis=0, return_inverse=True)
    tops = _pure(pairs[:, 0], pairs[:, 1], beta)
    results = [
        _first_crossing(p_value(int(pair[0]), int(pair[1]), m * delta, rule), beta, float(top))
        for pair, top in zip(pairs, tops, strict=True)
    ]
    return np.asarray(np.array(results, dtype=np.float64)[inverse.reshape(-1)].reshape(r.shape))


def canaries_needed(
    epsilon: float,
    *,
    confidence: float,
    delta: float = 0.0,
    m: int | None = None,
    rule: Literal["tight", "adaptive"] = "tight",
) -> int:
    """The fewest guesses that show ε at δ and this confidence, if all of them are right.

    With all r guesses right, f = w_r = q^r, so p = q^r(1 − c) + c for c = mδ/r by the tight rule, and q^r ≤ β/2 and
    c ≤ β/2 by the adaptive one. Both p-values decrease in r, whether m is fixed or m = r, so bisection finds the
    smallest r.

    Args:
        epsilon: ε > 0 to be shown.
        confidence: 1 − β, in (0, 1).
        delta: δ in [0, 1).
        m: number of candidates, not all of which need be guessed; by default every candidate is guessed, so that
            m = r is returned.
        rule: as for `epsilon_one_run`, whose published rule shows less. For δ = 0 both rules are equal.

    Raises:
        ValueError: if an argument is out of range, or if no number of guesses (of at most m) is enough.
    """
    beta = 1 - validate.open_probability(confidence=confidence)
    validate.positive(epsilon=epsilon)
    validate.probability_below_one(delta=delta)
    validate.one_of(("tight", "adaptive"), rule=rule)
    largest = _MANY if m is None else count(minimum=1, m=m)

    def shown(r: int) -> bool:
        failures = (r if m is None else m) * delta
        return p_value(r, r, failures, rule if delta else "tight")(epsilon) <= beta

    if not shown(largest):
        among = "any number of canaries" if m is None else f"{m} canaries"
        raise ValueError(
            f"epsilon = {epsilon:g} at delta = {delta:g} and confidence {confidence:g} cannot be shown with {among}, "
            "even if all guesses are right; use a smaller epsilon, delta or confidence"
            + ("" if m is None else ", or more canaries")
        )
    return bisect.bisect_left(range(1, largest + 1), True, key=shown) + 1


@dataclass(frozen=True, slots=True)
class Disclosures:
    """How often disclosed secrets were in the data, compared with chance.

    Attributes:
        p_value: the probability that at least as many are from the data if the output does not depend on who was in
            the data. It tests ε = 0 only; no ε follows from it.
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
    confidence: float = defaults.CONFIDENCE,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Disclosures:
    """The p-value and the ε bound if K of m candidates are disclosed, v of which were in the data.

    Given how many candidates were in the data, v is hypergeometric if the output does not depend on which they were.

    Args:
        k: K, number of candidates that the output discloses, each counted once.
        v: how many of them were in the data.
        m: number of candidates, each included by a fair coin.
        source: how many of the m were in; m/2 if not given.
        delta: δ of the ε bound. K depends on the output, and the bound accounts for it.
        confidence: of the ε bound.
        adjacency, unit: of the ε bound.

    Raises:
        ValueError: if the counts are impossible.
    """
    k, v, m = count(k=k), count(v=v), count(m=m)
    included = count(source=m // 2 if source is None else source)
    if not (0 <= v <= min(k, included) and k - v <= m - included):
        raise ValueError(f"impossible counts: {v} of {k} disclosed among {included} of {m} candidates in the data")
    bound = epsilon_one_run(
        m, k, v, delta=delta, confidence=confidence, rule="adaptive", adjacency=adjacency, unit=unit
    )
    return Disclosures(hypergeometric_tail(v, m, included, k), bound)


def hypergeometric_tail(hits: int, total: int, marked: int, drawn: int) -> float:
    """P[H ≥ hits] for H the number of `marked` among `drawn` of `total`, drawn without replacement; in log space."""
    hits, total = count(hits=hits), count(total=total)
    for name, part in (("marked", marked), ("drawn", drawn)):
        if count(**{name: part}) > total:
            raise ValueError(f"{name} must be at most total = {total}, not {part}")
    lowest, highest = max(hits, drawn + marked - total, 0), min(drawn, marked)
    if lowest == max(drawn + marked - total, 0):
        return 1.0
    j = np.arange(lowest, highest + 1, dtype=np.float64)
    terms = _log_choose(marked, j) + _log_choose(total - marked, drawn - j) - _log_choose(total, float(drawn))
    return min(1.0, float(np.exp(special.logsumexp(terms))))


def _pure(r: Integers, v: Integers, beta: float) -> Floats:
    """δ = 0: logit of the q at which P[Bin(r, q) ≥ v] = β; q and 1 − q are separate quantiles, without cancellation."""
    a, b = np.maximum(v, 1).astype(np.float64), (r - v + 1).astype(np.float64)
    with np.errstate(divide="ignore"):  # q may underflow to 0, for one right guess among very many
        value = np.log(special.betaincinv(a, b, beta)) - np.log(special.betainccinv(b, a, beta))
    return np.asarray(np.where(v > 0, np.maximum(value, 0.0), 0.0))


def p_value(r: int, v: int, failures: float, rule: Rule) -> Callable[[float], float]:
    """The function ε ↦ p(ε) for v right guesses of r, with `failures` = mδ; it increases with ε until it is 1.

    Under (ε, δ)-DP every p-value is at most β with probability at most β; the adaptive one for β ≤ 1 and any r.
    """
    if v == 0:
        return lambda epsilon: 1.0
    above = _tail_over_weight(r, v)
    below = _weights_below(r, v) if rule == "published" else None

    def p(epsilon: float) -> float:
        log_wrong = -np.logaddexp(0.0, epsilon)  # log(1 − q)
        tail = float(special.betaincc(r - v + 1, v, np.exp(log_wrong)))
        delta_term = failures * above(epsilon) / v
        if rule == "adaptive":
            return min(1.0, 2 * max(tail, delta_term))
        extra = delta_term * (1 - tail)
        if below is not None:
            averages = np.cumsum(below(epsilon)) / np.arange(1, v + 1)
            extra = max(extra, 2 * failures * float(averages.max()))
        return min(1.0, tail + extra)

    return p


def _tail_over_weight(r: int, v: int) -> Callable[[float], float]:
    """The function ε ↦ f/w_v = Σ_{k ≥ v} w_k/w_v, summed directly because f and w_v may both underflow."""
    k = np.arange(v, r, dtype=np.float64)
    logs = np.cumsum(np.log((r - k) / (k + 1)))  # log of w_{k+1}/w_v, minus (k + 1 − v)·ε
    steps = np.arange(1, r - v + 1, dtype=np.float64)

    def ratio(epsilon: float) -> float:
        with np.errstate(over="ignore"):  # the p-value is 1 if this overflows
            return 1.0 + float(np.exp(logs + steps * epsilon).sum())

    return ratio


def _weights_below(r: int, v: int) -> Callable[[float], Floats]:
    """The function ε ↦ [P[W = v − 1], …, P[W = 0]]; the binomial coefficients are computed once."""
    j = np.arange(v - 1, -1, -1, dtype=np.float64)
    coefficients = _log_choose(r, j)
    return lambda epsilon: np.asarray(np.exp(coefficients + j * epsilon - r * np.logaddexp(0.0, epsilon)))


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
