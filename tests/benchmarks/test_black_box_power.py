"""The comparison of black-box audits: what peers are given is what the comparison says, and tables are the rows."""

from __future__ import annotations

import itertools
import sys
from collections import Counter

import black_box_peers as peers
import black_box_power as power
import pytest
import seeded_bugs as bugs


@pytest.mark.parametrize("adjacency", list(peers.NUMBERS))
def test_what_searches_of_others_try_are_neighbours(adjacency: str) -> None:
    """Their first number goes from 1 to 0 or to 2."""
    items = [1] * peers.NUMBERS[adjacency]
    usual = Counter(tuple(row.items()) for row in peers.table_of(items, adjacency))
    for first in (0, 2):
        other = Counter(tuple(row.items()) for row in peers.table_of([first, *items[1:]], adjacency))
        gone, come = (usual - other).total(), (other - usual).total()
        assert (gone, come) == (1, 1) if adjacency == "replace_one" else gone + come == 1


def test_our_rows_count_refutations_and_runs() -> None:
    cases, runs = [bugs.CONTROL.name, bugs.RIGHT[0].name], [50]
    rows = [power.with_interval(row) for row in power.our_rows(cases, runs, 3, seed=0)]
    assert [(row["method"], row["case"]) for row in rows] == list(itertools.product(power.OURS, cases))
    for row in rows:
        assert row["ran"] <= 50
        assert row["refuted"] == (3 if row["case"] == bugs.CONTROL.name else 0)
        assert row["share"] == row["refuted"] / 3
        assert row["interval"][0] <= row["share"] <= row["interval"][1]


def test_an_auditor_that_is_not_installed_says_so() -> None:
    (row,) = power.their_rows("statdp", sys.executable, [bugs.CONTROL.name], [50], 1)
    assert row["missing"].startswith("statdp is not installed")
    assert power.tables([row]) == f"statdp: {row['missing']}"


def test_tables_show_every_row_in_its_place() -> None:
    rows = [
        power.with_interval(
            {
                "auditor": "one",
                "version": "1",
                "method": "way",
                "neighbours": "own",
                "takes": "counts",
                "case": case.name,
                "runs": runs,
                "ran": runs,
                "refuted": index,
                "repetitions": 10 if runs == 50 else 0,
                "seconds": 2.0,
            }
        )
        for index, case in enumerate((*bugs.BUGS, *bugs.RIGHT))
        for runs in (50, 200)
    ]
    first, second = power.tables(rows).split("\n\n200 runs:")
    shown = first.splitlines()[-1].strip("| ").split(" | ")
    assert shown[:2] == ["one 1, way", "own, counts"]
    assert [cell.split()[0] for cell in shown[2:-1]] == [str(10 * index) for index in range(7)]
    assert shown[2] == "0 (0–31)"  # 1 − 0.025^(1/10)
    assert shown[-1] == "2"
    assert second.splitlines()[-1].count("–") == 8  # nothing was asked, and there are no seconds
