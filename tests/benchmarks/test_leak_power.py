"""The power of audits by many runs on planted leaks: the tables are those of the audits, and audits are made once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import leak_power as power
import pytest
from seeded_bugs import BUGS
from seeded_leaks import LEAKS

BODY = power.read()


def test_the_tables_are_those_of_the_audits() -> None:
    assert power.tables(BODY["audits"], BODY["by hand"]) == BODY["tables"]
    assert power.tables(BODY["audits"][:-1], BODY["by hand"]) != BODY["tables"]


LEAST = {50: 15, 200: 15, 1000: 3}
"""Audits of each leak, at least, by their runs."""


def test_every_leak_was_audited_often_enough() -> None:
    leaks = [case.name for case in BUGS] + [leak.name for leak in LEAKS]
    assert sorted(power.RIGHT_CAUSES) == sorted(leaks) == sorted(row["generator"] for row in BODY["by hand"])
    rows = BODY["audits"]
    assert len({row["commit"] for row in rows}) == 1, "one version of the code"
    for runs in power.RUNS:
        made = [row["generator"] for row in rows if row["runs"] == runs and row["generator"] in leaks]
        assert min(made.count(name) for name in leaks) >= LEAST[runs]
    keys = [tuple(row[key] for key in ("generator", "runs", "seed")) for row in rows]
    assert len(set(keys)) == len(keys)
    assert all(row["ran"] <= row["runs"] for row in rows)


def test_no_twin_was_refuted_more_often_than_by_chance() -> None:
    """Ten audits each at β = 5%; more than nine alarms of 60 would have probability below 0.001."""
    twins = {leak.twin.__name__ for leak in LEAKS}
    rows = [row for row in BODY["audits"] if row["generator"] in twins]
    assert {row["generator"] for row in rows} == twins
    assert len(rows) == 60
    assert sum(row["refuted"] for row in rows) <= 9


def test_an_audit_that_was_made_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "FILE", tmp_path / "power.json")
    (row,) = power.rows_of("range_from_data", 50, 1, set())
    assert (row["generator"], row["runs"]) == ("range_from_data", 50)
    power.write([row], [])
    (read,) = power.read()["audits"]
    assert read == row == json.loads(json.dumps(row))
    known = {(row["generator"], row["runs"], row["seed"])}
    assert list(power.rows_of("range_from_data", 50, 1, known)) == []
    (cells,) = (item for item in power.read()["tables"]["leaks"]["rows"] if item["generator"] == "range from data")
    assert cells["50"] == ("1 of 1" if row["refuted"] else "0 of 1")
    assert cells["200"] == cells["hand"] == "–"


@pytest.mark.parametrize(
    ("name", "cause", "right"),
    [
        ("labels_from_data", "column 'city' has the target's value", True),
        ("labels_from_data", "the target shows in at least 2 columns", False),
        ("most_common_first", "the first row has the target's value", True),
        ("decimals_from_data", "column 'age' has at least 31 different values", False),
    ],
)
def test_a_cause_is_right_if_it_says_what_was_planted(name: str, cause: str, right: bool) -> None:
    assert power.is_right({"generator": name, "cause": cause}) == right


def test_by_hand_a_leak_shows_and_its_twin_does_not() -> None:
    leak = power.by_hand("decimals_from_data", 2)
    assert (leak["refuted"], round(leak["median"], 2)) == (
        2,
        3.28,
    )  # ln(0.025^(−1/100) − 1): 100 of 100 and none of 100
    assert power.by_hand("decimals_public", 2)["refuted"] == 0


def test_generators_are_known_by_one_name() -> None:
    known = power.generators()
    assert len(known) == len(BUGS) + 2 * len(LEAKS)
    wrong = [bool(audited.cause) for audited in known.values()]
    assert wrong == [True] * (len(BUGS) + len(LEAKS)) + [False] * len(LEAKS)
    for name, audited in itertools.islice(known.items(), len(wrong)):
        assert audited.generate.__name__ == name
