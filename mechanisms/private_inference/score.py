"""The log-probability of a given transcript under given records: the same pipeline with the tokens forced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from dpassay.base.arrays import Floats
from dpassay.mechanisms.private_inference.slot_inputs import ForcedStep, Slot, SlotInputs, forced, side_by_side
from dpassay.mechanisms.private_inference.transcripts import Transcript


def score(slots: Sequence[Slot], transcript: Transcript, progress: Callable[[int, int], None] | None = None) -> Floats:
    """Σ log p(token) over the tokens of each slot, shape (len(slots),), under the records of its data set.

    Logits are computed token by token in the shapes of the run: if its rows are exact, they are bitwise those of the
    generation. Slots of all data sets are computed in parallel.

    Args:
        slots: of data sets that share mechanism, model and key with the run.
        transcript: of the run.
        progress: called with the number of steps done and the total.
    """
    for inputs, slot in slots:
        total = inputs.mechanism.total_slots
        if len(transcript.tokens) != total or not 0 <= slot < total:
            raise ValueError(f"transcript must have {total} slots, and slots must be between 0 and {total - 1}")
    order = sorted(range(len(slots)), key=lambda index: slots[index][1])  # slots of a label share their shape
    scores = [_Score() for _ in slots]
    groups, before = side_by_side([slots[index] for index in order]), 0
    for number, group in enumerate(groups):
        tokens = group[0][0].mechanism.tokens
        for step in forced([group], transcript):
            _add(group[0][0], scores[order[before + step.index]], step)
            if progress is not None:
                progress(number * tokens + step.step, len(groups) * tokens)
        before += len(group)
        if progress is not None:
            progress((number + 1) * tokens, len(groups) * tokens)
    return np.array([math.fsum(score.laws) + score.closed() for score in scores], dtype=np.float64)


@dataclass(slots=True)
class _Score:
    """Log-probabilities of one slot: of each token, or without protection of each finished document and, for each
    record from which it may be generated, of the current one."""

    laws: list[float] = field(default_factory=list)
    by_source: Floats | None = None

    def closed(self) -> float:
        """The log-probability of the current document, a mixture over the records it may be generated from."""
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
