"""How likely given records would have made a given transcript: the same pipeline with the tokens forced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from cupel.mechanisms.slot_inputs import SlotInput, SlotInputs, SlotRows
from cupel.mechanisms.transcripts import Transcript

_ENTRIES = 2**26  # logits of one call of the model: 256 MiB


def score(inputs: SlotInputs, transcript: Transcript, slots: Sequence[int]) -> NDArray[np.float64]:
    """Σ log p(token) of the slots' tokens under the records of `inputs`, shape (len(slots),)."""
    total = inputs.mechanism.total_slots
    if len(transcript.tokens) != total or not all(0 <= slot < total for slot in slots):
        raise ValueError(f"the transcript and the slots must be those of {total} slots")
    return np.array([_slot(inputs, slot, transcript.tokens[slot]) for slot in slots], dtype=np.float64)


def _slot(inputs: SlotInputs, slot: int, tokens: Sequence[int]) -> float:
    if not tokens:
        return 0.0
    item = inputs.slot(slot)
    rows = SlotRows(inputs.model, [item])
    documents = inputs.mechanism.end_rule(inputs.model).split(tokens)
    return math.fsum(_document(inputs, item, rows, document) for document in documents)


def _document(inputs: SlotInputs, item: SlotInput, rows: SlotRows, tokens: Sequence[int]) -> float:
    """One document's log-probability; without protection, a mixture over the record it may be written from."""
    laws: list[float] = []
    sources = range(len(item.contexts)) if item.contexts else [None]
    by_row = np.zeros(len(sources))
    for token, logits in _positions(inputs, item, rows, tokens):
        if inputs.mechanism.aggregate == "none":
            by_row += [inputs.aggregate(item, logits, source).log_probability(token) for source in sources]
        else:
            laws.append(inputs.aggregate(item, logits).log_probability(token))
    rows.restart()
    if inputs.mechanism.aggregate == "none":
        return float(logsumexp(by_row) - math.log(len(by_row)))
    return math.fsum(laws)


def _positions(
    inputs: SlotInputs, item: SlotInput, rows: SlotRows, tokens: Sequence[int]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Each token with the logits before it, shape (rows, V), several positions in one call of the model."""
    width = max(1, _ENTRIES // (max(1, len(item.rows)) * inputs.model.vocabulary_size))
    for start in range(0, len(tokens), width):
        piece = tokens[start : start + width]
        logits = rows.forced(piece)
        for offset, token in enumerate(piece):
            yield token, logits[:, offset]
