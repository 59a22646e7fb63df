"""Parts of a search for secrets: functions that find them in a text, and the table of those found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from dpassay.accounting.guarantees import SecretProtection
from dpassay.mechanisms.secret_evolution import presidio
from dpassay.mechanisms.secret_evolution.incidence import DetectedSecrets
from dpassay.mechanisms.secret_evolution.listed import canonical, composed, words
from dpassay.mechanisms.secret_evolution.pattern_process import PatternProcess

Finder: TypeAlias = Callable[[Sequence[str]], Iterable[Iterable[Hashable]]]
"""Finds the secrets of each of several composed texts."""

_NAMED, _FOUND = 1, 2  # a secret that a source names, and one that it found, too; 0 for secrets of other sources
EMPTY = "pattern matches the empty string, which is in every record; let it match at least one character"


class FoundSecrets:
    """The secrets found so far, each with a row of the incidence matrix and a budget."""

    def __init__(self) -> None:
        self.of: dict[Hashable, int] = {}
        self.budgets: list[SecretProtection] = []

    def name(self, secret: Hashable, budget: SecretProtection) -> int:
        """The row of a secret, which is added if it is new; of two budgets the stricter one is kept."""
        row = self.of.setdefault(secret, len(self.budgets))
        if row == len(self.budgets):
            self.budgets.append(budget)
            return row
        known = self.budgets[row]
        if known.p != budget.p:
            raise ValueError(f"a secret has p = {known.p} in one source and p = {budget.p} in another; give it one p")
        if budget.r < known.r:
            self.budgets[row] = budget
        return row


class Search:
    """The search of one source: the rows of its secrets, and what it has found so far."""

    def __init__(self, kind: str, find: Finder, rows: FoundSecrets, budget: SecretProtection) -> None:
        self._kind, self._find, self._rows, self._budget = kind, find, rows, budget
        self._state = bytearray()  # of each row
        self._records = self._occurrences = 0

    def name(self, secret: Hashable, budget: SecretProtection) -> int:
        row = self._rows.name(secret, budget)
        self._state.extend(bytes(max(0, row + 1 - len(self._state))))
        self._state[row] = self._state[row] or _NAMED
        return row

    def read(self, texts: Sequence[str]) -> Iterator[set[int]]:
        """The rows of the secrets in each of several composed texts."""
        return map(self._rows_of, self._find(texts))

    def _rows_of(self, secrets: Iterable[Hashable]) -> set[int]:
        hits = set()
        for secret in secrets:
            row = self._rows.of.get(secret, len(self._state))
            if row >= len(self._state) or not self._state[row]:
                row = self.name(secret, self._budget)
            self._state[row] = _FOUND
            hits.add(row)
        self._records += bool(hits)
        self._occurrences += len(hits)
        return hits

    def detected(self) -> DetectedSecrets:
        nowhere = self._state.count(_NAMED)
        secrets = nowhere + self._state.count(_FOUND)
        return DetectedSecrets(self._kind, secrets, self._records, self._occurrences, nowhere)


def quantile_words(texts: Iterable[str], quantile: float, count: int) -> list[str]:
    """The `count` consecutive words centred at the quantile, by decreasing frequency, ties by first occurrence.

    Raises:
        ValueError: if the texts have fewer words.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(composed(text)))
    if len(counts) < count:
        raise ValueError(f"count is {count}, but the records have only {len(counts)} distinct words")
    # Ties are ordered by first occurrence, since alphabetical order would reveal something about the words.
    ranked = sorted(counts, key=lambda word: -counts[word])
    first = round(quantile * (len(ranked) - 1) - (count - 1) / 2)
    first = min(max(first, 0), len(ranked) - count)
    return ranked[first : first + count]


def pattern_finder(process: PatternProcess, pattern: str, *, whole: bool) -> Finder:
    """A function that finds a pattern's secrets in composed texts: every match, or the `whole` pattern as one."""

    def all_matches(texts: Sequence[str]) -> Iterator[Iterable[Hashable]]:
        for result in process.distinct(texts):
            if "" in result:
                raise ValueError(EMPTY)
            yield dict.fromkeys(canonical(match) or match for match in result)

    def any_match(texts: Sequence[str]) -> Iterator[Iterable[Hashable]]:
        for match in process.first(texts):
            if match == "":
                raise ValueError(EMPTY)
            yield [] if match is None else [("pattern", pattern)]

    return any_match if whole else all_matches


def entity_finder(names: Sequence[str], model: str | None, *, whole: bool) -> Finder:
    """A function that finds Presidio's entities in composed texts: every match, or each `whole` entity as one."""
    find = presidio.finder(names, model)

    def secrets(text: str) -> Iterable[Hashable]:
        if whole:
            return {("entity", entity) for entity, _ in find(text)}
        return dict.fromkeys(canonical(match) for _, match in find(text))

    return one_by_one(secrets)


def one_by_one(find: Callable[[str], Iterable[Hashable]]) -> Finder:
    """A function that finds secrets in several texts, of one that finds those of a text."""
    return lambda texts: map(find, texts)
