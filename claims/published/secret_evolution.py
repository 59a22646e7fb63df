"""Checks of the statements of "Secret-Protected Evolution for Differentially Private Synthetic Text Generation".

A mechanism is (p, r)-secret-protected if a secret that is guessed with probability at most p before the release is
guessed with probability at most r after it. The paper takes r = B(p) = sup{P(E): Q(E) ≤ p} for the law P of the release
with the secret over the law Q of a reference without it. Guesses of a uniform secret with 1/p values are at most that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice import gaussian_curve
from dpassay.accounting.secret_protection import (
    blowup,
    mu_for,
    noise_for,
    poisson_binomial,
    r_between_secrets,
    r_of_gdp,
    single_gaussian_estimate,
)
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_interval, format_lower, format_number, format_upper
from dpassay.claims.published.statement import CheckResult

_ROOM = 2.0**-40
"""More than the relative error of a few operations and functions on floats."""

_CLOSE = 1e-7
"""By how much the move of `counts_and_centres` may be below √2·k, relatively: 80·10⁻⁹/2 + 10⁻¹⁰ and rounding."""


# Theorem 3: composition


def digits_of_a_secret(digits: int, revealed: Sequence[int]) -> CheckResult:
    """Theorem 3 for mechanisms that reveal one digit each of a secret: exact probabilities of a right guess.

    All values are equally likely, which is the only law with no value above p = 10^−digits. After an output, every
    value that fits it is equally likely, so the best guess is right with probability (outputs)/(values).

    Args:
        digits: of the secret.
        revealed: the digit that each mechanism reveals.
    """
    values = range(10**digits)

    def right(indices: Sequence[int]) -> Fraction:
        outputs = {tuple(value // 10**index % 10 for index in indices) for value in values}
        return Fraction(len(outputs), len(values))

    each = [right([index]) for index in revealed]
    claimed, together = sum(each, Fraction(0)), right(revealed)
    return CheckResult.of(
        f"A secret of {digits} digits, all values equally likely: p = {format_number(1 / len(values))}.",
        f"Each of {len(revealed)} mechanisms outputs one digit. The best guess after one is right with probability "
        f"{', '.join(map(str, each))}: these are their r.",
        f"The theorem states r = {format_number(float(claimed))} for both.",
        f"After both, the best guess is right with probability {format_number(float(together))}.",
        lower=_down(together),
        claimed=float(claimed),
    )


def orthogonal_gaussians(values: int, mu: float, releases: int) -> CheckResult:
    """Theorem 3 for releases of μe_v with N(0, I) noise, for one of K values v, all equally likely.

    The best guess is the largest coordinate, since all shifts have the same length. It is right with probability
    E Φ(X + μ)^(K−1), X normal. The mean of k releases is one of μ√k.
    """
    item, all_of_them = _largest_coordinate(values, mu), _largest_coordinate(values, mu * math.sqrt(releases))
    return CheckResult.of(
        f"A secret has {values} values, all equally likely: p = {format_number(1 / values)}. Value v is released "
        f"as {format_number(mu)}·e_v plus normal noise of variance 1 in {values} dimensions, {releases} times.",
        "The best guess is the largest coordinate, and of several releases that of their mean.",
        f"After one it is right with probability E Φ(X + μ)^{values - 1} in {_interval(item)}: that is r of each.",
        f"The theorem states r = {format_upper(releases * item.upper)} after {releases}.",
        f"It is right with a probability in {_interval(all_of_them)}, with μ√{releases} in place of μ.",
        lower=all_of_them.lower,
        claimed=releases * item.upper,
    )


def _largest_coordinate(values: int, mu: float, cells: int = 2**20) -> Interval:
    """E Φ(X + μ)^(K−1), X normal: that coordinate v of μe_v plus noise is the largest of K.

    The integrand increases, so on each cell of a grid it is between its values at the ends. log Φ has a relative error
    below 1e-13 and the integrand's logarithm is above −746, so the integrand's relative error is below 1e-9. The
    probability of a cell is the difference of two values of Φ with errors below 1e-13 of them, which `room` covers.
    """
    grid = np.linspace(-3.0, 8.5, cells + 1)
    integrand, above = np.exp((values - 1) * log_ndtr(grid + mu)), ndtr(-grid)
    inside = above[:-1] - above[1:]
    room = 4e-13 * float(integrand[1:] @ above[:-1])
    ends = float(integrand[0] * ndtr(grid[0]) + above[-1])
    lower = float(integrand[:-1] @ inside) * (1 - 1e-9) - room
    upper = (float(integrand[1:] @ inside) + ends) * (1 + 1e-9) + room
    return Interval(max(0.0, lower), min(1.0, upper))


def _interval(result: Interval) -> str:
    return format_interval(result.lower, result.upper)


# Lemma C.2: from (ε, δ)


def approx_dp_to_secrets(values: int, ratio: float, delta: float, against: str) -> CheckResult:
    """Lemma C.2 for a secret of K values, all equally likely, p = 1/K, and a mechanism with e^ε = `ratio`.

    Against a reference without the secret, Q is uniform on K outputs, and P_v has output v with probability
    min(pe^ε, 1 − (1 − p)e^−ε) and the others equally often: both ratios are at most e^ε. Between values, output v is
    sent with probability δ, and otherwise by randomised response with ratio e^ε. The guess is the output.

    Args:
        values: K.
        ratio: e^ε.
        delta: δ, of the mechanism between values; 0 against a reference.
        against: ``reference``, if (ε, δ)-DP holds with and without the secret, or ``values``, between any two values.
    """
    p, grown = Fraction(1, values), Fraction(ratio)
    if against == "reference":
        right = min(grown * p, 1 - (1 - p) / grown)
        _require_ratio(right, (1 - right) / (values - 1), p, grown)
        upper = None
    else:
        right = Fraction(delta) + (1 - Fraction(delta)) * grown * p / (grown * p + 1 - p)
        upper = r_between_secrets(math.log(ratio) * (1 + _ROOM), delta, 1 / values * (1 + _ROOM))
    claimed = _lemma_c2(1 / values, ratio, delta)
    return CheckResult.of(
        f"A secret has {values} values, all equally likely: p = {format_number(1 / values)}.",
        f"For e^ε = {format_number(ratio)} and δ = {format_number(delta)} the lemma states "
        f"r = {format_number(claimed)}.",
        _mechanism_in_words(values, right, against),
        f"Whoever guesses the output is right with probability {format_lower(_down(right))}.",
        lower=_down(right),
        upper=upper,
        claimed=claimed,
    )


def _require_ratio(right: Fraction, wrong: Fraction, reference: Fraction, ratio: Fraction) -> None:
    """Checks that probabilities of an output and those of the reference are within e^ε of each other, exactly."""
    if not all(first <= ratio * second for a in (right, wrong) for first, second in ((a, reference), (reference, a))):
        raise ValueError("the mechanism is not ε-DP against the reference")


def _mechanism_in_words(values: int, right: Fraction, against: str) -> str:
    shown = f"{values} outputs. Value v gives output v with probability {format_number(float(right))}"
    if against == "reference":
        return (
            f"{shown}, and each other one with probability {format_number(float((1 - right) / (values - 1)))}; without "
            f"the secret each has {format_number(1 / values)}. No two of these probabilities of an output, with and "
            "without the secret, differ by more than e^ε."
        )
    return f"{shown} in the worst case, and no mechanism does better: r = δ + (1 − δ)pe^ε/(pe^ε + 1 − p)."


def _lemma_c2(p: float, ratio: float, delta: float) -> float:
    """The least of 1/(1 + (1 − p)/(p(e^ε + 1/c))) + cδ over c ≥ 1, or the limit for δ = 0; the lemma states all."""

    def stated(c: float) -> float:
        return 1 / (1 + (1 - p) / p / (ratio + 1 / c)) + c * delta

    if delta == 0:
        return 1 / (1 + (1 - p) / p / ratio)
    return min(stated(c) for c in np.geomspace(1, max(2.0, 1 / delta), 20_001).tolist())


def _down(exact: Fraction) -> float:
    """The largest float that is at most a number."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


# Lemma 3.3: from Gaussian differential privacy


def gdp_to_secrets(p: float, mu: float) -> CheckResult:
    """Lemma 3.3: r = Φ(Φ⁻¹(p) + μ) of a μ-GDP mechanism, P over Q.

    It is attained if 1/p is a whole number: let Q be uniform on a circle of length 1, and P_0 have the decreasing
    density that the likelihood ratio of N(μ, 1) to N(0, 1) has. P_v is P_0 turned by v·p, and v is guessed on its own
    arc of length p, which has probability p under Q and Φ(Φ⁻¹(p) + μ) under P_v.
    """
    exact = gaussian_curve.blowup(mu, p)
    return CheckResult.of(
        f"A μ-GDP release, μ = {format_number(mu)}: an event with probability {format_number(p)} without the "
        f"secret has probability at most Φ(Φ⁻¹(p) + μ) with it, in {_interval(exact)}.",
        "Guesses of different values are different events, whose probabilities without the secret add up to 1 at "
        "most. So the mean of their probabilities is at most that, for every prior with no value above p.",
        "The bound is attained by laws on a circle, each turned by p.",
        lower=exact.lower,
        upper=r_of_gdp(mu, p),
    )


# Theorem 1 and Algorithms 1 and 2


def counts_and_centres(p: float, r: float, records: int, noise_factor: float) -> CheckResult:
    """Theorem 1: B(p) of one release of counts and centres together, with the noise of Algorithm 1.

    A secret is in n records that are drawn with probability μ/n each, μ = Φ⁻¹(r) − Φ⁻¹(p). σ is the least for which
    Σ w_k N(k, σ²) over N(0, σ²), k being how many are drawn, has B(p) ≤ r.

    All these records have the vector x. Their cluster has a centre e at distance 2R√(1 − 10⁻¹⁰) from x and 10⁹ public
    records. k drawn records move the count by k, and the centre by 2R√(1 − 10⁻¹⁰)·k/(10⁹ + k), which is nearly k in
    units of 2R/10⁹: together at least √2·k/(1 + `_CLOSE`). No data move them by more than √2·k.

    The same holds for a cluster for each value: with orthogonal unit vectors u, f_1, f_2, … and η = 10⁻⁵, let
    e_v = R(−√(1 − η²)u + ηf_v) and x_v = R(√(1 − η²)u + ηf_v). Then e_v is the nearest centre to x_v.

    Args:
        p, r: the budget.
        records: n.
        noise_factor: by which σ is multiplied; √2 mends the theorem.
    """
    weights = _occurrences(p, r, records)
    sigma = noise_for(weights, p, r) * noise_factor
    joint = sigma / math.sqrt(2)
    lower, upper = blowup(weights, joint * (1 + _CLOSE), p).lower, blowup(weights, joint * (1 - _ROOM), p).upper
    guessed = _cluster_guesses(weights, joint * (1 + _CLOSE), round(1 / p))
    return CheckResult.of(
        f"A secret is in {records} records, each drawn with probability {format_number(mu_for(p, r) / records)}. "
        f"Algorithm 1 with p = {format_number(p)}, r = {format_number(r)} gives "
        f"σ = {format_number(sigma / noise_factor)}, here multiplied by {format_number(noise_factor)}.",
        "k drawn records with one vector, opposite to a centre of many public records, move the count by k and the "
        "centre by nearly k·2R/n_k. Their noise is σ and σ·2R/n_k, so together they move by √2·k/σ.",
        f"So B(p) = Σ w_k Φ(Φ⁻¹(p) + √2·k/σ), at least {format_lower(lower)}.",
        f"A guess does nearly as well: if each of {round(1 / p)} values has its own cluster, whoever guesses the "
        f"value whose cluster moved most is right with probability {format_lower(guessed)} or more.",
        lower=lower,
        upper=upper,
    )


def _occurrences(p: float, r: float, records: int) -> Floats:
    """The law of how many of the records with a secret are drawn, Φ⁻¹(r) − Φ⁻¹(p) in the mean, each equally often."""
    return poisson_binomial(np.full(records, mu_for(p, r) / records))


def _cluster_guesses(weights: Floats, sigma: float, values: int) -> float:
    """The probability, rounded down, that the cluster that moved most is that of the secret, if each value has its own.

    What a cluster moved, in its direction, has noise of σ. It is k for the right cluster and 0 for the K − 1 others.
    """
    kept = weights[:12]
    each = [_largest_coordinate(values, k / sigma, 2**14).lower for k in range(kept.size)]
    return float(np.dot(kept, each)) * (1 - _ROOM)


def running_sums(copies: int, assign: str) -> CheckResult:
    """Algorithm 2 as printed: by how much one record moves the counts of two clusters, in rational numbers.

    Public centres are −0.6 and 0.6, of one public point each. A record is assigned to the nearest e_k and then added
    to it (lines 9 and 10), so e_k is a sum that grows.

    Args:
        copies: private records 0.01; the neighbour has −1 before them.
        assign: ``running``, to the sums as printed, or ``public``, to the public centres.
    """
    points = [Fraction(1, 100)] * copies
    before, after = (_counts(data, moving=assign == "running") for data in (points, [Fraction(-1), *points]))
    square = sum((first - second) ** 2 for first, second in zip(before, after, strict=True))
    return CheckResult.of(
        f"Public centres −0.6 and 0.6, of one point each; private records: {copies} times 0.01. Each is assigned "
        f"to the nearest of two {'sums, to which it is added' if assign == 'running' else 'public centres'}.",
        f"The counts are {before[0]} and {before[1]}.",
        f"With one record of −1 before them, the counts are {after[0]} and {after[1]}.",
        f"They move by {format_lower(math.sqrt(square))}, where the noise is made for 1.",
        lower=math.sqrt(square) * (1 - _ROOM),
        upper=1.0 if assign == "public" else None,
    )


def _counts(points: Sequence[Fraction], *, moving: bool) -> tuple[int, int]:
    """How many points are assigned to each of two clusters, the first one in case of ties."""
    nearest_to, counts = [Fraction(-6, 10), Fraction(6, 10)], [0, 0]
    for point in points:
        near = 0 if abs(point - nearest_to[0]) <= abs(point - nearest_to[1]) else 1
        counts[near] += 1
        if moving:
            nearest_to[near] += point
    return counts[0], counts[1]


# One Gaussian for a mixture, and the comparison with Gaussian differential privacy


def single_gaussian(p: float, r: float, records: int, sigma: float) -> CheckResult:
    """Section 4.1: B(p) of the mixture Σ w_k N(k, σ²), where N(Σ k·w_k, σ²) is used in its place.

    Args:
        p, r: the budget, with Φ⁻¹(r) − Φ⁻¹(p) records of the secret drawn in the mean.
        records: that hold the secret.
        sigma: of the noise; 1 is what a single Gaussian needs.
    """
    weights = _occurrences(p, r, records)
    estimate = single_gaussian_estimate(weights, sigma, p).value
    result = blowup(weights, sigma, p)
    return CheckResult.of(
        f"A secret is in {records} records, each drawn with probability {format_number(mu_for(p, r) / records)}: "
        f"{format_number(mu_for(p, r))} in the mean, none with probability {format_number(float(weights[0]))}.",
        f"One Gaussian at the mean, with σ = {format_number(sigma)}, has "
        f"B({format_number(p)}) = {format_number(estimate)}.",
        f"The mixture has Σ w_k Φ(Φ⁻¹(p) + k/σ), in {_interval(result)}: three records or more are seldom "
        "drawn, but are then easily seen.",
        within=result,
    )


def noise_over_gdp(p: float, r: float, records: int, group: int) -> CheckResult:
    """Appendix B.1: σ of (p, r)-secret protection over that of μ-GDP with the same r at p, for counts.

    μ-GDP needs Δ/μ, Δ being the number of records that it protects together. Secret protection needs the least σ with
    Σ w_k Φ(Φ⁻¹(p) + k/σ) ≤ r.

    Args:
        p, r: the budget, with Φ⁻¹(r) − Φ⁻¹(p) records of the secret drawn in the mean.
        records: that hold the secret.
        group: Δ, 1 if GDP protects a record, `records` if it protects all that hold the secret.
    """
    weights, mu = _occurrences(p, r, records), mu_for(p, r)
    sigma = noise_for(weights, p, r)
    below = _distance(lambda room: blowup(weights, sigma * (1 - room), p).lower > r)
    above = _distance(lambda room: gaussian_curve.blowup(mu * (1 + room), p).lower > r)
    result = Interval(sigma * (1 - below) * mu / group * (1 - _ROOM), sigma * mu * (1 + above) / group * (1 + _ROOM))
    return CheckResult.of(
        f"p = {format_number(p)}, r = {format_number(r)}: μ = Φ⁻¹(r) − Φ⁻¹(p) = {format_number(mu)}. A secret is "
        f"in {records} records, each drawn with probability μ/{records}.",
        f"Secret protection needs σ = {format_upper(sigma)}.",
        f"μ-GDP of {'one record' if group == 1 else f'all {group} records together'} needs "
        f"σ = {group}/μ = {format_number(group / mu)}.",
        f"Their ratio is in {_interval(result)}; σ of GDP is {format_number(group / mu / sigma)} times that of "
        "secret protection.",
        within=result,
    )


def _distance(shown: Callable[[float], bool]) -> float:
    """A relative distance, from 1e-12 on, at which a number is shown to be beyond the exact one."""
    return next(room for room in (10.0**power for power in range(-12, 0)) if shown(room))
