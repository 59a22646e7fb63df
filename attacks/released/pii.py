"""Personal data in released texts: which values of the source, and which of the holdout, are printed?

Values are found by their format and by what can be verified: check digits of payment cards and bank accounts, and
number ranges that were never issued. Whether a value belongs to a real person is not checked. Values are reported only
as counts or keyed hashes: only the holder of the key can compare a hash with a guess of the value.

Source: ISO/IEC 7812-1, annex B (Luhn); ISO 13616-1 and ISO/IEC 7064 (IBAN, mod 97-10); Social Security Administration,
    "Social Security Number Randomization" (2011), for numbers that are not issued; ITU-T E.164 for telephone numbers.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dpassay.attacks.released.holdout import Hits, Units

_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SD": 18,
    "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22,
    "VG": 24, "XK": 20,
}  # fmt: skip

_SHORTEST_CARD = 13

# Printed as examples, and hence never issued.
_ADVERTISED = {"078051120", "219099999"}


def luhn(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others."""
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def iban_valid(iban: str) -> bool:
    """Whether a bank account number without spaces has its country's length and is 1 modulo 97."""
    if len(iban) != _IBAN_LENGTHS.get(iban[:2]):
        return False
    return int("".join(str(int(sign, 36)) for sign in iban[4:] + iban[:4])) % 97 == 1


def ssn_issuable(digits: str) -> bool:
    """Whether nine digits could be a US social security number."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    in_range = area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"
    return in_range and digits not in _ADVERTISED


def _email(result: str) -> str | None:
    local, _, host = result.rpartition("@")
    fine = ".." not in local and not local.startswith(".") and not local.endswith(".")
    return f"{local}@{host}".lower() if fine else None


def _card(result: str) -> str | None:
    """The longest valid prefix that ends with a group of digits: an expiry date or a code may follow the number."""
    while result:
        digits = _only_digits(result)
        if len(digits) >= _SHORTEST_CARD and len(set(digits)) > 1 and luhn(digits):
            return digits
        result = result[: max(result.rfind(" "), result.rfind("-"), 0)]
    return None


def _iban(result: str) -> str | None:
    """The longest valid prefix: a word may follow that looks like a group of the number."""
    compact = result.replace(" ", "").upper()
    whole = compact[: _IBAN_LENGTHS.get(compact[:2], 0)]
    return whole if whole and iban_valid(whole) else None


def _ssn(result: str) -> str | None:
    digits = _only_digits(result)
    return digits if ssn_issuable(digits) else None


def _address(result: str) -> str | None:
    if 0 < result.count(":") < 3:  # a time, or names of a programming language
        return None
    try:
        return str(ipaddress.ip_address(result))
    except ValueError:
        return None


def _phone(result: str) -> str | None:
    digits = _only_digits(result)
    international = result.lstrip("(").startswith("+")
    if international:
        return "+" + digits if 8 <= len(digits) <= 15 else None
    return "+1" + digits[-10:]


def _only_digits(result: str) -> str:
    return "".join(sign for sign in result if sign.isdecimal())


_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}"
_GROUPS = r"(?:[ -]?[0-9])"
_NOT_IN_NUMBER = r"(?<![0-9A-Za-z.+-])"
_ENDS_NUMBER = r"(?![0-9A-Za-z]|[.-][0-9])"

_ValueOf: TypeAlias = Callable[[str], str | None]

# Order matters: text matched by one kind is not searched for the next.
_KINDS: dict[str, tuple[re.Pattern[str], _ValueOf]] = {
    "url_with_credentials": (
        re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]{1,128}:[^\s/@\"'<>]{1,128}@[^\s/\"'<>]{1,255}"),
        lambda found: found.rstrip(".,;)"),
    ),
    "email": (re.compile(rf"(?<![\w.%+'-])[\w.%+'-]{{1,64}}@{_HOST}(?![\w-])"), _email),
    "iban": (re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?: ?[0-9A-Za-z]){11,30}(?![0-9A-Za-z])"), _iban),
    "payment_card": (re.compile(rf"{_NOT_IN_NUMBER}[2-6]{_GROUPS}{{12,18}}{_ENDS_NUMBER}"), _card),
    "us_ssn": (re.compile(rf"{_NOT_IN_NUMBER}[0-9]{{3}}([ -])[0-9]{{2}}\1[0-9]{{4}}{_ENDS_NUMBER}"), _ssn),
    "ip_address": (
        re.compile(
            r"(?<![0-9A-Za-z.:])(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.?[0-9A-Za-z])"
            r"|(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.?[0-9A-Za-z])"
            r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![0-9A-Za-z:]))"
        ),
        _address,
    ),
    "phone": (
        re.compile(
            rf"(?<![0-9A-Za-z+])(?:\+[0-9](?:[ .()-]{{0,2}}[0-9]){{7,14}}"
            rf"|(?:1[ .-])?(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}[ .-])[2-9][0-9]{{2}}[ .-][0-9]{{4}}){_ENDS_NUMBER}"
        ),
        _phone,
    ),
}

_DOTTED = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]")

# A necessary condition for each kind, checked first because it is fast: it is a literal or begins with a digit, while
# the patterns above begin with a lookbehind.
HINTS: dict[str, Callable[[str], object]] = {
    "url_with_credentials": lambda text: "://" in text,
    "email": lambda text: "@" in text,
    "iban": re.compile(r"[0-9]{2}(?: ?[0-9A-Za-z]){11}").search,
    "payment_card": re.compile(rf"[2-6]{_GROUPS}{{12}}").search,
    "us_ssn": re.compile(r"[0-9]{3}[ -][0-9]{2}[ -][0-9]{4}").search,
    "ip_address": lambda text: text.count(":") > 1 or _DOTTED.search(text),
    "phone": re.compile(r"[0-9](?:[ .()-]{0,2}[0-9]){7}").search,
}
_DIGIT = re.compile("[0-9]")

KINDS = tuple(_KINDS)
"""The kinds of personal data that are looked for."""


def find(text: str) -> list[tuple[str, str]]:
    """Kind and value of all personal data in a text; values are normalised for spaces and case.

    The values are in clear text: keep them out of reports, logs and errors.
    """
    results: list[tuple[str, str]] = []
    if "@" not in text and not _DIGIT.search(text):  # every kind has one of these
        return results
    for kind, (pattern, value_of) in _KINDS.items():
        if not HINTS[kind](text):
            continue

        def take(match: re.Match[str], kind: str = kind, value_of: _ValueOf = value_of) -> str:
            value = value_of(match.group())
            if value is None:
                return match.group()
            results.append((kind, value))
            return "\0" * len(match.group())

        text = pattern.sub(take, text)
    return results


@dataclass(frozen=True, slots=True)
class Value:
    """One value in the released texts, identified by the first 16 bytes of its HMAC-SHA256 under the caller's key, in
    hexadecimal.

    Attributes:
        kind: one of `KINDS`.
        occurrences: how often the released texts print it.
        where: ``source``, ``holdout``, ``both`` or ``neither``.
    """

    kind: str
    hash: str
    occurrences: int
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class PersonalData:
    """The personal data that released texts print.

    Attributes:
        values: all distinct values, ordered by kind and hash.
        known: for each kind, the number of distinct values of source and of holdout.
        hits: the units with a value that no other unit has, and whether such a value is printed.
    """

    values: tuple[Value, ...]
    known: dict[str, dict[str, int]]
    hits: Hits

    def counts(self) -> dict[str, dict[str, int]]:
        """For each kind: distinct values by side, their occurrences, and how many distinct values the data hold."""
        empty = {"source": 0, "holdout": 0, "both": 0, "neither": 0, "occurrences": 0}
        out = {kind: {**empty, **self.known[kind]} for kind in KINDS}
        for value in self.values:
            out[value.kind][value.where] += 1
            out[value.kind]["occurrences"] += value.occurrences
        return out


def personal_data(
    synthetic: Iterable[str], source: Iterable[str], holdout: Iterable[str], units: Units, *, key: bytes
) -> PersonalData:
    """Searches released texts for personal data, and each value in source and holdout.

    A unit is hit if a value is printed that occurs in its records and in those of no other unit. Units without such a
    value are excluded, which does not depend on their side.

    Args:
        synthetic: the released texts.
        source, holdout: the texts of each side; all three are iterated once.
        units: the unit of each text of source and holdout.
        key: of the hashes, at least 16 bytes; keep it private.

    Raises:
        ValueError: if the key is too short.
    """
    if len(key) < 16:
        raise ValueError(f"key must have at least 16 bytes, not {len(key)}")
    printed: Counter[tuple[str, str]] = Counter()
    for text in synthetic:
        printed.update(_hashed(text, key))
    sides = {"source": (source, units.source), "holdout": (holdout, units.holdout)}
    owners: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for side, (texts, numbers) in sides.items():
        for text, unit in zip(texts, numbers.tolist(), strict=True):
            for value in _hashed(text, key):
                owners.setdefault(value, set()).add((side, unit))
    own = [(value, *next(iter(of))) for value, of in owners.items() if len(of) == 1]
    flags = {"source": _unset(units.source_count), "holdout": _unset(units.holdout_count)}
    for value, side, unit in own:
        if unit >= 0:
            flags[side][unit] = max(flags[side][unit], value in printed)
    source_hits, holdout_hits = (flags[side][flags[side] >= 0] == 1 for side in ("source", "holdout"))
    hits = Hits(
        "personal_data",
        "some records were given to the generator and others held out; tell them apart by the synthetic texts",
        "a unit with a value (e-mail address, card number, …) that no other unit has, and that a synthetic text prints",
        "disclosed by a value of their own",
        source_hits,
        holdout_hits,
        {"without_own_value": int((flags["source"] < 0).sum() + (flags["holdout"] < 0).sum()), **units.about()},
    )
    values = [Value(*value, count, _where(owners.get(value, set()))) for value, count in sorted(printed.items())]
    return PersonalData(tuple(values), _known(owners), hits)


def _hashed(text: str, key: bytes) -> list[tuple[str, str]]:
    return [(kind, hmac.digest(key, f"{kind}\0{value}".encode(), "sha256")[:16].hex()) for kind, value in find(text)]


def _unset(count: int) -> np.ndarray[Any, np.dtype[np.int8]]:
    """An array for units: −1 without an own value, 0 if not hit, 1 if hit."""
    return np.full(count, -1, dtype=np.int8)


def _where(owners: set[tuple[str, int]]) -> str:
    sides = {side for side, _ in owners}
    return "both" if len(sides) == 2 else next(iter(sides), "neither")


def _known(owners: dict[tuple[str, str], set[tuple[str, int]]]) -> dict[str, dict[str, int]]:
    out = {kind: {"known_source": 0, "known_holdout": 0} for kind in KINDS}
    for (kind, _), of in owners.items():
        for side in {side for side, _ in of}:
            out[kind][f"known_{side}"] += 1
    return out
