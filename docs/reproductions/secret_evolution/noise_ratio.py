"""Appendix B.1: how much less noise secret protection asks for than Gaussian differential privacy.

    python docs/reproductions/secret_evolution/noise_ratio.py [--seeds 3] [--quick] [--results FOLDER]

8000 records, 400 secrets, each in each record with probability .01. GDP at the μ of the same (p, r) protects one record
(`record`), or all records that hold one secret (`group`): only the second protects the secret. Both release a histogram
to which a record adds 1. Every σ of secret protection is for such a histogram too: counts and centres together need √2
of it.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
from scipy import sparse
from shared import arguments, runs

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.conversions import mu_for
from dpassay.accounting.secret_protection.noise import blowup, noise_for_secrets
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise, inclusion_weights

FULL = {"records": 8000, "secrets": 400, "occurs": 0.01, "p": 1e-4, "ratios": [2, 10, 50, 400], "rounds": [1, 10]}
QUICK = {"records": 400, "secrets": 10, "occurs": 0.02, "p": 1e-4, "ratios": [10], "rounds": [1, 2]}


def incidence(size: dict[str, Any], secrets: int, r: float, seed: int) -> Incidence:
    """Places drawn at random."""
    rng = np.random.default_rng([seed, secrets])
    matrix = sparse.csr_array(rng.random((secrets, size["records"])) < size["occurs"])
    return Incidence(matrix, (SecretProtection(size["p"], r),), np.zeros(secrets, dtype=np.int64))


def one(size: dict[str, Any], secrets: int, ratio: float, rounds: int, seed: int) -> dict[str, Any]:
    """All noises of one setting."""
    p, r = size["p"], ratio * size["p"]
    places = incidence(size, secrets, r, seed)
    mu, most = mu_for(p, r), int(places.occurrences.max())
    start = time.perf_counter()
    sound = SecretNoise.fit(places, rounds=rounds)
    seconds = time.perf_counter() - start
    published = SecretNoise.as_published(places, rounds=rounds)
    rows = [published.probabilities[places.matrix[[j], :].indices] for j in range(secrets)]
    exact = noise_for_secrets(rows, p, r, rounds)
    worst = max(blowup(poisson_binomial(row), published.sigma, p).lower for row in rows) if rounds == 1 else None
    record, group = math.sqrt(rounds) / mu, most * math.sqrt(rounds) / mu
    return {
        "mu": mu,
        "most": most,
        "record": record,
        "group": group,
        "drawn_published": float(published.probabilities.sum()),
        "sigma_published": float(published.sigma),
        "r_published": worst,
        "sigma_exact": exact,
        "record_over_exact": record / exact if exact else None,
        "group_over_exact": group / exact if exact else None,
        "drawn": float(sound.probabilities.sum()),
        "sigma": sound.sigma,
        "record_over_sigma": record / sound.sigma if sound.sigma else None,
        "group_over_sigma": group / sound.sigma if sound.sigma else None,
        "share_exact": exact / float(published.probabilities.sum()),
        "share": sound.sigma / float(sound.probabilities.sum()),
        "share_record": record / size["records"],
        "share_group": group / size["records"],
        "share_weighed": _weighed(places, rounds, mu),
        "seconds": seconds,
    }


def _weighed(places: Incidence, rounds: int, mu: float) -> float:
    """σ over the number of records, if record i always took part with weight w_i in place of now and then with 1.

    A secret then adds at most max_j Σ w_i in every round, so μ-GDP for it takes √T times that over μ.
    """
    weights = inclusion_weights(places)
    return math.sqrt(rounds) * float((places.matrix.astype(np.float64) @ weights).max()) / mu / float(weights.sum())


def settings(size: dict[str, Any], quick: bool) -> list[tuple[str, int, float, int]]:
    """(name, secrets, r/p, rounds): the left panel varies r/p, the right one the number of secrets at r/p = 10."""
    left = [(size["secrets"], float(ratio), rounds) for rounds in size["rounds"] for ratio in size["ratios"]]
    right = [] if quick else [(secrets, 10.0, 1) for secrets in (100, 1000)]
    return [(f"{m} secrets, r/p = {ratio:g}, T = {rounds}", m, ratio, rounds) for m, ratio, rounds in left + right]


def made(results: runs.Results, size: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The tables of the page."""
    rows = []
    for name, secrets, ratio, rounds in settings(size, quick):
        keys = {key for run in results.runs if run["setting"] == name for key in run} - {"setting", "seed"}
        row: dict[str, Any] = {key: results.of(name, key) for key in sorted(keys)}
        row |= {"secrets": secrets, "ratio": f"{ratio:g}", "rounds": rounds, "claimed": ratio * size["p"]}
        rows.append(row)
    first = [
        {"title": "secrets", "key": "secrets"},
        {"title": "r/p", "key": "ratio"},
        {"title": "T", "key": "rounds"},
    ]
    ratios = [
        *first,
        {"title": "μ", "key": "mu", "digits": 3},
        {"title": "σ of GDP, record", "key": "record", "digits": 2},
        {"title": "σ of GDP, group", "key": "group", "digits": 1},
        {"title": "σ, ρ as printed", "key": "sigma_exact", "digits": 3},
        {"title": "ratio, record", "key": "record_over_exact", "digits": 2},
        {"title": "ratio, group", "key": "group_over_exact", "digits": 1},
        {"title": "σ, ρ = w / max w", "key": "sigma", "digits": 2},
        {"title": "ratio, record", "key": "record_over_sigma", "digits": 3},
        {"title": "ratio, group", "key": "group_over_sigma", "digits": 2},
    ]
    shares = [
        *first,
        {"title": "drawn, ρ as printed", "key": "drawn_published", "digits": 1},
        {"title": "drawn, ρ = w / max w", "key": "drawn", "digits": 0},
        {"title": "σ a record: ρ as printed", "key": "share_exact", "digits": 4},
        {"title": "ρ = w / max w", "key": "share", "digits": 4},
        {"title": "weights w", "key": "share_weighed", "digits": 4},
        {"title": "GDP, record", "key": "share_record", "digits": 5},
        {"title": "GDP, group", "key": "share_group", "digits": 4},
    ]
    published = [
        *first,
        {"title": "claimed r", "key": "claimed", "digits": 4},
        {"title": "σ by one Gaussian", "key": "sigma_published", "digits": 4},
        {"title": "σ, exact", "key": "sigma_exact", "digits": 4},
        {"title": "r at the first σ", "key": "r_published", "digits": 5},
    ]
    return {
        "noise_ratio": {"columns": ratios, "rows": rows},
        "noise_shares": {"columns": shares, "rows": rows},
        "one_gaussian": {"columns": published, "rows": [row for row in rows if row["rounds"] == 1]},
    }


def main() -> int:
    options = arguments("Appendix B.1: noise of GDP over noise of secret protection.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "noise_ratio.json", size)
    for seed in range(options.first, options.first + options.seeds):
        for name, secrets, ratio, rounds in settings(size, options.quick):
            if results.missing(name, seed):
                results.add(name, seed, **one(size, secrets, ratio, rounds, seed))
    results.tables = made(results, size, options.quick)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
