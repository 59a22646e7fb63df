"""The assay document (`assay.json`): everything a report draws, as one versioned JSON file; its schema; reading one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpassay.audits.verdict_wording import Name as VerdictName
from dpassay.audits.verdict_wording import history
from dpassay.reports.json_form import AuditResult, Bound, Missing, Number, Risk

SCHEMA_VERSION: Final = 1
DIALECT = "https://json-schema.org/draft/2020-12/schema"

PUBLIC_FACTS = (
    "batching key",
    "device",
    "language model",
    "model fingerprint (SHA-256)",
    "precision",
    "rows",
    "seed of the public choice of builtin records",
    "source of noise",
    "tokenizer",
)
"""Keys of `Assay.implementation` that may stand on the releasable page. A key that is not listed stays private:
the hash of an input file, for one, tells whoever can guess the file that the guess is right."""


class DocumentPart(BaseModel):
    """A piece of a document; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid")


class BatchCost(DocumentPart):
    """What one batch (slot) cost, and what one record of it could be shown to have leaked."""

    slot: int
    label: str | None = None
    size: int = Field(description="how many contexts it holds; with one record a context, records or users")
    documents: int = Field(description="how many it began, one that its last token cut included")
    tokens: int
    epsilon: float = Field(description="exact ex-post cost ε* of the tokens")
    epsilon_published: float = Field(description="the published per-token cost γ, summed")
    leave_one_out: float = Field(description="largest |log-ratio| over the records or users of the batch")


class TokenCost(DocumentPart):
    """Mean and largest cost by position in the document."""

    position: int
    count: int
    mean: float
    largest: float
    mean_published: float


class SecretSource(DocumentPart):
    """What one source of secrets found. Places of secrets are public, so these numbers are."""

    kind: str
    secrets: int = Field(description="how many it names or found")
    records: int = Field(description="records in which it found at least one")
    occurrences: int = Field(description="pairs of a secret and a record that holds it")
    nowhere: int = Field(description="secrets that it names and found in no record")


class SecretGroup(DocumentPart):
    """The secrets of one budget: what is claimed and what is proven for them."""

    secrets: int
    records: int = Field(description="records that hold at least one of them")
    p: float
    claimed: float = Field(description="the r that is claimed")
    certified: float | None = Field(description="the least certified upper bound on r at p; None without one")


class Secrets(DocumentPart):
    """Where secrets were found and what follows from their places, which are public by assumption."""

    sources: list[SecretSource]
    groups: list[SecretGroup] = Field(description="one a budget; where there is one for it, that of the claim first")
    public_records: int = Field(description="records without a secret, which are used in the clear")
    private_records: int
    releases: int = Field(description="noisy releases in all")
    sigma: float = Field(description="standard deviation of the noise, for an occurrence of length 1")
    inclusion: Literal["coins", "weights"] = Field(
        default="coins", description="whether private records are drawn for each release, or count with fixed weights"
    )
    expected_sample: float = Field(
        description="private records that one release draws, on average; or the sum of their fixed weights"
    )


class Lengths(DocumentPart):
    """The least, the median, the largest and the mean of some lengths."""

    least: int
    median: float
    most: int
    mean: float | None = Field(default=None, description="None in what earlier versions wrote")


class Output(DocumentPart):
    """How many documents a run made, and how long they are.

    A function of the documents of a release and of the claim: nothing else that is private is read. Printed on both
    pages.
    """

    documents: int = Field(description="number of documents, or of rows of a table")
    empty: int = Field(description="how many of them hold no text beyond the public prefix")
    characters: Lengths | None = Field(description="of their texts, prefix included; None for a table or no document")
    complete: int | None = Field(description="how many of them ended by themselves; None where that is not recorded")
    ends: str = Field(description="which documents are kept, in words")


class LedgerSummary(DocumentPart):
    """What the ledger holds; only its head and, where it is what was planned, the composition may be released."""

    head: str
    events: int = Field(description="private: slots are charged together as they fit into memory, by their sizes")
    entries: int = Field(description="private, for the same reason")
    composition: dict[str, Any] = Field(description="the composed event as the ledger's JSON")
    planned: bool = Field(description="whether the charged events equal the plan")
    anchored: bool = Field(
        default=False,
        description="private: whether a copy of the head outside of the run's folder was compared and is kept",
    )


class Digests(DocumentPart):
    """SHA-256 of what a release consists of, 64 hexadecimal digits each. Printed on both pages."""

    documents: str = Field(description="of synthetic.jsonl, as it is written from the commits of the ledger")
    claim: str = Field(description="of claim.json, the releasable part of the claim as canonical JSON")


class PastAudit(DocumentPart):
    """An audit of a recorded verdict, and its bounds."""

    name: str
    game: str
    attack: str
    statistics: tuple[str, ...]
    bounds: tuple[Bound, ...]
    controls_passed: bool | None = Field(
        default=None, description="None without controls, and in what earlier versions wrote"
    )


class PastVerdict(DocumentPart):
    """A verdict as the ledger holds it, on the same run. All of them count for the next one. Private."""

    created: str = Field(description="ISO 8601, UTC")
    claim: str = Field(description="SHA-256 of the releasable part of the claim, as in `Digests`")
    guarantee: dict[str, Any] = Field(description="as the claim file writes it")
    claimed: str = Field(description="the guarantee in words")
    verdict: VerdictName
    asked: list[str] = Field(description="the audits that the claim asked for")
    confidence: float | None = Field(description="of its finite-sample audits; None where none was asked for")
    audits: list[PastAudit]
    contradictions: list[str] = Field(description="evidence of all verdicts so far against the run's own events")
    documents: str = Field(description="SHA-256 of the documents")
    versions: dict[str, str]


class Difference(DocumentPart):
    """Where published accounting and this tool's differ, and why."""

    statement: str
    published: Number | None = None
    recomputed: Number | None = None
    why: str
    private: bool = Field(default=True, description="a number or a sentence of it depends on the private data")


@dataclass(frozen=True, kw_only=True)
class MechanismTables:
    """What only some mechanisms have, under the names that `Assay` gives it."""

    batches: list[BatchCost] = field(default_factory=list)
    tokens: list[TokenCost] = field(default_factory=list)
    secrets: Secrets | None = None
    spent: dict[str, float] = field(default_factory=dict)


class Assay(DocumentPart):
    """A finished assay (`assay.json`)."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str = Field(description="ISO 8601, UTC")
    claim: dict[str, Any]
    guarantee: str = Field(description="the claimed guarantee in words, parameters filled in")
    verdict: VerdictName
    verdict_is_private: bool = Field(
        description="whether the verdict depends on the private data; the releasable page reads neither this nor it"
    )
    sentence: str = Field(description="the verdict in one sentence; private, the releasable page writes its own")
    reasons: list[str] = []
    contradictions: list[str] = Field(
        default=[],
        description="evidence against the certified upper bounds, which count as estimates for the verdict; private",
    )
    missing: Missing | None = None
    tested: list[str] = Field(
        default=[],
        description="those assumptions of the upper bounds that were tested for this run, at its own sizes; printed on "
        "both pages",
    )
    bounds: list[Bound] = Field(description="every bound, accountants first")
    best_upper: Bound | None = Field(default=None, description="the certified upper bound that is closest to the claim")
    best_lower: Bound | None = Field(
        default=None, description="the lower bound that refutes, else the largest that could"
    )
    risks: list[Risk] = Field(
        default=[],
        description="what the proof means for who is attacked: advantage, true positive rates, error of who guesses, μ "
        "and its regret; empty where they do not apply. From the events, as the upper bounds are",
    )
    audits: list[AuditResult] = []
    batches: list[BatchCost] = []
    tokens: list[TokenCost] = []
    history: list[PastVerdict] = Field(
        default=[], description="every verdict on this run in the ledger, this one last; private but for audits' games"
    )
    refuted_runs: list[str] = Field(
        default=[],
        description="names of other runs in the ledger with an equal plan that audits refuted or contradicted; private",
    )
    digests: Digests | None = Field(default=None, description="printed on both pages")
    output: Output | None = Field(
        default=None,
        description="number and lengths of the documents; None where there are none, printed on both pages",
    )
    unfinished: int | None = Field(
        default=None,
        description="how many documents were begun and not finished when their tokens ran out; none is kept. None "
        "where that is not recorded; printed on both pages",
    )
    protected: bool = Field(
        default=True, description="whether this variant of the mechanism protects anything; printed on both pages"
    )
    secrets: Secrets | None = Field(default=None, description="for secret protection; printed on both pages")
    spent: dict[str, float] = Field(default={}, description="where the budget went: stage → ε; private")
    differences: list[Difference] = []
    ledger: LedgerSummary
    warnings: list[str] = Field(
        default=[], description="what is easily misread in the claim, by public facts; printed on both pages"
    )
    private_warnings: list[str] = Field(default=[], description="the same, by the data and the ledger; private")
    not_protected: list[str] = Field(
        default=[], description="printed on both pages: nothing here depends on private data"
    )
    limitations: list[str] = Field(
        default=[], description="printed on both pages: nothing here depends on private data"
    )
    threat_model: list[str] = Field(
        default=[], description="printed on both pages: nothing here depends on private data"
    )
    side_channels: list[str] = Field(default=[], description="floating point, timing; printed on both pages")
    implementation: dict[str, str] = Field(
        default={},
        description="hashes, seeds of public choices, source of noise; only PUBLIC_FACTS leave the private page",
    )
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def history_in_words(self) -> str:
        """Which earlier verdicts this one weighs, and which it does not know."""
        return history(max(0, len(self.history) - 1), self.refuted_runs)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of `assay.json`."""
    schema = Assay.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": DIALECT, "$comment": f"dpassay assay, schema version {SCHEMA_VERSION}", **schema}


def load(path: str | PathLike[str]) -> Assay:
    """Reads an `assay.json`.

    Raises:
        ValueError: one line that says what is wrong with the file: it cannot be read, it is not JSON, it was written
            by another version, or a field of it is missing, unknown or impossible.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not UTF-8 text; an assay is the assay.json that `dpassay assay` writes") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: is not JSON: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise ValueError(f"{file}: is nested too deeply to be an assay") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"{file}: is not an assay: it has no `schema` number")
    if data["schema"] != SCHEMA_VERSION:
        raise ValueError(
            f"{file}: has schema {data['schema']!r}; this version of dpassay reads schema {SCHEMA_VERSION}"
        )
    try:
        return Assay.model_validate(data)
    except ValidationError as error:
        first, *rest = error.errors(include_url=False)
        target = ".".join(str(part) for part in first["loc"])
        given = first["input"]
        shown = f", not {given!r}" if first["type"] != "value_error" and not isinstance(given, dict | list) else ""
        more = f" (and {len(rest)} more)" if rest else ""
        raise ValueError(f"{file}: {target}: {first['msg'].removeprefix('Value error, ')}{shown}{more}") from None
