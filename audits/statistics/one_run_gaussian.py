"""One-run lower bounds on μ, if what is released of each candidate is an independent Gaussian observation of its coin.

There are m candidates, each included by its own fair coin S_i = ±½. *The model:* the release is a function, possibly a
random one, of Y_i = μ_i·S_i + Z_i for independent Z_i ~ N(0, 1) and 0 ≤ μ_i ≤ μ. It holds for a sum with independent
Gaussian noise in which candidates move orthogonal directions, such as different counts, and for what is computed from
it. It does *not* follow from μ-GDP.

From the release an attacker guesses r of the coins, r fixed in advance, and v are right.

The best attack guesses the signs of the r largest |Y_i| where all μ_i are μ. Let T be the (r + 1)-th largest of them (0
if r = m), G(t) = P[|Y| > t] = Φ(μ/2 − t) + Φ(−μ/2 − t) and q(t) = Φ(μ/2 − t)/G(t). Given T the r signs are right
independently of each other, each with probability q(T), and G(T) is an order statistic of uniform numbers, so

    p(μ) = P[at least v right] = E P[Bin(r, q(T)) ≥ v],  G(T) ~ Beta(r + 1, m − r).

The bound is inf{μ ≥ 0: p(μ) ≥ β}: if the model holds for μ, it exceeds μ with probability at most β
(docs/proofs/audits-one-run-gaussian.md, Theorems 1 to 3).

*Rounding.* q increases with t, so in each cell of a grid p takes the value at the upper end (Theorem 4): what is
computed is an upper bound on p, and the bound on μ is not too large, wherever the cells are.

*It refutes nothing.* Randomised response with ε = 1 gives as many right guesses as a Gaussian of μ = 1.23, whose ε at
δ = 10⁻⁵ is 5.6. And μ-GDP alone is not enough: a mechanism that reveals its level |Y|, common to all candidates, and
answers each coin by randomised response at that level is μ-GDP for each candidate; its number of right guesses varies
more than that of independent observations. Tests have both.

For other one-run bounds on the Gaussian family, from other assumptions: Mahloujifar, Melis and Chaudhuri, "Auditing
f-Differential Privacy in One Run" (2024, `one_run_f_dp`), for μ-GDP alone; Xiang et al., "Tight Privacy Audit in One
Run" (2025); Agrawal et al., "Let's Ask Gauss: Improved One-Run Privacy Auditing" (2026), which is asymptotic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.statistics.counts import count
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_confidence, format_lower, format_number

NULL_FAMILY = "every function of independent Gaussian observations, one for each candidate"

_UP = 1 + 1e-9  # exceeds the rounding of sums of positive terms, if special functions are accurate to 10⁻¹⁰
_CELLS = 256
_TAIL = 1e-14  # of T, beyond which there is one cell at each end
_LARGEST = 40.0  # μ; no run with fewer than 10⁸⁰ guesses shows as much
_STEPS = 40  # bisections: 4 × 10⁻¹¹ of μ


def mu_one_run(
    m: int,
    guesses: int,
    correct: int,
    *,
    confidence: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on μ from one run, if candidates are observed through independent Gaussian noise (see the module).

    Args:
        m: number of candidates, each included by a fair coin.
        guesses: r, fixed before the run, 1 to m.
        correct: v, how many guesses were right, 0 to r.
        confidence: 1 − β, in (0, 1).
        adjacency: the change that a coin decides.
        unit: what a candidate is; a record by default.

    Returns:
        A bound on ``mu`` of rigor `model_conditional`; its ceiling is that of r right guesses.

    Raises:
        ValueError: if a count or probability is out of range.
    """
    value, ceiling = _mus(m, guesses, correct, confidence)
    return _bound("mu", value, ceiling, None, confidence, adjacency, unit)


def epsilon_one_run_gaussian(
    m: int,
    guesses: int,
    correct: int,
    *,
    delta: float,
    confidence: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """The bound of `mu_one_run` as the ε at δ of a Gaussian mechanism with this μ.

    Args:
        delta: δ in (0, 1). At δ = 0 no Gaussian mechanism has a finite ε.
        m, guesses, correct, confidence, adjacency, unit: as for `mu_one_run`.

    Returns:
        A bound on ``epsilon`` of rigor `model_conditional`, rounded down.

    Raises:
        ValueError: if a count or probability is out of range.
    """
    if validate.probability_below_one(delta=delta) == 0:
        raise ValueError(f"delta must be in (0, 1), not {delta!r}; for δ = 0 take mu_one_run")
    value, ceiling = (_epsilon(mu, delta) for mu in _mus(m, guesses, correct, confidence))
    return _bound("epsilon", value, ceiling, delta, confidence, adjacency, unit)


@dataclass(frozen=True, slots=True)
class GaussianModel:
    """What stronger assumptions buy: the bounds of one run in a Gaussian model. They refute no claim.

    Attributes:
        mu: the lower bound on μ.
        epsilon: the ε at δ of a Gaussian mechanism with that μ; None at δ = 0, where it has no finite ε.
        confidence: with which they hold, if the model does.
    """

    mu: Bound
    epsilon: Bound | None
    confidence: float

    @classmethod
    def of(
        cls,
        m: int,
        guesses: int,
        correct: int,
        *,
        delta: float,
        each: float,
        confidence: float,
        adjacency: Adjacency,
        unit: Unit,
    ) -> GaussianModel:
        """The model beside `epsilon_one_run`, for the same counts.

        Args:
            each: the confidence of the bounds of these counts.
            confidence: with which the bounds of all counts that were tried hold jointly.
            m, guesses, correct, delta, adjacency, unit: as for `epsilon_one_run_gaussian`; δ may be 0.
        """
        mu = mu_one_run(m, guesses, correct, confidence=each, adjacency=adjacency, unit=unit)
        epsilon = None
        if delta:
            value, ceiling = (_epsilon(number, delta) for number in (mu.value, mu.ceiling or 0.0))
            epsilon = _bound("epsilon", value, ceiling, delta, each, adjacency, unit)
        return cls(mu, epsilon, confidence)

    @property
    def sentence(self) -> str:
        """What is shown in the model, and that it counts against no claim."""
        model = "if what is released of each candidate were an independent Gaussian observation of its coin"
        if not self.mu.value:
            return f"The same guesses would show nothing {model}, either."
        shown = f"μ ≥ {format_lower(self.mu.value)}"
        if self.epsilon is not None:
            shown += f", so ε ≥ {format_lower(self.epsilon.value)} at δ = {format_number(self.epsilon.delta or 0.0)}"
        return (
            f"{model[0].upper()}{model[1:]}, the same guesses would show {shown}, with confidence "
            f"{format_confidence(self.confidence)}. Other mechanisms give as many right guesses with a far smaller ε, "
            "so this refutes nothing."
        )

    def to_json(self) -> dict[str, Any]:
        """The bounds and the sentence as plain JSON types."""
        return {
            "mu": self.mu.to_json(),
            "epsilon": None if self.epsilon is None else self.epsilon.to_json(),
            "confidence": self.confidence,
            "sentence": self.sentence,
        }


def _epsilon(mu: float, delta: float) -> float:
    return gaussian_curve.epsilon(mu, delta).lower if mu else 0.0


def _bound(
    quantity: str,
    value: float,
    ceiling: float,
    delta: float | None,
    confidence: float,
    adjacency: Adjacency | str,
    unit: Unit | None,
) -> Bound:
    return Bound(
        direction=Direction.LOWER,
        value=value,
        quantity=quantity,
        method="one_run_gaussian",
        rigor=Rigor.MODEL_CONDITIONAL,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta,
        confidence=confidence,
        ceiling=ceiling,
        null_family=NULL_FAMILY,
        assumptions=(
            "each candidate was included by its own fair coin, independent of everything else",
            "the number of guesses was fixed before the run",
            "what is released of each candidate is a Gaussian observation of its coin, with noise that is independent "
            "of that of the others",
        ),
    )


def _mus(m: int, guesses: int, correct: int, confidence: float) -> tuple[float, float]:
    """The bound on μ, and its ceiling."""
    m, r, v = count(minimum=1, m=m), count(guesses=guesses), count(correct=correct)
    beta = 1 - validate.open_probability(confidence=confidence)
    if not v <= r <= m or r == 0:
        raise ValueError(f"counts must satisfy 0 ≤ correct ≤ guesses ≤ m and guesses ≥ 1, not {v}, {r}, {m}")
    return _mu(m, r, v, beta), _mu(m, r, r, beta)


@functools.lru_cache(maxsize=1024)
def _mu(m: int, guesses: int, correct: int, beta: float) -> float:
    """Many audits of one design, such as simulated ones, have few different counts."""
    return _last_rejected(gaussian_p_value(m, guesses, correct), beta)


def gaussian_p_value(m: int, guesses: int, correct: int) -> Callable[[float], float]:
    """The function μ ↦ p(μ), an upper bound on the probability of at least v right guesses of r among m."""
    r, v = guesses, correct
    if v == 0:
        return lambda mu: 1.0
    if r == m:
        return lambda mu: min(1.0, _UP * float(special.betaincc(r - v + 1, v, special.ndtr(-mu / 2))))
    ends = special.betaincinv(r + 1, m - r, np.array([_TAIL, 1 - _TAIL]))

    def p(mu: float) -> float:
        high, low = (_quantile(float(end), mu) for end in ends)
        t = np.linspace(low, high, _CELLS + 1)
        above = special.betainc(r + 1, m - r, _beyond(t, mu))  # P[T > t]
        log_wrong = special.log_ndtr(-mu / 2 - t) - np.logaddexp(
            special.log_ndtr(mu / 2 - t), special.log_ndtr(-mu / 2 - t)
        )
        right = special.betaincc(r - v + 1, v, np.exp(log_wrong))  # P[Bin(r, q(t)) ≥ v], increasing in t
        steps = np.diff(np.append(right, 1.0))
        return min(1.0, _UP * float(right[0] + (np.maximum(steps, 0.0) * above).sum()))

    return p


def _beyond(t: Floats, mu: float) -> Floats:
    """G(t) = P[|Y| > t]."""
    return np.asarray(np.minimum(1.0, special.ndtr(mu / 2 - t) + special.ndtr(-mu / 2 - t)))


def _quantile(share: float, mu: float) -> float:
    """About the t ≥ 0 with G(t) = `share`: it only decides where the cells are."""
    low, high = 0.0, mu / 2 + 40.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(np.array(middle), mu) > share else (low, middle)
    return low


def _last_rejected(p: Callable[[float], float], beta: float) -> float:
    """The largest μ that bisection finds with p(μ) < β; 0 if there is none."""
    low, high = 0.0, _LARGEST
    if p(low) >= beta:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if p(middle) < beta else (low, middle)
    return low
