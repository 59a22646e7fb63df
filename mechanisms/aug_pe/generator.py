"""Aug-PE: synthetic text by private evolution, in which every private record votes for its nearest candidate.

A language model writes candidates. Each round every record votes for the candidate of its label whose embedding is
nearest, the votes get Gaussian noise, the candidates with the most noisy votes survive, and the next candidates are the
survivors and variations of them (`evolution`). Nothing but the noisy votes is read off the records.

A round is one release: the votes of all candidates of all labels, one vector. One record more or less moves it by 1 in
one coordinate; an exchanged record by 1 in each of two, so by √2 (or not at all). Given the votes of earlier rounds the
candidates are a function of what was released, so T rounds compose adaptively, and exactly as one Gaussian of μ = √T/σ
under add_remove, √(2T)/σ under replace_one.

As published, μ = √T/σ is claimed whatever the adjacency. And what the public code does with labels is not accounted:
the labels and the number of texts of each are read off the private labels, round(N · n_label / n), without noise. As it
is, that is no differential privacy at all, and the plan of the published variant with labels says so. (The code also
writes the votes without noise to a file beside its output; a run here keeps them in memory only.)

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (Xie et al. 2024), Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import NDArray

from cupel.accounting import events, validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.ledger.entries import Charge
from cupel.accounting.ledger.run import Run
from cupel.mechanisms.data.records import Record
from cupel.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from cupel.mechanisms.embedding.load import load_embedder
from cupel.mechanisms.evolution import run as evolution_run
from cupel.mechanisms.evolution.journal import Journal
from cupel.mechanisms.evolution.loop import EvolutionSettings, Select, SyntheticText, evolve
from cupel.mechanisms.evolution.run import ByLabel
from cupel.mechanisms.evolution.voting import record_votes
from cupel.mechanisms.models.writers import Writer
from cupel.mechanisms.primitives import charged
from cupel.mechanisms.primitives.charged import OtherRunError
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Source

VOTES, LABEL_COUNTS = "votes", "label-counts"
"""Stages of a run in its ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AugPE:
    """The public description of a run: parameters only, nothing that was read off the data.

    Attributes:
        noise_multiplier: σ, the standard deviation of the noise of each vote count. Under add_remove it is the
            noise multiplier that ``cupel calibrate`` finds for T Gaussians; under replace_one, 1/√2 of it. 0 is the
            unprotected control.
        rounds: T.
        synthetic: N, how many texts are kept for each label. (As published: on average over the labels.)
        variations: L, how many variations each kept text gets.
        records: the public number n of records.
        threshold: noisy counts below it count as none.
        selection: ``rank`` keeps the largest noisy counts, ``probability`` draws without replacement in proportion to
            what they are above the threshold, with the public seed.
        lookahead: how many variations of a candidate stand for it in the vote; 0 for the candidate itself.
        labels: the public set of labels, each with candidates of its own; empty puts all records together.
        embedder: ``builtin``, or the folder or hub id of a `sentence-transformers` model on this machine.
        seed: of public choices only.
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
    embedder: str = field(default="builtin", repr=False)  # runs are told apart by its fingerprint, not its place
    seed: int = 0
    variant: Literal["sound", "as_published"] = "sound"
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        validate.non_negative(noise_multiplier=self.noise_multiplier)
        evolution_run.check_settings(self, ("rounds", "synthetic", "variations", "records"))
        validate.non_negative(threshold=self.threshold)
        validate.one_of(("rank", "probability"), selection=self.selection)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        if self.adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
            raise ValueError(f"adjacency must be add_remove or replace_one, not {str(self.adjacency)!r}")
        _ = self.settings  # which checks how many texts there will be
        if self.unit != Unit():
            raise ValueError(f"unit must be record for Aug-PE, not {str(self.unit)!r}: every record votes")

    @property
    def releasable(self) -> bool:
        """Whether what a run writes is protected at all, and accounted for as it is."""
        return self.variant == "sound" and self.noise_multiplier > 0

    @property
    def settings(self) -> EvolutionSettings:
        """The numbers of the evolution."""
        return EvolutionSettings.of(self)

    @property
    def counts_labels(self) -> bool:
        """Whether the exact number of records of each label decides how many texts it gets."""
        return self.variant == "as_published" and bool(self.labels)

    def votes_event(self) -> DpEvent:
        """What one round costs.

        Accountants take a unit's contribution to have length 1 and double it under replace_one. Exchanged votes are √2
        apart, not 2, so the noise multiplier is √2·σ then, rounded down. What is drawn differs from rounded Gaussian
        noise by less than 10⁻⁶⁰⁰ in total variation (`Source.add_gaussian`), less than any δ that float64 holds.
        """
        if self.noise_multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        if self.adjacency is Adjacency.ADD_REMOVE:
            return dp_event.GaussianDpEvent(self.noise_multiplier)
        return dp_event.GaussianDpEvent(_root_two_times(self.noise_multiplier))

    def plan(self) -> DpEvent:
        """The event that a run charges in all, in the ledger's canonical form; known before any data is read."""
        if not self.counts_labels:
            return events.compose([(self.votes_event(), self.rounds)])
        votes = self.rounds * len(self.labels)  # label by label
        return events.compose([(dp_event.NonPrivateDpEvent(), 1), (self.votes_event(), votes)])

    def published_plan(self) -> DpEvent:
        """The event as the paper accounts it: T Gaussians of sensitivity 1, whatever the adjacency."""
        if self.noise_multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        doubled = 2 if self.adjacency is Adjacency.REPLACE_ONE else 1  # which the accountants take back
        return events.compose([(dp_event.GaussianDpEvent(doubled * self.noise_multiplier), self.rounds)])

    def load_embedder(self) -> Embedder:
        """The public embedder; the builtin one is not fitted, because there is no public text."""
        return load_embedder(self.embedder)

    def check(self, records: Sequence[Record], writer: Writer) -> None:
        """That these records can be run, before anything is charged or written.

        Raises:
            ValueError: one line that tells nothing of any record.
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
    ) -> AugPEResult:
        """Writes the synthetic texts, or goes on where an earlier call was interrupted.

        Args:
            records: private.
            writer: of candidates; it sees no record.
            run: of a ledger, begun with `plan()`. Every round is charged there before it is drawn, and only what is
                committed there is used; the caller finishes it.
            journal: the file of the candidates, in an existing folder that is private.
            progress: called with the texts written and the most there will be.
            source: of the noise; a run with a recorded one must say so: ``run.about["noise"] == "recorded"``.

        Raises:
            ValueError: for records, a writer or parameters that do not fit, or are not those of the interrupted run.
        """
        charged.check_run(run, self.plan(), source)
        self.check(records, writer)
        embedder = self.load_embedder()
        public = (self, writer.fingerprint, embedder.fingerprint)
        evolution_run.note_inputs(run, evolution_run.inputs_digest(records, public))
        with Journal(journal, self.settings.about(writer, embedder)) as candidates:
            rounds = _Rounds(self, records, embedder, run, source)
            evolutions = list(rounds.evolutions())
            total, before = sum(settings.texts for settings in evolutions), 0
            texts: list[SyntheticText] = []
            for settings in evolutions:
                seen = _from(before, total, progress) if len(evolutions) > 1 else progress
                texts += evolve(settings, writer, embedder, rounds.selection(settings), candidates, seen)
                before += settings.texts
        return AugPEResult(tuple(texts), tuple(rounds.votes))


@dataclass(frozen=True, slots=True, eq=False)
class AugPEResult:
    """A finished run. Of a releasable mechanism, all of it may leave.

    Attributes:
        texts: the last selection, label by label.
        votes: of each round, for each label, the noisy votes of its candidates that were paid for, shape (candidates,).
    """

    texts: tuple[SyntheticText, ...]
    votes: tuple[ByLabel, ...]


class _Rounds:
    """The votes of one call of `AugPE.generate`; records are embedded when the first votes are counted."""

    def __init__(
        self, mechanism: AugPE, records: Sequence[Record], embedder: Embedder, run: Run, source: Source
    ) -> None:
        self.mechanism, self.records, self.embedder, self.run, self.source = mechanism, records, embedder, run, source
        self.members = evolution_run.by_label(records, mechanism.labels)
        self.votes: list[ByLabel] = []
        self._vectors: dict[str | None, Vectors] = {}

    def evolutions(self) -> Iterator[EvolutionSettings]:
        """One evolution with all labels side by side; as published, one for each label, as large as the label."""
        settings, counted = self.mechanism.settings, self.mechanism.counts_labels
        if not counted:
            yield settings
            return
        charge = Charge(key=LABEL_COUNTS, stage=LABEL_COUNTS, event=dp_event.NonPrivateDpEvent())
        counts = charged.released(self.run, charge, lambda: [len(members) for members in self.members.values()])
        total, n = settings.synthetic * len(counts), sum(counts)
        for label, count in zip(self.mechanism.labels, counts, strict=True):
            if texts := round(total * count / n):
                yield dataclasses.replace(settings, labels=(label,), synthetic=texts)
            else:
                self._charge_idle(settings.rounds)

    def selection(self, settings: EvolutionSettings) -> Select:
        """What the noisy votes of an evolution's rounds keep."""

        def select(number: int, candidates: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
            votes = self._noisy_votes(len(self.votes), candidates)
            self.votes.append(votes)
            return {label: self._kept(number, label, count, settings.synthetic) for label, count in votes.items()}

        return select

    def _charge_idle(self, rounds: int) -> None:
        """Charges the rounds of a label that gets no text, so that a run charges its plan."""
        for step in range(len(self.votes), len(self.votes) + rounds):
            charge = Charge(key=f"{VOTES}/{step}", stage=VOTES, event=self.mechanism.votes_event())
            charged.released(self.run, charge, lambda: None)
        self.votes += [{}] * rounds

    def _noisy_votes(self, step: int, candidates: Mapping[str | None, Vectors]) -> ByLabel:
        """The committed votes of a step, or votes that are counted now, after their charge."""
        digest, key = evolution_run.vectors_digest(candidates), f"{VOTES}/{step}"
        value = charged.released(
            self.run,
            Charge(key=key, stage=VOTES, event=self.mechanism.votes_event()),
            lambda: {"candidates": digest, "votes": [self._drawn(label, rows) for label, rows in candidates.items()]},
        )
        if value["candidates"] != digest:
            raise OtherRunError(
                "the interrupted run's votes are for other candidates: its journal is gone or was changed, or this "
                "machine or its libraries compute other vectors; go on where the run began, or start a new one in a "
                "new folder"
            )
        votes = map(evolution_run.unpacked, value["votes"])
        return dict(zip(candidates, votes, strict=True))

    def _drawn(self, label: str | None, candidates: Vectors) -> str:
        if label not in self._vectors:
            texts = [self.records[index].text for index in self.members[label]]
            self._vectors[label] = all_embedded(self.embedder, texts)
        exact = record_votes(self._vectors[label], candidates).astype(np.float64)
        sigma = self.mechanism.noise_multiplier
        return evolution_run.packed(self.source.add_gaussian(exact, sigma) if sigma else exact)

    def _kept(self, number: int, label: str | None, votes: NDArray[np.float64], wanted: int) -> list[int]:
        """The best candidates by released votes; below the threshold the earlier ones, survivors first."""
        above = np.maximum(votes - self.mechanism.threshold, 0.0)
        order = np.argsort(-above, kind="stable")
        if self.mechanism.selection == "probability" and (total := above.sum()) > 0:
            digest = hashlib.sha256(
                repr((self.mechanism.seed, number, label)).encode("utf-8", "surrogatepass")
            ).digest()
            size = min(wanted, int((above > 0).sum()))
            drawn = np.random.default_rng(list(digest)).choice(len(votes), size, replace=False, p=above / total)
            order = np.concatenate([drawn, order[~np.isin(order, drawn)]])
        kept: list[int] = order[:wanted].tolist()
        return kept


def _from(before: int, total: int, progress: Callable[[int, int], None] | None) -> Callable[[int, int], None] | None:
    """Progress of one evolution as that of all of them."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def _root_two_times(sigma: float) -> float:
    """√2·σ, rounded down: its square is at most 2σ²."""
    product = math.nextafter(math.sqrt(2.0) * sigma, math.inf)
    while Fraction(product) ** 2 > 2 * Fraction(sigma) ** 2:
        product = math.nextafter(product, 0.0)
    return product
