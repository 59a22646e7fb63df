"""Secret-protected evolution: synthetic text whose selection sees private records through noisy clusters only.

Records without a secret are public. Their clusters are frozen before a private record is read. In each release private
records are drawn at random, each moves its nearest cluster a little, and the noisy centres and sizes leave
(`secret_clustering`). They vote for candidates that a language model wrote, and the candidates with the most votes are
varied (`evolution`); nothing else of a private record is used. What is protected is the value of each secret, wherever
it occurs; the places where it occurs, and with them the split into public and private records, are public.

All clusters of all labels are one release: a secret may occur in records of several labels. A release does not depend
on candidates, so one release can serve all rounds (``releases="once"``), for the cost of one. With ``every_round``, as
published, T fresh releases are paid for.

As published, Algorithm 2 assigns records to running sums, and one σ serves counts and centres. It is accounted twice:
as the paper does, and as it is, where one occurrence may move all other drawn records and so reveals the secret.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithms 1 to 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from cupel.accounting import events, validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.guarantees import SecretProtection
from cupel.accounting.ledger.entries import Charge
from cupel.accounting.ledger.run import Run
from cupel.mechanisms.data.records import Record
from cupel.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from cupel.mechanisms.embedding.load import fitted_embedder, load_embedder
from cupel.mechanisms.evolution import run as evolution_run
from cupel.mechanisms.evolution import voting
from cupel.mechanisms.evolution.journal import Journal
from cupel.mechanisms.evolution.loop import EvolutionSettings, SyntheticText, evolve
from cupel.mechanisms.models.writers import Writer
from cupel.mechanisms.primitives import charged
from cupel.mechanisms.primitives.charged import OtherRunError
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Source
from cupel.mechanisms.secret_evolution import clustering
from cupel.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters
from cupel.mechanisms.secret_evolution.detection import SecretSource, find_secrets
from cupel.mechanisms.secret_evolution.incidence import Found, Incidence, texts_digest
from cupel.mechanisms.secret_evolution.inclusion import SecretNoise

CLUSTERS, RELEASE = "clusters", "release"
"""Stages of a run in its ledger: the digest of the public clusters, and the noisy ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretEvolution:
    """The public description of a run: parameters only, nothing that was read off the data.

    Attributes:
        secrets: where secrets are looked for, at least one source.
        p: the largest probability of guessing a secret before, in (0, 1), for sources that give none.
        r: what it may become after the whole run, in (p, 1], likewise. 1 protects nothing.
        rounds: T.
        synthetic: N, how many texts are kept for each label.
        variations: L, how many variations each kept text gets.
        clusters: K, the public clusters of each label.
        radius: R, the length that embeddings are clipped to; 1 leaves embeddings as they are.
        expected_sample: how many private records a release draws on average; None draws as many as the budgets allow
            in proportion, the likeliest with certainty.
        releases: ``every_round`` pays for T releases, ``once`` for one that serves all rounds.
        lookahead: how many variations of a candidate stand for it in the vote; 0 for the candidate itself.
        labels: the public set of labels, each with clusters and candidates of its own; empty puts all records together.
        embedder: ``builtin`` (fitted on the public records), or the folder or hub id of a `sentence-transformers`
            model on this machine.
        seed: of public choices only: clusters, the builtin embedder and texts.
        variant: ``sound`` or ``as_published``.
    """

    secrets: tuple[SecretSource, ...] = field(repr=False)  # runs are told apart by what was found
    p: float
    r: float
    rounds: int
    synthetic: int
    variations: int
    clusters: int
    radius: float = 1.0
    expected_sample: float | None = None
    releases: Literal["every_round", "once"] = "every_round"
    lookahead: int = 0
    labels: tuple[str, ...] = ()
    embedder: str = field(default="builtin", repr=False)  # runs are told apart by its fingerprint, not its place
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
                raise ValueError(f"r must be above p, or no noise is enough, not p={p!r} and r={r!r}")
        evolution_run.check_settings(self, ("rounds", "synthetic", "variations", "clusters"))
        validate.positive(radius=self.radius)
        validate.one_of(("every_round", "once"), releases=self.releases)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        if self.expected_sample is not None:
            validate.positive(expected_sample=self.expected_sample)
        _ = self.settings  # which checks how many texts there will be
        if self.variant == "as_published" and (self.expected_sample is not None or self.releases == "once"):
            raise ValueError(
                "expected_sample and releases belong to the sound variant: as published every round has a release of "
                "its own, which draws about one record; leave them out"
            )

    def _budgets(self) -> list[tuple[float, float]]:
        """p and r as given, and as each source has them."""
        own = [(self.p if x.p is None else x.p, self.r if x.r is None else x.r) for x in self.secrets]
        return [(self.p, self.r), *own]

    @property
    def adjacency(self) -> Adjacency:
        """The value of one secret changes wherever it occurs."""
        return Adjacency.SECRET

    @property
    def unit(self) -> Unit:
        """One secret."""
        return Unit("secret")

    @property
    def releasable(self) -> bool:
        """Whether what a run writes is protected at all, and accounted for as it is."""
        return self.variant == "sound" and all(r < 1 for _, r in self._budgets())

    @property
    def paid_releases(self) -> int:
        """How many releases a run pays for."""
        return 1 if self.releases == "once" else self.rounds

    @property
    def settings(self) -> EvolutionSettings:
        """The numbers of the evolution."""
        return EvolutionSettings.of(self)

    def incidence(self, records: Sequence[Record]) -> Incidence:
        """Which secrets occur in which records: public places, and no secret's text."""
        return find_secrets([record.text for record in records], self.secrets, SecretProtection(self.p, self.r))

    def noise(self, incidence: Incidence) -> SecretNoise:
        """The noise of a release, and how likely each record is drawn; public, as the places are.

        Raises:
            ValueError: where no noise is certified to be enough.
        """
        places = _Places(incidence.fingerprint, incidence)
        return _noise(self.variant, self.paid_releases, self.expected_sample, places)

    def plan(self, incidence: Incidence) -> DpEvent:
        """The event that a run charges in all, in the ledger's canonical form; a function of public places."""
        return events.compose([(self.noise(incidence).event(), self.paid_releases)])

    def published_plan(self, incidence: Incidence) -> DpEvent:
        """The event as the paper accounts it: counts and centres as one release of occurrences of length 1."""
        return events.compose([(self.noise(incidence).published_event(), self.paid_releases)])

    def load_embedder(self, records: Sequence[Record], incidence: Incidence) -> Embedder:
        """The public embedder; the builtin one is fitted on the public records."""
        public = [record.text for record, private in zip(records, incidence.private, strict=True) if not private]
        return fitted_embedder(self.embedder, public, self.seed)

    def check(self, records: Sequence[Record], writer: Writer, incidence: Incidence | None = None) -> Incidence:
        """That these records can be run, before anything is charged or written; where their secrets are.

        Args:
            records: private where they hold a secret.
            writer: of candidates.
            incidence: of these records, if it is known already; looking for secrets may take long.

        Raises:
            ValueError: one line that tells no secret and nothing of any private record.
        """
        members = evolution_run.by_label(records, self.labels)
        places = self.incidence(records) if incidence is None else incidence
        if places.records != len(records):
            raise ValueError(f"the places of secrets are those of {places.records} records, not of {len(records)}")
        if places.texts not in (None, texts_digest(record.text for record in records)):
            raise ValueError("the places of secrets are those of other records, or of these in another order")
        if self.releasable and any(budget.r == 1 for budget in places.budgets):
            raise ValueError("a list gives a secret r = 1, which protects nothing; lower it or leave the secret out")
        if not places.private.any():
            raise ValueError(
                "no secret was found in any record, so there is nothing to protect; look at the sources in secrets"
            )
        if places.private.all():
            raise ValueError("every record holds a secret, and public records are needed for clusters; add some")
        for label, indices in members.items():
            public = {records[index].text for index in indices[~places.private[indices]]}
            if len(public) < self.clusters:
                of_label = "" if label is None else f" of label {label!r}"
                raise ValueError(
                    f"clusters must be at most the number of different public texts{of_label}, {len(public)}, not "
                    f"{self.clusters}; lower it or add records without a secret"
                )
            private, most = int(places.private[indices].sum()), clustering.MOST_RECORDS
            if private > most:
                raise ValueError(f"at most {most} records that share clusters may hold a secret, not {private}")
        self.noise(places)
        load_embedder(self.embedder)  # fails early if it is not on this machine
        return places

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
    ) -> EvolutionResult:
        """Writes the synthetic texts, or goes on where an earlier call was interrupted.

        Args:
            records: private where they hold a secret.
            writer: of candidates; it sees no record.
            run: of a ledger, begun with `plan(incidence)`. Every release is charged there before it is drawn, and only
                what is committed there is used; the caller finishes it.
            journal: the file of the candidates, in an existing folder that is private.
            incidence: of these records, if it is known already.
            progress: called with the texts written and the most there can be.
            source: of the noise; a run with a recorded one must say so: ``run.about["noise"] == "recorded"``.

        Raises:
            ValueError: for records, a writer or parameters that do not fit, or are not those of the interrupted run.
        """
        places = self.check(records, writer, incidence)
        charged.check_run(run, self.plan(places), source)
        embedder = self.load_embedder(records, places)
        public = (self, places.fingerprint, writer.fingerprint, embedder.fingerprint)
        evolution_run.note_inputs(run, evolution_run.inputs_digest(records, public))
        with Journal(journal, self.settings.about(writer, embedder)) as candidates:
            releases = _Releases(self, records, places, embedder, run, source)
            texts = evolve(self.settings, writer, embedder, releases.select, candidates, progress)
        return EvolutionResult(texts, tuple(releases.released), places.found, self.noise(places))


@dataclass(frozen=True, slots=True, eq=False)
class EvolutionResult:
    """A finished run. Of a releasable mechanism, all of it may leave: places of secrets are public.

    Attributes:
        texts: the last selection, label by label.
        releases: the noisy clusters of each label, release by release.
        found: how many secrets each source found, and in how many records.
        noise: of each release, and the probabilities with which records were drawn.
    """

    texts: tuple[SyntheticText, ...]
    releases: tuple[Mapping[str | None, NoisyClusters], ...]
    found: tuple[Found, ...]
    noise: SecretNoise


class _Releases:
    """The releases of one call of `SecretEvolution.generate`; records are embedded for the first of them."""

    def __init__(
        self,
        mechanism: SecretEvolution,
        records: Sequence[Record],
        places: Incidence,
        embedder: Embedder,
        run: Run,
        source: Source,
    ) -> None:
        self.mechanism, self.records, self.places, self.embedder = mechanism, records, places, embedder
        self.run, self.source = run, source
        self.noise = mechanism.noise(places)
        self.released: list[Mapping[str | None, NoisyClusters]] = []
        self._parts: list[_Part] = []

    def select(self, number: int, candidates: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
        """What the noisy clusters keep, for each label."""
        if number < self.mechanism.paid_releases:
            self.released.append(self._release(number))
        kept = {}
        for part, (label, noisy) in zip(self._parts, self.released[-1].items(), strict=True):
            if self.mechanism.variant == "sound":
                noisy = clustering.steadied(noisy, part.clusters, self.noise.sigma)
            kept[label] = voting.kept_by_centres(noisy, candidates[label], self.mechanism.synthetic).tolist()
        return kept

    def _release(self, number: int) -> Mapping[str | None, NoisyClusters]:
        """The committed release of this number, or one drawn now, after its charge: all labels in one."""
        key = f"{RELEASE}/{number}"
        self._prepare()
        charge = Charge(key=key, stage=RELEASE, event=self.noise.event())
        value = charged.released(self.run, charge, self._drawn)
        return dict(zip(self.mechanism.settings.groups, map(_read, value), strict=True))

    def _drawn(self) -> list[dict[str, str]]:
        mechanism = self.mechanism
        drawn = []
        for part in self._parts:
            arguments = (part.clusters, part.vectors, part.probabilities, self.noise.sigma, self.source)
            if mechanism.variant == "sound":
                noisy = clustering.release(*arguments, assigned=part.assigned)
            else:
                noisy = clustering.release_as_published(*arguments)
            drawn.append(_written(noisy))
        return drawn

    def _prepare(self) -> None:
        """Public clusters and private vectors of each label.

        Raises:
            OtherRunError: where the clusters are not those of the interrupted run.
        """
        if self._parts:
            return
        members = evolution_run.by_label(self.records, self.mechanism.labels)
        self._parts = [self._part(label, indices) for label, indices in members.items()]
        fingerprints = [part.clusters.fingerprint for part in self._parts]
        if charged.noted(self.run, CLUSTERS, fingerprints) != fingerprints:
            raise OtherRunError(
                "the public clusters are others than in the interrupted run, although the records are the same: this "
                "machine or its libraries compute other vectors; go on where the run began, or start a new one in a "
                "new folder"
            )

    def _part(self, label: str | None, indices: NDArray[np.int64]) -> _Part:
        """The clusters and the private records of one label."""
        mechanism, hidden = self.mechanism, self.places.private[indices]
        public, private = (
            all_embedded(self.embedder, [self.records[index].text for index in some])
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
    """The records of one label. All but the clusters and the probabilities is private."""

    clusters: PublicClusters
    vectors: Vectors
    assigned: NDArray[np.int64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Places:
    """An incidence that a cache can hold: equal where its fingerprint is."""

    fingerprint: str
    incidence: Incidence = field(compare=False)


@functools.lru_cache(maxsize=2)
def _noise(variant: str, releases: int, expected_sample: float | None, places: _Places) -> SecretNoise:
    """The noise of a run, kept because a plan, a check and the run itself each ask for it."""
    if variant == "as_published":
        return SecretNoise.as_published(places.incidence, rounds=releases)
    return SecretNoise.fit(places.incidence, rounds=releases, expected_sample=expected_sample)


def _written(noisy: NoisyClusters) -> dict[str, str]:
    return {"centres": evolution_run.packed(noisy.centres), "sizes": evolution_run.packed(noisy.sizes)}


def _read(value: Mapping[str, str]) -> NoisyClusters:
    sizes = evolution_run.unpacked(value["sizes"])
    return NoisyClusters(evolution_run.unpacked(value["centres"]).reshape(len(sizes), -1), sizes)
