"""What a unit says of itself and of records; expected values are written out."""

from __future__ import annotations

import pytest

from dpassay.accounting.adjacency import IDENTITIES, RECORD_UNITS, SINGLE_UNITS, UNITS, Unit
from dpassay.data.records import Record

OWNED, UNOWNED = Record("id-1", "text", user="ann"), Record("id-2", "text")


@pytest.mark.parametrize(
    ("text", "single", "needs_user", "of", "plural", "charged_for"),
    [
        ("record", True, False, ["id-1", "id-2"], "records", "one record"),
        ("user", True, True, ["ann", "id-2"], "users", "all records of a user together"),
        ("group(3)", False, False, ["id-1", "id-2"], "records", "one record"),
        ("secret", False, False, ["id-1", "id-2"], "records", "one record"),
    ],
)
def test_a_unit_answers(
    text: str, single: bool, needs_user: bool, of: list[str], plural: str, charged_for: str
) -> None:
    unit = Unit.parse(text)
    assert str(unit) == text
    assert (unit.is_single, unit.needs_user) == (single, needs_user)
    assert (unit.is_group, unit.is_secret) == (text == "group(3)", text == "secret")
    assert [unit.of(OWNED), unit.of(UNOWNED)] == of
    assert (unit.plural, unit.charged_for) == (plural, charged_for)


def test_messages_list_every_kind() -> None:
    assert (SINGLE_UNITS, RECORD_UNITS) == ("record or user", "record, user, user(k) or group(k)")
    assert all(kind in UNITS for kind in IDENTITIES)
