"""Completion of the values of options and arguments in a shell.

A completion is called with what was typed so far. Words that take a slow import are looked up when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from dpassay.accounting.adjacency import RECORD_RELATIONS, SINGLE_KINDS, Adjacency, Unit
from dpassay.accounting.names import METHODS
from dpassay.base.defaults import DEVICES
from dpassay.jobs.mechanisms import SAMPLED_UNITS

Completion: TypeAlias = Callable[[str], list[str]]


def looked_up(words: Callable[[], Iterable[str]]) -> Completion:
    """A completion by the words that a function returns."""

    def beginning(incomplete: str) -> list[str]:
        return [str(word) for word in words() if word.startswith(incomplete)]

    return beginning


def complete(words: Iterable[str]) -> Completion:
    """A completion by these words."""
    return looked_up(lambda: words)


adjacency = complete(RECORD_RELATIONS)
any_adjacency = complete(Adjacency)
unit = complete(SINGLE_KINDS)
"""Those without a number: how many records a group has is typed."""
tested_unit = complete((str(Unit()),))
sampled_by = complete(SAMPLED_UNITS)
method = complete(METHODS)
device = complete(DEVICES)


@looked_up
def tested_adjacency() -> Iterable[str]:
    from dpassay.attacks.black_box.neighboring_data import RELATIONS

    return RELATIONS


@looked_up
def neighbors() -> Iterable[str]:
    from dpassay.attacks.black_box.probes import FINDS
    from dpassay.attacks.black_box.worst_cases import STRATEGIES

    return (*STRATEGIES, *FINDS)


@looked_up
def attack_on_model() -> Iterable[str]:
    from dpassay.auditing.membership.design import SIGNAL_ATTACKS

    return SIGNAL_ATTACKS


@looked_up
def attack_on_text() -> Iterable[str]:
    from dpassay.auditing.membership.design import TEXT_ATTACKS

    return TEXT_ATTACKS


@looked_up
def side() -> Iterable[str]:
    from dpassay.audits.games.membership_design import SIDES

    return SIDES


@looked_up
def canary_kind() -> Iterable[str]:
    from dpassay.auditing.canaries.kinds import KINDS

    return KINDS


@looked_up
def canary_score() -> Iterable[str]:
    from dpassay.auditing.canaries.kinds import KINDS

    return dict.fromkeys(score for kind in KINDS.values() for score in kind.scores)


@looked_up
def variant() -> Iterable[str]:
    from dpassay.attacks.secrets.games import VARIANTS

    return VARIANTS


@looked_up
def published_claim() -> Iterable[str]:
    from dpassay.claims.published.ids import published_ids

    return published_ids()
