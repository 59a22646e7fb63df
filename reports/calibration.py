"""The picture of a calibration: what attacks can do at most, against the parameter that was found."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dpassay.accounting.comparison.risk_curves import RiskCurve, RiskCurves
from dpassay.base.number_format import format_number, format_percent, format_upper
from dpassay.reports import svg, text
from dpassay.reports.figures import LOG_FROM, decades

_LOOKS = ((svg.UPPER, "-"), (svg.LOWER, (0, (5, 2))), (svg.CEILING, (0, (5, 1.5, 1.5, 1.5))), (svg.PUBLISHED, "-"))
"""Colour and dash of a curve; no two share either, so that the figure reads without colours too."""
_TARGET, _GUESS = (0, (4, 3)), (0, (1, 2))
_NAMES = {"sigma": "standard deviation of the noise", "count": "number of releases", "steps": "number of steps"}
_NAMES |= {"rounds": "number of rounds", "epochs": "number of epochs"}
_LINE, _ROW, _PANEL, _BELOW, _LEFT = 17.0, 21.0, 290.0, 52.0, 76.0


@dataclass(frozen=True, slots=True)
class CalibrationFigure:
    """What a calibration found, as it is drawn.

    Attributes:
        curves: upper bounds along the parameter.
        value: of the parameter, which was found.
        decreasing: whether a larger value means less privacy loss.
        title: the heading.
    """

    curves: RiskCurves
    value: float
    decreasing: bool
    title: str

    def draw(self, kind: str) -> str | bytes:
        """The content of a file, ``svg``, ``pdf`` or ``png``."""
        if kind == "svg":
            return svg.drawn(self._draw, "calibration", title=self.title, description=" ".join(self._sentences()))
        return svg.image(self._draw, kind)

    @property
    def _name(self) -> str:
        return _NAMES.get(self.curves.parameter, self.curves.parameter.replace("_", " "))

    def _heading(self) -> str:
        return f"At a {self._name} of {format_number(self.value)} (vertical line):"

    def _sentences(self) -> list[str]:
        """The values at the vertical line."""
        return [self._heading(), *(f"{self._label(curve)}." for curve in self.curves.curves)]

    def _label(self, curve: RiskCurve) -> str:
        """A curve, with its value at the vertical line."""
        value = curve.values[self.curves.arguments.index(self.value)]
        if curve.name == "epsilon":
            return f"ε at δ = {format_number(curve.at)}: at most {format_upper(value)}"
        what = {
            "advantage": "advantage over guessing",
            "true_positive_rate": f"true positive rate at {format_percent(curve.at or 0.0)} false positives",
            "r": "probability of guessing the secret",
        }[curve.name]
        return f"{what}: at most {format_percent(value, 'up')}"

    def _draw(self) -> MatplotlibFigure:
        """The heading, the legend, the panel of probabilities, and that of ε if it was asked for."""
        heading = textwrap.wrap(text.clean(self.title), 96) or [""]
        handles = self._handles()
        top = 14 + _LINE * len(heading) + _ROW * (len(handles) + 1) + 14
        width, height = svg.WIDE, top + _PANEL + _BELOW
        drawing = MatplotlibFigure(figsize=(width / 72, height / 72), dpi=72)
        for number, line in enumerate(heading):
            drawing.text(8 / width, 1 - (14 + _LINE * number) / height, line, weight="bold", va="center")
        drawing.legend(
            handles=handles,
            title=self._heading(),
            alignment="left",
            loc="upper left",
            bbox_to_anchor=(0, 1 - (12 + _LINE * len(heading)) / height),
            handlelength=3,
            borderaxespad=0.2,
        )
        chances = [curve for curve in self.curves.curves if curve.name != "epsilon"]
        losses = [curve for curve in self.curves.curves if curve.name == "epsilon"]
        share = (width - 20) / (2 if losses else 1)
        for column, panel in enumerate([chances, losses] if losses else [chances]):
            left = 8 + column * share + _LEFT
            box = (left / width, _BELOW / height, (share - _LEFT - 12) / width, _PANEL / height)
            self._panel(drawing.add_axes(box), panel, bool(losses))
        return drawing

    def _handles(self) -> list[Line2D]:
        handles = [
            Line2D([], [], label=self._label(curve), color=colour, ls=dash, lw=2, marker="o", ms=6)
            for curve, (colour, dash) in zip(self.curves.curves, self._looks(), strict=True)
        ]
        if any(curve.target is not None for curve in self.curves.curves):
            handles.append(Line2D([], [], label="the target", color=svg.INK, ls=_TARGET, lw=1.4))
        if any(_guess(curve) for curve in self.curves.curves):
            handles.append(Line2D([], [], label="what a blind guess reaches", color=svg.MUTED, ls=_GUESS, lw=1.4))
        return handles

    def _looks(self) -> list[tuple[str, object]]:
        return [_LOOKS[index % len(_LOOKS)] for index in range(len(self.curves.curves))]

    def _panel(self, axes: Axes, panel: Sequence[RiskCurve], small: bool) -> None:
        axes.grid(True, axis="y")
        axes.set_axisbelow(True)
        x = np.array(self.curves.arguments)
        axes.axvline(self.value, color=svg.INK, lw=1)
        for curve, (colour, dash) in zip(self.curves.curves, self._looks(), strict=True):
            if curve not in panel:
                continue
            y = np.where(np.isfinite(curve.values), curve.values, np.nan)
            axes.plot(x, y, color=colour, ls=dash, lw=2, marker="o", ms=2.5)
            axes.plot([self.value], [y[self.curves.arguments.index(self.value)]], "o", color=colour, ms=6, zorder=4)
            if curve.target is not None:
                axes.axhline(curve.target, color=svg.INK, ls=_TARGET, lw=1.4)
            if (guess := _guess(curve)) is not None:
                axes.axhline(guess, color=colour, ls=_GUESS, lw=1.4, alpha=0.7)
        self._argument_axis(axes, small)
        _value_axis(axes, panel)

    def _argument_axis(self, axes: Axes, small: bool) -> None:
        low, high = self.curves.arguments[0], self.curves.arguments[-1]
        if low > 0 and high > low:
            axes.set_xscale("log")
            axes.set_xlim(low, high)
        axes.xaxis.set_major_locator(FixedLocator(_ticks(low, high, 4 if small else 8)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.tick(value)))
        axes.set_xlabel(f"{self._name} (the {'larger' if self.decreasing else 'smaller'}, the safer)")


def _guess(curve: RiskCurve) -> float | None:
    """What a blind guess reaches: the false positive rate itself, or p."""
    return curve.at if curve.name in ("true_positive_rate", "r") else None


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers in [low, high] for a logarithmic axis."""
    ticks = decades(low, high, most)
    if len(ticks) >= 3:
        return ticks
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 3:
            break
    return ticks


def _value_axis(axes: Axes, panel: Sequence[RiskCurve]) -> None:
    """Probabilities on a logarithmic axis in percent; an ε on a linear one, or a logarithmic one if it varies much."""
    values = np.array([value for curve in panel for value in (*curve.values, curve.target or math.nan)])
    values = values[np.isfinite(values) & (values > 0)]
    epsilon = panel[0].name == "epsilon"
    axes.set_ylabel("ε, at most" if epsilon else "probability, at most")
    if not values.size:
        axes.set_ylim(0, 1)
        return
    low, high = float(values.min()), float(values.max())
    if epsilon and high / low < LOG_FROM:
        axes.set_ylim(0, high * 1.1)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    else:
        guesses = [guess for curve in panel if (guess := _guess(curve))]
        low = min([low, *guesses]) / 1.5
        high = high * 1.5 if epsilon else min(1.0, high * 1.5)
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator(_ticks(low, high, 6)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: text.tick(value) if epsilon else format_percent(float(value)))
    )
