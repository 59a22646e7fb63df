"""Canaries of text for generators of other people: what is planted, and how synthetic text is searched for it.

Two kinds. A *key* is five random digits in a fixed sentence (`attacks.reconstruction`); it is found where it is
printed. An *echo* begins as the data do and ends in words that are common but stand together nowhere: a generator that
imitates its data reproduces the beginning by itself, and the ending only if it saw it. An echo is scored by how likely
an n-gram model of the synthetic text makes its ending. Rows of tables are planted by `attacks.planted_rows`.

Source: Meeus, Wutschitz, Zanella-Béguelin, Tople and Shokri, "The Canary's Echo: Auditing Privacy Risks of
    LLM-Generated Synthetic Text" (2025), for canaries with an in-distribution prefix and a suffix of high perplexity.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupel.attacks.canaries.reconstruction import PREFIX, extract_keys
from cupel.attacks.membership.ngram_model import NGramModel

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ORDER = 8
"""Of the n-gram models: seven bytes before a letter reach into the word before it, which is where an ending is rare."""

PIECE = 2_000_000
"""Characters of text that one model is fitted to."""

_KEYS = 100_000
_BEGINNING = 48  # bytes of an echo's beginning, at most; cut at a word
_ENDING = 8  # words of an echo's ending
_COMMON = 5  # texts that hold a word for it to be common
_FEWEST_WORDS = 100

_WORD = re.compile(r"[^\W\d_]{2,}")

PLAIN_WORDS = tuple(
    _WORD.findall("""
    apple basket bridge butter candle carpet castle chalk chimney circle cloud coffee copper corner cotton cousin
    curtain desert dinner dollar engine feather finger flower forest garden ginger glass hammer harbour honey
    island jacket kettle kitchen ladder lantern lemon letter marble market mirror mountain needle orange paper
    pencil pepper pillow pocket ribbon river saddle salt shadow silver spoon stone summer table ticket tower
    valley window
    """)
)
"""Words for endings where the data have too few that are common."""


def draw_coins(count: int) -> Bools:
    """Independent fair coins from the entropy of the operating system, shape (count,)."""
    octets = np.frombuffer(secrets.token_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(octets)[:count].astype(np.bool_)


def draw_keys(count: int, taken: Collection[str], rng: np.random.Generator) -> list[str]:
    """Distinct keys of five digits in random order, none of which is taken already.

    Args:
        count: how many.
        taken: keys that the data print.
        rng: of the draw.

    Raises:
        ValueError: if not as many are left.
    """
    free = np.setdiff1d(np.arange(_KEYS), np.array([int(key) for key in taken], dtype=np.int64))
    if count > free.size:
        raise ValueError(
            f"{free.size} keys of five digits are not in the data, and {count} are needed, those of the negative "
            "control included; plan fewer canaries"
        )
    return [f"{key:05d}" for key in rng.choice(free, size=count, replace=False)]


def key_text(key: str) -> str:
    """The record that holds a key."""
    return PREFIX + key


def printed_keys(texts: Iterable[str], keys: Sequence[str]) -> Bools:
    """Which keys the texts print, shape (keys,); each counts once however often it is printed."""
    wanted, found = set(keys), set[str]()
    for text in texts:
        found.update(wanted.intersection(extract_keys(text)))
    return np.array([key in found for key in keys], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Echo:
    """A canary of text.

    Attributes:
        text: all of it.
        start: number of characters of its beginning; the rest is its ending.
    """

    text: str
    start: int


def draw_echoes(count: int, texts: Sequence[str], rng: np.random.Generator) -> list[Echo]:
    """Distinct echoes that begin like the texts and end in random common words of theirs.

    Words that fewer than five texts hold are left out of endings, so that no name of one record gets into them; where
    that leaves fewer than 100, plain English words join them. A beginning is written by an n-gram model and may repeat
    a piece of a text.

    Args:
        count: how many.
        texts: what the data look like, at least one.
        rng: of the draw.
    """
    holding = Counter(word for text in texts for word in set(_WORD.findall(text.casefold())))
    common = sorted(word for word, held in holding.items() if held >= _COMMON)
    if len(common) < _FEWEST_WORDS:
        common = sorted({*common, *PLAIN_WORDS})
    beginnings = NGramModel.fit(texts, order=ORDER).sample(rng, count, longest=_BEGINNING)
    echoes: list[Echo] = []
    seen: set[str] = set()
    for written in beginnings:
        beginning = " ".join(written.replace("�", " ").split()[:-1]) or common[0].capitalize()
        while True:
            ending = " " + " ".join(common[place] for place in rng.integers(len(common), size=_ENDING))
            if ending not in seen:
                break
        seen.add(ending)
        echoes.append(Echo(beginning + ending, len(beginning)))
    return echoes


def echo_log_probabilities(
    texts: Iterable[str], echoes: Sequence[Echo], *, copied: Sequence[str] = ()
) -> tuple[Floats, Floats]:
    """How likely the texts make the ending of each echo after its beginning.

    The texts are read in pieces of two million characters, a model is fitted to each, and the largest value counts: an
    echo that any piece repeats stands out, and memory is that of one piece.

    Args:
        texts: the synthetic texts; an iterator will do.
        echoes: of which the endings are judged.
        copied: texts that are put beside the first piece for the second answer.

    Returns:
        Two arrays of shape (echoes,), in nats: for the texts, and for the texts with `copied` beside them.
    """
    judged, starts = [echo.text for echo in echoes], [echo.start for echo in echoes]

    def judge(piece: Sequence[str]) -> Floats:
        return NGramModel.fit(piece, order=ORDER).log_probabilities(judged, starts)

    largest = beside = None
    for piece in _pieces(texts):
        here = judge(piece)
        if beside is None:
            beside = judge([*piece, *copied])
        largest = here if largest is None else np.maximum(largest, here)
    if largest is None or beside is None:
        largest, beside = judge([""]), judge(["", *copied])
    return largest, np.maximum(largest, beside)


def _pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    piece: list[str] = []
    size = 0
    for text in texts:
        piece.append(text)
        size += len(text) + 1
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
