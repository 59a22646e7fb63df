"""How often too little Gaussian noise for (1, 1e-5) is refuted in tests: ``python benchmarks/shift_power.py``.

The claim needs a standard deviation of 3.73 times the sensitivity. Beside it stands what one threshold on the output
shows in as many runs, at the rates that are expected at the best threshold, which nobody knows before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from dpassay.accounting import ApproxDP
from dpassay.audits.statistics import epsilons_clopper_pearson
from dpassay.testing import assert_never_exceeds
from dpassay.testing.assertions import CONFIDENCE

CLAIM = ApproxDP(1.0, 1e-5)
CASES: tuple[tuple[float, int, Callable[[Any], float] | None], ...] = (
    (1.0, 2000, None),
    (1.865, 20_000, None),
    (1.865, 20_000, float),
)
"""Standard deviation, runs on each data set, score."""
TESTED = 0.7  # the fraction of the runs that bounds from one threshold are tested on


def refuted(noise: float, runs: int, score: Callable[[Any], float] | None, seed: int) -> bool:
    """Whether one test fails."""
    try:
        assert_never_exceeds(
            lambda data, source: len(data) + float(source.generator.normal(scale=noise)),
            CLAIM,
            data=[1],
            neighbor=[1, 2],
            runs=runs,
            score=score,
            seed=seed,
        )
    except AssertionError:
        return True
    return False


def by_one_threshold(noise: float, runs: int) -> float:
    """The largest ε that expected counts show at one threshold."""
    tested = round(TESTED * runs)
    at = np.linspace(-3, 5, 400)
    fp, tp = (np.rint(tested * special.ndtr((mean - at) / noise)).astype(int) for mean in (0.0, 1.0))
    shown = epsilons_clopper_pearson(tp, tested - tp, fp, tested - fp, delta=CLAIM.delta, confidence=CONFIDENCE)
    return float(shown.max())


def main() -> None:
    """Prints a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=40)
    repetitions = parser.parse_args().repetitions
    for noise, runs, score in CASES:
        hits = sum(refuted(noise, runs, score, seed) for seed in range(repetitions))
        print(
            f"noise {noise}, {runs} runs, {'fitted scores' if score is None else 'the output as score'}: "
            f"{hits} of {repetitions} refuted; one threshold shows {by_one_threshold(noise, runs):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
