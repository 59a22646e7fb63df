"""Files of results that are not differentially private: where they may be written, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpassay.base.errors import InputError
from dpassay.base.outputs import check_output, real_path
from dpassay.base.private_files import PRIVATE as PRIVATE_FOLDER
from dpassay.base.private_files import write_private

DOCUMENTS = "synthetic.jsonl"
"""The file of the documents of a run."""

PRIVATE = (
    "Every number here is computed from private data without noise. It is covered by no guarantee and belongs to the "
    "private side: do not release it."
)
"""The first lines of every such file, and of what the command prints."""

RELEASED_CLAIM = "claim.json"
"""A folder that holds this file was made by `dpassay release`."""


def synthetic_file(given: Path) -> Path:
    """The synthetic texts in the folder of a run or of a release, or the file itself.

    Raises:
        InputError: if a folder holds no synthetic texts.
    """
    if not given.is_dir():
        return given
    for path in (given / PRIVATE_FOLDER / DOCUMENTS, given / DOCUMENTS):
        if path.is_file():
            return path
    raise InputError(
        f"{given}: holds neither {PRIVATE_FOLDER}/{DOCUMENTS} nor {DOCUMENTS}; name the folder of a run or a release"
    )


def output_file(given: Path, asked: Path | None, name: str, inputs: Iterable[Path | None] = ()) -> Path:
    """The path of the results of a run folder or file: the one asked for, else `name` in ``private/`` of the folder or
    beside the file.

    Raises:
        InputError: if the output is in a folder that `dpassay release` made or that does not exist, or is an input.
    """
    if asked is None:
        folder = given if given.is_dir() else real_path(given).parent
        folder = folder.parent if folder.name == PRIVATE_FOLDER else folder
        asked = folder / PRIVATE_FOLDER / name
    elif asked.is_dir() or not asked.parent.is_dir():
        raise InputError(
            f"{asked}: is a folder, or its folder does not exist; name a file in an existing folder with -o"
        )
    if any((folder / RELEASED_CLAIM).is_file() for folder in real_path(asked).parents):
        raise InputError(f"{asked}: lies in a released folder, but the numbers are private; name another file with -o")
    check_output(asked, (given, *inputs))
    return asked


def write(result: dict[str, Any], path: Path) -> None:
    """Writes results as JSON, atomically; only the owner may read the file.

    Raises:
        InputError: if the file cannot be written, or others could read the folder ``private/``.
    """
    write_private(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
