"""`dpassay table utility` as a person meets it: where the numbers go, who may read them, one-line errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest
import yaml

from dpassay.data.table_schema import Row, Schema
from dpassay.utility import TableSettings, measure_table
from dpassay.utility.tables import compare_tables

DOCS = Path(__file__).resolve().parents[2] / "docs" / "utility.md"
COLUMNS = [
    {"name": "age", "type": "number", "low": 0, "high": 99},
    {"name": "sex", "type": "category", "values": ["f", "m"], "missing": True},
    {"name": "ill", "type": "category", "values": ["no", "yes"]},
]
SCHEMA = Schema.model_validate({"columns": COLUMNS})


def dpassay(*arguments: object) -> command.Result:
    return command.run("table", "utility", *arguments)


def rows(seed: int, count: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [SCHEMA.uniform(rng) for _ in range(count)]


def write(path: Path, some: Iterable[Row], **more: Any) -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
    objects = ({**dict(zip(SCHEMA.names, SCHEMA.cells(row), strict=True)), **more} for row in some)
    path.write_text("".join(json.dumps(item) + "\n" for item in objects))
    return path


def write_csv(path: Path, some: Iterable[Row]) -> None:
    cells = (["" if cell is None else str(cell) for cell in SCHEMA.cells(row)] for row in some)
    path.write_text("\n".join([",".join(SCHEMA.names), *map(",".join, cells)]) + "\n")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, real rows, rows that the run did not see, and the schema."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "run" / "private" / "synthetic.jsonl", rows(0, 50))
    write(tmp_path / "real.jsonl", rows(1, 60), id="of no column")
    write(tmp_path / "held-out.jsonl", rows(2, 40))
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"made_from": "a public sample", "columns": COLUMNS}))
    return tmp_path


ASKED = ["--real", "real.jsonl", "--schema", "schema.yaml"]


def measured(*arguments: object) -> dict[str, Any]:
    result = dpassay(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def test_everything_is_measured_and_private(files: Path) -> None:
    pytest.importorskip("xgboost")
    result = measured("run", *ASKED, "--held-out", "held-out.jsonl", "--target", "ill")
    path = files / "run" / "private" / "table-utility.json"
    assert json.loads(path.read_text()) == result
    assert path.stat().st_mode & 0o777 == 0o600
    assert "computed from private data" in result["private"]
    assert [result[of]["rows"] for of in ("synthetic", "real", "held_out")] == [50, 60, 40]
    made, real, held_out = rows(0, 50), rows(1, 60), rows(2, 40)
    for name, first, second in (
        ("to_real", made, real),
        ("to_held_out", made, held_out),
        ("real_to_held_out", real, held_out),
    ):
        assert result[name] == json.loads(json.dumps(compare_tables(SCHEMA, first, second).to_json()))
    efficacy = result["efficacy"]
    assert efficacy["tested_on"] == "held_out"
    assert efficacy["rows"] == {"synthetic": 50, "real_training": 60, "real_test": 40}


def keys(value: Any) -> Any:
    """The keys of a JSON document in order, with the types of its leaves."""
    if isinstance(value, dict):
        return {key: keys(of) for key, of in value.items()}
    if isinstance(value, list):
        return [keys(of) for of in value]
    return type(value).__name__


FILE = {"path": "str", "rows": "int"}
INTERSECTION = {"bins_20": "float", "bins_50": "float", "mean": "float"}
COMPARISON = {
    "rows": {"synthetic": "int", "real": "int"},
    "histograms": INTERSECTION,
    "columns": [{"name": "str", "intersection": INTERSECTION}] * 3,
    "pairs": INTERSECTION,
    "associations": {"share": "float", "pairs": "int", "levels": [["int"] * 4] * 4},
}
SCORES = {"accuracy": "float", "macro_f1": "float", "rarer_f1": "float", "auc": "float"}
WRITTEN = {
    "schema": "int",
    "private": "str",
    "version": "str",
    "synthetic": FILE,
    "real": FILE,
    "held_out": FILE,
    "seed": "int",
    "to_real": COMPARISON,
    "to_held_out": COMPARISON,
    "real_to_held_out": COMPARISON,
    "efficacy": {
        "target": "str",
        "classes": "int",
        "rarer": "str",
        "never_seen": "int",
        "logistic_regression": {"train_on_synthetic": SCORES, "train_on_real": SCORES},
        "xgboost": {"train_on_synthetic": SCORES, "train_on_real": SCORES},
        "majority_class": SCORES,
        "rows": {"synthetic": "int", "real_training": "int", "real_test": "int"},
        "tested_on": "str",
    },
}


def test_the_document_has_these_keys(files: Path) -> None:
    pytest.importorskip("xgboost")
    settings = TableSettings(Path("real.jsonl"), Path("schema.yaml"), held_out=Path("held-out.jsonl"), target="ill")
    result = measure_table(Path("run"), settings)
    assert json.dumps(keys(json.loads(json.dumps(result.to_json())))) == json.dumps(WRITTEN)


def test_without_held_out_rows_some_real_ones_are_set_apart(files: Path) -> None:
    pytest.importorskip("xgboost")
    result = measured("run", *ASKED, "--target", "ill")
    assert result["held_out"] is result["to_held_out"] is result["real_to_held_out"] is None
    sizes = result["efficacy"]["rows"]
    assert result["efficacy"]["tested_on"] == "real"
    assert sizes["real_training"] + sizes["real_test"] == 60
    assert sizes["real_test"] > 0
    assert measured("run", *ASKED, "--target", "ill", "--seed", 1)["efficacy"]["rows"] != sizes


def test_the_table_says_that_it_is_private(files: Path) -> None:
    pytest.importorskip("xgboost")
    result = dpassay("run", *ASKED, "--held-out", "held-out.jsonl", "--target", "ill", "-o", "elsewhere.json")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("PRIVATE. Every number here is computed from private data")
    for words in ("histograms, 20 bins", "CorAcc", "age, mean", "XGBoost, synthetic", "largest class (floor)"):
        assert words in result.stdout
    assert (files / "elsewhere.json").is_file()
    assert [file.name for file in (files / "run" / "private").iterdir()] == ["synthetic.jsonl"]
    assert dpassay("run", *ASKED, "-q").stdout == ""


def test_xgboost_is_imported_only_for_a_target(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    assert measured("run", *ASKED)["efficacy"] is None
    asked = dpassay("run", *ASKED, "--target", "ill")
    assert asked.returncode == 2
    assert asked.stderr.startswith("dpassay: xgboost is not installed; classifiers of tables need pip install")
    assert len(asked.stderr.splitlines()) == 1


def lines(path: str, *some: str) -> Callable[[], object]:
    return lambda: Path(path).write_text("".join(f"{line}\n" for line in some))


@pytest.mark.parametrize(
    ("broken", "arguments", "says"),
    [
        (None, ["run", "--real", "no.jsonl", "--schema", "schema.yaml"], "no.jsonl: there is no such file"),
        (None, ["no.jsonl", *ASKED], "no.jsonl: there is no such file"),
        (None, [".", *ASKED], "holds neither private/synthetic.jsonl nor"),
        (None, ["run", "--real", "real.jsonl", "--schema", "no.yaml"], "no.yaml: cannot be read"),
        (lines("schema.yaml", "columns: 1"), ["run", *ASKED], "schema.yaml: columns: must be a list of columns"),
        (None, ["run", *ASKED, "--target", "weight"], "the schema has no column 'weight'; it has age, sex, ill"),
        (None, ["run", *ASKED, "--target", "age"], "column 'age' has numbers or dates"),
        (None, ["run", *ASKED, "--seed", "-1"], "seed must be at least 0"),
        (
            lines("real.jsonl", '{"age": 5, "sex": "f", "ill": "no"}', '{"age": 5, "sex": "f", "ill": "SECRET"}'),
            ["run", *ASKED],
            "real.jsonl, line 2: column 'ill': is outside the public domain of the schema (one of 2 categories)",
        ),
        (
            lines("real.jsonl", '{"age": "SECRET", "sex": "f", "ill": "no"}'),
            ["run", *ASKED],
            "real.jsonl, line 1: column 'age': is outside the public domain",
        ),
        (
            lines("real.jsonl", '{"age": 7, "sex": "SECRET"}'),
            ["run", *ASKED],
            "real.jsonl, line 1: column 'sex': is outside the public domain",
        ),
        (
            lines("real.jsonl", '{"sex": "f", "ill": "no"}'),
            ["run", *ASKED],
            "real.jsonl, line 1: there is no column 'age'",
        ),
        (
            lines("real.jsonl", '{"age": null, "sex": "f", "ill": "no"}'),
            ["run", *ASKED],
            "real.jsonl, line 1: column 'age': is empty, but the schema does not allow missing values here",
        ),
        (
            lines("real.jsonl", '{"age": 5, "sex": "f", "ill": "no"}'),
            ["run", *ASKED],
            "real.jsonl: holds one row; utility compares at least 2 on each side",
        ),
        (lines("real.jsonl"), ["run", *ASKED], "real.jsonl: holds no rows"),
        (lines("held-out.jsonl"), ["run", *ASKED, "--held-out", "held-out.jsonl"], "held-out.jsonl: holds no rows"),
        (lines("released/claim.json"), ["run", *ASKED, "-o", "released/u.json"], "lies in a released folder"),
        (None, ["run", *ASKED, "-o", "run"], "name a file in an existing folder with -o"),
        (None, ["run", *ASKED, "-o", "schema.yaml"], "schema.yaml"),
    ],
)
def test_errors_are_one_line_without_values(
    files: Path, broken: Callable[[], object] | None, arguments: list[str], says: str
) -> None:
    (files / "released").mkdir()
    before = (files / "schema.yaml").read_bytes()
    if broken is not None:
        broken()
    result = dpassay(*arguments, "-q")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert says in line
    assert "SECRET" not in line
    assert not (files / "run" / "private" / "table-utility.json").exists()
    assert "columns: 1" in (files / "schema.yaml").read_text() or (files / "schema.yaml").read_bytes() == before


def test_formats_of_files_do_not_matter(files: Path) -> None:
    """CSV has words only, and an empty cell is an empty string."""
    write_csv(Path("made.csv"), rows(0, 50))
    assert measured("made.csv", *ASKED)["to_real"] == measured("run", *ASKED)["to_real"]
    assert Path("private/table-utility.json").is_file()


def test_files_are_read_as_it_is_stated_how_they_are_written(files: Path) -> None:
    stated = ["--separator", "bar", "--encoding", "latin-1", "--missing", "unbekannt, ä", "--decimal", ","]
    for name, some in (("made.csv", rows(0, 50)), ("real.csv", rows(1, 60))):
        words = (["unbekannt, ä" if cell is None else str(cell) for cell in SCHEMA.cells(row)] for row in some)
        lines = ["|".join(SCHEMA.names), *(f"{age},0|{sex}|{ill}" for age, sex, ill in words)]
        Path(name).write_text("\n".join(lines), encoding="latin-1")
    asked = ["made.csv", "--real", "real.csv", "--schema", "schema.yaml"]
    assert measured(*asked, *stated)["to_real"] == measured("run", *ASKED)["to_real"]
    for left_out, says in ((2, "is not UTF-8 text"), (4, "is outside the public domain"), (6, "no decimal is stated")):
        result = dpassay(*asked, *stated[:left_out], *stated[left_out + 2 :], "-q")
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert says in line


def test_the_guide_runs(files: Path) -> None:
    """The commands for tables in docs/utility.md; its Python runs in `test_utility.py`."""
    pytest.importorskip("xgboost")
    commands = re.findall(r"```sh\ndpassay table utility (.*?)\n```", DOCS.read_text(), flags=re.DOTALL)
    assert commands
    (files / "run").rename(files / "report")
    for name in ("patients.csv", "unseen.csv"):
        write_csv(Path(name), rows(1, 60))
    (files / "schema.yaml").rename(files / "columns.yaml")
    for line in commands:
        result = dpassay(*line.replace("\\\n", " ").split(), "-q")
        assert result.returncode == 0, result.stderr
