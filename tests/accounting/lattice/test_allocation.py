"""Random allocation: enclosures contain what quadrature gives, and published numbers."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples
from scipy.special import ndtr

from dpassay.accounting.accountants.base import ALLOCATED, Unsupported
from dpassay.accounting.bounds import Interval
from dpassay.accounting.events import EpsilonDeltaDpEvent, RandomAllocationDpEvent
from dpassay.accounting.lattice import allocation
from dpassay.accounting.lattice.accountant import Lattice, dominating_pair
from dpassay.accounting.lattice.normal_mixtures import NormalMixtures
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet
from dpassay.accounting.registry import ACCOUNTANTS

DIRECTIONS = ("remove", "add")
Array = NDArray[np.float64]


@pytest.fixture(autouse=True)
def _width_is_not_asked_about() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        yield


def event(noise: float, steps: int, selected: int = 1, epochs: int = 1) -> dp_event.DpEvent:
    once = RandomAllocationDpEvent(dp_event.GaussianDpEvent(noise), selected, steps)
    return dp_event.SelfComposedDpEvent(once, epochs)


def pair(noise: float, steps: int, selected: int = 1, epochs: int = 1) -> DominatingPair:
    return dominating_pair(event(noise, steps, selected, epochs), "add_remove")


def by_quadrature(noise: float, steps: int, epsilon: float, step: float) -> tuple[float, float]:
    """δ of both directions: sums over a grid of all normals but one, over which the mean is a difference of two Φ.

    A sum over the whole line errs by less than any power of the step: a grid of another step says by how much.
    """
    mu = 1 / noise
    x = np.arange(-9.0, 9.0 + mu + step, step)
    density = step * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    ratio = np.exp(mu * x - mu * mu / 2)
    others, mass = np.zeros(1), np.ones(1)
    for _ in range(steps - 1):
        others, mass = np.add.outer(others, ratio).ravel(), np.multiply.outer(mass, density).ravel()

    def below(level: Array, place: float) -> Array:
        """The mass of the last ratio below a level, under N(place, 1)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(level > 0, ndtr(np.log(level) / mu + mu / 2 - place), 0.0)

    level = steps * math.exp(epsilon) - others  # of E(W − level)⁺
    remove = (1 - below(level, mu)) - level * (1 - below(level, 0.0))
    level = steps * math.exp(-epsilon) - others  # of E(level − W)⁺
    add = level * below(level, 0.0) - below(level, mu)
    return float(mass @ remove) / steps, float(mass @ add) * math.exp(epsilon) / steps


@pytest.mark.parametrize(
    ("noise", "steps", "epsilon", "step"),
    [
        (1.0, 2, 0.5, 0.01),
        (2.0, 2, 2.0, 0.01),
        (0.5, 2, 1.0, 0.005),
        (2.0, 3, 0.5, 0.03),
        (1.0, 3, 1.0, 0.02),
        (2.0, 4, 0.5, 0.13),
    ],
)
def test_quadrature(noise: float, steps: int, epsilon: float, step: float) -> None:
    exact = by_quadrature(noise, steps, epsilon, step)
    coarse = by_quadrature(noise, steps, epsilon, 1.3 * step)
    for direction, value, other in zip(DIRECTIONS, exact, coarse, strict=True):
        error = abs(value - other)
        assert error <= 2e-6 * value
        known = pair(noise, steps).delta(epsilon, direction=direction)
        assert known.lower - error <= value <= known.upper + error
        assert known.width <= 1e-3 * known.upper


def test_known_digits() -> None:
    """Two steps, σ = 1, ε = .5."""
    for direction, digits, low, high in (
        ("remove", 0.14917752, 0.14917, 0.14919),
        ("add", 0.14268697, 0.14268, 0.142695),
    ):
        known = pair(1.0, 2).delta(0.5, direction=direction)
        assert low <= known.lower <= digits <= known.upper <= high


def test_two_epochs_by_all_pairs_of_outcomes() -> None:
    """The loss of two steps on a grid of 200 × 200 outcomes, added to itself: what an attacker attains."""
    edges = np.linspace(-6.5, 7.5, 201)
    q, p = (np.diff(ndtr(edges - shift)) for shift in (0.0, 1.0))
    one_q, one_p = np.outer(q, q).ravel(), ((np.outer(p, q) + np.outer(q, p)) / 2).ravel()
    index = np.digitize(np.log(one_p / one_q), np.linspace(-3, 6, 1500))
    both_p, both_q = (np.multiply.outer(*[np.bincount(index, weights=side)] * 2) for side in (one_p, one_q))
    attained = float(np.maximum(both_p - math.exp(1.0) * both_q, 0.0).sum())
    known = pair(1.0, 2, epochs=2).delta(1.0, direction="remove")
    assert attained <= known.upper
    assert known.lower - attained <= 2e-3 * known.lower  # the cells merge little
    assert known.width <= 1e-3 * known.upper


def test_one_step_is_a_gaussian() -> None:
    assert pair(1.3, 1, epochs=3).gaussian_mu == DominatingPair.gaussian(1.3).self_compose(3).gaussian_mu
    assert pair(1.3, 4, selected=4).gaussian_mu == DominatingPair.gaussian(1.3).self_compose(4).gaussian_mu


def test_published_numbers() -> None:
    """PLD_accounting 2.0 says [.8503, .8690] for one of 100 steps; dp_accounting's own test 2.4265 for 10 of 100."""
    known = pair(1.0, 100).epsilon(1e-6)
    assert 0.8503 <= known.lower <= known.upper <= 0.8690
    assert known.width <= 3e-4 * known.upper
    known = pair(2.0, 100, selected=10).epsilon(1e-6)
    # The sum of all steps is normal with mean 10 and deviation 2·√100: a test that is always possible.
    least = DominatingPair.gaussian(2.0).epsilon(1e-6).lower
    assert least * (1 - 1e-12) <= known.lower <= least <= known.upper <= 2.4265
    twice = pair(2.0, 100, selected=10, epochs=2).epsilon(1e-6)
    assert twice.lower == pytest.approx(DominatingPair.gaussian(2.0).self_compose(2).epsilon(1e-6).lower)


def test_poisson_sampling_is_near() -> None:
    allocated = pair(1.0, 300).epsilon(1e-6)
    sampled = DominatingPair.gaussian(1.0).poisson_sampled(1 / 300).self_compose(300).epsilon(1e-6)
    assert 0.5 * sampled.lower <= allocated.upper <= sampled.upper  # a record takes part once, not now and then twice


def law_of(values: list[float], moved: list[float] | None, first: int) -> allocation._SumLaw:
    masses = np.array(values) / sum(values)
    spacing = 0.25
    points = np.exp(spacing * np.arange(first, first + masses.size))
    moments = None if moved is None else masses * points * np.exp(spacing * (np.array(moved)[: masses.size] - 0.5))
    return allocation._SumLaw(first, spacing, masses, 0.0, 0.0, moments=moments)


masses = st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=12)
places = st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12)


@given(masses, masses, places, st.integers(-6, 6), st.sampled_from([1, 2]), st.booleans())
@examples(100, 1000)
def test_sums_against_all_pairs(
    a: list[float], b: list[float], moved: list[float], first: int, factor: int, lower: bool
) -> None:
    """Mass and mean of all pairs are kept, and convex functions are larger from above and smaller from below."""
    one, two = (law_of(values, moved if lower else None, start) for values, start in ((a, first), (b, 0)))
    for left, right, same in ((one, two, False), (one, one, True)):
        total = allocation._paired(left, right, factor, same=same)
        at, weights = [], []
        for law in (left, right, total):
            points = np.exp(law.log_points())
            with np.errstate(divide="ignore", invalid="ignore"):
                points = points if law.moments is None else np.where(law.masses > 0, law.moments / law.masses, 1.0)
            at.append(points)
            weights.append(law.masses)
        sums, chances = np.add.outer(at[0], at[1]).ravel(), np.multiply.outer(weights[0], weights[1]).ravel()
        assert weights[2].sum() == pytest.approx(chances.sum(), rel=1e-13)
        assert weights[2] @ at[2] == pytest.approx(chances @ sums, rel=1e-13)
        for level in np.quantile(sums, np.linspace(0, 1, 9)):
            exact = float(chances @ np.maximum(sums - level, 0.0))
            known = float(weights[2] @ np.maximum(at[2] - level, 0.0))
            room = 1e-12 * float(chances @ sums)
            assert known <= exact + room if lower else known >= exact - room


@given(st.floats(0.4, 8.0), st.integers(2, 40), st.floats(-8.0, -2.0), st.data())
@examples(4, 40)
def test_more_noise_or_steps_never_cost_more(noise: float, steps: int, exponent: float, data: st.DataObject) -> None:
    delta = 10.0**exponent
    epsilon = pair(noise, steps).epsilon(delta)
    assert epsilon.lower <= epsilon.upper <= DominatingPair.gaussian(noise).epsilon(delta).upper

    def never_more(better: Interval, worse: Interval) -> None:
        assert better.lower <= worse.upper

    never_more(pair(noise * data.draw(st.floats(1.01, 2.0)), steps).epsilon(delta), epsilon)
    never_more(pair(noise, steps + data.draw(st.integers(1, 20))).epsilon(delta), epsilon)
    never_more(epsilon, pair(noise, steps, epochs=2).epsilon(delta))
    if data.draw(st.booleans()):
        never_more(epsilon, pair(noise, steps, selected=2).epsilon(delta))


@given(st.floats(0.5, 4.0), st.integers(2, 30), st.integers(1, 3))
@examples(2, 20)
def test_all_questions_have_ordered_answers(noise: float, steps: int, epochs: int) -> None:
    known = pair(noise, steps, epochs=epochs)
    answers = [known.delta(0.3), known.delta(-0.3), known.blowup(0.01), known.beta(0.2)]
    for answer in answers:
        assert answer.width <= 5e-3 * answer.upper
    for direction in DIRECTIONS:
        low, high = known.privacy_profile(np.array([-0.5, 0.0, 0.3, 1.0]), direction)
        assert (low <= high).all()
        assert (high - low <= 1e-2 * high + 1e-12).all()
        low, high = known.blowups(np.array([1e-3, 0.1, 0.5]), direction)
        assert (low <= high).all()


def test_mu() -> None:
    known = pair(1.0, 10).mu(1e-4)
    assert 0.3 < known.lower <= known.upper < 1
    assert known.width <= 1e-2 * known.upper


def test_extremes() -> None:
    gaussian = DominatingPair.gaussian(1.0)
    assert pair(1.0, 50).epsilon(1e-40).upper <= gaussian.epsilon(1e-40).upper * (1 + 1e-9)
    assert pair(0.01, 50).epsilon(1e-6).upper == pytest.approx(DominatingPair.gaussian(0.01).epsilon(1e-6).upper)
    assert pair(0.0, 50).epsilon(1e-6).lower == math.inf
    assert pair(1.0, 50, selected=0).epsilon(1e-6).upper == 0
    much_noise = pair(1e4, 1000).epsilon(1e-6)
    assert 0 < much_noise.lower <= much_noise.upper <= 1e-6
    for steps in (2, 100):
        known = pair(0.05, steps).epsilon(1e-6)
        assert known.width <= 1e-3 * known.upper


def test_relations() -> None:
    ran = event(1.0, 20)
    removed, nulled, replaced = (
        Lattice(each).compose(ran).epsilon(1e-6) for each in ("add_remove", "zero_out", "replace_one")
    )
    assert removed.value == nulled.value < replaced.value
    assert replaced.interval is None  # nobody is known to attain it
    assert replaced.value < 3 * removed.value < DominatingPair.gaussian(0.5).epsilon(1e-6).upper
    little_noise = Lattice("replace_one").compose(event(0.1, 20, epochs=2)).epsilon(1e-6)
    assert little_noise.value <= DominatingPair.gaussian(0.05).self_compose(2).epsilon(1e-6).upper * (1 + 1e-3)


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"num_selected must be at most num_steps \(3\), not 4"):
        RandomAllocationDpEvent(dp_event.GaussianDpEvent(1.0), 4, 3)
    with pytest.raises(Unsupported, match="units cannot be added or removed"):
        dominating_pair(RandomAllocationDpEvent(dp_event.RandomizedResponseDpEvent(0.5, 4), 1, 3), "add_remove")


@pytest.mark.parametrize("name", ["zcdp", "gdp", "rdp"])
def test_other_accountants_count_known_steps(name: str) -> None:
    ran, known = event(1.0, 20, selected=3, epochs=2), dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 6)
    bounds = [ACCOUNTANTS[name]("replace_one").compose(each).epsilon(1e-6).value for each in (ran, known)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def test_groups_in_several_random_steps() -> None:
    """Of two records, each in two of three steps, all places are tried: no ρ exceeds that of two known steps."""
    choices = list(itertools.combinations(range(3), 2))
    worst = max(
        sum(sum(step in each for each in both) ** 2 for step in range(3)) / 2
        for both in itertools.product(choices, repeat=2)
    )
    ran = RandomAllocationDpEvent(dp_event.GaussianDpEvent(1.0), 2, 3)
    assert ACCOUNTANTS["gdp"]("add_remove", "group(2)").compose(ran).mu().value ** 2 / 2 >= worst  # type: ignore[attr-defined]
    laplace = RandomAllocationDpEvent(dp_event.LaplaceDpEvent(1.0), 2, 3)
    assert "several random steps" in str(ACCOUNTANTS["advanced"]("add_remove", "group(2)").supports(laplace))
    assert ACCOUNTANTS["advanced"]("add_remove").supports(laplace) is None


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_more_steps_than_are_computed(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "MAX_STEPS", 40)
    known = pair(1.0, round(80 * fraction))
    assert known.tight == (fraction == 0.5)
    assert known.epsilon(1e-6).upper == pair(1.0, 40).epsilon(1e-6).upper


Masses = list[Fraction]


def every_outcome(p: list[float], q: list[float], steps: int) -> tuple[Masses, Masses]:
    """The laws of all outcomes of a mechanism that runs in each step, with the unit in one of them and without it.

    They are exact, so that the differences of equal masses are 0.
    """
    own, other = ([Fraction(value) for value in side] for side in (p, q))
    first, second = [], []
    for outcome in itertools.product(range(len(p)), repeat=steps):
        second.append(math.prod((other[each] for each in outcome), start=Fraction(1)))
        chosen = [
            math.prod(
                (own[each] if step == place else other[each] for step, each in enumerate(outcome)), start=Fraction(1)
            )
            for place in range(steps)
        ]
        first.append(sum(chosen, Fraction()) / steps)
    return first, second


@st.composite
def finite_laws(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    size = draw(st.integers(2, 4))
    weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1.0)), min_size=size, max_size=size)
    p, q = draw(weights.filter(any)), draw(weights.filter(any))
    return [value / math.fsum(p) for value in p], [value / math.fsum(q) for value in q]


RARE = ([0.0, 12 / 13, 0.0, 1 / 13], [0.0, 0.0, 16 / 17, 1 / 17])
"""The finite ratio is rare in each step, so that little is left of its mass in the highest sum of four."""
ALIKE = (
    [0.20513858718381586, 0.2007460210470071, 0.2970576958845885, 0.2970576958845885],
    [0.5056795448629899, 0.49432045513701006, 0.0, 0.0],
)
"""The finite ratios are nearly alike, so that their grid is fine, and their masses are 1 up to rounding."""


@example(laws=RARE, steps=4, epsilon=0.0)
@example(laws=ALIKE, steps=3, epsilon=0.0)
@example(laws=([0.6, 0.4, 0.0], [0.6, 0.4, 0.0]), steps=3, epsilon=0.0)
@given(laws=finite_laws(), steps=st.integers(2, 4), epsilon=st.one_of(st.just(0.0), st.floats(1e-3, 5.0)))
@examples(20, 400)
def test_any_mechanism_by_all_outcomes(laws: tuple[list[float], list[float]], steps: int, epsilon: float) -> None:
    """Losses may be infinite, of either sign."""
    known = DominatingPair.finite(*laws)
    if not any(a and b for a, b in zip(*laws, strict=True)):  # everything is revealed
        with pytest.raises(ValueError, match="too large"):
            known.allocated(steps)
        return
    allocated = known.allocated(steps)
    both = every_outcome(*laws, steps)
    for direction, (first, second) in zip(DIRECTIONS, (both, both[::-1]), strict=True):
        grown = Fraction(math.exp(epsilon))
        exact = float(sum((max(a - grown * b, Fraction()) for a, b in zip(first, second, strict=True)), Fraction()))
        found = allocated.delta(epsilon, direction=direction)
        if allocated.tight:
            assert found.lower <= exact * (1 + 1e-9) + 1e-15
        assert exact <= found.upper * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("steps", [2, 3, 4, 6])
def test_rare_ratios_have_a_lower_side(steps: int) -> None:
    known = DominatingPair.finite(*RARE).allocated(steps)
    assert known.tight
    found = known.delta(0.0)
    assert found.upper - found.lower < 1e-7


@pytest.mark.parametrize("steps", [5, 1001, 10**6 - 1])
def test_nearly_equal_ratios_have_an_upper_side(steps: int) -> None:
    """Beyond all outcomes: δ(0) is at least what is revealed in the step of the unit, and at most 1."""
    revealed = ALIKE[0][2] + ALIKE[0][3]
    found = DominatingPair.finite(*ALIKE).allocated(steps).delta(0.0)
    assert revealed * (1 - 1e-9) <= found.upper <= 1


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6])
def test_laplace_by_quadrature(noise: float, epsilon: float) -> None:
    """Two steps: the mean over the other step, of which the loss is −1/b, 1/b, or in between with a density."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    places = nodes / noise
    ratios = np.exp(np.concatenate([[-1 / noise, 1 / noise], places]))
    masses = np.concatenate([[0.5, math.exp(-1 / noise) / 2], np.exp(-(1 / noise + places) / 2) / 4 * weights / noise])
    sums, both = np.add.outer(ratios, ratios) / 2, np.multiply.outer(masses, masses)
    assert both.sum() == pytest.approx(1, rel=1e-12)
    removed = float((both * np.maximum(sums - math.exp(epsilon), 0)).sum())
    added = float((both * np.maximum(1 - math.exp(epsilon) * sums, 0)).sum())
    known = dominating_pair(RandomAllocationDpEvent(dp_event.LaplaceDpEvent(noise), 1, 2), "add_remove")
    for direction, exact in zip(DIRECTIONS, (removed, added), strict=True):
        found = known.delta(epsilon, direction=direction)
        assert found.lower - 2e-5 <= exact <= found.upper + 2e-5  # the error of the rule where the mean bends
        assert found.upper - found.lower <= 2e-3 * found.upper + 1e-9


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 2), (1.0, 100), (2.0, 1000), (0.5, 10)])
def test_a_gaussian_as_any_mechanism(noise: float, steps: int) -> None:
    """By its measures, and by the masses of lognormals: both enclose the same numbers."""
    law = NormalMixtures([1.0], [1 / noise])
    general = DominatingPair.of(law, law, label=f"normal({noise})").allocated(steps)
    special = DominatingPair.gaussian_allocation(noise, steps)
    for direction, delta in itertools.product(DIRECTIONS, (1e-3, 1e-6, 1e-10)):
        ours, theirs = (each.epsilon(delta, direction=direction) for each in (general, special))
        assert max(ours.lower, theirs.lower) <= min(ours.upper, theirs.upper)
        assert ours.upper == pytest.approx(theirs.upper, rel=2e-3)


def test_mechanisms_that_only_have_bounds() -> None:
    """What is no noise on sums has, in known steps, the cost of those; nothing costs more than that."""
    delta = 1e-6
    for inner, relation in itertools.product(
        (dp_event.LaplaceDpEvent(1.0), dp_event.ZCDpEvent(0.1), dp_event.PoissonSampledDpEvent(0.1, NORMAL)),
        ("add_remove", "zero_out", "replace_one"),
    ):
        for selected in (1, 3):
            known = Lattice(relation).compose(RandomAllocationDpEvent(inner, selected, 100)).epsilon(delta)
            steps = Lattice(relation).compose(dp_event.SelfComposedDpEvent(inner, selected)).epsilon(delta)
            assert 0 < known.value <= steps.value * (1 + 1e-3)
            stated = isinstance(inner, dp_event.ZCDpEvent)
            amplified = relation == "add_remove" or (relation == "zero_out" and not stated)
            assert (known.value < 0.5 * steps.value) is amplified
            assert (known.interval is not None) is (amplified and selected == 1 and not stated)


NORMAL = dp_event.GaussianDpEvent(1.0)


@pytest.mark.parametrize(
    ("inner", "value"),
    [
        (dp_event.PoissonSampledDpEvent(0.1, dp_event.NonPrivateDpEvent()), math.inf),
        (dp_event.PoissonSampledDpEvent(1e-300, NORMAL), 0.0),
        (dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1e9)), 0.0),
        (dp_event.DiscreteLaplaceDpEvent(1e-12, 1), 0.0),
        (dp_event.LaplaceDpEvent(1e8), 0.0),
        (dp_event.LaplaceDpEvent(1e-4), 1e4),
        (EpsilonDeltaDpEvent(1.0, 1 - 1e-9), math.inf),
    ],
)
def test_mechanisms_that_no_grid_holds(inner: dp_event.DpEvent, value: float) -> None:
    """They cost what a known step costs, or nearly nothing."""
    known = Lattice("add_remove").compose(RandomAllocationDpEvent(inner, 1, 5)).epsilon(1e-6).value
    assert known == value or known == pytest.approx(value, rel=1e-3, abs=1e-6)


def test_samples_of_a_fixed_size_have_no_bound_in_random_steps() -> None:
    """How many records a step has is random, and so is the share that such a sample takes of them."""
    inner = dp_event.SampledWithoutReplacementDpEvent(100, 10, NORMAL)
    for name in ("lattice", "rdp", "gdp"):
        reason = ACCOUNTANTS[name]("add_remove").supports(RandomAllocationDpEvent(inner, 1, 10))
        assert "fixed number of records" in str(reason)


@pytest.mark.parametrize("inner", [NORMAL, dp_event.LaplaceDpEvent(1.0)])
def test_the_law_of_the_steps_is_assumed_aloud(inner: dp_event.DpEvent) -> None:
    for name in ("lattice", "zcdp"):
        bound = ACCOUNTANTS[name]("add_remove").compose(RandomAllocationDpEvent(inner, 1, 10)).epsilon(1e-6)
        assert ALLOCATED in bound.assumptions
    assert ALLOCATED not in Lattice("add_remove").compose(inner).epsilon(1e-6).assumptions


def test_many_epochs_of_several_random_steps_have_a_bound() -> None:
    """Together their laws have more outcomes than a float64 holds. They cost no more than as many known steps."""
    event = dp_event.SelfComposedDpEvent(RandomAllocationDpEvent(NORMAL, 3, 99), 53)
    known = Lattice("add_remove").compose(dp_event.SelfComposedDpEvent(NORMAL, 3 * 53)).epsilon(0.1).value
    bound = Lattice("add_remove").compose(event).epsilon(0.1)
    assert bound.interval is not None
    assert 0 < bound.interval.lower < bound.value < known / 10
