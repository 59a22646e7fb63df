"""Results as matplotlib plots. Each function draws into axes, and returns them.

    found = dpassay.compare(dp_event.GaussianDpEvent(2.0), adjacency="add_remove", delta=1e-5)
    axes = dpassay.plots.bounds(found, claim=ApproxDP(3.0, 1e-5))
    axes.figure.savefig("bounds.svg")

Without `axes` they are those of a new figure of pyplot, which notebooks show. Fonts and sizes are those of your style.
Plots of private results are private.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from dp_accounting import DpEvent
from matplotlib.axes import Axes

from dpassay.accounting import events
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.comparison.comparison import Comparison
from dpassay.accounting.comparison.curves import Panel, curve_of, profile_panel, trade_off_panel
from dpassay.accounting.guarantees import ApproxDP, Guarantee
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.accounting.registry import ACCOUNTANTS
from dpassay.audits.implications import implied_limit
from dpassay.base import defaults
from dpassay.base.arrays import Floats
from dpassay.base.errors import InputError, input_errors
from dpassay.jobs.assay import AssayResult
from dpassay.reports import comparison as drawn
from dpassay.reports import figures, svg
from dpassay.reports.claim import claimed

__all__ = ["bounds", "profile", "trade_off"]

ERRORS = np.unique(np.concatenate([np.geomspace(1e-6, 0.02, 20), np.linspace(0.02, 0.98, 97), [0.99, 0.999, 0.999999]]))
"""Type I errors of a trade-off curve, close enough to be joined by straight lines."""
_POINTS, _DELTA = 61, 1e-6
"""Points of a privacy profile, and the δ down to which it is drawn."""

Curved: TypeAlias = Comparison | DominatingPair | Mapping[str, DominatingPair]
"""What has curves: a comparison has one for each accountant."""


class HasBounds(Protocol):
    """A result with bounds, such as those of `dpassay.account` and `dpassay.assay`, or an audit."""

    @property
    def bounds(self) -> Sequence[Bound]: ...


class HasAudits(Protocol):
    """A result with several audits, such as that of `dpassay.audit.table`."""

    @property
    def audits(self) -> Sequence[HasBounds]: ...


class HasAudit(Protocol):
    """A result with one audit, such as that of `dpassay.audit.membership`."""

    @property
    def audit(self) -> HasBounds: ...


Bounded: TypeAlias = "Bound | Comparison | HasBounds | HasAudits | HasAudit | Iterable[Bounded]"
"""What has bounds, or several such things."""


def trade_off(
    result: Curved, axes: Axes | None = None, *, power: bool = False, seconds: float = defaults.COMPARISON_SECONDS
) -> Axes:
    """The trade-off curve: the least type II error β of any test between neighbours, against its type I error α.

    Each line is a proven lower bound on β; a band is an enclosure of the exact curve. The dotted line is guessing.

        dpassay.plots.trade_off({"noise 1": DominatingPair.gaussian(1.0), "noise 2": DominatingPair.gaussian(2.0)})

    Args:
        result: of `dpassay.compare`, a dominating pair, or several by their names.
        axes: to draw into; None for those of a new figure.
        power: draw the power 1 − β instead, with both axes logarithmic, for small α.
        seconds: time limit of each accountant of a comparison; a warning says what it left out.

    Returns:
        The axes; α and β are probabilities.

    Raises:
        InputError: if the comparison is of something else than events.
    """
    alphas = None if power else ERRORS
    if isinstance(result, Comparison):
        event, result = _of_event(result)
        profiles = profile_panel(event, result, seconds=seconds)
        panel = trade_off_panel(event, result, profiles, alphas=alphas)
    else:
        points = ERRORS if alphas is None else alphas
        panel = _of_pairs(result, "alpha", "beta", points, lambda pair: pair.trade_off(points))
    return _draw(panel, axes, drawn.draw_panel if power else drawn.draw_errors)


def profile(
    result: Curved,
    axes: Axes | None = None,
    *,
    epsilons: Sequence[float] | None = None,
    seconds: float = defaults.COMPARISON_SECONDS,
) -> Axes:
    """The privacy profile: δ against ε, with a logarithmic axis of δ.

    Each line is an upper bound on δ. A band is an enclosure of the exact value; where it is thinner than the line it is
    not seen. Open markers are estimates, which prove nothing.

        dpassay.plots.profile(dpassay.accounting.dominating_pair(dp_event.LaplaceDpEvent(2.0), "add_remove"))

    Args:
        result: of `dpassay.compare`, a dominating pair, or several by their names.
        axes: to draw into; None for those of a new figure.
        epsilons: increasing, at least 0; not for a comparison, which chooses them. None for a range down to δ = 10⁻⁶.
        seconds: time limit of each accountant of a comparison; a warning says what it left out.

    Returns:
        The axes; ε is in nats, δ a probability.

    Raises:
        InputError: if the comparison is of something else than events.
    """
    if isinstance(result, Comparison):
        if epsilons is not None:
            raise InputError("a comparison chooses the ε of its profile itself; set the limits of the axes instead")
        panel = profile_panel(*_of_event(result), seconds=seconds)
    else:
        points = _epsilons(result) if epsilons is None else np.asarray(epsilons, dtype=np.float64)
        panel = _of_pairs(result, "epsilon", "delta", points, lambda pair: pair.privacy_profile(points)[::-1])
    return _draw(panel, axes, drawn.draw_panel)


def bounds(result: Bounded, axes: Axes | None = None, *, claim: Guarantee | None = None) -> Axes:
    """Bounds on one scale, and the claim as a dashed line: accountants side by side, or an audit beside the claim.

    A pale bar is proven: the privacy loss is at most this. A solid bar is shown by an audit: it is at least this; the
    diamond is the test's ceiling. A dotted outline is an estimate.

        shown = dpassay.testing.assert_never_exceeds(mechanism, PureDP(1.0), data=data, neighbor=neighbor)
        dpassay.plots.bounds([proven, *shown], claim=PureDP(1.0))

    Args:
        result: of `dpassay.compare`, `dpassay.account`, `dpassay.assay`, an audit, bounds, or several of these. Only
            bounds on the quantity of the first one are drawn, and of an assay those that count for its claim.
        axes: to draw into; None for those of a new figure.
        claim: None for no line; an assay has its own.

    Returns:
        The axes, in the unit of what is bounded (ε in nats).

    Raises:
        InputError: if there is no bound, or if adjacencies or units differ.
    """
    every = _bounds_of(result)
    own = claimed(result.document.claim) if isinstance(result, AssayResult) else None
    if own is not None and claim is None:
        rows = [(row, own.value) for row in every if own.counts(row)]
    else:
        rows = [(row, _allowed(claim, row)) for row in every]
    rows = [(row, limit) for row, limit in rows if row.quantity == rows[0][0].quantity]
    if not rows:
        raise InputError("there is no bound to draw")
    kinds = list(dict.fromkeys(f"{row.adjacency}, unit {row.unit}" for row, _ in rows))
    if len(kinds) > 1:
        raise InputError(f"bounds for {' and for '.join(kinds)} are not comparable; draw them into axes of their own")
    rows.sort(key=lambda item: (item[0].direction is Direction.LOWER, item[0].value))
    named = [(row.by, row, limit) for row, limit in rows]
    return _drawn_into(axes, lambda own_axes: figures.draw_bounds(own_axes, named), (8.0, 1.4 + 0.7 * len(named)))


def _of_event(result: Comparison) -> tuple[DpEvent, Comparison]:
    """The event that a comparison is about, and the comparison of accountants alone."""
    with input_errors():
        event = events.from_json(result.about)
    rows = tuple(row for row in result.rows if row.bound.method in ACCOUNTANTS)
    return event, dataclasses.replace(result, rows=rows)


def _of_pairs(
    result: DominatingPair | Mapping[str, DominatingPair],
    argument: str,
    quantity: str,
    points: Floats,
    ask: Callable[[DominatingPair], tuple[Floats, Floats]],
) -> Panel:
    """Curves of pairs, by a function to their proven bounds and the other ends of the enclosures."""
    curves = []
    for name, pair in _named(result).items():
        values, others = ask(pair)
        curves.append(curve_of(name, Rigor.CERTIFIED, points, values, others if pair.tight else None))
    return Panel(argument, quantity, tuple(curves))


def _named(result: DominatingPair | Mapping[str, DominatingPair]) -> Mapping[str, DominatingPair]:
    return {"lattice": result} if isinstance(result, DominatingPair) else result


def _epsilons(result: DominatingPair | Mapping[str, DominatingPair]) -> Floats:
    """From 0 to the largest ε at `_DELTA` of a pair."""
    ends = [pair.epsilon(_DELTA).upper for pair in _named(result).values()]
    return np.linspace(0, max((end for end in ends if 0 < end < math.inf), default=1.0), _POINTS)


def _bounds_of(result: Any) -> list[Bound]:
    match result:
        case Bound():
            return [result]
        case Comparison():
            return [row.bound for row in result.rows]
    for name in ("bounds", "audits", "audit"):
        if (inner := getattr(result, name, None)) is not None:
            return _bounds_of(inner)
    return [row for item in result for row in _bounds_of(item)]


def _allowed(claim: Guarantee | None, row: Bound) -> float:
    """The most that a claim allows of what a bound is about; inf if it says nothing of it."""
    if claim is None:
        return math.inf
    if isinstance(claim, ApproxDP) and row.direction is Direction.UPPER and row.quantity == "epsilon" and not row.delta:
        return claim.epsilon  # a pure ε bounds the ε at any δ
    return implied_limit(claim, row)


def _draw(panel: Panel, axes: Axes | None, draw: Callable[..., None]) -> Axes:
    looks = drawn.looks_of([curve.method for curve in panel.curves])
    for note in panel.notes:
        warnings.warn(note, stacklevel=3)

    def both(own: Axes) -> None:
        draw(own, panel, looks)
        drawn.draw_legend(own, panel, looks)

    return _drawn_into(axes, both)


def _drawn_into(axes: Axes | None, draw: Callable[[Axes], None], size: tuple[float, float] | None = None) -> Axes:
    """Draws into axes, or those of a new figure of a size in inches, in the colours of the reports."""
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(layout="constrained", figsize=size)
    before = set(axes.get_children())
    draw(axes)
    svg.recolour(part for artist in axes.get_children() if artist not in before for part in artist.findobj())
    return axes
