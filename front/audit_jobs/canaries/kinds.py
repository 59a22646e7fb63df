"""Kinds of canaries: how each is drawn, checked and scored, and what is said of it. A new kind is a class and a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from cupel.accounting.arrays import Floats
from cupel.attacks.canaries import texts
from cupel.attacks.canaries.rows import Column, comparable_columns, draw_unusual_rows, nearest
from cupel.attacks.canaries.texts import Echo

if TYPE_CHECKING:
    from cupel.audit_jobs.canaries.data import Data


_DISTANCES = 10**8
"""Between candidates and rows of the data, at most about; that takes about ten seconds."""


class Canary(BaseModel):
    """A candidate: a text of which the end is what is looked for, or a row of a table.

    Attributes:
        text: of a key or an echo.
        start: where its end begins.
        row: of a table, column by column.
        reference: what its score is measured against: log-probability of the end under the data's own model, or
            distance to the nearest row of the data.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    start: int = 0
    row: dict[str, str | int | float | bool | None] | None = None
    reference: float = 0.0

    @property
    def end(self) -> str:
        """What is looked for."""
        return self.text[self.start :]

    @property
    def echo(self) -> Echo:
        """The canary as the attack takes it."""
        return Echo(self.text, self.start)


class Synthetic(Protocol):
    """The synthetic file of which canaries are scored, read once, row by row."""

    columns: set[str]
    rows: int

    def texts(self, path: Path, column: str) -> Iterator[str]: ...
    def all(self, path: Path, names: set[str]) -> Iterator[Mapping[str, Any]]: ...


class CanaryKind(ABC):
    """One kind of canary.

    Attributes:
        name: on the command line and in the manifest.
        what: what each canary is, for the instructions of a plan.
        attack: how it is scored, in words.
        of_text: whether it is a text, in one column; else it is a row of a table like the data's, which must be given.
        fixed_guesses: whether the number of guesses is fixed beforehand; else every canary that is found is guessed.
        like_data: whether it is made up from what the data look like.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    attack: ClassVar[str]
    of_text: ClassVar[bool] = True
    fixed_guesses: ClassVar[bool] = True
    like_data: ClassVar[bool] = True

    @abstractmethod
    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        """Draws canaries, all alike.

        Args:
            count: how many.
            spare: as many more may be drawn to learn from; they are nowhere planted.
            data: that canaries are put into.
            column: of the text.
            rng: fresh.
        """

    def check(self, canary: Canary) -> None:
        """Raises `ValueError` for what is no canary of this kind."""
        if not canary.end:
            raise ValueError("canaries of text have an end that is looked for")

    @abstractmethod
    def score(
        self,
        every: Sequence[Canary],
        planted: Sequence[Canary],
        columns: Sequence[Column],
        text: str,
        path: Path,
        file: Synthetic,
    ) -> tuple[Floats, Floats]:
        """Scores, larger for "in the data": by the synthetic file, and had it held a copy of each planted canary too.

        Args:
            every: candidates and control candidates.
            planted: the candidates that are in the data.
            columns: of the table.
            text: column of the text.
            path: of the file.
            file: reads it.

        Returns:
            Two arrays of shape (len(every),).
        """


class KeyCanaries(CanaryKind):
    """Sentences with a random 5-digit key."""

    name = "key"
    what = "a sentence with a random 5-digit key; the audit looks for keys that synthetic texts print"
    attack = "a key that a synthetic text prints is guessed to be in the data"
    fixed_guesses = False
    like_data = False

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        written = [texts.key_text(key) for key in texts.draw_keys(count, data.keys, rng)]
        return [Canary(text=text, start=len(text) - 5) for text in written]

    def score(
        self,
        every: Sequence[Canary],
        planted: Sequence[Canary],
        columns: Sequence[Column],
        text: str,
        path: Path,
        file: Synthetic,
    ) -> tuple[Floats, Floats]:
        keys = [canary.end for canary in every]
        plain = texts.printed_keys(file.texts(path, text), keys).astype(np.float64)
        copied = texts.printed_keys([canary.text for canary in planted], keys)
        return plain, np.maximum(plain, copied)


class EchoCanaries(CanaryKind):
    """Texts that begin as the data do and end in random common words."""

    name = "echo"
    what = (
        "a text that begins as the data do and ends in random common words; the audit looks for synthetic texts that "
        "make the endings likely"
    )
    attack = (
        "the log-probability of a canary's ending under an n-gram model of the synthetic text, less that under one of "
        "the data and of other such canaries; the highest are guessed to be in the data"
    )

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        """The spare ones are as many as are planted: the reference knows what echoes are like, but not which."""
        known = self._wording(data, column, rng)
        echoes = texts.draw_echoes(count + spare, known, rng)
        echoes, others = echoes[:count], [echo.text for echo in echoes[count:]]
        likely, _ = texts.echo_log_probabilities([*known, *others], echoes)
        return [
            Canary(text=echo.text, start=echo.start, reference=float(value))
            for echo, value in zip(echoes, likely, strict=True)
        ]

    @staticmethod
    def _wording(data: Data, column: str, rng: np.random.Generator) -> list[str]:
        """What echoes sound like: the data, as much as one model is fitted to, or without data the builtin notes."""
        if data.path is None:
            from cupel.mechanisms.data.corpora import notes

            return [text for text, _ in notes(400, 0)]
        known = [str(row[column]) for row in data.rows if row.get(column)]
        known = [known[place] for place in rng.permutation(len(known))]
        lengths = np.cumsum([len(text) for text in known])
        return known[: max(1, int(np.searchsorted(lengths, texts.PIECE)))]

    def score(
        self,
        every: Sequence[Canary],
        planted: Sequence[Canary],
        columns: Sequence[Column],
        text: str,
        path: Path,
        file: Synthetic,
    ) -> tuple[Floats, Floats]:
        references = np.array([canary.reference for canary in every])
        echoes, copies = [canary.echo for canary in every], [canary.text for canary in planted]
        plain, copied = texts.echo_log_probabilities(file.texts(path, text), echoes, copied=copies)
        return plain - references, copied - references


class TableCanaries(CanaryKind):
    """Rows of values that stand together in no row of the data."""

    name = "table"
    what = "a row of values that stand together in no row of the data; the audit looks for synthetic rows nearby"
    attack = (
        "minus the distance to the nearest synthetic row, as a share of the distance to the nearest row of the data; "
        "the highest are guessed to be in the data"
    )
    of_text = False

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        known = data.rows[:: max(1, 2 * count * len(data.rows) // _DISTANCES)]
        rows, distances = draw_unusual_rows(count, data.columns, known, rng)
        return [Canary(row=row, reference=float(value)) for row, value in zip(rows, distances, strict=True)]

    def check(self, canary: Canary) -> None:
        if canary.row is None or canary.reference <= 0:
            raise ValueError("canaries of a table have a row and a distance")

    def score(
        self,
        every: Sequence[Canary],
        planted: Sequence[Canary],
        columns: Sequence[Column],
        text: str,
        path: Path,
        file: Synthetic,
    ) -> tuple[Floats, Floats]:
        references = np.array([canary.reference for canary in every])
        rows = [canary.row or {} for canary in every]
        names = {column.name for column in comparable_columns(columns)}
        plain, read = nearest(rows, columns, file.all(path, names))
        missing = sorted(names - file.columns)
        if read and missing:
            raise ValueError(f"{path}: there is no column {missing[0]!r}, which the data of the plan have")
        copies: Iterable[Mapping[str, Any]] = [canary.row or {} for canary in planted]
        copied, _ = nearest(rows, columns, copies)
        return -plain / references, -np.minimum(plain, copied) / references


KINDS: dict[str, CanaryKind] = {kind.name: kind for kind in (KeyCanaries(), EchoCanaries(), TableCanaries())}
"""Every kind by its name."""
