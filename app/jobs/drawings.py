"""The file of a figure that a command draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpassay.base.errors import input_errors
from dpassay.base.outputs import check_output
from dpassay.base.private_files import write_atomically

KINDS = ("svg", "pdf", "png")


def check_drawing(output: Path | None, title: str) -> None:
    """Raises `ValueError` if a figure cannot have that path or that title; None for no figure."""
    if output is None:
        if title:
            raise ValueError("--title is that of the figure; name a file for it with -o")
        return
    if kind_of(output) not in KINDS:
        raise ValueError(f"--output must end in .svg, .pdf or .png, not {output.name!r}")
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent}: there is no such folder to write the figure to")
    if output.is_dir():
        raise ValueError(f"{output}: is a directory; name a file for the figure")
    check_output(output, ())


def kind_of(output: Path) -> str:
    """``svg``, ``pdf`` or ``png``, by the name of the file."""
    return output.suffix.lower()[1:]


def write_drawing(output: Path, draw: Callable[[str], str | bytes]) -> None:
    """Writes a figure; an `InputError` if the file cannot be written.

    Args:
        output: path of the file.
        draw: a function from the kind of the file to its content.
    """
    content = draw(kind_of(output))
    with input_errors():
        write_atomically(output, content, 0o644)
