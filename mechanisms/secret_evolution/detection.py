"""Finding secrets in records: by a list, a regular expression, word frequency, or Presidio.

A secret that no source finds is not protected. Misspelled, abbreviated, reworded or encoded secrets are not found.
"""

from __future__ import annotations

import contextlib
import functools
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csc_array, csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.base import validate
from dpassay.base.pieces import pieces
from dpassay.mechanisms.secret_evolution.incidence import Incidence, texts_digest
from dpassay.mechanisms.secret_evolution.listed import PhraseFinder, composed, read_list
from dpassay.mechanisms.secret_evolution.pattern_process import PatternProcess
from dpassay.mechanisms.secret_evolution.search import (
    EMPTY,
    FoundSecrets,
    Search,
    entity_finder,
    one_by_one,
    pattern_finder,
    quantile_words,
)

_EVERY = 1000  # texts between two calls of `progress`
_BATCH = 100  # texts that are sent to a process at once


@dataclass(frozen=True, slots=True)
class ListedSecrets:
    """Secrets in a file, one per line, or CSV or JSON Lines with a column ``secret`` and optionally ``p`` and ``r``.

    Secrets are matched case-sensitively, in Unicode normal form C, with any white space for a blank, and at word
    boundaries: "Ann" is in "Ann's", not in "Anna". If one secret contains another, both count. In languages without
    blanks between words, such as Chinese, there are no boundaries: use a pattern.

    Attributes:
        path: the file.
        p: the largest prior probability of a guess, for secrets without their own; None uses the default.
        r: the largest probability of a guess after the run, likewise.
    """

    path: Path
    p: float | None = None
    r: float | None = None

    def __post_init__(self) -> None:
        _check_budget(self.p, self.r)


@dataclass(frozen=True, slots=True)
class PatternSecrets:
    r"""The matches of a regular expression of Python's `re`, such as ``\b\d{5}\b``; matches do not overlap.

    A pattern that needs over 10 seconds of processor time on one text is refused.

    Attributes:
        pattern: the expression, which must not match the empty string.
        each: ``match`` (every distinct match is a secret; which records hold the same one is public, like all places)
            or ``pattern`` (all matches are one secret).
        p, r: budget; None uses the default.
    """

    pattern: str
    each: Literal["match", "pattern"] = "match"
    p: float | None = None
    r: float | None = None

    def __post_init__(self) -> None:
        validate.one_of(("match", "pattern"), each=self.each)
        _check_budget(self.p, self.r)
        if not isinstance(self.pattern, str):
            raise ValueError("pattern must be a string; put it between single quotes")
        try:
            re.compile(composed(self.pattern))
        except (re.error, RecursionError, OverflowError) as error:
            where = f" (column {error.colno})" if isinstance(error, re.error) and error.colno else ""
            raise ValueError(f"pattern is not a regular expression of Python's re{where}") from None
        if _matches_nothing(composed(self.pattern)):
            raise ValueError(EMPTY)


@functools.cache
def _matches_nothing(pattern: str) -> bool:
    """Whether a composed pattern matches the empty string."""
    with PatternProcess(pattern) as process:
        return process.first([""]) != [None]


@dataclass(frozen=True, slots=True)
class QuantileWords:
    """Words of some frequency, as in the random-word experiments of "Secret-Protected Evolution".

    All words of the texts (runs of letters, digits and underscores, case-sensitive) are sorted by frequency, most
    frequent first, ties by first occurrence. The secrets are the `count` consecutive words centred at the quantile. The
    choice depends on places only, which are assumed public: if a secret is replaced everywhere by a word that occurs
    nowhere, the same places are chosen.

    Attributes:
        quantile: in (0, 1); 0.2 is the word that a fifth of the vocabulary precedes.
        count: number of words, at least 1.
        p, r: budget; None uses the default.
    """

    quantile: float
    count: int
    p: float | None = None
    r: float | None = None

    def __post_init__(self) -> None:
        validate.open_probability(quantile=self.quantile)
        validate.integer(minimum=1, count=self.count)
        _check_budget(self.p, self.r)


@dataclass(frozen=True, slots=True)
class PresidioSecrets:
    """Everything that Presidio recognises in English text (``pip install '.[presidio]'``), with any score.

    Attributes:
        entities: Presidio's names, such as ``EMAIL_ADDRESS``; those found by patterns need no model.
        each: ``match`` (every distinct match is a secret) or ``entity`` (all matches of an entity are one secret).
        p, r: budget; None uses the default.
        model: an installed spaCy model, such as ``en_core_web_sm``, for ``PERSON``, ``LOCATION`` and the like.
    """

    entities: tuple[str, ...]
    each: Literal["match", "entity"] = "match"
    p: float | None = None
    r: float | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        validate.one_of(("match", "entity"), each=self.each)
        _check_budget(self.p, self.r)
        if self.model is not None and not isinstance(self.model, str):
            raise ValueError("model must be the name of a spaCy model, such as en_core_web_sm")
        if not self.entities or not all(isinstance(entity, str) for entity in self.entities):
            raise ValueError("presidio must be a list of entities, such as [EMAIL_ADDRESS, PHONE_NUMBER]")
        if len(set(self.entities)) < len(self.entities):
            raise ValueError("presidio must name each entity once")


SecretSource = ListedSecrets | PatternSecrets | QuantileWords | PresidioSecrets

_KEYS: dict[str, tuple[str, ...]] = {
    "list": ("p", "r"),
    "pattern": ("each", "p", "r"),
    "quantile": ("count", "p", "r"),
    "presidio": ("each", "model", "p", "r"),
}


def secret_source(mapping: object, folder: Path | str = ".") -> SecretSource:
    r"""A source from its mapping in a YAML file, such as ``{list: secrets.txt}``, whose path is relative to `folder`,
    ``{pattern: '\b\d{5}\b', each: match}``, ``{quantile: 0.2, count: 50}`` or ``{presidio: [EMAIL_ADDRESS], p: 1.0e-4,
    r: 1.0e-3}``.

    Raises:
        ValueError: one line, which never contains a pattern or a secret.
    """
    if not isinstance(mapping, Mapping):
        raise ValueError("a source of secrets must be a mapping, such as {list: secrets.txt}")
    kinds = [kind for kind in _KEYS if kind in mapping]
    if len(kinds) != 1:
        raise ValueError(f"a source of secrets must have exactly one of {', '.join(_KEYS)}, not {len(kinds)} of them")
    kind, value = kinds[0], mapping[kinds[0]]
    rest: dict[str, Any] = {key: given for key, given in mapping.items() if key != kind}
    if not set(_KEYS[kind]).issuperset(rest):
        raise ValueError(f"a source of kind {kind} may have, besides {kind}, only {', '.join(_KEYS[kind])}")
    match kind:
        case "list":
            if not isinstance(value, str) or not value:
                raise ValueError("list must be the path of a file")
            return ListedSecrets(Path(folder) / value, **rest)
        case "pattern":
            return PatternSecrets(value, **rest)
        case "quantile":
            if "count" not in rest:
                raise ValueError("a source of kind quantile needs count, the number of words")
            return QuantileWords(value, **rest)
        case _:
            return PresidioSecrets(tuple(value) if isinstance(value, list) else (), **rest)


def find_secrets(
    texts: Collection[str],
    sources: Sequence[SecretSource],
    default: SecretProtection,
    progress: Callable[[int, int], None] | None = None,
) -> Incidence:
    """Finds the secrets of all sources in the texts of records.

    A secret found by several sources is one secret, at all places that any of them finds, with the stricter budget.
    Rows are ordered by their places and then by their budgets, whatever the order of a list. An alphabetical list would
    otherwise reveal where a value is in the alphabet, by the fingerprint and by which of several optimal inclusion
    probabilities the solver returns.

    Texts are read one by one, twice, and once more for `QuantileWords`. In addition to the texts, memory holds the
    distinct secrets, the vocabulary for `QuantileWords`, and about 24 bytes per occurrence and per record.

    Args:
        texts: the records' texts, n.
        sources: at least one.
        default: the budget of secrets without their own.
        progress: called with the number of texts done and the total.

    Raises:
        ValueError: one line, which never contains a secret.
    """
    if not sources:
        raise ValueError("sources must have at least one source: a list, a pattern, a quantile or Presidio entities")
    rows = FoundSecrets()
    hits, ends = array("i"), array("q", [0])
    with contextlib.ExitStack() as processes:
        searches = [_search(source, default, rows, texts, processes) for source in sources]
        for batch in pieces(map(composed, texts), _BATCH):
            for found_by in zip(*(search.read(batch) for search in searches), strict=True):
                hits.extend(sorted(set().union(*found_by)))
                ends.append(len(hits))
                done = len(ends) - 1
                if progress is not None and (done % _EVERY == 0 or done == len(texts)):
                    progress(done, len(texts))
    columns = (np.ones(len(hits), dtype=np.bool_), np.frombuffer(hits, np.int32), np.frombuffer(ends, np.int64))
    matrix = csc_array(columns, shape=(len(rows.budgets), len(ends) - 1)).tocsr()
    order = _by_places(matrix, rows.budgets)
    budgets = dict.fromkeys(rows.budgets[row] for row in order)
    index = {budget: group for group, budget in enumerate(budgets)}
    group = np.array([index[rows.budgets[row]] for row in order], dtype=np.int64)
    result = tuple(search.detected() for search in searches)
    return Incidence(matrix[order], tuple(budgets), group, result, texts_digest(texts))


def _by_places(matrix: csr_array, budgets: Sequence[SecretProtection]) -> list[int]:
    """The rows in the order of their records, then of their budgets; rows that are equal in both are exchangeable."""
    indices = matrix.indices.astype(">i4")  # big-endian, so that bytes sort like the numbers

    def key(row: int) -> tuple[bytes, float, float]:
        return indices[matrix.indptr[row] : matrix.indptr[row + 1]].tobytes(), budgets[row].p, budgets[row].r

    return sorted(range(len(budgets)), key=key)


def _search(
    source: SecretSource,
    default: SecretProtection,
    rows: FoundSecrets,
    texts: Iterable[str],
    processes: contextlib.ExitStack,
) -> Search:
    """Prepares the search of one source, with all secrets that are known before the texts are read."""
    budget = _budget(source.p, source.r, default)
    match source:
        case ListedSecrets():
            listed = read_list(source.path)
            search = Search("list", one_by_one(PhraseFinder([entry.secret for entry in listed])), rows, budget)
            for entry in listed:
                try:
                    own = _budget(entry.p, entry.r, budget)
                except ValueError as error:
                    raise ValueError(f"{source.path}: {error}") from None
                search.name(entry.secret, own)
        case PatternSecrets():
            process = processes.enter_context(PatternProcess(composed(source.pattern)))
            find = pattern_finder(process, source.pattern, whole=source.each == "pattern")
            search = Search("pattern", find, rows, budget)
            if source.each == "pattern":
                search.name(("pattern", source.pattern), budget)
        case QuantileWords():
            chosen = quantile_words(texts, source.quantile, source.count)
            search = Search("quantile", one_by_one(PhraseFinder(chosen)), rows, budget)
            for word in chosen:
                search.name(word, budget)
        case PresidioSecrets():
            search = Search(
                "presidio", entity_finder(source.entities, source.model, whole=source.each == "entity"), rows, budget
            )
            if source.each == "entity":
                for entity in source.entities:
                    search.name(("entity", entity), budget)
    return search


def _check_budget(p: float | None, r: float | None) -> None:
    if p is not None:
        validate.open_probability(p=p)
    if r is not None:
        validate.probability(r=r)
    if p is not None and r is not None and p >= r:
        raise ValueError(f"r must be above p, since no noise achieves r ≤ p (p={p}, r={r})")


def _budget(p: float | None, r: float | None, default: SecretProtection) -> SecretProtection:
    """The budget with the given p and r, with those of the default for None."""
    p, r = default.p if p is None else p, default.r if r is None else r
    validate.open_probability(p=p)
    _check_budget(p, r)
    return SecretProtection(float(p), float(r))
