"""Targets of calibration: which bound of an accountant each needs, and its limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dpassay.accounting.accountants.base import Accountant
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction
from dpassay.accounting.calibration.search import CAP
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PrivacyProfile, PureDP, SecretProtection
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.registry import accountant, delta_at
from dpassay.base import validate


@dataclass(frozen=True, slots=True)
class TradeOff:
    """A point of the trade-off curve as a target: tests of type I error `alpha` have type II error at least `beta`."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        validate.open_probability(alpha=self.alpha)
        validate.probability(beta=self.beta)
        if self.alpha + self.beta >= 1:
            raise ValueError(f"alpha + beta must be below 1, as guessing reaches 1; not {self.alpha!r} + {self.beta!r}")


Target: TypeAlias = Guarantee | TradeOff
Answer: TypeAlias = tuple[Bound, ...]
"""One bound, or one per point of a profile."""
AccountantFactory: TypeAlias = Callable[[float], Accountant[Any]]
"""Maps a relative width to an accountant with nothing composed."""


class Question(NamedTuple):
    """The bounds that decide whether a target is met."""

    target: Target
    key: Any  # questions with equal keys differ in their limit only
    calls: tuple[tuple[str, tuple[float, ...]], ...]  # methods of an accountant with their arguments
    # for each bound's `at`, the largest allowed value (the smallest, for a type II error).
    limits: dict[float | None, float]
    method: str = Lattice.name  # the default accountant
    lossless_value: float = 0.0  # the value of the quantity without any privacy loss

    def holds(self, bound: Bound, value: float) -> bool:
        """Whether a value of the bounded quantity is within its limit."""
        limit = self.limits[bound.at]
        return value >= limit if bound.direction is Direction.LOWER else value <= limit

    def meets(self, answer: Answer) -> bool:
        """Whether all bounds are within their limits."""
        return all(self.holds(bound, bound.value) for bound in answer)

    def refuted(self, bound: Bound) -> bool:
        """Whether the exact value is proven to be beyond its limit."""
        return bound.interval is not None and not self.holds(bound, optimistic_end(bound))

    def loss(self, at: float | None, value: float) -> float:
        """The privacy loss on a logarithmic scale; with several bounds, relative to their limits."""
        size = _logarithm(abs(value - self.lossless_value))
        return size - _logarithm(self.limits[at]) if len(self.limits) > 1 else size

    @property
    def level(self) -> float:
        """The loss at the limit."""
        return max(self.loss(at, limit) for at, limit in self.limits.items())

    @property
    def slope(self) -> float:
        """A guess of the slope of the loss in a parameter, on logarithmic scales; δ(ε) is steep."""
        return 8.0 if isinstance(self.target, PrivacyProfile) else 1.0

    @property
    def width_factor(self) -> float:
        """The relative width of the quantity that corresponds to a unit of relative width of the loss."""
        if not self.lossless_value:
            return 1.0
        (limit,) = self.limits.values()
        return max(abs(limit - self.lossless_value) / (limit if self.lossless_value < limit else 1 - limit), 1e-6)


def question_of(target: Target, adjacency: Adjacency | str, delta: float | None) -> Question:
    """The question of a target; `delta` is for a `GDP` target."""
    if adjacency == Adjacency.SECRET and not isinstance(target, SecretProtection):
        raise ValueError(f"a secret's target is SecretProtection(p, r), not {type(target).__name__}")
    kind = type(target)
    match target:
        case ApproxDP(epsilon=0.0, delta=limit):
            return Question(target, (kind, 0.0), (("delta", (0.0,)),), {0.0: limit})
        case ApproxDP(epsilon=limit, delta=own):
            return Question(target, (kind, own), (("epsilon", (own,)),), {None: limit})
        case PrivacyProfile(epsilons=epsilons, deltas=deltas):
            calls = tuple(("delta", (epsilon,)) for epsilon in epsilons)
            return Question(target, target, calls, dict(zip(epsilons, deltas, strict=True)))
        case SecretProtection(p=p, r=limit):
            method = "secret_protection" if adjacency == Adjacency.SECRET else Lattice.name
            return Question(target, (kind, p), (("blowup", (p,)),), {p: limit}, method, p)
        case TradeOff(alpha=alpha, beta=limit):
            return Question(target, (kind, alpha), (("beta", (alpha,)),), {alpha: limit}, lossless_value=1 - alpha)
        case GDP(mu=limit) if delta is not None:
            own = validate.open_probability(delta=delta)
            return Question(target, kind, (("mu", (own,)),), {None: limit})
        case GDP(mu=limit):
            return Question(target, kind, (("mu", ()),), {None: limit}, GaussianDP.name)
        case ZCDP(rho=limit):
            return Question(target, kind, (("rho", ()),), {None: limit}, ZeroConcentrated.name)
        case RDP(alpha=alpha, epsilon=limit):
            return Question(target, (kind, alpha), (("divergence", (alpha,)),), {alpha: limit}, RenyiAccountant.name)
        case PureDP(epsilon=limit):
            return Question(target, kind, (("pure", ()),), {None: limit}, Basic.name)
    raise ValueError(f"{kind.__name__} is not a target; give a guarantee other than ExPostDP, or a TradeOff")


def accountant_factory(method: str, adjacency: Adjacency | str, unit: Unit | str | None) -> AccountantFactory:
    """A function that makes accountants of the given name."""
    if method == Lattice.name:
        return lambda width: Lattice(adjacency, unit, width)
    return lambda width: accountant(method, adjacency, unit)


def query(composed: Accountant[Any], name: str, arguments: tuple[float, ...]) -> Bound:
    """The bound that an accountant's method `name` returns; a `ValueError` if it has no such bound."""
    if name == "mu" and isinstance(composed, GaussianDP):
        return composed.mu()
    if name == "mu" and isinstance(composed, Lattice) and not arguments:
        raise ValueError("for a GDP target lattice needs a delta in (0, 1); gdp needs none")
    if name == "delta" and not isinstance(composed, Lattice):
        return delta_at(composed.delta, *arguments)
    if not hasattr(composed, name):
        raise ValueError(f"{composed.name} has no bound on {name}; use the default method, or another one")
    bound: Bound = getattr(composed, name)(*arguments)
    return bound


def decided(composed: Accountant[Any], question: Question) -> Answer:
    """The bounds that a question asks for; if a limit is inside the interval of one, a narrower one is computed."""
    answer = []
    for name, arguments in question.calls:

        def ask(asked: Accountant[Any], name: str = name, arguments: tuple[float, ...] = arguments) -> Bound:
            return query(asked, name, arguments)

        at = arguments[0] if arguments and arguments[0] in question.limits else None
        answer.append(composed.against(question.limits[at], ask) if isinstance(composed, Lattice) else ask(composed))
    return tuple(answer)


def optimistic_end(bound: Bound) -> float:
    """The end of a bound's interval that is best for privacy."""
    assert bound.interval is not None
    return bound.interval.upper if bound.direction is Direction.LOWER else bound.interval.lower


def _logarithm(size: float) -> float:
    """log of a size ≥ 0, within ±CAP."""
    return min(max(math.log(size), -CAP), CAP) if size > 0 else -CAP
