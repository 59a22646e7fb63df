"""Advanced composition: the (ε, δ) of many pure ε.

The worst composition of ε₁, …, ε_k is that of k independent randomised responses, whose δ(ε) is a sum over losses. With
few different ε the sum has few terms and is computed. Otherwise a closed form is used: ε_i-DP is ε_i tanh(ε_i/2)-zCDP,
which converts at its best order, and is never above the published closed forms.

Proof: docs/proofs/advanced-composition.md, Theorems 1 and 2.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting import names
from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.accountants.basic import Basic, Exact, exact_sum
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import RandomAllocationDpEvent
from dpassay.base import validate
from dpassay.base.arrays import Floats

Composition = tuple[tuple[Exact, int], ...]
"""Pure ε with counts, each ε once, the largest first."""
Alternatives = tuple[Composition, ...]
"""The possible compositions, depending on the part that holds the unit; the worst counts."""

_UNIT = 2.0**-53
_MAX_TERMS = 2**18
_MAX_ALTERNATIVES = 16


class Advanced(Accountant[Alternatives]):
    """Advanced composition of pure ε: the exact optimum if it has few enough terms, else a closed form.

    An event without a pure ε is refused. Disjoint parts are alternatives, of which the worst counts; if there are many,
    the largest ε of each rank is taken.

    Rigor: certified. ε are exact fractions or rounded up; sums over outcomes and closed forms include their float
    error.

    Source: Kairouz, Oh and Viswanath (2015); Murtagh and Vadhan (2016); Dwork, Rothblum and Vadhan, "Boosting and
        Differential Privacy" (2010), for the first theorem of this kind.
    """

    name = names.ADVANCED
    converts_groups = True

    def epsilon(self, delta: float) -> Bound:
        """The least of the sum, the closed form and, if it is computed, the optimum."""
        validate.open_probability(delta=delta)
        values = [_epsilon(composition, delta) for composition in self._compositions()]
        return self._bound(max(values), "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        """The least of the closed form and, if it is computed, the optimum; 0 if ε is at least the sum."""
        validate.non_negative(epsilon=epsilon)
        values = [_delta(composition, epsilon) for composition in self._compositions()]
        return self._bound(max(values), "delta", at=epsilon)

    def _compositions(self) -> Alternatives:
        """The alternatives at the unit: each mechanism is kε-DP for a group of k."""
        return tuple(tuple((epsilon * self.unit.size, n) for epsilon, n in each) for each in self.cost)

    def _zero(self) -> Alternatives:
        return ((),)

    def _add(self, costs: Sequence[Alternatives]) -> Alternatives:
        total: Alternatives = ((),)
        for cost in costs:
            total = _limited([_merged(a, b) for a, b in itertools.product(total, cost)])
        return total

    def _times(self, cost: Alternatives, count: int) -> Alternatives:
        return tuple(tuple((epsilon, n * count) for epsilon, n in each) for each in cost)

    def _of_known_steps(self, event: RandomAllocationDpEvent) -> Alternatives:
        if self.unit.is_group and event.num_selected > 1:  # its records may meet in some steps and not in others
            raise Unsupported("advanced has no bound for groups whose records take part in several random steps")
        return super()._of_known_steps(event)

    def _largest(self, costs: Sequence[Alternatives], how_many: int) -> Alternatives:
        times = Counter(costs)
        if how_many == 1:
            return _limited([each for cost in times for each in cost])
        pairs = [*itertools.combinations(times, 2), *((cost, cost) for cost, n in times.items() if n > 1)]
        return _limited([_merged(a, b) for pair in pairs for a, b in itertools.product(*pair)])


# --- bounds on one composition


def _epsilon(composition: Composition, delta: float) -> float:
    total = summed(composition)
    if math.isinf(total) or total == 0:
        return total
    best = min(total, formulas.epsilon_from_zcdp(concentrated(composition), delta))
    if terms_of(composition) > _MAX_TERMS:
        return best
    if _optimal_delta(composition, 0.0) <= delta:
        return 0.0
    low, high = 0.0, best
    while high - low > 1e-13 * high:  # `high` always meets δ, by the optimum or by the closed form
        middle = (low + high) / 2
        low, high = (low, middle) if _optimal_delta(composition, middle) <= delta else (middle, high)
    return high


def _delta(composition: Composition, epsilon: float) -> float:
    total = summed(composition)
    if math.isinf(total):
        return 1.0
    if epsilon >= total:
        return 0.0
    closed = formulas.delta_from_zcdp(concentrated(composition), epsilon)
    return min(closed, _optimal_delta(composition, epsilon)) if terms_of(composition) <= _MAX_TERMS else closed


def summed(composition: Composition) -> float:
    return formulas.up(exact_sum(epsilon * n for epsilon, n in composition))


def terms_of(composition: Composition) -> int:
    return math.prod(n + 1 for _, n in composition)


def concentrated(composition: Composition) -> float:
    """Σ ε tanh(ε/2), rounded up: the ρ of zCDP, and the mean of the worst loss."""
    parts = []
    for exact, n in composition:
        epsilon = formulas.up(exact)
        parts.append(n * epsilon * -math.expm1(-epsilon) / (1 + math.exp(-epsilon)))
    return math.fsum(parts) * (1 + 64 * _UNIT)


def _optimal_delta(composition: Composition, epsilon: float) -> float:
    """Σ P(L = ℓ)(1 − e^{ε − ℓ})₊, every term rounded up; a sum of N positive terms has relative error below Nu."""
    masses, losses, error = _outcomes(composition)
    excess = losses - epsilon + 4 * _UNIT * epsilon + error
    positive = excess > 0
    total = float(masses[positive] @ -np.expm1(-excess[positive]))
    return min(1.0, total * (1 + (masses.size + 32) * _UNIT))


@functools.lru_cache(maxsize=16)
def _outcomes(composition: Composition) -> tuple[Floats, Floats, float]:
    """Upper bounds on the probabilities of the losses, the losses, and the error of the losses.

    m minus signs have probability C(n, m) p^{n−m} (1 − p)^m and loss (n − 2m)ε. The logarithms add up to at most `size`
    in absolute value and have relative errors below 16 units in the last place, `gammaln` included. Losses of at most 0
    are left out.
    """
    from scipy.special import gammaln

    logs, losses, size, error = np.zeros(1), np.zeros(1), 1.0, 0.0
    for exact, n in composition:
        epsilon, minus = formulas.up(exact), np.arange(n + 1.0)
        rest = math.log1p(math.exp(-epsilon))
        choose = gammaln(n + 1.0) - gammaln(minus + 1) - gammaln(n - minus + 1)
        logs = np.add.outer(logs, choose - minus * epsilon - n * rest).ravel()
        losses = np.add.outer(losses, (n - 2 * minus) * epsilon).ravel()
        size += 3 * float(gammaln(n + 1.0)) + n * (epsilon + rest)
        error += 4 * _UNIT * n * epsilon
    kept = losses > -2 * error
    masses = np.exp(logs[kept] + 32 * _UNIT * size) * (1 + 16 * _UNIT) + 2.0**-1022  # covers underflow
    return masses, losses[kept], error * (1 + len(composition))


# --- compositions


def _merged(*parts: Composition) -> Composition:
    counts: Counter[Exact] = Counter()
    for part in parts:
        for epsilon, n in part:
            counts[epsilon] += n
    return tuple(sorted(((epsilon, n) for epsilon, n in counts.items() if epsilon and n), reverse=True))


def _limited(compositions: Sequence[Composition]) -> Alternatives:
    """The distinct alternatives; if there are too many, a single one that costs at least as much as each of them."""
    unique = tuple(dict.fromkeys(compositions))
    if len(unique) <= _MAX_ALTERNATIVES:
        return unique
    ranks = sorted({rank for each in unique for rank in itertools.accumulate(n for _, n in each)})
    steps = itertools.pairwise([0, *ranks])
    largest = [(max(_epsilon_of_rank(each, rank) for each in unique), rank - last) for last, rank in steps]
    return (_merged(tuple(largest)),)


def _epsilon_of_rank(composition: Composition, rank: int) -> Exact:
    """The ε of a rank; rank 1 is the largest, and beyond the last it is 0."""
    ends = itertools.accumulate(n for _, n in composition)
    return next((epsilon for (epsilon, _), end in zip(composition, ends, strict=True) if rank <= end), Fraction(0))


def _pure(accountant: Accountant[Any], event: DpEvent) -> Alternatives:
    """A single mechanism with the pure ε of `basic`."""
    try:
        epsilon = Basic(accountant.adjacency)._cost(event)
    except Unsupported as reason:
        raise Unsupported(f"advanced has no bound without a pure ε: {reason}") from None
    return (_merged(((epsilon, 1),)),)


Advanced.handlers = dict.fromkeys(Basic.handlers, _pure)
