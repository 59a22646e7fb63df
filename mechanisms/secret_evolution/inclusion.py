"""The inclusion probability of each private record in a round, and the noise for it (`SecretNoise`).

A linear program distributes the budgets of the secrets over the records: max Σ w_i with Σ w_i ≤ η_j over the records of
secret j and 0 ≤ w_i ≤ 1, η_j = Φ⁻¹(1 − p_j) − Φ⁻¹(1 − r_j). Record i is then included with a probability ρ_i that is
proportional to w_i (``coins``), or counts with weight ρ_i in every round (``weights``). The guarantee does not rest on
the program: for any ρ, σ comes from the exact blow-up over all rounds, of the occurrences under ρ or of one Gaussian,
and is certified in the form in which the accountant reads it from the event.

Records with the same secrets share a variable, and its weight equally. Apart from that the program has vertex
solutions: at most as many of its variables as there are secrets lie strictly between their limits. It counts records,
so a record with many secrets gets weight 0 if its secrets' budgets are better spent on records with fewer.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", equation 6 and Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self, cast

import attrs
import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from dpassay.accounting.events import SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from dpassay.accounting.secret_protection.accountant import secret_release
from dpassay.accounting.secret_protection.conversions import mu_for
from dpassay.accounting.secret_protection.groups import Release, releases_for_groups, releases_of_lengths
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.mechanisms.secret_evolution.clustering import WEIGHT_BITS, Inclusion, rounded_weights
from dpassay.mechanisms.secret_evolution.incidence import Incidence

_DISCRETISED = 1e-300  # above the total variation distance of noise on a grid of 2⁻¹⁰⁷⁴ from the Gaussian
_ABOVE = 1 + 2.0**-50
_NOTHING = 1e-9  # weights below this are indistinguishable from 0 at the solver's tolerance


@dataclass(frozen=True, eq=False)
class SecretNoise:
    """The inclusion probabilities or the weights of the records, and the noise for them.

    Attributes:
        probabilities: float64 of shape (n,), multiples of 2⁻⁶⁴: the probability that each record is included in a
            round, independently. With inclusion ``weights``, multiples of 2⁻³⁰: the weight with which it counts in
            every round. 0 for public records, which are used without noise.
        sigma: standard deviation σ₁ of the noise for occurrences of length 1. It is larger than the noise for which the
            events are charged by a relative 2⁻⁵⁰, so that its float64 product with √2 is at least √2 times that.
        rounds: number of releases, with fresh noise and fresh occurrences, for which `sigma` is computed.
        releases: one release for each budget, accounted as it runs.
        published: the same by the published accounting; equal to `releases` if created by `fit`.
        inclusion: ``coins`` or ``weights``.
    """

    probabilities: Floats
    sigma: float
    rounds: int
    releases: tuple[Release, ...]
    published: tuple[Release, ...]
    inclusion: Inclusion = "coins"

    @classmethod
    def fit(
        cls,
        incidence: Incidence,
        *,
        rounds: int,
        expected_sample: float | None = None,
        inclusion: Inclusion = "coins",
    ) -> Self:
        """Inclusion probabilities or weights from the linear program, and the smallest certified noise for them.

        By coins, several secrets of one budget are covered by one distribution of occurrences that is stochastically
        larger than each. By weights, a secret's records move a release by at most √2 times the sum of their weights,
        which is one Gaussian for all rounds; of several secrets the largest sum counts.

        Proof for weights: docs/proofs/secret-weights.md, Theorems 1 to 3.

        Args:
            incidence: which secrets are in which records.
            rounds: total number of releases, ≥ 1.
            expected_sample: the mean number of private records in a round, or the sum of their weights, ρ = min(1, cw);
                by default ρ = w/max w.
            inclusion: ``coins`` or ``weights``.

        Raises:
            ValueError: if the sample is impossible, or no certified noise is enough for a budget.
        """
        validate.integer(minimum=1, rounds=rounds)
        validate.one_of(("coins", "weights"), inclusion=inclusion)
        shares = _scaled(inclusion_weights(incidence), expected_sample)
        if inclusion == "weights":
            weights = rounded_weights(shares)
            sigma, certain = releases_of_lengths(
                _largest_sums(incidence, weights), incidence.budgets, rounds, _DISCRETISED
            )
            return cls(weights, sigma * _ABOVE, rounds, certain, certain, inclusion)
        chances = _round_up(shares)
        own = releases_for_groups(_groups(incidence, chances), incidence.budgets, rounds, _DISCRETISED)
        return cls(chances, max(map(_sigma, own), default=0.0) * _ABOVE, rounds, own, own)

    @classmethod
    def as_published(cls, incidence: Incidence, *, rounds: int) -> Self:
        """Algorithm 1 as published: about 1/max w records per round, and the noise of one Gaussian at the mean count.

        ρ_i = V·w_i/Σw with V = 1/max w, at most 1. If the count were always E, r would be Φ̄(Φ̄⁻¹(p) − √T·E/σ) after T
        rounds, so σ = √T·max_j E_j/η_j. That is too little, since counts vary. As it runs, running sums let an
        occurrence change everything after it, so it is accounted as revealing the secret.
        """
        validate.integer(minimum=1, rounds=rounds)
        weights = inclusion_weights(incidence)
        total = float(weights.sum())
        chances = _round_up(np.minimum(1.0, weights / weights.max() / total) if total else weights)
        means = incidence.matrix.astype(np.float64) @ chances
        shares = [mean / capacity for mean, capacity in zip(means, _capacities(incidence), strict=True) if mean]
        sigma = math.sqrt(rounds) * max(shares, default=0.0)
        laws = [secret_release(sigma, *secrets) for secrets in _groups(incidence, chances)]
        bare = tuple(attrs.evolve(law, noise_multiplier=0.0) for law in laws)
        return cls(chances, sigma, rounds, bare, tuple(laws))

    @property
    def expected_sample(self) -> float:
        """The mean number of private records in a round; with inclusion ``weights`` the sum of their weights."""
        return float(self.probabilities.sum())

    def event(self) -> DpEvent:
        """One release, accounted as it runs."""
        return _event(self.releases)

    def published_event(self) -> DpEvent:
        """One release by the published accounting; if created by `fit`, the same as `event`."""
        return _event(self.published)


def inclusion_weights(incidence: Incidence) -> Floats:
    """The w of the linear program for every record, shape (n,); 0 for records without a secret.

    Raises:
        ValueError: if the solver fails.
    """
    indices = sparse.csc_array(incidence.matrix)
    private = np.flatnonzero(np.diff(indices.indptr))
    weights = np.zeros(indices.shape[1])
    if not private.size:
        return weights
    item, kind = _secret_sets(indices[:, private])
    sizes = np.bincount(kind).astype(np.float64)
    capacities = np.minimum(_capacities(incidence), indices.sum(axis=1))
    columns = indices[:, private[item]].astype(np.float64)
    result = linprog(
        -np.ones(item.size),
        A_ub=cast(Any, columns),  # sparse; the type stubs do not allow it
        b_ub=capacities,
        bounds=cast(Any, np.column_stack([np.zeros(item.size), sizes])),
        method="highs-ipm",
    )
    if result.x is None:
        raise ValueError(f"the linear program of the inclusion probabilities was not solved: {result.message}")
    each = np.clip(result.x / sizes, 0.0, 1.0)
    weights[private] = np.where(each < _NOTHING, 0.0, each)[kind]
    return weights


def _secret_sets(indices: sparse.csc_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Records by their sets of secrets: the first record of each set, and the set of each record."""
    indices.sort_indices()
    lengths = np.diff(indices.indptr)
    kind = np.empty(lengths.size, dtype=np.intp)
    first: list[NDArray[np.intp]] = []
    seen = 0
    for length in np.unique(lengths):
        records = np.flatnonzero(lengths == length)
        sets = indices.indices[indices.indptr[records][:, None] + np.arange(length)]
        _, where, which = np.unique(sets, axis=0, return_index=True, return_inverse=True)
        kind[records] = seen + which.ravel()
        first.append(records[where])
        seen += where.size
    return np.concatenate(first), kind


def _capacities(incidence: Incidence) -> Floats:
    """η_j of every secret, shape (m,); ∞ if r is 1."""
    return np.array([mu_for(budget.p, budget.r) for budget in incidence.budgets], dtype=np.float64)[incidence.group]


def _scaled(weights: Floats, expected_sample: float | None) -> Floats:
    """w/max w, or min(1, cw) with the requested sum."""
    if expected_sample is None:
        return weights / weights.max() if weights.any() else weights
    largest = np.sort(weights[weights > 0])[::-1]
    if not 0 < expected_sample <= largest.size:
        raise ValueError(
            f"expected_sample must be above 0 and at most {largest.size}, the number of records to which the secrets' "
            f"budgets give a weight, not {expected_sample!r}"
        )
    rest = np.cumsum(largest[::-1])[::-1]  # if the largest k are 1 and the others cw
    factors = (expected_sample - np.arange(largest.size)) / rest
    index = int(np.argmax(factors * largest <= 1)) if (factors * largest <= 1).any() else largest.size - 1
    return np.minimum(1.0, float(factors[index]) * weights)


def _round_up(chances: Floats) -> Floats:
    """Probabilities rounded up to multiples of 2⁻⁶⁴, which float64 holds exactly, so 64 random bits suffice."""
    return np.asarray(np.ldexp(np.ceil(np.ldexp(chances, 64)), -64))


def _groups(incidence: Incidence, chances: Floats) -> list[list[Floats]]:
    """For each budget and each of its secrets, the probabilities of its records; an empty array if there is none."""
    rows = np.split(chances[incidence.matrix.indices], incidence.matrix.indptr[1:-1])
    return [
        [rows[secret] for secret in np.flatnonzero(incidence.group == group)] or [np.zeros(0)]
        for group in range(len(incidence.budgets))
    ]


def _largest_sums(incidence: Incidence, weights: Floats) -> list[float]:
    """For each budget, the largest sum of weights of the records of one secret, rounded up; 0 if none occurs."""
    units = np.ldexp(weights, WEIGHT_BITS).astype(np.int64)  # exact, and so are their sums
    sums = np.asarray(incidence.matrix.astype(np.int64) @ units, dtype=np.float64)
    largest = [float(sums[incidence.group == group].max(initial=0.0)) for group in range(len(incidence.budgets))]
    return [math.nextafter(math.ldexp(each, -WEIGHT_BITS), math.inf) if each else 0.0 for each in largest]


def _sigma(release: Release) -> float:
    return release.noise_multiplier if isinstance(release, SecretReleaseDpEvent) else _sigma(release.groups[0])


def _event(releases: tuple[Release, ...]) -> DpEvent:
    if not releases:
        return dp_event.NoOpDpEvent()
    alone = len(releases) == 1 and isinstance(releases[0], SecretReleaseDpEvent)
    return releases[0] if alone else SecretGroupsReleaseDpEvent(releases)
