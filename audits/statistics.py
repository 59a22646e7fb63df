"""Statistics that turn scores, counts of guesses and hits into bounds. They know nothing of text.

Each finite-sample one has a coverage test on mechanisms whose ε is known exactly (`tests/audits`).
"""

from cupel.audits.approximate_intervals import epsilon_jeffreys, epsilon_katz_log
from cupel.audits.ceiling import ErrorRates, OneRun, Rounds, Scores, ceiling
from cupel.audits.clopper_pearson import (
    clopper_pearson,
    clopper_pearson_limits,
    difference_interval,
    epsilon_clopper_pearson,
    epsilons_clopper_pearson,
    mu_clopper_pearson,
)
from cupel.audits.exposure import exposure_extrapolated, exposure_interpolated
from cupel.audits.one_run import (
    Disclosures,
    canaries_needed,
    disclosures_with_holdout,
    epsilon_one_run,
    epsilons_one_run,
    hypergeometric_tail,
)
from cupel.audits.one_run_f_dp import epsilon_one_run_f_dp
from cupel.audits.score_thresholds import Band, FixedThreshold, Grid, Split, epsilon_from_scores
from cupel.audits.sequential import Sequential

__all__ = [
    "Band",
    "Disclosures",
    "ErrorRates",
    "FixedThreshold",
    "Grid",
    "OneRun",
    "Rounds",
    "Scores",
    "Sequential",
    "Split",
    "canaries_needed",
    "ceiling",
    "clopper_pearson",
    "clopper_pearson_limits",
    "difference_interval",
    "disclosures_with_holdout",
    "epsilon_clopper_pearson",
    "epsilon_from_scores",
    "epsilon_jeffreys",
    "epsilon_katz_log",
    "epsilon_one_run",
    "epsilon_one_run_f_dp",
    "epsilons_clopper_pearson",
    "epsilons_one_run",
    "exposure_extrapolated",
    "exposure_interpolated",
    "hypergeometric_tail",
    "mu_clopper_pearson",
]
