"""Diversity and length of texts, synthetic beside real. Every number is computed from private data, and is private.

Source: distinct-n is Li et al., "A diversity-promoting objective function for neural conversation models" (2016);
rarefaction is Hurlbert, "The nonconcept of species diversity" (1971), equation 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln
from scipy.stats import ks_2samp, wasserstein_distance

from cupel.accounting import validate
from cupel.mechanisms.data.word_runs import Words, occurrences

LARGEST_N = 4
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def expected_distinct(occurrences: ArrayLike, draws: int) -> float:
    """How many different kinds are expected among `draws` things drawn without replacement.

    E = Σ_i 1 − C(N − c_i, m) / C(N, m) for m draws from N = Σ c_i things of which c_i are of kind i. With m = N it is
    the number of kinds. Numbers of different kinds grow slower than samples, so collections of different sizes are
    compared at the same m.

    Args:
        occurrences: how many kinds have c things, for c = 0, 1, 2, ….
        draws: m, from 0 to N.

    Raises:
        ValueError: for m out of range.
    """
    kinds = np.asarray(occurrences, dtype=np.int64)
    c = np.flatnonzero(kinds)
    total = int(c @ kinds[c])
    if validate.integer(draws=draws) > total:
        raise ValueError(f"draws must be at most the number of things ({total}), not {draws}")
    left = total - c
    possible = left >= draws  # else some of the kind must be among the draws
    rest = np.where(possible, left, draws)
    log_none = gammaln(rest + 1) - gammaln(rest - draws + 1) - gammaln(total + 1) + gammaln(total - draws + 1)
    seen = np.where(possible, -np.expm1(np.minimum(log_none, 0)), 1.0)
    return float(kinds[c] @ seen)


def diversity(synthetic: Words, real: Words) -> list[dict[str, Any]]:
    """Distinct-n for n = 1 to 4: the share of different ones among all runs of n words, synthetic and real.

    ``distinct`` is of all texts of a side; ``distinct_at_same_size`` is what is expected among as many runs as the
    smaller side has. A value is None where a side has no run of n words.
    """
    rows: list[dict[str, Any]] = []
    for n in range(1, LARGEST_N + 1):
        kinds = {side: occurrences(of.runs(n)) for side, of in (("synthetic", synthetic), ("real", real))}
        totals = {side: int(np.arange(len(of)) @ of) for side, of in kinds.items()}
        common = min(totals.values())
        row: dict[str, Any] = {"n": n, "runs": totals, "same_size": common}
        row["distinct"] = {side: int(of.sum()) / totals[side] if totals[side] else None for side, of in kinds.items()}
        row["distinct_at_same_size"] = {
            side: expected_distinct(of, common) / common if common else None for side, of in kinds.items()
        }
        rows.append(row)
    return rows


def compare_lengths(synthetic: Sequence[int], real: Sequence[int]) -> dict[str, Any]:
    """Lengths of texts: quantiles, Wasserstein-1 distance in the unit of the lengths, Kolmogorov–Smirnov distance.

    Args:
        synthetic, real: one length a text, at least one.

    Raises:
        ValueError: where a side is empty.
    """
    sides = {"synthetic": np.asarray(synthetic, dtype=np.float64), "real": np.asarray(real, dtype=np.float64)}
    for side, lengths in sides.items():
        if not lengths.size:
            raise ValueError(f"lengths are compared of at least one text; there is no {side} one")
    out: dict[str, Any] = {
        side: {
            "mean": float(lengths.mean()),
            "quantiles": {f"{q:g}": float(np.quantile(lengths, q)) for q in QUANTILES},
        }
        for side, lengths in sides.items()
    }
    out["wasserstein_1"] = float(wasserstein_distance(sides["synthetic"], sides["real"]))
    out["kolmogorov_smirnov"] = float(ks_2samp(sides["synthetic"], sides["real"], method="asymp").statistic)
    return out
