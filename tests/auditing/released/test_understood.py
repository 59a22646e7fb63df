"""What `dpassay audit table` takes columns for is shown, users are units, and nothing is concluded from nothing."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest
from written_tables import Writing, near_copies, people

Row = dict[str, Any]


def write(path: Path, rows: Sequence[Row], separator: str = ",") -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        table.writeheader()
        table.writerows(rows)
    return path


def audit(folder: Path, synthetic: Sequence[Row], seen: Sequence[Row], unseen: Sequence[Row], *more: object) -> Any:
    """The exit code, and the result as JSON."""
    sides = [write(folder / f"{name}.csv", rows) for name, rows in (("seen", seen), ("unseen", unseen))]
    made = write(folder / "made.csv", synthetic)
    result = command.run("audit", "table", made, "--source", sides[0], "--holdout", sides[1], *more, "--json")
    assert result.returncode in (0, 1, 4), result.stderr
    return result.returncode, json.loads(result.stdout)


def again(folder: Path, *more: object) -> command.Result:
    """The same command on the files that are there, in words."""
    sides = ("--source", folder / "seen.csv", "--holdout", folder / "unseen.csv")
    return command.run("audit", "table", folder / "made.csv", *sides, *more)


def columns(document: Any) -> dict[str, Any]:
    return {column["name"]: column for column in document["understood"]["columns"]}


def hits(document: Any, name: str = "closest_record") -> list[int]:
    (rates,) = (audit["rates"] for audit in document["audits"] if audit["name"] == name)
    return [rate["hits"] for rate in rates[:2]]


def measurements(count: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        {
            "height": round(float(rng.normal(170, 10)), 1),
            "weight": round(float(rng.normal(75, 14)), 1),
            "income": int(rng.lognormal(8, 0.8)),
        }
        for _ in range(count)
    ]


def nudged(rows: Sequence[Row], seed: int) -> list[Row]:
    """Near copies, none of which is exact."""
    rng = np.random.default_rng(seed)
    return [
        row | {name: round(row[name] + float(rng.choice([-0.1, 0.1])), 1) for name in list(row)[:2]} for row in rows
    ]


@pytest.fixture
def leak() -> list[list[Row]]:
    """Synthetic rows of which each fifth of the source has a near copy, the source, and the holdout."""
    seen, unseen = measurements(400, 1), measurements(400, 2)
    return [[*nudged(seen[:80], 3), *measurements(320, 4)], seen, unseen]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_any_separator(leak: list[list[Row]], separator: str, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number}.csv", rows, separator) for number, rows in enumerate(leak)]
    arguments = ("--source", files[1], "--holdout", files[2], "--coins", "--epsilon", 1, "--json")
    result = command.run("audit", "table", files[0], *arguments)
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert hits(document) == [80, 0]
    assert document["audits"][1]["bounds"][0]["value"] >= 2.5
    assert set(document["understood"]["written"].values()) == {
        f"{ {',': 'comma', ';': 'semicolon', chr(9): 'tab', '|': 'bar'}[separator] }s between cells, utf-8"
    }


def test_a_missing_cell_does_not_turn_numbers_into_words(leak: list[list[Row]], tmp_path: Path) -> None:
    for mark in ("", "NA", "n/a", "-", "\\N"):
        marked = [[dict(row) for row in rows] for rows in leak]
        for rows in marked:
            rows[-1]["height"] = mark
        code, document = audit(tmp_path, *marked, "--coins", "--epsilon", 1)
        assert (code, hits(document)) == (1, [80, 0])
        assert columns(document)["height"]["missing"] == {"synthetic": 1, "source": 1, "holdout": 1}


def test_dates_are_measured(tmp_path: Path) -> None:
    first = datetime.date(2020, 1, 1)

    def visits(count: int, seed: int) -> list[Row]:
        rng = np.random.default_rng(seed)
        return [
            {
                name: first + datetime.timedelta(int(day))
                for name, day in zip("ab", rng.integers(0, 9000, 2), strict=True)
            }
            for _ in range(count)
        ]

    seen, day = visits(400, 1), datetime.timedelta(1)
    near = [row | {"a": row["a"] + day, "b": row["b"] - day} for row in seen[:80]]
    code, document = audit(tmp_path, [*near, *visits(320, 3)], seen, visits(400, 2), "--coins", "--epsilon", 1)
    assert (code, hits(document)) == (1, [80, 0])
    assert {column["kind"] for column in columns(document).values()} == {"date"}


def test_warnings_name_what_could_hide_a_leak(tmp_path: Path) -> None:
    def rows(count: int, seed: int, city: str = "Ulm", **more: Any) -> list[Row]:
        return [
            row
            | {"city": city, "size": "170 cm", "id": f"p{seed}-{number}", "when": "01/02/2020", "odd": number}
            | more
            for number, row in enumerate(measurements(count, seed))
        ]

    synthetic, seen, unseen = rows(40, 1, city="ULM GERMANY"), rows(40, 2), rows(40, 3, city="Bonn")
    seen[6]["odd"] = "seven"
    for row in synthetic[:9]:
        row["height"] = ""
    for row in synthetic:
        row["income"] = 10**9
        row["when"] = "03/04/2021"
    _, document = audit(tmp_path, synthetic, seen, unseen, "--ignore", "weight")
    of = columns(document)
    assert of["odd"]["warnings"] == ["1 cells of source are no number as in 1200.5 (rows 7) and count as missing"]
    assert of["city"]["warnings"][0] == "no value of synthetic occurs in the other files"
    assert of["city"]["warnings"][1].startswith("source and holdout differ more than chance explains")
    assert of["height"]["warnings"] == ["more than 5 % of its cells are missing in synthetic only"]
    assert of["income"]["warnings"] == ["all values of synthetic are outside the range of the other files"]
    assert "it could also be 05/31/2013" in of["when"]["warnings"][0]
    assert (of["weight"]["used"], of["weight"]["why"]) == (False, "ignored, as stated")
    assert (of["size"]["kind"], of["id"]["kind"]) == ("constant", "identifier")
    said = again(tmp_path)
    assert "Column 'city': no value of synthetic occurs in the other files." in " ".join(said.stdout.split())
    assert "seven" not in said.stdout + said.stderr


def test_what_a_user_states_goes_before_what_is_found(leak: list[list[Row]], tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        "columns:\n- {name: height, type: category, values: ['1']}\n- {name: weight, type: number, low: 0, high: 9}\n"
    )
    mixed = [
        [row | {"weight": row["weight"] if index % 2 else "unknown"} for index, row in enumerate(rows)] for rows in leak
    ]
    _, document = audit(tmp_path, *mixed)
    assert columns(document)["weight"]["form"] == ""
    assert "% of its cells are numbers or dates" in columns(document)["weight"]["warnings"][0]
    _, document = audit(tmp_path, *mixed, "--number", "weight", "--categorical", "income")
    assert [columns(document)[name]["kind"] for name in leak[0][0]] == ["number", "number", "category"]
    _, document = audit(tmp_path, *mixed, "--schema", schema)
    assert [columns(document)[name]["kind"] for name in leak[0][0]] == ["category", "number", "number"]
    _, document = audit(tmp_path, *mixed, "--missing", "unknown")
    assert columns(document)["weight"]["missing"] == {"synthetic": 200, "source": 200, "holdout": 200}
    wrong = again(tmp_path, "--number", "weight", "--categorical", "weight")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "dpassay: column 'weight' is named twice; name it once, as what it is\n",
    )


def test_users_are_units(tmp_path: Path) -> None:
    """Each user has three rows, of which the synthetic table has a near copy of one or none."""

    def of_users(rows: Sequence[Row], start: int) -> list[Row]:
        return [{"user": f"u{start + number // 3}"} | row for number, row in enumerate(rows)]

    seen, unseen = measurements(300, 1), measurements(300, 2)
    synthetic = [*nudged(seen[:60:3], 3), *measurements(100, 4)]
    sides = (synthetic, of_users(seen, 0), of_users(unseen, 1000))
    code, document = audit(tmp_path, *sides, "--user", "user", "--coins", "--epsilon", 0.5)
    assert (code, document["unit"], document["units"]["source"]) == (1, "user", 100)
    assert hits(document) == [20, 0]
    assert columns(document)["user"]["why"] == "names the users, who are the units"
    few = audit(tmp_path, *sides, "--user", "user", "--limit", 120)[1]
    assert few["used"] == 120
    assert sum(rate["trials"] for rate in few["audits"][1]["rates"][:2]) == 120
    both = [*sides[2], sides[1][0]]
    write(tmp_path / "unseen.csv", both)
    wrong = again(tmp_path, "--user", "user")
    assert wrong.returncode == 2
    assert "1 users of column 'user' are in both; put all records of a user on one side" in wrong.stderr


def test_users_of_one_row_are_rows(leak: list[list[Row]], tmp_path: Path) -> None:
    """With one row each, a user is hit exactly where its row is."""
    named = [leak[0], *([{"user": f"{side}{n}"} | row for n, row in enumerate(leak[side])] for side in (1, 2))]
    _, of_users = audit(tmp_path, *named, "--user", "user")
    _, of_rows = audit(tmp_path, *leak)
    for name in ("exact_match", "closest_record", "singling_out"):
        assert hits(of_users, name) == hits(of_rows, name)


def test_no_conclusion_where_nothing_could_have_been_found(leak: list[list[Row]], tmp_path: Path) -> None:
    one = [[{"income": row["income"], "same": "x"} for row in rows] for rows in leak]
    for rows, seed in zip(one, (5, 6, 7), strict=True):
        for row, drawn in zip(rows, measurements(400, seed), strict=True):
            row["income"] = drawn["height"]
    code, document = audit(tmp_path, *one)
    assert (code, document["conclusion"]) == (4, None)
    assert "only 1 of 2 columns hold more than one value" in document["audits"][0]["conclusion"]
    assert document["audits"][0]["conclusion"].startswith("No conclusion: ")
    few = [rows[:4] for rows in ([*leak[0][:2], *leak[0][100:102]], leak[1][:2], leak[2][:2])]
    code, document = audit(tmp_path, *few, "--coins", "--epsilon", 5)
    assert (code, document["conclusion"], document["refuted"]) == (4, None, None)
    assert "give more units" in document["audits"][0]["conclusion"]
    said = again(tmp_path)
    assert said.returncode == 4


def test_a_leak_that_is_found_all_the_same_is_one(tmp_path: Path) -> None:
    """Of one column exact copies are found, so that a claim is refuted although attacks on rows need two."""
    texts = [[{"text": f"row {side} {number}"} for number in range(200)] for side in range(2)]
    code, document = audit(tmp_path, texts[0], *texts, "--coins", "--epsilon", 1)
    assert (code, document["refuted"]) == (1, True)


def test_the_numbers_do_not_depend_on_an_index_that_is_left_out(tmp_path: Path) -> None:
    seen, unseen = people(60, 1), people(60, 2)
    synthetic = [*near_copies(seen[:30], 3), *people(30, 4)]
    results = []
    for index in (False, True):
        way = Writing(index=index)
        files = [way.write(rows, tmp_path / f"{n}{index}") for n, rows in enumerate((synthetic, seen, unseen))]
        ignore = ("--ignore", "Unnamed: 0") if index else ()
        shown = command.run("audit", "table", files[0], "--source", files[1], "--holdout", files[2], "--json", *ignore)
        results.append(hits(json.loads(shown.stdout)))
    assert results[0] == results[1]
