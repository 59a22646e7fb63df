"""The noise that protects 1000 secrets in 8000 records, beside dp_accounting's own pairs, in one run on one thread.

Each record holds each secret with probability 0.01; p = 10⁻⁴ and r = 10⁻³ for all, after 1 and after 10 rounds. Records
take part as SecretNoise has it. dp_accounting has mixtures of Gaussians but no secrets: the blow-up is the least
e^ε p + δ(ε) over a grid, and σ is found by halving log σ to a relative 10⁻³, between half and twice what was found
here, so without a search for where to begin and a thousand times rougher. Its interval is 10⁻²: one answer at its
default of 10⁻⁴ takes minutes. Only the first few secrets are asked of it, and nothing is multiplied:
the ratio is that of the times for the same secrets. Times of all 1000 are of dpassay alone.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray
from paired_times import Section, paired, run_script, times_faster
from scipy.sparse import csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.noise import blowup, noise_for_secrets
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise

Floats = NDArray[np.float64]

SECRETS, RECORDS, RATE = 1000, 8000, 0.01
P, R = 1e-4, 1e-3
INTERVAL, TOLERANCE = 1e-2, 1e-3
ASKED = 2  # secrets that are asked of dp_accounting
_EPSILONS = np.linspace(0, 15, 301)


def incidence() -> Incidence:
    matrix = csr_array(np.random.default_rng(0).random((SECRETS, RECORDS)) < RATE)
    return Incidence(matrix, (SecretProtection(P, R),), np.zeros(SECRETS, dtype=np.int64))


def rows(indices: Incidence, noise: SecretNoise) -> list[Floats]:
    """For each secret, the chances of its records."""
    return np.split(noise.probabilities[indices.matrix.indices], indices.matrix.indptr[1:-1])


def r_by_pld(chances: Floats, sigma: float, rounds: int) -> float:
    """r from dp_accounting, pessimistic in either direction; counts rarer than 10⁻¹⁶ are left out."""
    weights = poisson_binomial(chances[chances > 0])
    counts = np.flatnonzero(weights > 1e-16)
    kept = weights[counts] / weights[counts].sum()
    item = pld.from_mixture_gaussian_mechanism(
        sigma, counts.astype(float).tolist(), kept.tolist(), value_discretization_interval=INTERVAL
    )
    many = item.self_compose(rounds) if rounds > 1 else item
    return float((np.exp(_EPSILONS) * P + np.asarray(many.get_delta_for_epsilon(_EPSILONS))).min())


def noise_by_pld(secrets: Sequence[Floats], rounds: int, near: Sequence[float]) -> float:
    """The largest σ that one of the secrets needs, each found by halving."""
    result = 0.0
    for chances, sigma in zip(secrets, near, strict=True):
        low, high = math.log(sigma / 2), math.log(2 * sigma)
        while high - low > TOLERANCE:
            middle = (low + high) / 2
            low, high = (low, middle) if r_by_pld(chances, math.exp(middle), rounds) <= R else (middle, high)
        result = max(result, math.exp(high))
    return result


def compared(composed: int, rounds: int) -> Section:
    """One table: `composed` rounds of releases, timed `rounds` times."""
    indices = incidence()
    fitted = SecretNoise.fit(indices, rounds=composed)
    secrets = rows(indices, fitted)
    some = secrets[:ASKED]
    near = [noise_for_secrets([chances], P, R, composed) for chances in some]
    works: dict[str, Callable[[], Any]] = {
        f"dpassay, {ASKED} secrets": partial(noise_for_secrets, some, P, R, composed),
        f"dp_accounting, the same {ASKED}": partial(noise_by_pld, some, composed, near),
        f"dpassay, all {SECRETS} secrets": partial(noise_for_secrets, secrets, P, R, composed),
        f"dpassay, all {SECRETS}, with the linear program and one event": lambda: (
            SecretNoise.fit(indices, rounds=composed).sigma
        ),
    }
    section = Section(
        f"{composed} rounds", f"σ for r = {R:g} at p = {P:g}", ("what", "σ", "wall ms", "CPU ms", "CPU ms a secret")
    )
    results = paired(works, rounds, slow=tuple(works))
    for name, times in results.items():
        count = ASKED if str(ASKED) in name.split() else SECRETS
        shown = (f"{times.answer:.6g}", f"{times.wall_ms:.1f}", f"{times.cpu_ms:.1f}", f"{times.cpu_ms / count:.3g}")
        section.rows.append((name, *shown))
        section.data[name] = times.to_json()
    mine, its = (results[name] for name in list(works)[:2])
    ratio = times_faster(mine, its)
    section.data["ratio"] = ratio
    section.notes.append(
        f"dp_accounting was asked about {ASKED} of {SECRETS} secrets; for these, dpassay is {ratio:.0f} times faster"
    )
    lowest, highest = min(near), max(near)
    section.notes.append(f"noise of each of the {ASKED} by itself: {lowest:.6g} to {highest:.6g}")
    answers = [blowup(poisson_binomial(some[0]), near[0], P, composed).upper, r_by_pld(some[0], near[0], composed)]
    section.notes.append(f"r of the first at its noise: {answers[0]:.6g}, by dp_accounting {answers[1]:.6g}")
    worst = noise_for_secrets(secrets, P, R, composed)
    section.notes.append(
        f"one event for all {SECRETS} takes {fitted.sigma / worst - 1:.2%} more noise than the worst secret alone"
    )
    return section


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    "one": (partial(compared, 1), 3, 1),
    "ten": (partial(compared, 10), 3, 1),
}
"""Name to what makes the section, its rounds, and its rounds with --quick."""


if __name__ == "__main__":
    sys.exit(run_script(SECTIONS, __doc__))
