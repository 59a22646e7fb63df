"""Strategy matrices: dense arrays, Toeplitz coefficients and buffered linear Toeplitz parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base import validate
from dpassay.base.arrays import Floats

MAX_STEPS = 10**6
"""The most steps of a Toeplitz strategy."""
MAX_ENTRIES = 2**24
MAX_COLUMNS = 2**13
"""The most entries of a dense strategy."""
_MAX_FILE = 2**29
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Toeplitz:
    """The lower triangular n×n matrix with C_{ts} = c_{t−s} for 0 ≤ t − s < p, and 0 elsewhere.

    Attributes:
        coefficients: c, shape (p,), finite, with 1 ≤ p ≤ n; as many as there are bands.
        steps: n.
        slack: by how much each coefficient may differ from the true one, shape (p,).
    """

    coefficients: Floats
    steps: int
    slack: Floats = field(default_factory=lambda: np.zeros(0))

    def __init__(self, coefficients: ArrayLike, steps: int, slack: ArrayLike | None = None) -> None:
        validate.integer(minimum=1, maximum=MAX_STEPS, steps=steps)
        values = _numbers(coefficients, "coefficients")
        if values.ndim != 1 or not values.size:
            raise ValueError("coefficients must be a list of at least one number")
        errors = np.zeros(values.size) if slack is None else np.abs(_numbers(slack, "slack"))
        if errors.shape != values.shape:
            raise ValueError("slack must have as many numbers as coefficients")
        used = np.flatnonzero((np.abs(values) + errors)[:steps])
        bands = int(used[-1]) + 1 if used.size else 1
        object.__setattr__(self, "coefficients", values[:bands])
        object.__setattr__(self, "slack", errors[:bands])
        object.__setattr__(self, "steps", steps)

    @property
    def bands(self) -> int:
        """The number of bands, the diagonal included."""
        return int(self.coefficients.size)

    def dense(self) -> Floats:
        """The matrix, shape (n, n)."""
        lags = np.arange(self.steps)[:, None] - np.arange(self.steps)
        padded = np.concatenate([self.coefficients, np.zeros(self.steps - self.bands)])
        return np.asarray(np.where(lags >= 0, padded[lags], 0.0))


def buffered_toeplitz(scales: Sequence[float], decays: Sequence[float], steps: int) -> Toeplitz:
    """The Toeplitz strategy of buffered linear Toeplitz (BLT) parameters: c₀ = 1 and c_r = Σ ω_i λ_i^{r−1}.

    Args:
        scales: ω, as many as `decays`.
        decays: λ, each in [0, 1].
        steps: n.

    Source: Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy" (2024);
    McMahan et al., "A Hassle-free Algorithm for Strong Differential Privacy in Federated Learning Systems" (2024).
    """
    validate.integer(minimum=1, maximum=MAX_STEPS, steps=steps)
    if len(scales) != len(decays) or not len(scales):
        raise ValueError("a buffered strategy needs as many scales as decays, at least one")
    for scale, decay in zip(scales, decays, strict=True):
        validate.finite(scales=scale)
        validate.probability(decays=decay)
    coefficients, slack = np.ones(steps), np.zeros(steps)
    repeated = np.tile(np.asarray(decays, np.float64), (max(steps - 2, 0), 1))
    powers = np.cumprod(np.vstack([np.ones(len(decays)), repeated]), axis=0)
    terms = powers * np.asarray(scales, np.float64)
    coefficients[1:] = terms.sum(axis=1)[: steps - 1]
    # r − 2 products, one more, and a sum of as many terms as there are scales; each underflows by 2^−1074 at most.
    rounding = (np.arange(steps - 1) + len(scales) + 2) * _UNIT * 1.01
    slack[1:] = np.abs(terms).sum(axis=1)[: steps - 1] * rounding + 2.0**-1060
    return Toeplitz(coefficients, steps, slack)


def read_matrix(path: Path | str) -> Floats:
    """A strategy matrix from a file: ``.npy``, never as a pickle, or ``.csv`` without a header, a line for each row.

    Returns:
        An array of shape (rows, steps).

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it holds no matrix of finite numbers, or one that is too large.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"{path}: a matrix is a .npy or a .csv file")
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError(f"{path}: is not a regular file")
    if size > _MAX_FILE:
        raise ValueError(f"{path}: is above {_MAX_FILE // 2**20} MiB")
    try:
        if path.suffix == ".npy":
            content = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with warnings.catch_warnings(action="ignore"):  # of an empty file
                content = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8")
    except (ValueError, EOFError, TypeError, OverflowError):
        what = (
            "NumPy array of numbers" if path.suffix == ".npy" else "table of numbers with commas and without a header"
        )
        raise ValueError(f"{path}: is no {what}") from None
    if not isinstance(content, np.ndarray):
        raise ValueError(f"{path}: holds several arrays; a matrix is one")
    if content.ndim != 2:
        raise ValueError(f"{path}: holds an array of {content.ndim} dimensions; a matrix has 2")
    if content.size > MAX_ENTRIES:
        raise ValueError(f"{path}: has {content.size} entries; at most {MAX_ENTRIES} are allowed")
    try:
        return matrix_of(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def matrix_of(values: ArrayLike) -> Floats:
    """A dense strategy as an array of finite float64; a `ValueError` if it is none."""
    matrix = _numbers(values, "a strategy")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"a strategy is a matrix with at least one row and one column, not of shape {matrix.shape}")
    if matrix.shape[1] > MAX_COLUMNS:
        raise ValueError(
            f"a strategy has at most {MAX_COLUMNS} columns, not {matrix.shape[1]}; Toeplitz ones may have more"
        )
    if matrix.size > MAX_ENTRIES:
        raise ValueError(
            f"a strategy has at most {MAX_ENTRIES} entries, not {matrix.size}; Toeplitz ones may have more"
        )
    return matrix


def _numbers(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers, not of type {array.dtype}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    if array.size and not (float(np.abs(array).max()) < math.ldexp(1.0, 400)):
        raise ValueError(f"{name} must be below 2^400")
    return array
