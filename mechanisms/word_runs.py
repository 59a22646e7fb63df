"""Texts as arrays of hashed words, and the hashes of their runs of n words, for metrics that only compare words.

A word is a run of letters and digits in lower case, a mark of punctuation, or one Chinese or Japanese character. Hashes
have 64 bits; two different runs are taken for the same with a probability of about 2⁻⁶⁴, which makes 2e-5 false matches
in all for 20 million runs against as many others.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupel.accounting import validate

Hashes = NDArray[np.uint64]

_EAST_ASIAN = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_EAST_ASIAN}]|[^\W{_EAST_ASIAN}]+|[^\w\s]")
_KNOWN_WORDS = 2**20  # how many hashes are remembered at once
_BLOCK = 2**20  # how many runs are hashed at once


class _WordHashes(dict[str, int]):
    """The first 8 bytes of BLAKE2b of each word, remembered."""

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = self[word] = int.from_bytes(digest, "little")
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of several texts.

    Attributes:
        hashes: shape (T,), all words, text by text.
        starts: shape (N + 1,), where each text begins; the last is T.
    """

    hashes: Hashes
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Words:
        """The words of texts; a text may be empty."""
        known, hashes, starts = _WordHashes(), array("Q"), array("q", [0])
        for text in texts:
            hashes.extend(map(known.__getitem__, _WORD.findall(text.lower())))
            starts.append(len(hashes))
            if len(known) > _KNOWN_WORDS:
                known.clear()
        return cls(np.frombuffer(hashes, dtype=np.uint64), np.frombuffer(starts, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Shape (N,), the number of words of each text."""
        return np.diff(self.starts)

    def pieces(self, texts: int = 4096) -> Iterator[Words]:
        """The same texts, at most so many at a time."""
        for begin in range(0, len(self), validate.integer(minimum=1, texts=texts)):
            starts = self.starts[begin : begin + texts + 1]
            yield Words(self.hashes[starts[0] : starts[-1]], starts - starts[0])

    def runs(self, n: int) -> Hashes:
        """The hashes of all runs of n consecutive words within a text, in order; a text of m words has m − n + 1.

        The hash is Σ_j c_j·w_j mod 2⁶⁴ with fixed random c_j.
        """
        validate.integer(minimum=1, n=n)
        count = len(self.hashes) - n + 1
        if count <= 0:
            return np.empty(0, dtype=np.uint64)
        out = np.empty(count, dtype=np.uint64)
        constants = _constants(n)
        for begin in range(0, count, _BLOCK):
            block = out[begin : begin + _BLOCK]
            block[:] = 0
            for j in range(n):
                block += constants[j] * self.hashes[begin + j : begin + j + len(block)]
        within = np.ones(count, dtype=np.bool_)
        for j in range(1, n):  # a run that begins j words before the end of a text is too long for it
            ends = self.starts[1:-1] - j
            within[ends[(ends >= 0) & (ends < count)]] = False
        return out[within]

    def whole(self) -> Hashes:
        """Shape (N,), the hash of each text's words; for a text of n words, that of its one run of n words."""
        weighted = _constants(int(self.lengths.max(initial=0)))
        out = np.zeros(len(self), dtype=np.uint64)
        for i, (begin, end) in enumerate(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)):
            out[i] = np.dot(weighted[: end - begin], self.hashes[begin:end])
        return out


def distinct(hashes: Hashes) -> Hashes:
    """Each value once, in order. Sorts `hashes` in place: sets of them would take several times the memory."""
    hashes.sort()
    return hashes[_firsts(hashes)]


def occurrences(hashes: Hashes) -> NDArray[np.int64]:
    """How many values occur c times, for c = 0, 1, 2, …. Sorts `hashes` in place."""
    hashes.sort()
    begins = np.flatnonzero(_firsts(hashes))
    if not len(begins):
        return np.zeros(1, dtype=np.int64)
    last = len(hashes) - int(begins[-1])
    counts = begins[:-1]
    np.subtract(begins[1:], counts, out=counts)
    found = np.bincount(counts, minlength=last + 1)
    found[last] += 1
    return found


def _firsts(ordered: Hashes) -> NDArray[np.bool_]:
    """Which entries differ from the one before."""
    out = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=out[1:])
    return out


def _constants(n: int) -> Hashes:
    """The first n of a fixed sequence of 64-bit numbers (SplitMix64; Steele, Lea and Flood 2014)."""
    x = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
