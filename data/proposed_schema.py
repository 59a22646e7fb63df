"""The schema of a public sample, as a template: types that were guessed, and the domains of the sample."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from dpassay.data.cells import is_missing
from dpassay.data.column_names import no_column
from dpassay.data.column_summary import ColumnSummary, summarised
from dpassay.data.columns import MAX_CATEGORIES, NO_RULES, Column, ColumnReader, Form, Kind, Rules, word_of
from dpassay.data.table_schema import MISSING, NUMBER_FORMS, Schema, first_error, from_days

MAX_WORDS = 50
"""A column of a sample with more distinct words has no domain that a sample could show."""

_DECIMALS = 6  # of a proposed column of numbers, at most
_MIN_ALIKE = 20  # rows from which on whole numbers that do not repeat may be ids


@dataclass(frozen=True, slots=True)
class ProposedSchema:
    """A schema that was made of a sample, as a template: its domains are those of the sample.

    Attributes:
        columns: of the schema, in JSON types and dates.
        left_out: why each column is left out that looks like an identifier or free text, by name.
        understood: what each column of the sample was taken for.
    """

    columns: tuple[dict[str, Any], ...]
    left_out: Mapping[str, str]
    understood: tuple[ColumnSummary, ...]

    def schema(self) -> Schema:
        """The schema itself.

        Raises:
            ValueError: one line, if a domain is none that a schema can have.
        """
        body = {"columns": list(self.columns)}
        try:
            return Schema.model_validate(body)
        except ValidationError as error:
            raise ValueError(f"no schema follows from this sample: {first_error(error, body)}") from None


def proposed_schema(
    rows: Iterable[Mapping[str, Any]], *, ignore: Collection[str] = (), rules: Rules = NO_RULES
) -> ProposedSchema:
    """The schema of a public sample.

    What a column holds is found out as for audits (`dpassay.data.columns`); columns of words are of categories, and
    those that look like identifiers or free text are left out.

    Args:
        rows: of the sample.
        ignore: columns that are not read, such as ids.
        rules: what is known of columns.

    Raises:
        ValueError: one line, if there are no rows, or columns are neither left out nor have a domain that a sample
            could show, all of which are named.
    """
    readers: dict[str, _SampleColumn] = {}
    ignored = dict.fromkeys(ignore, False)  # whether there is such a column
    count = 0
    for cells in rows:
        count += 1
        for name, cell in cells.items():
            if name in ignored:
                ignored[name] = True
                continue
            if name not in readers:
                readers[name] = _SampleColumn(name, rules)
            readers[name].read(cell)
    if not count:
        raise ValueError("the sample has no rows")
    if unknown := [name for name, is_there in ignored.items() if not is_there]:
        raise ValueError(no_column(unknown[0], readers))
    faults: dict[str, list[str]] = {}
    for name, reader in readers.items():
        if fault := reader.fault():
            faults.setdefault(fault, []).append(name)
    if faults:
        raise ValueError("; ".join(_said_of(names, fault) for fault, names in faults.items()))
    left_out = {name: why for name, reader in readers.items() if (why := reader.left_out())}
    if len(left_out) == len(readers):
        named = ", ".join(f"{name!r} ({why})" for name, why in left_out.items())
        raise ValueError(
            "no column of the sample can be in a schema, which has numbers, dates and categories: "
            + (named or "all are ignored")
        )
    columns = {name: reader.proposed(count) for name, reader in readers.items() if name not in left_out}
    understood = (reader.summary(left_out.get(name, "")) for name, reader in readers.items())
    return ProposedSchema(tuple(columns.values()), left_out, tuple(understood))


def _said_of(names: Sequence[str], fault: str) -> str:
    """A sentence on some columns, given that on one of them."""
    if len(names) == 1:
        return f"column {names[0]!r} {fault}"
    verb, _, rest = fault.partition(" ")
    return f"columns {', '.join(map(repr, names))} {'are' if verb == 'is' else 'have'} {rest}"


class _SampleColumn:
    """A column of a sample: what it holds, and its words as they are written."""

    def __init__(self, name: str, rules: Rules) -> None:
        self.name = name
        self._reader = ColumnReader(name, rules)
        self._missing = rules.missing
        self._words: set[str] = set()  # at most one more than a domain has
        self._empty = 0  # cells that are missing if it is one of categories

    def read(self, cell: Any) -> None:
        """Adds one cell."""
        self._reader.read(cell)
        if is_missing(cell) or (self._missing and word_of(cell) in self._missing):
            self._empty += 1
        elif len(self._words) <= MAX_WORDS:
            self._words.add(str(cell).strip())

    @cached_property
    def _column(self) -> Column:
        return self._reader.column()

    @property
    def _type(self) -> str:
        """The type of the column in a schema; true and false are categories there, and so are times of day."""
        form = self._column.form
        if form in NUMBER_FORMS:
            return "number"
        return "date" if form is not None and form.kind is Kind.DATE else "category"

    def left_out(self) -> str:
        """Why no schema has this column, as far as one can guess; empty if one has it."""
        many = len(self._words) > MAX_WORDS
        match self._column.kind:
            case Kind.IDENTIFIER:
                return "no two cells are alike, as in an id"
            case Kind.TEXT:
                return f"free text, or more than {MAX_CATEGORIES} distinct words"
            case Kind.NESTED:
                return "lists or objects"
            case Kind.TIME if many:
                return "times of day, for which a schema has no type; write dates alone"
        return ""

    def fault(self) -> str:
        """Why the sample shows no domain of the column, and what to do; empty if it shows one, or needs none."""
        if not self._words:
            return "is empty; leave out (--ignore), or write the schema by hand"
        if self._type != "category" or self.left_out():
            return ""
        if len(self._words) > MAX_WORDS:
            return (
                f"has more than {MAX_WORDS} distinct words; leave out (--ignore) what is no category, and write the "
                "schema of the others by hand"
            )
        if MISSING in self._words:
            return f"has the word {MISSING!r}, which stands for an empty cell; rename it"
        return ""

    def proposed(self, rows: int) -> dict[str, Any]:
        """The column of the schema, whose domain is that of the sample."""
        column = self._column
        known: dict[str, Any] = {"name": self.name, "type": self._type}
        match self._type:
            case "number":
                decimals = min(_DECIMALS, column.decimals)
                known |= {**_outwards(column.low, column.high, decimals), "decimals": decimals}
            case "date":
                known |= {"low": from_days(column.low), "high": from_days(column.high)}
            case _:
                known |= {"values": sorted(self._words)}
        missing = self._empty if self._type == "category" else column.missing
        return known | ({"missing": True} if missing or column.rows < rows else {})

    def _fits(self, form: Form) -> bool:
        """Whether as many cells are of this form as of the column's."""
        fits = self._reader.rules.fits(form)
        return fits and self._reader.odd(replace(self._column, form=form)) == self._column.odd

    def summary(self, left_out: str) -> ColumnSummary:
        """What was understood of the column, and what a claim that uses the schema does not read."""
        column, warnings = self._column, []
        used = {"number": "numbers", "date": "dates", "category": f"one of {len(self._words)} categories"}[self._type]
        result = summarised(column, {"sample": self._reader}, left=left_out, use=used)
        if self._type == "category" and column.form is not None:
            return replace(result, warnings=())  # every word is a category, whatever form the others have
        if not left_out and self._type != "category":
            if self._type == "number" and not column.decimals and _MIN_ALIKE <= column.distinct == column.rows:
                warnings.append("no two cells are alike; if it is an id, leave it out (--ignore)")
            if column.form is Form.POINT and column.decimals == 3 and not column.also and self._fits(Form.COMMA):
                warnings.append(f"read as in {Form.POINT}; it could also be {Form.COMMA}")
            if column.odd:
                warnings.append("a claim refuses such cells; correct them, or state their words as missing")
            if column.form in (Form.THOUSANDS, Form.COMMA):
                sign = "," if column.form is Form.COMMA else "."
                warnings.append(f"written as in {column.form}; a claim reads them with decimal: {sign!r} only")
            elif self._type == "date" and column.form is not Form.DAY:
                warnings.append(f"written as in {column.form}; a claim reads dates as in {Form.DAY} only")
        return replace(result, warnings=(*result.warnings, *warnings))


def _outwards(low: float, high: float, decimals: int) -> dict[str, float]:
    """The ends of a domain, rounded outwards to the decimals of the schema."""
    unit = Decimal(10) ** -decimals
    with localcontext(prec=400):
        least, most = Decimal(repr(low)).quantize(unit, ROUND_FLOOR), Decimal(repr(high)).quantize(unit, ROUND_CEILING)
    return {"low": float(least), "high": float(most)} if decimals else {"low": int(least), "high": int(most)}
