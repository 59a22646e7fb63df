"""Planted canaries: false alarms at the boundary of the claim, controls that fail, and files that are paid for."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.game import (
    NEGATIVE_CONTROL_ERROR,
    Scoring,
    guessed_in,
    negative_control_counts,
    negative_control_p_value,
    third_party_audit,
)
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.ceilings import OneRun
from dpassay.audits.statistics.one_run import epsilon_one_run
from dpassay.audits.statistics.one_run_gaussian import epsilon_one_run_gaussian
from dpassay.audits.statistics.power import AsPrinted, RandomizedResponse, StandOut, chance_to_show
from dpassay.base.number_format import format_lower, format_percent, format_upper

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

M, ROUNDS, EPSILON = 300, 2000, 1.0
KEPT = math.exp(EPSILON) / (1 + math.exp(EPSILON))
"""The probability that randomised response keeps a bit."""


def design(guesses: int | None = 60, **changes: object) -> CanariesDesign:
    given = {
        "candidates": M,
        "guesses": guesses,
        "scorings": 1,
        "confidence": 0.95,
        "unit": Unit(),
        "claim": PureDP(EPSILON),
    }
    return CanariesDesign(**{**given, **changes})  # type: ignore[arg-type]


def scoring(scores: Floats, included: Bools, never: Floats, name: str = "s.jsonl") -> Scoring:
    return Scoring(name=name, candidates=scores, never=never, copied=np.where(included, 1e6, scores))


def as_floats(included: Bools) -> Floats:
    return included.astype(np.float64)


def audit(plan: CanariesDesign, included: Bools, *scorings: Scoring) -> AuditResult:
    return third_party_audit(plan, included, scorings, attack="scores", kind="key")


def drawn_scores(plan: CanariesDesign, included: Bools, rng: np.random.Generator, law: str) -> Floats:
    """Scores of candidates that are exactly ε-DP in each coin."""
    if law == "laplace":
        return np.asarray(included + rng.laplace(scale=1 / EPSILON, size=plan.candidates), dtype=np.float64)
    return np.asarray(included ^ (rng.random(plan.candidates) > KEPT), dtype=np.float64)


def false_alarms(plan: CanariesDesign, files: int, seed: int, law: str) -> int:
    """In how many rounds any file shows more than ε, of mechanisms that are exactly ε-DP."""
    rng = np.random.default_rng(seed)
    bound = functools.cache(lambda guesses, correct: plan.bound(guesses, correct).value)
    alarms = 0
    for _ in range(ROUNDS):
        included = rng.integers(0, 2, size=plan.candidates).astype(np.bool_)
        results = [guessed_in(drawn_scores(plan, included, rng, law), plan.guesses) for _ in range(files)]
        alarms += max(bound(int(guess.sum()), int((guess & included).sum())) for guess in results) > EPSILON
    return alarms


def alarm_probability(guesses: int, confidence: float) -> float:
    """Of randomised response, whose r guesses are right independently with probability q: P[Bin(r, q) ≥ v*]."""
    tails = stats.binom.sf(np.arange(guesses + 1) - 1, guesses, KEPT)
    return float(tails[np.argmax(tails < 1 - confidence)])


@pytest.mark.parametrize("guesses", [20, 60])
def test_false_alarms_of_randomised_response_are_as_many_as_they_must_be(guesses: int) -> None:
    """The alarms are binomial, with a probability worked out by hand; outside the interval with probability 1e-6."""
    alarms = false_alarms(design(guesses), 1, 7, "response")
    expected = alarm_probability(guesses, 0.95)
    assert 0.01 < expected < 0.05
    low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), ROUNDS, expected)
    assert low <= alarms <= high


@pytest.mark.parametrize(
    ("law", "guesses", "delta"),
    [
        ("laplace", 60, 0.0),
        ("laplace", 60, 1e-5),
        ("response", None, 0.0),
        pytest.param("response", None, 1e-5, marks=pytest.mark.slow),
    ],
)
def test_false_alarms_are_at_most_nominal(law: str, guesses: int | None, delta: float) -> None:
    """More than the limit with probability below 1e-6 if an alarm had probability 5 %."""
    claim = ApproxDP(EPSILON, delta) if delta else PureDP(EPSILON)
    alarms = false_alarms(design(guesses, claim=claim, delta=delta), 1, 8, law)
    assert alarms <= stats.binom.ppf(1 - 1e-6, ROUNDS, 0.05)


def test_several_files_are_paid_for() -> None:
    """With three planned files any alarm has probability at most 5 %; unpaid it has nearly three times as much.

    Either test fails with probability below 1e-6.
    """
    each = alarm_probability(60, 0.95)
    assert false_alarms(design(scorings=3), 3, 9, "response") <= stats.binom.ppf(1 - 1e-6, ROUNDS, 0.05)
    unpaid = design(scorings=3, confidence=1 - 3 * 0.05, claim=None)  # each at 95 %
    assert unpaid.each == pytest.approx(0.95)
    alarms = false_alarms(unpaid, 3, 9, "response")
    any_alarm = 1 - (1 - each) ** 3  # given the coins, files are independent; over coins this is a little less
    assert stats.binom.ppf(1e-6, ROUNDS, any_alarm) <= alarms
    assert any_alarm > 2.5 * each


def test_the_negative_control_rarely_fails_by_chance_and_always_when_the_holdout_leaks() -> None:
    """Scores of holdout and control drawn alike: failures beyond the limit have probability below 1e-6."""
    rng = np.random.default_rng(3)
    included = rng.integers(0, 2, size=M).astype(np.bool_)
    p_values = []
    for _ in range(2000):
        scores = rng.integers(0, 40, size=2 * M).astype(np.float64)  # with ties
        p_values.append(
            negative_control_p_value(*negative_control_counts(scoring(scores[:M], included, scores[M:]), included, 60))
        )
    for level in (NEGATIVE_CONTROL_ERROR, 0.05, 0.5):
        assert (np.array(p_values) <= level).sum() <= stats.binom.ppf(1 - 3e-7, 2000, level)
    leaked = audit(design(), included, scoring(rng.random(M) + 0.5, included, rng.random(M)))
    assert leaked.bounds == ()
    assert leaked.controls_passed is False
    assert leaked.conclusion.startswith("No conclusion: s.jsonl: of the ")
    assert "the manifest has leaked into the run" in leaked.conclusion


def test_the_highest_of_both_counts_ties_and_keys() -> None:
    included = np.array([True, False, False, False])
    result = Scoring(name="s", candidates=np.array([9.0, 5, 5, 0]), never=np.array([5.0, 0, 0]), copied=np.zeros(4))
    assert negative_control_counts(result, included, 2) == (2, 3, 3, 3)  # a tenth of six is one, and equals count
    keys = Scoring(name="s", candidates=np.array([1.0, 0, 1, 0]), never=np.array([0.0, 1, 0]), copied=np.zeros(4))
    assert negative_control_counts(keys, included, None) == (1, 2, 3, 3)


def test_an_attack_that_misses_copies_draws_no_conclusion() -> None:
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, size=M).astype(np.bool_)
    blind = Scoring(name="s", candidates=rng.random(M), never=rng.random(M), copied=rng.random(M))
    result = audit(design(), included, blind)
    assert result.bounds == ()
    assert result.conclusion.startswith("No conclusion: s: the search finds ")


def test_what_a_weak_attack_finds_counts_and_a_model_has_no_check_of_the_search() -> None:
    """A bound above 0 holds whether or not copies would have been found."""
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, size=M).astype(np.bool_)
    scores, never = included + rng.random(M) / 2, rng.random(M) / 2
    weak = audit(design(), included, Scoring(name="s", candidates=scores, never=never, copied=rng.random(M)))
    assert weak.controls_passed is True
    assert weak.bounds[0].value == design().bound(60, 60).value > 0
    model = audit(design(), included, Scoring(name="s", candidates=scores, never=never, copied=None))
    assert model.bounds[0].value == weak.bounds[0].value
    assert not any("check of the search" in rate.name for rate in model.controls)


def test_keys_need_no_check_of_the_search_since_it_could_not_fail() -> None:
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, size=M).astype(np.bool_)
    printed = (rng.random(M) < 0.3).astype(np.float64)
    never = (rng.random(M) < 0.3).astype(np.float64)
    result = audit(design(guesses=None), included, Scoring(name="s", candidates=printed, never=never, copied=printed))
    assert [rate.name for rate in result.controls] == ["negative control: canaries in no list guessed in"]
    assert len(result.bounds) == 1


def test_guesses_are_the_highest_scores_and_the_first_of_equals() -> None:
    scores = np.array([1.0, 3, 2, 3, 2, 2])
    assert np.flatnonzero(guessed_in(scores, 4)).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(guessed_in(np.array([0.0, 1, 0, 1]), None)).tolist() == [1, 3]


def test_the_bound_is_the_one_run_bound_of_the_counts() -> None:
    """All copies are printed: 150 of the first 150 are in, and 150 of the others are out."""
    included = np.arange(M) < M // 2
    plan = design(60, claim=ApproxDP(1, 1e-4), delta=1e-4, scorings=2, unit=Unit("user"))
    files = [
        scoring(as_floats(included), included, np.zeros(M)),
        scoring(as_floats(~included), included, np.ones(M), "b"),
    ]
    result = audit(plan, included, *files)
    expected = epsilon_one_run(M, 60, 60, delta=1e-4, confidence=0.975, rule="tight", unit=Unit("user"))
    first, second = result.bounds
    assert (first.value, first.ceiling, first.confidence) == (expected.value, expected.ceiling, 0.975)
    assert (first.adjacency, first.unit, first.method) == (Adjacency.ADD_REMOVE, Unit("user"), "one_run_tight")
    assert second.value == 0
    assert "in s.jsonl, 60 of 60 guesses are right: a leak that shows ε ≥" in result.conclusion
    assert "2 planned synthetic files, 2 scored; each bound holds with confidence 0.975" in result.multiplicity[1]
    assert [(rate.hits, rate.trials) for rate in result.rates] == [(60, 150), (0, 150), (0, 150), (60, 150)]


def test_a_gaussian_model_is_shown_beside_the_bound_where_the_number_of_guesses_is_fixed() -> None:
    """It is the bound of the same counts in that model, at the confidence of one file, and refutes nothing."""
    rng = np.random.default_rng(11)
    included = rng.random(M) < 0.5
    scores = included + rng.normal(size=M)
    never = rng.normal(size=M)
    plan = design(60, claim=ApproxDP(1, 1e-4), delta=1e-4, scorings=2)
    result = audit(plan, included, Scoring(name="s", candidates=scores, never=never, copied=scores + 9 * included))
    guess = guessed_in(scores, 60)
    expected = epsilon_one_run_gaussian(M, 60, int((guess & included).sum()), delta=1e-4, confidence=plan.each)
    shown = result.details["gaussian"]
    assert shown["epsilon"]["value"] == expected.value > 0
    assert shown["epsilon"]["rigor"] == "model_conditional"
    assert f"with confidence {plan.confidence}" in shown["sentence"]
    assert len(result.bounds) == 1
    assert all(bound.rigor is Rigor.FINITE_SAMPLE for bound in result.bounds)
    printed = included & (rng.random(M) < 0.5)
    keys = Scoring(name="s", candidates=as_floats(printed), never=np.zeros(M), copied=as_floats(printed))
    assert audit(design(guesses=None), included, keys).details["gaussian"] is None
    leaked = audit(design(), included, scoring(rng.random(M) + 0.5, included, rng.random(M)))
    assert leaked.details["failures"]
    assert leaked.details["gaussian"] is None


def test_what_a_conclusion_says_of_the_claim() -> None:
    included = np.arange(M) < M // 2
    rng = np.random.default_rng(0)
    silent = scoring(rng.random(M), included, rng.random(M))
    full = scoring(as_floats(included), included, np.zeros(M))
    assert "which refutes the claim of ε = 1" in audit(design(), included, full).conclusion
    nothing = audit(design(), included, silent)
    assert (
        "no leak is shown, and the claim of ε = 1 is not refuted. A test of this size has 50 % power to refute"
        in nothing.conclusion
    )
    assert nothing.conclusion.endswith("so it is not known whether this attack sees leaks of this generator.")
    blind = audit(design(claim=PureDP(9)), included, silent)
    assert blind.conclusion.startswith("No conclusion: ")
    assert "a test of this size has less than 50 % power to refute the claim, even if all planted" in blind.conclusion
    assert not blind.concluded
    assert nothing.concluded
    assert design().refuted_by(audit(design(), included, full).bounds) is True
    assert design().refuted_by(nothing.bounds) is False
    assert design(claim=None).refuted_by(audit(design(), included, full).bounds) is None
    assert "would have shown only ε = " in audit(design(claim=None), included, silent).conclusion
    for words in ("private", "passed", "safe"):
        assert words not in audit(design(), included, silent).conclusion


@pytest.mark.parametrize(("confidence", "refused"), [(0.95, False), (0.9999, False), (0.9499, True), (0.5, True)])
def test_a_claim_is_planned_only_at_a_confidence_at_which_it_can_be_refuted(confidence: float, refused: bool) -> None:
    """Each bound of two files has a confidence of 0.95 at β = 0.1, but both together do not."""
    assert design(scorings=2, confidence=confidence, claim=None).confidence == confidence
    if not refused:
        assert design(scorings=2, confidence=confidence).claim is not None
        return
    with pytest.raises(ValueError, match=r"a claim is refuted at confidence 0.95 or more, not at .*give --confidence"):
        design(scorings=2, confidence=confidence)


def test_the_conclusion_and_the_decision_are_one() -> None:
    """For every number of planned and of scored files, leaking or not, with one control that fails or none."""
    included = np.arange(M) < M // 2
    rng = np.random.default_rng(0)
    silent = scoring(rng.random(M), included, rng.random(M))
    full = scoring(as_floats(included), included, np.zeros(M))
    failed = scoring(rng.random(M) + 0.5, included, rng.random(M))
    seen = set()
    for planned in (1, 2, 3, 40):
        for scored in ([full], [silent], [silent, full], [full, full, silent], [full] * 40, [full, failed], [failed]):
            if len(scored) > planned:
                continue
            plan = design(scorings=planned)
            result = audit(plan, included, *scored)
            decided = plan.refuted_by(result.bounds)
            said = {"refutes the claim of": True, "is not refuted": False, "No conclusion": None}
            assert [value for words, value in said.items() if words in result.conclusion] == [decided]
            assert decided == (None if failed in scored else full in scored)
            seen.add(decided)
    assert seen == {True, False, None}


def test_what_finds_nothing_says_which_leak_it_would_have_found() -> None:
    """The shares and rates are those at which half of all audits refute, by `dpassay.audits.statistics.power`."""
    included = np.arange(M) < M // 2
    rng = np.random.default_rng(0)
    silent = scoring(rng.random(M), included, rng.random(M))
    result = audit(design(), included, silent)
    limit = result.details["detectable"]
    test = OneRun(M, 60, "tight")
    for leak in (RandomizedResponse(limit["epsilon"]), StandOut(limit["share"])):
        assert chance_to_show(test, leak, EPSILON, confidence=0.95) == pytest.approx(0.5, abs=1e-9)
    assert f"(the best attack at ε = {format_upper(limit['epsilon'], 3)})" in result.conclusion
    assert f"{format_percent(limit['share'], 'up')} of the planted canaries stand out" in result.conclusion
    none = Scoring(name="s", candidates=np.zeros(M), never=np.zeros(M), copied=np.zeros(M))
    keys = audit(design(guesses=None), included, none)
    share = keys.details["detectable"]["share"]
    assert chance_to_show(AsPrinted(M), StandOut(share), EPSILON, confidence=0.95) == pytest.approx(0.5, abs=1e-9)
    printed = f"{format_percent(share, 'up')} of the planted canaries are printed and no others"
    assert printed in keys.conclusion
    assert "all of them right show at most ε = 0: the result says nothing about the claim" in keys.conclusion


def test_what_is_shown_of_a_run_without_protection() -> None:
    """It is no file of the plan, bounds nothing, and is only said where nothing is refuted."""
    included = np.arange(M) < M // 2
    rng = np.random.default_rng(0)
    silent = scoring(rng.random(M), included, rng.random(M))
    full = scoring(as_floats(included), included, np.zeros(M), "off.jsonl")
    some = scoring(
        as_floats(included & (rng.random(M) < 0.25)) + rng.random(M) / 2, included, rng.random(M) / 2, "off.jsonl"
    )
    leaked = scoring(rng.random(M) + 0.5, included, rng.random(M), "off.jsonl")

    def said(unprotected: Scoring, claim: float | None = EPSILON, protected: Scoring = silent) -> AuditResult:
        plan = design(claim=None if claim is None else PureDP(claim))
        return third_party_audit(plan, included, [protected], attack="a", kind="echo", unprotected=unprotected)

    sees = said(full)
    ceiling = design().ceiling(60)
    assert (
        f"With protection off (off.jsonl) the same audit shows ε ≥ {format_lower(ceiling)}: it can see"
        in sees.conclusion
    )
    assert sees.details["unprotected"] == {"file": "off.jsonl", "guesses": 60, "right": 60, "epsilon": ceiling}
    assert [bound.value for bound in sees.bounds] == [0.0]
    assert sees.bounds == audit(design(), included, silent).bounds
    rates = [(rate.name, rate.hits) for rate in sees.controls if rate.name.startswith("without protection")]
    assert rates == [
        ("without protection: planted canaries guessed in", 60),
        ("without protection: holdout canaries guessed in", 0),
    ]
    assert "finding nothing says nothing about the claim, whatever could have been shown" in said(silent).conclusion
    assert "says nothing about the generator" in said(silent, claim=None).conclusion
    weak = said(some, claim=2.0)
    assert 0 < weak.details["unprotected"]["epsilon"] < 2
    assert "no more than the claim: it sees this kind of leak, but too weakly" in weak.conclusion
    for item in (sees, said(silent), weak):
        assert "with its protection off is taken on the word of whoever scored it." in item.conclusion
    assert "does not count: of the 45 highest-scoring canaries" in said(leaked).conclusion
    assert said(leaked).details["unprotected"]["epsilon"] is None
    assert said(leaked).controls_passed is True
    assert "protection" not in said(full, protected=full).conclusion
    with pytest.raises(ValueError, match="one coin and one score"):
        said(Scoring(name="s", candidates=np.zeros(3), never=np.zeros(3), copied=np.zeros(3)))


def test_ceilings_and_guesses_needed() -> None:
    plan = design(60)
    assert plan.ceiling(60) == pytest.approx(-math.log(0.05 ** (-1 / 60) - 1), rel=1e-12)
    assert plan.needed(3.0) == 62
    assert plan.needed(6.0) is None  # takes 1211
    assert plan.ceiling(plan.needed(2.0) or 0) >= 2.0 > plan.ceiling((plan.needed(2.0) or 0) - 1)
    assert design(60, scorings=5).ceiling(60) == pytest.approx(-math.log(0.01 ** (-1 / 60) - 1), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guesses": 151}, "at most half of the 300 candidates"),
        ({"guesses": 0}, "guesses must be"),
        ({"scorings": 0}, "scorings must be"),
        ({"confidence": 1.0}, "confidence must"),
        ({"candidates": 1}, "candidates must be"),
        ({"unit": Unit("secret")}, "cannot test unit secret"),
        ({"delta": 1.0}, "delta must"),
        ({"delta": 1e-5}, "at the δ of the claim, not at 1e-05"),
        ({"claim": ApproxDP(1, 1e-5)}, "at the δ of the claim, not at 0.0"),
    ],
)
def test_designs_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        design(**changes)  # type: ignore[arg-type]


def test_more_files_than_planned_and_scores_of_others_are_refused() -> None:
    included = np.arange(M) < M // 2
    item = scoring(np.zeros(M), included, np.zeros(M))
    with pytest.raises(ValueError, match="the plan has 1 synthetic files; 2 were scored"):
        audit(design(), included, item, item)
    with pytest.raises(ValueError, match="each of the 300 candidates needs one coin and one score"):
        audit(design(), included[:-1], item)
    with pytest.raises(ValueError, match="not NaN"):
        scoring(np.full(M, np.nan), included, np.zeros(M))
