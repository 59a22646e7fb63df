"""The report of an audit by many runs: a JSON file, from the result of `cupel audit runs bound`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cupel.audit_jobs.canaries.files import read_sealed, write_whole
from cupel.audit_jobs.runs.files import BOUND
from cupel.errors import InputError


def report(folder: Path) -> dict[str, Any]:
    """Writes ``report.json``.

    Args:
        folder: of the plan, with a bound.

    Raises:
        InputError: if a file is missing or was changed.
    """
    path = folder / BOUND
    if not path.is_file():
        raise InputError(f"{folder}: holds no bound; run `cupel audit runs bound {folder}` first")
    found = read_sealed(path)
    write_whole(folder / "report.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return found
