"""However a table is written, an audit by many runs plans the pairs of the plain one, and finds the same bound."""

from __future__ import annotations

import functools
import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from seeded_entropy import seed_entropy
from written_tables import Writing, as_json_lines, people, writings

from dpassay import audit
from dpassay.auditing.many_runs.files import PlannedRuns
from dpassay.auditing.many_runs.run import failed_output
from dpassay.audits.games import many_runs_power
from dpassay.audits.games.many_runs import ManyRuns
from dpassay.base.errors import InputError
from dpassay.data.records import read_rows, written_as

WRITINGS = list(writings())
PEOPLE = people(60, 1)


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)


def planned(file: Path, folder: Path, **options: Any) -> PlannedRuns:
    with pytest.MonkeyPatch.context() as patch:
        seed_entropy(patch, 7)
        return audit.runs(folder, like=file, epsilon=0.1, runs=60, **options)


def some_records(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Half of the records, drawn by the seed: no protection, but an event happens in some runs only."""
    draw = random.Random(seed)
    return [row for row in rows if draw.random() < 0.5]


def found(plan: PlannedRuns) -> list[Any]:
    """What the audit of `some_records` finds, without processes: the pairs, the event, its counts and the bound."""
    game, features, rows_of = ManyRuns(plan.plan.design()), plan.features(), functools.cache(plan.rows)
    while wanted := game.wanted():
        for run in wanted:
            names = plan.plan.pairs_of(run.data)
            seed = hash((run.phase == "test", run.data, run.number))
            rows = some_records([dict(row) for row in rows_of(run.data)], seed)
            game.add(run, features.of(rows, names) if rows else failed_output(names))
    result = game.result()
    pairs = [(pair.name, pair.novel, [item.feature for item in pair.events]) for pair in plan.plan.pairs]
    counts = [(rate.hits, rate.trials) for rate in result.rates]
    return [pairs, result.details["tested"], result.details["tested"]["feature"], counts, result.bounds[0].value]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_runs_power, "REPETITIONS", 20)
        result = found(planned(Writing().write(PEOPLE, folder / "people"), folder / "audit"))
    assert [name for name, *_ in result[0]] == [
        "outlier", "extreme_value", "new_category", "rare_category", "repeated_category", "empty_class",
        "missing_value", "duplicates", "cluster_edge", "ordinary", "absent_row", "absent_pair", "absent_triple", "tie",
    ]  # fmt: skip
    assert result[-1] > 0.1, "the audit finds the leak"
    return result


def ids_of(written: Writing) -> dict[str, Any]:
    return {"ids": ["Unnamed: 0"]} if written.index else {}


def is_refused(written: Writing) -> bool:
    """An encoding that no mark names is stated, or refused."""
    return written.encoding == "latin-1" or (written.encoding == "utf-16" and written.packed)


@pytest.mark.grid(share=40)
@pytest.mark.parametrize("written", WRITINGS, ids=range(len(WRITINGS)))
def test_pairs_and_bound_are_those_of_the_plain_table(written: Writing, plain: list[Any], tmp_path: Path) -> None:
    file = written.write(PEOPLE, tmp_path / "people")
    if is_refused(written):
        with pytest.raises(InputError, match="is not UTF-8 text") as caught:
            planned(file, tmp_path / "audit", **ids_of(written))
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "audit").exists()
    else:
        plan = planned(file, tmp_path / "audit", **ids_of(written))
        assert found(plan) == plain
        check_style(plan, file, written)


def check_style(plan: PlannedRuns, file: Path, written: Writing) -> None:
    """Data sets are the file with other rows: they begin with its first line, and their cells look like its cells."""
    assert plan.plan.understood is not None
    assert plan.plan.understood.written == written_as(file)

    def content(path: Path) -> bytes:
        return gzip.decompress(path.read_bytes()) if written.packed else path.read_bytes()

    pair = next(pair for pair in plan.plan.pairs if pair.name == "ordinary")
    path = plan.data_file(pair.data)
    assert path.suffixes == file.suffixes
    assert content(path) == content(file), "D of this pair is all of the file"
    values = {row["member"] for _, row in read_rows(plan.data_file(pair.neighbor))}
    assert values == set(written.truth)
    empty = next(pair for pair in plan.plan.pairs if pair.name == "missing_value")
    assert empty.target["height"] == written.missing


def test_an_encoding_that_is_stated_is_that_of_the_data_sets(plain: list[Any], tmp_path: Path) -> None:
    from dpassay.data.reader import FileOptions

    file = Writing(";", encoding="latin-1").write(PEOPLE, tmp_path / "people")
    plan = planned(file, tmp_path / "audit", reading=FileOptions(encoding="latin-1"))
    assert found(plan) == plain
    pair = next(pair for pair in plan.plan.pairs if pair.name == "ordinary")
    assert plan.data_file(pair.data).read_bytes() == file.read_bytes()
    assert "Köln".encode("latin-1") in file.read_bytes()


def test_without_a_header_there_is_none_in_the_data_sets(tmp_path: Path) -> None:
    from dpassay.data.reader import FileOptions

    file = Writing("\t").write(PEOPLE, tmp_path / "people")
    file.write_bytes(file.read_bytes().partition(b"\n")[2])
    plan = planned(file, tmp_path / "audit", reading=FileOptions(header=False))
    assert sorted(plan.plan.names) == [f"column {index}" for index in range(5)]
    pair = next(pair for pair in plan.plan.pairs if pair.name == "ordinary")
    assert plan.data_file(pair.data).read_bytes() == file.read_bytes()
    assert found(plan)[-1] > 0.1


def test_json_lines_are_the_same(plain: list[Any], tmp_path: Path) -> None:
    plan = planned(as_json_lines(PEOPLE, tmp_path / "people.jsonl"), tmp_path / "audit")
    assert found(plan) == plain
    packed = tmp_path / "people.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "people.jsonl").read_bytes()))
    plan = planned(packed, tmp_path / "packed")
    assert found(plan) == plain
    assert json.loads(gzip.decompress(plan.data_file(0).read_bytes()).splitlines()[0])["city"]


OUTPUTS = {
    "as the data": (Writing(";", decimal=",", dates="%d.%m.%Y", missing="NA"), Writing()),
    "as pandas writes": (Writing(";", decimal=",", dates="%d/%m/%Y", missing="?"), Writing(truth=("0", "1"))),
    "in another zone": (Writing("\t", dates="%m/%d/%Y"), Writing(";", decimal=",", dates="%Y-%m-%d 00:00:00")),
    "packed": (Writing(packed=True, quoted=True), Writing("|", packed=True, missing="-")),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_read_as_they_are_written_and_not_as_the_data_are(name: str, tmp_path: Path) -> None:
    """An output has the same features in any writing, those of the data included."""
    of_data, of_output = OUTPUTS[name]
    plan = planned(of_data.write(PEOPLE, tmp_path / "people"), tmp_path / "audit")
    rows = [dict(row) for row in PEOPLE[::2]]
    names = [pair.name for pair in plan.plan.pairs]
    results = []
    for number, writing in enumerate((of_data, of_output)):
        path = writing.write(rows, tmp_path / f"output{number}")
        read = [row for _, row in read_rows(path, stated=plan.readings_of(path)[0])]
        results.append(plan.features().of(read, names))
    assert results[0] == results[1]
    assert results[0][""]["height: largest"] > 150
    assert results[0][""]["visit: distinct values"] > 20
    shutil.rmtree(tmp_path / "audit")
