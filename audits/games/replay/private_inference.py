"""Record and replay for private inference: compares every token of a run with its charge, by brute force.

The released transcript is replayed on each neighbour, with all slots in parallel as in the run. For each token of each
slot whose contexts change, the distributions on the two data sets are compared over the whole vocabulary; those of the
other slots must not change at all. Noisy counts are compared with their sensitivity. `record_replay` states what this
proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.private_inference.leave_one_out import scoring_error
from dpassay.attacks.private_inference.step_laws import StepLaws
from dpassay.audits.games.replay.record_replay import Finding, Kind
from dpassay.audits.result import AuditResult
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives.charged import other_logits

if TYPE_CHECKING:
    from dpassay.data.records import Record
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.private_inference.generator import PrivateInference
    from dpassay.mechanisms.private_inference.transcripts import Generation

Accounting: TypeAlias = Literal["charged", "published"]


def inference_findings(
    mechanism: PrivateInference,
    records: Sequence[Record],
    neighbors: Iterable[Sequence[Record]],
    model: LanguageModel,
    generation: Generation,
    *,
    key: bytes,
    accounting: Accounting = "charged",
) -> list[Finding]:
    """The events of a run of private inference that do not hold; for each kind, the one with the largest excess.

    The kinds, and what must hold:

    - ``range``: the range of the log-ratio of a token's two distributions, over the vocabulary, is at most the charged
      η. If one event covers a token of all slots, the ranges of the slots add up.
    - ``cost``: the log-ratio of the released token of a median is at most its realised cost; as published, at most γ.
    - ``parts``: of slots that compose in parallel, only one changes; under replace_one, two.
    - ``rows``: a slot with unchanged contexts has unchanged distributions, even if other rows of its pass changed.
    - ``sensitivity``: noisy counts change by at most 1 in total; under replace_one, by 2.

    Args:
        mechanism: of the run, median or mean.
        records: of the run.
        neighbors: of the records, at the adjacency and unit of the mechanism.
        model: of the run.
        generation: of the run.
        key: of the batching.
        accounting: ``charged`` compares with the ledger; ``published`` with the paper: slots in parallel, rows added
            or removed, γ for a median.

    Returns:
        Findings whose `step` is the index of the token in its slot.

    Raises:
        ValueError: for the unprotected control.
        RunMismatchError: if logits are not those of the run, so that `top_k` leaves out a token that was drawn.
    """
    validate.one_of(("charged", "published"), accounting=accounting)
    audit = _Audit(mechanism, model, generation, key, accounting)
    own = audit.laws(records)
    worst: dict[Kind, tuple[float, Finding]] = {}
    for number, other in enumerate(neighbors):
        for finding in audit.compared(own, audit.laws(other), number):
            excess = float(finding.measured) - float(finding.declared)
            if finding.kind not in worst or excess > worst[finding.kind][0]:
                worst[finding.kind] = (excess, finding)
    return [finding for _, finding in worst.values()]


def inference_replay_audit(findings: Sequence[Finding], *, neighbors: int, adjacency: Adjacency | str) -> AuditResult:
    """The findings of `inference_findings` as an audit. It has no bounds; its `contradictions` are the findings."""
    relation = Adjacency(adjacency)
    every = f"Every event held for {neighbors} neighbours, which says nothing about other neighbours and outputs."
    conclusion = (
        f"An event of the run does not hold: {findings[0]}. Bounds that rest on these events are not proven for it."
        if findings
        else every
        if neighbors
        else "No neighbour was given, so no event was tested."
    )
    return AuditResult(
        name="record_replay",
        game=f"record and replay: the released tokens are replayed on neighbours of the data under {relation}",
        attack="the distributions of every token over the vocabulary, and the counts, compared with their charges",
        statistics=("largest excess over a charge",),
        conclusion=conclusion,
        trials=neighbors,
        multiplicity=(f"the largest excess over {neighbors} neighbours (deterministic, so no correction)",),
        contradictions=tuple(f"a replayed event exceeds its charge: {finding}" for finding in findings),
    )


class _Audit:
    """Compares one run with one neighbour at a time."""

    def __init__(
        self,
        mechanism: PrivateInference,
        model: LanguageModel,
        generation: Generation,
        key: bytes,
        accounting: Accounting,
    ) -> None:
        self._mechanism, self._model, self._generation, self._key = mechanism, model, generation, key
        self._published = accounting == "published"
        self._error = scoring_error(mechanism, model, generation)  # of the log-ratio of two probabilities
        self._forward = 0.0 if generation.row_plan.exact else self._error  # exact rows: equal contexts, equal bits

    def laws(self, records: Sequence[Record]) -> StepLaws:
        return StepLaws(self._mechanism, records, self._model, self._generation.transcript, key=self._key)

    def compared(self, own: StepLaws, theirs: StepLaws, neighbor: int) -> Iterator[Finding]:
        yield from self._counts(own, theirs, neighbor)
        running = self._generation.transcript.running
        differ = [slot for slot, runs in enumerate(running) if runs and own.texts(slot) != theirs.texts(slot)]
        changed = [slot for slot in differ if own.contexts(slot) != theirs.contexts(slot)]
        most = 2 if self._mechanism.adjacency is Adjacency.REPLACE_ONE else 1
        if len(changed) > most and (self._published or self._mechanism.variant == "sound"):
            yield Finding("parts", None, neighbor, float(most), float(len(changed)))
        running_slots = [slot for slot, runs in enumerate(running) if runs]
        groups = [group for group in own.groups(running_slots) if set(group) & set(changed)]
        row_of = {slot: row for row, slot in enumerate(changed)}
        spreads = np.zeros((len(changed), self._mechanism.tokens))
        moved: set[int] = set()
        for (slot, step, law), (_, _, other) in zip(own.of_groups(groups), theirs.of_groups(groups), strict=True):
            # A token that neither distribution has does not count: some log-ratio is at least 0, and some at most 0.
            ratio = np.subtract(law, other, out=np.zeros_like(law), where=law != other)
            if slot in row_of:
                spreads[row_of[slot], step] = ratio.max() - ratio.min()
                token = self._generation.transcript.tokens[slot][step]
                if law[token] == -np.inf:
                    raise other_logits()
                yield from self._cost(float(ratio[token]), slot, step, neighbor)
            elif np.abs(ratio).max() > self._forward:
                moved.add(slot)
        if moved:
            yield Finding("rows", None, neighbor, 0.0, float(len(moved)))
        yield from self._ranges(spreads, neighbor)

    def _counts(self, own: StepLaws, theirs: StepLaws, neighbor: int) -> Iterator[Finding]:
        mechanism = self._mechanism
        declared = float(noise.count_sensitivity(mechanism.adjacency))
        pairs = [(own.cluster_units(), theirs.cluster_units())]
        if mechanism.slot_threshold is not None:
            pairs.append((own.slot_units(), theirs.slot_units()))
        for counts, others in pairs:
            if counts is not None and others is not None and (moved := float(np.abs(counts - others).sum())) > declared:
                yield Finding("sensitivity", None, neighbor, declared, moved)

    def _cost(self, ratio: float, slot: int, step: int, neighbor: int) -> Iterator[Finding]:
        """Checks the released token of a median: its log-ratio must lie between −u⁺ and u⁻."""
        costs = self._generation.token_costs
        if costs is None:
            return
        minus, plus, published = map(float, costs[slot, step])
        declared = published if self._published else minus if ratio > 0 else plus
        if abs(ratio) > declared + self._error:
            yield Finding("cost", step, neighbor, declared, abs(ratio), part=f"slot {slot}")

    def _ranges(self, spreads: Floats, neighbor: int) -> Iterator[Finding]:
        mechanism = self._mechanism
        if not spreads.size:
            return
        declared, ends = self._eta(), 2
        if mechanism.charges_jointly and not self._published:
            ends *= len(spreads)
            spreads = spreads.sum(axis=0, keepdims=True)
        step = int(spreads.max(axis=0).argmax())
        result = float(spreads[:, step].max())
        if result > declared + ends * self._error:
            yield Finding("range", step, neighbor, declared, result)

    def _eta(self) -> float:
        mechanism = self._mechanism
        if self._published and mechanism.aggregate == "mean":
            return 2 * mechanism.clip / ((mechanism.denominator or mechanism.batch_size) * mechanism.temperature)
        return float(mechanism.token_event().eta)
