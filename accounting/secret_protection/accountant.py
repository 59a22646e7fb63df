"""Secret protection (p, r): whoever guesses a secret with probability at most p before guesses it with at most r after.

P is the law of what is released with the secret in its places, Q the law of a fixed reference without it, and
r = B(p) = sup{P(E): Q(E) ≤ p}, P over Q; the other direction says nothing of guessing. For every prior whose largest
probability is p, Σ π_v P_v(E_v) ≤ Σ π_v B(Q(E_v)) ≤ B(Σ π_v Q(E_v)) ≤ B(p), because B is concave and does not fall and
the E_v are disjoint (Hayes, Mahloujifar and Balle, "Bounding Training Data Reconstruction in DP-SGD", 2023, Theorem 2).

Where the secret occurs k times with probability w_k in a sum to which each occurrence adds a vector of length at most
1, and N(0, σ²I) is added, P(E) ≤ Σ w_k Φ(Φ⁻¹(Q(E)) + k/σ): the pair Σ w_k N(k, σ²) over N(0, σ²) on the line dominates.
The places where the secret occurs are public: the guarantee covers its value only.

Here are the accountant and the names of its neighbours: `secret_noise` has enclosures of r and the noise for it,
`secret_conversions` what other guarantees say, `poisson_binomial` the laws of counts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence

from dp_accounting import DpEvent, dp_event
from numpy.typing import ArrayLike

from cupel.accounting import events, validate
from cupel.accounting.accountants.base import Accountant, Unsupported
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Direction, Interval
from cupel.accounting.events import ParallelDpEvent, SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from cupel.accounting.secret_protection.groups import Release, law_of, releases_by_kind
from cupel.accounting.secret_protection.noise import (
    NEARLY_ONE,
    lower_r_of_rounds,
    r_of_rounds,
)
from cupel.accounting.secret_protection.poisson_binomial_laws import (
    envelope,
    occurrences,
)
from cupel.accounting.secret_protection.products import Product, product

_PUBLIC = "The places where the secret occurs are public, frozen, and do not depend on its value."
_FRESH = "Occurrences are drawn anew and independently in every release and every part."

Releases = Counter[Release]


def secret_release(noise_multiplier: float, *probabilities: ArrayLike, tail: float = 1e-15) -> SecretReleaseDpEvent:
    """One noisy release in which each of several secrets occurs at random, as one event that covers all of them.

    Args:
        noise_multiplier: σ, for occurrences that contribute at most 1; ≥ 0.
        probabilities: for each secret, the probability that each of its records is drawn, shape (m,), m may differ.
        tail: probability of the largest counts that may be counted as certain discovery, in (0, 1e-3].

    Raises:
        ValueError: without a secret, or for impossible numbers.
    """
    if not probabilities:
        raise ValueError("secret_release needs the occurrence probabilities of at least one secret")
    if not 0 < tail <= 1e-3:
        raise ValueError(f"tail must be above 0 and at most 1e-3, not {tail!r}")
    law = envelope([occurrences(secret, tail) for secret in probabilities])
    return SecretReleaseDpEvent(noise_multiplier, law.weights.tolist(), law.lost_mass)


class SecretProtectionAccountant(Accountant[Releases]):
    """Products of dominating pairs of releases in which a secret occurs at random; the cost is which ones, how often.

    Where releases are for several groups of secrets, every answer is that of the worst group; `of_group` asks for one.
    Where such releases differ, as those of two runs do, they may number their groups differently, so each counts as the
    worst of its groups.

    Every answer is about P over the reference Q without the secret, the direction of guessing. So ε, δ and β have names
    of their own, ``epsilon_over_reference`` and so on: they do not compare with those of differential privacy, which
    has two directions, between any two data sets.

    Disjoint parts compose like rounds, and not at the worst of them: one secret may occur in several parts.
    """

    name = "secret_protection"

    def __init__(self, adjacency: Adjacency | str = Adjacency.SECRET, unit: Unit | None = None) -> None:
        super().__init__(adjacency, unit or Unit("secret"))

    def supports(self, event: DpEvent) -> str | None:
        """None if there is a bound for `event` at adjacency and unit ``secret``, else the reason why there is none."""
        try:
            self._cost(event)
        except Unsupported as reason:
            return f"{reason}; it knows releases of secrets (SecretReleaseDpEvent, SecretGroupsReleaseDpEvent)"
        if self.adjacency is not Adjacency.SECRET or self.unit.kind != "secret":
            return f"{self.name} protects secrets: adjacency and unit must be secret, not {self.adjacency}, {self.unit}"
        return None

    def protection(self, p: float) -> Bound:
        """r: the largest probability of guessing a secret that is guessed with probability at most p without this."""
        validate.probability(p=p)
        return self._worst([group.blowup(p) for group in self._groups], "r", at=p)

    def blowup(self, p: float) -> Bound:
        """The same: r is the blow-up of P over Q."""
        return self.protection(p)

    def epsilon(self, delta: float) -> Bound:
        """The least ε ≥ 0 with P(E) ≤ e^ε Q(E) + δ for every event E."""
        validate.open_probability(delta=delta)
        return self._worst(
            [group.joint.epsilon(delta) for group in self._groups], "epsilon_over_reference", delta=delta
        )

    def delta(self, epsilon: float) -> Bound:
        """The largest P(E) − e^ε Q(E), for any finite ε."""
        validate.finite(epsilon=epsilon)
        return self._worst([group.joint.delta(epsilon) for group in self._groups], "delta_over_reference", at=epsilon)

    def beta(self, alpha: float) -> Bound:
        """The least probability of missing the secret, 1 − P(E), for a test that sees it in the reference with α."""
        validate.probability(alpha=alpha)
        r = _largest([group.blowup(alpha) for group in self._groups])
        interval = Interval(max(0.0, 1 - r.upper - 2.0**-53), min(1.0, 1 - r.lower + 2.0**-53))
        return self._enclosed(interval, "beta_over_reference", at=alpha, direction=Direction.LOWER)

    @functools.cached_property
    def _groups(self) -> tuple[_Group, ...]:
        return tuple(map(_Group, releases_by_kind(self.cost)))

    def _worst(
        self, intervals: Sequence[Interval], quantity: str, *, delta: float | None = None, at: float | None = None
    ) -> Bound:
        return self._enclosed(_largest(intervals), quantity, delta=delta, at=at)

    def _enclosed(
        self,
        interval: Interval,
        quantity: str,
        *,
        delta: float | None = None,
        at: float | None = None,
        direction: Direction = Direction.UPPER,
    ) -> Bound:
        """A bound, with its enclosure unless parts in which the secret may not occur were counted."""
        value = interval.upper if direction is Direction.UPPER else interval.lower
        bound = self._bound(value, quantity, delta=delta, at=at, direction=direction)
        return bound if _has_parallel_parts(self.event) else dataclasses.replace(bound, interval=interval)

    def _assumptions(self, event: DpEvent) -> tuple[str, ...]:
        return (_PUBLIC, _FRESH) if self.cost else ()

    def _zero(self) -> Releases:
        return Counter()

    def _add(self, costs: Sequence[Releases]) -> Releases:
        return sum(costs, start=Counter())

    def _times(self, cost: Releases, count: int) -> Releases:
        return Counter({event: count * times for event, times in cost.items()})

    def _largest(self, costs: Sequence[Releases], how_many: int) -> Releases:
        return self._add(costs)


class _Group:
    """What all releases are for one kind of secrets, computed when it is asked for."""

    def __init__(self, releases: Counter[SecretReleaseDpEvent]) -> None:
        self._releases = [(law_of(event), event.noise_multiplier, count) for event, count in releases.items()]

    @functools.cached_property
    def joint(self) -> Product:
        return product(self._releases)

    def blowup(self, p: float) -> Interval:
        """r at p."""
        if len(self._releases) == 1:
            ((law, sigma, count),) = self._releases
            return r_of_rounds(law, sigma, p, count)
        least = max((lower_r_of_rounds(law, sigma, p, count) for law, sigma, count in self._releases), default=p)
        return Interval(least, 1.0) if least >= NEARLY_ONE else self.joint.blowup(p)


def _largest(intervals: Sequence[Interval]) -> Interval:
    """The enclosure of the largest of enclosed numbers."""
    return Interval(max(x.lower for x in intervals), max(x.upper for x in intervals))


def _has_parallel_parts(event: DpEvent) -> bool:
    if isinstance(event, ParallelDpEvent) and len(event.events) > 1:
        return True
    return any(_has_parallel_parts(child) for child in events.children(event))


def _release(accountant: SecretProtectionAccountant, event: Release) -> Releases:
    return Counter([event])


def _non_private(accountant: SecretProtectionAccountant, event: dp_event.NonPrivateDpEvent) -> Releases:
    return Counter([SecretReleaseDpEvent(0.0, (0.0, 1.0))])


SecretProtectionAccountant.handlers = {
    SecretReleaseDpEvent: _release,
    SecretGroupsReleaseDpEvent: _release,
    dp_event.NonPrivateDpEvent: _non_private,
}
