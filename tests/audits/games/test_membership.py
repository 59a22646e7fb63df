"""The membership audit: guesses by brute force, false alarms on mechanisms of known ε, controls and conclusions."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import (
    MembershipDesign,
    MembershipScores,
    default_guesses,
    right_guesses,
    unfair_coins,
)
from dpassay.audits.statistics.one_run import epsilon_one_run, epsilons_one_run


def coins(seed: int, m: int) -> np.ndarray:
    return np.random.default_rng(seed).random(m) < 0.5


def randomised_response(seed: int, m: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and answers that are right with probability e^ε/(1 + e^ε): exactly ε-DP in each coin."""
    rng = np.random.default_rng(seed)
    included = rng.random(m) < 0.5
    right = rng.random(m) < 1 / (1 + math.exp(-epsilon))
    return included, np.where(right, included, ~included).astype(float)


@pytest.mark.parametrize("side", ["both", "in"])
@pytest.mark.parametrize("guesses", [1, 4, 5, 11])
def test_guesses_are_the_ends_of_the_order(side: Any, guesses: int) -> None:
    rng = np.random.default_rng(guesses)
    scores, included = rng.permutation(11).astype(float), coins(0, 11)
    order = sorted(range(11), key=lambda i: -scores[i])
    n_in = guesses if side == "in" else math.ceil(guesses / 2)
    expected = sum(bool(included[i]) for i in order[:n_in])
    expected += sum(not included[i] for i in order[11 - (guesses - n_in) :])
    assert right_guesses(scores, included, guesses, side=side, seed=3) == expected


def test_ties_do_not_follow_the_order_of_the_file() -> None:
    """A file may list members first. With equal scores half of 1000 guesses are right, ± 6·√1000/2."""
    included = np.arange(2000) < 1000
    right = right_guesses(np.zeros(2000), included, 1000, side="in", seed=0)
    assert abs(right - 500) < 95
    assert right == right_guesses(np.zeros(2000), included, 1000, side="in", seed=0)


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1e-4)])
def test_several_attacks_and_guesses_together_accuse_an_honest_mechanism_at_most_so_often(
    epsilon: float, delta: float
) -> None:
    """2000 runs of randomised response at its own ε, each scored by 3 attacks with 2 numbers of guesses.

    At β = 10% more than 200 + 5·√180 = 267 false alarms have probability below 10⁻⁶. That an audit's bound is the
    largest of this table is another test's matter.
    """
    table = {
        r: epsilons_one_run(60, r, np.arange(r + 1), delta=delta, confidence=1 - 0.1 / 6, rule="tight")
        for r in (20, 60)
    }
    alarms = 0
    for seed in range(2000):
        included, answers = randomised_response(seed, 60, epsilon)
        noise = np.random.default_rng(10_000 + seed).random((2, 60))
        attacks = (answers, answers + noise[0], answers * noise[1])
        alarms += any(
            table[r][right_guesses(scores, included, r, side="both", seed=seed)] > epsilon
            for scores in attacks
            for r in table
        )
    assert 0 < alarms <= 267


def test_one_attempt_is_the_one_run_bound_and_several_pay() -> None:
    included = coins(1, 400)
    noise = np.random.default_rng(2).normal(size=(2, 400))
    good, bad = included + 0.5 * noise[0], noise[1]
    alone = membership_audit(
        MembershipScores({"good": good}, included), MembershipDesign(guesses=(100,), fair_coins=True, delta=1e-5)
    )
    correct = right_guesses(good, included, 100, side="both", seed=0)
    expected = epsilon_one_run(400, 100, correct, delta=1e-5, confidence=0.95, rule="tight")
    assert alone.bounds[0].value == expected.value > 1
    assert alone.bounds[0].ceiling == expected.ceiling
    assert alone.bounds[0].rigor is Rigor.FINITE_SAMPLE
    assert alone.bounds[0].private
    assert alone.p_value == pytest.approx(stats.binom.sf(correct - 1, 100, 0.5), rel=1e-9)

    both = membership_audit(
        MembershipScores({"good": good, "bad": bad}, included),
        MembershipDesign(guesses=(100, 400), fair_coins=True, delta=1e-5),
    )
    paid = epsilon_one_run(400, 100, correct, delta=1e-5, confidence=1 - 0.05 / 4, rule="tight").value
    attempts = both.details["attempts"]
    assert [(a["attack"], a["guesses"]) for a in attempts] == [("good", 100), ("good", 400), ("bad", 100), ("bad", 400)]
    assert attempts[0]["epsilon"] == pytest.approx(paid, rel=1e-9)
    assert both.bounds[0].value == max(a["epsilon"] for a in attempts)
    assert both.bounds[0].confidence == 0.95
    assert len(both.bounds) == 1
    assert "2 attacks (good, bad) × 2 numbers of guesses (100, 400" in both.multiplicity[0]
    assert "confidence 0.9875" in both.multiplicity[0]
    tails = [stats.binom.sf(attempt["correct"] - 1, attempt["guesses"], 0.5) for attempt in attempts]
    assert both.p_value == pytest.approx(4 * min(tails), rel=1e-9)
    json.dumps(both.to_json())


def test_without_fair_coins_there_is_no_epsilon() -> None:
    included = np.arange(200) < 100
    result = membership_audit(
        MembershipScores({"loss": included.astype(float)}, included), MembershipDesign(fair_coins=False)
    )
    assert result.bounds == ()
    assert result.p_value is None
    assert result.details["attempts"] == []
    assert "area under the curve is 1 (loss, in [0.864189, 1])" in result.conclusion
    assert "no ε follows" in result.conclusion
    first, second = result.rates[:2]
    assert (first.hits, first.trials, second.hits, second.trials) == (100, 100, 0, 100)


def test_a_control_that_sees_nothing_ends_the_audit() -> None:
    included = coins(3, 300)
    strong = MembershipScores({"loss": included + 0.0}, included)
    blind = MembershipScores({"loss": np.random.default_rng(4).normal(size=300)}, included)
    design = MembershipDesign(fair_coins=True)
    failed = membership_audit(strong, design, control=blind)
    assert failed.bounds == ()
    assert failed.controls_passed is False
    assert failed.conclusion.startswith(
        "No conclusion: in the positive control no attack separates members from non-members"
    )
    passed = membership_audit(blind, design, control=strong)
    assert passed.controls_passed is True
    assert passed.bounds[0].value == 0
    assert "nothing follows" not in passed.conclusion
    assert "Even perfect guesses would have shown only ε = 3.4" in passed.conclusion
    assert "without a positive control nothing follows" in membership_audit(blind, design).conclusion


def test_copies_check_the_search_and_are_no_positive_control() -> None:
    included = coins(3, 300)
    strong = MembershipScores({"loss": included + 0.0}, included)
    blind = MembershipScores({"loss": np.random.default_rng(4).normal(size=300)}, included)
    design = MembershipDesign(fair_coins=True)
    failed = membership_audit(strong, design, control=blind, copies=True)
    assert failed.conclusion.startswith("No conclusion: in the check of the search no attack separates")
    passed = membership_audit(blind, design, control=strong, copies=True)
    assert "does not show that it sees leaks of this generator" in passed.conclusion
    assert "positive control" not in " ".join([passed.conclusion, *(rate.name for rate in passed.controls)])
    assert "leaks of this generator" not in membership_audit(blind, design, control=strong).conclusion


def test_coins_that_were_not_fair_end_the_audit() -> None:
    """Of 100 fair coins 33 or fewer, or 67 and more, come up with probability 8.7·10⁻⁴; 34 with 1.8·10⁻³."""
    for members, refused in ((33, True), (34, False), (66, False), (67, True)):
        included = np.arange(100) < members
        result = membership_audit(
            MembershipScores({"a": included.astype(np.float64)}, included), MembershipDesign(fair_coins=True)
        )
        assert (result.bounds == ()) == refused
        assert ("fair coins give at most once in a thousand" in result.conclusion) == refused


def test_reference_models_that_know_the_coins_end_the_audit() -> None:
    """One that was trained on the members or on the others, and candidates that are in exactly half of all models."""
    rng = np.random.default_rng(6)
    included, others = coins(7, 200), rng.random((3, 200)) < 0.5
    halves = rng.random((4, 200)).argsort(axis=0) < 2
    strong = included + 0.0
    for target, seen, refused in (
        (included, np.vstack([others, included]), True),
        (included, np.vstack([others, ~included]), True),
        (halves[0], halves[1:], True),
        (included, others, False),
        (included, np.vstack([others, ~others]), False),
        (included, others[:0], False),
    ):
        result = membership_audit(MembershipScores({"a": strong}, target, seen), MembershipDesign(fair_coins=True))
        assert (result.bounds == ()) == (result.p_value is None) == refused
        assert ("so scores depend on the coins" in result.conclusion) == refused
        assert (result.details["attempts"][0]["epsilon"] is None) == refused


def test_independent_reference_models_are_rarely_refused() -> None:
    """2000 runs with five reference models of 40 candidates are refused with probability .002 each at most, .001 for
    the coins and .001 for the models: more than 15 have probability 2e-5."""
    refused = 0
    for seed in range(2000):
        rng = np.random.default_rng([seed, 3])
        included, seen = rng.random(40) < 0.5, rng.random((5, 40)) < rng.random(40)
        refused += bool(unfair_coins(MembershipScores({"a": np.zeros(40)}, included, seen)))
    assert refused <= 15


def test_users_have_one_candidate_each() -> None:
    included = coins(1, 200)
    for unit, said in (("user", True), ("record", False)):
        result = membership_audit(
            MembershipScores({"a": included + 0.0}, included), MembershipDesign(fair_coins=True, unit=Unit.parse(unit))
        )
        assert ("each candidate is all that its user has in the data" in result.bounds[0].assumptions) == said


def test_what_is_said_of_a_claim() -> None:
    included = coins(5, 1000)
    scores = MembershipScores({"sure": included + 0.0}, included)

    def said(claimed: float, guesses: int) -> str:
        return membership_audit(
            scores, MembershipDesign(fair_coins=True, guesses=(guesses,), delta=1e-6, claimed_epsilon=claimed)
        ).conclusion

    assert "which refutes the claim of ε = 1." in said(1, 200)
    assert "the claim of ε = 6 is not refuted" in said(6, 200)
    unsure = MembershipDesign(fair_coins=True, guesses=(200,), confidence=0.9, claimed_epsilon=1.0)
    assert (
        "above the claim of ε = 1, but refuting it takes confidence 0.95" in membership_audit(scores, unsure).conclusion
    )
    assert "the result says nothing about the claim" in said(6, 200)
    nothing = MembershipScores({"noise": np.random.default_rng(6).normal(size=1000)}, included)
    result = membership_audit(
        nothing, MembershipDesign(fair_coins=True, guesses=(200,), claimed_epsilon=1.0), control=scores
    )
    assert "no leak is shown, and the claim of ε = 1 is not refuted. A test of this size has 50 % power to" in (
        result.conclusion
    )
    assert "says nothing" not in result.conclusion


def test_default_guesses() -> None:
    assert [default_guesses(m) for m in (10, 100, 999, 1000, 5000)] == [10, 100, 100, 100, 500]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"guesses": (0,)}, "guesses must be at least 1"),
        ({"side": "out"}, "side must be one of both, in"),
        ({"delta": 1.0}, "delta must be below 1"),
        ({"confidence": 1.0}, "strictly between 0 and 1"),
        ({"claimed_epsilon": -1.0}, "claimed_epsilon must be at least 0"),
        ({"adjacency": Adjacency.REPLACE_ONE}, "tests add_remove, not replace_one"),
        ({"unit": Unit("secret")}, "cannot test unit secret"),
    ],
)
def test_bad_designs_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MembershipDesign(**{"fair_coins": True, **wrong})


@pytest.mark.parametrize(
    ("by_attack", "included", "message"),
    [
        ({}, np.array([True, False]), "at least one attack"),
        ({"a": np.zeros(2)}, np.array([1, 0]), "one truth value"),
        ({"a": np.zeros(3)}, np.array([True, False]), "each of 2 candidates"),
        ({"a": np.array([0, np.nan])}, np.array([True, False]), "not NaN"),
        ({"a": np.zeros(2)}, np.array([True, True]), "2 of 2 candidates were in"),
    ],
)
def test_bad_scores_are_refused(by_attack: dict[str, Any], included: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MembershipScores(by_attack, included)


def test_more_guesses_than_candidates_are_refused() -> None:
    included = coins(7, 10)
    with pytest.raises(ValueError, match="number of candidates, 10, not 11"):
        membership_audit(
            MembershipScores({"a": np.zeros(10)}, included), MembershipDesign(fair_coins=True, guesses=(11,))
        )
