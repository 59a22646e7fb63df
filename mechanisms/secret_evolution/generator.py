"""Secret-protected evolution: text evolution whose selection depends on private records only through noisy clusters.

Records without a secret are public. Their clusters are computed before any private record is read. In each release,
private records are sampled or weighted, each shifts its nearest cluster, and the noisy centres and sizes are released
(`secret_evolution.clustering`). They vote for candidates that a language model generated, and the candidates with the
most votes are varied (`mechanisms.evolution`). Private records have no other use. The value of each secret is
protected, wherever it occurs; the places where it occurs, and hence the split into public and private records, are
public.

All clusters of all labels are one release, since a secret may occur in records of several labels. A release does not
depend on the candidates, so one release can serve all rounds (``releases="once"``), at the cost of one. With
``every_round``, as published, T fresh releases are charged.

The published Algorithm 2 assigns records to running sums, and one σ serves counts and centres. It is accounted twice:
as in the paper, and as it runs, where one occurrence may change the assignment of all other sampled records and so
reveals the secret.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithms 1 to 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.ledger.entries import Charge
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.data.records import Record, RecordsAt, Texts
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors
from dpassay.mechanisms.embedding.load import fitted_embedder, load_embedder
from dpassay.mechanisms.embedding.stored_vectors import ManyVectors, embedded_records
from dpassay.mechanisms.evolution import run as evolution_run
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import EvolutionSettings, SyntheticText, evolve
from dpassay.mechanisms.models.writers import Writer
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.secret_evolution import clustering, voting
from dpassay.mechanisms.secret_evolution.clustering import Inclusion, NoisyClusters, PublicClusters
from dpassay.mechanisms.secret_evolution.detection import SecretSource, find_secrets
from dpassay.mechanisms.secret_evolution.incidence import DetectedSecrets, Incidence, texts_digest
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise

CLUSTERS, RELEASE = "clusters", "release"
"""Stages of a run in its ledger: the digest of the public clusters, and the noisy ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretEvolution:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        secrets: the sources of secrets, at least one.
        p: the largest prior probability of guessing a secret, in (0, 1), for sources without their own.
        r: the largest probability after the whole run, in (p, 1], likewise. 1 protects nothing.
        rounds: T, the number of rounds in which candidates are selected.
        synthetic: N, the number of texts kept for each label.
        variations: L, the number of variations of each kept text.
        lookahead: number of variations whose mean embedding represents a candidate; 0 for the candidate's own
            embedding.
        clusters: K, the number of public clusters of each label.
        radius: R, the length to which embeddings are clipped; 1 leaves embeddings as they are.
        inclusion: ``coins`` draws private records for each release, each with its own probability; with ``weights``
            each counts with its own weight in every release.
        expected_sample: the mean number of private records in a release, or the sum of their weights; None includes
            records in proportion to the weights of the linear program, those with the largest one with certainty.
        releases: ``every_round`` charges T releases, ``once`` charges one that serves all rounds.
        labels: the public set of labels, each with its own clusters and candidates; empty pools all records.
        embedder: ``builtin`` (fitted on the public records), or the folder or hub id of a `sentence-transformers`
            model on this machine.
        seed: of public choices only: clusters, the builtin embedder and texts.
        variant: ``sound`` or ``as_published``.
    """

    secrets: tuple[SecretSource, ...] = field(repr=False)  # a run is identified by what they found
    p: float
    r: float
    rounds: int
    synthetic: int
    variations: int
    clusters: int
    radius: float = 1.0
    inclusion: Inclusion = field(default="coins", repr=False)  # not in the inputs of runs of earlier versions
    expected_sample: float | None = None
    releases: Literal["every_round", "once"] = "every_round"
    lookahead: int = 0
    labels: tuple[str, ...] = ()
    embedder: str = field(default="builtin", repr=False)  # a run is identified by its fingerprint, not its location
    seed: int = 0
    variant: Literal["sound", "as_published"] = "sound"

    def __post_init__(self) -> None:
        if not isinstance(self.secrets, tuple) or not self.secrets:
            raise ValueError("secrets must be a tuple of at least one source, such as a list or a pattern")
        for source in self.secrets:
            if not isinstance(source, SecretSource):
                raise ValueError(f"secrets must be sources of secrets, not {type(source).__name__}")
        for p, r in self._budgets():
            validate.open_probability(p=p)
            validate.probability(r=r)
            if p >= r:
                raise ValueError(f"r must be above p, since no noise achieves r ≤ p, not p={p!r} and r={r!r}")
        evolution_run.check_settings(self.labels, self.embedder)
        validate.integer(minimum=1, clusters=self.clusters)
        validate.positive(radius=self.radius)
        validate.one_of(("coins", "weights"), inclusion=self.inclusion)
        validate.one_of(("every_round", "once"), releases=self.releases)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        if self.expected_sample is not None:
            validate.positive(expected_sample=self.expected_sample)
        _ = self.settings  # checks the total number of texts
        if self.variant == "as_published" and (
            self.expected_sample is not None or self.releases == "once" or self.inclusion == "weights"
        ):
            raise ValueError(
                "expected_sample, releases and inclusion are parameters of the sound variant: as published every round "
                "has its own release, with about one record that is drawn; leave them out"
            )

    def _budgets(self) -> list[tuple[float, float]]:
        """p and r of the run, and of each source."""
        own = [(self.p if x.p is None else x.p, self.r if x.r is None else x.r) for x in self.secrets]
        return [(self.p, self.r), *own]

    @property
    def adjacency(self) -> Adjacency:
        """Neighbours differ in the value of one secret, wherever it occurs."""
        return Adjacency.SECRET

    @property
    def unit(self) -> Unit:
        """One secret."""
        return Unit("secret")

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        return self.variant == "sound" and all(r < 1 for _, r in self._budgets())

    @property
    def paid_releases(self) -> int:
        """The number of releases that a run charges."""
        return 1 if self.releases == "once" else self.rounds

    @property
    def settings(self) -> EvolutionSettings:
        """The parameters of the evolution."""
        return EvolutionSettings.of(self)

    def incidence(self, records: Sequence[Record]) -> Incidence:
        """Which secrets occur in which records: public places, without the text of any secret."""
        return find_secrets(Texts(records), self.secrets, SecretProtection(self.p, self.r))

    def noise(self, incidence: Incidence) -> SecretNoise:
        """The noise of a release, and the probability or weight of each record; public, like the places.

        Raises:
            ValueError: if no certified noise is enough.
        """
        indices = _Places(incidence.fingerprint, incidence)
        return _noise(self.variant, self.paid_releases, self.expected_sample, self.inclusion, indices)

    def plan(self, incidence: Incidence) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; a function of public places."""
        return events.compose([(self.noise(incidence).event(), self.paid_releases)])

    def published_plan(self, incidence: Incidence) -> DpEvent:
        """The event by the paper's accounting: counts and centres as one release of occurrences of length 1."""
        return events.compose([(self.noise(incidence).published_event(), self.paid_releases)])

    def load_embedder(self, records: Sequence[Record], incidence: Incidence) -> Embedder:
        """The public embedder; the builtin one is fitted on the public records."""
        public = Texts(RecordsAt(records, np.flatnonzero(~incidence.private)))
        return fitted_embedder(self.embedder, public, self.seed)

    def check(self, records: Sequence[Record], writer: Writer, incidence: Incidence | None = None) -> Incidence:
        """Checks that these records can be run, before anything is charged or written; returns their places of secrets.

        Args:
            records: private if they hold a secret.
            writer: of candidates.
            incidence: of these records, if already computed; finding secrets may take long.

        Raises:
            ValueError: one line, which reveals no secret and nothing about any private record.
        """
        members = evolution_run.by_label(records, self.labels)
        positions = self.incidence(records) if incidence is None else incidence
        if positions.records != len(records):
            raise ValueError(f"incidence is that of {positions.records} records, but there are {len(records)}")
        if positions.texts not in (None, texts_digest(Texts(records))):
            raise ValueError("incidence is that of other records, or of these in another order")
        if self.releasable and any(budget.r == 1 for budget in positions.budgets):
            raise ValueError("a list gives a secret r = 1, which protects nothing; lower r or remove the secret")
        if not positions.private.any():
            raise ValueError(
                "no secret was found in any record, so there is nothing to protect; check the sources in secrets"
            )
        if positions.private.all():
            raise ValueError("every record holds a secret, but clusters need public records; add records without one")
        for label, indices in members.items():
            distinct = _distinct(Texts(RecordsAt(records, indices[~positions.private[indices]])), self.clusters)
            if distinct < self.clusters:
                of_label = "" if label is None else f" of label {label!r}"
                raise ValueError(
                    f"clusters must be at most the number of distinct public texts{of_label}, {distinct}, not "
                    f"{self.clusters}; lower it or add records without a secret"
                )
            private, most = int(positions.private[indices].sum()), clustering.MAX_RECORDS
            if private > most:
                raise ValueError(f"at most {most} records that share clusters may hold a secret, not {private}")
        self.noise(positions)
        load_embedder(self.embedder)  # fails early if it is not on this machine
        return positions

    def generate(
        self,
        records: Sequence[Record],
        writer: Writer,
        run: Run,
        *,
        journal: Path | str,
        incidence: Incidence | None = None,
        progress: Callable[[int, int], None] | None = None,
        source: Source = OS_ENTROPY,
        executor: Executor = THIS_PROCESS,
    ) -> EvolutionResult:
        """Generates the synthetic texts, or resumes an interrupted run.

        Args:
            records: private if they hold a secret.
            run: of a ledger, begun with `plan(incidence)`.
            incidence: of these records, if already computed.
            writer, journal, progress, source: as for `AugPE.generate`.
            executor: where records and candidates are embedded, and texts written by a local model. The result does not
                depend on it.

        Raises:
            ValueError: if records, writer or parameters are invalid, or differ from those of the interrupted run.
        """
        indices = self.check(records, writer, incidence)
        charged.check_run(run, self.plan(indices), source)
        embedder = self.load_embedder(records, indices)
        newer = () if self.inclusion == "coins" else (self.inclusion,)
        public = (self, indices.fingerprint, writer.fingerprint, embedder.fingerprint, *newer)
        evolution_run.note_inputs(run, records, public)
        with Journal(journal, self.settings.about(writer, embedder)) as candidates:
            releases = _Releases(self, records, indices, embedder, run, source, executor)
            texts = evolve(self.settings, writer, embedder, releases.select, candidates, progress, executor)
        return EvolutionResult(texts, tuple(releases.released), indices.detected, self.noise(indices))


@dataclass(frozen=True, slots=True, eq=False)
class EvolutionResult:
    """A finished run. If the mechanism is releasable, all of it may be released: places of secrets are public.

    Attributes:
        texts: the last selection, label by label.
        releases: the noisy clusters of each label, release by release.
        detected: how many secrets each source found, and in how many records.
        noise: of each release, and the probabilities or weights of the records.
    """

    texts: tuple[SyntheticText, ...]
    releases: tuple[Mapping[str | None, NoisyClusters], ...]
    detected: tuple[DetectedSecrets, ...]
    noise: SecretNoise


class _Releases:
    """The releases of one call of `SecretEvolution.generate`; records are embedded for the first one."""

    def __init__(
        self,
        mechanism: SecretEvolution,
        records: Sequence[Record],
        indices: Incidence,
        embedder: Embedder,
        run: Run,
        source: Source,
        executor: Executor,
    ) -> None:
        self.mechanism, self.records, self.indices, self.embedder = mechanism, records, indices, embedder
        self.run, self.source, self.executor = run, source, executor
        self.noise = mechanism.noise(indices)
        self.released: list[Mapping[str | None, NoisyClusters]] = []
        self._parts: list[_Part] = []

    def select(self, number: int, candidates: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
        """The candidates that the noisy clusters select, for each label."""
        if number < self.mechanism.paid_releases:
            self.released.append(self._release(number))
        kept = {}
        for part, (label, noisy) in zip(self._parts, self.released[-1].items(), strict=True):
            if self.mechanism.variant == "sound":
                noisy = clustering.shrink_to_public(noisy, part.clusters, self.noise.sigma)
            kept[label] = voting.kept_by_centres(noisy, candidates[label], self.mechanism.synthetic).tolist()
        return kept

    def _release(self, number: int) -> Mapping[str | None, NoisyClusters]:
        """The committed release of this number, or a new one, charged before it is drawn; joint for all labels."""
        key = f"{RELEASE}/{number}"
        self._prepare()
        charge = Charge(key=key, stage=RELEASE, event=self.noise.event())
        value = charged.released_value(self.run, charge, self._drawn)
        return dict(zip(self.mechanism.settings.groups, map(_read, value), strict=True))

    def _drawn(self) -> list[dict[str, str]]:
        mechanism = self.mechanism
        drawn = []
        for part in self._parts:
            arguments = (part.clusters, part.vectors, part.probabilities, self.noise.sigma, self.source)
            if mechanism.variant == "sound":
                noisy = clustering.release(*arguments, inclusion=mechanism.inclusion, assigned=part.assigned)
            else:
                noisy = clustering.release_as_published(*arguments)
            drawn.append(_written(noisy))
        return drawn

    def _prepare(self) -> None:
        """Computes the public clusters and private vectors of each label.

        Raises:
            RunMismatchError: if the clusters differ from those of the interrupted run.
        """
        if self._parts:
            return
        members = evolution_run.by_label(self.records, self.mechanism.labels)
        self._parts = [self._part(label, indices) for label, indices in members.items()]
        fingerprints = [part.clusters.fingerprint for part in self._parts]
        mismatch = RunMismatchError(
            "the public clusters differ from those of the interrupted run, although the records are the same: "
            f"{charged.OTHER_VECTORS}"
        )
        charged.note(self.run, CLUSTERS, fingerprints, mismatch)

    def _part(self, label: str | None, indices: Integers) -> _Part:
        """The clusters and the private records of one label."""
        mechanism, hidden = self.mechanism, self.indices.private[indices]
        public, private = (
            embedded_records(self.embedder, Texts(RecordsAt(self.records, some)), len(some), self.executor)
            for some in (indices[~hidden], indices[hidden])
        )
        try:
            clusters = PublicClusters.fit(public, mechanism.clusters, radius=mechanism.radius, seed=mechanism.seed)
        except ValueError as error:
            raise ValueError(f"{error}; lower clusters{'' if label is None else f' (label {label!r})'}") from None
        chances = self.noise.probabilities[indices[hidden]]
        return _Part(clusters, private, clusters.assign(private), chances)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The records of one label. Everything except the clusters and the probabilities is private."""

    clusters: PublicClusters
    vectors: ManyVectors
    assigned: Integers
    probabilities: Floats


@dataclass(frozen=True, slots=True)
class _Places:
    """An incidence as a cache key: equal if the fingerprints are equal."""

    fingerprint: str
    incidence: Incidence = field(compare=False)


@functools.lru_cache(maxsize=2)
def _noise(
    variant: str, releases: int, expected_sample: float | None, inclusion: Inclusion, indices: _Places
) -> SecretNoise:
    """The noise of a run, cached because the plan, the check and the run each need it."""
    if variant == "as_published":
        return SecretNoise.as_published(indices.incidence, rounds=releases)
    return SecretNoise.fit(indices.incidence, rounds=releases, expected_sample=expected_sample, inclusion=inclusion)


def _distinct(texts: Iterable[str], enough: int) -> int:
    """The number of distinct texts, at most `enough`; reads no more than it needs."""
    kept: set[str] = set()
    for text in texts:
        kept.add(text)
        if len(kept) == enough:
            break
    return len(kept)


def _written(noisy: NoisyClusters) -> dict[str, str]:
    return {"centres": evolution_run.packed(noisy.centres), "sizes": evolution_run.packed(noisy.sizes)}


def _read(value: Mapping[str, str]) -> NoisyClusters:
    sizes = evolution_run.unpacked(value["sizes"])
    return NoisyClusters(evolution_run.unpacked(value["centres"]).reshape(len(sizes), -1), sizes)
