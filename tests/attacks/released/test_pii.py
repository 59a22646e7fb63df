"""Personal data: published examples, check digits against other ways to compute them, and values that never leave."""

from __future__ import annotations

import ipaddress
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.attacks.released import pii
from dpassay.attacks.released.holdout import Units
from dpassay.attacks.released.pii import KINDS, PersonalData, find, iban_valid, luhn, personal_data, ssn_issuable

KEY = b"0123456789abcdef"


def luhn_by_table(digits: str) -> bool:
    """The digits of the doubled digit added up, in the words of the standard, from the left."""
    total = 0
    for index, digit in enumerate(digits):
        from_the_right = len(digits) - index
        shown = str(2 * int(digit)) if from_the_right % 2 == 0 else digit
        total += sum(int(part) for part in shown)
    return str(total).endswith("0")


def mod_97_by_steps(iban: str) -> int:
    """Digit by digit, as it is done by hand."""
    rest = 0
    for sign in iban[4:] + iban[:4]:
        for digit in str(ord(sign) - 55) if sign.isalpha() else sign:
            rest = (10 * rest + int(digit)) % 97
    return rest


@given(st.text("0123456789", min_size=1, max_size=20))
def test_luhn(digits: str) -> None:
    assert luhn(digits) == luhn_by_table(digits)


@given(st.text("0123456789", min_size=1, max_size=18))
def test_luhn_has_one_check_digit_and_sees_every_wrong_digit(digits: str) -> None:
    (check,) = [digit for digit in "0123456789" if luhn(digits + digit)]
    whole = digits + check
    for index in range(len(whole)):
        wrong = [whole[:index] + digit + whole[index + 1 :] for digit in "0123456789" if digit != whole[index]]
        assert not any(luhn(item) for item in wrong)


@given(st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=18, max_size=18))
def test_iban_has_the_check_digits_of_the_standard(account: str) -> None:
    """98 less the rest with 00 in their place; no other of 02 to 98 will do."""
    digits = f"{98 - mod_97_by_steps('GB00' + account):02d}"
    valid = [f"{number:02d}" for number in range(2, 99) if iban_valid(f"GB{number:02d}{account}")]
    assert valid == [digits]


CARDS = [  # that payment networks publish for tests
    "4111111111111111", "4012888888881881", "4222222222222", "5555555555554444", "5105105105105100", "378282246310005",
    "371449635398431", "6011111111111117", "30569309025904", "38520000023237", "3530111333300000", "2223003122003222",
]  # fmt: skip
IBANS = [  # of the registry
    "GB29NWBK60161331926819", "DE89370400440532013000", "FR1420041010050500013M02606", "NO9386011117947",
    "MT84MALT011000012345MTLCAST001S", "CH9300762011623852957", "ES9121000418450200051332", "SA0380000000608010167519",
]  # fmt: skip


def grouped(value: str, separator: str) -> str:
    return separator.join(value[i : i + 4] for i in range(0, len(value), 4))


@pytest.mark.parametrize("card", CARDS)
def test_payment_cards(card: str) -> None:
    for after in (" 12/26", " 123", " 12 26"):
        assert find(f"paid with {card}{after} today") == [("payment_card", card)]
    wrong = card[:-1] + str((int(card[-1]) + 1) % 10)
    for text in (card, grouped(card, " "), grouped(card, "-"), f"No. {card}.", f"({card})"):
        assert find(f"paid with {text} today") == [("payment_card", card)]
    assert find(f"paid with {wrong} today") == []
    assert find(f"1{card} a{card} {card}.5") == []


@pytest.mark.parametrize("iban", IBANS)
def test_bank_accounts(iban: str) -> None:
    wrong = iban[:-1] + ("1" if iban[-1] != "1" else "2")
    for text in (iban, iban.lower(), grouped(iban, " "), grouped(iban, " ") + " please"):
        assert find(f"account {text}, thanks") == [("iban", iban)]
    assert not any(kind == "iban" for kind, _ in find(f"account {wrong}, thanks"))
    assert not iban_valid(iban + "0")
    assert not iban_valid("XX" + iban[2:])


@pytest.mark.parametrize("number", ["001-01-0001", "665-99-9999", "667-12-3456", "899-01-1234", "123 45 6789"])
def test_social_security_numbers(number: str) -> None:
    digits = "".join(sign for sign in number if sign.isdigit())
    assert find(f"SSN: {number}.") == [("us_ssn", digits)]


@pytest.mark.parametrize(
    "number",
    ["000-12-3456", "666-12-3456", "900-12-3456", "999-12-3456", "123-00-4567", "123-45-0000", "078-05-1120",
     "219-09-9999", "123-45-67890", "123-45 6789", "1123-45-6789", "123456789"],
)  # fmt: skip
def test_numbers_that_are_never_issued(number: str) -> None:
    assert not any(kind == "us_ssn" for kind, _ in find(f"SSN: {number}."))


@given(st.integers(0, 999), st.integers(0, 99), st.integers(0, 9999))
def test_ranges_of_social_security_numbers(area: int, group: int, serial: int) -> None:
    issued = area not in (0, 666) and area <= 899 and group > 0 and serial > 0
    advertised = (area, group, serial) in ((78, 5, 1120), (219, 9, 9999))
    assert ssn_issuable(f"{area:03d}{group:02d}{serial:04d}") == (issued and not advertised)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Bob.Smith+x@Example.co.uk, now", [("email", "bob.smith+x@example.co.uk")]),
        ("not@an address, a@b, @x.org, x..y@example.org", []),
        ("<jo@example.org>;al@example.org", [("email", "jo@example.org"), ("email", "al@example.org")]),
        ("(415) 555-2671 or 415.555.2671", [("phone", "+14155552671")] * 2),
        ("+1 415 555 2671 and 1-415-555-2671", [("phone", "+14155552671")] * 2),
        ("+44 20 7946 0958", [("phone", "+442079460958")]),
        ("115-555-2671 415-155-2671 2024-10-12 10:30 12,345,678", []),
        ("from 192.0.2.1 to 2001:DB8:0:0::1.", [("ip_address", "192.0.2.1"), ("ip_address", "2001:db8::1")]),
        ("256.1.1.1, 1.2.3, 1.2.3.4.5, std::vector, a::b, 12:30:15", []),
        ("https://bob:hunter2@example.com/x", [("url_with_credentials", "https://bob:hunter2@example.com")]),
        ("https://example.com:8080/x?y=a@b", []),
        ("My 5-digit key is 04821. It was 1999 or 2000, and cost 1,234.50.", []),
        ("", []),
    ],
)
def test_forms(text: str, found: list[tuple[str, str]]) -> None:
    assert find(text) == found


PARTS = [
    *CARDS[:3], *IBANS[:3], "123-45-6789", "219 09 9999", "(415) 555-2671", "1-415.555.2671", "+44 (0)20 7946",
    "+12345678", "192.0.2.1", "::1", "fe80::", "2001:db8::7", "10:30:15", "a:b:c", "x.y@example.org", "ftp://me:pw@h/x",
    "://", "@", ":", ".", "-", " ", "  ", "+", "(", ")", "7", "0", "4 1 1 1", "word", "é", "\0", "\n",
]  # fmt: skip


@examples(500, 1500)
@given(st.lists(st.sampled_from(PARTS), max_size=8), st.sampled_from(["", " ", ", "]), st.integers(0, 40))
def test_hints_hide_nothing(parts: list[str], between: str, cut: int) -> None:
    """Against all patterns on every text with a digit, an @ or ://, also where a value is cut."""
    text = between.join(parts)[cut:] if cut < 20 else between.join(parts)
    result = find(text)
    with pytest.MonkeyPatch.context() as patched:
        for kind in KINDS:
            patched.setitem(pii.HINTS, kind, lambda _: True)
        assert result == find(text)


@pytest.mark.parametrize(
    "text",
    ["a." * 20_000 + "@", "1 " * 30_000, "GB82 " * 20_000, "a:" * 30_000, "x@" + "a-" * 30_000,
     "http://" + "a:" * 20_000, "1.1.1.1 " * 5_000],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    """Quadratic time would be minutes; these take a tenth of a second each."""
    begin = time.process_time()
    find(text)
    assert time.process_time() - begin < 5


def scanned(synthetic: list[str], source: list[str], holdout: list[str]) -> PersonalData:
    return personal_data(synthetic, source, holdout, Units.of(source, holdout), key=KEY)


ALICE, BOB, CAROL, DAN = (f"{name}@example.org" for name in ("alice", "bob", "carol", "dan"))


def test_values_are_counted_by_where_they_occur() -> None:
    result = scanned(
        [f"{ALICE} {ALICE.upper()}", f"{CAROL}, {BOB}", f"{DAN} 192.0.2.1"],
        [f"I am {ALICE}", f"{BOB} wrote", "nothing"],
        [f"to {CAROL}", f"cc {BOB}"],
    )
    assert result.counts()["email"] == {
        "source": 1, "holdout": 1, "both": 1, "neither": 1, "occurrences": 5, "known_source": 2, "known_holdout": 2
    }  # fmt: skip
    assert result.counts()["ip_address"]["neither"] == 1
    assert set(result.counts()) == set(KINDS)
    # Bob is nobody's own, and "nothing" has no value: one candidate on each side, both hit.
    assert result.hits.source.tolist() == [True]
    assert result.hits.holdout.tolist() == [True]
    assert result.hits.details["without_own_value"] == 3


def test_hashes_depend_on_the_key_and_show_no_value() -> None:
    texts = [f"{ALICE} 4111 1111 1111 1111"]
    first, again = (scanned(texts, texts, ["x"]) for _ in range(2))
    other = personal_data(texts, texts, ["x"], Units.of(texts, ["x"]), key=KEY[::-1])
    assert first.values == again.values
    assert not {value.hash for value in first.values} & {value.hash for value in other.values}
    shown = json.dumps([repr(first), first.counts(), repr(first.hits.details)])
    assert "alice" not in shown
    assert "4111" not in shown


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes, not 3"):
        personal_data([], [], [], Units.of([], []), key=b"abc")


def test_an_address_that_ends_as_an_older_one_is_read_whole() -> None:
    assert find("from ::ffff:192.0.2.7 today") == [("ip_address", str(ipaddress.ip_address("::ffff:c000:207")))]
