"""The longest run of words that each text has in common with some other text, exactly and in bounded memory.

All suffixes of both sides are sorted by prefix doubling. The longest common run that begins at a word is that of its
suffix and the nearest suffix of the other side, before or after it in the sorted order.

Source: Manber and Myers, "Suffix Arrays: A New Method for On-Line String Searches" (1993); Karp, Miller and Rosenberg,
    "Rapid Identification of Repeated Patterns in Strings, Trees and Arrays" (1972), for the ranks of runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Integers
from dpassay.data.word_runs import HashSet, Words

_CHUNK = 1 << 21  # words of each side that are sorted at once, unless a single text has more


def longest_runs(texts: Words, others: Words, *, least: int = 1, chunk: int = _CHUNK) -> Integers:
    """For each text, the number of words in the longest run that occurs, word for word, within one of `others`.

    A run lies within one text on both sides, so the sides can be split between texts: memory grows with `chunk` or with
    the longest text, not with the number of texts. Two words count as equal if their 64-bit hashes are.

    Args:
        texts: N texts; a text may be empty.
        others: the texts to search.
        least: shorter runs are ignored. Only words within runs of this length that both sides have, by their hashes,
            are sorted, which is much faster if the sides have little in common.
        chunk: number of words of each side that are sorted at once.

    Returns:
        Shape (N,), 0 if there is no common run of `least` words.
    """
    result = np.zeros(len(texts), dtype=np.int64)
    if least == 1:
        return _of_chunks(texts, others, chunk)
    there, _ = _within_runs(others, HashSet(texts.runs(least)), least)
    here, owners = _within_runs(texts, HashSet(there.runs(least)), least)
    np.maximum.at(result, owners, _of_chunks(here, there, chunk))
    result[result < least] = 0
    return result


def _within_runs(words: Words, runs: HashSet, n: int) -> tuple[Words, Integers]:
    """The maximal stretches covered by runs of n words from the set, as texts, and the index of the text of each.

    If the set has all runs of the other side, every common run of at least n words lies within one stretch.
    """
    hashes, lengths, owners = [words.hashes[:0]], [words.starts[:0]], [words.starts[:0]]
    first = 0
    for piece in words.pieces():
        begins = np.flatnonzero(piece.run_begins(n))[runs.contains(piece.runs(n))]
        change = np.zeros(len(piece.hashes) + 1, dtype=np.int8)
        change[begins] += 1
        change[begins + n] -= 1
        covered = np.cumsum(change[:-1], dtype=np.int64) > 0
        fresh = covered.copy()
        fresh[1:] &= ~covered[:-1]
        starts = piece.starts[:-1][piece.lengths > 0]
        fresh[starts] = covered[starts]
        hashes.append(piece.hashes[covered])
        lengths.append(np.diff(np.flatnonzero(fresh[covered]), append=np.count_nonzero(covered)))
        owners.append(first + np.searchsorted(piece.starts, np.flatnonzero(fresh), side="right") - 1)
        first += len(piece)
    ends = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return Words(np.concatenate(hashes), ends), np.concatenate(owners)


def _of_chunks(texts: Words, others: Words, chunk: int) -> Integers:
    """For each text, the longest run in common."""
    result = np.zeros(len(texts), dtype=np.int64)
    for begin, end in _cuts(texts, chunk):
        here = _part(texts, begin, end)
        for first, last in _cuts(others, chunk):
            there = _part(others, first, last)
            np.maximum(result[begin:end], of_chunk(here, there), out=result[begin:end])
    return result


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


def of_chunk(texts: Words, others: Words) -> Integers:
    if not len(texts.hashes) or not len(others.hashes):
        return np.zeros(len(texts), dtype=np.int64)
    names, order, boundary = _names(texts, others)
    size = len(order)
    is_other = order >= boundary
    indices = np.arange(size)
    above = np.maximum.accumulate(np.where(is_other, indices, -1))
    below = np.minimum.accumulate(np.where(is_other, indices, size)[::-1])[::-1]
    mine = order[~is_other]
    longest = np.zeros(size, dtype=np.int64)
    for nearest in (above[~is_other], below[~is_other]):
        known = (nearest >= 0) & (nearest < size)
        of, beside = mine[known], order[nearest[known]]
        longest[of] = np.maximum(longest[of], _in_common(names, of, beside))
    begins = texts.starts[:-1] + np.arange(len(texts))  # each text is followed by its end mark
    return np.asarray(np.maximum.reduceat(longest[:boundary], begins), dtype=np.int64)


def _names(texts: Words, others: Words) -> tuple[list[NDArray[np.int32]], Integers, int]:
    """For h = 1, 2, 4, …, the rank of the run of h words that begins at each position; equal for equal runs.

    Every text ends in its own mark, so no run across its end equals another. The second value is the order of the
    positions by the words that begin there, the third the position at which `others` begin.
    """
    words = HashSet(np.concatenate([texts.hashes, others.hashes]))
    first = _marked(words.indices(texts.hashes), texts, len(words))
    second = _marked(words.indices(others.hashes), others, len(words) + len(texts))
    names = [np.concatenate([first, second])]
    order = _sorted_by(names[0], np.arange(len(names[0])))
    longest, step = int(max(texts.lengths.max(), others.lengths.max())), 1
    while step <= longest:
        order = _sorted_by_pairs(names[-1], order, step)
        names.append(_doubled(names[-1], order, step))
        step *= 2
    return names, order, len(first)


def _marked(words: NDArray[np.unsignedinteger], texts: Words, mark: int) -> NDArray[np.int32]:
    """Words with a distinct number after each text, starting from `mark`."""
    out = np.empty(len(words) + len(texts), dtype=np.int32)
    out[np.arange(len(words)) + np.repeat(np.arange(len(texts)), texts.lengths)] = words
    out[texts.starts[1:] + np.arange(len(texts))] = mark + np.arange(len(texts))
    return out


def _sorted_by(names: NDArray[np.int32], indices: Integers) -> Integers:
    """Places in the order of their ranks; stable for equal ranks.

    Sorting integers that combine rank and position is several times as fast as `argsort`.
    """
    keys = names[indices].astype(np.int64) << 32
    keys |= np.arange(len(indices))
    keys.sort()
    keys &= 2**32 - 1
    return np.asarray(indices[keys], dtype=np.int64)


def _sorted_by_pairs(names: NDArray[np.int32], order: Integers, step: int) -> Integers:
    """The order of runs of 2h words, given that of h words; positions beyond the end sort first."""
    by_second = order - step
    return _sorted_by(names, np.concatenate([np.arange(len(order) - step, len(order)), by_second[by_second >= 0]]))


def _doubled(names: NDArray[np.int32], order: Integers, step: int) -> NDArray[np.int32]:
    """Ranks of runs of 2h words, given those of h words and the order of the former."""
    second = np.append(names[step:], np.full(step, -1, dtype=np.int32))
    differs = np.zeros(len(order), dtype=np.int32)
    for half in (names[order], second[order]):
        differs[1:] |= half[1:] != half[:-1]
    out = np.empty(len(order), dtype=np.int32)
    out[order] = np.cumsum(differs, dtype=np.int32)
    return out


def _in_common(names: list[NDArray[np.int32]], first: Integers, second: Integers) -> Integers:
    """The length of the common prefix of two suffixes, in words; it ends before the mark of either text."""
    length = np.zeros(len(first), dtype=np.int64)
    size = len(names[0])
    for level in range(len(names) - 1, -1, -1):
        a, b = first + length, second + length
        inside = (a < size) & (b < size)
        a, b = np.minimum(a, size - 1), np.minimum(b, size - 1)
        length += np.where(inside & (names[level][a] == names[level][b]), 1 << level, 0)
    return length
