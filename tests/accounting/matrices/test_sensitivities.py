"""Sensitivities of strategy matrices, by exhaustive sets of steps and signs, and beside published numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from dpassay.accounting import account
from dpassay.accounting.conversions import formulas
from dpassay.accounting.matrices import (
    Cyclic,
    Separated,
    Toeplitz,
    buffered_toeplitz,
    cyclic_poisson_event,
    matrix_event,
    read_matrix,
    sensitivity,
)
from dpassay.accounting.matrices import sensitivities as module
from dpassay.accounting.matrices.participation import Participation

Array = NDArray[np.float64]
FOUR = np.array([[1.0, 0, 0, 0], [2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, -6]])


def sets_of_steps(steps: int, participation: Participation) -> list[tuple[int, ...]]:
    """All allowed sets, one by one from their definition."""
    if isinstance(participation, Cyclic):
        return [tuple(range(first, steps, participation.period)) for first in range(min(steps, participation.period))]
    most = participation.participations or steps
    return [
        chosen
        for size in range(1, min(most, steps) + 1)
        for chosen in itertools.combinations(range(steps), size)
        if all(later - earlier >= participation.separation for earlier, later in itertools.pairwise(chosen))
    ]


def by_signs(matrix: Array, sets: Sequence[tuple[int, ...]]) -> float:
    """The sensitivity to numbers: every set of steps, every choice of −1 and 1."""
    return max(
        float(np.linalg.norm(matrix[:, list(chosen)] @ np.array(signs)))
        for chosen in sets
        for signs in itertools.product([1.0, -1.0], repeat=len(chosen))
    )


def by_vectors(matrix: Array, sets: Sequence[tuple[int, ...]], generator: np.random.Generator) -> float:
    """The most that is found for vectors of three dimensions: each in turn points where the others push it."""
    best = 0.0
    for chosen in sets:
        columns = matrix[:, list(chosen)]
        gram = columns.T @ columns
        vectors = generator.normal(size=(len(chosen), 3))
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
        for index in list(range(len(chosen))) * 20:
            pull = gram[index] @ vectors - gram[index, index] * vectors[index]
            if np.linalg.norm(pull) > 1e-12:
                vectors[index] = pull / np.linalg.norm(pull)
        best = max(best, float(np.linalg.norm(columns @ vectors)))
    return best


def small_matrices(generator: np.random.Generator) -> Iterator[Array]:
    for steps in range(1, 7):
        yield np.tril(generator.normal(size=(steps, steps)))
        yield np.abs(generator.normal(size=(steps, steps)))
        yield np.tril(np.triu(generator.normal(size=(steps, steps)), -1))
        yield generator.integers(-1, 2, size=(steps + 3, steps)).astype(float)
        yield Toeplitz(np.sort(generator.random(steps))[::-1], steps).dense()


def participations(steps: int) -> list[Participation]:
    separated = [Separated(most, gap) for most in (None, 1, 2, 3) for gap in range(1, steps + 1)]
    return [*separated, *(Cyclic(period) for period in range(1, steps + 1))]


@pytest.mark.parametrize("limit", [10**6, 0], ids=["all sets", "bounds alone"])
def test_every_set_of_steps_and_every_sign(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """What is attained is between both ends; where it is exact, signs attain it. With and without enumeration in the
    code itself."""
    monkeypatch.setattr(module, "_MAX_ALL", limit)
    generator = np.random.default_rng(0)
    exact = asked = 0
    for _ in range(2):
        for matrix in small_matrices(generator):
            for participation in participations(matrix.shape[1]):
                sets = sets_of_steps(matrix.shape[1], participation)
                result = sensitivity(matrix, participation)
                attained = by_signs(matrix, sets)
                assert result.lower <= attained * (1 + 1e-12)  # rounding of the enumeration
                assert attained <= result.value * (1 + 1e-14)
                assert by_vectors(matrix, sets[-4:], generator) <= result.value * (1 + 1e-12)
                assert result.exact == ("upper bound" not in result.reason)
                if result.exact:
                    assert attained == pytest.approx(result.value, rel=2e-9)
                exact, asked = exact + result.exact, asked + 1
    assert asked > 1000
    assert exact > 0.85 * asked


def test_another_record_moves_a_release_twice_as_far() -> None:
    """Under replace_one: both records in steps of their own, every set of steps and every sign of each."""
    generator = np.random.default_rng(4)
    for matrix in (FOUR, np.tril(np.ones((4, 4))), np.tril(generator.normal(size=(4, 4)))):
        for participation in (Separated(1), Separated(2, 2), Cyclic(2)):
            moves = []
            for chosen in sets_of_steps(4, participation):
                for signs in itertools.product([1.0, -1.0], repeat=len(chosen)):
                    moves.append(matrix[:, list(chosen)] @ np.array(signs))
            furthest = max(float(np.linalg.norm(one - other)) for one in moves for other in moves)
            result = sensitivity(matrix, participation)
            assert furthest <= 2 * result.value * (1 + 1e-14)
            assert not result.exact or furthest == pytest.approx(2 * result.value, rel=2e-9)


def test_vectors_may_cost_more_than_signs() -> None:
    """Three columns at 120° of each other: vectors in the plane reach 1.5·√2, signs 2, and the bound is √6."""
    matrix = np.array([[1.0, -0.5, -0.5], [0.0, math.sqrt(0.75), -math.sqrt(0.75)]])
    result = sensitivity(matrix, Separated(3))
    sets = sets_of_steps(3, Separated(3))
    assert by_signs(matrix, sets) == pytest.approx(2)
    assert by_vectors(matrix, sets, np.random.default_rng(1)) == pytest.approx(1.5 * math.sqrt(2))
    assert (result.value, result.lower) == pytest.approx((math.sqrt(6), 2))
    assert not result.exact
    assert "opposite signs" in result.reason


def test_toeplitz_strategies_without_their_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_DENSE_TOEPLITZ", 0)
    generator = np.random.default_rng(2)
    for steps in range(1, 7):
        falling = np.sort(generator.random(steps))[::-1]
        for coefficients in (falling, falling * (-1.0) ** np.arange(steps), generator.normal(size=steps)):
            strategy = Toeplitz(coefficients, steps)
            for participation in participations(steps):
                result = sensitivity(strategy, participation)
                attained = by_signs(strategy.dense(), sets_of_steps(steps, participation))
                assert result.lower <= attained * (1 + 1e-12)
                assert attained <= result.value * (1 + 1e-14)
                assert result.exact or coefficients is not falling


def test_published_numbers() -> None:
    """Of the tests of jax_privacy: `sensitivity_test.py`, dense and banded matrices."""
    assert sensitivity(FOUR, Separated(1)).value == pytest.approx(6)
    assert sensitivity(np.array([[3.0]]), Separated(1)).value == pytest.approx(3)
    for gap in (2, 3):
        assert sensitivity(FOUR, Separated(None, gap)).value == pytest.approx(math.sqrt(41))
    for epochs in (1, 2, 4, 8, 16):
        assert sensitivity(np.eye(16), Cyclic(16 // epochs)).value == pytest.approx(math.sqrt(epochs))
    diagonal = np.diag([0.0, 3, 0, 1, 2])
    assert sensitivity(diagonal, Separated(None, 2)).value == pytest.approx(math.sqrt(13))
    assert sensitivity(diagonal, Separated(1, 2)).value == pytest.approx(3)
    dense = np.array([[1.0, 0, 0, 0], [2, 1, 0, 0], [0.5, 1, 1, 0], [0.4, 0, 1, -6]])
    assert sensitivity(dense, Separated()).value == pytest.approx(math.sqrt(np.abs(dense.T @ dense).sum()))


def bound_by_rows(matrix: Array, participation: Separated) -> float:
    """The bound of jax_privacy, `get_min_sep_sensitivity_upper_bound`, by enumeration: rows choose their own sets."""
    sets = sets_of_steps(matrix.shape[1], participation)
    gram = np.abs(matrix.T @ matrix)
    rows = [max(row[list(chosen)].sum() for chosen in sets) for row in gram]
    return math.sqrt(max(sum(rows[step] for step in chosen) for chosen in sets))


def test_a_bound_is_never_above_that_of_jax_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ALL", 0)
    generator = np.random.default_rng(3)
    for matrix in small_matrices(generator):
        for participation in participations(matrix.shape[1]):
            if isinstance(participation, Separated):
                assert sensitivity(matrix, participation).value <= bound_by_rows(matrix, participation) * (1 + 1e-12)


@pytest.mark.parametrize("limits", [(10**6, 4 * 10**9), (0, 4 * 10**9), (0, 2000)], ids=["all", "rows", "large"])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1), st.integers(2, 24), st.integers(1, 6), st.integers(1, 6))
def test_more_room_never_costs_less(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], seed: int, steps: int, most: int, gap: int
) -> None:
    """More separation and fewer participations never cost more, nor does a part of the columns."""
    monkeypatch.setattr(module, "_MAX_ALL", limits[0])
    monkeypatch.setattr(module, "_MAX_WORK", limits[1])
    generator = np.random.default_rng(seed)
    matrix = np.tril(generator.normal(size=(steps, steps))) * generator.integers(0, 2, size=(steps, steps))
    base = sensitivity(matrix, Separated(most, gap))
    room = 1 + 1e-12
    assert sensitivity(matrix, Separated(most, gap + 1)).value <= base.value * room
    assert base.value <= sensitivity(matrix, Separated(most + 1, gap)).value * room
    assert sensitivity(matrix[:, : steps // 2 + 1], Separated(most, gap)).value <= base.value * room
    assert sensitivity(matrix, Cyclic(gap)).value <= sensitivity(matrix, Separated(None, gap)).value * room
    assert base.lower <= base.value
    scaled = sensitivity(matrix * 2.0**90, Separated(most, gap))
    assert (scaled.value, scaled.lower) == (base.value * 2.0**90, base.lower * 2.0**90)


def test_square_root_strategies_in_many_digits() -> None:
    """The square root of the matrix of prefix sums: coefficients binom(2r, r)/4^r, in 40 digits."""
    steps, gap, most = 300, 40, 5
    with mpmath.workdps(40):
        exact = [mpmath.binomial(2 * lag, lag) / mpmath.mpf(4) ** lag for lag in range(steps)]
        sums = [mpmath.fsum(exact[t - j * gap] for j in range(most) if t >= j * gap) for t in range(steps)]
        squared = mpmath.fsum(value**2 for value in sums)
    result = sensitivity(Toeplitz([float(value) for value in exact], steps), Separated(most, gap))
    assert result.exact
    assert result.value == pytest.approx(float(mpmath.sqrt(squared)), rel=1e-12)


@pytest.mark.parametrize(("scales", "decays"), [([0.2, 0.1], [0.9, 0.5]), ([0.5, -0.2], [0.99, 0.3]), ([0.3], [1.0])])
def test_buffered_strategies_in_many_digits(scales: list[float], decays: list[float]) -> None:
    steps, gap, most = 200, 20, 4
    with mpmath.workdps(40):
        pairs = [(mpmath.mpf(scale), mpmath.mpf(decay)) for scale, decay in zip(scales, decays, strict=True)]
        exact = [mpmath.mpf(1), *(mpmath.fsum(w * d ** (lag - 1) for w, d in pairs) for lag in range(1, steps))]
        sums = [mpmath.fsum(exact[t - j * gap] for j in range(most) if t >= j * gap) for t in range(steps)]
        squared = mpmath.sqrt(mpmath.fsum(value**2 for value in sums))
        strategy = buffered_toeplitz(scales, decays, steps)
        errors = [abs(mpmath.mpf(float(c)) - e) for c, e in zip(strategy.coefficients, exact, strict=True)]
        assert all(error <= float(slack) for error, slack in zip(errors, strategy.slack, strict=True))
        result = sensitivity(strategy, Separated(most, gap))
        assert result.lower <= squared <= result.value
    assert result.exact


def test_products_that_cancel_are_rounded_up() -> None:
    """Columns whose product is 0 but for rounding: the value still covers the exact sensitivity, in fractions."""
    matrix = np.array([[1.0, 0.1], [0.1, -1.0], [3e-9, 1.0]])
    with mpmath.workdps(40):
        a, b = ([mpmath.mpf(float(x)) for x in column] for column in matrix.T)
        product = abs(mpmath.fsum(x * y for x, y in zip(a, b, strict=True)))
        exact = mpmath.sqrt(mpmath.fsum([x * x for x in (*a, *b)]) + 2 * product)
        result = sensitivity(matrix, Separated(2))
        assert result.lower <= exact <= result.value
    assert result.exact


# --- adaptive contributions


def adaptive_delta(choose: Callable[[float], float], epsilon: float, *, noise: float) -> float:
    """δ of two rows, Y₁ = u₁ + σZ₁ and Y₂ = c·u₁ + u₂(Y₁) + σZ₂ with numbers u, by quadrature over Y₁."""
    y = np.linspace(-14 * noise, 14 * noise, 40_001)
    step = y[1] - y[0]
    first = 1.0
    loss = (first * y - first**2 / 2) / noise**2
    moved = np.array([choose(value) for value in y])
    spread = np.abs(moved) / noise
    rest = epsilon - loss
    with np.errstate(divide="ignore", invalid="ignore"):
        at = rest / spread
        p = np.where(spread > 0, special.ndtr(spread / 2 - at), rest <= 0)
        q = np.where(spread > 0, special.ndtr(-spread / 2 - at), rest <= 0)

    def density(mean: float) -> Array:
        return np.asarray(np.exp(-((y - mean) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi)))

    return float(((density(first) * p - math.exp(epsilon) * density(0.0) * q) * step).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_contributions_that_are_chosen_from_what_was_released(epsilon: float) -> None:
    """No choice of the second contribution beats one Gaussian at the sensitivity, and the fixed one attains it."""
    noise, below = 2.0, 0.5
    matrix = np.array([[1.0, 0.0], [below, 1.0]])
    result = sensitivity(matrix, Separated(2))
    assert result.value == pytest.approx(math.hypot(1, 1 + below))
    event = matrix_event(noise, result)
    limit = formulas.delta_from_gdp(1 / event.noise_multiplier, epsilon)
    choices: dict[str, Callable[[float], float]] = {
        "fixed": lambda y: below + 1.0,
        "opposite": lambda y: below - 1.0,
        "by sign": lambda y: below + (1.0 if y > 0.5 else -1.0),
        "only if high": lambda y: below + (1.0 if y > 1.0 else 0.0),
        "by size": lambda y: below + math.tanh(y),
    }
    attained = {name: adaptive_delta(choose, epsilon, noise=noise) for name, choose in choices.items()}
    assert max(attained.values()) <= limit * (1 + 1e-6)
    assert attained["fixed"] == pytest.approx(limit, rel=1e-6)
    assert attained["by sign"] < attained["fixed"]


# --- events


def test_events_of_matrices() -> None:
    event = matrix_event(2.0, sensitivity(FOUR, Separated(None, 2)))
    assert event.noise_multiplier == pytest.approx(2 / math.sqrt(41))
    assert event.noise_multiplier <= 2 / math.sqrt(41)
    assert math.isinf(
        account(matrix_event(0.0, sensitivity(FOUR, Separated(1))), adjacency="zero_out", delta=0.1).value
    )
    assert account(matrix_event(1.0, sensitivity(0 * FOUR, Separated(1))), adjacency="zero_out", delta=0.1).value == 0


def test_cyclic_samples_of_bands() -> None:
    """As jax_privacy counts it: ⌈n/b⌉ sampled Gaussians, where columns have norm 1."""
    strategy = Toeplitz([0.8, 0.6], 7)
    event = cyclic_poisson_event(3.0, strategy, 0.1)
    assert (event.count, event.event.sampling_probability) == (4, 0.1)
    assert event.event.event.noise_multiplier == pytest.approx(3.0)
    assert cyclic_poisson_event(3.0, strategy.dense(), 0.1, 3).count == 3
    with pytest.raises(ValueError, match="at most 1 bands, not 2"):
        cyclic_poisson_event(3.0, strategy, 0.1, 1)
    with pytest.raises(ValueError, match="lower triangular"):
        cyclic_poisson_event(3.0, strategy.dense().T, 0.1)


# --- what is no matrix


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least one row"),
        ([1.0, 2.0], "at least one row"),
        ([[1.0, math.nan]], "finite"),
        ([["a"]], "numbers"),
        ([[1e200]], "below 2"),
    ],
)
def test_strategies_that_are_none(values: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sensitivity(np.array(values), Separated(1))


def test_matrices_in_files(tmp_path: Path) -> None:
    np.save(tmp_path / "four.npy", FOUR)
    np.savetxt(tmp_path / "four.csv", FOUR, delimiter=",")
    for name in ("four.npy", "four.csv"):
        assert (read_matrix(tmp_path / name) == FOUR).all()
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    np.save(tmp_path / "complex.npy", np.zeros((2, 2), dtype=complex))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "four.npy").read_bytes()[:-9])
    (tmp_path / "words.csv").write_text("1,secret\n2,3\n")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "empty.csv").write_text("")
    for name in ("pickled.npy", "cube.npy", "complex.npy", "cut.npy", "words.csv", "ragged.csv", "empty.csv"):
        with pytest.raises(ValueError, match=name) as error:
            read_matrix(tmp_path / name)
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"\.npy or a \.csv"):
        read_matrix(tmp_path / "four.txt")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match="regular file"):
        read_matrix(tmp_path / "folder.npy")
    with pytest.raises(OSError, match="four"):
        read_matrix(tmp_path / "fours.npy")
