"""How filters and odometers count the cost of steps, and the ε that holds at a stopping time.

Mechanisms run one after another. Which one runs next, and when to stop, may depend on everything that was *released*
before (fully adaptive composition, Rogers et al. 2016). With S(α) the sum of the steps' Rényi divergences of order α:

- one order: S(α) ≤ B on every transcript gives Rényi divergence B (Theorem 2);
- (ε, δ): `stopped_epsilon` of S(α) at several weighted orders holds at every stopping time (Theorem 3);
- pure steps: Σ ε_i holds too, at no cost in δ (Theorem 5);
- (ε_i, δ_i) steps: Σ δ_i is added, from a part of δ that is fixed in advance (Theorem 6);
- Gaussian DP: Σ μ_i² ≤ μ² gives μ-GDP (Theorem 7).

Proof: docs/proofs/filters.md, Theorems 1 to 8.

Source: Rogers, Roth, Ullman and Vadhan, "Privacy Odometers and Filters" (2016); Feldman and Zrnic, "Individual Privacy
    Accounting via a Rényi Filter" (2021); Lécuyer, "Practical Privacy Filters and Odometers with Rényi Differential
    Privacy" (2021); Smith and Thakurta, "Fully Adaptive Composition for Gaussian Differential Privacy" (2022);
    Whitehouse et al., "Fully-Adaptive Composition in Differential Privacy" (2023). The mixture over orders is a method
    of mixtures in the sense of the last; its form for (ε, δ) is Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.accountants.basic import Basic, Exact
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.rdp import Renyi, RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import own
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, ExPostDP, Guarantee, PureDP
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.errors import DpassayError

Spend: TypeAlias = DpEvent | Guarantee
"""What can be charged: an event, or a guarantee that the step is known to satisfy."""

WHOLE_ORDERS: tuple[float, ...] = (
    *(1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 40.0, 48.0),
    *(64.0, 80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0),
)
"""The orders for Rényi costs. From 2 on they are whole, where sampled Gaussians are certified."""

ALL_ORDERS: tuple[float, ...] = tuple(1 + 2.0 ** (k / 2) for k in range(-6, 21))
"""The orders for zCDP costs, which are known at every order: α − 1 from 1/8 to 1024."""

_ACCOUNTANTS: dict[str, type[Accountant[Any]]] = {
    kind.name: kind for kind in (Basic, ZeroConcentrated, RenyiAccountant, GaussianDP)
}

RELEASED = "Each step, and when to stop, was chosen from released outputs only."
FIXED = "The costs were fixed before the first outcome was seen."

_UNIT = 2.0**-53


class BudgetExhausted(DpassayError):
    """The step would exceed the budget. Nothing was charged; do not run it."""


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A sum of costs."""

    pure: Exact  # Σ ε_i, inf if a step has no pure ε
    # the sum in the accountant's own parameter: Σ ε_i (basic), (Σ ρ_i, Σ ξ_i) (zcdp), an array of divergences, one per
    # order (rdp), Σ μ_i² (gdp).
    cost: Any
    delta: Fraction  # Σ δ_i
    assumptions: tuple[str, ...] = ()  # what the accountant listed for the events


class Meter:
    """Adds up costs: with one accountant (basic, zcdp, rdp or gdp), at one adjacency, unit and set of orders.

    Rényi orders above 1 are for rdp and zcdp, one or several; by default `WHOLE_ORDERS` or `ALL_ORDERS`.
    """

    def __init__(
        self,
        method: str,
        adjacency: Adjacency | str,
        unit: Unit | None = None,
        orders: float | Sequence[float] | None = None,
    ) -> None:
        if orders is None:
            orders = ALL_ORDERS if method == "zcdp" else WHOLE_ORDERS
        many = tuple(float(x) for x in (orders if isinstance(orders, Sequence) else (orders,)))
        if not many or not all(1 < order < math.inf for order in many) or len(set(many)) < len(many):
            raise ValueError(f"orders must be different finite numbers above 1, not {orders!r}")
        self.orders: Floats = np.array(many)
        kind = _ACCOUNTANTS[validate.one_of(tuple(_ACCOUNTANTS), method=method)]
        self.accountant: Accountant[Any]
        if kind is RenyiAccountant:
            self.accountant = RenyiAccountant(adjacency, unit, many)
        else:
            self.accountant = kind(adjacency, unit)
        self.basic = Basic(adjacency, unit)
        self._known: dict[str, Total] = {}
        if self.basic.adjacency is Adjacency.SECRET or not self.basic.unit.is_single:
            raise ValueError("filters and odometers count for records or users; convert what they guarantee to groups")

    @property
    def zero(self) -> Total:
        """The total before anything is charged."""
        cost = self.accountant._zero()
        return Total(Fraction(0), cost.divergence if isinstance(cost, Renyi) else cost, Fraction(0))

    def cost(self, spend: Spend) -> Total:
        """The cost of one step; a `ValueError` if there is no bound, or `spend` is a realised, ex-post cost."""
        if not isinstance(spend, DpEvent):
            delta = Fraction(spend.delta) if isinstance(spend, ApproxDP) else Fraction(0)
            cost = self._certified(_cost_of_guarantee(self.accountant, spend), spend)
            return Total(_cost_of_guarantee(self.basic, spend, missing=math.inf), cost, delta)
        spend = own(spend)  # in full: NumPy shortens the text of long arrays
        name = repr(spend)  # the same events recur; dp_accounting's events with lists are not hashable
        if name not in self._known:
            pure: Exact = math.inf if self.basic.supports(spend) else self.basic.compose(spend).cost
            composed = self.accountant.compose(spend)
            cost = self._certified(composed.cost, spend)
            if len(self._known) >= 256:
                self._known.clear()
            self._known[name] = Total(pure, cost, Fraction(0), composed._assumptions(spend))
        return self._known[name]

    def _certified(self, cost: Any, spend: Spend) -> Any:
        """The cost with uncertified Rényi divergences replaced by inf."""
        if not isinstance(cost, Renyi):
            return cost
        if not cost.certified.any():
            raise Unsupported(f"no divergence of {type(spend).__name__} at these orders is certified; use whole ones")
        return np.where(cost.certified, cost.divergence, math.inf)

    def add(self, first: Total, second: Total) -> Total:
        """The sum of two totals: exact, except that Rényi divergences are rounded up.

        Sums of many different fractions are rounded up as well, by less than 2⁻²⁰⁴⁸, once they have 4096 binary digits.
        """
        cost: Any
        if isinstance(first.cost, np.ndarray):
            above = np.nextafter(first.cost + second.cost, math.inf)
            cost = np.where(second.cost == 0, first.cost, np.where(first.cost == 0, second.cost, above))
        else:
            cost = self.accountant._add([first.cost, second.cost])
            cost = (
                tuple(map(_with_short_denominator, cost)) if isinstance(cost, tuple) else _with_short_denominator(cost)
            )
        assumptions = tuple(dict.fromkeys(first.assumptions + second.assumptions))
        return Total(_with_short_denominator(first.pure + second.pure), cost, first.delta + second.delta, assumptions)

    def divergences(self, total: Total) -> Floats:
        """S(α) at each order, for rdp and zcdp."""
        if isinstance(total.cost, np.ndarray):
            return total.cost
        rho, xi = total.cost
        if math.isinf(rho) or math.isinf(xi):
            return np.full(self.orders.shape, math.inf)
        return np.array([formulas.up(xi + rho * Fraction(order)) for order in self.orders])

    def bound(
        self,
        total: Total,
        value: float,
        quantity: str,
        *,
        delta: float | None = None,
        at: float | None = None,
        fixed: bool = False,
    ) -> Bound:
        """A certified upper bound; `fixed` means that it holds only if the costs did not depend on outcomes."""
        bound = self.accountant._bound(value, quantity, delta=delta, at=at)
        return replace(bound, assumptions=(RELEASED, *((FIXED,) if fixed else ()), *total.assumptions))


def _with_short_denominator(value: Exact) -> Exact:
    """`value`, or a slightly larger number if its denominator is very long."""
    if isinstance(value, Fraction) and value.denominator.bit_length() > 4096:
        return Fraction(math.ceil(value * 2**2048), 2**2048)
    return value


_EX_POST = (
    "a realised, ex-post cost depends on the private data, and stopping because of it is not private; "
    "charge the event at its worst-case cost"
)


def _cost_of_guarantee(accountant: Accountant[Any], guarantee: Guarantee, missing: float | None = None) -> Any:
    """The cost of a guarantee in the accountant's parameter; `missing` if it has none, or `Unsupported` if that is
    None.

    Pure ε is ε·tanh(ε/2)-zCDP (`formulas.zcdp_of_pure`). μ-GDP is μ²/2-zCDP, since its pair is a post-processing of
    N(0, 1) and N(μ, 1) (Dong, Roth and Su 2022). Rényi divergences increase with their order. The ε_i of an (ε_i, δ_i)
    step is that of the step when it does not reveal everything.
    """
    if isinstance(guarantee, ExPostDP) or hasattr(guarantee, "u_minus") or getattr(guarantee, "private", False):
        raise ValueError(_EX_POST)
    if not isinstance(guarantee, Guarantee):
        raise ValueError(f"charge an event or a guarantee, not {type(guarantee).__name__}")
    match accountant, guarantee:
        case _, ZCDP(0) | GDP(0) | RDP(_, 0):
            cost = accountant._zero()
        case Basic(), PureDP(epsilon) | ApproxDP(epsilon, _):
            return Fraction(epsilon)
        case ZeroConcentrated(), PureDP(epsilon) | ApproxDP(epsilon, _):
            return Fraction(formulas.zcdp_of_pure(epsilon)), Fraction(0)
        case ZeroConcentrated(), ZCDP(rho):
            return Fraction(rho), Fraction(0)
        case ZeroConcentrated(), GDP(mu):
            return Fraction(mu) ** 2 / 2, Fraction(0)
        case GaussianDP(), PureDP(epsilon) | ApproxDP(epsilon, _):
            return Fraction(formulas.gdp_of_pure(epsilon)) ** 2
        case GaussianDP(), GDP(mu):
            return Fraction(mu) ** 2
        case RenyiAccountant(orders=orders), PureDP(epsilon) | ApproxDP(epsilon, _):
            cost = accountant._closed_form(formulas.rdp_of_pure(epsilon, orders))
        case RenyiAccountant(orders=orders), ZCDP(rho):
            cost = accountant._closed_form(rho * orders * (1 + 4 * _UNIT))
        case RenyiAccountant(orders=orders), GDP(mu):
            cost = accountant._closed_form(mu**2 / 2 * orders * (1 + 8 * _UNIT))
        case RenyiAccountant(orders=orders), RDP(alpha, epsilon):
            cost = accountant._closed_form(np.where(orders <= alpha, epsilon, math.inf))
        case _:
            if missing is not None:
                return missing
            raise Unsupported(f"{accountant.name} has no cost for {guarantee!r}; charge an event or another guarantee")
    return cost


def equal_weights(orders: Floats) -> Floats:
    """Equal weights, one per order, whose exact sum is at most 1."""
    return np.full(orders.shape, math.nextafter(1 / orders.size, 0) if orders.size > 1 else 1.0)


def stopped_epsilon(orders: Floats, weights: Floats, divergences: Floats, delta: float) -> float:
    """The ε that holds at a stopping time, rounded up: log max_L [L − δ Σ w_α e^{−(α−1)S(α)} L^α], at least 0.

    Proof: docs/proofs/filters.md, Theorems 3 and 4; λ, the weights of the dual, as there.

    Args:
        orders: α > 1, shape (n,).
        weights: w > 0 with Σ w ≤ 1, shape (n,).
        divergences: upper bounds on S(α), may be inf, shape (n,).
        delta: in (0, 1).
    """
    known = np.isfinite(divergences)
    if not known.any():
        return math.inf
    alpha, renyi, log_weight = orders[known], divergences[known], np.log(weights[known])
    excess, log_order, log_delta = alpha - 1, np.log(alpha), math.log(delta)
    intercept = (
        log_order + log_delta + log_weight - excess * renyi
    )  # of the log of a term's slope in L, α − 1 its slope
    level = float((-intercept / excess).min())  # log L at which one term has slope 1, so the sum has at least 1
    for _ in range(60):  # Newton from above, for a log-sum-exp, which is convex and increasing
        share = np.exp(intercept + excess * level)
        slope = float(share.sum())
        level -= math.log(slope) * slope / float(share @ excess)
        if slope < 1 + 1e-9:
            break
    share[share < 1e-290] = 0.0
    share *= (1 + 4 * alpha.size * _UNIT) / math.fsum(share)
    if not math.fsum(share) > 1:  # correctly rounded, so the exact sum is at least 1
        raise ArithmeticError("the shares of a mixture of orders do not sum to 1")
    used = share > 0
    alpha, excess, renyi, log_order, log_weight = (
        column[used] for column in (alpha, excess, renyi, log_order, log_weight)
    )
    log_share, log_excess = np.log(share[used]), np.log(excess)
    terms = log_share + log_excess - log_order + renyi + (log_share - log_order - log_weight - log_delta) / excess
    size = np.abs(log_share) + np.abs(log_excess) + log_order + renyi
    size = size + (np.abs(log_share) + log_order + np.abs(log_weight) + abs(log_delta)) / excess
    terms = terms + 16 * _UNIT * size
    top = float(terms.max())
    spread = np.exp(terms - top)  # its arguments and itself have relative error below (4 + |terms − top|)u
    room = (16 + 2 * alpha.size) * _UNIT + 4 * _UNIT * float((spread * np.abs(terms - top)).sum())
    log_sum = math.log(float(spread.sum()))
    return max(0.0, top + log_sum + room + 16 * _UNIT * (abs(top) + abs(log_sum)))


def simultaneous_epsilon(orders: Floats, weights: Floats, divergences: Floats, delta: float) -> float:
    """An ε that bounds the loss at all times at once: the least ε with Σ w_α e^{(α−1)(ε − S(α))} ≥ 1/δ.

    It is at least 0 and rounded up. Arguments as for `stopped_epsilon`.

    Proof: docs/proofs/filters.md, Theorem 8.
    """
    known = np.isfinite(divergences)
    if not known.any():
        return math.inf
    excess, renyi, log_weight = orders[known] - 1, divergences[known], np.log(weights[known])
    target = -math.log(delta) * (1 + 8 * _UNIT)

    def reached(epsilon: float) -> bool:
        terms = log_weight + excess * (epsilon - renyi)
        terms = terms - 16 * _UNIT * (np.abs(log_weight) + excess * (epsilon + renyi))
        top = float(terms.max())
        log_sum = top + math.log(float(np.exp(terms - top).sum()))
        return log_sum - (32 + 4 * excess.size) * _UNIT * (1 + abs(top)) >= target

    high = float((renyi + (target - log_weight) / excess).min()) * (1 + 1e-9) + 1e-9
    low = 0.0
    if reached(low):
        return 0.0
    if not reached(high):
        raise ArithmeticError("a single order does not reach the level that it was solved for")
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def split_delta(delta: float, step_delta: float, *, basic: bool) -> tuple[Fraction, float]:
    """(δ″ for the δ_i of the steps, δ′ for the conversion, rounded down), with δ = δ′ + δ″."""
    kept = Fraction(delta) if basic else Fraction(validate.probability(step_delta=step_delta))
    rest = Fraction(delta) - kept
    if not basic and rest <= 0:
        raise ValueError(f"step_delta must be below delta ({delta:g}), not {step_delta:g}")
    conversion = float(rest)
    return kept, conversion if Fraction(conversion) <= rest else math.nextafter(conversion, 0)
