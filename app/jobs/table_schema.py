"""Writes the schema of a sample of a table, as a template to be edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpassay.base.errors import InputError, input_errors
from dpassay.base.outputs import check_output
from dpassay.base.private_files import write_atomically
from dpassay.data.column_summary import ColumnSummary
from dpassay.data.columns import Rules
from dpassay.data.proposed_schema import proposed_schema
from dpassay.data.reader import FOUND, FileOptions
from dpassay.data.records import read_rows, written_as
from dpassay.data.table_schema import MADE_FROM

_HEAD = """\
# The public schema of a table: names, types and domains of its columns. A claim names it as public.columns.
# Widen every domain to what may occur; what is outside is refused. type: number (low, high, decimals), category
# (values, between quotes) or date (low, high); missing: true allows empty cells.
"""
_PRIVATE = """\
# The sample was not declared public. Replace every domain by one that is known without looking at private rows, and
# say made_from: public.
"""


_LEFT_OUT = """\
# Left out, since no schema follows from a sample of them; a claim refuses a table that has them:
"""


@dataclass(frozen=True, slots=True)
class SchemaTemplate:
    """The schema that was written.

    Attributes:
        path: of the file.
        columns: names, in the order of the sample.
        public: whether the sample was declared public.
        left_out: why each column is left out that looks like an identifier or free text, by name.
        written: how the sample is written, in words.
        understood: what each column of the sample was taken for.
    """

    path: Path
    columns: tuple[str, ...]
    public: bool
    left_out: Mapping[str, str]
    written: str
    understood: tuple[ColumnSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """The result in JSON types."""
        return {
            "path": str(self.path),
            "columns": list(self.columns),
            "public": self.public,
            "left_out": dict(self.left_out),
            "understood": {"written": self.written, "columns": [column.to_json() for column in self.understood]},
        }


def write_schema(
    sample: Path,
    output: Path,
    *,
    public: bool = False,
    ignore: Sequence[str] = (),
    reading: FileOptions = FOUND,
) -> SchemaTemplate:
    """Writes the schema of a sample, whose domains are those of the sample, to a new YAML file.

    Args:
        sample: a table.
        output: the file to write.
        public: whether the sample is public.
        ignore: columns that are not read, such as ids.
        reading: how the sample is written; what is not stated is found out.

    Raises:
        InputError: one line without any value, if a file or a column is invalid.
    """
    check_output(output, (sample,))
    if output.exists():
        raise InputError(f"{output}: exists; name another file with -o")
    rules = Rules(missing=reading.missing or (), decimal=reading.decimal)
    with input_errors():
        rows = (cells for _, cells in read_rows(sample, stated=reading))
        proposed = proposed_schema(rows, ignore=ignore, rules=rules)
        proposed.schema()
    content = {MADE_FROM: "public" if public else "private", "columns": list(proposed.columns)}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    left_out = "".join(f"# {name!r}: {why}\n" for name, why in proposed.left_out.items())
    head = _HEAD + ("" if public else _PRIVATE) + (_LEFT_OUT + left_out if left_out else "")
    with input_errors():
        write_atomically(output, head + text, 0o644 if public else 0o600)
    names = tuple(column["name"] for column in proposed.columns)
    return SchemaTemplate(output, names, public, proposed.left_out, written_as(sample, reading), proposed.understood)
