"""How to install an extra, in one sentence for all messages."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra, to be run in a checkout of dpassay."""
    return f"pip install '.[{extra}]'"
