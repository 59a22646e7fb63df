"""Scores that are fitted on outputs order them as the true likelihood ratio does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.attacks.black_box.distinguishing import OutputScore, fitted_scores, plain

NAN, INF = float("nan"), float("inf")


def named(scores: Sequence[OutputScore], name: str) -> OutputScore:
    return next(score for score in scores if name in score.name)


def test_counted_outcomes_have_the_ratio_of_their_smoothed_counts() -> None:
    (score,) = fitted_scores(["a", "a", "a", "b"], ["a", "b", "b", "c"])
    # Counts 3, 1, 0 and 1, 2, 1 with ½ added to each, and ½ for what is new: totals are equal.
    expected = [math.log(1.5 / 3.5), math.log(2.5 / 1.5), math.log(1.5 / 0.5), 0.0]
    np.testing.assert_allclose(score.of(["a", "b", "c", "new"]), expected, rtol=1e-15)


@pytest.mark.parametrize(("shift", "name"), [(1.0, "the output"), (-1.0, "minus the output")])
def test_one_number_is_its_own_score(shift: float, name: str) -> None:
    g = np.random.default_rng(0)
    scores = fitted_scores(g.normal(size=50).tolist(), (g.normal(size=50) + shift).tolist())
    assert scores[0].name == name
    assert scores[0].of([2.5, -1.0, NAN, "text"]).tolist() == [2.5 * shift, -shift, -INF, -INF]


def test_discriminants_of_vectors_approach_the_true_ratio() -> None:
    """With 5000 outputs, coefficients are off by about 1/√5000 = .014: the correlation with the truth is 1 to 1e-2."""
    g = np.random.default_rng(0)
    root = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 2.0]])
    means = np.zeros(3), np.array([0.5, -0.5, 0.3])
    sides = [g.normal(size=(5000, 3)) @ root.T + mean for mean in means]
    fresh = g.normal(size=(500, 3)) @ root.T
    truth = fresh @ np.linalg.solve(root @ root.T, means[1])
    score = named(fitted_scores(*(side.tolist() for side in sides)), "linear")
    assert np.corrcoef(score.of(fresh.tolist()), truth)[0, 1] > 0.99
    wide = [g.normal(size=(5000, 2)) * scale for scale in (1.0, 2.0)]
    fresh = g.normal(size=(500, 2))
    quadratic = named(fitted_scores(*(side.tolist() for side in wide)), "quadratic").of(fresh.tolist())
    truth = np.square(fresh).sum(axis=1) * (1 - 1 / 4) / 2 - 2 * math.log(2)
    np.testing.assert_allclose(quadratic, truth, atol=0.1 * (1 + np.abs(truth).max()))


def test_more_coordinates_than_outputs_and_constant_ones_do_no_harm() -> None:
    g = np.random.default_rng(0)
    shift = np.zeros(200)
    shift[0] = 4.0
    for d in (60, 200):
        sides = [np.c_[g.normal(size=(30, d)) + mean, np.ones(30)].tolist() for mean in (0.0, shift[:d])]
        fresh = np.zeros((2, d + 1))
        fresh[:, -1] = 1
        fresh[1, 0] = 4.0
        for name in ("linear", "quadratic"):
            low, high = named(fitted_scores(*sides), name).of(fresh.tolist())
            assert low < high


def test_nan_and_infinities_are_outcomes_like_others() -> None:
    g = np.random.default_rng(0)
    first, second = g.normal(size=100), g.normal(size=100)
    second[:40] = NAN
    first[:40] = INF
    score = named(fitted_scores(first.tolist(), second.tolist()), "linear")
    values = score.of([NAN, INF, 0.0, -INF])
    assert np.isfinite(values).all()
    assert values[0] > values[2] > values[1]


def test_the_form_of_an_output_is_a_score_of_its_own() -> None:
    g = np.random.default_rng(0)
    on_d = [{"a": x} for x in g.normal(size=50)]
    on_d_prime = [{"a": x, "b": [y, y]} for x, y in g.normal(size=(50, 2))]
    (score,) = fitted_scores(on_d, on_d_prime)
    assert score.name == "log-likelihood ratio of the form (keys, lengths, NaN)"
    ratio = math.log(50.5 / 0.5)
    values = score.of([{"a": 9.0}, {"a": 1.0, "b": [0.0, 1.0]}, {"a": 1.0, "b": [0.0]}, {"a": NAN}, {"a": "9"}])
    np.testing.assert_allclose(values, [-ratio, ratio, 0, 0, 0], atol=1e-15)
    sides = g.normal(size=(2, 50))
    mapped = fitted_scores(*([{"b": x, "a": 0.5} for x in side] for side in sides))
    listed = fitted_scores(*([[0.5, x] for x in side] for side in sides))
    assert (
        [item.name for item in mapped]
        == [item.name for item in listed]
        == ["linear discriminant", "quadratic discriminant"]
    )
    assert mapped[0].of([{"a": 0.5, "b": 2.0}]).tolist() == listed[0].of([[0.5, 2.0]]).tolist()
    ordered, *_ = fitted_scores([{"a": x, "b": x} for x in sides[0]], [{"b": x, "a": x} for x in sides[1]])
    assert ordered.name == score.name
    np.testing.assert_allclose(ordered.of([{"a": 0.0, "b": 0.0}, {"b": 0.0, "a": 0.0}]), [-ratio, ratio], atol=1e-15)
    lengths = fitted_scores([[1.0], [2.0], [3.0, 4.0]], [[1.5, 2.0], [2.5, 7.0], []])
    assert [item.name for item in lengths] == [score.name]


@pytest.mark.parametrize("odd", [None, "text", [1.0], [1.0, 2.0, 3.0], {"a": 1}, 10**400, [[1.0, 2.0]]])
def test_an_output_of_another_shape_says_d(odd: Any) -> None:
    g = np.random.default_rng(0)
    scores = fitted_scores(g.normal(size=(20, 2)).tolist(), g.normal(size=(20, 2)).tolist())
    assert {score.name for score in scores} == {"linear discriminant", "quadratic discriminant"}
    for score in scores:
        alone, beside = score.of([odd]), score.of([odd, [0.5, 0.5]])
        assert alone[0] == beside[0] == -INF
        assert np.isfinite(beside[1])


def test_outputs_that_no_score_suits_are_refused() -> None:
    with pytest.raises(ValueError, match="neither numbers nor arrays of one shape and never repeat; give a score"):
        fitted_scores(["one", "two"], ["three", "four"])
    with pytest.raises(ValueError, match="at least two outputs"):
        fitted_scores([1.0], [2.0, 3.0])


def test_plain_outputs() -> None:
    output = {"a": (np.float32(0.5), np.arange(2)), 3: {2, 1}, "n": None}
    assert plain(output) == {"a": [0.5, [0, 1]], "3": [1, 2], "n": None}
    assert plain(np.full(1, 0.5, dtype=np.longdouble)) == [0.5]
    with pytest.raises(TypeError, match="an output of type object is neither a number"):
        plain([object()])
