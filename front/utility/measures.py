"""Utility of synthetic text: reads both sides, computes every metric, and keeps the numbers on the private side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupel import __version__
from cupel.accounting import validate
from cupel.errors import input_errors
from cupel.io.private_results import synthetic_file
from cupel.progress import Progress
from cupel.utility.text_sample import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cupel.mechanisms.embedding.embedder import Embedder

PRIVATE = (
    "Every number here is computed from private data without noise. It is covered by no guarantee and belongs to the "
    "private side: do not release it, and do not choose parameters of a claimed run by it."
)
NAME = "utility.json"
LIMIT = 100_000
EMBEDDED = 20_000


@dataclass(frozen=True)
class UtilitySettings:
    """Which texts `measure` compares, and how.

    Attributes:
        real: file of the private texts that the generator saw.
        held_out: file of real texts that it did not see, or None.
        text, label: columns of the real files; without a label no classifier is trained.
        synthetic_text, synthetic_label: columns of the synthetic file.
        embedder: ``builtin``, a local folder or a hub id of a `sentence-transformers` model.
        device: where a `sentence-transformers` model runs.
        download: whether a hub id may be fetched.
        mauve: whether MAUVE is computed, which needs the package mauve-text.
        mauve_buckets: number of clusters of MAUVE, a public choice.
        limit: largest number of texts used from each file, drawn uniformly; overlap uses all real texts.
        embedded: largest number of those texts that are embedded.
        seed: of all draws, which are public choices.
        confidence: of all intervals.
        progress: where to show progress.
    """

    real: Path
    held_out: Path | None = None
    text: str = "text"
    label: str | None = None
    synthetic_text: str = "text"
    synthetic_label: str = "label"
    embedder: str = "builtin"
    device: str = "auto"
    download: bool = False
    mauve: bool = False
    mauve_buckets: int = 50
    limit: int = LIMIT
    embedded: int = EMBEDDED
    seed: int = 0
    confidence: float = 0.95
    progress: Progress = field(default_factory=Progress)

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range."""
        validate.integer(minimum=2, limit=self.limit)
        validate.integer(minimum=2, embedded=self.embedded)
        validate.integer(seed=self.seed)
        validate.open_probability(confidence=self.confidence)
        validate.integer(minimum=2, mauve_buckets=self.mauve_buckets)


def measure(synthetic: Path, settings: UtilitySettings) -> dict[str, Any]:
    """All metrics of a synthetic file or run folder, in JSON types.

    Raises:
        InputError: one line, for files, columns or parameters that do not do.
    """
    with input_errors():
        settings.check()
        embedder = _embedder(settings)
        if settings.mauve:
            from cupel.utility.mauve import compute_mauve

            compute_mauve()  # fails early if it is not installed
    path = synthetic_file(synthetic)
    with settings.progress.stage("Reading") as step:
        label = settings.synthetic_label if settings.label is not None else None
        limit, seed = settings.limit, settings.seed
        written = Sample.read(path, settings.synthetic_text, label, limit=limit, seed=seed, empty=True)
        real = Sample.read(settings.real, settings.text, settings.label, limit=limit, seed=seed)
        held_out = None
        if settings.held_out is not None:
            held_out = Sample.read(settings.held_out, settings.text, settings.label, limit=limit, seed=seed)
        step(1, 1)
    found: dict[str, Any] = {"schema": 1, "private": PRIVATE, "version": __version__}
    found["synthetic"], found["real"] = written.about(), real.about()
    found["held_out"] = held_out.about() if held_out else None
    found["embedder"] = {"name": embedder.name, "fingerprint": embedder.fingerprint}
    found["seed"] = settings.seed
    with input_errors():
        found |= _classified(written, real, held_out, settings)
        found |= _embedded(written, real, embedder, settings)
        found |= _worded(written, real, held_out, settings)
    return found


def _embedder(settings: UtilitySettings) -> Embedder:
    from cupel.mechanisms.embedding.load import load_embedder

    # Nothing is released, so texts may share a forward, which moves the last bits of their vectors.
    return load_embedder(settings.embedder, device=settings.device, texts_at_once=32, download=settings.download)


def _classified(written: Sample, real: Sample, held_out: Sample | None, settings: UtilitySettings) -> dict[str, Any]:
    if settings.label is None:
        return {"classifier": None}
    from cupel.utility.downstream import downstream
    from cupel.utility.downstream import held_out as set_apart

    with settings.progress.stage("Classifying") as step:
        if held_out is not None:
            training, test = real.part(), held_out.part()
        else:
            apart = set_apart(real.texts, seed=settings.seed)
            training, test = real.part((~apart).tolist()), real.part(apart.tolist())
        found = downstream(written.part(), training, test, confidence=settings.confidence, seed=settings.seed)
        step(1, 1)
    return {"classifier": {**found, "tested_on": "held_out" if held_out else "real"}}


def _embedded(written: Sample, real: Sample, embedder: Embedder, settings: UtilitySettings) -> dict[str, Any]:
    from cupel.utility.frechet import compare_embeddings, embedded_moments

    kept: dict[str, list[NDArray[np.float32]]] = {"synthetic": [], "real": []}
    moments = {}
    for number, (side, sample) in enumerate((("synthetic", written), ("real", real))):

        def embed(texts: Sequence[str], side: str = side) -> NDArray[np.float32]:
            vectors = embedder.embed(texts)
            if settings.mauve:
                kept[side].append(vectors)
            return vectors

        with settings.progress.stage(f"Embedding {side}") as step:
            texts = sample.draw(min(settings.embedded, len(sample.texts)), settings.seed)
            moments[side] = embedded_moments(texts, embed, settings.seed + number, step)
    with settings.progress.stage("Resampling") as step:
        compared = compare_embeddings(
            moments["synthetic"], moments["real"], confidence=settings.confidence, seed=settings.seed
        )
        step(1, 1)
    compared["texts"] = {side: of.count for side, of in moments.items()}
    found: dict[str, Any] = {"frechet": compared, "mauve": None}
    if settings.mauve:
        import numpy as np

        from cupel.utility.mauve import mauve_score

        with settings.progress.stage("MAUVE") as step:
            sides = (np.concatenate(kept[side]) for side in ("synthetic", "real"))
            found["mauve"] = mauve_score(*sides, buckets=settings.mauve_buckets, seed=settings.seed)
            step(1, 1)
    return found


def _worded(written: Sample, real: Sample, held_out: Sample | None, settings: UtilitySettings) -> dict[str, Any]:
    from cupel.mechanisms.data.text_overlap import overlap
    from cupel.mechanisms.data.word_runs import Words
    from cupel.utility.text_metrics import compare_lengths, diversity

    with settings.progress.stage("Comparing words") as step:
        words, real_words = Words.of(written.texts), Words.of(real.texts)
        step(1, 4)
        lengths = {
            "words": compare_lengths(words.lengths.tolist(), real_words.lengths.tolist()),
            "characters": compare_lengths([len(text) for text in written.texts], [len(text) for text in real.texts]),
        }
        distinct = diversity(words, real_words)
        step(2, 4)
        memorisation: dict[str, Any] = {"real": overlap(words, real.all_words(real_words)).summary(), "same_size": None}
        step(3, 4)
        if held_out is not None:  # more texts hold more runs, so only as many seen and unseen ones compare
            same = {"real": real, "held_out": held_out}
            texts = min(len(sample.texts) for sample in same.values())
            pieces = {side: Words.of(sample.draw(texts, settings.seed)).pieces() for side, sample in same.items()}
            found = {side: overlap(words, of).summary() for side, of in pieces.items()}
            memorisation["same_size"] = {"texts": texts, **found}
        step(4, 4)
    return {"diversity": distinct, "lengths": lengths, "memorisation": memorisation}
