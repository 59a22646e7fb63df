"""Kinds of canaries: how each is drawn, checked and scored. A new kind is a class and a row in `KINDS`."""

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
"""About the largest number of distances between candidates and rows that are computed; takes about ten seconds."""


class Canary(BaseModel):
    """A candidate: a text, whose end the attack looks for, or a row of a table.

    Attributes:
        text: of a key or an echo.
        start: where its end begins.
        row: of a table, by column.
        reference: what the score is compared with: log-probability of the end under a model of the data, or distance
            to the nearest row of the data.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    start: int = 0
    row: dict[str, str | int | float | bool | None] | None = None
    reference: float = 0.0

    @property
    def end(self) -> str:
        """The end of the text, which the attack looks for."""
        return self.text[self.start :]

    @property
    def echo(self) -> Echo:
        """The canary in the form that `cupel.attacks.canaries.texts` takes."""
        return Echo(self.text, self.start)


Canaries = Sequence[Canary]
Scores = tuple[Floats, Floats]
"""Scores by the synthetic file, and by the file with all planted canaries added; each of shape (canaries,)."""


class Synthetic(Protocol):
    """A synthetic file that is scored; it is read once, row by row."""

    path: Path
    columns: set[str]
    """The columns found so far."""

    def texts(self) -> Iterator[str]:
        """The text of each row."""

    def rows(self, names: set[str]) -> Iterator[Mapping[str, Any]]:
        """The named columns of each row."""


class CanaryKind(ABC):
    """One kind of canary.

    Attributes:
        name: on the command line and in the manifest.
        what: what a canary is, for the instructions of a plan.
        attack: how a canary is scored, for reports.
        of_text: whether a canary is a text in one column. Otherwise it is a row of a table, and the data must be given.
        fixed_guesses: whether the number of guesses is fixed beforehand. Otherwise every canary that is found is
            guessed to be in the data.
        like_data: whether canaries are made to look like the data.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    attack: ClassVar[str]
    of_text: ClassVar[bool] = True
    fixed_guesses: ClassVar[bool] = True
    like_data: ClassVar[bool] = True

    @abstractmethod
    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        """Draws canaries, all from one distribution.

        Args:
            count: how many.
            spare: how many more may be drawn to fit a reference model; they are never planted.
            data: that the canaries will be added to.
            column: of the text.
            rng: source of the draw.
        """

    def check(self, canary: Canary) -> None:
        """Raises `ValueError` if it is not a canary of this kind."""
        if not canary.end:
            raise ValueError("a canary of text must have an end")

    @abstractmethod
    def score(self, every: Canaries, planted: Canaries, columns: Sequence[Column], file: Synthetic) -> Scores:
        """Scores canaries, larger for "in the data".

        Args:
            every: candidates and control candidates.
            planted: the candidates that are in the data.
            columns: of the table, for rows.
            file: the synthetic file.
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

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[Column], file: Synthetic) -> Scores:
        keys = [canary.end for canary in every]
        plain = texts.printed_keys(file.texts(), keys).astype(np.float64)
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
        """The reference model is fitted to the data and to the spare echoes, but to no candidate."""
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
        """Texts that echoes are modelled on: as much of the data as one model is fitted to, or builtin notes."""
        if data.path is None:
            from cupel.mechanisms.data.corpora import notes

            return [text for text, _ in notes(400, 0)]
        known = [str(row[column]) for row in data.rows if row.get(column)]
        known = [known[place] for place in rng.permutation(len(known))]
        lengths = np.cumsum([len(text) for text in known])
        return known[: max(1, int(np.searchsorted(lengths, texts.PIECE)))]

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[Column], file: Synthetic) -> Scores:
        references = np.array([canary.reference for canary in every])
        echoes, copies = [canary.echo for canary in every], [canary.text for canary in planted]
        plain, copied = texts.echo_log_probabilities(file.texts(), echoes, copied=copies)
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
            raise ValueError("a canary of a table must have a row and a distance")

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[Column], file: Synthetic) -> Scores:
        references = np.array([canary.reference for canary in every])
        rows = [canary.row or {} for canary in every]
        names = {column.name for column in comparable_columns(columns)}
        plain, read = nearest(rows, columns, file.rows(names))
        missing = sorted(names - file.columns)
        if read and missing:
            raise ValueError(f"{file.path}: there is no column {missing[0]!r}, which the data of the plan have")
        copies: Iterable[Mapping[str, Any]] = [canary.row or {} for canary in planted]
        copied, _ = nearest(rows, columns, copies)
        return -plain / references, -np.minimum(plain, copied) / references


KINDS: dict[str, CanaryKind] = {kind.name: kind for kind in (KeyCanaries(), EchoCanaries(), TableCanaries())}
"""Every kind by its name."""
