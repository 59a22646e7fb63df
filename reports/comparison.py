"""The picture of a comparison: every accountant along steps, ε and α, certified enclosures as bands."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dpassay.accounting.bounds import Rigor
from dpassay.accounting.comparison.comparison import Comparison
from dpassay.accounting.comparison.curves import Curve, Panel
from dpassay.base.number_format import format_upper
from dpassay.reports import svg, text
from dpassay.reports.figures import LOG_FROM, decades
from dpassay.reports.svg import Figure

_SOLID, _DASHED, _DOTTED, _BOTH = "-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5))

_LOOKS: dict[str, tuple[str, Any, str]] = {
    "lattice": (svg.INK, _SOLID, "o"),
    "exact": (svg.INK, _SOLID, "d"),
    "secret_protection": (svg.INK, _SOLID, "H"),
    "rdp": (svg.UPPER, _SOLID, "s"),
    "gdp": (svg.UPPER, _DOTTED, "v"),
    "pld": (svg.LOWER, _DASHED, "D"),
    "prv": (svg.CEILING, _BOTH, "P"),
    "zcdp": (svg.PUBLISHED, _SOLID, "^"),
    "adaptive": (svg.LOWER, _SOLID, "*"),
    "advanced": (svg.CEILING, _SOLID, "X"),
    "basic": (svg.MUTED, _DASHED, "<"),
}
"""Colour, dash and marker of a method: no two share all, so that the figure reads without colours too."""
_ESTIMATES = 16
"""Points of an estimate that are drawn in a panel, about, as open markers that nothing joins."""
_OTHERS = [
    (colour, dash, marker)
    for dash, marker in ((_DASHED, "h"), (_DOTTED, "d"), (_BOTH, "p"))
    for colour in (svg.PUBLISHED, svg.LOWER, svg.CEILING, svg.UPPER)
]

_AXIS = {
    "steps": "number of steps",
    "epsilon": "ε",
    "delta": "δ",
    "alpha": "type I error α",
    "beta": "power 1 − β",
    "p": "p, before the release",
    "r": "r, after the release",
    "rounds": "number of rounds",
    "layers": "number of layers",
    "noise_multiplier": "noise multiplier",
}
_NAMES = {
    ("steps", "epsilon"): "ε against the number of steps",
    ("epsilon", "delta"): "Privacy profile δ(ε)",
    ("alpha", "beta"): "Trade-off: the power 1 − β(α)",
    ("p", "r"): "r against p",
    ("rounds", "r"): "r against the number of rounds",
    ("layers", "epsilon"): "ε against the number of layers",
    ("layers", "noise_multiplier"): "Noise multiplier of each layer against the number of layers",
}
_LOG_X, _LOG_Y = {"steps", "alpha", "p", "rounds"}, {"delta", "beta", "r"}
_FLOORS = {"delta": 1e-12, "r": 1e-12}

_HEIGHT, _GAP, _LINE = 300.0, 18.0, 17.0


def figure(comparison: Comparison, panels: Sequence[Panel], about: str, key: str = "comparison") -> Figure:
    """All curves of a comparison in one figure.

    Args:
        comparison: what is compared, for the table behind the figure.
        panels: its curves.
        about: the mechanism in words.
        key: identifier within a page.
    """
    methods = list(dict.fromkeys(curve.method for panel in panels for curve in panel.curves))
    looks = looks_of(methods)
    estimates = _estimates(panels)
    notes = [*dict.fromkeys(note for panel in panels for note in (*panel.notes, *_infinite(panel)))]

    def draw(width: int) -> MatplotlibFigure:
        return _draw(width, panels, looks, estimates, about)

    rows = [(row.bound.method, format_upper(row.bound.value), text.RIGOR[row.bound.rigor]) for row in comparison.rows]
    sign = text.SYMBOLS.get(comparison.quantity, comparison.quantity.replace("_", " "))
    return svg.both(
        key,
        draw,
        title=f"Comparison of accountants: {about}",
        description=" ".join(f"{text.method(name)}: {sign} ≤ {value} ({rigor})." for name, value, rigor in rows),
        caption="Each line is what one accountant proves: an upper bound on ε, δ, r, or the power 1 − β of any test. "
        + ("Open markers are estimates, which prove nothing; between them nothing was computed. " if estimates else "")
        + "A band lies between the two ends of a certified enclosure of the exact value; where it is thinner than "
        "the line it is not seen. Nothing is drawn below the ends of a logarithmic axis. "
        + " ".join(f"{note}." for note in notes),
        header=("Accountant", f"{sign} at most", "Rigor"),
        table=[(text.method(name), value, rigor) for name, value, rigor in rows],
    )


def standalone(figure: Figure) -> str:
    """The wide drawing as an SVG file of its own."""
    return svg.standalone(figure.wide)


def image(panels: Sequence[Panel], title: str, kind: str) -> bytes:
    """The wide drawing as a file of its own, in the same colours.

    Args:
        panels: the curves.
        title: the heading.
        kind: ``pdf`` or ``png``.
    """
    methods = list(dict.fromkeys(curve.method for panel in panels for curve in panel.curves))
    return svg.image(lambda: _draw(svg.WIDE, panels, looks_of(methods), _estimates(panels), title), kind)


def _estimates(panels: Sequence[Panel]) -> Set[str]:
    return {curve.method for panel in panels for curve in panel.curves if curve.rigor is Rigor.ESTIMATE}


def _infinite(panel: Panel) -> list[str]:
    """What no line can show."""
    counts = {curve.method: sum(map(math.isinf, curve.values)) for curve in panel.curves}
    sign = text.SYMBOLS.get(panel.quantity, panel.quantity.replace("_", " "))
    return [f"{name} has no finite {sign} at {count} points" for name, count in counts.items() if count]


def looks_of(methods: Sequence[str]) -> Mapping[str, tuple[str, Any, str]]:
    """Colour, dash and marker of each method."""
    spare = iter(_OTHERS)
    return {name: _LOOKS.get(name) or next(spare, _OTHERS[-1]) for name in methods}


def _draw(
    width: int,
    panels: Sequence[Panel],
    looks: Mapping[str, tuple[str, Any, str]],
    estimates: Set[str],
    about: str,
) -> MatplotlibFigure:
    """A title, one legend, the panels (one of an odd number on a line of its own)."""
    narrow = width == svg.NARROW
    letters = 38 if narrow else 96
    heading = textwrap.wrap(text.clean(about), letters) or [""]
    columns = 1 if narrow else 3
    legend_rows = math.ceil(len(looks) / columns)
    lines = _lines_of(panels, narrow)
    top = 12 + _LINE * len(heading) + 22 * legend_rows + 12
    height = top + len(lines) * (_HEIGHT + _GAP) + 10
    drawing = MatplotlibFigure(figsize=(width / 72, height / 72), dpi=72)
    for number, line in enumerate(heading):
        drawing.text(4 / width, 1 - (14 + _LINE * number) / height, line, weight="bold", va="center")
    _legend(drawing, looks, estimates, columns, 1 - (12 + _LINE * len(heading)) / height)
    y = top
    for line_of_panels in lines:
        share = width / len(line_of_panels)
        for column, panel in enumerate(line_of_panels):
            box = (column * share + 66, height - y - _HEIGHT + 46, share - 80, _HEIGHT - 46 - 26)
            axes = drawing.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
            draw_panel(axes, panel, looks, small=share < 400)
            axes.set_title(_NAMES.get((panel.argument, panel.quantity), ""), loc="left", size=svg.TEXT)
        y += _HEIGHT + _GAP
    return drawing


def _lines_of(panels: Sequence[Panel], narrow: bool) -> list[Sequence[Panel]]:
    if narrow:
        return [[panel] for panel in panels]
    first = len(panels) % 2
    return [panels[:first]] * first + [panels[i : i + 2] for i in range(first, len(panels), 2)]


def _style(look: tuple[str, Any, str], estimate: bool) -> dict[str, Any]:
    """How a method is drawn: a line with filled markers if it is certified, open markers and no line if not."""
    colour, dash, marker = look
    if estimate:
        return {"color": colour, "ls": "", "marker": marker, "ms": 6, "mfc": "none", "mec": colour, "mew": 1.4}
    return {"color": colour, "ls": dash, "lw": 2, "marker": marker, "ms": 6, "mec": svg.PAGE, "mew": 0.6}


def _legend(
    drawing: MatplotlibFigure,
    looks: Mapping[str, tuple[str, Any, str]],
    estimates: Set[str],
    columns: int,
    top: float,
) -> None:
    drawing.legend(
        handles=_handles(looks, estimates),
        loc="upper left",
        bbox_to_anchor=(0, top),
        ncols=columns,
        handlelength=3,
        borderaxespad=0.2,
    )


def _handles(looks: Mapping[str, tuple[str, Any, str]], estimates: Set[str]) -> list[Line2D]:
    return [
        Line2D([], [], label=text.method(name) + " (estimate)" * (name in estimates), **_style(look, name in estimates))
        for name, look in looks.items()
    ]


def draw_legend(axes: Axes, panel: Panel, looks: Mapping[str, tuple[str, Any, str]]) -> None:
    """The methods of one panel, within its axes; none for a single one, which needs no legend."""
    if len(looks) > 1:
        axes.legend(handles=_handles(looks, _estimates([panel])), handlelength=3)


def draw_errors(axes: Axes, panel: Panel, looks: Mapping[str, tuple[str, Any, str]]) -> None:
    """Type II against type I error on linear axes, with the line of guessing; the panel is of β against α."""
    axes.plot([0, 1], [1, 0], color=svg.MUTED, lw=1, ls=_DOTTED)
    for curve in panel.curves:
        _curve(axes, curve, looks[curve.method], 0.0, False)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel(_AXIS["alpha"])
    axes.set_ylabel("type II error β")


def draw_panel(axes: Axes, panel: Panel, looks: Mapping[str, tuple[str, Any, str]], *, small: bool = False) -> None:
    """One panel: its curves, bands, scales and names of axes; the trade-off is drawn as the power 1 − β.

    Args:
        axes: drawn into.
        panel: its curves.
        looks: by `looks_of`, of the panel's methods or of more.
        small: whether there is room for few ticks alone.
    """
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    if panel.quantity == "beta":  # near 1 where α is small, so that its complement is shown
        panel = replace(panel, curves=tuple(_power(curve) for curve in panel.curves))
        ends = [edge for curve in panel.curves for edge in (curve.arguments[0], curve.arguments[-1])]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=svg.MUTED, lw=1, ls=_DOTTED)  # of guessing
    floor = _FLOORS.get(panel.quantity, 0.0)
    for curve in panel.curves:
        _curve(axes, curve, looks[curve.method], floor, len(curve.arguments) <= 24)
    _axis(axes, "x", panel.argument in _LOG_X, 4 if small else 8)
    _value_axis(axes, panel, floor)
    axes.set_xlabel(_AXIS[panel.argument])
    axes.set_ylabel(_AXIS[panel.quantity])


def _power(curve: Curve) -> Curve:
    """The largest power of a test at each type I error."""
    powers = (tuple(1 - value for value in values) for values in (curve.values, curve.others))
    return Curve(curve.method, curve.rigor, curve.arguments, *powers)


def _curve(axes: Axes, curve: Curve, look: tuple[str, Any, str], floor: float, marked: bool) -> None:
    estimate = curve.rigor is Rigor.ESTIMATE
    x, y = np.array(curve.arguments), np.array(curve.values)
    y = np.where(np.isfinite(y) & (y > floor), y, np.nan) if floor else np.where(np.isfinite(y), y, np.nan)
    every = 1 if marked else max(1, len(x) // (_ESTIMATES if estimate else 6))
    start = sum(map(ord, curve.method)) % every  # markers of different curves at different places
    axes.plot(x, y, markevery=(start, every), **_style(look, estimate))
    if curve.others and not estimate:
        others = np.maximum(np.array(curve.others), floor)
        axes.fill_between(x, y, others, color=look[0], alpha=0.25, lw=0)


def _value_axis(axes: Axes, panel: Panel, floor: float) -> None:
    values = np.array([value for curve in panel.curves for value in curve.values])
    positive = values[np.isfinite(values) & (values > floor)]
    if not positive.size:
        axes.set_ylim(0, 1)
        return
    low, high = float(positive.min()), float(positive.max())
    if panel.quantity in _LOG_Y or (floor == 0 and high / low > LOG_FROM):
        axes.set_yscale("log")
        axes.set_ylim(max(low / 1.8, floor), high * 1.8)
        _axis(axes, "y", True, 6)
    else:
        axes.set_ylim(0, high * 1.12)
        _axis(axes, "y", False, 5)


def _axis(axes: Axes, which: str, log: bool, most: int) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        ticks = decades(low, high, most)
        if len(ticks) < 3:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            ticks = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text.tick(value)))
