"""Tables of real shape: 24 columns, numbers, categories, dates, empty cells, Unicode, and 10⁵ rows."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from command import run
from wide_table import columns, write_wide_claim

PEAK = """
import resource, sys
from dpassay.cli.app import run_command
code = run_command(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_cell_is_in_the_domain_and_has_the_type_of_its_column(tmp_path: Path, ending: str) -> None:
    path = write_wide_claim(tmp_path / "wide", 300, ending=ending)
    done = run("generate", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    rows = [json.loads(line) for line in (private / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 6
    for row in rows:
        assert list(row) == [column["name"] for column in columns()]
        for column in columns():
            cell = row[column["name"]]
            if cell is None:
                assert column["missing"]
            elif column["type"] == "number":
                assert isinstance(cell, float if column["decimals"] else int)
                assert -100 <= cell <= 9999
            elif column["type"] == "date":
                assert datetime.date(2000, 1, 1) <= datetime.date.fromisoformat(cell) <= datetime.date(2024, 12, 31)
            else:
                assert cell in column["values"]
    types = [str(kind) for kind in pyarrow.parquet.read_table(private / "synthetic.parquet").schema.types]
    assert types == [
        ("double" if column["decimals"] else "int64") if column["type"] == "number" else "string"
        for column in columns()
    ]


def test_a_row_that_is_wider_than_the_context_is_one_line(tmp_path: Path) -> None:
    path = write_wide_claim(tmp_path / "wide", 20, positions=128)
    done = run("generate", path, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "but model model has a context of 128; leave columns out, or shorten their words" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_memory_grows_by_less_than_two_kilobytes_a_row(tmp_path: Path) -> None:
    """The file has 175 bytes a row."""
    peaks = []
    for rows in (1_000, 100_000):
        path = write_wide_claim(tmp_path / f"{rows}", rows)
        command = [sys.executable, "-c", PEAK, "generate", str(path), "-o", str(tmp_path / f"out-{rows}"), "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        code, peak = map(int, done.stdout.split()[-2:])
        assert code == 0, done.stderr
        peaks.append(peak)
    print(f"\n{(peaks[1] - peaks[0]) / 99_000:.0f} bytes a row, {peaks[1] / 1e6:.0f} MB at most")
    assert peaks[1] - peaks[0] < 2_000 * 99_000
