"""Time, width and memory of the certified accountant, beside the accountants of other libraries.

    python benchmarks/accountants.py [--quick] [--only accuracy,curves] [--json out.json]

One run, one thread. Everything that is compared is timed in turns, several rounds with the garbage collector off, and
the median is printed, in wall and in processor time; a ratio is the smaller of the two. A goal that is missed is
printed as MISSED, and the exit code is then 1 (with --quick, which takes fewer rounds, it is 0).
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import one_thread  # noqa: F401

# isort: split
import floor_of_query
import numpy as np
import other_accountants as other
from equal_accuracy import as_accurate, equal_accuracy
from paired_times import Goal, Section, Times, add_options, paired, run_sections, times_faster

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet

CONFIGURATIONS = (
    (0.8, 0.005, 1_000, 1e-6),
    (1.0, 0.01, 10_000, 1e-5),
    (0.6, 0.001, 5_000, 1e-7),
    (2.0, 0.1, 2_000, 1e-6),
)
MEMORY_MIB = 1024.0


def sgd(noise_multiplier: float, rate: float, steps: int) -> DominatingPair:
    """Poisson-sampled Gaussian steps, a unit added or removed; built anew, so that nothing is remembered."""
    return DominatingPair.gaussian(noise_multiplier).poisson_sampled(rate).self_compose(steps)


def epsilon_of_sgd(noise_multiplier: float, rate: float, steps: int, delta: float, width: float) -> Interval:
    return sgd(noise_multiplier, rate, steps).epsilon(delta, width=width)


def relative(interval: Interval) -> float:
    return (interval.upper - interval.lower) / interval.upper if interval.upper else 0.0


def shown(lower: float, upper: float) -> str:
    return f"[{lower:.8g}, {upper:.8g}]"


def milliseconds(times: Times) -> tuple[str, str]:
    return f"{times.wall_ms:.2f}", f"{times.cpu_ms:.2f}"


def calibration(rounds: int) -> Section:
    """The noise multiplier for ε."""
    section = Section(
        "calibration",
        "noise multiplier for (ε, 1e-5), q = .01, n = 1000, searched in [0.5, 5] to a tolerance; dp_accounting on the "
        "coarsest lattice that stays within it",
        ("ε", "tolerance", "accountant", "noise multiplier", "wall ms", "CPU ms", "dpassay is faster by"),
    )
    for epsilon, tolerance in itertools.product((1.0, 2.0, 3.0), (1e-3, 1e-6)):
        known = _calibrated(epsilon, 1e-9)
        around = Interval(known - tolerance, known + tolerance)
        ask = partial(other.calibrated, epsilon, 1e-5, 0.01, 1000, tolerance)
        peer = as_accurate(ask, around, 2 * tolerance, other.PEERS["dp_accounting"].coarsest(tolerance))
        works: dict[str, Callable[[], Any]] = {"dpassay": partial(_calibrated, epsilon, tolerance)}
        if not peer.reason:
            works["dp_accounting"] = partial(ask, peer.parameter)
        else:
            section.notes.append(f"ε = {epsilon:g}, tolerance {tolerance:g}: dp_accounting {peer.reason}")
        results = paired(works, rounds, slow=("dp_accounting",))
        for name, times in results.items():
            last = "" if name == "dpassay" else f"{times_faster(results['dpassay'], times):.1f}"
            row = (f"{epsilon:g}", f"{tolerance:g}", name, f"{times.answer:.7f}", *milliseconds(times), last)
            section.rows.append(row)
        section.data[f"{epsilon:g}, {tolerance:g}"] = {name: times.to_json() for name, times in results.items()}
    section.notes.append(
        "dpassay's answer is certified to meet the target, and the next value within the tolerance was refused; "
        "dp_accounting's is the root of its own bound, which does not count its rounding."
    )
    return section


def _calibrated(epsilon: float, tolerance: float) -> float:
    from dpassay.accounting.calibration.calibration import calibrate
    from dpassay.accounting.guarantees import ApproxDP

    result = calibrate(
        lambda noise: other.event(noise, 0.01, 1000),
        ApproxDP(epsilon, 1e-5),
        adjacency="add_remove",
        decreasing=True,
        bracket=(0.5, 5.0),
        tolerance=tolerance,
    )
    return float(result.value)


def curves(rounds: int) -> Section:
    """Points of the trade-off curve."""
    section = Section(
        "curves",
        "β(α) at (0.8, .005, 1000), α from 1e-6 to .99, the worse of both directions; dp_accounting: the best of the "
        "lines 1 − δ − e^ε·α of as many ε, symmetrised",
        ("points", "accountant", "sides", "β near .01", "largest gap above", "wall ms", "CPU ms"),
    )
    for points in (100, 1000):
        alphas = np.geomspace(1e-6, 0.99, points)
        works: dict[str, Callable[[], Any]] = {
            "dpassay": lambda alphas=alphas: sgd(0.8, 0.005, 1000).trade_off(alphas),  # type: ignore[misc]
            "dp_accounting": partial(other.trade_off, 0.8, 0.005, 1000, alphas),
        }
        results = paired(works, rounds)
        low, high = results["dpassay"].answer
        their = results["dp_accounting"].answer
        at = int(np.argmin(np.abs(alphas - 0.01)))
        rows = (
            ("dpassay", "two", shown(low[at], high[at]), f"{np.max(high - low):.1e}"),
            ("dp_accounting", "lower", f"{their[at]:.8g}", f"{np.max(high - their):.1e}"),
        )
        for name, sides, value, gap in rows:
            section.rows.append((f"{points}", name, sides, value, gap, *milliseconds(results[name])))
        section.data[f"{points}"] = {name: times.to_json() for name, times in results.items()}
    section.notes.append("The gap is from the lower bound on β to dpassay's upper bound, the largest over all α.")
    return section


def cost(rounds: int) -> Section:
    """How the time grows with the number of compositions, with 1/δ and with the precision."""
    section = Section(
        "cost",
        "dpassay, σ = 1, q = .01, both directions; points: lattice points of all transforms, and of the largest",
        ("n", "δ", "width", "answer", "width reached", "transforms", "points", "largest", "wall ms", "CPU ms"),
    )
    asked = [(10**k, 1e-5, 1e-3) for k in range(7)]
    asked += [(10_000, 10.0**-k, 1e-3) for k in range(3, 15)]
    asked += [(10_000, 1e-5, 10.0**-k) for k in range(2, 7)]
    for steps, delta, width in asked:
        work = partial(epsilon_of_sgd, 1.0, 0.01, steps, delta, width)
        points = floor_of_query.transforms(work)
        times = paired({"dpassay": work}, rounds)["dpassay"]
        reached = relative(times.answer)
        asked_for = (f"{steps}", f"{delta:g}", f"{width:g}")
        counted = (f"{reached:.1e}", f"{len(points)}", f"{sum(points)}", f"{max(points, default=0)}")
        section.rows.append((*asked_for, shown(times.answer.lower, times.answer.upper), *counted, *milliseconds(times)))
        section.data[", ".join(asked_for)] = {"points": points, "width": reached, **times.to_json()}
        if reached > width:
            section.goals.append(Goal(f"n {steps}, δ {delta:g}: width reached", reached, most=width))
    return section


def memory(rounds: int) -> Section:
    """Peak memory, each in a process of its own."""
    section = Section(
        "memory", "largest resident memory of a process of its own, in MiB", ("what", "answer", "peak", "imports alone")
    )
    about = {
        "compositions": "ε(1e-5) of 10⁶ steps at σ = 1, q = .001, both directions, width 1e-3",
        "secrets": "noise for 1000 secrets of 8000 records each, p = 1e-4, r = 1e-3",
    }
    for name, what in about.items():
        command = [sys.executable, str(Path(__file__).resolve()), "--measure-memory", name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            section.goals.append(
                Goal(f"{what} ({(run.stderr.strip() or 'no output').splitlines()[-1]})", None, most=MEMORY_MIB)
            )
            continue
        answer, start, peak = run.stdout.strip().split("\t")
        section.rows.append((what, answer, f"{float(peak):.0f}", f"{float(start):.0f}"))
        section.goals.append(Goal(f"{what}: MiB", float(peak), most=MEMORY_MIB))
        section.data[name] = {"answer": answer, "mib": float(peak), "imports_mib": float(start)}
    return section


def _measure_memory(name: str) -> None:
    """In a process of its own: prints an answer, the peak memory before it and after it."""
    if name == "compositions":
        before = floor_of_query.peak_mib()
        result = sgd(1.0, 0.001, 10**6).epsilon(1e-5)
        answer = shown(result.lower, result.upper)
    else:
        from dpassay.accounting.secret_protection.noise import noise_for_secrets

        before = floor_of_query.peak_mib()
        generator = np.random.default_rng(0)
        probabilities = [generator.uniform(0, 2e-3, 8000) for _ in range(1000)]
        answer = f"σ = {noise_for_secrets(probabilities, 1e-4, 1e-3):.6g}"
    print(answer, before, floor_of_query.peak_mib(), sep="\t")


def floor(rounds: int) -> Section:
    """How far a query is from its own transforms and special functions."""
    section = Section(
        "floor",
        "the 1e-3 query beside nothing but its own FFTs and special functions, called again with the same arguments",
        ("σ, q, n, δ", "lattice points", "FFT Mflop", "FFT MB", "exp, log, ndtr", "query ms", "floor ms", "factor"),
    )
    for configuration in CONFIGURATIONS:
        work = partial(epsilon_of_sgd, *configuration, 1e-3)
        calls = floor_of_query.recorded(work)
        sizes = floor_of_query.sizes_of(calls)
        results = paired({"query": work, "floor": partial(floor_of_query.replay, calls)}, rounds)
        factor = times_faster(results["floor"], results["query"])
        where = ", ".join(f"{value:g}" for value in configuration)
        points = "+".join(f"{size}" for size in sizes.transforms)
        counted = (points, f"{sizes.flops / 1e6:.1f}", f"{sizes.bytes / 1e6:.1f}", f"{sizes.evaluations}")
        times = [f"{results[name].cpu_ms:.2f}" for name in ("query", "floor")]
        section.rows.append((where, *counted, *times, f"{factor:.1f}"))
        section.data[where] = {name: each.to_json() for name, each in results.items()} | {"factor": factor}
    section.notes.append(
        "Processor time. Flops: 2.5·N·log₂N a real transform of N points, bytes: what it reads and writes."
    )
    return section


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    "accuracy": (equal_accuracy, 5, 1),
    "calibration": (calibration, 3, 1),
    "curves": (curves, 7, 1),
    "cost": (cost, 5, 1),
    "memory": (memory, 1, 1),
    "floor": (floor, 15, 3),
}
"""Name to what makes the section, its rounds, and its rounds with --quick."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, SECTIONS)
    parser.add_argument("--measure-memory", choices=("compositions", "secrets"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure_memory:
        _measure_memory(options.measure_memory)
        return 0
    warnings.simplefilter("ignore", WidthNotMet)  # the widths reached are printed
    return run_sections(SECTIONS, parser, options)


if __name__ == "__main__":
    sys.exit(main())
