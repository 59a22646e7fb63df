"""Classifiers on texts whose answer is known, scores against scikit-learn and binomial deviations, MAUVE's extra."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from dpassay.utility.mauve import mauve_score
from dpassay.utility.text_classifiers import downstream, held_out, largest_class, predictions, scores

WORDS = {"fruit": ["apple", "pear", "plum"], "tool": ["hammer", "saw", "drill"], "sea": ["wave", "reef", "tide"]}


def labelled(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts of three words of their label and three of all."""
    draw = np.random.default_rng(seed)
    everything = [word for words in WORDS.values() for word in words]
    labels = draw.choice(list(WORDS), size=count).tolist()
    texts = [" ".join([*draw.choice(WORDS[label], 3), *draw.choice(everything, 3)]) for label in labels]
    return texts, labels


def test_a_ceiling_a_floor_and_what_lies_between() -> None:
    """Synthetic texts with rotated labels are worse than the largest class; with right ones as good as real ones."""
    real, test = labelled(300, 1), labelled(300, 2)
    texts, labels = labelled(300, 3)
    turn = dict(zip(WORDS, [*list(WORDS)[1:], next(iter(WORDS))], strict=True))
    good = downstream((texts, labels), real, test)
    bad = downstream((texts, [turn[label] for label in labels]), real, test)
    ceiling = good.train_on_real.accuracy.value
    floor = good.majority_class.accuracy.value
    assert floor == pytest.approx(np.mean([label == largest_class(real[1], 1)[0] for label in test[1]]))
    assert ceiling > 0.9
    assert good.train_on_synthetic.accuracy.value > 0.9
    assert bad.train_on_synthetic.accuracy.value < 0.1 < floor < 0.5
    assert good.texts.to_json() == {"synthetic": 300, "real_training": 300, "real_test": 300}
    assert (good.labels, good.unknown_label_share) == (3, 0)
    again = downstream((texts, labels), real, test)
    assert again == good


def test_labels_that_no_real_text_has_are_counted() -> None:
    real = labelled(50, 1)
    result = downstream((["moon", "apple"], ["sky", "fruit"]), real, labelled(50, 2))
    assert result.unknown_label_share == 0.5


def test_one_label_is_the_answer_everywhere() -> None:
    assert predictions(["a", "b"], ["x", "x"], ["c", "", "d"]).tolist() == ["x", "x", "x"]


@pytest.mark.parametrize(
    ("labels", "says"), [([], "at least one text"), ([str(i) for i in range(101)], "101 labels, at most 100")]
)
def test_training_sets_that_do_not_do(labels: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        predictions(["text"] * len(labels), labels, ["asked"])


def test_an_empty_side_is_named() -> None:
    with pytest.raises(ValueError, match="needs real test texts"):
        downstream((["a"], ["x"]), (["a"], ["x"]), ([], []))


def test_texts_that_are_equal_are_set_apart_together() -> None:
    texts = [f"text {i % 400}" for i in range(2000)]
    apart = held_out(texts, 0.3, seed=1)
    assert all(apart[i] == apart[i % 400] for i in range(2000))
    # 400 coins of 0.3: 120 ± 9.2; 46 are 5 deviations.
    assert abs(apart[:400].sum() - 120) < 46
    assert (held_out(texts, 0.3, seed=2) != apart).any()
    with pytest.raises(ValueError, match="share"):
        held_out(texts, 1.0)


def test_values_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(4)
    true = draw.choice(["a", "b", "c"], size=120, p=[0.6, 0.3, 0.1]).tolist()
    predicted = draw.choice(["a", "b", "c", "z"], size=120).tolist()
    result = scores(true, predicted)
    assert result.accuracy.value == pytest.approx(accuracy_score(true, predicted), rel=1e-14)
    # Over the labels of the test texts, as documented; scikit-learn is told so.
    expected = f1_score(true, predicted, average="macro", labels=["a", "b", "c"])
    assert result.macro_f1.value == pytest.approx(expected, rel=1e-12)
    for of in (result.accuracy, result.macro_f1):
        assert of.interval[0] < of.value < of.interval[1]


def test_the_interval_of_accuracy_is_binomial() -> None:
    """70 of 100 right: the percentile bootstrap of a mean is Binomial(100, 0.7)/100, whose 95 % are .61 to .79.

    1000 resamples put their 2.5 % quantile between the 1.4 % and 4 % ones (3 binomial deviations): .60 to .62.
    """
    result = scores(["a"] * 70 + ["b"] * 30, ["a"] * 100).accuracy
    assert result.value == 0.7
    assert result.interval[0] == pytest.approx(0.61, abs=0.0101)
    assert result.interval[1] == pytest.approx(0.79, abs=0.0101)


def test_macro_f1_resamples_as_texts_do() -> None:
    """The multinomial counts of pairs against texts drawn one by one; deviations agree within 4 standard errors."""
    draw = np.random.default_rng(5)
    true = draw.choice(["a", "b"], size=60).tolist()
    predicted = [label if draw.random() < 0.8 else "a" for label in true]
    low, high = scores(true, predicted, confidence=0.68).macro_f1.interval
    drawn = draw.integers(60, size=(1000, 60))
    one_by_one = [
        f1_score([true[i] for i in row], [predicted[i] for i in row], average="macro", labels=["a", "b"])
        for row in drawn[:400]
    ]
    ends = np.quantile(one_by_one, [0.16, 0.84])
    # A quantile at 16 % of m draws has a deviation of √(.16·.84/m) / density, 1.5 σ/√m for a Gaussian one.
    error = 4 * 1.5 * np.std(one_by_one) * np.hypot(1 / np.sqrt(400), 1 / np.sqrt(1000))
    assert low == pytest.approx(ends[0], abs=error)
    assert high == pytest.approx(ends[1], abs=error)


def test_nothing_to_score() -> None:
    with pytest.raises(ValueError, match="at least one test text"):
        scores([], [])


def test_mauve_says_that_its_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mauve", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[mauve\]'"):
        mauve_score(np.eye(60), np.eye(60))


def test_mauve_is_asked_with_public_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def compute(**given: Any) -> SimpleNamespace:
        asked.update(given)
        return SimpleNamespace(mauve=0.5, mauve_star=0.6)

    monkeypatch.setitem(sys.modules, "mauve", SimpleNamespace(compute_mauve=compute))
    synthetic, real = np.eye(9), 2 * np.eye(9)
    result = mauve_score(synthetic, real, buckets=7, seed=3)
    assert result.to_json() == {"value": 0.5, "smoothed": 0.6, "buckets": 7, "scaling": 5}
    assert (asked["num_buckets"], asked["mauve_scaling_factor"], asked["seed"]) == (7, 5, 3)
    assert asked["p_features"].tolist() == real.tolist()
    assert asked["q_features"].tolist() == synthetic.tolist()


@pytest.mark.parametrize(
    ("synthetic", "real", "says"),
    [
        (np.eye(9), np.eye(60), "needs as many synthetic texts; there are 9"),
        (np.ones((60, 2)), np.ones((60, 2)), "not all embedded alike"),
    ],
)
def test_what_mauve_cannot_compare(synthetic: Any, real: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mauve_score(synthetic, real)


def test_mauve_by_its_own_package() -> None:
    """Equal sets give 1, sets far apart nearly 0; runs where the package is installed."""
    pytest.importorskip("mauve")
    draw = np.random.default_rng(0)
    real = draw.normal(size=(400, 8)).astype(np.float32)
    assert mauve_score(real, real, buckets=10).value == pytest.approx(1, abs=1e-5)
    assert mauve_score(-np.abs(real), np.abs(real), buckets=10).value < 0.1
