"""Many items, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of the next `size` items, the last one with the rest; the items are read once."""
    remaining = iter(items)
    while piece := list(islice(remaining, size)):
        yield piece
