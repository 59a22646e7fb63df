"""Secret-protected evolution: what a run charges and releases, neighbours, resumed runs, what is refused."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_evolution import EMBEDDER, Forced, ToyWriter, Vigilant, Watched, tree_records
from little_inference import killed_at
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.accounting.secret_protection.groups import of_group
from dpassay.data.records import Record, StoredRecords
from dpassay.mechanisms.models.endpoint import EndpointError
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from dpassay.mechanisms.secret_evolution import clustering
from dpassay.mechanisms.secret_evolution.detection import ListedSecrets, PatternSecrets
from dpassay.mechanisms.secret_evolution.generator import EvolutionResult, SecretEvolution

CODES = ("zx31415", "zx27182", "zx16180")
LABELS = ("tree", "wood")
SMALL: dict[str, Any] = {
    "secrets": (PatternSecrets(r"\bzx\d{5}\b"),),
    "p": 1e-3,
    "r": 0.1,
    "rounds": 3,
    "synthetic": 4,
    "variations": 2,
    "clusters": 3,
}


@pytest.fixture
def little_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_embedder", "fitted_embedder"):
        monkeypatch.setattr(f"dpassay.mechanisms.secret_evolution.generator.{name}", lambda *arguments: EMBEDDER)


pytestmark = pytest.mark.usefixtures("little_embedder")


def some_records(labels: tuple[str, ...] = LABELS) -> list[Record]:
    return tree_records(40, labels=labels, codes=CODES)


def write(
    mechanism: SecretEvolution,
    records: Sequence[Record],
    folder: Path,
    source: Source,
    *,
    name: str = "ledger",
    writer: ToyWriter | None = None,
) -> EvolutionResult:
    indices = mechanism.incidence(records)
    with Ledger.open(folder / f"{name}.sqlite") as ledger:
        run = ledger.begin(
            "run",
            plan=mechanism.plan(indices),
            adjacency=mechanism.adjacency,
            unit=mechanism.unit,
            about={"noise": source.name},
        )
        journal = folder / f"{name}.jsonl"
        result = mechanism.generate(
            records, writer or ToyWriter(), run, journal=journal, incidence=indices, source=source
        )
        run.finish()
    return result


def opened(folder: Path, name: str = "ledger") -> Ledger:
    return Ledger.open(folder / f"{name}.sqlite", read_only=True)


def committed(ledger: Ledger) -> list[Any]:
    run = ledger.run("run")
    return [run.outcome(f"release/{step}").value for step in range(run.last_committed("release"))]  # type: ignore[union-attr]


def same_releases(item: EvolutionResult, two: EvolutionResult) -> bool:
    return len(item.releases) == len(two.releases) and all(
        np.array_equal(a[label].centres, b[label].centres) and np.array_equal(a[label].sizes, b[label].sizes)
        for a, b in zip(item.releases, two.releases, strict=True)
        for label in a
    )


# What is charged and released

VARIANTS: list[dict[str, Any]] = [
    {},
    {"labels": LABELS},
    {"releases": "once", "labels": LABELS},
    {"expected_sample": 2.5},
    {"inclusion": "weights", "labels": LABELS},
    {
        "inclusion": "weights",
        "releases": "once",
        "secrets": (PatternSecrets(r"\bzx3\d{4}\b", r=0.2), PatternSecrets("zx[12]")),
    },
    {"lookahead": 1, "rounds": 2},
    {"radius": 0.5},
    {"rounds": 1},
    {"r": 1.0},
    {"secrets": (PatternSecrets(r"\bzx3\d{4}\b", r=0.2), PatternSecrets(r"\bzx[12]\d{4}\b", p=1e-4))},
    {"variant": "as_published", "labels": LABELS},
]


@pytest.mark.grid
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_run_charges_its_plan_and_replays(changes: dict[str, Any], tmp_path: Path) -> None:
    chosen, records = SecretEvolution(**{**SMALL, **changes}), some_records()
    if not chosen.labels:
        records = some_records(())
    result = write(chosen, records, tmp_path, Watched(1))
    with opened(tmp_path) as ledger:
        assert ledger.event() == chosen.plan(chosen.incidence(records))
        ledger.verify()
    assert len(result.texts) == chosen.synthetic * max(1, len(chosen.labels))
    assert {text.label for text in result.texts} == set(chosen.labels or (None,))
    assert len(result.releases) == chosen.paid_releases
    seen, writer = Watched(2), ToyWriter()
    again = write(chosen, records, tmp_path, seen, writer=writer)
    assert again.texts == result.texts
    assert same_releases(again, result)
    assert not seen.exact, "a finished run draws nothing again"
    assert not writer.written, "nor does it write"
    if chosen.variant == "sound":
        check_budgets(chosen, records)


def check_budgets(chosen: SecretEvolution, records: list[Record]) -> None:
    """The accountant's certified r of all releases is at most that of each budget, and for one of them not far below.

    A budget of r = 1 is kept by any release, and needs no noise.
    """
    indices = chosen.incidence(records)
    plan, reached = chosen.plan(indices), []
    for group, budget in enumerate(indices.budgets):
        event = plan if len(indices.budgets) == 1 else of_group(plan, group)
        r = SecretProtectionAccountant().compose(event).protection(budget.p).value
        assert r <= budget.r
        reached.append(r / budget.r)
    assert max(reached) > 0.9
    assert chosen.releasable == all(budget.r < 1 for budget in indices.budgets)


@pytest.mark.parametrize(
    "changes", [{}, {"labels": LABELS, "inclusion": "weights"}, {"variant": "as_published"}], ids=str
)
def test_records_and_vectors_in_files_release_the_same(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With centres by mini-batches, too; and a run that began in memory is resumed with files."""
    chosen = SecretEvolution(**SMALL, **changes)
    records = some_records(chosen.labels)
    monkeypatch.setattr("dpassay.mechanisms.embedding.centres.MINI_BATCH_ABOVE", 10)
    held = write(chosen, records, tmp_path, Recorded(1))
    with pytest.raises(ConnectionError):
        write(chosen, records, tmp_path, Recorded(1), name="begun", writer=ToyWriter(dies_after=20))
    monkeypatch.setattr("dpassay.mechanisms.embedding.stored_vectors.LARGE", 2)
    stored = StoredRecords((None, record.text, record.label, record.user) for record in records)
    filed = write(chosen, stored, tmp_path, Recorded(1), name="filed")
    assert same_releases(filed, held)
    assert filed.texts == held.texts
    with opened(tmp_path) as first, opened(tmp_path, "filed") as second:
        for key in ("inputs", "clusters"):
            assert first.run("run").outcome(key).value == second.run("run").outcome(key).value  # type: ignore[union-attr]
    write(chosen, stored, tmp_path, Recorded(2), name="begun")


def test_once_costs_one_release() -> None:
    """For the same budget one release needs less noise than five."""
    once, fresh = (SecretEvolution(**{**SMALL, "rounds": 5, "releases": how}) for how in ("once", "every_round"))
    indices = once.incidence(some_records(()))
    assert once.noise(indices).sigma < 0.7 * fresh.noise(indices).sigma
    assert once.plan(indices) == once.noise(indices).event()


def test_as_published_is_accounted_twice() -> None:
    """As the paper counts it, and as it is: an occurrence may move all that comes after it and reveals the secret."""
    chosen = SecretEvolution(**SMALL, variant="as_published")
    indices = chosen.incidence(some_records(()))
    probabilities = chosen.noise(indices).probabilities
    accountant = SecretProtectionAccountant()
    claimed = accountant.compose(chosen.published_plan(indices)).protection(1e-3).value
    never = min(float(np.prod(1 - probabilities[row.indices])) for row in indices.matrix) ** chosen.rounds
    true = accountant.compose(chosen.plan(indices)).protection(1e-3).value
    assert true == pytest.approx(1 - never * (1 - 1e-3), rel=1e-6)
    assert claimed < true
    assert not chosen.releasable


def test_the_release_holds_all_labels(tmp_path: Path) -> None:
    """One charge a round, and one committed value with the clusters of every label; noise is √2·σ₁ or a little more."""
    chosen, source = SecretEvolution(**SMALL, labels=LABELS), Watched(1)
    result = write(chosen, some_records(), tmp_path, source)
    sigma = result.noise.sigma
    assert set(source.scales) == {math.nextafter(math.sqrt(2) * sigma, math.inf)}
    assert len(source.exact) == 3 * len(LABELS)
    with opened(tmp_path) as ledger:
        charged = {event.stage: event.count for event in ledger.events()}
        assert charged["release"] == 3
        assert [len(value) for value in committed(ledger)] == [2, 2, 2]
    for release in result.releases:
        assert list(release) == list(LABELS)
        assert all(noisy.centres.shape[0] == 3 for noisy in release.values())


@pytest.mark.parametrize("variant", ["sound", "as_published"])
def test_a_release_is_charged_before_records_are_drawn(variant: Any, tmp_path: Path) -> None:
    chosen = SecretEvolution(**SMALL, labels=LABELS, variant=variant)
    source = Vigilant(tmp_path / "ledger.sqlite", "release")
    write(chosen, some_records(), tmp_path, source)
    assert len(source.exact) == 3 * len(LABELS)


def test_a_label_without_secrets(tmp_path: Path) -> None:
    """Its clusters get noise like the others, because its places are public but the plan has one release for all."""
    chosen = SecretEvolution(**SMALL, labels=(*LABELS, "clean"))
    clean = [dataclasses.replace(x, label="clean", id=f"clean {x.id}") for x in tree_records(10, seed=9)]
    result = write(chosen, [*some_records(), *clean], tmp_path, Watched(1))
    assert sum(text.label == "clean" for text in result.texts) == chosen.synthetic
    assert all(not np.array_equal(x["clean"].sizes, np.rint(x["clean"].sizes)) for x in result.releases)


def test_the_records_decide(tmp_path: Path) -> None:
    """Texts that survive are near the clusters. Chance alone gives 20 words of 12 kinds: 6 oaks have .005."""
    records = [Record(str(i), f"oak oak oak {'pine' if i % 2 else 'elm'} {i}") for i in range(60)]
    records += [Record(f"s{i}", "oak oak zx31415") for i in range(3)]
    chosen = SecretEvolution(**{**SMALL, "r": 0.5, "rounds": 6, "variations": 6, "synthetic": 5, "releases": "once"})
    texts = write(chosen, records, tmp_path, Recorded(1)).texts
    assert sum(text.text.split().count("oak") for text in texts) >= 6


def test_noise_of_the_operating_system(tmp_path: Path) -> None:
    result = write(SecretEvolution(**SMALL), some_records(()), tmp_path, OS_ENTROPY)
    sizes = np.array([release[None].sizes for release in result.releases])
    assert np.isfinite(sizes).all()
    assert len(np.unique(sizes)) == sizes.size  # equal ones have probability 0 but for rounding


def test_no_file_holds_a_secret_or_a_private_text(tmp_path: Path) -> None:
    """Neither ledger nor journal nor result: places, noisy numbers and what the writer wrote, and no clean sum."""
    records = some_records()
    source = Watched(1)
    result = write(SecretEvolution(**SMALL, labels=LABELS), records, tmp_path, source)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(files) > 10_000
    for code in CODES:
        assert code.encode() not in files
        assert code not in repr(result)
    assert all(record.text.encode() not in files for record in records)
    with opened(tmp_path) as ledger:
        stages = {event.stage for event in ledger.events()}
    assert stages == {"inputs", "clusters", "release"}
    kept = np.concatenate([x[label].sizes for x in result.releases for label in LABELS])
    clean = np.concatenate([exact[:3] for exact in source.exact])
    assert not set(kept) & set(clean)


# Neighbours


class Drawing(Forced):
    """Noise as in another run; records at some places are never drawn."""

    def __init__(self, seed: int, outcomes: list[NDArray[np.float64]], without: NDArray[np.bool_]) -> None:
        super().__init__(seed, outcomes)
        self._without = without

    def bernoulli(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        return np.asarray(super().bernoulli(probabilities) & ~self._without)


class Counting(Watched):
    """Remembers who was drawn, and with what probabilities."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[NDArray[np.bool_]] = []
        self.probabilities: list[NDArray[np.float64]] = []

    def bernoulli(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        self.probabilities.append(np.array(probabilities))
        self.drawn.append(super().bernoulli(probabilities))
        return self.drawn[-1]


def test_each_record_is_drawn_with_its_own_probability(tmp_path: Path) -> None:
    """Label by label, in the order of the records: those whose secret is in one record more often than the others."""
    records = some_records()
    records[20:22] = [dataclasses.replace(x, text=f"{x.text} zx55555") for x in records[20:22]]
    records[30] = dataclasses.replace(records[30], text=f"{records[30].text} zx66666")
    chosen, source = SecretEvolution(**{**SMALL, "r": 0.02, "rounds": 1}, labels=LABELS), Counting(1)
    result = write(chosen, records, tmp_path, source)
    every = result.noise.probabilities
    assert len(set(every[[0, 20, 30]])) == 3
    for label, given in zip(LABELS, source.probabilities, strict=True):
        own = [chance for x, chance in zip(records, every, strict=True) if x.label == label and "zx" in x.text]
        assert given.tolist() == own


@pytest.mark.grid
@pytest.mark.parametrize(("code", "seed"), [(0, 1), (1, 2), (2, 3)])
def test_each_occurrence_moves_a_release_by_at_most_root_two(code: int, seed: int, tmp_path: Path) -> None:
    """Through the run itself, against the reference in which the records with one secret are never drawn.

    Whatever text stands in the place of those records, k of them that are drawn move what gets noise by at most √2·k,
    in every round, while all that was released, and so every candidate, is the same.
    """
    chosen = SecretEvolution(**{**SMALL, "rounds": 2})
    records, source = some_records(()), Counting(seed)
    result = write(chosen, records, tmp_path, source)
    indices = chosen.incidence(records)
    holders = np.zeros(len(records), dtype=bool)
    holders[indices.matrix[[code]].indices] = True
    assert holders.sum() == 3
    hidden = holders[indices.private]
    largest = 0.0
    for number, value in enumerate((CODES[code], "zx99999", f"zx99999 {'zebra ' * 9}")):
        changed = [
            dataclasses.replace(x, text=x.text.replace(CODES[code], value)) if y else x
            for x, y in zip(records, holders, strict=True)
        ]
        assert chosen.incidence(changed).fingerprint == indices.fingerprint
        with_value = Forced(seed, source.noisy)
        again = write(chosen, changed, tmp_path, with_value, name=f"with-{number}")
        reference = Drawing(seed, source.noisy, hidden)
        without = write(chosen, changed, tmp_path, reference, name=f"without-{number}")
        assert again.texts == without.texts == result.texts
        for drawn, first, second in zip(source.drawn, with_value.exact, reference.exact, strict=True):
            count = int(drawn[hidden].sum())
            moved = float(np.linalg.norm(first - second))
            assert moved <= math.sqrt(2) * count
            if count == 1:  # the count itself moves by 1
                assert moved >= 1
            largest = max(largest, moved)
    assert largest > 1


@pytest.mark.parametrize("seed", [1, 2])
def test_through_the_run_itself_another_value_moves_no_more(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights, nothing is drawn, and a secret's records move what gets noise by at most √2 times their weights.

    Against the reference in which they have none, whatever text stands in their place and in every round, while all
    that was released is the same.
    """
    chosen, records = SecretEvolution(**{**SMALL, "rounds": 2, "inclusion": "weights"}), some_records(())
    source = Counting(seed)
    result = write(chosen, records, tmp_path, source)
    assert not source.drawn
    indices, weights = chosen.incidence(records), result.noise.probabilities
    holders = np.zeros(len(records), dtype=bool)
    holders[indices.matrix[[0]].indices] = True
    spent, kept = float(weights[holders].sum()), ~holders[indices.private]
    assert spent > 0
    rounded, largest = clustering.rounded_weights, 0.0
    for number, value in enumerate((CODES[0], "zx99999", f"zx99999 {'zebra ' * 9}")):
        changed = [
            dataclasses.replace(x, text=x.text.replace(CODES[0], value)) if y else x
            for x, y in zip(records, holders, strict=True)
        ]
        with_value, reference = Forced(seed, source.noisy), Forced(seed, source.noisy)
        again = write(chosen, changed, tmp_path, with_value, name=f"with-{number}")
        with monkeypatch.context() as patch:
            patch.setattr(clustering, "rounded_weights", lambda given: rounded(given * kept))
            without = write(chosen, changed, tmp_path, reference, name=f"without-{number}")
        assert again.texts == without.texts == result.texts
        for first, second in zip(with_value.exact, reference.exact, strict=True):
            moved = float(np.linalg.norm(first - second))
            assert moved <= math.sqrt(2) * spent
            largest = max(largest, moved)
    assert largest > 0.5 * spent


# Interrupted runs


def test_runs_of_coins_are_described_as_by_earlier_versions(tmp_path: Path) -> None:
    """Their inputs are those of a mechanism without `inclusion`; weights are other inputs."""
    assert "inclusion" not in repr(SecretEvolution(**SMALL))
    records, coins = some_records(()), SecretEvolution(**{**SMALL, "r": 1.0})
    write(coins, records, tmp_path, Recorded(1))
    weights = dataclasses.replace(coins, inclusion="weights")
    with pytest.raises((RunMismatchError, LedgerError)):
        write(weights, records, tmp_path, Recorded(1))


def test_an_interrupted_run_of_weights_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, records = SecretEvolution(**{**SMALL, "inclusion": "weights"}), some_records(())
    whole = write(chosen, records, tmp_path, Recorded(1), name="whole")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", killed_at(5))
        with pytest.raises(KeyboardInterrupt):
            write(chosen, records, tmp_path, Recorded(1))
    again = write(chosen, records, tmp_path, Recorded(2))
    assert len(again.releases) == len(whole.releases) == 3
    with opened(tmp_path) as ledger:
        assert ledger.event() == chosen.plan(chosen.incidence(records))


@pytest.mark.grid
@pytest.mark.parametrize(
    ("changes", "stop_at"),
    [
        *(({}, number) for number in range(1, 11)),
        *(({"labels": LABELS}, number) for number in (5, 6, 7)),
        *(({"releases": "once"}, number) for number in (5, 6, 7)),
    ],
    ids=str,
)
def test_an_interrupted_run_goes_on_where_it_was(
    changes: dict[str, Any], stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before or after its n-th write. Committed releases stand, nothing is charged twice, and the texts are
    those of a run without interruption that has the same releases."""
    chosen = SecretEvolution(**{**SMALL, **changes})
    records = some_records(chosen.labels)
    interrupted = False
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", killed_at(stop_at))
        try:
            write(chosen, records, tmp_path, Recorded(1))
        except KeyboardInterrupt:
            interrupted = True
    assert interrupted == (stop_at <= 2 * (2 + chosen.paid_releases))
    with opened(tmp_path) as ledger:
        kept = committed(ledger)
    result = write(chosen, records, tmp_path, Recorded(2))
    with opened(tmp_path) as ledger:
        assert ledger.event() == chosen.plan(chosen.incidence(records))
        assert committed(ledger)[: len(kept)] == kept
        ledger.verify()
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite")
    assert write(chosen, records, tmp_path, Recorded(3), name="copy").texts == result.texts


class EndpointGone(ToyWriter):
    """Breaks off after some texts, as an endpoint does that is gone."""

    def _count(self) -> None:
        try:
            super()._count()
        except ConnectionError:
            raise EndpointError("the endpoint does not answer") from None


@pytest.mark.grid
@pytest.mark.parametrize("after", [0, 3, 9, 14])
def test_an_endpoint_that_breaks_off(after: int, tmp_path: Path) -> None:
    """What it had written is kept and not asked for again, and the texts are those of a run that did not break off."""
    chosen, records, rest = SecretEvolution(**SMALL), some_records(()), ToyWriter()
    with pytest.raises(EndpointError, match="does not answer"):
        write(chosen, records, tmp_path, Recorded(1), writer=EndpointGone(dies_after=after))
    result = write(chosen, records, tmp_path, Recorded(2), writer=rest)
    with opened(tmp_path) as ledger:
        assert ledger.event() == chosen.plan(chosen.incidence(records))
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite")
    whole = ToyWriter()
    assert write(chosen, records, tmp_path, Recorded(3), name="copy", writer=whole).texts == result.texts
    assert rest.written == whole.written - after


def test_a_run_goes_on_with_the_same_inputs_only(tmp_path: Path) -> None:
    chosen, records = SecretEvolution(**SMALL), some_records(())
    write(chosen, records, tmp_path, Recorded(1))
    other = ToyWriter()
    other.fingerprint = "another"
    changed = [*records[:-1], dataclasses.replace(records[-1], text="oak oak oak oak")]
    for mechanism, data in ((chosen, changed), (dataclasses.replace(chosen, clusters=2), records)):
        with pytest.raises(ValueError, match=r"other (records|settings), another writer") as error:
            write(mechanism, data, tmp_path, Recorded(1))
        assert "\n" not in str(error.value)
        assert "oak" not in str(error.value)
    with pytest.raises(ValueError, match="other records, another writer, embedder or parameters"):
        write(chosen, records, tmp_path, Recorded(1), writer=other)
    with pytest.raises(ValueError, match="began with another plan"):
        write(chosen, records[1:], tmp_path, Recorded(1))
    private = [dataclasses.replace(records[0], text=records[0].text.replace(CODES[0], "zx99999")), *records[1:]]
    private[1:3] = [dataclasses.replace(x, text=x.text.replace(CODES[0], "zx99999")) for x in records[1:3]]
    with pytest.raises(RunMismatchError, match="other records, another writer, embedder or parameters"):
        write(chosen, private, tmp_path, Recorded(1))  # the same places, another secret


def test_other_public_clusters_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that computes other vectors, an interrupted run does not go on."""
    chosen, records = SecretEvolution(**SMALL), some_records(())
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", killed_at(5))
        with pytest.raises(KeyboardInterrupt):
            write(chosen, records, tmp_path, Recorded(1))
    from dpassay.mechanisms.secret_evolution.clustering import PublicClusters

    fit = PublicClusters.fit

    def other(vectors: Any, count: int, **rest: Any) -> PublicClusters:
        return fit(vectors, count, **{**rest, "seed": 99})

    monkeypatch.setattr(PublicClusters, "fit", other)
    with pytest.raises(RunMismatchError, match="public clusters differ"):
        write(chosen, records, tmp_path, Recorded(1))


def test_the_journal_alone_is_enough_or_none(tmp_path: Path) -> None:
    """Without its journal a finished run writes the same candidates again, for the same releases."""
    chosen, records = SecretEvolution(**SMALL), some_records(())
    result = write(chosen, records, tmp_path, Recorded(1))
    (tmp_path / "ledger.jsonl").unlink()
    assert write(chosen, records, tmp_path, Recorded(2)).texts == result.texts


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"secrets": ()}, "secrets must be a tuple of at least one source"),
        ({"secrets": ("12345",)}, "secrets must be sources of secrets, not str"),
        ({"p": 0.0}, "p must be strictly between 0 and 1"),
        ({"p": 1.0}, "p must be strictly between 0 and 1"),
        ({"p": 0.2}, "r must be above p"),
        ({"p": 0.1}, "r must be above p"),
        ({"r": 1.5}, "r must be between 0 and 1"),
        ({"secrets": (PatternSecrets("x", r=1e-4),)}, "r must be above p"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"synthetic": 0}, "synthetic must be at least 1"),
        ({"variations": 0}, "variations must be at least 1"),
        ({"clusters": 0}, "clusters must be at least 1"),
        ({"radius": 0.0}, "radius must be above 0"),
        ({"expected_sample": 0.0}, "expected_sample must be above 0"),
        ({"releases": "twice"}, "releases must be one of every_round, once"),
        ({"inclusion": "dice"}, "inclusion must be one of coins, weights"),
        ({"variant": "as_published", "inclusion": "weights"}, "parameters of the sound variant"),
        ({"lookahead": -1}, "lookahead must be at least 0"),
        ({"labels": "tree"}, "labels must be a tuple"),
        ({"labels": ("tree", "tree")}, "each label once"),
        ({"embedder": 3}, "embedder must be builtin"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"variant": "printed"}, "variant must be one of sound, as_published"),
        ({"variant": "as_published", "releases": "once"}, "parameters of the sound variant"),
        ({"variant": "as_published", "expected_sample": 1.0}, "parameters of the sound variant"),
    ],
    ids=str,
)
def test_impossible_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        SecretEvolution(**{**SMALL, **changes})
    assert "\n" not in str(error.value)


def test_impossible_records(tmp_path: Path) -> None:
    """One line that names no secret and no text, before anything is charged or written."""
    plain, secret = tree_records(20), [Record(str(i), f"code zx3141{i}") for i in range(5)]
    cases: list[tuple[dict[str, Any], list[Record], str]] = [
        ({}, [], "there are no records"),
        ({}, [*secret, secret[0]], "two records have the same id"),
        ({}, plain, "no secret was found in any record"),
        ({}, secret, "every record holds a secret"),
        (
            {"clusters": 21},
            [*plain, *secret],
            r"clusters must be at most .* public texts, 20, not 21",
        ),
        ({"labels": ("tree",)}, [*plain, *secret], "label is not in the public list"),
        ({"labels": LABELS}, labelled([*plain, *secret]), "public texts of label 'wood', 0, not 3"),
        ({"expected_sample": 6.0}, [*plain, *secret], "expected_sample must be above 0 and at most 5"),
    ]
    run = Ledger.open(tmp_path / "l.sqlite").begin(
        "run", plan=SecretEvolution(**SMALL).plan(SecretEvolution(**SMALL).incidence(some_records())),
        adjacency=Adjacency.SECRET, unit=SecretEvolution(**SMALL).unit, about={"noise": "recorded"},
    )  # fmt: skip
    for changes, records, message in cases:
        chosen = SecretEvolution(**{**SMALL, **changes})
        refusals: list[Callable[[], object]] = [
            functools.partial(chosen.check, records, ToyWriter()),
            functools.partial(chosen.generate, records, ToyWriter(), run, journal=tmp_path / "j", source=Recorded(1)),
        ]
        for refused in refusals:
            with pytest.raises(ValueError, match=message) as error:
                refused()
            assert "\n" not in str(error.value)
            assert "3141" not in str(error.value)
    assert not run.charged("inputs")
    assert not (tmp_path / "j").exists()


def test_more_private_records_than_add_up_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is charged; 9 of 40 records hold a secret."""
    chosen = SecretEvolution(**SMALL)
    monkeypatch.setattr("dpassay.mechanisms.secret_evolution.clustering.MAX_RECORDS", 9)
    chosen.check(some_records(()), ToyWriter())
    monkeypatch.setattr("dpassay.mechanisms.secret_evolution.clustering.MAX_RECORDS", 8)
    with pytest.raises(ValueError, match=r"^at most 8 records that share clusters may hold a secret, not 9$"):
        chosen.check(some_records(()), ToyWriter())


def labelled(records: list[Record]) -> list[Record]:
    return [dataclasses.replace(x, label="wood" if "code" in x.text else "tree") for x in records]


def test_places_of_other_records_are_refused() -> None:
    chosen = SecretEvolution(**SMALL)
    with pytest.raises(ValueError, match="incidence is that of 40 records, but there are 39"):
        chosen.check(some_records(())[1:], ToyWriter(), chosen.incidence(some_records(())))
    with pytest.raises(ValueError, match=r"^incidence is that of other records, or of these in another "):
        chosen.check(some_records(())[::-1], ToyWriter(), chosen.incidence(some_records(())))


def test_a_source_may_have_its_own_budget(tmp_path: Path) -> None:
    path = tmp_path / "secrets.csv"
    path.write_text("secret,p,r\nzx31415,0.001,0.9\nzx27182,,\n")
    chosen = SecretEvolution(**{**SMALL, "secrets": (ListedSecrets(path),)})
    indices = chosen.incidence(some_records(()))
    assert set(indices.budgets) == {SecretProtection(1e-3, 0.9), SecretProtection(1e-3, 0.1)}
    assert [result.kind for result in indices.detected] == ["list"]
    assert chosen.releasable
    chosen.check(some_records(()), ToyWriter())
    path.write_text("secret,p,r\nzx31415,0.001,1.0\n")
    with pytest.raises(ValueError, match="a list gives a secret r = 1"):
        chosen.check(some_records(()), ToyWriter())


@pytest.mark.parametrize(("of_all", "of_one", "releasable"), [(0.1, 0.2, True), (0.1, 1.0, False), (1.0, 0.2, False)])
def test_what_protects_nothing_may_not_leave(of_all: float, of_one: float, releasable: bool) -> None:
    sources = (PatternSecrets("a"), PatternSecrets("b", r=of_one))
    assert SecretEvolution(**{**SMALL, "secrets": sources, "r": of_all}).releasable == releasable
