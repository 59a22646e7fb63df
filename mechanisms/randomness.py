"""The one source of privacy noise: the operating system's entropy. Never a seed.

Public choices (which builtin records, which order a file is read in) take seeds and do not come here. A test may put a
`Recorded` source in place of `OsEntropy` through `cupel.testing`; a run that used one says so in its ledger, and its
output may not be released.
"""

from __future__ import annotations

import random
import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Source(Protocol):
    """Where the randomness that protects records comes from."""

    @property
    def name(self) -> str:
        """``os`` for entropy that nobody knows, ``recorded`` for anything that can be played again."""

    def below(self, bound: int) -> int:
        """A whole number drawn uniformly from 0, …, bound − 1, exactly."""

    def discrete_laplace(self, size: int, scale: float) -> NDArray[np.int64]:
        """Independent noise with P(k) ∝ exp(−|k|/scale), shape (size,)."""

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Independent noise with P(k) ∝ exp(−k²/(2·scale²)), shape (size,)."""


class OsEntropy:
    """Uniform integers from `secrets`, discrete Laplace and Gaussian noise from OpenDP."""

    name = "os"

    def below(self, bound: int) -> int:
        return secrets.randbelow(bound)

    def discrete_laplace(self, size: int, scale: float) -> NDArray[np.int64]:
        """OpenDP samples exactly, with the scale taken as the rational number that the float is.

        Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Algorithm 2.
        """
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
        return np.array(measurement([0] * size), dtype=np.int64)

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """As above, Algorithm 3 of the same source."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        return np.array(measurement([0] * size), dtype=np.int64)


class Recorded:
    """A source that a seed plays again: for tests, because what it draws protects nobody."""

    name = "recorded"

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def discrete_laplace(self, size: int, scale: float) -> NDArray[np.int64]:
        """The difference of two geometric variables, in floating point."""
        generator = np.random.default_rng(self._random.getrandbits(64))
        p = -np.expm1(-1 / scale)
        return np.asarray(generator.geometric(p, size) - generator.geometric(p, size), dtype=np.int64)

    def discrete_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """A rounded normal variable, in floating point."""
        generator = np.random.default_rng(self._random.getrandbits(64))
        return np.asarray(np.rint(generator.normal(scale=scale, size=size)), dtype=np.int64)


OS_ENTROPY = OsEntropy()
