"""The reconstruction audit: controls, refusals, bounds at the claim's unit, and its false-alarm rate."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import GDP, ApproxDP, ExPostDP, PureDP
from dpassay.attacks.canaries.reconstruction import Reconstruction
from dpassay.audits.games import reconstruction_audit
from dpassay.audits.games.reconstruction import CURVE_DELTA
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics import AsPrinted, Rates, chance_to_show, epsilon_one_run
from dpassay.audits.verdict import decide
from dpassay.base.number_format import format_percent
from dpassay.reports.json_form import AuditResult as AuditOfDocument


def counts(**changes: int) -> Reconstruction:
    """A quiet run over 2000 candidates."""
    quiet = {
        "candidates": 2000,
        "source": 990,
        "source_hits": 60,
        "holdout_hits": 62,
        "never": 2000,
        "never_hits": 118,
        "documents": 900,
    }
    return Reconstruction(**{**quiet, **changes})


QUIET = counts()
LEAKING = counts(source_hits=700, holdout_hits=1, never_hits=2, asked=900, reproduced=860)


def audit(result: Reconstruction = QUIET, **arguments: Any) -> AuditResult:
    settings: dict[str, Any] = {"guarantee": PureDP(1.0), "adjacency": "add_remove", "unit": Unit(), "control": LEAKING}
    return reconstruction_audit(result, **{**settings, **arguments})


def test_fits_the_assay_document() -> None:
    row: AuditResult = TypeAdapter(AuditOfDocument).validate_json(json.dumps(audit().to_json()))
    assert row == audit()
    assert [(rate.hits, rate.trials) for rate in row.rates] == [(60, 990), (62, 1010)]
    interval = row.rates[0].interval
    assert interval is not None
    assert (interval.lower, interval.upper) == pytest.approx(
        tuple(stats.binomtest(60, 990).proportion_ci(0.95, "exact"))
    )
    assert [rate.hits for rate in row.controls] == [860, 700, 1, 2, 118]


def test_no_leak_found() -> None:
    result = audit()
    assert result.controls_passed is True
    assert result.difference is not None
    assert 0 in result.difference
    assert result.control_difference is not None
    assert result.control_difference.lower > 0
    (bound,) = result.bounds
    assert (bound.value, bound.rigor, bound.private) == (0.0, Rigor.FINITE_SAMPLE, True)
    assert "no leak found" in result.conclusion
    # 122 guesses could have shown 3.694 at most.
    assert bound.ceiling == epsilon_one_run(2000, 122, 122, delta=0.0, confidence=0.95).value


def test_a_leak_refutes_a_pure_claim() -> None:
    result = audit(LEAKING)
    assert result.difference is not None
    assert result.difference.lower > 0
    assert result.p_value is not None
    assert result.p_value < 1e-100
    assert "a leak that shows ε ≥" in result.conclusion
    assert decide(PureDP(1.0), adjacency="add_remove", unit=Unit(), bounds=result.bounds).name == "REFUTED"


def test_a_leak_says_nothing_of_an_ex_post_claim() -> None:
    result = audit(LEAKING, guarantee=ExPostDP(1.0))
    assert decide(ExPostDP(1.0), adjacency="add_remove", unit=Unit(), bounds=result.bounds).name == "UNPROVEN"
    assert "one outcome only" in result.conclusion


def test_delta_is_the_claims_and_guesses_are_not_fixed() -> None:
    (bound,) = audit(LEAKING, guarantee=ApproxDP(1.0, 1e-6)).bounds
    expected = epsilon_one_run(2000, 701, 700, delta=1e-6, confidence=0.95, rule="adaptive")
    assert (bound.value, bound.delta, bound.ceiling) == (expected.value, 1e-6, expected.ceiling)
    assert audit(LEAKING, guarantee=GDP(1.0)).bounds[0].delta == CURVE_DELTA


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        (counts(asked=900, reproduced=860), "does not disclose more source than holdout"),
        (counts(source_hits=700, holdout_hits=1, never_hits=2, asked=900, reproduced=400), "400 of the 900"),
        (counts(source_hits=700, holdout_hits=1, never_hits=2), "0 of the 0"),
        (counts(source_hits=900, holdout_hits=500, never_hits=2, asked=900, reproduced=860), "leaked into the run"),
    ],
)
def test_a_failed_control_forbids_a_conclusion(control: Reconstruction, reason: str) -> None:
    result = audit(LEAKING, control=control)
    assert result.controls_passed is False
    assert result.bounds == ()
    assert result.conclusion.startswith("No conclusion: ")
    assert reason in result.conclusion
    assert result.details["failures"]


def test_a_holdout_that_leaked_forbids_a_conclusion() -> None:
    result = audit(counts(source_hits=400, holdout_hits=400, never_hits=5))
    assert result.controls_passed is False
    assert "in the audited run" in result.conclusion


def test_no_leak_found_names_the_leak_that_half_of_all_audits_find() -> None:
    result = audit()
    limit = result.details["detectable"]
    leak = Rates(limit["share"], limit["by_chance"])
    assert limit["by_chance"] > 0
    assert chance_to_show(AsPrinted(2000), leak, limit["claim"], confidence=0.95) == pytest.approx(0.5, abs=1e-9)
    said = f"{format_percent(limit['share'], 'up')} of the source keys are printed, and others as often as here"
    assert said in result.conclusion


def test_without_a_positive_control_silence_means_nothing() -> None:
    result = audit(control=None, result=counts(never=0, never_hits=0))
    assert result.controls_passed is None
    assert "without a positive control nothing follows" in result.conclusion


def test_a_ceiling_below_the_claim_is_named() -> None:
    result = audit(counts(source_hits=6, holdout_hits=6, never_hits=12), guarantee=PureDP(3.0))
    assert "not above the claim of ε = 3" in result.conclusion


def test_chance_is_named_where_no_epsilon_follows() -> None:
    """With δ > 0 the one-run bound may be 0 while the p-value is small."""
    result = audit(counts(source_hits=90, holdout_hits=60), guarantee=ApproxDP(1.0, 1e-3))
    assert result.bounds[0].value == 0.0
    assert "more often than chance explains" in result.conclusion


def test_no_conclusion_prints_more_than_was_shown() -> None:
    for hits in range(100, 900, 23):
        result = audit(counts(source_hits=hits, holdout_hits=hits // 9, never_hits=hits // 5))
        printed = re.search(r"ε ≥ ([\d.]+)", result.conclusion)
        assert printed is not None
        value = result.bounds[0].value
        assert value - 2e-3 < float(printed[1]) <= value
    for hits in range(20, 120, 7):
        result = audit(counts(source_hits=hits, holdout_hits=hits, never_hits=2 * hits))
        printed = re.search(r"Even perfect guesses would have shown only ε = ([\d.]+\d)", result.conclusion)
        ceiling = result.bounds[0].ceiling
        assert printed is not None
        assert ceiling is not None
        assert ceiling <= float(printed[1]) < ceiling + 2e-3


def test_confidence_is_handed_on_for_several_audits() -> None:
    (bound,) = audit(confidence=0.975).bounds
    assert bound.confidence == 0.975


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adjacency": "replace_one"}, "tests add_remove"),
        ({"unit": Unit("secret")}, "cannot test unit secret"),
        ({"unit": Unit("group", 3)}, "needs 3 records of its own"),
        ({"result": counts(copies=2)}, "needs 1 record of its own"),
    ],
)
def test_another_game_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(**arguments)


def test_candidates_with_several_records_are_groups_or_users() -> None:
    assert audit(counts(copies=3), unit=Unit("group", 3)).bounds[0].unit == Unit("group", 3)
    assert audit(counts(copies=3), unit=Unit("user")).bounds[0].unit == Unit("user")


@pytest.mark.slow
def test_a_generator_that_ignores_its_data_is_rarely_accused() -> None:
    """1000 runs that print a random share of all keys: ε > 0 and p ≤ 0.05 in at most 5% (false alarm 1e-4 each)."""
    rng = np.random.default_rng(99)
    m, alarms, small, repetitions = 400, 0, 0, 1000
    for _ in range(repetitions):
        source = int(rng.binomial(m, 0.5))
        printed = int(rng.integers(20, 300))
        hits = int(rng.hypergeometric(source, m - source, printed))
        result = counts(
            candidates=m, source=source, source_hits=hits, holdout_hits=printed - hits, never=0, never_hits=0
        )
        outcome = audit(result, control=None)
        alarms += outcome.bounds[0].value > 0
        small += (outcome.p_value or 0.0) <= 0.05
    for number in (alarms, small):
        assert stats.binom.sf(number - 1, repetitions, 0.05) >= 1e-4
        assert number > 0.02 * repetitions
