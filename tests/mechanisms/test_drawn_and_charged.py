"""What is drawn has the law that is charged: every noisy release of every generator, through its own code.

A run writes its ledger. Of each release the test takes what was committed or released, subtracts the exact value (of
the same run without noise, or of an input whose exact value is known), and compares the difference with the noise that
the *ledger's* event needs: an accountant says what the event costs, and neighbouring inputs, run without noise, say how
far one record moves the release. No number of the configuration comes in between. Samples are read off releases with
little noise, and compared with the event's probabilities.

Noise comes from recorded sources, so that nothing here depends on luck; `primitives/test_noise.py` compares their laws
and those of the operating system's entropy with what both are asked for. For fresh noise each check of `drawn_law`
would fail once in 10⁷ runs. It would miss a scale that is 10 % off less than once in 10⁶ runs; one that is 5 % off less
than once in 100 for Gaussian noise, of which at least 12,000 numbers are looked at, and once in five for noisy counts.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from dp_accounting import DpEvent, dp_event
from drawn_law import ALARM, check_counts, check_discrete_laplace, check_normal, check_share
from ledger_reader import entries
from little_evolution import Watched
from numpy.typing import NDArray
from private_centres import RADIUS, PrivateCentres
from scipy import stats
from small_models import COMMON, byte_tokenizer
from table_model import TableModel, showing

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.events import ParallelDpEvent, SecretReleaseDpEvent
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.registry import accountant
from dpassay.data.records import Record, with_content_ids
from dpassay.data.table_schema import Row, Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.aug_pe import generator as aug_pe
from dpassay.mechanisms.aug_pe.generator import AugPE
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors, DatasetVectorsResult
from dpassay.mechanisms.dataset_vectors.release import clipped
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.integer_vectors import integer_vectors
from dpassay.mechanisms.primitives.randomness import Recorded, Source
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.secret_evolution.clustering import PublicClusters, exact_sums
from dpassay.mechanisms.secret_evolution.detection import PatternSecrets
from dpassay.mechanisms.secret_evolution.generator import EvolutionResult, SecretEvolution
from dpassay.mechanisms.table_evolution.generator import TableEvolution
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.training import Spikes, TwoStageTraining

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
both_relations = pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE_ONE], ids=str)


def charges(ledger: Path) -> dict[str, DpEvent]:
    """The charged event of each step by its key, read from the file."""
    bodies = (entry.body for entry in entries(ledger) if entry.kind == "charge")
    return {body["key"]: events.from_json(body["event"]) for body in bodies}


def commits(ledger: Path) -> dict[str, Any]:
    """The committed value of each step by its key, read from the file."""
    bodies = (entry.body for entry in entries(ledger) if entry.kind == "commit")
    return {body["key"]: body["value"] for body in bodies}


def needed_noise(event: DpEvent, adjacency: Adjacency, moved: float) -> float:
    """The standard deviation of Gaussian noise that costs what is charged, where neighbours move a release so far."""
    return moved / accountant("gdp", adjacency).compose(event).mu().value


# Two-stage fine-tuning

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": 0, "high": 99},
            {"name": "sex", "type": "category", "values": ["f", "m"]},
        ]
    }
)
ROWS = {f"id-{seed}": SCHEMA.uniform(np.random.default_rng(seed)) for seed in range(3)}


class Kept:
    """An observer that keeps the released gradients."""

    def __init__(self) -> None:
        self.scores = np.zeros(0)
        self.released: list[NDArray[np.float64]] = []

    def see(self, step: int, released: NDArray[np.float64], training: TwoStageTraining) -> None:
        self.released.append(released)


def fine_tuned(
    folder: Path, mechanism: TwoStage, model: LanguageModel, rows: Mapping[str, Any], spikes: int = 0
) -> NDArray[np.float64]:
    """What the steps release, shape (steps, weights)."""
    folder.mkdir()
    table, kept = Table(SCHEMA, list(rows.values()), list(rows)), Kept()
    source = Recorded(2)
    training = TwoStageTraining(
        mechanism, model, table, folder, source=source, observer=kept, spikes=Spikes((1,) * spikes), rows=1
    )
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        about = {"noise": source.name}
        run = ledger.begin(
            "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about=about
        )
        training.run(run)
        assert run.event() == mechanism.plan()
    return np.array(kept.released)


CLIPPED = TwoStage(noise_multiplier=1.3, records=3, batch_size=3, steps=1, clip=0.05, first_stage="none")


@pytest.fixture(scope="module")
def exact_gradients(tiny: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> list[NDArray[np.float64]]:
    """Without noise: of three rows, of the first two, and of the last."""
    folder, plain = tmp_path_factory.mktemp("exact"), dataclasses.replace(CLIPPED, noise_multiplier=0.0)
    chosen = (ROWS, dict(list(ROWS.items())[:2]), dict(list(ROWS.items())[2:]))
    return [fine_tuned(folder / str(len(rows)), plain, tiny, rows)[0] for rows in chosen]


@both_relations
def test_noise_of_gradients(
    adjacency: Adjacency, tiny: LanguageModel, exact_gradients: list[NDArray[np.float64]], tmp_path: Path
) -> None:
    """50,000 weights. A row's gradient is longer than the clip; another one in its place moves at most twice as far."""
    whole, less, item = exact_gradients
    moved = float(np.linalg.norm(whole - less))
    assert moved == pytest.approx(float(np.linalg.norm(item)), rel=1e-5)
    noisy = fine_tuned(tmp_path / "noisy", dataclasses.replace(CLIPPED, adjacency=adjacency), tiny, ROWS)[0]
    event = charges(tmp_path / "noisy" / "ledger.sqlite")["steps/0"]
    check_normal(noisy - whole, needed_noise(event, adjacency, moved * (2 if adjacency is REPLACE_ONE else 1)))


def test_batches_of_fine_tuning(tiny: LanguageModel, tmp_path: Path) -> None:
    """2000 records with a gradient of one weight each, in 20 steps: who is in a step is read off what it releases.

    40,000 draws at 1/2 see a rate that is 5 % off as 10 standard deviations. The noise is 1/20 of a gradient. That no
    step has more than the expected 1000 has probability 2e-6, unless batches are cut.
    """
    records, steps = 2000, 20
    mechanism = TwoStage(
        noise_multiplier=0.05, records=records, batch_size=records // 2, steps=steps, first_stage="none", clip=0.3
    )
    released = fine_tuned(tmp_path / "run", mechanism, tiny, {}, records)
    at_spikes = released[:, np.arange(records) * released.shape[1] // records] * mechanism.batch_size / mechanism.clip
    drawn = at_spikes > 0.5
    charged = charges(tmp_path / "run" / "ledger.sqlite")
    (event,) = {charged[f"steps/{step}"] for step in range(steps)}
    assert isinstance(event, dp_event.PoissonSampledDpEvent)
    check_share(drawn, event.sampling_probability)
    assert drawn.sum(axis=1).max() > mechanism.batch_size
    times = np.bincount(drawn.sum(axis=0), minlength=steps + 1)
    law = stats.binom.pmf(np.arange(steps + 1), steps, event.sampling_probability)
    check_counts(*(np.concatenate([[own[:6].sum()], own[6:15], [own[15:].sum()]]) for own in (times, law)))
    check_normal(at_spikes - drawn, needed_noise(event.event, ADD_REMOVE, 1.0))


# Texts and vectors for the other generators

SIZE = 12_000


class Numbers:
    """Writes the number of each seed, without a language model."""

    name = fingerprint = "numbers"

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        return map(str, seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        return (f"{text} {seed}" for text, seed in zip(texts, seeds, strict=True))


class Circle:
    """Puts a text on a circle, at the angle of its last number in units of 10⁻³ degrees."""

    name = fingerprint = "circle"
    dimension = 2

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        angles = np.array([int(text.split()[-1]) % 360_000 for text in texts], dtype=np.float64) * (np.pi / 180_000)
        return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32) * np.float32(1 - 2.0**-20)


def begun(ledger: Ledger, mechanism: Any, plan: DpEvent) -> Run:
    about = {"noise": Recorded.name}
    return ledger.begin("run", plan=plan, adjacency=mechanism.adjacency, unit=mechanism.unit, about=about)


NOTES = [Record(f"id-{place}", f"note {place * 90_000}") for place in range(3)]
TURNED = [*NOTES[:2], Record("id-2", "note 270000")]


def moved_by_one(exact: Callable[[Sequence[Record]], NDArray[np.float64]], adjacency: Adjacency) -> float:
    """How far exact votes move if a note goes, or if one is replaced by one that lies elsewhere."""
    other = TURNED if adjacency is REPLACE_ONE else NOTES[:2]
    return float(np.linalg.norm(exact(NOTES) - exact(other)))


def nearest_texts(candidates: Sequence[str]) -> NDArray[np.int64]:
    """The votes of the notes, by the whole table of distances."""
    vectors, notes = (Circle().embed(texts).astype(np.float64) for texts in (candidates, [item.text for item in NOTES]))
    return np.bincount((notes @ vectors.T).argmax(axis=1), minlength=len(candidates))


# Aug-PE


@both_relations
def test_votes_of_aug_pe(adjacency: Adjacency, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12,000 candidates; how far a record moves votes is seen on 30."""
    monkeypatch.setattr("dpassay.mechanisms.aug_pe.generator.load_embedder", lambda name: Circle())

    def votes(name: str, records: Sequence[Record], noise: float, candidates: int) -> NDArray[np.float64]:
        chosen = AugPE(
            noise_multiplier=noise, rounds=1, synthetic=2, variations=candidates // 2, records=3, adjacency=adjacency
        )
        with Ledger.open(tmp_path / f"{name}.sqlite") as ledger:
            run = begun(ledger, chosen, chosen.plan())
            result = chosen.generate(records, Numbers(), run, journal=tmp_path / f"{name}.jsonl", source=Recorded(3))
            assert run.event() == chosen.plan()
        return result.votes[0][None]

    names = iter("abc")
    moved = moved_by_one(lambda records: votes(next(names), records, 0.0, 30), adjacency)
    noisy = votes("noisy", NOTES, 2.3, SIZE)
    lines = [json.loads(line) for line in (tmp_path / "noisy.jsonl").read_text().splitlines()[1:]]
    event = charges(tmp_path / "noisy.sqlite")["votes/0"]
    check_normal(noisy - nearest_texts([line["text"] for line in lines]), needed_noise(event, adjacency, moved))


# Table evolution

WIDE = Schema.model_validate(
    {
        "columns": [
            {"name": name, "type": "category", "values": [f"{name}{index}" for index in range(SIZE // 2)]}
            for name in "xy"
        ]
    }
)


@both_relations
def test_votes_of_table_evolution(adjacency: Adjacency, tmp_path: Path) -> None:
    """Two columns of 6000 categories, with equal noise: a row has a vote in each."""

    def votes(name: str, rows: Sequence[Row], noise: float) -> NDArray[np.float64]:
        chosen = TableEvolution(noise_multiplier=noise, records=3, rows=1, rounds=1, generations=1, adjacency=adjacency)
        with Ledger.open(tmp_path / f"{name}.sqlite") as ledger:
            run = begun(ledger, chosen, chosen.plan())
            table = Table(WIDE, rows, [str(index) for index in range(len(rows))])
            result = chosen.generate(table, run, source=Recorded(3))
            assert run.event() == chosen.plan()
        return np.concatenate(result.rounds[0].votes)

    rows = [("x1", "y7"), ("x1", "y8"), ("x2", "y8")]
    other = [*rows[:2], ("x5", "y1")] if adjacency is REPLACE_ONE else rows[:2]
    exact = votes("exact", rows, 0.0)
    moved = float(np.linalg.norm(exact - votes("moved", other, 0.0)))
    noisy = votes("noisy", rows, 2.3)
    event = charges(tmp_path / "noisy.sqlite")["votes/0"]
    check_normal(noisy - exact, needed_noise(event, adjacency, moved))


# Secret-protected evolution

SECRETS, PLACES = 300, 3
"""Each secret occurs in three records; they are nearest to a public record of their own."""


def of_secrets(folder: Path, source: Recorded, **changes: Any) -> tuple[EvolutionResult, DpEvent]:
    """A run of 23 rounds, and what each release is charged."""
    angles = [f"{secret * 360_000 // SECRETS}" for secret in range(SECRETS)]
    texts = [f"public {angle}" for angle in angles]
    texts += [f"zx{10_000 + secret} {index} {angles[secret]}" for secret in range(SECRETS) for index in range(PLACES)]
    records = with_content_ids([(text, None, None) for text in texts])
    settings: dict[str, Any] = {"p": 0.01, "r": 0.9, "rounds": 23, "synthetic": 1, "variations": 1}
    mechanism = SecretEvolution(
        secrets=(PatternSecrets(r"\bzx\d{5}\b"),), clusters=SECRETS, seed=0, **(settings | changes)
    )
    indices = mechanism.incidence(records)
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        run = begun(ledger, mechanism, mechanism.plan(indices))
        result = mechanism.generate(
            records, Numbers(), run, journal=folder / "journal.jsonl", incidence=indices, source=source
        )
        assert run.event() == mechanism.plan(indices)
    charged = charges(folder / "ledger.sqlite")
    (event,) = {charged[f"release/{number}"] for number in range(len(result.releases))}
    return result, event


@pytest.fixture
def circle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_embedder", "fitted_embedder"):
        monkeypatch.setattr(f"dpassay.mechanisms.secret_evolution.generator.{name}", lambda *given: Circle())


@pytest.mark.usefixtures("circle")
def test_noise_of_counts_and_centres(tmp_path: Path) -> None:
    """All records are drawn, so that exact counts are 3 and sums 0: 20,700 numbers get noise.

    An occurrence moves a count by 1 and a sum by as much, at the other end of the ball.
    """
    result, event = of_secrets(tmp_path, Recorded(4))
    assert isinstance(event, SecretReleaseDpEvent)
    assert event.weights[PLACES] == pytest.approx(1.0, abs=1e-12)
    end = np.array([[1.0, 0.0]])
    counts, sums = exact_sums(PublicClusters(end, np.ones(1, dtype=np.int64), 1.0), -end, np.ones(1, dtype=np.bool_))
    occurrence = math.hypot(counts[0], np.linalg.norm(sums)) / 2**30
    angles = [f"{secret * 360_000 // SECRETS}" for secret in range(SECRETS)]
    public = PublicClusters.fit(Circle().embed(angles), SECRETS, seed=0)
    noise = []
    for release in result.releases:
        (noisy,) = release.values()
        shifts = (noisy.centres - public.vectors) * np.maximum(1, noisy.sizes)[:, None] / 2
        noise += [noisy.sizes - 1 - PLACES, shifts.ravel()]
    check_normal(np.concatenate(noise), event.noise_multiplier * occurrence)


@pytest.mark.usefixtures("circle")
def test_sample_of_records_with_secrets(tmp_path: Path) -> None:
    """How often each of 300 secrets occurs in each of 23 releases is what the event says, record by record.

    20,700 draws at .8 see a probability that is 5 % off as 14 standard deviations.
    """
    source = Watched(5)
    result, event = of_secrets(tmp_path, source, expected_sample=0.8 * SECRETS * PLACES)
    assert isinstance(event, SecretReleaseDpEvent)
    occurrences = np.array([exact[:SECRETS] for exact in source.exact]).astype(np.int64)
    assert occurrences.shape == (len(result.releases), SECRETS)
    check_counts(np.bincount(occurrences.ravel(), minlength=PLACES + 1), event.weights[: PLACES + 1])
    mean = float(np.arange(PLACES + 1) @ event.weights[: PLACES + 1]) / PLACES
    check_share(np.arange(occurrences.size * PLACES) < occurrences.sum(), mean)
    assert stats.pearsonr(occurrences[:-1].ravel(), occurrences[1:].ravel()).pvalue > ALARM  # drawn anew each time


# Dataset vectors


class NumberShots(ShotWriter):
    """Writes numbers; its model computes states alone."""

    def texts(self, prompt: Sequence[int], seeds: Sequence[int], **given: Any) -> Iterator[tuple[str, bool]]:
        return ((str(seed), True) for seed in seeds)


class Unsynced(Journal):
    """Does not wait for the disk."""

    def flush(self) -> None:
        self._waiting = 0


class Own:
    """Differences of length C, each in a coordinate of its own, by the number of its record."""

    width = PLACES + 1

    def __init__(self, mechanism: DatasetVectors, *given: Any) -> None:
        assert isinstance(mechanism.clip, float)
        self._clip = mechanism.clip

    def norms(self) -> list[float]:
        return [1.0]

    def clips(self, candidates: Sequence[str]) -> list[float]:
        return [self._clip]

    def of(self, records: Sequence[Record]) -> Iterator[NDArray[np.float64]]:
        return (np.eye(self.width)[[int(record.text) % self.width]] * self._clip for record in records)

    def clipped_sum(self, records: Sequence[Record], clips: Sequence[float], *given: Any) -> Any:
        return sum(clipped(each, clips) for each in self.of(records))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Five blocks of 4096 states each, and little else."""
    folder, tokenizer = tmp_path_factory.mktemp("wide"), byte_tokenizer()
    shape = COMMON | {"hidden_size": 4096, "intermediate_size": 8, "num_hidden_layers": 5, "vocab_size": len(tokenizer)}
    shape |= {"num_attention_heads": 1, "num_key_value_heads": 1}
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**shape))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return LanguageModel.load(folder, device="cpu")


def vectors_of(
    path: Path, model: LanguageModel, records: Sequence[Record], mechanism: DatasetVectors
) -> DatasetVectorsResult:
    writer = NumberShots(model=model, template="{examples} ", longest=8, longest_record=12)
    path.mkdir()
    with Ledger.open(path / "ledger.sqlite") as ledger, Unsynced(path / "journal.jsonl", {}) as journal:
        run = begun(ledger, mechanism, mechanism.plan())
        result = mechanism.release(records, writer, run, journal=journal, source=Recorded(6))
        assert run.event() == mechanism.plan()
    return result


VECTORS = DatasetVectors(noise_multiplier=1.7, records=3, blocks=(0, 1, 2, 3, 4), clip=1e-3, shots=0, negatives=2)


@pytest.fixture(scope="module")
def exact_means(wide: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> list[NDArray[np.float64]]:
    """Without noise: of three notes, and of the first two."""
    folder, plain = tmp_path_factory.mktemp("means"), dataclasses.replace(VECTORS, noise_multiplier=0.0)
    return [vectors_of(folder / str(n), wide, NOTES[:n], plain).means[None] for n in (3, 2)]


@both_relations
def test_noise_of_vectors(
    adjacency: Adjacency, wide: LanguageModel, exact_means: list[NDArray[np.float64]], tmp_path: Path
) -> None:
    """20,480 numbers in five blocks. All differences are longer than the clip, another one at most twice as far."""
    whole, less = exact_means
    moved = float(np.linalg.norm(whole - less)) * (2 if adjacency is REPLACE_ONE else 1)
    result = vectors_of(tmp_path / "run", wide, NOTES, dataclasses.replace(VECTORS, adjacency=adjacency))
    event = charges(tmp_path / "run" / "ledger.sqlite")["vectors"]
    check_normal(result.means[None] - whole, needed_noise(event, adjacency, moved))
    for row, exact in zip(result.means[None], whole, strict=True):  # each block by itself; 4096 draws see 10 % off
        check_normal(row - exact, needed_noise(event, adjacency, moved))


@both_relations
def test_votes_of_dataset_vectors(
    adjacency: Adjacency, tiny: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12,000 candidates; how far a record moves votes is seen on 30."""
    monkeypatch.setattr("dpassay.mechanisms.dataset_vectors.generator.load_embedder", lambda name: Circle())

    def votes(name: str, records: Sequence[Record], noise: float, candidates: int) -> NDArray[np.float64]:
        mechanism = DatasetVectors(
            noise_multiplier=1.0,
            records=3,
            blocks=(0,),
            clip=1.0,
            shots=1,
            shots_noise_multiplier=noise,
            candidates=candidates,
            negatives=2,
            adjacency=adjacency,
        )
        return vectors_of(tmp_path / name, tiny, records, mechanism).votes[None]

    names = iter("abc")
    moved = moved_by_one(lambda records: votes(next(names), records, 0.0, 30), adjacency)
    noisy = votes("noisy", NOTES, 2.9, SIZE)
    lines = [json.loads(line) for line in (tmp_path / "noisy" / "journal.jsonl").read_text().splitlines()[1:]]
    exact = nearest_texts([line["text"] for line in lines if line["key"].startswith("candidate/")])
    event = charges(tmp_path / "noisy" / "ledger.sqlite")["votes"]
    check_normal(noisy - exact, needed_noise(event, adjacency, moved))


def test_sample_of_dataset_vectors(tiny: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four records of each of 1000 labels: the six pairs are equally likely, and no label has more or fewer.

    The noise is 1/20 of a difference, so who is in the sum is read off what is released. A record that is drawn with a
    probability of .55 in place of .5 is seen half of the time, one of .6 as 6 standard deviations: all of the time.
    """
    monkeypatch.setattr("dpassay.mechanisms.dataset_vectors.differences.Differences", Own)
    labels = tuple(str(number) for number in range(1000))
    records = [Record(f"{label}-{index}", str(index), label) for label in labels for index in range(4)]
    mechanism = DatasetVectors(
        noise_multiplier=0.025,
        records=4000,
        labels=labels,
        records_by_label=(4,) * 1000,
        sample=2,
        blocks=(0,),
        clip=0.5,
        shots=0,
        negatives=1,
    )
    result = vectors_of(tmp_path / "run", tiny, records, mechanism)
    sums = np.array([result.means[label][0] for label in labels]) * 2 / 0.5
    drawn = sums > 0.5
    event = charges(tmp_path / "run" / "ledger.sqlite")["vectors"]
    assert isinstance(event, ParallelDpEvent)
    (item,) = set(event.events)
    assert isinstance(item, dp_event.SampledWithoutReplacementDpEvent)
    assert item.source_dataset_size == 4
    assert (drawn.sum(axis=1) == item.sample_size).all()
    kinds = np.bincount(drawn @ (1 << np.arange(4)), minlength=16)
    check_counts(kinds[[3, 5, 6, 9, 10, 12]], np.ones(6))
    check_normal(sums - drawn, needed_noise(item.event, REPLACE_ONE, 2.0))


# Private centres


@both_relations
def test_noise_of_private_centres(adjacency: Adjacency, tmp_path: Path) -> None:
    """20,500 sums and counts. A vector of length 1 comes; or turns round within a cluster, which is the worst."""
    chosen = PrivateCentres(clusters=500, dimension=40, iterations=2, rho=0.3, adjacency=adjacency)
    rows = np.eye(40, dtype=np.float32)[:3]
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        run = begun(ledger, chosen, chosen.plan())
        chosen.fit(rows, run, source=Recorded(7))
        assert run.event() == chosen.plan()
    alike = np.zeros((500, 40), dtype=np.float32)
    first, second, none = (
        chosen.statistics(integer_vectors(x, RADIUS), alike) for x in (rows[:1], -rows[:1], rows[:0])
    )
    moved = float(np.linalg.norm(first - (second if adjacency is REPLACE_ONE else none)))
    start = unit_rows(np.random.default_rng(chosen.seed).normal(size=(500, 40)))
    exact = chosen.statistics(integer_vectors(rows, RADIUS), start)
    event = charges(tmp_path / "ledger.sqlite")["lloyd/0"]
    assert isinstance(event, dp_event.ZCDpEvent)
    noise = np.array(commits(tmp_path / "ledger.sqlite")["lloyd/0"]).reshape(exact.shape) - exact
    check_normal(noise, moved / math.sqrt(2 * event.rho))


# Private inference

KEY = bytes(32)
DRAWS = 150


class Evenly(Recorded):
    """Divides what `below` may answer evenly among the tokens of each slot, so that its law is counted, not guessed."""

    def __init__(self, slots: int) -> None:
        super().__init__(8)
        self._slots, self._calls = slots, 0

    def at(self, place: str) -> Any:
        return self

    def below(self, bound: int) -> int:
        token = self._calls // self._slots % DRAWS
        self._calls += 1
        return (2 * token + 1) * bound // (2 * DRAWS)


def log_odds(
    path: Path, mechanism: PrivateInference, records: Sequence[Record], model: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], DpEvent]:
    """The least and the largest log-odds of the second of two tokens in each slot, and the event of each token."""
    with Ledger.open(path) as ledger:
        run = begun(ledger, mechanism, mechanism.plan())
        try:
            generate(mechanism, records, model, run, key=KEY, source=Evenly(mechanism.total_slots))
        except LedgerError as error:  # of a token that cost more than its charge, which the ledger notices, too
            raise AssertionError(str(error)) from error
        assert run.event() == mechanism.plan()
    charged, drawn = charges(path), commits(path)
    keys = [f"tokens/{step}" for step in range(DRAWS)]
    (event,) = {charged[key] for key in keys}
    share = np.mean([drawn[key]["tokens"] for key in keys], axis=0)
    low, high = share - 0.5 / DRAWS, share + 0.5 / DRAWS
    return np.log(low / (1 - low)), np.log(high / (1 - high)), event


def slot_of(mechanism: PrivateInference, wanted: int) -> str:
    """A text of A's alone, for the first record that falls into a slot."""
    for number in range(100):
        record = Record(f"id-{number}", "A")
        (sizes,) = (mechanism.batches([record], KEY).sizes,)
        if np.asarray(sizes)[wanted]:
            return record.id
    raise AssertionError


MEAN = {"aggregate": "mean", "clip": 6.0, "temperature": 1.5, "denominator": 6}
MEDIAN = {"aggregate": "median", "clip": 0.6, "temperature": 1.2}
SHOWN: dict[str, Sequence[float]] = {"A": (8.0, -8.0), "B": (-8.0, 8.0), "": (-8.0, 8.0)}
"""Logits of a record, and of a prompt without one: as far apart as the clip allows."""
CENTRED: dict[str, Any] = {"center": "public", "top_k": 1}
ONE_SLOT: dict[str, Any] = {"batch_size": 4, "records": 4}
TWO_SLOTS: dict[str, Any] = {"batch_size": 2, "records": 4}


@pytest.mark.parametrize(
    ("settings", "adjacency", "other"),
    [
        (MEAN | ONE_SLOT, ADD_REMOVE, []),
        (MEAN | ONE_SLOT, REPLACE_ONE, [(0, "B")]),
        (MEAN | TWO_SLOTS, REPLACE_ONE, [(1, "B")]),
        (MEDIAN | ONE_SLOT, ADD_REMOVE, []),
        (MEDIAN | ONE_SLOT, REPLACE_ONE, [(0, "B")]),
        (MEAN | CENTRED | ONE_SLOT, ADD_REMOVE, []),
        (MEAN | CENTRED | ONE_SLOT, REPLACE_ONE, [(0, "B")]),
        (MEAN | CENTRED | TWO_SLOTS, REPLACE_ONE, [(1, "B")]),
        (MEDIAN | CENTRED | ONE_SLOT | {"clip": 0.9}, ADD_REMOVE, []),
        (MEDIAN | CENTRED | ONE_SLOT, REPLACE_ONE, [(0, "B")]),
    ],
    ids=str,
)
def test_tokens_differ_by_the_range_that_is_charged(
    settings: dict[str, Any], adjacency: Adjacency, other: list[tuple[int, str]], tmp_path: Path
) -> None:
    """The worst neighbours reach it, so less noise, or a smaller charge, is seen: 5 % of it.

    The law of each slot is counted over 150 even parts of the sampler's range; of several slots, the ranges add up.
    """
    mechanism = PrivateInference(**settings, tokens=DRAWS, adjacency=adjacency)
    mine = [Record(slot_of(mechanism, 0), "A")]
    theirs = [Record(slot_of(mechanism, slot), text) for slot, text in other]
    model = showing(SHOWN | ({"": (0.0, 0.0)} if mechanism.center else {}))
    low, high, event = log_odds(tmp_path / "mine.sqlite", mechanism, mine, model)
    less, more, same = log_odds(tmp_path / "theirs.sqlite", mechanism, theirs, model)
    assert event == same
    charged = accountant("basic", adjacency).compose(event).pure().value
    least = np.maximum(np.maximum(low - more, less - high), 0).sum()
    most = np.maximum(high - less, more - low).sum()
    assert most - least < 0.06 * charged
    assert least <= charged <= most
    assert least > 0.95 * charged


CELLS = 15_000
DIGITS = [Record(f"id-{place}", str(place)) for place in range(3)]
CHANGED = [*DIGITS[:2], Record("id-9", "270000")]


def pure_rate(event: DpEvent, adjacency: Adjacency, moved: float) -> float:
    """a of noise P(k) ∝ exp(−a|k|) that costs what is charged, where neighbours move counts so far in all."""
    return accountant("basic", adjacency).compose(event).pure().value / moved


@both_relations
def test_noise_of_slot_counts(adjacency: Adjacency, tmp_path: Path) -> None:
    """15,000 slots, of which none runs; 5 % off are 6 standard deviations, 10 % are 12."""
    mechanism = PrivateInference(
        aggregate="mean",
        clip=6.0,
        temperature=1.5,
        batch_size=1,
        records=CELLS,
        tokens=1,
        slot_threshold=1e6,
        slot_count_epsilon=0.4,
        adjacency=adjacency,
    )
    model: Any = TableModel(vocabulary=10)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        run = begun(ledger, mechanism, mechanism.plan())
        generate(mechanism, DIGITS, model, run, key=KEY, source=Recorded(9))
        assert run.event() == mechanism.plan()
    exact, other = (mechanism.batches(records, KEY).units for records in (DIGITS, CHANGED))
    moved = int(np.abs(exact - (other if adjacency is REPLACE_ONE else mechanism.batches(DIGITS[:2], KEY).units)).sum())
    event = charges(tmp_path / "ledger.sqlite")["counts"]
    noise = np.array(commits(tmp_path / "ledger.sqlite")["counts"]) - exact
    check_discrete_laplace(noise, pure_rate(event, adjacency, moved))


@both_relations
def test_noise_of_cluster_counts(adjacency: Adjacency, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """15,000 centres; 5 % off are 6 standard deviations, 10 % are 12."""
    monkeypatch.setattr("dpassay.mechanisms.embedding.centres.load_embedder", lambda name: Circle())
    angles = [str(index * 360_000 // CELLS) for index in range(CELLS)]
    Centres(Circle().embed(angles), Circle.name, Circle.fingerprint).save(tmp_path / "centres.safetensors")
    mechanism = PrivateInference(
        aggregate="mean",
        clip=6.0,
        temperature=1.5,
        batch_size=3,
        records=3,
        tokens=1,
        centres=tmp_path / "centres.safetensors",
        kept_centres=1,
        cluster_count_epsilon=0.3,
        embedder=Circle.name,
        adjacency=adjacency,
    )
    model: Any = TableModel(vocabulary=10)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        run = begun(ledger, mechanism, mechanism.plan())
        generate(mechanism, DIGITS, model, run, key=KEY, source=Recorded(10))
        assert run.event() == mechanism.plan()
    other = CHANGED if adjacency is REPLACE_ONE else DIGITS[:2]
    exact = mechanism.cluster_units(DIGITS, KEY).ravel()
    moved = int(np.abs(exact - mechanism.cluster_units(other, KEY).ravel()).sum())
    event = charges(tmp_path / "ledger.sqlite")["clusters"]
    noise = np.array(commits(tmp_path / "ledger.sqlite")["clusters"]) - exact
    check_discrete_laplace(noise, pure_rate(event, adjacency, moved))


LOOKED_AT: dict[tuple[str, str], tuple[str, ...]] = {
    ("aug_pe/generator.py", "add_gaussian"): ("test_votes_of_aug_pe",),
    ("dataset_vectors/release.py", "add_gaussian"): ("test_noise_of_vectors", "test_votes_of_dataset_vectors"),
    ("dataset_vectors/release.py", "below"): ("test_sample_of_dataset_vectors",),
    ("primitives/counts.py", "discrete_laplace"): ("test_noise_of_slot_counts", "test_noise_of_cluster_counts"),
    ("primitives/token_sampler.py", "below"): ("test_tokens_differ_by_the_range_that_is_charged",),
    ("private_inference/loop.py", "below"): (),  # the control without protection, which is charged as such
    ("secret_evolution/clustering.py", "add_gaussian"): ("test_noise_of_counts_and_centres",),
    ("secret_evolution/clustering.py", "bernoulli"): ("test_sample_of_records_with_secrets",),
    ("table_evolution/votes.py", "rounded_normals"): ("test_votes_of_table_evolution",),
    ("two_stage/descent.py", "rounded_normals"): ("test_noise_of_gradients",),
    ("two_stage/training.py", "bernoulli"): ("test_batches_of_fine_tuning",),
    ("two_stage/training.py", "below"): (),  # shuffled batches, as published, which are charged as unprotected
}
"""Where mechanisms draw from a source of noise, and the tests here that look at what comes of it."""


def test_every_draw_of_a_mechanism_is_looked_at() -> None:
    """A new one fails, until it has a row and a test."""
    root, methods = Path(aug_pe.__file__).parents[1], {name for name in vars(Source) if not name.startswith("_")}
    methods.remove("at")  # a source, not a draw
    result: set[tuple[str, str]] = set()
    for path in root.rglob("*.py"):
        if path.name != "randomness.py":
            calls = re.findall(r"source\.(\w+)\(", path.read_text())
            result |= {(path.relative_to(root).as_posix(), name) for name in calls if name in methods}
    assert result == set(LOOKED_AT)
    assert all(name in globals() for tests in LOOKED_AT.values() for name in tests)
