"""Bounds: a number with its direction, method, rigor, adjacency, assumptions and ceiling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.base import validate

ARGUMENTS = {"delta": "ε", "renyi_epsilon": "order", "beta": "α", "r": "p"}
"""What `Bound.at` is for the quantities that are functions."""
WITHOUT_ARGUMENT = ("epsilon", "ex_post_epsilon", "rho", "mu")


ANY_MECHANISM = "every (ε, δ)-DP mechanism"
"""The null family of a test that assumes nothing about the mechanism."""


class Direction(StrEnum):
    """Which side of the exact value a bound lies on."""

    UPPER = "upper"
    LOWER = "lower"


class Rigor(StrEnum):
    """How a bound is justified, strongest first. Only `CERTIFIED` may support a claim."""

    CERTIFIED = "certified"
    """Holds by proof, numerical error included."""
    FINITE_SAMPLE = "finite_sample"
    """Holds with the stated confidence for any mechanism."""
    ASYMPTOTIC = "asymptotic"
    CREDIBLE = "credible"
    MODEL_CONDITIONAL = "model_conditional"
    """Assumes that the mechanism belongs to a family, such as μ-GDP."""
    ESTIMATE = "estimate"

    @property
    def may_support(self) -> bool:
        return self is Rigor.CERTIFIED

    @property
    def may_refute(self) -> bool:
        return self in (Rigor.CERTIFIED, Rigor.FINITE_SAMPLE)


@dataclass(frozen=True, slots=True)
class Interval:
    """The closed interval [lower, upper] that contains the exact value."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise ValueError(f"an interval needs lower ≤ upper, not [{self.lower}, {self.upper}]")

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, slots=True)
class Bound:
    """A number with its meaning.

    Attributes:
        direction: whether the exact value is at most (upper) or at least (lower) `value`.
        value: the bound, in the units of `quantity`; `inf` if the method has no finite bound.
        quantity: what is bounded: ``epsilon``, ``delta``, ``rho`` (zCDP), ``mu`` (GDP), ``renyi_epsilon``,
            ``ex_post_epsilon``, ``beta`` (type II error) or ``r`` (secret protection).
        method: the accountant or statistic, by its registry name.
        rigor: how the number is justified.
        adjacency: the neighbouring relation.
        unit: the privacy unit.
        delta: the δ of an ε; None if it has no meaning (pure, zCDP, GDP).
        at: the argument of a quantity that is a function: the ε of a ``delta``, the order of a ``renyi_epsilon``, the α
            of a ``beta``, the p of an ``r``. Required for these, None for the other quantities.
        confidence: the coverage of a finite-sample bound, in (0, 1); None otherwise.
        interval: a two-sided enclosure of the exact value, if one is known.
        ceiling: for an audit, the largest value that the same test could have certified.
        null_family: for an audit, the mechanisms that its test rejects: none of them with an ε below the bound
            plausibly produces the data. `ANY_MECHANISM`, or a family such as ``every μ-GDP mechanism``.
        assumptions: what must hold besides the description of the mechanism, one sentence each.
        private: the number depends on the private data and may not be released.
        source: the accountant whose number it is, if `method` takes the least of several and it is not its own.
    """

    direction: Direction
    value: float
    method: str
    rigor: Rigor
    adjacency: Adjacency
    quantity: str = "epsilon"
    unit: Unit = dataclasses.field(default_factory=Unit)
    delta: float | None = None
    at: float | None = None
    confidence: float | None = None
    interval: Interval | None = None
    ceiling: float | None = None
    null_family: str | None = None
    assumptions: tuple[str, ...] = ()
    private: bool = False
    source: str | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise ValueError("a bound must have a value, not NaN")
        if self.rigor is Rigor.FINITE_SAMPLE and self.confidence is None:
            raise ValueError("a finite-sample bound must state its confidence")
        if self.confidence is not None:
            validate.open_probability(confidence=self.confidence)
        if self.interval is not None and self.value not in (self.interval.lower, self.interval.upper):
            raise ValueError("the value of a bound must be an end of its interval")
        self._check_argument()

    def _check_argument(self) -> None:
        if self.quantity in WITHOUT_ARGUMENT and self.at is not None:
            raise ValueError(
                f"a bound on {self.quantity} takes no `at`, but {self.at!r} was given; use `delta` for a δ"
            )
        if self.quantity not in ARGUMENTS:
            return
        if self.at is None:
            raise ValueError(f"a bound on {self.quantity} needs `at`, the {self.argument} at which it holds")
        if self.quantity == "delta":
            validate.finite(at=self.at)
        elif self.quantity != "renyi_epsilon":
            validate.probability(at=self.at)
        elif not validate.finite(at=self.at) > 1:
            raise ValueError(f"the order of a Rényi divergence must be above 1, not {self.at!r}")

    @property
    def argument(self) -> str | None:
        """What `at` is: ε, order, α or p; None if the quantity is not a function."""
        return ARGUMENTS.get(self.quantity)

    @property
    def by(self) -> str:
        """The method, and whose number it is if it is another's."""
        return self.method if self.source is None else f"{self.method} ({self.source})"

    def to_json(self) -> dict[str, Any]:
        """The bound as plain JSON types; an infinite number becomes the string ``"inf"``."""
        return fields_to_json(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Bound:
        """The inverse of `to_json`.

        Raises:
            ValueError: if `body` is not a bound.
        """
        fields = dict(body)
        try:
            fields |= {
                "direction": Direction(fields["direction"]),
                "rigor": Rigor(fields["rigor"]),
                "adjacency": Adjacency(fields["adjacency"]),
                "unit": Unit.parse(fields["unit"]),
                "assumptions": tuple(fields["assumptions"]),
            }
            for key in ("value", "ceiling", "delta", "at"):
                fields[key] = number_from_json(fields[key])
            if fields["interval"] is not None:
                fields["interval"] = Interval(*map(_finite_or_not, fields["interval"]))
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a bound: {error}") from None


RiskName: TypeAlias = Literal["advantage", "true_positive_rate", "bayes_error", "mu", "regret"]


@dataclass(frozen=True, slots=True)
class Risk:
    """One number about the best test between neighbours: what a privacy loss means for who is attacked.

    Attributes:
        name: the advantage of a test, its true positive rate, the error of who guesses, the μ of Gaussian DP, or the
            regret of that μ.
        value: at most this, for a direction upper; at least this, for lower; `inf` if there is no finite bound.
        direction: which side of the exact value it is on.
        rigor: how it is justified.
        interval: that contains the exact value; None if only one side is known.
        at: the false positive rate, the prior, or the δ below which a Gaussian curve need not be a bound; else None.
        assumptions: what must hold besides the description of the mechanism, one sentence each.
    """

    name: RiskName
    value: float
    direction: Direction
    rigor: Rigor
    interval: Interval | None = None
    at: float | None = None
    assumptions: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The number as plain JSON types."""
        return fields_to_json(self)


def fields_to_json(record: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain JSON types: numbers by `json_number`, units and words as text."""
    return {field.name: _plain(getattr(record, field.name)) for field in dataclasses.fields(record)}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Interval):
        return [json_number(value.lower), json_number(value.upper)]
    if isinstance(value, Unit | StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return json_number(value) if isinstance(value, float) else value


def json_number(value: float | None) -> float | str | None:
    """A number that every JSON reader accepts: infinities become ``"inf"`` and ``"-inf"``."""
    if value is not None and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def number_from_json(value: float | str | None) -> float | None:
    """The inverse of `json_number`; a `ValueError` if `value` is another string or not a number."""
    return None if value is None else _finite_or_not(value)


def _finite_or_not(value: float | str) -> float:
    if isinstance(value, bool) or not (isinstance(value, float | int) or value in ("inf", "-inf")):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
