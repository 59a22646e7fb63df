"""What a privacy loss means for who is attacked: the advantage, error and power of the best test, and a Gaussian μ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Risk, RiskName
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.registry import Described, event_of
from dpassay.base import defaults, validate

FALSE_POSITIVE_RATES = (0.01, 0.001)
"""At which the power of a test is told."""
_ALPHAS = 2001


def risks(
    event: Described,
    *,
    adjacency: Adjacency | str,
    delta: float | None,
    unit: Unit | str | None = None,
    prior: float = defaults.PRIOR,
) -> tuple[Risk, ...]:
    """The numbers of a mechanism besides ε and δ, by the accountant ``lattice``.

    - the *advantage* of a test, its true positive rate less its false positive rate: δ(0);
    - the *true positive rate* at false positive rates of 0.01 and 0.001;
    - the *Bayes error* of who guesses, if the unit is in the data with probability `prior`;
    - the least *μ* of Gaussian DP that holds but for a δ, and its *regret*: how far the trade-off curve is above that
      of the Gaussian, at most, along the diagonal. With a small one μ says nearly everything.

    Args:
        event: an event, a ledger or a run.
        adjacency: the neighbouring relation.
        delta: δ in (0, 1), for μ; None for no μ.
        unit: the privacy unit, by default one record.
        prior: in (0, 1).

    Raises:
        ValueError: if the accountant has no bound, with the reason.

    Source: Kaissis, Kolek, Balle, Hayes and Rueckert, "Beyond the Calibration Point" (2024), for the regret; Gomez and
        others, "(ε, δ) Considered Harmful" (2025), for μ.
    """
    validate.open_probability(prior=prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)  # each number has its interval
        return tuple(_risks(Lattice(adjacency, unit).compose(event_of(event)), delta, prior))


def on_run(found: Sequence[Risk], basis: Basis) -> tuple[Risk, ...]:
    """The numbers of events as those of the run that they describe, with what that rests on.

    Where the run may cost less than its events, there are no intervals, and there is no regret, which is about its own
    curve.
    """
    return tuple(basis.under(risk) for risk in found if basis.exact or risk.name != "regret")


def risks_of_run(
    event: Described, basis: Basis, *, adjacency: Adjacency | str, unit: Unit | str | None, delta: float | None
) -> tuple[Risk, ...]:
    """`risks` of a run that events describe, beside bounds on it; empty where `lattice` has no bound or cannot tell.

    Args:
        event: of the run.
        basis: what bounds on the run rest on.
        adjacency, unit, delta: as for `risks`.
    """
    try:
        found = risks(event, adjacency=adjacency, unit=unit, delta=delta)
    except (ValueError, ArithmeticError):  # the bounds are told; these numbers are only what they mean
        return ()
    return on_run(found, basis)


def _risks(lattice: Lattice, delta: float | None, prior: float) -> list[Risk]:
    pair, tight = lattice.pair, lattice.pair.tight
    results = [_of_bound("advantage", lattice.delta(0.0))]
    results += [_of_bound("true_positive_rate", lattice.blowup(rate), rate) for rate in FALSE_POSITIVE_RATES]
    error, rigor, assumptions = pair.bayes_risk(prior, direction="remove"), results[0].rigor, results[0].assumptions
    interval = error if tight else None
    results.append(Risk("bayes_error", error.lower, Direction.LOWER, rigor, interval, prior, assumptions))
    if delta is None:
        return results
    mu = lattice.mu(delta)
    results.append(_of_bound("mu", mu, delta))
    if math.isfinite(mu.value) and tight:
        value = regret(pair, mu.value)
        results.append(Risk("regret", value, Direction.UPPER, rigor, assumptions=assumptions))
    return results


def _of_bound(name: RiskName, bound: Bound, at: float | None = None) -> Risk:
    return Risk(name, bound.value, bound.direction, bound.rigor, bound.interval, at, bound.assumptions)


def regret(pair: DominatingPair, mu: float) -> float:
    """An upper bound on the least κ ≥ 0 with f(α + κ) − κ ≤ G_μ(α) for all α, f the trade-off curve of a pair.

    f decreases, so its value at the left end of a cell of a grid, moved by κ, is an upper bound in the cell, and G_μ at
    the right end is a lower one.
    """
    alphas = np.concatenate([np.geomspace(1e-12, 1e-3, 200)[:-1], np.linspace(1e-3, 1 - 1e-6, _ALPHAS)])
    _, above = pair.trade_off(alphas)
    left, right = np.concatenate([[0.0], alphas]), np.concatenate([alphas, [1.0]])
    curve = np.concatenate([[1.0], above])  # of f, from the left end of each cell
    with np.errstate(divide="ignore"):
        gaussian = np.maximum(ndtr(-ndtri(right) - mu) * (1 - 1e-12) - 1e-300, 0.0)

    def enough(kappa: float) -> bool:
        moved = np.searchsorted(left, left + kappa, side="right") - 1
        return bool((np.where(left + kappa >= 1, 0.0, curve[moved]) - kappa <= gaussian).all())

    return _least(enough)


def _least(enough: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
