"""Statistics that turn counts of guesses and hits into bounds. They know nothing of text.

Each has a coverage test on mechanisms whose ε is known exactly (`tests/audits`).
"""

from cupel.audits.clopper_pearson import (
    clopper_pearson,
    clopper_pearson_limits,
    difference_interval,
    epsilon_clopper_pearson,
    epsilons_clopper_pearson,
)
from cupel.audits.one_run import (
    Disclosures,
    canaries_needed,
    ceiling_one_run,
    disclosures_with_holdout,
    epsilon_one_run,
    epsilons_one_run,
    hypergeometric_tail,
)

__all__ = [
    "Disclosures",
    "canaries_needed",
    "ceiling_one_run",
    "clopper_pearson",
    "clopper_pearson_limits",
    "difference_interval",
    "disclosures_with_holdout",
    "epsilon_clopper_pearson",
    "epsilon_one_run",
    "epsilons_clopper_pearson",
    "epsilons_one_run",
    "hypergeometric_tail",
]
