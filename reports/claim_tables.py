"""The claim of a report as tables: what is claimed, the parameters, the data, what is public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from cupel.accounting.number_format import format_number
from cupel.reports import text
from cupel.reports.assay import Assay, Secrets
from cupel.reports.release import Release

Rows: TypeAlias = list[tuple[str, str]]


def claim_rows(assay: Assay | Release) -> Rows:
    """What is claimed of what."""
    claim = assay.claim
    unit = str(claim.get("unit", "record"))
    rows = [
        ("Guarantee", assay.guarantee),
        ("What that says", text.guarantee_means(claim)),
        ("Unit", unit),
        ("Neighbouring data", text.adjacency(str(claim.get("adjacency", "")), unit)),
        ("Mechanism", text.mechanism(claim)),
        ("Variant", text.VARIANTS.get(str(claim.get("variant", "")), str(claim.get("variant", "")))),
        ("Language model", str(claim.get("model", ""))),
    ]
    audits = claim.get("audits")
    if isinstance(audits, list):
        rows.append(("Audits asked for", ", ".join(text.AUDITS.get(str(a), str(a)) for a in audits) or "none"))
    return [(label, value) for label, value in rows if value]


def parameters(claim: Mapping[str, Any]) -> list[tuple[str, Rows]]:
    """The tables of what a claim sets: of the mechanism, of the data, and what is public by assumption."""
    parts = [("Parameters", "parameters"), ("Data", "data"), ("Public by assumption", "public")]
    tables = [(caption, _given(claim.get(key))) for caption, key in parts]
    return [(caption, rows) for caption, rows in tables if rows]


def _given(values: Any) -> Rows:
    """The entries of a mapping that are set, a row each."""
    if not isinstance(values, Mapping):
        return []
    given = {key: value for key, value in values.items() if value not in (None, "", [])}
    return [(text.capital(str(key).replace("_", " ")), text.quoted(value)) for key, value in given.items()]


def secret_rows(secrets: Secrets | None) -> Rows:
    """Which records hold secrets, and how they are released; empty for other claims."""
    if secrets is None:
        return []
    return [
        ("Records that hold a secret", text.plain(secrets.private_records)),
        ("Records without a secret", text.plain(secrets.public_records)),
        ("Noisy releases", text.plain(secrets.releases)),
        ("Private records in a release, on average", format_number(secrets.expected_sample)),
        ("Noise σ, for an occurrence of length 1", format_number(secrets.sigma)),
    ]
