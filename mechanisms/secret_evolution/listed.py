"""Lists of secrets: reading them from a file, and finding thousands of them in a text in one pass."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.base import validate
from dpassay.data.records import read_rows

_RUN = re.compile(r"\w+")
_COLUMNS = {"secret", "p", "r"}


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a list: a secret in canonical form, and its p and r, if given."""

    secret: str
    p: float | None = None
    r: float | None = None


def composed(text: str) -> str:
    """The text in Unicode normal form C, in which texts and secrets are compared."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def canonical(secret: str) -> str:
    """The canonical form of a secret, equal for equal secrets: normal form C, with single blanks for white space."""
    return " ".join(composed(secret).split())


def words(text: str) -> list[str]:
    """The words of a composed text: its longest runs of letters, digits and underscores, in order."""
    return _RUN.findall(text)


def read_list(path: Path | str) -> list[ListEntry]:
    """Reads a list of secrets, each once, in the order of the file: CSV or JSON Lines (by its extension) with a column
    ``secret`` and optionally ``p`` and ``r``, or any other text file with one secret per line. UTF-8.

    Raises:
        ValueError: one line, which names the file and, if possible, the line, never a secret.
    """
    path = Path(path)
    rows = _table(path) if path.suffix.lower() in (".csv", ".jsonl") else _lines(path)
    read: dict[str, ListEntry] = {}
    for where, listed in rows:
        if not listed.secret:
            raise ValueError(f"{path}, {where}: holds no secret; every line needs one")
        if read.setdefault(listed.secret, listed) != listed:
            raise ValueError(f"{path}, {where}: this secret is listed before with another p or r; keep one of them")
    if not read:
        raise ValueError(f"{path}: lists no secret; write one per line, or remove this source")
    return list(read.values())


def _lines(path: Path) -> Iterator[tuple[object, ListEntry]]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                yield f"line {number}", ListEntry(canonical(line))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def _table(path: Path) -> Iterator[tuple[object, ListEntry]]:
    for where, row in read_rows(path):
        if "secret" not in row or not _COLUMNS.issuperset(row):
            raise ValueError(f"{path}, {where}: the columns of a list must be secret and optionally p and r")
        if not isinstance(row["secret"], str):
            raise ValueError(f"{path}, {where}: the secret must be text; put numbers between quotes")
        yield where, ListEntry(canonical(row["secret"]), _number(row, "p", path, where), _number(row, "r", path, where))


def _number(row: Any, column: str, path: Path, where: object) -> float | None:
    """A probability of a row, None if it is missing. A shifted column may hold a secret, so the value is not shown."""
    value = row.get(column)
    if value is None or value == "":
        return None
    try:
        return validate.probability(**{column: float(value)})
    except (TypeError, ValueError):
        raise ValueError(f"{path}, {where}: {column} must be a number between 0 and 1") from None


class PhraseFinder:
    """Finds many secrets in a text at once, at word boundaries.

    The words (`words`) of a secret must be consecutive in the text. For each secret, the word shared with the fewest
    other secrets is looked up among the words of the text, then the words around it in a table: the time depends not on
    the number of secrets but on the number of places where one may be. Only the characters between words are compared
    by a regular expression, and only if all words match.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        """Takes secrets in `canonical` form, none empty."""
        self._by_words: dict[tuple[str, ...], list[str]] = {}
        for secret in secrets:
            self._by_words.setdefault(tuple(words(secret)), []).append(secret)
        self._wordless = self._by_words.pop((), [])
        shared = Counter(word for some in self._by_words for word in set(some))
        self._spans: dict[str, set[tuple[int, int]]] = {}  # for a word: number of words before it, and in total
        for some in self._by_words:
            rarest = min(range(len(some)), key=lambda i: (shared[some[i]], -len(some[i])))
            self._spans.setdefault(some[rarest], set()).add((rarest, len(some)))
        self._looked_up = frozenset(self._spans)
        self._patterns: dict[str, re.Pattern[str]] = {}

    def __call__(self, text: str) -> set[str]:
        """The secrets in a composed text, including those within longer ones."""
        there = words(text)
        known = self._looked_up.intersection(there)
        fitting = self._fitting(there, known) if known else set()
        candidates = [secret for some in fitting for secret in self._by_words[some]] + self._wordless
        return {secret for secret in candidates if (secret,) in fitting or self._pattern(secret).search(text)}

    def _fitting(self, there: list[str], known: frozenset[str]) -> set[tuple[str, ...]]:
        """The word sequences of secrets among the words of a text."""
        fitting: set[tuple[str, ...]] = {(word,) for word in known if (0, 1) in self._spans[word]}
        longer = {word: spans for word in known if (spans := self._spans[word] - {(0, 1)})}
        if longer:
            for i, word in enumerate(there):
                for before, length in longer.get(word, ()):
                    some = tuple(there[max(i - before, 0) : i - before + length])
                    if some in self._by_words:
                        fitting.add(some)
        return fitting

    def _pattern(self, secret: str) -> re.Pattern[str]:
        """A pattern for the secret, with any white space for a blank, and boundaries where it has words at its ends."""
        if secret not in self._patterns:
            first, *others = map(re.escape, secret.split(" "))
            before = rf"(?<!\w{first})" if words(secret[0]) else ""  # after the first part, which is fast to search
            after = r"(?!\w)" if words(secret[-1]) else ""
            self._patterns[secret] = re.compile(r"\s+".join([first + before, *others]) + after)
        return self._patterns[secret]
