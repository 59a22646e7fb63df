"""Records and candidates that are embedded, counted and written on workers: the same as in one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dask_processes import Dask, dask
from little_embedders import Dies, Fails, Letters, OneBitOff, Renamed
from little_evolution import EMBEDDER, LocalToyWriter, ToyWriter, evolution, tree_records

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.errors import InputError
from dpassay.data.records import Record, StoredRecords, Texts
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.embedding.embedder import Embedder, HashedNgrams, all_embedded
from dpassay.mechanisms.embedding.stored_vectors import StoredVectors, embedded_records
from dpassay.mechanisms.evolution.voters import Voters
from dpassay.mechanisms.evolution.voting import record_votes
from dpassay.mechanisms.models.writers import ModelWriter, TextRequest, written, written_on_workers
from dpassay.mechanisms.primitives.randomness import Recorded

TEXTS = [record.text for record in tree_records(2500)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    with dask(tmp_path_factory.mktemp("dask") / "dask", 2) as two:
        yield two


@pytest.fixture(scope="module")
def workers(cluster: Dask) -> Iterator[Executor]:
    with executor(None, cluster.address) as two:
        yield two


def test_vectors_are_those_of_one_process_bit_for_bit(workers: Executor) -> None:
    for embedder in (HashedNgrams(dimension=32), HashedNgrams.fitted(TEXTS[:100], dimension=8), Letters()):
        table = all_embedded(embedder, TEXTS)
        assert all_embedded(embedder, TEXTS, workers).tobytes() == table.tobytes()
    seen: list[tuple[int, int]] = []
    stored = embedded_records(Letters(), iter(TEXTS), 10**6, workers, lambda *step: seen.append(step))
    assert isinstance(stored, StoredVectors)
    assert np.array_equal(stored[:], table)
    assert seen[-1] == (len(TEXTS), 10**6)


def test_votes_are_those_of_one_process(workers: Executor) -> None:
    records = {"a": tree_records(1500), "b": StoredRecords((None, text, None, None) for text in TEXTS)}
    candidates = all_embedded(EMBEDDER, TEXTS[::100])
    seen: list[tuple[int, int]] = []
    many = Voters(EMBEDDER, {label: Texts(some) for label, some in records.items()}, workers)
    many.embed(lambda *step: seen.append(step))
    assert seen[-1] == (4000, 4000)
    for label, some in records.items():
        vectors = all_embedded(EMBEDDER, [record.text for record in some])
        for places in (candidates, candidates[:9], candidates):
            assert np.array_equal(many.votes(label, places), record_votes(vectors, places))
    many.close()
    assert np.array_equal(many.votes("b", candidates), record_votes(vectors, candidates))  # it embeds them again
    many.close()


def test_records_are_read_again_if_their_worker_is_gone(cluster: Dask, workers: Executor) -> None:
    candidates = all_embedded(Letters(), TEXTS[::100])
    expected = record_votes(all_embedded(Letters(), TEXTS), candidates)
    read: list[int] = []

    class Read(Texts):
        def __getitem__(self, index: int | slice) -> list[str]:  # type: ignore[override]
            read.append(len(TEXTS[index]))
            return TEXTS[index]  # type: ignore[return-value]

    some = Voters(Letters(), {None: Read(tree_records(2500))}, workers)
    assert np.array_equal(some.votes(None, candidates), expected)
    assert not read
    cluster.kill_worker()
    cluster.add_worker()
    assert np.array_equal(some.votes(None, candidates), expected)
    assert 0 < sum(read) < len(TEXTS)  # those of one worker
    cluster.wait_for_workers(2)
    some.close()


def test_a_piece_whose_worker_dies_is_done_again(cluster: Dask, workers: Executor, tmp_path: Path) -> None:
    texts = [*TEXTS, "deadly words"]
    assert np.array_equal(all_embedded(Dies(tmp_path / "done"), texts, workers), all_embedded(Letters(), texts))
    assert (tmp_path / "done").exists()
    cluster.workers.append(cluster.workers.pop(0))
    cluster.add_worker()
    cluster.wait_for_workers(2)


@pytest.mark.parametrize(
    ("embedder", "words"),
    [
        (OneBitOff(), "worker on .*: has no such embedder: letters gives other vectors than on the machine that began"),
        (Renamed(), "worker on .*: has no such embedder: letters has other files than on the machine that began"),
    ],
)
def test_a_worker_with_another_embedder(embedder: Embedder, words: str, workers: Executor) -> None:
    with pytest.raises(InputError, match=words) as raised:
        all_embedded(embedder, TEXTS, workers)
    assert "\n" not in str(raised.value)


def test_no_log_of_a_worker_has_a_text(workers: Executor, tmp_path: Path, cluster: Dask) -> None:
    with pytest.raises(OSError, match="the device is gone"):
        all_embedded(Fails(), ["secret words"] * 3, workers)
    assert all_embedded(Letters(), ["words"], workers).any()
    logs = [file.read_text() for file in cluster.folder.glob("*.log")]
    assert logs
    assert not any("secret words" in log for log in logs)


def run_of(
    folder: Path, kind: str, do: Executor, writer: ToyWriter, records: list[Record], **changes: object
) -> tuple[object, ...]:
    """Texts and votes of a run with a recorded source, and its journal."""
    folder.mkdir()
    mechanism = dataclasses.replace(evolution(kind), **changes)
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        plan = mechanism.plan()
        about = {"noise": "recorded"}
        run = ledger.begin("run", plan=plan, adjacency=mechanism.adjacency, unit=mechanism.unit, about=about)
        result = mechanism.generate(
            records, writer, run, journal=folder / "journal.jsonl", source=Recorded(1), executor=do
        )
        run.finish()
    votes = [(label, some.tobytes()) for part in result.votes for label, some in part.items()]
    journal = sorted((folder / "journal.jsonl").read_bytes().splitlines())
    return result.texts, votes, journal


CHANGES = [{}, {"lookahead": 2}, {"variant": "as_published"}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_run_does_not_depend_on_workers(changes: dict[str, object], workers: Executor, tmp_path: Path) -> None:
    records = tree_records(600, labels=("tree", "wood"))
    expected = run_of(tmp_path / "alone", "aug_pe", THIS_PROCESS, ToyWriter(), records, **changes)
    writer = LocalToyWriter()
    assert run_of(tmp_path / "two", "aug_pe", workers, writer, records, **changes) == expected
    assert not writer.written  # workers write
    assert run_of(tmp_path / "far", "aug_pe", workers, ToyWriter(), records, **changes) == expected


def test_one_worker(tmp_path: Path) -> None:
    records = tree_records(600, labels=("tree", "wood"))
    with executor(1, None) as one:
        result = run_of(tmp_path / "one", "aug_pe", one, LocalToyWriter(), records)
    assert result == run_of(tmp_path / "alone", "aug_pe", THIS_PROCESS, ToyWriter(), records)


@pytest.mark.slow
def test_four_workers(tmp_path: Path) -> None:
    records = tree_records(5000, labels=("tree", "wood"))
    with executor(4, None) as four:
        result = run_of(tmp_path / "four", "aug_pe", four, LocalToyWriter(), records)
    assert result == run_of(tmp_path / "alone", "aug_pe", THIS_PROCESS, ToyWriter(), records)


@pytest.mark.slow
def test_models_are_loaded_by_workers(tiny_folder: Path, tmp_path: Path) -> None:
    from sentence_models import save_sentence_model

    from dpassay.mechanisms.embedding.sentence import SentenceEmbedder
    from dpassay.mechanisms.models.language_model import LanguageModel

    folder = save_sentence_model(tmp_path / "sentence")
    embedders = [SentenceEmbedder.load(folder, "cpu", texts_at_once=n, one_thread=True) for n in (1, 4)]
    writer = ModelWriter(model=LanguageModel.load(tiny_folder, "cpu"), rows=3, max_tokens=8, whole=False)
    requests = [TextRequest("tree", (), tuple(range(8))), TextRequest("wood", tuple(TEXTS[:7]), tuple(range(10, 17)))]
    expected = [text for request in requests for text in written(request, writer)]
    with executor(2, None) as two:
        for embedder in embedders:
            assert all_embedded(embedder, TEXTS, two).tobytes() == all_embedded(embedder, TEXTS).tobytes()
        assert list(written_on_workers(two, requests, writer)) == expected
