"""The interface of generators: a finished run with its bounds, its audits and the text of its report.

Code outside a generator's folder uses only its claim and its `FinishedRun`, and never depends on which generator it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Risk
from dpassay.accounting.comparison.risks import risks_of_run
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee, SecretProtection
from dpassay.accounting.ledger.evidence import Basis, basis_of
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import open_ledger
from dpassay.accounting.registry import upper_bounds
from dpassay.audits.result import AuditResult
from dpassay.base.private_results import DOCUMENTS
from dpassay.base.progress import Progress
from dpassay.claims.base import Claim
from dpassay.data.records import Record, Texts
from dpassay.generators.documents import Documents
from dpassay.generators.output_warnings import nothing_made, unknown_texts
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.reports.assay import Difference, MechanismTables, Output
from dpassay.reports.claim import prefix_of

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run that are not part of the claim.

    Attributes:
        model: a local folder or a hub id, used instead of the claim's model.
        device: ``auto``, ``cpu`` or ``cuda``.
        download: whether a hub id may be fetched.
        progress: where to show progress.
        source: source of randomness for the noise. Only a run with the operating system's entropy can be released.
        audited: whether the claim's audits follow the run; some of them observe it.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.
        allow_endpoint: address of the endpoint that may receive prompts and its API key. Without it only an endpoint
            on this machine that needs no key is used.
        executor: where pieces of the work are done.
    """

    model: str | None = None
    device: str = "auto"
    download: bool = False
    progress: Progress = field(default_factory=Progress)
    source: Source = OS_ENTROPY
    audited: bool = False
    anchor: Path | None = None
    allow_endpoint: str | None = None
    executor: Executor = THIS_PROCESS

    @property
    def noise_in_words(self) -> str:
        """Where the noise comes from, for a report."""
        return "operating system entropy" if self.source.name == OS_ENTROPY.name else "recorded"


CHANGES = {Adjacency.ADD_REMOVE: "added or removed", Adjacency.REPLACE_ONE: "exchanged for another"}
"""How one unit differs between neighbouring data sets, in words."""


NOT_SEEN = "It does not see the private folder, the machine, or how long the run took."
"""What the adversary of every generator does not see."""


def in_common(many: str) -> str:
    """What many records, or rows, say together is not protected."""
    return f"What many {many} say together may appear in the output: that is what synthetic data are for."


def certified(bounds: Iterable[Bound]) -> float | None:
    """The least certified upper bound; None if there is none."""
    return min((bound.value for bound in bounds if bound.rigor.may_support), default=None)


@dataclass(frozen=True)
class BoundedGuarantee:
    """A guarantee, the event that it is about, and upper bounds.

    A claim has one part, or several if some secrets have their own budgets.
    """

    guarantee: Guarantee
    event: DpEvent
    bounds: list[Bound] = field(default_factory=list)

    @property
    def certified(self) -> float | None:
        """The least certified upper bound; None if there is none."""
        return certified(self.bounds)


@dataclass(frozen=True, kw_only=True)
class FinishedRun(ABC):
    """A finished run of a mechanism: its files, its bounds and audits, and the sentences of its report.

    The sentences of `not_protected`, `threat_model` and `side_channels` are printed on the releasable page, too, so
    they do not depend on private data.

    Attributes:
        claim, settings: of the run.
        plan: the event that was planned.
        documents: the output.
        ledger_path: path of the ledger, in the private folder.
        records: all records that were read; private.
        public_facts: what is public by assumption, in words, with the number of ``{records}``.
        item: what the guarantee protects one of.
        known: what the adversary knows besides the mechanism and every other item.
        seen: what it sees.
    """

    claim: Claim
    settings: RunSettings
    plan: DpEvent
    documents: Documents
    ledger_path: Path
    records: Sequence[Record]

    @property
    def has_documents(self) -> bool:
        """Whether the mechanism writes documents here; one that ran elsewhere does not."""
        return True

    @property
    def documents_path(self) -> Path:
        """The private file of documents; `dpassay release` makes what may be released."""
        return self.ledger_path.with_name(DOCUMENTS)

    @property
    def head(self) -> str:
        """The current head of the ledger."""
        with open_ledger(self.ledger_path, self.settings.anchor) as ledger:
            return ledger.head

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of all charges."""
        return self.claim.adjacency

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return Unit.parse(self.claim.unit)

    def endings(self) -> tuple[bool, str]:
        """Whether every document ended by itself, else that is not recorded; and which are kept, in words. Public."""
        return False, ""

    @property
    def unfinished(self) -> int | None:
        """How many documents the run began and did not finish, and so does not keep; None if not known. Public: it
        follows from what was drawn, finished documents or not, which is charged."""
        return None

    def output(self) -> Output | None:
        """How many documents there are, and how long; None if the mechanism ran elsewhere."""
        if not self.has_documents:
            return None
        whole, ends = self.endings()
        return self.documents.output(whole=whole, ends=ends, prefix=prefix_of(self.claim.described()))

    def to_json(self) -> dict[str, Any]:
        """Name, documents, files and ledger head of the run, in JSON types."""
        output = self.output()
        return {
            "name": self.claim.name,
            "documents": len(self.documents.rows),
            "output": output and output.model_dump(mode="json"),
            "unfinished": self.unfinished,
            "path": str(self.documents_path),
            "sha256": self.documents.sha256,
            "ledger": str(self.ledger_path),
            "head": self.head,
        }

    def parts(self, guarantee: Guarantee, event: DpEvent) -> list[BoundedGuarantee]:
        """The parts to prove, given the composition of all charges; the claimed guarantee itself is the first."""
        return [BoundedGuarantee(guarantee, event)]

    @property
    def basis(self) -> Basis:
        """What bounds on the run rest on, as it began or would begin now."""
        return self.claim.basis()

    def bounds(self, part: BoundedGuarantee, charged: Run) -> list[Bound]:
        """Upper bounds for a part, with all that they rest on by the ledger; `charged` is the run in its open ledger.

        What the claim says now counts, too: a ledger of an older version did not record it.
        """
        basis = basis_of(charged).joined(self.basis)
        return [basis.under(bound) for bound in self.bounds_on_events(part, charged)]

    def bounds_on_events(self, part: BoundedGuarantee, charged: Run) -> list[Bound]:
        """Upper bounds for a part if its events are what the run cost."""
        return upper_bounds(part.event, part.guarantee, adjacency=self.adjacency, unit=self.unit)

    def risks(self, part: BoundedGuarantee, charged: Run) -> tuple[Risk, ...]:
        """What the proof of a part means for who is attacked, by `lattice`, with all that it rests on.

        Empty where the part has no finite certified bound, where its guarantee is about one output or a secret, and
        where `lattice` has no bound. μ is told at the claimed δ, if one is claimed.
        """
        guarantee = part.guarantee
        if isinstance(guarantee, ExPostDP | SecretProtection) or part.certified in (None, math.inf):
            return ()
        delta = guarantee.delta if isinstance(guarantee, ApproxDP) else None
        basis = basis_of(charged).joined(self.basis)
        return risks_of_run(part.event, basis, adjacency=self.adjacency, unit=self.unit, delta=delta)

    def tables(self, parts: Sequence[BoundedGuarantee], audits: Sequence[AuditResult]) -> MechanismTables:
        """The tables of this mechanism."""
        return MechanismTables()

    @property
    def embedded_model(self) -> LanguageModel | None:
        """The model that ships with the package, if it wrote the documents; None for another writer."""
        return None

    def warnings(self) -> list[str]:
        """What is easily misread in what ran, or keeps it from a verdict, a sentence each; public.

        Of what the run made only the documents are read.
        """
        output = self.output()
        return [
            *([] if output is None else nothing_made(output)),
            *unknown_texts(self.embedded_model, self.documents.texts, "documents that it wrote"),
        ]

    def private_warnings(self) -> list[str]:
        """Likewise, of what depends on the records; private."""
        return unknown_texts(self.embedded_model, Texts(self.records), "records")

    @property
    def tested(self) -> list[str]:
        """Those assumptions of its bounds that were tested for this run, at its own sizes; public."""
        return []

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        """Where published accounting of this mechanism and ours differ, and why."""
        return []

    def published_difference(
        self,
        published: Callable[[], DpEvent],
        claimed: BoundedGuarantee,
        statement: str,
        why: Sequence[str],
        alike: str = "",
        method: str | None = None,
    ) -> list[Difference]:
        """The difference of a run as published, if the accounting of the event `published` gives a certified bound.

        The reasons are sentences; if there is none, `alike` stands in their place. The published bound is the best, or
        that of a `method`.
        """
        if self.claim.variant != "as_published":
            return []
        methods = None if method is None else [method]
        value = certified(
            upper_bounds(published(), claimed.guarantee, adjacency=self.adjacency, unit=self.unit, methods=methods)
        )
        if value is None:
            return []
        ours = float("inf") if claimed.certified is None else claimed.certified
        return [
            Difference(statement=statement, published=value, recomputed=ours, why=" ".join(why) or alike, private=False)
        ]

    public_facts: ClassVar[str]
    item: ClassVar[str] = "record"
    known: ClassVar[str]
    seen: ClassVar[str]

    @property
    def neighbours(self) -> str:
        """What neighbouring data sets are, in a sentence."""
        return f"Neighbouring data sets differ in one record, which is {CHANGES[self.adjacency]}."

    def not_protected(self) -> list[str]:
        """What is not protected even if the claim holds."""
        item = self.item
        return [
            f"{self.public_facts.format(records=self.claim.public.records)} are public by assumption.",
            in_common(f"{item}s"),
            f"One {item} is protected; what several of them hold in common, such as copies of one {item}, "
            f"is protected less. A person with several {item}s is not protected as one unit.",
        ]

    def threat_model(self) -> list[str]:
        """The adversary that the guarantee is about."""
        return [
            f"The adversary knows the mechanism, its parameters, {self.known}, and every {self.item} but the one in "
            f"question; it sees {self.seen}.",
            self.neighbours,
            NOT_SEEN,
        ]

    @abstractmethod
    def side_channels(self) -> list[str]:
        """Leakage outside the model of the proof."""

    @abstractmethod
    def implementation(self) -> dict[str, str]:
        """Hashes, seeds of public choices, source of noise."""
