"""Places and budgets of secrets: what is derived from them, what is refused, and what the fingerprint covers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.mechanisms.secret_evolution.incidence import Incidence

LOOSE, STRICT = SecretProtection(1e-4, 1e-2), SecretProtection(1e-4, 1e-3)
PLACES = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]], dtype=bool)


def incidence(
    indices: np.ndarray = PLACES,
    budgets: Sequence[SecretProtection] = (LOOSE, STRICT),
    group: Sequence[int] = (0, 1, 0),
) -> Incidence:
    return Incidence(csr_array(indices), tuple(budgets), np.array(group, dtype=np.int64))


def test_what_is_derived_from_places() -> None:
    some = incidence()
    assert (some.secrets, some.records) == (3, 5)
    assert some.private.tolist() == [True, False, True, True, False]
    assert some.occurrences.tolist() == [2, 0, 2]
    assert some.occurrences.dtype == np.int64
    assert some.private.dtype == some.matrix.dtype == np.bool_


def test_without_secrets_all_is_public() -> None:
    none = incidence(np.zeros((0, 4), dtype=bool), (), ())
    assert (none.secrets, none.records) == (0, 4)
    assert not none.private.any()
    assert none.private.shape == (4,)


def test_the_fingerprint_is_of_places_and_budgets() -> None:
    known = incidence().fingerprint
    assert len(bytes.fromhex(known)) == 32
    rows, columns = np.nonzero(PLACES)
    order = np.array([3, 0, 2, 1, 0])  # unsorted, one place twice, one stored zero
    stored = coo_array(
        (np.append(np.ones(5, dtype=bool), False), (np.append(rows[order], 1), np.append(columns[order], 4))), (3, 5)
    )
    same = Incidence(stored.tocsr(), (LOOSE, STRICT), np.array([0, 1, 0]))
    assert same.fingerprint == known
    assert same.occurrences.tolist() == [2, 0, 2]
    moved = PLACES.copy()
    moved[0, [0, 1]] = moved[0, [1, 0]]
    others = [
        incidence(moved),
        incidence(PLACES[[0, 2, 1]]),
        incidence(np.hstack([PLACES, np.zeros((3, 1), dtype=bool)])),
        incidence(budgets=(STRICT, LOOSE)),
        incidence(group=(0, 1, 1)),
        incidence(budgets=(SecretProtection(1e-4, np.nextafter(1e-2, 1)), STRICT)),
    ]
    assert len({known, *(other.fingerprint for other in others)}) == 7


@pytest.mark.parametrize(
    ("budgets", "group", "message"),
    [
        ((LOOSE,), (0, 0), "3 secrets"),
        ((LOOSE,), (0, 1, 0), "indices of the 1 budgets"),
        ((LOOSE,), (0, -1, 0), "indices of the 1 budgets"),
        ((SecretProtection(0.1, 0.1),), (0, 0, 0), "r must be above p"),
    ],
)
def test_what_is_refused(budgets: tuple[SecretProtection, ...], group: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        incidence(budgets=budgets, group=group)


def test_what_was_found_cannot_be_changed() -> None:
    some = incidence()
    given = np.array([0, 1, 0])
    other = Incidence(csr_array(PLACES), (LOOSE, STRICT), given)
    given[0] = 1
    assert other.group.tolist() == [0, 1, 0]
    for array in (some.group, some.private, some.occurrences):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
