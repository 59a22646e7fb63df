"""`top_k`: which tokens are kept follows from public logits, and the rest is as with a vocabulary of these tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from little_inference import KEY, RECORDS, Watcher, mechanism, write
from neighbouring import added_or_removed, scores_of_slots
from table_model import FirstToken

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post.clipped_rows import GRID, clip_steps, likely_tokens
from dpassay.mechanisms.models import row_shapes
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.aggregation import Aggregate
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
TAIL, CLIP, TEMPERATURE = 12.0, 1.5, 1.2
CHANGES: dict[str, Any] = {"center": "public", "clip": 1.0, "top_k": 1}


def law(
    aggregate: str, logits: Any, public: Any, top_k: int | None, *, clip: float = CLIP, rows: int | None = None
) -> Aggregate:
    common: dict[str, Any] = {"clip": clip, "temperature": TEMPERATURE, "tail": TAIL, "top_k": top_k}
    if aggregate == "mean":
        return aggregation.mean(logits, public, denominator=rows or max(1, len(logits)), **common)
    return aggregation.median(logits, public, adjacency=Adjacency.ADD_REMOVE, **common)


@given(
    logits=st.lists(st.sampled_from([-40.0, -9.0, -6.5, -6.0, -3.0, -1.0, 0.0]) | st.floats(-30, 0), min_size=1),
    top_k=st.integers(1, 6),
    clip=st.sampled_from([2.0**-24, 1.5, 3.0, 64.0]),
)
def test_tokens_within_two_clips_of_the_kth_largest_are_kept(logits: list[float], top_k: int, clip: float) -> None:
    """By sorting whole numbers without a limit; ties with the last one are kept, too."""
    public = clip_steps(np.array(logits), TAIL)
    steps = [int(step) for step in public]
    least = sorted(steps, reverse=True)[:top_k][-1] - 2 * math.floor(clip / GRID)
    assert likely_tokens(public, top_k, clip).tolist() == [x for x, step in enumerate(steps) if step >= least]


@given(seed=st.integers(0, 10**6), size=st.integers(0, 9), top_k=st.integers(1, 8))
def test_the_likeliest_tokens_of_an_aggregate_are_kept(seed: int, size: int, top_k: int) -> None:
    """Theorem 5: whatever the rows are, no token outside is among the k likeliest of what would be drawn from."""
    rng = np.random.default_rng(seed)
    public = rng.normal(size=30) * 3
    logits = public + rng.normal(size=(size, 30)) * 20 + rng.normal(size=(size, 1)) * 5
    kept = likely_tokens(clip_steps(public, TAIL), top_k, CLIP)
    for aggregate in ("median", "mean"):
        scores = law(aggregate, logits, public, None).scores
        outside = np.delete(scores, kept)
        assert len(outside) == 30 - len(kept)
        # A whole number of steps (times the denominator), or halves of them: compared exactly.
        assert outside.max(initial=-math.inf) <= np.sort(scores)[-top_k]


@pytest.mark.parametrize("way", DEVICES)
@pytest.mark.parametrize("aggregate", ["median", "mean"])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
def test_all_is_as_with_a_vocabulary_of_the_kept_tokens(aggregate: str, size: int, way: str) -> None:
    """Scores, costs and draws, to the bit, on every device; tokens outside have probability 0."""
    rng = np.random.default_rng(size)
    public, logits = (rng.normal(size=shape).astype(np.float32) * 4 for shape in ((40,), (size, 40)))
    logits[:, 3] = -np.inf
    kept = likely_tokens(clip_steps(public, TAIL), 4, CLIP)
    assert 4 <= len(kept) < 30
    whole = law(aggregate, torch.from_numpy(logits).to(way), torch.from_numpy(public).to(way), 4)
    alone = law(aggregate, logits[:, kept], public[kept], None)
    assert whole.kept is not None
    assert np.array_equal(whole.kept, kept)
    assert np.array_equal(whole.scores, alone.scores)
    assert np.array_equal(whole.clipped, alone.clipped)
    assert whole.clip == alone.clip
    laws = whole.log_probabilities(40)
    assert math.fsum(np.exp(laws)) == pytest.approx(1, abs=1e-12)
    for token in range(40):
        column = int(np.searchsorted(kept, token))
        if token not in kept:
            assert whole.column(token) is None
            assert whole.log_probability(token) == laws[token] == -math.inf
            continue
        assert whole.column(token) == column
        assert whole.log_probability(token) == alone.log_probability(column)
        assert laws[token] == pytest.approx(whole.log_probability(token), abs=1e-12)
        if aggregate == "median":
            costs = [aggregation.median_cost(item, x, replaced=False, rounding=0.0) for item, x in
                     ((whole, token), (alone, column))]  # fmt: skip
            assert costs[0] == costs[1]


@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_what_is_drawn_is_a_token_and_not_its_column(aggregate: str) -> None:
    public = np.array([-9.0, 0.0, -9.0, -1.0])
    assert law(aggregate, np.empty((0, 4)), public, 2, rows=1).draw(FirstToken(0)) == 1


@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_a_row_that_has_none_of_the_kept_tokens_counts_as_a_constant_one(aggregate: str) -> None:
    """Its logits are numbers, at tokens that are left out: a run does not end for it, and no other row changes."""
    public = np.array([0.0, -1.0, -30.0])
    nowhere, constant = [-np.inf, -np.inf, 0.0], [0.0, 0.0, 0.0]
    others = [[0.0, -3.0, -1.0], [-2.0, 0.0, 1.0]]
    laws = [law(aggregate, np.array([*others, row]), public, 2) for row in (nowhere, constant)]
    assert laws[0].kept is not None
    assert laws[0].kept.tolist() == [0, 1]
    assert np.array_equal(laws[0].scores, laws[1].scores)
    assert np.array_equal(laws[0].clipped, laws[1].clipped)


@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_tokens_outside_are_never_drawn_whatever_the_records_are(aggregate: str, table_model: Any, runs: Any) -> None:
    """In a whole run, and for its neighbours: each has the same tokens at every step, and so a finite score."""
    chosen, model = mechanism(aggregate=aggregate, labels=(), **CHANGES), table_model(vocabulary=9)
    watcher = Watcher()
    generation = write(chosen, model, runs.begin(chosen, noise="recorded"), observers=[watcher])
    widths = {seen["clipped"].shape[1] for seen in watcher.steps}
    assert max(widths) < 9
    assert len(widths) > 1
    scores = scores_of_slots(chosen, RECORDS, model, generation.transcript, key=KEY)
    expected = np.zeros(chosen.total_slots)
    for seen in watcher.steps:
        expected[seen["slot"]] += seen["log_probability"]
    assert scores == pytest.approx(expected, abs=1e-9)
    for other in added_or_removed(RECORDS, 1):
        assert np.isfinite(scores_of_slots(chosen, other, model, generation.transcript, key=KEY)).all()


def test_other_logits_than_those_of_the_run_are_noticed(table_model: Any, runs: Any) -> None:
    """A resumed run that is replayed by an observer, and whose token its own logits would leave out."""
    chosen, model = mechanism(**CHANGES), table_model(vocabulary=9)
    write(chosen, model, runs.begin(chosen, noise="recorded", name="one"))
    again = runs.begin(chosen, noise="recorded", name="one")
    with pytest.raises(RunMismatchError, match="drew a token that top_k leaves out now: this machine or its libraries"):
        write(chosen, table_model(vocabulary=9, seed=1), again, observers=[Watcher()])


SETTINGS: dict[str, Any] = {"aggregate": "mean", "temperature": 1.2, "batch_size": 6, "tokens": 4, "records": 24}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"center": None}, "top_k keeps tokens that are likely without a record, so it needs center: public"),
        ({"rows": "packed"}, "top_k needs rows: fixed"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_k": 1.5}, "top_k must be"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateInference(**{**SETTINGS, **CHANGES, **changes})


def test_rows_that_depend_on_each_other_are_refused(table_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their last digits, which a threshold does not forgive."""
    model = table_model()
    monkeypatch.setattr(type(model), "row_shape", lambda self, wanted: (wanted, False))
    assert mechanism(center="public", clip=1.0).row_plan(model) == row_shapes.RowPlan(
        mechanism().row_plan(model).shapes, exact=False
    )
    with pytest.raises(
        ValueError, match="top_k needs a device on which a row's logits do not depend on the rows beside"
    ):
        mechanism(**CHANGES).row_plan(model)


def test_the_digest_of_the_inputs_names_it(table_model: Any) -> None:
    model = table_model()
    digests = {
        SlotInputs(mechanism(**{**CHANGES, "top_k": top_k}), RECORDS, model, KEY).digest() for top_k in (None, 1, 2)
    }
    assert len(digests) == 3
