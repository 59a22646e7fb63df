"""Releases that every verifier must reject: each breaks one thing. Nothing here imports dpassay."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from certificate_cases import (
    AGAIN,
    APPROXIMATE,
    AUDIT,
    BODY,
    BOUND,
    CERTIFICATE,
    CHANGED,
    DOCUMENT,
    DOCUMENTS,
    EXCHANGED,
    FALLS_SHORT,
    FIELD,
    IN_LEDGER,
    KEY,
    ORDER,
    OTHER,
    OTHER_KEY,
    RESEALED,
    RUN,
    SIGNER,
    Case,
    Content,
    Link,
    Text,
    body_of,
    canonical,
    chain,
    exported,
    line,
    of_bounds,
    of_claim,
    outer,
    recorded,
    release,
    run_entries,
    sha256,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def changed(about: str, content: bytes, **more: Any) -> Case:
    """The bytes of the certificate are others."""
    return Case(about, CHANGED, {CERTIFICATE: content, **DOCUMENTS}, at_fault=CERTIFICATE, **more)


def resealed(about: str, signer: Ed25519PrivateKey | None = None, **changes: Any) -> Case:
    """A statement that may not be made."""
    return Case(about, RESEALED, release(DOCUMENTS, signer, **changes), at_fault=CERTIFICATE)


def without(name: str) -> dict[str, Content]:
    """A release whose statement lacks a name."""
    body = {key: value for key, value in body_of(DOCUMENTS).items() if key != name}
    return {CERTIFICATE: line(outer(body)), **DOCUMENTS}


BASE: bytes = line(outer(body_of(DOCUMENTS)))
SIGNED: bytes = line(outer(body_of(DOCUMENTS, SIGNER), SIGNER))


def replaced(about: str, old: str, new: str, content: bytes = BASE) -> Case:
    """A text that occurs in a certificate is another, once."""
    before, after = old.encode(), new.encode("utf-8", "surrogatepass")
    if before not in content or before == after:
        raise ValueError(f"{old!r} is not in the certificate, or is not changed")
    return changed(about, content.replace(before, after, 1))


def with_json(about: str, json_text: str, *, hashed: str | None = None) -> Case:
    """A number, or another value, in a form that is not canonical; its SHA-256 is that of `hashed`, or of the same."""
    body = body_of(DOCUMENTS, **of_claim(parameters={"clip": Text(json_text)}))
    stated = body if hashed is None else body_of(DOCUMENTS, **of_claim(parameters={"clip": Text(hashed)}))
    file = {**outer(body), "sha256": outer(stated)["sha256"]}
    return changed(about, line(file))


def bytes_of_fields() -> dict[str, Case]:
    """A byte of each kind of field was changed; the SHA-256 was not computed anew."""
    places = {
        "name": ('"name":"case"', '"name":"case."'),
        "sentence": ("is within the claimed", "is within tne claimed"),
        "guarantee": ("privacy with ε = 1.5", "privacy with ε = 0.5"),
        "claim": ('"guarantee":{"epsilon":1.5', '"guarantee":{"epsilon":0.5'),
        "bound": ('"value":1.25', '"value":0.25'),
        "composition": ('"composition":{"delta":0,"epsilon":1.25', '"composition":{"delta":0,"epsilon":0.25'),
        "delta": ('"delta":null,"files"', '"delta":0,"files"'),
        "created": ("2026-01-02", "2026-01-03"),
        "unit": ('"unit":"record","versions"', '"unit":"secret","versions"'),
        "adjacency": ('"adjacency":"add_remove","assumptions"', '"adjacency":"zero_out","assumptions"'),
        "assumption": ("records is public.", "records is Public."),
        "digest": (sha256(DOCUMENTS[DOCUMENT]), sha256(b"")),
        "file-name": (DOCUMENT, "synthetic.json1"),
        "ledger": ("5" * 64, "6" * 64),
        "version": ('"versions":{"dpassay":"0"}', '"versions":{"dpassay":"1"}'),
        "boolean": ('"private":false', '"private":true'),
        "null-accepted": ('"accepted":null', '"accepted":""'),
        "schema": ('"schema":1', '"schema":2'),
        "type": ('"type":"dpassay certificate"', '"type":"dpassay-certificate"'),
    }
    return {
        f"byte-{name}": replaced(f"A byte of the field was changed: {name}.", old, new)
        for name, (old, new) in places.items()
    }


def forms() -> dict[str, Case]:
    """Files that are not the canonical JSON of a certificate."""
    file = outer(body_of(DOCUMENTS))
    pretty = json.dumps(file, ensure_ascii=False, sort_keys=True, indent=1) + "\n"
    spaced = json.dumps(file, ensure_ascii=False, sort_keys=True) + "\n"
    ascii_only = json.dumps(file, sort_keys=True, separators=(",", ":")) + "\n"
    unsorted = (
        json.dumps({name: file[name] for name in reversed(file)}, ensure_ascii=False, separators=(",", ":")) + "\n"
    )
    by_code_point = body_of(DOCUMENTS, **of_claim(parameters={"\U0001f600": 1, "\ufb33": 2}))
    sealed_by_code_point = {
        "certificate": by_code_point,
        "sha256": sha256(canonical(by_code_point, lambda name: name).encode()),
        "signature": None,
    }
    text = BASE.decode()
    deep = "[" * 5000 + "]" * 5000
    cases = {
        "form-empty": changed("An empty file.", b""),
        "form-line-break-only": changed("A line break only.", b"\n"),
        "form-no-line-break": changed("The last line break is missing.", BASE[:-1]),
        "form-two-line-breaks": changed("Two line breaks at the end.", BASE + b"\n"),
        "form-crlf": changed("A line break of Windows.", BASE[:-1] + b"\r\n"),
        "form-trailing-space": changed("A space before the line break.", BASE[:-1] + b" \n"),
        "form-trailing-bytes": changed("Bytes after the end.", BASE + b"x"),
        "form-trailing-nul": changed("A byte 0 after the end.", BASE + b"\0"),
        "form-twice": changed("The certificate is there twice.", BASE + BASE),
        "form-leading-space": changed("A space before the beginning.", b" " + BASE),
        "form-bom": changed("A byte order mark.", b"\xef\xbb\xbf" + BASE),
        "form-utf-16": changed("UTF-16 in place of UTF-8.", BASE.decode().encode("utf-16")),
        "form-latin-1": changed("A character in Latin-1.", BASE.replace("ε".encode(), b"\xe6")),
        "form-overlong": changed(
            "An overlong form of a character.", BASE.replace(b"/", b"\xc0\xaf").replace(b"case", b"c\xc1\xa1se")
        ),
        "form-surrogate": changed("Half of a surrogate pair as bytes.", BASE.replace("ε".encode(), b"\xed\xa0\x80")),
        "form-cut": changed("The file was cut in the middle.", BASE[: len(BASE) // 2]),
        "form-pretty": changed("Printed on many lines.", pretty.encode()),
        "form-spaces": changed("Spaces after colons and commas.", spaced.encode()),
        "form-ascii": changed("Characters that are written as escapes.", ascii_only.encode()),
        "form-escaped-letter": replaced(
            "A letter that is written as an escape.", '"name":"case"', '"name":"\\u0063ase"'
        ),
        "form-escaped-slash": with_json("An escaped slash.", '"a\\/b"', hashed='"a/b"'),
        "form-escape-capitals": with_json("An escape in capital letters.", '"\\u001F"', hashed='"\\u001f"'),
        "form-escape-long": with_json("A line break as \\u000a, not \\n.", '"\\u000a"', hashed='"\\n"'),
        "form-control": with_json("A control character that is not escaped.", '"\u0001"'),
        "form-surrogate-escape": with_json("Half of a surrogate pair as an escape.", '"\\ud800"'),
        "form-escaped-name": replaced("A name that is written as an escape.", '"sentence":', '"\\u0073entence":'),
        "form-unsorted": changed("Names in another order.", unsorted.encode()),
        "form-code-points": changed(
            "Names in the order of code points, which is not that of UTF-16.",
            f"{canonical(sealed_by_code_point, lambda name: name)}\n".encode(),
        ),
        "form-duplicate": replaced(
            "A name twice, the second without effect.", '"name":"case"', '"name":"case","name":"case"'
        ),
        "form-duplicate-first": replaced(
            "A name twice; the first one differs.",
            '"unit":"record","versions"',
            '"unit":"user","unit":"record","versions"',
        ),
        "form-duplicate-outer": changed(
            "A part of the file twice.",
            text.replace(',"signature":null}', ',"signature":null,"signature":null}').encode(),
        ),
        "form-duplicate-escaped": replaced(
            "A name twice, once as an escape.", '"delta":null,"files"', '"delta":null,"\\u0064elta":1,"files"'
        ),
        "form-trailing-comma": replaced("A comma before a bracket.", '"audits":[]', '"audits":[,]'),
        "form-comment": changed("A comment.", BASE[:-1] + b"/* */\n"),
        "form-apostrophes": replaced("Apostrophes for quotes.", '"case"', "'case'"),
        "form-list": changed("A list of the three names.", b'["certificate","sha256","signature"]\n'),
        "form-text": changed("A text.", b'"certificate"\n'),
        "form-null": changed("null.", b"null\n"),
        "form-number": changed("A number.", b"1\n"),
        "form-statement-only": changed("The statement alone.", line(body_of(DOCUMENTS))),
        "form-more": changed("A fourth part of the file.", line({**file, "more": None})),
        "form-no-signature": changed(
            "A part of the file is missing.", line({"certificate": file["certificate"], "sha256": file["sha256"]})
        ),
        "form-statement-list": changed("The statement is a list.", line(outer([body_of(DOCUMENTS)]))),
        "form-statement-text": changed("The statement is a text.", line(outer(canonical(body_of(DOCUMENTS))))),
        "form-statement-null": changed("The statement is null.", line(outer(None))),
        "form-deep": changed("Lists nested 5000 deep.", f"{deep}\n".encode()),
    }
    numbers = {
        "point": ("A whole number with a point.", "3.0", "3"),
        "zeros": ("Zeros at the end of a fraction.", "2.50", "2.5"),
        "exponent": ("An exponent that is not needed.", "2.5e0", "2.5"),
        "capital": ("A capital E.", "1E-7", "1e-7"),
        "exponent-zero": ("A zero in front of an exponent.", "1e-07", "1e-7"),
        "exponent-plus": ("An exponent without its plus.", "1e21", "1e+21"),
        "exponent-large": ("A large number without an exponent.", "1" + "0" * 21, "1e+21"),
        "exponent-small": ("A small number without an exponent.", "0.0000001", "1e-7"),
        "minus-zero": ("Zero with a minus.", "-0", "0"),
        "minus-zero-point": ("Zero with a minus and a point.", "-0.0", "0"),
        "digits": ("More digits than are needed.", "0.1000000000000000055", "0.1"),
        "few-digits": ("Digits of a neighbouring number.", "9007199254740993", "9007199254740992"),
        "large": ("A number above the largest.", "1e400", None),
        "large-digits": ("A whole number above the largest.", "9" * 400, None),
        "nan": ("NaN.", "NaN", None),
        "infinity": ("Infinity.", "Infinity", None),
        "minus-infinity": ("Minus infinity.", "-Infinity", None),
        "leading-zero": ("A zero in front.", "025", "25"),
        "plus": ("A plus in front.", "+2.5", "2.5"),
        "no-zero": ("No digit before the point.", ".5", "0.5"),
        "hexadecimal": ("A hexadecimal number.", "0x10", "16"),
        "underscore": ("A number with an underscore.", "1_000", "1000"),
    }
    for name, (about, written, hashed) in numbers.items():
        cases[f"number-{name}"] = with_json(about, written)
        if hashed is not None:
            cases[f"number-{name}"] = with_json(about, written, hashed=hashed)
    return cases


def digests() -> dict[str, Case]:
    file = outer(body_of(DOCUMENTS))
    text = canonical(body_of(DOCUMENTS)).encode()

    def stated(about: str, digest: Any) -> Case:
        return changed(about, line({**file, "sha256": digest}))

    return {
        "sha256-other": stated("The SHA-256 of another text.", sha256(b"")),
        "sha256-capitals": stated("The SHA-256 in capital letters.", file["sha256"].upper()),
        "sha256-cut": stated("The SHA-256 without its last digit.", file["sha256"][:-1]),
        "sha256-null": stated("No SHA-256.", None),
        "sha256-number": stated("A number for the SHA-256.", 0),
        "sha256-empty": stated("An empty SHA-256.", ""),
        "sha256-prefix": stated("The SHA-256 with a name in front.", "sha256:" + file["sha256"]),
        "sha256-512": stated("The SHA-512.", hashlib.sha512(text).hexdigest()),
        "sha256-base64": stated("The SHA-256 in base 64.", base64.b64encode(hashlib.sha256(text).digest()).decode()),
        "sha256-line-break": stated("The SHA-256 of the text and a line break.", sha256(text + b"\n")),
        "sha256-spaces": stated("The SHA-256 of the text with spaces.", sha256(json.dumps(BODY).encode())),
    }


def signatures() -> dict[str, Case]:
    body = body_of(DOCUMENTS, SIGNER)
    file, text = outer(body, SIGNER), canonical(body).encode()
    good = bytes.fromhex(file["signature"])
    scalar = int.from_bytes(good[32:], "little")
    other_body = body_of(DOCUMENTS, SIGNER, name="other")

    def stated(about: str, signature: Any) -> Case:
        return changed(about, line({**file, "signature": signature}))

    def by_key(about: str, key: Any, signature: Any = file["signature"]) -> Case:
        return Case(
            about,
            RESEALED,
            {CERTIFICATE: line({**outer({**body, "key": key}), "signature": signature}), **DOCUMENTS},
            at_fault=CERTIFICATE,
        )

    def forged(about: str, point: int, sign: int = 0) -> Case:
        """With a key of small order, R = the point and S = 0 sign about one text in eight, so a text is searched."""
        return weak_key(about, (point | sign << 255).to_bytes(32, "little"))

    cases = {
        "signature-bit": stated("A bit of the signature was changed.", bytes([good[0] ^ 1, *good[1:]]).hex()),
        "signature-scalar-bit": stated(
            "A bit of its second half was changed.", bytes([*good[:40], good[40] ^ 1, *good[41:]]).hex()
        ),
        "signature-of-other": stated("The signature of another certificate.", outer(other_body, SIGNER)["signature"]),
        "signature-by-other": stated("The signature by another key.", OTHER.sign(text).hex()),
        "signature-malleable": stated(
            "The order of the group was added to S.", (good[:32] + (scalar + ORDER).to_bytes(32, "little")).hex()
        ),
        "signature-capitals": stated("Capital letters.", file["signature"].upper()),
        "signature-space": stated("A space in the middle.", file["signature"][:64] + " " + file["signature"][64:]),
        "signature-line-break": stated("A line break at the end.", file["signature"] + "\n"),
        "signature-cut": stated("The last digit is missing.", file["signature"][:-1]),
        "signature-half": stated("The second half is missing.", file["signature"][:64]),
        "signature-long": stated("A byte too much.", file["signature"] + "00"),
        "signature-prefix": stated("0x in front.", "0x" + file["signature"]),
        "signature-zero": stated("Zeros.", "0" * 128),
        "signature-empty": stated("An empty text.", ""),
        "signature-null": stated("A key is named, and nobody signed.", None),
        "signature-number": stated("A number.", 0),
        "signature-list": stated("A list.", [file["signature"]]),
        "signature-base64": stated("Base 64.", base64.b64encode(good).decode()),
        "signature-swapped": stated("Its halves are exchanged.", (good[32:] + good[:32]).hex()),
        "signature-of-line": stated("Signed with the line break.", SIGNER.sign(text + b"\n").hex()),
        "signature-of-digest": stated(
            "The SHA-256 was signed, not the text.", SIGNER.sign(hashlib.sha256(text).digest()).hex()
        ),
        "signature-of-digits": stated(
            "The digits of the SHA-256 were signed.", SIGNER.sign(sha256(text).encode()).hex()
        ),
        "signature-of-spaces": stated("The text with spaces was signed.", SIGNER.sign(json.dumps(body).encode()).hex()),
        "signature-without-key": by_key("A signature, and no key.", None),
        "key-exchanged": by_key("The key is another than the one that signed.", OTHER_KEY),
        "key-capitals": by_key("A key in capital letters, which signed the text with the other key.", KEY.upper()),
        "key-cut": by_key("A key without its last digit.", KEY[:-1]),
        "key-long": by_key("A key with a byte more.", KEY + "00"),
        "key-empty": by_key("An empty key.", ""),
        "key-number": by_key("A number for a key.", 0),
        "key-list": by_key("A list of keys.", [KEY]),
        "key-no-signature": by_key("A key, and no signature.", KEY, None),
        "key-capitals-signed": by_key(
            "A key in capital letters, and a signature of that very text.",
            KEY.upper(),
            SIGNER.sign(canonical({**body, "key": KEY.upper()}).encode()).hex(),
        ),
        "key-zero": forged("Zeros are a key of small order, under which anybody signs.", 0),
        "key-identity": forged("The neutral element is no key: anybody signs under it.", 1),
        "key-order-2": forged("A key of order 2.", FIELD - 1),
        "key-order-8": forged("A key of order 8.", ORDER_8),
        "key-not-canonical": forged("The neutral element, written as p + 1.", FIELD + 1),
        "key-asked-other": replace(
            changed("Another key is asked for.", SIGNED, key=OTHER_KEY), made="A whole release by the key signer."
        ),
        "key-asked-unsigned": replace(
            changed("A key is asked for, and nobody signed.", BASE, key=KEY),
            made="A whole release without a signature.",
        ),
    }
    return cases


D = -121665 * pow(121666, -1, FIELD) % FIELD
"""Of the curve −x² + y² = 1 + d·x²·y² (RFC 8032)."""


def _order_8() -> int:
    """The y of a point of order 8: twice it has y = 0, so d·y⁴ + 2y² − 1 = 0."""
    root = pow(1 + D, (FIELD + 3) // 8, FIELD)
    if root * root % FIELD != (1 + D) % FIELD:
        root = root * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    for square in ((-1 + sign * root) * pow(D, -1, FIELD) % FIELD for sign in (1, -1)):
        y = pow(square, (FIELD + 3) // 8, FIELD)
        if y * y % FIELD != square:
            y = y * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
        if y * y % FIELD == square:
            return min(y, FIELD - y)
    raise ArithmeticError("no point of order 8")


ORDER_8 = _order_8()


def weak_key(about: str, key: bytes) -> Case:
    """A certificate by a key of small order with a forged signature that Ed25519 accepts; no secret is known."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    candidates = [y | sign << 255 for y in (0, 1, FIELD - 1, ORDER_8, FIELD - ORDER_8) for sign in (0, 1)]
    for number_of_text in range(64):
        body = body_of(DOCUMENTS, key=key.hex(), name=f"case {number_of_text}")
        text = canonical(body).encode()
        for point in candidates:
            signature = point.to_bytes(32, "little") + bytes(32)
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
            except (InvalidSignature, ValueError):
                continue
            file = {**outer(body), "signature": signature.hex()}
            made = "A text was searched of which a signature with S = 0 is valid under a key that nobody owns."
            return Case(about, made, {CERTIFICATE: line(file), **DOCUMENTS}, at_fault=CERTIFICATE)
    raise ArithmeticError(f"{about} no text was found")


def statements() -> dict[str, Case]:
    """Statements that are sealed and say what no certificate may say."""
    lower, audit = {**BOUND, "direction": "lower"}, {**AUDIT, "bounds": [BOUND]}
    cases = {
        "schema-2": resealed("An unknown schema.", schema=2),
        "schema-signed": resealed("An unknown schema, signed.", SIGNER, schema=2),
        "schema-0": resealed("Schema 0.", schema=0),
        "schema-text": resealed("The schema as a text.", schema="1"),
        "schema-true": resealed("true, which some languages take for 1.", schema=True),
        "schema-null": resealed("No schema.", schema=None),
        "type-other": resealed("Another type.", type="dpassay report"),
        "type-list": resealed("The type in a list.", type=["dpassay certificate"]),
        "more-field": resealed("A field that no certificate has.", verdict="SUPPORTED"),
        "more-field-empty": resealed("A field with an empty name.", **{"": None}),
        "more-field-similar": resealed("A field whose name has a capital letter.", Files={}),
        "files-list": resealed("The files are a list.", files=[DOCUMENT]),
        "files-null": resealed("No files.", files=None),
        "files-number": resealed("A number for a digest.", files={DOCUMENT: 5}),
        "files-digest-null": resealed("null for a digest.", files={DOCUMENT: None}),
        "name-null": resealed("A name that is null.", name=None),
        "name-number": resealed("A name that is a number.", name=1),
        "assumptions-text": resealed("The assumptions are a text.", assumptions="none"),
        "assumptions-number": resealed("An assumption is a number.", assumptions=[1]),
        "tested-text": resealed("What was tested is a text.", tested="The number of records is public."),
        "tested-not-assumed": resealed("What was tested is none of the assumptions.", tested=["Rows are alike."]),
        "shortfalls-null": resealed("A shortfall is null.", shortfalls=[None], accepted="x"),
        "versions-number": resealed("A version is a number.", versions={"dpassay": 1}),
        "implementation-list": resealed("The facts are a list.", implementation=[]),
        "claim-text": resealed("The claim is a text.", claim="keys"),
        "claim-null": resealed("No claim.", claim=None),
        "composition-list": resealed("The composition is a list.", composition=[]),
        "holds-for-other": resealed("It holds for something else.", holds_for="some outputs"),
        "delta-text": resealed("δ is a text.", delta="0.5", **of_bounds({**BOUND, "delta": 0.5})),
        "delta-true": resealed("δ is true.", delta=True),
        "delta-infinite": resealed("δ is inf.", delta="inf"),
        "delta-large": resealed(
            "δ is 2.", delta=2, **of_claim(guarantee={"type": "approx_dp", "epsilon": 1.5, "delta": 2})
        ),
        "delta-negative": resealed(
            "δ is negative.", delta=-1, **of_claim(guarantee={"type": "approx_dp", "epsilon": 1.5, "delta": -1})
        ),
        "audit-result": resealed("An audit with what it found, which is private.", audits=[audit]),
        "audit-text": resealed("An audit is a text.", audits=["leave_one_out"]),
        "audit-incomplete": resealed(
            "An audit without its attack.", audits=[{k: v for k, v in AUDIT.items() if k != "attack"}]
        ),
        "bound-text": resealed("A bound is a text.", bounds=["1.25"], best_upper=None),
        "bound-null": resealed("A bound is null.", bounds=[None], best_upper=None),
        "bound-lower": resealed("A lower bound, which is private.", **of_bounds(BOUND, lower)),
        "bound-private": resealed("A private bound.", **of_bounds(BOUND, {**BOUND, "private": True})),
        "bound-ex-post": resealed(
            "A realised ε, which is private.", **of_bounds(BOUND, {**BOUND, "quantity": "ex_post_epsilon"})
        ),
        "bound-more": resealed("A field that no bound has.", **of_bounds({**BOUND, "scores": []})),
        "bound-incomplete": resealed(
            "A bound without a value.", **of_bounds({k: v for k, v in BOUND.items() if k != "value"})
        ),
        "bound-value-text": resealed(
            "A bound whose value is a text of digits.", **of_bounds({**BOUND, "value": "1.25"})
        ),
        "bound-value-nan": resealed("A bound whose value is the text nan.", **of_bounds({**BOUND, "value": "nan"})),
        "bound-value-infinity": resealed(
            "A bound whose value is the text Infinity.", **of_bounds({**BOUND, "value": "Infinity"}, **FALLS_SHORT)
        ),
        "bound-value-true": resealed("A bound whose value is true.", **of_bounds({**BOUND, "value": True})),
        "bound-value-null": resealed("A bound whose value is null.", **of_bounds({**BOUND, "value": None})),
        "bound-private-text": resealed("false as a text.", **of_bounds({**BOUND, "private": "false"})),
        "bound-adjacency": resealed(
            "A bound at a neighbouring relation that there is not.", **of_bounds({**BOUND, "adjacency": "swap"})
        ),
        "bound-rigor": resealed("A bound of a rigor that there is not.", **of_bounds({**BOUND, "rigor": "proven"})),
        "bound-quantity": resealed("A bound on something else.", **of_bounds({**BOUND, "quantity": "leakage"})),
        "bound-order": resealed(
            "A Rényi divergence without its order.",
            **of_bounds(BOUND, {**BOUND, "quantity": "renyi_epsilon"}),
        ),
        "bound-argument": resealed("An ε with an order.", **of_bounds({**BOUND, "at": 2})),
        "bound-confidence": resealed("A confidence of 1.", **of_bounds({**BOUND, "confidence": 1})),
        "bound-no-confidence": resealed(
            "A finite-sample bound without its confidence.", **of_bounds(BOUND, {**BOUND, "rigor": "finite_sample"})
        ),
        "bound-without-quantity": resealed(
            "A bound without its quantity.", **of_bounds({k: v for k, v in BOUND.items() if k != "quantity"})
        ),
        "bound-unit": resealed("A bound for a unit that there is not.", **of_bounds(BOUND, {**BOUND, "unit": "house"})),
        "unit-unknown": resealed(
            "A unit that there is not.", **of_bounds(), unit="house", **{**FALLS_SHORT, **of_claim(unit="house")}
        ),
        "adjacency-unknown": resealed(
            "A neighbouring relation that there is not.",
            **of_bounds(),
            adjacency="swap",
            **{**FALLS_SHORT, **of_claim(adjacency="swap")},
        ),
        "result-reached-unknown": resealed(
            "The proof is said to reach a guarantee of an unknown type.",
            **of_claim(guarantee={"type": "anonymous", "epsilon": 9}),
        ),
        "bound-interval-reversed": resealed(
            "An interval whose ends are exchanged.", **of_bounds({**BOUND, "interval": [1.25, 1]})
        ),
        "bound-interval-outside": resealed(
            "A value that is no end of its interval.", **of_bounds({**BOUND, "interval": [1, 1.5]})
        ),
        "bound-interval-one": resealed("An interval with one end.", **of_bounds({**BOUND, "interval": [1.25]})),
        "best-not-listed": resealed(
            "The best bound is none of the bounds: its ε is another.", best_upper={**BOUND, "value": 0.25}
        ),
        "best-of-none": resealed("A best bound, and no bounds.", bounds=[]),
        "best-other-unit": resealed(
            "The best bound is about another unit than the claim.", **of_bounds({**BOUND, "unit": "user"})
        ),
        "best-other-relation": resealed(
            "The best bound is about another neighbouring relation than the claim.",
            **of_bounds({**BOUND, "adjacency": "replace_one"}),
        ),
        "result-reached-above": resealed(
            "The proof is said to reach a claim below it.", **of_claim(guarantee={"type": "pure_dp", "epsilon": 1})
        ),
        "result-reached-infinite": resealed(
            "The proof is said to reach the claim, and the bound is infinite.", **of_bounds({**BOUND, "value": "inf"})
        ),
        "result-reached-nothing": resealed(
            "The proof is said to reach the claim, and there is no bound.", **of_bounds()
        ),
        "unit-other": resealed("Another unit than that of the claim.", unit="user"),
        "adjacency-other": resealed("Another neighbouring relation than that of the claim.", adjacency="zero_out"),
        "delta-other": resealed("Another δ than that of the claim.", **{**APPROXIMATE, "delta": 1e-5}),
        "holds-for-every": resealed(
            "An ex-post claim that is said to hold for every output.",
            **of_claim(guarantee={"type": "ex_post", "epsilon": 1.5}),
        ),
        "holds-for-this": resealed("A claim about every output that is said to hold for one.", holds_for="this output"),
        "accepted-nothing": resealed("A reason to accept shortfalls, and there are none.", accepted="a reason"),
        "shortfalls-not-accepted": resealed("Shortfalls that nobody accepted.", **{**FALLS_SHORT, "accepted": None}),
    }
    cases |= {
        f"without-{name.replace('_', '-')}": Case(f"The field {name} is missing.", RESEALED, without(name), CERTIFICATE)
        for name in BODY
    }
    return cases


def folders() -> dict[str, Case]:
    """Folders that are not as their certificates say."""

    def of(about: str, files: Mapping[str, Content], at_fault: str) -> Case:
        return Case(about, EXCHANGED, files, at_fault)

    def named(about: str, name: str, content: bytes = b"x\n", files: Mapping[str, Content] | None = None) -> Case:
        """The certificate names a file that no release may have."""
        sealed = line(outer({**body_of({}), "files": {name: sha256(content)}}))
        return Case(about, RESEALED, {CERTIFICATE: sealed, **(files or {})}, CERTIFICATE)

    whole, content = release(), DOCUMENTS[DOCUMENT]
    two = release({"a.txt": b"a\n", "b.txt": b"b\n"})
    digest = sha256(content)

    def with_digest(about: str, text: str) -> Case:
        sealed = line(outer({**body_of({}), "files": {DOCUMENT: text}}))
        return Case(about, RESEALED, {CERTIFICATE: sealed, **DOCUMENTS}, DOCUMENT)

    rest = {name: value for name, value in whole.items() if name != DOCUMENT}
    return {
        "document-byte": of(
            "A byte of a document was changed.", {**whole, DOCUMENT: content.replace(b"one", b"ona")}, DOCUMENT
        ),
        "document-byte-more": of("A byte was added to a document.", {**whole, DOCUMENT: content + b"\n"}, DOCUMENT),
        "document-byte-less": of(
            "The last line break of a document was removed.", {**whole, DOCUMENT: content[:-1]}, DOCUMENT
        ),
        "document-empty": of("A document was emptied.", {**whole, DOCUMENT: b""}, DOCUMENT),
        "document-crlf": of(
            "Line breaks were made those of Windows.", {**whole, DOCUMENT: content.replace(b"\n", b"\r\n")}, DOCUMENT
        ),
        "document-bom": of("A byte order mark was added.", {**whole, DOCUMENT: b"\xef\xbb\xbf" + content}, DOCUMENT),
        "document-normalised": of(
            "Characters of a document were normalised.",
            {**release({"a.txt": "e\u0301\n".encode()}), "a.txt": "é\n".encode()},
            "a.txt",
        ),
        "documents-exchanged": of("Two documents were exchanged.", {**two, "a.txt": b"b\n", "b.txt": b"a\n"}, "a.txt"),
        "document-missing": of("A document is missing.", rest, DOCUMENT),
        "document-case": of(
            "The name of a document has a capital letter.", {**rest, "Synthetic.jsonl": content}, DOCUMENT
        ),
        "document-is-folder": of("A folder in place of a document.", {**rest, f"{DOCUMENT}/text": content}, DOCUMENT),
        "document-is-link": of(
            "A symbolic link to a file of the right content, which may change.",
            {**rest, DOCUMENT: Link("../outside")},
            DOCUMENT,
        ),
        "document-is-link-within": of(
            "A symbolic link to a certified file.",
            {**release({"a.txt": b"a\n", "b.txt": b"a\n"}), "b.txt": Link("a.txt")},
            "b.txt",
        ),
        "document-is-broken-link": of("A symbolic link to nothing.", {**rest, DOCUMENT: Link("nothing")}, DOCUMENT),
        "folder-link": of("A symbolic link more.", {**whole, "more": Link(DOCUMENT)}, "more"),
        "folder-more": of("A file more.", {**whole, "more.jsonl": b"{}\n"}, "more.jsonl"),
        "folder-more-hidden": of("A hidden file more.", {**whole, ".hidden": b"x\n"}, ".hidden"),
        "folder-more-empty": of("An empty file more.", {**whole, "more": b""}, "more"),
        "folder-more-copy": of(
            "A copy of the certificate.", {**whole, "certificate.json~": whole[CERTIFICATE]}, "certificate.json~"
        ),
        "folder-more-folder": of("A folder more.", {**whole, "more/text.txt": b"x\n"}, "more"),
        "certificate-missing": of("There is no certificate.", DOCUMENTS, CERTIFICATE),
        "certificate-is-folder": of(
            "A folder in place of the certificate.", {**DOCUMENTS, f"{CERTIFICATE}/text": b"x\n"}, CERTIFICATE
        ),
        "certificate-is-link": of(
            "A symbolic link in place of the certificate.", {**DOCUMENTS, CERTIFICATE: Link("../outside")}, CERTIFICATE
        ),
        "certificate-of-other": of(
            "The certificate of another release.", {**two, CERTIFICATE: whole[CERTIFICATE]}, DOCUMENT
        ),
        "name-parent": named("A file outside the folder.", "../outside", content),
        "name-folder": named("A file in a folder.", "more/text.txt", b"x\n", {"more/text.txt": b"x\n"}),
        "name-here": named("A way through the folder itself.", "./a.txt", b"x\n", {"a.txt": b"x\n"}),
        "name-slash": named("A slash at the end of a name.", "a.txt/", b"x\n", {"a.txt": b"x\n"}),
        "name-absolute": named("A path from the root.", "/dev/null", b""),
        "name-backslash": named("A path of Windows.", "..\\a.txt"),
        "name-empty": named("An empty name.", ""),
        "name-point": named("The folder itself.", "."),
        "name-two-points": named("The folder above.", ".."),
        "name-nul": named("A byte 0 in a name.", "a.txt\0b", b"x\n", {"a.txt": b"x\n"}),
        "name-long": named("A name longer than any file's.", "a" * 5000),
        "name-certificate": named("The certificate itself.", CERTIFICATE),
        "digest-capitals": with_digest("A digest in capital letters.", digest.upper()),
        "digest-cut": with_digest("A digest without its last digit.", digest[:-1]),
        "digest-empty": with_digest("An empty digest.", ""),
        "digest-prefix": with_digest("A digest with a name in front.", f"sha256:{digest}"),
        "digest-md5": with_digest("A digest by MD5.", hashlib.md5(content).hexdigest()),
        "digest-of-nothing": with_digest("The digest of an empty file.", sha256(b"")),
        "digest-of-lines": with_digest(
            "The digest with line breaks of Windows.", sha256(content.replace(b"\n", b"\r\n"))
        ),
    }


OUTSIDE = {
    "document-is-link": DOCUMENTS[DOCUMENT],
    "certificate-is-link": BASE,
    "name-parent": DOCUMENTS[DOCUMENT],
}
"""Name of a case → the file `outside` beside its release, which is in the release's way."""


def rejected_cases() -> dict[str, Case]:
    """Name → a release that must be rejected."""
    groups = (bytes_of_fields, forms, digests, signatures, statements, folders, rejected_ledgers)
    cases: dict[str, Case] = {}
    for group in groups:
        made = group()
        if both := cases.keys() & made.keys():
            raise ValueError(f"two cases are named {both}")
        cases |= made
    return cases


def rejected_ledgers() -> dict[str, Case]:
    def of(about: str, rows: list[dict[str, Any]], files: Mapping[str, Content] = IN_LEDGER) -> Case:
        made = "A whole release and the ledger that records it; then the ledger was changed."
        return Case(about, made, files, at_fault="ledger.jsonl", ledger=exported(rows))

    rows = chain([*RUN, recorded(IN_LEDGER)])
    no_hash = [*rows[:-1], {**rows[-1], "body": rows[-1]["body"].replace('"version":"0"', '"version":"1"')}]
    genesis = release(ledger="0" * 64)
    return {
        "ledger-cut": of("The entry of the release was cut off.", rows[:-1]),
        "ledger-cut-to-begin": of("All but the first entry was cut off.", rows[:1]),
        "ledger-empty": of("No entry is left.", []),
        "ledger-gap": of("An entry in the middle was removed.", [*rows[:1], *rows[2:]]),
        "ledger-order": of("Two entries were exchanged.", [rows[1], rows[0], *rows[2:]]),
        "ledger-twice": of("An entry is there twice.", [*rows, rows[-1]]),
        "ledger-entry-changed": of("The body of an entry was changed.", no_hash),
        "ledger-hash-changed": of("The hash of an entry was changed.", [*rows[:-1], {**rows[-1], "hash": "0" * 64}]),
        "ledger-run-renamed": of("The run of an entry was renamed.", [*rows[:-1], {**rows[-1], "run": "other"}]),
        "ledger-rewritten": of(
            "A whole chain of another salt, which records the release.",
            chain([*run_entries("8" * 64), recorded(IN_LEDGER)]),
        ),
        "ledger-other-release": of("The ledger records another release only.", chain([*RUN, recorded(AGAIN)])),
        "ledger-other-document": of(
            "The ledger records the release with another document.",
            chain([*RUN, recorded({**IN_LEDGER, DOCUMENT: b"other\n"})]),
        ),
        "ledger-more-files": of(
            "The ledger records the release with a file more.", chain([*RUN, recorded({**IN_LEDGER, "more": b""})])
        ),
        "ledger-head-of-none": of(
            "The certificate names zeros, which is the head of no entry.", chain([*RUN, recorded(genesis)]), genesis
        ),
    }
