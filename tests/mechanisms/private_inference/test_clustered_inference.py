"""Private inference over clusters: every neighbour of small data sets, the counts' sensitivity, and resumed runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from little_inference import killed_at
from neighbouring import (
    FLOAT,
    KEY,
    NEIGHBOURS,
    candidates,
    data_set,
    log_ratio,
    pure_epsilon,
    realised_epsilons,
    scores_of_slots,
)
from numpy.typing import NDArray
from property_settings import examples

from dpassay.accounting import account, events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.run import Run
from dpassay.data.records import Record
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.nearest import nearest
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Transcript

EPSILON = 0.6
PUBLIC = ["".join(digits) for digits in itertools.product("12", repeat=3)]


@pytest.fixture(scope="session")
def centres(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four centres among the eight public texts of three digits."""
    path = tmp_path_factory.mktemp("centres") / "centres.safetensors"
    Centres.fit(PUBLIC, 4, embedder=HashedNgrams(dimension=16, buckets=256, shortest=1), seed=1).save(path)
    return path


BASE: dict[str, Any] = {
    "aggregate": "median",
    "clip": 4.0,
    "temperature": 1.3,
    "batch_size": 2,
    "tokens": 3,
    "records": 6,
}


def mechanism(centres: Path, **changes: Any) -> PrivateInference:
    clustered = {"centres": centres, "kept_centres": 2, "cluster_count_epsilon": EPSILON}
    return PrivateInference(**(BASE | clustered | changes))


def labelled(records: Sequence[Record]) -> list[Record]:
    return [dataclasses.replace(record, label="ab"[index % 2]) for index, record in enumerate(records)]


def labels_added_or_removed(records: list[Record], seed: int) -> Iterator[list[Record]]:
    yield from (records[:i] + records[i + 1 :] for i in range(len(records)))
    yield from ([*records, extra] for extra in labelled(candidates(seed)))


def labels_replaced(records: list[Record], seed: int) -> Iterator[list[Record]]:
    for i, extra in itertools.product(range(len(records)), labelled(candidates(seed))):
        yield [*records[:i], extra, *records[i + 1 :]]


ALL_NEIGHBOURS = NEIGHBOURS | {"labels_add_remove": labels_added_or_removed, "labels_replace_one": labels_replaced}


def records_of(kind: str, seed: int, size: int) -> list[Record]:
    records = data_set(seed, size, users=kind == "user")
    return labelled(records) if kind.startswith("labels") else records


def count_ratio(
    chosen: PrivateInference, records: Sequence[Record], other: Sequence[Record], transcript: Transcript
) -> float:
    """log P_D/P_D′ of the released counts of clusters."""
    law: dict[str, Any] = {"epsilon": chosen.cluster_count_epsilon, "adjacency": chosen.adjacency}
    assert transcript.cluster_counts is not None
    released = np.ravel(transcript.cluster_counts)
    laws = [
        noise.log_probability(released, chosen.cluster_units(data, KEY).ravel(), **law) for data in (records, other)
    ]
    return laws[0] - laws[1]


REPLACE = {"adjacency": Adjacency.REPLACE_ONE}
LABELS = {"labels": ("a", "b"), "batch_size": 1}
MEDIANS: list[tuple[str, dict[str, Any]]] = [
    ("add_remove", {}),
    ("add_remove", {"batch_size": 1, "kept_centres": 3}),
    ("add_remove", {"batch_size": 1, "records_per_context": 2}),
    ("replace_one", REPLACE),
    ("user", {"unit": Unit("user"), "records": 4}),
    ("labels_add_remove", LABELS),
    ("labels_replace_one", LABELS | REPLACE),
    ("add_remove", {"variant": "as_published"}),
    ("add_remove", {"slot_threshold": 1.0, "slot_count_epsilon": 0.7}),
]


@pytest.mark.grid
@pytest.mark.parametrize(("kind", "changes"), MEDIANS, ids=str)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), size=st.integers(0, 7))
def test_realised_cost_and_counts_bound_every_neighbour(
    table_model: Any, runs: Any, centres: Path, kind: str, changes: dict[str, Any], seed: int, size: int
) -> None:
    """Whatever a run releases: |log-ratio| of counts and tokens to every neighbour is within ε₀ plus the realised cost,
    and that is within the plan."""
    chosen, model = mechanism(centres, **changes), table_model(seed=seed % 5)
    records = records_of(kind, seed, size)
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records, model, run, key=KEY, source=Recorded(seed))
    run.finish()
    minus, plus = realised_epsilons(chosen, run)
    counted = EPSILON + (chosen.slot_count_epsilon if chosen.slot_threshold is not None else 0.0)
    planned = pure_epsilon(chosen.plan(), chosen.adjacency)
    assert max(minus, plus) + counted <= planned + FLOAT
    if chosen.adjacency is Adjacency.ADD_REMOVE:  # the accountant's own number; under replace_one it asks for `moved`
        bound = account(run, method="ex_post", adjacency=chosen.adjacency, unit=chosen.unit)
        assert bound.value == pytest.approx(max(minus, plus) + counted, rel=1e-9)
    for other in ALL_NEIGHBOURS[kind](records, seed):
        ratio = count_ratio(chosen, records, other, generation.transcript)
        assert abs(ratio) <= EPSILON + FLOAT
        ratio += log_ratio(chosen, model, records, other, generation.transcript)
        if generation.released_counts is not None:
            law: dict[str, Any] = {"epsilon": chosen.slot_count_epsilon, "adjacency": chosen.adjacency}
            counts = generation.transcript.cluster_counts
            units = [chosen.batches(data, KEY, counts).units for data in (records, other)]
            laws = [noise.log_probability(generation.released_counts, exact, **law) for exact in units]
            ratio += laws[0] - laws[1]
        assert -plus - counted - FLOAT <= ratio <= minus + counted + FLOAT


def slot_laws(
    chosen: PrivateInference, model: Any, records: Sequence[Record], counts: tuple[tuple[int, ...], ...]
) -> list[dict[tuple[int, ...], float]]:
    """Given the counts, the log-probability of every sequence of tokens of each slot; slots are independent."""
    laws: list[dict[tuple[int, ...], float]] = [{} for _ in range(chosen.total_slots)]
    for tokens in itertools.product(range(model.vocabulary_size), repeat=chosen.tokens):
        transcript = Transcript((tokens,) * chosen.total_slots, (True,) * chosen.total_slots, counts)
        for law, score in zip(laws, scores_of_slots(chosen, records, model, transcript, key=KEY), strict=True):
            law[tokens] = float(score)
    return laws


@pytest.mark.grid
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("add_remove", {}),
        ("add_remove", {"records_per_context": 2, "batch_size": 1}),
        ("replace_one", REPLACE),
        ("labels_replace_one", LABELS | REPLACE | {"denominator": 2}),
        ("user", {"unit": Unit("user"), "records": 4}),
    ],
    ids=str,
)
def test_every_output_of_a_mean_over_clusters_is_within_the_plan(
    table_model: Any, centres: Path, kind: str, changes: dict[str, Any]
) -> None:
    """All outputs of all slots, given several outcomes of the counts, against all neighbours of several data sets."""
    chosen = mechanism(centres, aggregate="mean", tokens=2, **changes)
    planned, worst = pure_epsilon(chosen.plan(), chosen.adjacency), 0.0
    for seed in range(3):
        model, records = table_model(vocabulary=3, seed=seed), records_of(kind, seed, 5)
        noisy = noise.noisy_counts(
            chosen.cluster_units(records, KEY).ravel(),
            epsilon=EPSILON,
            adjacency=chosen.adjacency,
            source=Recorded(seed),
        )
        counts = tuple(map(tuple, noisy.reshape(-1, 4).tolist()))
        laws = slot_laws(chosen, model, records, counts)
        assert all(math.fsum(math.exp(v) for v in law.values()) == pytest.approx(1, abs=FLOAT) for law in laws)
        for other in ALL_NEIGHBOURS[kind](records, seed):
            others = slot_laws(chosen, model, other, counts)
            moved = count_ratio(chosen, records, other, Transcript((), (), counts))
            for sign in (1, -1):
                ratios = [max(sign * (a[x] - b[x]) for x in a) for a, b in zip(laws, others, strict=True)]
                worst = max(worst, sum(ratios) + sign * moved)
    assert planned / 10 < worst <= planned + FLOAT


@given(seed=st.integers(0, 10**6), size=st.integers(0, 8))
@examples(12, 25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kind", ["labels_add_remove", "labels_replace_one", "user"])
def test_one_unit_moves_the_counts_by_one_or_two(centres: Path, kind: str, seed: int, size: int) -> None:
    """The L1 sensitivity that is charged: 1 under add_remove, 2 under replace_one; each unit counts once."""
    labels: dict[str, Any] = LABELS if kind.startswith("labels") else {}
    chosen = mechanism(centres, **labels, **({"unit": Unit("user")} if kind == "user" else {}))
    records = records_of(kind, seed, size)
    counts = chosen.cluster_units(records, KEY)
    assert counts.sum() == (len({record.user for record in records}) if kind == "user" else len(records))
    for other in ALL_NEIGHBOURS[kind](records, seed):
        moved = int(np.abs(counts - chosen.cluster_units(other, KEY)).sum())
        assert moved in ((0, 2) if kind == "labels_replace_one" else (1,))


@given(seed=st.integers(0, 10**6), size=st.integers(1, 8), noisy=st.lists(st.integers(-3, 9), min_size=8, max_size=8))
@examples(12, 25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_given_the_counts_a_records_slot_is_its_own(centres: Path, seed: int, size: int, noisy: list[int]) -> None:
    chosen = mechanism(centres, **LABELS)
    records, counts = records_of("labels", seed, size), (tuple(noisy[:4]), tuple(noisy[4:]))
    together = chosen.batches(records, KEY, counts).assignment
    alone = [int(chosen.batches([record], KEY, counts).assignment[0]) for record in records]
    assert together.tolist() == alone
    assert all(chosen.label_of(slot) == record.label for slot, record in zip(alone, records, strict=True))
    assert len(chosen.batches(records, KEY, counts).contexts) == chosen.total_slots


def test_records_of_a_cluster_share_its_slots_only(centres: Path) -> None:
    """With as many slots as kept centres, slots are clusters; a cluster that dominates gets more slots."""
    chosen = mechanism(centres, records=400, batch_size=200)
    records = [Record(f"id-{i}", text) for i, text in enumerate(PUBLIC * 50)]
    counts = chosen.cluster_units(records, KEY)
    batches = chosen.batches(records, KEY, counts.tolist())
    texts = [{records[i].text for (i,) in slot} for slot in batches.contexts]
    assert texts[0].isdisjoint(texts[1])
    assert texts[0] | texts[1] == set(PUBLIC)
    uneven = mechanism(centres, records=400, batch_size=40)
    large = uneven.batches(records, KEY, [[90, 10, 0, 0]])
    texts = [{records[i].text for (i,) in slot} for slot in large.contexts]
    assert len({frozenset(slot) for slot in texts[:9]}) == 1
    assert texts[9].isdisjoint(texts[0])


def test_the_plan_is_known_before_the_centres_are_read() -> None:
    planned = mechanism(Path("no such file"), slot_threshold=2.0, slot_count_epsilon=0.7).plan()
    assert isinstance(planned, dp_event.ComposedDpEvent)
    for epsilon in (EPSILON, 0.7):
        assert noise.count_event(epsilon, Adjacency.ADD_REMOVE) in planned.events
    without = dataclasses.replace(mechanism(Path("x")), centres=None, kept_centres=None).plan()
    counted = events.compose([(noise.count_event(EPSILON, Adjacency.ADD_REMOVE), 1), (without, 1)])
    assert mechanism(Path("x")).plan() == counted
    twice = mechanism(Path("x"), slot_threshold=2.0, slot_count_epsilon=EPSILON).plan()
    assert dp_event.SelfComposedDpEvent(noise.count_event(EPSILON, Adjacency.ADD_REMOVE), 2) in twice.events


VARIANTS: list[dict[str, Any]] = [
    {},
    {"aggregate": "mean", "adjacency": Adjacency.REPLACE_ONE},
    {"variant": "as_published"},
    {"aggregate": "none"},
    {"slot_threshold": 1.0, "slot_count_epsilon": EPSILON},
    {"labels": ("a", "b"), "batch_size": 1},
]


@pytest.mark.grid("changes", "stop_at")
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("stop_at", range(2, 12))
def test_an_interrupted_run_keeps_the_counts_that_it_released(
    changes: dict[str, Any], stop_at: int, table_model: Any, runs: Any, centres: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before or after its n-th write: committed counts and tokens stand, and the run charges its plan."""
    chosen, model = mechanism(centres, **changes), table_model()
    records = records_of("labels" if chosen.labels else "", 3, 6)
    original = Run.step

    def write(seed: int) -> Any:
        run = runs.begin(chosen, noise="recorded", name="one")
        return run, generate(chosen, records, model, run, key=KEY, source=Recorded(seed), rows_at_once=4)

    monkeypatch.setattr(Run, "step", killed_at(stop_at))
    with pytest.raises(KeyboardInterrupt):
        write(1)
    monkeypatch.setattr(Run, "step", original)
    before = runs.begin(chosen, noise="recorded", name="one").outcome("clusters")
    run, generation = write(2)
    run.finish()
    released = run.outcome("clusters").value
    assert before is None or before.value == released
    assert (before is not None) == (stop_at >= 4)  # two writes for the inputs; the counts are charged, then committed
    assert np.ravel(generation.transcript.cluster_counts).tolist() == released
    again = write(3)[1]
    assert again.transcript == generation.transcript
    assert again.documents == generation.documents


def as_on_another_machine(vectors: Any, centres: Any) -> NDArray[np.int64]:
    """Every record is nearest to another centre."""
    return (nearest(vectors, centres) + 1) % len(centres)


@pytest.mark.grid("changes", "stop_at")
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("stop_at", range(5, 12))
def test_a_run_goes_on_with_the_same_assignment_only(
    changes: dict[str, Any], stop_at: int, table_model: Any, runs: Any, centres: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What decides the records' slots is committed before any token, and compared whenever the run goes on."""
    chosen, model = mechanism(centres, **changes), table_model()
    records = records_of("labels" if chosen.labels else "", 3, 6)

    def write(seed: int) -> Any:
        run = runs.begin(chosen, noise="recorded", name="one")
        return generate(chosen, records, model, run, key=KEY, source=Recorded(seed), rows_at_once=4)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "step", killed_at(stop_at))
        with pytest.raises(KeyboardInterrupt):
            write(1)
    run = runs.begin(chosen, noise="recorded", name="one")
    noted, started = run.outcome("assignment") is not None, run.charged("tokens/0") or run.charged("idle")
    assert noted == (stop_at >= 6)  # two writes for the inputs, two for the counts, then its charge and its commit
    assert noted or not started
    with monkeypatch.context() as patched:
        patched.setattr("dpassay.mechanisms.private_inference.clusters.nearest", as_on_another_machine)
        if not noted:
            write(2)
            return
        for _ in range(2):
            with pytest.raises(RunMismatchError, match="records fall into other clusters") as error:
                write(2)
            assert "\n" not in str(error.value)
    finished = write(3)
    with monkeypatch.context() as patched:
        patched.setattr("dpassay.mechanisms.private_inference.clusters.nearest", as_on_another_machine)
        with pytest.raises(RunMismatchError, match="records fall into other clusters"):
            write(4)
    assert write(5).transcript == finished.transcript


def test_a_run_goes_on_with_the_same_centres_only(table_model: Any, runs: Any, centres: Path, tmp_path: Path) -> None:
    records, model = data_set(1, 6), table_model()
    copy, other = tmp_path / "copy.safetensors", tmp_path / "other.safetensors"
    copy.write_bytes(centres.read_bytes())
    Centres.fit(PUBLIC, 4, embedder=HashedNgrams(dimension=16, buckets=256, shortest=1), seed=2).save(other)

    def write(path: Path) -> Any:
        chosen = mechanism(path)
        run = runs.begin(chosen, noise="recorded", name="one")
        return generate(chosen, records, model, run, key=KEY, source=Recorded(1))

    assert write(copy).transcript == write(centres).transcript
    with pytest.raises(ValueError, match="another model, key or parameters"):
        write(other)


def test_a_record_that_cannot_be_embedded_is_found_before_anything_is_charged(
    table_model: Any, centres: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, embed = records_of("records", 1, 6), HashedNgrams.embed

    def fails_on_the_last(self: HashedNgrams, texts: Sequence[str]) -> Any:
        if records[-1].text in texts:
            raise ValueError("a text that cannot be embedded")
        return embed(self, texts)

    chosen = mechanism(centres)
    chosen.clusters()._cached._known.clear()
    monkeypatch.setattr(HashedNgrams, "embed", fails_on_the_last)
    with pytest.raises(ValueError, match="cannot be embedded"):
        chosen.check(records, table_model())


def test_a_label_without_records_runs_like_any_other(table_model: Any, runs: Any, centres: Path) -> None:
    chosen = mechanism(centres, **(LABELS | {"labels": ("a", "b", "nobody"), "batch_size": 1}))
    chosen.check(records_of("labels", 1, 6), table_model())
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records_of("labels", 1, 6), table_model(), run, key=KEY, source=Recorded(1))
    run.finish()
    assert generation.slot_sizes[-chosen.slots :].sum() == 0
    assert all(len(tokens) == chosen.tokens for tokens in generation.transcript.tokens)
    assert {document.label for document in generation.documents} == {"a", "b", "nobody"}


def test_wrong_inputs_are_refused_in_one_line(table_model: Any, centres: Path, tmp_path: Path) -> None:
    stale = tmp_path / "stale.safetensors"
    good = Centres.load(centres)
    Centres(good.vectors, "some model", "0123456789abcdef").save(stale)
    cases: list[tuple[Callable[[], PrivateInference], str]] = [
        (lambda: mechanism(centres, kept_centres=None), "centres needs kept_centres"),
        (lambda: mechanism(centres, kept_centres=4), "kept_centres must be at most 3, the number of slots"),
        (lambda: mechanism(centres, kept_centres=0), "kept_centres must be at least 1"),
        (lambda: mechanism(centres, cluster_count_epsilon=0.0), "cluster_count_epsilon must be above 0"),
        (lambda: PrivateInference(**(BASE | {"kept_centres": 2})), "need centres"),
        (lambda: mechanism(centres, batch_size=1, kept_centres=5), "at most the number of centres in the file, 4"),
        (lambda: mechanism(stale), "embedder must be the model 'some model'"),
        (lambda: mechanism(tmp_path / "none"), "there is no such file"),
    ]
    for make, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            make().check(data_set(1, 6), table_model())
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="batched by its released cluster counts"):
        mechanism(centres).batches(data_set(1, 6), KEY)
