"""The figures of audits and of costs: hits with exact intervals, cost by token and by batch."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from cupel.accounting.number_format import format_confidence, format_lower, format_number, format_percent, format_upper
from cupel.audits.result import AuditResult, Rate
from cupel.reports import svg, text
from cupel.reports.assay import BatchCost, TokenCost
from cupel.reports.claim import Claimed
from cupel.reports.svg import Figure

_LOG_FROM = 12.0
"""A ratio of largest to smallest value from which a logarithmic axis is used."""
AUDITED, CONTROL = "audited run", "control"
"""What a count is of, in every table and figure that shows both."""
_STEMS = 120
"""The largest number of batches that are drawn one by one."""


def rates(audit: AuditResult, key: str) -> Figure | None:
    """Hit rates of an audit and of its controls, each with its exact interval; None for fewer than two: one rate is
    a line of text."""
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

    confidence = format_confidence(every[0][1].confidence)
    return svg.both(
        key,
        draw,
        title=f"{text.method(audit.name)}: hits with exact intervals, confidence {confidence}",
        description="; ".join(f"{name}, {rate.name}: {rate_in_words(rate)}" for name, rate in every),
        caption=f"Share of hits, each with its exact (Clopper–Pearson) interval at confidence {confidence}. "
        "Circles: the run that is audited. Squares: controls. Each block has its own scale.",
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
    largest = max(rate.interval.upper for rate in part)
    top = 1.0 if largest > 0.5 else max(largest * 1.1, 1e-6)

    def x(value: float) -> float:
        return left + (right - left) * value / top

    bottom = y + sum(_row_height(rate, narrow) for rate in part)
    _axis(axes, [(x(t), format_percent(t)) for t in _ticks(top) if t <= top], bottom, y - 4)
    for rate in part:
        lines = _label_lines(rate, narrow)
        middle = y + (16 * len(lines) + 14 if narrow else _row_height(rate, narrow) / 2 - 2)
        first = y + 9 if narrow else middle - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            axes.text(0, first + 16 * number, line, va="center", size=svg.SMALL, bbox=svg.HALO)
        count = f"{text.plain(rate.hits)} of {text.plain(rate.trials)}"
        at = first if narrow else middle
        axes.text(width, at, count, va="center", ha="right", size=svg.SMALL, color=svg.MUTED, bbox=svg.HALO)
        low, high = rate.interval.lower, rate.interval.upper
        axes.plot([x(low), x(high)], [middle] * 2, color=colour, lw=3, solid_capstyle="butt")
        for end in (low, high):
            axes.plot([x(end)] * 2, [middle - 6, middle + 6], color=colour, lw=1.6)
        axes.plot([x(rate.rate)], [middle], marker, color=colour, ms=8, mec=svg.PAGE, mew=1.2)
        y += _row_height(rate, narrow)
    return bottom


def rate_in_words(rate: Rate) -> str:
    """``12 of 40, 30 %, interval 16.5 % to 46.6 %``, rounded outward."""
    counted = f"{text.plain(rate.hits)} of {text.plain(rate.trials)}"
    return f"{counted}, {format_percent(rate.rate)}, interval {_interval_in_words(rate)}"


def _interval_in_words(rate: Rate) -> str:
    interval = rate.interval
    return f"{format_percent(interval.lower, 'down')} to {format_percent(interval.upper, 'up')}"


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
        narrow = width == svg.NARROW
        figure, axes = svg.plot(width, 330 if narrow else 320, left=62, top=86 if narrow else 44, bottom=52)
        floor = _value_axis(axes, [values for _, values, _, _, _ in series])
        for name, values, colour, style, line in series:
            axes.plot(position, np.maximum(values, floor), color=colour, ls=style, lw=line, label=name)
        axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8, integer=True))
        axes.set_xlabel("position of the token in its document")
        _legend(axes, "ε of one token", narrow)
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


def batches(costs: Sequence[BatchCost], claim: Claimed | None = None) -> Figure | None:
    """Leave-one-out loss, exact and published cost of every batch, the costliest first; None for fewer than two."""
    costs = sorted(costs, key=lambda cost: (-cost.epsilon, cost.slot))
    if len(costs) < 2:
        return None
    rank = np.arange(1, len(costs) + 1)
    series = [
        ("published cost γ", np.array([c.epsilon_published for c in costs]), svg.PUBLISHED, "^"),
        ("exact cost ε*", np.array([c.epsilon for c in costs]), svg.UPPER, "o"),
        ("largest leave-one-out loss", np.array([c.leave_one_out for c in costs]), svg.LOWER, "D"),
    ]
    costliest_counts = claim is not None and claim.kind == "ex_post" and claim.adjacency == "add_remove"
    line = claim.value if claim is not None and costliest_counts and claim.value > 0 else None

    def draw(width: int) -> MatplotlibFigure:
        narrow = width == svg.NARROW
        figure, axes = svg.plot(width, 350 if narrow else 330, left=62, top=86 if narrow else 44, bottom=52)
        floor = _value_axis(axes, [values for _, values, _, _ in series], line)
        if len(costs) <= _STEMS:
            low = np.maximum(np.min([values for _, values, _, _ in series], axis=0), floor)
            high = np.maximum(np.max([values for _, values, _, _ in series], axis=0), floor)
            axes.vlines(rank, low, high, color=svg.RULE, lw=0.8, alpha=0.6)
        size = float(np.clip((width - 70) / len(costs) * 0.8, 4 if len(costs) <= _STEMS else 2.5, 7))
        for name, values, colour, marker in series:
            axes.plot(rank, np.maximum(values, floor), marker, color=colour, ms=size, mec=svg.PAGE, mew=0.4, label=name)
        if line is not None:
            axes.axhline(line, color=svg.INK, lw=1.6, ls=(0, (4, 3)))
            axes.text(
                rank[-1], line, f"claim {format_number(line)}", ha="right", va="bottom", size=svg.SMALL, weight="bold"
            )
        axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8, integer=True))
        axes.set_xlim(0.2, len(costs) + 0.8)
        axes.set_xlabel("batches, the costliest first")
        _legend(axes, "ε of one batch", narrow)
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
        caption=f"One column a batch. {order} Under add or remove the run costs as much as its costliest batch."
        + (" The claim is about ε*; the published cost is no bound." if line is not None else ""),
        header=("Batch", "Label", "Records", "Documents", "Tokens", "Leave-one-out", "Exact ε*", "Published γ"),
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
            for cost in costs
        ],
    )


def _value_axis(axes: Axes, series: Sequence[np.ndarray], line: float | None = None) -> float:
    """Sets the vertical axis for the values, linear or logarithmic; returns the value that zeros are drawn at."""
    values = np.concatenate([np.asarray(part, dtype=np.float64) for part in series])
    positive = values[np.isfinite(values) & (values > 0)]
    if line is not None:
        positive = np.append(positive, line)
    words = FuncFormatter(lambda value, _: text.tick(value))
    if not positive.size or positive.max() / positive.min() < _LOG_FROM:
        axes.set_ylim(0, float(positive.max()) * 1.12 if positive.size else 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(words)
        return 0.0
    high = float(positive.max()) * 1.8
    low = max(float(positive.min()) / 1.8, high / 1e7)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(_decades(low, high)))
    axes.yaxis.set_major_formatter(words)
    axes.yaxis.set_minor_locator(NullLocator())
    return low


def _legend(axes: Axes, unit: str, narrow: bool) -> None:
    """The legend above the axes, at the left of it what the vertical axis shows."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=1 if narrow else 3, handlelength=2.2, borderaxespad=0.2
    )
    axes.set_ylabel(unit)


def _decades(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of ten in [low, high], at most `most`; with 2 and 5 between them where there are few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        ticks = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [tick for tick in ticks if low <= tick <= high]
    step = math.ceil((last - first + 1) / most)
    return [10.0**k for k in range(first, last + 1, step)]


def _ticks(top: float) -> list[float]:
    """Round numbers from 0 to `top`."""
    return [float(tick) for tick in MaxNLocator(4).tick_values(0.0, top)]


def _axis(axes: Axes, ticks: Sequence[tuple[float, str]], bottom: float, top: float) -> None:
    """Vertical grid lines on a canvas, with their labels below."""
    for x, label in ticks:
        axes.plot([x, x], [top, bottom], color=svg.RULE, lw=0.6, alpha=0.5)
        axes.text(x, bottom + 14, label, ha="center", va="center", size=svg.SMALL, color=svg.MUTED)


def one_batch(costs: Sequence[BatchCost]) -> str:
    """What a chart of a single batch would show, in a sentence; empty for several or none."""
    if len(costs) != 1:
        return ""
    (cost,) = costs
    return (
        f"All of it in one batch of {text.plain(cost.size)} records: exact cost ε* = {format_upper(cost.epsilon)}, "
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
