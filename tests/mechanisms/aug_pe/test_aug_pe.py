"""Aug-PE: its event against the analytic Gaussian, neighbours by brute force, whole runs, resumed runs, bad input."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_evolution import EMBEDDER, WORDS, Forced, ToyWriter, Vigilant, Watched, tree_records
from little_inference import killed_at
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.pld import PrivacyLoss
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.data.records import Record, with_content_ids
from dpassay.mechanisms.aug_pe.generator import AugPE, AugPEResult
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source

SMALL: dict[str, Any] = {"noise_multiplier": 0.7, "rounds": 3, "synthetic": 4, "variations": 2, "records": 30}
LABELS = ("tree", "wood")


@pytest.fixture(autouse=True)
def _little_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpassay.mechanisms.aug_pe.generator.load_embedder", lambda *arguments: EMBEDDER)


def begin(mechanism: AugPE, ledger: Ledger, *, noise: str = "recorded") -> Run:
    return ledger.begin(
        "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={"noise": noise}
    )


def write(
    mechanism: AugPE,
    records: list[Record],
    folder: Path,
    source: Source,
    *,
    name: str = "ledger",
    writer: ToyWriter | None = None,
) -> AugPEResult:
    with Ledger.open(folder / f"{name}.sqlite") as ledger:
        run = begin(mechanism, ledger, noise=source.name)
        result = mechanism.generate(
            records, writer or ToyWriter(), run, journal=folder / f"{name}.jsonl", source=source
        )
        run.finish()
    return result


# The event


@pytest.mark.parametrize("rounds", [1, 7])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("accountant", [GaussianDP, RenyiAccountant, PrivacyLoss])
def test_the_plan_costs_the_analytic_gaussian(accountant: Any, adjacency: Adjacency, rounds: int) -> None:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = √T·Δ/σ, Δ = 1 or √2; no accountant gives less, the best no more."""
    chosen = AugPE(**{**SMALL, "rounds": rounds, "noise_multiplier": 3.3}, adjacency=adjacency)
    mu = math.sqrt(rounds) * (math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1) / 3.3
    epsilon = 1.3
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    result = accountant(adjacency).compose(chosen.plan()).delta(epsilon).value
    assert result >= delta * (1 - 1e-9)
    if accountant is not RenyiAccountant:
        assert result <= delta * 1.01


@pytest.mark.parametrize("sigma", [0.1, 0.7, 1.0, 3.0, 1e-5, 12345.678])
def test_the_multiplier_of_exchanged_votes_is_never_above_root_two(sigma: float) -> None:
    (event,) = {AugPE(**{**SMALL, "noise_multiplier": sigma}, adjacency="replace_one").votes_event()}  # type: ignore[arg-type]
    assert event.noise_multiplier <= math.sqrt(2) * sigma
    assert event.noise_multiplier == pytest.approx(math.sqrt(2) * sigma, rel=1e-15)


def test_as_published_one_sensitivity_serves_both_adjacencies() -> None:
    mus = [
        GaussianDP(adjacency).compose(AugPE(**SMALL, adjacency=adjacency).published_plan()).mu().value
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    ]
    assert mus == pytest.approx([math.sqrt(3) / 0.7] * 2, rel=1e-14)
    true = GaussianDP(Adjacency.REPLACE_ONE).compose(AugPE(**SMALL, adjacency=Adjacency.REPLACE_ONE).plan()).mu().value
    assert true == pytest.approx(math.sqrt(6) / 0.7, rel=1e-14)


def test_exact_label_counts_have_no_epsilon() -> None:
    """As published with labels; without them, the published variant costs what the sound one does."""
    published = AugPE(**SMALL, labels=LABELS, variant="as_published")
    assert GaussianDP(Adjacency.ADD_REMOVE).compose(published.plan()).delta(100.0).value == 1
    assert not published.releasable
    assert AugPE(**SMALL, variant="as_published").plan() == AugPE(**SMALL).plan()
    assert AugPE(**SMALL).releasable
    assert not AugPE(**{**SMALL, "noise_multiplier": 0.0}).releasable


# Neighbours


def neighbours(records: list[Record]) -> list[tuple[str, list[Record]]]:
    """Every removal, and additions and exchanges of every record for another text or another label."""
    results = []
    other = [Record("new-1", f"{WORDS[0]} {WORDS[1]}", LABELS[0]), Record("new-2", "zebra xylophone", LABELS[1])]
    for index in range(len(records)):
        rest = records[:index] + records[index + 1 :]
        results.append(("add_remove", rest))
        results += [("replace_one", [*rest, new]) for new in other]
    results += [("add_remove", [*records, new]) for new in other]
    return results


def by_round(arrays: list[NDArray[np.float64]], rounds: int) -> list[NDArray[np.float64]]:
    """The votes of each round, those of all labels in one vector."""
    per = len(arrays) // rounds
    return [np.concatenate(arrays[per * t : per * t + per]) for t in range(rounds)]


@pytest.mark.parametrize("labels", [(), LABELS], ids=["pooled", "labels"])
def test_neighbours_move_the_votes_as_charged(labels: tuple[str, ...], tmp_path: Path) -> None:
    """Every neighbour of a small data set, through the run itself, with noise that gives the same noisy votes.

    What is released is then the same, so candidates and texts are. So the whole run tells neighbours apart as one draw
    of N(h, σ²I) and one of N(h′, σ²I) do, h and h′ the exact votes of all rounds: with μ = |h − h′|/σ. Exact votes are
    1 apart in each round for one record more or less, at most √2 for another, and the charged plan has that μ.
    """
    chosen = AugPE(**{**SMALL, "labels": labels})
    records = tree_records(6, labels=LABELS)
    first = Watched(5)
    result = write(chosen, records, tmp_path, first)
    exact = by_round(first.exact, chosen.rounds)
    assert [votes.sum() for votes in exact] == [len(records)] * chosen.rounds
    assert set(first.scales) == {chosen.noise_multiplier}
    farthest = {"add_remove": 0.0, "replace_one": 0.0}
    for number, (relation, other) in enumerate(neighbours(records)):
        source = Forced(5, first.noisy)
        again = write(chosen, other, tmp_path, source, name=str(number))
        assert again.texts == result.texts
        theirs = by_round(source.exact, chosen.rounds)
        apart = [float(np.square(left - right).sum()) for left, right in zip(theirs, exact, strict=True)]
        assert set(apart) <= ({1.0} if relation == "add_remove" else {0.0, 2.0})
        farthest[relation] = max(farthest[relation], sum(apart))
    for relation, square in farthest.items():
        plan = dataclasses.replace(chosen, adjacency=Adjacency(relation)).plan()
        charged = GaussianDP(relation).compose(plan).mu().value
        assert charged >= math.sqrt(square) / chosen.noise_multiplier * (1 - 1e-15)
        assert charged == pytest.approx(math.sqrt(square) / chosen.noise_multiplier, rel=1e-14)


# Runs


VARIANTS: list[dict[str, Any]] = [
    {},
    {"labels": LABELS},
    {"adjacency": Adjacency.REPLACE_ONE},
    {"selection": "probability", "threshold": 1.0},
    {"lookahead": 2},
    {"rounds": 1},
    {"noise_multiplier": 0.0},
    {"variant": "as_published", "labels": ("tree", "wood", "rare")},
    {"variant": "as_published"},
]


def some_records(changes: dict[str, Any]) -> list[Record]:
    records = tree_records(30, labels=LABELS)
    if "rare" in changes.get("labels", ()):
        records[0] = dataclasses.replace(records[0], label="rare")
    return records


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_run_charges_its_plan_and_replays(changes: dict[str, Any], tmp_path: Path) -> None:
    chosen, records = AugPE(**{**SMALL, **changes}), some_records(changes)
    result = write(chosen, records, tmp_path, Watched(1))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()
        ledger.verify()
    assert len(result.texts) == chosen.synthetic * max(1, len(chosen.labels))
    seen = Watched(2)
    again = write(chosen, records, tmp_path, seen)
    assert again.texts == result.texts
    assert not seen.exact, "a finished run reads no vote again"
    for first, second in zip(result.votes, again.votes, strict=True):
        assert all(np.array_equal(first[label], second[label]) for label in first)


def test_votes_are_charged_before_they_get_noise(tmp_path: Path) -> None:
    chosen, source = AugPE(**SMALL, labels=LABELS), Vigilant(tmp_path / "ledger.sqlite", "votes")
    write(chosen, tree_records(30, labels=LABELS), tmp_path, source)
    assert len(source.exact) == 3 * len(LABELS)


def test_texts_of_each_label_follow_exact_counts_as_published(tmp_path: Path) -> None:
    labels = ("tree", "wood", "rare")
    records = [*tree_records(20, labels=("tree",)), *tree_records(9, labels=("wood",), seed=1)]
    records.append(Record("r", "oak", "rare"))
    counts = {}
    for variant in ("sound", "as_published"):
        chosen = AugPE(**SMALL, labels=labels, variant=variant)
        texts = write(chosen, records, tmp_path, Watched(1), name=variant).texts
        counts[variant] = [sum(text.label == label for text in texts) for label in labels]
    assert counts == {"sound": [4, 4, 4], "as_published": [8, 4, 0]}  # of 12: 20/30, 9/30 = 3.6 and 1/30 = .4


def test_the_records_decide(tmp_path: Path) -> None:
    """With little noise, what survives is near the records: more of their words than of others."""
    records = with_content_ids([(f"oak oak oak {WORDS[index % 3]}", None, None) for index in range(60)])
    chosen = AugPE(noise_multiplier=0.5, rounds=6, synthetic=5, variations=6, records=60)
    texts = write(chosen, records, tmp_path, Recorded(1)).texts
    # Chance alone gives 20 words of 12 kinds: 7 oaks or more have a probability of 1e-3.
    assert sum(text.text.split().count("oak") for text in texts) >= 7


@pytest.mark.grid
@pytest.mark.parametrize("changes", [{}, {"labels": LABELS}, {"variant": "as_published", "labels": LABELS}], ids=str)
@pytest.mark.parametrize("stop_at", range(1, 8))
def test_an_interrupted_run_goes_on_where_it_was(
    changes: dict[str, Any], stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before or after its n-th write; committed votes stand, and the whole run charges exactly its plan."""
    chosen, records = AugPE(**{**SMALL, **changes}), some_records(changes)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", killed_at(stop_at))
        with pytest.raises(KeyboardInterrupt):
            write(chosen, records, tmp_path, Recorded(1))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        kept = committed(ledger)
    result = write(chosen, records, tmp_path, Recorded(2))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()
        after = committed(ledger)
    assert after[: len(kept)] == kept
    assert write(chosen, records, tmp_path, Recorded(3)).texts == result.texts


def committed(ledger: Ledger) -> list[Any]:
    run = ledger.run("run")
    return [run.outcome(f"votes/{step}").value for step in range(run.last_committed("votes"))]  # type: ignore[union-attr]


def test_a_run_goes_on_with_the_same_inputs_only(tmp_path: Path) -> None:
    chosen, records = AugPE(**SMALL), tree_records(30)
    write(chosen, records, tmp_path, Recorded(1))
    other = ToyWriter()
    other.fingerprint = "another"
    with pytest.raises(RunMismatchError, match="other records, another writer, embedder or parameters"):
        write(chosen, records[1:], tmp_path, Recorded(1))
    with pytest.raises(RunMismatchError, match="other records, another writer, embedder or parameters"):
        write(dataclasses.replace(chosen, threshold=1.0), records, tmp_path, Recorded(1))
    with pytest.raises(ValueError, match="other records, another writer, embedder or parameters"):
        write(chosen, records, tmp_path, Recorded(1), writer=other)
    with pytest.raises(ValueError, match="began with another plan"):
        write(dataclasses.replace(chosen, rounds=2), records, tmp_path, Recorded(1))


def test_votes_for_other_candidates_are_refused(tmp_path: Path) -> None:
    """The journal was changed: what was voted for is not what stands there now."""
    chosen, records = AugPE(**SMALL), tree_records(30)
    write(chosen, records, tmp_path, Recorded(1))
    journal = tmp_path / "ledger.jsonl"
    head, first, *rest = journal.read_text().splitlines()
    entry = first.replace('"text":"', '"text":"mahogany ')
    assert entry != first
    journal.write_text("\n".join([head, entry, *rest]) + "\n")
    with pytest.raises(RunMismatchError, match="votes are for other candidates"):
        write(chosen, records, tmp_path, Recorded(1))


class Rival(Watched):
    """Runs another process of the same run from start to end, when it is asked for its n-th noise."""

    def __init__(self, at: int, other: Callable[[], AugPEResult]) -> None:
        super().__init__(1)
        self._at, self._other = at, other
        self.theirs: AugPEResult | None = None

    def add_gaussian(self, values: ArrayLike, scale: float) -> NDArray[np.float64]:
        if len(self.exact) == self._at and self.theirs is None:
            self.theirs = self._other()
        return super().add_gaussian(values, scale)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_two_writers_agree(at: int, tmp_path: Path) -> None:
    """A second process that commits first wins: its votes are taken, and the texts are the same."""
    chosen, records = AugPE(**SMALL), tree_records(30)
    rival = Rival(at, lambda: write(chosen, records, tmp_path, Recorded(2)))
    assert write(chosen, records, tmp_path, rival).texts == rival.theirs.texts  # type: ignore[union-attr]
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()


@pytest.mark.parametrize("changes", [{}, {"variant": "as_published", "labels": LABELS}], ids=str)
def test_progress_goes_up_to_the_end(changes: dict[str, Any], tmp_path: Path) -> None:
    chosen, seen = AugPE(**{**SMALL, **changes}), list[tuple[int, int]]()
    with Ledger.open(tmp_path / "l") as ledger:
        chosen.generate(
            some_records(changes),
            ToyWriter(),
            begin(chosen, ledger),
            journal=tmp_path / "j",
            source=Recorded(1),
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == sorted(seen, key=lambda pair: pair[0])
    assert all(done <= total for done, total in seen)
    assert seen[-1][0] > 0.7 * max(total for _, total in seen)


def test_the_source_of_noise_is_on_record(tmp_path: Path) -> None:
    chosen, records = AugPE(**SMALL), tree_records(30)
    with Ledger.open(tmp_path / "l") as ledger, pytest.raises(ValueError, match="says noise 'os', but the source"):
        chosen.generate(
            records, ToyWriter(), begin(chosen, ledger, noise="os"), journal=tmp_path / "j", source=Recorded(1)
        )
    assert not (tmp_path / "j").exists()
    assert write(chosen, records, tmp_path, Recorded(1), name="other").texts


def test_noise_of_the_operating_system(tmp_path: Path) -> None:
    """Votes plus noise: their mean square distance to whole numbers of votes is σ² up to chance."""
    chosen, records = AugPE(**{**SMALL, "noise_multiplier": 100.0, "synthetic": 60}), tree_records(30)
    result = write(chosen, records, tmp_path, OS_ENTROPY)
    noise = np.concatenate([votes[None] for votes in result.votes])
    # About 500 draws of N(≤ 30, 100²): the variance is outside of 100²·[.6, 1.6] with probability below 1e-8.
    assert noise.size > 300
    assert 0.6e4 < noise.var() < 1.6e4


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be finite"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"synthetic": 0}, "synthetic must be at least 1"),
        ({"variations": 0}, "variations must be at least 1"),
        ({"records": 0}, "records must be at least 1"),
        ({"threshold": -1.0}, "threshold must be at least 0"),
        ({"selection": "best"}, "selection must be one of rank, probability"),
        ({"lookahead": -1}, "lookahead must be at least 0"),
        ({"labels": ["a"]}, "labels must be a tuple"),
        ({"labels": ("a", "a")}, "each label once"),
        ({"embedder": ""}, "embedder must be builtin"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"variant": "published"}, "variant must be one of sound, as_published"),
        ({"adjacency": Adjacency.SECRET}, "adjacency must be add_remove or replace_one"),
        ({"unit": Unit("user")}, "unit must be record"),
    ],
    ids=str,
)
def test_impossible_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        AugPE(**{**SMALL, **changes})
    assert "\n" not in str(error.value)


def test_impossible_records(tmp_path: Path) -> None:
    """Refused before anything is charged or written, without a word of a record."""
    repeated = [Record("a", "private text"), Record("a", "private words")]
    for labels, records, message in (
        ((), [], "there are no records"),
        ((), repeated, "two records have the same id"),
        (("tree",), tree_records(4, labels=LABELS), "label is not in the public list"),
    ):
        chosen = AugPE(**SMALL, labels=labels)
        with pytest.raises(ValueError, match=message) as error:
            chosen.check(records, ToyWriter())
        assert "private" not in str(error.value)
        with Ledger.open(tmp_path / f"{len(labels)}{len(records)}") as ledger:
            run = begin(chosen, ledger)
            with pytest.raises(ValueError, match=message):
                chosen.generate(records, ToyWriter(), run, journal=tmp_path / "none", source=Recorded(1))
            assert not run.charged("inputs")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_selection_by_probability_follows_votes(tmp_path: Path) -> None:
    """Over 20 public seeds the first draw is a candidate in proportion to its votes, and no candidate is kept twice.

    A draw in proportion to votes v has Σv²/Σv votes on average, a uniform one their mean. Most records are copies, so
    the first is about 170 votes, the second 30, and the mean of 20 draws deviates by about 15: taking the one for the
    other, either way, is 4.5 deviations off.
    """
    records = [*tree_records(40), *(Record(f"copy {index}", "oak oak") for index in range(200))]
    expected, got, uniform = [], [], []
    for seed in range(20):
        chosen = AugPE(**{**SMALL, "rounds": 1, "seed": seed, "noise_multiplier": 0.0}, selection="probability")
        result = write(chosen, records, tmp_path, Recorded(1), name=str(seed))
        votes = result.votes[0][None]
        assert len({text.text for text in result.texts}) == chosen.synthetic
        pool = pool_of(tmp_path / f"{seed}.jsonl")
        got.append(votes[pool.index(result.texts[0].text)])
        expected.append(np.square(votes).sum() / votes.sum())
        uniform.append(votes.mean())
    assert abs(np.mean(got) - np.mean(expected)) < abs(np.mean(got) - np.mean(uniform))


def pool_of(journal: Path) -> list[str]:
    """The different random texts of a journal, in order."""
    entries = map(json.loads, journal.read_text().splitlines()[1:])
    return list(dict.fromkeys(entry["text"] for entry in entries if entry["round"] == 0))
