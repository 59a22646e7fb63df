"""What a run charges is what its noise is made for, by brute force over neighbours; a killed run resumes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from small_models import save_model

from dpassay.accounting import Adjacency, account
from dpassay.accounting.events import ParallelDpEvent
from dpassay.accounting.gaussian import sampled_epsilon, sum_sensitivity
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record
from dpassay.mechanisms.compute.workers import WorkerError, executor
from dpassay.mechanisms.dataset_vectors import differences, generator, release, states
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import Recorded

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
RECORDS = [Record(str(i), f"the patient {'abcdefgh'[i]} came {i} times", "ab"[i % 2]) for i in range(8)]
MORE = [Record(str(i), f"patient {i} came {i % 5} times") for i in range(32)]
SMALL: dict[str, Any] = {
    "noise_multiplier": 1.5,
    "shots_noise_multiplier": 2.0,
    "records": 8,
    "blocks": (0, 2),
    "clip": 0.5,
    "candidates": 6,
    "shots": 2,
    "negatives": 5,
}


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> ShotWriter:
    model = LanguageModel.load(save_model(tmp_path_factory.mktemp("model"), "llama"), "cpu")
    return ShotWriter(model=model, template="{examples} {label} ", longest=8, longest_record=20, temperature=1.0)


def ran(
    mechanism: DatasetVectors, records: list[Record], writer: ShotWriter, folder: Path, seed: int = 1, **kept: Any
) -> generator.DatasetVectorsResult:
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        run = ledger.begin(
            "run",
            plan=mechanism.plan(),
            adjacency=mechanism.adjacency,
            unit=mechanism.unit,
            about={"noise": "recorded"},
        )
        with Journal(folder / "journal.jsonl", {"public": repr(mechanism)}) as journal:
            return mechanism.release(records, writer, run, journal=journal, source=Recorded(seed), **kept)


@pytest.fixture
def exact_sums(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The sums before noise, of each label that is summed."""
    seen: list[np.ndarray] = []
    plain = release.with_noise

    def kept(exact: Any, *given: Any) -> Any:
        seen.append(exact.copy())
        return plain(exact, *given)

    monkeypatch.setattr(release, "with_noise", kept)
    return seen


@pytest.mark.grid
@pytest.mark.parametrize("labels", [(), ("a", "b")])
@pytest.mark.parametrize("pairing", ["hashed", "mean"])
@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE_ONE])
def test_neighbours_move_the_sums_by_what_is_charged(
    adjacency: Adjacency,
    pairing: str,
    labels: tuple[str, ...],
    writer: ShotWriter,
    exact_sums: list[np.ndarray],
    tmp_path: Path,
) -> None:
    """Every record removed, or replaced by one of either label; exact integers, over all blocks and labels at once."""
    mechanism = DatasetVectors(
        **SMALL,
        pairing=pairing,  # type: ignore[arg-type]
        adjacency=adjacency,
        labels=labels,
        records_by_label=(4, 4) if labels else (),
    )
    most = len(SMALL["blocks"]) * (sum_sensitivity(adjacency) * release.RADIUS) ** 2
    others: list[list[Record]] = [[]]
    if adjacency is REPLACE_ONE:
        others = [[Record("new", "zzz 0123456789 zzz zzz", label)] for label in ("a", "b")]
    neighbours = [[*RECORDS[:i], *other, *RECORDS[i + 1 :]] for i in range(8) for other in others]
    sums = []
    for number, records in enumerate([RECORDS, *neighbours]):
        (folder := tmp_path / str(number)).mkdir()
        mechanism_of = dataclasses.replace(mechanism, shots=0)  # the same prompts for all
        ran(mechanism_of, records, writer, folder)
        sums.append(np.stack(exact_sums))
        exact_sums.clear()
    moved = [int(np.square((item - sums[0]).astype(object)).sum()) for item in sums[1:]]
    assert all(0 < item <= most for item in moved)


def test_pairs_by_row_number_move_nearly_all_of_a_sum() -> None:
    """N_i = 100i and P_i = 100i − 40 with C = 1: dropping the first record moves the sum of ten by 19C."""
    records, negatives = np.arange(10) * 100.0 - 40, np.arange(10) * 100.0
    whole, less = (
        sum(int(release.clipped([[record - negative]], (1.0,)).item()) for record, negative in pairs)
        for pairs in (zip(records, negatives, strict=True), zip(records[1:], negatives, strict=False))
    )
    assert abs(whole - less) == 19 * release.RADIUS
    mechanism = DatasetVectors(**SMALL | {"negatives": 8}, pairing="rows", variant="as_published", adjacency=ADD_REMOVE)
    assert mechanism.vectors_event() == dp_event.NonPrivateDpEvent()


def test_the_noise_is_what_the_event_says() -> None:
    for adjacency, k in ((ADD_REMOVE, 1), (REPLACE_ONE, 2)):
        mechanism = DatasetVectors(**SMALL, adjacency=adjacency)
        assert mechanism.vectors_event() == dp_event.GaussianDpEvent(k * 1.5)
        assert mechanism.votes_event() == dp_event.GaussianDpEvent(k * 2.0)
        # Whatever the adjacency, μ² = 1/1.5² + 1/2².
        bound = account(mechanism.plan(), adjacency=adjacency, method="gdp", delta=1e-5)
        exact = account(dp_event.GaussianDpEvent(1 / math.hypot(1 / 1.5, 0.5)), adjacency=ADD_REMOVE, delta=1e-5)
        assert bound.value == pytest.approx(exact.value, rel=1e-6)
    assert DatasetVectors(**SMALL).votes_scale == pytest.approx(2 * math.sqrt(2), rel=1e-15)


def test_the_noise_of_votes() -> None:
    """(.1, 1e-6): σ of a vote is 51.3426 by replace_one, 36.3047 by add_remove."""
    for adjacency, sigma in ((REPLACE_ONE, 51.3426), (ADD_REMOVE, 36.3047)):
        mechanism = DatasetVectors(**SMALL | {"shots_noise_multiplier": 36.3047}, adjacency=adjacency)
        assert mechanism.votes_scale == pytest.approx(sigma, abs=2e-4)
        bound = account(mechanism.votes_event(), adjacency=adjacency, method="gdp", delta=1e-6)
        assert bound.value == pytest.approx(0.1, abs=1e-4)


def test_the_published_code_costs_what_was_found() -> None:
    """IMDb: 500 of 12500 reviews of each class, (4.9, 9e-6) for the vectors. With twice the published noise ε is 4.9;
    with the published noise 17.1848; with that and a sample that is known 23.4628."""
    given: dict[str, Any] = {
        "noise_multiplier": 1 / 1.9380060,
        "records": 25000,
        "records_by_label": (12500, 12500),
        "labels": ("a", "b"),
        "sample": 500,
        "shots": 0,
        "clip": 5.5,
    }
    sound, published = DatasetVectors(**given), DatasetVectors(**given, variant="as_published")
    results = [
        account(plan, adjacency=REPLACE_ONE, delta=9e-6, method="lattice").value
        for plan in (sound.plan(), published.plan(), published.published_plan())
    ]
    assert results == pytest.approx([4.9, 23.4628, 4.9], abs=1e-3)
    halved = dataclasses.replace(sound, noise_multiplier=sound.noise_multiplier / 2)
    assert account(halved.plan(), adjacency=REPLACE_ONE, delta=9e-6).value == pytest.approx(17.1848, abs=2e-3)
    assert not published.releasable


def test_each_label_has_its_own_rate() -> None:
    """BioRxiv, 12175/4989/2436/5574 records and samples of 500: the smallest label is the worst."""
    mechanism = DatasetVectors(
        noise_multiplier=1.0,
        records=25174,
        records_by_label=(12175, 4989, 2436, 5574),
        labels=("a", "b", "c", "d"),
        sample=500,
        blocks=(0,),
        clip=1.0,
        shots=0,
    )
    event = mechanism.vectors_event()
    assert isinstance(event, ParallelDpEvent)
    assert event.partition_is_public
    bound = account(event, adjacency=REPLACE_ONE, delta=9e-6).value
    worst = sampled_epsilon(1.0, 9e-6, sample_size=500, records=2436)
    assert bound == pytest.approx(worst, rel=1e-3)
    rates = [part.sample_size / part.source_dataset_size for part in event.events]
    assert rates == [500 / 12175, 500 / 4989, 500 / 2436, 500 / 5574]


def test_a_killed_run_resumes_with_the_same_vectors_and_no_second_charge(writer: ShotWriter, tmp_path: Path) -> None:
    mechanism = DatasetVectors(**SMALL, adjacency=ADD_REMOVE)
    steps: list[int] = []

    def stop(at: int) -> Any:
        def progress(done: int, total: int) -> None:
            steps.append(done)
            if len(steps) == at:
                raise KeyboardInterrupt

        return progress

    for at in (2, 7, 4):
        steps.clear()
        with pytest.raises(KeyboardInterrupt):
            ran(mechanism, RECORDS, writer, tmp_path, seed=at, progress=stop(at))
    first = ran(mechanism, RECORDS, writer, tmp_path, seed=100)
    again = ran(mechanism, RECORDS, writer, tmp_path, seed=200)
    assert first.shots == again.shots
    np.testing.assert_array_equal(first.means[None], again.means[None])
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert [event.stage for event in ledger.events() if event.stage in ("votes", "vectors")] == ["votes", "vectors"]
        assert ledger.event("run") == mechanism.plan()
    assert first.exact
    assert first.norms == again.norms
    with pytest.raises(RunMismatchError):
        ran(mechanism, RECORDS[1:], writer, tmp_path)


def test_sums_do_not_depend_on_pieces(writer: ShotWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for passes in (1, 16):
        monkeypatch.setattr(differences, "PASSES", passes)
        (folder := tmp_path / str(passes)).mkdir()
        results.append(ran(DatasetVectors(**SMALL), MORE, writer, folder))
    np.testing.assert_array_equal(results[0].means[None], results[1].means[None])


@pytest.mark.slow
def test_workers_give_the_same_vectors(writer: ShotWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with one thread here and there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(differences, "PASSES", 1)
    threads, results = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for workers in (None, 1, 2):
            (folder := tmp_path / str(workers)).mkdir()
            with executor(workers, None) as do:
                results.append(ran(DatasetVectors(**SMALL), MORE, writer, folder, executor=do))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        np.testing.assert_array_equal(result.means[None], results[0].means[None])


def test_a_worker_whose_rows_depend_on_each_other_says_so(writer: ShotWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "verified", lambda *_: False)
    shape = states.StateShape(1, 30, exact=True)
    job = differences.StateJob(ModelReference.of(writer.model), (0,), shape, np.zeros((1, 1, 32)), (1.0,))
    with pytest.raises(WorkerError, match="depend there on the texts beside it, and on this machine they do not"):
        differences.clipped_sum([(0, ([1, 2], 0))], job)


def test_a_worker_that_computes_other_bits_says_so(writer: ShotWriter) -> None:
    """One record more moves those after it to other workers."""
    shape = states.StateShape(1, 28, exact=True)
    job = differences.StateJob(ModelReference.of(writer.model), (0,), shape, np.zeros((1, 1, 32)), (1.0,))
    same = replace(job, bits=job.bits_here())
    assert differences.clipped_sum([(0, ([1, 2], 0))], same).any()
    with pytest.raises(WorkerError, match="computes other hidden states, in some bits, than another worker"):
        differences.clipped_sum([(0, ([1, 2], 0))], replace(job, bits="0" * 64))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clip": 0.0}, "clip must be"),
        ({"clip": (1.0, 1.0, 1.0)}, "one for each of the blocks"),
        ({"clip": (1.0,), "blocks": None}, "one for each of the blocks"),
        ({"blocks": ()}, "at least one decoder block"),
        ({"blocks": (1, 1)}, "each block once"),
        ({"candidates": 1}, "shots must be at most candidates"),
        ({"sample": 9}, "at most the number of records of each label"),
        ({"sample": 4, "adjacency": ADD_REMOVE}, "needs adjacency replace_one"),
        ({"labels": ("a", "b")}, "a public number of records for each label"),
        ({"labels": ("a", "b"), "records_by_label": (4, 5)}, "add up to records"),
        ({"pairing": "rows"}, "variant as_published"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DatasetVectors(**SMALL | change)


def test_wrong_inputs_are_refused_before_anything_is_charged(writer: ShotWriter, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], list[Record], str]] = [
        ({"sample": 4}, RECORDS[:7], "exact number of records of each label"),
        ({"blocks": (0, 3)}, RECORDS, "blocks 0 to 2, not 3"),
        ({"shots": 6}, RECORDS, "positions, but the model has 128"),
        ({}, [], "no records"),
    ]
    for number, (change, records, says) in enumerate(cases):
        (folder := tmp_path / str(number)).mkdir()
        mechanism = DatasetVectors(**SMALL | change)
        with pytest.raises(ValueError, match=says):
            ran(mechanism, records, writer, folder)
        with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
            assert not ledger.events()


def test_blocks_and_clips_have_public_defaults(writer: ShotWriter, tmp_path: Path) -> None:
    """Three blocks: from half of the depth, 1, up to two thirds, 2. Clips do not depend on the records."""
    results = []
    for number, records in enumerate((RECORDS, [Record("x", "0123456789", "a")])):
        (folder := tmp_path / str(number)).mkdir()
        mechanism = DatasetVectors(**SMALL | {"blocks": None, "clip": None, "shots": number})
        results.append(ran(mechanism, records, writer, folder))
        assert results[-1].blocks == (1,)
        assert results[-1].clips[None][0] > 0
    again = ran(DatasetVectors(**SMALL | {"blocks": None, "clip": None, "shots": 0}), RECORDS[3:], writer, tmp_path)
    assert again.clips == results[0].clips


def test_a_run_that_noted_exact_rows_does_not_go_on_where_they_are_not(
    writer: ShotWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger would say that rows are exact, and its sums would not be."""
    mechanism = DatasetVectors(**SMALL)

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(generator.VectorRelease, "noisy_sums", killed)
        with pytest.raises(KeyboardInterrupt):
            ran(mechanism, RECORDS, writer, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(states, "shape_of", lambda *_, length, **__: states.StateShape(1, length, exact=False))
        with pytest.raises(RunMismatchError, match="another shape"):
            ran(mechanism, RECORDS, writer, tmp_path)
    first = ran(mechanism, RECORDS, writer, tmp_path)
    with monkeypatch.context() as patch:  # what was released stays what it was
        patch.setattr(states, "shape_of", lambda *_, length, **__: states.StateShape(1, length, exact=False))
        again = ran(mechanism, RECORDS, writer, tmp_path)
    assert first.exact
    assert again.exact
    np.testing.assert_array_equal(first.means[None], again.means[None])
