"""What of an assay may leave the building: a whitelist, field by field. What is not named here stays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

from pydantic import ConfigDict, Field

from cupel.reports import text
from cupel.reports.assay import PUBLIC_FACTS, SCHEMA_VERSION, Assay, BoundRow, Difference, Part

WITHHELD_EX_POST = "ex-post claim: verdict withheld"
WITHHELD_AUDITS = "verdict withheld"

_CLAIM_KEYS = ("name", "unit", "adjacency", "mechanism", "variant", "parameters", "public", "guarantee", "audits")


class ReleasedAudit(Part):
    """That an audit was made, and how; its results stay on the private side unless a bound of it is not private."""

    name: str
    game: str
    attack: str
    statistics: list[str]
    bounds: list[BoundRow]


class ReleasedLedger(Part):
    head: str
    events: int | None = Field(description="None where the events differ from the plan, which the data may have caused")
    composition: dict[str, Any] | None


class Release(Part):
    """The releasable projection of an assay. Names are those of `Assay`."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str
    claim: dict[str, Any]
    guarantee: str
    verdict: Literal["SUPPORTED", "REFUTED", "UNPROVEN"] | None = Field(description="None: withheld")
    withheld: str | None = Field(description="what stands in place of a withheld verdict")
    sentence: str
    best_upper: BoundRow | None
    best_lower: BoundRow | None
    bounds: list[BoundRow]
    audits: list[ReleasedAudit]
    differences: list[Difference]
    ledger: ReleasedLedger
    not_protected: list[str]
    limitations: list[str]
    threat_model: list[str]
    side_channels: list[str]
    implementation: dict[str, str]
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


def releasable(assay: Assay) -> Release:
    """The part of `assay` that does not depend on the private data.

    Left behind: private bounds, the verdict where it rests on them, its sentence and reasons, everything an audit
    measured, costs by batch, token and stage, sizes, lengths, the number of ledger entries, file paths, and every
    implementation fact that is not in `PUBLIC_FACTS`.
    """
    bounds = [row for row in assay.bounds if not row.private]
    upper, lower = _best(assay)
    verdict, withheld = _verdict(assay, upper, lower)
    return Release(
        name=assay.name,
        created=assay.created,
        claim=_claim(assay.claim),
        guarantee=assay.guarantee,
        verdict=verdict,
        withheld=withheld,
        sentence=_sentence(assay, verdict, upper),
        best_upper=upper,
        best_lower=lower,
        bounds=bounds,
        audits=[
            ReleasedAudit(
                name=audit.name,
                game=audit.game,
                attack=audit.attack,
                statistics=audit.statistics,
                bounds=[row for row in audit.bounds if not row.private],
            )
            for audit in assay.audits
        ],
        differences=[difference for difference in assay.differences if not difference.private],
        ledger=ReleasedLedger(
            head=assay.ledger.head,
            events=assay.ledger.events if assay.ledger.planned else None,
            composition=assay.ledger.composition if assay.ledger.planned else None,
        ),
        not_protected=assay.not_protected,
        limitations=assay.limitations,
        threat_model=assay.threat_model,
        side_channels=assay.side_channels,
        implementation={
            key: _model_name(value) if key == "language model" else value
            for key, value in assay.implementation.items()
            if key in PUBLIC_FACTS
        },
        versions=assay.versions,
    )


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The claim without what it says of the owner's machine: paths, columns."""
    out = {key: claim[key] for key in _CLAIM_KEYS if key in claim}
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


def _best(assay: Assay) -> tuple[BoundRow | None, BoundRow | None]:
    """The best upper and lower bound that may be released: those that the verdict names, else by comparison."""
    claim = text.claimed(assay.claim)
    rows = [row for row in (*assay.bounds, *_of_audits(assay)) if not row.private]
    named = [row if row is not None and not row.private else None for row in (assay.best_upper, assay.best_lower)]
    if claim is None:
        return named[0], named[1]
    return named[0] or text.best(rows, claim, "upper"), named[1] or text.best(rows, claim, "lower")


def _of_audits(assay: Assay) -> list[BoundRow]:
    return [row for audit in assay.audits for row in audit.bounds]


def _verdict(
    assay: Assay, upper: BoundRow | None, lower: BoundRow | None
) -> tuple[Literal["SUPPORTED", "REFUTED", "UNPROVEN"] | None, str | None]:
    """The verdict, if the releasable bounds alone carry it; else what stands in its place.

    A claim that is not SUPPORTED is UNPROVEN or REFUTED according to what the audits saw. Where they read the private
    data, which of the two it is depends on them, and is withheld.
    """
    if assay.verdict_is_private:
        return None, WITHHELD_EX_POST
    claim = text.claimed(assay.claim)
    match assay.verdict:
        case "SUPPORTED" if upper is not None and (upper == assay.best_upper or _within(upper, claim)):
            return "SUPPORTED", None
        case "REFUTED" if lower is not None and (lower == assay.best_lower or not _within(lower, claim)):
            return "REFUTED", None
        case "UNPROVEN" if not assay.audits and not any(row.private for row in assay.bounds):
            return "UNPROVEN", None
    return None, WITHHELD_AUDITS


def _within(row: BoundRow, claim: text.Claimed | None) -> bool:
    return claim is not None and float(row.value) <= claim.value


def _sentence(assay: Assay, verdict: str | None, upper: BoundRow | None) -> str:
    """The verdict in one sentence that uses releasable numbers only."""
    claim = text.claimed(assay.claim)
    finite = upper if upper is not None and float(upper.value) != math.inf else None
    at = f" at δ = {text.number(finite.delta)}" if finite and finite.delta else ""
    proven = f"{text.bound(finite)}{at} ({text.method(finite.method)}, certified)" if finite else None
    if assay.verdict_is_private:
        if proven is None:
            return "Whether an ex-post claim holds depends on the private data. No finite a-priori bound is known."
        return (
            "Whether an ex-post claim holds depends on the private data. "
            f"A priori, before any data is read, the mechanism satisfies {proven}."
        )
    asked = f"the claimed {claim.symbol} ≤ {text.number(claim.value)}" if claim is not None else "the claim"
    match verdict:
        case "SUPPORTED":
            return f"SUPPORTED: the best certified upper bound, {proven}, is within {asked}."
        case "REFUTED":
            return f"REFUTED: a lower bound that does not depend on the private data exceeds {asked}."
        case "UNPROVEN":
            return f"UNPROVEN: {_falls_short(proven, asked)}"
    if finite is not None and _within(finite, claim):
        return "Verdict withheld: it rests on audits of the private data."
    return (
        f"Verdict withheld between UNPROVEN and REFUTED: {_falls_short(proven, asked)} "
        "Whether an audit refutes the claim depends on the private data."
    )


def _falls_short(proven: str | None, asked: str) -> str:
    if proven is None:
        return f"no certified upper bound is known that could support {asked}."
    return f"the best certified upper bound, {proven}, does not reach {asked}."
