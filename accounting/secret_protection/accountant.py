"""The accountant of secret protection (p, r): a secret guessed with probability at most p before is guessed with at
most r after.

P is the law of what is released with the secret in its places, and Q the law of a fixed reference without it. Then r =
B(p) = sup{P(E): Q(E) ≤ p}, P over Q. If the secret occurs k times with probability w_k in a sum, each occurrence adds a
vector of length at most 1, and N(0, σ²I) is added, then Σ w_k N(k, σ²) over N(0, σ²) on the line dominates. The places
where the secret occurs are public: the guarantee covers its value only.

Proof: docs/proofs/secret-protection.md, Theorems 1 to 3.

Source: Hayes, Mahloujifar and Balle, "Bounding Training Data Reconstruction in DP-SGD" (2023), Theorem 2.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import ArrayLike

from dpassay.accounting import events, names
from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Interval
from dpassay.accounting.events import SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from dpassay.accounting.secret_protection.groups import Release, law_of, releases_by_kind
from dpassay.accounting.secret_protection.noise import (
    NEARLY_ONE,
    lower_r_of_rounds,
    r_of_rounds,
)
from dpassay.accounting.secret_protection.poisson_binomial_laws import (
    envelope,
    occurrences,
)
from dpassay.accounting.secret_protection.products import Product, product
from dpassay.base import validate

_PUBLIC = "The places where the secret occurs are public, frozen, and do not depend on its value."
_FRESH = "Occurrences are drawn anew and independently in every release and every part."

Releases = Counter[Release]


def secret_release(noise_multiplier: float, *probabilities: ArrayLike, tail: float = 1e-15) -> SecretReleaseDpEvent:
    """One event for a noisy release in which each of several secrets occurs at random; it covers all of them.

    Args:
        noise_multiplier: σ ≥ 0, for occurrences that contribute at most 1.
        probabilities: for each secret, the probability that each of its records is drawn, shape (m,); m may differ.
        tail: the probability of the largest counts that may be treated as revealing the secret, in (0, 1e-3].

    Raises:
        ValueError: if there is no secret, or an argument is invalid.
    """
    if not probabilities:
        raise ValueError("secret_release needs the occurrence probabilities of at least one secret")
    if not 0 < tail <= 1e-3:
        raise ValueError(f"tail must be above 0 and at most 1e-3, not {tail!r}")
    law = envelope([occurrences(secret, tail) for secret in probabilities])
    return SecretReleaseDpEvent(noise_multiplier, law.weights.tolist(), law.lost_mass)


class SecretProtectionAccountant(Accountant[Releases]):
    """Products of dominating pairs of releases in which a secret occurs at random. The cost is the releases, with
    counts.

    If releases are for several groups of secrets, every answer is that of the worst group; `of_group` gives the event
    of one. If such releases differ, as in two runs, they may number their groups differently, so each counts as its
    worst group.

    Every answer is about P over the reference Q, the direction of guessing. So ε, δ and β have their own names,
    ``epsilon_over_reference`` and so on: they are not those of differential privacy, which has two directions.

    Disjoint parts compose like rounds, not at the worst part, since one secret may occur in several parts.
    """

    name = names.SECRET_PROTECTION

    def __init__(self, adjacency: Adjacency | str = Adjacency.SECRET, unit: Unit | str | None = None) -> None:
        super().__init__(adjacency, unit or Unit("secret"))

    def supports(self, event: DpEvent) -> str | None:
        """None if there is a bound for `event` at adjacency and unit ``secret``, else the reason why not."""
        try:
            self._cost(event)
        except Unsupported as reason:
            return f"{reason}; it supports SecretReleaseDpEvent and SecretGroupsReleaseDpEvent"
        if self.adjacency is not Adjacency.SECRET or not self.unit.is_secret:
            return f"{self.name} protects secrets: adjacency and unit must be secret, not {self.adjacency}, {self.unit}"
        return None

    def protection(self, p: float) -> Bound:
        """r: the largest probability of guessing a secret that without the release is guessed with at most p."""
        validate.probability(p=p)
        return self._worst([group.blowup(p) for group in self._groups], "r", at=p)

    def blowup(self, p: float) -> Bound:
        """The blow-up of P over Q at p, which is r; the same as `protection`."""
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
        """A lower bound on 1 − P(E) over tests E with Q(E) ≤ `alpha`: the probability of missing the secret."""
        validate.probability(alpha=alpha)
        r = _largest([group.blowup(alpha) for group in self._groups])
        interval = Interval(max(0.0, 1 - r.upper - 2.0**-53), min(1.0, 1 - r.lower + 2.0**-53))
        return self._answer(interval, "beta_over_reference", at=alpha, direction=Direction.LOWER)

    @functools.cached_property
    def _groups(self) -> tuple[_Group, ...]:
        return tuple(map(_Group, releases_by_kind(self.cost)))

    def _worst(self, intervals: Sequence[Interval], quantity: str, **at: Any) -> Bound:
        return self._answer(_largest(intervals), quantity, **at)

    def _answer(self, interval: Interval, quantity: str, **at: Any) -> Bound:
        """A bound, with its interval unless parallel parts in which the secret may not occur were counted."""
        return self._enclosed(interval, quantity, attained=not any(events.with_parallel_parts(self.event)), **at)

    def _assumptions(self, event: DpEvent) -> tuple[str, ...]:
        drawn = any(np.count_nonzero(kind.weights) > 1 for view in releases_by_kind(self.cost) for kind in view)
        return (_PUBLIC, *([_FRESH] if drawn else [])) if self.cost else ()

    def _zero(self) -> Releases:
        return Counter()

    def _add(self, costs: Sequence[Releases]) -> Releases:
        return sum(costs, start=Counter())

    def _times(self, cost: Releases, count: int) -> Releases:
        return Counter({event: count * times for event, times in cost.items()})

    def _largest(self, costs: Sequence[Releases], how_many: int) -> Releases:
        return self._add(costs)


class _Group:
    """All releases as one kind of secrets sees them."""

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
    """The enclosure of the largest of several enclosed numbers."""
    return Interval(max(x.lower for x in intervals), max(x.upper for x in intervals))


def _release(accountant: SecretProtectionAccountant, event: Release) -> Releases:
    return Counter([event])


def _non_private(accountant: SecretProtectionAccountant, event: dp_event.NonPrivateDpEvent) -> Releases:
    return Counter([SecretReleaseDpEvent(0.0, (0.0, 1.0))])


SecretProtectionAccountant.handlers = {
    SecretReleaseDpEvent: _release,
    SecretGroupsReleaseDpEvent: _release,
    dp_event.NonPrivateDpEvent: _non_private,
}
