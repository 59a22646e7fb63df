"""The picture of a verdict: the claim, what is proven and what audits show, on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import MaxNLocator

from cupel.accounting.bounds import Bound, Direction
from cupel.accounting.number_format import format_number
from cupel.reports import svg, text
from cupel.reports.claim import Claimed
from cupel.reports.svg import Figure

_MOST_ROWS = 6
"""Bars of each direction; the others are in the tables."""
_LOG_FROM = 12.0
_DECADES = 7.0
"""A logarithmic scale shows this many decades below its largest number; what is smaller is drawn at its left end."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Numbers in [0, ∞] to pixels in [left, right], with room for 0 and ∞ at the ends of a logarithmic scale."""

    left: float
    right: float
    low: float
    high: float
    log: bool
    infinite: bool

    @classmethod
    def of(cls, values: Sequence[float], left: float, right: float) -> _Scale:
        finite = [value for value in values if 0 < value < math.inf] or [1.0]
        infinite = any(value == math.inf for value in values)
        high = max(finite)
        log = high / min(finite) > _LOG_FROM
        low = max(min(finite) / 2, high / 10**_DECADES) if log else 0.0
        return cls(left, right, low, high * (2 if log else 1.12), log, infinite)

    def __call__(self, value: float) -> float:
        start = self.left + (24 if self.log else 0)
        end = self.right - (30 if self.infinite else 0)
        if value == math.inf:
            return self.right
        if value <= 0 or (self.log and value < self.low):
            return self.left if value <= 0 else start
        share = math.log(value / self.low) / math.log(self.high / self.low) if self.log else value / self.high
        return start + (end - start) * min(share, 1.0)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places and labels of round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, math.ceil((last - first + 1) / most))
            steps = (1, 2, 5) if last - first < 2 else (1,)
            powers = range(first - (len(steps) > 1), last + 1, step)
            marks = [m * 10.0**k for k in powers for m in steps]
            values = [0.0, *(mark for mark in marks if self.low <= mark <= self.high)]
        else:
            values = [float(v) for v in MaxNLocator(most).tick_values(0, self.high) if 0 <= v <= self.high]
        if self.infinite:
            values.append(math.inf)
        return [(self(value), text.tick(value)) for value in values]


def scale(rows: Sequence[Bound], claim: Claimed) -> Figure | None:
    """Claim, upper bounds and audit bounds that count for it, with confidence and ceilings.

    Args:
        rows: every bound that may be shown. Those that can neither support nor refute the claim, such as estimates and
            bounds at another δ, unit or adjacency, are not drawn against it.
        claim: what is claimed.

    Returns:
        The figure; None where it would be a single bar or none, which the numbers above it say.
    """
    shown = [row for row in rows if claim.counts(row)]
    upper = sorted((row for row in shown if row.direction is Direction.UPPER), key=lambda row: row.value)
    lower = sorted((row for row in shown if row.direction is Direction.LOWER), key=lambda row: -row.value)
    upper, lower = upper[:_MOST_ROWS], lower[:_MOST_ROWS]
    left_out = len(rows) - len(upper) - len(lower)
    if len(upper) + len(lower) < 2 and not any(row.ceiling is not None for row in lower):
        return None

    def draw(width: int) -> MatplotlibFigure:
        return _draw(width, upper, lower, claim)

    drawn = [*upper, *lower]
    description = f"Claimed: {claim.symbol} at most {format_number(claim.value)}. " + " ".join(
        f"{text.method(row.method)}: {text.bound(row)} ({text.rigor(row)}{_ceiling_in_words(row)})." for row in drawn
    )
    caption = (
        "Dashed line: the claim. "
        + ("Pale bar: proven, the privacy loss is at most this. " if upper else "")
        + ("Solid bar: an audit shows that it is at least this; the diamond is the test’s ceiling. " if lower else "")
        + (f"In the tables only: {left_out} more, weaker or not comparable with the claim." if left_out else "")
    )
    return svg.both(
        "scale",
        draw,
        title=f"Claim, proof and evidence on one scale of {claim.symbol}",
        description=description,
        caption=caption.strip(),
        header=("Bound", "Method", "Rigor", "Ceiling"),
        table=[
            (f"{claim.symbol} ≤ {format_number(claim.value)}", "the claim", "claimed", "–"),
            *((text.bound(row), text.method(row.method), text.rigor(row), text.ceiling(row)) for row in drawn),
        ],
    )


def _draw(width: int, upper: Sequence[Bound], lower: Sequence[Bound], claim: Claimed) -> MatplotlibFigure:
    narrow = width == svg.NARROW
    row_height = 66 if narrow else 44
    groups = [("Proven: at most", upper), ("Shown by audits: at least", lower)]
    groups = [(name, rows) for name, rows in groups if rows]
    height = 36 + 32 * len(groups) + row_height * (len(upper) + len(lower)) + 34
    figure, axes = svg.canvas(width, height)
    values = [claim.value, *(v for r in (*upper, *lower) for v in (r.value, r.ceiling) if v is not None)]
    x = _Scale.of(values, 4 if narrow else 236, width - 12 if narrow else width - 118)
    for place, label in x.ticks(5 if narrow else 8):
        axes.plot([place] * 2, [32, height - 30], color=svg.RULE, lw=0.6, alpha=0.5)
        anchor = "left" if place < 12 else "center"
        axes.text(place, height - 16, label, ha=anchor, va="center", size=svg.SMALL, color=svg.MUTED)
    claim_x = x(claim.value)
    axes.plot([claim_x] * 2, [26, height - 30], color=svg.INK, lw=1.8, ls=(0, (4, 3)))
    label = f"claim: {claim.symbol} ≤ {format_number(claim.value)}"
    half = len(label) * 4.4
    axes.text(min(max(claim_x, half), width - half), 13, label, ha="center", va="center", weight="bold")
    y = 36.0
    for name, rows in groups:
        axes.text(0, y + 15, name, weight="bold", va="center", bbox=svg.HALO)
        y += 32
        for row in rows:
            _name(axes, row, y, claim, width)
            _bar(axes, x, row, y + (50 if narrow else 17))
            y += row_height
    return figure


def _name(axes: Axes, row: Bound, y: float, claim: Claimed, width: int) -> None:
    """The method, its rigor, its value and its ceiling, in words beside the bar or above it."""
    top, below = (y + 10, y + 28) if width == svg.NARROW else (y + 9, y + 26)
    note = text.rigor(row) + (", a priori" if _a_priori(row, claim) else "")
    value = "none finite" if row.value == math.inf else text.bound(row).removeprefix(f"{text.symbol(row)} ")
    axes.text(0, top, text.clean(text.method(row.method))[:30], va="center", bbox=svg.HALO)
    axes.text(0, below, note, va="center", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)
    axes.text(width, top, value, va="center", ha="right", weight="bold", bbox=svg.HALO)
    if row.ceiling is not None:
        ceiling = f"ceiling {text.ceiling(row)}"
        axes.text(width, below, ceiling, va="center", ha="right", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)


def _bar(axes: Axes, x: _Scale, row: Bound, y: float) -> None:
    """The bar from 0 to the bound, and for an audit the whisker from there to its ceiling."""
    value, colour = row.value, svg.UPPER if row.direction is Direction.UPPER else svg.LOWER
    left, end = x(0), x(value)
    fill = 0.22 if row.direction is Direction.UPPER else 1.0
    axes.fill([left, end, end, left], [y - 8, y - 8, y + 8, y + 8], color=colour, alpha=fill, lw=0)
    axes.plot([left, end, end, left], [y - 8, y - 8, y + 8, y + 8], color=colour, lw=1.4)
    axes.plot([end] * 2, [y - 11, y + 11], color=colour, lw=3.2)
    if value == math.inf:
        axes.plot([end], [y], ">", color=colour, ms=9)
    if row.interval is not None and x(row.interval.upper) - x(row.interval.lower) > 3:
        other = x(row.interval.lower if row.direction is Direction.UPPER else row.interval.upper)
        axes.plot([other] * 2, [y - 11, y + 11], color=colour, lw=1.4)
    if row.ceiling is not None and row.direction is Direction.LOWER and row.ceiling >= value:
        last = x(row.ceiling)
        axes.plot([end, last], [y] * 2, color=svg.CEILING, lw=1.8, ls=(0, (1.5, 2)))
        axes.plot([last], [y], "D", color=svg.CEILING, ms=8, mec=svg.PAGE, mew=1)


def _a_priori(row: Bound, claim: Claimed) -> bool:
    return claim.kind == "ex_post" and row.direction is Direction.UPPER and row.quantity == "epsilon"


def _ceiling_in_words(row: Bound) -> str:
    return "" if row.ceiling is None else f", ceiling {text.ceiling(row)}"
