"""Training documents of the embedded model, made by grammars: topics, notes, secrets, and the series they come in.

A series is what the model sees as one context: documents of one kind, one after the other. Everything is invented
here from word lists and a seeded generator: no private or real data, so that what the model writes about the data of
a context can only come from that context. `HELD_OUT` wordings and the `unseen_secret` format are never in training.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpassay.data.corpora import KEY_PREFIX, render_note
from embedded_model.grammar import SLOTS, TOPICS
from embedded_model.wordings import HELD_OUT, OPENINGS, WORDINGS

_SLOT = re.compile(r"\{(\w+)\}")
KINDS: dict[str, float] = {"topic": 0.26, "note": 0.10, "same": 0.40, "different": 0.12, "repeat": 0.02, "ids": 0.10}
"""Kinds of series and their share of the series in training."""
DOCUMENTS_IN_SERIES = (0.05, 0.45, 0.25, 0.25)  # probability of 1, 2, 3, 4 documents
_MARKS = ("-", "-", "/", " ", "+", "*", "#", "=", "|", "~", ",", "@", "&", "x", "^", "%", "$", "!", "\\", "(", ";")
_ALL_MARKS = (*_MARKS, ".", ":", "_", "'", '"', ")", "[", "]", "<", ">", "?", "{", "}")  # between words
REUSE = 0.5  # probability that a slot repeats a value of the series


@dataclass(frozen=True)
class Series:
    """Documents of one kind in a row.

    Attributes:
        kind: One of `KINDS`.
        documents: The texts; empty for kind ``ids``, whose documents are random tokens.
        digits_before: In each document of secrets, digits before the secret; there are none after it.
    """

    kind: str
    documents: tuple[str, ...] = ()
    digits_before: int = 0


@dataclass
class _Values:
    """Values that the slots of a series have had, so that later documents can repeat them."""

    rng: np.random.Generator
    seen: dict[str, list[str]] = field(default_factory=dict)

    def get(self, name: str, fresh: Callable[[], str]) -> str:
        """An earlier value of the slot with probability `REUSE`, else a fresh one; remembered for later."""
        known = self.seen.setdefault(name, [])
        value = _pick(self.rng, known) if known and self.rng.random() < REUSE else fresh()
        known.append(value)
        return value


def _pick(rng: np.random.Generator, items: list[str] | tuple[str, ...]) -> str:
    return items[int(rng.integers(len(items)))]


# Topics


def topical_document(topic: str, rng: np.random.Generator, values: _Values | None = None) -> str:
    """A document of a topic: its first two sentences and, with probability .6, the third.

    Args:
        topic: A key of `TOPICS`.
        rng: Source of the choices.
        values: Slot values of the series so far; None for a document on its own.

    Returns:
        The text, in one line.
    """
    values = values or _Values(rng)
    sentences = TOPICS[topic][: 3 if rng.random() < 0.6 else 2]

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name == "n":
            return values.get(f"{topic}.n", lambda: str(rng.integers(2, 60)))
        return values.get(name, lambda: _pick(rng, SLOTS[name]))

    return " ".join(_SLOT.sub(fill, _pick(rng, alternatives)) for alternatives in sentences)


def _pattern(topic: str) -> re.Pattern[str]:
    def sentence(template: str) -> str:
        parts = re.split(r"(\{\w+\})", template)
        return "".join(
            re.escape(p)
            if not p.startswith("{")
            else r"[1-9]\d?"
            if p == "{n}"
            else f"(?:{'|'.join(map(re.escape, SLOTS[p[1:-1]]))})"
            for p in parts
        )

    first, second, third = ("(?:" + "|".join(map(sentence, s)) + ")" for s in TOPICS[topic])
    return re.compile(f"{first} {second}(?: {third})?")


_PATTERNS = {topic: _pattern(topic) for topic in TOPICS}


def topic_of(text: str) -> str | None:
    """The topic whose grammar derives the whole text, or None (no text is derived by two)."""
    return next((topic for topic, pattern in _PATTERNS.items() if pattern.fullmatch(text)), None)


def in_grammar(text: str) -> bool:
    """Whether the whole text is a document of some topic's grammar; a number is 1 to 99 there."""
    return topic_of(text) is not None


# Notes: the shape of the builtin notes with random values, and other wordings of the same kind


def _note_values(rng: np.random.Generator, values: _Values) -> dict[str, str]:
    def number(low: int, high: int) -> Callable[[], str]:
        return lambda: str(int(rng.integers(low, high)))

    def skewed(high: float) -> Callable[[], str]:
        return lambda: str(int(np.exp(rng.random() * np.log(high))) - int(rng.random() < 0.3))

    return {
        "coinsurance": values.get("coinsurance", lambda: _pick(rng, ("0", "25", "50", "95", "100", "10", "75"))),
        "deductible": values.get("deductible", number(0, 2)),
        "incentive": values.get("incentive", skewed(2000.0)),
        "disease": values.get("disease", number(0, 590)),
        "limitation": values.get("limitation", number(0, 2)),
        "visits": values.get("visits", skewed(80.0)),
        "age": values.get("age", number(18, 90)),
    }


def _note(rng: np.random.Generator, values: _Values, wording: tuple[int, ...]) -> str:
    v = _note_values(rng, values)
    if not wording:
        return render_note(
            coinsurance=int(v["coinsurance"]),
            deductible=v["deductible"] == "1",
            incentive=int(v["incentive"]),
            disease=int(v["disease"]) / 10,
            limitation=v["limitation"] == "1",
            visits=int(v["visits"]),
        )
    fields = (
        f"Patient: {v['age']}-year-old",
        f"coinsurance {v['coinsurance']}%",
        f"payment ${v['incentive']}",
        f"visits {v['visits']}",
        f"disease index {int(v['disease']) / 10:.1f}",
        f"deductible: {'yes' if v['deductible'] == '1' else 'no'}",
        f"limitation: {'yes' if v['limitation'] == '1' else 'no'}",
    )
    return (", ", "; ", ". ")[wording[0] % 3].join(fields[i] for i in wording) + "."


# Secrets


def _digits(rng: np.random.Generator, n: int) -> str:
    return "".join(map(str, rng.integers(0, 10, size=n)))


def _secret(rng: np.random.Generator, style: int, length: int, mark: str) -> str:
    """A secret value: mostly digits, else with letters, hexadecimal, or in groups with a mark between them."""
    if style == 0:
        return "".join("0123456789abcdef"[int(i)] for i in rng.integers(0, 16, size=length))
    if style == 1:
        return "".join(chr(65 + int(i)) for i in rng.integers(0, 26, size=2)) + _digits(rng, max(length - 2, 1))
    if style <= 8:
        group = 1 + (style + length) % 4  # the same for all secrets of a series
        digits = _digits(rng, length)
        return mark.join(digits[k : k + group] for k in range(0, length, group))
    return _digits(rng, length)


def _secret_series(rng: np.random.Generator, count: int, *, same: bool) -> Series:
    style, length = int(rng.integers(0, 24)), int((3, 4, 5, 5, 5, 6, 6, 7, 8, 9, 10)[int(rng.integers(11))])
    mark = "".join(_pick(rng, _MARKS) for _ in range(1 + int(rng.random() < 0.1)))
    wording, form = _pick(rng, WORDINGS), rng.random()
    if rng.random() < 0.1:
        wording, form = KEY_PREFIX + "{x}", 1.0
    if form < 0.2:  # a random opening: "river (stone): ", "[zb] "
        wording = _pick(rng, OPENINGS).replace("{w}", _words(rng, int(rng.integers(1, 5)))) + (
            "{x}" if rng.random() < 0.5 else wording
        )
    elif form < 0.6:  # a made-up wording
        wording = _made_up(rng)
    if "5-digit" in wording:
        style, length = 23, 5
    documents: list[str] = []
    for _ in range(count):
        if documents and (same or rng.random() < 0.15):
            documents.append(_pick(rng, documents))
        else:
            documents.append(wording.replace("{x}", _secret(rng, style, length, mark)))
    before = wording.partition("{x}")[0]
    return Series("same" if same else "different", tuple(documents), sum(c.isdigit() for c in before))


def _words(rng: np.random.Generator, n: int) -> str:
    """Words of the topics' lists, or made-up ones."""

    def word() -> str:
        if rng.random() < 0.5:
            return _pick(rng, SLOTS[_pick(rng, tuple(SLOTS))])
        return "".join(chr(97 + int(i)) for i in rng.integers(0, 26, size=int(rng.integers(2, 7))))

    text = " ".join(word() for _ in range(n))
    return text.capitalize() if rng.random() < 0.4 else text


def _made_up(rng: np.random.Generator) -> str:
    """A wording of random words and marks, such as ``Zu-mint, the {x} = kqw``."""

    def side(words: int, numbers: float = 0.0) -> str:
        out = ""
        for _ in range(words):
            mark = _pick(rng, _ALL_MARKS) if rng.random() < 0.25 else ""
            word = _digits(rng, int(rng.integers(1, 3))) if rng.random() < numbers else _words(rng, 1)
            out += word + mark + ("" if mark and rng.random() < 0.4 else " ")
        return out

    before, after = side(int(rng.integers(0, 7)), 0.08), side(int(rng.integers(0, 5))).strip()
    end = _pick(rng, (".", "", "", "!", ";", "?"))
    return f"{before}{{x}}{' ' if after else ''}{after}{end}"


def held_out_wordings() -> tuple[str, ...]:
    """Wordings of a secret ``{x}`` that no training document has."""
    return HELD_OUT


def unseen_secret(rng: np.random.Generator) -> str:
    """A secret in a format of no training secret: ``ddd.ddd``, ``dd:dd:dd`` or ``ddd_dd``.

    Those marks are never within a secret in training (they are between words, and tokens may follow one another
    in any order in a series of random tokens).
    """
    separators = ((3, ".", 3), (2, ":", 2), (3, "_", 2))
    left, separator, right = separators[int(rng.integers(3))]
    tail = f":{_digits(rng, 2)}" if separator == ":" else ""
    return f"{_digits(rng, left)}{separator}{_digits(rng, right)}{tail}"


# Series


def series(rng: np.random.Generator) -> Series:
    """A series of a random kind and number of documents."""
    kinds = tuple(KINDS)
    kind = kinds[int(np.searchsorted(np.cumsum(list(KINDS.values())), rng.random(), side="right").clip(0, 5))]
    count = 1 + int(np.searchsorted(np.cumsum(DOCUMENTS_IN_SERIES), rng.random(), side="right").clip(0, 3))
    match kind:
        case "topic":
            topic, values = _pick(rng, tuple(TOPICS)), _Values(rng)
            documents = tuple(topical_document(topic, rng, values) for _ in range(count))
        case "note":
            documents = _notes(rng, count)
        case "same" | "different":
            return _secret_series(rng, max(count, 2), same=kind == "same")
        case "repeat":
            text = _words(rng, int(rng.integers(2, 16)))
            if rng.random() < 0.3:
                text = topical_document(_pick(rng, tuple(TOPICS)), rng)
            documents = (text,) * max(count, 2)
        case _:
            documents = ()
    return Series(kind, documents)


def _notes(rng: np.random.Generator, count: int) -> tuple[str, ...]:
    values = _Values(rng)
    shape = tuple(int(i) for i in rng.permutation(7)[: int(rng.integers(3, 8))]) if rng.random() < 0.25 else ()
    return tuple(_note(rng, values, shape) for _ in range(count))
