"""Events: their codec, their canonical composition, and what they refuse."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import events
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent, ParallelDpEvent

leaves = st.one_of(
    st.floats(0.1, 10).map(dp_event.GaussianDpEvent),
    st.floats(0.1, 10).map(dp_event.LaplaceDpEvent),
    st.builds(dp_event.DiscreteLaplaceDpEvent, st.floats(0.1, 1), st.integers(1, 3)),
    st.builds(dp_event.RandomizedResponseDpEvent, st.floats(0.1, 0.9), st.integers(2, 5)),
    st.builds(dp_event.ZCDpEvent, st.floats(0, 1)),
    st.builds(dp_event.PoissonSampledDpEvent, st.floats(0.1, 1), st.floats(0.1, 10).map(dp_event.GaussianDpEvent)),
    st.builds(BoundedRangeSelectionDpEvent, st.floats(0.1, 4), st.floats(0, 1e-3)),
    st.builds(ExPostSelectionDpEvent, st.floats(0.1, 4)),
    st.just(dp_event.NoOpDpEvent()),
    st.just(dp_event.NonPrivateDpEvent()),
    st.just(dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5])),
)
trees: st.SearchStrategy[DpEvent] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(dp_event.SelfComposedDpEvent, inner, st.integers(0, 4)),
        st.lists(inner, max_size=3).map(dp_event.ComposedDpEvent),
        st.builds(dp_event.RepeatAndSelectDpEvent, inner, st.floats(1, 50), st.sampled_from([0.0, 1.0, 2.5, math.inf])),
        st.builds(ParallelDpEvent, st.lists(inner, min_size=1, max_size=3).map(tuple), st.booleans()),
    ),
    max_leaves=6,
)


@examples(67, 200)
@given(event=trees)
def test_events_survive_json(event: DpEvent) -> None:
    text = json.dumps(events.to_json(event), allow_nan=False)
    assert repr(events.from_json(json.loads(text))) == repr(event)


def test_numbers_of_numpy_survive_json() -> None:
    """A charge of a long array was refused by a line of Python's, as JSON has no arrays."""
    counts = np.ones(2001, dtype=int)
    counts[1000] = 7
    tree = dp_event.SingleEpochTreeAggregationDpEvent(np.float32(0.5), counts)
    text = json.dumps(events.to_json(dp_event.SelfComposedDpEvent(tree, np.int64(3))), allow_nan=False)
    read = events.from_json(json.loads(text))
    assert read == dp_event.SelfComposedDpEvent(dp_event.SingleEpochTreeAggregationDpEvent(0.5, counts.tolist()), 3)


@examples(67, 200)
@given(event=trees, count=st.integers(0, 3), other=trees)
def test_composition_is_canonical(event: DpEvent, count: int, other: DpEvent) -> None:
    """Counts, nesting and order leave no trace, and composing a composition changes nothing."""
    whole = repr(events.compose([(event, count), (other, 1)]))
    assert repr(events.compose([(other, 1), *[(event, 1)] * count])) == whole
    assert repr(events.compose([(dp_event.ComposedDpEvent([other, *[event] * count]), 1)])) == whole
    canonical = events.compose([(event, count), (other, 1)])
    assert repr(events.compose([(canonical, 1)])) == whole


def test_nothing_composed_is_a_no_op() -> None:
    assert events.compose([]) == dp_event.NoOpDpEvent()
    assert events.compose([(dp_event.GaussianDpEvent(1.0), 0)]) == dp_event.NoOpDpEvent()


def test_native_events_are_those_that_the_library_reads() -> None:
    gaussian = dp_event.GaussianDpEvent(1.0)
    native = dp_event.ComposedDpEvent([gaussian, dp_event.SelfComposedDpEvent(gaussian, 2)])
    assert events.is_native(native)
    assert RdpAccountant().supports(native)
    for own in (BoundedRangeSelectionDpEvent(1.0), ParallelDpEvent([gaussian])):
        assert not events.is_native(own)
        assert not events.is_native(dp_event.ComposedDpEvent([gaussian, own]))
        assert not RdpAccountant().supports(own)


@pytest.mark.parametrize("kind", [BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent])
def test_the_range_counts_the_rounding_of_both_laws_at_two_outcomes(kind: type[DpEvent]) -> None:
    """Two laws, each off by a factor e^±r an outcome: the width of log p̃/q̃ grows by 4r, and this pair attains it."""
    eta, r = 0.5, 0.125
    exact = [0.0, -eta]  # log p/q at the two outcomes of widest ratio
    sampled = [exact[0] + r - (-r), exact[1] - r - r]
    assert max(sampled) - min(sampled) == kind(eta, r).range == 1.0


@pytest.mark.parametrize("kind", [BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent])
def test_impossible_selections_are_refused(kind: type[DpEvent]) -> None:
    for eta in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="eta must be"):
            kind(eta)
    with pytest.raises(ValueError, match="rounding must be at least 0"):
        kind(1.0, -1e-9)


def test_a_parallel_composition_has_parts() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        ParallelDpEvent([])


def test_the_codec_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="cannot hold a UnsupportedDpEvent"):
        events.to_json(dp_event.UnsupportedDpEvent())
    with pytest.raises(ValueError, match="unknown event type 'Bogus'"):
        events.from_json({"type": "Bogus"})
    with pytest.raises(ValueError, match="wrong fields"):
        events.from_json({"type": "GaussianDpEvent", "sigma": 1.0})
    with pytest.raises(ValueError, match="eta must be above 0"):
        events.from_json({"type": "BoundedRangeSelectionDpEvent", "eta": -1.0})
