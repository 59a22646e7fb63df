"""Releases for several groups of secrets: their laws of occurrences, their noise, and the release as one group sees it.

The secrets of one group are covered by a law of occurrences that is stochastically larger than each of theirs. A single
law may need much more noise than any of the secrets: one secret may occur once for certain, another rarely but many
times, and the law above both does both. So a group is split into kinds of secrets until their laws together need hardly
more noise than the secrets themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
from dp_accounting import DpEvent
from numpy.typing import ArrayLike

from dpassay.accounting import events
from dpassay.accounting.events import SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.conversions import mu_for
from dpassay.accounting.secret_protection.noise import least_noise, r_of_rounds
from dpassay.accounting.secret_protection.poisson_binomial_laws import Occurrences, envelope, occurrences, trimmed
from dpassay.base import validate

Release = SecretReleaseDpEvent | SecretGroupsReleaseDpEvent

_NEGLIGIBLE = 1e-30
_EXTRA_NOISE = 0.01  # the laws of kinds may need this much more noise than the secrets, relatively


def law_of(event: SecretReleaseDpEvent) -> Occurrences:
    """The event's law of occurrences: its weights divided by their sum, two roundings each."""
    total = math.fsum((*event.weights, event.remainder))
    law = trimmed(np.array(event.weights) / total, 4 * 2.0**-53, _NEGLIGIBLE)
    return law._replace(lost_mass=(law.lost_mass + event.remainder / total) * (1 + 2.0**-50))


def releases_for_groups(
    groups: Sequence[Sequence[ArrayLike]],
    goals: Sequence[SecretProtection],
    rounds: int = 1,
    remainder: float = 0.0,
) -> tuple[Release, ...]:
    """One release as each of several groups of secrets sees it, with noise that meets the goal of every group.

    The noise is certified in the way `SecretProtectionAccountant` reads it: from each event's law, including laws that
    cover several secrets and what is left out of them. It is at most about 2 % above the least that the worst secret
    needs alone.

    Args:
        groups: for each group and each of its secrets, the probability that each of its records is drawn.
        goals: the (p, r) of each group.
        rounds: releases with fresh noise and fresh occurrences.
        remainder: the least probability with which each release is treated as revealing the secret.

    Raises:
        ValueError: if there are not as many goals as groups, or no noise is certified to reach a goal.
    """
    validate.integer(minimum=1, rounds=rounds)
    if len(goals) != len(groups):
        raise ValueError(f"give one goal per group, not {len(goals)} for {len(groups)} groups")
    tail = max(1e-17 * min((goal.p for goal in goals), default=1.0) / rounds, 1e-300)
    laws = [_distinct_laws(secrets, tail) for secrets in groups]
    each = [(law, goal) for its, goal in zip(laws, goals, strict=True) for law in its]
    least = least_noise([law for law, _ in each], [g.p for _, g in each], [g.r for _, g in each], rounds)
    kinds = [
        _covering_laws(its, goal, rounds, least * (1 + _EXTRA_NOISE)) for its, goal in zip(laws, goals, strict=True)
    ]
    bare = [
        [SecretReleaseDpEvent(0.0, law.weights.tolist(), max(law.lost_mass, remainder)) for law in its] for its in kinds
    ]
    asked = [(law_of(release), goal) for its, goal in zip(bare, goals, strict=True) for release in its]
    sigma = certified_noise(least, asked, rounds)
    results = [[attrs.evolve(release, noise_multiplier=sigma) for release in its] for its in bare]
    return tuple(its[0] if len(its) == 1 else SecretGroupsReleaseDpEvent(its) for its in results)


def certified_noise(sigma: float, asked: Sequence[tuple[Occurrences, SecretProtection]], rounds: int) -> float:
    """σ or a little more, certified for all laws by enclosures as wide as the accountant's; each step doubles the last.

    r decreases with σ, but its enclosure may be wider at a larger σ, so after each step all laws are certified again.
    """
    step, certified = 2.0**-20, 0
    while certified < len(asked):
        law, goal = asked[certified]
        certified += 1
        while r_of_rounds(law, sigma, goal.p, rounds).upper > goal.r:
            sigma, step, certified = (sigma or 1 / 64) * (1 + step), 2 * step, 0
            if sigma > 1e30:
                raise ValueError(f"no noise is certified to reach r = {goal.r!r} for p = {goal.p!r}; give a larger r")
    return sigma


def releases_of_lengths(
    lengths: Sequence[float], goals: Sequence[SecretProtection], rounds: int = 1, remainder: float = 0.0
) -> tuple[float, tuple[SecretReleaseDpEvent, ...]]:
    """The noise of a sum in which secrets always occur, and one release of it as each of several groups sees it.

    A secret of group g adds a vector of length at most `lengths[g]` to every release. So all releases together are one
    Gaussian, with μ = √rounds·length/σ. The noise is certified in the way `SecretProtectionAccountant` reads it.

    Proof: docs/proofs/secret-weights.md, Theorem 3.

    Args:
        lengths: of each group, ≥ 0.
        goals, rounds, remainder: as for `releases_for_groups`.

    Returns:
        The standard deviation σ of the noise, and for each group an event whose noise multiplier is σ/length, rounded
        down.

    Raises:
        ValueError: if there are not as many goals as groups, or no noise is certified to reach a goal.
    """
    validate.integer(minimum=1, rounds=rounds)
    for length in lengths:
        validate.non_negative(lengths=length)
    mus = [mu_for(goal.p, goal.r) for goal in goals]
    needed = [length / mu if mu else math.inf for length, mu in zip(lengths, mus, strict=True) if length]
    sigma, step = math.sqrt(rounds) * max(needed, default=0.0), 2.0**-44
    while True:
        if sigma > 1e30:
            raise ValueError("r is too close to p: no noise is certified to reach it; give a larger r")
        releases = tuple(_certain_release(sigma, length, remainder) for length in lengths)
        certified = (
            r_of_rounds(law_of(release), release.noise_multiplier, goal.p, rounds).upper <= goal.r
            for release, goal in zip(releases, goals, strict=True)
        )
        if all(certified):
            return sigma, releases
        sigma, step = sigma * (1 + step), 2 * step


def _certain_release(sigma: float, length: float, remainder: float) -> SecretReleaseDpEvent:
    """A release in which a secret always occurs, and moves the sum by at most `length`; or never, if that is 0."""
    if not length:
        return SecretReleaseDpEvent(sigma, (1.0,))
    return SecretReleaseDpEvent(max(0.0, math.nextafter(sigma / length, -math.inf)), (0.0, 1.0), remainder)


def _distinct_laws(secrets: Sequence[ArrayLike], tail: float) -> list[Occurrences]:
    """The distinct laws of the secrets; without secrets, the law of one that never occurs."""
    rows: dict[bytes, ArrayLike] = {}
    for secret in secrets:
        trials = np.sort(np.asarray(secret, dtype=np.float64), axis=None)
        trials = trials[trials != 0]
        rows[trials.tobytes()] = trials
    return [occurrences(trials, tail) for trials in rows.values() or [np.zeros(0)]]


def _covering_laws(laws: Sequence[Occurrences], goal: SecretProtection, rounds: int, sigma: float) -> list[Occurrences]:
    """A few laws that cover the given ones, each certified at σ: sets of similar laws, halved until they are.

    A single law is kept whatever noise it needs.
    """
    results = []
    stack = [sorted(laws, key=lambda law: -float(law.weights[law.counts > 0].sum()))]
    while stack:
        some = stack.pop()
        above = envelope(some)
        if len(some) == 1 or r_of_rounds(above, sigma, goal.p, rounds, _EXTRA_NOISE / 10).upper <= goal.r:
            results.append(above)
        else:
            stack += [some[len(some) // 2 :], some[: len(some) // 2]]
    return results


def of_group(event: DpEvent, group: int) -> DpEvent:
    """`event` as one group of secrets sees it: each release for groups is replaced by that group's own.

    Args:
        event: a release, or a composition of releases, whose groups have the same order in all of them. A release that
            is not for groups is the same for all.
        group: counted from 0.

    Raises:
        ValueError: if a release does not have that group.
    """
    validate.integer(group=group)

    def own(part: DpEvent) -> DpEvent:
        if not isinstance(part, SecretGroupsReleaseDpEvent):
            return part
        if group >= len(part.groups):
            raise ValueError(f"group must be below {len(part.groups)}, the groups of the release, not {group}")
        kinds = part.groups[group]
        return SecretGroupsReleaseDpEvent((kinds,)) if isinstance(kinds, SecretGroupsReleaseDpEvent) else kinds

    return events.compose([(events.replaced(event, own), 1)])


def releases_by_kind(releases: Mapping[Release, int]) -> list[Counter[SecretReleaseDpEvent]]:
    """The releases as each kind of secrets sees them, with counts, equal ones once.

    Groups and kinds are those of one run. Other runs may number theirs differently: a secret may be of the first kind
    in one run and of the second in the next. So if releases for groups differ, each counts as its worst kind.
    """
    grouped = [event for event in releases if isinstance(event, SecretGroupsReleaseDpEvent)]
    if len(grouped) > 1:
        whole = Counter[SecretReleaseDpEvent]()
        for event, count in releases.items():
            whole[_worst_release(event)] += count
        return [whole]
    kinds = len(list(_kind_releases(grouped[0]))) if grouped else 1
    results: dict[frozenset[tuple[SecretReleaseDpEvent, int]], Counter[SecretReleaseDpEvent]] = {}
    seen = [Counter[SecretReleaseDpEvent]() for _ in range(kinds)]
    for event, count in releases.items():
        seen_by_kind = list(_kind_releases(event))
        for kind, view in enumerate(seen):
            view[seen_by_kind[kind if isinstance(event, SecretGroupsReleaseDpEvent) else 0]] += count
    for view in seen:
        results.setdefault(frozenset(view.items()), view)
    return list(results.values())


def _worst_release(event: Release) -> SecretReleaseDpEvent:
    """A release that costs every secret at least what `event` does: a law above all kinds, with the least noise."""
    if isinstance(event, SecretReleaseDpEvent):
        return event
    kinds = list(_kind_releases(event))
    law = envelope([law_of(kind) for kind in kinds])
    sigma = min((kind.noise_multiplier for kind in kinds if any(kind.weights[1:])), default=0.0)
    return SecretReleaseDpEvent(sigma, law.weights.tolist(), law.lost_mass)


def _kind_releases(event: Release) -> Iterator[SecretReleaseDpEvent]:
    if isinstance(event, SecretReleaseDpEvent):
        yield event
    else:
        for group in event.groups:
            yield from _kind_releases(group)
