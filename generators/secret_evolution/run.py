"""Runs claims about secret-protected evolution, bounds their privacy loss, audits and describes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting.guarantees import Guarantee, SecretProtection
from dpassay.accounting.ledger.entries import Json
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.registry import upper_bounds
from dpassay.accounting.secret_protection.groups import of_group
from dpassay.audits.result import AuditResult
from dpassay.base.arrays import Integers
from dpassay.base.errors import input_errors
from dpassay.data.batching import label_indices
from dpassay.data.records import Record, RecordsAt, Texts
from dpassay.generators.base import NOT_SEEN, BoundedGuarantee, RunSettings, certified
from dpassay.generators.evolution.run import JOURNAL, EvolutionRun, documents_of, load_writer
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.secret_evolution.claim import SecretEvolutionClaim, default_group, guarantees_of_groups
from dpassay.mechanisms.secret_evolution.generator import EvolutionResult, SecretEvolution
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.reports.assay import Difference, MechanismTables, SecretGroup, Secrets, SecretSource


@dataclass(frozen=True, kw_only=True)
class SecretEvolutionRun(EvolutionRun):
    """A finished run of secret-protected evolution.

    Attributes:
        incidence: where secrets occur; public.
        labels: shape (n,), the index of each record's label; public.
        result: texts, noise and sources of secrets.
    """

    claim: SecretEvolutionClaim
    mechanism: SecretEvolution
    incidence: Incidence
    labels: Integers
    result: EvolutionResult

    @property
    def default_group(self) -> int | None:
        """The group of secrets that have the claimed budget; None if every secret has another one."""
        return default_group(self.incidence.budgets, SecretProtection(self.mechanism.p, self.mechanism.r))

    def parts(self, guarantee: Guarantee, event: DpEvent) -> list[BoundedGuarantee]:
        """The claim for the secrets with its budget (for all secrets if none has it), then each other group."""
        default = SecretProtection(self.mechanism.p, self.mechanism.r)
        each = guarantees_of_groups(guarantee, event, self.incidence.budgets, default)
        return [BoundedGuarantee(item, of_item) for item, of_item in each]

    def claimed_incidence(self) -> Incidence:
        """Where the secrets with the claimed budget occur."""
        own = self.default_group
        if own is None:
            return self.incidence
        rows = np.flatnonzero(self.incidence.group == own)
        budgets = (self.incidence.budgets[own],)
        return Incidence(self.incidence.matrix[rows], budgets, np.zeros(len(rows), dtype=np.int64))

    def tables(self, parts: Sequence[BoundedGuarantee], audits: Sequence[AuditResult]) -> MechanismTables:
        indices, noise = self.incidence, self.result.noise
        own = self.default_group
        order = [own] if own is not None else []
        order += [group for group in range(len(indices.budgets)) if group != own]
        of_groups = parts if own is not None else parts[1:]
        secrets = Secrets(
            sources=[SecretSource(**dataclasses.asdict(result)) for result in self.result.detected],
            groups=[self._group_row(group, part) for group, part in zip(order, of_groups, strict=True)],
            public_records=int((~indices.private).sum()),
            private_records=int(indices.private.sum()),
            releases=self.mechanism.paid_releases,
            sigma=noise.sigma,
            inclusion=noise.inclusion,
            expected_sample=noise.expected_sample,
        )
        return MechanismTables(secrets=secrets)

    def _group_row(self, group: int, part: BoundedGuarantee) -> SecretGroup:
        indices = self.incidence
        rows = np.flatnonzero(indices.group == group)
        assert isinstance(part.guarantee, SecretProtection)
        return SecretGroup(
            secrets=len(rows),
            records=len(np.unique(indices.matrix[rows].indices)),
            p=part.guarantee.p,
            claimed=part.guarantee.r,
            certified=part.certified,
        )

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        if self.claim.variant != "as_published":
            return []
        own = self.default_group
        event = self.mechanism.published_plan(self.incidence)
        event = event if own is None else of_group(event, own)
        exact = certified(upper_bounds(event, claimed.guarantee, adjacency=self.adjacency, unit=self.unit))
        return [
            Difference(
                statement="r after all rounds, when a secret occurs in a random number of drawn records",
                published=self.mechanism.r,
                recomputed=exact,
                why="The published noise takes a secret to occur in its mean number of drawn records, as one Gaussian; "
                "the exact r is that of the mixture over the numbers in which it may occur.",
                private=False,
            ),
            Difference(
                statement="r after all rounds, when records are assigned to sums that run along",
                published=exact,
                recomputed=claimed.certified,
                why="In the printed algorithm a record is assigned to the nearest of running sums, which earlier "
                "records have moved. So one occurrence may move all later records, which no noise covers: it is "
                "counted as revealing the secret.",
                private=False,
            ),
        ]

    def not_protected(self) -> list[str]:
        result = self.result.detected
        lines = [
            "Where secrets occur is public by assumption, and with it which records hold one and how many: what is "
            "protected is the value of a secret, the same wherever it occurs.",
            "Records without a secret are used in the clear: their text makes clusters and may be shown to the writer, "
            "who may repeat it.",
            "What is no secret by the claim's sources is not protected, in private records either: what a list leaves "
            "out, a pattern does not match or a detector misses may appear in the output unchanged.",
            "The claim does not protect a secret from anyone who knows it from other text, or can infer it from its "
            "context.",
        ]
        nowhere = sum(source.nowhere for source in result)
        if nowhere:
            occur = "occurs" if nowhere == 1 else "occur"
            lines.append(f"{nowhere} of the secrets that sources name {occur} in no record.")
        return lines

    def threat_model(self) -> list[str]:
        return [
            "The adversary knows the mechanism, its parameters, the writer, the embedder, where every secret occurs, "
            "and all text but the value of the secret in question; it sees the noisy clusters of all releases and all "
            "candidates.",
            "Neighbouring data sets differ in the value of one secret, wherever it occurs. Before the release, no "
            "guess of it is right with a probability above p.",
            NOT_SEEN,
        ]

    def implementation(self) -> dict[str, str]:
        return super().implementation() | {"fingerprint of the places of secrets (SHA-256)": self.incidence.fingerprint}


def public_examples(
    claim: SecretEvolutionClaim, mechanism: SecretEvolution, records: Sequence[Record], incidence: Incidence
) -> dict[str | None, list[str]]:
    """Public records of each label for the prompts of the writer, drawn with the public seed."""
    count = claim.parameters.examples
    results: dict[str | None, list[str]] = {}
    for label in mechanism.settings.groups if count else ():
        places = np.fromiter(
            (
                index
                for index, (record, private) in enumerate(zip(records, incidence.private, strict=True))
                if not private and label in (None, record.label)
            ),
            dtype=np.int64,
        )
        rows = Texts(RecordsAt(records, places))
        order = np.random.default_rng([mechanism.seed, 3]).permutation(len(rows))[:count]
        results[label] = [rows[index] for index in order]
    return results


def generate(claim: SecretEvolutionClaim, output: Path, settings: RunSettings) -> SecretEvolutionRun:
    """Runs secret-protected evolution as claimed (`dpassay.generators.registry.generate`)."""
    claim.check_allowed(settings.allow_endpoint)
    mechanism, records = claim.generator(), claim.load_records(settings.download)
    claim.check_records(len(records))
    with input_errors():
        incidence = mechanism.incidence(records)
    writer = load_writer(claim, settings, public_examples(claim, mechanism, records, incidence))
    with input_errors():
        mechanism.check(records, writer, incidence)
        plan = mechanism.plan(incidence)
    about: dict[str, Json] = {
        "writer": writer.fingerprint,
        "secrets": incidence.fingerprint,
        "budgets": [[budget.p, budget.r] for budget in incidence.budgets],
    }

    def make(run: Run, ledger: Path) -> SecretEvolutionRun:
        with settings.progress.stage("Generating") as step:
            result = mechanism.generate(
                records,
                writer,
                run,
                journal=ledger.with_name(JOURNAL),
                incidence=incidence,
                progress=step,
                source=settings.source,
                executor=settings.executor,
            )
        return SecretEvolutionRun(
            claim=claim,
            settings=settings,
            plan=plan,
            documents=documents_of(result.texts),
            ledger_path=ledger,
            records=records,
            mechanism=mechanism,
            incidence=incidence,
            labels=label_indices(records, mechanism.labels),
            writer=writer,
            examples=claim.parameters.examples,
            result=result,
        )

    return make_in_ledger(claim, output, plan, settings, make, about)
