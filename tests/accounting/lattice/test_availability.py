"""The certified accountant always has an answer: never above basic, finite where another is, narrower when asked."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from oracle_inversion import composed_delta, sampled_gaussian
from property_settings import examples
from scipy.optimize import brentq
from scipy.stats import norm

from dpassay.accounting.accountants.advanced import Advanced
from dpassay.accounting.accountants.base import Accountant
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExPostSelectionDpEvent,
    ParallelDpEvent,
    PermuteAndFlipDpEvent,
    RandomAllocationDpEvent,
    ShuffledBatchesDpEvent,
    TruncatedPoissonSampledDpEvent,
    with_inner,
)
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import WidthNotMet
from dpassay.accounting.registry import ACCOUNTANTS

SIMPLER = (Basic, Advanced, ZeroConcentrated, GaussianDP, RenyiAccountant)
WIDTHS = (1e-2, 1e-3, 1e-5)


@pytest.fixture(autouse=True)
def _width_is_not_asked_about() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        yield


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """Between two powers of ten, uniform in the exponent."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


noises, rates = powers(-1.5, 2), st.one_of(powers(-6, 0), st.sampled_from([0.0, 1.0]))
gaussians = noises.map(dp_event.GaussianDpEvent)
laplaces = powers(-3, 3).map(dp_event.LaplaceDpEvent)
discrete = st.builds(dp_event.DiscreteLaplaceDpEvent, powers(-3, 1), st.integers(0, 3))
pure = st.one_of(
    st.builds(dp_event.ZCDpEvent, rho=st.just(0.0), xi=powers(-3, 1)),
    st.builds(BoundedRangeSelectionDpEvent, powers(-3, 0.7)),
    st.builds(ExPostSelectionDpEvent, powers(-3, 0.7)),
)
concentrated = st.builds(dp_event.ZCDpEvent, rho=powers(-5, 1), xi=st.sampled_from([0.0, 0.5]))
responses = st.builds(dp_event.RandomizedResponseDpEvent, powers(-12, 0), st.integers(2, 5))
sampled = st.builds(dp_event.PoissonSampledDpEvent, rates, st.one_of(gaussians, laplaces, discrete))
truncated = st.builds(
    TruncatedPoissonSampledDpEvent, powers(-3, -0.1), st.integers(1, 2000), st.integers(1, 2000), gaussians
)
without_replacement = st.integers(2, 5000).flatmap(
    lambda size: st.builds(dp_event.SampledWithoutReplacementDpEvent, st.just(size), st.integers(0, size), gaussians)
)


@st.composite
def mixtures(draw: st.DrawFn) -> DpEvent:
    shares = draw(st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
    moves = draw(st.lists(st.floats(0, 4), min_size=len(shares), max_size=len(shares)))
    total = math.fsum(shares)
    return dp_event.MixtureOfGaussiansDpEvent(draw(noises), moves, [share / total for share in shares])


leaves = st.one_of(
    gaussians, laplaces, discrete, pure, concentrated, responses, sampled, truncated, without_replacement, mixtures()
)
counts = st.one_of(st.integers(1, 4), powers(0, 5).map(round))
runs = st.builds(dp_event.SelfComposedDpEvent, leaves, counts)
compositions = st.lists(st.one_of(leaves, runs), min_size=1, max_size=3).map(dp_event.ComposedDpEvent)
parts = st.builds(ParallelDpEvent, st.lists(compositions, min_size=1, max_size=3).map(tuple), st.booleans())
events = st.one_of(leaves, runs, compositions, parts)
deltas = st.one_of(powers(-300, math.log10(0.5)), powers(-14, -1), st.sampled_from([0.5, 1e-8, 1e-16, 1e-300, 5e-324]))
adjacencies = st.sampled_from([Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT])


rounds = st.builds(
    dp_event.PoissonSampledDpEvent,
    rates,
    st.lists(st.one_of(gaussians, laplaces, concentrated), min_size=2, max_size=3).map(dp_event.ComposedDpEvent),
)
new_leaves = st.one_of(
    powers(-3, 0.7).map(PermuteAndFlipDpEvent),
    st.builds(DiscreteGaussianDpEvent, powers(-1, 2), powers(-1, 1), st.sampled_from([1, None])),
    st.builds(dp_event.SampledWithReplacementDpEvent, st.integers(1, 500), st.integers(0, 60), gaussians),
    st.integers(2, 500).flatmap(
        lambda size: st.builds(dp_event.SampledWithoutReplacementDpEvent, st.just(size), st.integers(0, size), laplaces)
    ),
    st.builds(dp_event.SingleEpochTreeAggregationDpEvent, noises, st.integers(1, 300)),
    st.builds(RandomAllocationDpEvent, gaussians, st.integers(0, 3), st.integers(3, 100)),
    st.builds(ShuffledBatchesDpEvent, st.one_of(gaussians, laplaces), powers(0, 5).map(round)),
    st.builds(dp_event.RepeatAndSelectDpEvent, st.one_of(gaussians, laplaces), powers(0, 2), powers(-1, 1)),
    rounds,
    truncated,
)
new_runs = st.builds(dp_event.SelfComposedDpEvent, new_leaves, st.integers(1, 200))
new_events = st.one_of(
    new_leaves, new_runs, st.lists(st.one_of(new_leaves, leaves), min_size=2, max_size=2).map(dp_event.ComposedDpEvent)
)
units = st.sampled_from([Unit(), Unit(), Unit("group", 2), Unit("user", 5)])


def others(
    event: DpEvent, adjacency: Adjacency, ask: Callable[[Accountant[Any]], Bound], unit: Unit | None = None
) -> dict[str, float]:
    """The certified bounds of all other accountants that support the event."""
    results = {}
    for name, kind in ACCOUNTANTS.items():
        if name not in ("lattice", "pld", "prv", "ex_post") and kind(adjacency, unit).supports(event) is None:
            bound = ask(kind(adjacency, unit).compose(event))
            assert bound.rigor is Rigor.CERTIFIED
            results[name] = bound.value
    return results


def never_worse(answer: Bound, known: dict[str, float]) -> None:
    """At most every other bound, up to the width of a narrow interval; and no other bound is below its lower end."""
    narrow = answer.interval is not None and answer.interval.width <= 1e-3 * answer.value
    for name, value in known.items():
        slack = 1e-3 * answer.value if narrow and name in ("rdp", "advanced") else 0.0
        assert answer.value <= value + slack, (name, value, answer)
        if answer.interval is not None:
            assert answer.interval.lower <= value * (1 + 1e-15), (name, value, answer)
    if answer.source is not None:
        assert answer.value == known[answer.source]


def redrawn(event: DpEvent) -> list[dp_event.SampledWithReplacementDpEvent]:
    """The samples with replacement in an event that draw something."""
    kind = dp_event.SampledWithReplacementDpEvent
    return [part for part in with_inner(event) if isinstance(part, kind) and part.sample_size]


def never_wider(results: list[Bound]) -> None:
    """Each bound lies within the one before it."""
    for wider, narrower in itertools.pairwise(results):
        assert narrower.value <= wider.value
        if wider.interval is not None and narrower.interval is not None:
            assert narrower.interval.lower >= wider.interval.lower


@pytest.mark.slow
@examples(12, 1600)
@given(event=events, adjacency=adjacencies, delta=deltas)
def test_there_is_always_an_answer(event: DpEvent, adjacency: Adjacency, delta: float) -> None:
    """At three widths, held against the answers of the other accountants and each other."""
    if Lattice(adjacency).supports(event) is not None:
        return
    results = [Lattice(adjacency, width=width).compose(event).epsilon(delta) for width in WIDTHS]
    known = others(event, adjacency, lambda other: other.epsilon(delta))
    for answer in results:
        never_worse(answer, known)
    never_wider(results)
    epsilon = min([10.0, *(value for value in known.values() if value > 0)]) / 2
    known = others(event, adjacency, lambda other: other.delta(epsilon))
    never_worse(Lattice(adjacency).compose(event).delta(epsilon), known)


@pytest.mark.slow
@examples(12, 1000)
@given(event=st.one_of(new_events, events), adjacency=adjacencies, unit=units, delta=deltas)
def test_there_is_always_an_answer_for_groups_and_newer_kinds(
    event: DpEvent, adjacency: Adjacency, unit: Unit, delta: float
) -> None:
    """Wherever one record has an answer, so have groups; at three widths, against the other accountants."""
    if Lattice(adjacency).supports(event) is not None:
        return
    refused = Lattice(adjacency, unit).supports(event)
    if adjacency is Adjacency.ADD_REMOVE and any(part.source_dataset_size <= unit.size for part in redrawn(event)):
        assert refused is not None
        assert "none would be left" in refused
        return
    assert refused is None
    results = [Lattice(adjacency, unit, width).compose(event).epsilon(delta) for width in WIDTHS]
    known = others(event, adjacency, lambda other: other.epsilon(delta), unit)
    for answer in results:
        never_worse(answer, known)
    never_wider(results)
    one = Lattice(adjacency).compose(event).epsilon(delta)
    if one.interval is not None:  # a group costs no less than one record
        assert one.interval.lower <= results[-1].value


def test_a_chain_keeps_the_answer_that_its_single_records_give() -> None:
    """Where it was inf, as the chain ended where δ₁ is small but (e^{kε} - 1)/(e^ε - 1) is larger still.

    Truth: the root of the chain's formula in the curve of one record, drawn from 12 - 4 records once 4 are gone.
    """
    event = dp_event.SelfComposedDpEvent(
        dp_event.SampledWithReplacementDpEvent(12, 10, dp_event.GaussianDpEvent(80.0)), 127
    )
    smaller = dp_event.SelfComposedDpEvent(
        dp_event.SampledWithReplacementDpEvent(8, 10, dp_event.GaussianDpEvent(80.0)), 127
    )
    one = Lattice("add_remove").compose(smaller)

    def grown(epsilon: float) -> float:
        return one.delta(epsilon).value * math.expm1(5 * epsilon) / math.expm1(epsilon) - 0.1

    truth = 5 * brentq(grown, 0.5, 2.0)
    users = Lattice("add_remove", Unit("user", 5)).compose(event)
    for _ in range(3):  # a later question was worse
        assert truth * (1 - 1e-3) <= users.epsilon(0.1).value <= truth * (1 + 1e-2)


def test_selections_beside_many_laplaces_cost_what_zcdp_knows() -> None:
    """Where the answer was 6.639, nearly the sum of the pure ε. Truth: ρ of both by hand, converted at the best of many
    orders (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    eta, scale, delta = 1.5933682527412974e-4, 9087.417593028513, 4.7e-29
    event = dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(eta), 95),
            dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(scale), 60258),
        ]
    )
    rho = 95 * eta**2 / 8 + 60258 * math.tanh(1 / scale / 2) / scale
    order = np.geomspace(1.01, 1e6, 200_001)
    converted = rho * order + (np.log1p(-1 / order) * (order - 1) - np.log(order) - math.log(delta)) / (order - 1)
    result = Lattice("add_remove").compose(event).epsilon(delta)
    assert result.value <= float(converted.min()) * (1 + 1e-6)
    assert result.source == "zcdp"
    assert result.by == "lattice (zcdp)"


def test_other_questions_are_never_worse_either() -> None:
    """Power, type II error and μ of a pair that no neighbours attain, from δ(ε) of zCDP or of Gaussian DP."""
    concentrated = dp_event.ZCDpEvent(0.125, 0.01)
    pure = dp_event.SelfComposedDpEvent(EpsilonDeltaDpEvent(0.01, 0.0), 1000)
    for event in (concentrated, pure):
        own = Lattice("add_remove").compose(event)
        for kind in SIMPLER:
            if kind("add_remove").supports(event) is not None:
                continue
            other = kind("add_remove").compose(event)
            assert own.blowup(0.01).value <= other.blowup(0.01).value
            assert own.beta(0.01).value >= other.beta(0.01).value
    assert own.mu(1e-6).value <= GaussianDP("add_remove").compose(pure).mu().value


def gaussian_epsilon(mu: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    """ε with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ (Balle and Wang 2018, Theorem 8), by bisection."""
    low, high = mpmath.mpf(0), mu * mu / 2 + mu * mpmath.sqrt(-2 * mpmath.log(delta)) + 1
    for _ in range(200):
        middle = (low + high) / 2
        # e^ε Φ(−x) by its logarithm, which mpmath's ncdf keeps digits of
        rest = mpmath.exp(middle + mpmath.log(mpmath.erfc((mu / 2 + middle / mu) / mpmath.sqrt(2)) / 2))
        result = mpmath.erfc((middle / mu - mu / 2) / mpmath.sqrt(2)) / 2 - rest
        low, high = (middle, high) if result > delta else (low, middle)
    return high


def sampled_epsilon(rate: float, inner: mpmath.mpf) -> mpmath.mpf:
    """log(1 − q + q e^ε), where ε is that of δ/q."""
    return mpmath.log(1 - mpmath.mpf(rate) + mpmath.mpf(rate) * mpmath.exp(inner))


def one_gaussian(noise: float, rate: float, delta: float) -> mpmath.mpf:
    return sampled_epsilon(rate, gaussian_epsilon(1 / mpmath.mpf(noise), mpmath.mpf(delta) / mpmath.mpf(rate)))


def response_epsilon(noise: float, buckets: int, delta: float) -> mpmath.mpf:
    rest = mpmath.mpf(noise) / buckets
    return mpmath.log((1 - mpmath.mpf(noise) + rest - mpmath.mpf(delta)) / rest)


LAPLACE, NOISY = dp_event.LaplaceDpEvent, dp_event.GaussianDpEvent
POISSON, REPEATED = dp_event.PoissonSampledDpEvent, dp_event.SelfComposedDpEvent
CUT = TruncatedPoissonSampledDpEvent(0.1, 1000, 120, NOISY(1.0))

WAS_INFINITE: dict[str, tuple[DpEvent, str, float, Callable[[], tuple[mpmath.mpf, mpmath.mpf]]]] = {
    # All laws of a cut sample are mixtures of Gaussians at most 2 apart; a sample that is not cut is not below it.
    "cut": (CUT, "add_remove", 1e-5, lambda: (one_gaussian(1.0, 0.1, 1e-5), gaussian_epsilon(mpmath.mpf(2), 1e-5))),
    "cut, 1e-16": (CUT, "add_remove", 1e-16, lambda: (mpmath.mpf(0), gaussian_epsilon(mpmath.mpf(2), 1e-16))),
    "sampled Laplace": (
        POISSON(0.1, LAPLACE(1.0)),
        "add_remove",
        1e-16,
        lambda: (sampled_epsilon(0.1, 1 + 2 * mpmath.log1p(-mpmath.mpf(1e-15))), sampled_epsilon(0.1, mpmath.mpf(1))),
    ),
    # The largest loss, which 2e-5 less would do.
    "Laplace": (
        LAPLACE(1e-3),
        "add_remove",
        1e-5,
        lambda: (1000 + 2 * mpmath.log1p(-mpmath.mpf(1e-5)), mpmath.mpf(1000)),
    ),
    "response": (
        dp_event.RandomizedResponseDpEvent(1e-11, 4),
        "replace_one",
        1e-8,
        lambda: 2 * (response_epsilon(1e-11, 4, 1e-8),),
    ),
    "response of two": (
        dp_event.RandomizedResponseDpEvent(1e-12, 2),
        "replace_one",
        1e-10,
        lambda: 2 * (response_epsilon(1e-12, 2, 1e-10),),
    ),
    # A sampled Gaussian is a post-processing of the Gaussian, and runs contain a single one.
    "losses beyond float64": (
        POISSON(0.1, NOISY(0.02)),
        "add_remove",
        1e-5,
        lambda: (one_gaussian(0.02, 0.1, 1e-5), gaussian_epsilon(mpmath.mpf(50), 1e-5)),
    ),
    "sampled, 1e-300": (
        POISSON(0.1, NOISY(0.3)),
        "add_remove",
        1e-300,
        lambda: (one_gaussian(0.3, 0.1, 1e-300), gaussian_epsilon(1 / mpmath.mpf(0.3), 1e-300)),
    ),
    "runs of losses beyond float64": (
        REPEATED(POISSON(0.1, NOISY(0.02)), 5),
        "add_remove",
        1e-10,
        lambda: (one_gaussian(0.02, 0.1, 1e-10), gaussian_epsilon(50 * mpmath.sqrt(5), 1e-10)),
    ),
    "runs, 1e-300": (
        REPEATED(POISSON(0.01, NOISY(1.0)), 10**4),
        "add_remove",
        1e-300,
        lambda: (one_gaussian(1.0, 0.01, 1e-300), gaussian_epsilon(mpmath.mpf(100), 1e-300)),
    ),
    # ρ + √(4ρ log(1/δ)) of Bun and Steinke (2016), for the least numbers of float64.
    "Gaussian, 1e-310": (
        NOISY(1.0),
        "add_remove",
        1e-310,
        lambda: (gaussian_epsilon(mpmath.mpf(1), 1e-310), 0.5 + mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(1e-310)))),
    ),
    "Laplaces, 1e-310": (REPEATED(LAPLACE(1.0), 1000), "add_remove", 1e-310, lambda: (mpmath.mpf(1), mpmath.mpf(1000))),
}


@pytest.mark.parametrize("case", WAS_INFINITE)
def test_what_had_no_finite_answer_has_one(case: str) -> None:
    """Between a lower and an upper bound of closed forms, to 40 digits and more; mostly both are the truth."""
    event, adjacency, delta, bounds = WAS_INFINITE[case]
    with mpmath.workdps(60):  # enough: each factor has all of these digits, and no difference cancels many
        low, high = bounds()
        answer = Lattice(adjacency).compose(event).epsilon(delta)
        assert low * (1 - mpmath.mpf(10) ** -15) <= answer.value <= high * (1 + mpmath.mpf(10) ** -11)


@pytest.mark.slow
def test_rare_losses_are_enclosed_narrowly() -> None:
    """Where the rounding of float64, counted n-fold, gave [.243, .327]; a transform in longer floats gave [.292, .2966]
    and dp_accounting answers .297 from above."""
    step = dp_event.PoissonSampledDpEvent(1e-6, dp_event.GaussianDpEvent(0.5))
    result = Lattice("add_remove").compose(dp_event.SelfComposedDpEvent(step, 10**6)).epsilon(1e-8).interval
    assert result is not None
    assert 0.292 <= result.lower <= result.upper <= 0.2966
    assert result.upper - result.lower <= 1e-3 * result.upper


def test_a_hundred_million_runs_are_enclosed_narrowly() -> None:
    """Where it was 1 % wide; held against the inversion of a transform."""
    step = dp_event.PoissonSampledDpEvent(1e-5, dp_event.GaussianDpEvent(1.0))
    result = Lattice("add_remove").compose(dp_event.SelfComposedDpEvent(step, 10**8)).epsilon(1e-8).interval
    assert result is not None
    assert result.upper - result.lower <= 1e-3 * result.upper
    truth = sampled_gaussian(1e-5)
    below, above = (composed_delta(*truth, 1.0, 10**8, end, "remove") for end in (result.lower, result.upper))
    assert below * (1 + 1e-9) >= 1e-8 >= above * (1 - 1e-9)


def _sampled(noise: float, rate: float, count: int) -> DpEvent:
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), count)


@pytest.mark.grid
@pytest.mark.parametrize(
    "parts",
    [
        (_sampled(4.0, 0.05, 100_000), _sampled(8.651156126654792, 0.2, 30_000)),
        (_sampled(8.652508001818644, 0.2, 30_000), _sampled(4.0, 0.05, 100_000)),
        (_sampled(4.0, 0.05, 100_000), dp_event.GaussianDpEvent(1 / 4.0198406978704195)),
        (_sampled(20.0, 0.2, 100),),
    ],
    ids=["nearly equal", "nearly equal, the other first", "beside a Gaussian", "directions nearly equal"],
)
def test_answers_at_many_widths_are_nested(parts: tuple[DpEvent, ...]) -> None:
    """What decides which of two nearly equal alternatives or directions is asked exactly must not be the width."""
    widths = [*np.geomspace(1.2e-3, 1e-4, 25), 1e-5]
    results = [Lattice("add_remove", width=width).compose(ParallelDpEvent(parts)).epsilon(1e-9) for width in widths]
    for wider, narrower in itertools.pairwise(results):
        assert wider.interval is not None
        assert narrower.interval is not None
        assert wider.interval.lower <= narrower.interval.lower <= narrower.value <= wider.value


@pytest.mark.parametrize("delta", [1e-6, 1e-18])
def test_losses_of_millions_cost_at_most_what_they_do_without_sampling(delta: float) -> None:
    """Steps of σ = .0316 at a rate of .96: at such tilts, differences of exponents are all rounding."""
    sigma, count = 0.03162277660168379, 6815
    step = dp_event.MixtureOfGaussiansDpEvent(sigma, [0.0, 1.0], [0.0392156862745098, 0.9607843137254902])
    answer = Lattice("add_remove").compose(dp_event.SelfComposedDpEvent(step, count)).epsilon(delta)
    mu = math.sqrt(count) / sigma
    assert answer.interval is not None
    # δ of one Gaussian is below Φ(μ/2 − ε/μ), so that its ε is below μ²/2 + μ·z, z the 1 − δ quantile.
    assert 500 < answer.interval.lower <= answer.value <= (mu**2 / 2 + mu * norm.isf(delta)) * (1 + 1e-9)


def test_forty_gaussians_on_disjoint_parts_cost_what_the_worst_does() -> None:
    parts = ParallelDpEvent(tuple(dp_event.GaussianDpEvent(1 + k / 40) for k in range(40)), partition_is_public=True)
    worst = Lattice("add_remove").compose(dp_event.GaussianDpEvent(1.0)).epsilon(1e-5)
    assert Lattice("add_remove").compose(parts).epsilon(1e-5).value == worst.value


def test_no_law_is_no_protection() -> None:
    """A discrete Laplace parameter of 0: dp_accounting counts it as not private, too."""
    for kind in (Lattice, Basic):
        assert kind("add_remove").compose(dp_event.DiscreteLaplaceDpEvent(0, 1)).epsilon(1e-5).value == math.inf
        assert kind("add_remove").compose(dp_event.DiscreteLaplaceDpEvent(0, 0)).epsilon(1e-5).value == 0


@pytest.mark.parametrize("noise", [1e-160, 1e-300, 1e-320])
def test_a_noise_near_the_end_of_float64_is_no_fault(noise: float) -> None:
    assert Lattice("add_remove").compose(dp_event.GaussianDpEvent(noise)).epsilon(1e-5).value == math.inf
    sampled = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(noise))
    assert Lattice("add_remove").compose(sampled).epsilon(1e-5).value > 1e300
