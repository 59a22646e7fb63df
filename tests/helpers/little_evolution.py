"""Small evolutions: a writer of a few words, records with planted secrets, and sources of noise that are looked at."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record, with_content_ids
from dpassay.mechanisms.aug_pe.generator import AugPE
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution.detection import PatternSecrets
from dpassay.mechanisms.secret_evolution.generator import SecretEvolution

EMBEDDER = HashedNgrams(dimension=16, buckets=512)
"""In place of one that is fitted anew for each of many runs."""

WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "willow")


class ToyWriter:
    """Four words for each seed; a variation exchanges one of them."""

    name = "toy"
    fingerprint = "toy"

    def __init__(self, *, dies_after: int | None = None, pause: float = 0.0) -> None:
        self.written = 0
        self._dies_after, self._pause = dies_after, pause

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        for seed in seeds:
            self._count()
            yield " ".join(np.random.default_rng(seed).choice(WORDS, 4))

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        for text, seed in zip(texts, seeds, strict=True):
            self._count()
            generator = np.random.default_rng(seed)
            words = text.split()
            words[generator.integers(len(words))] = str(generator.choice(WORDS))
            yield " ".join(words)

    def _count(self) -> None:
        if self.written == self._dies_after:
            raise ConnectionError("the writer is gone")
        time.sleep(self._pause)
        self.written += 1


class LocalToyWriter(ToyWriter):
    """The same, which workers load."""

    rows = 5

    def loader(self) -> Callable[[], LocalToyWriter]:
        return LocalToyWriter


def tree_records(count: int, *, labels: Sequence[str] = (), seed: int = 0, codes: Sequence[str] = ()) -> list[Record]:
    """Records of four words and their number; each code is planted in three of them, one after the other."""
    generator = np.random.default_rng(seed)
    texts = [f"{' '.join(generator.choice(WORDS, 4))} n{index}" for index in range(count)]
    for position, code in enumerate(codes):
        for index in range(3 * position, 3 * position + 3):
            texts[index] = f"{texts[index]} code {code}"
    names = [labels[index % len(labels)] if labels else None for index in range(count)]
    return with_content_ids([(text, name, None) for text, name in zip(texts, names, strict=True)])


class Watched(Recorded):
    """Recorded noise, and what it was added to."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.exact: list[NDArray[np.float64]] = []
        self.noisy: list[NDArray[np.float64]] = []
        self.scales: list[float] = []

    def add_gaussian(self, values: ArrayLike, scale: float) -> NDArray[np.float64]:
        self.exact.append(np.array(values, dtype=np.float64))
        self.scales.append(scale)
        self.noisy.append(self._noisy(super().add_gaussian(values, scale)))
        return self.noisy[-1]

    def _noisy(self, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        return drawn


class Forced(Watched):
    """Gives out what another run gave out, whatever it is asked to add noise to: its noise differs by the difference.

    Bernoulli draws come from the same seed, so equal records are drawn alike.
    """

    def __init__(self, seed: int, outcomes: Sequence[NDArray[np.float64]]) -> None:
        super().__init__(seed)
        self._outcomes = list(outcomes)

    def _noisy(self, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._outcomes[len(self.noisy)]


class Vigilant(Watched):
    """Whenever something is drawn, exactly one step of a stage is on the disk as charged and not as committed."""

    def __init__(self, ledger: Path, stage: str) -> None:
        super().__init__(1)
        self._ledger, self._stage = ledger, stage

    def add_gaussian(self, values: ArrayLike, scale: float) -> NDArray[np.float64]:
        self._look()
        return super().add_gaussian(values, scale)

    def bernoulli(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        self._look()
        return super().bernoulli(probabilities)

    def _look(self) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{self._ledger}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT kind, body FROM entries").fetchall()
        keys = {kind: [json.loads(body)["key"] for name, body in rows if name == kind] for kind in ("charge", "commit")}
        waiting = sorted(set(keys["charge"]) - set(keys["commit"]))
        assert [key.partition("/")[0] for key in waiting] == [self._stage]


def evolution(kind: str) -> Any:
    """A small mechanism of either kind, with labels."""
    numbers: dict[str, Any] = {"rounds": 4, "synthetic": 4, "variations": 2, "labels": ("tree", "wood")}
    if kind == "aug_pe":
        return AugPE(**numbers, noise_multiplier=0.7, records=40)
    return SecretEvolution(**numbers, secrets=(PatternSecrets(r"\bzx\d{5}\b"),), p=1e-3, r=0.9, clusters=2)


def evolve_in(folder: Path, kind: str, pause: float = 0.0) -> None:
    """Runs a small evolution with noise of the operating system in a folder, or goes on; writes ``texts.json``."""
    mechanism, records = evolution(kind), tree_records(40, labels=("tree", "wood"), codes=("zx31415", "zx27182"))
    plan = mechanism.plan() if kind == "aug_pe" else mechanism.plan(mechanism.incidence(records))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=plan, adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        result = mechanism.generate(records, ToyWriter(pause=pause), run, journal=folder / "journal.jsonl")
        run.finish()
    partial = folder / "texts.partial"
    partial.write_text(json.dumps([[text.label, text.round, text.text] for text in result.texts]))
    os.replace(partial, folder / "texts.json")
