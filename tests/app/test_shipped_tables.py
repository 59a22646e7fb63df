"""Tables of four packages go through `dpassay table schema` and `dpassay audit table`: read, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Result, run
from shipped_tables import PACKAGES, folder_of, shipped_tables, write_thirds

TABLES = shipped_tables()
SPACES, ROW, WIDTH = (
    "has spaces between its cells",
    "looks like a row, and not like the names",
    "has a different number",
)
REFUSED = {
    "statsmodels/anes96/src/anes96.csv": SPACES,
    "statsmodels/interest_inflation/E6_jmulti.csv": SPACES,
    "statsmodels/macrodata/src/unemp.csv": WIDTH,  # a report, whose table begins on line 9
    "statsmodels/scotland/src/scotland_population.csv": f"{WIDTH}|is not CSV",  # so is this
    # Spaces between cells, and a header that does not name the first column.
    "statsmodels/scotland/src/scotvote.csv": "is not CSV; check that every quote is closed (commas between",
    "statsmodels/spector/spector.csv": SPACES,
    "sklearn/breast_cancer.csv": WIDTH,  # the first line has numbers of rows and columns, and names of classes
    "sklearn/wine_data.csv": WIDTH,
    "sklearn/iris.csv": ROW,
    "sklearn/diabetes_data_raw.csv.gz": SPACES,
    "sklearn/diabetes_target.csv.gz": ROW,
    "sklearn/digits.csv.gz": ROW,
    "sklearn/linnerud_exercise.csv": SPACES,
    "sklearn/linnerud_physiological.csv": SPACES,
}
"""Tables that are not read unless it is stated how they are written, and why."""
NO_SCHEMA = {
    "statsmodels/fertility/fertility.csv": "columns '2012', '2013' are empty",
    "vega_datasets/airports.csv": "column 'state' has more than 50 distinct words",
    "vega_datasets/la-riots.csv": "columns 'last_name', 'address' have more than 50 distinct words",
    "vega_datasets/stocks.csv": "column 'date' has more than 50 distinct words",  # as in Jan 1 2000
    "palmerpenguins/penguins-raw.csv": "column 'Individual ID' has more than 50 distinct words",
}
"""Tables from which no schema follows before columns are left out, and why."""
STATED = {
    "statsmodels/anes96/src/anes96.csv": ["--separator", "space"],
    "statsmodels/interest_inflation/E6_jmulti.csv": ["--separator", "space", "--no-header"],
    "statsmodels/spector/spector.csv": ["--separator", "space"],
    "sklearn/iris.csv": ["--header"],
    "sklearn/diabetes_data_raw.csv.gz": ["--separator", "space", "--no-header"],
    "sklearn/diabetes_target.csv.gz": ["--no-header"],
    "sklearn/digits.csv.gz": ["--no-header"],
    "sklearn/linnerud_exercise.csv": ["--separator", "space"],
    "sklearn/linnerud_physiological.csv": ["--separator", "space"],
}
"""How some of them are written: with that, they are read."""
QUICK = {
    "statsmodels/scotland/scotvote.csv",
    "statsmodels/spector/spector.csv",
    "statsmodels/fertility/fertility.csv",
    "sklearn/iris.csv",
    "sklearn/diabetes_target.csv.gz",
    "vega_datasets/la-riots.csv",
    "palmerpenguins/penguins.csv",
}


def cases(names: dict[str, Path]) -> list[object]:
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in names]


def holds(result: Result, refusal: str) -> None:
    """One line that says why, or a result."""
    if refusal:
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert any(part in result.stderr for part in refusal.split("|"))
    else:
        assert result.returncode in (0, 1, 4), result.stderr


def schema_of(name: str, folder: Path, *stated: str) -> Result:
    return run("table", "schema", TABLES[name], "-o", folder / "schema.yaml", *stated)


def audit_of(name: str, folder: Path, *stated: str) -> Result:
    source, holdout, synthetic = write_thirds(TABLES[name], folder)
    files = (synthetic, "--source", source, "--holdout", holdout, "-o", folder / "audit.json")
    return run("audit", "table", *files, "--limit", 200, *stated)


def test_the_tables_are_there() -> None:
    assert [name for name in PACKAGES if folder_of(name) is None] == []
    assert len(TABLES) >= 50
    assert {*REFUSED, *NO_SCHEMA, *QUICK, *STATED} <= {*TABLES}


@pytest.mark.parametrize("name", cases(TABLES))
def test_a_table_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    holds(schema_of(name, tmp_path), REFUSED.get(name) or NO_SCHEMA.get(name, ""))
    holds(audit_of(name, tmp_path), REFUSED.get(name, ""))


@pytest.mark.parametrize("name", cases({name: TABLES[name] for name in STATED if name in TABLES}))
def test_a_table_is_read_where_it_is_stated_how_it_is_written(name: str, tmp_path: Path) -> None:
    assert schema_of(name, tmp_path, *STATED[name]).returncode == 0
    holds(audit_of(name, tmp_path, *STATED[name]), "")
