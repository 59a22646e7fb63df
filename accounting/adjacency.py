"""Neighbouring relations of data sets, and units of privacy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from dpassay.base import validate


class Adjacency(StrEnum):
    """The neighbouring relation of a guarantee. Two bounds are comparable only at the same adjacency and unit."""

    ADD_REMOVE = "add_remove"
    """One unit is added or removed."""
    REPLACE_ONE = "replace_one"
    """One unit is exchanged for another (substitution)."""
    ZERO_OUT = "zero_out"
    """One unit is exchanged for a public null record."""
    SECRET = "secret"
    """The value of one secret changes wherever it occurs; the places where it occurs are public."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a guarantee protects: one record, all records of one user, a group of `size` records, or one secret."""

    kind: str = "record"
    size: int = 1

    def __post_init__(self) -> None:
        validate.one_of(("record", "user", "group", "secret"), unit=self.kind)
        validate.integer(minimum=1, size=self.size)
        if self.kind != "group" and self.size != 1:
            raise ValueError(f"only a group has a size; unit {self.kind!r} was given size {self.size}")

    @classmethod
    def parse(cls, text: str) -> Unit:
        """Reads ``record``, ``user``, ``secret`` or ``group(k)``.

        Raises:
            ValueError: if the text is none of these.
        """
        if match := re.fullmatch(r"group\((\d+)\)", text):
            return cls("group", int(match[1]))
        if text in ("record", "user", "secret"):
            return cls(text)
        raise ValueError(f"unit must be record, user, group(k) or secret, not {text!r}")

    def __str__(self) -> str:
        return f"group({self.size})" if self.kind == "group" else self.kind
