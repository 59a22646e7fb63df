"""Text canaries for third-party generators: what is planted, and how synthetic text is searched for it.

There are two kinds. A *key* is a random number in a sentence, written like the numbers in the data; it is found if it
is printed. An *echo* begins like the data and ends in words that are common but occur nowhere together: a
generator that imitates its data produces the beginning anyway, and the ending only if it saw it. An echo is scored by
the likelihood of its ending under an n-gram model of the synthetic text. For tables see `attacks.canaries.rows`.

Source: Meeus, Wutschitz, Zanella-Béguelin, Tople and Shokri, "The Canary's Echo: Auditing Privacy Risks of
    LLM-Generated Synthetic Text" (2025), for canaries with an in-distribution prefix and a suffix of high perplexity.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.attacks.membership.ngram_model import NGramModel
from dpassay.base.arrays import Bools, Floats

ORDER = 8
"""Order of the n-gram models: seven bytes of context extend into the previous word, which makes endings rare."""

PIECE = 2_000_000
"""Number of characters of text to which one model is fitted."""

FORM = "#####"
"""How keys are written if no text of the data holds a number: each # is a digit."""

TEMPLATES = (
    "Please call me back on {key} after five.",
    "My customer number is {key}, thank you.",
    "I was told to quote {key} in any reply.",
    "The order {key} has not arrived yet.",
    "We spoke last week about {key}.",
    "Could you check what happened to {key}?",
    "As agreed, the reference is {key} for both of us.",
    "You can find everything under {key} in your files.",
    "Our contract {key} ends next month.",
    "Send it to box {key} and let me know.",
)
"""Sentences for keys; none of them names what it holds."""

PLACE = "{key}"
"""Where a template has its key."""

_MIN_DIGITS, _MAX_DIGITS = 5, 20  # with fewer, a key is printed by chance; more are no number that people write
_MAX_FORMS = 5
_NUMBER = re.compile(r"(?<![\w.,])[0-9](?:[ ./-]?[0-9]){4,}(?!\w)", re.ASCII)
_DIGIT = re.compile("[0-9]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATES = re.compile(r"##?([./-])##?\1####|####([./-])##?\2##?")
_BEGINNING = 48  # largest number of bytes of an echo's beginning; cut at a word
_ENDING = 8  # words of an echo's ending
_COMMON = 5  # number of texts that must contain a word for it to count as common
_MIN_WORDS = 100

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


def form(key: str) -> str:
    """How a key is written: # for each digit, and what stands between them."""
    return _DIGIT.sub("#", key)


def numbers_in(text: str) -> list[str]:
    """The numbers in a text that keys can be written like: of 5 to 20 digits, in groups or not, and no dates."""
    result = (match.group() for match in _NUMBER.finditer(text))
    return [number for number in result if _is_form(form(number))]


def _is_form(written: str) -> bool:
    return _MIN_DIGITS <= written.count("#") <= _MAX_DIGITS and _DATES.fullmatch(written) is None


def draw_keys(
    count: int, taken: Collection[str], rng: np.random.Generator, forms: Mapping[str, int] | None = None
) -> list[str]:
    """Distinct random numbers in random order, excluding those already taken, written like the numbers in the data.

    `forms` says how often the numbers in the data are written in each form; keys have the five most frequent ones, as
    often, or five digits if there is none.

    Raises:
        ValueError: if there are not enough numbers left.
    """
    often = sorted((forms or {FORM: 1}).items(), key=lambda item: (-item[1], item[0]))[:_MAX_FORMS]
    written = [name for name, _ in often]
    shares = np.array([number for _, number in often], dtype=np.float64)
    used = {key for key in taken if form(key) in written}
    free = sum(10 ** name.count("#") for name in written) - len(used)
    if count > free:
        raise ValueError(
            f"{free} numbers like {' or '.join(written)} are not in the data, but {count} are needed, including those "
            "of the negative control; plan fewer canaries"
        )
    keys: dict[str, None] = {}
    while len(keys) < count:
        digits = rng.integers(10, size=(count, _MAX_DIGITS))
        for row, index in zip(digits, rng.choice(len(written), size=count, p=shares / shares.sum()), strict=True):
            key = written[index].replace("#", "{}").format(*row)
            if key not in used and len(keys) < count:
                keys.setdefault(key)
    return list(keys)


def check_template(template: str) -> str:
    """`template`, if it has one place for a key and no number of its own.

    Raises:
        ValueError: if it has not.
    """
    if not template.isascii() and _SURROGATE.search(template):
        raise ValueError("template has an unpaired surrogate, which is not a valid character")
    if template.count(PLACE) != 1 or _DIGIT.search(template):
        raise ValueError(
            f"template must have {PLACE} once and no digit, such as 'The order is {PLACE}', not {template!r}"
        )
    return template


def printed_keys(texts: Iterable[str], keys: Sequence[str]) -> Bools:
    """Which keys the texts print, shape (keys,); as part of a longer number, a key is not printed."""
    forms = sorted({form(key) for key in keys})
    written = ["[0-9]".join(map(re.escape, item.split("#"))) for item in forms]
    patterns = [re.compile(f"(?<![0-9])(?=({item})(?![0-9]))") for item in written]
    wanted, results = set(keys), set[str]()
    for text in texts:
        for pattern in patterns:
            results.update(wanted.intersection(pattern.findall(text)))
    return np.array([key in results for key in keys], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Echo:
    """A text canary; its ending follows the first `start` characters."""

    text: str
    start: int


def draw_echoes(count: int, texts: Sequence[str], rng: np.random.Generator) -> list[Echo]:
    """Distinct echoes that begin like the texts, of which there is at least one, and end in random words common in
    them.

    Words that occur in fewer than five texts are excluded from endings, so that no name from a single record is used.
    If fewer than 100 words remain, plain English words are added. A beginning is sampled from an n-gram model and may
    repeat a piece of a text.
    """
    holding = Counter(word for text in texts for word in set(_WORD.findall(text.casefold())))
    common = sorted(word for word, held in holding.items() if held >= _COMMON)
    if len(common) < _MIN_WORDS:
        common = sorted({*common, *PLAIN_WORDS})
    echoes: list[Echo] = []
    seen: set[str] = set()
    for beginning in draw_beginnings(count, texts, rng, common[0].capitalize()):
        while True:
            ending = " " + " ".join(common[index] for index in rng.integers(len(common), size=_ENDING))
            if ending not in seen:
                break
        seen.add(ending)
        echoes.append(Echo(beginning + ending, len(beginning)))
    return echoes


def draw_beginnings(count: int, texts: Sequence[str], rng: np.random.Generator, instead: str = "The") -> list[str]:
    """Beginnings like those of the texts, from an n-gram model of them; `instead` where no whole word is drawn."""
    written = NGramModel.fit(texts, order=ORDER).sample(rng, count, longest=_BEGINNING)
    return [" ".join(text.replace("�", " ").split()[:-1]) or instead for text in written]


def echo_log_probabilities(
    texts: Iterable[str], echoes: Sequence[Echo], *, copied: Sequence[str] = ()
) -> tuple[Floats, Floats]:
    """The log-likelihood of the ending of each echo, given its beginning, under models of the synthetic texts, and of
    these together with `copied`; two arrays of shape (echoes,), in nats.

    The texts, which may be an iterator, are read in pieces of two million characters, a model is fitted to each, and
    the maximum is used: an echo that is repeated in any piece stands out, and memory is that of one piece.
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
