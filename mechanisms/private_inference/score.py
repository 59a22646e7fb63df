"""The log-probability of a given transcript under given records: the same pipeline with the tokens forced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.special import logsumexp

from dpassay.base.arrays import Floats
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, ThisProcess
from dpassay.mechanisms.compute.needs import map_with
from dpassay.mechanisms.private_inference.slot_decoder import needed_laws
from dpassay.mechanisms.private_inference.slot_inputs import Forced, ForcedStep, Slot, SlotLaws, in_parts, side_by_side
from dpassay.mechanisms.private_inference.transcripts import Transcript


def score(
    slots: Sequence[Slot],
    transcript: Transcript,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor = THIS_PROCESS,
) -> Floats:
    """Σ log p(token) over the tokens of each slot, shape (len(slots),), under the records of its data set; 0 for a slot
    that did not run.

    Logits are computed token by token in the shapes of the run: if its rows are exact, they are bitwise those of the
    generation. Slots of all data sets are computed in parallel.

    Args:
        slots: of data sets that share mechanism, model and key with the run.
        transcript: of the run.
        progress: called with the number of steps done and the total.
        executor: where they are computed. If rows are exact, slots are divided among its workers.
    """
    for inputs, slot in slots:
        total = inputs.mechanism.total_slots
        if len(transcript.tokens) != total or not 0 <= slot < total:
            raise ValueError(f"transcript must have {total} slots, and slots must be between 0 and {total - 1}")
    result = np.zeros(len(slots))
    ran = [index for index, (_, slot) in enumerate(slots) if transcript.tokens[slot]]
    if not ran:
        return result
    ran.sort(key=lambda index: slots[index][1])  # slots of a label share their shape
    laws, groups = slots[0][0], side_by_side([slots[index] for index in ran])
    if laws.row_plan.exact:  # otherwise a row's bits depend on those beside it
        groups = [part for group in groups for part in _divided(group, executor.workers)]
    steps = _Steps(progress, len(groups) * laws.mechanism.tokens)
    here = isinstance(executor, ThisProcess)
    function = partial(_scores, after_step=steps.count) if here else _scores
    pieces = (Forced.of(group, transcript) for group in groups)
    scores: list[float] = []
    for own in map_with(executor, function, pieces, needed_laws(laws, executor)):
        scores += own
        if not here:
            steps.count(laws.mechanism.tokens)
    result[ran] = scores
    return result


def _divided(group: Sequence[Slot], parts: int) -> list[list[Slot]]:
    return in_parts(group, [inputs.count(slot) for inputs, slot in group], parts)


@dataclass(slots=True)
class _Steps:
    """Counts the steps that are done."""

    progress: Callable[[int, int], None] | None
    total: int
    done: int = 0

    def count(self, more: int = 1) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)


def _scores(forced: Forced, laws: SlotLaws, after_step: Callable[[], None] = lambda: None) -> list[float]:
    """The scores of slots that are replayed together."""
    scores = [_Score() for _ in forced.items]
    for step in forced.steps(laws):
        _add(laws, scores[step.index], step)
        if step.index == len(scores) - 1:
            after_step()
    return [math.fsum(score.laws) + score.closed() for score in scores]


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


def _add(inputs: SlotLaws, score: _Score, step: ForcedStep) -> None:
    if inputs.mechanism.aggregate != "none":
        score.laws.append(inputs.aggregate(step.item, step.logits).log_probability(step.token))
        return
    sources = range(len(step.item.contexts)) if step.item.contexts else [None]
    laws = [inputs.aggregate(step.item, step.logits, source).log_probability(step.token) for source in sources]
    score.by_source = np.array(laws) if score.by_source is None else score.by_source + laws
    if step.ends:
        score.laws.append(score.closed())
        score.by_source = None
