"""The commit from which the installed dpassay was made."""

from __future__ import annotations

import subprocess
from importlib import resources
from pathlib import Path


def commit() -> str | None:
    """The name of the commit, 40 hexadecimal digits, with ``+`` after it where files were changed since; None if it is
    not known. A released package holds it; in a checkout, git is asked."""
    package = resources.files("dpassay")
    if (file := package.joinpath("commit.txt")).is_file():
        return file.read_text(encoding="ascii").strip()
    root = Path(str(package)).parent
    if not (root / ".git").exists():
        return None
    try:
        name, changes = (_git(root, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    except (OSError, subprocess.SubprocessError):
        return None
    return name + ("+" if changes else "")


def commit_in_words() -> str:
    """``, commit 1f0e33aa…``; empty if it is not known."""
    name = commit()
    return "" if name is None else f", commit {name}"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=5).stdout.strip()
