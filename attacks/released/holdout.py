"""Attacks on released data, each against a holdout: what they find, in units of the source and units of the holdout.

The source is what a generator saw; the holdout is of the same kind and was kept from it. What an attack finds in the
holdout too is what the data have in common, and no leak.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Which units an attack found.

    Attributes:
        name: of the attack.
        game: what the attacker is given and has to find.
        attack: how it guesses, with every threshold; fixed before the released data are read.
        hit: what was done to a unit that was hit, in the passive: ``reproduced``.
        source: shape (n,), for each unit of the source whether it was hit.
        holdout: shape (m,), the same for the holdout.
        details: further numbers, JSON types only, that show no record.
        beside: further counts that describe: a name, hits, trials.
    """

    name: str
    game: str
    attack: str
    hit: str
    source: Flags
    holdout: Flags
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    beside: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Which unit each record counts for.

    A unit is what carries one key: a user, or a content, since copies of a record are no further trials. A content that
    is on both sides tells nothing apart and counts for neither.

    Attributes:
        source: shape (n,) of int64, the unit of each source record, 0 to `source_count` − 1; −1 for none.
        holdout: shape (m,), the same for the holdout.
        order: shape (source_count + holdout_count,), the place of each unit, source first, among all by a hash of its
            key. It decides ties, as no place in a list may: where a unit stands in a list tells its side.
        source_count: units of the source.
        holdout_count: units of the holdout.
        copies: records of either side that repeat another one of their unit.
        in_both: keys that are on both sides.
    """

    source: NDArray[np.int64]
    holdout: NDArray[np.int64]
    order: NDArray[np.int64]
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
        return cls(first, second, places(names), count, other, copies, len(both))

    def hit(self, source: Flags, holdout: Flags) -> tuple[Flags, Flags]:
        """Which units have at least one record that was hit."""
        return _any(source, self.source, self.source_count), _any(holdout, self.holdout, self.holdout_count)

    def about(self) -> dict[str, int]:
        """The counts that a reader of rates needs."""
        return {"copies": self.copies, "in_both": self.in_both}


def _any(flags: Flags, units: NDArray[np.int64], count: int) -> Flags:
    out = np.zeros(count, dtype=np.bool_)
    out[units[flags & (units >= 0)]] = True
    return out


def places(keys: Sequence[str]) -> NDArray[np.int64]:
    """The place of each content key among the different ones in order, shape (n,): a tie-break that knows no side."""
    return np.asarray(np.unique(np.array(keys, dtype="S32"), return_inverse=True)[1], dtype=np.int64)


def content_key(*values: object) -> str:
    """A short key of a content: the same for the same values only."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
