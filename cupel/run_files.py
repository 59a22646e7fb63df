"""The private files of a run: which belong to its ledger, and how files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cupel.accounting.ledger import Ledger
from cupel.errors import InputError, input_errors

LEDGER = "ledger.sqlite"
PRIVATE = "private"

_OF_A_FINISHED_RUN = (
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "assay.json",
    "report.html",
)
_OF_A_RUN = (*_OF_A_FINISHED_RUN, "candidates.jsonl", "canaries.json", "control-canaries.json", "audits")


def prepare(folder: Path, anchor: Path | None = None) -> Path:
    """Makes a private folder with a ledger in it, into which only the owner may look.

    Args:
        folder: ``private/`` of a run, or a folder inside it where audits play runs of their own.
        anchor: as for `Ledger.open`.

    Returns:
        The path of the ledger.

    Raises:
        InputError: where files of a run are there without its ledger, or a folder cannot be made.
    """
    check_ledger_is_there(folder)
    ledger = folder / LEDGER
    with input_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # also where the folder was there before
    with open_ledger(ledger, anchor) as opened:
        finished = any(opened.run(name).finished for name in opened.runs())
    if not finished and (left := _first(folder, _OF_A_FINISHED_RUN)):
        raise InputError(f"{left}: {_of_another_run(ledger)}")
    return ledger


def check_ledger_is_there(folder: Path) -> None:
    """That no file of a run lies in a private folder, or in a released one beside it, without the run's ledger.

    Raises:
        InputError: where one does; a new ledger would forget what that run was charged.
    """
    ledger = folder / LEDGER
    if ledger.exists():
        return
    left = _first(folder, _OF_A_RUN)
    if left is None and folder.name == PRIVATE:
        left = _first(folder.parent / "release", (*_OF_A_FINISHED_RUN,))
    if left is not None:
        raise InputError(
            f"{left}: is there without its ledger, {ledger}, so what its run was charged is not known; put the ledger "
            "back, or start a new run in a new folder"
        )


def _of_another_run(ledger: Path) -> str:
    return (
        f"is of a finished run, and {ledger} holds none: it is not the ledger of that run, or an older copy of it; put "
        "the right one back, or start a new run in a new folder"
    )


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def open_ledger(path: Path, anchor: Path | None = None) -> Ledger:
    """Opens a ledger, which verifies it, or makes one.

    Args:
        path: the file.
        anchor: the file that keeps the heads of ledgers; None for the one in the user's state folder.

    Raises:
        InputError: for a ledger that cannot be believed, or cannot be opened.
    """
    with input_errors():
        return Ledger.open(path, anchor=anchor)


def write_parquet(path: Path, rows: Iterable[Sequence[Any]], columns: Mapping[str, str], mode: int = 0o600) -> None:
    """Writes rows as Parquet, the whole file or none.

    Args:
        path: of the file.
        rows: a value for every column each.
        columns: name → type of Parquet, such as ``string``.
        mode: of the file.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    table = pyarrow.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)
    with _whole(path, mode) as partial:
        pyarrow.parquet.write_table(table, partial.absolute())  # pyarrow takes a leading ~ for the home folder


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a whole file or none: to a partial file beside it, then renamed."""
    with _whole(path, mode) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def create_once(path: Path, text: str) -> None:
    """Makes a whole file where there is none; of two processes that do so at once, the first one's stands."""
    partial = _new_beside(path, 0o600)
    try:
        partial.write_text(text, encoding="utf-8", newline="")
        sync(partial)
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


@contextmanager
def _whole(path: Path, mode: int) -> Iterator[Path]:
    """A partial file to write, which takes its place when the block ends well and is on the disk by then."""
    partial = _new_beside(path, mode)
    try:
        yield partial
        sync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _new_beside(path: Path, mode: int) -> Path:
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return partial


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    folder = path.is_dir()
    if folder and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
