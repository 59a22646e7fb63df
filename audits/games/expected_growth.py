"""How fast bets on an event are expected to grow, from few runs on D and on D′.

A run has the event with rate p on D and q on D′. Either both rates are the same, or the event tells D′ from D; then
they are independent. Each of the three has a Beta prior. The expected growth is the probability of two rates, given the
runs, times the mean over p and q of what a round adds to the logarithm of the gambler's wealth against the claim
(`dpassay.audits.statistics.two_sample`).

An estimate of the rates alone would favour events that were picked among many, and pairs of neighbours with few runs.
The probability that nothing is there takes care of both: the more events were tried, the smaller is the prior of each.
These numbers only decide which pair is tested and which events are bet on (docs/proofs/many-runs.md, theorem 1), so the
priors cost no confidence.
"""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

import numpy as np
from scipy import special

from dpassay.audits.statistics.two_sample import log_bets
from dpassay.base.arrays import Floats, Integers

_POINTS = 64  # of the grid of rates
_LARGEST = 64.0  # ε above which the claim allows nearly everything


class Prior(NamedTuple):
    """What is thought of the rates of an event before the runs: parameters of Beta laws, of the rates on D and on D′ if
    they differ, and of the one rate if they do not."""

    on_d: tuple[float, float] = (0.5, 0.5)
    on_d_prime: tuple[float, float] = (0.5, 0.5)
    same: tuple[float, float] = (0.5, 0.5)


ANY: Final = Prior()
"""Of an event that nobody expected: Jeffreys' prior."""

EXPECTED: Final = Prior(on_d=(0.2, 1.0), on_d_prime=(1.0, 0.5), same=(0.3, 0.7))
"""Of an event that a strategy expects on D′ and not on D."""


class Growth(NamedTuple):
    """What is expected of events, shape (m,).

    Attributes:
        log_odds: the logarithm of the odds, given the runs, that an event has two rates.
        growth: the mean of what a round adds to the logarithm of the wealth if it has.
    """

    log_odds: Floats
    growth: Floats


def expected_growth(
    hits: Integers, runs: tuple[int, int], odds: Floats, limit: float, delta: float, prior: Prior
) -> Growth:
    """What is expected of bets on each of m events.

    Args:
        hits: shape (m, 2), in how many runs on D and on D′ each event happened.
        runs: number of runs on D and on D′.
        odds: shape (m,), before the runs, that the event tells D′ from D.
        limit: ε of the claim.
        delta: δ of the claim.
        prior: of the rates.
    """
    laws = prior.on_d, prior.on_d_prime
    different, of_each = np.unique(hits, axis=0, return_inverse=True)
    both = different.sum(axis=1), sum(runs)
    apart = sum(_evidence(different[:, side], runs[side], laws[side]) for side in (0, 1))
    weights = [_posterior(different[:, side], runs[side], laws[side]) for side in (0, 1)]
    growth = np.einsum("ei,ij,ej->e", weights[0], _growth(limit, delta), weights[1], optimize=False)
    of_each = of_each.reshape(-1)
    return Growth(np.log(odds) + (apart - _evidence(*both, prior.same))[of_each], growth[of_each])


def _evidence(hits: Integers, runs: int, law: tuple[float, float]) -> Floats:
    """The logarithm of the probability of so many hits, in a given order, under a Beta law."""
    return np.asarray(special.betaln(hits + law[0], runs - hits + law[1]) - special.betaln(*law))


def _posterior(hits: Integers, runs: int, law: tuple[float, float]) -> Floats:
    """The weights of the rates of the grid after so many hits, shape (m, rates)."""
    rates = _rates()
    shapes = hits + law[0] - 0.5, runs - hits + law[1] - 0.5  # of the grid, each rate stands for as much of Jeffreys'
    logs = shapes[0][:, None] * np.log(rates) + shapes[1][:, None] * np.log1p(-rates)
    return np.asarray(special.softmax(logs, axis=1))


def _rates() -> Floats:
    """A grid of rates that have equal weights under Jeffreys' prior, in which the angle arcsin √p is uniform."""
    return np.asarray(np.sin((np.arange(_POINTS) + 0.5) * math.pi / 2 / _POINTS) ** 2)


@functools.lru_cache(maxsize=16)
def _growth(limit: float, delta: float) -> Floats:
    """The mean logarithm of the factors of a round at true rates, shape (rates on D, rates on D′)."""
    rates, grown = _rates(), np.array([math.exp(min(limit, _LARGEST))])
    on_d, on_d_prime = np.meshgrid(rates, rates, indexing="ij")
    hit, miss = log_bets(on_d, on_d_prime, grown, delta)
    sides = zip((on_d, on_d_prime), (0, 1), strict=True)
    total = sum(rate * hit[..., side, 0] + (1 - rate) * miss[..., side, 0] for rate, side in sides)
    return np.asarray(np.maximum(total, 0.0))
