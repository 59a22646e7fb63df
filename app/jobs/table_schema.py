"""Writes the schema of a sample of a table, as a template to be edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpassay.base.errors import InputError, input_errors
from dpassay.base.outputs import check_output
from dpassay.base.private_files import write_atomically
from dpassay.data.column_names import no_column
from dpassay.data.records import read_rows
from dpassay.data.table_schema import MADE_FROM, check_schema, proposed_schema

_HEAD = """\
# The public schema of a table: names, types and domains of its columns. A claim names it as public.columns.
# Widen every domain to what may occur; what is outside is refused. type: number (low, high, decimals), category
# (values, between quotes) or date (low, high); missing: true allows empty cells.
"""
_PRIVATE = """\
# The sample was not declared public. Replace every domain by one that is known without looking at private rows, and
# say made_from: public.
"""


@dataclass(frozen=True, slots=True)
class SchemaTemplate:
    """The schema that was written: its columns in the order of the sample, and whether that was declared public."""

    path: Path
    columns: tuple[str, ...]
    public: bool

    def to_json(self) -> dict[str, Any]:
        """The result in JSON types."""
        return {"path": str(self.path), "columns": list(self.columns), "public": self.public}


def write_schema(sample: Path, output: Path, *, public: bool = False, ignore: Sequence[str] = ()) -> SchemaTemplate:
    """Writes the schema of a sample, whose domains are those of the sample, to a new YAML file.

    Raises:
        InputError: one line without any value, if a file or a column is invalid.
    """
    check_output(output, (sample,))
    if output.exists():
        raise InputError(f"{output}: exists; name another file with -o")
    with input_errors():
        body = proposed_schema((cells for _, cells in read_rows(sample)), ignore=ignore)
        names = tuple(column["name"] for column in body["columns"])
        if ignore:
            columns = next(iter(read_rows(sample)))[1]
            if unknown := sorted(set(ignore) - set(names) - set(columns)):
                raise InputError(f"{sample}: {no_column(unknown[0], columns)}")
        check_schema(body, str(sample))
        content = {MADE_FROM: "public" if public else "private", **body}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
        write_atomically(output, _HEAD + ("" if public else _PRIVATE) + text, 0o644 if public else 0o600)
    return SchemaTemplate(output, names, public)
