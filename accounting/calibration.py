"""Calibration: the noise, rate, number of steps, clip or temperature that meets a target, by a certified bound.

    from cupel.accounting import ApproxDP, calibrate, noise_for_dp_sgd

    found = noise_for_dp_sgd(1.0, 1e-5, sampling_probability=0.01, steps=1000, adjacency="add_remove")
    found = calibrate(make_event, ApproxDP(1.0, 1e-5), adjacency="add_remove", parameter="noise_multiplier",
                      decreasing=True, bracket=(0.3, 100.0))
    found.value         # meets the target: found.bound, the accountant's own bound at it, says so
    found.beyond        # within the tolerance of it, and does not: found.beyond_bound; found.refuted: is that proven?
    many = calibrate_many(make_event, [ApproxDP(e, 1e-5) for e in (0.5, 1.0, 2.0)], ...)  # shares what it learns

Privacy must be monotone in the parameter, which is taken as given. Nothing else is: the search only proposes values,
and every value is accepted or rejected by the accountant's bound at it. Where privacy is monotone and `refuted` is
true, the exact threshold lies between `value` and `beyond`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from dp_accounting import DpEvent, dp_event

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.basic import Basic
from cupel.accounting.bounds import Bound, Direction, json_number
from cupel.accounting.composition import Accountant
from cupel.accounting.dominating_pairs import WIDTH, WidthNotMet
from cupel.accounting.gdp import GaussianDP
from cupel.accounting.guarantees import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    SecretProtection,
)
from cupel.accounting.lattice import Lattice
from cupel.accounting.rdp import RenyiAccountant
from cupel.accounting.registry import ACCOUNTANTS, accountant
from cupel.accounting.zcdp import ZeroConcentrated

MakeEvent: TypeAlias = Callable[[Any], DpEvent]
"""From a value of the parameter (a float, or an int for integers) to what runs."""

_COARSE = 0.02
_FINEST = 1e-6
_CAP = 700.0
_STRIDE = math.log(16)
_PATIENCE = 16


@dataclass(frozen=True, slots=True)
class TradeOff:
    """A point of the trade-off curve as a target: tests of type I error `alpha` have type II error at least `beta`."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        validate.open_probability(alpha=self.alpha)
        validate.probability(beta=self.beta)
        if self.alpha + self.beta >= 1:
            raise ValueError(
                f"alpha + beta must be below 1, not {self.alpha!r} + {self.beta!r}: a test that ignores the data reaches 1"
            )


Target: TypeAlias = Guarantee | TradeOff


@dataclass(frozen=True, slots=True)
class Calibration:
    """A value of a parameter that meets a target, and how near it is to the last one that does.

    Attributes:
        parameter: its name.
        value: meets the target, by `bound`.
        target: what was asked for.
        bound: the accountant's bound at `value`; for a profile, at the point that is nearest to its limit.
        beyond: the nearest value that was tried and not certified to meet the target; None where `value` is the end of
            the bracket.
        beyond_bound: the bound at `beyond`, with its interval where one is known.
        tolerance: |beyond − value| is at most this times `value`; integers are next to each other.
        evaluations: how often the accountant was asked for this target.
    """

    parameter: str
    value: float
    target: Target
    bound: Bound
    beyond: float | None
    beyond_bound: Bound | None
    tolerance: float
    evaluations: int

    @property
    def refuted(self) -> bool:
        """Whether the target is proven not to hold at `beyond`; otherwise it is merely not certified there."""
        bound = self.beyond_bound
        return bound is not None and bound.interval is not None and not _within(_favourable(bound), bound, self.target)

    def to_json(self) -> dict[str, Any]:
        """The calibration as plain JSON types."""
        target = {key: list(item) if isinstance(item, tuple) else item for key, item in asdict(self.target).items()}
        return {
            "parameter": self.parameter,
            "value": json_number(self.value),
            "target": {"type": type(self.target).__name__, **target},
            "bound": self.bound.to_json(),
            "beyond": json_number(self.beyond),
            "beyond_bound": None if self.beyond_bound is None else self.beyond_bound.to_json(),
            "refuted": self.refuted,
            "tolerance": self.tolerance,
            "evaluations": self.evaluations,
        }


def calibrate(
    make_event: MakeEvent,
    target: Target,
    *,
    adjacency: Adjacency | str,
    decreasing: bool,
    bracket: tuple[float, float],
    parameter: str = "parameter",
    integer: bool = False,
    tolerance: float = 1e-3,
    method: str | None = None,
    unit: Unit | None = None,
    delta: float | None = None,
    start: float | None = None,
) -> Calibration:
    """The least private value of a parameter whose certified bound meets a target.

    Args:
        make_event: what runs at a value of the parameter.
        target: (ε, δ), a privacy profile, μ, ρ, (α, ε) of Rényi DP, pure ε, (p, r), or a `TradeOff`.
        adjacency: the neighbouring relation.
        decreasing: whether the loss of privacy falls as the parameter grows, as with noise; rises, as with steps.
        bracket: the least and the largest value to try, 0 < low < high. The ends are not tried unless needed.
        parameter: its name, for messages and records.
        integer: only whole numbers; the answer is then exact: the next one was tried too.
        tolerance: relative, in [1e-9, 0.5]: how far from the answer a value is that does not meet the target.
        method: an accountant's name, by default ``lattice``, and ``secret_protection`` where the adjacency is secret.
        unit: the privacy unit, by default one record.
        delta: for a `GDP` target with method ``lattice``: the δ(ε) below which the Gaussian curve need not bound.
        start: where to begin, by default the geometric middle of the bracket.

    Returns:
        A `Calibration`; where the whole bracket meets the target, its least private end.

    Raises:
        ValueError: where no value in the bracket is certified to meet the target, with the bound at the best end; for
            wrong input; or with the reason why the accountant has no bound.
    """
    return calibrate_many(
        make_event,
        [target],
        adjacency=adjacency,
        decreasing=decreasing,
        bracket=bracket,
        parameter=parameter,
        integer=integer,
        tolerance=tolerance,
        method=method,
        unit=unit,
        delta=delta,
        start=start,
    )[0]


def calibrate_many(
    make_event: MakeEvent,
    targets: Iterable[Target],
    *,
    adjacency: Adjacency | str,
    decreasing: bool,
    bracket: tuple[float, float],
    parameter: str = "parameter",
    integer: bool = False,
    tolerance: float = 1e-3,
    method: str | None = None,
    unit: Unit | None = None,
    delta: float | None = None,
    start: float | None = None,
) -> list[Calibration]:
    """`calibrate` for many targets: what one search learns about the bound as a function of the parameter serves all.

    Arguments as for `calibrate`; the answers come in the order of the targets.
    """
    raise NotImplementedError


def noise_for_dp_sgd(
    target_epsilon: float,
    delta: float,
    *,
    sampling_probability: float,
    steps: int,
    adjacency: Adjacency | str,
    tolerance: float = 1e-3,
    unit: Unit | None = None,
) -> Calibration:
    """The least noise multiplier of Poisson-sampled Gaussian steps that is certified to be (ε, δ)-DP.

    Args:
        target_epsilon: ε, above 0.
        delta: δ in (0, 1).
        sampling_probability: of a unit in a step, in (0, 1].
        steps: how many, at least 1.
        adjacency: add_remove, replace_one or zero_out.
        tolerance: relative, of the noise multiplier.
        unit: the privacy unit, by default one record.
    """
    raise NotImplementedError
