"""Documents come out of the ledger as they went in, in chunks, and a resumed run makes the same ones or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.events import compose
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.generators import documents
from dpassay.generators.documents import Documents
from dpassay.mechanisms.primitives.charged import commit

COLUMNS = {"slot": "int64", "label": "string", "text": "string"}
KEY = {"batching-key.txt": "00ff\n"}


def begin(ledger: Ledger, name: str = "run") -> Run:
    return ledger.begin(name, plan=compose([]), adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as opened:
        yield opened


def of(*texts: str, label: str | None = None, **files: str | bytes) -> Documents:
    return Documents(COLUMNS, [(index, label, text) for index, text in enumerate(texts)], files or KEY)


def test_files_may_be_bytes(ledger: Ledger, tmp_path: Path) -> None:
    """Every byte, and a text that looks like what bytes are committed as."""
    made = of("a text", vectors=bytes(range(256)), key='{"base64": "AA=="}')
    run = begin(ledger)
    made.commit(run)
    run.finish()
    again = Documents.committed(run)
    assert again is not None
    assert again.files == made.files
    again.write(tmp_path)
    assert (tmp_path / "vectors").read_bytes() == bytes(range(256))
    assert (tmp_path / "key").read_text() == '{"base64": "AA=="}'


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=12)


@given(texts=texts, chunk=st.integers(1, 40))
@examples(20, 60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_committed_is_what_comes_out(texts: list[str], chunk: int, ledger: Ledger) -> None:
    made = of(*texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "CHUNK", chunk)
        run = begin(ledger, f"run {ledger.entries}")
        made.commit(run)
        count = run.last_committed("documents")
        chunks = [run.outcome(f"documents/{index}") for index in range(count)]
        sizes = [sum(len(row[2]) for row in each.value["rows"]) for each in chunks if each is not None]
        made.commit(run)  # the same again, as a resumed run does
        run.finish()
    again = Documents.committed(run)
    assert again is not None
    assert (again.json_lines(), again.files) == (made.json_lines(), made.files)
    assert [json.loads(line) for line in made.json_lines().split("\n")[:-1]] == [
        {"slot": index, "label": None, "text": text} for index, text in enumerate(texts)
    ]
    assert count >= 1
    assert all(size < chunk + 30 for size in sizes), "a chunk is closed by the row that fills it"
    assert all(size >= chunk for size in sizes[:-1])


def test_files_are_those_of_the_documents(tmp_path: Path) -> None:
    made = of("one", "tow\u2028", label="a")
    made.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"synthetic.jsonl", "synthetic.parquet", "batching-key.txt"}
    text = (tmp_path / "synthetic.jsonl").read_bytes()
    assert made.sha256 == hashlib.sha256(text).hexdigest()
    table = pyarrow.parquet.read_table(tmp_path / "synthetic.parquet")
    assert table.to_pylist() == [json.loads(line) for line in text.decode().split("\n")[:-1]]
    assert [str(kind) for kind in table.schema.types] == list(COLUMNS.values())


@pytest.mark.grid
@pytest.mark.parametrize(
    "other",
    [of("one", "TWO", "three"), of("one", "two"), of("one", "two", "three", "four"), of(label="a"), of("one", key="x")],
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_documents_than_those_committed_are_an_error(finished: bool, other: Documents, ledger: Ledger) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "CHUNK", 4)
        run, made = begin(ledger), of("one", "two", "three")
        made.commit(run)
        if finished:
            run.finish()
        with pytest.raises(LedgerError, match="committed other documents"):
            other.commit(run)
        assert made.json_lines() == "".join(_lines(run))


def _lines(run: Run) -> Iterator[str]:
    result = Documents.committed(run)
    assert result is not None
    yield result.json_lines()


def test_a_run_that_was_killed_between_two_chunks_commits_the_rest(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK", 1)
    run, made = begin(ledger), of("one", "two", "three")
    calls: list[Any] = []

    def killed(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(documents, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            made.commit(run)
    assert run.last_committed("documents") == 1
    with pytest.raises(LedgerError, match="not committed yet"):
        Documents.committed(run)
    made.commit(run)
    run.finish()
    assert run.last_committed("documents") == 3
    assert made.json_lines() == "".join(_lines(run))


def test_documents_cost_nothing(ledger: Ledger) -> None:
    run = begin(ledger)
    of("one").commit(run)
    assert run.event() == compose([])


def test_a_run_that_was_finished_without_documents_has_none(ledger: Ledger) -> None:
    run = begin(ledger)
    run.finish()
    of("one").commit(run)
    assert Documents.committed(run) is None
