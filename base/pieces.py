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


def text_pieces(texts: Iterable[str], size: int, characters: int) -> Iterator[list[str]]:
    """Lists of the next texts, at most `size` of them, and no more after so many characters; read once."""
    piece, length = list[str](), 0
    for text in texts:
        piece.append(text)
        length += len(text)
        if len(piece) == size or length >= characters:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece
