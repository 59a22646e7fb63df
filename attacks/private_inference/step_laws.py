"""The distributions of every token of a released transcript, for given records.

The transcript is replayed, so that every data set has the same history and each token has a distribution on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor

if TYPE_CHECKING:
    from dpassay.data.records import Record
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.private_inference.generator import PrivateInference
    from dpassay.mechanisms.private_inference.slot_inputs import Forced, SlotInputs, SlotLaws
    from dpassay.mechanisms.private_inference.transcripts import Transcript


class StepLaws:
    """The distributions from which a run of private inference draws its tokens, given some records.

    Args:
        mechanism: median or mean.
        records: of a data set, not necessarily those of the run.
        model: of the run.
        transcript: of the run.
        key: of the batching.
        executor: where many records are embedded.

    Raises:
        ValueError: for the unprotected control.
    """

    def __init__(
        self,
        mechanism: PrivateInference,
        records: Sequence[Record],
        model: LanguageModel,
        transcript: Transcript,
        *,
        key: bytes,
        executor: Executor = THIS_PROCESS,
    ) -> None:
        from dpassay.mechanisms.private_inference.slot_inputs import replayed_inputs

        if mechanism.aggregate == "none":
            raise ValueError("the aggregate must be median or mean: the unprotected control declares nothing to check")
        self._mechanism, self._records, self._key, self._transcript = mechanism, records, key, transcript
        self.inputs: SlotInputs = replayed_inputs(mechanism, records, model, key, transcript, executor)

    def texts(self, slot: int) -> list[list[str]]:
        """The texts of a slot by context, sorted. If they are equal, so are `contexts`, which take longer to make."""
        return sorted([self._records[i].text for i in context] for context in self.inputs.batches.contexts[slot])

    def contexts(self, slot: int) -> list[list[int]]:
        """The contexts of a slot in tokens, sorted. If they are equal, so are the distributions of this slot."""
        return sorted(map(list, self.inputs.slot(slot).contexts))

    def groups(self, slots: Sequence[int]) -> list[list[int]]:
        """Slots that are computed in parallel, as in a run, with two data sets in memory at once."""
        return self.inputs.groups(slots, copies=2)

    def forced(self, group: Sequence[int]) -> Forced:
        """Slots of a group that ran, with the tokens of the transcript."""
        from dpassay.mechanisms.private_inference.slot_inputs import Forced

        return Forced.of([(self.inputs, slot) for slot in group], self._transcript)

    def slot_units(self) -> Integers:
        """Shape (slots,): the number of units of each slot, as in the noisy slot counts."""
        return self.inputs.batches.units

    def cluster_units(self) -> Integers | None:
        """Shape (labels · K,): the number of units of each label and centre; None without centres."""
        if self._mechanism.centres is None:
            return None
        return np.asarray(self._mechanism.cluster_units(self._records, self._key).ravel())


def log_laws(forced: Forced, laws: SlotLaws) -> Iterator[tuple[int, int, Floats]]:
    """Yields slot, step and the log-probabilities of all tokens, shape (V,), of the exact softmax; −∞ for tokens that
    are not kept. Slots are computed in parallel, as in a run: token by token, each slot in order."""
    for step in forced.steps(laws):
        law = laws.aggregate(step.item, step.logits)
        yield step.item.slot, step.step, law.log_probabilities(laws.model.vocabulary_size)
