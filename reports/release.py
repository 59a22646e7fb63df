"""The part of an assay that may be released: a list of permitted fields. A field that is not named here stays private.

Nothing here reads the verdict or what an audit found: audits read the private data and are not charged for it, so one
word that depends on them would be an uncharged release.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

from pydantic import ConfigDict, Field

from dpassay.accounting.bounds import Direction
from dpassay.audits.result import AuditResult
from dpassay.base.number_format import format_number
from dpassay.reports import text
from dpassay.reports.assay import (
    PUBLIC_FACTS,
    SCHEMA_VERSION,
    Assay,
    Difference,
    Digests,
    DocumentPart,
    Output,
    PastAudit,
    SecretGroup,
    Secrets,
)
from dpassay.reports.claim import ClaimedValue, best_bound, claimed
from dpassay.reports.json_form import Bound, Risk

WITHHELD_EX_POST = "ex-post claim: verdict withheld"
WITHHELD = "verdict withheld"
REACHED = "The proof reaches the claim"
NOT_REACHED = "The proof does not reach the claim"
NOT_SHOWN = "The proof is not shown"

_CLAIM_KEYS = (
    *("name", "unit", "adjacency", "mechanism", "variant", "parameters", "public", "guarantee", "audits"),
    *("contact", "purpose", "period"),
)
_UNCHANGED = (
    *("name", "created", "guarantee", "tested", "digests", "output", "unfinished", "versions"),
    *("warnings", "not_protected", "limitations", "threat_model", "side_channels"),
)


class ReleasedAudit(DocumentPart):
    """That an audit was made, and how; what it found is private."""

    name: str
    game: str
    attack: str
    statistics: tuple[str, ...]

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """None of them may be released."""
        return ()


class ReleasedLedger(DocumentPart):
    """The head of the ledger, and what was charged if it equals the plan, which was made before any data was read."""

    head: str
    planned: bool = Field(description="whether the charged events equal the plan")
    composition: dict[str, Any] | None = Field(
        description="the plan; None where the events differ from it, which the data may have caused"
    )


class Accepted(DocumentPart):
    """Why a release was made although what is proven falls short of what is claimed. Public."""

    reason: str = Field(description="in the words of whoever released")


class Release(DocumentPart):
    """The releasable projection of an assay. Names are those of `Assay`."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str
    claim: dict[str, Any]
    guarantee: str
    headline: str = Field(description="what stands in place of the verdict; from claim, plan and `bounds` alone")
    sentence: str = Field(description="the same in one or two sentences")
    best_upper: Bound | None = Field(description="the best of `bounds` that counts for the claim")
    tested: list[str] = Field(default=[], description="assumptions that were tested for this run, at its own sizes")
    shortfalls: list[str] = Field(
        description="where what is proven falls short of what is claimed, by public facts; a release must accept them"
    )
    accepted: Accepted | None = None
    digests: Digests | None
    output: Output | None = Field(default=None, description="number and lengths of the released documents")
    unfinished: int | None = Field(default=None, description="documents that were begun and not finished")
    bounds: list[Bound] = Field(description="upper bounds on what the plan may leak")
    risks: list[Risk] = Field(default=[], description="what they mean for who is attacked; as in an assay")
    audits: list[ReleasedAudit]
    secrets: Secrets | None
    differences: list[Difference]
    ledger: ReleasedLedger
    warnings: list[str] = Field(default=[], description="what is easily misread in the claim")
    not_protected: list[str]
    limitations: list[str]
    threat_model: list[str]
    side_channels: list[str]
    implementation: dict[str, str]
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


def releasable(assay: Assay) -> Release:
    """The part of `assay` that does not depend on the private data.

    Left behind: the verdict, its sentence and reasons, private bounds and lower bounds, everything an audit measured,
    costs by batch, token and stage, sizes, lengths, how many events and entries the ledger holds, file paths, and every
    implementation fact that is not in `PUBLIC_FACTS`. Where the events charged differ from the plan, whatever is
    computed from them stays behind too.
    """
    planned = assay.ledger.planned
    bounds = [row for row in assay.bounds if may_leave(row)] if planned else []
    claim = claimed(assay.claim)
    best = best_bound(bounds, claim, Direction.UPPER) if claim is not None else None
    secrets = assay.secrets if planned else None
    audits = _audits(assay)
    return Release(
        **{name: getattr(assay, name) for name in _UNCHANGED},
        claim=released_claim(assay.claim),
        headline=_headline(assay.claim, planned, best, secrets),
        sentence=_sentence(assay.claim, planned, best, secrets, audited=bool(audits)),
        best_upper=best,
        shortfalls=_shortfalls(assay, best, secrets),
        bounds=bounds,
        risks=assay.risks if planned else [],
        audits=audits,
        secrets=secrets,
        differences=[difference for difference in assay.differences if planned and not difference.private],
        ledger=ReleasedLedger(
            head=assay.ledger.head,
            planned=planned,
            composition=assay.ledger.composition if planned else None,
        ),
        implementation={
            key: _model_name(value) if key == "language model" else value
            for key, value in assay.implementation.items()
            if key in PUBLIC_FACTS
        },
    )


def may_leave(row: Bound) -> bool:
    """Upper bounds on the mechanism only: what bounds it from below, or bounds this one output, read the data."""
    return row.direction is Direction.UPPER and not row.private and row.quantity != "ex_post_epsilon"


def _audits(assay: Assay) -> list[ReleasedAudit]:
    """The audits of every verdict on the run, each once."""
    results: list[ReleasedAudit] = []
    before = [audit for past in assay.history for audit in past.audits]
    every: list[PastAudit | AuditResult] = [*before, *assay.audits]
    for audit in every:
        made = ReleasedAudit(name=audit.name, game=audit.game, attack=audit.attack, statistics=audit.statistics)
        if made not in results:
            results.append(made)
    return results


def claim_text(claim: Mapping[str, Any]) -> str:
    """The releasable part of a claim as ``claim.json`` holds it: canonical JSON and a line break."""
    from dpassay.accounting.ledger.entries import canonical  # it imports dp_accounting, which takes a second

    return canonical(released_claim(claim)) + "\n"


def claim_digest(claim: Mapping[str, Any]) -> str:
    """The SHA-256 of ``claim.json``."""
    return hashlib.sha256(claim_text(claim).encode("ascii")).hexdigest()


def released_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The claim without paths, columns, and how secrets are found: a pattern may spell one."""
    out = {key: claim[key] for key in _CLAIM_KEYS if key in claim}
    if isinstance(out.get("parameters"), Mapping):
        out["parameters"] = {key: value for key, value in out["parameters"].items() if key != "secrets"}
    data = claim.get("data")
    if isinstance(data, Mapping):
        builtin = data.get("source") == "builtin"
        out["data"] = {key: data[key] for key in ("source", "name") if key in data} if builtin else {"source": "file"}
    if "model" in claim:
        out["model"] = _model_name(str(claim["model"]))
    return out


def _model_name(model: str) -> str:
    """A hub id as it is; of a folder, its last name only."""
    path = PurePath(model.replace("\\", "/"))
    is_folder = path.is_absolute() or model.startswith((".", "~")) or len(path.parts) > 2
    return f"local folder {path.name}" if is_folder else model


def is_ex_post(claim: Mapping[str, Any]) -> bool:
    """Whether the claimed guarantee holds for one output only, so that a verdict on it reads the private data."""
    guarantee = claim.get("guarantee")
    return isinstance(guarantee, Mapping) and guarantee.get("type") == "ex_post"


def reaches(claim: ClaimedValue, best: Bound | None) -> bool:
    """Whether the best bound is within the claim."""
    return best is not None and best.value <= claim.value


def _missed(secrets: Secrets | None) -> list[SecretGroup]:
    """The groups of secrets whose own claim is not proven."""
    groups = secrets.groups if secrets is not None else []
    return [group for group in groups if group.certified is None or group.certified > group.claimed]


def _shortfalls(assay: Assay, best: Bound | None, secrets: Secrets | None) -> list[str]:
    """Where what is proven falls short of what is claimed. No private number is read, so no ex-post ε either."""
    lines = []
    if assay.claim.get("variant") == "as_published":
        lines.append(
            "The run follows the published steps to the letter, and these are not proven to satisfy the guarantee that "
            "they state."
        )
    elif not assay.protected:
        lines.append("The mechanism protects nothing with these parameters.")
    what = claimed(assay.claim)
    if what is None or best is None or math.isinf(best.value):
        lines.append("No finite certified bound is known that holds before the data are read.")
    elif not is_ex_post(assay.claim) and not reaches(what, best):
        lines.append(f"The best certified bound, {_proven(best)}, is above the claim.")
    if missed := len(_missed(secrets)):
        total = len(secrets.groups) if secrets is not None else 0
        lines.append(f"For {missed} of {total} groups of secrets the certified bound is above what is claimed.")
    return lines


def _headline(claim: Mapping[str, Any], planned: bool, best: Bound | None, secrets: Secrets | None) -> str:
    """What stands in place of the verdict; chosen by the kind of claim, the plan and the best releasable bound."""
    what = claimed(claim)
    if is_ex_post(claim):
        return WITHHELD_EX_POST
    if not planned:
        return NOT_SHOWN
    if what is None:
        return WITHHELD
    return REACHED if reaches(what, best) and not _missed(secrets) else NOT_REACHED


def _sentence(
    claim: Mapping[str, Any], planned: bool, best: Bound | None, secrets: Secrets | None, *, audited: bool
) -> str:
    """The headline's numbers, all of them releasable."""
    what = claimed(claim)
    finite = best is not None and best.value != math.inf
    proven = _proven(best) if best is not None and finite else None
    differ = "The events charged differ from the plan, so bounds on them are withheld."
    if is_ex_post(claim):
        start = "Whether an ex-post claim holds depends on the private data."
        if not planned:
            return f"{start} {differ}"
        if proven is None:
            return f"{start} No finite a-priori bound is known."
        return f"{start} A priori, before any data is read, the mechanism satisfies {proven}."
    rest = (
        "The verdict is withheld, because it also depends on attacks on the private data."
        if audited
        else "No audit was made."
    )
    if not planned:
        return f"{differ} {rest}"
    if what is None:
        return f"The proof is below. {rest}"
    asked = f"the claimed {what.symbol} ≤ {format_number(what.value)}"
    if proven is None:
        return f"No finite certified upper bound is known that could prove {asked}. {rest}"
    compared = "is within" if reaches(what, best) else "is above"
    return f"The best certified upper bound, {proven}, {compared} {asked}.{_of_groups(secrets)} {rest}"


def _of_groups(secrets: Secrets | None) -> str:
    """What is proven for secrets with budgets of their own; empty where all have one budget."""
    number = len(secrets.groups) if secrets is not None else 0
    if number < 2:
        return ""
    missed = len(_missed(secrets))
    if missed:
        return f" For {missed} of {number} groups of secrets the proof does not reach what is claimed."
    return f" The proof reaches what is claimed for each of the {number} groups of secrets."


def _proven(best: Bound) -> str:
    return f"{text.bound_where(best)} ({text.method(best.method)}, certified)"
