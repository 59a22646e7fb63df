"""Which of very many strings are equal, in 16 bytes of memory a string: by their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from dpassay.base.arrays import Bools, Integers

Hashes = np.ndarray
"""Shape (n,), of the fields ``high`` and ``low``; equal for equal strings, and for no others that are ever seen."""

_BYTES = 16


def hashes_of(strings: Iterable[str]) -> Hashes:
    """The first 128 bits of SHA-256 of strings, which are read one by one."""
    digests = bytearray()
    for string in strings:
        digests += hashlib.sha256(string.encode("utf-8", "surrogatepass")).digest()[:_BYTES]
    return np.frombuffer(digests, dtype=[("high", "<u8"), ("low", "<u8")])


def occurrences(hashes: Hashes) -> Integers:
    """For each string, how often it occurred up to its own place, itself counted; shape (n,)."""
    order = in_order(hashes)
    first = starts(hashes[order])
    numbers = np.arange(len(hashes), dtype=np.int64)
    result = np.empty(len(hashes), dtype=np.int64)
    result[order] = numbers - np.maximum.accumulate(np.where(first, numbers, 0)) + 1
    return result


def multiplicities(hashes: Hashes) -> Integers:
    """How often each of the different strings occurs, in any order."""
    first = np.flatnonzero(starts(hashes[in_order(hashes)]))
    return np.diff(np.append(first, len(hashes)))


def in_order(hashes: Hashes) -> Integers:
    """The places of the strings, equal ones side by side and in the order of their places."""
    return np.lexsort((hashes["low"], hashes["high"]))


def starts(ordered: Hashes) -> Bools:
    """Of strings in order, which differ from the one before."""
    result = np.ones(len(ordered), dtype=np.bool_)
    result[1:] = (ordered["high"][1:] != ordered["high"][:-1]) | (ordered["low"][1:] != ordered["low"][:-1])
    return result
