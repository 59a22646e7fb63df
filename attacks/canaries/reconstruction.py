"""Canary reconstruction: which of many candidate secrets does a released text disclose?

Candidates are distinct 5-digit keys, one record each (``My 5-digit key is 04821``). Every candidate enters the data by
an independent fair coin; the others are the holdout. Further keys, drawn at the same time, are in no list at all. The
attack reads only the released documents and counts each key once, however often it is printed.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", appendix D.5.1, with independent
coins in place of an exact half, as one-run statistics require.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpassay.base import validate
from dpassay.base.arrays import Bools

PREFIX = "My 5-digit key is "
"""The text of a record before its key; an attack may force a generator to begin a document with it."""

_KEYS = 100_000
_KEY = re.compile(r"(?<![0-9])[0-9]{5}(?![0-9])")


class Text(Protocol):
    """A released document: its text, the slot that generated it, whether it is complete, and the index of the one
    record that it was generated from, if there is one. Documents of a slot are in the order of their generation."""

    @property
    def slot(self) -> int: ...

    @property
    def complete(self) -> bool: ...

    @property
    def text(self) -> str: ...

    @property
    def source(self) -> int | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Canaries:
    """Candidate secrets, and which of them are in the data.

    Attributes:
        keys: m distinct 5-digit keys.
        included: shape (m,) of bool: the coins.
        never: distinct keys that are not candidates: the negative control.
        copies: number of records of each included candidate. Statistics count candidates, not copies.
    """

    keys: tuple[str, ...]
    included: Bools
    never: tuple[str, ...] = ()
    copies: int = 1

    def __post_init__(self) -> None:
        validate.integer(minimum=1, copies=self.copies)
        every = self.keys + self.never
        if len(set(every)) != len(every) or not all(_KEY.fullmatch(key) for key in every):
            raise ValueError("canaries must have distinct keys of five digits")
        if self.included.shape != (len(self.keys),) or self.included.dtype != np.bool_:
            raise ValueError(f"included must have one truth value for each of {len(self.keys)} candidates")

    @classmethod
    def draw(cls, m: int, *, never: int | None = None, copies: int = 1, seed: int | None = None) -> Canaries:
        """Draws candidates and their coins.

        Args:
            m: number of candidates.
            never: number of keys for the negative control; by default as many as candidates, if enough keys are left.
            copies: number of records of each included candidate.
            seed: makes the draw reproducible, for tests; None uses OS entropy, so that nobody can know the coins.

        Raises:
            ValueError: if there are not enough keys of five digits.
        """
        validate.integer(minimum=1, m=m)
        beside = min(m, _KEYS - m) if never is None else validate.integer(never=never)
        if m + beside > _KEYS:
            raise ValueError(f"there are {_KEYS} keys of five digits, but {m + beside} are needed; use fewer canaries")
        rng = np.random.default_rng(secrets.randbits(256) if seed is None else seed)
        drawn = [f"{key:05d}" for key in rng.choice(_KEYS, size=m + beside, replace=False)]
        included = rng.integers(0, 2, size=m).astype(np.bool_)
        return cls(tuple(drawn[:m]), included, tuple(drawn[m:]), copies)

    @property
    def source(self) -> tuple[str, ...]:
        """The keys that are in the data."""
        return tuple(key for key, coin in zip(self.keys, self.included, strict=True) if coin)

    @property
    def holdout(self) -> tuple[str, ...]:
        """The candidates that are not in the data."""
        return tuple(key for key, coin in zip(self.keys, self.included, strict=True) if not coin)

    def records(self) -> list[str]:
        """The record texts to add to the data: one for each copy of each included candidate."""
        return [PREFIX + key for key in self.source for _ in range(self.copies)]


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """What the released documents disclose, as counts of distinct candidates.

    Attributes:
        candidates: m.
        source: number of candidates in the data.
        source_hits: how many of them were disclosed.
        holdout_hits: how many of the other candidates were disclosed.
        never: number of keys in no list.
        never_hits: how many of those were printed.
        documents: number of documents that were read.
        asked: number of documents generated from one record that holds a key; the last document of a slot does not
            count if the token budget cut it off.
        reproduced: how many of those print that key.
        copies: number of records of each included candidate.
    """

    candidates: int
    source: int
    source_hits: int
    holdout_hits: int
    never: int
    never_hits: int
    documents: int
    asked: int = 0
    reproduced: int = 0
    copies: int = 1

    def __post_init__(self) -> None:
        pairs = (
            (self.source, self.candidates),
            (self.source_hits, self.source),
            (self.holdout_hits, self.holdout),
            (self.never_hits, self.never),
            (self.asked, self.documents),
            (self.reproduced, self.asked),
        )
        if any(not 0 <= part <= whole for part, whole in pairs):
            raise ValueError("the counts of a reconstruction are inconsistent")

    @property
    def holdout(self) -> int:
        """The number of candidates that were not in the data."""
        return self.candidates - self.source

    @property
    def disclosed(self) -> int:
        """The number of disclosed candidates: the guesses "in"."""
        return self.source_hits + self.holdout_hits


def extract_keys(text: str) -> list[str]:
    """The distinct 5-digit keys that a text prints, in order; a key is a run of exactly five ASCII digits."""
    return list(dict.fromkeys(_KEY.findall(text)))


def disclosed(documents: Iterable[Text], canaries: Canaries) -> Bools:
    """Which candidates the documents print, shape (m,)."""
    printed = {key for document in documents for key in extract_keys(document.text)}
    return np.array([key in printed for key in canaries.keys], dtype=np.bool_)


def reconstruct(documents: Sequence[Text], canaries: Canaries, records: Sequence[str] = ()) -> Reconstruction:
    """Counts what all released documents disclose, unfinished ones included if they are released. `records`, the texts
    of the generator's records in its order, are needed only if documents are generated from one record each
    (`Document.source`)."""
    result = disclosed(documents, canaries)
    printed = {key for document in documents for key in extract_keys(document.text)}
    last = {document.slot: index for index, document in enumerate(documents)}
    asked = reproduced = 0
    for index, document in enumerate(documents):
        cut_off = not document.complete and last[document.slot] == index
        if cut_off or document.source is None or not 0 <= document.source < len(records):
            continue
        wanted = extract_keys(records[document.source])
        if wanted:
            asked += 1
            reproduced += set(wanted) <= set(extract_keys(document.text))
    return Reconstruction(
        candidates=len(canaries.keys),
        source=int(canaries.included.sum()),
        source_hits=int((result & canaries.included).sum()),
        holdout_hits=int((result & ~canaries.included).sum()),
        never=len(canaries.never),
        never_hits=len(printed & set(canaries.never)),
        documents=len(documents),
        asked=asked,
        reproduced=reproduced,
        copies=canaries.copies,
    )
