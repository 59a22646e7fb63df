"""What of an assay may leave the building: a whitelist, field by field. What is not named here stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    bounds: list[BoundRow] = []


class ReleasedLedger(Part):
    head: str
    events: int | None = Field(description="None where the events differ from the plan, which the data may have caused")
    composition: dict[str, Any] | None


class Release(Part):
    """The releasable projection of an assay. Names are those of `Assay`."""

    schema_: Literal[1] = Field(SCHEMA_VERSION, alias="schema")
    name: str
    created: str
    claim: dict[str, Any]
    guarantee: str
    verdict: Literal["SUPPORTED", "REFUTED", "UNPROVEN"] | None = Field(description="None: withheld")
    withheld: str | None = Field(description="what stands in place of a withheld verdict")
    sentence: str
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
    verdict, withheld = _verdict(assay, bounds)
    return Release(
        name=assay.name,
        created=assay.created,
        claim=_claim(assay.claim),
        guarantee=assay.guarantee,
        verdict=verdict,
        withheld=withheld,
        sentence=_sentence(assay, verdict, bounds),
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
        implementation={key: value for key, value in assay.implementation.items() if is_public_fact(key)},
        versions=assay.versions,
    )


def is_public_fact(key: str) -> bool:
    """Whether an implementation fact of this name may be released."""
    return key.replace("_", " ").lower() in PUBLIC_FACTS


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


def _verdict(
    assay: Assay, bounds: list[BoundRow]
) -> tuple[Literal["SUPPORTED", "REFUTED", "UNPROVEN"] | None, str | None]:
    """The verdict, if the releasable bounds alone carry it; else what stands in its place.

    A claim that is not SUPPORTED is UNPROVEN or REFUTED according to what the audits saw. Where they read the private
    data, which of the two it is depends on them, and is withheld.
    """
    if assay.verdict_is_private:
        return None, WITHHELD_EX_POST
    claim = text.claimed(assay.claim)
    if claim is None:
        return None, WITHHELD_AUDITS
    released = [*bounds, *(row for audit in assay.audits for row in audit.bounds if not row.private)]
    upper, lower = text.best(released, claim, "upper"), text.best(released, claim, "lower")
    match assay.verdict:
        case "SUPPORTED" if upper is not None and float(upper.value) <= claim.value:
            return "SUPPORTED", None
        case "REFUTED" if lower is not None and float(lower.value) > claim.value:
            return "REFUTED", None
        case "UNPROVEN" if not _audits_are_private(assay):
            return "UNPROVEN", None
    return None, WITHHELD_AUDITS


def _audits_are_private(assay: Assay) -> bool:
    rows: Iterable[BoundRow] = (*assay.bounds, *(row for audit in assay.audits for row in audit.bounds))
    return any(row.private for row in rows) or bool(assay.audits)


def _sentence(assay: Assay, verdict: str | None, bounds: list[BoundRow]) -> str:
    """The verdict in one sentence that uses releasable numbers only."""
    claim = text.claimed(assay.claim)
    upper = text.best(bounds, claim, "upper") if claim is not None else None
    finite = upper if upper is not None and float(upper.value) != float("inf") else None
    proven = f"{text.bound(finite)} ({text.method(finite.method)}, certified)" if finite else None
    if assay.verdict_is_private:
        says = (
            f"A priori, before any data is read, the mechanism satisfies {proven}."
            if proven
            else "No finite a-priori bound is known."
        )
        return f"{WITHHELD_EX_POST[0].upper()}{WITHHELD_EX_POST[1:]}: it depends on the private data. {says}"
    asked = f"the claimed {claim.symbol} ≤ {text.number(claim.value)}" if claim is not None else "the claim"
    match verdict:
        case "SUPPORTED":
            return f"SUPPORTED: the best certified upper bound, {proven}, is within {asked}."
        case "REFUTED":
            return f"REFUTED: a lower bound that does not depend on the private data exceeds {asked}."
        case "UNPROVEN":
            return f"UNPROVEN: {_falls_short(proven, asked)}"
    if claim is not None and finite is not None and float(finite.value) <= claim.value:
        return "Verdict withheld: it rests on audits of the private data."
    return (
        f"Verdict withheld between UNPROVEN and REFUTED: {_falls_short(proven, asked)} "
        "Whether an audit refutes the claim depends on the private data."
    )


def _falls_short(proven: str | None, asked: str) -> str:
    if proven is None:
        return f"no certified upper bound is known that could support {asked}."
    return f"the best certified upper bound, {proven}, does not reach {asked}."
