"""Compositions of components: equal ones are counted, and Gaussians, zCDP and selections stay in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.accounting.lattice import concentrated_curve, gaussian_curve, law_products
from dpassay.accounting.lattice.components import Component, gaussian
from dpassay.accounting.lattice.enclosure import Enclosure
from dpassay.accounting.lattice.laws import Law
from dpassay.accounting.lattice.normal_mixtures import NormalMixtures
from dpassay.accounting.lattice.single_law import SingleLaw
from dpassay.accounting.selection.worst_case import Selections

Composition = tuple[tuple[Component, int], ...]
_MAX_COMPOSITIONS = 16
_MIN_MASS = 1e-290
_SHARES = (0.0, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
"""How many losses are below their thresholds, on average; 0 for no thresholds."""


def merged(parts: Sequence[tuple[Component, int]]) -> Composition:
    """The composition with equal components counted and all Gaussians merged into one, since μ² adds up."""
    counts: dict[str, tuple[Component, int]] = {}
    for part, count in parts:
        known, before = counts.get(part.label, (part, 0))
        counts[part.label] = (part if known.tight else known, before + count)
    gaussians = [(part, count) for part, count in counts.values() if part.mu is not None]
    rest = [pair for pair in counts.values() if pair[0].mu is None]
    if len(gaussians) == 1:
        rest += [pair for pair in counts.values() if pair[0].mu is not None]
    elif gaussians:
        tight = all(part.tight for part, _ in gaussians)
        rest.append((replace(gaussian(*joint_mu(gaussians)), tight=tight), 1))
    return tuple(sorted(rest, key=lambda pair: pair[0].label))


def distinct(compositions: Sequence[Composition]) -> list[Composition]:
    """The alternatives that may be the worst: of those that differ in a Gaussian only, the one with the largest μ."""
    unique: dict[object, Composition] = {}
    for each in compositions:
        key = key_of(tuple(pair for pair in each if pair[0].mu is None))
        known = unique.get(key)
        if known is None or _squares(each) > _squares(known):
            unique[key] = each
    if len(unique) > _MAX_COMPOSITIONS:
        raise ValueError(
            f"at most {_MAX_COMPOSITIONS} different compositions of disjoint parts are supported, not {len(unique)}"
        )
    return list(unique.values())


def key_of(composition: Composition) -> tuple[tuple[str, int], ...]:
    """The labels of the components with their counts."""
    return tuple((part.label, count) for part, count in composition)


def mu_of(composition: Composition) -> float | None:
    """μ of a composition of Gaussians, 0 for an empty one, None for any other."""
    if any(part.mu is None for part, _ in composition):
        return None
    return joint_mu(composition)[0]


def factor_of(composition: Composition) -> float:
    """What the curve of the laws is multiplied by; rounded up if it is above 1, and down if it is below."""
    total = sum(count * part.log_factor for part, count in composition)
    return math.exp(total * (1 + 1e-9)) + math.copysign(2**-52, total) if total else 1.0


def below(composition: Composition) -> Composition | None:
    """A composition that this one dominates, if a part is only known to lie between two pairs; else None."""
    if all(part.below is None for part, _ in composition):
        return None
    return tuple((part.below or part, count) for part, count in composition)


def _squares(composition: Composition) -> Fraction:
    return joint_mu([pair for pair in composition if pair[0].mu is not None])[1]


def joint_mu(parts: Composition | Sequence[tuple[Component, int]]) -> tuple[float, Fraction]:
    """√(Σ n μ²) of Gaussians, and the exact sum. The sum stays short, since its denominator is a power of 2."""
    mu_squared = sum((count * (part.mu_squared or Fraction(part.mu or 0.0) ** 2) for part, count in parts), Fraction(0))
    largest = max((part.mu or 0.0 for part, _ in parts), default=0.0)
    if not largest:
        return 0.0, Fraction(0)
    # Relative to the largest μ, no square under- or overflows.
    return largest * math.sqrt(mu_squared / Fraction(largest) ** 2), mu_squared


def enclosure_of(composition: Composition, side: str, *, target: float | None = None) -> Enclosure | SingleLaw:
    """The curve of a composition in one direction."""
    laws = law_products.merged(laws_of(composition, side))
    if len(laws) == 1 and laws[0][1] == 1:
        return SingleLaw(laws[0][0])
    return Enclosure(laws, target=target)


def laws_of(composition: Composition, side: str) -> list[tuple[Law, int]]:
    """The laws of a composition in one direction. Equal Gaussians are merged into one law, and so is all zCDP."""
    laws: list[tuple[Law, int]] = []
    rho = xi = Fraction(0)
    for part, count in composition:
        if part.selection_eta is not None and (single_block := _selections(part.selection_eta, count, side)):
            laws += single_block
        elif part.concentrated is not None:
            rho, xi = rho + count * part.concentrated[0], xi + count * part.concentrated[1]
        elif part.mu is not None and count > 1:
            laws.append((NormalMixtures([1.0], [part.mu * math.sqrt(count)]), 1))
        else:
            laws.append((getattr(part, side), count))
    if rho or xi:
        laws.append((concentrated_curve.law(rho, xi), 1))
    return laws


def _selections(eta: float, count: int, side: str) -> list[tuple[Law, int]]:
    """The laws of the adaptive bound for selections of one range; empty if only zCDP is available."""
    kinds = Selections.of(eta, count)
    if kinds.refusal is not None:
        return []
    return [(getattr(part, side), times) for part, times in kinds.components()]


def simple_epsilon(composition: Composition, delta: float) -> float:
    """An upper bound on ε(δ) in closed form, used if a lattice gives no narrow answer.

    Largest finite losses add up, Gaussians compose by μ², zCDP by ρ and ξ, and the probability of an infinite loss is
    subtracted from δ first. It is inf if a part has neither a largest loss, nor a dominating Gaussian, nor a ρ.
    """
    largest, gaussians = 0.0, []
    log_finite_mass, rho, xi = 0.0, Fraction(0), Fraction(0)
    for part, count in composition:
        if part.mu is not None:
            gaussians.append((part, count))
            continue
        if part.concentrated is not None:
            rho, xi = rho + count * part.concentrated[0], xi + count * part.concentrated[1]
            continue
        laws = (part.remove, part.add)
        infinity_mass = max(SingleLaw(law).infinity_mass(1) for law in laws)
        if infinity_mass >= 1:
            return math.inf
        log_finite_mass += count * math.log1p(-infinity_mass) * (1 + 1e-12)
        most = max(SingleLaw(law).largest() for law in laws)
        mu = max(law.dominating_mu for law in laws)
        if math.isfinite(most):
            largest += count * most * (1 + 1e-14)
        elif math.isfinite(mu):
            gaussians.append((gaussian(mu * (1 + 1e-14)), count))
        else:
            return math.inf
    left = delta + math.expm1(log_finite_mass) * (1 + 1e-12)
    left *= 1 - 1e-12
    if left <= 0:
        return math.inf
    mu, mu_squared = joint_mu(gaussians)
    noisy = 0.0
    if mu or rho or xi:
        noisy = formulas.epsilon_from_zcdp(formulas.up(rho + mu_squared / 2), left, formulas.up(xi))
    if mu and not rho and not xi:
        noisy = min(noisy, gaussian_curve.epsilon(mu * (1 + 1e-14), left).upper)
    return (largest + noisy) * (1 + 1e-14)


def simple_least_epsilon(composition: Composition, delta: float, side: str) -> float:
    """A lower bound on ε(δ), used if a lattice gives no narrow answer; 0 if a part is known from above only.

    Let A be the event that the loss of each part that is no Gaussian exceeds a threshold of its own, and δ_G the curve
    of the Gaussians. Then δ(ε) ≥ P(A) δ_G(ε − log(P(A)/Q(A))). The thresholds are quantiles of several levels.

    Proof: docs/proofs/lattice.md, Theorem 7.
    """
    others = [(getattr(part, side), count) for part, count in composition if part.mu is None]
    if any(law.upper_only for law, _ in others):
        return 0.0
    mu = joint_mu([pair for pair in composition if pair[0].mu is not None])[0] * (1 - 1e-14)
    runs, best = max(1, sum(count for _, count in others)), 0.0
    for share in _SHARES:
        log_p = log_q = 0.0  # of A, bounded from below and from above
        for law, count in others if share else ():
            known = law.tails(np.array([law.support(min(share / runs, 0.5), 1e-12)[0]]))
            p, q = float(known.p_above[0] * (1 - known.error[0])), float(known.q_above[0] * (1 + known.error[0]))
            if p < _MIN_MASS or q + known.q_slack < _MIN_MASS:  # smaller masses may have lost digits
                log_p = -math.inf
                break
            log_p, log_q = log_p + count * math.log(p), log_q + count * math.log(q + known.q_slack)
        log_p, log_q = log_p + 1e-13 * log_p, log_q - 1e-13 * log_q
        if log_p <= math.log(delta):
            continue
        rest = delta * math.exp(-log_p) * (1 + 1e-12)
        if rest >= 1:
            continue
        # The point where δ_G is `rest`: it is at least log(1 − rest), since δ_G(ε) ≥ 1 − e^ε.
        least = math.log1p(-rest)
        if mu and gaussian_curve.delta(mu, 0.0).lower > rest:
            least = gaussian_curve.epsilon(mu, rest).lower
        best = max(best, log_p - log_q + least - 1e-13 * (abs(log_p) + abs(log_q) + abs(least)))
    return best


def simple_delta(composition: Composition, epsilon: float) -> float:
    """An upper bound on δ(ε) from Gaussians that dominate the parts; 1 if a part has none."""
    mu = _dominating_mu(composition)
    return gaussian_curve.delta(mu, epsilon).upper if math.isfinite(mu) else 1.0


def dominated_epsilon(composition: Composition, delta: float) -> float:
    """An upper bound on ε(δ) from Gaussians that dominate the parts; inf if a part has none."""
    mu = _dominating_mu(composition)
    return gaussian_curve.epsilon(mu, delta).upper if math.isfinite(mu) else math.inf


def _dominating_mu(composition: Composition) -> float:
    """μ of a Gaussian that dominates the composition, rounded up; inf if a part has none."""
    gaussians = []
    for part, count in composition:
        mu = max(law.dominating_mu for law in (part.remove, part.add)) if part.mu is None else part.mu
        if not math.isfinite(mu):
            return math.inf
        gaussians.append((gaussian(mu * (1 + 1e-14)), count))
    return joint_mu(gaussians)[0] * (1 + 1e-14)


def zcdp_epsilon(composition: Composition, delta: float) -> float:
    """ε(δ) from ρ and ξ alone; inf if some part is not zCDP."""
    known = [(part.concentrated, count) for part, count in composition if part.concentrated is not None]
    if len(known) < len(composition):
        return math.inf
    rho, xi = (sum((count * each[index] for each, count in known), start=Fraction(0)) for index in (0, 1))
    return formulas.epsilon_from_zcdp(formulas.up(rho), delta, formulas.up(xi))
