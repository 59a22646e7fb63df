"""An n-gram model of bytes: how likely is a text, given only some other texts?

The model predicts the bytes of UTF-8, of which keys, names and suffixes consist: no word is unknown, and no tokenizer
is needed. It is fitted by counting, so a second model of reference texts is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats, Integers

BOUNDARY = 256
"""The symbol before the first byte of a text and after its last byte."""
SYMBOLS = 257
"""Number of possible next symbols: 256 bytes, or the end."""

_LONGEST = 256
CHUNK = 1 << 20  # bytes of text that are processed at once


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Counts of what followed the contexts of one length.

    The number of a context is its index in `contexts`, whose keys are (number of the context without its oldest
    symbol)·SYMBOLS + oldest symbol. An event is (number of the context)·SYMBOLS + the symbol that followed.
    """

    contexts: Integers
    events: Integers
    counts: Integers

    @property
    def starts(self) -> Integers:
        """The index of the first event of each context, shape (contexts + 1,)."""
        return np.asarray(np.searchsorted(self.events, np.arange(len(self.contexts) + 1) * SYMBOLS), dtype=np.int64)


class NGramModel:
    """An interpolated Witten–Bell model of bytes.

    With c(h, w) the number of times that w followed the context h, c(h) their sum over w, T(h) the number of distinct
    w, and h′ the context without its oldest symbol,

        p(w | h) = (c(h, w) + T(h)·p(w | h′)) / (c(h) + T(h)),

    and p(w | h) = p(w | h′) for an unseen context; below the empty context is the uniform distribution on the 257
    symbols (256 bytes and the end of the text). So p(· | h) sums to 1 for every h, and no byte has probability 0.
    Contexts extend at most to the beginning of the text, which is marked as such.

    Source: Witten and Bell, "The Zero-Frequency Problem" (1991), method C; Chen and Goodman, "An Empirical Study of
        Smoothing Techniques for Language Modeling" (1999), section 2.5.
    """

    def __init__(self, levels: Sequence[_Level]) -> None:
        self._levels = tuple(levels)
        self._starts = tuple(level.starts for level in self._levels)
        running = [np.concatenate([[0], np.cumsum(level.counts)]) for level in self._levels]
        self._running = tuple(np.asarray(sums, dtype=np.int64) for sums in running)

    @classmethod
    def fit(cls, texts: Iterable[str], *, order: int = defaults.NGRAM_ORDER) -> NGramModel:
        """Counts what follows each context.

        Memory is that of the distinct contexts (at most `order` numbers for each byte of text) and a piece of text.

        Args:
            texts: at least one; may be an iterator.
            order: n from 1 to 256: a byte is predicted from the n − 1 bytes before it.

        Raises:
            ValueError: if there is no text, or the order is out of range.
        """
        if validate.integer(minimum=1, order=order) > _LONGEST:
            raise ValueError(f"order must be at most {_LONGEST}, not {order}")
        levels: list[_Level] | None = None
        for symbols, reach, _ in _pieces(texts):
            piece = _count(symbols, reach, order)
            levels = piece if levels is None else _merged(levels, piece)
        if levels is None:
            raise ValueError("an n-gram model needs at least one text")
        return cls(levels)

    @property
    def order(self) -> int:
        """n."""
        return len(self._levels)

    def log_probabilities(self, texts: Sequence[str], starts: Sequence[int] | None = None) -> Floats:
        """The log-probability that a text continues as these do, in nats; that it ends there is not included.

        Args:
            texts: n texts; an empty one has log-probability 0.
            starts: for each text, the number of characters that are given and not scored; None for 0.

        Returns:
            Shape (n,), finite and at most 0.

        Raises:
            ValueError: if the number of starts is not n, or a start is outside of its text.
        """
        if starts is not None and len(starts) != len(texts):
            raise ValueError(f"{len(texts)} texts need as many starts, not {len(starts)}")
        given = np.zeros(len(texts), dtype=np.int64)
        for index, start in enumerate(starts if starts is not None else ()):
            if not 0 <= start <= len(texts[index]):
                raise ValueError(f"a start must be between 0 and the length of its text, not {start}")
            given[index] = len(_encode(texts[index][:start]))
        sums: list[Floats] = [np.zeros(0)]
        done = 0
        for symbols, reach, owner in _pieces(texts):
            logs = np.log(self._probabilities(symbols, reach))
            counted = (symbols != BOUNDARY) & (reach > given[done + owner])
            here = int(owner[-1]) + 1
            result = np.bincount(owner[counted], weights=logs[counted], minlength=here)
            sums.append(np.asarray(result, dtype=np.float64))
            done += here
        return np.concatenate(sums)

    def log_probability(self, text: str, start: int = 0) -> float:
        """log P(text[start:] | text[:start]) in nats; see `log_probabilities`."""
        return float(self.log_probabilities([text], [start])[0])

    def next_probabilities(self, context: str) -> Floats:
        """The distribution of the symbol after `context` at the beginning of a text, shape (257,); the end is last."""
        before = np.frombuffer(_encode(context), dtype=np.uint8).astype(np.int64)
        before = np.concatenate([[BOUNDARY], before])
        nodes = self._nodes(before[None, -self.order :], np.array([len(before)]))
        law = np.full(SYMBOLS, 1 / SYMBOLS)
        for level, starts, running, node in zip(self._levels, self._starts, self._running, nodes, strict=True):
            if node[0] >= 0:
                first, last = starts[node[0]], starts[node[0] + 1]
                followed = np.zeros(SYMBOLS)
                followed[level.events[first:last] % SYMBOLS] = level.counts[first:last]
                law = (followed + (last - first) * law) / (running[last] - running[first] + last - first)
        return law

    def sample(self, rng: np.random.Generator, count: int, *, prefix: str = "", longest: int = 1000) -> list[str]:
        """Texts sampled from the model. A high order repeats the texts it was fitted to.

        The distribution is a mixture: with probability c(h)/(c(h) + T(h)) a symbol is drawn from those that followed h,
        else from the distribution of the shorter context.

        Args:
            rng: of the draws; a public choice.
            count: number of texts.
            prefix: the beginning of every text.
            longest: largest number of bytes of a text, its prefix included; longer texts are cut off.

        Returns:
            The texts, prefix included; invalid UTF-8 becomes U+FFFD.
        """
        validate.integer(count=count)
        begin = _encode(prefix)
        validate.integer(minimum=len(begin), longest=longest)
        written = np.full((count, longest + 1), BOUNDARY, dtype=np.int64)  # the first column is the beginning
        written[:, 1 : len(begin) + 1] = np.frombuffer(begin, dtype=np.uint8)
        lengths = np.full(count, longest)
        alive = np.arange(count)
        for index in range(len(begin) + 1, longest + 1):
            drawn = self._draw(rng, written[alive, max(0, index - self.order) : index], index)
            written[alive, index] = drawn
            lengths[alive[drawn == BOUNDARY]] = index - 1
            alive = alive[drawn != BOUNDARY]
            if not alive.size:
                break
        rows = (row[1 : length + 1] for row, length in zip(written, lengths, strict=True))
        return [row.astype(np.uint8).tobytes().decode("utf-8", "replace") for row in rows]

    def _draw(self, rng: np.random.Generator, before: Integers, reach: int) -> Integers:
        """Samples one symbol for each row of preceding symbols."""
        nodes = self._nodes(before, np.full(len(before), reach))
        drawn = rng.integers(SYMBOLS, size=len(before))
        open_ = np.ones(len(before), dtype=np.bool_)
        for level, starts, running, node in reversed(
            list(zip(self._levels, self._starts, self._running, nodes, strict=True))
        ):
            rows = np.flatnonzero(open_ & (node >= 0))
            first, last = starts[node[rows]], starts[node[rows] + 1]
            low, total = running[first], running[last] - running[first]
            ticket = rng.integers(total + last - first) if rows.size else np.zeros(0, dtype=np.int64)
            hit = ticket < total  # the other rows fall back to the shorter context
            event = np.searchsorted(running, low[hit] + ticket[hit], side="right") - 1
            drawn[rows[hit]] = level.events[event] % SYMBOLS
            open_[rows[hit]] = False
        return np.asarray(drawn, dtype=np.int64)

    def _nodes(self, before: Integers, reach: Integers) -> list[Integers]:
        """For each context length 0 … order − 1, the number of the context that ends each row; −1 if unseen.

        Args:
            before: shape (rows, at least min(order − 1, `reach`)).
            reach: shape (rows,), the longest context that does not extend beyond the beginning of its text.
        """
        node = np.zeros(len(before), dtype=np.int64)
        nodes = [node]
        for length in range(1, self.order):
            keys = np.full(len(node), -1, dtype=np.int64)
            known = (node >= 0) & (reach >= length)
            if known.any():
                keys[known] = node[known] * SYMBOLS + before[known, -length]
            node = _find(self._levels[length].contexts, keys)
            nodes.append(node)
        return nodes

    def _probabilities(self, symbols: Integers, reach: Integers) -> Floats:
        """p of each symbol given those before it; the value for the boundary that begins a piece is meaningless."""
        law = np.full(len(symbols), 1 / SYMBOLS)
        node = np.zeros(len(symbols), dtype=np.int64)
        for length, (level, starts, running) in enumerate(zip(self._levels, self._starts, self._running, strict=True)):
            if length:
                keys = np.where((node >= 0) & (reach >= length), node * SYMBOLS + _shifted(symbols, length), -1)
                node = _find(level.contexts, keys)
            seen = np.flatnonzero(node >= 0)
            here = node[seen]
            event = _find(level.events, here * SYMBOLS + symbols[seen])
            followed = np.where(event >= 0, level.counts[event], 0)
            kinds = starts[here + 1] - starts[here]
            total = running[starts[here + 1]] - running[starts[here]]
            law[seen] = (followed + kinds * law[seen]) / (total + kinds)
        return law


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _pieces(texts: Iterable[str]) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Texts in pieces of about `CHUNK` bytes, as symbols: a boundary, text, boundary, text, …, boundary.

    Yields:
        The symbols; the length of the longest context of each symbol, the last boundary included (0 for the first
        symbol); and the index in the piece of the text of each symbol, where a boundary belongs to the text it ends.
    """
    held: list[bytes] = []
    size = 0
    for text in texts:
        held.append(_encode(text))
        size += len(held[-1]) + 1
        if size >= CHUNK:
            yield _symbols(held)
            held, size = [], 0
    if held:
        yield _symbols(held)


def _symbols(texts: Sequence[bytes]) -> tuple[Integers, Integers, Integers]:
    lengths = np.array([len(text) + 1 for text in texts])
    ends = np.cumsum(lengths)
    symbols = np.full(int(ends[-1]) + 1, BOUNDARY, dtype=np.int64)
    inside = np.ones(len(symbols), dtype=np.bool_)
    inside[0] = inside[ends] = False
    symbols[inside] = np.frombuffer(b"".join(texts), dtype=np.uint8)
    owner = np.concatenate([[0], np.repeat(np.arange(len(texts)), lengths)])
    reach = np.arange(len(symbols)) - np.concatenate([[0], ends])[owner]
    reach[0] = 0
    return symbols, reach, owner


def _shifted(symbols: Integers, by: int) -> Integers:
    """The symbols `by` positions earlier; a boundary where there is none, which is never looked up."""
    return np.concatenate([np.full(min(by, len(symbols)), BOUNDARY), symbols[: max(0, len(symbols) - by)]])


def _find(keys: Integers, wanted: Integers) -> Integers:
    """The index of each wanted key among sorted keys; −1 if it is missing."""
    if not keys.size:
        return np.full(len(wanted), -1, dtype=np.int64)
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[index] == wanted, index, -1)


def _count(symbols: Integers, reach: Integers, order: int) -> list[_Level]:
    """The levels of one piece."""
    levels = []
    indices = np.arange(1, len(symbols))
    node = np.zeros(len(indices), dtype=np.int64)
    contexts = np.zeros(1, dtype=np.int64)
    for length in range(order):
        if length:
            inside = reach[indices] >= length
            indices, node = indices[inside], node[inside]
            contexts, node = np.unique(node * SYMBOLS + symbols[indices - length], return_inverse=True)
        events, counts = np.unique(node * SYMBOLS + symbols[indices], return_counts=True)
        levels.append(_Level(contexts, events, np.asarray(counts, dtype=np.int64)))
    return levels


def _merged(first: Sequence[_Level], second: Sequence[_Level]) -> list[_Level]:
    """The levels of two pieces combined, shortest contexts first, since numbers of contexts change at each level."""
    levels = []
    maps = [np.zeros(1, dtype=np.int64)] * 2
    for length, pair in enumerate(zip(first, second, strict=True)):
        contexts = pair[0].contexts
        if length:
            keys = [
                maps[i][level.contexts // SYMBOLS] * SYMBOLS + level.contexts % SYMBOLS for i, level in enumerate(pair)
            ]
            contexts, indices = np.unique(np.concatenate(keys), return_inverse=True)
            maps = [indices[: len(keys[0])], indices[len(keys[0]) :]]
        moved = [maps[i][level.events // SYMBOLS] * SYMBOLS + level.events % SYMBOLS for i, level in enumerate(pair)]
        events, indices = np.unique(np.concatenate(moved), return_inverse=True)
        counts = np.zeros(len(events), dtype=np.int64)
        np.add.at(counts, indices, np.concatenate([level.counts for level in pair]))
        levels.append(_Level(contexts, events, counts))
    return levels
