"""Cells that are written as the other cells of their column are."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpassay.attacks.canaries.spelling import PLAIN, Spelling, SpellingReader
from dpassay.data.columns import Column, Form, Kind

_LAST = float(datetime.date.max.toordinal() - 1)  # a zone may add hours


@dataclass(frozen=True, slots=True)
class CellWriter:
    """Writes numbers, dates and times as the cells of a column are written.

    Attributes:
        form: of the column.
        decimals: of its numbers.
        example: a cell of the column; None for numbers that are no text.
        spelling: of its cells that are text.
    """

    form: Form
    decimals: int
    example: Any = None
    spelling: Spelling = PLAIN

    def cell(self, number: float) -> Any:
        """The cell that means a number; of dates and times, days from 0001-01-01."""
        example = self.example
        if isinstance(example, bool):
            return number >= 0.5
        if isinstance(example, datetime.datetime):
            return _moment(_clamped(number), example.tzinfo)
        if isinstance(example, datetime.date):
            return datetime.date.fromordinal(round(_clamped(number)))
        if not isinstance(example, str):
            value = round(number, self.decimals)
            return value if self.decimals else int(value)
        if self.form is Form.TRUTH:
            word = "true" if number >= 0.5 else "false"
            return word if example.islower() else word.upper() if example.isupper() else word.capitalize()
        if self.form.kind is Kind.NUMBER:
            return self.spelling.number(round(number, self.decimals), self.decimals, self.form, quoted=True)
        return self.spelling.moment(round(_clamped(number)) if self.form.kind is Kind.DATE else _clamped(number))


def writer_of(column: Column, cells: Sequence[Any], decimals: int) -> CellWriter:
    """Writes as the cells of a column of numbers, dates or times are written.

    Args:
        column: what it holds.
        cells: of it, each a number in its form.
        decimals: of the numbers that are written.
    """
    assert column.form is not None
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    if not texts:
        typed = next((cell for cell in cells if isinstance(cell, bool | datetime.date)), None)
        return CellWriter(column.form, decimals, typed)
    reader = SpellingReader()
    for text in texts:
        reader.read(text)
    return CellWriter(column.form, decimals, texts[0], reader.spelling(column.form))


def _clamped(days: float) -> float:
    return min(max(days, 2.0), _LAST)


def _moment(days: float, zone: datetime.tzinfo | None) -> datetime.datetime:
    day = math.floor(days)
    milliseconds = round((days - day) * 86_400_000)
    moment = datetime.datetime.fromordinal(day) + datetime.timedelta(milliseconds=milliseconds)
    return moment if zone is None else moment.replace(tzinfo=datetime.UTC).astimezone(zone)
