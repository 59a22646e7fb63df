"""The pair of the best of a random number of runs, from the pair of one run."""

from __future__ import annotations

import math
import warnings

import numpy as np

from dpassay.accounting.lattice.components import DIRECTIONS
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet
from dpassay.accounting.tuning.profile import UpperCurve, shifts_of
from dpassay.accounting.tuning.runs import Curve, NumberOfRuns
from dpassay.base.arrays import Floats

_SMALLEST = (1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3)
_FARTHEST = 300.0
_POINTS = 1500
_USELESS = 0.5
"""A δ at the largest ε from which nothing is left that a lattice could use."""


def best_of_runs(runs: NumberOfRuns, single: DominatingPair, known: Curve, label: str) -> DominatingPair:
    """An upper bound on the profile of the best run.

    Args:
        runs: the law of the number of runs.
        single: the pair of one run.
        known: any other upper bound on δ(ε), ε ≥ 0, of the best run in both directions.
        label: equal labels mean equal pairs.

    Proof: docs/proofs/tuning.md, Theorem 4.
    """
    reach = _reach(single)
    sides = DIRECTIONS[:1] if single.symmetric else DIRECTIONS
    epsilons = np.unique(np.concatenate([_grid(reach), -_grid(reach)]))
    of_one: dict[str, UpperCurve] = {
        side: UpperCurve(epsilons, single.privacy_profile(epsilons, side)[1]) for side in sides
    }
    directions = [(of_one[side], of_one[other]) for side, other in zip(sides, sides[::-1], strict=True)]
    shifts = [shifts_of(runs, other) for _, other in directions]
    points = _grid(min(reach + max(each.largest for each in shifts), _FARTHEST))
    best, limit = [each(one, points) for each, (one, _) in zip(shifts, directions, strict=True)], known(points)
    best = [np.minimum(deltas, limit) for deltas in best]
    if max(deltas[-1] for deltas in best) > _USELESS:
        return DominatingPair.non_private().as_upper_bound()
    remove = UpperCurve.both(points, best[0], best[-1])
    add = None if single.symmetric else UpperCurve.both(points, best[-1], best[0])
    high = float(points[-1])
    return DominatingPair.profile(remove, add, low=-high, high=high, label=label)


def _grid(reach: float) -> Floats:
    return np.concatenate(
        [[0.0], np.geomspace(1e-4, 1e-2, 50, endpoint=False) * reach, np.linspace(1e-2, 1, _POINTS) * reach]
    )


def _reach(pair: DominatingPair) -> float:
    """The ε at which δ is negligible; never 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)  # nobody asked for it
        for delta in _SMALLEST:
            epsilon = pair.epsilon(delta).upper
            if math.isfinite(epsilon):
                return min(max(epsilon, 1e-6), _FARTHEST)
    return _FARTHEST
