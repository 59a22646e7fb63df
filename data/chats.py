"""Chat transcripts as texts: a cell that holds a list of turns, joined to one text.

A turn is a text, or names who speaks and what is said: ``role`` and ``content``, or ``from`` and ``value``. The text of
a transcript has all turns in order, with a line break between them; a turn that names its speaker is written as
``role: content``. Nothing is trimmed or escaped, and what else a turn holds is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from dpassay.base import validate
from dpassay.data.reader import CsvOptions

JOINS = ("turns",)
_NAMES = (("role", "content"), ("from", "value"))


@dataclass(frozen=True, kw_only=True)
class TextOptions(CsvOptions):
    """What a user says of how texts are written; what is None is found out.

    Attributes:
        join: ``turns`` if the text is a list of the turns of a chat.
    """

    join: Annotated[
        str | None,
        "turns: each text is a list of the turns of a chat, which are joined to lines `role: content`.",
        JOINS,
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join is not None:
            validate.one_of(JOINS, join=self.join)


TEXTS = TextOptions()
"""Nothing is stated, and everything is found out."""


def joined_turns(turns: Sequence[object]) -> str:
    """The text of a transcript.

    Raises:
        ValueError: without any of its words, if a turn lacks its speaker or what is said, or these are no texts.
    """
    return "\n".join(_written(turn, number) for number, turn in enumerate(turns, 1))


def _written(turn: object, number: int) -> str:
    if isinstance(turn, str):
        return turn
    if isinstance(turn, Mapping):
        for names in _NAMES:
            speaker, words = (turn.get(name) for name in names)
            if isinstance(speaker, str) and isinstance(words, str):
                return f"{speaker}: {words}"
    raise ValueError(
        f"turn {number} is neither a text nor has texts as `role` and `content`, or as `from` and `value`; complete "
        "it, or leave the record out"
    )
