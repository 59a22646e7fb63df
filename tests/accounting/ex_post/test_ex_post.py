"""Ex-post costs against the definition: medians and softmax in plain loops, every neighbour that matters enumerated."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import ex_post
from dpassay.accounting.adjacency import Adjacency

Row = tuple[float, ...]
CLIP, TEMPERATURE = 6.0, 1.5
FLOAT = 1e-12  # float64 error of log-probabilities over at most 5 tokens: `slack` is below 4e-14, sums of 4 below 1e-12


# --- the oracle: written from the definitions, sharing nothing with the code it checks


def log_law(rows: Sequence[Row], token: int, fallback: Row, temperature: float = TEMPERATURE) -> float:
    """Log-probability of `token` when the batch `rows` (clipped) releases it."""
    middle = [statistics.median(column) for column in zip(*rows, strict=True)] if rows else list(fallback)
    with mpmath.workdps(40):
        total = mpmath.fsum(mpmath.exp(mpmath.mpf(z) / temperature) for z in middle)
        return float(mpmath.mpf(middle[token]) / temperature - mpmath.log(total))


def corners(vocabulary: int, clip: float) -> Iterator[Row]:
    """Every vector with entries ±clip that some logit vector is clipped to: its largest entry is +clip."""
    return (row for row in itertools.product((-clip, clip), repeat=vocabulary) if max(row) == clip)


def neighbours(rows: Sequence[Row], adjacency: str, added: Sequence[Row]) -> Iterator[list[Row]]:
    """All removals and the additions of `added`, or all exchanges with a row of `added`."""
    without = [[*rows[:i], *rows[i + 1 :]] for i in range(len(rows))]
    if adjacency == "add_remove":
        yield from without
        yield from ([*rows, row] for row in added)
    else:
        yield from ([*rest, row] for rest in without for row in added)


def brute_force(
    rows: Sequence[Row], token: int, adjacency: str, fallback: Row, added: Sequence[Row]
) -> tuple[float, float]:
    """(u⁻, u⁺) over the enumerated neighbours."""
    base = log_law(rows, token, fallback)
    others = [log_law(rows_, token, fallback) for rows_ in neighbours(rows, adjacency, added)]
    return max([base - other for other in others] + [0.0]), max([other - base for other in others] + [0.0])


def clipped_row(logits: Sequence[float]) -> Row:
    """The clip from its definition, on logits that are exact on the grid."""
    return tuple(max(-CLIP, z - max(logits) + CLIP) for z in logits)


# --- small random batches

value = st.one_of(
    st.integers(-6, 6).map(float), st.floats(-14, 14, width=16)
)  # ties are common; width 16 is on the grid


@st.composite
def batches(draw: st.DrawFn, smallest: int = 0) -> tuple[list[Row], Row, int]:
    """Clipped rows (0 to 5 of 2 to 4 tokens), a clipped fallback and a token."""
    vocabulary = draw(st.integers(2, 4))
    row = st.lists(value, min_size=vocabulary, max_size=vocabulary).map(clipped_row)
    rows = draw(st.lists(row, min_size=smallest, max_size=5))
    return rows, draw(row), draw(st.integers(0, vocabulary - 1))


def as_array(rows: Sequence[Row], fallback: Row) -> np.ndarray:
    return np.array(rows, dtype=float).reshape(len(rows), len(fallback))


KEYWORDS: dict[str, Any] = {"clip": CLIP, "temperature": TEMPERATURE}

# --- known values

V1 = [(6, -6), (6, -6), (0, 6)]
V2 = [(-6, 6), (0, 6), (0, 6), (6, 6)]
V3 = [(6, 2, -1), (5, 6, 0), (6, 3, 1), (4, 6, -3)]


@pytest.mark.parametrize(
    ("rows", "token", "published", "add_remove", "replace_one"),
    [
        (V1, 0, 4.692812, 0.126593, 4.017815),
        (V1, 1, 11.982185, 5.873407, 7.982185),
        (V2, 0, 0.0, 0.0, 1.984326),
        (V3, 0, 0.942530, 0.666667, 0.905377),
    ],
)
def test_known_costs(rows: list[Row], token: int, published: float, add_remove: float, replace_one: float) -> None:
    """Vectors computed independently, to the six digits they were given with."""
    assert ex_post.gamma(rows, token, **KEYWORDS) == pytest.approx(published, abs=1e-6)
    assert ex_post.gamma_star(rows, token, **KEYWORDS) == pytest.approx(add_remove, abs=1e-6)
    assert ex_post.gamma_star(rows, token, adjacency="replace_one", **KEYWORDS) == pytest.approx(replace_one, abs=1e-6)


def test_empty_batch_with_a_flat_fallback() -> None:
    empty = np.zeros((0, 3))
    for fallback in ((6.0, 6.0, 6.0), None):
        cost = ex_post.gamma_star(empty, 0, fallback=fallback, **KEYWORDS)
        assert cost == pytest.approx(7.594703, abs=1e-6)


def test_replacement_is_the_maximum_over_rows_and_not_its_hull() -> None:
    assert ex_post.gamma_star(V3, 2, adjacency="replace_one", **KEYWORDS) == pytest.approx(1.450048, abs=1e-6)
    hull = ex_post.Medians.of(ex_post.clip_logits(V3, CLIP), clip=CLIP, adjacency="replace_one")
    corner = np.where(np.arange(3) == 2, hull.right, hull.left)
    high = log_law([tuple(corner)], 2, ()) - log_law([tuple(hull.median)], 2, ())
    corner = np.where(np.arange(3) == 2, hull.left, hull.right)
    low = log_law([tuple(hull.median)], 2, ()) - log_law([tuple(corner)], 2, ())
    assert max(high, low) == pytest.approx(1.602492, abs=1e-6)


def test_the_published_cost_is_violated_under_replacement() -> None:
    """An even batch whose published γ is 0 although exchanging one row moves the token's log-probability by 1.98."""
    exchanged = [*V2[:3], (-6.0, 6.0)]
    shift = log_law(V2, 0, ()) - log_law(exchanged, 0, ())
    assert abs(shift) > 1 > ex_post.gamma(V2, 0, **KEYWORDS)


# --- properties


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@examples(60, 150)
@given(batch=batches())
def test_costs_are_the_worst_neighbour(adjacency: str, batch: tuple[list[Row], Row, int]) -> None:
    """u⁻ and u⁺ equal the enumeration of every removal and every corner added (or exchanged), so they are attained."""
    rows, fallback, token = batch
    costs = ex_post.token_costs(
        as_array(rows, fallback), [token], adjacency=adjacency, fallback=np.array(fallback), **KEYWORDS
    )
    worst = brute_force(rows, token, adjacency, fallback, list(corners(len(fallback), CLIP)))
    assert costs.u_minus[0] == pytest.approx(worst[0], abs=FLOAT)
    assert costs.u_plus[0] == pytest.approx(worst[1], abs=FLOAT)
    assert costs.u_minus[0] >= worst[0]
    assert costs.u_plus[0] >= worst[1]


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@examples(60, 100)
@given(batch=batches(), data=st.data())
def test_no_neighbour_costs_more(adjacency: str, batch: tuple[list[Row], Row, int], data: st.DataObject) -> None:
    """Added vectors that are no corners: their realised log-ratio is at most γ*."""
    rows, fallback, token = batch
    row = st.lists(value, min_size=len(fallback), max_size=len(fallback)).map(clipped_row)
    added = data.draw(st.lists(row, min_size=1, max_size=4))
    costs = ex_post.token_costs(
        as_array(rows, fallback), [token], adjacency=adjacency, fallback=np.array(fallback), **KEYWORDS
    )
    minus, plus = brute_force(rows, token, adjacency, fallback, added)
    assert minus <= costs.u_minus[0]
    assert plus <= costs.u_plus[0]


@examples(67, 200)
@given(batch=batches())
def test_published_cost_is_at_least_the_exact_one(batch: tuple[list[Row], Row, int]) -> None:
    """γ* ≤ γ under add_remove. The paper defines γ for two rows or more; with ±c as the missing middle values it holds
    for none and one as well, because a fallback lies in [−c, c] too."""
    rows, fallback, token = batch
    keywords = KEYWORDS | {"fallback": np.array(fallback)}
    array = as_array(rows, fallback)
    assert ex_post.gamma_star(array, token, **keywords) <= ex_post.gamma(array, token, **keywords) + FLOAT


@examples(67, 200)
@given(batch=batches(smallest=1))
def test_leave_one_out_is_recomputation_and_never_exceeds_the_cost(batch: tuple[list[Row], Row, int]) -> None:
    rows, fallback, token = batch
    keywords = KEYWORDS | {"fallback": np.array(fallback)}
    array = as_array(rows, fallback)
    losses = ex_post.leave_one_out(array, token, **keywords)
    base = log_law(rows, token, fallback)
    expected = [base - log_law([*rows[:i], *rows[i + 1 :]], token, fallback) for i in range(len(rows))]
    assert losses == pytest.approx(expected, abs=FLOAT)
    costs = ex_post.token_costs(array, [token], **keywords)
    assert max(losses) <= costs.u_minus[0]
    assert max(-losses) <= costs.u_plus[0]
    assert max(abs(losses)) <= ex_post.gamma_star(array, token, **keywords)


@settings(max_examples=60)
@given(batch=batches(smallest=1), length=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_signed_sums_bound_a_whole_batch(batch: tuple[list[Row], Row, int], length: int, seed: int) -> None:
    """Several tokens from changing batches: for every removal (or row added throughout) the sum of log-ratios is at
    most ε* in absolute value, and max(Σ u⁻, Σ u⁺) is at most Σ γ*."""
    rows, fallback, _ = batch
    public = random.Random(seed)
    vocabulary, size = len(fallback), len(rows)
    steps = [
        [clipped_row([public.uniform(-9, 9) for _ in range(vocabulary)]) for _ in range(size)] for _ in range(length)
    ]
    steps = [[tuple(float(np.float16(z)) for z in row) for row in step] for step in steps]
    tokens = [public.randrange(vocabulary) for _ in range(length)]
    costs = ex_post.token_costs(np.array(steps), tokens, fallback=np.array(fallback), **KEYWORDS)
    base = [log_law(step, token, fallback) for step, token in zip(steps, tokens, strict=True)]
    for i in range(size + 1):
        added = [clipped_row([public.choice([-20.0, 0.0, 20.0]) for _ in range(vocabulary)]) for _ in range(length)]
        total = 0.0
        for step, token, log_p, row in zip(steps, tokens, base, added, strict=True):
            other = [*step[:i], *step[i + 1 :]] if i < size else [*step, row]
            total += log_p - log_law(other, token, fallback)
        assert -costs.u_plus.sum() <= total <= costs.u_minus.sum()
        assert abs(total) <= costs.epsilon
    assert costs.epsilon <= costs.gamma_star.sum() + FLOAT
    assert costs.gamma_star.sum() <= costs.gamma.sum() + FLOAT


@settings(max_examples=60)
@given(batch=batches(smallest=1), seed=st.integers(0, 10**6))
def test_order_of_rows_and_of_tokens_does_not_matter(batch: tuple[list[Row], Row, int], seed: int) -> None:
    rows, fallback, token = batch
    shuffled = random.Random(seed).sample(rows, len(rows))
    turn = np.random.default_rng(seed).permutation(len(fallback))
    for adjacency in ("add_remove", "replace_one"):
        first = ex_post.gamma_star(as_array(rows, fallback), token, adjacency=adjacency, **KEYWORDS)
        assert first == ex_post.gamma_star(as_array(shuffled, fallback), token, adjacency=adjacency, **KEYWORDS)
        renamed = as_array(rows, fallback)[:, turn]
        moved = int(np.flatnonzero(turn == token)[0])
        assert ex_post.gamma_star(renamed, moved, adjacency=adjacency, **KEYWORDS) == pytest.approx(first, abs=FLOAT)


@settings(max_examples=60)
@given(batch=batches(), factor=st.sampled_from([2.0, 4.0]))
def test_a_change_of_unit_changes_nothing(batch: tuple[list[Row], Row, int], factor: float) -> None:
    """Logits, clip and temperature times the same factor give the same law (whole factors keep logits on the grid)."""
    rows, fallback, token = batch
    array = as_array(rows, fallback)
    for adjacency in ("add_remove", "replace_one"):
        item = ex_post.gamma_star(array, token, adjacency=adjacency, fallback=np.array(fallback), **KEYWORDS)
        other = ex_post.gamma_star(
            array * factor,
            token,
            adjacency=adjacency,
            fallback=np.array(fallback) * factor,
            clip=CLIP * factor,
            temperature=TEMPERATURE * factor,
        )
        assert other == pytest.approx(item, abs=FLOAT)


@pytest.mark.parametrize("size", range(8))
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_no_cost_exceeds_the_a_priori_range(size: int, adjacency: str) -> None:
    """A token's cost is at most 4c/τ whatever happens, the worst case that is charged before sampling."""
    generator = np.random.default_rng(size)
    for _ in range(50):
        logits = generator.choice([-30.0, -3.0, 0.0, 3.0, 30.0], size=(size, 5))
        fallback = generator.choice([-30.0, 0.0, 30.0], size=5)
        costs = ex_post.token_costs(logits, range(5), adjacency=adjacency, fallback=fallback, **KEYWORDS)
        assert costs.gamma_star.max() <= 4 * CLIP / TEMPERATURE


def test_agreement_is_free_and_halves_odd_batches() -> None:
    """Three equal rows leave no cost; in a large odd batch γ* is about half of γ."""
    assert ex_post.gamma_star([(3, 1, 0)] * 3, 1, **KEYWORDS) <= ex_post.slack(3, CLIP, TEMPERATURE)
    logits = np.random.default_rng(1).normal(scale=2, size=(63, 200))
    costs = ex_post.token_costs(logits, range(200), **KEYWORDS)
    assert costs.gamma.sum() / costs.gamma_star.sum() == pytest.approx(2, rel=0.1)


# --- large vocabularies, numerics, interface


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
def test_upper_bounds_hold_against_exact_arithmetic(size: int) -> None:
    """5000 tokens: the float64 costs are at least the 40-digit ones, and no more than twice `slack` above."""
    generator = np.random.default_rng(size)
    clipped = ex_post.clip_logits(generator.normal(scale=4, size=(size, 5000)), CLIP)
    medians = ex_post.Medians.of(clipped, clip=CLIP)
    room = 2 * ex_post.slack(5000, CLIP, TEMPERATURE)
    assert room < 1e-10
    with mpmath.workdps(40):
        tau = mpmath.mpf(TEMPERATURE)

        def log_p(logits: np.ndarray, token: int) -> mpmath.mpf:
            return mpmath.mpf(float(logits[token])) / tau - mpmath.log(
                mpmath.fsum(mpmath.exp(mpmath.mpf(float(z)) / tau) for z in logits)
            )

        token = int(np.argmax(medians.median))
        low, high = medians.right.copy(), medians.left.copy()
        low[token], high[token] = medians.left[token], medians.right[token]
        base = log_p(medians.median, token)
        lowest, highest = log_p(low, token), log_p(high, token)
        if size == 1:
            fallen = log_p(np.full(5000, CLIP), token)
            lowest, highest = min(lowest, fallen), max(highest, fallen)
        cost = medians.costs(token, TEMPERATURE)
        assert 0 <= cost.u_minus - (base - lowest) <= room
        assert 0 <= cost.u_plus - (highest - base) <= room


def test_clip_is_the_definition_on_the_grid() -> None:
    logits = np.random.default_rng(0).normal(scale=8, size=(3, 4, 50)).astype(np.float32)
    clipped = ex_post.clip_logits(logits, CLIP)
    exact = np.maximum(-CLIP, logits.astype(float) - logits.max(axis=-1, keepdims=True).astype(float) + CLIP)
    assert clipped.shape == logits.shape
    assert np.abs(clipped - exact).max() <= ex_post.GRID / 2
    assert np.array_equal(clipped / ex_post.GRID, np.rint(clipped / ex_post.GRID))
    assert clipped.max() == CLIP
    assert clipped.min() == -CLIP
    assert np.array_equal(ex_post.clip_logits(clipped, CLIP), clipped)


def test_a_clip_off_the_grid_is_rounded_down() -> None:
    clipped = ex_post.clip_logits([[0.0, -9.0, -0.25]], 0.3)
    assert -0.3 <= clipped.min() < clipped.max() <= 0.3
    assert Fraction(float(clipped.max())) == math.floor(Fraction(0.3) * 2**24) / Fraction(2**24)
    assert ex_post.gamma_star([[0.0, -9.0, -0.25]], 1, clip=0.3, temperature=1.0) <= 4 * 0.3


def test_minus_infinity_is_the_bottom_of_the_clip() -> None:
    assert ex_post.clip_logits([0.0, -math.inf], CLIP).tolist() == [CLIP, -CLIP]


def test_costs_of_one_batch_and_of_one_batch_a_token_agree() -> None:
    logits = np.random.default_rng(3).normal(size=(5, 9))
    item = ex_post.token_costs(logits, [0, 4, 8], **KEYWORDS)
    many = ex_post.token_costs(np.stack([logits] * 3), [0, 4, 8], **KEYWORDS)
    for name in ("u_minus", "u_plus", "gamma"):
        assert np.array_equal(getattr(item, name), getattr(many, name))
    losses = ex_post.leave_one_out(logits, [0, 4, 8], **KEYWORDS)
    assert losses.shape == (3, 5)
    assert np.array_equal(losses[1], ex_post.leave_one_out(logits, 4, **KEYWORDS))
    assert ex_post.token_costs(logits, [], **KEYWORDS).epsilon == 0


def test_float32_batches_cost_the_same() -> None:
    clipped = ex_post.clip_logits(np.random.default_rng(4).normal(size=(6, 30)).astype(np.float16), CLIP)
    single = clipped.astype(np.float32)
    assert np.array_equal(single, clipped)
    a, b = (ex_post.Medians.of(batch, clip=CLIP).costs(3, TEMPERATURE) for batch in (clipped, single))
    assert a == b


def test_rounding_of_the_sampled_law_is_charged_twice() -> None:
    medians = ex_post.Medians.of(ex_post.clip_logits(V3, CLIP), clip=CLIP)
    exact, rounded = medians.costs(0, TEMPERATURE), medians.costs(0, TEMPERATURE, rounding=1e-3)
    assert rounded.u_minus - exact.u_minus == pytest.approx(2e-3)
    assert rounded.u_plus - exact.u_plus == pytest.approx(2e-3)


def test_one_object_serves_both_adjacencies() -> None:
    medians = ex_post.Medians.of(ex_post.clip_logits(V3, CLIP), clip=CLIP)
    assert medians.adjacency is Adjacency.ADD_REMOVE
    both = [medians.costs(2, TEMPERATURE, adjacency).gamma_star for adjacency in ("add_remove", "replace_one")]
    assert both == [
        ex_post.gamma_star(V3, 2, adjacency=adjacency, **KEYWORDS) for adjacency in ("add_remove", "replace_one")
    ]


def test_an_empty_batch_has_no_row_to_replace() -> None:
    cost = ex_post.Medians.of(np.zeros((0, 3)), clip=CLIP, adjacency="replace_one").costs(0, TEMPERATURE)
    assert cost.gamma_star <= ex_post.slack(3, CLIP, TEMPERATURE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ex_post.gamma(V3, 3, **KEYWORDS), "token must be between 0 and 2"),
        (lambda: ex_post.gamma(V3, -1, **KEYWORDS), "token must be between 0 and 2"),
        (lambda: ex_post.gamma(V3, 0.5, **KEYWORDS), "tokens must be a list of whole numbers"),  # type: ignore[arg-type]
        (lambda: ex_post.gamma(V3, 0, clip=0.0, temperature=1.0), "clip must be above 0"),
        (lambda: ex_post.gamma(V3, 0, clip=65.0, temperature=1.0), "clip must be between"),
        (lambda: ex_post.gamma(V3, 0, clip=6.0, temperature=0.0), "temperature must be above 0"),
        (lambda: ex_post.gamma(V3, 0, clip=6.0, temperature=0.01), "raise the temperature"),
        (lambda: ex_post.gamma([(math.nan, 1.0)], 0, **KEYWORDS), "logits must be numbers"),
        (lambda: ex_post.gamma([(math.inf, 1.0)], 0, **KEYWORDS), "logits must be numbers"),
        (lambda: ex_post.gamma(V3[0], 0, **KEYWORDS), "logits need shape"),
        (lambda: ex_post.token_costs([V1, V1], [0], **KEYWORDS), "logits need shape"),
        (lambda: ex_post.gamma_star(V3, 0, adjacency="zero_out", **KEYWORDS), "add_remove and replace_one"),
        (lambda: ex_post.gamma_star(V3, 0, fallback=[1.0], **KEYWORDS), "fallback must have shape"),
        (lambda: ex_post.Medians.of(np.array([[7.0, 0.0]]), clip=6.0), "outside"),
        (lambda: ex_post.Medians.of(np.array([[math.nan, 0.0]]), clip=6.0), "outside"),
        (lambda: ex_post.Medians.of(np.zeros(3), clip=6.0), "shape"),
    ],
)
def test_mistakes_are_explained(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
