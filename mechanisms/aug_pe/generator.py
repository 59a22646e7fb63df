"""Aug-PE: synthetic text by private evolution, in which every private record votes for its nearest candidate.

A language model generates candidates. In each round every record votes for the candidate of its label with the nearest
embedding, the votes get Gaussian noise, the candidates with the most noisy votes are kept, and the next candidates are
these and variations of them (`mechanisms.evolution`). The noisy votes are the only use of the records.

A round is one release: the votes of all candidates of all labels, as one vector. Adding or removing a record changes it
by 1 in one coordinate; replacing a record by 1 in each of two, so by √2 (or not at all). Given the votes of earlier
rounds the candidates are a function of the releases, so T rounds compose adaptively, and exactly as one Gaussian with
μ = √T/σ under add_remove, √(2T)/σ under replace_one.

The paper claims μ = √T/σ whatever the adjacency. Its public code also uses the private labels without accounting for
them: the set of labels and the number of texts of each, round(N · n_label / n), are computed from the labels without
noise. That is not differentially private, and the plan of the published variant with labels says so. (The code also
writes the votes without noise to a file next to its output; here they are kept in memory only.)

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (Xie et al. 2024), Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Charge
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.progress import Step, joint_steps, of_part
from dpassay.data.records import Record, RecordsAt, Texts
from dpassay.mechanisms.aug_pe.selection import selected
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors
from dpassay.mechanisms.embedding.load import load_embedder
from dpassay.mechanisms.evolution import run as evolution_run
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import EvolutionSettings, Select, SyntheticText, evolve
from dpassay.mechanisms.evolution.run import ByLabel
from dpassay.mechanisms.evolution.voters import Voters
from dpassay.mechanisms.evolution.voting import votes_event
from dpassay.mechanisms.models.writers import Writer
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.public_fields import check_adjacency
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

VOTES, LABEL_COUNTS = "votes", "label-counts"
"""Stages of a run in its ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AugPE:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        noise_multiplier: σ, the standard deviation of the noise of each vote count. Under add_remove it is the
            noise multiplier that ``dpassay calibrate`` returns for T Gaussians; under replace_one, 1/√2 times that. 0
            is the unprotected control.
        rounds: T, the number of rounds in which candidates are voted for.
        synthetic: N, the number of texts kept for each label. (As published: on average over the labels.)
        variations: L, the number of variations of each kept text.
        records: the public number n of records.
        threshold: noisy counts below it are treated as 0.
        selection: ``rank`` keeps the largest noisy counts; ``probability`` draws without replacement, with probability
            proportional to the excess over the threshold, with the public seed.
        lookahead: number of variations whose mean embedding represents a candidate in the vote; 0 for the candidate's
            own embedding.
        labels: the public set of labels, each with its own candidates; empty pools all records.
        embedder: ``builtin``, or the folder or hub id of a `sentence-transformers` model on this machine.
        seed: of public choices only; noise has no seed.
        variant: ``sound`` or ``as_published``.
        adjacency: add_remove or replace_one.
        unit: record.
    """

    noise_multiplier: float
    rounds: int
    synthetic: int
    variations: int
    records: int
    threshold: float = 0.0
    selection: Literal["rank", "probability"] = "rank"
    lookahead: int = 0
    labels: tuple[str, ...] = ()
    embedder: str = field(default="builtin", repr=False)  # a run is identified by its fingerprint, not its location
    seed: int = 0
    variant: Literal["sound", "as_published"] = "sound"
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        validate.non_negative(noise_multiplier=self.noise_multiplier)
        evolution_run.check_settings(self.labels, self.embedder)
        validate.integer(minimum=1, records=self.records)
        validate.non_negative(threshold=self.threshold)
        validate.one_of(("rank", "probability"), selection=self.selection)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        check_adjacency(self.adjacency)
        _ = self.settings  # checks the total number of texts
        if self.unit != Unit():
            raise ValueError(f"unit must be record for Aug-PE, not {str(self.unit)!r}: each record casts a vote")

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        return self.variant == "sound" and self.noise_multiplier > 0

    @property
    def settings(self) -> EvolutionSettings:
        """The parameters of the evolution."""
        return EvolutionSettings.of(self)

    @property
    def counts_labels(self) -> bool:
        """Whether the exact number of records of each label determines its number of texts."""
        return self.variant == "as_published" and bool(self.labels)

    def votes_event(self) -> DpEvent:
        """The event of one round.

        The sampled noise differs from rounded Gaussian noise by less than 10⁻⁶⁰⁰ in total variation
        (`Source.add_gaussian`), less than any float64 δ.
        """
        return votes_event(self.noise_multiplier, self.adjacency)

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        if not self.counts_labels:
            return events.compose([(self.votes_event(), self.rounds)])
        votes = self.rounds * len(self.labels)  # label by label
        return events.compose([(dp_event.NonPrivateDpEvent(), 1), (self.votes_event(), votes)])

    def published_plan(self) -> DpEvent:
        """The event by the paper's accounting: T Gaussians of sensitivity 1, whatever the adjacency."""
        if self.noise_multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        doubled = 2 if self.adjacency is Adjacency.REPLACE_ONE else 1  # cancels the accountants' doubling
        return events.compose([(dp_event.GaussianDpEvent(doubled * self.noise_multiplier), self.rounds)])

    def load_embedder(self) -> Embedder:
        """The public embedder; the builtin one is not fitted, because there is no public text."""
        return load_embedder(self.embedder)

    def check(self, records: Sequence[Record], writer: Writer) -> None:
        """Checks that these records can be run, before anything is charged or written.

        Raises:
            ValueError: one line, which reveals nothing about any record.
        """
        evolution_run.by_label(records, self.labels)
        load_embedder(self.embedder)  # fails early if it is not on this machine

    def generate(
        self,
        records: Sequence[Record],
        writer: Writer,
        run: Run,
        *,
        journal: Path | str,
        progress: Callable[[int, int], None] | None = None,
        source: Source = OS_ENTROPY,
        executor: Executor = THIS_PROCESS,
    ) -> AugPEResult:
        """Generates the synthetic texts, or resumes an interrupted run.

        Args:
            records: private.
            writer: of candidates; it sees no record.
            run: of a ledger, begun with `plan()`. Every round is charged before its noise is drawn, and only committed
                values are used; the caller finishes the run.
            journal: the file of the candidates, in an existing private folder.
            progress: called with the number of texts generated and records embedded, and the largest possible number.
            source: of the noise. If it is recorded, the run must say so: ``run.about["noise"] == "recorded"``.
            executor: where records and candidates are embedded, votes counted, and texts written by a local model. The
                result does not depend on it.

        Raises:
            ValueError: if records, writer or parameters are invalid, or differ from those of the interrupted run.
        """
        charged.check_run(run, self.plan(), source)
        self.check(records, writer)
        embedder = self.load_embedder()
        public = (self, writer.fingerprint, embedder.fingerprint)
        evolution_run.note_inputs(run, records, public)
        with Journal(journal, self.settings.about(writer, embedder)) as candidates:
            rounds = _Rounds(self, records, embedder, run, source, executor)
            evolutions = list(rounds.evolutions())
            total, before = sum(settings.texts for settings in evolutions), 0
            written, embedded = joint_steps(progress, total, len(records))
            rounds.embedded = embedded
            texts: list[SyntheticText] = []
            for settings in evolutions:
                seen = of_part(written, before, total) if len(evolutions) > 1 else written
                texts += evolve(settings, writer, embedder, rounds.selection(settings), candidates, seen, executor)
                before += settings.texts
            if not rounds.voters.embedded:  # all votes were counted in an earlier call
                embedded(0, 0)
            rounds.voters.close()
        return AugPEResult(tuple(texts), tuple(rounds.votes))


@dataclass(frozen=True, slots=True, eq=False)
class AugPEResult:
    """A finished run. If the mechanism is releasable, all of it may be released.

    Attributes:
        texts: the last selection, label by label.
        votes: for each round and label, the released noisy votes of its candidates, shape (candidates,).
    """

    texts: tuple[SyntheticText, ...]
    votes: tuple[ByLabel, ...]


class _Rounds:
    """The rounds of one call of `AugPE.generate`; records are embedded before the first votes that are counted."""

    def __init__(
        self,
        mechanism: AugPE,
        records: Sequence[Record],
        embedder: Embedder,
        run: Run,
        source: Source,
        executor: Executor,
    ) -> None:
        self.mechanism, self.run, self.source = mechanism, run, source
        self.members = evolution_run.by_label(records, mechanism.labels)
        texts = {label: Texts(RecordsAt(records, members)) for label, members in self.members.items()}
        self.voters = Voters(embedder, texts, executor)
        self.embedded: Step | None = None
        self.votes: list[ByLabel] = []

    def evolutions(self) -> Iterator[EvolutionSettings]:
        """One evolution for all labels; as published, one for each label, of a size proportional to the label."""
        settings, counted = self.mechanism.settings, self.mechanism.counts_labels
        if not counted:
            yield settings
            return
        charge = Charge(key=LABEL_COUNTS, stage=LABEL_COUNTS, event=dp_event.NonPrivateDpEvent())
        counts = charged.released_value(self.run, charge, lambda: [len(members) for members in self.members.values()])
        total, n = settings.synthetic * len(counts), sum(counts)
        for label, count in zip(self.mechanism.labels, counts, strict=True):
            if texts := round(total * count / n):
                yield dataclasses.replace(settings, labels=(label,), synthetic=texts)
            else:
                self._charge_idle(settings.rounds)

    def selection(self, settings: EvolutionSettings) -> Select:
        """The selection by noisy votes for one evolution."""

        def select(number: int, candidates: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
            votes = self._noisy_votes(len(self.votes), candidates)
            self.votes.append(votes)
            return {
                label: selected(
                    count,
                    settings.synthetic,
                    threshold=self.mechanism.threshold,
                    seed=(self.mechanism.seed, number, label) if self.mechanism.selection == "probability" else None,
                )
                for label, count in votes.items()
            }

        return select

    def _charge_idle(self, rounds: int) -> None:
        """Charges the rounds of a label without texts, so that the run charges its plan."""
        for step in range(len(self.votes), len(self.votes) + rounds):
            charge = Charge(key=f"{VOTES}/{step}", stage=VOTES, event=self.mechanism.votes_event())
            charged.released_value(self.run, charge, lambda: None)
        self.votes += [{}] * rounds

    def _noisy_votes(self, step: int, candidates: Mapping[str | None, Vectors]) -> ByLabel:
        """The committed votes of a step, or new votes, which are charged before they are drawn."""
        charge = Charge(key=f"{VOTES}/{step}", stage=VOTES, event=self.mechanism.votes_event())
        if self.run.outcome(charge.key) is None:
            self.voters.embed(self.embedded)  # before the charge, so that an embedder that fails costs nothing
        return evolution_run.released_votes(
            self.run, charge, candidates, lambda label: self._drawn(label, candidates[label])
        )

    def _drawn(self, label: str | None, candidates: Vectors) -> str:
        exact = self.voters.votes(label, candidates).astype(np.float64)
        sigma = self.mechanism.noise_multiplier
        return evolution_run.packed(self.source.add_gaussian(exact, sigma) if sigma else exact)
