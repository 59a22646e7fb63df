"""The certificate of a release: what is claimed and proven, and the SHA-256 of every released file, as canonical JSON.

A certificate is made from the releasable part of an assay, so it holds nothing that the released page may not hold. Its
file is ``{"certificate": …, "sha256": …, "signature": …}``: the SHA-256 of the canonical text of the first, and the
Ed25519 signature of the same text, or null. `read_certificate` checks it in this order, and trusts nothing before the
check that covers it has passed: form, SHA-256, signature, key, schema, contradictions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ARGUMENTS, WITHOUT_ARGUMENT
from dpassay.base.canonical_json import canonical_json
from dpassay.base.errors import InputError
from dpassay.base.signing import SigningKey, is_signed
from dpassay.reports.assay import DIALECT, DocumentPart
from dpassay.reports.claim import claimed
from dpassay.reports.json_form import Bound
from dpassay.reports.release import REACHED, Release, ReleasedAudit, is_ex_post, may_leave, reaches

CERTIFICATE = "certificate.json"
SCHEMA_VERSION: Final = 1


class Certificate(DocumentPart):
    """What is certified of a release. Nothing here is private."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    type: Literal["dpassay certificate"]
    name: str = Field(description="of the claim and of its run")
    created: str = Field(description="when the release was made; ISO 8601, UTC")
    claim: dict[str, Any] = Field(description="as in claim.json")
    guarantee: str = Field(description="what is claimed, in words")
    holds_for: Literal["every output", "this output"] = Field(
        description="what the claim is about; bounds are about every output"
    )
    unit: str
    adjacency: str
    delta: float | None = Field(ge=0, le=1, description="the δ of the claim; None where it has none")
    result: str = Field(description="the headline of the released page")
    sentence: str = Field(description="the same in one or two sentences")
    best_upper: Bound | None = Field(description="the best of `bounds` that counts for the claim")
    bounds: list[Bound] = Field(description="upper bounds on what the composition may leak")
    assumptions: list[str] = Field(description="what the bounds rest on besides the composition")
    tested: list[str] = Field(description="those of `assumptions` that were tested for this run, at its own sizes")
    composition: dict[str, Any] | None = Field(description="the events that the run was charged, which are its plan")
    shortfalls: list[str] = Field(description="where what is proven falls short of what is claimed")
    accepted: str | None = Field(description="why it was released all the same")
    audits: list[ReleasedAudit] = Field(description="which audits were made; what they found is private")
    not_protected: list[str]
    ledger: str = Field(description="the head of the ledger before the release was recorded there")
    files: dict[str, str] = Field(description="name → SHA-256 of every other file of the release")
    implementation: dict[str, str]
    versions: dict[str, str]
    key: str | None = Field(description="the public key of whoever signed, 64 hexadecimal digits; None without")

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


_UNCHANGED = (
    *("name", "claim", "guarantee", "sentence", "best_upper", "bounds", "shortfalls", "audits"),
    *("not_protected", "implementation", "versions"),
)


def certificate_of(page: Release, files: Mapping[str, str], created: str, key: str | None) -> Certificate:
    """The certificate of a release.

    Args:
        page: what is released.
        files: name → SHA-256 of the files of the release.
        created: when it was made.
        key: the public key by which it will be signed.
    """
    what = claimed(page.claim)
    assumptions = list(dict.fromkeys(words for row in page.bounds for words in row.assumptions))
    return Certificate(
        **{name: getattr(page, name) for name in _UNCHANGED},
        type="dpassay certificate",
        created=created,
        holds_for="this output" if is_ex_post(page.claim) else "every output",
        unit=str(page.claim.get("unit", "record")),
        adjacency=str(page.claim.get("adjacency", "add_remove")),
        delta=what.delta if what is not None else None,
        result=page.headline,
        assumptions=assumptions,
        tested=[words for words in assumptions if words in page.tested],
        composition=page.ledger.composition,
        accepted=page.accepted.reason if page.accepted is not None else None,
        ledger=page.ledger.head,
        files=dict(files),
        key=key,
    )


def write_certificate(certificate: Certificate, key: SigningKey | None = None) -> str:
    """The file of a certificate, signed where it names a key, which must then be given."""
    body = certificate.model_dump(mode="json")
    text = canonical_json(body).encode("utf-8")
    signature = key.sign(text) if key is not None else None
    return canonical_json({"certificate": body, "sha256": _sha256(text), "signature": signature}) + "\n"


def read_certificate(content: bytes, key: str | None = None) -> Certificate:
    """Checks the file of a certificate, and reads it.

    Args:
        content: of the file.
        key: the public key by which it must be signed; None for any, or for none.

    Raises:
        InputError: one line that says what is wrong, or that `cryptography` is not installed to check a signature.
    """
    file = _parsed(content)
    body, signature = file["certificate"], file["signature"]
    text = canonical_json(body).encode("utf-8")
    if file["sha256"] != _sha256(text):
        raise InputError("was changed: its SHA-256 is another than the one that it states")
    named = body.get("key")
    if (named, signature) != (None, None) and not (
        isinstance(named, str) and isinstance(signature, str) and is_signed(text, signature, named)
    ):
        raise InputError("its signature is wrong: it was changed, or not signed by the key that it names")
    if key is not None and key != named:
        raise InputError("is not signed" if named is None else f"is signed by another key, {named}")
    return _valid(body)


def _parsed(content: bytes) -> dict[str, Any]:
    """The file as an object with exactly its three names, if it is the canonical text of that."""
    try:
        file = json.loads(content.decode("utf-8"))
        whole = f"{canonical_json(file)}\n".encode() == content
    except (ValueError, RecursionError):
        whole = False
    if not whole or not isinstance(file, dict) or set(file) != {"certificate", "sha256", "signature"}:
        raise InputError("is no certificate, or was changed: it is not the canonical JSON of one")
    if not isinstance(file["certificate"], dict):
        raise InputError("is no certificate: it states nothing")
    return file


def _valid(body: dict[str, Any]) -> Certificate:
    schema = body.get("schema")
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise InputError(f"has schema {schema!r}; this version of dpassay reads schema {SCHEMA_VERSION}")
    try:
        certificate = Certificate.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"is no certificate: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if canonical_json(certificate.model_dump(mode="json")) != canonical_json(body):  # such as "1.25" in place of 1.25
        raise InputError("is no certificate: a value is missing, or of another type than that of the schema")
    if (contradiction := next(_contradictions(certificate), None)) is not None:
        raise InputError(f"contradicts itself: {contradiction}")
    return certificate


def _contradictions(body: Certificate) -> Iterator[str]:
    """Where a certificate says what `certificate_of` never writes, a sentence each."""
    try:
        Adjacency(body.adjacency), Unit.parse(body.unit)
    except ValueError as error:
        yield str(error)
    what, best = claimed(body.claim), body.best_upper
    relation = str(body.claim.get("adjacency", "add_remove")), str(body.claim.get("unit", "record"))
    if (body.adjacency, body.unit) != relation:
        yield "its adjacency and unit are not those of its claim"
    if body.delta != (what.delta if what is not None else None):
        yield "its delta is not that of its claim"
    if (body.holds_for == "this output") != is_ex_post(body.claim):
        yield "holds_for is not about the outputs that its claim is about"
    if not all(may_leave(row) for row in body.bounds):
        yield "a bound is private, or is no upper bound"
    if not all(row.quantity in (*ARGUMENTS, *WITHOUT_ARGUMENT) for row in body.bounds):
        yield "a bound is on a quantity that there is not"
    if best is not None and (best not in body.bounds or (str(best.adjacency), str(best.unit)) != relation):
        yield "best_upper is none of its bounds, or is not about what its claim is about"
    if body.result == REACHED and (what is None or not reaches(what, best)):
        yield "its proof does not reach its claim"
    if not set(body.tested) <= set(body.assumptions):
        yield "what was tested is none of its assumptions"
    if (body.accepted is None) != (not body.shortfalls):
        yield "what falls short of the claim is accepted, or nothing falls short"


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``certificate.json`` holds under the name ``certificate``."""
    schema = Certificate.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": DIALECT, "$comment": f"dpassay certificate, schema version {SCHEMA_VERSION}", **schema}
