"""What a claim states of how its tables are written is what its rows are read by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpassay.base.errors import InputError
from dpassay.claims.tables import PublicTable, TableData
from dpassay.data.table_schema import MISSING
from dpassay.generators.registry import json_schema, read_claim
from dpassay.generators.two_stage.claim import TwoStageClaim

PEOPLE = "pay;when;kind\n1.200,5;2020-05-31;a\n-9;NA;b\n17,25;2020-06-01 00:00:00;unknown\n"
SCHEMA = {
    "made_from": "public",
    "columns": [
        {"name": "pay", "type": "number", "low": 0, "high": 5000, "decimals": 2, "missing": True},
        {"name": "when", "type": "date", "low": "2020-01-01", "high": "2020-12-31", "missing": True},
        {"name": "kind", "type": "category", "values": ["a", "b"], "missing": True},
    ],
}
ROWS = [("1200.50", "2020-05-31", "a"), (MISSING, MISSING, "b"), ("17.25", "2020-06-01", MISSING)]
STATED = {"separator": "semicolon", "missing": ["-9", "Unknown"], "decimal": ","}


def claim(folder: Path, data: dict[str, Any], **parameters: Any) -> TwoStageClaim:
    (folder / "people.csv").write_text(PEOPLE)
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    body = {
        "name": "people",
        "data": {"source": "table", "path": "people.csv", "holdout": "people.csv", **data},
        "mechanism": "two_stage",
        "parameters": {"noise_multiplier": 1.0, "batch_size": 1, "steps": 1, **parameters},
        "public": {"records": 3, "columns": "schema.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 9.0, "delta": 1e-6},
    }
    (folder / "claim.yaml").write_text(yaml.safe_dump(body))
    result = read_claim(folder / "claim.yaml")
    assert isinstance(result, TwoStageClaim)
    return result


def test_rows_are_read_as_stated(tmp_path: Path) -> None:
    read = claim(tmp_path, STATED)
    schema, _ = read.schema_of_table()
    assert read.target_and_holdout(schema)[1] == ROWS
    (tmp_path / "unseen.csv").write_text(PEOPLE + PEOPLE.splitlines()[1])
    private, public = claim(tmp_path, {**STATED, "holdout": "unseen.csv"}).tables()
    assert (list(private.rows), public) == (ROWS, None)
    assert read.described()["data"] == {"source": "table", "path": "people.csv", "holdout": "people.csv", **STATED}


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("decimal", "row 1: column 'pay': is written as in 1.200,5, but no decimal is stated; state decimal"),
        ("missing", "row 2: column 'pay': is outside the public domain"),
    ],
)
def test_what_is_not_stated_is_refused_in_one_line(left_out: str, says: str, tmp_path: Path) -> None:
    data = {key: value for key, value in STATED.items() if key != left_out}
    with pytest.raises(InputError) as error:
        claim(tmp_path, {**data, "holdout": None}).tables()
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert "17" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"missing": [-9]}, "data.missing: must be a list of words; put numbers and truth values between quotes"),
        ({"missing": "NA"}, "data.missing: must be a list of words"),
        ({"decimal": ";"}, "data.decimal: "),
        ({"separator": "colon"}, "data.separator: "),
        ({"path": None, "holdout": None, "name": "randhie", "decimal": ","}, "data: decimal: is for files"),
    ],
)
def test_keys_of_a_file_are_checked(data: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        claim(tmp_path, data)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_public_table_is_read_as_stated(tmp_path: Path) -> None:
    path = tmp_path / "public.csv"
    path.write_text(PEOPLE)
    table = PublicTable.model_validate({"path": path, **STATED})
    schema, rows = table.load()
    assert [column.type for column in schema.columns] == ["number", "date", "category"]
    assert rows == ROWS
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    assert PublicTable.model_validate({"path": path, "columns": tmp_path / "schema.yaml", **STATED}).load()[1] == ROWS


def test_nothing_of_a_public_table_is_left_out_unsaid(tmp_path: Path) -> None:
    path = tmp_path / "public.csv"
    path.write_text("id,x\n" + "".join(f"p{row},{row % 5}\n" for row in range(30)))
    with pytest.raises(ValueError, match=r"column 'id' cannot be in a schema \(no two cells are alike, as in an id\)"):
        PublicTable.model_validate({"path": path}).load()
    (tmp_path / "schema.yaml").write_text("columns: [{name: x, type: number, low: 0, high: 9}]")
    assert PublicTable.model_validate({"path": path, "columns": tmp_path / "schema.yaml"}).load()[1][:2] == [
        ("0",),
        ("1",),
    ]


def test_editors_know_the_keys() -> None:
    definitions = json_schema()["$defs"]
    for name in (TableData.__name__, PublicTable.__name__):
        assert {"separator", "encoding", "header", "missing", "decimal"} <= {*definitions[name]["properties"]}
