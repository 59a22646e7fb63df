"""The ledger of a run in its private folder, beside the files that are made from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import LOCK, PRIVATE, make_private

if TYPE_CHECKING:  # it imports dp_accounting and SciPy's statistics, which take a second
    from dpassay.accounting.ledger.ledger import Ledger

LEDGER = "ledger.sqlite"

_FINISHED_RUN_FILES = (
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "vectors.safetensors",
    "assay.json",
    "report.html",
)
_RUN_FILES = (
    *_FINISHED_RUN_FILES,
    "candidates.jsonl",
    "texts.jsonl",
    "canaries.json",
    "control-canaries.json",
    "checkpoints",
    "audits",
)


def prepare(folder: Path, anchor: Path | None = None, name: str | None = None) -> Path:
    """Makes a private folder, which only its owner may read, with a ledger in it.

    Args:
        folder: ``private/`` of a run, or a folder inside it for the runs of audits.
        anchor: as for `Ledger.open`.
        name: of the run whose files the folder will hold; None for a folder of several runs.

    Returns:
        The path of the ledger.

    Raises:
        InputError: if the folder holds files of a run without its ledger, or of a run with another name, or cannot be
            made.
    """
    check_ledger_is_there(folder)
    ledger = folder / LEDGER
    new = not os.path.lexists(ledger)
    with input_errors():
        make_private(folder)
    try:
        with open_ledger(ledger, anchor) as opened:
            runs = opened.runs()
            finished = any(opened.run(run).finished for run in runs)
    except InputError:
        if new:
            for file in _files_of(ledger):
                file.unlink(missing_ok=True)
        raise
    left = _first_existing(folder, _FINISHED_RUN_FILES)
    if left is not None and not finished:
        raise InputError(
            f"{left}: is from a finished run, but {ledger} holds no finished run: it is another ledger, or an older "
            "copy; restore the ledger of that run, or start a new run in a new folder"
        )
    shared = ledger.is_symlink()  # with other folders, so it holds their runs, too
    if name is not None and runs and name not in runs and (left is not None or not shared):
        raise InputError(
            f"{folder.parent}: holds the run {runs[0]!r}, whose documents those of {name!r} would replace; name "
            "another folder with -o"
        )
    return ledger


def check_ledger_is_there(folder: Path) -> None:
    """Checks that neither a private folder, nor a released one beside it, holds files of a run without its ledger.

    Raises:
        InputError: if one does; a new ledger would forget the privacy cost of that run.
    """
    ledger = folder / LEDGER
    if ledger.exists():
        return
    left = _first_existing(folder, _RUN_FILES)
    if left is None and folder.name == PRIVATE:
        left = _first_existing(folder.parent / "release", _FINISHED_RUN_FILES)
    if left is not None:
        raise InputError(
            f"{left}: exists without its ledger, {ledger}, so the privacy cost of its run is unknown; restore the "
            "ledger, or start a new run in a new folder"
        )


def _files_of(ledger: Path) -> list[Path]:
    return [ledger.with_name(f"{ledger.name}{suffix}") for suffix in ("", "-wal", "-shm")]


def _first_existing(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def open_ledger(path: Path, anchor: Path | None = None) -> Ledger:
    """Opens and verifies a ledger, or makes one, with its anchor as for `Ledger.open`; an `InputError` if it cannot."""
    from dpassay.accounting.ledger.ledger import Ledger

    with input_errors():
        return Ledger.open(path, anchor=anchor)


@contextmanager
def removed_if_unused(path: Path, anchor: Path | None = None) -> Iterator[None]:
    """Removes a ledger after bad input if it holds no more than the beginning of a run, and nothing lies beside it.

    Nothing was charged or committed then, and a corrected claim can begin in the same folder. Whatever a run has
    written beside its ledger, such as a journal, needs it.
    """
    try:
        yield
    except InputError:
        with contextlib.suppress(InputError, OSError):
            with open_ledger(path, anchor) as ledger:
                unused = ledger.entries <= 2 and not path.is_symlink()  # its salt, and the beginning of a run
            own = _files_of(path)
            if unused and not set(path.parent.iterdir()) - {*own, path.with_name(LOCK)}:
                for file in own:
                    file.unlink(missing_ok=True)
        raise
