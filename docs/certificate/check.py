"""Checks a release of dpassay by its certificate, with Python alone: ``python check.py RELEASE [KEY [LEDGER]]``.

RELEASE is the folder, KEY the public key that must have signed (64 hexadecimal digits, or "" for any), and LEDGER the
private ledger of the run, or its export (.jsonl), which must record the release. Only to check a signature is a library
needed: cryptography.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

Kind = Callable[[Any], bool]


def canonical(value: Any) -> str:
    """Canonical JSON (RFC 8785): sorted names, no spaces, numbers as ECMAScript writes them."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value, ensure_ascii=False)
    if not math.isfinite(float(value)):
        raise ValueError(value)
    if value <= 0:
        return "-" + canonical(-value) if value else "0"
    _, shortest, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    digits = "".join(map(str, shortest))
    point = len(digits) + int(exponent)  # where the decimal point is
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{digits.rjust(len(digits) - point, '0')}"
    return f"{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{point - 1:+d}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def one_of(*values: str) -> Kind:
    return lambda value: isinstance(value, str) and value in values


def or_null(kind: Kind) -> Kind:
    return lambda value: value is None or kind(value)


def list_of(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def by_name(kind: Kind) -> Kind:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def fields(kinds: dict[str, Kind]) -> Kind:
    """An object with these names and no others."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() == kinds.keys()
        and all(kinds[name](inner) for name, inner in value.items())
    )


def anything(_: Any) -> bool:
    return True


def text(value: Any) -> bool:
    return isinstance(value, str)


def number(value: Any) -> bool:
    return type(value) in (int, float) or value in ("inf", "-inf")


def probability(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def interval_with(value: Any, ends: Any) -> bool:
    """Whether an interval has two ends in order, of which one is the value of its bound; null is none."""
    return ends is None or (
        list_of(number)(ends) and len(ends) == 2 and value in ends and float(ends[0]) <= float(ends[1])
    )


def unit(value: Any) -> bool:
    return text(value) and bool(re.fullmatch(r"record|user|secret|(user|group)\([1-9][0-9]*\)", value))


ADJACENCY = one_of("add_remove", "replace_one", "zero_out", "secret")
AUDIT = fields({"name": text, "game": text, "attack": text, "statistics": list_of(text)})
OF_BOUND: dict[str, Kind] = {
    **dict.fromkeys(("at", "ceiling", "delta"), or_null(number)),
    **dict.fromkeys(("null_family", "source"), or_null(text)),
    **{"adjacency": ADJACENCY, "assumptions": list_of(text), "interval": anything, "method": text, "unit": unit},
    **{"direction": one_of("upper"), "private": lambda value: value is False, "value": number},
    "confidence": lambda value: value is None or (probability(value) and 0 < value < 1),
    "quantity": one_of("epsilon", "delta", "rho", "mu", "renyi_epsilon", "beta", "r"),
    "rigor": one_of("certified", "finite_sample", "asymptotic", "credible", "model_conditional", "estimate"),
}


def bound(value: Any) -> bool:
    if not fields(OF_BOUND)(value) or not interval_with(value["value"], value["interval"]):
        return False
    is_function = value["quantity"] not in ("epsilon", "rho", "mu")
    confident = value["rigor"] != "finite_sample" or value["confidence"] is not None
    return (value["at"] is not None) == is_function and confident


FILE = fields({"certificate": by_name(anything), "sha256": anything, "signature": anything})
STATEMENT: dict[str, Kind] = {
    **dict.fromkeys(("created", "guarantee", "ledger", "name", "result", "sentence"), text),
    **dict.fromkeys(("accepted", "key"), or_null(text)),
    **dict.fromkeys(("assumptions", "not_protected", "shortfalls", "tested"), list_of(text)),
    **dict.fromkeys(("files", "implementation", "versions"), by_name(text)),
    **{"adjacency": ADJACENCY, "audits": list_of(AUDIT), "best_upper": or_null(bound), "bounds": list_of(bound)},
    **{"claim": by_name(anything), "composition": or_null(by_name(anything)), "delta": or_null(probability)},
    **{"holds_for": one_of("every output", "this output"), "schema": number, "type": text, "unit": unit},
}


def check_certificate(content: bytes, key: str = "") -> dict[str, Any]:
    """What a certificate states: its form, SHA-256, signature and key, and that it does not contradict itself."""
    try:
        file = json.loads(content.decode("utf-8"))
        whole = f"{canonical(file)}\n".encode() == content and FILE(file)
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        whole = False
    if not whole:
        raise SystemExit("certificate.json: is no certificate, or was changed")
    body, signature = file["certificate"], file["signature"]
    signed = canonical(body).encode()
    if file["sha256"] != sha256(signed):
        raise SystemExit("certificate.json: was changed: its SHA-256 is another than the one that it states")
    named = body.get("key")
    if (named is not None or signature is not None) and not is_signed(signed, str(signature), str(named)):
        raise SystemExit("certificate.json: its signature is wrong")
    if key and key != named:
        raise SystemExit(f"certificate.json: {'is not signed' if named is None else 'is signed by another key'}")
    if (body.get("type"), repr(body.get("schema"))) != ("dpassay certificate", "1"):
        raise SystemExit("certificate.json: has a schema that this page does not know")
    if wrong := [name for name in STATEMENT if name not in body or not STATEMENT[name](body[name])]:
        raise SystemExit(f"certificate.json: is no certificate: {wrong[0]} is missing, or is none")
    if more := sorted(body.keys() - STATEMENT.keys()):
        raise SystemExit(f"certificate.json: is no certificate: it has a field {more[0]!r}")
    if wrong := contradictions(body):
        raise SystemExit(f"certificate.json: contradicts itself: {wrong[0]}")
    return dict(body)


ARGUMENT = {"rdp": "alpha", "secret_protection": "p"}
CLAIMED = {
    **dict.fromkeys(("pure_dp", "approx_dp", "rdp", "ex_post"), "epsilon"),
    **{"zcdp": "rho", "gdp": "mu", "secret_protection": "r"},
}


def claimed(claim: dict[str, Any]) -> tuple[float | None, float | None]:
    """The claimed number and its δ; twice None for a guarantee that is not one number."""
    try:
        guarantee = claim["guarantee"]
        kind, delta = guarantee["type"], guarantee.get("delta")
        float(guarantee[ARGUMENT[kind]] if kind in ARGUMENT else 0)
        if isinstance(delta, str) and delta.startswith("n^"):
            delta = float(claim["public"]["records"]) ** float(delta[2:])
        return float(guarantee[CLAIMED[kind]]), None if delta is None else float(delta)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None, None


def contradictions(body: dict[str, Any]) -> list[str]:
    """The fields in which a certificate contradicts itself."""
    claim, best, guarantee = body["claim"], body["best_upper"], body["claim"].get("guarantee")
    relation = [claim.get("adjacency", "add_remove"), claim.get("unit", "record")]
    limit, delta = claimed(claim)
    ex_post = isinstance(guarantee, dict) and guarantee.get("type") == "ex_post"
    reached = best is not None and limit is not None and float(best["value"]) <= limit
    return [
        what
        for what, right in {
            "adjacency, unit": [body["adjacency"], body["unit"]] == relation,
            "best_upper": best is None or (best in body["bounds"] and [best["adjacency"], best["unit"]] == relation),
            "delta": body["delta"] == delta,
            "holds_for": (body["holds_for"] == "this output") == ex_post,
            "result": body["result"] != "The proof reaches the claim" or reached,
            "shortfalls, accepted": (body["accepted"] is None) == (not body["shortfalls"]),
            "tested": set(body["tested"]) <= set(body["assumptions"]),
        }.items()
        if not right
    ]


def is_signed(text: bytes, signature: str, key: str) -> bool:
    """Whether an Ed25519 signature is that of a text by a public key, both in hexadecimal digits."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    written = (bytes.fromhex(key).hex(), bytes.fromhex(signature).hex())  # small letters, no spaces
    return written == (key, signature) and not is_weak(bytes.fromhex(key))


def is_weak(key: bytes) -> bool:
    """Whether a public key is a point of order 1, 2, 4 or 8, for which anybody can sign, or is not below p."""
    p = 2**255 - 19
    d, y = -121665 * pow(121666, -1, p), int.from_bytes(key, "little") % 2**255
    return y >= p or y * (y * y - 1) * (d * y**4 + 2 * y * y - 1) % p == 0


def check_files(folder: Path, certified: dict[str, str]) -> None:
    """Every certified file is there, is no link and has its SHA-256, and there is no other."""
    for name, digest in sorted(certified.items()):
        if name in ("", ".", "..", "certificate.json") or len(name.encode()) > 255 or set(name) & set("/\\\0"):
            raise SystemExit(f"certificate.json: names {name!r}, which is no file of a release")
        check_file(folder / name)
        if sha256((folder / name).read_bytes()) != digest:
            raise SystemExit(f"{name}: was changed or exchanged")
    for path in sorted(folder.iterdir()):
        if path.name not in certified and path.name != "certificate.json":
            raise SystemExit(f"{path.name}: is not in the certificate")


def check_file(path: Path) -> None:
    if path.is_symlink() or not path.is_file():
        raise SystemExit(f"{path.name}: is missing, or is no regular file")


def check_ledger(ledger: Path, head: str, files: dict[str, str]) -> None:
    """The hashes of the ledger chain, an entry has the certified head, and a later one records the release."""
    columns = ("seq", "run", "kind", "body", "previous", "hash")
    if ledger.suffix == ".jsonl":
        lines = ledger.read_text(encoding="utf-8").split("\n")[:-1]
        rows = [tuple(json.loads(line)[column] for column in columns) for line in lines]
    else:
        database = sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)
        rows = database.execute(f"SELECT {', '.join(columns)} FROM entries ORDER BY seq").fetchall()
        database.close()
    previous, known, recorded = "0" * 64, False, False
    for number, (seq, run, kind, body, before, digest) in enumerate(rows, 1):
        if (seq, before) != (number, previous) or digest != sha256(f"{seq}\n{run}\n{kind}\n{before}\n{body}".encode()):
            raise SystemExit(f"{ledger.name}: entry {number}: was changed, or one before it was removed")
        recorded = recorded or (known and kind == "release" and json.loads(body).get("files") == files)
        previous, known = digest, known or digest == head
    if not known or not recorded:
        raise SystemExit(f"{ledger.name}: does not record this release: its end was cut off, or it is another one")


def check(folder: Path, key: str = "", ledger: str = "") -> dict[str, Any]:
    """What the certificate of a release states; `SystemExit` names the first file that is not as certified."""
    check_file(folder / "certificate.json")
    content = (folder / "certificate.json").read_bytes()
    body = check_certificate(content, key)
    check_files(folder, body["files"])
    if ledger:
        check_ledger(Path(ledger), body["ledger"], {**body["files"], "certificate.json": sha256(content)})
    return body


if __name__ == "__main__":
    stated = check(Path(sys.argv[1]), *sys.argv[2:])
    print(f"All {len(stated['files'])} files are as certified; signed by {stated['key'] or 'nobody'}.")
    print(f"Claim: {stated['guarantee']}. {stated['sentence']}")
