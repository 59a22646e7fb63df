"""The tests of samples and noise: how often they err, by enumeration, and what they find."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import stats

from dpassay.attacks.black_box.recorder import Recorder, Recording, Step, record
from dpassay.audits.games.replay.recorded_randomness import (
    cdf_ends,
    is_repeat,
    log_repeat_probability,
    noise_tests,
    sampling_tests,
)

GAUSSIAN = dp_event.GaussianDpEvent(1.0)


def sampled(flags: np.ndarray, rate: float) -> Recording:
    """A run that drew these batches itself; shape (batches, units)."""

    def mechanism(data: range, recorder: Recorder) -> None:
        for row in flags:
            recorder.sample(list(data), dp_event.PoissonSampledDpEvent(rate, GAUSSIAN), included=row)

    return record(mechanism, range(flags.shape[1]))


@pytest.mark.grid
@pytest.mark.parametrize("rate", [0.5, 0.3])
@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 1, 4), (2, 2, 2)])
def test_p_values_of_samples_err_no_more_often_than_they_say(rate: float, shape: tuple[int, int, int]) -> None:
    """Every outcome of few coins (runs, batches, units), with its probability: P[p ≤ a] ≤ a for every test and a."""
    chances: list[dict[float, float]] = [defaultdict(float) for _ in range(6)]
    for coins in itertools.product((False, True), repeat=math.prod(shape)):
        weight = math.prod(rate if coin else 1 - rate for coin in coins)
        tests = sampling_tests([sampled(flags, rate) for flags in np.array(coins).reshape(shape)])
        assert len(tests) == 6
        for law, test in zip(chances, tests, strict=True):
            law[round(test.p_value, 12)] += weight
    for law in chances:
        reached = np.cumsum([law[p] for p in sorted(law)])
        assert reached[-1] == pytest.approx(1)
        assert (reached <= np.array(sorted(law)) + 1e-9).all()  # rounded to 12 digits, and sums of up to 256 floats
    assert min(min(law) for law in chances) < 0.2  # they are not idle


def least(flags: list[np.ndarray], rate: float) -> dict[str, float]:
    return {test.measured: test.p_value for test in sampling_tests([sampled(part, rate) for part in flags])}


def test_batches_of_one_size_are_no_poisson_samples() -> None:
    """Ten batches of 8 of 64, drawn anew each time: P[10 of 10 equal] is at most Σ_s f(s)¹⁰ < 10⁻⁷ ."""
    rng = np.random.default_rng(1)
    flags = np.zeros((10, 64), dtype=bool)
    for row in flags:
        row[rng.choice(64, 8, replace=False)] = True
    (result,) = [p for what, p in least([flags], 1 / 8).items() if what == "10 of 10 batches have size 8"]
    law = [math.comb(64, s) * 0.125**s * 0.875 ** (64 - s) for s in range(65)]
    assert result == pytest.approx(sum(p**10 for p in law), rel=1e-9)
    assert result < 1e-7


def test_shuffled_epochs_are_no_poisson_samples_even_with_poisson_sizes() -> None:
    """Cut at places that look random, each of 64 units is in one of 8 batches: Σ_c f(c)⁶⁴ < 10⁻²⁰."""
    rng = np.random.default_rng(2)
    batch = rng.integers(0, 8, 64)
    flags = batch[None, :] == np.arange(8)[:, None]
    (result,) = [p for what, p in least([flags], 1 / 8).items() if what == "64 of 64 units are in, of 8 batches, 1"]
    law = [math.comb(8, c) * 0.125**c * 0.875 ** (8 - c) for c in range(9)]
    assert result == pytest.approx(sum(p**64 for p in law), rel=1e-9)
    assert result < 1e-20


def test_a_wrong_rate_all_or_nothing_and_one_batch_for_ever_are_found() -> None:
    rng = np.random.default_rng(3)
    assert min(least([rng.random((20, 50)) < 0.3], 0.2).values()) < 1e-8
    assert min(least([np.repeat(rng.random((20, 1)) < 0.5, 50, axis=1)], 0.5).values()) < 1e-8
    assert min(least([np.repeat(rng.random((1, 50)) < 0.5, 20, axis=0)], 0.5).values()) < 1e-3


def additive(noise: np.ndarray, query: float = 0.0, scale: float = 1.0, kind: str = "gaussian") -> Recording:
    """A run whose steps have this noise, shape (steps, d)."""
    steps = []
    for row in noise:
        exact = np.full(len(row), query)
        steps.append(Step(kind, GAUSSIAN, exact, scale, exact + row, True))  # type: ignore[arg-type]
    return Recording(tuple(steps), None)


def test_noise_of_the_declared_law_passes_and_the_p_values_do_not_err() -> None:
    """400 pairs of runs with noise drawn anew: each test is below .01 in at most 15 of them. Four tests that hold
    their level fail this with probability at most 4·P[Bin(400, .01) > 15] = 1.7e-5."""
    rng = np.random.default_rng(4)
    hits = np.zeros(4, dtype=int)
    for _ in range(400):
        tests = noise_tests([additive(rng.normal(size=(4, 3))), additive(rng.normal(size=(4, 3)))])
        assert len(tests) == 4
        hits += [test.p_value <= 0.01 for test in tests]
    assert (hits <= 15).all()


@pytest.mark.parametrize("query", [0.0, 1e6, 1e12])
def test_noise_from_a_fixed_seed_is_found(query: float) -> None:
    """In each step, and in each run. Beside a query of 1e12 the noise is known to 5e-4 only, four values of it still to
    one in 10¹² or so."""
    own = np.random.default_rng(5).normal(size=(6, 4))
    p_values = [test.p_value for test in noise_tests([additive(own, query), additive(own, query)])]
    assert sorted(p_values)[1] < 1e-10  # one step, and all steps, of the other run
    repeated = np.repeat(own[:1], 6, axis=0)
    within = noise_tests([additive(repeated, query), additive(np.random.default_rng(6).normal(size=(6, 4)), query)])
    assert "that of step" in within[1].measured
    assert within[1].p_value < 1e-8


def test_noise_that_is_scaled_is_found_though_steps_differ_in_scale() -> None:
    own = np.random.default_rng(7).normal(size=3)
    steps = [*additive(own[None]).steps, *additive(5 * own[None], scale=5.0).steps]
    test = noise_tests([Recording(tuple(steps), None)])[1]
    assert test.p_value < 1e-40


def test_less_noise_than_declared_is_found() -> None:
    """In one run of 400 values, and in 100 runs of 4."""
    noise = 0.5 * np.random.default_rng(8).normal(size=(100, 4))
    assert noise_tests([additive(noise)])[0].p_value < 1e-8
    assert noise_tests([additive(row[None]) for row in noise])[0].p_value < 1e-8


def whole(size: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    p = -np.expm1(-1 / scale)
    return (rng.geometric(p, size) - rng.geometric(p, size)).astype(float)


@pytest.mark.grid
@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
def test_whole_noise_of_another_scale_is_found(scale: float) -> None:
    """A true p-value is below .01 in 8 of 200 or more with probability 1.3e-3 at most; on a fixed seed. Of four times
    the scale, and of numbers that are not whole, it is nearly 0."""
    rng = np.random.default_rng(12)

    def p_value(noise: np.ndarray) -> float:
        return noise_tests([additive(noise[None], query=7.0, scale=scale, kind="discrete_laplace")])[0].p_value

    assert sum(p_value(whole(300, scale, rng)) < 0.01 for _ in range(200)) < 8
    assert p_value(whole(2000, 4 * scale, rng)) < 1e-8
    assert p_value(whole(300, scale, rng) + 0.25) == 0


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
def test_ends_are_sums_of_the_law(scale: float) -> None:
    """P[K < k] and P[K ≤ k], summed over 2000 numbers on either side; 1e-12 is 4000 roundings."""
    k = np.arange(-2000, 2001)
    law = np.exp(-np.abs(k) / scale) * math.tanh(1 / (2 * scale))
    up_to = np.cumsum(law)
    low, high = cdf_ends("discrete_laplace", k / scale, np.full(k.size, 1e-12), scale)
    assert np.abs(low - (up_to - law)).max() < 1e-12
    assert np.abs(high - up_to).max() < 1e-12


def test_the_law_of_continuous_noise_is_tested_as_scipy_does() -> None:
    noise = np.random.default_rng(13).laplace(size=(1, 50))
    result = noise_tests([additive(noise, kind="laplace")])[0].p_value
    assert result == pytest.approx(stats.kstest(noise[0], stats.laplace.cdf).pvalue, rel=1e-9)


@pytest.mark.parametrize(("kind", "draw"), [("gaussian", "normal"), ("laplace", "laplace")])
def test_the_chance_of_a_repetition_is_bounded(kind: str, draw: str) -> None:
    """Beside a query of 2⁵¹ noise is rounded to halves, so that it repeats by chance: in 5000 draws no more often than
    the bound says, which rounds generously and is several times what is seen."""
    rng = np.random.default_rng(9)
    values = getattr(rng, draw)(size=(5001, 1))
    first, *others = additive(values, query=2.0**51, kind=kind).steps
    share = np.mean([is_repeat(first, other) for other in others])
    bounds = [math.exp(log_repeat_probability(first, other)) for other in others]
    assert 0 < share <= min(bounds)


def test_selections_that_repeat_are_found() -> None:
    """40 tokens among ten equal ones: a second run with the same ones has probability 10⁻⁴⁰."""
    law = np.full(10, -math.log(10))
    tokens = np.random.default_rng(10).integers(0, 10, 40)
    run = Recording(tuple(Step("selection", GAUSSIAN, law, 0.0, np.array([token]), True) for token in tokens), None)
    *_, every = noise_tests([run, run])
    assert every.p_value == pytest.approx(1e-40, rel=1e-9)


def selected(tokens: np.ndarray, law: np.ndarray) -> Recording:
    return Recording(tuple(Step("selection", GAUSSIAN, law, 0.0, np.array([token]), True) for token in tokens), None)


def test_selections_of_another_law_are_found() -> None:
    """The likeliest outcome alone, or a temperature of ½; of the declared law, 8 or more of 200 p-values are below .01
    with probability 1.3e-3 at most, on a fixed seed."""
    law = np.log([0.2, 0.5, 0.3])
    rng = np.random.default_rng(14)

    def p_value(tokens: np.ndarray) -> float:
        return noise_tests([selected(tokens, law)])[0].p_value

    assert sum(p_value(rng.choice(3, 50, p=np.exp(law))) < 0.01 for _ in range(200)) < 8
    assert p_value(np.ones(60, dtype=int)) < 1e-12
    cold = np.exp(2 * law) / np.exp(2 * law).sum()
    assert p_value(rng.choice(3, 2000, p=cold)) < 1e-8


def test_samples_from_a_fixed_seed_are_found() -> None:
    """Twice the same four batches of 60 units at rate ½: 112·(½)⁶⁰ bounds that two of them agree."""
    flags = np.random.default_rng(15).random((4, 60)) < 0.5
    event = dp_event.PoissonSampledDpEvent(0.5, GAUSSIAN)
    steps = tuple(Step("sample", event, np.empty(0), 0.0, row, True, tuple(range(60))) for row in flags)
    once, twice = sampling_tests([Recording(steps, None)]), sampling_tests([Recording(steps, None)] * 2)
    assert min(test.p_value for test in once) > 1e-3
    assert min(test.p_value for test in twice) == pytest.approx(112 * 0.5**60, rel=1e-9)


def test_what_the_recorder_draws_is_not_tested() -> None:
    def mechanism(data: list[int], recorder: Recorder) -> None:
        recorder.sample(data, dp_event.PoissonSampledDpEvent(0.5, GAUSSIAN))
        recorder.gaussian(0.0, GAUSSIAN, scale=1.0)

    runs = [record(mechanism, [1, 2]) for _ in range(2)]
    assert sampling_tests(runs) == noise_tests(runs) == []
