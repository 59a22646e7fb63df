"""The public grid of the scoreboard: one or a few events of each kind that people run and ask an accountant about."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dp_accounting import DpEvent, dp_event
from scoreboard_worker import Question

from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    PermuteAndFlipDpEvent,
    RandomAllocationDpEvent,
    TruncatedPoissonSampledDpEvent,
    to_json,
)
from dpassay.accounting.matrices import (
    Separated,
    Toeplitz,
    buffered_toeplitz,
    cyclic_poisson_event,
    matrix_event,
    sensitivity,
    tree_event,
)

_GAUSSIAN, _LAPLACE = dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent


@dataclass(frozen=True)
class Row:
    """One question that every accountant is asked.

    Attributes:
        section: the table that it stands in.
        name: for the page; unique.
    """

    section: str
    name: str
    question: Question


def times(event: DpEvent, count: int) -> DpEvent:
    return event if count == 1 else dp_event.SelfComposedDpEvent(event, count)


def sampled(event: DpEvent, rate: float, count: int) -> DpEvent:
    return times(dp_event.PoissonSampledDpEvent(rate, event), count)


def sgd(noise: float, rate: float, count: int) -> DpEvent:
    return sampled(_GAUSSIAN(noise), rate, count)


def allocation(steps: int) -> Question:
    """One of t steps at σ = 1, as the figure has it."""
    return Question(to_json(RandomAllocationDpEvent(_GAUSSIAN(1.0), 1, steps)), 1e-6)


def rows() -> list[Row]:
    """All of them, in the order of the page."""
    return [
        *_of("DP-SGD", _training()),
        *_of("Noise without samples", _noise()),
        *_of("Other samples", _samples()),
        *_of("Users and groups", _groups()),
        *_of("Random allocation", _allocation()),
        *_of("Trees and matrices", _matrices()),
        *_of("Tuning and selection", _selection()),
    ]


def _of(section: str, items: Iterator[tuple[str, DpEvent, float, dict[str, Any]]]) -> list[Row]:
    return [Row(section, name, Question(to_json(event), delta, **more)) for name, event, delta, more in items]


_Items = Iterator[tuple[str, DpEvent, float, dict[str, Any]]]


def _training() -> _Items:
    for name, noise, rate, count, delta in (
        ("σ 1, q 0.01, 1,000 steps", 1.0, 0.01, 1_000, 1e-5),
        ("σ 1.1, q 0.005, 4,000 steps", 1.1, 0.005, 4_000, 1e-5),
        ("σ 0.6, q 0.001, 5,000 steps", 0.6, 0.001, 5_000, 1e-7),
        ("σ 2, q 0.1, 2,000 steps", 2.0, 0.1, 2_000, 1e-6),
        ("σ 0.5, q 0.01, 100 steps", 0.5, 0.01, 100, 1e-5),
        ("σ 10, q 0.5, 10,000 steps", 10.0, 0.5, 10_000, 1e-5),
        ("one step, σ 1, q 0.01", 1.0, 0.01, 1, 1e-5),
        ("small δ, σ 1, q 0.01, 1,000 steps", 1.0, 0.01, 1_000, 1e-12),
        ("many steps, σ 1, q 0.001, 1,000,000 steps", 1.0, 0.001, 1_000_000, 1e-6),
        ("many steps, σ 5, q 0.01, 1,000,000 steps", 5.0, 0.01, 1_000_000, 1e-6),
        ("rare, σ 0.5, q 1e-06, 1,000,000 steps", 0.5, 1e-6, 1_000_000, 1e-8),
    ):
        yield name, sgd(noise, rate, count), delta, {}
    three = dp_event.ComposedDpEvent([sgd(1.0, 0.01, 500), sgd(0.8, 0.005, 500), _GAUSSIAN(20.0)])
    yield "two stages and a Gaussian", three, 1e-5, {}
    yield "replaced record, σ 1, q 0.01, 1,000 steps", sgd(1.0, 0.01, 1_000), 1e-5, {"adjacency": "replace_one"}


def _noise() -> _Items:
    yield "Gaussian, σ 1", _GAUSSIAN(1.0), 1e-5, {}
    yield "Gaussian, σ 50, 10,000 times", times(_GAUSSIAN(50.0), 10_000), 1e-6, {}
    yield "Gaussian, σ 100, 10,000 times, small δ", times(_GAUSSIAN(100.0), 10_000), 1e-14, {}
    yield "Gaussian, σ 2, replaced record", _GAUSSIAN(2.0), 1e-5, {"adjacency": "replace_one"}
    yield "Laplace, b 10, 100 times", times(_LAPLACE(10.0), 100), 1e-6, {}
    yield "Laplace, b 100, 10,000 times", times(_LAPLACE(100.0), 10_000), 1e-6, {}
    yield "discrete Laplace, a 0.1, 100 times", times(dp_event.DiscreteLaplaceDpEvent(0.1, 1), 100), 1e-6, {}
    yield "discrete Gaussian, σ 6, 10 times", times(DiscreteGaussianDpEvent(6.0, 1.0, 1), 10), 1e-6, {}
    response = dp_event.RandomizedResponseDpEvent(0.5, 4)
    yield "randomised response, p 0.5 of 4, 20 times", times(response, 20), 1e-6, {"adjacency": "replace_one"}
    yield "zCDP, ρ 0.1", dp_event.ZCDpEvent(0.1), 1e-6, {}
    yield "(ε 0.1, δ 1e-9), 50 times", times(EpsilonDeltaDpEvent(0.1, 1e-9), 50), 1e-6, {}
    mixed = dp_event.ComposedDpEvent([sgd(1.0, 0.01, 1_000), times(_GAUSSIAN(8.0), 4), _LAPLACE(5.0)])
    yield "sampled Gaussians, Gaussians and Laplace", mixed, 1e-6, {}


def _samples() -> _Items:
    yield "sampled Laplace, b 1, q 0.01, 1,000 times", sampled(_LAPLACE(1.0), 0.01, 1_000), 1e-6, {}
    both = dp_event.ComposedDpEvent([_GAUSSIAN(1.1), _GAUSSIAN(10.0)])
    yield "two Gaussians on one sample, q 0.01, 1,000 rounds", sampled(both, 0.01, 1_000), 1e-5, {}
    mixed = dp_event.ComposedDpEvent([_GAUSSIAN(1.1), _LAPLACE(10.0)])
    yield "Gaussian and Laplace on one sample, q 0.01, 1,000 rounds", sampled(mixed, 0.01, 1_000), 1e-5, {}
    law = [math.comb(4, k) * 0.01**k * 0.99 ** (4 - k) for k in range(5)]
    workers = dp_event.MixtureOfGaussiansDpEvent(1.0, list(range(5)), law)
    yield "mixture of Gaussians: 4 workers, σ 1, q 0.01, 1,000 steps", times(workers, 1_000), 1e-5, {}
    cut = TruncatedPoissonSampledDpEvent(0.05, 1000, 80, _GAUSSIAN(2.0))
    yield "Poisson samples cut to 80 of 1,000, σ 2, q 0.05, 100 steps", times(cut, 100), 1e-6, {}
    one = dp_event.SampledWithoutReplacementDpEvent(100, 10, _GAUSSIAN(1.0))
    yield "without replacement, 10 of 100, σ 1", one, 1e-5, {}
    yield "without replacement, 10 of 100, σ 1, replaced record", one, 1e-5, {"adjacency": "replace_one"}
    many = times(dp_event.SampledWithoutReplacementDpEvent(1000, 10, _GAUSSIAN(2.0)), 500)
    yield "without replacement, 10 of 1,000, σ 2, 500 times, replaced record", many, 1e-5, {"adjacency": "replace_one"}
    again = times(dp_event.SampledWithReplacementDpEvent(1000, 10, _GAUSSIAN(2.0)), 100)
    yield "with replacement, 10 of 1,000, σ 2, 100 times", again, 1e-5, {}


def _groups() -> _Items:
    run = sgd(1.0, 0.01, 500)
    yield "users of up to 3 records, σ 1, q 0.01, 500 steps", run, 1e-5, {"group": 3}
    yield "users of up to 10 records, σ 4, q 0.01, 500 steps", sgd(4.0, 0.01, 500), 1e-5, {"group": 10}
    yield "groups of 3, Laplace, b 10, 100 times", times(_LAPLACE(10.0), 100), 1e-6, {"group": 3}


def _allocation() -> _Items:
    gaussian = _GAUSSIAN(1.0)
    yield "1 of 100 steps, σ 1", RandomAllocationDpEvent(gaussian, 1, 100), 1e-6, {}
    yield "1 of 10,000 steps, σ 1", RandomAllocationDpEvent(gaussian, 1, 10_000), 1e-6, {}
    yield "1 of 10,000 steps, σ 0.5", RandomAllocationDpEvent(_GAUSSIAN(0.5), 1, 10_000), 1e-6, {}
    yield "1 of 100 steps, σ 1, 20 epochs", times(RandomAllocationDpEvent(gaussian, 1, 100), 20), 1e-6, {}
    yield "10 of 100 steps, σ 2", RandomAllocationDpEvent(_GAUSSIAN(2.0), 10, 100), 1e-6, {}
    yield "1 of 100 steps, Laplace, b 1", RandomAllocationDpEvent(_LAPLACE(1.0), 1, 100), 1e-6, {}


def _matrices() -> _Items:
    tree = dp_event.SingleEpochTreeAggregationDpEvent(6.0, 128)
    zero = {"adjacency": "zero_out"}
    yield "tree, σ 6, 128 steps", tree, 1e-5, zero
    yield "trees of 3 epochs, restarted, σ 6, 128 steps each", times(tree, 3), 1e-5, zero
    yield "one tree over 3 epochs, σ 6, 128 steps each", tree_event(6.0, 128, 3), 1e-5, zero
    bands = [1.0, 0.5, 0.375]
    banded = {"coefficients": bands, "noise_multiplier": 4.0, "steps": 300}
    thrice = {"participations": 3, "separation": 100}
    yield (
        "banded, 3 bands, σ 4, 300 steps, 3 times, 100 apart",
        matrix_event(4.0, sensitivity(Toeplitz(bands, steps=300), Separated(3, separation=100))),
        1e-5,
        {"strategy": banded | thrice},
    )
    buffered = buffered_toeplitz(scales=[0.2, 0.1], decays=[0.9, 0.5], steps=300)
    values = [float(value) for value in buffered.coefficients]
    yield (
        "BLT of 2 buffers, σ 4, 300 steps, 3 times, 100 apart",
        matrix_event(4.0, sensitivity(buffered, Separated(3, separation=100))),
        1e-5,
        {"strategy": banded | thrice | {"coefficients": values}},
    )
    bands = [1.0, 0.5, 0.375, 0.3125]
    strategy = {"coefficients": bands, "noise_multiplier": 1.5, "steps": 2000}
    cyclic = cyclic_poisson_event(1.5, Toeplitz(bands, steps=2000), 0.05)
    yield (
        "cyclic Poisson samples, 4 bands, σ 1.5, q 0.05, 2,000 steps",
        cyclic,
        1e-5,
        {"strategy": strategy | {"sampling_probability": 0.05}},
    )


def _selection() -> _Items:
    run = sgd(2.0, 0.01, 1_000)
    for name, shape in (("geometric", 1.0), ("truncated negative binomial, η 0.5", 0.5), ("Poisson", math.inf)):
        yield f"best of 10 runs, {name}", dp_event.RepeatAndSelectDpEvent(run, 10.0, shape), 1e-6, {}
    yield "exponential mechanism, ε 0.4, 50 times", times(BoundedRangeSelectionDpEvent(0.4), 50), 1e-6, {}
    yield "permute-and-flip, ε 0.4, 50 times", times(PermuteAndFlipDpEvent(0.4), 50), 1e-6, {}
