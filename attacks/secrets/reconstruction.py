"""Secret reconstruction: the Bayes-optimal guess of a secret's value from noisy releases in which it takes part.

A secret has one of K values, v with public probability π_v. In each of T rounds it occurs k times, with k from a public
distribution w, and each occurrence of value v adds a public vector u_v to the release: a count in the cluster of that
value, an offset to its centre, or both. Noise of standard deviation σ is added to every coordinate. Everything else in
the release is known and subtracted. With y_t the release of round t,

    log P[v | y] = log π_v + Σ_t log Σ_k w_k exp((k·⟨y_t, u_v⟩ − k²·‖u_v‖²/2)/σ²) + const,

because ‖y_t‖² is common to all values. The same holds for discrete Gaussian noise if the u_v are integer vectors: its
normalisation does not depend on its centre. Guessing the largest posterior is optimal.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithms 1 and 2, for what
    is released; Hayes, Mahloujifar and Balle, "Bounding Training Data Reconstruction in DP-SGD" (2023), for the game.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers

Step = Callable[[int, int], None]

_CELLS = 1 << 22  # numbers in memory at once
_RARE = 1e-9  # less likely counts are ignored, which costs the attacker a negligible part of its success
_GRID = 1 << 15  # grid points of the distribution of a log-likelihood ratio


class ReleaseFunction(Protocol):
    """The attacked mechanism: maps the values of n secrets to n independent runs."""

    def __call__(self, values: Integers, rng: np.random.Generator) -> Floats:
        """The releases minus everything that is known, shape (n, T, d), for values of shape (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class SecretModel:
    """The attacker's knowledge of the release.

    Attributes:
        prior: shape (K,), the probability of each value; sums to 1.
        weights: shape (m,), the probability of 0, 1, … occurrences in a round.
        directions: shape (K, d), what an occurrence of each value adds; None for K orthogonal vectors of length 1,
            coordinate v for value v.
        sigma: standard deviation of the noise, above 0.
        rounds: T.
    """

    prior: Floats
    weights: Floats
    directions: Floats | None
    sigma: float
    rounds: int = 1

    def __post_init__(self) -> None:
        validate.positive(sigma=self.sigma)
        validate.integer(minimum=1, rounds=self.rounds)
        for name in ("prior", "weights"):
            law = np.asarray(getattr(self, name), dtype=np.float64)
            if law.ndim != 1 or not law.size or not (law >= 0).all() or abs(float(law.sum()) - 1) > 1e-9:
                raise ValueError(f"{name} must be a 1-D array of probabilities that sum to 1")
        if self.directions is not None and (
            self.directions.ndim != 2
            or len(self.directions) != len(self.prior)
            or not np.isfinite(self.directions).all()
        ):
            raise ValueError(f"directions must have one finite vector for each of {len(self.prior)} values")

    @classmethod
    def uniform(
        cls,
        values: int,
        sigma: float,
        *,
        weights: ArrayLike = (0.0, 1.0),
        directions: ArrayLike | None = None,
        rounds: int = 1,
    ) -> SecretModel:
        """Equally likely values that occur once in each round, unless `weights` says otherwise."""
        validate.integer(minimum=2, values=values)
        given = None if directions is None else np.asarray(directions, dtype=np.float64)
        return cls(np.full(values, 1 / values), np.asarray(weights, dtype=np.float64), given, sigma, rounds)

    @property
    def p(self) -> float:
        """The largest prior probability of a value."""
        return float(self.prior.max())

    @property
    def width(self) -> int:
        """d, the number of coordinates of a release."""
        return len(self.prior) if self.directions is None else self.directions.shape[1]

    def log_posterior(self, released: Floats) -> Floats:
        """The log-posterior of each value, up to a constant that is common to all values.

        Args:
            released: shape (n, T, d).

        Returns:
            Shape (n, K).

        Raises:
            ValueError: if the shape is another one.
        """
        if released.ndim != 3 or released.shape[1:] != (self.rounds, self.width):
            raise ValueError(f"released must have shape (n, {self.rounds}, {self.width}), not {released.shape}")
        with np.errstate(divide="ignore"):  # an impossible value has log 0
            log_prior, log_weights = np.log(self.prior), np.log(self.weights)
        total = np.repeat(log_prior[None, :], len(released), axis=0)
        possible = np.flatnonzero(self.weights > _RARE)
        lengths = np.ones(len(self.prior)) if self.directions is None else (self.directions**2).sum(axis=1)
        for round_ in range(self.rounds):
            y = released[:, round_]
            inner = y if self.directions is None else y @ self.directions.T
            terms = (log_weights[k] + (k * inner - k * k * lengths / 2) / self.sigma**2 for k in possible.tolist())
            total += _log_sum(terms) if len(possible) > 1 else next(terms)
        return total

    def success(self) -> float:
        """The probability that the best guess is right; an estimate on a grid, to a relative error of about 1e-4.

        The values must be equally likely and orthogonal of length 1. Then the ratio of value v to "no value" in a round
        is an increasing function ℓ of coordinate v, Σ_t ℓ has one distribution for the true value and another for the
        V − 1 others, and the largest of V independent sums wins. Ties share the win.

        Raises:
            ValueError: for other priors or directions.
        """
        values = len(self.prior)
        if self.directions is not None or not np.allclose(self.prior, 1 / values):
            raise ValueError("success() needs equally likely values with orthogonal directions")
        counts = np.flatnonzero(self.weights > _RARE)
        y = np.linspace(-40 * self.sigma, counts[-1] + 40 * self.sigma, 8 * _GRID)
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        ratio = _log_sum(log_weights[k] + (k * y - k * k / 2) / self.sigma**2 for k in counts.tolist())
        if ratio[-1] == ratio[0]:
            return 1 / values
        edges = np.linspace(ratio[0], ratio[-1], _GRID // self.rounds + 1)
        at = np.interp(edges, ratio, y)
        at[0], at[-1] = -np.inf, np.inf
        other = np.diff(ndtr(at / self.sigma))
        true = sum(self.weights[k] * np.diff(ndtr((at - k) / self.sigma)) for k in counts.tolist())
        size = 1 << int(self.rounds * len(other)).bit_length()
        others, trues = (
            np.maximum(np.fft.irfft(np.fft.rfft(law, size) ** self.rounds, size), 0.0) for law in (other, true)
        )
        below = np.concatenate([[0.0], np.minimum(np.cumsum(others), 1.0)])
        level = values * below[1:] ** (values - 1)  # the slope of below**values, where a step is too small to divide by
        shares = np.divide(np.diff(below**values), others, out=level, where=others > 1e-13)
        return float(min(1.0, (trues * shares).sum() / values))


def _log_sum(terms: Iterator[Floats]) -> Floats:
    out = next(terms)
    for term in terms:
        out = np.logaddexp(out, term)
    return out


def gaussian_release(model: SecretModel, sigma: float | None = None) -> ReleaseFunction:
    """The release that the model describes, with Gaussian noise of its σ or another, to test the attack on its model.

    It draws from the game's generator and does not protect anybody.
    """
    noise = validate.positive(sigma=model.sigma if sigma is None else sigma)

    def release(values: Integers, rng: np.random.Generator) -> Floats:
        shape = (len(values), model.rounds)
        counts = rng.choice(len(model.weights), size=shape, p=model.weights).astype(np.float64)
        out = rng.normal(scale=noise, size=(*shape, model.width))
        if model.directions is None:
            out[np.arange(len(values)), :, values] += counts
        else:
            out += counts[:, :, None] * model.directions[values][:, None, :]
        return out

    return release


@dataclass(frozen=True, slots=True)
class SecretGuesses:
    """The result of guessing games.

    Attributes:
        games: number of independent games, each with its own value and run.
        right: number of right guesses.
        p: the largest prior probability of a value.
        values: K.
        rounds: T.
        setting: what was attacked, for a reader; "" for the model itself.
        assumed: additional assumptions of a bound from these games.
        best: the probability that the best guess is right, an estimate; None if unknown.
    """

    games: int
    right: int
    p: float
    values: int
    rounds: int
    setting: str = ""
    assumed: tuple[str, ...] = ()
    best: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.games:
            raise ValueError(f"right must be between 0 and the number of games, {self.games}, not {self.right}")


def guess_secrets(
    release: ReleaseFunction, model: SecretModel, games: int, *, seed: int, progress: Step | None = None
) -> SecretGuesses:
    """Plays games: draws a value from the prior, releases, and guesses the value with the largest posterior.

    Args:
        release: the attacked mechanism. If the model does not describe it, guesses are worse than the best.
        model: the attacker's knowledge.
        games: number of games.
        seed: of values, and of releases that draw from the generator they receive.
        progress: called with the number of games done and `games`.

    Returns:
        The number of right guesses. Ties go to the first value.
    """
    validate.integer(games=games)
    rng = np.random.default_rng(validate.integer(seed=seed))
    chunk = max(1, _CELLS // (model.rounds * max(model.width, len(model.prior))))
    right = 0
    for begin in range(0, games, chunk):
        count = min(chunk, games - begin)
        values = rng.choice(len(model.prior), size=count, p=model.prior)
        guesses = model.log_posterior(release(values, rng)).argmax(axis=1)
        right += int((guesses == values).sum())
        if progress is not None:
            progress(begin + count, games)
    return SecretGuesses(games, right, model.p, len(model.prior), model.rounds)
