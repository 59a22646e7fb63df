"""Privacy filters: they stop an adaptive interaction before it exceeds its budget.

Ask a filter before each step, with the step's worst-case cost. The step may run only if the total stays within the
budget. So the whole interaction has the guarantee of the budget, whichever steps are chosen and whenever it stops. Each
budget requires, on every transcript:

    ==================  =======  ===================================================================================
    budget              method   requirement on the total
    ==================  =======  ===================================================================================
    PureDP(ε)           basic    Σ ε_i ≤ ε
    ApproxDP(ε, δ)      basic    Σ ε_i ≤ ε and Σ δ_i ≤ δ (Rogers et al. 2016)
    ApproxDP(ε, δ)      zcdp     S(α) = Σ ξ_i + αΣ ρ_i converts to (ε, δ′) at one order α
    ApproxDP(ε, δ)      rdp      S(α) converts to (ε, δ′), at one order or at a mixture of several
    ApproxDP(ε, δ)      gdp      Σ μ_i² ≤ μ² where μ-GDP is (ε, δ′)-DP
    ZCDP(ρ)             zcdp     Σ (ρ_i + ξ_i) ≤ ρ, since ξ + ρα ≤ (ξ + ρ)α (Whitehouse et al. 2023)
    RDP(α, ε)           rdp      S(α) ≤ ε at that order (Feldman and Zrnic 2021)
    GDP(μ)              gdp      Σ μ_i² ≤ μ² (Smith and Thakurta 2022)
    ==================  =======  ===================================================================================

For (ε, δ) with a method other than basic, δ = δ′ + δ″ and Σ δ_i ≤ δ″, and the step also runs while Σ ε_i ≤ ε.

An accountant's ε(δ) of the composition so far, compared with a budget, is not a filter: its best order, or its worst
event, may depend on the outcomes.

Proof: docs/proofs/filters.md, Theorems 2 to 9.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NoReturn, Self

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.filters.adaptive import (
    BudgetExhausted,
    Meter,
    Spend,
    Total,
    equal_weights,
    split_delta,
    stopped_epsilon,
)
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from dpassay.base import validate

_METHODS: dict[type, tuple[str, ...]] = {
    PureDP: ("basic",),
    ApproxDP: ("rdp", "zcdp", "gdp", "basic"),
    ZCDP: ("zcdp",),
    RDP: ("rdp",),
    GDP: ("gdp",),
}
"""The methods for each kind of budget; the first is the default."""


class Filter:
    """A budget that adaptively chosen steps are charged against before they run.

    Numbers are added exactly, as the binary floats that they are: ten steps of 0.1 exceed 1.0 by 6e-17 and are refused.

    A filter has state: its total never decreases, and it cannot be copied, since a copy would not see what the original
    is charged. `admits` and `spend` depend on costs only, so a refusal reveals nothing.

    Args:
        budget: PureDP, ApproxDP, ZCDP, RDP or GDP; the guarantee of the whole interaction.
        adjacency: the neighbouring relation of the budget and of everything that is charged.
        unit: record or user.
        method: for ApproxDP, rdp (default; most events), zcdp, gdp (best for Gaussians) or basic.
        orders: for ApproxDP by rdp or zcdp, one Rényi order or several; see `order_for`. By default several for rdp,
            and for zcdp the order that allows the largest ρ.
        step_delta: δ″ for ApproxDP, the part of δ for (ε_i, δ_i)-DP steps; for basic it is all of δ.

    Raises:
        ValueError: if there is no filter for the budget, or an argument is invalid.
    """

    def __init__(
        self,
        budget: Guarantee,
        *,
        adjacency: Adjacency | str,
        unit: Unit | None = None,
        method: str | None = None,
        orders: float | Sequence[float] | None = None,
        step_delta: float = 0.0,
    ) -> None:
        methods = _METHODS.get(type(budget))
        if methods is None:
            raise ValueError(f"a budget must be PureDP, ApproxDP, ZCDP, RDP or GDP, not {type(budget).__name__}")
        method = validate.one_of(methods, method=methods[0] if method is None else method)
        if orders is not None and not (isinstance(budget, ApproxDP) and method in ("rdp", "zcdp")):
            raise ValueError(f"orders are for ApproxDP by rdp or zcdp, not for {type(budget).__name__} by {method}")
        self._step_delta, self._delta = Fraction(0), 0.0
        if isinstance(budget, ApproxDP):
            self._step_delta, self._delta = split_delta(budget.delta, step_delta, basic=method == "basic")
            if method == "zcdp" and orders is None:
                orders = _zcdp_order(budget.epsilon, self._delta)
        elif step_delta:
            raise ValueError(f"step_delta is a part of the δ of ApproxDP, and {type(budget).__name__} has none")
        if isinstance(budget, RDP):
            orders = budget.alpha
        self._budget = budget
        self._meter = Meter(method, adjacency, unit, orders)
        self._weights = equal_weights(self._meter.orders)
        self._total = self._meter.zero
        self._lock = threading.Lock()

    @classmethod
    def replay(cls, spends: Iterable[Spend], budget: Guarantee, **options: Any) -> Self:
        """A filter that has charged all of `spends`, for instance after a crash; `options` are the arguments of the
        class.

        Pass ``[ledger.event()]`` for a ledger; it includes steps that were charged and never ran.

        Raises:
            BudgetExhausted: if `spends` already exceed the budget. No filter is returned, and nothing more may run.
            ValueError: if there is no bound on a cost.
        """
        guard = cls(budget, **options)
        for spend in spends:
            guard._total = guard._meter.add(guard._total, guard._meter.cost(spend))
        if not guard._within(guard._total):
            raise BudgetExhausted(
                f"what already ran exceeds {budget!r}: the guarantee does not hold, and nothing more may run"
            )
        return guard

    @property
    def guarantee(self) -> Guarantee:
        """What the interaction satisfies, whichever steps run and whenever it stops."""
        return self._budget

    def admits(self, spend: Spend) -> bool:
        """Whether `spend` may run now. Nothing is charged.

        Raises:
            ValueError: if there is no bound on its cost.
        """
        return self._within(self._meter.add(self._total, self._meter.cost(spend)))

    def spend(self, spend: Spend) -> None:
        """Charges a step. Run it only after this returns.

        Args:
            spend: an event, at its worst-case cost, or a guarantee of the step at the filter's adjacency and unit.

        Raises:
            BudgetExhausted: if the total would exceed the budget; nothing was charged.
            ValueError: if there is no bound on its cost; if it is a realised, ex-post cost.
        """
        cost = self._meter.cost(spend)
        with self._lock:
            total = self._meter.add(self._total, cost)
            if not self._within(total):
                raise BudgetExhausted(
                    f"{type(spend).__name__} would exceed {self._budget!r}; "
                    f"{self.remaining()!r} remains: stop, or spend less"
                )
            self._total = total

    def spent(self) -> Bound:
        """The total cost, in the unit of the budget; for ApproxDP the ε at the budget's δ.

        By basic, zcdp and rdp the ε holds even if the interaction stops now because of its outcomes. A ρ, a divergence,
        a μ, and an ε by gdp hold only if the costs were fixed in advance, which the bound lists as an assumption;
        `guarantee` holds always.
        """
        total = self._total
        bound = functools.partial(self._meter.bound, total)
        match self._budget:
            case ZCDP():
                return bound(formulas.up(sum(total.cost)), "rho", fixed=True)
            case RDP(alpha, _):
                return bound(float(total.cost[0]), "renyi_epsilon", at=alpha, fixed=True)
            case GDP():
                return bound(_root_up(total.cost), "mu", fixed=True)
            case ApproxDP(_, delta):
                converted, pure = self._epsilon(total), formulas.up(total.pure)
                gaussian = self._meter.accountant.name == "gdp" and converted < pure
                return bound(min(pure, converted), "epsilon", delta=delta, fixed=gaussian)
        return bound(formulas.up(total.pure), "epsilon")

    def remaining(self) -> Guarantee:
        """The largest guarantee that would still be admitted, up to a relative 1e-9.

        Its kind depends on the method: PureDP or ApproxDP (basic), ZCDP (zcdp, and rdp for ApproxDP), RDP, GDP.
        """
        total = self._total
        match self._budget:
            case PureDP(epsilon) | ApproxDP(epsilon, _) if self._meter.accountant.name == "basic":
                pure, delta = _down(Fraction(epsilon) - Fraction(total.pure)), _down(self._step_delta - total.delta)
                return ApproxDP(pure, delta) if delta else PureDP(pure)
            case ZCDP(rho):
                return ZCDP(_down(Fraction(rho) - sum(total.cost)))
            case RDP(alpha, epsilon):
                return RDP(alpha, self._largest(lambda value: RDP(alpha, value), epsilon))
            case GDP(mu):
                return GDP(self._largest(GDP, mu))
        kind = GDP if self._meter.accountant.name == "gdp" else ZCDP
        high = 1.0
        while self.admits(kind(high)):
            high *= 2
        return kind(self._largest(kind, high))

    def _within(self, total: Total) -> bool:
        if total.delta > self._step_delta:
            return False
        match self._budget:
            case ZCDP(rho):
                return bool(sum(total.cost) <= Fraction(rho))
            case RDP(_, epsilon):
                return bool(total.cost[0] <= epsilon)
            case GDP(mu):
                return bool(total.cost <= Fraction(mu) ** 2)
            case ApproxDP(epsilon, _):
                return total.pure <= Fraction(epsilon) or self._converts(total, epsilon)
            case PureDP(epsilon):
                return total.pure <= Fraction(epsilon)
        return False

    def _converts(self, total: Total, epsilon: float) -> bool:
        """Whether the accountant's own parameter alone gives (ε, δ′)."""
        if self._meter.accountant.name == "gdp":
            return formulas.delta_from_gdp(_root_up(total.cost), epsilon) <= self._delta
        return self._epsilon(total) <= epsilon

    def _epsilon(self, total: Total) -> float:
        """ε at δ′ from the accountant's own parameter alone."""
        if self._meter.accountant.name == "basic":
            return formulas.up(total.pure)
        if self._meter.accountant.name == "gdp":
            return formulas.epsilon_from_gdp(_root_up(total.cost), self._delta)
        return stopped_epsilon(self._meter.orders, self._weights, self._meter.divergences(total), self._delta)

    def _largest(self, kind: Callable[[float], Guarantee], high: float) -> float:
        """The largest parameter in [0, high] that is still admitted; 0 if it is below 1e-12·high."""
        low, least = 0.0, 1e-12 * high
        if self.admits(kind(high)):
            return high
        while high - low > 1e-9 * high and high > least:
            middle = (low + high) / 2
            low, high = (middle, high) if self.admits(kind(middle)) else (low, middle)
        return low

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a filter cannot be copied or pickled, as its budget would be spent twice; use Filter.replay instead"
        )


def order_for(plan: DpEvent, delta: float, *, adjacency: Adjacency | str, unit: Unit | None = None) -> float:
    """The Rényi order with the least ε(δ) for a planned composition: the order to give to a filter.

    It may depend on the plan, but on no outcome, since the order of a filter is fixed in advance.

    Args:
        plan: about what will run in all, at this adjacency and unit.
        delta: the δ of the budget, minus `step_delta`.

    Raises:
        ValueError: if rdp has no certified bound for the plan.
    """
    validate.open_probability(delta=delta)
    composed = RenyiAccountant(adjacency, unit).compose(plan)
    values = formulas.epsilon_from_rdp(composed.orders, composed.cost.divergence, delta)
    values = np.where(composed.cost.certified, values, math.inf)
    if math.isinf(values.min()):
        raise ValueError(f"no certified order gives a finite ε for {type(plan).__name__}")
    return float(composed.orders[int(np.argmin(values))])


def _zcdp_order(epsilon: float, delta: float) -> float:
    """The order α at which (ε, δ) allows the largest ρ: it maximises (ε + log(αδ)/(α − 1) − log(1 − 1/α))/α.

    Any order is valid, so the search need not be exact.
    """
    order = 1 + np.geomspace(1e-4, 1e9, 4001)
    budget = epsilon + np.log(order * delta) / (order - 1) - np.log1p(-1 / order)
    return float(order[int(np.argmax(budget / order))])


def _root_up(square: Fraction | float) -> float:
    """The square root, rounded up."""
    value = math.sqrt(formulas.up(square))
    return value if math.isinf(value) or Fraction(value) ** 2 >= square else math.nextafter(value, math.inf)


def _down(value: Fraction) -> float:
    """The largest float that is at most `value`, and at least 0."""
    nearest = float(value)
    return max(0.0, nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf))
