"""Membership scores against loops written from the papers' formulas, and on a game whose best test is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.attacks.membership import scores as mi


def gaussian_game(seed: int, n: int, k: int, shift: float) -> dict[str, Any]:
    """Signals N(difficulty + shift·in, 1); the last model is the target, the others are references."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(scale=5, size=n)
    inclusion = rng.random((k + 1, n)) < 0.5
    signals = difficulty + shift * inclusion + rng.normal(size=(k + 1, n))
    return {
        "target": signals[-1],
        "coins": inclusion[-1],
        "references": signals[:-1],
        "inclusion": inclusion[:-1],
        "difficulty": difficulty,
    }


def auc(scores: np.ndarray, coins: np.ndarray) -> float:
    return float(np.mean(scores[coins][:, None] > scores[~coins][None, :]))


def slow_lira(game: dict[str, Any], *, per_record: bool, online: bool) -> list[float]:
    kinds: dict[bool, list[list[float]]] = {True: [], False: []}
    n = len(game["target"])
    for i in range(n):
        for inside in (True, False):
            kinds[inside].append(
                [
                    float(row[i])
                    for row, coins in zip(game["references"], game["inclusion"], strict=True)
                    if coins[i] == inside
                ]
            )
    scores = []
    for i in range(n):
        logs = {}
        for inside in (True, False):
            values = kinds[inside][i]
            mean = sum(values) / len(values)
            if per_record:
                variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            else:
                squares, freedom = 0.0, 0
                for others in kinds[inside]:
                    center = sum(others) / len(others)
                    squares += sum((value - center) ** 2 for value in others)
                    freedom += len(others) - 1
                variance = squares / freedom
            logs[inside] = stats.norm.logpdf(game["target"][i], mean, math.sqrt(variance))
            if not inside and not online:
                scores.append((game["target"][i] - mean) / math.sqrt(variance))
        if online:
            scores.append(logs[True] - logs[False])
    return scores


@pytest.mark.parametrize("per_record", [True, False])
@pytest.mark.parametrize("online", [True, False])
def test_lira_is_that_of_a_loop(per_record: bool, online: bool) -> None:
    game = gaussian_game(0, n=12, k=24, shift=1.0)
    lira = mi.lira_online if online else mi.lira_offline
    result = lira(
        game["target"], game["references"], game["inclusion"], variance="per_record" if per_record else "global"
    )
    np.testing.assert_allclose(result, slow_lira(game, per_record=per_record, online=online), rtol=1e-11)


def test_auto_takes_a_variance_per_record_once_every_record_has_enough_models() -> None:
    game = gaussian_game(1, n=3, k=2 * mi.PER_RECORD_MODELS, shift=1.0)
    inclusion = np.zeros((64, 3), dtype=bool)
    inclusion[:32] = True
    three = (game["target"], game["references"], inclusion)
    assert np.array_equal(mi.lira_online(*three), mi.lira_online(*three, variance="per_record"))
    inclusion[0, 1] = False
    assert np.array_equal(mi.lira_online(*three), mi.lira_online(*three, variance="global"))
    assert np.array_equal(mi.lira_offline(*three), mi.lira_offline(*three, variance="per_record"))
    assert not np.array_equal(mi.lira_offline(*three), mi.lira_offline(*three, variance="global"))


def test_lira_comes_near_the_best_test_and_the_loss_does_not() -> None:
    """With the difficulty known, log-ratio = shift·(t − d) − shift²/2 and its AUC is Φ(shift/√2) = .921 for 2.

    Means of about 64 models have variance 1/64 each, so that offline z is worth shift/√(1 + 1/64): AUC Φ(2/√(2.03)).
    AUC of 2000 + 2000 records has a standard deviation below .005; tolerance is 5 of them. The loss sees a shift of 2
    in a spread of √26 and has AUC Φ(2/√52) = .609.
    """
    game = gaussian_game(2, n=4000, k=128, shift=2.0)
    difficulty, coins = game["difficulty"], game["coins"]
    exact = stats.norm.logpdf(game["target"], difficulty + 2) - stats.norm.logpdf(game["target"], difficulty)
    three = (game["target"], game["references"], game["inclusion"])
    best = stats.norm.cdf(2 / math.sqrt(2))
    assert auc(exact, coins) == pytest.approx(best, abs=0.025)
    assert auc(mi.lira_online(*three, variance="global"), coins) == pytest.approx(best, abs=0.025)
    assert auc(mi.lira_online(*three), coins) == pytest.approx(best, abs=0.03)  # variances of 64 are off by 18%
    assert auc(mi.lira_offline(*three, variance="global"), coins) == pytest.approx(best, abs=0.025)
    assert auc(mi.loss_threshold(game["target"]), coins) == pytest.approx(stats.norm.cdf(2 / math.sqrt(52)), abs=0.05)


@pytest.mark.parametrize("attack", ["lira_online", "lira_offline", "rmia_online", "rmia_offline"])
def test_without_a_leak_no_attack_knows_anything(attack: str) -> None:
    """AUC of 4000 records is ½ with a standard deviation of .0092; 5 of them fail with probability 6·10⁻⁷."""
    game = gaussian_game(3, n=4000, k=16, shift=0.0)
    arguments = [game["target"], game["references"], game["inclusion"]]
    if attack.startswith("rmia"):
        population = np.random.default_rng(4).normal(scale=5, size=(1, 500)) + np.random.default_rng(5).normal(
            size=(17, 500)
        )
        arguments += [population[-1], population[:-1]]
    scores = getattr(mi, attack)(*arguments)
    ranks = stats.rankdata(scores)
    inside = game["coins"]
    m = inside.sum()
    value = (ranks[inside].sum() - m * (m + 1) / 2) / (m * (len(inside) - m))
    assert value == pytest.approx(0.5, abs=0.046)


def slow_rmia(game: dict[str, Any], gamma: float, a: float | None) -> list[float]:
    """Probabilities and double loops, as the formulas stand."""
    p = {name: np.exp(game[name]) for name in ("target", "references", "z_target", "z_references")}
    scores = []
    for i in range(len(p["target"])):
        inside = [p["references"][j, i] for j in range(len(p["references"])) if game["inclusion"][j, i]]
        outside = [p["references"][j, i] for j in range(len(p["references"])) if not game["inclusion"][j, i]]
        mean_out = sum(outside) / len(outside)
        p_x = (sum(inside) / len(inside) + mean_out) / 2 if a is None else ((1 + a) * mean_out + (1 - a)) / 2
        won = 0
        for z in range(len(p["z_target"])):
            p_z = sum(p["z_references"][:, z]) / len(p["z_references"])
            if a is not None:
                p_z = ((1 + a) * p_z + (1 - a)) / 2
            won += (p["target"][i] / p_x) / (p["z_target"][z] / p_z) >= gamma
        scores.append(won / len(p["z_target"]))
    return scores


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("a", [None, 0.0, 0.3, 1.0])
def test_rmia_is_that_of_a_double_loop(gamma: float, a: float | None) -> None:
    rng = np.random.default_rng(6)
    game = {
        "target": -rng.exponential(size=15),
        "references": -rng.exponential(size=(9, 15)),
        "inclusion": rng.random((9, 15)) < 0.5,
        "z_target": -rng.exponential(size=20),
        "z_references": -rng.exponential(size=(9, 20)),
    }
    arguments = list(game.values())
    result = mi.rmia_online(*arguments, gamma=gamma) if a is None else mi.rmia_offline(*arguments, gamma=gamma, a=a)
    assert result.tolist() == pytest.approx(slow_rmia(game, gamma, a), abs=1e-15)
    assert len(set(result.tolist())) > 2


def test_rmia_finds_members_with_one_model_each() -> None:
    """Confidences of members are doubled; with one in- and one out-model most of 2000 pairs are put in order.

    By chance AUC is ½ with a standard deviation of .013.
    """
    rng = np.random.default_rng(7)
    base = -rng.uniform(2, 6, size=2000)
    inclusion = np.array([np.arange(2000) % 2 == 0, np.arange(2000) % 2 == 1])
    noise = rng.normal(scale=0.2, size=(3, 2000))
    coins = rng.random(2000) < 0.5
    population = -rng.uniform(2, 6, size=300) + rng.normal(scale=0.2, size=(3, 300))
    result = mi.rmia_online(
        base + noise[0] + np.log(2) * coins,
        base + noise[1:] + np.log(2) * inclusion,
        inclusion,
        population[0],
        population[1:],
        gamma=1.0,
    )
    assert auc(result, coins) > 0.8


def test_whole_texts_do_not_underflow() -> None:
    target, references = np.full(2, -2000.0), np.array([[-2001.0, -1999.0], [-2000.5, -1999.5]])
    population = np.full(3, -1500.0), np.full((2, 3), -1500.0)
    assert mi.rmia_offline(target, references, None, *population, gamma=1.0).tolist() == [1.0, 0.0]


def test_logit() -> None:
    p = np.array([1e-300, 0.25, 0.5, 0.999])
    np.testing.assert_allclose(mi.logit(np.log(p)), np.log(p / (1 - p)), rtol=1e-12, atol=1e-15)
    assert mi.logit([-1000.0]).tolist() == [-1000.0]
    with pytest.raises(ValueError, match="below 0"):
        mi.logit([0.0])


GOOD: dict[str, Any] = {
    "target": np.zeros(2),
    "references": np.arange(8.0).reshape(4, 2) ** 2,
    "inclusion": np.array([[True, True], [True, True], [False, False], [False, False]]),
}
POPULATION: dict[str, Any] = {"population_target": np.zeros(3), "population_references": np.ones((4, 3))}


@pytest.mark.parametrize(
    ("attack", "wrong", "message"),
    [
        (mi.lira_online, {"target": [0.0, np.nan]}, "is not for record 1"),
        (mi.lira_online, {"target": np.zeros((2, 1))}, "1-D array"),
        (mi.lira_online, {"references": np.zeros((4, 3))}, "2 columns"),
        (
            mi.lira_online,
            {"references": np.diag([np.inf, 1.0, 1, 1])[:, :2]},
            "not for model 0 and record 0",
        ),
        (mi.lira_online, {"inclusion": np.ones((4, 2))}, "a bool array"),
        (mi.lira_online, {"inclusion": np.ones((4, 2), bool)}, "without it, but record 0 has 0"),
        (mi.lira_offline, {"inclusion": np.ones((4, 2), bool)}, "without it, but record 0 has 0"),
        (mi.lira_online, {"references": np.zeros((4, 2)), "variance": "per_record"}, "use the global variance"),
        (mi.lira_online, {"references": np.zeros((4, 2))}, "no variance can be fitted"),
        (mi.lira_offline, {"references": np.full((7, 2), 0.1), "inclusion": None}, "no variance can be fitted"),
        (
            mi.lira_online,
            {"references": np.zeros((2, 2)), "inclusion": np.array([[True, True], [False, False]])},
            "no record has 2 reference models with",
        ),
        (mi.lira_online, {"variance": "each"}, "variance must be one of"),
        (mi.rmia_online, {**POPULATION, "gamma": 0.0}, "gamma must be above 0"),
        (mi.rmia_online, {**POPULATION, "population_target": np.zeros(0)}, "must not be empty"),
        (mi.rmia_online, {**POPULATION, "population_references": np.ones((3, 3))}, "each of 4 models, not 3"),
        (mi.rmia_online, {**POPULATION, "inclusion": np.zeros((4, 2), bool)}, "1 reference model with it"),
        (mi.rmia_offline, {**POPULATION, "a": 1.5}, "a must be between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(attack: Callable[..., Any], wrong: dict[str, Any], message: str) -> None:
    attack(**{**GOOD, **(POPULATION if attack in (mi.rmia_online, mi.rmia_offline) else {})})
    with pytest.raises(ValueError, match=message):
        attack(**{**GOOD, **wrong})
