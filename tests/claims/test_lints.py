"""Warnings: what a claim says that is easily misread, and what only its data show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import pytest
import yaml
from whole_documents import every_document_ends

from dpassay.claims.lints import private_warnings, public_warnings
from dpassay.cli.exit_codes import ExitCode
from dpassay.data.records import Record
from dpassay.generators.registry import read_claim

CLAIM: dict[str, Any] = {
    "name": "small",
    "data": {"source": "file", "path": "notes.jsonl", "user": "user"},
    "mechanism": "private_inference",
    "parameters": {"aggregate": "mean", "clip": 4.0, "temperature": 2.0, "batch_size": 20, "tokens": 5},
    "public": {"records": 100, "context_tokens": 40},
    "guarantee": {"type": "approx_dp", "epsilon": 10.0, "delta": 1e-3},
}
SECRETS: dict[str, Any] = {
    "name": "small",
    "data": {"source": "file", "path": "notes.jsonl"},
    "unit": "secret",
    "adjacency": "secret",
    "mechanism": "secret_evolution",
    "parameters": {
        "secrets": [{"presidio": ["CREDIT_CARD"]}],
        **{"p": 0.001, "r": 0.05, "rounds": 1, "synthetic": 4, "variations": 2, "clusters": 2},
    },
    "guarantee": {"type": "secret_protection", "p": 0.001, "r": 0.05},
}


@pytest.fixture(scope="module", autouse=True)
def whole_documents() -> Iterator[None]:
    with every_document_ends():
        yield


def claim_of(folder: Path, base: dict[str, Any], **changes: Any) -> Any:
    path = folder / "claim.yaml"
    path.write_text(yaml.safe_dump(base | changes))
    return read_claim(path)


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [
        ({"type": "approx_dp", "epsilon": 10.0, "delta": 0.0099}, []),
        (
            {"type": "approx_dp", "epsilon": 10.0, "delta": 0.01},
            ["at least 1/n", "reveals all data with this probability"],
        ),
        ({"type": "approx_dp", "epsilon": 10.1, "delta": 1e-3}, ["factor of e^10.1"]),
        ({"type": "pure_dp", "epsilon": 12.0}, ["factor of e^12"]),
        ({"type": "pure_dp", "epsilon": 1.0}, []),
        ({"type": "zcdp", "rho": 50.0}, []),
        ({"type": "ex_post", "epsilon": 3.0}, ["about one output only"]),
    ],
)
def test_public_facts(guarantee: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    result = public_warnings(claim_of(tmp_path, CLAIM, guarantee=guarantee))
    assert len(result) == len(words)
    assert all(word in sentence for word, sentence in zip(words, result, strict=True))


def test_delta_is_compared_with_the_number_of_units(tmp_path: Path) -> None:
    guarantee = {"type": "approx_dp", "epsilon": 1.0, "delta": 0.0099}
    for unit, what in (("record", "one record"), ("user", "all records of one user")):
        public = {"records": 102, "context_tokens": 40}
        (said,) = public_warnings(claim_of(tmp_path, CLAIM, unit=unit, guarantee=guarantee, public=public))
        assert f"publishes {what} in full" in said


def test_secrets_that_a_recogniser_finds_by_their_values(tmp_path: Path) -> None:
    (sentence,) = public_warnings(claim_of(tmp_path, SECRETS))
    assert "recogniser" in sentence
    pattern = SECRETS["parameters"] | {"secrets": [{"pattern": "[0-9]{5}"}]}
    assert public_warnings(claim_of(tmp_path, SECRETS, parameters=pattern)) == []


def records(count: int, users: int | None = None) -> list[Record]:
    return [Record(str(i), f"note {i}", None, None if users is None else str(i % users)) for i in range(count)]


def numbers(count: int) -> list[Record]:
    return [Record(f"number {i}", str(i / 2)) for i in range(count)]


@pytest.mark.parametrize(
    ("changes", "read", "runs", "words"),
    [
        ({}, records(100), ["small"], []),
        ({}, records(60), ["small"], []),
        ({}, records(59), ["small"], ["n = 100 records as public (public.records), and 59 were read. Whatever"]),
        ({}, records(141), ["small"], ["141 were read"]),
        ({}, records(100, users=100), ["small"], []),
        ({}, records(100, users=99), ["small"], ["1 of 99 users"]),
        ({"unit": "user"}, records(200, users=100), ["small"], []),
        (
            {"unit": "user"},
            records(100, users=10),
            ["small"],
            ["n = 100 users as public (public.records), and 10 in 100 records were read. At unit user"],
        ),
        ({}, records(100), ["small", "other"], ["other runs, 'other'"]),
        (
            {},
            [Record(f"n{i}", str(i / 2)) for i in range(51)] + records(49),
            ["small"],
            ["51 of 100 texts are numbers"],
        ),
        ({}, [Record(f"n{i}", str(i / 2)) for i in range(50)] + records(50), ["small"], []),
    ],
)
def test_what_only_the_data_show(
    changes: dict[str, Any], read: list[Record], runs: list[str], words: list[str], tmp_path: Path
) -> None:
    result = private_warnings(claim_of(tmp_path, CLAIM, **changes), read, runs)
    assert len(result) == len(words)
    assert all(word in sentence for word, sentence in zip(words, result, strict=True))


def test_where_warnings_are_shown(tmp_path: Path) -> None:
    """Those of the claim when the run begins and those of what it made when it ends, on both pages; those of the data
    with the verdict and on its page."""
    rows = [{"text": f"note {i}", "user": str(i % 10)} for i in range(20)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    guarantee = {"type": "approx_dp", "epsilon": 1000.0, "delta": 0.02}
    claim_of(tmp_path, CLAIM, guarantee=guarantee)
    done = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "--json")
    assert done.returncode == ExitCode.DONE
    notes = [json.loads(line)["note"] for line in done.stderr.splitlines() if "note" in json.loads(line)]
    assay = json.loads(done.stdout)
    assert notes == [f"Warning: {warning}" for warning in assay["warnings"]]
    assert len(assay["warnings"]) == 4
    assert "does not know texts like" in assay["warnings"][3]
    assert len(assay["private_warnings"]) == 3
    again = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out")
    assert again.returncode == ExitCode.DONE
    for warning in assay["private_warnings"]:
        assert f"Warning, private like the verdict: {warning}" in again.stdout
        assert warning not in again.stderr
    released = command.run("release", tmp_path / "out", "-o", tmp_path / "released")
    assert released.returncode == ExitCode.DONE, released.stderr
    private = (tmp_path / "out" / "private" / "report.html").read_text()
    public = "".join(path.read_text(errors="replace") for path in (tmp_path / "released").iterdir())
    assert private.count("Read with care") == public.count("Read with care") == 1
    for page, there in ((private, True), (public, False)):
        assert ("10 of 10 users" in page) is there
        assert ("20 were read" in page) is there
        assert "is at least 1/n" in page
    quiet = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (ExitCode.DONE, "", "")


def test_made_up_keys_are_called_a_demonstration(tmp_path: Path) -> None:
    """On both pages, before anything else."""
    body = CLAIM | {"public": {"records": 100, "labels": ["key"], "context_tokens": 24}}
    path = tmp_path / "claim.yaml"
    for name, is_one in (("keys", True), ("notes", False)):
        path.write_text(yaml.safe_dump(body | {"data": {"source": "builtin", "name": name}}))
        said = public_warnings(read_claim(path))
        assert ["No person’s data were used" in line for line in said] == [True] * is_one
