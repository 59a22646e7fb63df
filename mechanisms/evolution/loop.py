"""The evolution loop: a language model generates candidates, a private selection keeps the best, and they are varied.

    S₀ = RANDOM(N·L);  for t = 0, …, T − 1:  selection_t = the best N of S_t;  S_{t+1} = selection_t + L variations each

for each public label separately, or without labels. The result is the last selection. The loop itself does not access
private data: it passes the embeddings of candidates to `select`, a function of the mechanism, which returns indices.
The result of `select` must have been released through a ledger; everything else here is post-processing.

A candidate is identified by its ancestry: random text i has key ``i``, and variation v of a parent for round t has key
``parent/t.v``. Its seed is a hash of the run's public seed, its label and its key. So a text does not depend on the
others that are generated, and an interrupted run resumes from its journal.

Lookahead: a candidate may be represented by the mean embedding of `lookahead` variations of it, in place of its own
embedding. These are its first variations for the next round: if the candidate is kept, they are its children. (The
public code of Aug-PE generates other variations after the selection, with more calls.)

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (Xie et al. 2024), Algorithm 1;
"Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 3.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpassay.base import validate
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, ThisProcess
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from dpassay.mechanisms.evolution.journal import Entry, Journal
from dpassay.mechanisms.models.writers import (
    LocalWriter,
    TextRequest,
    Writer,
    WriterError,
    clean,
    written,
    written_on_workers,
)

ATTEMPTS = 4
"""How often a text is requested, each time with another seed, while the answer is empty."""

MAX_TEXTS = 10_000_000
"""The largest number of texts in a run; the candidates of a round are kept in memory."""

Indices = Sequence[int] | NDArray[np.integer]
Select = Callable[[int, Mapping[str | None, Vectors]], Mapping[str | None, Indices]]
"""``select(round, vectors)``: for each label, the indices of the `synthetic` candidates to keep, best first.

`vectors` has, for each label (None if there are no labels), the candidates' vectors, shape (candidates, d). `select` is
called once for each round, from 0 and in order, also when a run is resumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSettings:
    """The public parameters of an evolution, as of `AugPE`: `synthetic` texts are kept for each label."""

    rounds: int
    synthetic: int
    variations: int
    labels: tuple[str, ...] = ()
    lookahead: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        validate.integer(minimum=1, rounds=self.rounds)
        validate.integer(minimum=1, synthetic=self.synthetic)
        validate.integer(minimum=1, variations=self.variations)
        validate.integer(minimum=0, lookahead=self.lookahead)
        validate.integer(minimum=0, seed=self.seed)
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must be distinct")
        if self.texts > MAX_TEXTS:
            raise ValueError(
                f"rounds, synthetic, variations and lookahead need up to {self.texts:.3g} texts, but at most "
                f"{MAX_TEXTS} are allowed; lower one of them"
            )

    @classmethod
    def of(cls, mechanism: object) -> Self:
        """The parameters of a mechanism, which has fields of these names."""
        return cls(**{number.name: getattr(mechanism, number.name) for number in fields(cls)})

    @property
    def groups(self) -> tuple[str | None, ...]:
        """The labels that evolve in parallel; (None,) if there are none."""
        return self.labels or (None,)

    @property
    def texts(self) -> int:
        """The largest total number of texts that are generated."""
        first, later = self.synthetic * self.variations, self.synthetic * (1 + self.variations)
        looked_at = self.lookahead * (first + (self.rounds - 1) * later)
        children = (self.rounds - 1) * self.synthetic * max(0, self.variations - self.lookahead)
        return len(self.groups) * (first + looked_at + children)

    def about(self, writer: Writer, embedder: Embedder) -> dict[str, object]:
        """Everything that determines the candidates apart from the selections; for `Journal`."""
        return {**asdict(self), "writer": writer.fingerprint, "embedder": embedder.fingerprint}


@dataclass(frozen=True, slots=True)
class SyntheticText:
    """One text of the last selection, never empty: the first round in which it was a candidate, 0 for a random text,
    and its index in the selection of its public label, best first."""

    text: str
    label: str | None
    round: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: str
    text: str
    round: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A text to be generated: a random one, or a variation of a candidate."""

    round: int
    variation: int
    parent: _Candidate | None = None

    @property
    def key(self) -> str:
        return str(self.variation) if self.parent is None else f"{self.parent.key}/{self.round}.{self.variation}"


def evolve(
    settings: EvolutionSettings,
    writer: Writer,
    embedder: Embedder,
    select: Select,
    journal: Journal,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor = THIS_PROCESS,
) -> tuple[SyntheticText, ...]:
    """Runs an evolution, or resumes an interrupted one.

    Args:
        settings: public.
        writer: generates random texts and variations; it sees only candidates and public text.
        embedder: public; each candidate's vector is a function of its own text.
        select: the mechanism's private selection.
        journal: opened with `settings.about(writer, embedder)`, and anything else that must not change.
        progress: called with the number of finished texts and the largest possible number; at the end, the actual one.
        executor: where candidates are embedded and, if the writer is a `LocalWriter`, written.

    Returns:
        The last selection, label by label, best first.

    Raises:
        ValueError: if a selection is invalid.
        WriterError: if the writer generates no text at all for a label. Errors of the writer are raised after the texts
            that it finished are in the journal.
    """
    loop = _Loop(settings, writer, embedder, journal, progress, executor)
    first = [_Wanted(0, index) for index in range(settings.synthetic * settings.variations)]
    candidates = loop.written(dict.fromkeys(settings.groups, first))
    pools = {label: loop.pool(label, some) for label, some in candidates.items()}
    for number in range(settings.rounds):
        chosen = select(number, loop.vectors(pools, number))
        kept = {label: _kept(pool, chosen[label], settings.synthetic) for label, pool in pools.items()}
        if number == settings.rounds - 1:
            break
        children = loop.written(_children(kept, number + 1, settings.variations))
        pools = {label: loop.pool(label, [*best, *children[label]]) for label, best in kept.items()}
    loop.finish()
    return tuple(
        SyntheticText(candidate.text, label, candidate.round, rank)
        for label, best in kept.items()
        for rank, candidate in enumerate(best)
    )


class _Loop:
    """Texts and vectors of candidates, from the journal if they are there."""

    def __init__(
        self,
        settings: EvolutionSettings,
        writer: Writer,
        embedder: Embedder,
        journal: Journal,
        progress: Callable[[int, int], None] | None,
        executor: Executor,
    ) -> None:
        self.settings, self.writer, self.embedder, self.journal = settings, writer, embedder, journal
        self.executor = executor
        self._local = writer if isinstance(writer, LocalWriter) and not isinstance(executor, ThisProcess) else None
        self._progress = progress or (lambda done, total: None)
        self._done: set[tuple[str | None, str]] = set()

    def written(self, wanted: Mapping[str | None, Sequence[_Wanted]]) -> dict[str | None, list[_Candidate]]:
        """Generates the wanted candidates of each label, in order; all are random texts, or all are variations."""
        together = self._local is not None  # on workers, those of all labels are written side by side
        for part in [wanted] if together else [{label: items} for label, items in wanted.items()]:
            self._write(part)
        return {
            label: [_Candidate(item.key, self.journal.get(label, item.key) or "", item.round) for item in items]
            for label, items in wanted.items()
        }

    def _write(self, wanted: Mapping[str | None, Sequence[_Wanted]]) -> None:
        """Writes those that are not in the journal."""
        pending: dict[str | None, list[_Wanted]] = {}
        for label, items in wanted.items():
            pending[label] = [item for item in items if self.journal.get(label, item.key) is None]
            for item in items:
                if self.journal.get(label, item.key) is not None:
                    self._count(label, item)
        try:
            for attempt in range(ATTEMPTS):
                pending = self._ask(pending, attempt)
            for label, items in pending.items():
                if len(items) == len(wanted[label]) and not any(item.parent for item in items):
                    raise self._wrote_nothing(label)  # without saving, so that a fixed writer is called again
                for item in items:
                    self._add(label, item, "" if item.parent is None else item.parent.text)
        finally:
            self.journal.flush()

    def _ask(self, wanted: Mapping[str | None, Sequence[_Wanted]], attempt: int) -> dict[str | None, list[_Wanted]]:
        """Requests texts from the writer; returns those that came back empty."""
        again: dict[str | None, list[_Wanted]] = {label: [] for label in wanted}
        requests = [
            TextRequest(
                label,
                tuple(item.parent.text for item in items if item.parent is not None),
                tuple(text_seed(self.settings.seed, label, item.key, attempt) for item in items),
            )
            for label, items in wanted.items()
            if items
        ]
        if self._local is None:
            answers: Iterator[str | None] = itertools.chain.from_iterable(
                written(request, self.writer) for request in requests
            )
        else:
            answers = written_on_workers(self.executor, requests, self._local)
        asked = ((label, item) for label, items in wanted.items() for item in items)
        for (label, item), answer in zip(asked, answers, strict=True):
            if text := clean(answer or ""):
                self._add(label, item, text)
            else:
                again[label].append(item)
        return again

    def _add(self, label: str | None, item: _Wanted, text: str) -> None:
        parent = None if item.parent is None else item.parent.key
        self.journal.add(Entry(label, item.key, item.round, parent, item.variation, text))
        self._count(label, item)

    def _count(self, label: str | None, item: _Wanted) -> None:
        if (label, item.key) not in self._done:
            self._done.add((label, item.key))
            self._progress(len(self._done), self.settings.texts)

    def finish(self) -> None:
        self._progress(len(self._done), len(self._done))

    def pool(self, label: str | None, candidates: Iterable[_Candidate]) -> list[_Candidate]:
        """The distinct candidates of a round; repeated texts are included only if there are too few.

        Raises:
            WriterError: if there is no text at all.
        """
        first: dict[str, _Candidate] = {}
        repeats = []
        for candidate in candidates:
            if candidate.text and first.setdefault(candidate.text, candidate) is not candidate:
                repeats.append(candidate)
        if not first:
            raise self._wrote_nothing(label)
        pool = [*first.values(), *repeats[: max(0, self.settings.synthetic - len(first))]]
        while len(pool) < self.settings.synthetic:  # some random texts were empty
            pool += pool[: self.settings.synthetic - len(pool)]
        return pool

    def _wrote_nothing(self, label: str | None) -> WriterError:
        of_label = "" if label is None else f" for label {label!r}"
        return WriterError(
            f"writer {self.writer.name} generated no text{of_label}, only empty or unfinished answers; check its "
            "prompts and its largest number of tokens"
        )

    def vectors(self, pools: Mapping[str | None, Sequence[_Candidate]], number: int) -> dict[str | None, Vectors]:
        """The vectors that represent the candidates of each label in a selection, shape (candidates, d)."""
        ahead = self.settings.lookahead
        if not ahead:
            return {label: self._embedded(pool) for label, pool in pools.items()}
        children = self.written(_children(pools, number + 1, ahead))
        return {
            label: np.asarray(
                self._embedded(some).reshape(len(pools[label]), ahead, -1).mean(axis=1, dtype=np.float64), np.float32
            )
            for label, some in children.items()
        }

    def _embedded(self, candidates: Sequence[_Candidate]) -> Vectors:
        return all_embedded(self.embedder, [candidate.text for candidate in candidates], self.executor)


def _children(
    parents: Mapping[str | None, Sequence[_Candidate]], number: int, count: int
) -> dict[str | None, list[_Wanted]]:
    """The first `count` variations of each parent for a round, by label."""
    return {
        label: [_Wanted(number, variation, parent) for parent in some for variation in range(count)]
        for label, some in parents.items()
    }


def _kept(pool: Sequence[_Candidate], chosen: Indices, count: int) -> list[_Candidate]:
    """The chosen candidates of a pool.

    Raises:
        ValueError: unless `chosen` has `count` distinct indices of the pool.
    """
    indices = [int(index) for index in chosen]
    if len(set(indices)) != count or len(indices) != count or not all(0 <= index < len(pool) for index in indices):
        raise ValueError(f"a selection must be {count} distinct indices of {len(pool)} candidates")
    return [pool[index] for index in indices]


def text_seed(seed: int, label: str | None, key: str, attempt: int) -> int:
    """A 63-bit seed, different for each text and attempt."""
    digest = hashlib.sha256(repr((seed, label, key, attempt)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
