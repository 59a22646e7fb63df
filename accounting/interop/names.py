"""What may be shown of a file: numbers, and names of classes, fields and versions; no other content."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z_][\w.:<>-]{0,59}")
_QUOTED = re.compile(r"(?<!\w)b?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_MAX_NAMES = 8
_LONGEST = 600


def left_unread(held: Iterable[object], read: Iterable[str]) -> tuple[str, ...]:
    """The remark on fields that a file holds and that are not read; no remark if there are none."""
    unread = set(held) - set(read)
    if not unread:
        return ()
    names = sorted(str(item) for item in unread if is_name(item))[:_MAX_NAMES]
    rest = len(unread) - len(names)
    return (f"It leaves unread: {', '.join([*names, *([f'{rest} more'] if rest else [])])}.",)


def is_name(value: object) -> bool:
    """Whether a text of a file may be shown: the name of a class, a field or a version, and no other content."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def shown(value: object) -> str:
    """A name of a file in quotes; anything else is not shown."""
    return repr(value) if is_name(value) else "'…'"


def without_content(message: str) -> str:
    """A message without what a file holds beyond numbers and names, which is quoted in it."""
    return _QUOTED.sub(lambda result: result[0] if is_name(result[1][1:-1]) else "'…'", message)[:_LONGEST]
