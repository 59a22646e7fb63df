"""What every generator gives to the commands: a finished run with its bounds, its audits and the text of its report.

The code outside a generator's own folder uses only its claim and its `FinishedRun`, and never asks which generator it
is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound
from cupel.accounting.guarantees import Guarantee
from cupel.accounting.ledger.run import Run
from cupel.accounting.registry import upper_bounds
from cupel.audits.result import AuditResult
from cupel.claims.base import Claim
from cupel.io.documents import NAME as DOCUMENTS
from cupel.io.documents import Documents
from cupel.io.run_files import open_ledger
from cupel.mechanisms.data.records import Record
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Source
from cupel.progress import Progress


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How a claim is run: what the claim itself does not say.

    Attributes:
        model: a local folder or a hub id, used instead of the claim's model.
        device: ``auto``, ``cpu`` or ``cuda``.
        download: whether a hub id may be fetched.
        progress: where to show progress.
        source: source of randomness for the noise. Only a run with the operating system's entropy can be released.
        audited: whether the claim's audits follow; some of them observe the run.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.
        allow_endpoint: address of the endpoint that may receive prompts and its API key. Without it only an endpoint
            on this machine that needs no key is used.
    """

    model: str | None = None
    device: str = "auto"
    download: bool = False
    progress: Progress = field(default_factory=Progress)
    source: Source = OS_ENTROPY
    audited: bool = False
    anchor: Path | None = None
    allow_endpoint: str | None = None


@dataclass(frozen=True)
class Part:
    """A guarantee, the event that it is about, and what is proven of it.

    A claim is one part, or several where some secrets have a budget of their own.
    """

    guarantee: Guarantee
    event: DpEvent
    bounds: list[Bound] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FinishedRun(ABC):
    """A finished run of a mechanism, with where its files are and all that a report says of this mechanism.

    `records` are those that were read; private.

    What `not_protected`, `threat_model` and `side_channels` say is printed on the releasable page, too: nothing there
    depends on what is protected.
    """

    claim: Claim
    settings: RunSettings
    plan: DpEvent
    documents: Documents
    ledger_path: Path
    records: Sequence[Record]

    @property
    def documents_path(self) -> Path:
        """The private file of documents; what may leave is made by `cupel release`."""
        return self.ledger_path.with_name(DOCUMENTS)

    @property
    def head(self) -> str:
        """The head of the ledger as it is now."""
        with open_ledger(self.ledger_path, self.settings.anchor) as ledger:
            return ledger.head

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of all that was charged."""
        return self.claim.adjacency

    @property
    def unit(self) -> Unit:
        """Its privacy unit."""
        return Unit.parse(self.claim.unit)

    def summary(self) -> dict[str, Any]:
        """What a program wants to know of the run, in JSON types."""
        return {
            "name": self.claim.name,
            "documents": len(self.documents.rows),
            "path": str(self.documents_path),
            "sha256": self.documents.sha256,
            "ledger": str(self.ledger_path),
            "head": self.head,
        }

    def parts(self, guarantee: Guarantee, event: DpEvent) -> list[Part]:
        """What is to be proven, given the composition of all charges: first of the claimed guarantee itself."""
        return [Part(guarantee, event)]

    def bounds(self, part: Part, charged: Run) -> list[Bound]:
        """Upper bounds for a part; `charged` is the run in its open ledger."""
        return upper_bounds(part.event, part.guarantee, adjacency=self.adjacency, unit=self.unit)

    def audit(self, claimed: Part, confidence: float) -> list[AuditResult]:
        """The results of the audits that the claim names; they are about its first part.

        Args:
            claimed: that part.
            confidence: with which all finite-sample bounds hold jointly.
        """
        return []

    def tables(self, parts: Sequence[Part], audits: Sequence[AuditResult]) -> dict[str, Any]:
        """What only this mechanism has to show: fields of `cupel.reports.assay.Assay` beyond the common ones."""
        return {}

    def differences(self, claimed: Part) -> list[dict[str, Any]]:
        """Where published accounting of this mechanism and ours differ, and why."""
        return []

    @abstractmethod
    def not_protected(self) -> list[str]:
        """What the claim leaves open even where it holds."""

    @abstractmethod
    def threat_model(self) -> list[str]:
        """Whom the guarantee is against."""

    @abstractmethod
    def side_channels(self) -> list[str]:
        """What leaks outside the model of the proof."""

    @abstractmethod
    def implementation(self) -> dict[str, str]:
        """Hashes, seeds of public choices, source of noise."""
