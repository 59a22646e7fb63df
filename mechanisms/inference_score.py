"""How likely given records would have made a given transcript: the same pipeline with the tokens forced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from cupel.mechanisms.slot_inputs import ForcedStep, SlotInputs, forced
from cupel.mechanisms.transcripts import Transcript


def score(inputs: SlotInputs, transcript: Transcript, slots: Sequence[int]) -> NDArray[np.float64]:
    """Σ log p(token) of the slots' tokens under the records of `inputs`, shape (len(slots),).

    Logits are computed token by token in the shapes of the run: where its rows are exact, they are those of generation
    to the bit.
    """
    total = inputs.mechanism.total_slots
    if len(transcript.tokens) != total or not all(0 <= slot < total for slot in slots):
        raise ValueError(f"the transcript and the slots must be those of {total} slots")
    scores = {slot: _Score() for slot in slots}
    for step in forced(inputs, transcript, inputs.groups(list(scores))):
        _add(inputs, scores[step.item.slot], step)
    return np.array([math.fsum(scores[slot].laws) + scores[slot].closed() for slot in slots], dtype=np.float64)


@dataclass(slots=True)
class _Score:
    """Log-probabilities of one slot: of tokens, and without protection of documents.

    Attributes:
        laws: of each token, or of each finished document.
        by_source: of the tokens of the current document, given the record that it is written from.
    """

    laws: list[float] = field(default_factory=list)
    by_source: NDArray[np.float64] | None = None

    def closed(self) -> float:
        """The log-probability of the current document, a mixture over the records that it may be written from."""
        if self.by_source is None:
            return 0.0
        return float(logsumexp(self.by_source) - math.log(len(self.by_source)))


def _add(inputs: SlotInputs, score: _Score, step: ForcedStep) -> None:
    if inputs.mechanism.aggregate != "none":
        score.laws.append(inputs.aggregate(step.item, step.logits).log_probability(step.token))
        return
    sources = range(len(step.item.contexts)) if step.item.contexts else [None]
    laws = [inputs.aggregate(step.item, step.logits, source).log_probability(step.token) for source in sources]
    score.by_source = np.array(laws) if score.by_source is None else score.by_source + laws
    if step.ends:
        score.laws.append(score.closed())
        score.by_source = None
