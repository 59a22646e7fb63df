"""Releases that every verifier must accept. Nothing here imports dpassay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certificate_cases import (
    AGAIN,
    APPROXIMATE,
    AUDIT,
    BOUND,
    CERTIFICATE,
    CLAIM,
    DOCUMENT,
    FALLS_SHORT,
    GAUSSIAN,
    IN_LEDGER,
    KEY,
    MECHANISMS,
    ODD,
    RFC_8785,
    RUN,
    SIGNER,
    Case,
    Content,
    Text,
    about_relation,
    accepted,
    chain,
    exported,
    of_bounds,
    of_claim,
    recorded,
    release,
)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else {}


def with_text(about: str, text: str) -> Case:
    return accepted(about, release(sentence=text, **of_claim(purpose=text)))


def with_numbers(about: str, **numbers: Any) -> Case:
    return accepted(about, release(**of_claim(parameters=numbers)))


def of_document(about: str, content: bytes, name: str = DOCUMENT) -> Case:
    return accepted(about, release({name: content}))


def accepted_cases() -> dict[str, Case]:
    """Name → a release that must be accepted."""
    cases = {
        "unsigned": accepted("A release without a signature.", release()),
        "signed": accepted("A signature by the key that is asked for.", release(signer=SIGNER), key=KEY),
        "signed-any-key": accepted("A signature, and no key is asked for.", release(signer=SIGNER)),
        "signed-long": accepted(
            "A signature over a long statement.",
            release(signer=SIGNER, assumptions=[f"Assumption {n}." for n in range(500)]),
            key=KEY,
        ),
        "no-files": accepted("A certificate of no files.", release({})),
        "many-files": accepted("30 files.", release({f"part-{n}.jsonl": b"%d\n" % n for n in range(30)})),
        "equal-files": accepted("Two files of equal content.", release({"a.txt": b"x\n", "b.txt": b"x\n"})),
        "empty-file": of_document("A file without a byte.", b""),
        "document-crlf": of_document("Line breaks of Windows, which no verifier may change.", b"one\r\ntwo\r\n"),
        "document-mixed-breaks": of_document("Line breaks of three kinds.", b"one\r\ntwo\nthree\rfour"),
        "document-no-last-break": of_document("A last line without a line break.", b"one\ntwo"),
        "document-bom": of_document("A byte order mark.", b"\xef\xbb\xbfone\n"),
        "document-not-ascii": of_document("Texts in several scripts.", "naïve, Ωμέγα, 数据, 🔒\n".encode()),
        "document-binary": of_document("Every byte there is, which is no UTF-8.", bytes(range(256)), "data.bin"),
        "document-substitute": of_document("The byte 26, at which text files of DOS end.", b"one\x1atwo\n"),
        "document-long": of_document("A file that is longer than a usual buffer.", b"0123456789abcdef" * 4100),
        "document-is-json": of_document("A file that is a certificate of something else.", release()[CERTIFICATE], "c"),  # type: ignore[arg-type]
        "file-name-spaces": of_document("A file name with spaces.", b"x\n", "two  words .txt"),
        "file-name-hidden": of_document("A file name that begins with a point.", b"x\n", ".htaccess"),
        "file-name-points": of_document("A file name that begins with two points.", b"x\n", "..txt"),
        "file-name-dash": of_document("A file name that looks like an option.", b"x\n", "-q"),
        "file-name-similar": of_document(
            "A file name that begins like the certificate's.", b"x\n", "certificate.json.bak"
        ),
        "file-name-not-ascii": of_document("A file name that is not ASCII.", b"x\n", "数据.txt"),
        "file-name-number": of_document("A file name that is a number.", b"x\n", "10"),
        "text-escapes": with_text("Control characters, quotes, backslash, DEL and line separators.", ODD),
        "text-not-ascii": with_text("Characters of two, three and four bytes of UTF-8.", "é ε 数 🔒 \U0010ffff \ufffd"),
        "text-combining": with_text("Equal looks, different characters: nothing is normalised.", "e\u0301 é \u212b Å"),
        "text-direction": with_text("Marks of direction, and a byte order mark within a text.", "a\u202eb\u200f\ufeff"),
        "text-noncharacters": with_text("Code points that are no characters.", "\uffff\ufdd0\U0001fffe"),
        "text-long": with_text("A text of 5000 characters.", "long " * 1000),
        "text-escaped-look": with_text("A backslash before u, which is no escape.", "\\u0041 \\n"),
        "text-empty": accepted("Empty texts.", release(name="", guarantee="", created="", sentence="", ledger="")),
        "names-utf-16": accepted(
            "Names that UTF-16 sorts in another order than code points.",
            release(**of_claim(parameters={"\U0001f600": 1, "\ufb33": 2, "\u20ac": 3, "\r": 4, "1": 5, "\u0080": 6})),
        ),
        "names-numeric": with_numbers("Names that are numbers sort as texts.", **{"10": 1, "9": 2, "-1": 3, "01": 4}),
        "names-prefix": with_numbers(
            "A name before those that it begins.", **{"a": 1, "aa": 2, "a-": 3, "A": 4, "": 5}
        ),
        "names-special": with_numbers("Names that mean something elsewhere.", **{"__proto__": 1, "constructor": 2}),
        "numbers-rfc": with_numbers(
            "The numbers of RFC 8785, appendix B.", **{bits: Text(text) for bits, text in RFC_8785.items()}
        ),
        "numbers-exponents": with_numbers(
            "Powers of ten, where the form of numbers changes.", **{f"{n}": float(f"1e{n}") for n in range(-9, 25)}
        ),
        "numbers-whole": with_numbers(
            "Whole numbers up to 2^53 and beyond.", a=2**53 - 1, b=2**53, c=2**53 + 2, d=2**70
        ),
        "numbers-digits": with_numbers("Numbers with 17 digits.", a=0.1 + 0.2, b=1 / 3, c=2 / 3, d=5e-324, e=1e16 + 2),
        "numbers-negative": with_numbers("Negative numbers, and zero.", a=-1, b=-0.5, c=-1e-7, d=-1e21, e=-0.0),
        "claim-literals": with_numbers(
            "null, true, false, empty arrays and objects.", a=None, b=True, c=False, d=[], e={}
        ),
        "claim-nested": with_numbers("A value nested 60 deep.", a=nested(60)),
        "claim-contact": accepted(
            "Contact, purpose and period.",
            release(**of_claim(contact="Ann Example\nann@example.org", purpose="a test", period="May 2024")),
        ),
        "assumption-tested": accepted(
            "An assumption that was tested for the run.", release(tested=["The number of records is public."])
        ),
        "claim-empty-public": accepted("Empty objects where a claim states nothing.", release(**of_claim(public={}))),
        "claim-defaults": accepted(
            "A claim that leaves unit and neighbouring relation to their defaults.",
            release(claim={name: value for name, value in CLAIM.items() if name not in ("unit", "adjacency")}),
        ),
        "lists-empty": accepted(
            "Lists and objects without an entry.",
            release(assumptions=[], not_protected=[], implementation={}, versions={}, audits=[]),
        ),
        "relation-replace-one": accepted("Records are exchanged.", release(**about_relation("replace_one", "record"))),
        "relation-zero-out": accepted("Records are zeroed out.", release(**about_relation("zero_out", "record"))),
        "unit-user": accepted("The unit is a user.", release(**about_relation("add_remove", "user"))),
        "unit-users-records": accepted("A user with 3 records.", release(**about_relation("add_remove", "user(3)"))),
        "unit-group": accepted("The unit is a group of 5.", release(**about_relation("add_remove", "group(5)"))),
        "unit-secret": accepted(
            "The unit is a secret.",
            release(
                **of_bounds(
                    {**BOUND, "adjacency": "secret", "unit": "secret", "quantity": "r", "at": 0.1, "value": 0.2}
                ),
                adjacency="secret",
                unit="secret",
                **of_claim(
                    adjacency="secret", unit="secret", guarantee={"type": "secret_protection", "p": 0.1, "r": 0.25}
                ),
            ),
        ),
        "delta": accepted("An (ε, δ) with an interval.", release(**APPROXIMATE)),
        "delta-tiny": accepted(
            "A δ near the smallest number.",
            release(
                **of_bounds({**BOUND, "delta": 5e-324}, delta=5e-324),
                **of_claim(guarantee={"type": "approx_dp", "epsilon": 2, "delta": 5e-324}),
            ),
        ),
        "bounds-many": accepted(
            "The best of several bounds is not the first.",
            release(
                **of_bounds({**GAUSSIAN, "method": "rdp", "value": 1.5, "interval": None}, GAUSSIAN, best=GAUSSIAN),
                **{name: value for name, value in APPROXIMATE.items() if name not in ("bounds", "best_upper")},
            ),
        ),
        "bound-infinite": accepted(
            "An infinite bound, which is the text inf.",
            release(**of_bounds({**BOUND, "value": "inf"}), **FALLS_SHORT),
        ),
        "bounds-none": accepted(
            "No bound is known, and the release was accepted all the same.", release(**of_bounds(), **FALLS_SHORT)
        ),
        "result-not-reached": accepted("The bound is above the claim.", release(**FALLS_SHORT)),
        "result-equal": accepted(
            "The bound equals the claim.", release(**of_claim(guarantee={"type": "pure_dp", "epsilon": 1.25}))
        ),
        "result-not-shown": accepted(
            "The events differ from the plan: neither composition nor bounds.",
            release(
                **of_bounds(),
                composition=None,
                accepted="For the record.",
                shortfalls=["No finite certified bound is known that holds before the data are read."],
                result="The proof is not shown",
            ),
        ),
        "result-withheld": accepted(
            "A guarantee that is no single number.",
            release(
                **of_bounds(),
                accepted="As agreed.",
                shortfalls=["No finite certified bound is known that holds before the data are read."],
                result="verdict withheld",
                **of_claim(guarantee={"type": "profile", "points": [[0, 0.5], [1, 0.1]]}),
            ),
        ),
        "result-ex-post": accepted(
            "An ex-post claim is about this output.",
            release(
                holds_for="this output",
                result="ex-post claim: verdict withheld",
                **of_claim(guarantee={"type": "ex_post", "epsilon": 0.5}),
            ),
        ),
        "audits": accepted("Several audits.", release(audits=[AUDIT, {**AUDIT, "name": "canaries", "statistics": []}])),
        "composition-nothing": accepted("The composition is empty.", release(composition={"type": "NoOpDpEvent"})),
        "composition-nested": accepted(
            "A composition within a composition.",
            release(
                composition={
                    "events": [
                        {
                            "count": 3,
                            "event": {"noise_multiplier": 2.5, "type": "GaussianDpEvent"},
                            "type": "SelfComposedDpEvent",
                        },
                        {
                            "events": [{"noise_multiplier": 9, "type": "LaplaceDpEvent"}] * 2,
                            "partition_is_public": True,
                            "type": "ParallelDpEvent",
                        },
                    ],
                    "type": "ComposedDpEvent",
                }
            ),
        ),
        "implementation-many": accepted(
            "Many facts and versions.",
            release(
                implementation={f"fact {n}": "x" for n in range(40)}, versions={f"library {n}": "1" for n in range(40)}
            ),
        ),
        "created-zulu": accepted("Another way to write a time.", release(created="2026-01-02T03:04:05Z")),
    }
    cases |= {
        f"mechanism-{name.replace('_', '-')}": accepted(f"The mechanism {name}.", release(**of_claim(mechanism=name)))
        for name in MECHANISMS
    }
    return cases | accepted_ledgers()


def accepted_ledgers() -> dict[str, Case]:
    def of(about: str, *releases: Mapping[str, Content]) -> Case:
        ledger = exported(chain([*RUN, *map(recorded, releases)]))
        return accepted(about, IN_LEDGER, ledger=ledger)

    return {
        "ledger": of("The last entry of the ledger records the release.", IN_LEDGER),
        "ledger-goes-on": of("A release after this one.", IN_LEDGER, AGAIN),
        "ledger-before": of("A release before this one.", AGAIN, IN_LEDGER),
        "ledger-not-asked": accepted("A ledger is named, and none is given.", release(ledger="0" * 64)),
    }
