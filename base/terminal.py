"""Text for a terminal, without control characters.

Names of files, columns and keys come from untrusted input. Control characters, and marks that change the direction of
writing, are shown as escape sequences of Python, such as ``\\x1b``.
"""

from __future__ import annotations

import re

LONGEST = 500
"""The most characters of an error message."""

_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """The text with control characters, except line ends, as escape sequences."""
    return _CONTROL.sub(lambda result: result.group().encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """The text on one line. If it has more than `LONGEST` characters, its beginning and its end."""
    line = escaped(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - 3) // 2
    return f"{line[:half]} … {line[-half:]}"


def say(text: str) -> None:
    """Prints text to standard output, without control characters."""
    print(escaped(text))
