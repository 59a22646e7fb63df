"""Where a command may write: never over what it reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cupel.errors import InputError, input_errors


def check_output(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """That an output is none of the inputs, under any name, and no folder of private files that holds one.

    Args:
        output: a file or folder to be written; None where nothing is.
        inputs: files and folders that the command reads; None where one was not given.

    Raises:
        InputError: where it is; nothing has been written then.
    """
    if output is None:
        return
    check_kind(output)
    with input_errors():
        target = real_path(output)
        for given in inputs:
            if given is None:
                continue
            source = real_path(given)
            same = source == target or (source.exists() and target.exists() and source.samefile(target))
            if same:
                raise InputError(f"{output}: is what the command reads, and would be overwritten; name another output")
            if (target / "private") in source.parents:
                raise InputError(
                    f"{output}: its folder private holds {given}, which the command reads; name another output"
                )


def check_kind(output: Path) -> None:
    """That an output is no device and no pipe, whose place a whole file or folder would take: `-o /dev/null` as root
    would leave every program without one.

    Raises:
        InputError: where it is.
    """
    try:
        mode = output.stat().st_mode
    except (OSError, ValueError):  # nothing is there, or whoever writes says what is wrong
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{output}: is a device or a pipe, and a file is written as a whole; name a file")


def real_path(path: Path) -> Path:
    """The path without links; one of links that lead to themselves stays as it is, which `Path.resolve` cannot read."""
    return Path(os.path.realpath(path))


def check_output_folder(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """That an output can be a folder, and `check_output`.

    Raises:
        InputError: where it is a file, or one of the inputs.
    """
    check_output(output, inputs)
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file, and the output is a folder; name another one with -o")


def check_device(name: str) -> str:
    """The name of a device, if it is one.

    Raises:
        InputError: for any other name.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device must be auto, cpu or cuda, not {name!r}")
    return name
