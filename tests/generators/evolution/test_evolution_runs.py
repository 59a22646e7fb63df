"""Runs of the evolutions through the front door: verdicts, files, ledgers, and what goes wrong on the way.

Candidates are written by an endpoint on this machine, so that no model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run
from printed_numbers import two_forms
from text_server import TextServer, text_server

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run_files import prepare
from dpassay.accounting.registry import upper_bounds
from dpassay.accounting.secret_protection.groups import of_group
from dpassay.generators.registry import read_claim
from dpassay.jobs import assay
from dpassay.reports.assay import Assay
from dpassay.reports.html import render
from dpassay.reports.release import releasable
from dpassay.testing import assertions

TREES = ("ash", "birch", "cedar", "elm", "fir", "hazel")
CODES = ("10001", "10002", "10003", "20001", "20002")


@pytest.fixture(scope="module")
def server() -> Iterator[TextServer]:
    with text_server() as server:
        yield server


@pytest.fixture(autouse=True)
def mended(request: pytest.FixtureRequest) -> None:
    """The endpoint answers again, and forgets what it was asked."""
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        server.fails_after = None
        server.prompts.clear()


def records(codes: tuple[str, ...] = CODES) -> list[dict[str, Any]]:
    """Sixty texts about trees; each code is in three of them, and five in six of the texts have none for five codes."""
    texts = [f"{TREES[i % 6]} and {TREES[(i // 6) % 6]} number {i}" for i in range(60)]
    for index, code in enumerate(codes):
        for copy in range(3):
            texts[(4 * index + copy) % 60] += f" SECRET {code}"
    return [{"text": text, "id": i} for i, text in enumerate(texts)]


def body(server: TextServer, mechanism: str = "secret_evolution", **changes: Any) -> dict[str, Any]:
    """A claim; `changes` are made to its parameters."""
    parameters: dict[str, Any] = {
        "rounds": 2,
        "synthetic": 3,
        "variations": 2,
        "endpoint": {"url": server.url, "model": "words", "tries": 1},
    }
    guarantee: dict[str, Any] = {"type": "approx_dp", "epsilon": 2.0, "delta": 1e-5}
    if mechanism == "secret_evolution":
        parameters |= {"secrets": [{"pattern": r"\b\d{5}\b"}], "p": 0.001, "r": 0.05, "clusters": 4}
        guarantee = {"type": "secret_protection", "p": 0.001, "r": 0.05}
    else:
        parameters["noise_multiplier"] = 4.0
    return {
        "name": "trees",
        "data": {"source": "file", "path": "trees.jsonl", "text": "text", "id": "id"},
        "mechanism": mechanism,
        "parameters": parameters | changes,
        "public": {"records": 60},
        "guarantee": guarantee,
    }


def write(folder: Path, claim: dict[str, Any], rows: list[dict[str, Any]] | None = None) -> Path:
    rows = records() if rows is None else rows
    (folder / "trees.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "claim.yaml"
    path.write_text(yaml.safe_dump(claim))
    return path


def charged(folder: Path) -> list[tuple[str, int]]:
    with Ledger.open(folder / "run" / "private" / "ledger.sqlite", read_only=True) as ledger:
        ledger.verify()
        assert ledger.event() == ledger.run("trees").plan
        return [(repr(row.event), row.count) for row in ledger.events()]


def refused(path: Path, says: str, name: str = "generate", *options: object) -> None:
    """One line and exit code 2; nothing was begun, and nothing of a record is in the line."""
    result = run(name, path, "-o", path.parent / "run", *options)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert says in result.stderr
    assert not [word for word in ("SECRET", *CODES) if word in result.stderr]
    assert not (path.parent / "run").exists()


def works(path: Path) -> list[dict[str, Any]]:
    result = run("generate", path, "-o", path.parent / "run", "-q")
    assert (result.returncode, result.stderr) == (0, "")
    lines = (path.parent / "run" / "private" / "synthetic.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("mechanism", ["secret_evolution", "aug_pe"])
def test_a_claim_is_supported_and_its_pages_tell_no_secret(mechanism: str, server: TextServer, tmp_path: Path) -> None:
    path = write(tmp_path, body(server, mechanism))
    done = assay.assay(read_claim(path), tmp_path / "run").document
    assert done.verdict == "SUPPORTED", done.sentence
    assert done.ledger.planned
    assert run("release", tmp_path / "run", "-o", tmp_path / "out", "-q").returncode == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "synthetic.jsonl",
        "synthetic.parquet",
        "claim.json",
        "report.html",
        "report.json",
        "certificate.json",
        "opendp-registry.yaml",
        "nist-sp-800-226.md",
    }
    assert (tmp_path / "out" / "synthetic.jsonl").read_bytes() == (
        tmp_path / "run" / "private" / "synthetic.jsonl"
    ).read_bytes()
    pages = [(tmp_path / folder / "report.html").read_text() for folder in ("run/private", "out")]
    assert r"\d{5}" not in (tmp_path / "out" / "claim.json").read_text(), "a pattern may spell a secret"
    assert not [word for word in ("SECRET", *CODES, str(tmp_path), "127.0.0.1") if word in pages[1]]
    assert not [word for word in ("SECRET", *CODES, str(tmp_path)) if word in pages[0]]
    assert "SECRET" not in "".join(server.prompts), "no private record is sent"
    assert r"\d{5}" not in pages[1], "a pattern may spell a secret"
    assert [two_forms(page, random=True) for page in pages] == [[], []]
    if mechanism == "secret_evolution":
        assert done.secrets is not None
        assert (done.secrets.private_records, done.secrets.public_records) == (15, 45)
        (source,) = done.secrets.sources
        assert (source.kind, source.secrets, source.records, source.occurrences) == ("pattern", 5, 15, 15)
        assert 'Records that hold a secret</th><td role="cell">15</td>' in pages[1]
        assert "at p\u00a0=\u00a00.001, one secret changed" in pages[1]
        assert "r ≤ 0.05 at p = 0.001 (Secret protection, certified)" in releasable(done).sentence
    else:
        assert done.secrets is None


def own_budgets(server: TextServer, tmp_path: Path, **of_others: float) -> Assay:
    """A claim with two secrets at its own p and r, and three that have others."""
    (tmp_path / "codes.txt").write_text("10001\n10002\n10003\n")
    sources = [{"list": "codes.txt", **of_others}, {"pattern": r"\b2\d{4}\b"}]
    return assay.assay(read_claim(write(tmp_path, body(server, secrets=sources))), tmp_path / "run").document


def test_secrets_with_budgets_of_their_own_are_decided_by_themselves(server: TextServer, tmp_path: Path) -> None:
    done = own_budgets(server, tmp_path, p=0.01, r=0.2)
    assert done.verdict == "SUPPORTED", done.sentence
    assert done.secrets is not None
    first, second = done.secrets.groups
    assert (first.secrets, first.records, first.p, first.claimed) == (2, 6, 0.001, 0.05)
    assert (second.secrets, second.records, second.p, second.claimed) == (3, 9, 0.01, 0.2)
    with Ledger.open(tmp_path / "run" / "private" / "ledger.sqlite", read_only=True) as ledger:
        event, budgets = ledger.event("trees"), ledger.run("trees").about["budgets"]
    for row in (first, second):
        view = of_group(event, budgets.index([row.p, row.claimed]))
        (bound,) = upper_bounds(view, SecretProtection(row.p, 1.0), adjacency="secret", unit=read_unit())
        assert row.certified == bound.value <= row.claimed
    page = render(done, side="release")
    assert "Secrets by their budgets" in page
    assert "for each of the 2 groups of secrets" in page


@pytest.mark.parametrize("examples", [0, 5])
def test_records_are_sent_to_an_endpoint_where_the_claim_asks_for_it_only(
    examples: int, server: TextServer, tmp_path: Path
) -> None:
    done = assay.assay(read_claim(write(tmp_path, body(server, examples=examples))), tmp_path / "run").document
    sent = {row["text"] for row in records() for prompt in server.prompts if f"\n\n{row['text']}\n\n" in prompt}
    assert bool(sent) == bool(examples)
    assert len(sent) <= examples
    assert not [text for text in sent if "SECRET" in text]
    said = "It is shown up to 5 real records in which no secret was found: they leave this machine for the endpoint."
    assert (said in done.side_channels) == bool(examples)
    assert any(line.endswith("and no record.") for line in done.side_channels) != bool(examples)


def read_unit() -> Any:
    from dpassay.accounting.adjacency import Unit

    return Unit("secret")


def test_the_group_that_fares_worst_decides(
    server: TextServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had the noise been for half of the claimed r only, the secrets with a budget of their own would be unproven."""
    from dpassay.generators.secret_evolution.run import SecretEvolutionRun

    parts = SecretEvolutionRun.parts

    def stricter(self: Any, guarantee: Any, event: Any) -> Any:
        import dataclasses

        result: Any = parts(self, guarantee, event)
        first, *others = result
        half = [dataclasses.replace(part, guarantee=SecretProtection(part.guarantee.p, 0.011)) for part in others]
        return [first, *half]

    monkeypatch.setattr(SecretEvolutionRun, "parts", stricter)
    done = own_budgets(server, tmp_path, p=0.01, r=0.2)
    assert done.verdict == "UNPROVEN"
    assert "r = 0.011" in done.sentence
    released = releasable(done)
    assert released.headline == "The proof does not reach the claim"
    assert "For 1 of 2 groups of secrets the proof does not reach what is claimed" in released.sentence


@pytest.mark.parametrize("mechanism", ["secret_evolution", "aug_pe"])
def test_as_published_stays_private_and_is_not_supported_where_it_is_wrong(
    mechanism: str, server: TextServer, tmp_path: Path
) -> None:
    claim = body(server, mechanism) | {"variant": "as_published"}
    if mechanism == "aug_pe":
        claim |= {"adjacency": "replace_one"}
    done = assay.assay(read_claim(write(tmp_path, claim)), tmp_path / "run").document
    assert (tmp_path / "run" / "private" / "synthetic.jsonl").exists()
    assert releasable(done).shortfalls
    refused_release = run("release", tmp_path / "run", "-o", tmp_path / "out")
    assert refused_release.returncode == 2
    assert "follows the published steps to the letter" in refused_release.stderr
    assert not (tmp_path / "out").exists()
    assert done.differences
    assert any("the endpoint has seen its candidates" in line for line in done.side_channels)
    last = done.differences[-1]
    assert last.statement.startswith(
        "r after all rounds" if mechanism == "secret_evolution" else "ε at δ = 1 × 10⁻⁵ after"
    )
    assert float(last.published or 0) < float(last.recomputed or 0)
    if mechanism == "secret_evolution":
        assert done.verdict == "UNPROVEN"
        assert float(done.differences[0].recomputed or 0) > 0.05, "occurrences vary, which one Gaussian leaves out"


def test_an_endpoint_that_fails_half_way_is_one_line_and_nothing_is_lost(server: TextServer, tmp_path: Path) -> None:
    """The same command goes on: the same ledger as of a run that never stopped, and no text is asked for twice."""
    path = write(tmp_path, body(server))
    server.fails_after = 8  # of six random texts and six variations
    for _ in range(2):
        result = run("generate", path, "-o", tmp_path / "run", "-q")
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert "HTTP 500" in result.stderr
        assert "the same command resumes" in result.stderr
    assert not (tmp_path / "run" / "private" / "synthetic.jsonl").exists()
    server.fails_after = None
    texts = works(path)
    (whole := tmp_path / "whole").mkdir()
    asked = list(server.prompts)
    assert len(texts) == 3
    assert len(asked) == 12
    works(write(whole, body(server)))
    assert charged(tmp_path) == charged(whole)
    before = [row["text"] for row in works(path)]
    assert before == [row["text"] for row in texts], "a finished run is not run again"


def test_another_claim_in_the_folder_is_refused(server: TextServer, tmp_path: Path) -> None:
    works(write(tmp_path, body(server)))
    for changed, says in (
        (body(server, rounds=3), "began with another"),
        (body(server, r=0.04), "began with another"),
        (body(server, writing={"temperature": 0.5}), "began with another"),
    ):
        result = run("generate", write(tmp_path, changed), "-o", tmp_path / "run", "-q")
        assert result.returncode == 2
        assert says in result.stderr
    others = [*records()[:-1], {"text": "another tree", "id": 59}]
    result = run("generate", write(tmp_path, body(server), others), "-o", tmp_path / "run", "-q")
    assert result.returncode == 2
    assert "other records" in result.stderr


EVERYWHERE = [{**row, "text": row["text"] + " SECRET 99999"} for row in records()]

REFUSED: dict[str, tuple[dict[str, Any], list[dict[str, Any]] | None, str]] = {
    "a secret that is everywhere": ({}, EVERYWHERE, "every record holds a secret"),
    "no secret anywhere": ({}, records(()), "no secret was found in any record"),
    "more clusters than public records": ({"clusters": 46}, None, "clusters must be at most the number of distinct"),
    "a list that is missing": ({"secrets": [{"list": "none.txt"}]}, None, "there is no such file"),
    "a list without a secret": ({"secrets": [{"list": "empty.txt"}]}, None, "lists no secret"),
    "sources that are no list": (
        {"secrets": {"pattern": "SECRET 10001"}},
        None,
        "secrets: input should be a valid list",
    ),
    "a pattern that is a number": (
        {"secrets": [{"pattern": 10001}]},
        None,
        "pattern: must be text, and YAML reads this as a number",
    ),
    "a broken pattern": ({"secrets": [{"pattern": "SECRET ("}]}, None, "is not a regular expression"),
    "p at r": ({"p": 0.05}, None, "r must be above p"),
    "too many texts": ({"synthetic": 10**12}, None, "at most 10000000 are allowed"),
    "an API key that is not there": (
        {"endpoint": {"api_key_env": "DPASSAY_NO_KEY"}},
        None,
        "DPASSAY_NO_KEY has no API key",
    ),
    "another number of records": ({}, None, "public.records: is 61, and the data hold 60 records"),
    "an unknown key": ({"colour": "red"}, None, "parameters.colour: unknown key"),
    "a sample of too many": ({"expected_sample": 1000.0}, None, "expected_sample must be above 0 and at most"),
    "labels that are not listed": ({}, None, "public list"),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_one_line_until_it_is_mended(name: str, server: TextServer, tmp_path: Path) -> None:
    changes, rows, says = REFUSED[name]
    (tmp_path / "empty.txt").write_text("")
    claim = body(server, **changes)
    if "endpoint" in changes:
        claim["parameters"]["endpoint"] = {"url": server.url, "model": "words", **changes["endpoint"]}
    if "number of records" in name:
        claim["public"] = {"records": 61}
    if "labels" in name:
        claim |= {"data": claim["data"] | {"label": "kind"}, "public": {"labels": ["tree"]}}
        rows = [{**row, "kind": "SECRET"} for row in records()]
    path = write(tmp_path, claim, rows)
    allowed = ("--allow-endpoint", server.url) if "endpoint" in changes else ()
    for job in ("generate", "assay"):
        refused(path, says, job, *allowed)
    assert server.prompts == []
    write(tmp_path, body(server))
    assert len(works(path)) == 3


@pytest.mark.parametrize(("mechanism", "damage"), [("secret_evolution", "gone"), ("aug_pe", "cut off")])
def test_a_run_does_not_go_on_without_what_it_was_charged(
    mechanism: str, damage: str, server: TextServer, tmp_path: Path
) -> None:
    """A new ledger would forget releases that were drawn and used."""
    path, ledger = write(tmp_path, body(server, mechanism)), tmp_path / "run" / "private" / "ledger.sqlite"
    server.fails_after = 8
    run("generate", path, "-o", tmp_path / "run", "-q")
    server.fails_after = None
    whole, asked = ledger.read_bytes(), len(server.prompts)
    ledger.unlink() if damage == "gone" else ledger.write_bytes(whole[: 7 * len(whole) // 10])
    result = run("generate", path, "-o", tmp_path / "run", "-q")
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert ("candidates.jsonl: exists without its ledger" if damage == "gone" else "ledger.sqlite: ") in result.stderr
    assert len(server.prompts) == asked
    assert ledger.exists() == (damage != "gone")
    for extra in ("-wal", "-shm"):
        ledger.with_name(ledger.name + extra).unlink(missing_ok=True)
    ledger.write_bytes(whole)
    assert len(works(path)) == 3


@pytest.mark.grid
@pytest.mark.parametrize("name", ["candidates.jsonl", "synthetic.jsonl", "synthetic.parquet"])
def test_a_file_that_cannot_be_written_is_one_line_and_leaves_no_half(
    name: str, server: TextServer, tmp_path: Path
) -> None:
    path, index = write(tmp_path, body(server, "aug_pe")), tmp_path / "run" / "private" / name
    if name == "candidates.jsonl":  # without a ledger it is refused for that
        prepare(index.parent)
    else:  # and documents without a finished run
        works(path)
        index.unlink()
    index.mkdir()
    for job in ("generate", "assay"):
        result = run(job, path, "-o", tmp_path / "run", "-q")
        assert result.returncode == 2, result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert "directory" in result.stderr
        assert not list((tmp_path / "run").rglob("*.partial"))
    index.rmdir()
    assert len(works(path)) == 3


@pytest.mark.parametrize("mechanism", ["secret_evolution", "aug_pe"])
@pytest.mark.parametrize("kept", ["synthetic.jsonl", "candidates.jsonl", "assay.json"])
def test_what_is_kept_of_a_run_without_its_ledger_is_refused(
    kept: str, mechanism: str, server: TextServer, tmp_path: Path
) -> None:
    path, left = write(tmp_path, body(server, mechanism)), tmp_path / "run" / "private" / kept
    left.parent.mkdir(parents=True)
    left.write_text("{}\n")
    for job in ("generate", "assay"):
        result = run(job, path, "-o", tmp_path / "run")
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert f"{left}: exists without its ledger" in result.stderr
    assert server.prompts == []
    assert [file.name for file in left.parent.iterdir()] == [kept]


@pytest.mark.parametrize("mechanism", ["secret_evolution", "aug_pe"])
def test_documents_are_committed_and_released_from_there(mechanism: str, server: TextServer, tmp_path: Path) -> None:
    path = write(tmp_path, body(server, mechanism))
    assert run("assay", path, "-o", tmp_path / "run", "-q").returncode == 0
    written = tmp_path / "run" / "private" / "synthetic.jsonl"
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    with Ledger.open(written.with_name("ledger.sqlite"), read_only=True) as ledger:
        outcome = ledger.run("trees").outcome("documents/0")
    assert outcome is not None
    assert [dict(zip(("label", "rank", "text"), row, strict=True)) for row in outcome.value["rows"]] == rows
    whole = written.read_bytes()
    written.write_text("edited\n")
    assert run("release", tmp_path / "run", "-o", tmp_path / "out", "-q").returncode == 0
    assert (tmp_path / "out" / "synthetic.jsonl").read_bytes() == whole
    works(path)
    assert written.read_bytes() == whole


def test_a_secret_that_occurs_nowhere_is_reported(server: TextServer, tmp_path: Path) -> None:
    (tmp_path / "codes.txt").write_text("10001\n10002\n77777\n")
    path = write(tmp_path, body(server, secrets=[{"list": "codes.txt"}]))
    done = assay.assay(read_claim(path), tmp_path / "run").document
    assert done.verdict == "SUPPORTED", done.sentence
    assert done.secrets is not None
    assert (done.secrets.sources[0].secrets, done.secrets.sources[0].nowhere) == (3, 1)
    assert "1 of the secrets that sources name occurs in no record." in done.not_protected


def test_a_model_in_place_of_an_endpoint_is_refused(server: TextServer, tmp_path: Path) -> None:
    refused(write(tmp_path, body(server)), "the claim names an endpoint", "generate", "--model", "builtin")


def test_recorded_noise_is_never_released(server: TextServer, tmp_path: Path) -> None:
    done = assertions.recorded_run(read_claim(write(tmp_path, body(server))), tmp_path / "run", seed=1)
    assert done.documents_path.parent.name == "private"
    result = run("release", tmp_path / "run", "-o", tmp_path / "out", "--accept", "It is a test.")
    assert result.returncode == 2
    assert "its noise was recorded" in result.stderr
    assert not (tmp_path / "out").exists()


def test_ledgers_and_plans_of_the_same_secrets_compose_and_others_do_not(server: TextServer, tmp_path: Path) -> None:
    path = write(tmp_path, body(server))
    works(path)
    ledger = tmp_path / "run" / "private" / "ledger.sqlite"

    def r_of(*arguments: object) -> float:
        result = run("account", *arguments, "--json")
        assert result.returncode == 0, result.stderr
        (bound,) = json.loads(result.stdout)["bounds"]
        assert (bound["quantity"], bound["method"]) == ("r", "secret_protection")
        return float(bound["value"])

    once, planned, twice = r_of(ledger), r_of(path), r_of(ledger, path)
    assert once == planned <= 0.05 < twice
    assert r_of(ledger, "--p", "0.01") > once
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(body(server, secrets=[{"pattern": r"\b2\d{4}\b"}]) | {"name": "others"}))
    result = run("account", ledger, other)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "do not compose: a record without a secret is used in the clear" in result.stderr
