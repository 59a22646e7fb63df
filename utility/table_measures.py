"""Utility of a synthetic table: reads synthetic and real rows and computes every metric. The numbers are private."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpassay import __version__
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_results import synthetic_file
from dpassay.base.progress import Progress
from dpassay.data.columns import Rules
from dpassay.data.reader import FOUND, FileOptions
from dpassay.utility.measures import PRIVATE
from dpassay.utility.result import Result

if TYPE_CHECKING:
    from dpassay.data.table_schema import Row, Schema
    from dpassay.utility.table_classifiers import Efficacy
    from dpassay.utility.tables import Places, TableComparison
    from dpassay.utility.text_classifiers import TestedOn

NAME = "table-utility.json"


@dataclass(frozen=True)
class TableSettings:
    """Which tables `measure_table` compares, and how.

    Attributes:
        real: file of the private rows that the generator saw.
        schema: YAML file of the public schema of all tables.
        held_out: file of real rows that it did not see, or None.
        target: column that classifiers predict; None trains none.
        reading: how all files are written; what is not stated is found out.
        seed: of XGBoost, and of which rows are set apart for tests without a held-out file; public choices.
        progress: where to show progress.
    """

    real: Path
    schema: Path
    held_out: Path | None = None
    target: str | None = None
    reading: FileOptions = FOUND
    seed: int = 0
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class TableFile(Result):
    """A file of so many rows."""

    path: Path
    rows: int


@dataclass(frozen=True, kw_only=True)
class TableUtility(Result):
    """How far a synthetic table is from real ones. Private: see `PRIVATE`.

    Attributes:
        synthetic, real, held_out: the files compared; held_out is None if it was not given.
        seed: of classifiers.
        to_real: the synthetic rows beside those that the generator saw.
        to_held_out: the synthetic rows beside real ones that it did not see; None without a file of them.
        real_to_held_out: the real rows that the generator saw in place of the synthetic ones, beside those that it did
            not: what rows of the same distribution reach. None without a file of them.
        efficacy: scores of classifiers; None if no target was given.
    """

    synthetic: TableFile
    real: TableFile
    held_out: TableFile | None
    seed: int
    to_real: TableComparison
    to_held_out: TableComparison | None
    real_to_held_out: TableComparison | None
    efficacy: Efficacy | None

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types."""
        return {"schema": 1, "private": PRIVATE, "version": __version__, **super().to_json()}


def measure_table(synthetic: Path, settings: TableSettings) -> TableUtility:
    """All metrics of a synthetic table or run folder. Columns of a file that the schema lacks are not read.

    Raises:
        InputError: one line, if a file, a column, a cell or a setting is invalid.
    """
    from dpassay.data.table_schema import read_schema
    from dpassay.utility.table_classifiers import check_target, xgboost_classifier
    from dpassay.utility.tables import Places, compare_places

    schema, _ = read_schema(settings.schema)
    with input_errors():
        validate.integer(minimum=0, seed=settings.seed)
        if settings.target is not None:
            check_target(schema, settings.target)
            xgboost_classifier()  # fails early if it is not installed
    path = synthetic_file(synthetic)
    with settings.progress.stage("Reading") as step:
        written, known = (_rows(of, schema, settings.reading) for of in (path, settings.real))
        unseen = None if settings.held_out is None else _rows(settings.held_out, schema, settings.reading)
        made, real = Places(schema, written), Places(schema, known)
        other = None if unseen is None else Places(schema, unseen)
        step(1, 1)
    with settings.progress.stage("Comparing tables") as step:
        to_real = compare_places(made, real)
        to_held_out = None if other is None else compare_places(made, other)
        real_to_held_out = None if other is None else compare_places(real, other)
        step(1, 1)
    return TableUtility(
        synthetic=TableFile(path, made.count),
        real=TableFile(settings.real, real.count),
        held_out=None if settings.held_out is None or other is None else TableFile(settings.held_out, other.count),
        seed=settings.seed,
        to_real=to_real,
        to_held_out=to_held_out,
        real_to_held_out=real_to_held_out,
        efficacy=None if settings.target is None else _efficacy(made, known, other, settings.target, settings),
    )


def _efficacy(made: Places, known: list[Row], other: Places | None, target: str, settings: TableSettings) -> Efficacy:
    """Scores of classifiers on rows that the generator did not see; without any, on some of those that it saw."""
    from dpassay.utility.table_classifiers import efficacy, held_out
    from dpassay.utility.tables import Places

    with settings.progress.stage("Training classifiers") as step, input_errors():
        if other is not None:
            training, test = Places(made.schema, known), other
        else:
            apart = held_out(known, seed=settings.seed).tolist()
            training, test = (
                Places(made.schema, [row for row, is_apart in zip(known, apart, strict=True) if is_apart is chosen])
                for chosen in (False, True)
            )
        tested_on: TestedOn = "real" if other is None else "held_out"
        result = efficacy(made, training, test, target, seed=settings.seed, tested_on=tested_on)
        step(1, 1)
    return result


def _rows(path: Path, schema: Schema, reading: FileOptions) -> list[Row]:
    """The rows of a file in the words of a schema.

    Raises:
        InputError: one line that names the file and, if possible, the line, never a value.
    """
    from dpassay.data.records import read_rows

    rows = []
    with input_errors():
        rules = Rules(missing=reading.missing or (), decimal=reading.decimal)
        for where, cells in read_rows(path, schema.names, reading):
            try:
                rows.append(schema.row(cells, rules))
            except ValueError as error:
                raise InputError(f"{path}, {where}: {error}") from None
    if len(rows) < 2:
        held = "one row" if rows else "no rows"
        raise InputError(f"{path}: holds {held}; utility compares at least 2 on each side")
    return rows
