"""The finished documents of a run: committed to its ledger, and the files that are written from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from cupel.accounting.ledger.entries import Charge, Json, LedgerError
from cupel.accounting.ledger.run import Run
from cupel.io.run_files import write_atomically, write_parquet
from cupel.mechanisms.primitives.charged import commit

STAGE = "documents"
"""The stage of a run under which its documents are committed. It costs nothing: what they are made of was paid for."""

CHUNK = 1 << 20
"""A chunk is closed when its rows hold as many characters of text."""

NAME = "synthetic.jsonl"


@dataclass(frozen=True)
class Documents:
    """What may be released of a finished run, as far as its claim allows it.

    Attributes:
        columns: name → type of Parquet, such as ``string``, in the order of the files.
        rows: one document each, a value for every column.
        files: name → text of whatever else was paid for or is public, such as the batching key.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    files: Mapping[str, str] = field(default_factory=dict)

    def json_lines(self) -> str:
        """One JSON object a line."""
        objects = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)

    @property
    def sha256(self) -> str:
        """Of the JSON Lines, 64 hexadecimal digits."""
        return hashlib.sha256(self.json_lines().encode("utf-8")).hexdigest()

    def write(self, folder: Path, mode: int = 0o600) -> None:
        """Writes the documents as JSON Lines and Parquet, and the other files beside them, each whole or not at all."""
        write_atomically(folder / NAME, self.json_lines(), mode)
        write_parquet((folder / NAME).with_suffix(".parquet"), self.rows, self.columns, mode)
        for name, text in self.files.items():
            write_atomically(folder / name, text, mode)

    def commit(self, run: Run) -> None:
        """Commits the documents to an unfinished run; in a resumed one, those there must be the same.

        A run that was finished before documents were committed stays as it is.

        Raises:
            LedgerError: where the run holds other documents.
        """
        if run.finished and not run.last_committed(STAGE):
            return
        for place, chunk in enumerate(self._chunks()):
            key = f"{STAGE}/{place}"
            known = run.outcome(key)
            if known is None and not run.finished:
                known = commit(run, Charge(key=key, stage=STAGE, event=dp_event.NoOpDpEvent()), chunk)
            if known is None or known.value != chunk:
                raise LedgerError(_other(run))

    def _chunks(self) -> Iterator[dict[str, Json]]:
        """The documents in the values of commits, about `CHUNK` characters each; the first holds all else, too."""
        columns: list[Json] = [[*pair] for pair in self.columns.items()]
        head: dict[str, Json] = {"columns": columns, "count": len(self.rows), "files": dict(self.files)}
        for rows in _bounded(self.rows):
            yield {**head, "rows": rows}
            head = {}

    @classmethod
    def committed(cls, run: Run) -> Documents | None:
        """The documents that a run committed; None where it committed none.

        Raises:
            LedgerError: where the entries are no documents, or not all of them.
        """
        values = [_value(run, place) for place in range(run.last_committed(STAGE))]
        if not values:
            return None
        try:
            columns = dict(values[0]["columns"])
            rows = [row for value in values for row in value["rows"]]
            files, whole = dict(values[0]["files"]), len(rows) == values[0]["count"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise LedgerError(f"run {run.name!r}: the stage {STAGE!r} holds no documents") from None
        if not whole:
            raise LedgerError(f"run {run.name!r}: some of its documents are not committed yet; resume it")
        return cls(columns, rows, files)


def _other(run: Run) -> str:
    return (
        f"run {run.name!r} committed other documents than are made now of the same committed values: the tokenizer, or "
        "the code that makes text of them, has changed since; go back to the version of cupel that it ran with"
    )


def _value(run: Run, place: int) -> Any:
    known = run.outcome(f"{STAGE}/{place}")
    return None if known is None else known.value


def _bounded(rows: Iterable[Sequence[Any]]) -> Iterator[list[list[Json]]]:
    """Rows in lists that are closed when they hold `CHUNK` characters; one empty list for no rows."""
    chunk: list[list[Json]] = []
    characters, chunks = 0, 0
    for row in rows:
        chunk.append(list(row))
        characters += sum(len(value) for value in row if isinstance(value, str))
        if characters >= CHUNK:
            yield chunk
            chunk, characters, chunks = [], 0, chunks + 1
    if chunk or not chunks:
        yield chunk
