"""What a step releases: clipped whole sums, noise of at least the stated scale, and checkpoints that are whole."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpassay.accounting.adjacency import Adjacency
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.two_stage.descent import Checkpoints, Descent, GradientGrid, clipped, clipped_sum, noisy_mean
from dpassay.mechanisms.two_stage.generator import TwoStage

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
vectors = arrays.arrays(
    np.float32, st.integers(1, 6), elements=st.floats(allow_nan=True, allow_infinity=True, width=32)
)


@given(noise=st.floats(1e-6, 1e6), adjacency=st.sampled_from([ADD_REMOVE, REPLACE_ONE]))
def test_the_noise_is_at_least_what_the_event_says(noise: float, adjacency: Adjacency) -> None:
    """Exact fractions: standard deviation over sensitivity is at least the multiplier, and at most 2⁻²² more."""
    grid = GradientGrid.of(noise, adjacency)
    moved = (2 if adjacency is REPLACE_ONE else 1) * grid.radius
    assert grid.bits is not None
    assert Fraction(noise) <= Fraction(2**grid.bits, moved) <= Fraction(noise) * (1 + Fraction(1, 2**22))


@given(gradient=vectors, clip=st.floats(1e-3, 1e3), noise=st.floats(0.1, 10))
def test_no_gradient_is_longer_than_the_radius(gradient: np.ndarray, clip: float, noise: float) -> None:
    """Whole numbers, compared exactly; a short gradient is only rounded toward zero."""
    grid = GradientGrid.of(noise, ADD_REMOVE)
    result = clipped(gradient, clip, grid)
    assert sum(int(item) ** 2 for item in result) <= grid.radius**2
    assert all(float(item).is_integer() for item in result)
    length = float(np.linalg.norm(gradient.astype(np.float64)))
    if length <= clip:
        exact = [Fraction(float(item)) * grid.radius / Fraction(clip) for item in gradient]
        assert all(abs(Fraction(float(a)) - b) <= 1 + abs(b) / 2**20 for a, b in zip(result, exact, strict=True))


def test_neighbours_move_a_sum_by_at_most_the_radius() -> None:
    """All tables that differ from one of 8 rows in one row, removed or replaced, with long and short rows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 5)) * np.geomspace(1e-3, 1e6, 8)[:, None]
    others = rng.normal(size=(3, 5)) * 100
    grid = GradientGrid.of(1.0, ADD_REMOVE)
    total = clipped_sum([rows[:3], rows[3:]], 1.0, 5, grid)
    for row in range(8):
        rest = np.delete(rows, row, axis=0)
        removed = total - clipped_sum([rest], 1.0, 5, grid)
        assert int((removed**2).sum()) <= grid.radius**2
        for other in others:
            replaced = total - clipped_sum([rest, other[None]], 1.0, 5, grid)
            assert int((replaced**2).sum()) <= (2 * grid.radius) ** 2
    worst = clipped_sum([rows[7:]], 1.0, 5, grid) - clipped_sum([-rows[7:]], 1.0, 5, grid)
    assert int((worst**2).sum()) > (1.999 * grid.radius) ** 2  # so replace_one needs twice the noise


def test_sums_do_not_depend_on_the_order_or_the_pieces() -> None:
    rows = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    grid = GradientGrid.of(0.7, ADD_REMOVE)
    sums = {tuple(clipped_sum([rows[list(order)]], 0.5, 4, grid)) for order in itertools.permutations(range(6))}
    pieces = clipped_sum(np.array_split(rows, 4), 0.5, 4, grid)
    assert sums == {tuple(pieces)}


def test_an_empty_batch_is_a_step_with_noise_only() -> None:
    grid = GradientGrid.of(2.0, ADD_REMOVE)
    total = clipped_sum([], 1.0, 50_000, grid)
    result = noisy_mean(total, 0.5, 10, grid, Recorded(0))
    assert not total.any()
    assert np.std(result) == pytest.approx(2.0 * 0.5 / 10, rel=0.02)


def test_the_noise_of_a_step_has_the_stated_scale() -> None:
    """Under replace_one it is twice that of add_remove."""
    for adjacency, factor in ((ADD_REMOVE, 1), (REPLACE_ONE, 2)):
        grid = GradientGrid.of(1.5, adjacency)
        result = noisy_mean(np.zeros(200_000, dtype=np.int64), 3.0, 1, grid, Recorded(1))
        assert np.std(result) == pytest.approx(1.5 * 3.0 * factor, rel=0.01)


def test_without_noise_the_mean_is_exact() -> None:
    grid = GradientGrid.of(0.0, ADD_REMOVE)
    total = clipped_sum([np.array([[3.0, 4.0]])], 1.0, 2, grid)
    assert noisy_mean(total, 1.0, 2, grid, Recorded(0)) == pytest.approx([0.3, 0.4], abs=1e-6)
    with pytest.raises(ValueError, match="out of range of the grid"):
        GradientGrid.of(1e-30, ADD_REMOVE)


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize("noise", [2.0**-20, 2.0**20])
def test_every_noise_that_a_claim_may_ask_for_has_a_grid(noise: float, adjacency: Adjacency) -> None:
    TwoStage(noise_multiplier=noise, records=2, batch_size=1, steps=1, adjacency=adjacency)
    grid = GradientGrid.of(noise, adjacency)
    assert grid.bits is not None
    assert 2**grid.bits >= Fraction(noise) * grid.radius * (1 if adjacency is ADD_REMOVE else 2)


@pytest.mark.parametrize("clip", [1e-30, 1e30, 1e-305])
@pytest.mark.parametrize("value", [0.0, 1e-40, 1.0, 1e38, np.inf, np.nan])
def test_no_gradient_leaves_the_clip_however_small_or_large(clip: float, value: float) -> None:
    """Also at clips that no claim may ask for, where a quotient overflows."""
    grid = GradientGrid.of(1.0, ADD_REMOVE)
    result = clipped(np.array([value, 0.0, -value]), clip, grid)
    assert sum(int(item) ** 2 for item in result) <= grid.radius**2


def little() -> tuple[torch.nn.Linear, Descent]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    return layer, Descent(dict(layer.named_parameters()), 0.1, 0.01)


def test_a_step_is_that_of_adamw() -> None:
    """Against `torch.optim.AdamW` on the same gradients."""
    layer, descent = little()
    other, _ = little()
    optimizer = torch.optim.AdamW(other.parameters(), lr=0.1, weight_decay=0.01)
    rng = np.random.default_rng(0)
    for _ in range(5):
        gradient = rng.normal(size=8)
        descent.step(gradient)
        other.weight.grad = torch.tensor(gradient[:6], dtype=torch.float32).reshape(2, 3)
        other.bias.grad = torch.tensor(gradient[6:], dtype=torch.float32)
        optimizer.step()
    assert torch.equal(layer.weight, other.weight)
    assert torch.equal(layer.bias, other.bias)


def test_a_restored_state_goes_on_as_the_saved_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(6, 8))
    layer, descent = little()
    for gradient in gradients[:3]:
        descent.step(gradient)
    checkpoints = Checkpoints(tmp_path, "checkpoint")
    sha256 = checkpoints.save(3, descent, "about")
    for gradient in gradients[3:]:
        descent.step(gradient)
    other, resumed = little()
    checkpoints.load(3, resumed, sha256)
    for gradient in gradients[3:]:
        resumed.step(gradient)
    assert torch.equal(layer.weight, other.weight)
    assert torch.equal(layer.bias, other.bias)


def test_a_missing_or_another_checkpoint_is_refused(tmp_path: Path) -> None:
    _, descent = little()
    checkpoints = Checkpoints(tmp_path, "checkpoint")
    sha256 = checkpoints.save(3, descent, "about")
    with pytest.raises(RunMismatchError, match="is missing, or is not the checkpoint"):
        checkpoints.load(4, descent, sha256)
    content = bytearray(checkpoints.path(3).read_bytes())
    content[-1] ^= 1
    checkpoints.path(3).write_bytes(content)
    with pytest.raises(RunMismatchError, match="restore it, or start a new run"):
        checkpoints.load(3, descent, sha256)


def test_the_latest_public_state_is_found_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    _, descent = little()
    checkpoints = Checkpoints(tmp_path, "first")
    assert checkpoints.latest("about") is None
    for step in (2, 10):
        checkpoints.save(step, descent, "about")
    result = checkpoints.latest("about")
    assert result is not None
    assert result[0] == 10
    assert checkpoints.latest("other settings") is None
    checkpoints.path(10).write_bytes(b"damaged")
    result = checkpoints.latest("about")
    assert result is not None
    assert result[0] == 2
    checkpoints.keep(2)
    assert [path.name for path in tmp_path.iterdir()] == ["first-2.safetensors"]
