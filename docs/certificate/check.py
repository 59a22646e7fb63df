"""Checks a release of dpassay by its certificate, with Python alone: ``python check.py RELEASE [KEY [LEDGER]]``.

RELEASE is the folder, KEY the public key that must have signed (64 hexadecimal digits, or "" for any), and LEDGER the
private ledger of the run, which must record the release. Only to check a signature is a library needed: cryptography.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any


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


def check_certificate(content: bytes, key: str = "") -> dict[str, Any]:
    """What a certificate states: its form, its SHA-256, its signature and whose that is have been checked."""
    try:
        file = json.loads(content.decode("utf-8"))
        whole = f"{canonical(file)}\n".encode() == content and set(file) == {"certificate", "sha256", "signature"}
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        whole = False
    if not whole or not isinstance(file["certificate"], dict):
        raise SystemExit("certificate.json: is no certificate, or was changed")
    body, signature = file["certificate"], file["signature"]
    text = canonical(body).encode()
    if file["sha256"] != sha256(text):
        raise SystemExit("certificate.json: was changed: its SHA-256 is another than the one that it states")
    named = body.get("key")
    if (named is not None or signature is not None) and not is_signed(text, str(signature), str(named)):
        raise SystemExit("certificate.json: its signature is wrong")
    if key and key != named:
        raise SystemExit(f"certificate.json: {'is not signed' if named is None else 'is signed by another key'}")
    if (body.get("type"), body.get("schema")) != ("dpassay certificate", 1):
        raise SystemExit("certificate.json: has a schema that this page does not know")
    return body


def is_signed(text: bytes, signature: str, key: str) -> bool:
    """Whether an Ed25519 signature is that of a text by a public key, both in hexadecimal digits."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return (bytes.fromhex(key).hex(), bytes.fromhex(signature).hex()) == (key, signature)  # small letters, no spaces


def check_files(folder: Path, certified: dict[str, str]) -> None:
    """Every certified file is there and has its SHA-256, and there is no other."""
    for name, digest in sorted(certified.items()):
        if Path(name).name != name or not (folder / name).is_file():
            raise SystemExit(f"{name}: is missing")
        if sha256((folder / name).read_bytes()) != digest:
            raise SystemExit(f"{name}: was changed or exchanged")
    for path in sorted(folder.iterdir()):
        if path.name not in certified and path.name != "certificate.json":
            raise SystemExit(f"{path.name}: is not in the certificate")


def check_ledger(ledger: Path, head: str, files: dict[str, str]) -> None:
    """The hashes of the ledger chain, an entry has the certified head, and a later one records the release."""
    database = sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)
    rows = database.execute("SELECT seq, run, kind, body, previous, hash FROM entries ORDER BY seq").fetchall()
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
