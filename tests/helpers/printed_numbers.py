"""Numbers as a page prints them, and those that it prints in two forms. Nothing of dpassay is used."""

from __future__ import annotations

import itertools
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from html.parser import HTMLParser

_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_DIRECTIONS = (ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN)
_NUMBER = re.compile(
    r"(?<![\w.,:⁻\u202f-])"  # not inside of a word, a version, a date or a larger number
    r"(\d+(?:\u202f\d{3})*(?:\.\d+)?)(?:\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)|e([+-]?\d+))?"
    r"(?![\w⁻⁰¹²³⁴⁵⁶⁷⁸⁹\u202f-]|[.:]\d|\s%)"  # nor a percentage or a time
)
_OTHER_FORMS = re.compile(
    r"\d%|\d(?:\.\d+)?e[+-]\d\d|(?:ε|confidence)\s\d[\d.]*\s%|\d\s%\s(?:confidence|interval)"
    r"|confidence\s1(?![\d.])|\bp(?:-value)?\s(?:=\s)?0(?![\d.])"
)
_ENCLOSURE = re.compile(r"\[[^\[\]]*\]")
_MIN_DIGITS, _MIN_RANDOM, _MAX_DIGITS = 3, 4, 6
"""Numbers of fewer digits are alike by chance; no number has more."""


class _Words(HTMLParser):
    """The text of a page, one line an element; of digests, dates and versions nothing."""

    def __init__(self, page: str, tables: bool) -> None:
        super().__init__()
        self.words, self._open, self._tables = "", [""], tables
        self.feed(page.partition("<body>")[2].partition("</body>")[0].replace("\u00a0", " "))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        hidden = tag in ("code", "title") or (tag == "details" and not self._tables) or self._open[-1] == "hidden"
        self._open.append("hidden" if hidden else tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1] != "hidden":
            self.words += data + "\n"


def two_forms(page: str, *, random: bool = False) -> list[tuple[str, str]]:
    """Pairs of printed numbers that stand for one: other digits, another rounding, another notation.

    Args:
        page: HTML.
        random: whether the numbers are those of a run with fresh noise. Then tables behind figures, numbers of three
            digits and neighbours in the last digit are left out. Of some 50 others, which mostly have six digits, two
            are alike by chance with probability below 1e-4: one would have to end in zeros, and another to agree with
            it in all digits before.
    """
    words = _Words(page, tables=not random).words
    ends = {frozenset(_read(part)) for part in _ENCLOSURE.findall(words)}
    numbers = _read(words)
    return [
        (first, second)
        for (first, left), (second, right) in itertools.combinations(sorted(numbers.items()), 2)
        if _alike(left, right, random) and not any({first, second} <= pair for pair in ends)
    ]


def other_forms(page: str) -> list[str]:
    """Numbers as no page has them: ``5%``, ``1e-05``, a confidence in percent, certainty that comes of rounding."""
    return [match[0] for match in _OTHER_FORMS.finditer(_Words(page, tables=True).words)]


def _read(words: str) -> dict[str, Decimal]:
    return {
        match[0].strip(): Decimal(match[1].replace("\u202f", "")).scaleb(
            int((match[2] or match[3] or "0").translate(_SUPERSCRIPTS))
        )
        for match in _NUMBER.finditer(words)
    }


def _alike(item: Decimal, other: Decimal, random: bool) -> bool:
    if item == other:
        return True
    coarse, fine = sorted((item, other), key=_digits)
    few, many = _digits(coarse), _digits(fine)
    if few >= (_MIN_RANDOM if random else _MIN_DIGITS) and many > few:
        return any(Context(prec=few, rounding=way).plus(fine) == coarse for way in _DIRECTIONS)
    unit = Decimal(1).scaleb(max(item, other).adjusted() + 1 - _MAX_DIGITS)
    return not random and few == many == _MAX_DIGITS and abs(item - other) == unit


def _digits(number: Decimal) -> int:
    return len(number.as_tuple().digits)
