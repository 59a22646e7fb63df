"""Neighbouring relations of data sets, and units of privacy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

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


RECORD_RELATIONS: Final = tuple(relation for relation in Adjacency if relation is not Adjacency.SECRET)
"""The neighbouring relations of data sets, which differ in a unit of records."""


IDENTITIES: Final[Mapping[str, Literal["id", "user"] | None]] = {
    "record": "id",
    "user": "user",
    "group": None,
    "secret": None,
}
"""Kind of unit → the field of a record that names the unit which the record belongs to.

None where a unit is not a part of the data: any k records are a group, and a secret may occur in any record. A further
unit of all records of one owner, whom the column of users names, is a row with ``user``.
"""


def _either(*names: str) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


SINGLE_KINDS: Final = tuple(kind for kind, identity in IDENTITIES.items() if identity)
"""The kinds of units `Unit.is_single`."""
SINGLE_UNITS: Final = _either(*SINGLE_KINDS)
"""Likewise, as messages and the help list them."""
RECORD_UNITS: Final = _either(*SINGLE_KINDS, "user(k)", "group(k)")
"""Likewise, all units but secrets."""
UNITS: Final = _either(*SINGLE_KINDS, "user(k)", "group(k)", "secret")


class Identified(Protocol):
    """What a unit asks of a record."""

    @property
    def id(self) -> str: ...

    @property
    def user(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Unit:
    """What a guarantee protects: one record, all records of one user, a group of `size` records, or one secret.

    The events of a user are charged for all records of a user. Those of ``user(k)``, a user with at most k records, are
    charged for one record, as those of a group are.
    """

    kind: str = "record"
    size: int = 1

    def __post_init__(self) -> None:
        validate.one_of(tuple(IDENTITIES), unit=self.kind)
        validate.integer(minimum=1, size=self.size)
        if self.kind not in ("group", "user") and self.size != 1:
            raise ValueError(f"only a group or a user has a size; unit {self.kind!r} was given size {self.size}")

    @classmethod
    def parse(cls, text: str) -> Unit:
        """Reads ``record``, ``user``, ``user(k)``, ``group(k)`` or ``secret``.

        Raises:
            ValueError: if the text is none of these.
        """
        if match := re.fullmatch(r"(group|user)\((\d+)\)", text):
            return cls(match[1], int(match[2]))
        if text in IDENTITIES and text != "group":
            return cls(text)
        raise ValueError(f"unit must be {UNITS}, not {text!r}")

    @classmethod
    def of_text(cls, unit: Unit | str | None) -> Unit:
        """A unit as it is given: itself, by its name, or None for one record."""
        return cls.parse(unit) if isinstance(unit, str) else unit or cls()

    def __str__(self) -> str:
        return f"{self.kind}({self.size})" if self.is_group else self.kind

    @property
    def is_single(self) -> bool:
        """Whether each record belongs to one unit: not for groups, which events are converted to, nor for secrets."""
        return IDENTITIES[self.kind] is not None and not self.is_group

    @property
    def is_group(self) -> bool:
        """Whether it is `size` records, and events are charged for one: any records, or those of a user."""
        return self.kind == "group" or self.size > 1

    @property
    def is_secret(self) -> bool:
        """Whether it is a secret, wherever it occurs."""
        return self.kind == "secret"

    @property
    def needs_user(self) -> bool:
        """Whether it is all records of one owner, whom the column of users names."""
        return IDENTITIES[self.kind] == "user" and not self.is_group

    def of(self, record: Identified) -> str:
        """The name of the unit that a record belongs to; a record without a user, or in a group, is its own."""
        return record.user if self.needs_user and record.user is not None else record.id

    @property
    def noun(self) -> str:
        """What events are charged for and data are counted in: ``user``, or ``record`` also for groups and secrets."""
        return self.kind if self.is_single else "record"

    @property
    def plural(self) -> str:
        """Likewise, of several."""
        return f"{self.noun}s"

    @property
    def charged_for(self) -> str:
        """What one charge of an event is for, in words."""
        return f"all records of a {self.noun} together" if self.needs_user else f"one {self.noun}"
