"""Text canaries for third-party generators: what is planted, and how synthetic text is searched for it.

There are two kinds. A *key* is five random digits in a fixed sentence (`attacks.canaries.reconstruction`); it is found
if it is printed. An *echo* begins like the data and ends in words that are common but occur nowhere together: a
generator that imitates its data produces the beginning anyway, and the ending only if it saw it. An echo is scored by
the likelihood of its ending under an n-gram model of the synthetic text. For tables see `attacks.canaries.rows`.

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

from cupel.accounting.arrays import Bools, Floats
from cupel.attacks.canaries.reconstruction import PREFIX, extract_keys
from cupel.attacks.membership.ngram_model import NGramModel

ORDER = 8
"""Order of the n-gram models: seven bytes of context extend into the previous word, which makes endings rare."""

PIECE = 2_000_000
"""Number of characters of text to which one model is fitted."""

_KEYS = 100_000
_BEGINNING = 48  # largest number of bytes of an echo's beginning; cut at a word
_ENDING = 8  # words of an echo's ending
_COMMON = 5  # number of texts that must contain a word for it to count as common
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
"""Words for endings if too few words of the data are common."""


def draw_coins(count: int) -> Bools:
    """Independent fair coins from the operating system's entropy, shape (count,)."""
    octets = np.frombuffer(secrets.token_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(octets)[:count].astype(np.bool_)


def draw_keys(count: int, taken: Collection[str], rng: np.random.Generator) -> list[str]:
    """Distinct keys of five digits in random order, excluding those already taken.

    Args:
        count: number of keys.
        taken: keys that the data contain.
        rng: of the draw.

    Raises:
        ValueError: if there are not enough keys left.
    """
    free = np.setdiff1d(np.arange(_KEYS), np.array([int(key) for key in taken], dtype=np.int64))
    if count > free.size:
        raise ValueError(
            f"{free.size} keys of five digits are not in the data, but {count} are needed, including those of the "
            "negative control; plan fewer canaries"
        )
    return [f"{key:05d}" for key in rng.choice(free, size=count, replace=False)]


def key_text(key: str) -> str:
    """The text of the record that holds a key."""
    return PREFIX + key


def printed_keys(texts: Iterable[str], keys: Sequence[str]) -> Bools:
    """Which keys the texts print, shape (keys,)."""
    wanted, found = set(keys), set[str]()
    for text in texts:
        found.update(wanted.intersection(extract_keys(text)))
    return np.array([key in found for key in keys], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Echo:
    """A text canary.

    Attributes:
        text: the full text.
        start: number of characters of its beginning; the rest is its ending.
    """

    text: str
    start: int


def draw_echoes(count: int, texts: Sequence[str], rng: np.random.Generator) -> list[Echo]:
    """Distinct echoes that begin like the texts and end in random words that are common in them.

    Words that occur in fewer than five texts are excluded from endings, so that no name from a single record is used.
    If fewer than 100 words remain, plain English words are added. A beginning is sampled from an n-gram model and may
    repeat a piece of a text.

    Args:
        count: number of echoes.
        texts: examples of the data, at least one.
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
    """The log-likelihood of the ending of each echo, given its beginning, under models of the texts.

    The texts are read in pieces of two million characters, a model is fitted to each, and the maximum is used: an echo
    that is repeated in any piece stands out, and memory is that of one piece.

    Args:
        texts: the synthetic texts; may be an iterator.
        echoes: whose endings are scored.
        copied: texts that are added to the first piece for the second result.

    Returns:
        Two arrays of shape (echoes,), in nats: for the texts, and for the texts together with `copied`.
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
