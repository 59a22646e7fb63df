"""Enclosures of r for noisy releases of counts, and the least σ for a given r."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.conversions import guess_bounds, r_of_gdp, upper_quantile
from dpassay.accounting.secret_protection.poisson_binomial_laws import (
    Occurrences,
    envelope,
    occurrences,
    repeated,
    trimmed,
    weight_error,
)
from dpassay.accounting.secret_protection.products import WIDTH, product
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats

_UNIT = 2.0**-53
_TOLERANCE = 1e-6
NEARLY_ONE = 1 - 1e-6  # an r that needs no tighter enclosure
_CELLS = 1 << 20  # cells of the table of noise times counts that are held at once


# One secret


def blowup(weights: ArrayLike, sigma: float, p: float, rounds: int = 1) -> Interval:
    """r of `rounds` noisy releases of a count in which the secret occurs k times with probability w_k each time.

    One round is exact, Σ w_k Φ̄(Φ̄⁻¹(p) − k/σ); more rounds are a product of dominating pairs. The enclosure includes
    the error of the weights, of scipy's log_ndtr and of every rounding.

    Proof: docs/proofs/secret-protection.md, Theorem 2.

    Args:
        weights: w_k for k = 0, 1, …, as from `poisson_binomial`: accurate to a relative `weight_error`.
        sigma: standard deviation of the noise for occurrences that contribute 1; 0 releases the count.
        p: the largest probability of a guess before, in [0, 1].
        rounds: releases with fresh noise and fresh occurrences, at least 1.

    Raises:
        ValueError: if an argument is invalid.
    """
    validate.non_negative(sigma=sigma)
    validate.probability(p=p)
    validate.integer(minimum=1, rounds=rounds)
    if rounds == 1:
        lower, upper = blowups(weights, sigma, p)
        return Interval(float(lower), float(upper))
    return r_of_rounds(_checked_law(weights, p, rounds), sigma, p, rounds)


def blowups(weights: ArrayLike, sigmas: ArrayLike, ps: ArrayLike) -> tuple[Floats, Floats]:
    """`blowup` of one release, vectorised over noises and probabilities, of shapes that broadcast.

    Returns:
        Lower and upper bounds on r, of the broadcast shape.
    """
    noises, guesses = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (sigmas, ps)))
    if not (np.isfinite(noises) & (noises >= 0)).all():
        raise ValueError("sigmas must be finite numbers of at least 0")
    if not ((guesses >= 0) & (guesses <= 1)).all():
        raise ValueError("ps must be between 0 and 1")
    law = _checked_law(weights, float(guesses[guesses > 0].min(initial=1.0)), 1)
    noise, p = noises.ravel(), guesses.ravel()
    lower, upper = np.empty(p.shape), np.empty(p.shape)
    chunk = max(1, _CELLS // law.weights.size)
    for start in range(0, p.size, chunk):
        here = slice(start, start + chunk)
        low, high = guess_bounds(_count_shifts(law.counts, noise[here]), p[here])
        lower[here], upper[here] = _mixture_bounds(law.weights, law.error, law.lost_mass, low, high, p[here])
    return lower.reshape(noises.shape), upper.reshape(noises.shape)


def noise_for(weights: ArrayLike, p: float, r: float, rounds: int = 1) -> float:
    """The least σ, to a relative 1e-6, whose certified r is at most `r`; 0 if the counts without noise meet it.

    Args:
        weights, p, rounds: as for `blowup`, with p in (0, 1).
        r: the largest probability of a guess after, in [p, 1].

    Raises:
        ValueError: if r is below p, or so close to it that no noise is certified to reach it.
    """
    SecretProtection(p, r)
    validate.integer(minimum=1, rounds=rounds)
    law = _checked_law(weights, p, rounds)
    sigma, step = least_noise([law], [p], [r], rounds), _TOLERANCE / 4
    while rounds > 1 and sigma and r_of_rounds(law, sigma, p, rounds).upper > r:  # the search used other enclosures
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


def single_gaussian_estimate(weights: ArrayLike, sigma: float, p: float) -> Bound:
    """Φ̄(Φ̄⁻¹(p) − E[k]/σ): the count replaced by its mean. An estimate that is too low, by a factor of up to 13.

    The paper replaces the mixture by one Gaussian "for numerical stability"; `blowup` is exact and as fast.

    Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Section 4.1.
    """
    validate.positive(sigma=sigma)
    validate.open_probability(p=p)
    law = _checked_law(weights, p, 1)
    return Bound(
        direction=Direction.UPPER,
        value=r_of_gdp(float(law.weights @ law.counts) / sigma, p),
        method="secret_protection",
        rigor=Rigor.ESTIMATE,
        adjacency=Adjacency.SECRET,
        quantity="r",
        at=p,
        unit=Unit("secret"),
        assumptions=("One Gaussian at the mean count stands for the mixture, which understates r.",),
    )


# Many secrets


def noise_for_secrets(
    occurrence_probabilities: Sequence[ArrayLike],
    p: float | Sequence[float],
    r: float | Sequence[float],
    rounds: int = 1,
) -> float:
    """The largest σ that any of several secrets needs, each with its own occurrences, p and r.

    Args:
        occurrence_probabilities: for each secret, the probability that each of its records is drawn, shape (m,).
        p, r: one for all, or one per secret, as for `noise_for`.
        rounds: releases with fresh noise and fresh occurrences.
    """
    validate.integer(minimum=1, rounds=rounds)
    count = len(occurrence_probabilities)
    ps, rs = _each(count, "p", p), _each(count, "r", r)
    tail = 1e-17 * min(ps, default=1.0) / rounds
    needed: dict[tuple[bytes, float, float], Occurrences] = {}
    for secret, its_p, its_r in zip(occurrence_probabilities, ps, rs, strict=True):
        SecretProtection(its_p, its_r)
        trials = np.sort(np.asarray(secret, dtype=np.float64), axis=None)
        key = (hashlib.blake2b(trials[trials != 0].tobytes()).digest(), its_p, its_r)
        if key not in needed:
            needed[key] = occurrences(secret, tail)
    return least_noise(list(needed.values()), [key[1] for key in needed], [key[2] for key in needed], rounds)


def _each(count: int, name: str, values: float | Sequence[float]) -> list[float]:
    if isinstance(values, int | float):
        return [float(values)] * count
    if len(values) != count:
        raise ValueError(f"{name} must be one number, or one per secret, not {len(values)} for {count} secrets")
    return [float(value) for value in values]


def least_noise(laws: Sequence[Occurrences], ps: Sequence[float], rs: Sequence[float], rounds: int) -> float:
    """The least σ at which every law, with its p, has a certified r of at most its own."""
    asked = list(zip(laws, ps, rs, strict=True))
    needy = [(law, p, r) for law, p, r in asked if _without_noise(law, p, rounds).upper > r]
    if not needy:
        return 0.0
    for _, p, r in needy:
        if r == p:
            raise ValueError(f"no noise reaches r = p = {p!r} if the secret may occur; r must be above p")
    if rounds == 1:
        return _least_noise_of_one_round(needy)
    some = min(_summed_rounds(law, rounds) for law, _, _ in needy)
    summed = _least_noise_of_one_round([(repeated(law, some), p, r) for law, p, r in needy])
    least = summed / math.sqrt(some) * (1 - 2 * _TOLERANCE)  # the sum of some rounds is a post-processing of all
    for p, r in sorted({(p, r) for _, p, r in needy}):
        group = [law for law, its_p, its_r in needy if (its_p, its_r) == (p, r)]
        least = _least_noise_of_rounds(group, p, r, rounds, least)
    return least


def _least_noise_of_one_round(needy: Sequence[tuple[Occurrences, float, float]]) -> float:
    """Bisection on grids of σ: the next grid lies between the last σ that some secret fails and the first that all
    meet.

    Secrets that the lower end satisfies are dropped, since r decreases with σ: more noise is a post-processing.
    """
    first = min(law.first for law, _, _ in needy)
    last = max(law.first + law.weights.size for law, _, _ in needy)
    table = np.zeros((len(needy), last - first))
    for row, (law, _, _) in zip(table, needy, strict=True):
        row[law.first - first : law.first - first + law.weights.size] = law.weights
    counts = np.arange(first, last, dtype=np.float64)
    error, lost_mass = np.array([law.error for law, _, _ in needy]), np.array([law.lost_mass for law, _, _ in needy])
    ps, rs = np.array([p for _, p, _ in needy]), np.array([r for _, _, r in needy])

    def certified(sigmas: Floats, rows: NDArray[np.intp]) -> Bools:
        enough = np.empty((sigmas.size, rows.size), dtype=bool)
        for p in np.unique(ps[rows]):
            here = np.flatnonzero(ps[rows] == p)
            its = rows[here]
            guesses = np.full(sigmas.size, p)
            low, high = guess_bounds(_count_shifts(counts, sigmas), guesses)
            enough[:, here] = (
                _mixture_bounds(table[its].T, error[its], lost_mass[its], low, high, guesses)[1] <= rs[its]
            )
        return enough

    rows = np.arange(len(needy))
    low = 1 / (float(upper_quantile(ps)[1].max(initial=0.0)) + 40)  # below it one occurrence is seen for certain
    high = 1024 * low
    while True:
        grid = np.geomspace(low, high, 33)
        enough = certified(grid, rows)
        index = int(np.argmax(enough.all(axis=1)))
        if not enough[index].all():
            low, high = high, high * 1024
            rows = rows[~enough[-1]]
            if high > 1e30:
                raise ValueError("r is too close to p for float64: no noise is certified to reach it; give a larger r")
        elif index == 0:
            return low
        else:
            low, high = float(grid[index - 1]), float(grid[index])
            if high <= low * (1 + _TOLERANCE):
                return high
            rows = rows[~enough[index - 1]]


def _least_noise_of_rounds(group: Sequence[Occurrences], p: float, r: float, rounds: int, least: float) -> float:
    """The largest σ that any law of the group needs, and at least `least`.

    Laws are sorted by r of the sum of their rounds. If one law that covers a set is satisfied, so is the set. Otherwise
    the set is halved, until a single law is left, which then raises σ.
    """
    stack = [sorted(group, key=lambda law: -lower_r_of_rounds(law, least, p, rounds))]
    while stack:
        laws = stack.pop()
        law = laws[0] if len(laws) == 1 else envelope(laws)
        if _upper_r_of_rounds(law, least, p, r, rounds) <= r:
            continue
        if len(laws) == 1:
            least = _search(law, p, r, rounds, least)
        else:
            stack += [laws[len(laws) // 2 :], laws[: len(laws) // 2]]
    return least


def _search(law: Occurrences, p: float, r: float, rounds: int, low: float) -> float:
    """The least certified σ above `low`, which is not: secants of log(r − p) over log σ, kept inside their bracket."""

    def excess(sigma: float) -> float:
        upper = _upper_r_of_rounds(law, sigma, p, r, rounds)
        value = math.log(max(upper - p, 1e-300) / (r - p))
        return max(value, 1e-18) if upper > r else min(value, 0.0)

    low_excess, high = excess(low), 2 * low
    while (high_excess := excess(high)) > 0:
        low, low_excess, high = high, high_excess, 2 * high
        if high > 1e30:
            raise ValueError("r is too close to p: no noise is certified to reach it; give a larger r")
    halve = False
    while high > low * (1 + _TOLERANCE):
        width = math.log(high / low)
        share = 0.5 if halve else low_excess / (low_excess - high_excess)
        inset = min(0.4 * _TOLERANCE / width, 0.5)  # the last steps close the bracket from both sides
        sigma = low * math.exp(width * min(max(share, inset), 1 - inset))
        got = excess(sigma)
        low, low_excess, high, high_excess = (
            (sigma, got, high, high_excess) if got > 0 else (low, low_excess, sigma, got)
        )
        halve = math.log(high / low) > width / 2
    return high


# Enclosures


def r_of_one_round(law: Occurrences, sigma: float, p: float) -> Interval:
    """r of one release, for σ ≥ 0 and p in [0, 1]."""
    at = np.array([p])
    low, high = guess_bounds(_count_shifts(law.counts, np.array([sigma])), at)
    lower, upper = _mixture_bounds(law.weights, law.error, law.lost_mass, low, high, at)
    return Interval(float(lower[0]), float(upper[0]))


def r_of_rounds(law: Occurrences, sigma: float, p: float, rounds: int, width: float = WIDTH) -> Interval:
    """r of several releases, for σ ≥ 0 and p in [0, 1], to a relative width if it can be met."""
    if rounds == 1:
        return r_of_one_round(law, sigma, p)
    if sigma == 0:
        return _without_noise(law, p, rounds)
    least = lower_r_of_rounds(law, sigma, p, rounds)
    if least >= NEARLY_ONE:
        return Interval(least, 1.0)
    whole = product([(law, sigma, rounds)]).blowup(p, width)
    return Interval(max(least, whole.lower), max(least, whole.upper))


def _upper_r_of_rounds(law: Occurrences, sigma: float, p: float, r: float, rounds: int) -> float:
    """An upper bound on r of several rounds, tight only if needed to decide whether it is at most `r`."""
    from dpassay.accounting.lattice.pairs import WidthNotMet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        wide = r_of_rounds(law, sigma, p, rounds, 10 * WIDTH)
        return r_of_rounds(law, sigma, p, rounds).upper if wide.lower <= r < wide.upper else wide.upper


def lower_r_of_rounds(law: Occurrences, sigma: float, p: float, rounds: int) -> float:
    """A lower bound on r of several rounds: r of the sum of some of them, whose noise is σ√rounds."""
    some = _summed_rounds(law, rounds)
    return r_of_one_round(repeated(law, some), sigma * math.sqrt(some), p).lower


def _summed_rounds(law: Occurrences, rounds: int) -> int:
    """How many rounds to sum, so that their law of counts stays short."""
    return min(rounds, max(1, 4096 // law.weights.size))


def _checked_law(weights: ArrayLike, p: float, rounds: int) -> Occurrences:
    """A caller's weights, checked, without those too small to matter for any r above p."""
    law = np.asarray(weights, dtype=np.float64)
    if law.ndim != 1 or not law.size or not (np.isfinite(law) & (law >= 0)).all():
        raise ValueError("weights must be a vector of probabilities, of 0, 1, … occurrences")
    error = weight_error(law.size - 1)
    total = math.fsum(law.tolist())
    if abs(total - 1) > error + 4 * _UNIT:
        raise ValueError(
            f"weights must sum to 1, not {total!r}; give all of them, or use SecretReleaseDpEvent with a remainder"
        )
    return trimmed(law, error, 1e-17 * max(p, 1e-250) / rounds)


def _count_shifts(counts: Floats, sigmas: Floats) -> Floats:
    """k/σ, one row per σ; ∞ without noise or beyond float64, but 0 where k is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(counts == 0, 0.0, counts / sigmas[:, None])


def _mixture_bounds(
    weights: Floats, error: Floats | float, lost_mass: Floats | float, low: Floats, high: Floats, ps: Floats
) -> tuple[Floats, Floats]:
    """Bounds on p + Σ w_k (f_k − p), f_k between `low` and `high`: in this form the error of w only affects r − p.

    Weights are of one law, shape (K,), or of one law per column, shape (K, laws); f_k has one row per p. The lost mass
    counts between 0 and 1. A sum of K non-negative terms has relative error at most Ku, in any order.
    """
    p = ps if weights.ndim == 1 else ps[:, None]
    rounding = (low.shape[1] + 16) * _UNIT
    least = np.maximum(low - ps[:, None], 0.0) @ weights
    most = np.maximum(high - ps[:, None], 0.0) @ weights
    lower = (p + least * (1 - error) * (1 - rounding)) * (1 - 4 * _UNIT)
    added = most * (1 + rounding) / (1 - error) + lost_mass
    upper = np.where(added > 0, (p + added) * (1 + 4 * _UNIT), p)
    return np.maximum(lower, p), np.minimum(upper, 1.0)


def _without_noise(law: Occurrences, p: float, rounds: int) -> Interval:
    """r without noise, 1 − w₀^rounds·(1 − p): the secret is revealed as soon as it occurs."""
    seen = float(law.weights[law.counts > 0].sum())
    rounding = (law.weights.size + 16) * _UNIT
    ends = seen * (1 - law.error) * (1 - rounding), min(seen * (1 + rounding) / (1 - law.error) + law.lost_mass, 1.0)
    low, high = (1.0 if s == 1 else -math.expm1(rounds * math.log1p(-s)) for s in ends)
    lower = (p + (1 - p) * low * (1 - 32 * _UNIT)) * (1 - 4 * _UNIT)
    upper = (p + (1 - p) * high * (1 + 32 * _UNIT)) * (1 + 4 * _UNIT)
    return Interval(max(p, lower), min(1.0, upper) if high > 0 else p)
