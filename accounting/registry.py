"""The table of accountants by name, and functions that ask one or all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload, runtime_checkable

from dp_accounting import DpEvent

from dpassay.accounting.accountants.advanced import Advanced
from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.pld import PrivacyLoss
from dpassay.accounting.accountants.prv import PrivacyRandomVariables
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor
from dpassay.accounting.conversions.guarantees import convert
from dpassay.accounting.ex_post.accountant import ExPost
from dpassay.accounting.guarantees import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    SecretProtection,
)
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.base import validate

ACCOUNTANTS: dict[str, type[Accountant[Any]]] = {
    kind.name: kind
    for kind in (
        Lattice,
        Basic,
        Advanced,
        ZeroConcentrated,
        GaussianDP,
        RenyiAccountant,
        PrivacyLoss,
        PrivacyRandomVariables,
        ExPost,
        SecretProtectionAccountant,
    )
}
"""All accountants by name. To add one, add a file and a row here."""


@runtime_checkable
class HasEvent(Protocol):
    """A ledger: it has the event of everything that was charged."""

    def event(self) -> DpEvent: ...


@runtime_checkable
class HasPlan(Protocol):
    """A run: it has the event of everything that it charges in all."""

    @property
    def plan(self) -> DpEvent: ...


Described: TypeAlias = DpEvent | HasEvent | HasPlan


_LARGER = (
    "The recorded cost of each token and sign is the larger of replacing a row of its part and adding or removing one."
)


# Accountants that answer questions of their own are returned as what they are.
@overload
def accountant(name: Literal["basic"], adjacency: Adjacency | str, unit: Unit | str | None = None) -> Basic: ...
@overload
def accountant(
    name: Literal["zcdp"], adjacency: Adjacency | str, unit: Unit | str | None = None
) -> ZeroConcentrated: ...
@overload
def accountant(name: Literal["gdp"], adjacency: Adjacency | str, unit: Unit | str | None = None) -> GaussianDP: ...
@overload
def accountant(name: Literal["rdp"], adjacency: Adjacency | str, unit: Unit | str | None = None) -> RenyiAccountant: ...
@overload
def accountant(name: Literal["lattice"], adjacency: Adjacency | str, unit: Unit | str | None = None) -> Lattice: ...
@overload
def accountant(name: Literal["ex_post"], adjacency: Adjacency | str, unit: Unit | str | None = None) -> ExPost: ...
@overload
def accountant(
    name: Literal["secret_protection"], adjacency: Adjacency | str, unit: Unit | str | None = None
) -> SecretProtectionAccountant: ...
@overload
def accountant(name: str, adjacency: Adjacency | str, unit: Unit | str | None = None) -> Accountant[Any]: ...
def accountant(name: str, adjacency: Adjacency | str, unit: Unit | str | None = None) -> Accountant[Any]:
    """An accountant by its name, with nothing composed yet.

    Raises:
        ValueError: if the name or the adjacency is unknown.
    """
    return ACCOUNTANTS[validate.one_of(tuple(ACCOUNTANTS), method=name)](adjacency, unit)


def account(
    event: Described,
    *,
    adjacency: Adjacency | str,
    delta: float | None = None,
    method: str = "lattice",
    unit: Unit | str | None = None,
) -> Bound:
    """An upper bound on the ε of an event, or of everything that a ledger was charged.

    Args:
        event: an event, or a ledger or run (anything with ``.event()`` or ``.plan``). Method ``ex_post`` also needs
            ``.realised()``. Under replace_one a run keeps, per token and sign, the larger of the costs of replacing a
            row and of adding or removing one; the bound lists this as an assumption.
        adjacency: the neighbouring relation the events were charged for.
        delta: δ in (0, 1). Only ``basic`` and ``ex_post`` need none; they give a pure and an ex-post ε.
        method: an accountant's name.
        unit: the privacy unit, by default one record.

    Raises:
        ValueError: if the accountant has no bound, with the reason.
    """
    chosen = accountant(method, adjacency, unit).compose(event_of(event))
    if isinstance(chosen, ExPost):
        realised = getattr(event, "realised", None)
        if realised is None:
            raise Unsupported("ex_post needs the realised costs of a run, and an event alone has none")
        costs = realised()
        if chosen.adjacency is Adjacency.ADD_REMOVE:
            return chosen.realise(costs).epsilon()
        bound = chosen.realise(costs, costs).epsilon()
        return dataclasses.replace(bound, assumptions=(*bound.assumptions, _LARGER))
    if delta is None:
        if isinstance(chosen, Basic):
            return chosen.pure()
        raise ValueError(f"{method} needs a delta in (0, 1); only basic needs none, for a pure ε")
    return chosen.epsilon(delta)


def upper_bounds(
    event: Described,
    guarantee: Guarantee,
    *,
    adjacency: Adjacency | str,
    unit: Unit | str | None = None,
    methods: Sequence[str] | None = None,
) -> list[Bound]:
    """The bounds of every accountant that supports `event` on the quantity that `guarantee` claims.

    Pure DP: the pure ε (``epsilon``, δ None). Approximate DP: ε at the claim's δ. A profile: δ at each of its ε, one
    bound per point. zCDP: ``rho``. GDP: ``mu``. RDP: the divergence at the claim's order, ``renyi_epsilon``. These
    three also come from accountants of a pure ε, a ρ or a μ, if their own number converts. Ex-post DP: the a-priori
    pure ε, to compare with the realised one. Secret protection: ``r`` at the claim's p.

    Where a claimed ε or δ is inside the interval of `lattice`, a narrower interval is computed (`Lattice.against`).

    Args:
        event: an event, a ledger or a run.
        guarantee: the claim.
        adjacency: the neighbouring relation.
        unit: the privacy unit, by default one record.
        methods: names of accountants, by default all.

    Returns:
        The bounds, certified ones first, smaller values before larger ones. `unsupported` gives the reasons for missing
        ones.
    """
    bounds: list[Bound] = []
    described = event_of(event)
    for name in ACCOUNTANTS if methods is None else methods:
        if name == ExPost.name:
            continue
        empty = accountant(name, adjacency, unit)
        if empty.supports(described) is None:
            try:
                bounds.extend(_answers(empty.compose(described), guarantee))
            except Unsupported:  # an invalid parameter for this method, such as a δ too small for prv
                continue
    if isinstance(guarantee, PrivacyProfile):
        return bounds
    return sorted(bounds, key=lambda bound: (bound.rigor is not Rigor.CERTIFIED, bound.value))


def unsupported(event: Described, *, adjacency: Adjacency | str, unit: Unit | str | None = None) -> dict[str, str]:
    """The reasons why accountants have no bound for `event`, by name; accountants that have one are not listed."""
    described = event_of(event)
    reasons = {name: accountant(name, adjacency, unit).supports(described) for name in ACCOUNTANTS}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def event_of(event: Described) -> DpEvent:
    """The event of a ledger or a run, or the event itself."""
    if isinstance(event, DpEvent):
        return event
    if isinstance(event, HasEvent):
        return event.event()
    if isinstance(event, HasPlan):
        return event.plan
    raise ValueError(f"accounting needs an event, a ledger or a run, not {type(event).__name__}")


def _answers(composed: Accountant[Any], guarantee: Guarantee) -> Iterable[Bound]:
    if isinstance(composed, SecretProtectionAccountant):
        return [composed.protection(guarantee.p)] if isinstance(guarantee, SecretProtection) else []
    match guarantee:
        case PureDP() | ExPostDP():
            return [composed.pure()] if isinstance(composed, Basic) else []
        case ApproxDP(delta=delta):
            best = _against(composed, guarantee.epsilon, lambda asked: asked.epsilon(delta))
            return with_estimate(composed, best, delta)
        case PrivacyProfile(epsilons=epsilons, deltas=deltas):
            points = zip(epsilons, deltas, strict=True)
            return [_against(composed, delta, _asking_delta_at(at)) for at, delta in points]
        case RDP(alpha=alpha) if isinstance(composed, RenyiAccountant):
            return [composed.divergence(alpha)]
        case ZCDP() | GDP() | RDP():
            return _converted(composed, guarantee)
    return []


def with_estimate(composed: Accountant[Any], bound: Bound, delta: float) -> list[Bound]:
    """A bound on ε, and that of all orders if they give less with uncounted numerical error."""
    estimates = [composed.estimate(delta)] if isinstance(composed, RenyiAccountant) else []
    return [bound, *(estimate for estimate in estimates if estimate.value < bound.value)]


def _asking_delta_at(epsilon: float) -> Callable[[Accountant[Any]], Bound]:
    return lambda asked: delta_at(asked.delta, epsilon)


def _against(composed: Accountant[Any], limit: float, ask: Callable[[Accountant[Any]], Bound]) -> Bound:
    """A bound; if the claimed value is inside its interval, a narrower one."""
    return composed.against(limit, ask) if isinstance(composed, Lattice) else ask(composed)


def _converted(composed: Accountant[Any], guarantee: ZCDP | GDP | RDP) -> list[Bound]:
    """The bound on a claimed ρ, μ or divergence by `convert` from a pure ε, a ρ or a μ; inf beyond float64."""
    known: type[PureDP | ZCDP | GDP]
    match composed:
        case Basic():
            own, known = composed.pure(), PureDP
        case ZeroConcentrated():
            own, known = composed.rho(), ZCDP
        case GaussianDP():
            own, known = composed.mu(), GDP
        case _:
            return []
    if isinstance(guarantee, known):
        return [own]
    at = guarantee.alpha if isinstance(guarantee, RDP) else None
    kind, value = type(guarantee), math.inf
    quantity, field = {ZCDP: ("rho", "rho"), GDP: ("mu", "mu"), RDP: ("renyi_epsilon", "epsilon")}[kind]
    with contextlib.suppress(ValueError):  # an infinite number is no valid guarantee
        value = getattr(convert(known(own.value), kind, alpha=at), field)
    return [dataclasses.replace(own, value=value, quantity=quantity, at=at)]


def delta_at(delta: Callable[[float], Bound], epsilon: float) -> Bound:
    """δ at ε of either sign: both directions obey the bound at |ε|, and δ(−ε) = 1 − e^{−ε}(1 − δ(ε) of the reverse)."""
    if epsilon >= 0:
        return delta(epsilon)
    bound = delta(-epsilon)
    value = bound.value - math.expm1(epsilon) * (1 - bound.value)
    return dataclasses.replace(bound, value=min(1.0, value * (1 + 2.0**-49)), at=epsilon, interval=None)
