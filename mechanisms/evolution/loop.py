"""The evolution loop: a language model writes candidates, a private selection keeps the best, and they are varied.

    S₀ = RANDOM(N·L);  for t = 0, …, T − 1:  selection_t = the best N of S_t;  S_{t+1} = selection_t + L variations each

for each public label by itself, or with no labels. The result is the last selection. The loop knows nothing private:
it hands the embeddings of candidates to `select`, which the mechanism gives, and gets indices back. What `select`
returns must have been released through a ledger; everything else here is post-processing of it.

A candidate is known by its descent: random text i has key ``i``, and variation v that its parent got for round t has
key ``parent/t.v``. Its seed is a hash of the run's public seed, its label and its key. So a text does not depend on
which others were written before, beside or after it, and an interrupted run goes on from its journal.

Lookahead: a candidate may be represented not by its own embedding but by the mean of the embeddings of `lookahead`
variations of it. Those are its first variations for the next round: if it is kept, they are its children. (The public
code of Aug-PE writes other variations after the selection, at the price of more calls.)

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (Xie et al. 2024), Algorithm 1;
"Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cupel.accounting import validate
from cupel.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from cupel.mechanisms.evolution.journal import Entry, Journal
from cupel.mechanisms.models.writers import Writer, WriterError, clean

ATTEMPTS = 4
"""How often a text is asked for, each time with another seed, while what comes back is empty."""

MOST_TEXTS = 10_000_000
"""How many texts a run may ask for; candidates of a round are kept in memory."""

Indices = Sequence[int] | NDArray[np.integer]
Select = Callable[[int, Mapping[str | None, Vectors]], Mapping[str | None, Indices]]
"""``select(round, vectors)``: for each label the indices of the `synthetic` candidates to keep, the best first.

`vectors` holds, for each label (None where there are no labels), the candidates' vectors, shape (candidates, d). Rounds
count from 0 and are asked for in order, each once, in a resumed run too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSettings:
    """The public numbers of an evolution.

    Attributes:
        rounds: T, how many selections there are, at least 1.
        synthetic: N, how many texts each selection keeps, for each label.
        variations: L, how many variations each kept text gets, at least 1 if there is more than one round.
        labels: the public set of labels; empty for none.
        lookahead: how many variations of a candidate stand for it in the selection; 0 for the candidate itself.
        seed: public, of all texts.
    """

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
            raise ValueError("labels must differ from each other")
        if self.texts > MOST_TEXTS:
            raise ValueError(
                f"rounds, synthetic, variations and lookahead ask for up to {self.texts:.3g} texts, and at most "
                f"{MOST_TEXTS} may be written; lower one of them"
            )

    @classmethod
    def of(cls, mechanism: object) -> Self:
        """The numbers of a mechanism that has fields of these names."""
        return cls(**{number.name: getattr(mechanism, number.name) for number in fields(cls)})

    @property
    def groups(self) -> tuple[str | None, ...]:
        """The labels that evolve side by side; (None,) where there are none."""
        return self.labels or (None,)

    @property
    def texts(self) -> int:
        """The largest number of texts that are written in all."""
        first, later = self.synthetic * self.variations, self.synthetic * (1 + self.variations)
        looked_at = self.lookahead * (first + (self.rounds - 1) * later)
        children = (self.rounds - 1) * self.synthetic * max(0, self.variations - self.lookahead)
        return len(self.groups) * (first + looked_at + children)

    def about(self, writer: Writer, embedder: Embedder) -> dict[str, object]:
        """What decides the candidates beside the selections; for `Journal`."""
        return {**asdict(self), "writer": writer.fingerprint, "embedder": embedder.fingerprint}


@dataclass(frozen=True, slots=True)
class SyntheticText:
    """One text of the last selection.

    Attributes:
        text: never empty.
        label: its public label, or None.
        round: that it became a candidate in; 0 for a random text.
        rank: its place in the selection of its label, the best first, from 0.
    """

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
    """A text that is needed: a random one, or a variation of a candidate."""

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
) -> tuple[SyntheticText, ...]:
    """Runs an evolution, or goes on where an interrupted one stopped.

    Args:
        settings: public.
        writer: of random texts and variations; it sees candidates and public text only.
        embedder: public; each candidate's vector is a function of its own text.
        select: the mechanism's private selection.
        journal: opened with `settings.about(writer, embedder)`, and whatever else the caller wants to be equal.
        progress: called with the texts that are finished and the most there can be, or at the end all there were.

    Returns:
        The last selection, label by label, the best first.

    Raises:
        ValueError: for a selection that is none.
        WriterError: for a label for which the writer has no text at all. And what the writer raises, after the texts
            that it finished are in the journal.
    """
    loop = _Loop(settings, writer, embedder, journal, progress)
    first = [_Wanted(0, index) for index in range(settings.synthetic * settings.variations)]
    pools = {label: loop.pool(label, loop.written(label, first)) for label in settings.groups}
    for number in range(settings.rounds):
        vectors = {label: loop.vectors(label, pool, number) for label, pool in pools.items()}
        chosen = select(number, vectors)
        kept = {label: _kept(pool, chosen[label], settings.synthetic) for label, pool in pools.items()}
        if number == settings.rounds - 1:
            break
        for label, best in kept.items():
            children = loop.written(label, _children(best, number + 1, settings.variations))
            pools[label] = loop.pool(label, [*best, *children])
    loop.finish()
    return tuple(
        SyntheticText(candidate.text, label, candidate.round, rank)
        for label, best in kept.items()
        for rank, candidate in enumerate(best)
    )


class _Loop:
    """Texts and vectors of candidates, from the journal where they are there."""

    def __init__(
        self,
        settings: EvolutionSettings,
        writer: Writer,
        embedder: Embedder,
        journal: Journal,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.settings, self.writer, self.embedder, self.journal = settings, writer, embedder, journal
        self._progress = progress or (lambda done, total: None)
        self._done: set[tuple[str | None, str]] = set()

    def written(self, label: str | None, wanted: Sequence[_Wanted]) -> list[_Candidate]:
        """The candidates of one label that are wanted, in order; all random, or all variations."""
        pending = [item for item in wanted if self.journal.get(label, item.key) is None]
        for item in wanted:
            if self.journal.get(label, item.key) is not None:
                self._count(label, item)
        try:
            for attempt in range(ATTEMPTS):
                if pending:
                    pending = self._ask(label, pending, attempt)
            if len(pending) == len(wanted) and not any(item.parent for item in wanted):
                raise self._wrote_nothing(label)  # and keep nothing, so that a mended writer is asked again
            for item in pending:
                self._add(label, item, "" if item.parent is None else item.parent.text)
        finally:
            self.journal.flush()
        return [_Candidate(item.key, self.journal.get(label, item.key) or "", item.round) for item in wanted]

    def _ask(self, label: str | None, wanted: Sequence[_Wanted], attempt: int) -> list[_Wanted]:
        """Asks the writer for texts; those that came back empty."""
        seeds = [_seed(self.settings.seed, label, item.key, attempt) for item in wanted]
        parents = [item.parent.text for item in wanted if item.parent is not None]
        answers = self.writer.vary(parents, label, seeds) if parents else self.writer.random(label, seeds)
        again = []
        for item, answer in zip(wanted, answers, strict=True):
            if text := clean(answer or ""):
                self._add(label, item, text)
            else:
                again.append(item)
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
        """The candidates of a round: of equal texts the first, and the others only where there are too few without.

        Raises:
            WriterError: if there is none at all.
        """
        first: dict[str, _Candidate] = {}
        repeats = []
        for candidate in candidates:
            if candidate.text and first.setdefault(candidate.text, candidate) is not candidate:
                repeats.append(candidate)
        if not first:
            raise self._wrote_nothing(label)
        pool = [*first.values(), *repeats[: max(0, self.settings.synthetic - len(first))]]
        while len(pool) < self.settings.synthetic:  # empty random texts left gaps
            pool += pool[: self.settings.synthetic - len(pool)]
        return pool

    def _wrote_nothing(self, label: str | None) -> WriterError:
        of_label = "" if label is None else f" for label {label!r}"
        return WriterError(
            f"writer {self.writer.name} wrote no text{of_label}, only empty or unfinished answers; look at its prompts "
            "and its largest number of tokens"
        )

    def vectors(self, label: str | None, pool: Sequence[_Candidate], number: int) -> Vectors:
        """What stands for each candidate in a selection, shape (candidates, d)."""
        ahead = self.settings.lookahead
        if not ahead:
            return all_embedded(self.embedder, [candidate.text for candidate in pool])
        children = self.written(label, _children(pool, number + 1, ahead))
        vectors = all_embedded(self.embedder, [child.text for child in children])
        return np.asarray(vectors.reshape(len(pool), ahead, -1).mean(axis=1, dtype=np.float64), dtype=np.float32)


def _children(parents: Sequence[_Candidate], number: int, count: int) -> list[_Wanted]:
    """The first variations of each parent for a round."""
    return [_Wanted(number, variation, parent) for parent in parents for variation in range(count)]


def _kept(pool: Sequence[_Candidate], chosen: Indices, count: int) -> list[_Candidate]:
    """The chosen candidates of a pool.

    Raises:
        ValueError: unless `chosen` has `count` different places of the pool.
    """
    indices = [int(index) for index in chosen]
    if len(set(indices)) != count or len(indices) != count or not all(0 <= index < len(pool) for index in indices):
        raise ValueError(f"a selection must be {count} different indices of {len(pool)} candidates")
    return [pool[index] for index in indices]


def _seed(seed: int, label: str | None, key: str, attempt: int) -> int:
    """63 bits that differ between texts and attempts."""
    digest = hashlib.sha256(repr((seed, label, key, attempt)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
