"""Private inference, every token against what is charged for it, over all neighbours of small data sets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_oracle import Pipeline
from neighbouring import KEY, NEIGHBOURS, data_set
from table_model import FirstToken, Runs, TableModel, showing

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.private_inference.step_laws import StepLaws, log_laws
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.data.batching import keyed_hash
from dpassay.data.records import Record
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

BASE: dict[str, Any] = {
    "aggregate": "median",
    "clip": 4.0,
    "temperature": 1.3,
    "batch_size": 3,
    "tokens": 3,
    "records": 6,
}
REPLACE = {"adjacency": Adjacency.REPLACE_ONE}
CUT = {"variant": "as_published", "batch_size": 2}


def table_model(**options: Any) -> Any:
    """It has what is used of a language model, and is none."""
    return TableModel(**options)


def run(tmp_path: Path, chosen: PrivateInference, records: Any, model: Any, source: Any = None) -> Any:
    begun = Runs(tmp_path).begin(chosen, noise="recorded")
    return generate(chosen, records, model, begun, key=KEY, source=source or Recorded(1))


def findings(tmp_path: Path, chosen: PrivateInference, seed: int, kind: str, **options: Any) -> list[Any]:
    records, model = data_set(seed, 5, users=kind == "user"), table_model(seed=seed, vocabulary=3, spread=100.0)
    generation = run(tmp_path, chosen, records, model)
    near = NEIGHBOURS[kind](records, seed)
    return inference_findings(chosen, records, near, model, generation, key=KEY, **options)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("add_remove", {}),
        ("add_remove", {"slot_threshold": -100.0}),
        ("replace_one", REPLACE | {"slot_threshold": -100.0}),
        ("user", {"unit": Unit("user"), "records": 3, "batch_size": 2}),
        ("add_remove", {"records_per_context": 2}),
        ("add_remove", CUT),
        ("add_remove", {"aggregate": "mean"}),
        ("add_remove", {"aggregate": "mean", "records_per_context": 2}),
        ("replace_one", REPLACE | {"aggregate": "mean"}),
        ("add_remove", CUT | {"aggregate": "mean"}),
    ],
    ids=str,
)
def test_everything_that_is_charged_holds(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    for seed in (1, 2):
        assert not findings(tmp_path / str(seed), PrivateInference(**(BASE | changes)), seed, kind)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()


@pytest.mark.parametrize(
    ("kind", "changes", "found"),
    [
        # Pieces of a fixed size shift together; contexts of several records are replaced, and so are exchanged records.
        ("add_remove", CUT, ["cost", "parts"]),
        ("add_remove", {"aggregate": "mean", "records_per_context": 2}, ["range"]),
        ("replace_one", REPLACE | {"aggregate": "mean", "batch_size": 6}, ["range"]),
    ],
    ids=str,
)
def test_where_the_published_accounting_is_no_bound_it_is_found(
    tmp_path: Path, kind: str, changes: dict[str, Any], found: list[str]
) -> None:
    seen = set()
    for seed in (1, 2):
        chosen = PrivateInference(**(BASE | changes))
        some = findings(tmp_path / str(seed), chosen, seed, kind, accounting="published")
        seen |= {finding.kind for finding in some}
        assert all(finding.measured > finding.declared for finding in some)
    assert sorted(seen) == found


def test_a_mean_whose_charge_is_a_little_too_small_is_found(tmp_path: Path) -> None:
    """One record is sure of one token, and all others of another: a slot's range is 2c/(sτ), in full."""
    chosen = PrivateInference(**(BASE | {"aggregate": "mean", "records": 3}))
    records = [Record(f"id-{i}", text) for i, text in enumerate("AAB")]
    model = showing({"A": (8.0, 0.0), "B": (0.0, 8.0)})
    generation = run(tmp_path, chosen, records, model)
    others = [records[:2]]
    assert not inference_findings(chosen, records, others, model, generation, key=KEY)
    less = dataclasses.replace(chosen, denominator=4)  # what is charged for a denominator of 4, spent with 3
    true, said = chosen.token_event().eta, less.token_event().eta
    cheaper = _Charging(chosen, less)
    (result,) = inference_findings(cheaper, records, others, model, generation, key=KEY)  # type: ignore[arg-type]
    assert (result.kind, result.declared) == ("range", said)
    assert result.measured == pytest.approx(true, rel=1e-12) == pytest.approx(2 * 4.0 / (3 * 1.3), rel=1e-12)


class _Charging:
    """A mechanism that charges what another one does."""

    def __init__(self, chosen: PrivateInference, charged: PrivateInference) -> None:
        self._chosen, self._charged = chosen, charged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._charged if name == "token_event" else self._chosen, name)


def test_an_even_median_moves_further_under_replacement_than_is_published(tmp_path: Path) -> None:
    """Rows (−6, 6), (0, 6), (0, 6), (6, 6), of which the last becomes the first: γ of token 0 is 0, and its
    log-probability falls by log softmax(0, 6)₀ − log softmax(−3, 6)₀ at τ = 1.5, 1.984326."""
    chosen = PrivateInference(
        aggregate="median",
        clip=6.0,
        temperature=1.5,
        batch_size=4,
        tokens=1,
        records=4,
        adjacency=Adjacency.REPLACE_ONE,
    )
    records = [Record(f"id-{i}", text) for i, text in enumerate("PQQR")]
    model = showing({"P": (-6, 6), "Q": (0, 6), "R": (6, 6)})
    generation = run(tmp_path, chosen, records, model, FirstToken(0))
    others = [[*records[:3], Record("new", text)] for text in "PQ"]
    (result,) = inference_findings(chosen, records, others, model, generation, key=KEY, accounting="published")
    assert (result.kind, result.neighbor, result.part) == ("cost", 0, "slot 0")
    assert float(result.declared) < 1e-9  # 0, rounded up by its float error
    exact = np.log1p(np.exp(9 / 1.5)) - np.log1p(np.exp(6 / 1.5))
    assert result.measured == pytest.approx(exact, abs=1e-12) == pytest.approx(1.984326, abs=1e-6)
    assert not inference_findings(chosen, records, others, model, generation, key=KEY)


@pytest.mark.parametrize("changes", [{}, {"aggregate": "mean"}, {"records_per_context": 2}], ids=str)
def test_laws_are_those_of_the_oracle(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Of every token, against the pipeline that is written a second time. Logs of sums of three floats: 1e-9."""
    chosen = PrivateInference(**(BASE | changes))
    records, model = data_set(7, 6), table_model(seed=7, vocabulary=3)
    transcript = run(tmp_path, chosen, records, model).transcript
    laws, oracle = StepLaws(chosen, records, model, transcript, key=KEY), Pipeline(chosen, model, KEY)
    slots = range(chosen.total_slots)
    results: dict[int, list[Any]] = {slot: [] for slot in slots}
    for group in laws.groups(slots):
        for slot, step, law in log_laws(laws.forced(group), laws.inputs):
            assert step == len(results[slot])
            results[slot].append(law)
    for slot in slots:
        contexts = oracle.rows(records, slot)
        assert laws.contexts(slot) == sorted(map(list, contexts))
        tails = oracle.tails(transcript.tokens[slot])
        for law, tail in zip(results[slot], tails, strict=True):
            assert law.tolist() == pytest.approx(oracle.log_law(oracle.clipped_rows(contexts, tail), tail), abs=1e-9)


def test_counts_of_slots_are_compared_with_their_sensitivity(tmp_path: Path) -> None:
    """Two records more at once move two counts: no neighbour, so the declared 1 is exceeded."""
    chosen = PrivateInference(**(BASE | {"slot_threshold": -100.0}))
    records, model = data_set(3, 4), table_model(seed=3)
    generation = run(tmp_path, chosen, records, model)
    names = {keyed_hash(KEY, "slot", f"x{i}") % 2: f"x{i}" for i in range(20)}
    more = [*records, Record(names[0], "1"), Record(names[1], "1")]
    results = {f.kind: f for f in inference_findings(chosen, records, [more], model, generation, key=KEY)}
    assert (results["sensitivity"].declared, results["sensitivity"].measured) == (1.0, 2.0)
    assert (results["parts"].declared, results["parts"].measured) == (1.0, 2.0)


def test_the_control_without_protection_has_nothing_to_hold(tmp_path: Path) -> None:
    chosen = PrivateInference(**(BASE | {"aggregate": "none"}))
    records, model = data_set(3, 4), table_model(seed=3)
    generation = run(tmp_path, chosen, records, model)
    with pytest.raises(ValueError, match="the unprotected control declares nothing"):
        inference_findings(chosen, records, [records[1:]], model, generation, key=KEY)
