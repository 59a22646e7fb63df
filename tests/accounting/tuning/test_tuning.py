"""The best of a random number of runs, against the output law of the whole procedure on finite mechanisms, against
series in 40 digits, and beside dp_accounting.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator

import numpy as np
import property_settings
import pytest
from dp_accounting import DpEvent, dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpassay.accounting import Rigor, account, accountant, upper_bounds
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.events import EpsilonDeltaDpEvent
from dpassay.accounting.guarantees import ApproxDP
from dpassay.accounting.lattice.best_of_runs import best_of_runs
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.accounting.tuning.runs import NumberOfRuns, curve_of_divergences, divergences, pure_extra
from dpassay.base.arrays import Floats

SHAPES = [0.0, 0.3, 1.0, 4.0, math.inf]
ORDERS = np.array([1.05, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0])
REACH = 400


def chances(shape: float, gamma: float, mean: float) -> list[mpf]:
    """P(K = k) for k = 0, 1, …, by the definition of each law."""
    if math.isinf(shape):
        terms = [mp.exp(-mpf(mean))]
        for k in range(1, REACH):
            terms.append(terms[-1] * mpf(mean) / k)
        return terms
    g = mpf(gamma)
    if shape == 0:
        return [mpf(0), *((1 - g) ** k / (k * mp.log(1 / g)) for k in range(1, REACH))]
    terms, product = [mpf(0)], mpf(1)
    for k in range(1, REACH):
        product *= (k - 1 + mpf(shape)) / k
        terms.append((1 - g) ** k * product / (g**-shape - 1))
    return terms


def procedure(masses: list[mpf], law: list[mpf]) -> list[mpf]:
    """The law of what is released: each outcome, the last being the best; and nothing, if there is no run.

    P(the best is at most y) = Σ_k P(K = k) P(one run is at most y)^k.
    """
    below = [mpf(0), *itertools.accumulate(masses)]
    result = [mp.polyval(law[::-1], min(each, mpf(1))) for each in below]
    return [b - a for a, b in itertools.pairwise(result)] + [result[0]]


def renyi(p: list[mpf], q: list[mpf], order: float) -> float:
    total = sum(a ** mpf(order) * b ** (1 - mpf(order)) for a, b in zip(p, q, strict=True) if a)
    return float(mp.log(total) / (mpf(order) - 1))


def hockey_stick(p: list[mpf], q: list[mpf], epsilon: float) -> float:
    return float(sum(max(a - mp.exp(epsilon) * b, mpf(0)) for a, b in zip(p, q, strict=True)))


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mp.workdps(30):
        yield


@pytest.mark.parametrize("shape", SHAPES)
def test_no_procedure_exceeds_a_bound_and_some_nearly_attain_it(shape: float) -> None:
    """Random pairs of laws on 2 or 3 outcomes, in every order of the outcomes."""
    rng = np.random.default_rng([7, round(10 * min(shape, 9))])
    nearest = {"divergence": 0.0, "profile": 0.0}
    for trial in range(8):
        p, q = (rng.dirichlet(np.full(2 + trial % 2, rng.choice([0.5, 1.0, 4.0]))) + 1e-4 for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        gamma = rng.uniform(0.15, 0.8)
        mean = rng.uniform(0.3, 9.0)
        law = chances(shape, gamma, mean)
        assert float(sum(law)) == pytest.approx(1, abs=1e-14)
        runs = NumberOfRuns(float(sum(k * chance for k, chance in enumerate(law))) * (1 + 1e-14), shape)
        nearest = check_pair(p, q, law, runs, nearest)
    assert nearest["divergence"] > 0.75
    assert nearest["profile"] > 0.85


def check_pair(p: Floats, q: Floats, law: list[mpf], runs: NumberOfRuns, nearest: dict[str, float]) -> dict[str, float]:
    exact_p, exact_q = ([mpf(float(x)) / mpf(math.fsum(side)) for x in side] for side in (p, q))
    single = np.array([max(renyi(exact_p, exact_q, o), renyi(exact_q, exact_p, o)) for o in ORDERS]) * (1 + 1e-14)
    pair = DominatingPair.finite(p, q)

    def curve(epsilons: Floats) -> Floats:
        return np.maximum(*(pair.privacy_profile(epsilons, side)[1] for side in ("remove", "add")))

    by_orders = divergences(runs, ORDERS, single, curve_of_divergences(ORDERS, single))
    by_profile = divergences(runs, ORDERS, single, curve)
    (((component, _),),) = best_of_runs(runs, pair, lambda epsilons: np.ones(epsilons.shape), "test").alternatives
    pure = max(abs(float(mp.log(a / b))) for a, b in zip(exact_p, exact_q, strict=True))
    limit = pure * (1 + 1e-14) + pure_extra(runs, pure * (1 + 1e-14))
    epsilons = np.array([-2.0, -0.5, 0.0, 0.1, 0.4, 1.0, 2.0])
    best = dict(nearest)
    for order in itertools.permutations(range(p.size)):
        a, b = (procedure([side[i] for i in order], law) for side in (exact_p, exact_q))
        attained = np.array([renyi(a, b, o) for o in ORDERS])
        assert (attained <= by_profile).all()
        assert (by_profile <= by_orders * (1 + 1e-9)).all()
        best["divergence"] = max(best["divergence"], float((attained / by_profile).max()))
        loss = max(abs(float(mp.log(x / y))) for x, y in zip(a, b, strict=True) if x)
        assert loss <= limit
        for upper, (x, y) in ((component.remove, (a, b)), (component.add, (b, a))):
            known = upper.hockey_stick_upper(epsilons)
            for epsilon, bound in zip(epsilons, known, strict=True):
                delta = hockey_stick(x, y, float(epsilon))
                assert delta <= bound
                if epsilon > 0 and delta > 1e-3:
                    best["profile"] = max(best["profile"], delta / float(bound))
    return best


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_no_smaller_pure_epsilon_holds(shape: float, epsilon: float) -> None:
    """Randomised response, whose likelier answer is the worse one; a small part of it is the best of that answer."""
    law = chances(shape, 0.2, 4.0)
    runs = NumberOfRuns(float(sum(k * chance for k, chance in enumerate(law))), shape)
    likely, part = 1 / (1 + mp.exp(-mpf(epsilon))), mpf(10) ** -9
    p = [likely * (1 - part), likely * part, 1 - likely]
    q = [(1 - likely) * (1 - part), (1 - likely) * part, likely]
    a, b = procedure(p, law), procedure(q, law)
    assert float(mp.log(a[1] / b[1])) == pytest.approx(epsilon + pure_extra(runs, epsilon), rel=1e-6)
    assert mp.log(a[1] / b[1]) <= epsilon + pure_extra(runs, epsilon)


@pytest.mark.parametrize("shape", [0.0, 1e-14, 1e-6, 0.5, 1.0, 7.0, 1e5])
@pytest.mark.parametrize("gamma", [1e-8, 1e-3, 0.3, 0.999, 1 - 1e-9])
def test_the_odds_are_those_of_the_mean(shape: float, gamma: float) -> None:
    """The mean of the law of γ, in 40 digits, comes from odds of (1 − γ)/γ, never less."""
    with mp.workdps(60):
        g, s = mpf(gamma), mpf(shape)
        mean = s * (1 - g) / (g * (1 - g**s)) if shape else (1 / g - 1) / mp.log(1 / g)
        runs, exact = NumberOfRuns(float(mean), shape), (1 - g) / g
        # The float is at most half a unit from the mean, which changes the odds by at most as much of the mean.
        room = 2 * mpf(2) ** -53 * mean / (1 + s)
        assert exact - room <= runs.odds <= exact * (1 + mpf(10) ** -12) + 200 * room


INNER: list[DpEvent] = [
    dp_event.GaussianDpEvent(0.7),
    dp_event.GaussianDpEvent(4.0),
    dp_event.GaussianDpEvent(50.0),
    dp_event.LaplaceDpEvent(0.5),
    dp_event.LaplaceDpEvent(5.0),
    dp_event.ZCDpEvent(0.05, 0.1),
    dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(4.0), dp_event.LaplaceDpEvent(5.0)]),
    dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 300),
]
NUMBERS = [(1.0, 1.0), (10.0, 0.0), (10.0, 1.0), (3.0, 0.4), (200.0, 2.0), (1.0, math.inf), (25.0, math.inf)]


@pytest.mark.grid("inner", "number")
@pytest.mark.parametrize("inner", INNER, ids=lambda event: repr(event)[:50])
@pytest.mark.parametrize("number", NUMBERS)
def test_never_above_dp_accounting(inner: DpEvent, number: tuple[float, float]) -> None:
    event = dp_event.RepeatAndSelectDpEvent(inner, *number)
    for composed in (event, dp_event.ComposedDpEvent([event, dp_event.GaussianDpEvent(3.0)])):
        library = RdpAccountant().compose(composed)
        ours = RenyiAccountant("add_remove", orders=library._orders).compose(composed)
        for delta in (0.05, 1e-4, 1e-8, 1e-14):
            theirs = library.get_epsilon(delta)
            assert ours.estimate(delta).value <= theirs * (1 + 1e-9)
            bound = account(composed, adjacency="add_remove", delta=delta)
            assert bound.rigor is Rigor.CERTIFIED
            assert bound.value <= theirs * (1 + 1e-9)


def test_what_others_report() -> None:
    """40 tuning runs of a training with ε 1.97 at δ = 1e-5: dp_accounting says 4.9."""
    training = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1000)
    event = dp_event.RepeatAndSelectDpEvent(training, 40.0, 1.0)
    bounds = {bound.method: bound for bound in upper_bounds(event, ApproxDP(1.0, 1e-5), adjacency="add_remove")}
    assert bounds["lattice"].value < bounds["rdp"].value < RdpAccountant().compose(event).get_epsilon(1e-5)
    assert any(item.startswith("Of all runs of a tuning") for item in bounds["lattice"].assumptions)


def test_always_one_run_is_the_run_itself() -> None:
    for inner in INNER[:6]:
        event = dp_event.RepeatAndSelectDpEvent(inner, 1.0, 2.0)
        for method in ("lattice", "rdp"):
            once, best = (account(each, adjacency="add_remove", delta=1e-6, method=method) for each in (inner, event))
            assert once.value == pytest.approx(best.value, rel=1e-9)


@pytest.mark.parametrize(
    ("inner", "mean", "shape"),
    [
        (dp_event.GaussianDpEvent(0.03), 1e5, math.inf),
        (dp_event.LaplaceDpEvent(0.2), 600.0, 1e6),
        (EpsilonDeltaDpEvent(20.0, 1e-3), 9000.0, 1e-13),
        (EpsilonDeltaDpEvent(0.1, 1e-6), 20.0, 0.0),
        (dp_event.GaussianDpEvent(1e6), 1e12, 0.5),
        (dp_event.NonPrivateDpEvent(), 3.0, 1.0),
        (dp_event.NoOpDpEvent(), 3.0, 1.0),
    ],
)
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-300])
@pytest.mark.filterwarnings("error")
def test_extreme_numbers_have_the_best_answer(inner: DpEvent, mean: float, shape: float, delta: float) -> None:
    """No overflow, and never above another certified accountant, alone or beside another release."""
    best = dp_event.RepeatAndSelectDpEvent(inner, mean, shape)
    for event in (best, dp_event.ComposedDpEvent([best, dp_event.GaussianDpEvent(1.2)])):
        answer = account(event, adjacency="add_remove", delta=delta).value
        for name in ("basic", "rdp", "zcdp", "gdp"):
            sibling = accountant(name, "add_remove")
            if sibling.supports(event) is None:
                assert answer <= sibling.compose(event).epsilon(delta).value


def test_a_group_has_a_bound() -> None:
    """It costs more than one record and, for Laplace noise, at most three times its pure ε."""
    for inner in (dp_event.GaussianDpEvent(4.0), dp_event.LaplaceDpEvent(5.0)):
        event = dp_event.RepeatAndSelectDpEvent(inner, 10.0, 1.0)
        once, three = (account(event, adjacency="add_remove", delta=1e-5, unit=unit) for unit in ("record", "group(3)"))
        assert once.value < three.value < 12
        if isinstance(inner, dp_event.LaplaceDpEvent):
            pure = account(event, adjacency="add_remove", delta=1e-5, unit="group(3)", method="basic").value
            assert three.value <= pure


def test_bad_numbers_are_refused() -> None:
    for mean, shape, words in [
        (0.5, 1.0, "mean must be at least 1"),
        (0.0, math.inf, "mean must be above 0"),
        (math.inf, 1.0, "mean must be finite"),
        (2.0, -0.5, "shape must be at least 0"),
        (2.0, math.nan, "shape must be a number"),
        (2.0, -math.inf, "shape must be finite"),
        (1e101, 1.0, "mean must be at most 1e"),
    ]:
        event = dp_event.RepeatAndSelectDpEvent(dp_event.LaplaceDpEvent(2.0), mean, shape)
        with pytest.raises(ValueError, match=words):
            account(event, adjacency="add_remove", delta=1e-5)


laws = st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]) | st.floats(0.0, 20.0)
noises = st.floats(math.log(0.3), math.log(100.0)).map(math.exp)
kinds = st.sampled_from([dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent])
deltas = st.sampled_from([0.1, 1e-3, 1e-5, 1e-9, 1e-13])
adjacencies = st.sampled_from(["add_remove", "replace_one", "zero_out"])
ROOM = 2e-3
"""Of two answers, each at most the default relative width above the value of its pair."""


@property_settings.examples(30, 300)
@given(
    kind=kinds,
    noise=noises,
    mean=st.floats(1.0, 300.0),
    more=st.floats(1.0, 4.0),
    shape=laws,
    delta=deltas,
    adjacency=adjacencies,
)
def test_more_runs_and_less_noise_never_cost_less(
    kind: type[DpEvent], noise: float, mean: float, more: float, shape: float, delta: float, adjacency: str
) -> None:
    def cost(noise: float, mean: float) -> tuple[float, float]:
        event = dp_event.RepeatAndSelectDpEvent(kind(noise), mean, shape)
        values = [account(event, adjacency=adjacency, delta=delta, method=each).value for each in ("lattice", "rdp")]
        return values[0], values[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = cost(noise, mean)
        for costlier in (cost(noise, mean * more), cost(noise / more, mean)):
            assert usual[0] <= costlier[0] * (1 + ROOM) + 1e-12
            assert usual[1] <= costlier[1] * (1 + 1e-9) + 1e-12
        once = account(kind(noise), adjacency=adjacency, delta=delta).value
        if not math.isinf(shape):
            assert once <= usual[0] * (1 + ROOM) + 1e-12


@property_settings.examples(25, 250)
@given(kind=kinds, noise=noises, mean=st.floats(1.0, 300.0), shape=laws, delta=deltas, other=noises)
def test_the_order_of_a_composition_does_not_matter(
    kind: type[DpEvent], noise: float, mean: float, shape: float, delta: float, other: float
) -> None:
    """And what is released besides never lowers the cost; nor is the default answer above a certified sibling's."""
    event, release = dp_event.RepeatAndSelectDpEvent(kind(noise), mean, shape), dp_event.GaussianDpEvent(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there, back = (
            account(dp_event.ComposedDpEvent(parts), adjacency="add_remove", delta=delta).value
            for parts in ([event, release], [release, event])
        )
        assert there == back
        assert account(event, adjacency="add_remove", delta=delta).value <= there * (1 + ROOM) + 1e-12
        for name in ("basic", "zcdp", "gdp", "rdp", "advanced"):
            sibling = accountant(name, "add_remove")
            if sibling.supports(event) is None:
                value = sibling.compose(event).epsilon(delta).value
                assert account(event, adjacency="add_remove", delta=delta).value <= value
