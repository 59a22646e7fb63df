"""The certified accountant and its peers at the same error: 30 events, each answered by all.

The error of an answer is its upper bound on ε less a reference, the certified interval of relative width 1e-6. dpassay
answers at its default width. A peer gets the coarsest lattice at which its error is no larger, found by bisection, and
that call is timed, by turns with dpassay's, from an event to a number and with every cache emptied before. A peer whose
answer lies below the reference is invalid, and one that does not reach the error has no time: its lattice is not made
finer once a call takes four seconds.
"""

from __future__ import annotations

import functools
import math
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import other_accountants as other
from dp_accounting import DpEvent, dp_event
from paired_times import Goal, Section, paired, times_faster
from scipy.stats import binom

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import WIDTH

REFERENCE_WIDTH = 1e-6
SECONDS = 4.0
"""A lattice is not made finer once a call has taken so long."""
MEMORY = 6 << 30
"""Bytes that the process may have: a peer that needs more fails."""
MEDIAN, MINIMUM = 10.0, 1.0
_CLOSE = 1.1  # how far from the coarsest lattice that will do the one that is timed may be

_GAUSSIAN, _LAPLACE = dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent
_MIXTURE, _RESPONSE = dp_event.MixtureOfGaussiansDpEvent, dp_event.RandomizedResponseDpEvent


@dataclass(frozen=True)
class Case:
    """A question that every accountant is asked."""

    name: str
    event: DpEvent
    delta: float
    adjacency: str = "add_remove"


@dataclass(frozen=True)
class Reached:
    """The coarsest lattice of a peer that is as accurate as dpassay, or why there is none.

    Attributes:
        parameter: the peer's own measure of its lattice.
        reason: empty where the error was reached.
    """

    parameter: float = math.nan
    reason: str = ""


def _times(event: DpEvent, count: int) -> DpEvent:
    return dp_event.SelfComposedDpEvent(event, count)


def _sgd(noise: float, rate: float, count: int) -> DpEvent:
    return _times(dp_event.PoissonSampledDpEvent(rate, _GAUSSIAN(noise)), count)


def cases() -> list[Case]:
    """Thirty: rare losses, little noise, many steps, atoms, mixtures and compositions of different events."""
    results = [
        Case(f"sampled Gaussian, σ {noise:g}, q {rate:g}, n {count:,}", _sgd(noise, rate, count), delta)
        for noise, rate, count, delta in (
            (0.8, 0.005, 1_000, 1e-6),
            (1.0, 0.01, 10_000, 1e-5),
            (0.6, 0.001, 5_000, 1e-7),
            (2.0, 0.1, 2_000, 1e-6),
            (1.0, 0.01, 1, 1e-5),
            (1.0, 0.1, 10, 1e-6),
            (0.3, 0.01, 100, 1e-5),
            (0.3, 0.001, 1_000, 1e-6),
            (0.7, 1e-4, 100_000, 1e-7),
            (1.0, 1e-5, 1_000_000, 1e-6),
            (0.5, 1e-6, 1_000_000, 1e-8),
            (1.0, 0.001, 1_000_000, 1e-6),
            (5.0, 0.01, 1_000_000, 1e-6),
            (10.0, 0.5, 10_000, 1e-5),
            (4.0, 0.05, 100_000, 1e-9),
            (20.0, 0.2, 100, 1e-5),
        )
    ]
    results += [
        Case("Gaussian, σ 1", _GAUSSIAN(1.0), 1e-5),
        Case("Gaussian, σ 50, n 10,000", _times(_GAUSSIAN(50.0), 10_000), 1e-6),
        Case("Laplace, b 1, n 3", _times(_LAPLACE(1.0), 3), 1e-5),
        Case("Laplace, b 10, n 100", _times(_LAPLACE(10.0), 100), 1e-6),
        Case("Laplace, b 100, n 10,000", _times(_LAPLACE(100.0), 10_000), 1e-6),
        Case(
            "sampled Laplace, b 1, q 0.01, n 1,000",
            _times(dp_event.PoissonSampledDpEvent(0.01, _LAPLACE(1.0)), 1000),
            1e-6,
        ),
        Case("discrete Laplace, a 0.1, n 100", _times(dp_event.DiscreteLaplaceDpEvent(0.1, 1), 100), 1e-6),
        Case("randomised response, p 0.5 of 4, n 20", _times(_RESPONSE(0.5, 4), 20), 1e-6, "replace_one"),
    ]
    occurrences = binom.pmf(np.arange(81), 80, 0.01)
    few = binom.pmf(np.arange(4), 3, 0.05)
    different = [_sgd(0.6 + 0.07 * k, 0.001 * (k + 1), 50) for k in range(20)]
    results += [
        Case(
            "mixture, binomial(80, 0.01), σ 2, n 10", _times(_MIXTURE(2.0, range(81), occurrences.tolist()), 10), 1e-5
        ),
        Case("mixture, binomial(3, 0.05), σ 1, n 1,000", _times(_MIXTURE(1.0, range(4), few.tolist()), 1000), 1e-6),
        Case("20 different sampled Gaussians, 50 each", dp_event.ComposedDpEvent(different), 1e-6),
        Case(
            "sampled Gaussians, Gaussians and Laplace",
            dp_event.ComposedDpEvent([_sgd(1.0, 0.01, 1_000), _times(_GAUSSIAN(8.0), 4), _LAPLACE(5.0)]),
            1e-6,
        ),
        Case(
            "Laplace, b 10, n 50 and b 30, n 200",
            dp_event.ComposedDpEvent([_times(_LAPLACE(10.0), 50), _times(_LAPLACE(30.0), 200)]),
            1e-6,
        ),
        Case(
            "sampled Laplace and sampled Gaussian, n 500 each",
            dp_event.ComposedDpEvent(
                [_times(dp_event.PoissonSampledDpEvent(0.02, _LAPLACE(2.0)), 500), _sgd(1.2, 0.02, 500)]
            ),
            1e-6,
        ),
    ]
    return results


def answer(case: Case, width: float) -> Interval:
    """dpassay's interval, with nothing remembered."""
    forget()
    result = Lattice(case.adjacency, width=width).compose(case.event).epsilon(case.delta).interval
    assert result is not None, f"{case.name} is not attained by neighbours, so there is no reference"
    return result


@functools.cache
def _caches() -> list[Callable[[], None]]:
    modules = [module for name, module in sys.modules.items() if name.startswith("dpassay.accounting")]
    results = {id(value): value for module in modules for value in vars(module).values()}
    return [value.cache_clear for value in results.values() if hasattr(value, "cache_clear")]


def forget() -> None:
    """Empties every cache of the accountants."""
    for clear in _caches():
        clear()


def equal_accuracy(rounds: int) -> Section:
    """Every case, a line each, and the ratios over all of them."""
    section = Section(
        "accuracy",
        f"ε(δ) at the same error above a reference of relative width {REFERENCE_WIDTH:g}; dpassay at its default "
        f"width, {WIDTH:g}. A ratio is the median over rounds of the peer's time over dpassay's, wall or processor, "
        "whichever is less.",
        ("event", "δ", "reference", "error/ε", "dpassay ms", *other.PEERS),
    )
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ratios: dict[str, dict[str, float]] = {}
    for case in cases():
        reference = answer(case, REFERENCE_WIDTH)
        if reference.width > REFERENCE_WIDTH * reference.upper:
            wide = f"its relative width is {reference.width / reference.upper:.0e}"
            section.notes.append(f"{case.name}: float64 allows no narrower reference than this one; {wide}")
        ours = answer(case, WIDTH)
        error = max(ours.upper, reference.upper) - reference.lower
        results = {name: _of_peer(name, case, reference, error) for name in other.PEERS}
        works: dict[str, Callable[[], Any]] = {"dpassay": partial(answer, case, WIDTH)}
        works |= {
            name: partial(_asked, name, case, each.parameter) for name, each in results.items() if not each.reason
        }
        times = paired(works, rounds)
        mine = times.pop("dpassay")
        ratios[case.name] = {name: times_faster(mine, its) for name, its in times.items()}
        cells = [
            each.reason or f"{times[name].wall_ms:.1f} ms, {ratios[case.name][name]:.1f}×"
            for name, each in results.items()
        ]
        row = (case.name, f"{case.delta:g}", f"{reference.upper:.7g}", f"{error / reference.upper:.1e}")
        section.rows.append((*row, f"{mine.wall_ms:.1f}", *cells))
        print(" ".join(section.rows[-1]), file=sys.stderr, flush=True)
        section.data[case.name] = {
            "reference": [reference.lower, reference.upper],
            "error": error,
            "peers": {name: each.reason or each.parameter for name, each in results.items()},
            "times": {"dpassay": mine.to_json()} | {name: its.to_json() for name, its in times.items()},
        }
    _summarise(section, ratios)
    return section


def _of_peer(name: str, case: Case, reference: Interval, error: float) -> Reached:
    peer = other.PEERS[name]
    ask = partial(peer.epsilon, case.event, case.delta, case.adjacency)
    return as_accurate(ask, reference, error, peer.coarsest(error))


def _summarise(section: Section, ratios: dict[str, dict[str, float]]) -> None:
    """Notes and goals of the ratios of each event and peer."""
    for name in other.PEERS:
        its = [each[name] for each in ratios.values() if name in each]
        if its:
            most = f"{min(its):.1f}× to {max(its):.1f}×"
            section.notes.append(f"{name}: {statistics.median(its):.1f}× in the median of {len(its)} events, {most}")
    fastest = {name: min(each.values()) for name, each in ratios.items() if each}
    median, worst = statistics.median(fastest.values()), min(fastest, key=fastest.__getitem__)
    section.notes += [
        f"the fastest valid peer of each event: {median:.1f}× in the median of {len(fastest)} events",
        f"the least ratio: {fastest[worst]:.1f}×, {worst}",
        f"no valid peer is as accurate: {', '.join(name for name, each in ratios.items() if not each) or 'nowhere'}",
    ]
    section.goals += [
        Goal("faster than the fastest valid peer, in the median", median, MEDIAN),
        Goal("faster than the fastest valid peer, in the worst", fastest[worst], MINIMUM),
    ]


def _asked(name: str, case: Case, parameter: float) -> float:
    forget()
    return other.PEERS[name].epsilon(case.event, case.delta, case.adjacency, parameter)


def as_accurate(ask: Callable[[float], float], reference: Interval, error: float, coarsest: float) -> Reached:
    """The coarsest lattice on which an upper bound is at most `error` above the reference, to 10%.

    Args:
        ask: how fine a lattice is, a distance, to the upper bound.
        reference: contains the exact value.
        error: what is allowed above its lower end.
        coarsest: the distance that is tried first; it is halved until the error is small enough.
    """
    good, bad = None, math.inf
    parameter = coarsest
    while good is None:
        start = time.perf_counter()
        try:
            upper, failure = _tried(ask, parameter)
        except other.NotOffered:
            return Reached(reason="–")
        if upper < reference.lower:
            return _invalid(upper, reference)
        if upper - reference.lower <= error:
            good = parameter
        elif time.perf_counter() - start > SECONDS or parameter < 1e-12:
            return Reached(reason=failure or f"not reached: {(upper - reference.lower) / reference.upper:.0e}")
        else:
            bad, parameter = parameter, parameter / 2
    while math.isfinite(bad) and bad / good > _CLOSE:
        middle = math.sqrt(good * bad)
        upper, _ = _tried(ask, middle)
        if upper < reference.lower:
            return _invalid(upper, reference)
        if upper - reference.lower <= error:
            good = middle
        else:
            bad = middle
    return Reached(good)


def _invalid(upper: float, reference: Interval) -> Reached:
    return Reached(reason=f"invalid: {upper:.6g}, {(reference.lower - upper) / reference.lower:.0e} too small")


def _tried(ask: Callable[[float], float], parameter: float) -> tuple[float, str]:
    """An answer, inf where there is none, and what failed."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            upper = ask(parameter)
    except MemoryError:
        return math.inf, f"needs over {MEMORY >> 30} GiB"
    except (RuntimeError, ValueError, FloatingPointError, AssertionError, OverflowError) as error:
        return math.inf, f"fails: {type(error).__name__}"
    return (upper, "") if math.isfinite(upper) else (math.inf, "answers ∞")
