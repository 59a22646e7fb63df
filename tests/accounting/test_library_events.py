"""Events of dp_accounting, of this version and of later ones, as objects and as text, and what is bounded of them."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from scipy import integrate, stats

from dpassay.accounting import events
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ParallelDpEvent,
    PermuteAndFlipDpEvent,
    TruncatedPoissonSampledDpEvent,
)
from dpassay.accounting.interop.dp_accounting_events import found_text, recognize
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.registry import account

TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 80, 2.0)


def event_of(state: State | None) -> DpEvent:
    assert state is not None
    (part,) = state.parts
    assert isinstance(part, RepeatedEvent)
    return part.event


def later(name: str, **fields: Any) -> DpEvent:
    """An event of a class that the library has in a later version."""
    kind = attrs.make_class(name, list(fields), bases=(DpEvent,), frozen=True)
    kind.__module__ = "dp_accounting.dp_event"
    return kind(**fields)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "zero_out"])
def test_a_cut_sample_is_one_event_as_an_object_and_in_a_file(adjacency: str) -> None:
    ours = TruncatedPoissonSampledDpEvent(0.05, 1000, 80, dp_event.GaussianDpEvent(2.0))
    assert event_of(found_text(repr(TRUNCATED))) == ours
    assert events.compose([(TRUNCATED, 3)]) == dp_event.SelfComposedDpEvent(ours, 3)
    for event in (TRUNCATED, dp_event.SelfComposedDpEvent(TRUNCATED, 20)):
        again = dp_event.SelfComposedDpEvent(ours, 20) if event is not TRUNCATED else ours
        assert account(event, adjacency=adjacency, delta=1e-6) == account(again, adjacency=adjacency, delta=1e-6)


@pytest.mark.parametrize(
    ("event", "same"),
    [
        (later("ExponentialMechanismDpEvent", epsilon=0.5), BoundedRangeSelectionDpEvent(0.5)),
        (later("PermuteAndFlipDpEvent", epsilon=0.5), PermuteAndFlipDpEvent(0.5)),
        (
            later("DiscreteGaussianDpEvent", sigma=2.0, sensitivity=1.0, dimension=None),
            DiscreteGaussianDpEvent(2.0, 1.0, None),
        ),
    ],
)
def test_classes_of_later_versions_are_those_of_this_package(event: DpEvent, same: DpEvent) -> None:
    assert events.own(event) == same
    bound = account(event, adjacency="add_remove", delta=1e-6)
    assert bound == account(same, adjacency="add_remove", delta=1e-6)
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
    named = {"module_name": "dp_accounting.dp_event", "class_name": type(event).__name__, **fields}
    assert event_of(recognize(named)) == same
    assert event_of(recognize(["dp_accounting.dp_event", type(event).__name__, *fields.values()])) == same


def test_permute_and_flip_costs_what_laplace_noise_does() -> None:
    for adjacency in ("add_remove", "replace_one"):  # ε is stated for the relation
        flip = account(PermuteAndFlipDpEvent(0.7), adjacency=adjacency, delta=1e-3)
        noise = account(dp_event.LaplaceDpEvent(1 / 0.7), adjacency="add_remove", delta=1e-3)
        assert flip.value == pytest.approx(noise.value, rel=1e-9)


def test_a_discrete_gaussian_is_exact_on_a_number_and_bounded_on_a_vector() -> None:
    number, vector = (
        account(DiscreteGaussianDpEvent(3.0, 1.5, dimension), adjacency="add_remove", delta=1e-6)
        for dimension in (1, 4)
    )
    x = np.arange(-200, 201)
    law = np.exp(-(x**2) / 18)
    law /= law.sum()
    moved = np.roll(law, 1)
    assert number.interval is not None
    for epsilon, above in ((number.interval.lower, True), (number.interval.upper, False)):
        delta = float(np.maximum(moved - math.exp(epsilon) * law, 0).sum())
        assert delta >= 1e-6 * (1 - 1e-6) if above else delta <= 1e-6 * (1 + 1e-6)
    gaussian = account(dp_event.GaussianDpEvent(2.0), adjacency="add_remove", delta=1e-6, method="zcdp")
    assert vector.value == pytest.approx(gaussian.value, rel=1e-9)


def test_a_sample_of_fixed_size_displaces_another_record() -> None:
    """One of n records −1 is 1, or absent: the sum of m of them is a mixture at distance 2."""
    size, sample, sigma = 20, 5, 1.5
    rate, x = sample / size, np.linspace(-20, 22, 400_001)
    p = rate * stats.norm.pdf(x, 2, sigma) + (1 - rate) * stats.norm.pdf(x, 0, sigma)
    q = stats.norm.pdf(x, 0, sigma)
    event = dp_event.SampledWithoutReplacementDpEvent(size, sample, dp_event.GaussianDpEvent(sigma))
    pair = Lattice("add_remove").compose(event).pair
    for epsilon in (0.0, 0.2, 1.0):
        for side, first, second in (("remove", p, q), ("add", q, p)):
            attained = integrate.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), x)
            interval = pair.delta(epsilon, direction=side)
            assert interval.lower <= attained * (1 + 1e-6) + 1e-12
            assert attained <= interval.upper * (1 + 1e-6) + 1e-12


def test_shifts_of_either_sign_are_bounded_by_their_sizes() -> None:
    weights, shifts, x = [0.5, 0.2, 0.3], [0.0, -1.0, 2.0], np.linspace(-30, 30, 400_001)
    event = dp_event.MixtureOfGaussiansDpEvent(1.5, shifts, weights)
    bound = Lattice("add_remove").compose(event)
    p = sum(weight * stats.norm.pdf(x, shift, 1.5) for weight, shift in zip(weights, shifts, strict=True))
    q = stats.norm.pdf(x, 0, 1.5)
    for epsilon in (0.0, 0.3, 1.0):
        t = math.exp(epsilon)
        attained = max(integrate.trapezoid(np.maximum(a - t * b, 0), x) for a, b in ((p, q), (q, p)))
        assert attained <= bound.delta(epsilon).value * (1 + 1e-9)
    assert bound.epsilon(1e-5).interval is None


def test_what_is_stated_for_a_relation_has_no_bound_where_records_are_displaced() -> None:
    event = dp_event.SampledWithoutReplacementDpEvent(20, 5, dp_event.ZCDpEvent(0.1))
    reason = Lattice("add_remove").supports(event)
    assert reason is not None
    assert reason.endswith("its cost is stated for another relation; use replace_one")
    assert Lattice("replace_one").supports(event) is None


def test_events_are_told_apart_by_every_digit() -> None:
    """NumPy prints long arrays without their middle: two events with equal texts would be one."""
    weights, shifts = np.full(1500, 1 / 1500), np.linspace(0, 0.01, 1500)
    other = shifts.copy()
    other[600:900] = np.linspace(0.004, 3, 300)
    near, far = (dp_event.MixtureOfGaussiansDpEvent(1.0, moves, weights) for moves in (shifts, other))
    alone = account(far, adjacency="add_remove", delta=1e-3).value
    for parts in ([near, far], [far, near]):
        assert account(dp_event.ComposedDpEvent(parts), adjacency="add_remove", delta=1e-3).value >= alone
        parallel = ParallelDpEvent(parts, partition_is_public=True)
        assert account(parallel, adjacency="add_remove", delta=1e-3).value >= alone * (1 - 1e-6)


def test_a_null_record_on_a_sample_is_no_absent_one() -> None:
    """A mechanism that tells how many were drawn, and by randomised response whether the only record is null.

    With ε = 1 and q = 0.1 it has δ(0.5) = 0.0288, though it is 1-DP between the record and null.
    """
    event = dp_event.PoissonSampledDpEvent(0.1, EpsilonDeltaDpEvent(1.0))
    reason = Lattice("zero_out").supports(event)
    assert reason is not None
    assert "not that of an absent one" in reason
    assert Lattice("add_remove").supports(event) is None


def test_what_takes_a_place_in_a_sample_may_be_in_another_part() -> None:
    parts = ParallelDpEvent([EpsilonDeltaDpEvent(1.0)] * 2, partition_is_public=True)
    reason = Lattice("replace_one").supports(dp_event.SampledWithoutReplacementDpEvent(3, 1, parts))
    assert reason is not None
    assert "may be in another part" in reason


def test_without_noise_a_sample_reveals_no_more_than_who_was_drawn() -> None:
    """So the bound of 1 is not attained, and there is no interval."""
    for event in (
        dp_event.SampledWithReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(0.0)),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(0.0)),
        TruncatedPoissonSampledDpEvent(0.05, 100, 10, dp_event.GaussianDpEvent(0.0)),
    ):
        assert Lattice("replace_one").compose(event).delta(0.5).interval is None
    still = Lattice("add_remove").compose(DiscreteGaussianDpEvent(0.0, 0.5, 1))
    assert still.epsilon(1e-6).value == 0.0


def test_other_records_that_are_drawn_at_random_attain_no_interval() -> None:
    inner = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(1.0))
    bound = Lattice("replace_one").compose(dp_event.SampledWithoutReplacementDpEvent(3, 2, inner)).delta(0.5)
    assert bound.interval is None
