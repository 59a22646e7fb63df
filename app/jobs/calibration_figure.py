"""The figure of a calibration: what attacks can do at most, against the parameter that was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.calibration.calibration import Calibration
from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.calibration.targets import Target, TradeOff
from dpassay.accounting.comparison.risk_curves import RiskCurve, RiskCurves, risk_curves
from dpassay.accounting.comparison.risks import FALSE_POSITIVE_RATES
from dpassay.accounting.guarantees import ApproxDP, SecretProtection
from dpassay.base.errors import InputError
from dpassay.jobs.calibrate import Goal, varied
from dpassay.jobs.drawings import write_drawing
from dpassay.jobs.mechanisms import Mechanism
from dpassay.reports import text

_POINTS = 13
_AROUND = 4.0
"""The figure goes from the value over this to the value times this."""


def draw_calibration(
    mechanism: type[Mechanism],
    goal: Goal,
    find: str,
    given: Mapping[str, float | int | str | None],
    result: Calibration,
    output: Path,
    title: str = "",
) -> RiskCurves:
    """Draws the figure of a calibration into a file.

    Args:
        mechanism, goal, find, given: as for `dpassay.jobs.calibrate.calibrate_mechanism`.
        result: its answer.
        output: path of the figure.
        title: of the figure; empty for the mechanism in words.

    Returns:
        What is drawn.

    Raises:
        InputError: if the value that was found is 0, so that nothing is left to draw, or there is no certified bound.
    """
    from dpassay.reports.calibration import CalibrationFigure

    if not result.value:
        raise InputError("the target is met without noise, so there is no figure of noise; leave -o out")
    others, search, event = varied(mechanism, goal, find, given)
    found = int(result.value) if search.integer else result.value
    try:
        curves = risk_curves(
            event,
            _curves(goal, goal.target()),
            search.parameter,
            _arguments(result.value, search),
            result.value,
            adjacency=goal.adjacency,
            unit=goal.protected,
        )
    except Unsupported as reason:
        raise InputError(f"no figure: {reason}; leave -o out") from None
    about = replace(others, **{search.parameter: found}).in_words(goal.adjacency)
    heading = title or f"{text.capital(about)}; {text.neighbours(goal.adjacency, goal.protected)}"
    write_drawing(output, CalibrationFigure(curves, result.value, search.decreasing, heading).draw)
    return curves


def _curves(goal: Goal, target: Target) -> list[RiskCurve]:
    """What is drawn, with the target where it is one of it."""
    if goal.protected.is_secret and isinstance(target, SecretProtection):
        return [RiskCurve("r", target.p, target.r)]
    limits: dict[float, float] = {}
    advantage: float | None = None
    epsilon: float | None = None
    match target:
        case TradeOff(alpha=alpha, beta=beta):
            limits[alpha] = 1 - beta if goal.tpr is None else goal.tpr
        case ApproxDP(epsilon=0.0, delta=most):
            advantage = most
        case ApproxDP(epsilon=most):
            epsilon = most
    rates = sorted({*FALSE_POSITIVE_RATES, *limits}, reverse=True)
    curves = [RiskCurve("advantage", None, advantage)]
    curves += [RiskCurve("true_positive_rate", rate, limits.get(rate)) for rate in rates]
    if goal.delta is not None and advantage is None:
        curves.append(RiskCurve("epsilon", goal.delta, epsilon))
    return curves


def _arguments(value: float, search: ParameterSearch) -> list[float]:
    """Values of a parameter around the one that was found, increasing; whole numbers if it is one."""
    low, high = search.bracket
    around = value * np.geomspace(1 / _AROUND, _AROUND, _POINTS)
    if search.integer:
        around = np.round(around)
    inside = {float(item) for item in around if low <= item <= high and not math.isclose(item, value)}
    return sorted({*inside, value})
