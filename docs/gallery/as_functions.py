"""The scripts of `examples/generators/` as functions of records, so that one process makes all runs of an audit.

Importing a generator takes most of the time of a run that is a process of its own. A function has the name of an entry,
with `_unprotected` behind it for the control: ``as_functions:pac_synth``.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from entries import BY_NAME, SCRIPTS, Entry

CPU_FILE = "GALLERY_CPU"
"""Environment variable: the file to which a run appends the processor time that it took, in seconds."""
PYTHON = "GALLERY_PYTHON"
"""The same: the interpreter by which a run is a process of its own; empty or not set for a run in this process."""

Records = list[dict[str, Any]]


def __getattr__(name: str) -> Callable[[Records, int], Records]:
    """The function of an entry."""
    entry = BY_NAME.get(name.removesuffix("_unprotected"))
    options = None if entry is None else entry.unprotected if name.endswith("_unprotected") else entry.options
    if entry is None or options is None:
        raise AttributeError(name)
    return _function(entry, options)


def _function(entry: Entry, options: str) -> Callable[[Records, int], Records]:
    """The script of an entry with these options."""

    def function(records: Records, seed: int) -> Records:
        before = _processor_time()
        try:
            return _run(entry, options.format(seed=seed % 2**32).split(), records)
        finally:
            if CPU_FILE in os.environ:
                with Path(os.environ[CPU_FILE]).open("a", encoding="utf-8") as file:
                    file.write(f"{_processor_time() - before:.3f}\n")

    return function


def _run(entry: Entry, options: list[str], records: Records) -> Records:
    """The output of the script, read as it writes it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        given, made = Path(folder) / "in.csv", Path(folder) / "out.csv"
        with given.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)
        words = [str(SCRIPTS / word) if (SCRIPTS / word).is_file() else word for word in options]
        words = [str(given), str(made), *words]
        if python := os.environ.get(PYTHON):
            subprocess.run([python, str(SCRIPTS / f"{entry.script}.py"), *words], check=True)
        else:
            if str(SCRIPTS) not in sys.path:
                sys.path.insert(0, str(SCRIPTS))
            importlib.import_module(entry.script).main(words)
        with made.open(encoding="utf-8", newline="") as file:
            return [dict(row) for row in csv.DictReader(file)]


def _processor_time() -> float:
    """Seconds of this process and of the children that it waited for."""
    return sum(os.times()[:4])
