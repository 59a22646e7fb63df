"""Whole runs on small models: budgets, the ledger, replay after an interruption, two writers, noise on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from little_inference import KEY, RECORDS, Watcher, killed_at, mechanism, write

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Commit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Generation

VARIANTS: list[dict[str, Any]] = [
    {},
    {"adjacency": Adjacency.REPLACE_ONE},
    {"records_per_context": 2, "batch_size": 2},
    {"variant": "as_published"},
    {"slot_threshold": 3.0, "slot_count_epsilon": 1.0},
    {"aggregate": "mean"},
    {"aggregate": "mean", "denominator": 5, "anchor": True, "slot_threshold": 2.0},
    {"aggregate": "mean", "variant": "as_published"},
    {"aggregate": "mean", "adjacency": Adjacency.REPLACE_ONE, "slot_threshold": 3.0, "slot_count_epsilon": 1.0},
    {"variant": "as_published", "records_per_context": 2, "batch_size": 2},
    {"aggregate": "none"},
    {"unit": Unit("user"), "records": 6},
    {"labels": ()},
    {"center": "public", "clip": 3.0},
    {"center": "public", "clip": 3.0, "aggregate": "mean"},
    {"center": "public", "clip": 1.0, "top_k": 1},
    {"center": "public", "clip": 1.0, "top_k": 1, "aggregate": "mean"},
]


@pytest.mark.grid
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_run_charges_its_plan_and_spends_every_token(changes: dict[str, Any], table_model: Any, runs: Any) -> None:
    chosen = mechanism(**changes)
    run = runs.begin(chosen, noise="recorded")
    generation = write(chosen, table_model(), run)
    run.finish()
    for tokens, runs_ in zip(generation.transcript.tokens, generation.transcript.running, strict=True):
        assert len(tokens) == (chosen.tokens if runs_ else 0)
    assert len(generation.transcript.tokens) == chosen.total_slots
    written = [token for document in generation.documents for token in document.tokens]
    assert written == [token for tokens in generation.transcript.tokens for token in tokens]
    for document in generation.documents:
        assert document.complete == (document.tokens[-1] == 0)
        assert 0 not in document.tokens[:-1]
        assert "0" not in document.text


@pytest.mark.grid
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("stop_at", [1, 2, 3, 5, 8, 13, 14])
def test_an_interrupted_run_goes_on_where_it_was(
    changes: dict[str, Any], stop_at: int, table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before or after its n-th write: committed tokens stand, and the whole run charges exactly its plan."""
    chosen, model = mechanism(**changes), table_model()
    first = runs.begin(chosen, noise="recorded", name="one")
    original = Run.step

    monkeypatch.setattr(Run, "step", killed_at(stop_at))
    try:
        write(chosen, model, first, seed=1)
    except KeyboardInterrupt:
        monkeypatch.setattr(Run, "step", original)
    else:
        pytest.skip("the run is shorter than that")
    done = first.last_committed("tokens")
    committed = [first.outcome(f"tokens/{index}").value["tokens"] for index in range(done)]
    again = runs.begin(chosen, noise="recorded", name="one")
    watcher = Watcher()
    generation = write(chosen, model, again, seed=2, observers=[watcher])
    again.finish()
    after = [again.outcome(f"tokens/{index}").value["tokens"] for index in range(again.last_committed("tokens"))]
    assert after[:done] == committed
    assert sum(map(len, after)) == sum(map(len, generation.transcript.tokens)) == len(watcher.steps)
    third = write(chosen, model, runs.begin(chosen, noise="recorded", name="one"), seed=3)
    assert third.transcript == generation.transcript
    assert third.documents == generation.documents
    if generation.token_costs is not None:
        assert third.token_costs is not None
        assert np.array_equal(third.token_costs, generation.token_costs, equal_nan=True)


def test_a_run_goes_on_with_the_same_inputs_only(table_model: Any, runs: Any) -> None:
    chosen, model = mechanism(), table_model()
    write(chosen, model, runs.begin(chosen, noise="recorded", name="one"))
    again = runs.begin(chosen, noise="recorded", name="one")
    for records, key in ((RECORDS[1:], KEY), (RECORDS, bytes(31) + b"1")):
        with pytest.raises(ValueError, match="other records, another model, key or parameters"):
            generate(chosen, records, model, again, key=key, source=Recorded(1))
    with pytest.raises(ValueError, match="another plan"):
        write(mechanism(tokens=7), model, again)


def test_two_writers_agree(table_model: Any, runs: Any) -> None:
    """A second process that commits first wins: its tokens are taken, by the ledger's word."""
    chosen, model = mechanism(), table_model()
    mine, other = (runs.begin(chosen, noise="recorded", name="one") for _ in range(2))

    class Rival:
        name = "recorded"

        def __init__(self) -> None:
            self.done = False
            self.inner = Recorded(1)

        def at(self, place: str) -> Any:
            return self

        def below(self, bound: int) -> int:
            if not self.done:
                self.done = True
                self.theirs = write(chosen, model, other, seed=2)
            return self.inner.below(bound)

    rival = Rival()
    generation = generate(chosen, RECORDS, model, mine, key=KEY, source=rival, rows_at_once=5)  # type: ignore[arg-type]
    assert generation.transcript == rival.theirs.transcript
    mine.finish()


class Choosing:
    """Draws tokens at random, and documents' sources as it is told: the first or the last record of the slot."""

    name = "recorded"

    def __init__(self, seed: int, *, last: bool, interrupt: tuple[int, Callable[[], None]] | None = None) -> None:
        self._inner, self._last = Recorded(seed), last
        self._count, self._interrupt = 0, interrupt

    def at(self, place: str) -> Any:
        return self

    def below(self, bound: int) -> int:
        if bound > len(RECORDS):  # tokens: the sum of weights of up to 2^62
            return self._inner.below(bound)
        if self._interrupt is not None and self._count == self._interrupt[0]:
            self._interrupt[1]()
        self._count += 1
        return bound - 1 if self._last else 0


@pytest.mark.grid
@pytest.mark.parametrize("draws", [0, 2, 5])
def test_two_writers_agree_on_sources(draws: int, table_model: Any, runs: Any) -> None:
    """Without protection the loser takes the winner's sources too, and shows observers the laws of those.

    The other process runs from start to end when the first has drawn this many sources, in the middle of a step.
    """
    chosen, model = mechanism(aggregate="none", tokens=12), table_model()
    mine, other, again = (runs.begin(chosen, noise="recorded", name="one") for _ in range(3))
    theirs: list[Generation] = []

    def write_with(run: Run, source: Any, *watchers: Watcher) -> Generation:
        return generate(chosen, RECORDS, model, run, key=KEY, source=source, observers=watchers)

    rival = (draws, lambda: theirs.append(write_with(other, Choosing(2, last=True))))
    watcher, late = Watcher(), Watcher()
    generation = write_with(mine, Choosing(1, last=False, interrupt=rival), watcher)
    replayed = write_with(again, Choosing(3, last=False), late)
    assert generation.documents == theirs[0].documents == replayed.documents
    assert [step["log_probability"] for step in watcher.steps] == [step["log_probability"] for step in late.steps]
    mine.finish()


class Silent(Recorded):
    """Counts without noise, so that what is counted shows."""

    def discrete_laplace(self, size: int, scale: float) -> Any:
        return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"records_per_context": 2, "batch_size": 2},
        {"variant": "as_published"},
        {"variant": "as_published", "records_per_context": 2, "batch_size": 2},
        {"unit": Unit("user"), "records": 6},
    ],
)
def test_what_is_counted_is_units_and_one_unit_moves_it_by_one(
    changes: dict[str, Any], table_model: Any, runs: Any
) -> None:
    """The charged sensitivity is 1: without any one unit, the released counts differ by at most 1 in all, in L1."""
    chosen = mechanism(tokens=1, slot_threshold=1.0, slot_count_epsilon=1.0, **changes)
    generation = generate(
        chosen, RECORDS, table_model(), runs.begin(chosen, noise="recorded"), key=KEY, source=Silent(1)
    )
    used = generation.assignment[generation.assignment >= 0]
    assert generation.released_counts is not None
    assert generation.released_counts.tolist() == np.bincount(used, minlength=chosen.total_slots).tolist()
    moved = set()
    for gone in RECORDS:
        by_user = chosen.unit.kind == "user"
        rest = [x for x in RECORDS if (x.user != gone.user if by_user else x.id != gone.id)]
        moved.add(int(np.abs(chosen.batches(rest, KEY).units - generation.released_counts).sum()))
    assert moved <= {0, 1}
    assert 1 in moved


def test_the_source_of_noise_is_on_record(table_model: Any, runs: Any) -> None:
    chosen = mechanism()
    with pytest.raises(ValueError, match="noise 'os'"):
        write(chosen, table_model(), runs.begin(chosen))
    with pytest.raises(ValueError, match="noise 'recorded'"):
        generate(chosen, RECORDS, table_model(), runs.begin(chosen, noise="recorded"), key=KEY)
    generate(chosen, RECORDS, table_model(), runs.begin(chosen), key=KEY)


def test_another_process_reads_the_same_transcript(table_model: Any, tmp_path: Any) -> None:
    """What a run returns is what its ledger holds: nothing leaves that is not committed."""
    chosen = mechanism()
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        run = ledger.begin(
            "r", plan=chosen.plan(), adjacency=chosen.adjacency, unit=chosen.unit, about={"noise": "recorded"}
        )
        generation = generate(chosen, RECORDS, table_model(), run, key=KEY, source=Recorded(4), rows_at_once=100)
        run.finish()
    with Ledger.open(tmp_path / "l.sqlite", read_only=True) as ledger:
        results = [ledger.run("r").outcome(f"tokens/{step}") for step in range(chosen.tokens)]
        steps = [each.value["tokens"] for each in results if each is not None]
        ledger.verify()
    assert tuple(zip(*steps, strict=True)) == generation.transcript.tokens
    assert Commit(key="x", value=1).realised is None
