"""The L2 sensitivity of strategy matrices under participation schemas, certified from above and from below.

With W = |CᵀC|, the squared sensitivity is at most the largest sum of W over the pairs of steps of an allowed set, for
contributions of any dimension. It is attained where signs of the contributions make all of these products positive. So
the value is the largest such sum or a bound on it, the lower end is that of the best contributions that were found, and
where both agree the sensitivity is exact.

Proof: docs/proofs/matrices.md, Theorems 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.matrices.participation import Cyclic, Participation, Separated
from dpassay.accounting.matrices.strategies import Toeplitz, matrix_of
from dpassay.base.arrays import Floats, Integers

EXACT = 1e-9
"""The relative distance of both ends up to which a sensitivity counts as exact."""

_UNIT: float = 2.0**-53
_MAX_ALL = 10**6  # of weights in all sets of steps
_MAX_WORK = 4 * 10**9  # of the bound by rows, in numbers: some ten seconds
_MAX_DENSE_TOEPLITZ = 2048
_MAX_COLUMNS = 2 * 10**7

_ONCE = "the largest norm of a column"
_ALL = "the largest of all sets of steps that are allowed"
_APART = "columns of steps that one record may take part in share no row"
_CYCLES = "the largest of the cycles"
_FIRST = "products of columns decrease with their lag and from step to step, so the first steps cost most"
_ROWS = "each step with the steps that cost most beside it"
_MAJORANT = "as if products of columns decreased with their lag and from step to step"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest distance that the contributions of one record move Cx, where each has norm at most 1.

    Attributes:
        value: an upper bound, rounding counted.
        lower: what some contributions attain, rounding counted.
        reason: how the value is known.
    """

    value: float
    lower: float
    reason: str

    @property
    def exact(self) -> bool:
        """Whether contributions attain the value, up to a relative `EXACT`."""
        return self.lower >= self.value * (1 - EXACT)


@dataclass(frozen=True, slots=True)
class _Squared:
    """An upper bound on the squared sensitivity, with the set of steps that it comes from."""

    value: float
    reason: str
    pattern: Integers


def sensitivity(strategy: ArrayLike | Toeplitz, participation: Participation) -> Sensitivity:
    """The L2 sensitivity of a strategy matrix.

    Args:
        strategy: C, an array of shape (rows, steps), or Toeplitz coefficients.
        participation: the steps in which one record may take part.

    Returns:
        The sensitivity to adding or removing a record's contributions; replacing them moves Cx up to twice as far.
    """
    if not isinstance(strategy, Toeplitz):
        return _of_dense(matrix_of(strategy), participation)
    result = _of_toeplitz(strategy, participation)
    if not result.exact and strategy.steps <= _MAX_DENSE_TOEPLITZ:
        dense = _of_dense(strategy.dense(), participation)
        value, reason = min((result.value, result.reason), (dense.value, dense.reason))
        result = Sensitivity(value, max(result.lower, dense.lower), reason)
    if not strategy.slack.any():
        return result
    error = _of_toeplitz(Toeplitz(strategy.slack, strategy.steps), participation).value  # sensitivities are norms
    return Sensitivity((result.value + error) * (1 + 4 * _UNIT), max(0.0, result.lower - error), result.reason)


# Dense matrices


def _of_dense(matrix: Floats, participation: Participation) -> Sensitivity:
    exponent = math.frexp(float(np.abs(matrix).max()))[1]
    matrix = np.ldexp(matrix, -exponent)  # exact but for what underflows
    weights = _products(matrix)
    best = min(_dense_bounds(weights, participation), key=lambda bound: bound.value)
    lower = max(_attained(matrix[:, pattern]) for pattern in _candidates(best.pattern, matrix.shape[1], participation))
    result = Sensitivity(_root(best.value), lower, best.reason)
    return _scaled(result if result.exact else _as_upper(result), exponent)


def _scaled(result: Sensitivity, exponent: int) -> Sensitivity:
    value, lower = math.ldexp(result.value, exponent), math.ldexp(result.lower, exponent)
    if 0 < value < 1e-300:  # the scaling may round among subnormals
        value, lower = math.nextafter(value, math.inf), math.nextafter(lower, 0.0)
    return Sensitivity(value, lower, result.reason)


def _as_upper(result: Sensitivity) -> Sensitivity:
    why = "" if result.reason in (_ROWS, _MAJORANT) else ", as products of columns have opposite signs"
    return Sensitivity(result.value, result.lower, f"{result.reason}; an upper bound{why}")


def _root(squared: float) -> float:
    return math.nextafter(math.sqrt(squared), math.inf) if squared else 0.0


def _products(matrix: Floats) -> Floats:
    """Upper bounds on |CᵀC|, shape (steps, steps); 0 where no row is shared."""
    size = np.abs(matrix)
    most = size.T @ size
    error = (2 * matrix.shape[0] + 8) * _UNIT
    tiny = np.where(most > 0, 2.0**-1000, 0.0)  # covers underflow
    return np.asarray((np.abs(matrix.T @ matrix) + error * most) * (1 + 4 * _UNIT) + tiny)


def _total(weights: Floats) -> float:
    """An upper bound on the sum of all entries."""
    return math.fsum(weights.sum(axis=-1)) * (1 + float(weights.shape[-1] + 4) * _UNIT)


def _dense_bounds(weights: Floats, participation: Participation) -> Iterable[_Squared]:
    steps = weights.shape[0]
    if isinstance(participation, Cyclic):
        cycles = [np.arange(first, steps, participation.period) for first in range(min(participation.period, steps))]
        yield max((_sum_over(weights, cycle, _CYCLES) for cycle in cycles), key=lambda bound: bound.value)
        return
    most = participation.most(steps)
    if most == 1:
        yield max(
            (_Squared(value, _ONCE, np.array([step])) for step, value in enumerate(np.diag(weights).tolist())),
            key=lambda bound: bound.value,
        )
        return
    if participation.are_few(steps, _MAX_ALL // most**2):
        yield _of_all_sets(weights, participation)
        return
    decreasing = _of_decreasing(weights, participation)
    yield decreasing
    if decreasing.reason == _FIRST:  # the largest sum over a set of steps
        return
    lags = np.abs(np.arange(steps)[:, None] - np.arange(steps))
    beside = np.where(lags >= participation.separation, weights, 0.0)
    schema, rows, reason = participation, np.diag(weights), _APART
    if beside.any():
        if most * steps**2 > _MAX_WORK:  # without separation there are more sets, and the largest are found at once
            schema, beside = Separated(most), np.where(lags >= 1, weights, 0.0)
        others, _ = Separated(most - 1, schema.separation).heaviest(beside)
        rows, reason = rows + others, _ROWS
    value, pattern = schema.heaviest(rows[None, :])
    known = pattern if schema is participation else pattern[:0]
    yield _Squared(float(value[0]) * (1 + 4 * (most + 4) * _UNIT), reason, known)


def _sum_over(weights: Floats, pattern: Integers, reason: str) -> _Squared:
    return _Squared(_total(weights[np.ix_(pattern, pattern)]), reason, pattern)


def _of_all_sets(weights: Floats, participation: Separated) -> _Squared:
    best = _Squared(0.0, _ALL, np.array([0]))
    for patterns in participation.patterns(weights.shape[0]):
        sums = weights[patterns[:, :, None], patterns[:, None, :]].sum(axis=(1, 2))
        index = int(sums.argmax())
        value = float(sums[index]) * (1 + (patterns.shape[1] ** 2 + 4) * _UNIT)
        if value > best.value:
            best = _Squared(value, _ALL, patterns[index])
    return best


def _of_decreasing(weights: Floats, participation: Separated) -> _Squared:
    """The sum over the first steps, of the least weights above these that decrease with the lag and along diagonals."""
    steps = weights.shape[0]
    first = np.arange(participation.most(steps)) * participation.separation
    above = np.triu(weights)
    for row in range(steps - 1, -1, -1):
        if row + 1 < steps:
            above[row, row:-1] = np.maximum(above[row, row:-1], above[row + 1, row + 1 :])
        above[row, row:] = np.maximum.accumulate(above[row, row:][::-1])[::-1]
    full = np.maximum(above, above.T)
    value = _total(full[np.ix_(first, first)])
    plain = _total(weights[np.ix_(first, first)])
    return _Squared(value, _FIRST if value <= plain * (1 + EXACT) else _MAJORANT, first)


def _candidates(pattern: Integers, steps: int, participation: Participation) -> list[Integers]:
    """Sets of steps whose contributions are tried: the one of the bound, and steps as close together as is allowed."""
    if isinstance(participation, Cyclic):
        return [pattern]
    first = np.arange(participation.most(steps)) * participation.separation
    shifts = {0, (steps - 1 - int(first[-1])) // 2, steps - 1 - int(first[-1])}
    return [*([pattern] if pattern.size else []), *(first + shift for shift in sorted(shifts))]


def _attained(columns: Floats) -> float:
    """A lower bound on the largest norm of a sum of these columns with signs, shape (rows, participations)."""
    gram = columns.T @ columns
    count = columns.shape[1]
    signs, seen = np.zeros(count), np.zeros(count, dtype=bool)
    strength = np.abs(gram)
    reached = np.full(count, -1.0)
    partner = np.zeros(count, dtype=np.int64)
    for _ in range(count):  # along a largest spanning tree, so that signs that fit all products are found
        step = int(np.where(seen, -2.0, reached).argmax())
        link = gram[partner[step], step] if reached[step] > 0 else 1.0
        signs[step] = (signs[partner[step]] or 1.0) * (1.0 if link >= 0 else -1.0) if reached[step] > 0 else 1.0
        seen[step] = True
        closer = strength[step] > reached
        reached, partner = np.where(closer, strength[step], reached), np.where(closer, step, partner)
    return max(_norm_below(columns, signs), _norm_below(columns, np.ones(count)))


def _norm_below(columns: Floats, signs: Floats) -> float:
    error = float(columns.shape[1] + 2) * _UNIT * float(np.linalg.norm(np.abs(columns).sum(axis=1)))
    norm = math.sqrt(math.fsum((columns @ signs) ** 2))
    return max(0.0, (norm * (1 - 8 * _UNIT) - error * (1 + 1e-6)) - 2.0**-500)


# Toeplitz matrices


def _of_toeplitz(strategy: Toeplitz, participation: Participation) -> Sensitivity:
    """The first steps cost most if the coefficients decrease; if not, the least decreasing ones above them bound it."""
    steps, bands = strategy.steps, strategy.bands
    gap = participation.period if isinstance(participation, Cyclic) else participation.separation
    cyclic = isinstance(participation, Cyclic)
    most = -(-steps // gap) if isinstance(participation, Cyclic) else participation.most(steps)
    largest = float(np.abs(strategy.coefficients).max())
    if not largest:
        return Sensitivity(0.0, 0.0, _ONCE)
    exponent = math.frexp(largest)[1]
    coefficients = np.ldexp(strategy.coefficients, -exponent)
    size = np.abs(coefficients)
    first = np.arange(most) * gap
    lower = max(_shifted_norm(coefficients, steps, first, signs, below=True) for signs in _signs(most))
    if bands <= gap or most == 1:
        squares = np.concatenate([[0.0], np.cumsum(size**2)])
        reached = math.fsum(squares[np.minimum(bands, steps - first)])
        value, reason = _root(reached * (1 + (bands + 8) * _UNIT) + 2.0**-1000), _ONCE if most == 1 else _APART
    else:
        above = size if cyclic else np.maximum.accumulate(size[::-1])[::-1]
        value = _shifted_norm(above, steps, first, np.ones(most), below=False)
        reason = _CYCLES if cyclic else _FIRST if (above <= size * (1 + EXACT)).all() else _MAJORANT
        if cyclic and lower < value * (1 - EXACT) and most * steps <= _MAX_COLUMNS:
            columns = _columns(coefficients, steps, first)
            value = min(value, _root(_total(_products(columns))))
            lower = max(lower, _attained(columns))
    result = Sensitivity(value, min(lower, value), reason)
    return _scaled(result if result.exact else _as_upper(result), exponent)


def _signs(count: int) -> list[Floats]:
    return [np.ones(count), np.where(np.arange(count) % 2, -1.0, 1.0)]


def _columns(coefficients: Floats, steps: int, first: Integers) -> Floats:
    columns = np.zeros((steps, first.size))
    for index, step in enumerate(first.tolist()):
        part = coefficients[: steps - step]
        columns[step : step + part.size, index] = part
    return columns


def _shifted_norm(coefficients: Floats, steps: int, first: Integers, signs: Floats, *, below: bool) -> float:
    """The norm of the sum of columns that begin at these steps, with signs; rounded down, or up."""
    total, size = np.zeros(steps), np.zeros(steps)
    for step, sign in zip(first.tolist(), signs.tolist(), strict=True):
        part = coefficients[: steps - step]
        total[step : step + part.size] += sign * part
        size[step : step + part.size] += np.abs(part)
    norm, all_ = (math.sqrt(math.fsum(values**2)) for values in (total, size))
    error = (first.size + 8) * _UNIT * 1.01 * all_ + 2.0**-500
    return max(0.0, norm - error) if below else norm + error
