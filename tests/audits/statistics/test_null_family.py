"""Every bound of a statistic says which mechanisms its test rejects."""

from __future__ import annotations

from typing import Any

import pytest

from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Rigor
from dpassay.audits import statistics

COUNTS: dict[str, Any] = {"tp": 90, "fn": 10, "fp": 20, "tn": 80}
SEQUENTIAL = statistics.Sequential(delta=0.0, confidence=0.95)

BOUNDS = [
    statistics.epsilon_clopper_pearson(**COUNTS, delta=0.0, confidence=0.95),
    statistics.mu_clopper_pearson(**COUNTS, confidence=0.95),
    statistics.epsilon_jeffreys(**COUNTS, delta=0.0, confidence=0.95),
    statistics.epsilon_katz_log(**COUNTS, delta=0.0, confidence=0.95),
    statistics.epsilon_one_run(100, 60, 50, delta=1e-5, confidence=0.95),
    statistics.epsilon_one_run_f_dp(100, 60, 50, family="gdp", delta=1e-5, confidence=0.95),
    statistics.epsilon_one_run_f_dp(100, 60, 50, family="approx_dp", delta=1e-5, confidence=0.95),
    statistics.mu_one_run(100, 60, 50, confidence=0.95),
    statistics.epsilon_from_scores([3.0, 4.0, 5.0], [0.0, 1.0, 2.0], delta=0.0, confidence=0.95),
    statistics.disclosures_with_holdout(60, 45, 2000).epsilon,
    SEQUENTIAL.bound(),
]


MODELS = {
    "mu_clopper_pearson": "every μ-GDP mechanism",
    "one_run_f_dp_gdp": "every μ-GDP mechanism",
    "one_run_gaussian": "every function of independent Gaussian observations, one for each candidate",
}
"""Those that assume a family, which is named."""


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.method)
def test_a_family_is_named_and_only_bounds_on_all_mechanisms_may_refute(bound: Bound) -> None:
    assumes = bound.method in MODELS
    assert bound.null_family == MODELS.get(bound.method, ANY_MECHANISM)
    assert (bound.rigor is Rigor.MODEL_CONDITIONAL) == assumes
    assert bound.ceiling is not None
    assert bound.value <= bound.ceiling
    assert bound.confidence == 0.95
