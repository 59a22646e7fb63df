"""What a test could show at most: no counts, scores or rounds show more, and perfect ones show as much."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from dpassay.accounting.bounds import Bound
from dpassay.audits import statistics
from dpassay.audits.statistics import (
    Sequential,
    epsilon_clopper_pearson,
    epsilon_from_scores,
    epsilon_one_run,
    epsilon_one_run_f_dp,
    epsilons_one_run,
    mu_clopper_pearson,
)
from dpassay.audits.statistics.ceilings import ErrorRates, OneRun, Rounds, Scores, Test, ceiling
from dpassay.audits.statistics.one_run import Rule
from dpassay.audits.statistics.score_thresholds import Band, FixedThreshold, Grid, Split, Threshold
from dpassay.audits.statistics.sequential import Wealth


@pytest.mark.grid
@pytest.mark.parametrize("rule", ["published", "tight", "adaptive"])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.02, 0.2])
def test_no_counts_of_one_run_show_more(rule: Rule, delta: float) -> None:
    for m, confidence in itertools.product((5, 40), (0.5, 0.8, 0.95)):
        for r in {1, 4, 5, m // 2, m}:
            most = ceiling(OneRun(m, r, rule), delta=delta, confidence=confidence)
            shown = epsilons_one_run(m, r, np.arange(r + 1), delta=delta, confidence=confidence, rule=rule)
            assert shown.max() == shown[-1] == most
            bound = epsilon_one_run(m, r, r // 2, delta=delta, confidence=confidence, rule=rule)
            assert bound.ceiling == most


def test_families_have_the_ceiling_of_their_statistic() -> None:
    for family in ("gdp", "approx_dp"):
        bound = epsilon_one_run_f_dp(50, 30, 20, family=family, delta=1e-3, confidence=0.9)
        assert ceiling(OneRun(50, 30, family), delta=1e-3, confidence=0.9) == bound.ceiling


def test_no_error_rates_show_more() -> None:
    for n1, n0, delta in itertools.product((1, 13), (1, 9), (0.0, 0.05)):
        tables = [(tp, n1 - tp, fp, n0 - fp) for tp in range(n1 + 1) for fp in range(n0 + 1)]
        bounds = [epsilon_clopper_pearson(*table, delta=delta, confidence=0.6) for table in tables]
        assert_ceiling(bounds, ErrorRates(n1, n0), delta, 0.6)
        bounds = [mu_clopper_pearson(*table, confidence=0.6) for table in tables]
        assert_ceiling(bounds, ErrorRates(n1, n0, "mu"), 0.0, 0.6)


@pytest.mark.grid
@pytest.mark.parametrize("rule", [FixedThreshold(0.5), Split(), Split(0.3), Grid((-1.0, 0.5, 2.0)), Band(), None])
def test_no_scores_show_more(rule: Threshold | None) -> None:
    """Scores from three values, in every number of each, of 12 and 10 runs; and perfect ones show as much."""
    n1, n0, delta = 12, 10, 0.01
    tables = [
        (np.repeat([0.0, 1.0, 3.0], [n1 - a - b, a, b]), np.repeat([0.0, 1.0, 3.0], [n0 - c - d, c, d]))
        for a, b in itertools.product(range(0, n1 + 1, 3), repeat=2)
        if a + b <= n1
        for c, d in itertools.product(range(0, n0 + 1, 5), repeat=2)
        if c + d <= n0
    ]
    bounds = [epsilon_from_scores(*scores, delta=delta, confidence=0.5, threshold=rule) for scores in tables]
    assert_ceiling(bounds, Scores(n1, n0, rule), delta, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 0.2])
def test_no_rounds_show_more(delta: float) -> None:
    """All 4⁵ sequences of five rounds, at a confidence of 20% that five rounds can reach."""
    outcomes = list(itertools.product((True, False), (True, False)))
    most, result = ceiling(Rounds(5, 2.0, 0.125), delta=delta, confidence=0.2), 0.0
    for sequence in itertools.product(outcomes, repeat=5):
        audit = Sequential(delta=delta, confidence=0.2, largest=2.0, step=0.125)
        audit.update_all(sequence)
        result = max(result, audit.epsilon)
    assert result == most > 0


@pytest.mark.grid
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("earlier", [0, 4, 50])
def test_no_rounds_after_earlier_runs_show_more(earlier: int, delta: float) -> None:
    """Random rounds and random earlier runs, told anew every few rounds: no wealth is above what is possible at most,
    for any ε, and what was said to be out of reach is not reached."""
    rng = np.random.default_rng(earlier)
    reached = 0
    for _ in range(40):
        audit = Sequential(delta=delta, confidence=0.5, largest=4.0, step=0.05, earlier=earlier)
        rate = rng.random(2) ** 4 if rng.random() < 0.5 else np.array([0.0, 1.0])
        beyond = 4.0
        for number in range(30):
            if rng.random() < 0.3:
                runs = rng.integers(0, earlier + number + 1, 2)
                kept = rng.random() < 0.5
                hits = [0 if kept else rng.integers(runs[0] + 1), runs[1] if kept else rng.integers(runs[1] + 1)]
                audit.expect((int(hits[0]), int(runs[0])), (int(hits[1]), int(runs[1])))
            beyond = min(beyond, next((e for e in (0.5, 1.0, 2.0) if not audit.could_exceed(e, 30 - number)), 4.0))
            audit.update(*(rng.random(2) < rate).tolist())
            most = Wealth(audit.grid, delta).most(earlier, number + 1)
            assert (audit.wealth.logs <= most).all()
            assert audit.epsilon <= audit.ceiling(number + 1)
            reached += audit.epsilon == audit.ceiling(number + 1) > 0
        assert audit.epsilon <= beyond
    assert reached > 0 or earlier


@pytest.mark.grid
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.1])
def test_the_ceiling_of_rounds_is_that_of_a_replay(delta: float) -> None:
    audit = Sequential(delta=delta, confidence=0.95)
    for rounds in range(250):
        assert audit.epsilon == ceiling(Rounds(rounds), delta=delta, confidence=0.95)
        audit.update(True, False)
    assert audit.bound().ceiling == audit.epsilon > 3


def assert_ceiling(bounds: list[Bound], test: Test, delta: float, confidence: float) -> None:
    """All bounds carry the ceiling, none is above it, and one reaches it."""
    most = ceiling(test, delta=delta, confidence=confidence)
    assert {bound.ceiling for bound in bounds} == {most}
    assert max(bound.value for bound in bounds) == most


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (OneRun(10, 11), "guesses = 11 and m = 10"),
        (OneRun(10, 5, "laplace"), "rule must be one of published, tight, adaptive"),  # type: ignore[arg-type]
        (ErrorRates(-1, 5), "tp must be whole numbers of at least 0, not -1"),
        (ErrorRates(5, 5, "rho"), "quantity must be one of epsilon, mu"),  # type: ignore[arg-type]
        (ErrorRates(5, 5, "mu"), "a bound on mu has no delta"),
        (Scores(0, 5), "runs_in must be at least 1, not 0"),
        (Rounds(-1), "rounds must be at least 0, not -1"),
        ("one_run", "test must be a OneRun, ErrorRates, Scores or Rounds, not 'one_run'"),
    ],
)
def test_impossible_sizes_are_refused(test: Test, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        ceiling(test, delta=0.1, confidence=0.9)
    assert "\n" not in str(error.value)


def test_the_numbers_of_the_guide_are_those_of_the_code() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "audit-statistics.md").read_text(encoding="utf-8")
    stated = re.findall(r"^((?:ceiling|canaries_needed)\(.*\))\s+# ([\d.]+)$", guide, flags=re.MULTILINE)
    assert len(stated) == 5
    for expression, number in stated:
        result = eval(expression, {name: getattr(statistics, name) for name in statistics.__all__})  # type: ignore[attr-defined]  # our own guide
        assert f"{result:.4g}".rstrip("0") == number.rstrip("0"), expression
