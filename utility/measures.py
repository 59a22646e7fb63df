"""Utility of synthetic text: reads synthetic and real texts and computes every metric. The numbers are private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpassay import __version__
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.private_results import synthetic_file
from dpassay.base.progress import Progress
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.utility.result import Result
from dpassay.utility.text_sample import TextFile, TextSample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpassay.data.text_overlap import Overlap
    from dpassay.mechanisms.embedding.embedder import Embedder
    from dpassay.utility.frechet import FrechetComparison
    from dpassay.utility.mauve import MauveScore
    from dpassay.utility.text_classifiers import ClassifierComparison
    from dpassay.utility.text_metrics import DistinctN, LengthComparison

PRIVATE = (
    "Every number here is computed from private data without noise. It is covered by no guarantee and belongs to the "
    "private side: do not release it, and do not choose parameters of a claimed run by it."
)
NAME = "utility.json"


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
        reading: how files are written; what is not stated is found out. Synthetic texts need not be lists of turns.
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
    mauve_buckets: int = defaults.MAUVE_CLUSTERS
    limit: int = defaults.TEXTS
    embedded: int = defaults.EMBEDDED_TEXTS
    seed: int = 0
    reading: TextOptions = TEXTS
    confidence: float = defaults.CONFIDENCE
    progress: Progress = field(default_factory=Progress)

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range."""
        validate.integer(minimum=2, limit=self.limit)
        validate.integer(minimum=2, embedded=self.embedded)
        validate.integer(seed=self.seed)
        validate.open_probability(confidence=self.confidence)
        validate.integer(minimum=2, mauve_buckets=self.mauve_buckets)


@dataclass(frozen=True)
class EmbedderIdentity(Result):
    """Which embedder was used: its name, and a hash of all that decides its vectors."""

    name: str
    fingerprint: str


@dataclass(frozen=True)
class LengthComparisons(Result):
    """The lengths of texts in words and in characters."""

    words: LengthComparison
    characters: LengthComparison


@dataclass(frozen=True)
class SameSizeOverlap(Result):
    """The overlap of synthetic texts with real texts that the generator saw and with ones that it did not see, equally
    many of each."""

    texts: int
    real: Overlap
    held_out: Overlap


@dataclass(frozen=True)
class Memorisation(Result):
    """The overlap of synthetic texts with all texts of the real file, and with equally many seen and unseen texts; None
    without held-out texts."""

    real: Overlap
    same_size: SameSizeOverlap | None


@dataclass(frozen=True, kw_only=True)
class Utility(Result):
    """How far synthetic texts are from real ones. Private: see `PRIVATE`.

    Attributes:
        synthetic, real, held_out: the files compared; held_out is None if it was not given.
        embedder: of the texts.
        seed: of all draws.
        classifier: scores of classifiers; None if no label was given.
        frechet: Fréchet distance of the embeddings.
        mauve: MAUVE of the embeddings; None if it was not asked for.
        diversity: distinct-n for n = 1 to 4.
        lengths: lengths of the texts.
        memorisation: words that synthetic texts have in common with real ones.
    """

    synthetic: TextFile
    real: TextFile
    held_out: TextFile | None
    embedder: EmbedderIdentity
    seed: int
    classifier: ClassifierComparison | None
    frechet: FrechetComparison
    mauve: MauveScore | None
    diversity: tuple[DistinctN, ...]
    lengths: LengthComparisons
    memorisation: Memorisation

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types."""
        return {"schema": 1, "private": PRIVATE, "version": __version__, **super().to_json()}


def measure(synthetic: Path, settings: UtilitySettings) -> Utility:
    """All metrics of a synthetic file or run folder.

    Raises:
        InputError: one line, if a file, a column or a setting is invalid.
    """
    with input_errors():
        settings.check()
        embedder = _embedder(settings)
        if settings.mauve:
            from dpassay.utility.mauve import compute_mauve

            compute_mauve()  # fails early if it is not installed
    path = synthetic_file(synthetic)
    with settings.progress.stage("Reading") as step:
        label = settings.synthetic_label if settings.label is not None else None
        limit, seed = settings.limit, settings.seed
        written = TextSample.read(
            path, settings.synthetic_text, label, limit=limit, seed=seed, empty=True, reading=settings.reading
        )
        real = TextSample.read(
            settings.real, settings.text, settings.label, limit=limit, seed=seed, reading=settings.reading
        )
        held_out = None
        if settings.held_out is not None:
            held_out = TextSample.read(
                settings.held_out, settings.text, settings.label, limit=limit, seed=seed, reading=settings.reading
            )
        step(1, 1)
    with input_errors():
        classifier = _classifier(written, real, held_out, settings) if settings.label is not None else None
        frechet, mauve = _embedding_metrics(written, real, embedder, settings)
        diversity, lengths, memorisation = _word_metrics(written, real, held_out, settings)
    return Utility(
        synthetic=written.file,
        real=real.file,
        held_out=held_out.file if held_out else None,
        embedder=EmbedderIdentity(embedder.name, embedder.fingerprint),
        seed=settings.seed,
        classifier=classifier,
        frechet=frechet,
        mauve=mauve,
        diversity=diversity,
        lengths=lengths,
        memorisation=memorisation,
    )


def _embedder(settings: UtilitySettings) -> Embedder:
    from dpassay.mechanisms.embedding.load import load_embedder

    # Nothing is released, so texts may share a forward pass, which changes the last bits of their vectors.
    return load_embedder(settings.embedder, device=settings.device, texts_at_once=32, download=settings.download)


def _classifier(
    written: TextSample, real: TextSample, held_out: TextSample | None, settings: UtilitySettings
) -> ClassifierComparison:
    from dpassay.utility.text_classifiers import downstream
    from dpassay.utility.text_classifiers import held_out as set_apart

    with settings.progress.stage("Classifying") as step:
        if held_out is not None:
            training, test = real.part(), held_out.part()
        else:
            apart = set_apart(real.texts, seed=settings.seed)
            training, test = real.part((~apart).tolist()), real.part(apart.tolist())
        result = downstream(
            written.part(),
            training,
            test,
            confidence=settings.confidence,
            seed=settings.seed,
            tested_on="held_out" if held_out else "real",
        )
        step(1, 1)
    return result


def _embedding_metrics(
    written: TextSample, real: TextSample, embedder: Embedder, settings: UtilitySettings
) -> tuple[FrechetComparison, MauveScore | None]:
    from dpassay.utility.frechet import compare_embeddings, embedded_moments

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
        frechet = compare_embeddings(
            moments["synthetic"], moments["real"], confidence=settings.confidence, seed=settings.seed
        )
        step(1, 1)
    if not settings.mauve:
        return frechet, None
    import numpy as np

    from dpassay.utility.mauve import mauve_score

    with settings.progress.stage("MAUVE") as step:
        sides = (np.concatenate(kept[side]) for side in ("synthetic", "real"))
        mauve = mauve_score(*sides, buckets=settings.mauve_buckets, seed=settings.seed)
        step(1, 1)
    return frechet, mauve


def _word_metrics(
    written: TextSample, real: TextSample, held_out: TextSample | None, settings: UtilitySettings
) -> tuple[tuple[DistinctN, ...], LengthComparisons, Memorisation]:
    from dpassay.data.text_overlap import overlap
    from dpassay.data.word_runs import Words
    from dpassay.utility.text_metrics import compare_lengths, diversity

    with settings.progress.stage("Comparing words") as step:
        words, real_words = Words.of(written.texts), Words.of(real.texts)
        step(1, 4)
        lengths = LengthComparisons(
            words=compare_lengths(words.lengths.tolist(), real_words.lengths.tolist()),
            characters=compare_lengths([len(text) for text in written.texts], [len(text) for text in real.texts]),
        )
        distinct = diversity(words, real_words)
        step(2, 4)
        with_real, same_size = overlap(words, real.all_words(real_words)), None
        step(3, 4)
        if held_out is not None:  # overlap grows with the number of texts searched
            texts = min(len(real.texts), len(held_out.texts))
            seen, unseen = (
                overlap(words, Words.of(sample.draw(texts, settings.seed)).pieces()) for sample in (real, held_out)
            )
            same_size = SameSizeOverlap(texts, seen, unseen)
        step(4, 4)
    return distinct, lengths, Memorisation(with_real, same_size)
