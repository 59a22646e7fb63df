"""Checks of the paths that a command writes to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from dpassay.base import defaults
from dpassay.base.errors import InputError, input_errors


def check_output(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """Checks that an output is not an input under another name, and is not a run's folder whose ``private/`` holds one;
    None for a file that is not given.

    Raises:
        InputError: if it is; nothing has been written then.
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


def check_new_folder(folder: Path, inputs: Iterable[Path | None]) -> None:
    """`check_output` for the folder of a plan, which is never overwritten: it must not exist, or be empty.

    Raises:
        InputError: if it does.
    """
    check_output(folder, inputs)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder}: exists and is not an empty folder; a plan is never overwritten, so name a new folder with -o"
        )


def check_kind(output: Path) -> None:
    """Checks that an output is not a device or a pipe, which writing would replace, such as ``/dev/null`` as root.

    Raises:
        InputError: if it is.
    """
    try:
        mode = output.stat().st_mode
    except (OSError, ValueError):  # it does not exist, or writing to it fails with a message
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{output}: is a device or a pipe; name a regular file")


def real_path(path: Path) -> Path:
    """The path with links resolved. Links that form a loop, for which `Path.resolve` fails, are left as they are."""
    return Path(os.path.realpath(path))


def check_output_folder(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """Checks that an output is not a file, and `check_output`.

    Raises:
        InputError: if it is a file, or one of the inputs.
    """
    check_output(output, inputs)
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file, but the output is a folder; name a folder with -o")


def check_device(name: str) -> str:
    """`name`, if it is ``auto``, ``cpu`` or ``cuda``.

    Raises:
        InputError: if it is not.
    """
    if name not in defaults.DEVICES:
        *others, last = defaults.DEVICES
        raise InputError(f"--device must be {', '.join(others)} or {last}, not {name!r}")
    return name
