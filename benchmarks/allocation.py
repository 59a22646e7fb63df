"""Random allocation: the time and the width of the interval for ε against the number of steps, on one thread.

Each record takes part in one of t steps, σ = 1 and δ = 10⁻⁶, in one epoch and in twenty. The time of one epoch is that
of both laws and of the answer; twenty epochs use the same laws. Poisson sampling at the rate 1/t is beside it.

Usage: python benchmarks/allocation.py [t …]
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import sys
import time

from dpassay.accounting.lattice.pairs import DominatingPair

STEPS = (2, 10, 100, 1000, 10_000, 100_000)
NOISE, DELTA, EPOCHS = 1.0, 1e-6, 20


def main(counts: list[int]) -> None:
    print(f"{'t':>7} {'lower':>10} {'upper':>10} {'width':>8} {'CPU s':>6}  {EPOCHS} epochs, width, CPU s; Poisson")
    for steps in counts or STEPS:
        begin = time.process_time()
        pair = DominatingPair.gaussian_allocation(NOISE, steps)
        one = pair.epsilon(DELTA)
        middle = time.process_time()
        many = pair.self_compose(EPOCHS).epsilon(DELTA)
        end = time.process_time()
        poisson = DominatingPair.gaussian(NOISE).poisson_sampled(1 / steps).self_compose(steps).epsilon(DELTA)
        print(
            f"{steps:7} {one.lower:10.6f} {one.upper:10.6f} {one.width / one.upper:8.1e} {middle - begin:6.2f}  "
            f"[{many.lower:.6f}, {many.upper:.6f}], {many.width / many.upper:.1e}, {end - middle:.2f}; "
            f"{poisson.upper:.6f}",
            flush=True,
        )


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
