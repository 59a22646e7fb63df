"""Cases of certificates: the release that all of them are changes of, and how it is changed.

Nothing here imports dpassay. JSON is written by `canonical` below, whose numbers are tested against those that RFC 8785
prints. The keys are made from texts that anybody can read, so they are good for tests alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CERTIFICATE = "certificate.json"
ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of the group of Ed25519 (RFC 8032)."""
FIELD = 2**255 - 19

RFC_8785 = json.loads(Path(__file__).with_name("rfc8785_numbers.json").read_text(encoding="ascii"))
"""Numbers of RFC 8785, appendix B: the bits of the binary64 number, and its text."""


@dataclass(frozen=True)
class Text:
    """JSON that is written as it is."""

    json: str


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


Content = bytes | Link


@dataclass(frozen=True)
class Case:
    """A release, and what a verifier must say of it.

    Attributes:
        about: what is tested, one sentence.
        made: how it was made, one sentence.
        files: path in the folder of the release → content.
        at_fault: the file that is not as certified; empty if all are.
        key: the key that must have signed; empty for any, or none.
        ledger: the exported ledger that must record the release; None for none.
    """

    about: str
    made: str
    files: Mapping[str, Content]
    at_fault: str = ""
    key: str = ""
    ledger: bytes | None = None


def number(value: float) -> str:
    """A finite number in the form of ECMAScript."""
    if value == 0:
        return "0"
    digits, _, exponent = f"{Decimal(repr(abs(value))):e}".replace(".", "").partition("e")
    power = int(exponent)
    digits = digits.rstrip("0") or "0"
    if -7 < power < 0:
        text = "0." + "0" * (-power - 1) + digits
    elif 0 <= power < 21:
        text = digits[: power + 1].ljust(power + 1, "0") + (
            "." + digits[power + 1 :] if len(digits) > power + 1 else ""
        )
    else:
        text = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + f"e{power:+d}"
    return "-" + text if value < 0 else text


def canonical(value: Any, order: Callable[[str], Any] = lambda name: name.encode("utf-16-be", "surrogatepass")) -> str:
    """Canonical JSON (RFC 8785)."""
    if isinstance(value, Text):
        return value.json
    if isinstance(value, dict):
        rows = (f"{canonical(name)}:{canonical(value[name], order)}" for name in sorted(value, key=order))
        return "{" + ",".join(rows) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, order) for item in value) + "]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(float(value))
    return json.dumps(value, ensure_ascii=False)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def private(name: str) -> Ed25519PrivateKey:
    """A key for tests: its secret is the SHA-256 of a public text."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"test key of dpassay: {name}".encode()).digest())


SIGNER, OTHER = private("signer"), private("other")
KEY, OTHER_KEY = (key.public_key().public_bytes_raw().hex() for key in (SIGNER, OTHER))

# The release that all cases are changes of.

CLAIM = {
    "adjacency": "add_remove",
    "guarantee": {"epsilon": 1.5, "type": "pure_dp"},
    "mechanism": "private_inference",
    "name": "case",
    "parameters": {"clip": 2.5},
    "public": {"records": 28},
    "unit": "record",
}
BOUND = {
    "adjacency": "add_remove",
    "assumptions": ["The number of records is public."],
    "at": None,
    "ceiling": None,
    "confidence": None,
    "delta": None,
    "direction": "upper",
    "interval": None,
    "method": "basic",
    "null_family": None,
    "private": False,
    "quantity": "epsilon",
    "rigor": "certified",
    "source": None,
    "unit": "record",
    "value": 1.25,
}
REACHED, NOT_REACHED = "The proof reaches the claim", "The proof does not reach the claim"
BODY: dict[str, Any] = {
    "accepted": None,
    "adjacency": "add_remove",
    "assumptions": ["The number of records is public."],
    "audits": [],
    "best_upper": BOUND,
    "bounds": [BOUND],
    "claim": CLAIM,
    "composition": {"delta": 0, "epsilon": 1.25, "type": "EpsilonDeltaDpEvent"},
    "created": "2026-01-02T03:04:05+00:00",
    "delta": None,
    "files": {},
    "guarantee": "pure differential privacy with ε = 1.5",
    "holds_for": "every output",
    "implementation": {"source of noise": "operating system entropy"},
    "key": None,
    "ledger": "5" * 64,
    "name": "case",
    "not_protected": ["The number of records (28) is public by assumption."],
    "result": REACHED,
    "schema": 1,
    "sentence": "The best certified upper bound, ε ≤ 1.25 (certified), is within the claimed ε ≤ 1.5.",
    "shortfalls": [],
    "tested": [],
    "type": "dpassay certificate",
    "unit": "record",
    "versions": {"dpassay": "0"},
}
DOCUMENT = "synthetic.jsonl"
DOCUMENTS: dict[str, bytes] = {DOCUMENT: b'{"text":"one"}\n{"text":"two"}\n'}

WHOLE = "A whole release, written by certificate_cases.py."
CHANGED = "A whole release; then the bytes of certificate.json were changed, and nothing else."
RESEALED = "The statement was changed, and its SHA-256 and, if there is one, its signature were computed anew."
EXCHANGED = "A whole release; then its folder was changed, and the certificate was not."


def outer(body: Any, signer: Ed25519PrivateKey | None = None) -> dict[str, Any]:
    """The three parts of the file of a certificate."""
    text = canonical(body).encode("utf-8", "surrogatepass")
    return {
        "certificate": body,
        "sha256": sha256(text),
        "signature": None if signer is None else signer.sign(text).hex(),
    }


def line(value: Any) -> bytes:
    """Canonical JSON and a line break."""
    return f"{canonical(value)}\n".encode("utf-8", "surrogatepass")


def body_of(documents: Mapping[str, bytes], signer: Ed25519PrivateKey | None = None, **changes: Any) -> dict[str, Any]:
    """The statement of a certificate of these documents."""
    key = None if signer is None else signer.public_key().public_bytes_raw().hex()
    files = {name: sha256(content) for name, content in documents.items()}
    return {**BODY, "files": files, "key": key, **changes}


def release(
    documents: Mapping[str, bytes] = DOCUMENTS, signer: Ed25519PrivateKey | None = None, **changes: Any
) -> dict[str, Content]:
    """The files of a whole release."""
    return {CERTIFICATE: line(outer(body_of(documents, signer, **changes), signer)), **documents}


def accepted(about: str, files: Mapping[str, Content], **more: Any) -> Case:
    return Case(about, WHOLE, files, **more)


def of_claim(**changes: Any) -> dict[str, Any]:
    """The changes of a statement whose claim has these keys, too."""
    return {"claim": {**CLAIM, **changes}}


def of_bounds(*rows: dict[str, Any], best: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The changes of a statement with these bounds."""
    return {"bounds": list(rows), "best_upper": best or (rows[0] if rows else None), **more}


def about_relation(adjacency: str, unit: str) -> dict[str, Any]:
    """The changes of a statement about another neighbouring relation or unit."""
    row = {**BOUND, "adjacency": adjacency, "unit": unit}
    return of_bounds(row, adjacency=adjacency, unit=unit, **of_claim(adjacency=adjacency, unit=unit))


GAUSSIAN = {
    **BOUND,
    "delta": 1e-6,
    "interval": [0.9384768410498431, 0.9384768410498432],
    "method": "lattice",
    "value": 0.9384768410498432,
}
APPROXIMATE = {
    **of_bounds(GAUSSIAN, delta=1e-6),
    **of_claim(guarantee={"type": "approx_dp", "epsilon": 1, "delta": 1e-6}),
    "guarantee": "(ε, δ)-differential privacy with ε = 1 and δ = 1e-6",
}
FALLS_SHORT = {
    "accepted": "An early draft.",
    "result": NOT_REACHED,
    "shortfalls": ["The best certified bound, ε ≤ 1.25, is above the claim."],
    **of_claim(guarantee={"type": "pure_dp", "epsilon": 1}),
}
AUDIT = {
    "attack": "likelihood ratio",
    "game": "leave one out",
    "name": "leave_one_out",
    "statistics": ["one_run", "clopper_pearson"],
}
MECHANISMS = (
    *("private_inference", "aug_pe", "secret_evolution", "dataset_vectors", "two_stage", "marginals"),
    *("table_evolution", "declared"),
)
ODD = "\u0000\u0008\t\n\u000b\f\r\u001f \"\\/\u007f\u0080\u2028\u2029<>&'"


# Ledgers.

Entry = tuple[str, str, dict[str, Any]]
"""Run, kind and body."""


def chain(entries: list[Entry]) -> list[dict[str, Any]]:
    """The rows of an exported ledger."""
    rows: list[dict[str, Any]] = []
    previous = "0" * 64
    for seq, (run, kind, body) in enumerate(entries, 1):
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        digest = sha256(f"{seq}\n{run}\n{kind}\n{previous}\n{text}".encode())
        rows.append({"seq": seq, "run": run, "kind": kind, "body": text, "previous": previous, "hash": digest})
        previous = digest
    return rows


def exported(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def run_entries(salt: str = "7" * 64) -> list[Entry]:
    """A finished run that was charged nothing."""
    event = {"type": "NoOpDpEvent"}
    about = {"assumptions": [], "estimates": [], "exact": True, "noise": "os", "stated": {}, "unstated": []}
    return [
        ("", "open", {"format": 2, "salt": salt}),
        ("case", "begin", {"about": about, "adjacency": "add_remove", "plan": event, "unit": "record"}),
        ("case", "finish", {"charged": event}),
    ]


def recorded(files: Mapping[str, Content]) -> Entry:
    """The entry that records a release."""
    digests = {name: sha256(content) for name, content in files.items() if isinstance(content, bytes)}
    about = {"accepted": None, "created": BODY["created"], "shortfalls": [], "version": "0"}
    return "case", "release", {**about, "files": digests}


RUN = run_entries()
HEAD = chain(RUN)[-1]["hash"]
IN_LEDGER = release(ledger=HEAD)
AGAIN = release(ledger=HEAD, created="2026-02-03T04:05:06+00:00")
