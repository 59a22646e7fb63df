"""Which accountant has a bound for which event, at which adjacency, with which rigor."""

from __future__ import annotations

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.comparison.comparison import Support, support
from dpassay.base import validate
from dpassay.base.errors import input_errors


def supported(adjacency: str | None) -> dict[Adjacency, tuple[Support, ...]]:
    """For an adjacency, or for all: which accountants support which events.

    Raises:
        InputError: for an unknown adjacency.
    """
    with input_errors():
        names = tuple(map(str, Adjacency))
        chosen = names if adjacency is None else (validate.one_of(names, adjacency=adjacency),)
    return {Adjacency(name): support(name) for name in chosen}
