"""A language model of letters: how likely is a text, judged by nothing but some other texts?

The model is one of bytes (of UTF-8), which is what keys, names and suffixes are made of: no word is unknown, and no
tokenizer has to be agreed upon. It is fitted by counting, so that a second model of reference text costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupel.accounting import validate

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BOUNDARY = 256
"""The symbol before the first byte of a text and after its last one."""
SYMBOLS = 257
"""What can follow: 256 bytes, or the end."""

_LONGEST = 256
_CHUNK = 1 << 20  # bytes of text that are worked on at once


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Everything that followed the contexts of one length.

    A context is numbered by its place among `contexts`, whose keys are (number of the context without its oldest
    symbol)·SYMBOLS + oldest symbol; an event is (number of the context)·SYMBOLS + the symbol that followed.
    """

    contexts: Integers
    events: Integers
    counts: Integers

    @property
    def starts(self) -> Integers:
        """Where the events of each context start, shape (contexts + 1,)."""
        return np.asarray(np.searchsorted(self.events, np.arange(len(self.contexts) + 1) * SYMBOLS), dtype=np.int64)


class NGramModel:
    """An interpolated Witten–Bell model of bytes.

    With c(h, w) the number of times that w followed the context h, c(h) their sum over w, T(h) the number of different
    w, and h′ the context without its oldest symbol,

        p(w | h) = (c(h, w) + T(h)·p(w | h′)) / (c(h) + T(h)),

    and p(w | h) = p(w | h′) for a context that was never seen; below the empty context stands the uniform law on the
    257 symbols (256 bytes and the end of the text). So p(· | h) sums to 1 for every h, and no byte has probability 0.
    Contexts reach back to the beginning of the text at most, which they know as such.

    Source: Witten and Bell, "The Zero-Frequency Problem" (1991), method C; Chen and Goodman, "An Empirical Study of
        Smoothing Techniques for Language Modeling" (1999), section 2.5.
    """

    def __init__(self, levels: Sequence[_Level]) -> None:
        self._levels = tuple(levels)
        self._starts = tuple(level.starts for level in self._levels)
        running = [np.concatenate([[0], np.cumsum(level.counts)]) for level in self._levels]
        self._running = tuple(np.asarray(sums, dtype=np.int64) for sums in running)

    @classmethod
    def fit(cls, texts: Iterable[str], *, order: int = 5) -> NGramModel:
        """Counts what follows what.

        Memory is that of the distinct contexts (at most `order` numbers for each byte of text) and a piece of text.

        Args:
            texts: at least one; an iterator will do.
            order: n from 1 to 256: a byte is predicted from the n − 1 bytes before it.

        Raises:
            ValueError: for no texts or an impossible order.
        """
        if validate.integer(minimum=1, order=order) > _LONGEST:
            raise ValueError(f"order must be at most {_LONGEST}, not {order}")
        levels: list[_Level] | None = None
        for symbols, reach, _ in _pieces(texts):
            piece = _count(symbols, reach, order)
            levels = piece if levels is None else _merged(levels, piece)
        if levels is None:
            raise ValueError("an n-gram model needs at least one text to count")
        return cls(levels)

    @property
    def order(self) -> int:
        """n."""
        return len(self._levels)

    def log_probabilities(self, texts: Sequence[str], starts: Sequence[int] | None = None) -> Floats:
        """How likely it is that a text goes on as these do, in nats; that it then ends is not counted.

        Args:
            texts: n texts; an empty one has log-probability 0.
            starts: for each text the number of characters that are given and not counted; 0 for all if None.

        Returns:
            Shape (n,), finite and at most 0.

        Raises:
            ValueError: if there is not one start for each text, or one lies outside its text.
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
            found = np.bincount(owner[counted], weights=logs[counted], minlength=here)
            sums.append(np.asarray(found, dtype=np.float64))
            done += here
        return np.concatenate(sums)

    def log_probability(self, text: str, start: int = 0) -> float:
        """log P(text[start:] | text[:start]) in nats, as `log_probabilities`."""
        return float(self.log_probabilities([text], [start])[0])

    def next_probabilities(self, context: str) -> Floats:
        """The law of the symbol after a text that begins with `context`, shape (257,); the last one is the end."""
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
        """Texts drawn from the model. A high order repeats the texts that were counted.

        The law is a mixture: with probability c(h)/(c(h) + T(h)) a symbol is drawn from those that followed h, else
        from the law of the shorter context.

        Args:
            rng: of the draws; a public choice.
            count: number of texts.
            prefix: what every text begins with.
            longest: bytes after which a text is cut off, its prefix included.

        Returns:
            The texts, prefix included; bytes that are not UTF-8 become U+FFFD.
        """
        validate.integer(count=count)
        begin = _encode(prefix)
        validate.integer(minimum=len(begin), longest=longest)
        written = np.full((count, longest + 1), BOUNDARY, dtype=np.int64)  # the first column is the beginning
        written[:, 1 : len(begin) + 1] = np.frombuffer(begin, dtype=np.uint8)
        lengths = np.full(count, longest)
        alive = np.arange(count)
        for place in range(len(begin) + 1, longest + 1):
            drawn = self._draw(rng, written[alive, max(0, place - self.order) : place], place)
            written[alive, place] = drawn
            lengths[alive[drawn == BOUNDARY]] = place - 1
            alive = alive[drawn != BOUNDARY]
            if not alive.size:
                break
        rows = (row[1 : length + 1] for row, length in zip(written, lengths, strict=True))
        return [row.astype(np.uint8).tobytes().decode("utf-8", "replace") for row in rows]

    def _draw(self, rng: np.random.Generator, before: Integers, reach: int) -> Integers:
        """One symbol for each row of the symbols before it."""
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
            hit = ticket < total  # the others go on to the shorter context
            event = np.searchsorted(running, low[hit] + ticket[hit], side="right") - 1
            drawn[rows[hit]] = level.events[event] % SYMBOLS
            open_[rows[hit]] = False
        return np.asarray(drawn, dtype=np.int64)

    def _nodes(self, before: Integers, reach: Integers) -> list[Integers]:
        """For each context length 0 … order − 1 the numbers of the contexts that end each row, −1 where unseen.

        Args:
            before: shape (rows, at least the smaller of order − 1 and `reach`).
            reach: shape (rows,), the longest context that does not go beyond the beginning of its text.
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
        """p of each symbol given those before it; a boundary that begins a piece gets a number without a meaning."""
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
    """Texts in pieces of about `_CHUNK` bytes, as symbols: a boundary, text, boundary, text, …, boundary.

    Yields:
        The symbols; how many symbols since the last boundary can be a context, that boundary included (0 for the first
        symbol); and which text of the piece each symbol belongs to, a boundary to the text that it ends.
    """
    held: list[bytes] = []
    size = 0
    for text in texts:
        held.append(_encode(text))
        size += len(held[-1]) + 1
        if size >= _CHUNK:
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
    """The symbol so many places before each; where there is none, one that nothing is asked about."""
    return np.concatenate([np.full(min(by, len(symbols)), BOUNDARY), symbols[: max(0, len(symbols) - by)]])


def _find(keys: Integers, wanted: Integers) -> Integers:
    """The place of each wanted key among sorted keys; −1 for one that is not there."""
    if not keys.size:
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def _count(symbols: Integers, reach: Integers, order: int) -> list[_Level]:
    """The levels of one piece."""
    levels = []
    places = np.arange(1, len(symbols))
    node = np.zeros(len(places), dtype=np.int64)
    contexts = np.zeros(1, dtype=np.int64)
    for length in range(order):
        if length:
            inside = reach[places] >= length
            places, node = places[inside], node[inside]
            contexts, node = np.unique(node * SYMBOLS + symbols[places - length], return_inverse=True)
        events, counts = np.unique(node * SYMBOLS + symbols[places], return_counts=True)
        levels.append(_Level(contexts, events, np.asarray(counts, dtype=np.int64)))
    return levels


def _merged(first: Sequence[_Level], second: Sequence[_Level]) -> list[_Level]:
    """The levels of two pieces together; numbers of contexts change from level to level, shortest first."""
    levels = []
    maps = [np.zeros(1, dtype=np.int64)] * 2
    for length, pair in enumerate(zip(first, second, strict=True)):
        contexts = pair[0].contexts
        if length:
            keys = [
                maps[i][level.contexts // SYMBOLS] * SYMBOLS + level.contexts % SYMBOLS for i, level in enumerate(pair)
            ]
            contexts, places = np.unique(np.concatenate(keys), return_inverse=True)
            maps = [places[: len(keys[0])], places[len(keys[0]) :]]
        moved = [maps[i][level.events // SYMBOLS] * SYMBOLS + level.events % SYMBOLS for i, level in enumerate(pair)]
        events, places = np.unique(np.concatenate(moved), return_inverse=True)
        counts = np.zeros(len(events), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([level.counts for level in pair]))
        levels.append(_Level(contexts, events, counts))
    return levels
