"""Record and replay for private inference: compares every token of a run with its charge, by brute force.

The released transcript is replayed on each neighbour, with all slots in parallel as in the run. For each token of each
slot whose contexts change, the distributions on the two data sets are compared over the whole vocabulary; those of the
other slots must not change at all. Noisy counts are compared with their sensitivity. `record_replay` states what this
proves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.private_inference.leave_one_out import scoring_error
from dpassay.attacks.private_inference.step_laws import StepLaws, log_laws
from dpassay.audits.games.replay.record_replay import Finding, Kind
from dpassay.audits.result import AuditResult
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.needs import map_with
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives.charged import other_logits

if TYPE_CHECKING:
    from dpassay.data.records import Record
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.private_inference.generator import PrivateInference
    from dpassay.mechanisms.private_inference.slot_inputs import Forced, SlotLaws
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
    executor: Executor = THIS_PROCESS,
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
        executor: where tokens are replayed: groups of slots, and neighbours, side by side.

    Returns:
        Findings whose `step` is the index of the token in its slot.

    Raises:
        ValueError: for the unprotected control.
        RunMismatchError: if logits are not those of the run, so that `top_k` leaves out a token that was drawn.
    """
    validate.one_of(("charged", "published"), accounting=accounting)
    from dpassay.mechanisms.private_inference.slot_decoder import needed_laws

    audit = _Audit(mechanism, model, generation, key, accounting, executor)
    own = audit.laws(records)
    replayed: list[_Neighbor] = []

    def pairs() -> Iterator[_Pair]:
        for number, other in enumerate(neighbors):
            theirs = audit.laws(other)
            replayed.append(audit.begin(own, theirs, number))
            for group in replayed[-1].groups:
                yield _Pair(number, own.forced(group), theirs.forced(group))

    for number, ratios in map_with(executor, _ratios, pairs(), needed_laws(own.inputs, executor)):
        replayed[number].ratios.append(ratios)
    worst: dict[Kind, tuple[float, Finding]] = {}
    for neighbor in replayed:
        for finding in audit.findings(neighbor):
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A group of slots of the data and of a neighbour, to be replayed; it can be sent to a worker."""

    neighbor: int
    own: Forced
    theirs: Forced


def _ratios(pair: _Pair, laws: SlotLaws) -> tuple[int, Floats]:
    """The neighbour, and of the log-ratio of the two distributions of each token the largest, the smallest, and that
    of the released token, shape (3, slots, tokens).

    Raises:
        RunMismatchError: if `top_k` leaves out a token that was drawn.
    """
    result = np.zeros((3, *np.shape(pair.own.tokens)))
    rows = {item.slot: row for row, item in enumerate(pair.own.items)}
    both = zip(log_laws(pair.own, laws), log_laws(pair.theirs, laws), strict=True)
    for (slot, step, law), (_, _, other) in both:
        # A token that neither distribution has does not count: some log-ratio is at least 0, and some at most 0.
        ratio = np.subtract(law, other, out=np.zeros_like(law), where=law != other)
        token = pair.own.tokens[rows[slot]][step]
        if law[token] == -np.inf:
            raise other_logits()
        result[:, rows[slot], step] = ratio.max(), ratio.min(), ratio[token]
    return pair.neighbor, result


@dataclass(frozen=True, slots=True)
class _Neighbor:
    """What is compared of one neighbour.

    Attributes:
        number: its index.
        counts: what is found of its counts and of its slots.
        changed: slots whose contexts differ.
        groups: the slots that are replayed.
        ratios: of each group, by `_ratios`.
    """

    number: int
    counts: list[Finding]
    changed: list[int]
    groups: list[list[int]]
    ratios: list[Floats] = field(default_factory=list)


class _Audit:
    """Compares one run with its neighbours."""

    def __init__(
        self,
        mechanism: PrivateInference,
        model: LanguageModel,
        generation: Generation,
        key: bytes,
        accounting: Accounting,
        executor: Executor,
    ) -> None:
        self._executor = executor
        self._mechanism, self._model, self._generation, self._key = mechanism, model, generation, key
        self._published = accounting == "published"
        self._error = scoring_error(mechanism, model, generation)  # of the log-ratio of two probabilities
        self._forward = 0.0 if generation.row_plan.exact else self._error  # exact rows: equal contexts, equal bits

    def laws(self, records: Sequence[Record]) -> StepLaws:
        given = (self._model, self._generation.transcript)
        return StepLaws(self._mechanism, records, *given, key=self._key, executor=self._executor)

    def begin(self, own: StepLaws, theirs: StepLaws, number: int) -> _Neighbor:
        """Compares the counts of a neighbour, and chooses the slots that are replayed."""
        counts = list(self._counts(own, theirs, number))
        running = [slot for slot, runs in enumerate(self._generation.transcript.running) if runs]
        differ = [slot for slot in running if own.texts(slot) != theirs.texts(slot)]
        changed = [slot for slot in differ if own.contexts(slot) != theirs.contexts(slot)]
        most = 2 if self._mechanism.adjacency is Adjacency.REPLACE_ONE else 1
        if len(changed) > most and (self._published or self._mechanism.variant == "sound"):
            counts.append(Finding("parts", None, number, float(most), float(len(changed))))
        return _Neighbor(number, counts, changed, [g for g in own.groups(running) if set(g) & set(changed)])

    def findings(self, neighbor: _Neighbor) -> Iterator[Finding]:
        """What does not hold of a neighbour that was replayed."""
        yield from neighbor.counts
        number, spreads, moved = neighbor.number, dict[int, Floats](), 0
        for group, (largest, smallest, released) in zip(neighbor.groups, neighbor.ratios, strict=True):
            rows = {slot: row for row, slot in enumerate(group)}
            own = [slot for slot in group if slot in neighbor.changed]
            for step, slot in itertools.product(range(self._mechanism.tokens), own):
                yield from self._cost(float(released[rows[slot], step]), slot, step, number)
            spreads |= {slot: (largest - smallest)[rows[slot]] for slot in own}
            most = np.maximum(largest, -smallest).max(axis=1)
            moved += sum(slot not in own and most[rows[slot]] > self._forward for slot in group)
        if moved:
            yield Finding("rows", None, number, 0.0, float(moved))
        if spreads:
            yield from self._ranges(np.stack([spreads[slot] for slot in neighbor.changed]), number)

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
