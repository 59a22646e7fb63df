"""The files of a run: what only its owner may see in ``private/``, what may leave in ``release/``."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cupel.errors import input_errors


def make_folders(output: Path) -> tuple[Path, Path]:
    """Makes ``private/``, into which only the owner may look, and ``release/``.

    Raises:
        InputError: where a folder cannot be made.
    """
    private, release = output / "private", output / "release"
    with input_errors():
        release.mkdir(parents=True, exist_ok=True)
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.chmod(0o700)  # also where the folder was there before
    return private, release


def write_documents(path: Path, rows: Iterable[Mapping[str, Any]], **columns: str) -> int:
    """Writes documents as JSON Lines and, beside it, as Parquet.

    Args:
        path: of the JSON Lines.
        rows: the documents.
        columns: name → type of Parquet, such as ``string``; the keys of every row.

    Returns:
        How many there are.
    """
    import pyarrow
    import pyarrow.parquet

    rows = list(rows)
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    partial = path.with_suffix(".parquet.partial")
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), partial)
        os.replace(partial, path.with_suffix(".parquet"))
    finally:
        partial.unlink(missing_ok=True)
    return len(rows)


def write_atomically(path: Path, text: str) -> None:
    """Writes a whole file or none: to a partial file beside it, then renamed. Under ``private/`` for the owner only."""
    partial = _partial(path, text)
    try:
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def create_once(path: Path, text: str) -> None:
    """Makes a whole file where there is none; of two processes that do so at once, the first one's stands."""
    partial = _partial(path, text)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


def _partial(path: Path, text: str) -> Path:
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    mode = 0o644 if path.parent.name == "release" else 0o600
    try:
        with open(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial
