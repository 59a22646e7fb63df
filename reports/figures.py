"""The figures of a report: claim and bounds on one scale, hits with exact intervals, cost by token and by batch."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dpassay.accounting.bounds import Bound, Direction
from dpassay.audits.result import AuditResult, Rate
from dpassay.base.number_format import format_confidence, format_lower, format_number, format_percent, format_upper
from dpassay.reports import svg, text
from dpassay.reports.assay import BatchCost, TokenCost
from dpassay.reports.claim import ClaimedValue
from dpassay.reports.svg import Figure

LOG_FROM = 12.0
"""A ratio of largest to smallest value from which a logarithmic axis is used."""
AUDITED, CONTROL = "audited run", "control"
"""What a count is of, in every table and figure that shows both."""
_STEMS = 120
"""The largest number of batches that are drawn one by one."""
_MAX_ROWS = 6
"""Bars of each direction; the others are in the tables."""
_MARKS, _LISTED = 600, 600
"""Batches that have marks of their own, and a row of the table, at most."""
_CLAIM = (0, (4, 3))
"""The dash of a claim's line."""
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
        log = high / min(finite) > LOG_FROM
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


def claim_and_bounds(rows: Sequence[Bound], claim: ClaimedValue, attacks: Sequence[str] | None = None) -> Figure | None:
    """Claim, upper bounds and audit bounds that count for it, with confidence and ceilings.

    Args:
        rows: every bound that may be shown. Those that can neither support nor refute the claim, such as estimates and
            bounds at another δ, unit or adjacency, are not drawn against it.
        claim: what is claimed.
        attacks: the name of each, where several have one method; None for the names of their methods.

    Returns:
        The figure; None where it would be a single bar or none, which the numbers above it say.
    """
    names = attacks or [row.method for row in rows]
    shown = [(text.method(name), row) for name, row in zip(names, rows, strict=True) if claim.counts(row)]
    upper = sorted((item for item in shown if item[1].direction is Direction.UPPER), key=lambda item: item[1].value)
    lower = sorted((item for item in shown if item[1].direction is Direction.LOWER), key=lambda item: -item[1].value)
    upper, lower = upper[:_MAX_ROWS], lower[:_MAX_ROWS]
    left_out = len(rows) - len(upper) - len(lower)
    if len(upper) + len(lower) < 2 and not any(row.ceiling is not None for _, row in lower):
        return None

    def draw(width: int) -> MatplotlibFigure:
        return _draw_scale(width, upper, lower, claim)

    drawn = [*upper, *lower]
    description = f"Claimed: {claim.symbol} at most {format_number(claim.value)}. " + " ".join(
        f"{name}: {text.bound(row)} ({text.rigor(row)}{_ceiling_in_words(row)})." for name, row in drawn
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
        header=("Bound", "Method" if attacks is None else "Attack", "Rigor", "Ceiling"),
        table=[
            (f"{claim.symbol} ≤ {format_number(claim.value)}", "the claim", "claimed", "–"),
            *((text.bound(row), name, text.rigor(row), text.ceiling(row)) for name, row in drawn),
        ],
    )


def _draw_scale(
    width: int, upper: Sequence[tuple[str, Bound]], lower: Sequence[tuple[str, Bound]], claim: ClaimedValue
) -> MatplotlibFigure:
    """The bounds with their names, the proven ones above."""
    narrow = width == svg.NARROW
    row_height = 66 if narrow else 44
    groups = [("Proven: at most", upper), ("Shown by audits: at least", lower)]
    groups = [(name, rows) for name, rows in groups if rows]
    height = 36 + 32 * len(groups) + row_height * (len(upper) + len(lower)) + 34
    figure, axes = svg.canvas(width, height)
    values = [claim.value, *(v for _, r in (*upper, *lower) for v in (r.value, r.ceiling) if v is not None)]
    x = _Scale.of(values, 4 if narrow else 236, width - 12 if narrow else width - 118)
    for index, label in x.ticks(5 if narrow else 8):
        axes.plot([index] * 2, [32, height - 30], color=svg.RULE, lw=0.6, alpha=0.5)
        anchor = "left" if index < 12 else "center"
        axes.text(index, height - 16, label, ha=anchor, va="center", size=svg.SMALL, color=svg.MUTED)
    claim_x = x(claim.value)
    if not narrow:
        _claim_line(axes, claim_x, 26, height - 30)
    label = f"claim: {claim.symbol} ≤ {format_number(claim.value)}"
    half = len(label) * 4.4
    axes.text(min(max(claim_x, half), width - half), 13, label, ha="center", va="center", weight="bold")
    y = 36.0
    for title, rows in groups:
        axes.text(0, y + 15, title, weight="bold", va="center", bbox=svg.HALO)
        y += 32
        for name, row in rows:
            _label(axes, name, row, y, claim, width)
            _bar(axes, x, row, y + (50 if narrow else 17))
            if narrow:  # names are above the bars, and the line would cross them
                _claim_line(axes, claim_x, y + 37, y + 64)
            y += row_height
    return figure


def _claim_line(axes: Axes, x: float, top: float, bottom: float) -> None:
    axes.plot([x] * 2, [top, bottom], color=svg.INK, lw=1.8, ls=_CLAIM)


def _label(axes: Axes, name: str, row: Bound, y: float, claim: ClaimedValue, width: int) -> None:
    """The bound's name, its rigor, its value and its ceiling, in words beside the bar or above it."""
    top, below = (y + 10, y + 28) if width == svg.NARROW else (y + 9, y + 26)
    a_priori = claim.kind == "ex_post" and row.direction is Direction.UPPER and row.quantity == "epsilon"
    note = text.rigor(row) + (", a priori" if a_priori else "")
    value = "none finite" if row.value == math.inf else text.bound(row).removeprefix(f"{text.symbol(row)} ")
    axes.text(0, top, text.clean(name)[:30], va="center", bbox=svg.HALO)
    axes.text(0, below, note, va="center", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)
    axes.text(width, top, value, va="center", ha="right", weight="bold", bbox=svg.HALO)
    if row.ceiling is not None:
        ceiling = f"ceiling {text.ceiling(row)}"
        axes.text(width, below, ceiling, va="center", ha="right", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)


def draw_bounds(axes: Axes, rows: Sequence[tuple[str, Bound, float]]) -> None:
    """Bounds as bars, a row each, on the axis of what they bound; logarithmic if their sizes differ much.

    Args:
        axes: drawn into.
        rows: a name, the bound, and the most that the claim allows it to be; inf where it says nothing.
    """
    allowed = [limit for _, _, limit in rows if limit < math.inf]
    bounds = [row for _, row, _ in rows]
    values = [value for row in bounds for value in (row.value, row.ceiling) if value is not None]
    scale = _Scale.of([*values, *allowed], 0, 1)
    if scale.log:
        axes.set_xscale("log")
    axes.set_xlim(scale.low, scale.high)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    labels = []
    for y, (name, row, limit) in enumerate(rows):
        _bar(axes, lambda value: min(max(value, scale.low), scale.high), row, y, 0.28, 0.0)
        if limit < math.inf:
            _claim_line(axes, limit, y - 0.5, y + 0.5)
        labels.append(f"{text.method(name)}\n{text.bound(row)}, {text.rigor(row)}")
    axes.set_yticks(range(len(rows)), labels=labels)
    axes.grid(True, axis="x", alpha=0.35)
    axes.set_axisbelow(True)
    axes.set_xlabel(" or ".join(dict.fromkeys(_quantity(row) for row in bounds)))
    bar: dict[str, Any] = {"marker": "s", "ls": "", "ms": 8}
    upper, lower = ([row for row in bounds if row.direction is side] for side in (Direction.UPPER, Direction.LOWER))
    ceiling = any(row.ceiling is not None for row in lower)
    handles = [
        *([Line2D([], [], color=svg.INK, lw=1.8, ls=_CLAIM, label="the claim")] if allowed else []),
        *([Line2D([], [], color=svg.UPPER, mfc="none", label="at most", **bar)] if upper else []),
        *([Line2D([], [], color=svg.LOWER, label="at least", **bar)] if lower else []),
        *([Line2D([], [], color=svg.CEILING, marker="D", ls="", label="ceiling of the test")] if ceiling else []),
    ]
    if len(handles) > 1:
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False)


def _quantity(row: Bound) -> str:
    """What is bounded, with the δ or the argument at which it is."""
    if row.delta:
        return f"{text.symbol(row)} at δ = {format_number(row.delta)}"
    return text.symbol(row) + (f" at {text.argument(row)}" if row.at is not None else "")


def _bar(axes: Axes, x: Callable[[float], float], row: Bound, y: float, half: float = 8, seen: float = 3) -> None:
    """The bar from 0 to the bound, and for an audit the whisker from there to its ceiling.

    Args:
        axes: drawn into.
        x: from a value to its place.
        row: the bound.
        y: the middle of the bar.
        half: of its height.
        seen: the other end of an enclosure is drawn if it is farther off than this.
    """
    tall = half + half * 3 / 8
    value, colour = row.value, svg.UPPER if row.direction is Direction.UPPER else svg.LOWER
    left, end = x(0), x(value)
    fill = 0.22 if row.direction is Direction.UPPER else 1.0
    outline = [left, end, end, left], [y - half, y - half, y + half, y + half]
    if row.rigor.may_refute:
        axes.fill(*outline, color=colour, alpha=fill, lw=0)
    axes.plot(*outline, color=colour, lw=1.4, ls="-" if row.rigor.may_refute else (0, (1.5, 2)))
    axes.plot([end] * 2, [y - tall, y + tall], color=colour, lw=3.2)
    if value == math.inf:
        axes.plot([end], [y], ">", color=colour, ms=9)
    if row.interval is not None and x(row.interval.upper) - x(row.interval.lower) > seen:
        other = x(row.interval.lower if row.direction is Direction.UPPER else row.interval.upper)
        axes.plot([other] * 2, [y - tall, y + tall], color=colour, lw=1.4)
    if row.ceiling is not None and row.direction is Direction.LOWER and row.ceiling >= value:
        last = x(row.ceiling)
        axes.plot([end, last], [y] * 2, color=svg.CEILING, lw=1.8, ls=(0, (1.5, 2)))
        axes.plot([last], [y], "D", color=svg.CEILING, ms=8, mec=svg.PAGE, mew=1)


def _ceiling_in_words(row: Bound) -> str:
    return "" if row.ceiling is None else f", ceiling {text.ceiling(row)}"


def rates(audit: AuditResult, key: str) -> Figure | None:
    """Hit rates of an audit and of its controls, with their exact intervals, if they have one; None for fewer than two:
    one rate is a line of text."""
    groups = [(AUDITED, audit.rates, svg.LOWER, "o"), (CONTROL, audit.controls, svg.PUBLISHED, "s")]
    groups = [group for group in groups if group[1]]
    every = [(name, rate) for name, part, _, _ in groups for rate in part]
    if len(every) < 2:
        return None

    def draw(width: int) -> MatplotlibFigure:
        narrow = width == svg.NARROW
        heights = [28 + sum(_row_height(rate, narrow) for rate in part) + 40 for _, part, _, _ in groups]
        figure, axes = svg.canvas(width, sum(heights))
        y = 0.0
        for name, part, colour, marker in groups:
            axes.text(0, y + 12, text.capital(name), weight="bold", va="center")
            y = _hits(axes, part, y + 28, width, colour, marker) + 40
        return figure

    confidence = next((rate.confidence for _, rate in every if rate.confidence is not None), None)
    hits, caption = "hits", "Share of hits."
    if confidence is not None:
        level = format_confidence(confidence)
        hits = f"hits with exact intervals, confidence {level}"
        caption = f"Share of hits, each with its exact (Clopper–Pearson) interval at confidence {level}."
    return svg.both(
        key,
        draw,
        title=f"{text.method(audit.name)}: {hits}",
        description="; ".join(f"{name}, {rate.name}: {rate_in_words(rate)}" for name, rate in every),
        caption=f"{caption} Circles: the run that is audited. Squares: controls. Each block has its own scale.",
        header=("What was counted", "Run", "Hits", "Out of", "Rate", "Exact interval"),
        table=[
            (
                rate.name,
                name,
                text.plain(rate.hits),
                text.plain(rate.trials),
                format_percent(rate.rate),
                _interval_in_words(rate),
            )
            for name, rate in every
        ],
    )


def _label_lines(rate: Rate, narrow: bool) -> list[str]:
    return textwrap.wrap(text.clean(rate.name), 29 if narrow else 33, max_lines=3, placeholder=" …") or [""]


def _row_height(rate: Rate, narrow: bool) -> float:
    """Height of one rate in pixels; on a phone the bar lies below the label."""
    lines = len(_label_lines(rate, narrow))
    return 30.0 + 16 * lines if narrow else max(32.0, 16.0 * lines + 8)


def _hits(axes: Axes, part: Sequence[Rate], y: float, width: int, colour: str, marker: str) -> float:
    """One block of rates on a scale of its own; returns where it ends."""
    narrow = width == svg.NARROW
    left, right = (14, width - 24) if narrow else (262, width - 130)
    largest = max(rate.rate if rate.interval is None else rate.interval.upper for rate in part)
    top = 1.0 if largest > 0.5 else max(largest * 1.1, 1e-6)

    def x(value: float) -> float:
        return left + (right - left) * value / top

    bottom = y + sum(_row_height(rate, narrow) for rate in part)
    for tick in map(float, MaxNLocator(4).tick_values(0.0, top)):
        if tick <= top:
            axes.plot([x(tick)] * 2, [y - 4, bottom], color=svg.RULE, lw=0.6, alpha=0.5)
            label = format_percent(tick)
            axes.text(x(tick), bottom + 14, label, ha="center", va="center", size=svg.SMALL, color=svg.MUTED)
    for rate in part:
        lines = _label_lines(rate, narrow)
        middle = y + (16 * len(lines) + 14 if narrow else _row_height(rate, narrow) / 2 - 2)
        first = y + 9 if narrow else middle - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            axes.text(0, first + 16 * number, line, va="center", size=svg.SMALL, bbox=svg.HALO)
        count = f"{text.plain(rate.hits)} of {text.plain(rate.trials)}"
        at = first if narrow else middle
        axes.text(width, at, count, va="center", ha="right", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)
        if rate.interval is not None:
            low, high = rate.interval.lower, rate.interval.upper
            axes.plot([x(low), x(high)], [middle] * 2, color=colour, lw=3, solid_capstyle="butt")
            for end in (low, high):
                axes.plot([x(end)] * 2, [middle - 6, middle + 6], color=colour, lw=1.6)
        axes.plot([x(rate.rate)], [middle], marker, color=colour, ms=8, mec=svg.PAGE, mew=1.2)
        y += _row_height(rate, narrow)
    return bottom


def rate_in_words(rate: Rate) -> str:
    """``12 of 40, 30 %, interval 16.5 % to 46.6 %``, rounded outward."""
    counted = f"{text.plain(rate.hits)} of {text.plain(rate.trials)}, {format_percent(rate.rate)}"
    return counted if rate.interval is None else f"{counted}, interval {_interval_in_words(rate)}"


def _interval_in_words(rate: Rate) -> str:
    interval = rate.interval
    if interval is None:
        return "–"
    return f"{format_percent(interval.lower, 'down')} to {format_percent(interval.upper, 'up')}"


def rounds(
    bounds: Sequence[float],
    unprotected: Sequence[float],
    ceilings: Sequence[tuple[int, float]],
    claim: ClaimedValue | None,
) -> Figure | None:
    """The lower bound on ε after each round of a test, against the claim; None for fewer than two rounds.

    Args:
        bounds: after each round.
        unprotected: the same for the generator with its protection off; empty if it was not run.
        ceilings: a number of rounds and the most that so many can show.
        claim: None for none.
    """
    if len(bounds) < 2:
        return None
    series = [
        ("shown", _steps(bounds), svg.LOWER, "-", 2.6),
        ("shown, protection off", _steps(unprotected), svg.PUBLISHED, (0, (5, 2)), 2.0),
        ("ceiling", [(0, 0.0), *ceilings], svg.CEILING, (0, (1.5, 2)), 1.8),
    ]
    series = [item for item in series if len(item[1]) > 1]
    highest = max(value for _, points, _, _, _ in series for _, value in points)
    top = 1.12 * max(highest, 0.0 if claim is None else claim.value) or 1.0

    def draw(width: int) -> MatplotlibFigure:
        figure, axes = svg.plot(width, wide=320, narrow=350)
        for name, points, colour, style, line in series:
            at, values = zip(*points, strict=True)
            how = "default" if name == "ceiling" else "steps-post"
            axes.plot(at, values, color=colour, ls=style, lw=line, label=name, drawstyle=how, clip_on=False)
        if claim is not None:
            label = f"claim: ε ≤ {format_number(claim.value)}"
            axes.axhline(claim.value, color=svg.INK, lw=1.6, ls=(0, (4, 3)), label=label)
        axes.set_xlim(0, max(at for _, points, _, _, _ in series for at, _ in points))
        axes.set_ylim(0, top)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text.tick(value)))
        _label_axes(axes, "rounds, one run on D and one on D′ each", "ε", width)
        return figure

    against = "" if claim is None else f" The claim is ε at most {format_number(claim.value)}."
    without = f" With protection off it shows ε ≥ {format_lower(unprotected[-1])}." if len(unprotected) > 1 else ""
    return svg.both(
        "rounds",
        draw,
        title="What the test shows after each round",
        description=f"After {len(bounds)} rounds the test shows ε ≥ {format_lower(bounds[-1])}.{against}{without}",
        caption="The bound holds after every round at once, so the test may stop at any. It never falls. Dotted: the "
        "most that so many rounds can show." + (" Dashed line: the claim." if claim is not None else ""),
        header=("Line", "After round", "ε"),
        table=[
            (name, text.plain(at), (format_upper if name == "ceiling" else format_lower)(value))
            for name, points, _, _, _ in series
            for at, value in points
        ],
    )


def _steps(bounds: Sequence[float]) -> list[tuple[int, float]]:
    """From 0, the rounds after which a bound is another one than before, and the last round."""
    results = [(0, 0.0)]
    for round_, value in enumerate(bounds, 1):
        if value != results[-1][1] or round_ == len(bounds):
            results.append((round_, value))
    return results


def tokens(costs: Sequence[TokenCost]) -> Figure | None:
    """Mean and largest exact cost of a token by its position, against the published cost; None for fewer than two."""
    costs = sorted(costs, key=lambda cost: cost.position)
    if len(costs) < 2:
        return None
    position = np.array([cost.position for cost in costs])
    series = [
        ("published cost γ, mean", np.array([c.mean_published for c in costs]), svg.PUBLISHED, (0, (5, 2)), 2.0),
        ("exact cost ε*, largest", np.array([c.largest for c in costs]), svg.UPPER, (0, (1.5, 1.5)), 2.0),
        ("exact cost ε*, mean", np.array([c.mean for c in costs]), svg.UPPER, "-", 2.6),
    ]

    def draw(width: int) -> MatplotlibFigure:
        figure, axes = svg.plot(width, wide=320, narrow=330)
        floor = _value_axis(axes, [values for _, values, _, _, _ in series])
        for name, values, colour, style, line in series:
            axes.plot(position, np.maximum(values, floor), color=colour, ls=style, lw=line, label=name)
        _label_axes(axes, "position of the token in its document", "ε of one token", width)
        return figure

    peak = max(costs, key=lambda cost: cost.mean)
    return svg.both(
        "tokens",
        draw,
        title="Privacy cost of one token by its position in the document",
        description=f"Mean exact cost is largest at position {peak.position}: ε* = {format_number(peak.mean)}; "
        f"the published accounting gives {format_upper(peak.mean_published)} there. The largest cost of any token is "
        f"ε* = {format_upper(max(cost.largest for cost in costs))}.",
        caption="Cost ε of one token against its position: mean and largest exact cost, mean published cost.",
        header=("Position", "Tokens", "Mean ε*", "Largest ε*", "Mean published γ"),
        table=[
            (
                text.plain(cost.position),
                text.plain(cost.count),
                format_number(cost.mean),
                format_upper(cost.largest),
                format_upper(cost.mean_published),
            )
            for cost in costs
        ],
    )


def batches(costs: Sequence[BatchCost], claim: ClaimedValue | None = None) -> Figure | None:
    """Leave-one-out loss, exact and published cost of every batch, the costliest first; None for fewer than two."""
    costs = sorted(costs, key=lambda cost: (-cost.epsilon, cost.slot))
    if len(costs) < 2:
        return None
    together = -(-len(costs) // _MARKS)  # batches that share a mark
    rank = np.arange(1, len(costs) + 1, together)
    series = [
        (name, np.maximum.reduceat(np.array(values), rank - 1), colour, marker)
        for name, values, colour, marker in (
            ("published cost γ", [c.epsilon_published for c in costs], svg.PUBLISHED, "^"),
            ("exact cost ε*", [c.epsilon for c in costs], svg.UPPER, "o"),
            ("largest leave-one-out loss", [c.leave_one_out for c in costs], svg.LOWER, "D"),
        )
    ]
    costliest_counts = claim is not None and claim.kind == "ex_post" and claim.adjacency == "add_remove"
    line = claim.value if claim is not None and costliest_counts and claim.value > 0 else None

    def draw(width: int) -> MatplotlibFigure:
        figure, axes = svg.plot(width, wide=330, narrow=350)
        floor = _value_axis(axes, [values for _, values, _, _ in series], line)
        if len(costs) <= _STEMS:
            low = np.maximum(np.min([values for _, values, _, _ in series], axis=0), floor)
            high = np.maximum(np.max([values for _, values, _, _ in series], axis=0), floor)
            axes.vlines(rank, low, high, color=svg.RULE, lw=0.8, alpha=0.6)
        size = float(np.clip((width - 70) / len(rank) * 0.8, 4 if len(costs) <= _STEMS else 2.5, 7))
        for name, values, colour, marker in series:
            axes.plot(rank, np.maximum(values, floor), marker, color=colour, ms=size, mec=svg.PAGE, mew=0.4, label=name)
        if line is not None:
            axes.axhline(line, color=svg.INK, lw=1.6, ls=(0, (4, 3)))
            axes.text(
                rank[-1], line, f"claim {format_number(line)}", ha="right", va="bottom", size=svg.SMALL, weight="bold"
            )
        axes.set_xlim(0.2, len(costs) + 0.8)
        _label_axes(axes, "batches, the costliest first", "ε of one batch", width)
        return figure

    above = sum(cost.leave_one_out > cost.epsilon for cost in costs)
    order = (
        "In every batch the leave-one-out loss is at most the exact cost."
        if not above
        else f"In {above} batch{'es' if above > 1 else ''} the leave-one-out loss is above the exact cost: an error."
    )
    epsilons = np.array([cost.epsilon for cost in costs])
    return svg.both(
        "batches",
        draw,
        title="Privacy cost of every batch",
        description=f"{len(costs)} batches. Exact cost ε*: largest {format_upper(float(epsilons.max()))}, "
        f"median {format_number(float(np.median(epsilons)))}. {order}",
        caption=f"{_marks(together)} {order} Under add or remove the run costs as much as its costliest batch."
        + (" The claim is about ε*; the published cost is no bound." if line is not None else "")
        + (
            f" The table has the {_LISTED} costliest; all are in the JSON of this page." if len(costs) > _LISTED else ""
        ),
        header=("Batch", "Label", "Contexts", "Documents", "Tokens", "Leave-one-out", "Exact ε*", "Published γ"),
        table=[
            (
                text.plain(cost.slot),
                cost.label or "–",
                text.plain(cost.size),
                text.plain(cost.documents),
                text.plain(cost.tokens),
                format_lower(cost.leave_one_out),
                format_upper(cost.epsilon),
                format_upper(cost.epsilon_published),
            )
            for cost in costs[:_LISTED]
        ],
    )


def _marks(together: int) -> str:
    """What one column of marks is."""
    return (
        "One column a batch." if together == 1 else f"One column for {together} batches, the largest of which counts."
    )


def _value_axis(axes: Axes, series: Sequence[np.ndarray], line: float | None = None) -> float:
    """Sets the vertical axis for the values, linear or logarithmic; returns the value that zeros are drawn at."""
    values = np.concatenate([np.asarray(part, dtype=np.float64) for part in series])
    positive = values[np.isfinite(values) & (values > 0)]
    if line is not None:
        positive = np.append(positive, line)
    words = FuncFormatter(lambda value, _: text.tick(value))
    if not positive.size or positive.max() / positive.min() < LOG_FROM:
        axes.set_ylim(0, float(positive.max()) * 1.12 if positive.size else 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(words)
        return 0.0
    high = float(positive.max()) * 1.8
    low = max(float(positive.min()) / 1.8, high / 1e7)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(decades(low, high)))
    axes.yaxis.set_major_formatter(words)
    axes.yaxis.set_minor_locator(NullLocator())
    return low


def _label_axes(axes: Axes, x: str, y: str, width: int) -> None:
    """What the axes show, whole numbers on the horizontal one, and the legend above."""
    narrow = width == svg.NARROW
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8, integer=True))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=1 if narrow else 4, handlelength=2.2, borderaxespad=0.2
    )


def decades(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of ten in [low, high], at most `most`; with 2 and 5 between them where there are few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        ticks = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [tick for tick in ticks if low <= tick <= high]
    step = math.ceil((last - first + 1) / most)
    return [10.0**k for k in range(first, last + 1, step)]


def one_batch(costs: Sequence[BatchCost]) -> str:
    """What a chart of a single batch would show, in a sentence; empty for several or none."""
    if len(costs) != 1:
        return ""
    (cost,) = costs
    return (
        f"All of it in one batch of {text.plain(cost.size)} contexts: exact cost ε* = {format_upper(cost.epsilon)}, "
        f"published cost γ = {format_upper(cost.epsilon_published)}, largest leave-one-out loss "
        f"{format_lower(cost.leave_one_out)}."
    )


def one_token(costs: Sequence[TokenCost]) -> str:
    """What a chart of a single position would show, in a sentence; empty for several or none."""
    if len(costs) != 1:
        return ""
    (cost,) = costs
    return (
        f"Every document has one token: mean exact cost ε* = {format_number(cost.mean)}, largest "
        f"{format_upper(cost.largest)}, mean published cost γ = {format_upper(cost.mean_published)}."
    )
