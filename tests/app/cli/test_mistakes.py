"""Mistakes that people make on their first day: one line that says what was given, what is allowed, and what to do."""

from __future__ import annotations

from pathlib import Path

import command
import pytest

CLAIM = """
name: small
data: {source: file, path: notes.csv, text: note}
mechanism: private_inference
parameters: {aggregate: mean, clip: 4.0, temperature: 2.0, batch_size: 3, records_per_context: 1, tokens: 16}
public: {records: 3}
guarantee: {type: approx_dp, epsilon: 50.0, delta: 1.0e-5}
"""
DP_SGD = ["--sampling-probability", ".01", "--delta", "1e-5"]
NOTES = ["--source", "notes.csv", "--holdout", "others.csv"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claim.yaml").write_text(CLAIM)
    (tmp_path / "people.yaml").write_text(CLAIM.replace("text: note", "text: note, id: who"))
    (tmp_path / "notes.csv").write_text("note,who\nSECRET one,u1\nSECRET two,u1\nSECRET three,u2\n")
    (tmp_path / "others.csv").write_text("note,who\nSECRET four,u3\nSECRET five,u4\n")
    (tmp_path / "other.csv").write_text("memo,size\nSECRET,1\nSECRET,2\n")
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "run" / "private").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["assay", "missing.yaml"],
            "missing.yaml: cannot be read: no such file or directory; name a claim, a YAML file",
        ),
        (["assay", "run"], "run: cannot be read: is a directory; name a claim, a YAML file"),
        (["assay", "empty.yaml"], "empty.yaml: is empty; a claim is a YAML mapping with the keys name, data,"),
        (["assay", "notes.csv"], "notes.csv: is no claim; a claim is a YAML mapping with the keys name, data,"),
        (
            ["assay", "people.yaml"],
            "column 'who': two records have the same id, but an id names one record; if it names a",
        ),
        (["assay", "people.yaml"], "give the column as `user:` in place of `id:`, and state `unit: user`; else leave"),
        (["report", "run/private"], "expects the folder of a run, which `dpassay assay` wrote; there is no"),
        (["report", "run/private"], "; name run\n"),
        (["report", "run/private/assay.json"], "; name run\n"),
        (["release", "run/private", "-o", "released"], "; name run\n"),
        (["report", "notes.csv"], "there is no notes.csv/private/assay.json\n"),
        (["account", "run"], "run: a ledger is a file, such as private/ledger.sqlite in the folder of a run"),
        (["ledger", "verify", "notes.csv"], "this file is not a ledger; that of a run is private/ledger.sqlite in its"),
        (["claims", "000-44"], "no published claim '000-44'; did you mean '000-4'?; `dpassay claims` lists all"),
        (
            ["compare", "dp-sgd", *DP_SGD, "--steps", "1", "--noise-multiplier", "one"],
            "must be a number, not 'one'. See",
        ),
        (
            ["compare", "dp-sgd", *DP_SGD, "--noise-multiplier", "1", "--steps", "1e4"],
            "a whole number, written with digits",
        ),
        (
            ["audit", "table", "other.csv", *NOTES],
            "there is no column 'memo'; the columns are 'note', 'who'; rename it, or",
        ),
        (
            ["audit", "table", "notes.csv", *NOTES, "--separator", "colon"],
            "--separator must be comma, semicolon, tab, bar or space",
        ),
        (["audit", "table", "notes.csv", *NOTES, "--decimal", "comma"], '--decimal must be "." or ",", not \'comma\''),
        (
            ["audit", "text", "notes.csv", *NOTES],
            "notes.csv, line 1: there is no column 'text'; the columns are 'note', 'w",
        ),
        (
            ["audit", "text", "notes.csv", *NOTES, "--text", "note", "--join", "turn"],
            "--join must be one of turns, not",
        ),
        (
            ["audit", "text", "notes.csv", *NOTES, "--text", "note", "--join", "turns"],
            "holds a text and no list of turns",
        ),
        (
            ["audit", "membership", "text", "notes.csv", "--synthetic", "notes.csv", "--text", "note"],
            "no column 'included'",
        ),
    ],
)
def test_one_line_says_what_to_do(folder: Path, arguments: list[str], says: str) -> None:
    before = sorted(folder.rglob("*"))
    done = command.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert [line for line in done.stderr.splitlines() if "━" not in line] == [done.stderr.splitlines()[-1]]
    assert "SECRET" not in done.stderr
    assert sorted(folder.rglob("*")) == before, "nothing half-written"


def test_records_of_one_person_are_taken_as_a_user(folder: Path) -> None:
    people = CLAIM.replace("text: note", "text: note, user: who").replace("records: 3", "records: 2")
    people = people.replace("batch_size: 3", "batch_size: 2").replace("mechanism", "unit: user\nmechanism")
    (folder / "people.yaml").write_text(people)
    done = command.run("generate", "people.yaml", "-o", "out")
    assert done.returncode == 0, done.stderr
