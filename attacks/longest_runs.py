"""The longest run of words that each of many texts has in common with some other text, exactly and in bounded memory.

All suffixes of both sides are sorted by prefix doubling; the longest run in common that begins at a word is that of its
suffix and the nearest suffix of the other side, above or below it in that order.

Source: Manber and Myers, "Suffix Arrays: A New Method for On-Line String Searches" (1993); Karp, Miller and Rosenberg,
    "Rapid Identification of Repeated Patterns in Strings, Trees and Arrays" (1972), for the names of runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cupel.mechanisms.word_runs import Words

_CHUNK = 1 << 21  # words of each side that are sorted at once, unless one text has more

Integers = NDArray[np.int64]


def longest_runs(texts: Words, others: Words, *, chunk: int = _CHUNK) -> Integers:
    """For each text, the number of words in the longest run that occurs, word for word, within one of `others`.

    A run lies within one text on both sides, so that sides may be cut between texts: memory grows with `chunk`, or with
    the longest text, and not with the number of texts. Two words count as the same where their 64-bit hashes are.

    Args:
        texts: N texts; a text may be empty.
        others: where runs are looked for.
        chunk: words of each side that are held sorted at once.

    Returns:
        Shape (N,), 0 where not one word is in common.
    """
    found = np.zeros(len(texts), dtype=np.int64)
    for begin, end in _cuts(texts, chunk):
        here = _part(texts, begin, end)
        for first, last in _cuts(others, chunk):
            there = _part(others, first, last)
            np.maximum(found[begin:end], _of_chunk(here, there), out=found[begin:end])
    return found


def _cuts(words: Words, chunk: int) -> Iterator[tuple[int, int]]:
    """Ranges of texts of at most `chunk` words each, or of one text."""
    begin = 0
    while begin < len(words):
        end = int(np.searchsorted(words.starts, words.starts[begin] + chunk, side="right")) - 1
        end = min(max(end, begin + 1), len(words))
        yield begin, end
        begin = end


def _part(words: Words, begin: int, end: int) -> Words:
    starts = words.starts[begin : end + 1]
    return Words(words.hashes[starts[0] : starts[-1]], starts - starts[0])


def _of_chunk(texts: Words, others: Words) -> Integers:
    if not len(texts.hashes) or not len(others.hashes):
        return np.zeros(len(texts), dtype=np.int64)
    names, boundary = _names(texts, others)
    size = len(names[0])
    order = np.empty(size, dtype=np.int64)
    order[names[-1]] = np.arange(size)  # the last names differ from each other, and so are ranks
    is_other = order >= boundary
    places = np.arange(size)
    above = np.maximum.accumulate(np.where(is_other, places, -1))
    below = np.minimum.accumulate(np.where(is_other, places, size)[::-1])[::-1]
    mine = order[~is_other]
    longest = np.zeros(size, dtype=np.int64)
    for nearest in (above[~is_other], below[~is_other]):
        known = (nearest >= 0) & (nearest < size)
        of, beside = mine[known], order[nearest[known]]
        longest[of] = np.maximum(longest[of], _in_common(names, of, beside))
    begins = texts.starts[:-1] + np.arange(len(texts))  # each text is followed by its end
    return np.asarray(np.maximum.reduceat(longest[:boundary], begins), dtype=np.int64)


def _names(texts: Words, others: Words) -> tuple[list[NDArray[np.int32]], int]:
    """For h = 1, 2, 4, …, the rank of the run of h words that begins at each place, equal where the runs are equal.

    Every text ends in a mark of its own, so that no run over its end equals another. The second value is the place at
    which `others` begin.
    """
    _, words = np.unique(np.concatenate([texts.hashes, others.hashes]), return_inverse=True)
    kinds = int(words.max()) + 1
    first = _marked(words[: len(texts.hashes)], texts, kinds)
    second = _marked(words[len(texts.hashes) :], others, kinds + len(texts))
    names = [np.concatenate([first, second])]
    longest, step = int(max(texts.lengths.max(), others.lengths.max())), 1
    while step <= longest:
        names.append(_doubled(names[-1], step))
        step *= 2
    return names, len(first)


def _marked(words: NDArray[np.intp], texts: Words, mark: int) -> NDArray[np.int32]:
    """Words with a number of its own after each text, from `mark` on."""
    out = np.empty(len(words) + len(texts), dtype=np.int32)
    out[np.arange(len(words)) + np.repeat(np.arange(len(texts)), texts.lengths)] = words
    out[texts.starts[1:] + np.arange(len(texts))] = mark + np.arange(len(texts))
    return out


def _doubled(names: NDArray[np.int32], step: int) -> NDArray[np.int32]:
    """Names of runs of 2h words from those of h words; what lies behind the end is smaller than everything."""
    pairs = (names.astype(np.int64) + 1) << 32
    pairs[:-step] |= names[step:].astype(np.int64) + 1
    order = np.argsort(pairs)
    new = np.ones(len(pairs), dtype=np.int32)
    new[0] = 0
    ordered = pairs[order]
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:], casting="unsafe")
    out = np.empty(len(pairs), dtype=np.int32)
    out[order] = np.cumsum(new, dtype=np.int32)
    return out


def _in_common(names: list[NDArray[np.int32]], first: Integers, second: Integers) -> Integers:
    """How many words two suffixes have in common from their beginnings on; it ends before the mark of either text."""
    length = np.zeros(len(first), dtype=np.int64)
    size = len(names[0])
    for level in range(len(names) - 1, -1, -1):
        a, b = first + length, second + length
        inside = (a < size) & (b < size)
        a, b = np.minimum(a, size - 1), np.minimum(b, size - 1)
        length += np.where(inside & (names[level][a] == names[level][b]), 1 << level, 0)
    return length
