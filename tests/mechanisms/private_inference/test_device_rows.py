"""Rows aggregated where they are: every way to the middle and the sums agrees with clipping and sorting all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from little_inference import Watcher, mechanism, write
from numpy.typing import NDArray

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post import clipped_rows
from dpassay.accounting.ex_post.clipped_rows import (
    GRID,
    MAX_TAIL,
    LogitRows,
    StepRows,
    centred_steps,
    clip_steps,
    integer_clip,
    sorted_rows,
)
from dpassay.accounting.ex_post.medians import Medians, slack
from dpassay.mechanisms.primitives.token_sampler import floored
from dpassay.mechanisms.private_inference import aggregation, device_rows
from dpassay.mechanisms.private_inference.device_rows import CentredDeviceRows, DeviceRows

CLIP = 6.0
LIMIT = integer_clip(CLIP)
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
VOCABULARIES = {"random": 300, "flat": 300, "tied": 40, "one": 1, "extreme": 40, "agreeing": 300, "long": 20_000}


def batch(kind: str, size: int) -> NDArray[np.float32]:
    """Logits of `size` rows, shape (size, V), of which few, many, none or all are above the bottom of the clip."""
    vocabulary = VOCABULARIES[kind]
    rng = np.random.default_rng(size)
    logits = 6 * rng.standard_normal((size, vocabulary))
    if kind == "flat":
        logits /= 6
    elif kind == "tied":
        logits = np.rint(logits / 4) * 4
    elif kind == "agreeing":
        logits = logits / 10 + 6 * np.random.default_rng(0).standard_normal(vocabulary)
    elif kind == "extreme":
        logits *= 10.0 ** rng.integers(-40, 37, size=logits.shape)
        logits[rng.random(logits.shape) < 0.2] = -np.inf
        logits[:, -1] = 1.0
    return logits.astype(np.float32)


def ranks_of(size: int) -> range:
    half = size // 2
    return range(half - 1, half + 2) if size % 2 else range(half - 2, half + 2)


def rows_of(way: str, logits: NDArray[np.floating], clip: float = CLIP) -> LogitRows | DeviceRows:
    return LogitRows(logits, clip) if way == "numpy" else DeviceRows(torch.from_numpy(logits.copy()).to(way), clip)


@pytest.fixture(params=[False, True], ids=["whole", "pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with memory for everything, once in many small pieces."""
    if request.param:
        monkeypatch.setattr(device_rows, "ENTRIES", 50)
        monkeypatch.setattr(clipped_rows, "BLOCK", 50)
        monkeypatch.setattr(clipped_rows, "MIN_SPARSE", 30)
        monkeypatch.setattr(clipped_rows, "CACHED", 50)


@pytest.mark.grid("way", "kind", "size")
@pytest.mark.parametrize("way", ["numpy", *DEVICES])
@pytest.mark.parametrize("kind", list(VOCABULARIES))
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 33])
def test_rows_are_clipped_sorted_and_summed_to_the_bit(way: str, kind: str, size: int, pieces: None) -> None:
    logits, ranks = batch(kind, size), ranks_of(size)
    steps = clip_steps(logits, CLIP)
    rows = rows_of(way, logits)
    assert rows.shape == logits.shape
    assert np.array_equal(rows.steps(), steps)
    assert np.array_equal(rows.sums(), steps.sum(axis=0, dtype=np.int64))
    live, middle = rows.middle(ranks)
    assert middle.dtype == np.int32
    everywhere = np.full((len(ranks), logits.shape[1]), -LIMIT)
    everywhere[:, live] = middle
    assert np.array_equal(everywhere, sorted_rows(steps, ranks, LIMIT))
    assert np.array_equal(rows.live_steps(slice(None)), steps[:, live])
    assert np.array_equal(rows.live_steps(slice(1, 4)), steps[:, live[1:4]])


@pytest.mark.grid("way", "kind", "size")
@pytest.mark.parametrize("way", ["numpy", *DEVICES])
@pytest.mark.parametrize("kind", list(VOCABULARIES))
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8])
def test_centred_rows_are_the_definition_to_the_bit(way: str, kind: str, size: int, pieces: None) -> None:
    """Both clipped with the tail, less the public ones, put about 0, and clipped: in whole numbers without a limit."""
    logits, tail = batch(kind, size + 1), 2.5 * CLIP
    public, ranks = clip_steps(logits[-1], tail), ranks_of(size)
    rows: StepRows | CentredDeviceRows = StepRows(centred_steps(logits[:-1], public, CLIP, tail), CLIP)
    if way != "numpy":
        rows = CentredDeviceRows(torch.from_numpy(logits[:-1].copy()).to(way), public, CLIP, tail)
    exact = np.empty((size, logits.shape[1]), dtype=np.int32)
    for index, row in enumerate(clip_steps(logits[:-1], tail).tolist()):
        pairs = list(zip(row, public.tolist(), strict=True))
        shift = (max(2 * z - f for z, f in pairs) + min(z - 2 * f for z, f in pairs)) // 2
        exact[index] = [min(max(z - f - shift, -LIMIT), LIMIT) for z, f in pairs]
    assert rows.shape == exact.shape
    assert np.array_equal(rows.steps(), exact)
    assert np.array_equal(rows.sums(), exact.sum(axis=0, dtype=np.int64))
    live, middle = rows.middle(ranks)
    assert np.array_equal(live, np.arange(logits.shape[1]))
    assert np.array_equal(middle, sorted_rows(exact, ranks, LIMIT))
    assert np.array_equal(rows.live_steps(slice(1, 4)), exact[:, 1:4])


@pytest.mark.parametrize("way", ["numpy", "cpu"])
def test_the_largest_differences_are_whole_numbers_too(way: str) -> None:
    """At the largest tail, a row and public logits that are as far apart as they can be."""
    logits = torch.tensor([[0.0, -1e9], [-1e9, 0.0], [0.0, 0.0]], dtype=torch.float64)
    apart, flat = [[64, -64], [0, 0], [32, -32]], [[32, -32], [-32, 32], [0, 0]]
    for public, expected in (([-1e9, 0.0], apart), ([0.0, 0.0], flat)):
        center = clip_steps(public, MAX_TAIL)
        if way == "numpy":
            steps = centred_steps(logits.numpy(), center, 64.0, MAX_TAIL)
        else:
            steps = CentredDeviceRows(logits, center, 64.0, MAX_TAIL).steps()
        assert (steps * GRID).tolist() == expected


def test_the_offset_of_a_rows_logits_does_not_matter() -> None:
    """Softmax does not see it, and nor does the clip."""
    logits = np.rint(batch("random", 3) * 2**10) / 2**10
    public = clip_steps(logits[0], 12.0)
    moved = logits + np.array([[0.0], [-100.0], [64.0]], dtype=np.float32)
    assert np.array_equal(centred_steps(moved, public, CLIP, 12.0), centred_steps(logits, public, CLIP, 12.0))
    assert not centred_steps(moved, public, CLIP, 12.0)[0].any()


@pytest.mark.parametrize("way", ["numpy", *DEVICES])
@pytest.mark.parametrize("kind", ["random", "flat", "long"])
def test_sums_at_the_largest_clip(way: str, kind: str, pieces: None) -> None:
    """The largest entry of a row is then 2³¹ steps above the bottom, which int32 does not hold."""
    logits = batch(kind, 3)
    steps = clip_steps(logits, 64.0)
    assert steps.max() == 2**30
    assert np.array_equal(rows_of(way, logits, 64.0).sums(), steps.sum(axis=0, dtype=np.int64))


@pytest.mark.parametrize("clip", [0.3, 6.0, 9.99999999])
def test_means_of_large_slots_are_floored_on_the_grid(clip: float) -> None:
    """Nine rows over a denominator of two: the floor is 2·c·2 below the top, without rounding, whatever the top is."""
    logits = batch("agreeing", 9) + np.float32(1 / 3)
    law = aggregation.mean(logits, None, clip=clip, temperature=1.0, denominator=2)
    floor = Fraction(float(law.scores.max())) - 4 * Fraction(integer_clip(clip), 2**24)
    assert Fraction(float(law.scores.min())) < floor
    assert Fraction(float(floored(law.scores, law.clip).min())) == floor


def test_more_rows_than_a_byte_counts() -> None:
    """600 rows, in 300 of which a column is above the bottom, of an odd and an even batch's middle."""
    logits = np.full((600, 40), -50.0, dtype=np.float32)
    logits[:, 0] = 0.0
    logits[:300, 1] = logits[:301, 2] = logits[:299, 3] = -1.0
    for size, columns in ((600, [0, 1, 2, 3]), (597, [0, 1, 2, 3])):
        for way in ("numpy", "cpu"):
            live, middle = rows_of(way, logits[:size]).middle(ranks_of(size))
            assert live.tolist() == columns
            assert np.array_equal(middle, sorted_rows(clip_steps(logits[:size], CLIP), ranks_of(size), LIMIT)[:, live])


def test_few_columns_of_a_peaked_batch_are_computed() -> None:
    """What makes a large vocabulary cheap: of 20,000 columns none is live where rows do not agree."""
    for way in ("numpy", "cpu"):
        assert len(rows_of(way, batch("long", 33)).middle(ranks_of(33))[0]) < 20


@given(
    top=st.floats(-(2.0**100), 2.0**100, width=32) | st.floats(-50, 50, width=32),
    clip=st.sampled_from([2.0**-24, 0.3, 6.0, 64.0]),
    steps=st.integers(-4, 4),
    places=st.integers(-3, 3),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_nothing_above_the_bottom_is_left_out(top: float, clip: float, steps: int, places: int, dtype: Any) -> None:
    """Entries about the bottom of the clip, some steps and some units in the last place away from it."""
    value = np.array(top - 2 * clip + steps * 2.0**-25, dtype=dtype)
    for _ in range(abs(places)):
        value = np.nextafter(value, np.array(np.copysign(np.inf, places), dtype=dtype))
    logits = np.full((3, 9), -np.inf, dtype=dtype)
    logits[:, 0], logits[:, 1] = top, min(float(value), top)
    expected = sorted_rows(clip_steps(logits, clip), range(3), integer_clip(clip))
    for way in ("numpy", "cpu"):
        live, middle = rows_of(way, logits, clip).middle(range(3))
        everywhere = np.full((3, 9), -integer_clip(clip))
        everywhere[:, live] = middle
        assert np.array_equal(everywhere, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_are_read_as_the_numbers_they_are(dtype: torch.dtype) -> None:
    logits = torch.from_numpy(batch("random", 4)).to(dtype)
    before = logits.clone()
    rows = DeviceRows(logits, CLIP)
    steps = clip_steps(logits.double().numpy(), CLIP)
    assert np.array_equal(rows.steps(), steps)
    assert np.array_equal(rows.sums(), steps.sum(axis=0))
    assert torch.equal(logits, before)


def test_numbers_wider_than_float64_are_read_as_float64() -> None:
    """An entry that is rounded up, from below the bottom of the clip to the top of its row, is live."""
    logits = np.full((3, 9), -np.inf, dtype=np.longdouble)
    logits[:, 0] = 2.0**40
    logits[:, 1] = logits[:, 0] - 2.0**-17
    live, middle = LogitRows(logits, clipped_rows.GRID).middle(range(3))
    assert live.tolist() == [0, 1]
    assert np.array_equal(middle, np.ones((3, 2)))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("way", ["numpy", *DEVICES])
def test_what_is_no_logit_is_refused(wrong: float, way: str) -> None:
    logits = batch("random", 3)
    logits[1, slice(None) if wrong == -np.inf else 7] = wrong
    with pytest.raises(ValueError, match="at least one finite entry per row and none at"):
        rows_of(way, logits)
    with pytest.raises(ValueError, match=r"shape \(records, vocabulary\), not \(2, 0\)"):
        rows_of(way, np.empty((2, 0), dtype=np.float32))


@pytest.mark.grid("way", "kind", "size")
@pytest.mark.parametrize("way", ["numpy", *DEVICES])
@pytest.mark.parametrize("kind", ["random", "flat", "tied", "one", "agreeing"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 33])
def test_costs_and_losses_are_those_of_the_whole_batch(way: str, kind: str, size: int) -> None:
    """Medians to the bit; costs and losses to within `slack`, which bounds the difference of any two ways to add up."""
    logits = batch(kind, size)
    whole = Medians.of_rows(StepRows(clip_steps(logits, CLIP), CLIP), clip=CLIP)
    here = Medians.of_rows(rows_of(way, logits), clip=CLIP)
    assert np.array_equal(here.median, whole.median)
    assert np.array_equal(here.left, whole.left)
    assert np.array_equal(here.right, whole.right)
    error = 2 * slack(logits.shape[1], CLIP, 1.5)
    for token in {0, int(np.argmax(whole.median)), logits.shape[1] - 1}:
        for relation in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
            result = here.costs(token, 1.5, relation)
            assert result == pytest.approx(whole.costs(token, 1.5, relation), abs=error, rel=0)
        assert here.leave_one_out(token, 1.5) == pytest.approx(whole.leave_one_out(token, 1.5), abs=error, rel=0)


RUNS: list[dict[str, Any]] = [
    {},
    {"adjacency": Adjacency.REPLACE_ONE},
    {"records_per_context": 2, "batch_size": 2},
    {"variant": "as_published"},
    {"aggregate": "mean"},
    {"aggregate": "mean", "denominator": 5, "anchor": True},
    {"aggregate": "none"},
    {"center": "public", "clip": 3.0},
    {"center": "public", "clip": 3.0, "adjacency": Adjacency.REPLACE_ONE},
    {"center": "public", "clip": 3.0, "aggregate": "mean"},
    {"center": "public", "clip": 2.0, "top_k": 2},
    {"center": "public", "clip": 2.0, "top_k": 2, "aggregate": "mean"},
]


@pytest.mark.grid
@pytest.mark.parametrize("changes", RUNS, ids=str)
def test_runs_are_the_same_wherever_rows_are_aggregated(
    changes: dict[str, Any], table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same tokens, costs to the bit, and observers see the same, in numpy and in torch."""
    chosen, model = mechanism(**changes), table_model(vocabulary=9)
    seen = []
    for way in ("numpy", "torch"):
        if way == "torch":
            monkeypatch.setattr(aggregation, "clipped_rows", DeviceRows)
            monkeypatch.setattr(aggregation, "centred_rows", CentredDeviceRows)
        watcher = Watcher()
        generation = write(chosen, model, runs.begin(chosen, noise="recorded"), observers=[watcher])
        seen.append((generation, watcher))
    (item, first), (other, second) = seen
    assert item.transcript == other.transcript
    if item.token_costs is not None:
        assert other.token_costs is not None
        assert np.array_equal(item.token_costs, other.token_costs, equal_nan=True)
    for a, b in zip(first.steps, second.steps, strict=True):
        assert np.array_equal(a["clipped"], b["clipped"])
        assert a["log_probability"] == b["log_probability"]


@pytest.mark.grid
@pytest.mark.parametrize("changes", RUNS[:6], ids=str)
def test_a_batch_is_given_whole_only_to_those_who_look(
    changes: dict[str, Any], table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, model = mechanism(**changes), table_model()
    asked: list[LogitRows] = []
    original = LogitRows.steps
    # Rows as short as these are summed by clipping all of them: for the sums let them count as long.
    monkeypatch.setattr(clipped_rows, "MIN_SPARSE", 1)

    def watched(rows: LogitRows) -> Any:
        asked.append(rows)
        return original(rows)

    monkeypatch.setattr(LogitRows, "steps", watched)
    write(chosen, model, runs.begin(chosen, noise="recorded"))
    assert not asked
    write(chosen, model, runs.begin(chosen, noise="recorded"), observers=[Watcher()])
    assert asked
