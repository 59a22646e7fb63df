"""What a loss means for who is attacked along a parameter, such as the noise: certified upper bounds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dp_accounting import DpEvent

from dpassay.accounting.accountants.base import Accountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, fields_to_json
from dpassay.accounting.comparison.curves import coarse_first
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import WidthNotMet
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant

SECONDS = 10.0
"""Processor time of all points, after the first one."""

Quantity: TypeAlias = Literal["advantage", "true_positive_rate", "epsilon", "r"]


@dataclass(frozen=True, slots=True)
class RiskCurve:
    """Upper bounds on one number at each value of a parameter.

    Attributes:
        name: the advantage of a test, its true positive rate, an ε, or the probability r of guessing a secret.
        at: the false positive rate, δ or p; None for an advantage.
        target: the largest value that was allowed; None if it was no target.
        values: at most this, for each argument; `inf` where there is no finite bound.
    """

    name: Quantity
    at: float | None = None
    target: float | None = None
    values: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The curve as plain JSON types."""
        return fields_to_json(self)


@dataclass(frozen=True, slots=True)
class RiskCurves:
    """Upper bounds along a parameter, all certified.

    Attributes:
        parameter: its name.
        arguments: its values, increasing.
        curves: one for each number.
        skipped: how many arguments have no bound, or were not reached in time.
    """

    parameter: str
    arguments: tuple[float, ...]
    curves: tuple[RiskCurve, ...]
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """The curves as plain JSON types."""
        return fields_to_json(self)


def risk_curves(
    make_event: Callable[[float], DpEvent],
    asked: Sequence[RiskCurve],
    parameter: str,
    arguments: Sequence[float],
    first: float,
    *,
    adjacency: Adjacency | str,
    unit: Unit,
    seconds: float = SECONDS,
) -> RiskCurves:
    """The curves that are asked for, by ``lattice``, or for secrets by ``secret_protection``.

    Args:
        make_event: a function from the parameter to an event.
        asked: the curves, without values.
        parameter: its name.
        arguments: values of the parameter, increasing.
        first: the one of them that is always answered; the others coarse ones first, until the time limit.
        adjacency: the neighbouring relation.
        unit: what is protected.
        seconds: the time limit, of this process.

    Raises:
        ValueError: if there is no bound at `first`, with the reason.
    """
    answers: dict[float, list[float]] = {}
    end = float("inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)  # upper bounds hold at any width
        for argument in dict.fromkeys([first, *coarse_first(arguments)]):
            if time.process_time() > end:
                break
            try:
                composed = _accountant(adjacency, unit).compose(make_event(argument))
                answers[argument] = [_asked(composed, curve).value for curve in asked]
            except (ValueError, ArithmeticError):
                if argument == first:
                    raise
            end = min(end, time.process_time() + seconds)
    found = sorted(answers)
    curves = (
        RiskCurve(curve.name, curve.at, curve.target, tuple(answers[argument][index] for argument in found))
        for index, curve in enumerate(asked)
    )
    return RiskCurves(parameter, tuple(found), tuple(curves), len(arguments) - len(found))


def _accountant(adjacency: Adjacency | str, unit: Unit) -> Accountant[Any]:
    if adjacency == Adjacency.SECRET:
        return SecretProtectionAccountant(Adjacency.SECRET, unit)
    return Lattice(adjacency, unit)


def _asked(composed: Accountant[Any], curve: RiskCurve) -> Bound:
    match curve:
        case RiskCurve("advantage"):
            return composed.delta(0.0)
        case RiskCurve("epsilon", float(delta)):
            return composed.epsilon(delta)
        case RiskCurve(_, float(at)):
            return composed.blowup(at)
    raise ValueError(f"a curve of {curve.name} needs the argument at which it is")
