"""Plots draw what results hold, into the axes that are given, in the colours of the page."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterator

import numpy as np
import pytest
from dp_accounting import dp_event
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from scipy.stats import norm

from dpassay import plots
from dpassay.accounting import (
    Adjacency,
    ApproxDP,
    Bound,
    Comparison,
    Direction,
    DominatingPair,
    PureDP,
    Rigor,
    Unit,
    compare,
)
from dpassay.audits import AuditResult
from dpassay.base.errors import InputError

METHODS = ["lattice", "gdp", "zcdp"]


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(dp_event.GaussianDpEvent(2.0), adjacency="add_remove", delta=1e-5, methods=METHODS)


@pytest.fixture
def axes() -> Axes:
    return Figure().add_subplot()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def lower(value: float, **changes: object) -> Bound:
    given = Bound(
        Direction.LOWER,
        value,
        "score_bets",
        Rigor.FINITE_SAMPLE,
        Adjacency.ADD_REMOVE,
        confidence=0.95,
        delta=1e-5,
        ceiling=5.0,
    )
    return dataclasses.replace(given, **changes)  # type: ignore[arg-type]


def drawn(axes: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in axes.get_lines()]


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_the_trade_off_of_gaussian_noise_is_the_known_curve(axes: Axes) -> None:
    """β = Φ(Φ⁻¹(1 − α) − μ) for μ-GDP; the enclosure is narrower than 10⁻⁹."""
    assert plots.trade_off(DominatingPair.gaussian(2.0), axes) is axes
    _, (alpha, beta) = drawn(axes)
    assert np.allclose(beta, norm.cdf(norm.isf(alpha) - 0.5), atol=1e-9)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("type I error α", "type II error β")
    assert labels(axes) == []


def test_several_pairs_are_named_and_looks_differ(axes: Axes) -> None:
    pairs = {"noise 1": DominatingPair.gaussian(1.0), "noise 2": DominatingPair.gaussian(2.0)}
    plots.trade_off(pairs, axes, power=True)
    assert labels(axes) == ["noise 1", "noise 2"]
    one, other = axes.get_lines()[1:]
    assert one.get_color() != other.get_color()
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_a_profile_has_its_enclosure_as_a_band(axes: Axes) -> None:
    pair = DominatingPair.gaussian(1.0).poisson_sampled(0.01).self_compose(10)
    plots.profile(pair, axes, epsilons=[0.0, 0.25, 0.5])
    ((epsilon, delta),) = drawn(axes)
    lower_ends, upper_ends = pair.privacy_profile(epsilon)
    assert np.array_equal(delta, upper_ends)
    (band,) = axes.collections
    edges = set(np.asarray(band.get_paths()[0].vertices, float)[:, 1].tolist())
    assert {*lower_ends, *upper_ends} <= edges


def test_a_comparison_has_a_curve_for_each_accountant(found: Comparison) -> None:
    axes = plots.profile(found)
    assert set(labels(axes)) == {"Privacy-loss lattice", "Gaussian DP", "Zero-concentrated DP"}
    assert len(drawn(plots.trade_off(found))) == 4  # and guessing
    assert len(pyplot.get_fignums()) == 2


def test_no_artist_keeps_a_colour_that_stands_for_another(found: Comparison, axes: Axes) -> None:
    plots.bounds([found, lower(0.4)], axes, claim=ApproxDP(2.0, 1e-5))
    plots.profile(found, axes)
    found_lines = axes.findobj(Line2D)
    colours = {to_hex(colour) for line in found_lines for colour in (line.get_color(), line.get_markeredgecolor())}
    colours |= {to_hex(patch.get_facecolor()) for patch in axes.findobj(Polygon)}
    assert not colours & {f"#0{n}0{n}0{n}" for n in range(1, 9)}


def test_bounds_are_bars_beside_the_claim(found: Comparison, axes: Axes) -> None:
    plots.bounds([found, lower(0.4)], axes, claim=ApproxDP(3.0, 1e-5))
    assert [name.split("\n")[0] for name in names(axes)][-1] == "Bets on likelihood ratios"
    assert "ε ≥ 0.4" in names(axes)[-1]
    assert labels(axes) == ["the claim", "at most", "at least", "ceiling of the test"]
    claims = [x for x, y in drawn(axes) if np.ptp(y) == 1]
    assert [list(x) for x in claims] == [[3.0, 3.0]] * len(names(axes))
    ends = [x[0] for x, y in drawn(axes) if len(x) == 2 and np.ptp(x) == 0 and np.ptp(y) < 1]
    assert {row.bound.value for row in found.rows} | {0.4} <= set(ends)
    assert axes.get_xlabel() == "ε at δ = 1 × 10⁻⁵"


def test_a_proven_pure_epsilon_is_compared_with_a_claim_at_a_delta(axes: Axes) -> None:
    proven = Bound(Direction.UPPER, 0.5, "basic", Rigor.CERTIFIED, Adjacency.ADD_REMOVE)
    plots.bounds(proven, axes, claim=ApproxDP(1.0, 1e-5))
    assert labels(axes) == ["the claim", "at most"]


def test_values_far_apart_and_infinite_ones_can_be_drawn(axes: Axes) -> None:
    far = [lower(0.0), lower(300.0, ceiling=None), lower(math.inf, direction=Direction.UPPER, ceiling=None)]
    plots.bounds(far, axes, claim=PureDP(2.0))
    assert axes.get_xscale() == "log"
    assert all(np.isfinite(x).all() for x, _ in drawn(axes))
    assert isinstance(axes.figure, Figure)
    axes.figure.savefig(io.BytesIO())


def test_audits_have_bounds(axes: Axes) -> None:
    audit = AuditResult(
        name="a", game="g", attack="a", statistics=("s",), conclusion="c", trials=1, bounds=(lower(0.2),)
    )
    plots.bounds([audit, audit], axes)
    assert len(names(axes)) == 2
    assert "the claim" not in labels(axes)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "no bound"),
        ([lower(0.1), lower(0.1, adjacency=Adjacency.REPLACE_ONE)], "not comparable"),
        ([lower(0.1), lower(0.1, unit=Unit("user", 2))], "not comparable"),
    ],
)
def test_what_cannot_be_on_one_scale_is_refused(given: list[Bound], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plots.bounds(given)


def test_a_comparison_of_no_event_has_no_curve(found: Comparison) -> None:
    with pytest.raises(InputError, match="event type"):
        plots.profile(dataclasses.replace(found, about={"layers": 3}))
    with pytest.raises(InputError, match="limits of the axes"):
        plots.profile(found, epsilons=[1.0])
