"""Membership inference from released text alone: is a record closer to the synthetic texts than expected?

There are two scores for each record, larger for "in". Both compare with public reference texts of the same kind, so
that a record that is common everywhere does not look like a member. They use texts only: no model, logits or counts.

Source: Meeus et al., "The Canary's Echo: Auditing Privacy Risks of LLM-Generated Synthetic Text" (2025), section 3, for
both kinds of signal; here an n-gram model of bytes gives the likelihood, and reference texts replace shadow models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.attacks.membership.ngram_model import NGramModel
from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats
from dpassay.base.pieces import pieces
from dpassay.mechanisms.embedding.embedder import Embedder, HashedNgrams, all_embedded

PIECE = 4096  # synthetic texts that are compared at once
ROWS = 1024  # records that are compared at once


def ngram_scores(
    records: Sequence[str],
    synthetic: Iterable[str],
    reference: Iterable[str] | None = None,
    *,
    order: int = defaults.NGRAM_ORDER,
    starts: Sequence[int] | None = None,
) -> Floats:
    """log P(record) under a model of the synthetic texts minus log P(record) under a model of the reference texts.

    Args:
        records: n records.
        synthetic: the released texts, at least one; may be an iterator.
        reference: texts without the records, at least one. None skips the comparison: long and rare records then get
            low scores whether they are in or out.
        order: of both n-gram models.
        starts: where the scored part of each record begins, for example after a public prefix; 0 if None.

    Returns:
        Shape (n,), in nats.

    Raises:
        ValueError: if there is no text, or the starts do not fit.
    """
    result = NGramModel.fit(synthetic, order=order).log_probabilities(records, starts)
    if reference is None:
        return result
    return np.asarray(result - NGramModel.fit(reference, order=order).log_probabilities(records, starts))


def neighbourhood_scores(
    records: Sequence[str],
    synthetic: Iterable[str],
    reference: Iterable[str] | None = None,
    *,
    neighbours: int = defaults.NEIGHBOURS,
    embedder: Embedder | None = None,
) -> Floats:
    """The similarity of each record to its nearest synthetic texts, minus its similarity to reference texts.

    Similarity is the mean cosine of the embeddings over the `neighbours` most similar texts. It increases with the
    number of texts; if there are more synthetic than reference texts, or fewer, this shifts the scores of all records.

    Args:
        records: n records.
        synthetic, reference: as for `ngram_scores`.
        neighbours: number of texts, at most as many as there are.
        embedder: public; `HashedNgrams()` if None.

    Returns:
        Shape (n,), from −2 to 2. Memory is the records' vectors and a piece of the texts.

    Raises:
        ValueError: if there are fewer texts than neighbours.
    """
    validate.integer(minimum=1, neighbours=neighbours)
    chosen: Embedder = HashedNgrams() if embedder is None else embedder
    vectors = all_embedded(chosen, records)
    result = _nearest(vectors, synthetic, chosen, neighbours, "synthetic")
    if reference is None:
        return result
    return np.asarray(result - _nearest(vectors, reference, chosen, neighbours, "reference"))


def exposures(canaries: ArrayLike, references: ArrayLike) -> Floats:
    """The rank of each canary among its own references, as exposure: log₂(k + 1) − log₂ rank, in bits.

    Args:
        canaries: shape (n,), scores of canaries, larger if the secret is more likely.
        references: shape (n, k), for each canary the scores of k secrets that could have been used in its place.

    Returns:
        Shape (n,), from 0 to log₂(k + 1); ties rank the references first.

    Raises:
        ValueError: if shapes do not fit, there is no reference, or a score is NaN.

    Source: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer" (2019), section 4.2.
    """
    scores, others = np.asarray(canaries, dtype=np.float64), np.asarray(references, dtype=np.float64)
    if scores.ndim != 1 or others.ndim != 2 or len(others) != len(scores) or not others.shape[1]:
        raise ValueError(f"{scores.shape} canaries need references of shape (n, at least 1), not {others.shape}")
    if np.isnan(scores).any() or np.isnan(others).any():
        raise ValueError("scores must be numbers, not NaN")
    rank = 1 + (others >= scores[:, None]).sum(axis=1)
    return np.asarray(np.log2(others.shape[1] + 1) - np.log2(rank))


def _nearest(
    vectors: NDArray[np.float32], texts: Iterable[str], embedder: Embedder, neighbours: int, kind: str
) -> Floats:
    """The mean of the largest cosines, shape (n,)."""
    parts = [vectors[start : start + ROWS] for start in range(0, len(vectors), ROWS)]
    best = [np.empty((len(rows), 0), dtype=np.float32) for rows in parts]
    seen = 0
    for piece in pieces(texts, PIECE):
        others = all_embedded(embedder, piece)
        seen += len(piece)
        for index, rows in enumerate(parts):
            both = np.concatenate([best[index], rows @ others.T], axis=1)
            kept = min(neighbours, seen)
            best[index] = np.partition(both, -kept, axis=1)[:, -kept:].copy()
    if seen < neighbours:
        raise ValueError(f"there are only {seen} {kind} texts, fewer than the {neighbours} nearest that are needed")
    return np.concatenate([rows.mean(axis=1, dtype=np.float64) for rows in best] or [np.zeros(0)])
