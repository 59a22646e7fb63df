"""The files of `dpassay audit membership`: signals of models, or candidate texts, each with its membership."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.base.arrays import Bools, Floats
from dpassay.base.errors import InputError, input_errors
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.data.column_names import no_column
from dpassay.data.reader import FOUND, CsvOptions
from dpassay.data.records import Located, read_rows, read_texts, text_of

_REFERENCE = re.compile(r"ref_([0-9]{1,6})")
_BOOLEANS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True, eq=False)
class Signals:
    """Signals of the target and of k reference models for n candidates and m population records.

    Attributes:
        target: shape (n,), larger where a model fits a record better.
        included: shape (n,), whether the target saw the candidate.
        references: shape (k, n).
        inclusion: shape (k, n), whether the reference model saw it; None if none saw any.
        population_target: shape (m,).
        population_references: shape (k, m).
    """

    target: Floats
    included: Bools
    references: Floats
    inclusion: Bools | None
    population_target: Floats
    population_references: Floats

    def reference_as_target(self) -> Signals | None:
        """The same game with the first reference model as the target; None if it saw no candidate."""
        if self.inclusion is None or not len(self.references):
            return None
        return Signals(
            self.references[0],
            self.inclusion[0],
            self.references[1:],
            self.inclusion[1:],
            self.population_references[0],
            self.population_references[1:],
        )


def read_signals(path: Path, unit: Unit, reading: CsvOptions = FOUND) -> Signals:
    """Reads a .csv, .tsv, .jsonl or .parquet file with one row for each record.

    Columns: ``target``; ``included`` (1 or 0, true or false), empty for a population record, which no model saw;
    ``ref_1``, ``ref_2``, …; ``ref_in_1``, … for all of them or none; and ``user`` at unit user, with one candidate for
    each user. Other columns are ignored.

    Raises:
        InputError: one line, with the row and the column of the error.
    """
    kept: list[tuple[bool | None, Floats, Bools]] = []
    names: list[str] = []
    has_inclusion, users = False, _Users(unit)
    for number, (where, row) in enumerate(_rows(path, reading)):
        if number == 0:
            names, has_inclusion = _columns(path, row)
        values = [_number(row, name, where) for name in ("target", *names)]
        inside = _membership(row, "included", where, empty=True)
        if inside is not None:
            users.add(row, where)
        seen = (
            []
            if inside is None or not has_inclusion
            else [bool(_membership(row, f"ref_in_{n[4:]}", where)) for n in names]
        )
        kept.append((inside, np.array(values), np.array(seen, dtype=np.bool_)))
    candidates = [row for row in kept if row[0] is not None]
    _check_sides(path, [bool(row[0]) for row in candidates])
    every, others = (
        _matrix([row[1] for row in candidates], len(names)),
        _matrix([row[1] for row in kept if row[0] is None], len(names)),
    )
    return Signals(
        target=every[0],
        included=np.array([row[0] for row in candidates], dtype=np.bool_),
        references=every[1:],
        inclusion=np.array([row[2] for row in candidates], dtype=np.bool_).T if has_inclusion else None,
        population_target=others[0],
        population_references=others[1:],
    )


def read_candidates(path: Path, text: str, unit: Unit, reading: TextOptions = TEXTS) -> tuple[list[str], Bools]:
    """Texts and their membership, from a .csv, .tsv, .jsonl or .parquet file with the columns `text` and ``included``.

    At unit user there is also a column ``user``, with one candidate for each user.

    Raises:
        InputError: one line, with the row and the column of the error, without any text.
    """
    texts: list[str] = []
    inside: list[bool] = []
    users = _Users(unit)
    for where, row in _rows(path, reading, text):
        for name in (text, "included"):
            if name not in row:
                raise InputError(f"{where}: {no_column(name, row)}; candidates need a text and whether it was included")
        with input_errors():
            texts.append(text_of(row, text, where, join=reading.join))
        users.add(row, where)
        inside.append(bool(_membership(row, "included", where)))
    _check_sides(path, inside)
    return texts, np.array(inside, dtype=np.bool_)


def check_disjoint(candidates: list[str], path: Path, text: str, reading: TextOptions = TEXTS) -> None:
    """Checks that no text of a file is a candidate, so that the file is independent of membership.

    Raises:
        InputError: with the number of the first text that equals a candidate up to white space.
    """
    known = {" ".join(candidate.split()) for candidate in candidates}
    with input_errors():
        for number, (row, _) in enumerate(read_texts(path, text=text, stated=reading), 1):
            if " ".join(row.split()) in known:
                raise InputError(
                    f"{path}: text {number} is a candidate, so scores would depend on which candidates the file holds; "
                    "give texts that are not candidates"
                )


class _Users:
    """Checks that no two candidates have the same user at unit user, where one coin decides for a whole user."""

    def __init__(self, unit: Unit) -> None:
        self._seen: set[str] | None = set() if unit.needs_user else None

    def add(self, row: Mapping[str, Any], where: object) -> None:
        if self._seen is None:
            return
        user = row.get("user")
        if user is None or user == "" or isinstance(user, bool | float | list | dict):
            raise InputError(f"{where}: at unit user the column 'user' must name each candidate's user")
        if str(user) in self._seen:
            raise InputError(
                f"{where}: this user has an earlier candidate; at unit user, join all texts of a user into one"
            )
        self._seen.add(str(user))


def _rows(path: Path, reading: CsvOptions, lists: str | None = None) -> Iterator[tuple[Located, Mapping[str, Any]]]:
    with input_errors():
        for where, row in read_rows(path, stated=reading, lists=lists):
            yield Located(path, where), row


def _columns(path: Path, row: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The columns of reference models, in order, and whether the file has their members."""
    for name in ("target", "included"):
        if name not in row:
            raise InputError(f"{path}: {no_column(name, row)}; see `dpassay audit membership scores --help`")
    names = sorted((name for name in row if _REFERENCE.fullmatch(name)), key=lambda name: int(name[4:]))
    without = [name for name in names if f"ref_in_{name[4:]}" not in row]
    if 0 < len(without) < len(names):
        raise InputError(f"{path}: column {without[0]!r} has no {f'ref_in_{without[0][4:]}'!r}")
    extra = [name for name in row if re.fullmatch(r"ref_in_[0-9]{1,6}", name) and f"ref_{name[7:]}" not in row]
    if extra:
        raise InputError(f"{path}: column {extra[0]!r} has no {f'ref_{extra[0][7:]}'!r}")
    return names, len(without) < len(names)


def _number(row: Mapping[str, Any], name: str, where: object) -> float:
    value = row.get(name)
    try:
        result = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise InputError(f"{where}: column {name!r} must hold a finite number")
    return result


def _membership(row: Mapping[str, Any], name: str, where: object, *, empty: bool = False) -> bool | None:
    value = row.get(name)
    if empty and name in row and (value is None or value == "" or value != value):
        return None
    result = _BOOLEANS.get(str(value).lower())
    if result is None:
        raise InputError(
            f"{where}: column {name!r} must hold 1 or 0, or true or false" + (", or nothing" if empty else "")
        )
    return result


def _check_sides(path: Path, inside: list[bool]) -> None:
    if not 0 < sum(inside) < len(inside):
        raise InputError(
            f"{path}: {sum(inside)} of {len(inside)} candidates were in the data; there must be some in and some out"
        )


def _matrix(rows: list[Floats], references: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(len(rows), 1 + references).T
