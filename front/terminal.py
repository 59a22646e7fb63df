"""What is printed for people: nothing that a terminal obeys, and no line longer than a screen.

Names of files, columns and keys come from whoever wrote the input. A control character or a mark that turns the
direction of writing is shown as an escape sequence of Python, such as ``\\x1b``.
"""

from __future__ import annotations

import re

LONGEST = 500
"""Characters of the one line that says what is wrong."""

_OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """The text with all that a terminal obeys, but for the ends of lines, as escape sequences."""
    return _OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """The text as one line of at most `LONGEST` characters; of a longer one, its beginning and its end."""
    line = escaped(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - 3) // 2
    return f"{line[:half]} … {line[-half:]}"


def say(text: str) -> None:
    """Prints lines for people to standard output."""
    print(escaped(text))
