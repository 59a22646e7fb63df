"""Scores that distinguish outputs on two data sets, fitted on outputs of both.

Once fitted, a score is a fixed function; a larger value points to D′. Test it on runs it was not fitted on.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Bools, Floats

Outputs: TypeAlias = Sequence[Any] | NDArray[Any]
"""Outputs of independent runs, one each."""

_ENCODER = json.JSONEncoder(sort_keys=True)
_SMOOTHING = 0.5  # added to each count, so that an outcome seen on one side only has a finite score
_MAX_CORRELATED = 64  # largest dimension for which covariances are estimated; above it, only variances
_MIN_VARIANCE = 1e-12  # added to variances of standardised coordinates


@dataclass(frozen=True)
class OutputScore:
    """A function of n outputs, in the form that `plain` returns, to scores of shape (n,), larger for D′; its name is
    for reports."""

    name: str
    of: Callable[[Outputs], Floats]


def given_score(score: Callable[[Any], float]) -> OutputScore:
    """A user's score of one output, over outputs; it raises `ValueError` where a score is NaN."""

    def of(outputs: Outputs) -> Floats:
        scores = np.array([float(score(output)) for output in outputs], dtype=np.float64)
        if np.isnan(scores).any():
            raise ValueError("the score of an output is NaN; it must be a number, larger for D′")
        return scores

    return OutputScore("the given score", of)


def fitted_scores(on_d: Outputs, on_d_prime: Outputs) -> list[OutputScore]:
    """All scores that apply to the outputs, at least two of each data set in the form that `plain` returns, fitted on
    them:

    of outputs of which some repeat, the log-likelihood ratio of the outcome, from smoothed counts; of outputs with
    different structure (order of keys, lengths, types, NaN), the same ratio for the structure alone; of numbers, or
    arrays or mappings of one shape, a linear and a quadratic discriminant, the log-likelihood ratios of two normal
    distributions with equal and with different covariances. For finite single numbers the linear one is replaced by ±
    the number itself.

    Raises:
        ValueError: if there are too few outputs, or outputs such as texts that neither are numbers nor repeat.
    """
    if min(len(on_d), len(on_d_prime)) < 2:
        raise ValueError("fitting a score needs at least two outputs of each data set")
    scores = []
    keys = [[key(output) for output in side] for side in (on_d, on_d_prime)]
    if len({*keys[0], *keys[1]}) < len(on_d) + len(on_d_prime):
        scores.append(_by_counts(Counter(keys[0]), Counter(keys[1])))
    both, fits = _numbers([*on_d, *on_d_prime])
    if not fits.all() or not np.isfinite(both).all() or isinstance(on_d[0], dict):
        first, second = (Counter(key(_structure(output)) for output in side) for side in (on_d, on_d_prime))
        if len({*first, *second}) > 1:
            scores.append(
                _by_counts(first, second, of=_structure, name="log-likelihood ratio of the form (keys, lengths, NaN)")
            )
    if fits.all():
        scores += _by_numbers(both.shape[1:], *np.split(both.reshape(len(both), -1), [len(on_d)]))
    if not scores:
        raise ValueError(
            "no score can be fitted on outputs that are neither numbers nor arrays of one shape and never repeat; give "
            "a score: a function from an output to a number, larger for D′"
        )
    return scores


def plain(output: Any) -> Any:
    """An output as a JSON value: arrays, tuples and sets become lists, NumPy numbers become Python numbers.

    Raises:
        TypeError: if the output cannot be converted.
    """
    match output:
        case None | bool() | int() | float() | str():
            return output
        case np.floating():  # `tolist` of a long double returns a long double
            return float(output)
        case np.ndarray() | np.generic():
            return plain(output.tolist())
        case list() | tuple():
            return [plain(item) for item in output]
        case set() | frozenset():
            return sorted((plain(item) for item in output), key=key)
        case Mapping():
            return {str(key): plain(value) for key, value in output.items()}
    raise TypeError(
        f"an output of type {type(output).__name__} is neither a number, a text, an array nor a list of them; give a "
        "score, a function from an output to a number, or return one of these"
    )


def key(output: Any) -> str:
    """A canonical text of a `plain` output: equal for equal outputs."""
    return _ENCODER.encode(output)


def _numbers(outputs: Outputs, shape: tuple[int, ...] | None = None) -> tuple[Floats, Bools]:
    """The outputs that are numbers or arrays of `shape`, by default the first one's, and a mask of those outputs."""
    outputs = [[output[name] for name in sorted(output)] if isinstance(output, dict) else output for output in outputs]
    whole = _array(outputs)
    if whole is not None and shape in (None, whole.shape[1:]):
        return whole, np.ones(len(outputs), dtype=np.bool_)
    arrays = [_array(output) for output in outputs]
    if shape is None and arrays[0] is not None:
        shape = arrays[0].shape
    rows = [array for array in arrays if array is not None and array.shape == shape]
    fits = np.array([array is not None and array.shape == shape for array in arrays], dtype=np.bool_)
    return np.array(rows, dtype=np.float64).reshape(-1, *(shape or ())), fits


def _array(output: Any) -> Floats | None:
    """A number or a nested list of numbers as an array; None for anything else, or if it is empty or ragged."""
    leaf = output
    while isinstance(leaf, Sequence) and not isinstance(leaf, str) and len(leaf):
        leaf = leaf[0]
    if not isinstance(leaf, bool | int | float):  # check this first, to avoid building an array of texts
        return None
    try:
        array = np.array(output)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "bif" and array.size else None


def _structure(output: Any) -> Any:
    """The structure of an output, without its values."""
    match output:
        case dict():
            return [[name, _structure(value)] for name, value in output.items()]  # the order of keys is released too
        case list():
            forms = [_structure(item) for item in output]
            return [len(forms), forms[0]] if all(form == forms[0] for form in forms) and forms else forms
        case float() if not math.isfinite(output):
            return str(output)
        case None | str():
            return type(output).__name__
    return "number"


def _by_counts(
    on_d: Counter[str],
    on_d_prime: Counter[str],
    of: Callable[[Any], Any] = lambda output: output,
    name: str = "log-likelihood ratio of the counted outcomes",
) -> OutputScore:
    """The smoothed log-likelihood ratio of `of(output)`, from its counts on both sides."""
    kinds = len({*on_d, *on_d_prime}) + 1  # one for all unseen values
    totals = [counts.total() + _SMOOTHING * kinds for counts in (on_d_prime, on_d)]

    def ratios(outputs: Outputs) -> Floats:
        keys = [key(of(output)) for output in outputs]
        first, second = (np.array([counts[seen] for seen in keys]) + _SMOOTHING for counts in (on_d_prime, on_d))
        return np.asarray(np.log(first / totals[0]) - np.log(second / totals[1]))

    return OutputScore(name, ratios)


def _by_numbers(shape: tuple[int, ...], on_d: Floats, on_d_prime: Floats) -> list[OutputScore]:
    """The linear and the quadratic discriminant, fitted on arrays of shapes (n₀, d) and (n₁, d)."""
    both = np.concatenate([on_d, on_d_prime])
    tame = _Clipped(both)
    middle, spread = tame(both).mean(axis=0), tame(both).std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)

    def standard(x: Floats) -> Floats:
        return np.asarray((tame(x) - middle) / spread)

    samples = [standard(on_d), standard(on_d_prime)]
    means = [sample.mean(axis=0) for sample in samples]
    centred = [sample - mean for sample, mean in zip(samples, means, strict=True)]
    precisions = [_Precision(sample) for sample in centred]
    direction = _Precision(np.concatenate(centred)).times((means[1] - means[0])[None])[0]

    def linear(x: Floats) -> Floats:
        return np.asarray(standard(x) @ direction)

    def quadratic(x: Floats) -> Floats:
        z = standard(x)
        logs = [precision.log_density(z - mean) for precision, mean in zip(precisions, means, strict=True)]
        return np.asarray(logs[1] - logs[0])

    first = OutputScore("linear discriminant", _of_shape(shape, linear))
    if shape == () and np.isfinite(both).all():
        sign, name = (1.0, "the output") if direction[0] >= 0 else (-1.0, "minus the output")
        first = OutputScore(name, _of_shape(shape, lambda x: sign * x[:, 0]))
    return [first, OutputScore("quadratic discriminant", _of_shape(shape, quadratic))]


def _of_shape(shape: tuple[int, ...], function: Callable[[Floats], Floats]) -> Callable[[Outputs], Floats]:
    """Extends a function of arrays (n, d) to outputs; −inf, which points to D, for another shape or a score of NaN."""

    def of(outputs: Outputs) -> Floats:
        numbers, fits = _numbers(outputs, shape)
        scores = np.full(len(outputs), -np.inf)
        if fits.any():
            result = function(numbers.reshape(len(numbers), -1))
            scores[fits] = np.where(np.isnan(result), -np.inf, result)
        return scores

    return of


class _Clipped:
    """Clips to the observed finite range; coordinates where NaN or infinities occurred get an indicator coordinate."""

    def __init__(self, seen: Floats) -> None:
        finite = np.isfinite(seen)
        some = finite.any(axis=0)
        self._low = np.where(some, np.min(seen, axis=0, where=finite, initial=np.inf), 0.0)
        self._high = np.where(some, np.max(seen, axis=0, where=finite, initial=-np.inf), 0.0)
        self._odd = ~finite.all(axis=0)

    def __call__(self, values: Floats) -> Floats:
        moved = np.where(np.isnan(values), self._low, np.clip(values, self._low, self._high))
        kind = np.where(np.isnan(values), 2.0, np.where(np.isinf(values), np.sign(values), 0.0))
        return np.concatenate([np.where(np.isfinite(values), values, moved), kind[:, self._odd]], axis=1)


class _Precision:
    """The inverse of a covariance matrix, shrunk towards its diagonal so that it is never singular."""

    def __init__(self, centred: Floats) -> None:
        n, d = centred.shape
        variances = np.square(centred).sum(axis=0) / max(n - 1, 1) + _MIN_VARIANCE
        if d > _MAX_CORRELATED:
            self._inverse, self._log_determinant = 1 / variances, float(np.log(variances).sum())
            return
        share = d / (n + d)
        covariance = (1 - share) * (centred.T @ centred) / max(n - 1, 1) + np.diag(share * variances)
        covariance += _MIN_VARIANCE * np.eye(d)
        self._inverse, self._log_determinant = np.linalg.inv(covariance), float(np.linalg.slogdet(covariance)[1])

    def times(self, z: Floats) -> Floats:
        return np.asarray(z * self._inverse if self._inverse.ndim == 1 else z @ self._inverse)

    def log_density(self, z: Floats) -> Floats:
        """The log-density of a centred normal distribution, up to a constant."""
        return np.asarray(-0.5 * (np.einsum("nd,nd->n", self.times(z), z) + self._log_determinant))
