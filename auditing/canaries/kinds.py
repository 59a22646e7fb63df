"""Kinds of canaries: how each is drawn, checked and scored. A new kind is a class and a row in `KINDS`.

How echoes can be scored is in `dpassay.auditing.canaries.echo_scores`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from dpassay.attacks.canaries import texts
from dpassay.attacks.canaries.pairs import column_pairs, draw_rare_rows, pair_counts, pair_scores
from dpassay.attacks.canaries.rows import (
    ColumnRange,
    Row,
    comparable_columns,
    draw_categories,
    draw_edge_rows,
    draw_rows,
    draw_unusual_rows,
    nearest,
)
from dpassay.attacks.canaries.spelling import Value
from dpassay.auditing.canaries.candidate import Canaries, Canary, Scores
from dpassay.auditing.canaries.echo_scores import EchoScore, ModelScore, NGramScore
from dpassay.auditing.canaries.scorer import PlannedScorer
from dpassay.base.arrays import Floats
from dpassay.base.progress import Progress
from dpassay.data.columns import word_of

if TYPE_CHECKING:
    from dpassay.auditing.canaries.synthetic import SyntheticData
    from dpassay.auditing.data import Data


_DISTANCES = 10**8
"""About the largest number of distances between candidates and rows that are computed; takes about ten seconds."""


class CanaryKind(ABC):
    """One kind of canary.

    Attributes:
        name: on the command line and in the manifest.
        what: what a canary is, for the instructions of a plan.
        attack: how a canary is scored, for reports.
        of_text: whether a canary is a text in one column. Otherwise it is a row of a table.
        fixed_guesses: whether the number of guesses is fixed beforehand. Otherwise every canary that is found is
            guessed to be in the data.
        like_data: whether canaries are made to look like the data.
        scores: the ways to score it that a plan can choose from, the first by default; empty if there is one.
        model_attack: how a canary is scored by a language model; empty if it is not.
        work: what takes most of the time of scoring, in a word.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    attack: str
    of_text: ClassVar[bool] = True
    fixed_guesses: ClassVar[bool] = True
    like_data: ClassVar[bool] = True
    scores: ClassVar[Mapping[str, object]] = {}
    model_attack: str = ""
    work: str = "Reading"

    def scored_by(self, name: str, scorer: PlannedScorer | None = None) -> CanaryKind:
        """This kind with one of its `scores`, and the language model that it takes; an empty name is the default."""
        return self

    def working(self, device: str, progress: Progress) -> CanaryKind:
        """This kind, whose language model, if it takes one, runs on a device and shows progress."""
        return self

    @abstractmethod
    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        """Draws canaries, all from one distribution.

        Args:
            count: how many.
            spare: how many more may be drawn to fit a reference model; they are never planted.
            data: that the canaries will be added to.
            column: of the text.
            rng: source of the draw.

        Raises:
            ValueError: one line, if the data do not allow them.
        """

    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        """Raises `ValueError` if it is not a canary of this kind.

        Args:
            canary: of a plan.
            columns: of the table, for rows.
        """
        if not canary.end:
            raise ValueError("a canary of text must have an end")

    @abstractmethod
    def score(self, every: Canaries, planted: Canaries, columns: Sequence[ColumnRange], file: SyntheticData) -> Scores:
        """Scores canaries, larger for "in the data".

        Args:
            every: candidates and control candidates.
            planted: the candidates that are in the data.
            columns: of the table, for rows.
            file: the synthetic file.
        """

    def likelihood_scores(self, every: Canaries, likely: Floats, *, calibrated: bool) -> Floats:
        """Scores canaries by a language model, larger for "in the data".

        Args:
            every: candidates and as many control candidates.
            likely: log-probability of the ending of each, shape (n,).
            calibrated: whether that under a public model was subtracted.

        Raises:
            ValueError: if a model cannot score this kind.
        """
        raise ValueError(f"canaries of kind {self.name} are rows, which a language model does not score; name a file")


class KeyCanaries(CanaryKind):
    """Sentences with a random number that is written like those in the data."""

    name = "key"
    what = (
        "a sentence with a random number, written like the numbers in the data; the audit looks for the numbers that "
        "synthetic texts print"
    )
    attack = "a number that a synthetic text prints is guessed to be in the data"
    model_attack = (
        "the log-probability of a number and what follows under the model, less that under the base model if one was "
        "given; a number that is likelier than those of all control candidates is guessed to be in the data"
    )
    fixed_guesses = False
    like_data = False

    def likelihood_scores(self, every: Canaries, likely: Floats, *, calibrated: bool) -> Floats:
        return np.asarray(likely - likely[len(every) // 2 :].max())

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        sentences = data.templates or texts.TEMPLATES
        keys = texts.draw_keys(count, data.numbers, rng, data.forms)
        drawn = []
        for key, index in zip(keys, rng.integers(len(sentences), size=count), strict=True):
            before, after = sentences[index].split(texts.PLACE)
            drawn.append(Canary(text=before + key + after, start=len(before), value=key))
        return drawn

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[ColumnRange], file: SyntheticData) -> Scores:
        keys = [canary.key for canary in every]
        plain = texts.printed_keys(file.some_texts(), keys).astype(np.float64)
        copied = texts.printed_keys([canary.text for canary in planted], keys)
        return plain, np.maximum(plain, copied)


@dataclass(frozen=True)
class EchoCanaries(CanaryKind):
    """Texts that begin as the data do and end in words that are found together nowhere."""

    scorer: EchoScore = NGramScore()  # noqa: RUF009 (it has no state)

    name = "echo"
    what = (
        "a text that begins as the data do and ends in random words; the audit looks for synthetic texts that make the "
        "endings likely"
    )
    scores: ClassVar[Mapping[str, EchoScore]] = {score.name: score for score in (NGramScore(), ModelScore())}

    @property
    def attack(self) -> str:  # type: ignore[override]
        return self.scorer.attack

    @property
    def work(self) -> str:  # type: ignore[override]
        return self.scorer.work

    @property
    def model_attack(self) -> str:  # type: ignore[override]
        return (
            "the log-probability of a canary's ending under the model, less that under the base model, or, if none was "
            f"given, under {self.scorer.reference}; the highest are guessed to be in the data"
        )

    def scored_by(self, name: str, scorer: PlannedScorer | None = None) -> CanaryKind:
        return replace(self, scorer=self.scores[name].by(scorer)) if name else self

    def working(self, device: str, progress: Progress) -> CanaryKind:
        return replace(self, scorer=self.scorer.working(device, progress))

    def likelihood_scores(self, every: Canaries, likely: Floats, *, calibrated: bool) -> Floats:
        references = np.array([canary.reference for canary in every])
        return np.asarray(likely if calibrated else likely - references)

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        """No candidate is among the texts that a reference model is fitted to."""
        return self.scorer.draw(count, spare, self._wording(data, column, rng), rng)

    @staticmethod
    def _wording(data: Data, column: str, rng: np.random.Generator) -> list[str]:
        """Texts that echoes are modelled on: as much of the data as one model is fitted to, or builtin notes."""
        if data.path is None:
            from dpassay.data.corpora import notes

            return [text for text, _ in notes(400, 0)]
        known = [str(row[column]) for row in data.rows if row.get(column)]
        known = [known[index] for index in rng.permutation(len(known))]
        lengths = np.cumsum([len(text) for text in known])
        return known[: max(1, int(np.searchsorted(lengths, texts.PIECE)))]

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[ColumnRange], file: SyntheticData) -> Scores:
        plain, copied = self.scorer.likely(every, planted, file)
        references = np.array([canary.reference for canary in every])
        return plain - references, copied - references


Draw: TypeAlias = Callable[[int, Sequence[ColumnRange], np.random.Generator], list[dict[str, Value]]]


class RowScore(ABC):
    """How rows are scored, and which rows suit that.

    Attributes:
        name: on the command line and in the manifest.
        attack: how a canary is scored, for reports.
    """

    name: ClassVar[str]
    attack: ClassVar[str]

    @abstractmethod
    def draw(self, count: int, data: Data, rng: np.random.Generator, draw: Draw) -> list[Canary]:
        """Draws rows with `draw` and keeps those that stand out from the data."""

    @abstractmethod
    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        """Raises `ValueError` if a canary lacks what the score needs; as `CanaryKind.check`."""

    @abstractmethod
    def score(
        self,
        every: Canaries,
        planted: Canaries,
        columns: Sequence[ColumnRange],
        rows: Iterable[Row],
        written: Sequence[ColumnRange],
    ) -> Scores:
        """As `CanaryKind.score`, for the rows of a synthetic file, and the columns as it writes them."""


class NearestScore(RowScore):
    """By the distance to the nearest synthetic row: finds copies, rows with little noise, interpolation."""

    name = "nearest"
    attack = (
        "minus the distance to the nearest synthetic row, as a share of the distance to the nearest row of the data; "
        "the highest are guessed to be in the data"
    )

    def draw(self, count: int, data: Data, rng: np.random.Generator, draw: Draw) -> list[Canary]:
        known = data.rows[:: max(1, 2 * count * len(data.rows) // _DISTANCES)]
        rows, distances = draw_unusual_rows(count, data.columns, known, rng, draw)
        return [Canary(row=row, reference=float(value)) for row, value in zip(rows, distances, strict=True)]

    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        if canary.row is None or canary.reference <= 0:
            raise ValueError("a canary of a table must have a row and a distance")

    def score(
        self,
        every: Canaries,
        planted: Canaries,
        columns: Sequence[ColumnRange],
        rows: Iterable[Row],
        written: Sequence[ColumnRange],
    ) -> Scores:
        references = np.array([canary.reference for canary in every])
        wanted = [canary.row or {} for canary in every]
        columns = [
            replace(column, compared=column.compared and as_written.compared)
            for column, as_written in zip(columns, written, strict=True)
        ]
        plain, _ = nearest(wanted, columns, rows, written)
        copied, _ = nearest(wanted, columns, [canary.row or {} for canary in planted])
        return -plain / references, -np.minimum(plain, copied) / references


class PairScore(RowScore):
    """By counts of pairs of columns: finds generators that keep the counts of pairs of columns too exactly."""

    name = "pairs"
    attack = (
        "how often synthetic rows have a canary's values in pairs of columns, beside how often the data have them, "
        "over the pairs that the generator keeps; the highest are guessed to be in the data"
    )

    def draw(self, count: int, data: Data, rng: np.random.Generator, draw: Draw) -> list[Canary]:
        if not data.rows:
            raise ValueError("score pairs compares with counts of the data; name their file with --like")
        rows, expected = draw_rare_rows(count, data.columns, data.rows, data.count, rng, draw)
        return [Canary(row=row, expected=tuple(of)) for row, of in zip(rows, expected.round(2).tolist(), strict=True)]

    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        pairs = len(column_pairs(len(comparable_columns(columns))))
        if canary.row is None or len(canary.expected) != pairs or min(canary.expected) < 0:
            raise ValueError("a canary that is scored by pairs must have a row and an expected count for each pair")

    def score(
        self,
        every: Canaries,
        planted: Canaries,
        columns: Sequence[ColumnRange],
        rows: Iterable[Row],
        written: Sequence[ColumnRange],
    ) -> Scores:
        expected = np.array([canary.expected for canary in every])
        wanted = [canary.row or {} for canary in every]
        plain = pair_counts(wanted, columns, rows, written)
        copies = pair_counts(wanted, columns, [canary.row or {} for canary in planted])
        both = zip(columns, written, strict=True)
        left = [not as_written.compared for column, as_written in both if column in comparable_columns([column])]
        return pair_scores(plain, expected, left), pair_scores(plain.plus(copies, 1), expected, left)


@dataclass(frozen=True)
class TableCanaries(CanaryKind):
    """Rows of values that stand together in no row of the data."""

    scorer: RowScore = NearestScore()  # noqa: RUF009 (it has no state)

    name = "table"
    what = (
        "a row of values that stand together in no row of the data; the audit looks for what it does to synthetic rows"
    )
    of_text = False
    scores: ClassVar[Mapping[str, RowScore]] = {score.name: score for score in (NearestScore(), PairScore())}

    @property
    def attack(self) -> str:  # type: ignore[override]
        return self.scorer.attack

    def scored_by(self, name: str, scorer: PlannedScorer | None = None) -> CanaryKind:
        return replace(self, scorer=self.scores[name]) if name else self

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        return self.scorer.draw(count, data, rng, draw_rows)

    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        self.scorer.check(canary, columns)

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[ColumnRange], file: SyntheticData) -> Scores:
        used = comparable_columns(columns)
        written = file.written(columns, lambda column: column in used)
        rows = file.rows({column.name for column in comparable_columns(written)})
        return self.scorer.score(every, planted, columns, rows, written)


class EdgeCanaries(TableCanaries):
    """Rows whose numbers lie at the ends of their ranges."""

    name = "edge"
    what = (
        "a row whose numbers and dates lie at the ends of their public ranges, or, without a schema, at and beyond the "
        "ends of those in the data; the audit looks for what it does to synthetic rows, and finds rare rows that are "
        "copied and ranges that are taken from the data"
    )

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        if not any(column.has_edges for column in data.columns):
            raise ValueError("canaries of kind edge have extreme numbers or dates, but no column holds any")
        return self.scorer.draw(count, data, rng, partial(draw_edge_rows, beyond=not data.public))


class CategoryCanaries(CanaryKind):
    """Rows with a category that no other row has."""

    name = "category"
    what = (
        "a row with a category of its own, which changes the domain of its column; the audit looks for synthetic rows "
        "that have the category, and finds label sets that are taken from the data. A generator with a fixed domain "
        "refuses or changes such rows"
    )
    attack = "a new category that a synthetic row has is guessed to be in the data"
    of_text = False
    fixed_guesses = False

    def draw(self, count: int, spare: int, data: Data, column: str, rng: np.random.Generator) -> list[Canary]:
        words = [column for column in data.columns if column.kind == "word" and not _is_boolean(column)]
        if not words:
            raise ValueError(
                "canaries of kind category have a new category each, but no column holds at most 200 distinct words; "
                "a schema can say that numbers are categories (--schema)"
            )
        new = {column.name: iter(draw_categories(count, column, rng)) for column in words}
        drawn = []
        for row, index in zip(draw_rows(count, data.columns, rng), rng.integers(len(words), size=count), strict=True):
            name = words[index].name
            category = next(new[name])
            drawn.append(Canary(row={**row, name: category}, value=str(category), column=name))
        return drawn

    def check(self, canary: Canary, columns: Sequence[ColumnRange]) -> None:
        if canary.row is None or canary.column not in canary.row or not canary.value:
            raise ValueError("a canary with a new category must have a row and its column")

    def score(self, every: Canaries, planted: Canaries, columns: Sequence[ColumnRange], file: SyntheticData) -> Scores:
        names = sorted({canary.column for canary in every})
        wanted: dict[str, dict[str, int]] = {name: {} for name in names}
        for index, canary in enumerate(every):
            wanted[canary.column][word_of(canary.value)] = index
        plain = np.zeros(len(every))
        known = [
            replace(column, unused=(*column.unused, *wanted[column.name])) if column.name in wanted else column
            for column in columns
        ]
        file.written(known, lambda column: column.name in wanted)
        for row in file.rows(set(names)):
            for name in names:
                result = wanted[name].get(word_of(row.get(name)))
                if result is not None:
                    plain[result] = 1
        chosen = {(canary.column, canary.value) for canary in planted}
        copied = np.array([(canary.column, canary.value) in chosen for canary in every], dtype=np.float64)
        return plain, np.maximum(plain, copied)


def _is_boolean(column: ColumnRange) -> bool:
    return any(isinstance(value, bool) for value in column.values)


KINDS: dict[str, CanaryKind] = {
    kind.name: kind for kind in (KeyCanaries(), EchoCanaries(), TableCanaries(), EdgeCanaries(), CategoryCanaries())
}
"""Every kind by its name."""
