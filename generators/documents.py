"""The documents of a finished run: how they are committed to its ledger, and written to files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting.ledger.entries import Charge, Json, LedgerError
from dpassay.accounting.ledger.run import Run
from dpassay.base.private_files import write_atomically, write_parquet
from dpassay.base.private_results import DOCUMENTS
from dpassay.mechanisms.primitives.charged import commit
from dpassay.reports.assay import Lengths, Output

STAGE = "documents"
"""The stage of a run under which its documents are committed. It costs nothing: they are post-processing."""

CHUNK = 1 << 20
"""A chunk of rows ends at the first row with which it has at least so many characters of text."""


@dataclass(frozen=True)
class Documents:
    """The output of a finished run.

    Attributes:
        columns: name → type of Parquet, such as ``string``, in the order of the files.
        rows: one for each document, with a value for every column.
        files: name → content of other public or charged output, such as the batching key.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    files: Mapping[str, str | bytes] = field(default_factory=dict)

    def json_lines(self) -> str:
        """The documents as JSON Lines."""
        objects = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects)

    @property
    def sha256(self) -> str:
        """SHA-256 of the JSON Lines, 64 hexadecimal digits."""
        return hashlib.sha256(self.json_lines().encode("utf-8")).hexdigest()

    @property
    def texts(self) -> list[str] | None:
        """The text of each document; None for rows of a table."""
        if self.columns.get("text") != "string":
            return None
        index = list(self.columns).index("text")
        return [str(row[index]) for row in self.rows]

    def output(self, *, whole: bool, ends: str, prefix: str = "") -> Output:
        """How many documents there are, and how long.

        Args:
            whole: whether every one ended by itself; if not, that is not recorded.
            ends: which documents are kept, in words.
            prefix: the public beginning of every document.
        """
        texts = self.texts
        lengths = sorted(map(len, texts or ()))
        return Output(
            documents=len(self.rows),
            empty=sum(not text.removeprefix(prefix).strip() for text in texts or ()),
            characters=_lengths(lengths) if lengths else None,
            complete=len(self.rows) if whole else None,
            ends=ends,
        )

    def write(self, folder: Path, mode: int = 0o600) -> None:
        """Writes the documents as JSON Lines and Parquet, and the other files beside them, each atomically."""
        write_atomically(folder / DOCUMENTS, self.json_lines(), mode)
        write_parquet((folder / DOCUMENTS).with_suffix(".parquet"), self.rows, self.columns, mode)
        for name, content in self.files.items():
            write_atomically(folder / name, content, mode)

    def commit(self, run: Run) -> None:
        """Commits the documents to an unfinished run. Documents that a resumed run already committed must be equal.

        A finished run without committed documents is left unchanged.

        Raises:
            LedgerError: if the run committed other documents.
        """
        if run.finished and not run.last_committed(STAGE):
            return
        for index, chunk in enumerate(self._chunks()):
            key = f"{STAGE}/{index}"
            known = run.outcome(key)
            if known is None and not run.finished:
                known = commit(run, Charge(key=key, stage=STAGE, event=dp_event.NoOpDpEvent()), chunk)
            if known is None or known.value != chunk:
                raise LedgerError(
                    f"run {run.name!r} committed other documents than this version makes from the same committed "
                    "values: the tokenizer, or the code that decodes tokens, has changed; use the version of dpassay "
                    "that started the run"
                )

    def _chunks(self) -> Iterator[dict[str, Json]]:
        """The documents as values to commit, about `CHUNK` characters each; the first also holds columns and files."""
        columns: list[Json] = [[*pair] for pair in self.columns.items()]
        files: dict[str, Json] = {
            name: content if isinstance(content, str) else {"base64": base64.b64encode(content).decode("ascii")}
            for name, content in self.files.items()
        }
        head: dict[str, Json] = {"columns": columns, "count": len(self.rows), "files": files}
        for rows in _row_chunks(self.rows):
            yield {**head, "rows": rows}
            head = {}

    @classmethod
    def committed(cls, run: Run) -> Documents | None:
        """The documents that a run committed; None if it committed none.

        Raises:
            LedgerError: if the entries are not documents, or some are missing.
        """
        outcomes = [run.outcome(f"{STAGE}/{index}") for index in range(run.last_committed(STAGE))]
        values: list[Any] = [known and known.value for known in outcomes]
        if not values:
            return None
        try:
            columns = dict(values[0]["columns"])
            rows = [row for value in values for row in value["rows"]]
            whole = len(rows) == values[0]["count"]
            files = {
                name: content if isinstance(content, str) else base64.b64decode(content["base64"], validate=True)
                for name, content in values[0]["files"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            raise LedgerError(f"run {run.name!r}: the stage {STAGE!r} holds no documents") from None
        if not whole:
            raise LedgerError(f"run {run.name!r}: some of its documents are not committed yet; resume it")
        return cls(columns, rows, files)


def _lengths(ascending: Sequence[int]) -> Lengths:
    """Some lengths, at least one, in ascending order, in a few numbers."""
    return Lengths(least=ascending[0], median=median(ascending), most=ascending[-1], mean=fmean(ascending))


def _row_chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[list[Json]]]:
    """Lists of consecutive rows, each of about `CHUNK` characters; one empty list if there are no rows."""
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
