"""The texts of a file that are used: all, or a uniform sample of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dpassay.base.errors import InputError, input_errors
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.data.records import read_texts
from dpassay.utility.result import Result

if TYPE_CHECKING:
    from dpassay.data.word_runs import Words


@dataclass(frozen=True)
class TextFile(Result):
    """A file of texts: their number, and the number of texts drawn from it."""

    path: Path
    texts: int
    used: int


@dataclass(frozen=True, eq=False)
class TextSample:
    """The texts of a file that are drawn, in arbitrary order, with their labels, or None, and the number of texts in
    the file; `columns` are those of text and label, `empty` allows empty texts, `reading` says how it is written."""

    path: Path
    columns: tuple[str, str | None]
    texts: list[str]
    labels: list[str] | None
    total: int
    empty: bool
    reading: TextOptions

    @classmethod
    def read(
        cls,
        path: Path,
        text: str,
        label: str | None,
        *,
        limit: int,
        seed: int,
        empty: bool = False,
        reading: TextOptions = TEXTS,
    ) -> TextSample:
        """Draws at most `limit` texts uniformly, reading the file once (Vitter 1985, algorithm R).

        Raises:
            InputError: for a file that cannot be read, or holds fewer than 2 texts.
        """
        draw, rows, total = random.Random(seed), list[tuple[str, str | None]](), 0
        with input_errors():
            for total, row in enumerate(read_texts(path, text=text, label=label, empty=empty, stated=reading), 1):
                if len(rows) < limit:
                    rows.append(row)
                elif (index := draw.randrange(total)) < limit:
                    rows[index] = row
        if total < 2:
            held = "one text" if total else "no text"
            raise InputError(f"{path}: holds {held}; utility compares at least 2 on each side")
        labels = [name or "" for _, name in rows] if label is not None else None
        return cls(path, (text, label), [text for text, _ in rows], labels, total, empty, reading)

    def all_words(self, words: Words) -> Iterator[Words]:
        """The words of every text of the file, piece by piece; `words`, of the texts drawn, where those are all of
        them."""
        from dpassay.data.word_runs import Words

        if self.total == len(self.texts):
            yield from words.pieces()
            return
        texts = (text for text, _ in read_texts(self.path, text=self.columns[0], empty=self.empty, stated=self.reading))
        while len(piece := Words.of(islice(texts, 4096))):
            yield piece

    def draw(self, count: int, seed: int) -> list[str]:
        """`count` of the texts, drawn uniformly without replacement."""
        return random.Random(seed).sample(self.texts, count)

    @property
    def file(self) -> TextFile:
        """The file, its size, and the number of texts drawn."""
        return TextFile(self.path, self.total, len(self.texts))

    def part(self, chosen: Sequence[bool] | None = None) -> tuple[list[str], list[str]]:
        """Texts and labels, all or some of them."""
        assert self.labels is not None
        if chosen is None:
            return self.texts, self.labels
        kept = [i for i, take in enumerate(chosen) if take]
        return [self.texts[i] for i in kept], [self.labels[i] for i in kept]
