"""The source of privacy noise: the operating system's entropy, never a seed.

Public choices (for example, which builtin records are used, or the order in which a file is read) use seeds and not
this module. Tests may replace `OsEntropy` by a `Recorded` source through `dpassay.testing`; the ledger of such a run
says so, and its output must not be released.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.mechanisms.primitives.rounded_normal import Words, rounded_normals

PIECE = 1024  # smallest number of coordinates for which a thread is worthwhile
_WORDS = 2**16  # likewise, of coordinates that are drawn from whole words


class Source(Protocol):
    """The source of the randomness that protects records."""

    @property
    def name(self) -> str:
        """``os`` for the operating system's entropy, ``recorded`` for anything that can be replayed."""

    def at(self, place: str) -> Source:
        """The source of the draws at a place of a run, which a name tells from all others.

        What is recorded there does not depend on draws elsewhere, nor on the process or the order in which places are
        drawn from.
        """

    def below(self, bound: int) -> int:
        """An integer drawn uniformly from 0, …, bound − 1, exactly."""

    def discrete_laplace(self, size: int, scale: float) -> Integers:
        """Independent noise with P(k) ∝ exp(−|k|/scale), shape (size,)."""

    def discrete_gaussian(self, size: int, scale: float) -> Integers:
        """Independent noise with P(k) ∝ exp(−k²/(2·scale²)), shape (size,)."""

    def add_gaussian(self, values: ArrayLike, scale: float) -> Floats:
        """Finite values of shape (size,) plus independent N(0, scale²) noise; scale ≥ 0."""

    def rounded_normals(self, size: int, bits: int) -> Integers:
        """⌊2ᵇZ⌋ for independent standard normal Z, shape (size,); b is at most 48."""

    def bernoulli(self, probabilities: ArrayLike) -> Bools:
        """Independent draws of shape (size,): true with the given probability, or up to 2⁻⁶⁴ less; 0 and 1 are exact.

        The error is downwards, so that a record is included with at most the probability that its event accounts for.
        """


class OsEntropy:
    """Uniform integers and draws from `secrets`; discrete Laplace and Gaussian noise from OpenDP."""

    name = "os"

    def at(self, place: str) -> OsEntropy:
        return self

    def below(self, bound: int) -> int:
        return secrets.randbelow(bound)

    def discrete_laplace(self, size: int, scale: float) -> Integers:
        """Exact samples by OpenDP, with the scale read as the rational number that the float is.

        Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Algorithm 2.
        """
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
        return np.array(measurement([0] * size), dtype=np.int64)

    def discrete_gaussian(self, size: int, scale: float) -> Integers:
        """As above, Algorithm 3 of the same source."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        return np.array(measurement([0] * size), dtype=np.int64)

    def add_gaussian(self, values: ArrayLike, scale: float) -> Floats:
        """OpenDP's `make_gaussian` on float64 with its default k, over as many threads as there are cores.

        OpenDP proves that values are read as the rationals that the floats are; that noise from the exact discrete
        Gaussian on the grid 2⁻¹⁰⁷⁴, which contains every float64, is added in rational arithmetic; and that only the
        sum is rounded, to the nearest float64, which is post-processing. Rounding N(0, scale²) to the same grid of
        width h differs from that discrete Gaussian by at most (h/scale)² in total variation per coordinate, which is
        below 10⁻⁶⁰⁰ for 10⁹ coordinates and a scale of at least 10⁻⁹; so up to that, the result has the distribution of
        rounded Gaussian noise.

        Raises:
            ValueError: if a value is not finite or the scale is negative.

        Source: OpenDP's proofs of `make_gaussian`, `get_min_k` and `Sample for ZExpFamily2`; Canonne, Kamath and
        Steinke as above.
        """
        exact = _finite(values, scale)
        if scale == 0 or not exact.size:
            return exact.copy()
        count = max(1, min(cores(), exact.size // PIECE))
        with ThreadPoolExecutor(count) as threads:  # OpenDP's calls release the GIL
            pieces = list(threads.map(lambda piece: _with_gaussian(piece, scale), np.array_split(exact, count)))
        return np.concatenate(pieces)

    def rounded_normals(self, size: int, bits: int) -> Integers:
        """Within 2⁻¹⁰⁰ of the exact law per draw (`rounded_normal`), over as many threads as there are cores."""
        count = max(1, min(cores(), size // _WORDS))
        sizes = [len(piece) for piece in np.array_split(np.empty(size, dtype=np.bool_), count)]
        with ThreadPoolExecutor(count) as threads:
            pieces = list(threads.map(lambda item: rounded_normals(_entropy, item, bits), sizes))
        return np.concatenate(pieces)

    def bernoulli(self, probabilities: ArrayLike) -> Bools:
        """Uses 64 random bits for each draw."""
        chances = _chances(probabilities)
        return taken(np.frombuffer(secrets.token_bytes(8 * chances.size), dtype="<u8"), chances)


class Recorded:
    """A source that is determined by a seed: for tests, since its noise does not protect anybody."""

    name = "recorded"

    def __init__(self, seed: int) -> None:
        self._from, self._random = seed, random.Random(seed)

    def at(self, place: str) -> Source:
        digest = hashlib.sha256(f"{self._from} {place}".encode()).digest()
        return Recorded(int.from_bytes(digest, "big"))

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def discrete_laplace(self, size: int, scale: float) -> Integers:
        """The difference of two geometric variables, in floating-point arithmetic."""
        generator = np.random.default_rng(self._random.getrandbits(64))
        p = -np.expm1(-1 / scale)
        return np.asarray(generator.geometric(p, size) - generator.geometric(p, size), dtype=np.int64)

    def discrete_gaussian(self, size: int, scale: float) -> Integers:
        """A rounded normal variable, in floating-point arithmetic."""
        generator = np.random.default_rng(self._random.getrandbits(64))
        return np.asarray(np.rint(generator.normal(scale=scale, size=size)), dtype=np.int64)

    def add_gaussian(self, values: ArrayLike, scale: float) -> Floats:
        """Values plus normal variables, in floating-point arithmetic."""
        exact = _finite(values, scale)
        generator = np.random.default_rng(self._random.getrandbits(64))
        return np.asarray(exact + generator.normal(scale=scale, size=exact.size), dtype=np.float64)

    def rounded_normals(self, size: int, bits: int) -> Integers:
        """Rounded normal variables, in floating-point arithmetic."""
        generator = np.random.default_rng(self._random.getrandbits(64))
        return np.asarray(np.floor(np.ldexp(generator.normal(size=size), bits)), dtype=np.int64)

    def bernoulli(self, probabilities: ArrayLike) -> Bools:
        """As from entropy, with bits from the seeded generator."""
        chances = _chances(probabilities)
        generator = np.random.default_rng(self._random.getrandbits(64))
        return taken(generator.integers(0, 2**64, size=chances.size, dtype=np.uint64), chances)


def _entropy(size: int) -> Words:
    """Uniform words of 64 bits from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64)


def _finite(values: ArrayLike, scale: float) -> Floats:
    validate.non_negative(scale=scale)
    exact = np.asarray(values, dtype=np.float64)
    if exact.ndim != 1 or not np.isfinite(exact).all():
        raise ValueError("values must be a 1-D list of finite numbers to add noise to")
    return exact


def _with_gaussian(values: Floats, scale: float) -> Floats:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False))
    measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    return np.array(measurement(values.tolist()), dtype=np.float64)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chances(probabilities: ArrayLike) -> Floats:
    chances = np.asarray(probabilities, dtype=np.float64)
    if chances.ndim != 1 or not ((chances >= 0) & (chances <= 1)).all():
        raise ValueError("probabilities must be a 1-D list of numbers from 0 to 1")
    return chances


def taken(bits: NDArray[np.uint64], chances: Floats) -> Bools:
    """Whether each 64-bit number is below ⌊2⁶⁴·chance⌋, which has probability ⌊2⁶⁴·chance⌋/2⁶⁴; scaling is exact."""
    always = chances == 1
    limits = np.floor(np.ldexp(np.where(always, 0.0, chances), 64)).astype(np.uint64)
    return np.asarray(always | (bits < limits), dtype=np.bool_)


OS_ENTROPY = OsEntropy()
