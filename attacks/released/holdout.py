"""The result of an attack on released data: which units of the source and of the holdout it hits.

The source is what the generator saw; the holdout is of the same kind and was kept from it. What an attack also
finds in the holdout is common to the population and not a leak.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.base.arrays import Bools, Integers


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The units that an attack hit.

    Attributes:
        name: of the attack.
        game: what the attacker is given and has to find.
        attack: how the attacker guesses, with every threshold; fixed before the released data are read.
        hit: past participle that says what happened to a unit that was hit, such as ``reproduced``.
        source: shape (n,), whether each unit of the source was hit.
        holdout: shape (m,), whether each unit of the holdout was hit.
        details: further numbers, as JSON types only, that reveal no record.
        beside: further descriptive counts: a name, hits, trials.
        naive: how many units of the source a guess hits that uses nothing of them; None if there is no such guess.
    """

    name: str
    game: str
    attack: str
    hit: str
    source: Bools
    holdout: Bools
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    beside: tuple[tuple[str, int, int], ...] = ()
    naive: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The unit of each record.

    A unit is identified by a key: a user, or the content of a record, since copies of a record are not independent
    trials. A key that is on both sides cannot distinguish them and is excluded.

    Attributes:
        source: shape (n,) of int64, the unit of each source record, 0 to `source_count` − 1; −1 for none.
        holdout: shape (m,), the same for the holdout.
        order: shape (source_count + holdout_count,), the rank of each unit, source first, by a hash of its key. It
            breaks ties; the index of a unit must not, since it reveals the side.
        source_count: number of units of the source.
        holdout_count: number of units of the holdout.
        copies: number of records that repeat another record of their unit.
        in_both: number of keys that are on both sides.
    """

    source: Integers
    holdout: Integers
    order: Integers
    source_count: int
    holdout_count: int
    copies: int
    in_both: int

    @classmethod
    def of(cls, source: Sequence[str], holdout: Sequence[str]) -> Units:
        """Numbers the units of both sides by the keys of their records."""
        both = set(source) & set(holdout)
        sides = []
        names: list[str] = []
        for keys in (source, holdout):
            numbers: dict[str, int] = {}
            index = [-1 if key in both else numbers.setdefault(key, len(numbers)) for key in keys]
            sides.append((np.array(index, dtype=np.int64), len(numbers)))
            names += map(content_key, numbers)
        (first, count), (second, other) = sides
        copies = int((first >= 0).sum() + (second >= 0).sum()) - count - other
        return cls(first, second, ranks(names), count, other, copies, len(both))

    def hit(self, source: Bools, holdout: Bools) -> tuple[Bools, Bools]:
        """Which units have at least one record that was hit."""
        return _any(source, self.source, self.source_count), _any(holdout, self.holdout, self.holdout_count)

    def taken(self, chosen: Bools) -> Units:
        """Some of the units, by a mask over those of source and holdout."""
        number = np.cumsum(chosen) - 1
        count = int(chosen[: self.source_count].sum())
        source, holdout = (chosen[: self.source_count], chosen[self.source_count :])
        return dataclasses.replace(
            self,
            source=number[self.source[source[self.source]]],
            holdout=number[self.source_count + self.holdout[holdout[self.holdout]]] - count,
            order=self.order[chosen],
            source_count=count,
            holdout_count=int(chosen.sum()) - count,
        )

    def about(self) -> dict[str, int]:
        """The counts that explain the number of units, for reports."""
        return {"copies": self.copies, "in_both": self.in_both}


def _any(flags: Bools, units: Integers, count: int) -> Bools:
    out = np.zeros(count, dtype=np.bool_)
    out[units[flags & (units >= 0)]] = True
    return out


def ranks(keys: Sequence[str]) -> Integers:
    """The rank of each content key among the distinct keys, shape (n,); breaks ties without revealing the side."""
    return np.asarray(np.unique(np.array(keys, dtype="S32"), return_inverse=True)[1], dtype=np.int64)


def content_key(*values: object) -> str:
    """A short hash of the values; equal if and only if they are equal, up to collisions."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
