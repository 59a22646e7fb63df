"""Texts as arrays of hashed words, and the hashes of their runs of n words, for metrics that only compare words.

A word is a lower-case run of letters and digits, a punctuation mark, or one Chinese or Japanese character. Hashes have
64 bits; two different runs have the same hash with probability about 2⁻⁶⁴, an expected 2e-5 false matches in total for
20 million runs compared with as many others.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpassay.base import validate
from dpassay.base.arrays import Bools, Integers

Hashes = NDArray[np.uint64]

_EAST_ASIAN = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_EAST_ASIAN}]|[^\W{_EAST_ASIAN}]+|[^\w\s]")
KNOWN_PIECES = 2**19  # largest number of pieces between spaces, and of words, whose hashes are cached
LONGEST_PIECE = 32  # characters of a piece that is cached; longer ones rarely recur
BLOCK = 2**20  # runs that are hashed at once
_STEPS = 12  # linear search steps; few searches take more, since few hashes share the same log₂ n leading bits
_LARGEST = np.uint64(2**64 - 1)
PIECE = 4096  # texts in a piece


class _WordHashes(dict[str, bytes]):
    """A cache of the first 8 bytes of BLAKE2b of each word."""

    def __missing__(self, word: str) -> bytes:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = digest
        return digest


class PieceHashes(dict[str, bytes]):
    """A cache of the concatenated hashes of the words of a piece of text without spaces, if it is short.

    No word contains a space, so the words of a text are those of its pieces; looking up pieces is faster than the
    regular expression.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = _WordHashes()

    def __missing__(self, piece: str) -> bytes:
        hashes = b"".join(map(self.words.__getitem__, _WORD.findall(piece)))
        if len(piece) <= LONGEST_PIECE:
            self[piece] = hashes
        return hashes

    def forget(self) -> None:
        """Clears the cache if it is too large."""
        if max(len(self), len(self.words)) > KNOWN_PIECES:
            self.clear()
            self.words.clear()


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of several texts.

    Attributes:
        hashes: shape (T,), all words, text by text.
        starts: shape (N + 1,), the index of the first word of each text; the last entry is T.
    """

    hashes: Hashes
    starts: Integers

    @classmethod
    def of(cls, texts: Iterable[str]) -> Words:
        """The words of texts, some of which may be empty."""
        known, hashes, starts = PieceHashes(), bytearray(), array("q", [0])
        for text in texts:
            hashes += b"".join(map(known.__getitem__, text.lower().split()))
            starts.append(len(hashes) // 8)
            known.forget()
        return cls(np.frombuffer(hashes, dtype="<u8"), np.frombuffer(starts, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Integers:
        """Shape (N,), the number of words of each text."""
        return np.diff(self.starts)

    def pieces(self, texts: int = PIECE) -> Iterator[Words]:
        """The same texts in pieces of at most `texts` texts."""
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
        for begin in range(0, count, BLOCK):
            block = out[begin : begin + BLOCK]
            block[:] = 0
            for j in range(n):
                block += constants[j] * self.hashes[begin + j : begin + j + len(block)]
        return out[self.run_begins(n)]

    def run_begins(self, n: int) -> Bools:
        """Shape (T − n + 1,), whether a run of n words that lies within a text begins at each word."""
        within = np.ones(max(0, len(self.hashes) - n + 1), dtype=np.bool_)
        for j in range(1, n):  # runs that begin j words before the end of a text extend beyond it
            ends = self.starts[1:-1] - j
            within[ends[(ends >= 0) & (ends < len(within))]] = False
        return within

    def whole(self) -> Hashes:
        """Shape (N,), the hash of each text's words; for a text of n words, that of its single run of n words."""
        constants, out = _constants(int(self.lengths.max(initial=0))), np.zeros(len(self), dtype=np.uint64)
        for begin, piece in zip(range(0, len(self), PIECE), self.pieces(PIECE), strict=True):
            written = np.flatnonzero(piece.lengths)
            starts, lengths = piece.starts[written], piece.lengths[written]
            if len(written):
                indices = np.arange(len(piece.hashes)) - np.repeat(starts, lengths)
                out[begin + written] = np.add.reduceat(constants[indices] * piece.hashes, starts)
        return out


class HashSet:
    """A sorted set of hashes, shape (n,), with fast lookup of many others.

    Hashes are uniform, so a search begins at the first one with the same leading bits and ends soon. A binary search in
    an array that exceeds the caches takes ten times as long.
    """

    def __init__(self, hashes: Hashes) -> None:
        """Creates the set from hashes that may repeat; sorts them in place."""
        self._bounded = np.append(distinct(hashes), _LARGEST)
        self.hashes = self._bounded[:-1]
        bits = max(len(self).bit_length(), 1)
        self._shift = np.uint64(64 - bits)
        firsts = np.searchsorted(self.hashes, np.arange(1 << bits, dtype=np.uint64) << self._shift)
        self._firsts = firsts.astype(np.min_scalar_type(len(self)))

    def __len__(self) -> int:
        return len(self._bounded) - 1

    def contains(self, asked: Hashes) -> Bools:
        """Whether each of `asked` is in the set, shape (m,)."""
        return self._found(asked)[1]

    def indices(self, asked: Hashes) -> NDArray[np.unsignedinteger]:
        """The indices in the set of those of `asked` that are in it."""
        indices, result = self._found(asked)
        return indices[result]

    def _found(self, asked: Hashes) -> tuple[NDArray[np.unsignedinteger], Bools]:
        """The number of smaller hashes in the set, and whether the next one is equal; both of shape (m,)."""
        indices = self._firsts[asked >> self._shift]
        values = self._bounded[indices]
        rest = np.flatnonzero(values < asked)
        for _ in range(_STEPS):
            indices[rest] += 1
            values[rest] = self._bounded[indices[rest]]
            rest = rest[values[rest] < asked[rest]]
        indices[rest] = np.searchsorted(self.hashes, asked[rest])
        values[rest] = self._bounded[indices[rest]]
        return indices, (values == asked) & (indices < len(self))


def distinct(hashes: Hashes) -> Hashes:
    """The distinct values, sorted. Sorts `hashes` in place, since sets of them would take several times the memory."""
    hashes.sort()
    return hashes[_firsts(hashes)]


def occurrences(hashes: Hashes) -> Integers:
    """The number of values that occur c times, for c = 0, 1, 2, …. Sorts `hashes` in place."""
    hashes.sort()
    begins = np.flatnonzero(_firsts(hashes))
    if not len(begins):
        return np.zeros(1, dtype=np.int64)
    last = len(hashes) - int(begins[-1])
    counts = begins[:-1]
    np.subtract(begins[1:], counts, out=counts)
    result = np.bincount(counts, minlength=last + 1)
    result[last] += 1
    return result


def _firsts(ordered: Hashes) -> Bools:
    """Which entries differ from the previous one."""
    out = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=out[1:])
    return out


def _constants(n: int) -> Hashes:
    """The first n of a fixed sequence of 64-bit numbers (SplitMix64; Steele, Lea and Flood 2014)."""
    x = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
